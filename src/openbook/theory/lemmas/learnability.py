"""Hard for gradients, easy for algebra: MLT(d, 2) by elimination over GF(2) beside gradient descent without context."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from openbook.base.intervals import wilson
from openbook.base.randomness import generator
from openbook.task import Codebook, random_inputs, translate_batch
from openbook.task.phrasebook import sample_tables
from openbook.theory.lemmas.bits import all_strings
from openbook.theory.lemmas.check import Outcome, Z, check
from openbook.theory.lemmas.dense import shift_matrix
from openbook.theory.lemmas.general import feistel_tables, first_bits
from openbook.theory.lemmas.soft import backward, forward, one_hot, softmax, through_softmax, vanilla_descent

Bits = NDArray[np.uint8]


def eliminate(equations: Bits, unknowns: int) -> tuple[int, Bits]:
    """Reduced row echelon form over GF(2) of [A | B] with A of `unknowns` columns: (rank of A, the reduced rows)."""
    rows = equations.copy()
    rank = 0
    for column in range(unknowns):
        pivots = np.flatnonzero(rows[rank:, column])
        if pivots.size == 0:
            continue
        rows[[rank, rank + pivots[0]]] = rows[[rank + pivots[0], rank]]
        others = np.flatnonzero(rows[:, column])
        rows[others[others != rank]] ^= rows[rank]
        rank += 1
        if rank == len(rows):
            break
    return rank, rows


def learn_affine(inputs: Bits, outputs: Bits) -> Bits | None:
    """The map [1, x] -> y fitting all samples: [unknowns, outputs], or None while they do not determine it."""
    unknowns = inputs.shape[1] + 1
    constant = np.ones((len(inputs), 1), np.uint8)
    rank, rows = eliminate(np.hstack([constant, inputs, outputs]), unknowns)
    return rows[:unknowns, unknowns:] if rank == unknowns else None


def predict_affine(solution: Bits, inputs: Bits) -> Bits:
    return (np.hstack([np.ones((len(inputs), 1), np.uint8), inputs]).astype(np.int64) @ solution % 2).astype(np.uint8)


def _windows(strings: Bits, width: int) -> Bits:
    """What each output pair can see: characters 2p+1 .. 2p+width (from 0), wrapped; one row for each pair."""
    length = strings.shape[1]
    places = (np.arange(0, length, 2)[:, None] + 1 + np.arange(width)) % length
    return strings[:, places].reshape(-1, width)


def samples_needed(codebook: Codebook, length: int, seed: int) -> tuple[int, bool]:
    """Random samples until elimination determines the whole task, and whether it is then right on 500 new strings."""
    drawn = random_inputs(2, length + 41, (length, length), seed, stream="theory elimination")[0]
    outputs = translate_batch(codebook, drawn).outputs
    test = random_inputs(2, 500, (length, length), seed, stream="theory elimination test")[0]
    for count in range(length + 1, len(drawn) + 1):
        solution = learn_affine(drawn[:count], outputs[:count])
        if solution is not None:
            right = predict_affine(solution, test) == translate_batch(codebook, test).outputs
            return count, bool(right.all())
    return len(drawn), False


@check(
    "elimination",
    "MLT(d, 2) on strings of L = 2d characters is learned by Gaussian elimination from about L+1 samples.",
    "Monte-Carlo with interval",
    "beyond",
    "SQ-hard, yet easy: the lower bound is about learners that only see averages. Expected: L + 1 + 1.607 samples.",
)
def elimination(*, seed: int, extra: float = 1.6067, depths: tuple[int, ...] = (1, 2, 4, 6, 8, 12, 20)) -> Outcome:
    """20 random codebooks for each depth: samples beyond L+1 until solved (99.9 % interval), and the exam after."""
    beyond, exams, by_depth = [], [], {}
    for depth in depths:
        spent = []
        for index in range(20):
            codebook = Codebook.sample(depth, 2, seed, index)
            count, right = samples_needed(codebook, 2 * depth, 1000 * seed + 20 * depth + index)
            spent.append(count)
            exams.append(right)
            beyond.append(count - 2 * depth - 1)
        by_depth[depth] = float(np.mean(spent))
    mean, half = float(np.mean(beyond)), Z * float(np.std(beyond)) / len(beyond) ** 0.5
    return Outcome(
        all(exams) and abs(mean - extra) <= half,
        {"samples": by_depth, "beyond": mean, "low": mean - half, "high": mean + half, "exams_passed": sum(exams)},
        f"{by_depth[depths[-1]]:.1f} samples at d={depths[-1]} (L+1 = {2 * depths[-1] + 1}); "
        f"L+1+{mean:.2f} [{mean - half:.2f}, {mean + half:.2f}]; {sum(exams)} of {len(exams)} exams without an error",
        extra,
    )


@check(
    "elimination-one-string",
    "One string suffices: every output pair is the same affine map of its window of 2d characters.",
    "Monte-Carlo with interval",
    "beyond",
    "By circular invariance a string of L characters gives L/2 samples of one map with 2d+1 unknowns.",
)
def elimination_one_string(*, seed: int, bigrams: float = 2.0, spare: int = 12) -> Outcome:
    """One string of 2d + 1 + 12 bigrams, 30 codebooks at d = 2, 5, 10, 20; exam on 100 strings of another length."""
    passed = total = 0
    for depth in (2, 5, 10, 20):
        length = 2 * (round(bigrams * depth) + 1 + spare)
        test = random_inputs(2, 100, (length + 6, length + 6), seed, stream="theory one string test")[0]
        for index in range(30):
            codebook = Codebook.sample(depth, 2, seed, index)
            string = random_inputs(2, 1, (length, length), seed, index, f"theory one string {depth}")[0]
            output = translate_batch(codebook, string).outputs
            solution = learn_affine(_windows(string, 2 * depth), output.reshape(-1, 2))
            total += 1
            if solution is not None:
                guess = predict_affine(solution, _windows(test, 2 * depth)).reshape(len(test), -1)
                passed += bool((guess == translate_batch(codebook, test).outputs).all())
    low, high = wilson(passed, total, Z)
    return Outcome(
        low > 0.9,
        {"rate": passed / total, "low": low, "high": high},
        f"{passed} of {total} codebooks learned from one string of {2 * (round(bigrams * 20) + 1 + spare)} characters "
        f"at d=20, fewer below [{low:.3f}, {high:.3f}]",
        "one string of 2(2d+13) characters",
    )


@check(
    "gradient-without-context",
    "Without context, gradient descent learns MLT(d, 2) at d ≤ 2 and fails on most at d ≥ 8, given 150 times the text.",
    "Monte-Carlo with interval",
    "thm:theory-sqdim",
    "Beside 'elimination', which passes every exam: this learner reads at least 150 times its characters. A codebook "
    "counts as solved when every bigram of 100 test strings is right (chance 1/4 each); learning rates 0.1 and 0.01, "
    "the better one for each codebook.",
)
def gradient_without_context(
    *,
    seed: int,
    learns_to: int = 2,
    fails_from: int = 8,
    share: float = 0.5,
    times: float = 150,
    steps: int = 600,
    codebooks: int = 12,
) -> Outcome:
    """The soft surrogate, a fresh string of 64 bigrams each step; Wilson's 99.9 % interval of those solved deep."""
    solved, accuracy = {}, {}
    for depth in (1, 2, 3, 4, 6, 8, 10):
        tables = sample_tables(depth, 2, seed, 0, codebooks)
        rates = np.repeat([0.1, 0.01], codebooks)
        runs = vanilla_descent(np.concatenate([tables, tables]), rates, steps, 64, seed)
        best = runs.reshape(2, codebooks).max(axis=0)
        solved[depth], accuracy[depth] = int((best == 1).sum()), float(best.mean())
    easy = all(solved[d] == codebooks for d in solved if d <= learns_to)
    deep = [s for d, s in solved.items() if d >= fails_from]
    low, high = wilson(sum(deep), codebooks * len(deep), Z)
    characters = 128 * steps
    read = {d: characters / (2 * d * (2 * d + 2.6067)) for d in solved if d >= fails_from}
    return Outcome(
        easy and high < share and min(read.values()) >= times,
        {"solved": solved, "of": codebooks, "deep": [low, high], "accuracy": accuracy, "characters": characters},
        f"solved {', '.join(f'{s}/{codebooks} at d={d}' for d, s in solved.items())} on {characters:,} characters; "
        f"at d ≥ {fails_from}: {sum(deep)} of {codebooks * len(deep)} [{low:.2f}, {high:.2f}], accuracy at d=10 "
        f"{accuracy[10]:.2f} (chance 0.25)",
        {"learns_to": learns_to, "fails_from": fails_from, "share": share, "times": times},
    )


