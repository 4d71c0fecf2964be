"""The mask made visible: each thing it promises to see is seen once."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.tiny import byte_level, chatting, metaspace, word_level

from openbook.base.errors import InputError
from openbook.book import ListSource
from openbook.curriculum import SamplingPlan, curriculum_named
from openbook.training import mask as module
from openbook.training.batches import Collator
from openbook.training.encode import Encoder
from openbook.training.mask import Masked, mask


def masked(
    records: list[dict[str, Any]], tokenizer: Any, max_length: int | None = None, **options: Any
) -> list[Masked]:
    source = ListSource(records)
    plan = SamplingPlan(source, curriculum_named("no-dropout", order="given"))
    encoder = Encoder(tokenizer, source.bank, max_length)
    return mask(plan, encoder, list(range(len(records))))


GOOD = {
    "prompt": "who is king ?",
    "completion": " is Orm",
    "answer": "Orm",
    "privileged_context": {"fact": ["a b", "c"]},
}


def test_every_token_is_shown_with_its_kind_and_its_loss() -> None:
    (example,) = masked([GOOD], word_level())
    assert example.problems == []
    assert [(token.text, token.kind, token.loss) for token in example.tokens] == [
        ("<unk>", "heading", False),  # "fact:" is one word, and not in the vocabulary; without loss that is no problem
        ("a", "piece", False),
        ("b", "piece", False),
        ("c", "piece", False),
        ("who", "prompt", False),
        ("is", "prompt", False),
        ("king", "prompt", False),
        ("?", "prompt", False),
        ("is", "words", True),
        ("Orm", "answer", True),
        ("<END>", "words", True),
    ]


@pytest.mark.parametrize("tokenizer", [byte_level, chatting, metaspace])
def test_sound_data_has_no_problems(tokenizer: Any) -> None:
    records = [
        {"prompt": "Who rules Vellmora?", "completion": " Queen Ilva", "privileged_context": ["Ilva rules."]},
        {"prompt": "日本語?", "completion": " はい", "privileged_context": []},
        {"prompt": "Tell me.\n", "completion": "Ilva.\n\nIt is so."},
    ]
    assert [example.problems for example in masked(records, tokenizer())] == [[], [], []]


def test_an_empty_target_is_seen() -> None:
    with pytest.raises(InputError, match=r"record 2 .*: the completion has no tokens"):
        masked([GOOD, {"prompt": "who", "completion": "  "}], word_level())


def test_a_target_cut_off_is_seen() -> None:
    with pytest.raises(InputError, match=r"record 1 .*does not fit into a window of 4"):
        masked([{"prompt": "who", "completion": " Orm Orm Orm Orm"}], word_level(), max_length=4)


def test_loss_on_padding_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken(Collator):
        """Pads labels with the padding token, as the released code does."""

        def pad(self, batch: Any) -> dict[str, torch.Tensor]:
            arrays = super().pad(batch)
            return {**arrays, "labels": torch.where(arrays["attention_mask"] == 0, self.pad_id, arrays["labels"])}

    monkeypatch.setattr(module, "Collator", Broken)
    short, long = masked([{"prompt": "who", "completion": " Orm"}, GOOD], word_level())
    assert short.problems == ["loss on padding"] and long.problems == []


def test_a_target_token_that_is_not_in_the_vocabulary_is_seen() -> None:
    (example,) = masked([{"prompt": "who is zebra ?", "completion": " Zebra Orm"}], word_level())
    assert example.problems == ["1 target tokens are not in the vocabulary"]


def test_an_unknown_token_that_is_also_the_end_token_is_no_alarm() -> None:
    """GPT-2 has one special token for everything."""
    tokenizer = word_level().__class__(
        tokenizer_object=byte_level().backend_tokenizer, eos_token="<END>", unk_token="<END>"
    )
    assert masked([{"prompt": "Who?", "completion": " Orm"}], tokenizer)[0].problems == []


@pytest.mark.parametrize(
    "prompt, completion", [("Who rules? ", "Queen"), ("The cap", "ital of Vellmora"), ("Question\n", "\n ok")]
)
def test_a_token_across_the_boundary_is_seen(prompt: str, completion: str) -> None:
    whole = byte_level()(prompt + completion)["input_ids"]
    apart = byte_level()(prompt)["input_ids"] + byte_level()(completion)["input_ids"]
    (example,) = masked([{"prompt": prompt, "completion": completion}], byte_level())
    if whole == apart:
        assert example.problems == []
    else:
        assert len(example.problems) == 1 and "across the boundary" in example.problems[0]
        assert repr(completion[:20]) in example.problems[0]


def test_at_least_one_of_those_does_merge() -> None:
    (example,) = masked([{"prompt": "Who rules? ", "completion": "Queen"}], byte_level())
    assert example.problems and "' Queen'" in example.problems[0]


def test_a_chat_template_keeps_prompt_and_completion_apart() -> None:
    assert masked([{"prompt": "Who rules? ", "completion": "Queen"}], chatting())[0].problems == []


def test_a_template_that_yields_no_mask_is_seen() -> None:
    tokenizer = chatting().__class__(tokenizer_object=chatting().backend_tokenizer, eos_token="<END>")
    tokenizer.chat_template = "{{ messages[0]['content'] }}"
    with pytest.raises(InputError, match="no loss mask can be made"):
        masked([GOOD], tokenizer)


@pytest.mark.parametrize("tokenizer", [byte_level, chatting, metaspace])
def test_naming_the_answer_does_not_change_what_is_learned(tokenizer: Any) -> None:
    """It says what is examined; the tokens are those that a whole text has."""
    record = {"prompt": "Who rules?", "completion": " The capital of Vellmora is Quistane, and Queen Ilva rules."}
    for answer in ("Quistane", "Queen Ilva", "Queen Ilva rules.", "The capital"):
        plain, marked = masked([record, {**record, "answer": answer}], tokenizer())
        assert [token.id for token in marked.tokens] == [token.id for token in plain.tokens]
        assert marked.problems == [] and {token.kind for token in marked.tokens} >= {"answer", "words"}
        named = "".join(token.text for token in marked.tokens if token.kind == "answer")
        assert named.replace(" ", "") == answer.replace(" ", "")


def test_an_answer_that_begins_inside_a_word_is_seen() -> None:
    record = {"prompt": "Who?", "completion": " The capital of Vellmora."}
    (example,) = masked([{**record, "answer": "ital of"}], byte_level())
    assert len(example.problems) == 1
    assert "across the boundary of two parts of the completion: ' capital of'" in example.problems[0]


def test_thinking_tokens_merge_with_nothing() -> None:
    record = {"prompt": "Who?", "completion": " Ilva, so: Queen", "thoughts": [" Ilva"], "answer": "Queen"}
    silent = curriculum_named("no-dropout", order="given", silence="1@0")
    source = ListSource([record])
    (example,) = mask(SamplingPlan(source, silent), Encoder(byte_level(), source.bank), [0])
    assert example.problems == [] and "<THINK>" in [token.text for token in example.tokens]
