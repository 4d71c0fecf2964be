"""The transformer written by hand that simulates the surrogate: the paper's construction as a real `nn.Module`.

Read `transformer.py` first (the stages in order), then `shift.py` and `translate.py` (every weight and why).
"""

from openbook.theory.construction.transformer import ConstructedTransformer

__all__ = ["ConstructedTransformer"]
