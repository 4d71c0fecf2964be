"""The exam of a server: against a real one on loopback that answers, is slow, stumbles, or says something else."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import numpy as np
import pytest
from tests.tiny import chatting

from openbook.base.errors import InputError, MachineError
from openbook.book import ListSource
from openbook.curriculum import SamplingPlan, curriculum_named
from openbook.training import endpoint as endpoints
from openbook.training.encode import Encoder
from openbook.training.endpoint import Endpoint, EndpointRow, examine_endpoint, messages_of
from openbook.training.exam import condition

Reply = tuple[int, dict[str, str], bytes]


def says(text: Any) -> Reply:
    return 200, {}, json.dumps({"choices": [{"message": {"role": "assistant", "content": text}}]}).encode()


class Server(ThreadingHTTPServer):
    """Replies as it is told to, and remembers what it was asked."""

    def __init__(self, reply: Callable[[dict[str, Any]], Reply | None], models: list[str]) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.reply, self.models = reply, models
        self.asked: list[dict[str, Any]] = []
        self.keys: list[str | None] = []
        self.url = f"http://127.0.0.1:{self.server_address[1]}"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        known = {"data": [{"id": name} for name in self.server.models]}
        self._send((200, {}, json.dumps(known).encode()) if self.path == "/v1/models" else (404, {}, b"no such path"))

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.asked.append(asked)
        self.server.keys.append(self.headers["Authorization"])
        reply = self.server.reply(asked) if self.path == "/v1/chat/completions" else (404, {}, b"no such path")
        if reply is None:  # hang up without a word
            self.connection.shutdown(socket.SHUT_RDWR)
            return
        self._send(reply)

    def _send(self, reply: Reply) -> None:
        status, headers, body = reply
        try:
            self.send_response(status)
            for name, value in {"Content-Length": str(len(body)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)
        except OSError:  # who asked has gone
            pass

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Server]]:
    monkeypatch.setattr(endpoints, "PAUSES", (0.01, 0.02))
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    servers: list[Server] = []

    def start(reply: Callable[[dict[str, Any]], Reply | None], models: list[str] | None = None) -> Server:
        server = Server(reply, ["tiny"] if models is None else models)
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        servers.append(server)
        return server

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def crops() -> ListSource:
    return ListSource(
        [
            {
                "prompt": f"What grows in {place}?",
                "completion": f" {crop}.",
                "answer": crop,
                "privileged_context": {"Crops": [f"{place} grows {crop}."]},
                "preamble": "A handbook.\n",
            }
            for place, crop in (("Tamsen", "the barley"), ("Osk", "rye"), ("Orm", "oats"))
        ]
    )


def reader(asked: dict[str, Any]) -> Reply:
    """Reads the book where it is open: the line about the place that is asked for."""
    text = asked["messages"][-1]["content"]
    place = text.rpartition(" in ")[2].rstrip("?")
    facts = dict(line.rstrip(".").split(" grows ") for line in text.splitlines() if " grows " in line)
    return says(facts[place].title() if place in facts else "I do not know")


def sit(server: Server, data: ListSource | None = None, **options: Any) -> list[EndpointRow]:
    return examine_endpoint(Endpoint(server.url, timeout=10), data or crops(), curriculum_named("anneal"), **options)


def test_a_model_that_reads_the_book_is_right_where_it_is_open(serve: Any) -> None:
    server = serve(reader)
    told: list[float] = []
    rows = sit(server, advance=told.append)
    assert [(row.book, row.open) for row in rows] == [*(("right", s) for s in (0, 0.25, 0.5, 0.75, 1)), ("wrong", 1)]
    closed, opened, wrong = rows[0], rows[4], rows[5]
    assert (closed.f1, closed.normalised_match, closed.pieces) == (0, 0, 0)
    assert (opened.f1, opened.normalised_match, opened.pieces, opened.samples) == (1, 1, 1, 3)
    assert opened.exact_match == 0 and opened.exact_high > 0  # "The Barley" is not "the barley" to the letter
    assert (wrong.f1, wrong.pieces) == (0, 1)
    assert opened.written[0].text == "The Barley" and opened.f1_low < 1
    assert sum(told) == pytest.approx(1)
    row = opened.as_dict()
    assert json.loads(json.dumps(row)) == row and row["accuracy"] is None and "written" not in row


def test_each_question_is_asked_once_and_greedily(serve: Any) -> None:
    server = serve(reader)
    sit(server)
    asked = [json.dumps(each["messages"]) for each in server.asked]
    assert len(asked) == len(set(asked)) == 9  # three questions: closed, open, and with a wrong book
    assert {(each["model"], each["temperature"], each["max_tokens"]) for each in server.asked} == {("tiny", 0, 64)}
    assert [message["role"] for message in server.asked[0]["messages"]] == ["user"]


def test_a_question_is_laid_out_as_training_lays_it_out() -> None:
    """What the tokenizer's template makes of the messages is what a model was trained on, up to the answer."""
    tokenizer = chatting()
    talk = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Who?"}]
    data = ListSource(
        [
            *(crops().record(k) for k in range(3)),
            {"messages": [*talk, {"role": "assistant", "content": "Ilva"}], "privileged_context": ["a", "b"]},
            {"prompt": "Who?", "completion": "Ilva", "privileged_context": {"x": ["a"], "y": []}, "layout": "released"},
            {"prompt": "Who?", "completion": "Ilva", "privileged_context": {"x": ["a", "b"]}, "layout": "compact"},
        ]
    )
    for share, wrong in ((0.0, False), (0.5, False), (1.0, False), (1.0, True)):
        plan = SamplingPlan(data, condition(curriculum_named("anneal"), share, wrong), seed=3)
        shelf, opened = plan.at(np.arange(len(data)))
        encoded = Encoder(tokenizer, data.bank).encode(shelf, opened)
        for row, messages in enumerate(messages_of(shelf, opened)):
            turns = [{"role": role, "content": content} for role, content in messages]
            prompt = tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=True)
            assert tokenizer.decode(encoded.ids[row]).startswith(prompt)
            assert tokenizer.decode(encoded.ids[row]).removeprefix(prompt).split("<|im_end|>")[0].strip() in (
                "Ilva",
                "the barley.",
                "rye.",
                "oats.",
            )


