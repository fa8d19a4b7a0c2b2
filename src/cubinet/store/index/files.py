"""The index file itself: opening it, saying what is wrong with it, and putting another in its place.

A file is only ever created whole, under another name, and put in its place while nobody writes (`gate`):
SQLite's side files go by name, so a new file must never meet the log of an old one.
"""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import os
import sqlite3
import threading
import time
from collections.abc import Iterator
from typing import Literal
from urllib.parse import quote

from cubinet._fs import Fs
from cubinet.store.index.schema import APPLICATION_ID, SCHEMA, migrate

__all__ = ["REPLACED", "Place", "UnfitError", "connect", "why_unfit"]

BUSY_SECONDS = 5.0
_POLL_SECONDS = 0.02
_LONGEST_VALUE = 64 << 20
_DAMAGED = (
    sqlite3.SQLITE_ERROR, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_FORMAT,
    sqlite3.SQLITE_CONSTRAINT, sqlite3.SQLITE_MISMATCH,
)  # fmt: skip
"""Our own statements are right: if one is refused, the file is wrong."""
_serial = itertools.count()

REPLACED = ("missing", "damaged", "older")
"""What a file may be that another is put in the place of."""
Why = Literal["missing", "damaged", "older", "newer", "unreadable", "busy", "full"]


class UnfitError(Exception):
    """An index file that cannot be used as it is, and why. Never leaves this package."""

    def __init__(self, why: Why, detail: str = "") -> None:
        super().__init__(why, detail)
        self.why, self.detail = why, detail


def why_unfit(exc: sqlite3.Error, path: str) -> Why:
    """What an error of SQLite means for the file."""
    code = getattr(exc, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL):
        return "busy"
    if code == sqlite3.SQLITE_FULL:
        return "full"
    if code in _DAMAGED:
        return "damaged"
    return "unreadable" if os.path.lexists(path) else "missing"


def connect(path: str, *, write: bool) -> sqlite3.Connection:
    """Open an index file of the current schema. Raises `UnfitError`. Never creates one.

    Never `immutable`: on a live file that would answer from the past.
    """
    try:
        connection = sqlite3.connect(
            f"file:{quote(path)}?mode={'rw' if write else 'ro'}",
            uri=True,
            timeout=BUSY_SECONDS,
            isolation_level=None,
            check_same_thread=False,
        )
    except sqlite3.Error as exc:
        raise UnfitError(why_unfit(exc, path), str(exc)) from exc
    try:
        _check(connection, write=write)
    except sqlite3.Error as exc:
        connection.close()
        raise UnfitError(why_unfit(exc, path), str(exc)) from exc
    except BaseException:
        connection.close()
        raise
    return connection


