"""The student: a small Llama with a composite vocabulary, which learns to read a book from nothing on two cores.

A token is an ordinary integer, but its embedding is computed from its parts: a rule `AB>KL` is one token, the sum of
four character vectors by role and a level vector; a bigram of the input is the sum of two. So the vocabulary gives the
binding of a rule's four characters for free. It does not give the look-up, the shift, or the order of the levels: those
the Llama blocks, which are stock, must learn.

    <BOOK>  AB>KL  CA>MI ...   BC DA   <THINK> <THINK> <THINK>   pq rs
    book    rules              s_1     slots of s_2, first of s_3   answer (its words are slots too)

Every place after s_1 is a slot: its embedding tells its level and whether it is first or last, not what stands there,
so answers are not fed back. Rules are a set and all have position 0; strings restart at the same positions, each half a
bigram to the right of the one before if `lag` is set, which is what the circular shift does to them. Rules see only
themselves: a mask keeps them apart.

The same student can be made for a text of words, in which every bigram is one word and a rule is two (`text="pairs"`),
or every character is one and a rule is four (`text="letters"`):

    <BOOK>  AB KL  CA MI ...      <READ>  BC DA     <THINK> <THINK> <THINK>   pq rs
    <BOOK>  A B K L  C A M I ...  <READ>  B C D A   <THINK> x 5               p q r s

Then the book is read as any text is, each word seeing all before it at its own place, and the head gives a logit to
every word, so the student can be asked to write a rule. What belongs together in a rule it has to learn.

Legend: B batch, T tokens, D width, n characters, P bigrams of a string.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, AutoConfig, AutoModelForCausalLM, LlamaForCausalLM
from transformers.modeling_outputs import CausalLMOutputWithPast

from openbook.base.errors import InputError
from openbook.student.packing import Packing
from openbook.student.vocabulary import KINDS, SPECIAL, Geometry, StudentConfig


def attend(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor,
    alone: int = 0,
    packing: Packing | None = None,
    **options: Any,
) -> tuple[Tensor, None]:
    """Attention in which the first `alone` tokens of every row see only themselves, so their result is their value."""
    if packing is not None:
        return packing.attend(query, key, value, options.get("scaling")), None
    seen = nn.functional.scaled_dot_product_attention(
        query[:, :, alone:], key, value, attn_mask=mask[:, :, alone:], scale=options.get("scaling")
    )
    return torch.cat([value[:, :, :alone], seen], 2).transpose(1, 2), None


AttentionInterface.register(STUDENT_ATTENTION := "openbook_student", attend)


class CompositeEmbedding(nn.Module):
    """Embeddings computed from parts.

    `character` has four roles: left 1, left 2, right 1, right 2; the last two are one where a word is one character.
    """

    def __init__(self, config: StudentConfig) -> None:
        super().__init__()
        self.config = config
        n, width = config.chars, config.hidden_size
        self.character = nn.Parameter(torch.empty(2 + config.unit, n, width))
        self.level = nn.Parameter(torch.empty(config.depth + 1, width))
        self.kind = nn.Parameter(torch.empty(len(KINDS) if config.writes else len(KINDS) - 1, width))
        self.flag = nn.Parameter(torch.empty(2, width))
        self.scale = nn.Parameter(torch.empty(()))  # of the logits
        if config.writes:  # what the head adds to a word's characters: its level; and the special words
            self.level_out = nn.Parameter(torch.empty(config.depth + 1, width))
            self.special_out = nn.Parameter(torch.empty(len(SPECIAL), width))
        if config.unit == 1:
            self.half_of = nn.Parameter(torch.empty(2, width))  # the first or the second of a bigram

    def reset(self) -> None:
        """Random vectors; the same character table in all roles of every alphabet would add nothing to sums."""
        for table in self.parameters():
            nn.init.ones_(table) if table is self.scale else nn.init.normal_(table, std=self.config.embedding_std)

    def words(self, level: Tensor) -> Tensor:
        """Vectors of the words of all levels in the order of their numbers, the output's first: [n² (d+1), D].

        `level` has the vector that each level adds: [d+1, D].
        """
        words = self.bigrams(2) if self.config.unit == 2 else self.character[2]
        return (words + level.roll(1, 0)[:, None]).flatten(0, 1)

    @property
    def weight(self) -> Tensor:
        """The vectors of all words as a plain embedding has them (where rules are words too): [V, D]."""
        return torch.cat([self.words(self.level), self.kind[:1].expand(len(SPECIAL), -1)])

    def bigrams(self, role: int) -> Tensor:
        """Vectors of all bigrams, the sum of two characters: [n², D]."""
        return (self.character[role][:, None] + self.character[role + 1][None]).flatten(0, 1)

    def forward(self, ids: Tensor, where: Geometry | None = None) -> Tensor:
        """The vector of each token, the sum of its parts: [B, T, D]."""
        where = Geometry(ids, self.config) if where is None else where
        parts = self._words(ids, where) if self.config.writes else self._rules(ids, where)
        flags = torch.cat([self.flag, self.flag.sum(0, keepdim=True)])
        vectors = parts + rows_where(where.first | where.last, where.first + 2 * where.last - 1, flags)
        if self.config.unit == 2:
            return vectors
        return vectors + rows_where(where.given | where.ruled | where.inside, where.half, self.half_of)

    def _words(self, ids: Tensor, where: Geometry) -> Tensor:
        """In a text of words: a word is its characters and its level, wherever it stands, and its kind."""
        words = rows_where(where.given | where.ruled, ids, self.words(self.level))
        thought = where.inside & ~where.given
        levels = rows_where(thought, where.level.clamp(0, self.config.depth), self.level)
        kind = where.ruled * 4 - where.right * 3 + where.given * 2 + thought * 3
        return words + levels + nn.functional.embedding(kind, self.kind)

    def _rules(self, ids: Tensor, where: Geometry) -> Tensor:
        """Where a rule is one token: it is four characters and its level."""
        config, size = self.config, self.config.chars**2
        book, rule, given, slot = self.kind
        number = ids - config.first_rule
        is_rule = number >= 0
        left = rows_where(is_rule, number // size % size, self.bigrams(0))
        right_sides = (self.bigrams(2) + self.level[1:, None] + rule).flatten(0, 1)
        right = rows_where(is_rule, number // size**2 * size + number % size, right_sides)
        # what is not a rule: a given bigram, a slot of some level, or something that only marks the start
        given_bigrams = (self.bigrams(2) + self.level[:-1, None] + given).flatten(0, 1)
        others = torch.cat([given_bigrams, self.level + slot, book[None]])
        slots = len(given_bigrams) + where.level.clamp(0, config.depth)
        other = torch.where(where.given, ids - size, torch.where(where.inside, slots, len(others) - 1))
        return left + right + rows_where(~is_rule, other, others)


def rows_where(there: Tensor, numbers: Tensor, table: Tensor) -> Tensor:
    """The rows of a table by their numbers, and zeros where there is none: [B, T, D]."""
    nothing = table.new_zeros(1, table.shape[1])
    return nn.functional.embedding(torch.where(there, numbers, len(table)), torch.cat([table, nothing]))


class CompositeHead(nn.Module):
    """Logits tied to the character table, the sum of one for each character: of the n² output bigrams, or of all words.

    Where rules are words, the level of a word has a logit too, and each special word its own.
    """

    def __init__(self, embedding: CompositeEmbedding) -> None:
        super().__init__()
        self._embedding = [embedding]  # in a list, so that its parameters are not counted twice

    def characters(self, hidden: Tensor, role: int = 2) -> Tensor:
        """Logits of the characters of a word: [..., unit, n]; role 0 reads both of the left side of a rule."""
        embedding = self._embedding[0]
        table = embedding.character[role : role + 2] * (embedding.scale / math.sqrt(hidden.shape[-1]))
        return torch.einsum("...d,rnd->...rn", hidden, table)

    @property
    def weight(self) -> Tensor:
        """The matrix of a head over all words: [V, D]."""
        embedding = self._embedding[0]
        words = torch.cat([embedding.words(embedding.level_out), embedding.special_out])
        return words * (embedding.scale / math.sqrt(words.shape[-1]))

    def forward(self, hidden: Tensor) -> Tensor:
        """Logits of all words that have one: [..., n²] or [..., V]."""
        if self._embedding[0].config.writes:
            return hidden @ self.weight.T
        first, second = self.characters(hidden).unbind(-2)
        return (first[..., :, None] + second[..., None, :]).flatten(-2)


class StudentForCausalLM(LlamaForCausalLM):
    """An ordinary Llama between a composite embedding and a composite head; tokens 0 to n²-1 are the output bigrams."""

    config_class = StudentConfig
    config: StudentConfig
    _tied_weights_keys = {}  # noqa: RUF012 - as the base class has it

    def __init__(self, config: StudentConfig) -> None:
        super().__init__(config)
        self.set_attn_implementation(STUDENT_ATTENTION)
        self.model.embed_tokens = CompositeEmbedding(config)
        self.lm_head = CompositeHead(self.model.embed_tokens)
        with torch.no_grad():
            self.model.embed_tokens.reset()
            for layer in self.model.layers:
                reset_block(layer, config.hidden_size)

    def _init_weights(self, module: nn.Module) -> None:
        """Weights are drawn in the constructor; loading fills in the rest."""

    def forward(self, input_ids: Tensor | None = None, text: Tensor | None = None, **options: Any) -> Any:
        """Positions and mask follow from the tokens, so those that are given are ignored.

        The exception are tokens that take the place of some of a `text` that was read before: they come with a mask, a
        cache and their `position_ids`.
        """
        if input_ids is None:
            raise InputError("the student reads tokens, not embeddings: give input_ids")
        if text is not None:
            return self._in_place(input_ids, text, **options)
        where = Geometry(input_ids, self.config)
        mask = where.mask(self.dtype)
        plain = options.keys() <= {"attention_mask", "position_ids", "use_cache"}  # only logits are asked for
        has_rules = int(where.apart.sum()) > len(input_ids)  # and not only the token that marks their start
        if self.training and self.config._attn_implementation == STUDENT_ATTENTION and plain and has_rules:
            return self._packed(input_ids, Packing(input_ids, where.apart, where.padding, mask), where.positions)
        options.update(position_ids=where.positions, attention_mask=mask, alone=where.alone)
        return super().forward(input_ids=input_ids, **options)

    def _in_place(self, ids: Tensor, text: Tensor, position_ids: Tensor, **options: Any) -> CausalLMOutputWithPast:
        """What would follow each token if it stood at its place in the text; behind its end the book goes on."""
        beyond = max(0, int(position_ids.max()) + 1 - text.shape[1])
        where = Geometry(nn.functional.pad(text, (0, beyond)), self.config).at(position_ids)
        embedded = self.model.embed_tokens(ids, where)
        inner = self.model(inputs_embeds=embedded, position_ids=where.positions, **options)
        return CausalLMOutputWithPast(logits=self.lm_head(inner.last_hidden_state))

    def _packed(self, ids: Tensor, packing: Packing, positions: Tensor) -> CausalLMOutputWithPast:
        """The same logits, but each rule of the batch is read once: rules are most of the work of training."""
        inner = self.model(
            inputs_embeds=packing.row(self.model.embed_tokens(ids)),
            position_ids=packing.row(positions),
            attention_mask=packing.mask,
            packing=packing,
            use_cache=False,
        )
        return CausalLMOutputWithPast(logits=self.lm_head(packing.batch(inner.last_hidden_state)))


def inputs_in_place(model: Any, read: Tensor) -> dict[str, Tensor]:
    """What a model must be given, beside their places, to read tokens in place of those of a text `read` before."""
    return {"text": read} if isinstance(model, StudentForCausalLM) else {}


def reset_block(layer: nn.Module, width: int) -> None:
    """Inputs of a block scaled by width, outputs zero: at first every block passes its input on."""
    attention: Any = layer.self_attn
    mlp: Any = layer.mlp
    for matrix in (attention.q_proj, attention.k_proj, attention.v_proj, mlp.gate_proj, mlp.up_proj):
        nn.init.normal_(matrix.weight, std=1 / math.sqrt(width))
    for matrix in (attention.o_proj, mlp.down_proj):
        nn.init.zeros_(matrix.weight)


AutoConfig.register("openbook_student", StudentConfig)
AutoModelForCausalLM.register(StudentConfig, StudentForCausalLM)
