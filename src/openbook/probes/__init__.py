"""In which layers a model reads its book, in which it keeps what it has learned, and what it knows in between.

A probe is a function that takes a `Subject` (a model with the examples to probe it on) and returns a plain dataclass.
Its fields are the keys of `openbook probe ... --json`: `dataclasses.asdict` makes that JSON, and `draw.py` makes charts
of the JSON alone, so maps can be drawn again without a model. `known.py` runs two of the probes on models whose layers
are known by construction, which is how the probes themselves are checked.
"""
