"""openbook: context-enhanced learning of language models.

Study with the book open, sit the exam with the book closed.
"""

__version__ = "0.1.0"
