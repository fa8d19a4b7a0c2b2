"""What remotes have in common: names, deadlines, many calls at a time, errors with an address that holds no secret."""

from __future__ import annotations

import os
import queue
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from typing import Any

from cubinet._deadline import Deadline, StuckError
from cubinet.errors import ConfigError, CubinetError, RemoteError, RemoteUnavailableError
from cubinet.protocols import Entry, Object
from cubinet.remotes.redact import redact

__all__ = ["GRACE", "BaseRemote", "check_name", "shorten"]

GRACE = 0.2
"""Seconds after the time-out within which a call that ends itself may still tell why."""

WIDTH = 32
"""How many calls of `get_many` and `put_many` are in flight."""

_NAME = re.compile(r"(?=.{1,900}\Z)[A-Za-z0-9][A-Za-z0-9._-]{0,254}(?:/[A-Za-z0-9][A-Za-z0-9._-]{0,254})*")
_PREFIX = re.compile(r"(?:[A-Za-z0-9][A-Za-z0-9._-]{0,254}/)*(?:[A-Za-z0-9][A-Za-z0-9._-]{0,254})?")


def check_name(name: str) -> str:
    """The name, if every remote can hold it and none takes it for a way out of its folder. Raises `ConfigError`."""
    if not _NAME.fullmatch(name):
        raise ConfigError("use object name", repr(name[:80]), "it is not plain segments joined by '/'")
    return name


def shorten(exc: BaseException, limit: int = 300) -> str:
    """What an error says, on one line, without secrets."""
    text = " ".join(redact(str(exc)).split()) or type(exc).__name__
    return text if len(text) <= limit else text[: limit - 1] + "…"


