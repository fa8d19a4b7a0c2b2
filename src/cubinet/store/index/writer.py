"""Notes of what happened, written to the index in batches by a thread of their own.

A note costs a lookup an entry in a dictionary. Whatever goes wrong with the file costs notes, never a lookup: a
record whose note is lost is found again from its file by the next query; uses, events and compiles are not.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
import threading
import time
import weakref
from _thread import start_new_thread
from collections.abc import Callable

from cubinet._fs import Fs
from cubinet.events import Event
from cubinet.model import Digest, Fingerprint, Record
from cubinet.store.index.mounts import network_mount
from cubinet.store.index.notes import Notes, leave
from cubinet.store.index.values import count, micros_of, text

__all__ = ["IndexWriter"]

USE_SECONDS = 300
"""Resolution of use times."""
_INTERVAL = 5.0
_LIMIT = 20_000
_PAUSE = 60.0


class IndexWriter:
    """Takes notes for the index of a store folder. Safe in threads; a forked child starts empty.

    Args:
        folder: the store's.
        observations: the bytes of the observations of a record, `None` if they are gone.
        fs: the seam for file changes.
        count: called with the name of what went wrong: `index.busy`, `index.lost`, `index.healed`, ...
        interval: seconds for which notes are gathered.
        now: the clock, seconds since the epoch.
    """

    def __init__(
        self,
        folder: str,
        observations: Callable[[Record], bytes | None],
        *,
        fs: Fs | None = None,
        count: Callable[[str], None] = lambda _name: None,
        interval: float = _INTERVAL,
        now: Callable[[], float] = time.time,
    ) -> None:
        self.folder, self.observations, self.fs = folder, observations, fs or Fs()
        self.left = f"{folder}/index.notes"
        self.trimmed = False
        self.count, self.interval, self.now = count, interval, now
        self._network: str | None = None
        self._reset()
        _writers.add(self)

    def _reset(self) -> None:
        self._lock, self._flushing = threading.Lock(), threading.RLock()
        self._batch = Notes()
        self._wake, self._closed = threading.Event(), threading.Event()
        self._begun = False
        self._paused = 0.0

    # --- notes

    def note_publish(self, record: Record) -> None:
        """A record was published."""
        self._change(record.fingerprint.hex, record)

    def note_gone(self, fingerprint: Fingerprint) -> None:
        """A record was removed."""
        self._change(fingerprint.hex, None)

    def _change(self, name: str, record: Record | None) -> None:
        with self._lock:
            taken = self._room(name in self._batch.changes)
            if taken:
                self._batch.changes[name] = record
        self._noted(taken)

    def note_use(self, fingerprint: Fingerprint, when: float | None = None) -> None:
        """A record was used, now or `when` (seconds since the epoch; kept to 5 minutes)."""
        moment = int(self.now() if when is None else when) // USE_SECONDS * USE_SECONDS
        name = fingerprint.hex
        with self._lock:
            taken = self._room(name in self._batch.uses)
            if taken:
                self._batch.use(name, moment)
        self._noted(taken)

    def note_event(self, layer: str, what: str, reason: str = "", seconds: float = 0.0, size: int = 0) -> None:
        """Something happened at a layer: `hit`, `miss` with its reason, `error`; `size` in bytes."""
        key = (layer[:100], what[:100], reason[:200])
        with self._lock:
            taken = self._room(key in self._batch.events)
            if taken:
                self._batch.event(key, 1, micros_of(seconds), count(size))
        self._noted(taken)

    def note_compile(
        self,
        *,
        action: str,
        seconds: float,
        outcome: str,
        reason: str = "",
        family: str = "",
        name: str = "",
        target: str = "",
        toolchain: str = "",
        host: str = "",
        when: float | None = None,
    ) -> None:
        """A compiler ran: `outcome` is `ok`, `failed` or `timeout`, `reason` why it was not `ok`."""
        texts = [text(value) for value in (action, family, name, target, toolchain, host, outcome, reason[:1000])]
        moment = int(self.now() if when is None else when)
        with self._lock:
            taken = self._room()
            if taken:
                self._batch.compiles.append((moment, *texts[:5], micros_of(seconds), *texts[5:]))
        self._noted(taken)

    def note_nondeterminism(self, fingerprint: Fingerprint, digest: Digest, when: float | None = None) -> None:
        """A second build of a fingerprint had another main blob, with this digest."""
        moment = int(self.now() if when is None else when)
        with self._lock:
            taken = self._room()
            if taken:
                self._batch.others.append((fingerprint.hex, digest.hex, moment, moment))
        self._noted(taken)

    def told(self, event: Event) -> None:
        """Note an event of the store: a listener for `Counters.listen`."""
        if event.what == "index":  # our own
            return
        if event.what == "hit":
            self.note_event(event.detail, "hit", "", event.seconds, event.size)
            if event.fingerprint is not None:
                self.note_use(event.fingerprint)
        else:
            self.note_event("", event.what, event.detail, event.seconds, event.size)

    def _noted(self, taken: bool) -> None:  # noqa: FBT001
        # not under the lock: who counts may tell us of it
        if not taken:
            self.count("index.lost")

    def _room(self, there: bool = False) -> bool:  # noqa: FBT001, FBT002
        """Whether one more note is taken; also sees to it that somebody writes them."""
        if not there and len(self._batch) >= _LIMIT:
            return False
        if not self._wake.is_set():
            self._wake.set()
            if not self._begun and not self._closed.is_set():
                self._begun = True
                with contextlib.suppress(RuntimeError):  # no more threads: `flush` and the exit write
                    start_new_thread(_run, (weakref.ref(self),))  # `Thread.start` waits for it, a hit should not
                _at_end_of_worker()
        return True

    # --- writing

    def flush(self) -> bool:
        """Write what was noted; `False` if some of it waits or was lost. Raises nothing."""
        with self._flushing:
            notes = self._taken()
            if not len(notes) and not os.path.exists(self.left):
                return True
            if not self._may_write():
                self.count("index.lost")
                return False
            try:
                from cubinet.store.index.flushing import flush  # here, since it imports sqlite3, which may be missing

                with _inside:
                    outcome, again = flush(self, notes)
            except Exception:  # noqa: BLE001 - the index must not harm a lookup, whatever is wrong with it
                outcome, again = "error", None
            if not outcome:
                return True
            self.count(f"index.{outcome}")
            if again is None:
                self.count("index.lost")
                self._paused = time.monotonic() + _PAUSE  # newer, read-only or full: not a matter of a second
            else:
                self._put_back(again)
            return False

    def _taken(self) -> Notes:
        with self._lock:
            notes, self._batch = self._batch, Notes()
            self._wake.clear()
        return notes

    def _put_back(self, notes: Notes) -> None:
        with self._lock:
            notes.add(self._batch)
            self._batch = notes
            self._wake.set()

    def _may_write(self) -> bool:
        """Without a store there is nothing to index: a lookup must not make one."""
        if _state["barred"] or time.monotonic() < self._paused or not os.path.isdir(self.folder):
            return False
        if self._network is None:
            self._network = network_mount(self.folder)
            if self._network:
                self.count("index.network")
        return not self._network

    def __del__(self) -> None:
        self._closed.set()  # the thread ends now, not after its time
        self._wake.set()

    def close(self) -> None:
        """Write what was noted and stop the thread; what only counts may be left for a later process to write."""
        self._closed.set()
        with self._flushing:
            notes = self._taken()
            fresh = "cubinet.store.index.flushing" not in sys.modules
            if not len(notes) or (fresh and self._may_write() and leave(self.fs, self.left, notes)):
                self._wake.set()
                return
            self._put_back(notes)
        self.flush()


def _run(reference: weakref.ref[IndexWriter]) -> None:
    """The thread: it keeps no writer alive that nobody else has."""
    while True:
        writer = reference()
        if writer is None:
            return
        wake, closed, interval = writer._wake, writer._closed, writer.interval  # noqa: SLF001
        del writer
        if not wake.wait(30.0):
            continue
        if closed.wait(interval):  # `close` writes, or there is nobody left
            return
        writer = reference()
        if writer is None:
            return
        writer.flush()
        del writer


_writers: weakref.WeakSet[IndexWriter] = weakref.WeakSet()


def _at_exit() -> None:
    for writer in list(_writers):
        writer.close()


def _at_end_of_worker() -> None:
    """Processes of `multiprocessing` leave without `atexit`, by a list of their own."""
    util = sys.modules.get("multiprocessing.util")
    if util is not None and _registered.get("pid") != os.getpid():
        _registered["pid"] = os.getpid()
        util.Finalize(None, _at_exit, exitpriority=10)


_registered: dict[str, int] = {}


_inside = threading.RLock()
_state = {"held": False, "barred": False}
_FORK_SECONDS = 1.0
"""That a fork waits for a write. SQLite has locks of its own: a child forked inside it could never use it."""


def _before_fork() -> None:
    _state["held"] = _inside.acquire(timeout=_FORK_SECONDS)


def _in_parent() -> None:
    if _state["held"]:
        _inside.release()


def _in_child() -> None:
    global _inside  # noqa: PLW0603
    _state["barred"] = _state["barred"] or not _state["held"]
    _inside = threading.RLock()
    for writer in list(_writers):
        writer._reset()  # noqa: SLF001 - its locks may have been held, its notes are the parent's to write


atexit.register(_at_exit)
os.register_at_fork(before=_before_fork, after_in_parent=_in_parent, after_in_child=_in_child)
