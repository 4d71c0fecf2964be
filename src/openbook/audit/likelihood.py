"""Log-likelihoods of every candidate at every place, sharing the prefix.

The candidates of a place form a tree of tokens. The text before it (the trunk) is read once; then all inner nodes of
all trees are read in one more pass that looks back on the trunk's keys and values. A mask lets a node see the trunk up
to its place and its own ancestors, nothing else, so many places of one text share one trunk. For a rule of the task
that is n extra tokens instead of n² passes over the whole context.

Legend: B rows, T tokens of the trunk, Q nodes of a row, N candidates, L tokens of a candidate.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from openbook.audit.model import AttackedModel, Ids
from openbook.base.arrays import Floats
from openbook.base.errors import InputError
from openbook.student.model import inputs_in_place
from openbook.training.encode import IGNORED
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

    logp_nl: Floats
    z_nl: Floats

    @classmethod
    def unknown(cls, candidates: Sequence[Ids]) -> Likelihoods:
        """To be filled in, tree by tree."""
        return cls(*np.full((2, len(candidates), max(map(len, candidates))), math.nan))

    @property
    def total_n(self) -> Floats:
        """Log-likelihood of each whole candidate."""
        return np.nansum(self.logp_nl, axis=1)


class Tree:
    """The candidates of a place (or some of them, from number `first` on) as a tree; a node is a token after others."""

    def __init__(self, candidates: Sequence[Ids], first: int = 0) -> None:
        numbers: dict[Ids, int] = {(): -1}
        for ids in candidates:
            for size in range(1, len(ids)):  # the last token of a candidate need not be read
                numbers.setdefault(ids[:size], len(numbers) - 1)
        nodes = list(numbers)[1:]
        self.token = torch.tensor([ids[-1] for ids in nodes], dtype=torch.int64)
        self.depth = torch.tensor([len(ids) for ids in nodes], dtype=torch.int64)
        self.candidates = slice(first, first + len(candidates))
        self.next_nl = padded_rows(candidates, filler=IGNORED)
        self.node_nl = padded_rows([[numbers[ids[:k]] for k in range(len(ids))] for ids in candidates])  # -1: the root
        self.sees = torch.eye(len(nodes), dtype=torch.bool)  # [nodes, nodes]: itself and its ancestors
        for node, ids in enumerate(nodes):
            if (parent := numbers[ids[:-1]]) >= 0:
                self.sees[node] |= self.sees[parent]

    def __len__(self) -> int:
        return len(self.token)

    def collect(self, root: Tensor, nodes: Tensor, into: Likelihoods) -> None:
        """Look up every candidate's tokens in the logits at the root [V] and at the nodes [nodes, V]."""
        logits = torch.cat([nodes, root[None]]).double()  # node -1 is the root
        logp = torch.log_softmax(logits, -1)
        p = logp.exp()
        finite = torch.where(p > 0, logp, 0.0)
        mean = (p * finite).sum(-1)
        spread = ((p * finite.square()).sum(-1) - mean.square()).clamp(min=1e-12).sqrt()
        node, token = self.node_nl.to(logits.device), self.next_nl.to(logits.device)
        likely = logp[node, token.clamp(min=0)].masked_fill(token == IGNORED, math.nan)
        here = self.candidates, slice(token.shape[1])
        into.logp_nl[here] = likely.cpu()
        into.z_nl[here] = ((likely - mean[node]) / spread[node]).cpu()


@dataclass(frozen=True)
class _Question:
    """The candidates of one tree, asked for at a place."""

    place: Place
    tree: Tree
    likelihoods: Likelihoods  # of all candidates of the place


def candidate_likelihoods(
    model: AttackedModel, texts: Sequence[Ids], places: Sequence[Place], candidates: Sequence[Sequence[Ids]]
) -> list[Likelihoods]:
    """Likelihoods of the candidates of each place, given the tokens of its text before it."""
    most = _most_nodes(max(place.before for place in places), model.vocabulary)
    lists = {id(options): options for options in candidates}  # places of one group share one list of candidates
    trees = {key: _trees(options, most) for key, options in lists.items()}
    results = [Likelihoods.unknown(options) for options in candidates]
    questions = [
        _Question(place, tree, result)
        for place, options, result in zip(places, candidates, results, strict=True)
        for tree in trees[id(options)]
    ]
    with torch.inference_mode():
        for batch in _batches(texts, [question.place for question in questions]):
            asked = [
                sorted((questions[k] for k in numbers), key=lambda question: question.place.before)
                for numbers in batch.values()
            ]
            trunk = _read_trunk(model, [texts[row] for row in batch], asked)
            for part in _parts(asked, trunk.ids.shape[1], model.vocabulary):
                _read_branches(model, trunk, part)
    if "trees hold" not in model.memo:
        k = max(range(len(places)), key=lambda k: max(map(len, candidates[k])))
        _check_longest(model, texts[places[k].row][: places[k].before], candidates[k], results[k])
        model.memo["trees hold"] = True
    return results