class BaseRemote:
    """A remote whose calls block, each run in a thread with a deadline.

    A subclass gives `_get`, `_put`, `_stat`, `_delete` and `_pages`, which may raise anything, and `_explain`, which
    makes a `RemoteError` of that; `_settle` reads the options and raises `ConfigError`.
    """

    read_only: bool = False
    conditional: bool | None = None

    def __init__(self, url: str, options: Mapping[str, object] | None = None) -> None:
        self._address = url
        self._options = dict(options or {})
        self.url = redact(url)
        self._deadline = Deadline()
        self._locks: dict[int, threading.Lock] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), (self._address, self._options))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.url!r})"

    # -- for subclasses

    @property
    def _lock(self) -> threading.Lock:
        """A lock of this process: the parent's may have been held by a thread that is not here."""
        return self._locks.setdefault(os.getpid(), threading.Lock())

    def _settle(self) -> None: ...

    # Their arguments: (name, timeout, limit), (name, data, timeout, create, match), (name, timeout), (names, timeout).

    def _get(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError

    def _put(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError

    def _stat(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError

    def _delete(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError

    def _pages(self, prefix: str, timeout: float) -> Iterator[list[Entry]]:
        raise NotImplementedError

    def _explain(self, action: str, exc: BaseException) -> Exception:
        return RemoteUnavailableError(action, self.url, shorten(exc))

    def _start(self, body: Callable[..., Any], args: tuple[Any, ...], timeout: float) -> Future[Any]:  # noqa: ARG002
        self._settle()
        return self._deadline.start(body, args)

    def _abandon(self, future: Future[Any]) -> None:
        self._deadline.abandon(future)

    # -- one call

    def _error(self, action: str, exc: BaseException, timeout: float) -> Exception:
        if isinstance(exc, CubinetError):
            return exc
        if isinstance(exc, StuckError):
            return RemoteUnavailableError(action, self.url, str(exc))
        if type(exc) is TimeoutError:  # subclasses say more
            return self._late(action, timeout)
        return self._explain(action, exc)

    def _late(self, action: str, timeout: float) -> RemoteUnavailableError:
        return RemoteUnavailableError(action, self.url, f"no answer within {timeout:g} s")

    def _run(self, action: str, body: Callable[..., Any], *args: Any, timeout: float) -> Any:
        future: Future[Any] | None = None
        try:
            future = self._start(body, args, timeout)
            return future.result(timeout + GRACE)
        except Exception as exc:
            if future is not None and not future.done():
                self._abandon(future)
            error = self._error(action, exc, timeout)
            if error is exc:
                raise
            raise error from exc
        except BaseException:
            if future is not None:
                future.cancel()
            raise

    # -- the protocol

    def prepare(self) -> None:
        """Read the options. Raises `ConfigError`."""
        self._settle()

    def get(self, name: str, *, timeout: float, limit: int | None = None) -> Object | None:
        """One object, or `None`."""
        found: Object | None = self._run(
            f"read {check_name(name)} from", self._get, name, timeout, limit, timeout=timeout
        )
        return found

    def put(self, name: str, data: bytes, *, timeout: float, create: bool = False, match: str = "") -> bool:
        """Write one object; `False` if the condition does not hold."""
        action = f"write {check_name(name)} to"
        return bool(self._run(action, self._put, name, data, timeout, create, match, timeout=timeout))

    def stat(self, name: str, *, timeout: float) -> Entry | None:
        """Size and time of one object, or `None`."""
        found: Entry | None = self._run(f"look at {check_name(name)} in", self._stat, name, timeout, timeout=timeout)
        return found

    def scan(self, prefix: str, *, timeout: float) -> Iterator[Entry]:
        """All objects whose name begins so."""
        if not _PREFIX.fullmatch(prefix):
            raise ConfigError("list objects", repr(prefix[:80]), "it is not the beginning of a plain name")
        return self._scan(prefix, timeout)

    def _scan(self, prefix: str, timeout: float) -> Iterator[Entry]:
        pages = self._pages(prefix, timeout)
        while (page := self._run("list", next, pages, None, timeout=timeout)) is not None:
            yield from page

    def delete(self, names: Sequence[str], *, timeout: float) -> None:
        """Remove objects."""
        for name in names:
            check_name(name)
        for start in range(0, len(names), 1000):
            part = list(names[start : start + 1000])
            what = part[0] if len(part) == 1 else f"{len(part)} objects"
            self._run(f"delete {what} from", self._delete, part, timeout, timeout=timeout)

    def get_many(
        self, names: Iterable[str], *, timeout: float, limit: int | None = None
    ) -> Iterator[tuple[str, Object | RemoteError | None]]:
        """`get` of many at a time, in the order of their answers."""
        calls = ((name, (check_name(name), timeout, limit)) for name in names)
        return self._many("read {} from", self._get, calls, timeout)

    def put_many(
        self, items: Iterable[tuple[str, bytes]], *, timeout: float, create: bool = False
    ) -> Iterator[tuple[str, bool | RemoteError]]:
        """`put` of many at a time, in the order of their answers."""
        calls = ((name, (check_name(name), data, timeout, create, "")) for name, data in items)
        return self._many("write {} to", self._put, calls, timeout)

    def _many(
        self, action: str, body: Callable[..., Any], calls: Iterator[tuple[str, tuple[Any, ...]]], timeout: float
    ) -> Iterator[tuple[str, Any]]:
        done: queue.SimpleQueue[Future[Any]] = queue.SimpleQueue()
        waiting: dict[Future[Any], tuple[str, float]] = {}  # oldest first
        more = True
        try:
            while more or waiting:
                if more and len(waiting) < WIDTH:
                    name, args = next(calls, ("", ()))
                    if not name:
                        more = False
                        continue
                    try:
                        future = self._start(body, args, timeout)
                    except Exception as exc:  # noqa: BLE001 - it belongs to its name
                        yield name, self._own(self._error(action.format(name), exc, timeout))
                        continue
                    waiting[future] = name, time.monotonic() + timeout + GRACE
                    future.add_done_callback(done.put)
                    continue
                due = next(iter(waiting.values()))[1]
                try:
                    future = done.get(timeout=max(0.0, due - time.monotonic()))
                except queue.Empty:
                    future = next(iter(waiting))
                    self._abandon(future)
                    name, _ = waiting.pop(future)
                    yield name, self._late(action.format(name), timeout)
                    continue
                if future in waiting:  # else it was given up
                    name, _ = waiting.pop(future)
                    yield name, self._outcome(action.format(name), future, timeout)
        finally:
            for future in waiting:
                future.cancel()

    def _outcome(self, action: str, future: Future[Any], timeout: float) -> Any:
        try:
            return future.result()
        except Exception as exc:  # noqa: BLE001 - it belongs to its name
            return self._own(self._error(action, exc, timeout))

    @staticmethod
    def _own(error: Exception) -> RemoteError:
        """The error as a value, if it concerns one object; what concerns them all is raised."""
        if isinstance(error, RemoteError):
            return error
        raise error

    def close(self) -> None:
        """Let go of connections."""
