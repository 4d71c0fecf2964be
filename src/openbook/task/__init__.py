"""The task: multi-level translation MLT(d, n). Phrasebooks, translation (the oracle), inputs and text."""

from openbook.task.inputs import coverable_inputs as coverable_inputs
from openbook.task.inputs import random_inputs as random_inputs
from openbook.task.inputs import subset_inputs as subset_inputs
from openbook.task.phrasebook import Codebook as Codebook
from openbook.task.phrasebook import Phrasebook as Phrasebook
from openbook.task.translate import Translation as Translation
from openbook.task.translate import translate as translate
from openbook.task.translate import translate_batch as translate_batch
