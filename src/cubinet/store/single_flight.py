"""One computation per key among the threads of a process."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

__all__ = ["SingleFlight"]

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class _Call(Generic[V]):
    """One computation under way. Not a `Future`: that module loads `logging`, and every hit would wait for it."""

    def __init__(self) -> None:
        self.done, self.thread = threading.Event(), threading.get_ident()
        self.value: list[V] = []
        self.error: Exception | None = None


class SingleFlight(Generic[K, V]):
    """Runs a function once per key at a time; late callers get the first one's result or error."""

    def __init__(self) -> None:
        self._reset()

    def _reset(self) -> None:
        self._lock = threading.Lock()
        self._running: dict[K, _Call[V]] = {}
        self._pid = os.getpid()  # last: another thread of a child must not believe the old ones

    def run(self, key: K, compute: Callable[[], V]) -> tuple[V, bool]:
        """The result, and whether this very call computed it."""
        if os.getpid() != self._pid:  # a forked child has none of the threads that were computing
            self._reset()
        while True:
            with self._lock:
                call = self._running.get(key)
                if call is None:
                    call = self._running[key] = _Call()
                    break
            if call.thread == threading.get_ident():
                raise RuntimeError("this thread asks for what it is about to make: a listener must not")
            call.done.wait()
            if call.error is not None:
                raise call.error
            if call.value:
                return call.value[0], False
            # the one before us was interrupted, not refused: our turn
        try:
            value = compute()
        except Exception as exc:
            call.error = exc
            raise
        else:
            call.value.append(value)
            return value, True
        finally:
            with self._lock:
                if self._running.get(key) is call:
                    del self._running[key]
            call.done.set()
