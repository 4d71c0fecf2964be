"""An exam of a model as it is deployed: behind any server that speaks OpenAI's chat completions (vLLM, llama.cpp, ...).

A question is the record's messages with the open pieces of the book before the prompt, laid out as training lays them
out; the server's own chat template does the rest. Every different question is asked once, a few at a time, with
temperature 0. What comes back is scored as a text, since a server shows no logits.
"""

from __future__ import annotations

import http.client
import json
import socket
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from queue import Empty, SimpleQueue
from typing import Any

import numpy as np

from openbook.base.errors import InputError, MachineError
from openbook.base.intervals import wilson
from openbook.book.shelf import NONE, Shelf
from openbook.book.source import Source
from openbook.curriculum import Curriculum, Opened
from openbook.training.answers import Written, written_rates, written_to
from openbook.training.encode import question_blocks
from openbook.training.exam import SHARES, conditions

PAUSES = (0.5, 1.0, 2.0)  # seconds before a question is asked again of a server that is busy or stumbled
LONGEST_PAUSE = 30.0  # of those that a server asks for
LARGEST = 16 * 2**20  # bytes of a reply; more is no answer to a question
PARALLEL = 4  # questions under way at once
LEAST_TOKENS = 64

Messages = tuple[tuple[str, str], ...]  # role and content of each


@dataclass(frozen=True)
class EndpointRow:
    """One condition of the exam of a server."""

    book: str  # "right" or "wrong"
    open: float
    pieces: float
    samples: int
    exact_match: float
    exact_low: float
    exact_high: float
    f1: float
    f1_low: float
    f1_high: float
    normalised_match: float
    normalised_low: float
    normalised_high: float
    written: Sequence[Written] = field(default=(), repr=False)

    def as_dict(self) -> dict[str, Any]:
        """The row as `--json` prints it; what only logits can tell is null."""
        unknown = dict.fromkeys(("accuracy", "low", "high", "chance"))
        return {key: value for key, value in asdict(self).items() if key != "written"} | unknown


def examine_endpoint(
    endpoint: Endpoint,
    source: Source,
    curriculum: Curriculum,
    shares: Sequence[float] = SHARES,
    samples: int = 256,
    seed: int = 0,
    max_tokens: int | None = None,
    advance: Callable[[float], None] = lambda part: None,
) -> list[EndpointRow]:
    """Examine a server: a row for every share of the book, and one with a wrong book where the source has any."""
    sheets, about, indices = [], [], np.zeros(0, np.int64)
    for share, misled, plan, positions in conditions(source, curriculum, shares, True, samples, seed):
        shelf, opened = plan.at(positions)
        indices = plan.indices(positions)
        sheets.append(messages_of(shelf, opened))
        about.append(("wrong" if misled else "right", share, float((opened.slots != NONE).sum() / len(positions))))
    examples = [source.example(index) for index in indices.tolist()]
    if max_tokens is None:
        longest = max(sum(len(part.text.encode()) for part in example.completion) for example in examples)
        max_tokens = max(LEAST_TOKENS, longest)  # a token has a byte or more
    questions = list(dict.fromkeys(question for sheet in sheets for question in sheet))
    said = dict(zip(questions, _all_answers(endpoint, questions, max_tokens, advance), strict=True))
    if not any(said.values()):
        raise MachineError(
            f"{endpoint.url} answered every question with an empty text: a model that thinks first needs more "
            f"--max-tokens than {max_tokens}"
        )
    rows = []
    for (book, share, pieces), sheet in zip(about, sheets, strict=True):
        answers = [written_to(example, said[asked]) for example, asked in zip(examples, sheet, strict=True)]
        exact = sum(answer.exact for answer in answers)
        match = (exact / len(answers), *wilson(exact, len(answers)))
        rates = dict(zip(("exact_match", "exact_low", "exact_high"), match, strict=True)) | written_rates(answers)
        rows.append(EndpointRow(book, share, pieces, len(answers), **rates, written=answers))
    return rows