@check(
    "sgd-signal",
    "What a gradient says about which of μ uncorrelated tasks it is: its variance over tasks is at most E‖∇h‖²/μ.",
    "exhaustive",
    "cor:sgd",
    "The corollary itself is asymptotic and quoted without proof; this is the inequality it rests on (Bessel), with "
    "the n^d tasks of 'sq-explicit' and the soft surrogate as the model h.",
)
def sgd_signal(*, seed: int, constant: float = 1.0) -> Outcome:
    """μ = 2^d tasks, all 4^d inputs, d = 1..5: the variance of E[χ ∇h] over tasks χ as a share of E‖∇h‖²/μ."""
    books = feistel_tables(1)
    shares, signals = [], []
    for depth in range(1, 6):
        strings = all_strings(2 * depth)
        choice = (np.arange(2**depth)[:, None] >> np.arange(depth)) & 1
        signs = 1 - 2.0 * first_bits(books[choice], strings, 1)  # [task, string]
        draw = generator(seed, "theory signal", depth)
        translations = [softmax(draw.uniform(0, 0.1, (4, 4))) for _ in range(depth)]
        predicted, tape = forward(translations, one_hot(strings, 2), shift_matrix(2))
        first = np.zeros_like(predicted)
        first[:, 0, 2:] = 1  # h is the probability that the first output character is 1
        gradients = backward(translations, tape, first, shift_matrix(2))
        flat = np.concatenate(
            [through_softmax(P, G).reshape(len(strings), -1) for P, G in zip(translations, gradients, strict=True)],
            axis=1,
        )
        energy = float((flat**2).sum(axis=1).mean())
        signal = signs @ flat / len(strings)  # E[χ ∇h], for each task
        variance = float(((signal - signal.mean(axis=0)) ** 2).sum(axis=1).mean())
        shares.append(variance * 2**depth / energy)
        signals.append(variance / energy)
    return Outcome(
        max(shares) <= constant,
        {"share_of_bound": shares, "variance": signals},
        f"variance/E‖∇h‖² {', '.join(f'{s:.1e}' for s in signals)} at d=1..5, at most {max(shares):.2f} of the bound",
        constant,
    )
