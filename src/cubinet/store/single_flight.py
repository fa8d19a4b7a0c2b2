"""One computation per key among the threads of a process."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Hashable
from concurrent.futures import CancelledError, Future
from typing import Generic, TypeVar

__all__ = ["SingleFlight"]

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class SingleFlight(Generic[K, V]):
    """Runs a function once per key at a time; late callers get the first one's result or error."""

    def __init__(self) -> None:
        self._reset()

    def _reset(self) -> None:
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._running: dict[K, Future[V]] = {}

    def run(self, key: K, compute: Callable[[], V]) -> tuple[V, bool]:
        """The result, and whether this very call computed it."""
        if os.getpid() != self._pid:  # a forked child has none of the threads that were computing
            self._reset()
        while True:
            with self._lock:
                future = self._running.get(key)
                if future is None:
                    mine = self._running[key] = Future()
                    break
            try:
                return future.result(), False
            except CancelledError:  # the one before us was interrupted, not refused: our turn
                continue
        try:
            value = compute()
        except Exception as exc:
            mine.set_exception(exc)
            raise
        except BaseException:
            mine.cancel()
            raise
        else:
            mine.set_result(value)
            return value, True
        finally:
            with self._lock:
                self._running.pop(key, None)
