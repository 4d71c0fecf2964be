"""The text around a prompt and a completion: that of a chat template, or only the special tokens.

A template is rendered once with two markers in place of the texts. What it puts before, between and after them is then
tokenised like any other fragment. A template that changes the markers is refused, because no mask can be made for it.
"""

from __future__ import annotations

import datetime
import re
from dataclasses import dataclass
from typing import Any

from openbook.base.errors import InputError

History = tuple[tuple[str, str], ...]  # role and content of each message

_NOW = re.compile(r"""strftime_now\(\s*(['"])(.*?)\1\s*\)""")  # how a template asks for the date
_PROMPT, _COMPLETION = "OPENBOOK-PROMPT-MARK", "OPENBOOK-COMPLETION-MARK"


@dataclass(frozen=True)
class Frame:
    """The texts before the prompt, between prompt and completion, and after the completion."""

    before: str
    between: str
    end: str


def date_of_now() -> str:
    """The current date, such as 2026-01-31."""
    return datetime.date.today().isoformat()


def frame_of(tokenizer: Any, history: History | None, chat: bool, today: str | None = None) -> Frame:
    """The frame for one example; without a chat template, the tokenizer's own start and end tokens.

    `history` has the earlier messages of a conversation; without a template, each is on a line of its own. It is None
    for a prompt and a completion alone. `today` (such as 2026-01-31) is the date that a template inserts; the current
    date by default.
    """
    if chat:
        return _chat_frame(tokenizer, history or (), datetime.date.fromisoformat(today or date_of_now()))
    earlier = "".join(f"{role}: {content}\n" for role, content in history or ())
    return Frame(_start(tokenizer) + earlier, "" if history is None else "\n", tokenizer.eos_token or "")


def _start(tokenizer: Any) -> str:
    """The special tokens that the tokenizer puts before a text, as text (a beginning-of-text token, or nothing)."""
    plain, full = tokenizer("x", add_special_tokens=False)["input_ids"], tokenizer("x")["input_ids"]
    if not plain:  # a vocabulary without this letter and without a token for what it does not know
        return tokenizer.bos_token if tokenizer.bos_token_id in full else ""
    before = full[: len(full) - len(plain)] if full[-len(plain) :] == plain else full[: full.index(plain[0])]
    return "".join(tokenizer.convert_ids_to_tokens(before))


def _chat_frame(tokenizer: Any, history: History, today: datetime.date) -> Frame:
    """What the tokenizer's chat template puts around the prompt and the completion after some messages."""
    messages = [{"role": role, "content": content} for role, content in history]
    messages += [{"role": "user", "content": _PROMPT}, {"role": "assistant", "content": _COMPLETION}]
    if not getattr(tokenizer, "chat_template", None):
        raise InputError("this tokenizer has no chat template: set chat to false")
    try:
        template = _NOW.sub(lambda call: repr(today.strftime(call[2])), tokenizer.get_chat_template())
        text = tokenizer.apply_chat_template(messages, chat_template=template, tokenize=False)
    except Exception as error:  # a template is a program of the model's author and may raise anything
        raise InputError(f"the chat template cannot write a user message with an answer: {error}") from error
    if text.count(_PROMPT) != 1 or text.count(_COMPLETION) != 1 or text.index(_PROMPT) > text.index(_COMPLETION):
        raise InputError(
            "the chat template changes prompt or completion, so it is not known where the completion is and no loss "
            "mask can be made: set chat to false, or use another template"
        )
    before, _, rest = text.partition(_PROMPT)
    between, _, end = rest.partition(_COMPLETION)
    return Frame(before, between, end)
