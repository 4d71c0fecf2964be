"""Encoding: from fragments to tokens and labels, many examples at once.

Every fragment is tokenised once and its tokens are kept; an example is then a gather and a concatenation. Because
fragments are tokenised apart, no token can straddle the boundary between the book, the prompt and the completion, and a
label is set exactly where the completion is.

Legend: B examples, F fragments of an example, T tokens of the batch laid end to end.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from openbook.base.errors import InputError
from openbook.book.shelf import CODE, LOCAL, NONE, Bank, Fragments, Shelf
from openbook.book.text import COMPLETION_KINDS, THINK, Kind
from openbook.curriculum import Opened, open_fragments, silenced
from openbook.training.chat import Frame, History, date_of_now, frame_of

IGNORED = -100  # the label of a token without loss

Tokens = NDArray[np.int64]
Loss = Literal["completion", "answer", "everything"]
Costs = tuple[Fragments, NDArray[np.uint8], Tokens, Tokens, Tokens]  # see `Encoder._costs`
_CARRIES_LOSS = np.array([kind in COMPLETION_KINDS for kind in Kind])
_WITH_LOSS = {
    "completion": _CARRIES_LOSS,
    "answer": np.array([kind == Kind.ANSWER for kind in Kind]),
    "everything": _CARRIES_LOSS | np.array([kind in (Kind.HEADING, Kind.PIECE) for kind in Kind]),
}


@dataclass(frozen=True)
class Encoded:
    """A batch of token sequences laid end to end; `kinds` says for every token what it is for (a code of `Kind`)."""

    flat_ids: Tokens  # [T]
    flat_kinds: NDArray[np.uint8]  # [T]
    ends: Tokens  # [B]: where each example ends
    dropped_pieces: int = 0  # open pieces that did not fit
    cut_prompts: int = 0  # prompts that were cut at their start to fit
    with_loss: NDArray[np.bool_] = field(default_factory=_CARRIES_LOSS.copy)  # for each kind

    def __len__(self) -> int:
        return len(self.ends)

    @functools.cached_property
    def flat_labels(self) -> Tokens:
        """The token itself where there is loss, else `IGNORED`: [T]."""
        return np.where(self.with_loss[self.flat_kinds], self.flat_ids, IGNORED)

    def split(self, flat: NDArray[Any]) -> list[NDArray[Any]]:
        """An array over all tokens as one array for each example."""
        ends = self.ends.tolist()
        return [flat[start:end] for start, end in zip([0, *ends[:-1]], ends, strict=True)]

    @property
    def ids(self) -> list[Tokens]:
        """The tokens of each example."""
        return self.split(self.flat_ids)

    @property
    def kinds(self) -> list[NDArray[np.uint8]]:
        """The kind of each token, for each example."""
        return self.split(self.flat_kinds)

    @property
    def labels(self) -> list[Tokens]:
        """The labels of each example."""
        return self.split(self.flat_labels)


def question_blocks(shelf: Shelf, opened: Opened) -> list[tuple[Any, Any]]:
    """What a user says, in order: the preamble, the open book and the prompt, as fragments [B, *] and their kinds."""
    batch, sections, longest = shelf.pieces.shape
    open_pieces = open_fragments(shelf, opened)
    any_open = (open_pieces != NONE).any(-1)
    headings = np.where(any_open | shelf.keep_headings[:, None], shelf.headings, NONE)
    book = np.concatenate([headings[..., None], open_pieces], axis=-1).reshape(batch, sections * (longest + 1))
    after = np.where((book != NONE).any(1), shelf.after, NONE)[:, None]
    is_piece = np.tile(np.arange(longest + 1) > 0, sections)
    return [
        (shelf.preamble, CODE[Kind.PREAMBLE]),
        (book, np.where(is_piece, CODE[Kind.PIECE], CODE[Kind.HEADING])),
        (after, CODE[Kind.HEADING]),
        (shelf.prompt, CODE[Kind.PROMPT]),
    ]


class TokenTable:
    """The tokens of every fragment of a bank, laid end to end, tokenised when first met."""

    def __init__(self, tokenizer: Any, bank: Bank) -> None:
        self.tokenizer, self.bank = tokenizer, bank
        self._anchors = _anchors(tokenizer)
        self.flat: Tokens = np.zeros(0, np.int64)
        self.starts: Tokens = np.zeros(0, np.int64)
        self.sizes: Tokens = np.zeros(0, np.int64)

    def tokenize(self, texts: Sequence[str]) -> list[list[int]]:
        """Tokens of texts as they are inside a longer text: no special tokens, no blank put before them."""
        if not texts:
            return []
        (anchor, head), *others = self._anchors
        rows = self.tokenizer([anchor + text for text in texts], add_special_tokens=False)["input_ids"]
        if not head:
            return rows
        return [
            row[len(head) :] if row[: len(head)] == head else self._anchored(text, others)
            for text, row in zip(texts, rows, strict=True)
        ]

    def _anchored(self, text: str, anchors: list[tuple[str, list[int]]]) -> list[int]:
        """The tokens of a text that merges with the first anchor: after another one, or else by itself."""
        for anchor, head in [*anchors, ("", [])]:
            row = self.tokenizer(anchor + text, add_special_tokens=False)["input_ids"]
            if row[: len(head)] == head:
                break
        return row[len(head) :]

    def with_local(self, local: list[str]) -> tuple[Tokens, Tokens, Tokens]:
        """flat, starts, sizes with the texts of one shelf after those of the bank, whose new texts are tokenised."""
        if new := self.bank.texts[len(self.sizes) :]:
            self.flat, self.starts, self.sizes = self._with(new)
        return self._with(local) if local else (self.flat, self.starts, self.sizes)

    def _with(self, texts: list[str]) -> tuple[Tokens, Tokens, Tokens]:
        """flat, starts, sizes with some texts after those of the table."""
        rows = self.tokenize(texts)
        sizes = np.array([len(row) for row in rows], dtype=np.int64)
        starts = len(self.flat) + np.cumsum(sizes) - sizes
        flat = np.fromiter((token for row in rows for token in row), dtype=np.int64, count=int(sizes.sum()))
        return np.append(self.flat, flat), np.append(self.starts, starts), np.append(self.sizes, sizes)


def is_unknown(tokenizer: Any, tokens: Tokens) -> NDArray[np.bool_]:
    """Which tokens stand for words that the vocabulary lacks. GPT-2 has one token for these and for the end of a text,
    which says nothing about words."""
    if tokenizer.unk_token_id in (None, tokenizer.eos_token_id, tokenizer.pad_token_id):
        return np.zeros(tokens.shape, bool)
    return tokens == tokenizer.unk_token_id


def _anchors(tokenizer: Any) -> list[tuple[str, list[int]]]:
    """Texts to put before fragments for tokenizers that add a blank at the start of every text (SentencePiece's)."""

    def tokens(text: str) -> list[int]:
        return tokenizer(text, add_special_tokens=False)["input_ids"]

    alone = tokens("\n")
    after = tokens("\nx")
    if alone and after[: len(alone)] == alone and after[len(alone) :] != tokens("x"):
        return [("\n", alone), ("x", tokens("x"))]
    return [("", [])]


class Encoder:
    """Turns a shelf and what is open on it into tokens, for one tokenizer."""

    def __init__(
        self,
        tokenizer: Any,
        bank: Bank,
        max_length: int | None = None,
        think: str = THINK,
        chat: bool | None = None,
        loss: Loss = "completion",
        today: str | None = None,
    ) -> None:
        """`today` is the date that a chat template inserts, such as 2026-01-31; the current date by default."""
        if max_length is not None and max_length < 2:
            raise InputError(f"max_length is {max_length}: a window holds at least two tokens")
        self.tokenizer, self.bank, self.max_length, self.think = tokenizer, bank, max_length, think
        self.table = TokenTable(tokenizer, bank)
        self.chat = bool(getattr(tokenizer, "chat_template", None)) if chat is None else chat
        self.today = today or date_of_now()
        self._frames: dict[Any, Frame] = {
            history: frame_of(tokenizer, history, self.chat, self.today) for history in (None, ())
        }
        self.frame: Frame = self._frames[None]
        self.loss, self.with_loss = loss, _WITH_LOSS[loss]
        self.start = bank.number(tokenizer.bos_token or tokenizer.eos_token or "")

    def of_bank(self, bank: Bank) -> Encoder:
        """The same encoder for the fragments of another source."""
        return Encoder(self.tokenizer, bank, self.max_length, self.think, self.chat, self.loss, self.today)

    @property
    def dated(self) -> bool:
        """Whether the chat template inserts the date."""
        return frame_of(self.tokenizer, None, self.chat, "1999-12-31") != self.frame

    def encode(self, shelf: Shelf, opened: Opened, name: Callable[[int], str] = "example {}".format) -> Encoded:
        """Tokens and kinds of every example; `name` is how error messages call an example."""
        _, dropped, (fragments, kinds, cost, flat, starts) = self._fit(shelf, opened, name)
        kept = np.flatnonzero(cost)
        chosen, lengths = fragments.reshape(-1)[kept], cost.reshape(-1)[kept]
        ends = np.cumsum(lengths)
        where = np.repeat(starts[chosen] - (ends - lengths), lengths)
        where += np.arange(len(where))
        roles = np.repeat(kinds.reshape(-1)[kept], lengths)
        return self._cut(Encoded(flat[where], roles, np.cumsum(cost.sum(1)), dropped, 0, self.with_loss), name)

    def fitted(self, shelf: Shelf, opened: Opened, name: Callable[[int], str] = "example {}".format) -> Opened:
        """What is left open where not all of it fits into the window."""
        return self._fit(shelf, opened, name)[0]

    def _fit(self, shelf: Shelf, opened: Opened, name: Callable[[int], str]) -> tuple[Opened, int, Costs]:
        """What is left open in the window, how many pieces were closed for that, and the fragments of it all."""
        costs = self._costs(shelf, opened, name)
        if self.max_length is None or not ((excess := costs[2].sum(1) - self.max_length) > 0).any():
            return opened, 0, costs
        opened, dropped = self._shed(shelf, opened, costs[2], excess)
        return opened, dropped, self._costs(shelf, opened, name)

    def _costs(self, shelf: Shelf, opened: Opened, name: Callable[[int], str]) -> Costs:
        """The fragments of each example in order, their kinds and how many tokens each has, [B, F]; then all tokens,
        and where those of each fragment start.

        A completion without tokens is refused. One that nothing stands before gets a start token: its first token
        would have no prediction otherwise, and so no loss.
        """
        shelf, fragments, kinds = self._sequence(shelf, opened, name)
        flat, starts, sizes = self.table.with_local(shelf.local)
        local = fragments >= LOCAL
        if local.any():
            fragments = np.where(local, fragments - LOCAL + len(self.bank), fragments)
        cost = np.where(fragments != NONE, sizes[fragments], 0)
        completion = cost[:, -1 - shelf.completion.shape[1] :]  # and the end token
        empty = completion[:, :-1].sum(1) == 0
        if empty.any():
            where = name(int(empty.argmax()))
            raise InputError(f"{where}: the completion has no tokens, so there is nothing to learn from it")
        bare = completion.sum(1) == cost.sum(1)
        if bare.any():
            if self.start == NONE:
                raise InputError(f"{name(int(bare.argmax()))}: nothing stands before the completion: give it a prompt")
            fragments[bare, 0], cost[bare, 0] = self.start, sizes[self.start]
        return fragments, kinds, cost, flat, starts

    def _sequence(
        self, shelf: Shelf, opened: Opened, name: Callable[[int], str]
    ) -> tuple[Shelf, Fragments, NDArray[np.uint8]]:
        """The fragments of each example in order, and their kinds: [B, F] each."""
        shelf, before, between, end = self._framed(shelf, name)
        blocks: list[tuple[Any, Any]] = [
            (before, CODE[Kind.PREAMBLE]),
            *question_blocks(shelf, opened),
            (between, CODE[Kind.PREAMBLE]),
            (silenced(shelf, opened, self.think), shelf.kinds),
            (end, CODE[Kind.WORDS]),
        ]
        fragments = np.concatenate([block for block, _ in blocks], axis=1)
        kinds = np.concatenate([np.broadcast_to(kind, block.shape) for block, kind in blocks], axis=1).astype(np.uint8)
        return shelf, fragments, kinds

    def frame_of(self, history: History | None) -> Frame:
        """What stands around an example; that of a conversation without earlier messages is made once."""
        return self._frames.get(history) or frame_of(self.tokenizer, history, self.chat, self.today)

    def _framed(self, shelf: Shelf, name: Callable[[int], str]) -> tuple[Shelf, Fragments, Fragments, Fragments]:
        """What the chat template puts before the prompt, between prompt and completion, and at the end: [B, 1] each."""
        batch = len(shelf)
        if shelf.histories is None:
            numbers = self.bank.numbers([self.frame.before, self.frame.between, self.frame.end])
            before, between, end = (np.broadcast_to(number, (batch, 1)) for number in numbers.reshape(3, 1, 1))
            return shelf, before, between, end
        local = list(shelf.local)
        columns: list[list[int]] = [[], [], []]
        for row, history in enumerate(shelf.histories):
            try:
                frame = self.frame_of(history)
            except InputError as error:
                raise InputError(f"{name(row)}: {error}") from None
            for column, text in zip(columns, (frame.before, frame.between, frame.end), strict=True):
                column.append(LOCAL + len(local) if text else NONE)
                local += [text] if text else []
        before, between, end = (np.array(column, np.int32)[:, None] for column in columns)
        return replace(shelf, local=local), before, between, end

    def _shed(self, shelf: Shelf, opened: Opened, cost: Tokens, excess: Tokens) -> tuple[Opened, int]:
        """Close whole pieces of examples that are too long: those not needed first, the last ones first."""
        slots = opened.slots.copy()
        needed = np.take_along_axis(shelf.needed, np.maximum(slots, 0), axis=-1)
        first = 1 + shelf.preamble.shape[1]  # the book stands after what opens the text and the preamble
        batch, sections, longest = slots.shape
        book = cost[:, first : first + sections * (longest + 1)].reshape(batch, sections, longest + 1)
        dropped = 0
        for row in np.flatnonzero(excess > 0).tolist():
            places = np.flatnonzero(slots[row] != NONE)
            places = places[np.lexsort((-places, needed[row].reshape(-1)[places]))]
            gained = np.cumsum(book[row, :, 1:].reshape(-1)[places])
            gone = places[: int(np.searchsorted(gained, excess[row])) + 1]
            slots[row].reshape(-1)[gone] = NONE
            dropped += len(gone)
        return replace(opened, slots=slots), dropped

    def _cut(self, encoded: Encoded, name: Callable[[int], str]) -> Encoded:
        """Cut prompts that are still too long at their start; refuse an example whose target would be touched."""
        sizes = np.diff(encoded.ends, prepend=0)
        if self.max_length is None or not len(long := np.flatnonzero(sizes > self.max_length)):
            return encoded
        keep = np.ones(len(encoded.flat_ids), bool)
        for row in long.tolist():
            start, end, excess = encoded.ends[row] - sizes[row], encoded.ends[row], sizes[row] - self.max_length
            kinds = encoded.flat_kinds[start:end]
            context = np.flatnonzero(~_CARRIES_LOSS[kinds])
            places = np.flatnonzero(np.isin(kinds, (CODE[Kind.PROMPT], CODE[Kind.HEADING])))
            if len(places) == len(context):  # one token must stand before the target
                places = places[:-1]
            if len(places) < excess:
                raise InputError(
                    f"{name(row)}: the completion has {sizes[row] - len(context)} tokens and "
                    f"{len(context) - len(places)} must stand before it, which does not fit into a window of "
                    f"{self.max_length}: raise training.max_length or shorten it"
                )
            keep[start + places[:excess]] = False
        rows = np.repeat(np.arange(len(encoded)), sizes)
        ends = np.cumsum(np.bincount(rows[keep], minlength=len(encoded)))
        flat = encoded.flat_ids[keep], encoded.flat_kinds[keep]
        return Encoded(*flat, ends, encoded.dropped_pieces, len(long), self.with_loss)
