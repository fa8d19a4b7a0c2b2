"""What goes to other layers after the caller has its kernel: a bounded queue and one thread.

It is drained when the store is closed and when the process ends, within a stated time; what did not go is said.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from cubinet.events import Counters

__all__ = ["Job", "Uploads"]

MOST_JOBS, MOST_BYTES = 4096, 512 << 20


@dataclass(frozen=True, slots=True)
class Job:
    """Something to do later, the bytes it holds on to, and what to do if it is dropped; whether it sends a build."""

    run: Callable[[], object]
    size: int
    dropped: Callable[[], object] = lambda: None
    build: bool = True


class Uploads:
    """Safe in threads; a forked child starts with none, as its parent still has them.

    Args:
        counters: counts what was dropped.
        warn: called with a sentence.
        seconds: that the end of the process may take.
    """

    def __init__(self, counters: Counters, warn: Callable[[str], None], seconds: float) -> None:
        self.counters, self.warn, self.seconds = counters, warn, seconds
        self._last: Callable[[], object] | None = None
        self._reset()

    def _reset(self) -> None:
        self._changed = threading.Condition()
        self._jobs: deque[Job] = deque()
        self._bytes = 0
        self._running: list[Job] = []
        self._thread: threading.Thread | None = None
        self._registered = False
        self._pid = os.getpid()  # last: another thread of a child must not believe the old ones

    def at_end(self, call: Callable[[], object]) -> None:
        """Do this before each drain, too: what is only known at the end."""
        self._last = call
        self._register()

    def add(self, job: Job) -> bool:
        """Take a job; `False` if there are too many, and this one was dropped."""
        if os.getpid() != self._pid:
            self._reset()
        with self._changed:
            if len(self._jobs) >= MOST_JOBS or (self._jobs and self._bytes + job.size > MOST_BYTES):
                full = True
            else:
                full = False
                self._jobs.append(job)
                self._bytes += job.size
                self._start()
                self._changed.notify_all()
        if full:
            self._drop([job], "more wait already than can be kept")
        return not full

    def _start(self) -> None:
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(target=self._work, name="cubinet-uploads", daemon=True)
            self._thread.start()
        self._register()

    def _register(self) -> None:
        if not self._registered:
            self._registered = True
            _at_exit(self)

    def _work(self) -> None:
        while True:
            with self._changed:
                while not self._jobs:
                    if not self._changed.wait(30.0) and not self._jobs:
                        self._thread = None
                        return
                job = self._jobs.popleft()
                self._bytes -= job.size
                self._running.append(job)
            try:
                job.run()
            except Exception as exc:  # noqa: BLE001 - a job says its troubles itself; this is a bug, and no reason to stop
                self.warn(f"an upload failed: {exc!r}")
            finally:
                with self._changed:
                    self._running.remove(job)
                    self._changed.notify_all()

    @property
    def waiting(self) -> int:
        """Jobs that are not done."""
        return len(self._jobs) + len(self._running) if os.getpid() == self._pid else 0

    def drain(self, seconds: float | None = None) -> int:
        """Wait until all is done, at most so long; how many builds were dropped then."""
        if os.getpid() != self._pid:
            self._reset()
        if self._last is not None:
            self.add(Job(self._last, 0, build=False))
        until = time.monotonic() + (self.seconds if seconds is None else seconds)
        with self._changed:
            while self._jobs or self._running:
                left = until - time.monotonic()
                if left <= 0:
                    break
                self._changed.wait(min(left, 3600.0))  # nobody can wait for ever
            dropped, self._jobs, self._bytes = list(self._jobs), deque(), 0
            stuck = sum(job.build for job in self._running)
        return self._drop(dropped, "the time to upload them is over", stuck)

    def _drop(self, jobs: list[Job], why: str, stuck: int = 0) -> int:
        for job in jobs:
            if job.build:
                self.counters.add("upload.dropped")
            job.dropped()
        lost = sum(job.build for job in jobs) + stuck
        if lost:
            what = "1 build stays" if lost == 1 else f"{lost} builds stay"
            self.warn(f"{what} on this host alone for now: {why}; cubinet push sends what is here")
        return lost


_all: weakref.WeakSet[Uploads] = weakref.WeakSet()
_registered: list[bool] = []


def _drain_all() -> None:
    """All queues of the process side by side: many stores take no longer than one."""
    begun = time.monotonic()
    for uploads in list(_all):
        uploads.drain(max(0.0, begun + uploads.seconds - time.monotonic()))


def _at_exit(uploads: Uploads) -> None:
    """Drain before the interpreter stops its thread pools, which clients of object stores need to find a host."""
    _all.add(uploads)  # and keep no store that nobody else has
    if _registered:
        return
    _registered.append(True)
    register = getattr(threading, "_register_atexit", None)
    if register is None:
        import atexit

        register = atexit.register
    try:
        register(_drain_all)
    except RuntimeError:  # the end has begun already
        return
