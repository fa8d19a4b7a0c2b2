"""A private copy of a store's index that follows it, made without a lock and without a file in the store.

A reader of a WAL database needs locks and may have to create SQLite's side files, and while it reads it keeps the log
from being reset. So the index is never opened here: its bytes are copied, first the database, then the log, and SQLite
recovers the copy as it would after a power failure. That is sound as long as the log was not begun anew
meanwhile: everything that reached the database before its log was copied is in that log too. Its header tells,
it gets a new salt each time.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import sqlite3
import stat
import tempfile
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

from cubinet._fs import Fs
from cubinet.errors import CubinetError, StoreError
from cubinet.model import Record
from cubinet.store.index.build import Sources, build, catch_up
from cubinet.store.index.files import UnfitError, connect
from cubinet.store.index.mounts import network_mount
from cubinet.store.local import LocalLayer

__all__ = ["Snapshot", "copy_live"]

_ENOUGH = 20_000
_TRIES = 10
_TICK_NS = 50_000_000
"""A file that was written this short a while ago may be written again without its time telling."""
_REST = 10
"""Copying takes at most one part in so many of the time."""

log = logging.getLogger(__name__)


class ReadingFs(Fs):
    """Files that are only read: what would change one fails as on a read-only mount."""

    def _refuse(self, *_args: Any, **_more: Any) -> NoReturn:
        raise OSError(30, "this program only reads the store")

    create = link = rename = touch = unlink = discard = mkdir = open_lock = sync_folder = sync_all = _refuse


def _quiet(_done: int, _all: int) -> None:
    pass


def _state(path: str) -> tuple[object, ...] | None:
    """What stays the same while a copy is sound; `None` if there is no such file, or one that is not copied."""
    try:
        info = os.stat(path)
        if not stat.S_ISREG(info.st_mode) or os.path.lexists(path + "-journal"):
            return None
        try:
            with open(path + "-wal", "rb") as file:
                header = file.read(32)
        except FileNotFoundError:
            header = b""
    except OSError:
        return None
    if header:
        return info.st_dev, info.st_ino, header
    return info.st_dev, info.st_ino, b"", info.st_size, info.st_mtime_ns


def copy_live(path: str, to: str) -> bool:
    """Copy an SQLite database that others write, without a lock; `False` if it is not there or does not hold still.

    Raises `OSError` if there is no room.
    """
    for _ in range(_TRIES):
        before = _state(path)
        if before is None:
            return False
        if len(before) > 3 and time.time_ns() - os.stat(path).st_mtime_ns < _TICK_NS:
            time.sleep(_TICK_NS / 1e9)
            continue
        with contextlib.suppress(FileNotFoundError):
            os.unlink(to + "-wal")
        try:
            shutil.copyfile(path, to)
            if before[2]:
                shutil.copyfile(path + "-wal", to + "-wal")
        except FileNotFoundError:  # it was replaced, or its log was taken in
            continue
        if _state(path) == before:
            return True
    return False


class Snapshot:
    """The newest copy of the index of a store folder, at `path`. Safe in threads.

    Args:
        folder: the store's.
        every: seconds between two looks at the store, at least; 0 to look each time, whatever a copy costs.

    Raises `StoreError` if there is no store, or no room for a copy.
    """

    def __init__(self, folder: str, *, every: float = 2.0) -> None:
        if not os.path.isdir(folder):
            raise StoreError("serve", folder, "there is no store", "compile something, or set CUBINET_DIR")
        layer = LocalLayer(folder, fs=ReadingFs(), durable=False, warn=log.warning)

        def records() -> Iterator[Record]:
            return (record for record in map(layer.find, layer.fingerprints()) if record is not None)

        self.sources = Sources(folder, records, layer.find, lambda record: layer.read_named(record.observations))
        self.live, self.every = f"{folder}/index.sqlite3", every
        self.generation, self.path = 0, ""
        self._known: object = None
        self._bad: object = None
        self._due, self._lock = 0.0, threading.Lock()
        self._own = tempfile.mkdtemp(prefix="cubinet-web-")
        self.close: Callable[[], object] = weakref.finalize(self, _remove, self._own, os.getpid())
        try:
            self._renew()
        except BaseException:
            self.close()
            raise

    def due(self) -> bool:
        """Whether it is time for a look at the store."""
        return time.monotonic() >= self._due

    def refresh(self) -> None:
        """Take a new copy if the store changed; what goes wrong is logged, and the last copy stays."""
        if not self._lock.acquire(blocking=False):
            return
        try:
            if self.due():
                self._renew()
        except (CubinetError, OSError, sqlite3.Error) as exc:
            log.warning("the pages stay as they are: %s", exc)
        finally:
            self._lock.release()

    def _renew(self) -> None:
        begun = time.monotonic()
        self._due = begun + self.every
        seen = self._seen()
        if seen == self._known:
            return
        path = f"{self._own}/{self.generation + 1}.sqlite3"
        try:
            self._fill(path)
            with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
                connection.execute("PRAGMA journal_mode = DELETE")  # one file, that is opened as one that never changes
        except (OSError, sqlite3.Error, UnfitError) as exc:
            _discard(path)
            raise StoreError("copy index to", self._own, str(exc), "make room there, or set TMPDIR") from exc
        except BaseException:
            _discard(path)
            raise
        old, self.path = self.path, path
        self.generation += 1
        self._known = seen
        if old:
            _discard(old)  # whoever has it open keeps it
        now = time.monotonic()
        self._due = now + max(self.every, _REST * (now - begun)) if self.every else now

    def _seen(self) -> object:
        """What tells that the store changed: its index, and when its records were last added to."""
        files, stamps = [], self.sources.stamps()
        young = [f"{self.sources.folder}/records/{fan}" for fan, stamp in stamps.items() if stamp == 0]
        for path in (self.live, self.live + "-wal", *young):
            with contextlib.suppress(OSError):
                info = os.stat(path)
                files.append((info.st_ino, info.st_size, info.st_mtime_ns))
        return files, stamps

    def distrust(self) -> None:
        """The copy turned out to be damaged: make one from the record files, unless the index was mended meanwhile."""
        self._bad, self._known, self._due = _state(self.live), None, 0.0

    def _fill(self, path: str) -> None:
        """Put an index there that has what the record files have."""
        old = path + "-old"
        if self._copied(path):
            try:
                if catch_up(self.sources, path, _ENOUGH):
                    return
                os.rename(path, old)
            except (sqlite3.DatabaseError, UnfitError):  # damaged further in
                pass
        _discard(path)
        try:
            build(self.sources, path, _quiet, old if os.path.exists(old) else None)
        finally:
            _discard(old)

    def _copied(self, path: str) -> bool:
        """Copy the store's index, or the last copy if that cannot be had."""
        bad = self._bad is not None
        if not (bad and _state(self.live) == self._bad) and not network_mount(self.sources.folder):
            if copy_live(self.live, path) and self._usable(path):
                self._bad = None
                return True
            _discard(path)
        if not self.path or bad:
            return False
        shutil.copyfile(self.path, path)
        return True

    @staticmethod
    def _usable(path: str) -> bool:
        try:
            with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
                connection.execute("PRAGMA journal_mode = DELETE")
            connect(path, write=True).close()
        except (sqlite3.Error, UnfitError):
            return False
        return True


def _discard(path: str) -> None:
    for suffix in ("", "-wal", "-shm", "-journal"):
        Path(path + suffix).unlink(missing_ok=True)


def _remove(folder: str, pid: int) -> None:
    if os.getpid() == pid:
        shutil.rmtree(folder, ignore_errors=True)
