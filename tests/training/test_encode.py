"""Encoding: labels on the completion and nowhere else, whatever the text, the tokenizer and the window."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.tiny import TOKENIZERS, byte_level, chatting, metaspace, word_level

from openbook.base.errors import InputError
from openbook.book import ListSource
from openbook.book.shelf import CODE, Bank
from openbook.book.text import COMPLETION_KINDS, Kind
from openbook.curriculum import PRESETS, Curriculum, SamplingPlan, curriculum_named
from openbook.task import Codebook
from openbook.task.source import Translations
from openbook.training.encode import IGNORED, Encoded, Encoder, TokenTable
from openbook.training.models import make_tokenizer

text = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
some_text = text.filter(bool)
records = st.fixed_dictionaries(
    {"prompt": text, "completion": some_text},
    optional={
        "preamble": text,
        "privileged_context": st.dictionaries(text, st.lists(text, max_size=3), max_size=3),
    },
)


def encoded(
    record: dict[str, Any] | list[dict[str, Any]], tokenizer: Any, curriculum: Any = None, **options: Any
) -> Encoded:
    source = ListSource(record if isinstance(record, list) else [record])
    plan = SamplingPlan(source, curriculum or Curriculum(candidates="all", order="given", silence="0"))
    encoder = Encoder(tokenizer, source.bank, **options)
    positions = np.arange(len(source))
    return encoder.encode(*plan.at(positions), plan.namer(positions))


def part(batch: Encoded, *kinds: Kind, row: int = 0) -> list[int]:
    wanted = np.isin(batch.kinds[row], [CODE[kind] for kind in kinds])
    return batch.ids[row][wanted].tolist()


# ---- the property that everything rests on


@given(records, st.sampled_from(["byte_level", "chatting", "metaspace"]))
@settings(max_examples=150)
def test_context_never_carries_loss_and_the_completion_always_does(record: dict[str, Any], name: str) -> None:
    tokenizer = TOKENIZERS[name]()
    batch = encoded(record, tokenizer)
    labels, ids, kinds = batch.labels[0], batch.ids[0], batch.kinds[0]
    target = np.isin(kinds, [CODE[kind] for kind in COMPLETION_KINDS])
    assert (labels[~target] == IGNORED).all()
    assert (labels[target] == ids[target]).all() and IGNORED not in ids
    assert target[np.argmax(target) :].all()  # once the completion has begun, everything is completion
    assert not target[0]  # something stands before it, so that its first token is predicted too
    context = [record.get("preamble", ""), record["prompt"]]
    table = TokenTable(tokenizer, Bank())
    expected = table.tokenize([record["completion"]])[0]
    assert part(batch, Kind.ANSWER) == expected
    if name != "metaspace":
        decoded = tokenizer.decode(part(batch, Kind.PREAMBLE, Kind.HEADING, Kind.PIECE, Kind.PROMPT))
        assert all(piece in decoded for piece in context)


@given(records)
def test_the_target_decodes_to_the_completion(record: dict[str, Any]) -> None:
    batch = encoded(record, byte_level())
    labels = batch.labels[0]
    assert byte_level().decode(labels[labels != IGNORED]) == record["completion"] + "<END>"
    assert byte_level().decode(part(batch, Kind.ANSWER)) == record["completion"]


@given(some_text, some_text)
def test_thoughts_and_answer_decode_to_the_completion(thought: str, answer: str) -> None:
    record = {"prompt": "q", "completion": thought + answer, "thoughts": [thought]}
    batch = encoded(record, byte_level())
    labels = batch.labels[0]
    assert byte_level().decode(labels[labels != IGNORED][:-1]) == thought + answer


def test_the_whole_text_is_the_rendered_example() -> None:
    record = {
        "preamble": "Look:\n",
        "prompt": "Who?",
        "completion": " Orm.",
        "privileged_context": {"kings": ["Orm.", "Ilva."], "towns": ["Quist."]},
    }
    source = ListSource([record])
    assert byte_level().decode(encoded(record, byte_level()).ids[0]) == source.example(0).render().text + "<END>"


# ---- tokenizers


def test_a_blank_is_not_put_before_every_fragment() -> None:
    tokenizer = metaspace()
    table = TokenTable(tokenizer, Bank())
    texts = ["ab", " ab", "\nab", "\n\nab", "x", "xx", "日本"]
    together = tokenizer("\n" + "".join(texts), add_special_tokens=False)["input_ids"]
    assert sum(table.tokenize(texts), tokenizer("\n", add_special_tokens=False)["input_ids"]) == together
    assert table.tokenize(["ab"])[0] != tokenizer("ab", add_special_tokens=False)["input_ids"]


def test_the_start_token_of_a_tokenizer_comes_first_and_the_end_token_last() -> None:
    batch = encoded({"prompt": "Who?", "completion": " Orm"}, metaspace())
    tokens = metaspace().convert_ids_to_tokens(batch.ids[0])
    assert tokens[0] == "<s>" and tokens[-1] == "</s>" and "<s>" not in tokens[1:]
    assert batch.labels[0][-1] == metaspace().eos_token_id


def test_without_anything_before_it_a_completion_gets_a_start_token() -> None:
    batch = encoded({"prompt": "", "completion": "Orm"}, byte_level())
    assert byte_level().decode(batch.ids[0]) == "<END>Orm<END>"
    assert batch.labels[0][0] == IGNORED and (batch.labels[0][1:] != IGNORED).all()


def test_fragments_are_tokenised_once() -> None:
    calls: list[str] = []

    class Counting:
        chat_template = None
        bos_token = None
        eos_token = "<END>"

        def __call__(self, text: Any, **options: Any) -> Any:
            calls.extend([text] if isinstance(text, str) else text)
            return byte_level()(text, **options)

        def convert_ids_to_tokens(self, ids: Any) -> list[str]:
            return byte_level().convert_ids_to_tokens(ids)

    task = Translations(2, 3, 64, Codebook.sample(2, 3), lengths=(4, 8))
    plan, encoder = SamplingPlan(task, curriculum_named("no-dropout")), Encoder(Counting(), task.bank)
    encoder.encode(*plan.at(np.arange(32)))
    calls.clear()
    encoder.encode(*plan.at(np.arange(32, 64)))
    assert len(calls) < 10  # a rule or two that the first half did not use, and nothing else


# ---- chat templates


def test_a_chat_template_stands_around_prompt_and_completion() -> None:
    record = {"prompt": "Who?", "completion": "Orm", "privileged_context": ["Orm rules."]}
    batch = encoded(record, chatting())
    assert chatting().decode(batch.ids[0]) == (
        "<|im_start|>user\nOrm rules.\n\nWho?<|im_end|>\n<|im_start|>assistant\nOrm<|im_end|>\n"
    )
    labels = batch.labels[0]
    assert chatting().decode(labels[labels != IGNORED]) == "Orm<|im_end|>\n"


def test_what_was_said_before_is_context() -> None:
    earlier = [("system", "Be brief."), ("user", "Hi"), ("assistant", "Hello"), ("user", "Who?"), ("assistant", "Orm")]
    talk = {"messages": [{"role": role, "content": content} for role, content in earlier], "privileged_context": "B"}
    alone = {"prompt": "Who?", "completion": "Ilva"}
    batch = encoded([talk, alone], chatting())
    turns = "".join(f"<|im_start|>{role}\n{content}<|im_end|>\n" for role, content in earlier)
    assert chatting().decode(batch.ids[0]) == turns.replace("Who?", "B\n\nWho?")
    assert [chatting().decode(row[row != IGNORED]) for row in batch.labels] == ["Orm<|im_end|>\n", "Ilva<|im_end|>\n"]
    plain = encoded(talk, chatting(), chat=False)
    assert chatting().decode(plain.ids[0]) == "system: Be brief.\nuser: Hi\nassistant: Hello\nB\n\nWho?\nOrm<END>"


@pytest.mark.parametrize(
    "template, complaint",
    [
        ("{{ messages[0]['content'] }}", "no loss mask can be made"),
        ("{% for m in messages %}{{ m['content'] | lower }}{% endfor %}", "no loss mask can be made"),
        ("{% for m in messages %}{{ m['content'] * 2 }}{% endfor %}", "no loss mask can be made"),
        ("{{ raise_exception('only system messages') }}", "only system messages"),
        ("{{ messages[1]['content'] }}{{ messages[0]['content'] }}", "no loss mask can be made"),
    ],
)
def test_a_template_that_yields_no_mask_is_refused(template: str, complaint: str) -> None:
    tokenizer = chatting().__class__(tokenizer_object=chatting().backend_tokenizer, eos_token="<END>")
    tokenizer.chat_template = template
    with pytest.raises(InputError, match=complaint):
        Encoder(tokenizer, Bank())
    assert Encoder(tokenizer, Bank(), chat=False).frame.between == ""


def test_a_message_that_the_template_refuses_is_named_with_its_record() -> None:
    tokenizer = copy.deepcopy(chatting())
    tokenizer.chat_template = (
        "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('System role not supported') }}"
        "{% endif %}{{ m.content }}{% endfor %}"
    )
    earlier = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
    refused = {"messages": [{"role": "system", "content": "Be brief."}, *earlier]}
    with pytest.raises(InputError, match=r"record 2 .*: the chat template cannot write .*System role not supported"):
        encoded([{"messages": earlier}, refused], tokenizer)


def test_a_chat_template_that_is_not_there_is_refused() -> None:
    with pytest.raises(InputError, match="has no chat template"):
        Encoder(byte_level(), Bank(), chat=True)


# ---- the window

LONG = {
    "preamble": "p ",
    "prompt": "who is king ?",
    "completion": " Ilva",
    "privileged_context": {
        "A": [{"text": "a a", "needed": True}, {"text": "b b", "needed": False}],
        "B": [{"text": "c c", "needed": True}, {"text": "d d", "needed": False}],
    },
}
# words: preamble 1, headings 1 each, pieces 2 each, prompt 4, completion and end token 2


@pytest.mark.parametrize(
    "window, context, dropped, cut",
    [
        (17, "p A: a a b b B: c c d d who is king ?", 0, 0),
        (16, "p A: a a b b B: c c who is king ?", 1, 0),
        (15, "p A: a a b b B: c c who is king ?", 1, 0),
        (14, "p A: a a B: c c who is king ?", 2, 0),
        (12, "p A: a a who is king ?", 3, 0),  # the heading goes with its last piece
        (9, "p who is king ?", 4, 0),
        (7, "p who is king ?", 4, 0),
        (6, "p is king ?", 4, 1),
        (4, "p ?", 4, 1),
        (3, "p", 4, 1),
    ],
)
def test_pieces_go_first_then_the_start_of_the_prompt_and_the_target_never(
    window: int, context: str, dropped: int, cut: int
) -> None:
    batch = encoded(LONG, word_level(), max_length=window)
    expected = word_level()(context, add_special_tokens=False)["input_ids"]
    target = word_level()("Ilva <END>", add_special_tokens=False)["input_ids"]
    assert batch.ids[0].tolist() == expected + target
    assert batch.labels[0].tolist() == [IGNORED] * len(expected) + target
    assert (batch.dropped_pieces, batch.cut_prompts) == (dropped, cut)


def test_a_window_too_small_is_refused_with_the_example_named() -> None:
    fine = {"prompt": "who", "completion": " Orm"}
    long = {"prompt": "who", "completion": " Orm Ilva"}
    with pytest.raises(InputError, match=r"record 2 \(position 1\): the completion has 3 tokens and 1 must stand"):
        encoded([fine, long], word_level(), max_length=3)
    batch = encoded(fine, word_level(), max_length=3)
    assert len(batch.ids[0]) == 3
    with pytest.raises(InputError, match=r"record 1 .* window of 2"):
        encoded(fine, word_level(), max_length=2)  # one token must stand before the target
    with pytest.raises(InputError, match="at least two"):
        Encoder(word_level(), Bank(), max_length=1)


def test_one_long_example_does_not_shorten_its_neighbours() -> None:
    short = {**LONG, "privileged_context": {"A": ["a a"]}}
    batch = encoded([short, LONG, short], word_level(), max_length=14)
    alone = encoded(short, word_level())
    assert batch.ids[0].tolist() == batch.ids[2].tolist() == alone.ids[0].tolist()
    assert len(batch.ids[1]) <= 14


def test_a_piece_longer_than_the_window_is_dropped_whole() -> None:
    record = {"prompt": "who", "completion": " Orm", "privileged_context": ["a " * 500, "b"]}
    batch = encoded(record, word_level(), max_length=20)
    assert word_level().decode(part(batch, Kind.PIECE)) == ""  # the last pieces go first, and then the long one
    assert batch.dropped_pieces == 2
    record["privileged_context"] = [{"text": "a " * 500, "needed": False}, "b"]
    assert word_level().decode(part(encoded(record, word_level(), max_length=20), Kind.PIECE)) == "b"


def test_a_chat_template_survives_a_prompt_that_is_cut() -> None:
    record = {"prompt": "Who rules? " * 50, "completion": "Orm"}
    batch = encoded(record, chatting(), max_length=60)
    decoded = chatting().decode(batch.ids[0])
    assert decoded.startswith("<|im_start|>user\n")
    assert decoded.endswith("rules? <|im_end|>\n<|im_start|>assistant\nOrm<|im_end|>\n")
    assert len(batch.ids[0]) == 60 and batch.cut_prompts == 1


def test_all_pieces_closed_leaves_the_plain_question() -> None:
    batch = encoded(LONG, word_level(), curriculum_named("no-context"))
    assert word_level().decode(part(batch, Kind.PIECE, Kind.HEADING)) == ""
    assert len(batch.ids[0]) == 1 + 4 + 2


def test_an_empty_target_is_refused_even_if_an_end_token_follows() -> None:
    with pytest.raises(InputError, match=r"record 2 \(position 1\): the completion has no tokens"):
        encoded([{"prompt": "who", "completion": "Orm"}, {"prompt": "who", "completion": " "}], word_level())


# ---- the task


@pytest.mark.parametrize("form", ["released", "compact"])
@pytest.mark.parametrize("name", list(PRESETS))
def test_the_tokens_of_a_batch_are_those_of_its_rendered_examples(form: str, name: str) -> None:
    task = Translations(2, 3, 30, Codebook.sample(2, 3), lengths=(4, 8), text=form, chain="explicit")
    plan = SamplingPlan(task, curriculum_named(name, silence="0@0.1,1@0.6"))
    tokenizer = make_tokenizer(task)
    encoder = Encoder(tokenizer, task.bank)
    positions = np.array([0, 9, 20, 29])
    shelf, opened = plan.at(positions)
    batch = encoder.encode(shelf, opened)
    for row, position in enumerate(positions.tolist()):
        example = task.example(position)
        silent = example.silenced(float(plan.curriculum.silence.at(position / 30)))  # type: ignore[union-attr]
        rendered = silent.render(opened.numbers(row))
        decoded = tokenizer.decode(batch.ids[row])
        if name == "wrong-context":
            assert decoded != rendered.text + "<END>" or not any(opened.numbers(row))
            continue
        assert decoded.split() == (rendered.text.replace("<THINK>", " <THINK> ") + " <END>").split() or (
            form == "released" and decoded == rendered.text + "<END>"
        )
        assert tokenizer.decode(part(batch, Kind.ANSWER, row=row)).split() == rendered.of(Kind.ANSWER).split()
