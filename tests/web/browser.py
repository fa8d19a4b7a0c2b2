"""A headless Chromium, driven through its own pipe: no driver, no port."""

from __future__ import annotations

import base64
import fcntl
import itertools
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

__all__ = ["CHROMIUM", "Browser"]

CHROMIUM = shutil.which("chromium")


class Browser:
    """One page. `requests`, `complaints`: what it asked for and what its console said since the last `open`."""

    def __init__(self, profile: Path) -> None:
        assert CHROMIUM is not None
        (theirs_in, self._out), (self._in, theirs_out) = os.pipe(), os.pipe()
        # high numbers first: Chromium wants these two as 3 and 4
        given = [fcntl.fcntl(fd, fcntl.F_DUPFD, 20) for fd in (theirs_in, theirs_out)]
        moved = f"import os, sys; os.dup2({given[0]}, 3); os.dup2({given[1]}, 4); os.execv(sys.argv[1], sys.argv[1:])"
        command = [
            sys.executable, "-c", moved, CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu",
            "--disable-dev-shm-usage", "--no-first-run", "--remote-debugging-pipe", f"--user-data-dir={profile}",
            "--window-size=1280,900", "--hide-scrollbars",
        ]  # fmt: skip
        self._process = subprocess.Popen(
            command, pass_fds=given, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        for fd in (theirs_in, theirs_out, *given):
            os.close(fd)
        self._serial, self._buffer, self._session = itertools.count(1), b"", ""
        self.requests: list[str] = []
        self.complaints: list[str] = []
        self._loaded = False
        page = self._ask("Target.createTarget", url="about:blank")["targetId"]
        self._session = self._ask("Target.attachToTarget", targetId=page, flatten=True)["sessionId"]
        for domain in ("Page", "Network", "Runtime", "Log"):
            self._ask(f"{domain}.enable")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._in)
        os.close(self._out)

    def open(self, url: str) -> None:
        """Load a page, and wait until it is there."""
        self.requests, self.complaints, self._loaded = [], [], False
        self._ask("Page.navigate", url=url)
        while not self._loaded:
            self._note(self._read())

    def value(self, script: str) -> Any:
        """What an expression is in the page."""
        found = self._ask("Runtime.evaluate", expression=script, returnByValue=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def shot(self, path: Path) -> None:
        """A picture of what is seen."""
        path.write_bytes(base64.b64decode(self._ask("Page.captureScreenshot", format="png")["data"]))

    def _ask(self, method: str, **params: Any) -> dict[str, Any]:
        message = {"id": next(self._serial), "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._read()
            if answer.get("id") == message["id"]:
                assert "error" not in answer, answer
                result: dict[str, Any] = answer["result"]
                return result
            self._note(answer)

    def _read(self) -> dict[str, Any]:
        end = time.monotonic() + 120
        while b"\0" not in self._buffer:
            data = os.read(self._in, 1 << 16)
            assert data, "the browser is gone"
            assert time.monotonic() < end
            self._buffer += data
        text, _, self._buffer = self._buffer.partition(b"\0")
        message: dict[str, Any] = json.loads(text)
        return message

    def _note(self, message: dict[str, Any]) -> None:
        params = message.get("params", {})
        match message.get("method"):
            case "Page.loadEventFired":
                self._loaded = True
            case "Network.requestWillBeSent":
                self.requests.append(params["request"]["url"])
            case "Log.entryAdded":
                self.complaints.append(params["entry"]["text"])
            case "Runtime.exceptionThrown" | "Runtime.consoleAPICalled":
                self.complaints.append(json.dumps(params))
