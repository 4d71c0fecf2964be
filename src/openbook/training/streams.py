"""The quick way through a student: each rule is computed once for a batch, not once for every example.

In a student a rule sees nothing but itself, so what becomes of it in each layer depends on the rule alone. The book of
a batch is therefore one set of distinct rules, and only strings are computed example by example; they attend to the
rules of their own book and, causally, to each other. The result is that of the stock layers under `stock_mask`.

Legend: B batch, T tokens, R distinct rules (and book marks) of the batch, M longest book, Q longest string part,
D width, H heads, K head size.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from transformers.models.llama.modeling_llama import apply_rotary_pos_emb


def stock_mask(before: Tensor, ids: Tensor, dtype: torch.dtype) -> Tensor:
    """The mask under which stock layers compute the same: causal, and what stands before the strings sees only itself.

    `before` is True for tokens of the book: [B, T] -> [B, 1, T, T], 0 where a token may look and -inf elsewhere.
    """
    length = ids.shape[1]
    causal = torch.ones(length, length, dtype=torch.bool, device=ids.device).tril()
    itself = torch.eye(length, dtype=torch.bool, device=ids.device)
    allowed = causal & (~before[:, :, None] | itself)
    return torch.zeros(allowed.shape, dtype=dtype, device=ids.device).masked_fill_(~allowed, float("-inf"))[:, None]


class Streams:
    """A batch taken apart into its distinct rules and its strings."""

    def __init__(self, inner: Any, ids: Tensor, before: Tensor, positions: Tensor) -> None:
        self._inner = inner
        batch, length = ids.shape
        self._start = before.sum(1, keepdim=True)  # [B, 1]
        books, strings = int(self._start.max()), length - int(self._start.min())
        place = self._start + torch.arange(strings, device=ids.device)
        self._inside = place < length
        self._place = place.clamp(max=length - 1)  # [B, Q]: where the strings' tokens stand
        embedded = inner.embed_tokens(ids)
        self._rules, self._number = _distinct(ids[:, :books], before[:, :books])  # [R] places in the batch, [B, M]
        row = torch.div(self._rules, max(books, 1), rounding_mode="floor")
        column = self._rules % max(books, 1)
        self._book = embedded[row, column]  # [R, D]
        self._strings = embedded.gather(1, self._place[..., None].expand(-1, -1, embedded.shape[-1]))  # [B, Q, D]
        self._rotary = inner.rotary_emb(embedded, position_ids=positions.gather(1, self._place))
        self._mask = self._attention_mask(before[:, :books], strings, embedded.dtype)
        self._shape = batch, length

    def _attention_mask(self, in_book: Tensor, strings: int, dtype: torch.dtype) -> Tensor:
        """[B, 1, Q, M + Q]: the rules of one's own book, and the strings up to oneself."""
        batch, books = in_book.shape
        mask = torch.zeros(batch, 1, strings, books + strings, dtype=dtype, device=in_book.device)
        mask[..., :books].masked_fill_(~in_book[:, None, None, :], float("-inf"))
        later = torch.ones(strings, strings, dtype=torch.bool, device=in_book.device).triu(1)
        mask[..., books:].masked_fill_(later, float("-inf"))
        return mask

    def layers(self, count: int | None = None) -> Iterator[Tensor]:
        """The strings' hidden states after each layer, or each of the first `count`: [B, Q, D]."""
        book, strings = self._book, self._strings
        layers = self._inner.layers[:count]
        for number, layer in enumerate(layers, start=1):
            attention = layer.self_attn
            keys, values = self._read(attention, layer.input_layernorm(book))
            strings = strings + self._attend(attention, layer.input_layernorm(strings), keys, values)
            strings = strings + layer.mlp(layer.post_attention_layernorm(strings))
            if number < len(layers):  # a rule attends to itself alone, so what it gets is its own value
                book = book + attention.o_proj(values)
                book = book + layer.mlp(layer.post_attention_layernorm(book))
            yield strings

    def _read(self, attention: Any, book: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values of the distinct rules, [R, H·K]; rules stand at position 0, where rotation does nothing."""
        return attention.k_proj(book), attention.v_proj(book)

    def _attend(self, attention: Any, strings: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        batch, length, _ = strings.shape
        size = attention.head_dim

        def heads(x: Tensor) -> Tensor:
            return x.view(batch, -1, x.shape[-1] // size, size).transpose(1, 2)

        query, key, value = (
            heads(project(strings)) for project in (attention.q_proj, attention.k_proj, attention.v_proj)
        )
        query, key = apply_rotary_pos_emb(query, key, *self._rotary)
        seen = nn.functional.embedding(self._number, torch.cat([keys, values], -1))  # [B, M, 2·H·K]
        book_keys, book_values = seen.chunk(2, -1)
        found = nn.functional.scaled_dot_product_attention(
            query,
            torch.cat([heads(book_keys), key], 2),
            torch.cat([heads(book_values), value], 2),
            attn_mask=self._mask,
            scale=attention.scaling,
        )
        return attention.o_proj(found.transpose(1, 2).reshape(batch, length, -1))

    def relative(self, places: Tensor) -> Tensor:
        """Places in the sequence [B, ...] as places among the strings."""
        return places - self._start.view(-1, *[1] * (places.dim() - 1))

    def whole(self, strings: Tensor) -> Tensor:
        """Hidden states laid out as the batch was, zero in the book: [B, T, D]."""
        batch, length = self._shape
        result = strings.new_zeros(batch, length, strings.shape[-1])
        rows = torch.arange(batch, device=strings.device)[:, None].expand_as(self._place)
        return result.index_put((rows[self._inside], self._place[self._inside]), strings[self._inside])


def _distinct(ids: Tensor, valid: Tensor) -> tuple[Tensor, Tensor]:
    """One place (flat) for each distinct token of the books, and the number of its token for every place."""
    flat = torch.where(valid, ids, -1).flatten()
    tokens, number = torch.unique(flat, return_inverse=True)
    places = torch.empty(len(tokens), dtype=torch.long, device=ids.device)
    places.scatter_(0, number, torch.arange(len(flat), device=ids.device))
    return places, number.view(ids.shape)
