"""A proxy between an HTTP client and a server, which logs what passes and makes trouble when it is told to.

It understands just enough of HTTP/1.1: heads, bodies by length or in chunks, kept connections, `Expect: 100-continue`.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import time
from dataclasses import dataclass
from typing import Self
from urllib.parse import urlsplit

__all__ = ["FAULTS", "Proxy", "Seen"]

FAULTS = (
    "refuse",  # nobody listens
    "drop",  # SYNs get no answer: the queue of those who want in is full
    "blackhole",  # takes the request and never answers
    "close",  # takes the request and closes
    "reset",  # takes the request and resets
    "delay",  # answers after `seconds`
    "status",  # answers `status` with `body`, without asking the server
    "short",  # the whole head, half the body, then closes
    "trickle",  # the whole head, half the body, then a byte a second
    "slow_head",  # a byte of the head a second
    "wrong",  # the body with every bit turned over
    "empty",  # 200 with nothing
    "html",  # 200 with a page, as hotels do
)

_PAGE = b"<!DOCTYPE html><html><body>Please log in to the network</body></html>"
_CONDITIONS = ("if-none-match", "if-match", "range", "expect")


@dataclass(frozen=True)
class Seen:
    """A request that came: `status` is what the client was told, 0 if nothing; `conditions`: headers that bind it."""

    method: str
    path: str
    status: int
    sent: int
    received: int
    conditions: dict[str, str]


@dataclass
class _Fault:
    kind: str = ""
    method: str = ""
    seconds: float = 0.0
    status: int = 0
    body: bytes = b""
    times: int = -1


class _Connection:
    """One side of a connection, read by lines and lengths."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock, self.file = sock, sock.makefile("rb")

    def head(self) -> tuple[bytes, dict[str, str]]:
        """First line and headers; an empty line if the other side has closed."""
        first = self.file.readline(65536)
        headers: dict[str, str] = {}
        while first and (line := self.file.readline(65536)) not in (b"\r\n", b"\n", b""):
            name, _, value = line.decode("latin-1").partition(":")
            headers[name.strip().lower()] = value.strip()
        return first, headers

    def body(self, headers: dict[str, str], *, to_the_end: bool) -> bytes:
        """The body as it is on the wire, chunk headers included."""
        if "chunked" in headers.get("transfer-encoding", ""):
            whole = b""
            while True:
                line = self.file.readline(65536)
                size = int(line.split(b";")[0] or b"0", 16)
                whole += line + self.file.read(size + 2)
                if size == 0:
                    return whole
        if "content-length" in headers:
            return self.file.read(int(headers["content-length"]))
        return self.file.read() if to_the_end else b""

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self.sock.shutdown(socket.SHUT_RDWR)
        self.file.close()
        self.sock.close()