def test_a_server_that_stumbles_is_asked_again(serve: Any) -> None:
    seen: dict[str, int] = {}

    def stumbling(asked: dict[str, Any]) -> Reply | None:
        question = asked["messages"][-1]["content"]
        seen[question] = seen.get(question, 0) + 1
        if seen[question] == 1:
            return [(500, {}, b"oops"), (429, {"Retry-After": "0"}, b""), None][len(seen) % 3]  # or it hangs up
        return reader(asked)

    rows = sit(serve(stumbling), shares=(1.0,))
    assert rows[0].f1 == 1 and set(seen.values()) == {2}


@pytest.mark.parametrize(
    ("reply", "complaint"),
    [
        ((500, {}, b'{"error": "out of memory"}'), r"replied 500 \(.*out of memory.*\), and again 2 times"),
        ((503, {}, b""), "replied 503 .* try later"),
        (None, "dropped the connection, and again"),
        ((200, {}, b"<html><body>Welcome</body></html>"), "with: <html><body>Welcome.* base URL"),
        ((200, {}, b""), "with: nothing"),
        ((200, {}, b"[" * 100_000), r"with: \[\[\["),
        ((200, {}, b"\xff\xfe\x00"), "did not reply with a chat completion"),
        ((200, {}, b'{"choices": []}'), r'with: \{"choices": \[\]\}'),
        ((200, {}, b'{"error": {"message": "no such model"}}'), "no such model"),
        ((200, {}, b'[{"choices": 3}]'), "did not reply with a chat completion"),
        (says([{"type": "text"}]), "did not reply with a chat completion"),
        (says(None), "with an empty text.* --max-tokens than 64"),
        (says(" "), "with an empty text"),
        ((401, {}, b"no key"), "replied 401 .*OPENBOOK_API_KEY"),
        ((404, {}, b'{"error": "model not found"}'), "replied 404 .*model not found.*--endpoint-model"),
        ((400, {}, b"too long"), "replied 400 .*too long.*window"),
        ((302, {"Location": "http://elsewhere/v1"}, b""), "points to .http://elsewhere/v1"),
        ((200, {"Content-Length": "999"}, b"{}"), "dropped the connection, and again 2 times"),
    ],
)
def test_what_is_no_answer_is_told_in_a_sentence(serve: Any, reply: Any, complaint: str) -> None:
    server = serve(lambda asked: reply)
    where = Endpoint(server.url, "tiny", timeout=2)
    with pytest.raises(MachineError, match=complaint) as caught:
        examine_endpoint(where, crops(), curriculum_named("anneal"), shares=(0.0,))
    assert server.url in str(caught.value) and "\n" not in str(caught.value) and len(str(caught.value)) < 400
    assert len(server.asked) <= 4 * 3  # and the rest of the questions is not asked


