"""The mathematics: the surrogate, the transformer written by hand, the lemmas. No language model is trained here."""
