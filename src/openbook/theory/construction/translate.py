"""The translation module: one attention layer with two heads and one MLP (`alg:translate`).

    V_{i+1} = HardMax(C_i + W_i) S_i     with S_i = Shift(V_i) in `left`

The attention writes C_i s into `right`; the MLP adds W_i s, applies GELU and normalises.
"""

from __future__ import annotations

import math

from openbook.theory.construction.basis import Action, Basis, Direction, kept, linear, onto
from openbook.theory.construction.layers import Head, StoringMlp
from openbook.theory.construction.stream import Stream, pairs

# In units of a score. All of a level's tokens together get n² exp(-20) of the weight that rests on the thinking
# position, other levels exp(-20) of theirs: both below what float32 can see beside 1.
REST = 20.0
ASIDE = 60.0

# ε of the normalisation. A stored rule has |GELU(e_r)|² = 0.71, so this moves the output by ε²/1.4 = 7e-7.
FLOOR = 1e-3

ATTENTION_REPLACES = ()  # `right` of a query token is 0: C_i s is added to it
MLP_REPLACES = ("left", "right")


def heads(stream: Stream, level: int, scale: float) -> list[Head]:
    """Two heads whose difference is linear in s, so that C_i s comes out and not the column of the largest s_x.

    At a query token with s in `left`, the head with sign ± scores

        ± s_x / N   at the context token [e_x; C_i e_x] of this level,
        20          at the thinking position of this level, whose `right` is 0,
        -20         at context tokens of other levels and at its own position, less at other query tokens.

    The thinking position takes nearly all the weight, so the context token x gets exp(-20 ± s_x/N) and

        Σ_± ± (N/2) exp(20) Σ_x exp(-20 ± s_x/N) C_i e_x = Σ_x N sinh(s_x/N) C_i e_x = C_i s (1 + O(N⁻²)).

    One saturated head would do for one-hot s, but its derivative with respect to s is 0: nothing below could be
    trained. Thinking positions and paddings attend to themselves (bias 40), where `right` is 0, so they stay empty.
    """
    basis = stream.basis
    asks = {
        **{Direction("level", (other,)): -REST for other in range(stream.depth) if other != level},
        Direction("think", (level,)): REST,
        Direction("query"): -ASIDE,
    }
    asks_nothing = {image: -score for image, score in asks.items()}
    keys = linear(basis, basis, kept("left", "level", "think", "query"))

    def head(sign: float) -> Head:
        query: dict[str, Action] = {
            "left": onto("left", sign / scale),
            "query": lambda _: asks,
            "end": lambda _: asks_nothing,  # the padding after the last column is in the segment
        }
        value = {"right": onto("right", sign * scale / 2 * math.exp(REST))}
        return Head(linear(basis, basis, query), keys, linear(basis, basis, value), (ASIDE - REST,))

    return [head(+1.0), head(-1.0)]


def storing_mlp(stream: Stream) -> StoringMlp:
    """The MLP with one hidden unit for each bigram r: GELU((C_i s)_r + (W_i s)_r), normalised, back into `left`."""
    basis, hidden = stream.basis, Basis(pairs("image", stream.chars))
    return StoringMlp(
        linear(basis, hidden, {"right": onto("image")}),
        linear(hidden, basis, {"image": onto("left")}),
        linear(basis, Basis(pairs("left", stream.chars)), kept("left")),
        FLOOR,
    )