def messages_of(shelf: Shelf, opened: Opened) -> list[Messages]:
    """The conversation of each example up to its question, with what is open of the book before the prompt."""
    fragments = np.concatenate([block for block, _ in question_blocks(shelf, opened)], axis=1)
    histories = shelf.histories or (None,) * len(shelf)
    asked = zip(histories, fragments, strict=True)
    return [(*(history or ()), ("user", "".join(shelf.texts(row)))) for history, row in asked]


def _all_answers(
    endpoint: Endpoint, questions: Sequence[Messages], max_tokens: int, advance: Callable[[float], None]
) -> list[str]:
    """The answers to all questions. The first error ends it; threads that still wait for a reply hold nothing up."""
    left: SimpleQueue[int] = SimpleQueue()
    done: SimpleQueue[tuple[int, str | BaseException]] = SimpleQueue()
    over = threading.Event()
    for number in range(len(questions)):
        left.put(number)

    def work() -> None:
        while not over.is_set():
            try:
                number = left.get_nowait()
            except Empty:
                return
            try:
                done.put((number, endpoint.answer(questions[number], max_tokens)))
            except BaseException as error:
                done.put((number, error))

    answers = [""] * len(questions)
    try:
        for _ in range(min(PARALLEL, len(questions))):
            threading.Thread(target=work, daemon=True).start()
        for _ in questions:
            number, said = done.get()
            if isinstance(said, BaseException):
                raise said
            answers[number] = said
            advance(1 / len(questions))
    finally:
        over.set()
    return answers


