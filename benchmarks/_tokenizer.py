"""A tokenizer like Llama 3's, small enough to be made in a second: the same splitting, bytes and chat turns.

Its merges are learned from the texts themselves, so a word of the format may be one token where Llama has one or two;
every symbol with its blank (` A`) is one token in both, and so are `->` and `;`.
"""

from __future__ import annotations

from typing import Any

from openbook.task.alphabet import alphabets
from openbook.task.source import Translations

SPLIT = (  # Llama 3's pattern of words
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
THINK = "<|reserved_special_token_100|>"
SPECIAL = ["<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>", THINK]
CHAT = (
    "<|begin_of_text|>{% for m in messages %}<|start_header_id|>{{ m['role'] }}<|end_header_id|>\n\n"
    "{{ m['content'] }}<|eot_id|>{% endfor %}"
)


def llama_like(source: Translations, texts: int = 200, chat: bool = True) -> Any:
    """A byte-level BPE tokenizer for the texts of a source."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    core = Tokenizer(models.BPE())
    core.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(SPLIT), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    core.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=4096,
        special_tokens=SPECIAL,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    core.train_from_iterator((source.example(i).render().text for i in range(min(texts, len(source)))), trainer)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=core, bos_token=SPECIAL[0], eos_token=SPECIAL[3], pad_token=SPECIAL[3]
    )
    tokenizer.chat_template = CHAT if chat else None
    for symbol in (s for level in alphabets(source.depth, source.chars) for s in level):
        assert len(tokenizer(f" {symbol}", add_special_tokens=False)["input_ids"]) == 1, symbol
    return tokenizer
