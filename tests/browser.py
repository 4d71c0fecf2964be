"""Chromium driven through its debugging pipe: no driver and no library, just JSON between null bytes.

`found()` names the browser, or None; tests skip where there is none.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
)


def found() -> str | None:
    """The browser to use."""
    return next((path for path in map(shutil.which, NAMES) if path), None)


class Tab:
    """One page of a browser, with everything it said and asked for."""

    def __init__(self, write: int, read: int) -> None:
        self._write, self._read = write, read
        self._number, self._rest = 0, b""
        self.session: str | None = None
        self.events: list[dict[str, Any]] = []

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """One command and its answer; what else arrives meanwhile is kept."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                return answer["result"]
            self.events.append(answer)

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            part = os.read(self._read, 1 << 20)
            assert part, "the browser has gone"
            self._rest += part
        one, _, self._rest = self._rest.partition(b"\0")
        return json.loads(one)

    def open(self, path: Path, width: int = 1280, height: int = 900, dark: bool = False) -> None:
        """Load a file and wait until its script has run."""
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )
        theme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.call("Emulation.setEmulatedMedia", features=theme)
        self.events.clear()
        self.call("Page.navigate", url=path.absolute().as_uri())
        deadline = time.monotonic() + 30
        while not self.run("document.documentElement?.dataset.ready || ''"):
            assert time.monotonic() < deadline, "the page's script did not run"
            time.sleep(0.05)

    def run(self, script: str) -> Any:
        """The value of an expression on the page."""
        answer = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def press(self, key: str) -> None:
        for kind in ("rawKeyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key)

    def click(self, selector: str) -> None:
        """A real click in the middle of an element."""
        place = self.run(
            f"(() => {{ const e = document.querySelector({json.dumps(selector)}); "
            "e.scrollIntoView({block: 'center', behavior: 'instant'}); const b = e.getBoundingClientRect(); "
            "return [b.left + b.width / 2, b.top + b.height / 2]; })()"
        )
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=place[0], y=place[1], button="left", clickCount=1)

    def picture(self, path: Path, whole: bool = True) -> None:
        shot = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(shot["data"]))

    def complaints(self) -> list[str]:
        """Errors and warnings of the console, and exceptions."""
        said = []
        for event in self.events:
            kind, about = event.get("method"), event.get("params", {})
            if kind == "Runtime.exceptionThrown":
                said.append(str(about["exceptionDetails"]))
            elif kind == "Runtime.consoleAPICalled" and about["type"] in ("error", "warning", "assert"):
                said.append(str(about["args"]))
            elif kind == "Log.entryAdded" and about["entry"]["level"] in ("error", "warning"):
                said.append(about["entry"]["text"])
        return said

    def requests(self) -> list[str]:
        return [e["params"]["request"]["url"] for e in self.events if e.get("method") == "Network.requestWillBeSent"]


@contextlib.contextmanager
def tab() -> Iterator[Tab]:
    """A fresh browser with one page; it is gone afterwards."""
    browser = found()
    assert browser is not None
    with tempfile.TemporaryDirectory() as profile:
        theirs_in, ours_out = os.pipe()
        ours_in, theirs_out = os.pipe()
        # the browser reads descriptor 3 and writes descriptor 4; a shell puts the pipes there
        command = [browser, *FLAGS, f"--user-data-dir={profile}", "about:blank"]
        shell = f'exec "$@" 3<&{theirs_in} 4>&{theirs_out}'
        process = subprocess.Popen(
            ["bash", "-c", shell, "bash", *command],
            pass_fds=(theirs_in, theirs_out),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(theirs_in)
        os.close(theirs_out)
        one = Tab(ours_out, ours_in)
        try:
            targets = one.call("Target.getTargets")["targetInfos"]
            page = next(target for target in targets if target["type"] == "page")
            attached = one.call("Target.attachToTarget", targetId=page["targetId"], flatten=True)
            one.session = attached["sessionId"]
            for domain in ("Page", "Runtime", "Network", "Log"):
                one.call(f"{domain}.enable")
            yield one
        finally:
            one.session = None
            with contextlib.suppress(Exception):
                one.call("Browser.close")
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            os.close(ours_in)
            os.close(ours_out)
