"""Calls that must come back in time, though what they ask may never answer: a dead mount, a black hole.

Python cannot interrupt a call, so it runs in a thread of its own, which is left behind when the time is over. When too
many are stuck, further calls are refused at once.
"""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Callable
from typing import TypeVar

__all__ = ["Deadline", "StuckError"]

T = TypeVar("T")


class StuckError(TimeoutError):
    """The time is over, or too many earlier calls never came back."""


class Deadline:
    """Runs calls with a time limit. Safe in threads; a forked child has none of the threads.

    Args:
        most: calls that may be stuck at once.
    """

    def __init__(self, most: int = 8) -> None:
        self.most = most
        self._reset()

    def _reset(self) -> None:
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._stuck = 0

    def run(self, call: Callable[[], T], seconds: float) -> T:
        """What `call` returns or raises; `StuckError` after `seconds`."""
        if os.getpid() != self._pid:
            self._reset()
        with self._lock:
            if self._stuck >= self.most:
                raise StuckError(f"{self._stuck} earlier calls have not come back")
        answer: queue.SimpleQueue[tuple[T | None, BaseException | None]] = queue.SimpleQueue()
        late = threading.Event()

        def work() -> None:
            try:
                result: tuple[T | None, BaseException | None] = (call(), None)
            except BaseException as exc:  # noqa: BLE001 - it belongs to the caller
                result = (None, exc)
            with self._lock:
                answer.put(result)
                if late.is_set():
                    self._stuck -= 1

        threading.Thread(target=work, name="cubinet-deadline", daemon=True).start()
        try:
            value, error = answer.get(timeout=max(seconds, 0.001))
        except queue.Empty:
            with self._lock:
                if answer.empty():
                    late.set()
                    self._stuck += 1
            raise StuckError(f"no answer within {seconds:.1f} s") from None
        if error is not None:
            raise error
        return value  # type: ignore[return-value]
