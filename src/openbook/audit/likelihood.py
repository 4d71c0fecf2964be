"""Log-likelihoods of every candidate at every place, sharing the prefix.

The candidates of a place form a tree of tokens. The text before it (the trunk) is read once; then all inner nodes of
all trees are read in one more pass that looks back on the trunk's keys and values. A mask lets a node see the trunk up
to its place and its own ancestors, nothing else, so many places of one text share one trunk. For a rule of the task
that is n extra tokens instead of n² passes over the whole context.

Legend: B rows, T tokens of the trunk, Q nodes of a row, N candidates, L tokens of a candidate.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from openbook.audit.subject import Ids, Subject
from openbook.base.errors import InputError
from openbook.student.model import StudentForCausalLM
from openbook.training.targets import gathered

MASK_ENTRIES = 4_000_000  # of one pass over nodes: 16 MB
LOGITS = 32_000_000  # of one pass over nodes: 128 MB
TRUNK_TOKENS = 8_192  # of one pass over trunks


@dataclass(frozen=True)
class Place:
    """A place in a text: `row` of the texts, and the number of tokens that stand before it there."""

    row: int
    before: int


@dataclass(frozen=True)
class Likelihoods:
    """For each candidate and each of its tokens: log-probability, and how unusual that is there.

    `z_nl` is (log p(x) - mu) / sigma with mu and sigma over the model's own distribution at that place (Min-K%++).
    Candidates differ in length: what is not there is NaN.
    """

    logp_nl: NDArray[np.float64]
    z_nl: NDArray[np.float64]

    @property
    def total_n(self) -> NDArray[np.float64]:
        """Log-likelihood of each whole candidate."""
        return np.nansum(self.logp_nl, axis=1)


class Tree:
    """The candidates of a place as a tree; a node is a token after its ancestors."""

    def __init__(self, candidates: Sequence[Ids]) -> None:
        numbers: dict[Ids, int] = {(): -1}
        self.token: list[int] = []
        self.parent: list[int] = []
        self.depth: list[int] = []
        for ids in candidates:
            for size in range(1, len(ids)):  # the last token of a candidate need not be read
                if ids[:size] not in numbers:
                    numbers[ids[:size]] = len(self.token)
                    self.token.append(ids[size - 1])
                    self.parent.append(numbers[ids[: size - 1]])
                    self.depth.append(size)
        self.longest = max(map(len, candidates))
        steps = [
            (n, place, numbers[ids[:place]], token)
            for n, ids in enumerate(candidates)
            for place, token in enumerate(ids)
        ]
        self.candidate, self.place, self.source, self.next = np.array(steps).T  # source: the node asked, -1 the root
        self.size = len(candidates)
        ancestors = np.eye(len(self.token), dtype=bool)
        for node, parent in enumerate(self.parent):
            if parent >= 0:
                ancestors[node] |= ancestors[parent]
        self.sees = ancestors  # [nodes, nodes]

    def __len__(self) -> int:
        return len(self.token)

    def collect(self, root: Tensor, nodes: Tensor) -> Likelihoods:
        """Look up every candidate's tokens in the logits at the root [V] and at the nodes [nodes, V]."""
        logits = torch.cat([nodes, root[None]]).double()  # node -1 is the root
        logp = torch.log_softmax(logits, -1)
        p = logp.exp()
        finite = torch.where(p > 0, logp, 0.0)
        mean = (p * finite).sum(-1)
        spread = ((p * finite.square()).sum(-1) - mean.square()).clamp(min=1e-12).sqrt()
        source, token = torch.from_numpy(self.source), torch.from_numpy(self.next)
        found = logp[source, token]
        unusual = (found - mean[source]) / spread[source]
        tables = []
        for values in (found, unusual):
            table = np.full((self.size, self.longest), math.nan)
            table[self.candidate, self.place] = values.cpu().numpy()
            tables.append(table)
        return Likelihoods(*tables)


def candidate_likelihoods(
    subject: Subject, texts: Sequence[Ids], places: Sequence[Place], candidates: Sequence[Sequence[Ids]]
) -> list[Likelihoods]:
    """Likelihoods of the candidates of each place, given the tokens of its text before it."""
    trees: dict[int, list[Tree]] = {}  # by identity: places of one group share one list of candidates
    most = _most_nodes(max(place.before for place in places), subject.vocabulary)
    for options in candidates:
        if id(options) not in trees:
            trees[id(options)] = [Tree(some) for some in _small_enough(options, most)]
    # a place is asked once for each of its trees
    where = [place for place, options in zip(places, candidates, strict=True) for _ in trees[id(options)]]
    tree_of = [tree for options in candidates for tree in trees[id(options)]]
    results: dict[int, Likelihoods] = {}
    by_row: dict[int, list[int]] = {}
    for number, place in enumerate(where):
        by_row.setdefault(place.row, []).append(number)
    with torch.inference_mode():
        for rows in batched_rows([len(texts[row]) for row in by_row], list(by_row), TRUNK_TOKENS):
            asked = [sorted(by_row[row], key=lambda k: where[k].before) for row in rows]
            trunk = _read(subject, [texts[row] for row in rows], [[where[k].before - 1 for k in ks] for ks in asked])
            for part in _parts(asked, tree_of, trunk.length, subject.vocabulary):
                for number, likelihoods in _branch(subject, trunk, part, where, tree_of):
                    results[number] = likelihoods
    found, at = [], 0
    for options in candidates:
        size = len(trees[id(options)])
        found.append(_joined([results[number] for number in range(at, at + size)]))
        at += size
    _check_one(subject, texts, places, candidates, found)
    return found


