"""What a model writes by itself, greedily, in place of a completion."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from openbook.book.shelf import CODE
from openbook.book.text import Kind
from openbook.training.batches import Item, pad_id_of
from openbook.training.encode import IGNORED, Encoder
from openbook.training.models import examined, window_of

BEYOND = 8  # tokens that a model may write beyond the longest reference of its batch


def written_part(item: Item) -> slice:
    """Which tokens of an example a model has to write: from the first to the last one with loss in its completion."""
    taught = np.flatnonzero((item.labels != IGNORED) & (item.kinds >= CODE[Kind.WORDS]))
    return slice(int(taught[0]), int(taught[-1]) + 1)


def generate(
    model: Any, tokenizer: Any, prompts: Sequence[np.ndarray], max_new_tokens: int, ends: Sequence[int] = ()
) -> np.ndarray:
    """The tokens that a model writes greedily after each prompt: [prompts, at most max_new_tokens].

    A row ends with one of `ends`, or with the model's own end token if none are named, and is padded after it.
    """
    longest, pad = max(map(len, prompts)), pad_id_of(tokenizer)
    ids = np.full((len(prompts), longest), pad, np.int64)
    mask = np.zeros((len(prompts), longest), np.int64)
    for row, prompt in enumerate(prompts):  # generation continues at the right edge, so prompts are padded left
        ids[row, longest - len(prompt) :], mask[row, longest - len(prompt) :] = prompt, 1
    device = next(model.parameters()).device
    with torch.inference_mode(), examined(model):
        tokens = model.generate(
            input_ids=torch.from_numpy(ids).to(device),
            attention_mask=torch.from_numpy(mask).to(device),
            max_new_tokens=max_new_tokens,
            do_sample=False,
            num_beams=1,
            repetition_penalty=1.0,  # some models come with one, which would not be greedy
            pad_token_id=pad,
            **({"eos_token_id": list(ends)} if ends else {}),
        )
    return tokens[:, longest:].cpu().numpy()


def end_tokens(model: Any, encoder: Encoder) -> list[int]:
    """The tokens that end what a model writes: its own, its tokenizer's, and the one that its chat template uses."""
    own = getattr(getattr(model, "generation_config", None), "eos_token_id", None)
    found = {encoder.tokenizer.eos_token_id, *(own if isinstance(own, list) else [own])} - {None}
    (frame,) = encoder.table.tokenize([encoder.frame.end])
    found |= set(frame[:1]) & {*encoder.tokenizer.all_special_ids, *encoder.tokenizer.added_tokens_decoder}
    return sorted(found)


def write(
    model: Any,
    encoder: Encoder,
    items: Sequence[Item],
    batch_size: int,
    advance: Callable[[float], None] = lambda part: None,
) -> list[tuple[np.ndarray, str]]:
    """What the model writes in place of each completion: its tokens, padded, and its text.

    The text goes up to the end token. A model that was not taught to end, since its loss is on the answer alone or its
    vocabulary has no end, is compared on as many tokens as the reference has. Equal prompts are continued once.
    `advance` is told what part of the work each batch was.
    """
    ends, window = end_tokens(model, encoder), window_of(model)
    targets = [item.ids[written_part(item)] for item in items]
    taught = [bool(np.isin(target, ends).any()) for target in targets]
    prompts: dict[bytes, np.ndarray] = {}
    sizes: dict[bytes, int] = {}  # tokens of the longest reference, with some more for a model that may end later
    keys = []
    for item, target, can_end in zip(items, targets, taught, strict=True):
        keys.append(key := (prompt := item.ids[: written_part(item).start]).tobytes())
        free = BEYOND if window is None else window - len(prompt) - len(target)
        size = len(target) + min(BEYOND, max(0, free)) * can_end
        prompts[key], sizes[key] = prompt, max(sizes.get(key, 0), size)
    batches: list[list[bytes]] = []
    for key in sorted(prompts, key=lambda key: (len(prompts[key]), sizes[key])):
        last = batches[-1] if batches else []
        longest = max(sizes[each] for each in (*last, key))
        fits = window is None or len(prompts[key]) + longest <= window  # all rows are as long as the longest
        if last and len(last) < batch_size and fits:
            last.append(key)
        else:
            batches.append([key])
    written: dict[bytes, np.ndarray] = {}
    for batch in batches:
        count = max(sizes[key] for key in batch)
        rows = generate(model, encoder.tokenizer, [prompts[key] for key in batch], count, ends)
        written.update(zip(batch, rows, strict=True))
        advance(len(batch) / len(prompts))

    def text(row: np.ndarray, target: np.ndarray, can_end: bool) -> str:
        ended = np.flatnonzero(np.isin(row, ends))
        said = row[: min([*ended[:1], len(row) if can_end else len(target)])]
        return encoder.tokenizer.decode(said, skip_special_tokens=True, clean_up_tokenization_spaces=False).strip()

    asked = zip(keys, targets, taught, strict=True)
    return [(written[key], text(written[key], target, can_end)) for key, target, can_end in asked]


def answers_in_place(item: Item, row: np.ndarray) -> bool:
    """Whether what was written has the whole answer of an example in its place."""
    part = written_part(item)
    target, answer = item.ids[part], item.kinds[part] == CODE[Kind.ANSWER]
    padded = np.pad(row, (0, len(target)), constant_values=-1)[: len(target)]
    return bool((padded[answer] == target[answer]).all())
