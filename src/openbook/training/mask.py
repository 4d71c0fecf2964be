"""The mask made visible: which tokens carry loss, and what is wrong with it if anything is.

Encoding by fragments cannot put a label on the book. These things can still go wrong: a target that is empty or does
not fit, loss on padding, a template that yields no mask, tokens that the vocabulary lacks, and a tokenizer that would
merge the end of the prompt with the start of the completion, or words of it with the answer or a thought. A model that
is used with whole texts would then see other tokens than it was trained on.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from openbook.book.shelf import KINDS, Fragments, Shelf
from openbook.curriculum import SamplingPlan, silenced
from openbook.training.batches import Collator, items, pad_id_of
from openbook.training.encode import IGNORED, Encoder, is_unknown


@dataclass(frozen=True)
class Token:
    """One token as a person reads it."""

    id: int
    text: str
    kind: str
    loss: bool


@dataclass(frozen=True)
class Masked:
    """One example's tokens, and what is wrong with its mask."""

    position: int
    tokens: list[Token]
    problems: list[str]

    @property
    def targets(self) -> int:
        """Number of tokens that carry loss."""
        return sum(token.loss for token in self.tokens)


def mask(plan: SamplingPlan, encoder: Encoder, positions: list[int]) -> list[Masked]:
    """Encode positions exactly as training does, and check the result."""
    where = np.asarray(positions, dtype=np.int64)
    shelf, opened = plan.at(where)
    encoded = encoder.encode(shelf, opened, plan.namer(where))
    batch = items(encoded, positions)
    padded = Collator(pad_id_of(encoder.tokenizer), len(batch)).pad(batch)
    on_padding = ((padded["labels"] != IGNORED) & (padded["attention_mask"] == 0)).any(1).tolist()
    texts = {token: encoder.tokenizer.decode([token]) for token in np.unique(encoded.flat_ids).tolist()}
    completion = silenced(shelf, opened, encoder.think)
    results = []
    for row, item in enumerate(batch):
        columns = (item.ids.tolist(), item.kinds.tolist(), (item.labels != IGNORED).tolist())
        tokens = [Token(id, texts[id], str(KINDS[kind]), loss) for id, kind, loss in zip(*columns, strict=True)]
        problems = ["loss on padding"] if on_padding[row] else []
        if unknown := int(is_unknown(encoder.tokenizer, item.labels).sum()):
            problems.append(f"{unknown} target tokens are not in the vocabulary")
        results.append(Masked(item.position, tokens, problems + _straddling(encoder, shelf, completion, row)))
    return results


def _straddling(encoder: Encoder, shelf: Shelf, completion: Fragments, row: int) -> list[str]:
    """The boundaries, at the start of the completion or in it, across which a whole text would have other tokens."""
    history = shelf.histories[row] if shelf.histories is not None else None
    prompt = encoder.frame_of(history).between or "".join(shelf.texts(shelf.prompt[row]))
    parts = [prompt, *shelf.texts(completion[row])]
    names = ["prompt and completion", *["two parts of the completion"] * (len(parts) - 2)]
    problems = []
    for name, left, right in zip(names, parts, parts[1:], strict=False):
        if not left or encoder.think in (left, right):  # nothing merges with a special token
            continue
        before, after, whole = encoder.table.tokenize([left, right, left + right])
        if whole != before + after:
            common = [*(a == b for a, b in zip(before, whole, strict=False)), False].index(False)
            tail = encoder.tokenizer.decode(before[common:])
            problems.append(
                f"the tokenizer would merge a token across the boundary of {name}: {(tail + right)[:20]!r} is cut into "
                f"other tokens than {tail!r} and {right[:20]!r} are"
            )
    return problems
