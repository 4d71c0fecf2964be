"""The task: multi-level translation MLT(d, n). Phrasebooks, translation (the oracle), inputs and text."""

from openbook.task.inputs import coverable_inputs, random_inputs, subset_inputs
from openbook.task.phrasebook import Codebook, Phrasebook
from openbook.task.translate import Translation, translate, translate_batch

__all__ = [
    "Codebook",
    "Phrasebook",
    "Translation",
    "coverable_inputs",
    "random_inputs",
    "subset_inputs",
    "translate",
    "translate_batch",
]
