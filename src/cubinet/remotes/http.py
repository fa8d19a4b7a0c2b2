"""A plain web server as a remote that is only read: a mirror of prebuilt kernels."""

from __future__ import annotations

import base64
import http.client
import os
import re
import ssl
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from email.utils import parsedate_to_datetime
from typing import Any, NoReturn
from urllib.parse import SplitResult, unquote, urljoin, urlsplit

from cubinet.errors import (
    ConfigError,
    ReadOnlyError,
    RemoteDeniedError,
    RemoteMisconfiguredError,
    RemoteUnavailableError,
)
from cubinet.protocols import Entry, Object
from cubinet.remotes._base import BaseRemote, check_name, shorten
from cubinet.remotes._options import take

__all__ = ["HttpRemote"]

_PLAIN = re.compile(r"[!-~]+")
_CHUNK = 1 << 18
_REDIRECTS = 3
_IDLE = 32
_OPTIONS: Mapping[str, type] = {"token": str, "key": str, "secret": str}


class HttpRemote(BaseRemote):
    """`https://host/prefix`, read only. Connections are kept. Proxies come from the environment, as `https_proxy`.

    Options: `key` and `secret` for basic authentication (or `https://name:word@host/`), or `token` for a bearer's.
    """

    read_only = True

    def __init__(self, url: str, options: Mapping[str, object] | None = None) -> None:
        super().__init__(url, options)
        self.conditional = False
        self._base = ""
        self._headers: dict[str, str] = {}
        self._idle: dict[tuple[int, str, str], list[http.client.HTTPConnection]] = {}

    def _settle(self) -> None:
        if self._base:
            return
        given = take(self.url, self._options, _OPTIONS)
        parts = urlsplit(self._address)
        try:
            good = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        except ValueError:
            good = False
        if not good or parts.query or parts.fragment or not _PLAIN.fullmatch(self._address):
            raise ConfigError("use remote", self.url, "it is not https://host/prefix", "give no query")
        name, word = given.get("key", unquote(parts.username or "")), given.get("secret", unquote(parts.password or ""))
        headers = {"User-Agent": "cubinet", "Accept-Encoding": "identity"}
        if "token" in given:
            headers["Authorization"] = f"Bearer {given['token']}"
        elif name or word:
            headers["Authorization"] = "Basic " + base64.b64encode(f"{name}:{word}".encode()).decode()
        self._headers = headers
        self._base = parts._replace(netloc=parts.netloc.rpartition("@")[2], path=parts.path.rstrip("/") + "/").geturl()

    # -- connections

    def _connect(self, parts: SplitResult, timeout: float) -> http.client.HTTPConnection:
        host, port = parts.hostname or "", parts.port
        proxy = "" if urllib.request.proxy_bypass(host) else urllib.request.getproxies().get(parts.scheme, "")
        via = urlsplit(proxy if "://" in proxy else f"http://{proxy}") if proxy else None
        where, at = (via.hostname or "", via.port or 80) if via else (host, port)
        if parts.scheme == "https":
            context = ssl.create_default_context()
            made: http.client.HTTPConnection = http.client.HTTPSConnection(where, at, timeout=timeout, context=context)
        else:
            made = http.client.HTTPConnection(where, at, timeout=timeout)
        if via:
            headers = {}
            if via.username:
                word = f"{unquote(via.username)}:{unquote(via.password or '')}".encode()
                headers["Proxy-Authorization"] = "Basic " + base64.b64encode(word).decode()
            made.set_tunnel(host, port or (443 if parts.scheme == "https" else 80), headers)
        return made

    def _send(self, method: str, url: str, headers: Mapping[str, str], end: float) -> tuple[Any, Any, Any]:
        """Connection, its place among the idle ones, and the answer. A kept connection that has gone is made anew."""
        parts = urlsplit(url)
        place = (os.getpid(), parts.scheme, parts.netloc)
        idle = self._idle.setdefault(place, [])
        while True:
            try:
                connection, kept = idle.pop(), True
            except IndexError:
                connection, kept = self._connect(parts, _left(end)), False
            try:
                if connection.sock is not None:
                    connection.sock.settimeout(_left(end))
                connection.request(method, parts._replace(scheme="", netloc="").geturl() or "/", headers=dict(headers))
                return connection, place, connection.getresponse()
            except (http.client.BadStatusLine, ConnectionError, BrokenPipeError):
                connection.close()
                if not kept:
                    raise
            except BaseException:
                connection.close()
                raise

    def _ask(self, method: str, name: str, timeout: float, limit: int | None) -> tuple[Any, bytes] | None:
        """The answer and its body; `None` if the server says that there is nothing."""
        end = time.monotonic() + timeout
        action, url, headers = f"read {name} from", self._base + name, self._headers
        for _ in range(_REDIRECTS + 1):
            connection, place, answer = self._send(method, url, headers, end)
            try:
                if answer.status in (301, 302, 303, 307, 308):
                    new = urljoin(url, answer.headers.get("Location", ""))
                    self._check_redirect(action, url, new)
                    if urlsplit(new).netloc != urlsplit(url).netloc:
                        headers = {key: value for key, value in headers.items() if key != "Authorization"}
                    url = new
                    continue
                if answer.status in (404, 410):
                    self._body(action, connection, answer, end, 1 << 16, strict=False)
                    return None
                if answer.status != 200:
                    self._refused(action, answer.status)
                data = b"" if method == "HEAD" else self._body(action, connection, answer, end, limit)
                return answer, data
            finally:
                idle = self._idle.setdefault(place, [])
                if answer.isclosed() and not answer.will_close and connection.sock is not None and len(idle) < _IDLE:
                    idle.append(connection)
                else:
                    answer.close()
                    connection.close()
        raise RemoteMisconfiguredError(action, self.url, f"more than {_REDIRECTS} redirects", "check its address")

    def _body(
        self, action: str, connection: Any, answer: Any, end: float, limit: int | None, *, strict: bool = True
    ) -> bytes:
        size, got = answer.length, 0
        chunks: list[bytes] = []
        while limit is None or max(got, size or 0) <= limit:
            if connection.sock is not None:
                connection.sock.settimeout(_left(end))
            chunk = answer.read1(_CHUNK)
            if not chunk:
                if size is not None and got != size and strict:
                    raise RemoteUnavailableError(action, self.url, f"{got} of {size} bytes came")
                answer.read()  # so that the connection can be used again
                return b"".join(chunks)
            chunks.append(chunk)
            got += len(chunk)
        if strict:
            finding = f"more than the {limit} bytes that belong there"
            raise RemoteMisconfiguredError(action, self.url, finding)
        return b""

    def _check_redirect(self, action: str, old: str, new: str) -> None:
        parts = urlsplit(new)
        if parts.scheme != urlsplit(old).scheme or not parts.hostname or not _PLAIN.fullmatch(new):
            finding = f"it redirects to another scheme, {parts.scheme[:20]!r}"
            raise RemoteMisconfiguredError(action, self.url, finding, "check its address")

    def _refused(self, action: str, status: int) -> NoReturn:
        finding = f"it answered status {status}"
        if status in (401, 403, 407):
            raise RemoteDeniedError(action, self.url, finding, "check its credentials")
        if status in (408, 425, 429) or status >= 500:
            raise RemoteUnavailableError(action, self.url, finding)
        raise RemoteMisconfiguredError(action, self.url, finding, "check its address")

    # -- calls

    def _get(self, name: str, timeout: float, limit: int | None) -> Object | None:
        found = self._ask("GET", name, timeout, limit)
        return found and Object(found[1], found[0].headers.get("ETag", ""), _time(found[0]))

    def _stat(self, name: str, timeout: float) -> Entry | None:
        found = self._ask("HEAD", name, timeout, None)
        return found and Entry(name, int(found[0].headers.get("Content-Length", 0)), _time(found[0]))

    def put(self, name: str, data: bytes, *, timeout: float, create: bool = False, match: str = "") -> bool:  # noqa: ARG002
        """Raise `ReadOnlyError`."""
        raise ReadOnlyError("write", check_name(name), f"{self.url} is only read", "write to where it mirrors from")

    def put_many(self, items: Any, *, timeout: float, create: bool = False) -> NoReturn:  # noqa: ARG002
        """Raise `ReadOnlyError`."""
        raise ReadOnlyError("write", "objects", f"{self.url} is only read", "write to where it mirrors from")

    def delete(self, names: Sequence[str], *, timeout: float) -> None:  # noqa: ARG002
        """Raise `ReadOnlyError`."""
        raise ReadOnlyError("delete", "objects", f"{self.url} is only read", "delete where it mirrors from")

    def _pages(self, prefix: str, timeout: float) -> Iterator[list[Entry]]:  # noqa: ARG002
        raise RemoteMisconfiguredError("list", self.url, "web servers have no listing", "name whole fingerprints")

    def _scan(self, prefix: str, timeout: float) -> Iterator[Entry]:
        return iter(self._run("list", self._pages, prefix, timeout, timeout=timeout))

    def _explain(self, action: str, exc: BaseException) -> Exception:
        if isinstance(exc, ssl.SSLCertVerificationError):
            return RemoteMisconfiguredError(action, self.url, shorten(exc), "check the certificate")
        return RemoteUnavailableError(action, self.url, f"{type(exc).__name__}: {shorten(exc)}")

    def close(self) -> None:
        """Close the connections that wait for a next call."""
        idle, self._idle = self._idle, {}
        for (pid, _, _), connections in idle.items():
            for connection in connections:
                if pid == os.getpid():
                    connection.close()


def _left(end: float) -> float:
    left = end - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left


def _time(answer: Any) -> float:
    try:
        return parsedate_to_datetime(answer.headers.get("Last-Modified", "")).timestamp()
    except (TypeError, ValueError):
        return 0.0