class Proxy:
    """Listens on a free port of 127.0.0.1 and passes on to `target`. Use as a context.

    Attributes:
        endpoint: where it listens.
        log: the requests that came, in the order in which they ended.
    """

    def __init__(self, target: str) -> None:
        parts = urlsplit(target)
        self._target = (parts.hostname or "", parts.port or 80)
        self.log: list[Seen] = []
        self._fault = _Fault()
        self._lock = threading.Lock()
        self._open: set[_Connection] = set()
        self._plugs: list[socket.socket] = []
        self._wake = threading.Event()
        self._ended = False
        self._listener: socket.socket | None = None
        self._port = 0
        self._listen()
        self.endpoint = f"http://127.0.0.1:{self._port}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.reset()
        self._ended = True
        self._shut()
        self.hang_up()

    # -- told by tests

    def fault(self, kind: str, *, method: str = "", seconds: float = 0.0, status: int = 0, body: bytes = b"",
              times: int = -1) -> None:  # fmt: skip
        """Make trouble from now on: `FAULTS` says which; `method` restricts it, `times` says how often."""
        assert kind in FAULTS
        self.reset(log=False)
        self._fault = _Fault(kind, method, seconds, status, body, times)
        self._wake = threading.Event()
        if kind == "refuse":
            self._shut()
            self.hang_up()
        elif kind == "drop":
            self._shut()
            self.hang_up()
            self._plug()

    def reset(self, *, log: bool = True) -> None:
        """No more trouble; the log is empty again. Connections that saw trouble are closed."""
        troubled, self._fault = bool(self._fault.kind), _Fault()
        self._wake.set()
        for plug in self._plugs:
            plug.close()
        self._plugs.clear()
        if self._listener is None:
            self._listen()
        if troubled:
            self.hang_up()
        if log:
            self.log.clear()

    def requests(self) -> list[str]:
        """The log as `GET 200`."""
        return [f"{seen.method} {seen.status}" for seen in self.log]

    # -- connections

    def _listen(self) -> None:
        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", self._port))
        listener.listen(256)
        self._port = listener.getsockname()[1]
        self._listener = listener
        threading.Thread(target=self._accept, args=(listener,), daemon=True).start()

    def _shut(self) -> None:
        listener, self._listener = self._listener, None
        if listener is not None:
            with contextlib.suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)  # wakes who waits in accept
            listener.close()

    def _plug(self) -> None:
        """Listen without accepting, and fill the queue."""
        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", self._port))
        listener.listen(0)
        self._plugs.append(listener)
        for _ in range(8):
            plug = socket.socket()
            plug.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                plug.connect(("127.0.0.1", self._port))
            self._plugs.append(plug)

    def hang_up(self) -> None:
        """Close all connections."""
        with self._lock:
            for one in list(self._open):
                with contextlib.suppress(OSError):
                    one.sock.shutdown(socket.SHUT_RDWR)

    def _accept(self, listener: socket.socket) -> None:
        while not self._ended:
            try:
                sock, _ = listener.accept()
            except OSError:
                return
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=self._serve, args=(_Connection(sock),), daemon=True).start()

    def _serve(self, client: _Connection) -> None:
        with self._lock:
            self._open.add(client)
        server: list[_Connection] = []
        try:
            while self._one(client, server):
                pass
        except (OSError, ValueError):
            pass  # one side went away
        finally:
            with self._lock:
                self._open.discard(client)
            client.close()
            for one in server:
                one.close()

    # -- requests

    def _take_fault(self, method: str) -> _Fault:
        with self._lock:
            fault = self._fault
            if not fault.kind or (fault.method and fault.method != method) or fault.times == 0:
                return _Fault()
            if fault.times > 0:
                fault.times -= 1
            return fault

    def _one(self, client: _Connection, server: list[_Connection]) -> bool:
        """Pass one request and its answer; whether the connection goes on."""
        first, headers = client.head()
        if not first:
            return False
        method, path, _ = first.decode("latin-1").split(" ", 2)
        if headers.get("expect", "").lower() == "100-continue":
            client.sock.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
        body = client.body(headers, to_the_end=False)
        fault = self._take_fault(method)

        def seen(status: int, received: int) -> None:
            bound = {name: headers[name] for name in _CONDITIONS if name in headers}
            self.log.append(Seen(method, path, status, len(body), received, bound))

        if fault.kind in ("blackhole", "close", "reset"):
            seen(0, 0)
            if fault.kind == "blackhole":
                self._wake.wait(60)
            elif fault.kind == "reset":
                client.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                client.file.close()
                client.sock.close()
            return False
        if fault.kind == "delay":
            self._wake.wait(fault.seconds)
        if fault.kind in ("status", "empty", "html"):
            status = fault.status if fault.kind == "status" else 200
            content = {"status": fault.body, "empty": b"", "html": _PAGE}[fault.kind]
            kind = "text/html" if fault.kind == "html" else "application/xml"
            head = f"HTTP/1.1 {status} Told\r\nContent-Type: {kind}\r\nContent-Length: {len(content)}\r\n\r\n"
            seen(status, len(content))
            client.sock.sendall(head.encode() + (b"" if method == "HEAD" else content))
            return True
        answer, back, content = self._forward(method, first, headers, body, server)
        seen(int(answer.split()[1]), len(content))
        return self._answer(client, fault, answer, back, content)

    def _forward(
        self, method: str, first: bytes, headers: dict[str, str], body: bytes, server: list[_Connection]
    ) -> tuple[bytes, dict[str, str], bytes]:
        headers = {name: value for name, value in headers.items() if name != "expect"}
        request = first + _lines(headers) + b"\r\n" + body
        while True:
            kept = bool(server)
            if not kept:
                sock = socket.create_connection(self._target, 30)
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                server.append(_Connection(sock))
            try:
                server[0].sock.sendall(request)
                answer, back = server[0].head()
                while answer and answer.split()[1] == b"100":
                    answer, back = server[0].head()
                if answer:
                    break
            except ConnectionError:
                answer = b""
            server.pop().close()
            if not kept:
                raise ConnectionError("the server closed")
        bare = method == "HEAD" or answer.split()[1] in (b"204", b"304")
        content = b"" if bare else server[0].body(back, to_the_end=True)
        if back.get("connection", "").lower() == "close":
            server.pop().close()
        return answer, back, content

    def _answer(
        self, client: _Connection, fault: _Fault, answer: bytes, back: dict[str, str], content: bytes
    ) -> bool:  # fmt: skip
        if "content-length" not in back and "transfer-encoding" not in back and content:
            back = {**back, "content-length": str(len(content))}
        head = answer + _lines(back) + b"\r\n"
        if fault.kind == "slow_head":
            return self._drip(client, head)
        if fault.kind == "wrong":
            content = bytes(byte ^ 0xFF for byte in content)
        if fault.kind in ("short", "trickle"):
            half = len(content) // 2
            client.sock.sendall(head + content[:half])
            return self._drip(client, content[half:]) if fault.kind == "trickle" else False
        client.sock.sendall(head + content)
        return back.get("connection", "").lower() != "close"

    def _drip(self, client: _Connection, data: bytes) -> bool:
        end = time.monotonic() + 60
        for at in range(len(data)):
            client.sock.sendall(data[at : at + 1])
            if self._wake.wait(1.0) or time.monotonic() > end:
                break
        return False


def _lines(headers: dict[str, str]) -> bytes:
    return b"".join(f"{name}: {value}\r\n".encode("latin-1") for name, value in headers.items())
