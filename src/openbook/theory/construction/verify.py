"""Does the construction do what its lemma says? Strings against the oracle, sizes against the lemma, and its limits.

The lemma's conditions, for every column of C_i and W_i: one of the two is zero, or both are one-hot and equal. Inside
them the transformer must give the oracle's translation; outside them what it does is measured and shown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from openbook.base.errors import InputError
from openbook.base.randomness import generator
from openbook.task import Codebook, Translation, random_inputs, translate_batch
from openbook.theory.construction.fast import bigrams
from openbook.theory.construction.layers import Memory, Mlp
from openbook.theory.construction.transformer import SCALE, ConstructedTransformer
from openbook.theory.surrogate.model import Floats, context

SCALES = (10.0, 30.0, 100.0, 300.0, 1000.0, 3000.0)
STRENGTHS = (0.1, 0.25, 0.45, 0.75, 1.0)
CHUNK = 1000  # strings in one pass
Advance = Callable[..., object]


def verify(
    depth: int,
    chars: int,
    strings: int,
    codebooks: int,
    seed: int = 0,
    scale: float = SCALE,
    advance: Advance = lambda *_: None,
) -> dict[str, Any]:
    """Check at least `strings` strings, spread over `codebooks` random codebooks and the three divisions.

    It `holds` if no string is translated wrongly and every size is the lemma's.
    """
    if strings < 1 or codebooks < 1:
        raise InputError(f"{strings} strings of {codebooks} codebooks: give at least 1 of both")
    model = ConstructedTransformer(depth, chars, scale)
    modes = check_divisions(model, codebooks, -(-strings // (3 * codebooks)), seed, advance)
    counts, mismatches = count(model), sum(mode["mismatches"] for mode in modes)
    return {
        "depth": depth,
        "chars": chars,
        "scale": scale,
        "holds": mismatches == 0 and counts == lemma(depth, chars),
        "strings": sum(mode["strings"] for mode in modes),
        "codebooks": codebooks,
        "mismatches": mismatches,
        "deviation": max(mode["deviation"] for mode in modes),
        **counts,
        "lemma": lemma(depth, chars),
        "modes": modes,
        "scales": [at_scale(depth, chars, value, seed) for value in SCALES],
        "outside": disagreements(model, seed),
    }


def divisions(codebook: Codebook, seed: int, index: int) -> Iterator[tuple[str, Floats, Floats]]:
    """(name, C, W) for the three ways to divide a codebook that the conditions allow."""
    everything = context(codebook)
    yield "full context", everything, np.zeros_like(everything)
    yield "empty context", np.zeros_like(everything), everything
    choice = generator(seed, "divide", index).integers(0, 3, codebook.tables.shape)  # context, weights or both
    yield "mixed", context(codebook, choice == 1), context(codebook, choice == 0)


def one_hot_outputs(translation: Translation) -> tuple[Tensor, Tensor]:
    """What the surrogate gives, as rows [b, j, n²], and which columns are no padding."""
    index = bigrams(translation.outputs, translation.chars)
    inside = torch.arange(index.shape[1]) < torch.from_numpy(translation.lengths[:, None] // 2)
    return functional.one_hot(index, translation.chars**2).float(), inside


def compare(model: ConstructedTransformer, memories: list[Memory], translation: Translation) -> tuple[int, float]:
    """How many strings come out wrong under a context, and the largest deviation from the surrogate's output."""
    with torch.no_grad():
        columns = model.answer(memories, translation.inputs, translation.lengths)
    target, inside = one_hot_outputs(translation)
    wrong = (columns.argmax(-1) != target.argmax(-1)) & inside
    return int(wrong.any(1).sum()), float((columns - target)[inside].abs().max())


def check_divisions(
    model: ConstructedTransformer, codebooks: int, each: int, seed: int, advance: Advance = lambda *_: None
) -> list[dict[str, Any]]:
    """Every division of every codebook on `each` strings of its own, of 2 to 40 characters: a row for each division.

    `deviation` is the largest |V_{d+1} - surrogate's| over all entries.
    """
    rows: dict[str, dict[str, Any]] = {}
    item, empty = 0, model.remember(torch.zeros(model.depth, model.chars**2, model.chars**2))
    for index in range(codebooks):
        codebook = Codebook.sample(model.depth, model.chars, seed, index)
        for name, shown, weights in divisions(codebook, seed, index):
            model.store(weights)
            memories = model.remember(shown, like=empty) if shown.any() else empty
            row = rows.setdefault(name, {"name": name, "strings": 0, "mismatches": 0, "deviation": 0.0})
            for start in range(0, each, CHUNK):
                part = min(CHUNK, each - start)
                inputs, lengths = random_inputs(model.chars, part, (2, 40), seed, item + start)
                translation = translate_batch(codebook, inputs, lengths)
                mismatches, deviation = compare(model, memories, translation)
                row["strings"], row["mismatches"] = row["strings"] + part, row["mismatches"] + mismatches
                row["deviation"] = max(row["deviation"], deviation)
                advance(part)
            item += each
    return list(rows.values())


