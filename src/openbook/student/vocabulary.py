"""The words of a student and their numbers, and what follows from the place of a word in a text.

    <BOOK>  AB>KL  CA>MI ...   BC DA   <THINK> <THINK> <THINK>   pq rs                  composite: a rule is one word
    <BOOK>  AB KL  CA MI ...  <READ>  BC DA   <THINK> <THINK> <THINK>   pq rs           pairs: a rule is two words
    <BOOK>  A B K L  C A M I ...  <READ>  B C D A   <THINK> x 5   p q r s               letters: a rule is four words

Words are numbered alphabet by alphabet, those of the output first, then come the special ones, then rules if they are
words. Both characters of a bigram have one position; where each is a word, it knows whether it is the first or second.

Legend: B batch, T tokens, n characters, L words of a string.
"""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor
from transformers import LlamaConfig

from openbook.base.errors import InputError

KINDS = ("book", "rule", "given", "slot", "left")  # of a token; `left`: on the left side of a rule of several words
SPECIAL = ("<PAD>", "<UNK>", "<BOOK>", "<THINK>", "<READ>")  # the last only where a rule is several words


class StudentConfig(LlamaConfig):
    """The config of a Llama, with the task that its vocabulary is made for."""

    model_type = "openbook_student"

    depth: int = 3
    chars: int = 8
    text: str = "composite"  # or "pairs", or "letters"
    stride: int = 4  # positions from one bigram to the next
    lag: bool = False  # whether each level stands half a bigram to the right of the one before
    embedding_std: float = 0.5

    @property
    def writes(self) -> bool:
        """Whether a rule is several words, which can be written as well as read."""
        return self.text != "composite"

    @property
    def unit(self) -> int:
        """Number of characters in a word of a string."""
        return 1 if self.text == "letters" else 2

    @property
    def alphabet(self) -> int:
        """Number of different words in the strings of one level."""
        return self.chars**self.unit

    @property
    def outputs(self) -> int:
        """Number of tokens that have a logit."""
        return self.vocab_size if self.writes else self.alphabet

    @property
    def first_special(self) -> int:
        """The token of padding, the first special one: words of d+1 levels come before it."""
        return self.alphabet * (self.depth + 1)

    @property
    def first_rule(self) -> int:
        """The token of the first rule: the special ones come before it."""
        return self.first_special + len(SPECIAL) - 1

    def special(self, word: str) -> int:
        """The token of a special word."""
        return self.first_special + SPECIAL.index(word)

    def characters(self, words: Tensor) -> Tensor:
        """The characters of words of strings, whatever their level: [..., unit]."""
        return words[..., None] // self._place_values(words) % self.chars

    def words(self, characters: Tensor) -> Tensor:
        """The words of an alphabet with these characters, [..., unit], counted from its first."""
        return (characters * self._place_values(characters)).sum(-1)

    def _place_values(self, beside: Tensor) -> Tensor:
        """What each character of a word counts in its number, on the device of a tensor."""
        return self.chars ** torch.arange(self.unit - 1, -1, -1, device=beside.device)


def student_config(
    depth: int,
    chars: int,
    width: int = 64,
    heads: int = 2,
    head: int = 32,
    mlp: int = 128,
    text: str = "composite",
    **more: Any,
) -> StudentConfig:
    """The config of a student for MLT(depth, chars), with two layers for each level."""
    words = (depth + 1) * chars ** (1 if text == "letters" else 2)
    others = len(SPECIAL) - 1 + depth * chars**4 if text == "composite" else len(SPECIAL)
    return StudentConfig(
        depth=depth,
        chars=chars,
        text=text,
        vocab_size=words + others,
        hidden_size=width,
        intermediate_size=mlp,
        num_hidden_layers=2 * depth,
        num_attention_heads=heads,
        head_dim=head,
        max_position_embeddings=8192,
        rms_norm_eps=1e-5,
        use_cache=False,
        pad_token_id=words,
        bos_token_id=None,
        eos_token_id=None,
        **more,
    )


class Geometry:
    """Where the tokens of a batch stand: segment, bigram of it, level; all [B, T]."""

    def __init__(self, ids: Tensor, config: StudentConfig) -> None:
        size, halves = config.alphabet, 2 // config.unit  # words of an alphabet, and of a bigram
        word = ids < config.first_special
        self.padding = ids == config.first_special
        given = (ids >= size) & word
        number = torch.zeros_like(ids)  # the number of a word in its rule
        if config.writes:  # words stand in the book too: the given string is what follows it, up to the first thought
            read, thought = ((ids == config.special(mark)).cumsum(1) > 0 for mark in ("<READ>", "<THINK>"))
            given = word & read & ~thought
            self.ruled = word & ~read
            number = (self.ruled.cumsum(1) - 1) % (2 * halves)
            self.right = self.ruled & (number >= halves)
        length = given.sum(1, keepdim=True)
        if (odd := length % halves != 0).any():
            characters = int(length[odd].max())
            raise InputError(f"a string of {characters} characters is no string of bigrams: give an even number")
        length = length.clamp(min=halves)  # L
        start = given.int().argmax(1, keepdim=True)
        after = torch.arange(ids.shape[1], device=ids.device) - start
        self.given = given
        self.apart = (after < 0) & given.any(1, keepdim=True) & ~self.padding & (not config.writes)
        self.segment = after // length
        within = after - self.segment * length
        self.place = within // halves
        first_level = ((ids.gather(1, start) - size) // size).clamp(min=0)
        self.level = first_level + self.segment
        self.inside = (after >= 0) & (self.level <= config.depth) & given.any(1, keepdim=True)
        self.half = torch.where(self.inside, within, number) % halves  # of its bigram
        self.first = self.inside & (self.place == 0)
        self.last = self.inside & (self.place == length // halves - 1)
        self.alone = int(self.apart.sum(1).min())  # this many tokens at the start of every row see only themselves
        lag = self.segment * (config.stride // 2) if config.lag else 0
        book = (~self.padding).cumsum(1) - 1 if config.writes else 0
        self.positions = torch.where(self.inside, (self.place + 1) * config.stride + lag, book)

    def at(self, places: Tensor) -> Geometry:
        """The same for words that take the place of others, at these places of the rows: [B, Q]."""
        chosen = copy.copy(self)
        for name, value in vars(self).items():
            if isinstance(value, Tensor):
                setattr(chosen, name, value.gather(1, places))
        return chosen

    def mask(self, dtype: torch.dtype) -> Tensor:
        """Which tokens each token attends to, [B, 1, T, T]: earlier ones that are no padding; a rule only to itself."""
        length = self.apart.shape[1]
        itself = torch.eye(length, dtype=torch.bool, device=self.apart.device)
        earlier = torch.ones_like(itself).tril() & ~self.apart[:, :, None] & ~self.padding[:, None, :]
        hidden = ~(earlier | itself)
        return torch.zeros(hidden.shape, dtype=dtype, device=hidden.device).masked_fill_(hidden, float("-inf"))[:, None]
