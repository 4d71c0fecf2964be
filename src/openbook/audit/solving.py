"""Solving for the rules of the task from inputs and outputs alone, which is what behavioural inversion does.

This goes around any memory of the text. Write a level as x_j -> u_j = π(x_j) on the shifted bigrams x_j. The next level
reads (second of u_j, first of u_{j+1}), so the output y_j of d levels depends on x_j .. x_{j+d-1}: on x_j only through
the second character of π(x_j), and on x_{j+d-1} only through the first character of π(x_{j+d-1}). Put all n² bigrams in
one place of a few random strings. Those with the same second character give the same y_j everywhere, those with the
same first character the same y_{j-d+1}. That gives the first phrasebook up to names for its characters; undo it and go
on with one level less.

What the names were is not determined: relabelling first and second characters of every alphabet in between changes no
answer, so (n!)^(2(d-1)) codebooks do the same. Any model that can do the task gives away this much, however it learned.

Legend: n characters, d levels, B strings, P bigrams of a string, x and y bigrams before and after a level.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from openbook.audit.attack import AttackedModel, Scores, Secrets, Skill
from openbook.base.arrays import Floats, Ints
from openbook.base.randomness import generator
from openbook.task.phrasebook import Codebook

BATCH = 256  # strings asked at once
# Shifted bigrams of inputs [B, P] -> output bigrams [B, P]
Ask = Callable[[Ints], Ints]


def unshifted(bigrams: Ints, chars: int) -> Ints:
    """Strings [B, L] whose level looks up these bigrams [B, P]: it shifts left by one and then pairs."""
    flat = np.stack([bigrams // chars, bigrams % chars], -1).reshape(len(bigrams), -1)
    return np.roll(flat, 1, axis=1)


@dataclass(frozen=True)
class UnnamedLevel:
    """A level as far as behaviour determines it: numbers without names for the two characters of every image."""

    first: Ints  # [n²]
    second: Ints  # [n²]


def classes(signature_xc: Ints, chars: int) -> Ints:
    """Split n² bigrams into n classes of n by agreement of what they cause: [n²]."""
    agree = (signature_xc[:, None, :] == signature_xc[None, :, :]).mean(-1)
    label = np.full(len(agree), -1)
    for number in range(chars):
        free = np.flatnonzero(label < 0)
        seed = free[0]
        nearest = free[np.argsort(-agree[seed, free], kind="stable")[:chars]]
        label[nearest] = number
    return label


def solve(
    ask: Ask, depth: int, chars: int, pairs: int, contexts: int = 12, seed: int = 0
) -> tuple[list[UnnamedLevel], Ints]:
    """The levels before the last, up to names, and the last phrasebook as a table over those names: ([d-1], [n²])."""
    size = chars**2
    random = generator(seed, "audit inversion", depth)
    if depth == 1:
        x_bp = random.permuted(np.tile(np.arange(size), (contexts * pairs, 1)), axis=1)
        whole = size // pairs * pairs or size  # of strings longer than a permutation several make one
        x_bp = x_bp[:, :whole].reshape(-1, pairs)
        votes = np.zeros((size, size), np.int64)
        np.add.at(votes, (x_bp.reshape(-1), ask(x_bp).reshape(-1)), 1)
        return [], votes.argmax(1)
    x_cp = random.integers(size, size=(contexts, pairs))
    x_bp = np.repeat(x_cp, size, axis=0)
    x_bp[:, 0] = np.tile(np.arange(size), contexts)
    y_cxp = ask(x_bp).reshape(contexts, size, pairs)
    level = UnnamedLevel(
        first=classes(y_cxp[:, :, (1 - depth) % pairs].T, chars), second=classes(y_cxp[:, :, 0].T, chars)
    )
    undo = _inverse(level, chars)

    def rest(u_bp: Ints) -> Ints:
        """The levels after this one, asked about bigrams of its (unnamed) outputs."""
        second, first_of_next = u_bp // chars, u_bp % chars
        return ask(undo[np.roll(first_of_next, 1, axis=1), second])

    later, last = solve(rest, depth - 1, chars, pairs, contexts, seed)
    return [level, *later], last


def _inverse(level: UnnamedLevel, chars: int) -> Ints:
    """The bigram with a given first and second class: [n, n]. What noise left without one gets one that is over."""
    table = np.full((chars, chars), -1)
    over = []
    for x, (first, second) in enumerate(zip(level.first.tolist(), level.second.tolist(), strict=True)):
        if table[first, second] < 0:
            table[first, second] = x
        else:
            over.append(x)
    table[table < 0] = over
    return table


def recovered_rules(levels: list[UnnamedLevel], last: Ints, codebook: Codebook) -> Floats:
    """Which rules are right once every class is named after the character it mostly stands for: [d, n²]."""
    n = codebook.chars
    hits = np.zeros(codebook.tables.shape)
    first_in = second_in = np.arange(n)  # names of what a level reads: (second of before, first of before)
    for i, table in enumerate(codebook.tables.astype(np.int64)):
        x = second_in[np.arange(n * n) // n] * n + first_in[np.arange(n * n) % n]  # our bigram -> its true name
        if i < len(levels):
            level = levels[i]
            first = _names(level.first, table[x] // n, n)
            second = _names(level.second, table[x] % n, n)
            right = (first[level.first] == table[x] // n) & (second[level.second] == table[x] % n)
            first_in, second_in = first, second
        else:
            right = last == table[x]
        hits[i, x] = right
    return hits


def guessed(codebook: Codebook, pairs: int, contexts: int = 12, rounds: int = 10) -> Floats:
    """What random answers recover on average, where names are given after the fact: [d, n²], one value for a level."""
    size = codebook.chars**2
    total = np.zeros(codebook.tables.shape)
    for number in range(rounds):
        random = generator(number, "audit guesses")

        def ask(x_bp: Ints, random: np.random.Generator = random) -> Ints:
            return random.integers(size, size=x_bp.shape)

        total += recovered_rules(*solve(ask, codebook.depth, codebook.chars, pairs, contexts, number), codebook)
    return np.repeat(total.mean(1, keepdims=True) / rounds, size, axis=1)


def _names(label_x: Ints, true_x: Ints, chars: int) -> Ints:
    """One name for each class, the most common first, no name twice: [n]."""
    counts = np.zeros((chars, chars), np.int64)
    np.add.at(counts, (label_x, true_x), 1)
    names = np.full(chars, -1)
    for flat in np.argsort(-counts, axis=None, kind="stable").tolist():
        label, character = divmod(flat, chars)
        if names[label] < 0 and character not in names:
            names[label] = character
    return names


@dataclass(frozen=True)
class TaskSkill(Skill):
    """The skill of translating, asked in strings of `pairs` bigrams: the rules are solved for by the answers."""

    codebook: Codebook
    pairs: int
    contexts: int = 12

    def answers(self, model: AttackedModel, strings_bl: Ints) -> Ints:
        """The model's own answers to strings [B, 2P], as bigrams [B, P]."""
        raise NotImplementedError

    def given_away(self, model: AttackedModel, secrets: Secrets, seed: int) -> list[Scores]:
        n, asked = self.codebook.chars, 0

        def ask(x_bp: Ints) -> Ints:
            nonlocal asked
            asked += len(x_bp)
            strings = unshifted(x_bp, n)
            return np.concatenate([self.answers(model, strings[k : k + BATCH]) for k in range(0, len(strings), BATCH)])

        hits = recovered_rules(*solve(ask, self.codebook.depth, n, self.pairs, self.contexts, seed), self.codebook)
        guess_s = guessed(self.codebook, self.pairs, self.contexts).reshape(-1)
        variant = f"rules up to names, {asked:,} questions"
        return [Scores("inversion", variant, "behaviour", hits.reshape(-1), secrets.chance_s, guess_s)]
