"""The tiny reader: a model family that learns to read a book from nothing on two cores."""