@pytest.mark.parametrize("drips", [False, True])
def test_a_slow_server_is_given_up(serve: Any, drips: bool) -> None:
    """One that says nothing at all, and one that always says a little more."""
    gone = threading.Event()

    def slow(asked: dict[str, Any]) -> Reply:
        gone.wait(5)
        return reader(asked)

    server = serve(slow)
    if drips:
        server.RequestHandlerClass = _Dripping
    started = time.monotonic()
    with pytest.raises(MachineError, match=r"did not answer within 0.3 s: raise --timeout"):
        Endpoint(server.url, "tiny", timeout=0.3).answer((("user", "?"),), 8)
    assert time.monotonic() - started < 3
    gone.set()


class _Dripping(Handler):
    def do_POST(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "1000")
        self.end_headers()
        try:
            for _ in range(50):
                self.wfile.write(b" ")
                self.wfile.flush()
                time.sleep(0.05)
        except OSError:
            pass


def test_nobody_listens(serve: Any) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with pytest.raises(MachineError, match=f"http://127.0.0.1:{port}/v1: nobody listens there"):
        Endpoint(f"http://127.0.0.1:{port}")
    with pytest.raises(MachineError, match="no host of this name"):
        Endpoint("http://no-such-host.invalid/v1", "tiny").answer((("user", "?"),), 8)


def test_what_speaks_another_protocol_is_told(serve: Any) -> None:
    """A database, a mail server: it talks first, and not in HTTP."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def greet() -> None:
            connection, _ = listening.accept()
            connection.recv(10_000)
            connection.sendall(b"220 mail.example ESMTP\r\n")
            connection.close()

        threading.Thread(target=greet, daemon=True).start()
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        with pytest.raises(MachineError, match=r"did not reply with a chat completion but with: 220 mail"):
            Endpoint(url, "tiny", timeout=5).answer((("user", "?"),), 8)


def test_the_only_model_is_found_and_several_are_named(serve: Any) -> None:
    assert Endpoint(serve(reader, ["one"]).url).model == "one"
    with pytest.raises(InputError, match=r"has the models one, two: .*--endpoint-model"):
        Endpoint(serve(reader, ["one", "two"]).url)
    with pytest.raises(InputError, match="names no model"):
        Endpoint(serve(reader, []).url)


@pytest.mark.parametrize("path", ["", "/", "/v1", "/v1/", "/v1/chat/completions"])
def test_the_address_may_be_given_in_several_ways(serve: Any, path: str) -> None:
    server = serve(lambda asked: says("<think>hm</think> rye \ud800"))
    where = Endpoint(server.url + path, "tiny", key=" secret\n")
    assert where.url == f"{server.url}/v1"
    assert where.answer((("user", "?"),), 8) == "rye ?"  # without thoughts, and without half of a character
    assert server.keys == ["Bearer secret"]


@pytest.mark.parametrize("url", ["localhost:8000", "ftp://host", "http://", "http://host:port", "http://[::1", ""])
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(InputError, match="is no address: give a base URL"):
        Endpoint(url)


def test_other_bad_options_are_refused(serve: Any) -> None:
    with pytest.raises(InputError, match="--timeout is 0"):
        Endpoint("http://localhost", "m", timeout=0)
    with pytest.raises(InputError, match="characters that no key has"):
        Endpoint("http://localhost", "m", key="a\nb")
    with pytest.raises(InputError, match="between 0 and 1"):
        sit(serve(reader), shares=(2.0,))