def at_scale(depth: int, chars: int, scale: float, seed: int) -> dict[str, Any]:
    """Largest deviations at scale N, on 32 strings for each division of one codebook.

    `shift` and `context` are of the two products that N is in, `output` is of the output under each division.
    """
    model = ConstructedTransformer(depth, chars, scale)
    codebook = Codebook.sample(depth, chars, seed)
    inputs, lengths = random_inputs(chars, 32, (20, 20), seed, stream="scale")
    translation = translate_batch(codebook, inputs, lengths)
    basis, size, columns = model.basis, chars**2, slice(1, inputs.shape[1] // 2 + 1)
    level = model.levels[0]
    with torch.no_grad():
        at_shift, at_translate, *_ = model.remember(context(codebook))
        shifted = level.shifted(model.embed_strings(inputs), at_shift)  # type: ignore[operator]
        attended = level.translate_attention(shifted, at_translate)  # type: ignore[operator]
    first = torch.from_numpy(translation.bigrams[:, 0].astype(np.int64))
    image = torch.from_numpy(codebook.tables[0].astype(np.int64))[first]
    off_shift = shifted[:, columns, basis.axes("left")] - functional.one_hot(first, size)
    off_context = attended[:, columns, basis.axes("right")] - functional.one_hot(image, size)
    modes = check_divisions(model, 1, 32, seed)
    return {
        "scale": scale,
        "shift": float(off_shift.abs().max()),
        "context": float(off_context.abs().max()),
        "output": {mode["name"]: mode["deviation"] for mode in modes},
        "mismatches": sum(mode["mismatches"] for mode in modes),
    }


def disagreements(model: ConstructedTransformer, seed: int, strings: int = 64) -> list[dict[str, Any]]:
    """Outside the conditions: C holds one codebook, W another one times a `strength`, a row for each strength.

    HardMax follows C below 1 (at 1 it is a tie), the transformer mixes: `characters_as_...` are the shares of its
    characters that are those of HardMax(C + W), of C alone and of W alone.
    """
    shown, other = (Codebook.sample(model.depth, model.chars, seed, 10**6 + i) for i in range(2))
    inputs, lengths = random_inputs(model.chars, strings, (20, 20), seed, stream="disagree")
    by_context, by_weights = (translate_batch(book, inputs, lengths) for book in (shown, other))
    rows = []
    for strength in STRENGTHS:
        weights = strength * context(other)
        model.store(weights)
        hard = (context(shown) + weights).argmax(1).astype(np.uint16)
        surrogate = translate_batch(np.broadcast_to(hard, (strings, *hard.shape)), inputs, lengths, model.chars)
        with torch.no_grad():
            columns = model.answer(model.remember(context(shown)), inputs, lengths)
        same = {"surrogate": surrogate, "context": by_context, "weights": by_weights}
        outputs = model.translated(columns)
        shares = {f"characters_as_{name}": float((outputs == t.outputs).mean()) for name, t in same.items()}
        deviation = float((columns - one_hot_outputs(surrogate)[0]).abs().max())
        rows.append({"strength": strength, **shares, "deviation": deviation})
    return rows


def count(model: ConstructedTransformer) -> dict[str, Any]:
    """Sizes as they are in the module's weights, not as they were meant to be."""
    attentions = model.attentions
    mlps = [module for module in model.modules() if isinstance(module, Mlp)]
    tokens = len(model.embed_context(torch.zeros(model.depth, model.chars**2, model.chars**2)))
    tokens += model.embed_strings(np.zeros((1, 20), dtype=np.uint8)).shape[1]
    return {
        "embedding_size": attentions[0].query_hkk.shape[-1],
        "attention_layers": len(attentions),
        "heads": [attention.heads for attention in attentions],
        "mlp_layers": len(mlps),
        "hidden_units": [len(mlp.inner_uk) for mlp in mlps],
        "tokens_at_length_20": tokens,
        "trainable": sum(parameter.numel() for parameter in model.parameters()),
    }


def lemma(depth: int, chars: int) -> dict[str, Any]:
    """The same as the lemma has it, corrected in two places.

    Three hidden units for each of the n² products, not n; and two heads for a translation, as in the text of its step
    2, where the lemma prints "either 1 or 3".
    """
    return {
        "embedding_size": 2 * chars**2 + 2 * depth + 4,
        "attention_layers": 2 * depth,
        "heads": [3, 2] * depth,
        "mlp_layers": 2 * depth,
        "hidden_units": [3 * chars**2, chars**2] * depth,
        "tokens_at_length_20": chars**2 * depth + 10 + depth,
        "trainable": depth * chars**4,
    }
