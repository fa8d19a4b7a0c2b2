"""Calls that may never come back, in threads that may be left behind."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

__all__ = ["STUCK_LIMIT", "Deadline", "StuckError"]

T = TypeVar("T")

STUCK_LIMIT = 8
"""How many calls may be past their time and still running before new ones are refused."""


class StuckError(Exception):
    """A call did not come back in time; or too many never did, and another one would only add a thread."""


def _work(future: Future[Any], call: Callable[..., Any], args: tuple[Any, ...]) -> None:
    try:
        result = call(*args)
    except BaseException as exc:  # noqa: BLE001 - it belongs to whoever waits
        future.set_exception(exc)
    else:
        future.set_result(result)


class Deadline:
    """Starts each call in a daemon thread of its own, which the caller need not wait for. Safe in threads and forks."""

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._late: set[Future[Any]] = set()

    def start(self, call: Callable[..., Any], args: tuple[Any, ...]) -> Future[Any]:
        """Begin a call. Raises `StuckError`."""
        if self._pid != os.getpid():  # the parent's threads are not here
            self._pid, self._late = os.getpid(), set()
        if len(self._late) >= STUCK_LIMIT:
            raise StuckError(f"{len(self._late)} earlier calls are still waiting for an answer")
        future: Future[Any] = Future()
        future.set_running_or_notify_cancel()  # a thread cannot be cancelled
        threading.Thread(target=_work, args=(future, call, args), name="cubinet-deadline", daemon=True).start()
        return future

    def abandon(self, future: Future[Any]) -> None:
        """Note that nobody waits for this call any more."""
        self._late.add(future)
        future.add_done_callback(self._late.discard)

    def run(self, call: Callable[[], T], seconds: float) -> T:
        """What a call returns or raises. Raises `StuckError` after `seconds`."""
        future = self.start(call, ())
        try:
            result: T = future.result(max(seconds, 0.001))
        except TimeoutError:
            if future.done():  # it was the call's own
                raise
            self.abandon(future)
            raise StuckError(f"no answer within {seconds:.1f} s") from None
        return result