def _most_nodes(before: int, vocabulary: int) -> int:
    """Nodes of one place that can be read in one pass."""
    by_mask = int(math.sqrt(before**2 / 4 + MASK_ENTRIES) - before / 2)
    return max(1, min(by_mask, LOGITS // vocabulary))


def _small_enough(candidates: Sequence[Ids], most: int) -> Iterator[list[Ids]]:
    """Runs of candidates whose trees have at most so many nodes; one candidate alone may have more."""
    some: list[Ids] = []
    nodes: set[Ids] = set()
    for ids in candidates:
        own = {ids[:size] for size in range(1, len(ids))}
        if some and len(nodes | own) > most:
            yield some
            some, nodes = [], set()
        some.append(ids)
        nodes |= own
    if some:
        yield some


def _joined(parts: Sequence[Likelihoods]) -> Likelihoods:
    """Likelihoods of all candidates of a place from those of some each."""
    if len(parts) == 1:
        return parts[0]
    longest = max(part.logp_nl.shape[1] for part in parts)

    def wide(table: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.pad(table, ((0, 0), (0, longest - table.shape[1])), constant_values=math.nan)

    return Likelihoods(
        np.concatenate([wide(part.logp_nl) for part in parts]), np.concatenate([wide(part.z_nl) for part in parts])
    )


def _check_one(
    subject: Subject,
    texts: Sequence[Ids],
    places: Sequence[Place],
    candidates: Sequence[Sequence[Ids]],
    found: Sequence[Likelihoods],
) -> None:
    """Hold one candidate against a plain pass over its text, once for every subject.

    A model whose attention goes by more than the places it is told (ALiBi's by that in the cache) would fail here, not
    quietly.
    """
    if "trees hold" in subject.memo:
        return
    different = {id(options): k for k, options in enumerate(candidates)}.values()
    k, n = max(
        ((k, n) for k in different for n in range(len(candidates[k]))), key=lambda at: len(candidates[at[0]][at[1]])
    )
    ids = candidates[k][n]
    before = texts[places[k].row][: places[k].before]
    alone = np.zeros(len(ids))
    for spots, logits in next_logits(subject, [before + ids], [Place(0, len(before))], [len(ids)]):
        logp = torch.log_softmax(logits.double(), -1)
        for (_, offset), row in zip(spots, logp, strict=True):
            alone[offset] = row[ids[offset]].item()
    within = 1e-3 if subject.model.dtype == torch.float32 else 0.25
    if not np.allclose(found[k].logp_nl[n, : len(ids)], alone, rtol=within, atol=within):
        raise _by_more_than_places(subject)
    subject.memo["trees hold"] = True


def _by_more_than_places(subject: Subject) -> InputError:
    return InputError(
        f"{type(subject.model).__name__} attends by more than the places that its tokens are said to stand at (ALiBi "
        "does): candidates cannot be read together, and it cannot be audited"
    )


def batched_rows(lengths: Sequence[int], rows: Sequence[int], tokens: int) -> Iterator[list[int]]:
    """Rows of similar length together, at most so many tokens with padding."""
    order = sorted(range(len(rows)), key=lambda k: lengths[k])
    batch: list[int] = []
    for k in order:
        if batch and (len(batch) + 1) * lengths[k] > tokens:
            yield batch
            batch = []
        batch.append(rows[k])
    if batch:
        yield batch


@dataclass(frozen=True)
class _Trunk:
    ids: Tensor  # [B, T]
    layers: list[tuple[Tensor, Tensor]]  # keys and values, [B, heads, T, head]
    length: int
    root: dict[tuple[int, int], Tensor]  # (row of the batch, token) -> logits after it


def _read(subject: Subject, texts: Sequence[Ids], wanted: Sequence[Sequence[int]]) -> _Trunk:
    """One pass over the texts, padded on the right, where nothing looks back from."""
    length = max(last[-1] for last in wanted) + 1
    ids = np.zeros((len(texts), length), np.int64)
    for row, text in enumerate(texts):
        ids[row, : min(len(text), length)] = text[:length]
    spots = [(row, place) for row, places in enumerate(wanted) for place in dict.fromkeys(places)]
    index = torch.tensor([row * length + place for row, place in spots], device=subject.device)
    read = torch.from_numpy(ids).to(subject.device)
    with gathered(subject.model, index):
        output = subject.model(input_ids=read, use_cache=True)
    layers = [(layer.keys, layer.values) for layer in output.past_key_values.layers]
    return _Trunk(read, layers, length, dict(zip(spots, output.logits[0], strict=True)))


def _parts(
    asked: list[list[int]], tree_of: Sequence[Tree], length: int, vocabulary: int
) -> Iterator[list[tuple[int, list[int]]]]:
    """Places cut into passes whose masks and logits fit: (row of the batch, its places) each."""
    rounds = max(map(len, asked))
    widest = max(len(tree_of[k]) for ks in asked for k in ks)
    rows, together = len(asked), rounds

    def fits() -> bool:
        nodes = together * widest
        return rows * nodes * (length + nodes) <= MASK_ENTRIES and rows * nodes * vocabulary <= LOGITS

    while not fits() and (together > 1 or rows > 1):
        rows, together = (rows, (together + 1) // 2) if together > 1 else ((rows + 1) // 2, 1)
    for first in range(0, len(asked), rows):
        some = list(enumerate(asked))[first : first + rows]
        for start in range(0, rounds, together):
            if part := [(row, ks[start : start + together]) for row, ks in some if ks[start : start + together]]:
                yield part


def _branch(
    subject: Subject,
    trunk: _Trunk,
    part: list[tuple[int, list[int]]],
    places: Sequence[Place],
    tree_of: Sequence[Tree],
) -> Iterator[tuple[int, Likelihoods]]:
    """One pass over the nodes of some places."""
    nodes = max(sum(len(tree_of[k]) for k in ks) for _, ks in part)
    seen = max(places[k].before for _, ks in part for k in ks)  # no node looks further
    logits: Any = None
    if nodes:
        ids = np.zeros((len(part), nodes), np.int64)
        position = np.zeros((len(part), nodes), np.int64)
        sees = np.zeros((len(part), nodes, seen + nodes), bool)
        sees[:, :, 0] = True  # padding must see something
        for b, (_, ks) in enumerate(part):
            at = 0
            for k in ks:
                tree, before = tree_of[k], places[k].before
                here = slice(at, at + len(tree))
                ids[b, here] = tree.token
                position[b, here] = before - 1 + np.array(tree.depth, np.int64)
                sees[b, here, :before] = True
                sees[b, here, seen + at : seen + at + len(tree)] = tree.sees
                at += len(tree)
        logits = _read_nodes(subject, trunk, [row for row, _ in part], seen, ids, position, sees)
    for b, (row, ks) in enumerate(part):
        at = 0
        for k in ks:
            root = trunk.root[row, places[k].before - 1]
            own = logits[b, at : at + len(tree_of[k])] if nodes else root[:0].reshape(0, len(root))
            yield k, tree_of[k].collect(root, own)
            at += len(tree_of[k])


def _read_nodes(
    subject: Subject,
    trunk: _Trunk,
    rows: list[int],
    seen: int,
    ids: NDArray[np.int64],
    position: NDArray[np.int64],
    sees: NDArray[np.bool_],
) -> Tensor:
    from transformers import DynamicCache

    device, dtype = subject.device, subject.model.dtype
    every = rows == list(range(len(trunk.layers[0][0])))
    cache = DynamicCache(
        [(k[:, :, :seen], v[:, :, :seen]) if every else (k[rows, :, :seen], v[rows, :, :seen]) for k, v in trunk.layers]
    )
    mask = torch.zeros(sees.shape, dtype=dtype).masked_fill_(~torch.from_numpy(sees), torch.finfo(dtype).min)
    # a student is told what a word is there for, which it counts off the text
    told = {"text": trunk.ids[rows]} if isinstance(subject.model, StudentForCausalLM) else {}
    try:
        return subject.model(
            input_ids=torch.from_numpy(ids).to(device),
            position_ids=torch.from_numpy(position).to(device),
            attention_mask=mask[:, None].to(device),
            past_key_values=cache,
            use_cache=True,
            **told,
        ).logits
    except (TypeError, ValueError) as error:  # it takes no such mask, or no places
        raise _by_more_than_places(subject) from error


def next_logits(
    subject: Subject, texts: Sequence[Ids], places: Sequence[Place], sizes: Sequence[int]
) -> Iterator[tuple[list[tuple[int, int]], Tensor]]:
    """Logits in front of the `sizes[k]` tokens that stand in the text from place k on, some texts at a time.

    Yields ((place, offset) of each row of logits, logits [rows, V]).
    """
    by_row: dict[int, list[int]] = {}
    for number, place in enumerate(places):
        by_row.setdefault(place.row, []).append(number)
    for rows in batched_rows([len(texts[row]) for row in by_row], list(by_row), TRUNK_TOKENS):
        length = max(len(texts[row]) for row in rows)
        ids = np.zeros((len(rows), length), np.int64)
        spots, index = [], []
        for b, row in enumerate(rows):
            ids[b, : len(texts[row])] = texts[row]
            for k in by_row[row]:
                for offset in range(sizes[k]):
                    spots.append((k, offset))
                    index.append(b * length + places[k].before - 1 + offset)
        at = torch.tensor(index, device=subject.device)
        with torch.inference_mode(), gathered(subject.model, at):
            output = subject.model(input_ids=torch.from_numpy(ids).to(subject.device), use_cache=False)
        yield spots, output.logits[0]
