"""Random codebooks and strings for property tests."""

from __future__ import annotations

from hypothesis import strategies as st

from openbook.task import Codebook

sizes = st.tuples(st.integers(1, 5), st.integers(2, 9))  # depth, chars


@st.composite
def codebooks(draw: st.DrawFn) -> Codebook:
    depth, chars = draw(sizes)
    return Codebook.sample(depth, chars, seed=draw(st.integers(0, 2**64 - 1)))


def strings(chars: int, pairs: st.SearchStrategy[int] | None = None) -> st.SearchStrategy[list[int]]:
    """Strings of even length over 0..chars-1."""
    counts = st.integers(1, 12) if pairs is None else pairs
    return counts.flatmap(lambda count: st.lists(st.integers(0, chars - 1), min_size=2 * count, max_size=2 * count))


@st.composite
def codebooks_and_strings(draw: st.DrawFn) -> tuple[Codebook, list[int]]:
    codebook = draw(codebooks())
    return codebook, draw(strings(codebook.chars))
