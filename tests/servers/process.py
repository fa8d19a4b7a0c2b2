"""Programs that tests start: free ports, waiting, and an end in bounded time."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["Server", "free_ports", "spawn", "stop", "wait_for"]


def free_ports(count: int, *, also: int = 0) -> list[int]:
    """Ports of 127.0.0.1 that nobody has; with `also`, each of them plus that number is free too."""
    held: list[socket.socket] = []
    found: list[int] = []
    try:
        while len(found) < count:
            one = socket.socket()
            held.append(one)
            one.bind(("127.0.0.1", 0))
            port = one.getsockname()[1]
            if also:
                if port + also > 65535:
                    continue
                other = socket.socket()
                held.append(other)
                try:
                    other.bind(("127.0.0.1", port + also))
                except OSError:
                    continue
            found.append(port)
        return found
    finally:
        for one in held:
            one.close()


def spawn(arguments: list[str], log: Path, environ: Mapping[str, str] | None = None) -> subprocess.Popen[bytes]:
    """Start a program in a session of its own, what it prints going to a file."""
    with log.open("ab") as out:
        return subprocess.Popen(
            arguments, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, env=environ,
            start_new_session=True,
        )  # fmt: skip


def stop(process: subprocess.Popen[bytes], grace: float = 2.0) -> None:
    """End a program and what it started: SIGTERM, then SIGKILL."""
    for how, seconds in ((signal.SIGTERM, grace), (signal.SIGKILL, 10.0)):
        if process.poll() is None and (grace or how == signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, how)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(seconds)


def wait_for(ready: Callable[[], bool], seconds: float, what: str, process: subprocess.Popen[bytes], log: Path) -> None:
    """Wait until `ready` says so; an `AssertionError` with the end of the log if it does not or the program ends."""
    end = time.monotonic() + seconds
    while time.monotonic() < end and process.poll() is None:
        with contextlib.suppress(OSError):
            if ready():
                return
        time.sleep(0.05)
    tail = log.read_bytes()[-2000:].decode(errors="replace")
    raise AssertionError(f"{what} did not come up (exit {process.poll()}):\n{tail}")


@dataclass
class Server:
    """An S3 server: a user that may write and one that may only read.

    `kill` ends it at once, as a crash does; `start` brings it back on the same port and data.
    """

    endpoint: str
    key: str
    secret: str
    reader_key: str
    reader_secret: str
    start: Callable[[], None] = field(repr=False)
    stop: Callable[[], None] = field(repr=False)
    kill: Callable[[], None] = field(repr=False)

    def options(self, **more: object) -> dict[str, object]:
        """Options for a remote of the user that may write."""
        return {"endpoint_url": self.endpoint, "region": "us-east-1", "key": self.key, "secret": self.secret, **more}

    def client(self) -> object:
        """A plain botocore client of the user that may write, to go past the code under test."""
        import botocore.session
        from botocore.config import Config

        return botocore.session.Session().create_client(
            "s3", endpoint_url=self.endpoint, region_name="us-east-1", aws_access_key_id=self.key,
            aws_secret_access_key=self.secret, config=Config(retries={"total_max_attempts": 3}, read_timeout=20),
        )  # fmt: skip

    def make_bucket(self, name: str) -> str:
        """Make a bucket; its name comes back."""
        self.client().create_bucket(Bucket=name)  # type: ignore[attr-defined]
        return name
