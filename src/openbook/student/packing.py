"""A book that many examples share is read once.

A student's rules see only themselves and stand nowhere in particular, so what becomes of a rule in every layer is the
same in every example that shows it. A batch is therefore laid out in one row without padding: each rule once, then all
strings. Only attention looks at examples one by one, and takes the keys and values of its rules from that row.

Legend: B batch, T tokens, L tokens of the row, R of them rules, S the longest string with its slots, H heads.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Packing:
    """Where the tokens of a batch stand in one row of different rules and all other tokens.

    `ids` are [B, T]; `apart` marks the tokens that see only themselves, `mask` [B, 1, T, T] says who sees whom.
    """

    def __init__(self, ids: Tensor, apart: Tensor, padding: Tensor, mask: Tensor) -> None:
        self.shape = ids.shape
        flat, places = apart.flatten(), torch.arange(ids.numel(), device=ids.device)
        rules, number = ids[apart].unique(return_inverse=True)
        self.rules = len(rules)
        example = torch.empty_like(rules).scatter_(0, number, places[flat])  # a place where each of them stands
        own = ~(apart | padding)
        others = places[own.flatten()]
        self.order = torch.cat([example, others])  # [L] the place in the batch of each token of the row
        self.back = torch.zeros_like(places)  # [B T] the place in the row of each token of the batch
        self.back[flat] = number
        self.back[others] = torch.arange(len(others), device=ids.device) + self.rules
        counts = own.sum(1)
        longest = int(counts.max())
        first = counts.cumsum(0) - counts
        nth = torch.arange(longest, device=ids.device)
        within = nth < counts[:, None]  # [B, S]
        self.queries = (first[:, None] + nth).clamp(max=len(others) - 1).flatten()  # [B S] in the row, after the rules
        self.answers = within.flatten().nonzero()[:, 0]  # [L - R] where the result of each of those is
        asked = torch.where(within, others[self.queries].view(within.shape) % ids.shape[1], 0)
        self.mask = mask.gather(2, asked[:, None, :, None].expand(-1, 1, -1, ids.shape[1]))  # [B, 1, S, T]

    def row(self, values: Tensor) -> Tensor:
        """Values of the tokens of a batch, [B, T, ...], as those of the row: [1, L, ...]."""
        return values.flatten(0, 1)[self.order][None]

    def batch(self, values: Tensor) -> Tensor:
        """Values of the tokens of the row, [1, L, ...], as those of the batch: [B, T, ...]."""
        return values[0].index_select(0, self.back).unflatten(0, self.shape)

    def attend(self, query: Tensor, key: Tensor, value: Tensor, scale: float | None) -> Tensor:
        """Attention of the row's tokens within their examples; all are [1, H, L, *], the result is [1, L, H, *]."""
        queries = query.transpose(1, 2)[0, self.rules :].index_select(0, self.queries)
        keys, values = (self.batch(x.transpose(1, 2)).transpose(1, 2) for x in (key, value))
        seen = nn.functional.scaled_dot_product_attention(
            queries.unflatten(0, (self.shape[0], -1)).transpose(1, 2), keys, values, attn_mask=self.mask, scale=scale
        )
        strings = seen.transpose(1, 2).flatten(0, 1).index_select(0, self.answers)
        return torch.cat([value.transpose(1, 2)[0, : self.rules], strings])[None]
