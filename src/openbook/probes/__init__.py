"""Where the knowledge sits: perturb the context, stitch the layers, read the strings in between.

Every probe returns a plain object with `to_json()`; `draw.py` makes charts of that JSON, so maps can be drawn again
without a model. `known.py` runs the same probes on models whose truth is known.
"""
