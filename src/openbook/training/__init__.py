"""Training: encode, train and examine any Hugging Face causal language model with a book that closes."""