def next_logits(
    model: AttackedModel, texts: Sequence[Ids], places: Sequence[Place], sizes: Sequence[int]
) -> Iterator[tuple[list[tuple[int, int]], Tensor]]:
    """Logits in front of the `sizes[k]` tokens that stand in the text from place k on, some texts at a time.

    Yields ((place, offset) of each row of logits, logits [rows, V]).
    """
    for batch in _batches(texts, places):
        asked = [
            (row, k, offset)
            for row, numbers in enumerate(batch.values())
            for k in numbers
            for offset in range(sizes[k])
        ]
        spots = [(row, places[k].before - 1 + offset) for row, k, offset in asked]
        output = _output_at(model, padded_rows([texts[row] for row in batch]), spots)
        yield [(k, offset) for _, k, offset in asked], output.logits[0]


def _output_at(model: AttackedModel, ids: Tensor, spots: Sequence[tuple[int, int]], use_cache: bool = False) -> Any:
    """One pass over rows, with logits after some of their tokens alone: (row, number of the token)."""
    index = torch.tensor([row * ids.shape[1] + token for row, token in spots], device=model.device)
    with torch.inference_mode(), gathered(model.model, index):
        return model.model(input_ids=ids.to(model.device), use_cache=use_cache)


def _batches(texts: Sequence[Ids], places: Sequence[Place]) -> Iterator[dict[int, list[int]]]:
    """Texts of similar length together, at most TRUNK_TOKENS tokens with padding: row -> the numbers of its places."""
    by_row: dict[int, list[int]] = {}
    for number, place in enumerate(places):
        by_row.setdefault(place.row, []).append(number)
    batch: dict[int, list[int]] = {}
    for row in sorted(by_row, key=lambda row: len(texts[row])):
        if batch and (len(batch) + 1) * len(texts[row]) > TRUNK_TOKENS:
            yield batch
            batch = {}
        batch[row] = by_row[row]
    if batch:
        yield batch


def padded_rows(texts: Sequence[Sequence[int]], filler: int = 0) -> Tensor:
    """Texts as rows of one length, filled on the right, where nothing looks back from: [B, T]."""
    rows = [torch.tensor(text, dtype=torch.int64) for text in texts]
    return pad_sequence(rows, batch_first=True, padding_value=filler)


