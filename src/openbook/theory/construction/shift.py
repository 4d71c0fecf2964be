"""The shift module: one attention layer with three heads and one MLP (`alg:circularshift`).

    Shift(V)^(j) = e_b ⊗ e_c     where V^(j) = e_a ⊗ e_b and V^(j+1) = e_c ⊗ e_d, the last column followed by the first

Column j + 1 comes after column j, so under a causal mask the result can only stand one position further right: at every
level the sequence moves by one, the position it leaves is a thinking position, and the first padding takes the last
column. Drawn for three columns (s start, e end, . thinking):

    before    V1s  V2   V3   0e   0
    after     .    V1s  V2   V3   0e        where column j is now Shift(V)^(j)
"""

from __future__ import annotations

import math

from openbook.theory.construction.basis import Action, Basis, Direction, kept, linear, onto
from openbook.theory.construction.layers import Head, Mlp
from openbook.theory.construction.stream import Stream, pairs

# exp(-200) is 0 in float32: these heads attend to one position and to nothing else. Their scores do not depend on
# anything that is trained, so saturating them costs no gradient.
SATURATED = 200.0
# GELU(-20) is 0 in float32: what is subtracted from every hidden unit of a thinking position
SILENCE = 20.0

# what the attention replaces; `think` is added to, since a thinking position keeps its mark
ATTENTION_REPLACES = ("tail", "lead", "idle", "start", "end", "query")
MLP_REPLACES = ("left",)


def heads(stream: Stream, level: int) -> list[Head]:
    """The three heads of the shift at `level` (from 0)."""
    source, target = stream.basis, stream.halfway
    silent = linear(source, source, {})
    # (1_n ⊗ I_n)ᵀ v: the second character of a bigram; start, end and segment move right with it
    tail_and_marks: dict[str, Action] = {
        "left": lambda bigram: {Direction("tail", bigram.place[1:]): 1.0},
        **kept("start", "end", "query"),
    }
    previous = Head(silent, silent, linear(source, target, tail_and_marks), (0.0, SATURATED))
    # the position that is the start now is the one the sequence leaves
    mark_of_leaving = linear(source, target, {"start": lambda _: {Direction("think", (level,)): 1.0}})
    own = Head(silent, silent, mark_of_leaving, (SATURATED,))
    # A softmax must attend somewhere, so the paper's third head cannot be "0 otherwise". Ours attends to its own
    # position (bias) unless it is the end (score 2·200 against 200), where it attends to the start.
    own_or_wrapped = Head(
        linear(source, source, {"end": onto("start", 2 * SATURATED)}),
        linear(source, source, kept("start")),
        # (I_n ⊗ 1_n)ᵀ v: the first character of a bigram
        linear(source, target, {"left": lambda bigram: {Direction("lead", bigram.place[:1]): 1.0}}),
        (SATURATED,),
    )
    return [previous, own, own_or_wrapped]


def product_mlp(stream: Stream, scale: float) -> Mlp:
    """The MLP that multiplies: left(b, c) <- tail(b) · lead(c), with three hidden units for each of the n² pairs.

        xy = √(π/2) N² [ GELU((x+y)/N) - GELU(x/N) - GELU(y/N) ] (1 + O(N⁻²))

    since GELU(t) = t/2 + t²/√(2π) - O(t⁴) and the square is all that survives to second order. At a thinking position
    every unit is silenced; where x or y is 0 the three units cancel exactly, so zeros stay zeros.
    """
    source, target = stream.halfway, stream.basis
    hidden = Basis(unit for kind in ("sum", "first", "second") for unit in pairs(kind, stream.chars))
    characters = range(stream.chars)
    constant = math.sqrt(math.pi / 2) * scale**2

    inner: dict[str, Action] = {
        "tail": lambda b: {Direction(kind, (*b.place, c)): 1 / scale for kind in ("sum", "first") for c in characters},
        "lead": lambda c: {Direction(kind, (b, *c.place)): 1 / scale for kind in ("sum", "second") for b in characters},
        "think": lambda _: dict.fromkeys(hidden.directions, -SILENCE),
    }
    outer = {"sum": onto("left", constant), "first": onto("left", -constant), "second": onto("left", -constant)}
    return Mlp(linear(source, hidden, inner), linear(hidden, target, outer))
