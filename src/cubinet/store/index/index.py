"""`store.index`: questions to a store about its records and their use.

The index is a projection of the record files. Whatever is wrong with it is mended before a question is answered, or the
question is answered from a private index in a temporary folder: for a store that cannot be written, one on a network
mount, and beside an index of a newer release.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
import tempfile
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, TypeVar

from cubinet._fs import Fs
from cubinet.errors import ConfigError, StoreError
from cubinet.model import Fingerprint, Record
from cubinet.store.index.build import Sources, build, catch_up, copy_history
from cubinet.store.index.check import compare
from cubinet.store.index.compare import Difference, differences
from cubinet.store.index.files import REPLACED, Place, UnfitError, connect, discard, why_unfit
from cubinet.store.index.guard import guarded
from cubinet.store.index.mounts import network_mount
from cubinet.store.index.query import Row, question, rows
from cubinet.store.index.reports import REPORTS, SUMMARY, TOPS

__all__ = ["Index"]

T = TypeVar("T")

_ENOUGH = 20_000
"""Records that are added one by one; for more a new file is built."""
_NO_STORE = "there is no store"
_FRESH_SECONDS = 1.0
"""How long an index that was just compared with the record files is not compared again."""


def _quiet(_done: int, _all: int) -> None:
    pass


class Index:
    """Answers from the index of one store folder. Safe in threads, survives `fork`.

    Args:
        folder: the store's.
        records: all its records.
        find: one record.
        observations: the bytes of the observations of a record, `None` if they are gone.
        flush: called before a question is answered, so that it sees what this process noted.
        warn: called with a sentence when the store's own index is not used.
        mountinfo: where the mounts are listed.
    """

    def __init__(
        self,
        folder: str,
        records: Callable[[], Iterator[Record]],
        *,
        find: Callable[[Fingerprint], Record | None],
        observations: Callable[[Record], bytes | None],
        fs: Fs | None = None,
        flush: Callable[[], object] = lambda: None,
        warn: Callable[[str], None] = lambda _text: None,
        mountinfo: str = "/proc/self/mountinfo",
    ) -> None:
        self.place = Place(folder, fs)
        self.sources = Sources(folder, records, find, observations)
        self.flush, self.warn = flush, warn
        self._network = network_mount(folder, mountinfo)
        self._lock, self._pid = threading.RLock(), os.getpid()
        self._private, self._fresh, self._no_store = "", 0.0, False

    # --- questions

    def query(
        self,
        *,
        family: str | None = None,
        name: str | None = None,
        target: str | None = None,
        kernel: str | None = None,
        toolchain: str | None = None,
        label: str | None = None,
        min_spills: int | None = None,
        used_since: float | datetime | str | None = None,
        created_since: float | datetime | str | None = None,
        order_by: str | None = None,
        descending: bool = False,
        limit: int | None = None,
    ) -> Iterator[Row]:
        """Records that fit all filters, as they come from the file: memory does not grow with their number.

        Args:
            family: exact, or a pattern as `gemm*`.
            name: the same.
            target: `cuda:sm_90a`, or `sm_90a`; may be a pattern.
            kernel: name or symbol of a kernel in it; may be a pattern.
            toolchain: its name, version or identity, or a pattern of `name version`.
            label: of a root the compiler looked at (`cutlass`), or a label of the variant with its value (`team=a`).
            min_spills: bytes of spills, at least.
            used_since: seconds since the epoch, a `datetime`, or an ISO date.
            created_since: the same.
            order_by: `created`, `size`, `seconds`, `registers`, `spills`, `uses` or `last_use`; no order if not given.
            descending: the largest first.
            limit: not more rows than this.

        Raises `ConfigError` for a filter that cannot be meant, `StoreError` if the record files cannot be read.
        """
        sql, params = question(
            family=family,
            name=name,
            target=target,
            kernel=kernel,
            toolchain=toolchain,
            label=label,
            min_spills=min_spills,
            used_since=used_since,
            created_since=created_since,
            order_by=order_by,
            descending=descending,
            limit=limit,
        )
        return self._answer(lambda connection: rows(connection, sql, params))

    def sql(
        self, text: str, params: Sequence[Any] | Mapping[str, Any] = (), *, timeout: float = 5.0
    ) -> Iterator[dict[str, Any]]:
        """Rows of one `select` over the views, as they come. `timeout`: seconds in the database.

        Raises `ConfigError` for anything but reading, `StoreError` when the time is over.
        """
        return self._answer(lambda connection: guarded(connection, text, params, timeout))

    def stats(self) -> dict[str, Any]:
        """Totals of the store: records, bytes, compile seconds, uses, seconds saved, blobs, and more."""
        return next(self._answer(lambda connection: _dicts(connection, SUMMARY, ())))

    def since(self) -> float:
        """The moment from which on uses are known: an index that was lost has none of those before."""
        return float(self.stats()["since"])

    def top(self, kind: str, limit: int = 10) -> Iterator[Row]:
        """The `largest`, `slowest` (to compile), `most-used` or `least-used` records."""
        if kind not in TOPS:
            raise ConfigError("list top", repr(kind), "unknown", f"one of {', '.join(TOPS)}")
        order, descending = TOPS[kind]
        return self.query(order_by=order, descending=descending, limit=limit)

    def report(self, name: str, limit: int | None = None) -> Iterator[dict[str, Any]]:
        """Rows of a report: `toolchains`, `duplicates`, `misses` or `cost`."""
        if name not in REPORTS:
            raise ConfigError("report", repr(name), "unknown", f"one of {', '.join(REPORTS)}")
        return self._answer(lambda connection: REPORTS[name](connection, limit))

    def diff(self, a: Record, b: Record) -> list[Difference]:
        """What differs between two records: facts, parts of the key, observations, kernel resources."""
        return differences(a, b, self.sources.observations)

    # --- the file

    def rebuild(self, progress: Callable[[int, int], None] = _quiet) -> None:
        """Make the index anew from the record files; use times and history are kept if they can be read.

        Raises `StoreError` if the folder cannot be written.
        """
        with self._mine():
            self.flush()
            if self._why_private():
                self._use_private(progress)
                return
            try:
                self._rebuild(progress)
            except OSError as exc:
                why = exc.strerror or str(exc)
                raise StoreError("rebuild index", self.place.path, why, "see cubinet doctor") from exc
            except UnfitError as exc:
                raise StoreError("rebuild index", self.place.path, f"{exc.why}: {exc.detail}", "try again") from exc
            except sqlite3.Error as exc:
                raise StoreError("rebuild index", self.place.path, str(exc), "make room, or try again") from exc

    def check(self, progress: Callable[[int, int], None] = _quiet) -> list[str]:
        """Compare the index with the record files: one sentence for each thing that is wrong."""
        with self._mine():
            path = self._ready()
            with tempfile.TemporaryDirectory(prefix="cubinet-index-") as folder:
                fresh = f"{folder}/index.sqlite3"
                build(self.sources, fresh, progress, history=path)
                try:
                    with contextlib.closing(connect(path, write=False)) as connection:
                        return compare(connection, fresh)
                except (sqlite3.Error, UnfitError) as exc:
                    return [f"the index cannot be read: {exc}"]

    def close(self) -> None:
        """Remove the private index, if there is one."""
        with self._mine():
            self._drop_private()

    def _mine(self) -> threading.RLock:
        if (
            os.getpid() != self._pid
        ):  # a thread that is not here may have held the lock; the temporary folder is the parent's
            self._lock, self._pid = threading.RLock(), os.getpid()
            self._private, self._fresh = "", 0.0
        return self._lock

    def _answer(self, ask: Callable[[sqlite3.Connection], Iterator[T]]) -> Iterator[T]:
        """Ask, and ask again if the file turns out to be damaged before the first row."""
        begun = False
        for attempt in range(3):
            with self._mine():
                self.flush()
                path = self._ready()
            try:
                with contextlib.closing(self._open(path)) as connection:
                    for row in ask(connection):
                        begun = True
                        yield row
                    return
            except UnfitError as exc:
                if attempt == 2:
                    raise StoreError("read index", path, f"{exc.why}: {exc.detail}", "cubinet index rebuild") from exc
            except sqlite3.Error as exc:
                why = why_unfit(exc, path)
                if why == "damaged":
                    with self._mine():
                        self._mend(path)
                if begun or attempt == 2 or why == "busy":
                    raise StoreError("read index", path, str(exc), "ask again, or cubinet index rebuild") from exc
            with self._mine():
                self._fresh = 0.0

    def _open(self, path: str) -> sqlite3.Connection:
        return self.place.open(write=False) if path == self.place.path else connect(path, write=False)

    def _why_private(self) -> str:
        if self._network:
            return f"{self.place.folder} is on a network mount ({self._network})"
        if not os.path.isdir(self.place.folder):
            return _NO_STORE
        return ""

    def _ready(self) -> str:
        """The path of an index that holds what the record files hold."""
        current = self._private or self.place.path
        if time.monotonic() < self._fresh and os.path.exists(current) and not self._no_store:
            return current
        if self._private and self._no_store and os.path.isdir(self.place.folder):
            self._drop_private()  # there is one by now
        if not self._private:
            why = self._why_private() or self._heal()
            self._no_store = why == _NO_STORE
            if why:
                if why != _NO_STORE:
                    self.warn(f"the index in {self.place.folder} is not used: {why}")
                self._use_private(_quiet)
        elif not self._current(self._private):
            self._use_private(_quiet)
        self._fresh = time.monotonic() + _FRESH_SECONDS
        return self._private or self.place.path

    def _heal(self) -> str:
        """Bring the store's own index in order; why that is not possible, or an empty text."""
        for _ in range(3):
            do: Callable[[], None] = self._rebuild
            try:
                with self.place.gate():
                    if self._caught_up(self.place.path):
                        return ""
            except UnfitError as exc:
                if exc.why == "busy" and self._openable():
                    return ""  # what is there will do
                if exc.why not in REPLACED:
                    return f"it is {exc.why}: {exc.detail}"
                do = self.place.create if exc.why == "older" else self._rebuild
            trouble = self._try_to(do)
            if trouble:
                return trouble
        return "it does not stay whole"

    def _caught_up(self, path: str) -> bool:
        try:
            return catch_up(self.sources, path, _ENOUGH)
        except sqlite3.Error as exc:
            raise UnfitError(why_unfit(exc, path), str(exc)) from exc

    def _current(self, path: str) -> bool:
        try:
            return self._caught_up(path)
        except UnfitError:
            return False

    def _try_to(self, do: Callable[[], None]) -> str:
        try:
            do()
        except UnfitError as exc:
            return f"it is {exc.why}: {exc.detail}"
        except (OSError, sqlite3.Error) as exc:
            return f"it cannot be written: {exc}"
        return ""

    def _rebuild(self, progress: Callable[[int, int], None] = _quiet) -> None:
        temporary = self.place.temporary()
        try:
            self._refuse_newer()
            build(
                self.sources, temporary, progress, history=self.place.path if os.path.isfile(self.place.path) else None
            )
            with self.place.gate(exclusive=True):
                self._refuse_newer()
                with contextlib.closing(connect(temporary, write=True)) as connection:
                    if os.path.isfile(self.place.path):
                        copy_history(connection, self.place.path)  # what was noted since
                self.place.put(temporary)
        finally:
            discard(self.place.fs, temporary)
        self._fresh = 0.0

    def _refuse_newer(self) -> None:
        if self.place.unfit() == "newer":
            raise UnfitError("newer", "another release uses it")

    def _mend(self, path: str) -> None:
        """A file that turned out to be damaged goes."""
        self._fresh = 0.0
        if path == self._private:
            self._use_private(_quiet)
        elif path == self.place.path:
            self._try_to(self._rebuild)

    # --- a private index

    def _use_private(self, progress: Callable[[int, int], None]) -> None:
        self._drop_private()
        folder = tempfile.mkdtemp(prefix="cubinet-index-")
        self._remove = weakref.finalize(self, _remove, folder, os.getpid())
        path = f"{folder}/index.sqlite3"
        if not (self._copied(path) and self._current(path)):
            discard(self.place.fs, path)
            history = self.place.path if self._openable() else None
            try:
                build(self.sources, path, progress, history)
            except (OSError, sqlite3.Error) as exc:
                raise StoreError("build index", folder, str(exc), "make room there, or set TMPDIR") from exc
        self._private = path

    def _openable(self) -> bool:
        try:
            self.place.open(write=False).close()
        except UnfitError:
            return False
        return not self._network

    def _copied(self, path: str) -> bool:
        """Copy the store's index: by SQLite if it can open it, else as a file that nobody has open."""
        mine = self.place.path
        try:
            if self._openable():
                source, target = connect(mine, write=False), sqlite3.connect(path)
                with contextlib.closing(source), contextlib.closing(target):
                    source.backup(target)
            elif not self._network:
                before = os.stat(mine)
                shutil.copyfile(mine, path)
                after = os.stat(mine)
                same = (before.st_mtime_ns, before.st_size, before.st_ino) == (
                    after.st_mtime_ns,
                    after.st_size,
                    after.st_ino,
                )
                if os.path.lexists(mine + "-wal") or not same:
                    return False
            else:
                return False
            connect(path, write=True).close()
        except (OSError, sqlite3.Error, UnfitError):
            return False
        return True

    def _drop_private(self) -> None:
        if self._private:
            self._private = ""
            self._remove()


def _remove(folder: str, pid: int) -> None:
    if os.getpid() == pid:
        shutil.rmtree(folder, ignore_errors=True)


def _dicts(connection: sqlite3.Connection, sql: str, params: Sequence[Any]) -> Iterator[dict[str, Any]]:
    cursor = connection.execute(sql, params)
    names = [column[0] for column in cursor.description]
    for values in cursor:
        yield dict(zip(names, values, strict=True))