def _most_nodes(before: int, vocabulary: int) -> int:
    """Nodes of one place that can be read in one pass."""
    by_mask = int(math.sqrt(before**2 / 4 + MASK_ENTRIES) - before / 2)
    return max(1, min(by_mask, LOGITS // vocabulary))


def _trees(candidates: Sequence[Ids], most: int) -> list[Tree]:
    """Trees of runs of the candidates, with at most so many nodes each; a single candidate may have more."""
    starts, nodes = [0], set[Ids]()
    for n, ids in enumerate(candidates):
        own = {ids[:size] for size in range(1, len(ids))}
        nodes |= own
        if len(nodes) > most and n > starts[-1]:
            starts.append(n)
            nodes = own
    return [Tree(candidates[start:end], start) for start, end in itertools.pairwise([*starts, len(candidates)])]


def _check_longest(model: AttackedModel, before: Ids, candidates: Sequence[Ids], likelihoods: Likelihoods) -> None:
    """Hold the longest candidate against a plain pass over its text.

    A model whose attention goes by more than the places it is given (ALiBi's by that in the cache) would fail here, not
    quietly.
    """
    n = max(range(len(candidates)), key=lambda n: len(candidates[n]))
    ids = candidates[n]
    ((_, logits),) = next_logits(model, [before + ids], [Place(0, len(before))], [len(ids)])
    alone = torch.log_softmax(logits.double(), -1)[torch.arange(len(ids)), list(ids)].cpu().numpy()
    within = 1e-3 if model.model.dtype == torch.float32 else 0.25
    if not np.allclose(likelihoods.logp_nl[n, : len(ids)], alone, rtol=within, atol=within):
        raise _no_shared_prefix(model)


def _no_shared_prefix(model: AttackedModel) -> InputError:
    return InputError(
        f"{type(model.model).__name__} attends by more than the places that its tokens are given (ALiBi does), so "
        "candidates cannot be read together and it cannot be audited: audit a model with rotary or learned places"
    )


@dataclass(frozen=True)
class _Trunk:
    ids: Tensor  # [B, T]
    layers: list[tuple[Tensor, Tensor]]  # keys and values, [B, heads, T, head]
    root: dict[tuple[int, int], Tensor]  # (row of the batch, tokens before) -> logits there


def _read_trunk(model: AttackedModel, texts: Sequence[Ids], asked: Sequence[Sequence[_Question]]) -> _Trunk:
    """One pass over the texts, which keeps the logits in front of every place."""
    length = max(questions[-1].place.before for questions in asked)
    ids = padded_rows([text[:length] for text in texts]).to(model.device)
    spots = list(dict.fromkeys((row, question.place.before) for row, of_row in enumerate(asked) for question in of_row))
    output = _output_at(model, ids, [(row, before - 1) for row, before in spots], use_cache=True)
    layers = [(layer.keys, layer.values) for layer in output.past_key_values.layers]
    return _Trunk(ids, layers, dict(zip(spots, output.logits[0], strict=True)))


_Pass = list[tuple[int, list[_Question]]]  # (row of the batch, some of its questions) of one pass


def _parts(asked: list[list[_Question]], length: int, vocabulary: int) -> Iterator[_Pass]:
    """Questions cut into passes whose masks and logits fit."""
    rounds = max(map(len, asked))
    widest = max(len(question.tree) for of_row in asked for question in of_row)
    rows, together = len(asked), rounds

    def fits() -> bool:
        nodes = together * widest
        return rows * nodes * (length + nodes) <= MASK_ENTRIES and rows * nodes * vocabulary <= LOGITS

    while not fits() and (together > 1 or rows > 1):
        rows, together = (rows, (together + 1) // 2) if together > 1 else ((rows + 1) // 2, 1)
    for first in range(0, len(asked), rows):
        some = list(enumerate(asked))[first : first + rows]
        for start in range(0, rounds, together):
            if part := [(row, of_row[start : start + together]) for row, of_row in some if of_row[start:]]:
                yield part


def _read_branches(model: AttackedModel, trunk: _Trunk, part: _Pass) -> None:
    """One pass over the nodes of some trees, which stand one behind the other in the row of their text."""
    sizes = [[len(question.tree) for question in questions] for _, questions in part]
    nodes = max(1, *map(sum, sizes))
    seen = max(question.place.before for _, questions in part for question in questions)  # no node looks further
    ids, position = torch.zeros(2, len(part), nodes, dtype=torch.int64)
    sees = torch.zeros(len(part), nodes, seen + nodes, dtype=torch.bool)
    sees[:, :, :1] = True  # padding must see something
    for b, (_, questions) in enumerate(part):
        here = slice(sum(sizes[b]))
        before = torch.tensor([question.place.before for question in questions]).repeat_interleave(
            torch.tensor(sizes[b])
        )
        ids[b, here] = torch.cat([question.tree.token for question in questions])
        position[b, here] = before - 1 + torch.cat([question.tree.depth for question in questions])
        sees[b, here, :seen] = torch.arange(seen) < before[:, None]
        sees[b, here, seen : seen + here.stop] = torch.block_diag(*(question.tree.sees for question in questions))
    logits = _node_logits(model, trunk, [row for row, _ in part], ids, position, sees)
    for b, (row, questions) in enumerate(part):
        for question, own in zip(questions, logits[b, : sum(sizes[b])].split(sizes[b]), strict=True):
            question.tree.collect(trunk.root[row, question.place.before], own, question.likelihoods)


def _node_logits(
    model: AttackedModel, trunk: _Trunk, rows: list[int], ids: Tensor, position: Tensor, sees: Tensor
) -> Tensor:
    """Logits after every node, which looks back on the first tokens of its row's trunk: [B, Q, V]."""
    from transformers import DynamicCache

    seen = sees.shape[2] - ids.shape[1]
    cache = DynamicCache([(keys[rows, :, :seen], values[rows, :, :seen]) for keys, values in trunk.layers])
    dtype = model.model.dtype
    mask = torch.zeros(sees.shape, dtype=dtype).masked_fill_(~sees, torch.finfo(dtype).min)
    try:
        return model.model(
            input_ids=ids.to(model.device),
            position_ids=position.to(model.device),
            attention_mask=mask[:, None].to(model.device),
            past_key_values=cache,
            use_cache=True,
            **inputs_in_place(model.model, trunk.ids[rows]),
        ).logits
    except (TypeError, ValueError) as error:  # it takes no such mask, or no places
        raise _no_shared_prefix(model) from error
