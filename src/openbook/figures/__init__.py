"""Charts: what they say (`charts.py`), and how they look."""