class _Again(Exception):  # noqa: N818 - not an error: the server may answer the next time
    """The server could not answer now; `after` is how many seconds it asks to wait, if it says."""

    def __init__(self, why: str, after: float | None = None) -> None:
        super().__init__(why)
        self.after = after


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirect is reported and not followed: it would take the key to another server, and lose the question."""

    def redirect_request(self, *_: Any) -> None:
        return None


class Endpoint:
    """A server at a base URL, such as http://localhost:8000/v1, and the model that is asked there."""

    def __init__(self, url: str, model: str | None = None, timeout: float = 60, key: str | None = None) -> None:
        """Without `model`, the server must have exactly one."""
        try:
            parts = urllib.parse.urlsplit(url)
            known = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
        except ValueError:  # a port that is no number, half of a bracket
            known = False
        if not known:
            raise InputError(f"--endpoint {url} is no address: give a base URL such as http://localhost:8000/v1")
        if not timeout > 0:
            raise InputError(f"--timeout is {timeout:g}: give the seconds to wait for an answer")
        path = parts.path.rstrip("/").removesuffix("/chat/completions") or "/v1"
        self.url = urllib.parse.urlunsplit((parts.scheme, parts.netloc, path, "", ""))
        self.timeout = timeout
        self._headers = {"Content-Type": "application/json", "Accept": "application/json"}
        if key and (key := key.strip()):
            if not key.isascii() or not key.isprintable():
                raise InputError("OPENBOOK_API_KEY has characters that no key has: set it again")
            self._headers["Authorization"] = f"Bearer {key}"
        self._opener = urllib.request.build_opener(_NoRedirect)
        self.model = model or self._only_model()

    def answer(self, messages: Messages, max_tokens: int) -> str:
        """What the model says next, without the thoughts that some models write before it."""
        turns = [{"role": role, "content": content} for role, content in messages]
        asked = {"model": self.model, "messages": turns, "temperature": 0, "max_tokens": max_tokens}
        reply = self._fetch("/chat/completions", asked)
        try:
            text = reply["choices"][0]["message"]["content"]
        except (TypeError, KeyError, IndexError):
            text = reply
        if text is None:  # a model that was cut off while it thought
            return ""
        if not isinstance(text, str):
            raise self._nonsense(json.dumps(reply))
        return text.rpartition("</think>")[2].encode("utf-8", "replace").decode().strip()

    def _only_model(self) -> str:
        reply = self._fetch("/models")
        try:
            names = [str(model["id"]) for model in reply["data"]]
        except (TypeError, KeyError):
            raise self._nonsense(json.dumps(reply)) from None
        if len(names) != 1:
            known = f"has the models {', '.join(names[:8])}" if names else "names no model"
            raise InputError(f"{self.url} {known}: say which one is examined with --endpoint-model")
        return names[0]

    def _fetch(self, path: str, body: dict[str, Any] | None = None) -> Any:
        """The JSON that the server replies with; a server that is busy or stumbles is asked again a few times."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, self._headers)
        for pause in (*PAUSES, None):
            try:
                text = self._read(request)
                break
            except _Again as again:
                if pause is None:
                    raise MachineError(
                        f"{self.url} {again}, and again {len(PAUSES)} times: look at the server's log, or try later"
                    ) from None
                time.sleep(min(LONGEST_PAUSE, again.after or pause))
        try:
            return json.loads(text)
        except (ValueError, RecursionError):
            raise self._nonsense(text.decode("utf-8", "replace")) from None

    def _read(self, request: urllib.request.Request) -> bytes:
        """The body of one reply, which must be there in time."""
        deadline = time.monotonic() + self.timeout
        try:
            with self._opener.open(request, timeout=self.timeout) as reply:
                chunks, size = [], 0
                while chunk := reply.read1(2**16):
                    chunks.append(chunk)
                    size += len(chunk)
                    if time.monotonic() > deadline:
                        raise TimeoutError
                    if size > LARGEST:
                        raise self._nonsense(b"".join(chunks[:1]).decode("utf-8", "replace"))
                if reply.length:  # bytes that were announced and did not come
                    raise http.client.IncompleteRead(b"", reply.length)
                return b"".join(chunks)
        except urllib.error.HTTPError as error:
            raise self._refusal(error) from None
        except TimeoutError:
            raise self._too_slow() from None
        except urllib.error.URLError as error:
            if isinstance(error.reason, TimeoutError):
                raise self._too_slow() from None
            if isinstance(error.reason, ConnectionResetError | BrokenPipeError):
                raise _Again("dropped the connection") from None
            raise self._unreachable(error.reason) from None
        except (http.client.HTTPException, ConnectionError) as error:
            if isinstance(error, http.client.BadStatusLine) and not isinstance(error, ConnectionError):
                raise self._nonsense(str(error)) from None
            raise _Again("dropped the connection") from None

    def _refusal(self, error: urllib.error.HTTPError) -> Exception:
        """What a status other than 200 means."""
        with error:
            try:
                said = " ".join(error.read(2000).decode("utf-8", "replace").split())[:200]
            except (OSError, http.client.HTTPException):
                said = ""
        if error.code == 429 or error.code >= 500:
            wait = error.headers.get("Retry-After", "")
            return _Again(f"replied {error.code} ({said or error.reason})", float(wait) if wait.isdecimal() else None)
        if error.code in (401, 403):
            remedy = "set the environment variable OPENBOOK_API_KEY to a key that it knows"
        elif error.code == 404:
            remedy = "check the base URL (such as http://localhost:8000/v1) and --endpoint-model"
        elif 300 <= error.code < 400:
            remedy = f"give the address that it points to ({error.headers.get('Location', 'it names none')})"
        else:
            remedy = "it does not take such a question; check --endpoint-model and the model's window"
        return MachineError(f"{self.url} replied {error.code} ({said or error.reason}): {remedy}")

    def _too_slow(self) -> MachineError:
        return MachineError(f"{self.url} did not answer within {self.timeout:g} s: raise --timeout, or free the server")

    def _unreachable(self, reason: Any) -> MachineError:
        if isinstance(reason, ConnectionRefusedError):
            return MachineError(f"{self.url}: nobody listens there: start the server, or mend --endpoint")
        if isinstance(reason, socket.gaierror):
            return MachineError(f"{self.url}: there is no host of this name: mend --endpoint")
        return MachineError(f"{self.url} cannot be reached ({reason}): check the server and --endpoint")

    def _nonsense(self, text: str) -> MachineError:
        shown = " ".join(text.split())[:80] or "nothing"
        return MachineError(
            f"{self.url} did not reply with a chat completion but with: {shown} (give the base URL of an "
            "OpenAI-compatible server, such as http://localhost:8000/v1)"
        )