def _check(connection: sqlite3.Connection, *, write: bool) -> None:
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _LONGEST_VALUE)
    connection.execute("PRAGMA trusted_schema = OFF")  # the file may be somebody else's
    connection.execute("PRAGMA synchronous = NORMAL" if write else "PRAGMA query_only = ON")
    (ours,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if ours != APPLICATION_ID:
        raise UnfitError("damaged", "it is not an index")
    if version != SCHEMA:
        raise UnfitError("newer" if version > SCHEMA else "older", f"schema {version}, this release knows {SCHEMA}")
    if connection.execute("SELECT count(*) FROM raw_counts").fetchone()[0] < 4:
        raise UnfitError("damaged", "its totals are gone")
    connection.execute("SELECT * FROM records LIMIT 1").fetchone()


class Place:
    """Where the index of a store folder is."""

    def __init__(self, folder: str, fs: Fs | None = None) -> None:
        self.folder, self.fs = folder, fs or Fs()
        self.path = f"{folder}/index.sqlite3"

    @contextlib.contextmanager
    def gate(self, *, exclusive: bool = False) -> Iterator[None]:
        """Keep the file from being replaced; or, `exclusive`, keep everybody else from opening and writing it.

        Without a lock file in reach this does nothing. Raises `UnfitError` if the wait is too long.
        """
        try:
            fd = self._open_gate()
        except OSError:
            yield
            return
        try:
            end = time.monotonic() + BUSY_SECONDS * (6 if exclusive else 1)
            while True:
                try:
                    fcntl.flock(fd, (fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH) | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if time.monotonic() > end:
                        raise UnfitError("busy", "it is being replaced") from None
                    time.sleep(_POLL_SECONDS)
            yield
        finally:
            fcntl.flock(fd, fcntl.LOCK_UN)  # a child that was forked meanwhile has the descriptor too
            os.close(fd)

    def _open_gate(self) -> int:
        name = f"{self.folder}/locks/index.gate"
        try:
            return os.open(name, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            if not os.path.isdir(self.folder):
                raise
            self.fs.mkdir(f"{self.folder}/locks")
            return self.fs.open_lock(name)

    def open(self, *, write: bool) -> sqlite3.Connection:
        """Open the file; for writing the caller stays inside the gate. Raises `UnfitError`."""
        if write:
            return connect(self.path, write=True)
        with self.gate():
            return connect(self.path, write=False)

    def temporary(self) -> str:
        """A new name in the store's `tmp`, of the form that is swept an hour after it was last written."""
        self.fs.mkdir(f"{self.folder}/tmp")
        unique = f"{os.getpid()}-{threading.get_ident()}-{next(_serial)}-{os.urandom(4).hex()}"
        return f"{self.folder}/tmp/index-{unique}"

    def create(self) -> None:
        """Put an empty index where there is none, or in place of one that is damaged; bring an older one up to date.

        Raises `OSError`, `sqlite3.Error`, `UnfitError`, and `ConfigError` without sqlite-utils.
        """
        with self.gate(exclusive=True):
            why = self.unfit()
            if why not in REPLACED or (why == "older" and self._migrated()):
                return  # perhaps another process was quicker
            temporary = self.temporary()
            try:
                with contextlib.closing(new_file(temporary)) as connection:
                    migrate(connection)
                    finish(connection)
                self.put(temporary)
            finally:
                discard(self.fs, temporary)

    def unfit(self) -> str:
        """Why the file cannot be written; empty if it can."""
        try:
            connect(self.path, write=True).close()
        except UnfitError as exc:
            return exc.why
        return ""

    def _migrated(self) -> bool:
        try:
            with contextlib.closing(
                sqlite3.connect(self.path, isolation_level=None, timeout=BUSY_SECONDS)
            ) as connection:
                migrate(connection)
        except sqlite3.Error:
            return False
        return not self.unfit()

    def put(self, temporary: str) -> None:
        """Make a new file the index; a damaged old one goes to `bad`. Inside the exclusive gate only."""
        if self.unfit() in ("", "older"):
            if self._settled():  # so a kill at any moment leaves the old file or the new one, each whole
                self.fs.rename(temporary, self.path)
                self._discard_sides()
                return
            self.fs.discard(self.path)
        elif os.path.lexists(self.path):
            self.fs.mkdir(f"{self.folder}/bad")
            if os.path.isdir(self.path):
                self.fs.rename(self.path, f"{self.folder}/bad/index.sqlite3-{time.time_ns()}")
            else:
                self.fs.rename(self.path, f"{self.folder}/bad/index.sqlite3")  # one is enough: the last
        # the side files after their database: without it nobody opens them, and the new one must not meet them
        self._discard_sides()
        self.fs.rename(temporary, self.path)

    def _settled(self) -> bool:
        """Whether the old file holds all that was written, and its log nothing that a new file could meet."""
        try:
            with contextlib.closing(sqlite3.connect(self.path, timeout=1.0)) as connection:
                busy: int = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]
        except sqlite3.Error:
            return False
        return not busy

    def _discard_sides(self) -> None:
        for suffix in ("-wal", "-shm", "-journal"):
            self.fs.discard(self.path + suffix)


def new_file(path: str) -> sqlite3.Connection:
    """A new database that only this process knows, so without a journal."""
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    os.chmod(path, 0o644)
    connection.execute("PRAGMA journal_mode = OFF")
    connection.execute("PRAGMA synchronous = OFF")
    connection.execute("PRAGMA cache_size = -65536")
    return connection


def finish(connection: sqlite3.Connection) -> None:
    """Make a new file one that many may use, and give the planner its statistics."""
    connection.execute("PRAGMA analysis_limit = 1000")
    connection.execute("ANALYZE")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA journal_mode = WAL")


def discard(fs: Fs, path: str) -> None:
    """Remove a database and its side files, if they are there."""
    for suffix in ("", "-wal", "-shm", "-journal"):
        fs.discard(path + suffix)
