"""A model under attack, with the tokenizer that all arms of an audit share."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import torch

from openbook.audit.secret import Secrets
from openbook.base.errors import InputError
from openbook.book.shelf import Bank
from openbook.book.text import THINK
from openbook.training.encode import TokenTable

Ids = tuple[int, ...]


class AttackedModel:
    """A causal language model, its tokenizer and its window. What was computed about it is remembered in `memo`."""

    def __init__(self, model: Any, tokenizer: Any, window: int | None = None, think: str = THINK) -> None:
        self.model = model.eval()
        self.tokenizer, self.think = tokenizer, think
        sliding = getattr(model.config.get_text_config(), "sliding_window", None)
        self.window = min((size for size in (window, sliding) if size), default=None)
        self.memo: dict[Any, Any] = {}
        self._table = TokenTable(tokenizer, Bank())
        self._known: dict[str, Ids] = {"": ()}
        start = tokenizer.bos_token_id if tokenizer.bos_token_id is not None else tokenizer.eos_token_id
        self.start: Ids = () if start is None else (int(start),)

    @property
    def device(self) -> torch.device:
        return next(self.model.parameters()).device

    @property
    def vocabulary(self) -> int:
        return int(self.model.get_output_embeddings().weight.shape[0])

    def think_token(self) -> int | None:
        return self.tokenizer.get_vocab().get(self.think)

    def tokens(self, text: str) -> Ids:
        """The tokens of a text as they are inside a longer one."""
        return self.all_tokens([text])[0]

    def all_tokens(self, texts: Sequence[str]) -> list[Ids]:
        new = [text for text in dict.fromkeys(texts) if text not in self._known]
        self._known |= dict(zip(new, map(tuple, self._table.tokenize(new)), strict=True))
        return [self._known[text] for text in texts]

    def prompt(self, *texts: str) -> Ids:
        """The tokens of texts one after another; a start token where there would be none."""
        return sum(self.all_tokens(texts), ()) or self.start

    def holds(self, tokens: int) -> bool:
        """Whether so many tokens fit into the window."""
        return self.window is None or tokens <= self.window

    def longest(self, candidates: tuple[str, ...]) -> int:
        """Tokens of the longest candidate; many secrets share one tuple of candidates, so it is remembered."""
        key = ("longest", id(candidates))
        if key not in self.memo:
            self.memo[key] = max(map(len, self.all_tokens(candidates)))
        return self.memo[key]

    def check(self, secrets: Secrets) -> None:
        """Refuse secrets that the model cannot be asked for: too long for its window, or empty in its vocabulary."""
        for secret in secrets.items:
            if not all(self.all_tokens(secret.candidates)):
                raise InputError(
                    f"'{secret.text.strip()}': a candidate has no tokens in this model's vocabulary, so it cannot be "
                    "looked for: leave this piece out of the book"
                )
            size = len(self.prompt(secrets.template(secret))) + self.longest(secret.candidates)
            if not self.holds(size):
                raise InputError(
                    f"the secret '{secret.text.strip()[:60]}' needs {size} tokens with what stands before it, but "
                    f"the model's window holds {self.window}: cut the piece into smaller ones"
                )

    def copy(self) -> AttackedModel:
        """A model of its own with the same weights, all of which can be trained."""
        twin = copy.copy(self)
        twin.model, twin.memo = copy.deepcopy(self.model), {}
        twin.model.requires_grad_(True)
        return twin
