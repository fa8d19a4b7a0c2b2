"""Notes into the file: one transaction, and what to do when the file does not take it."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Protocol

from cubinet._fs import Fs
from cubinet.errors import ConfigError
from cubinet.model import Record
from cubinet.store.index.files import REPLACED, Place, UnfitError, why_unfit
from cubinet.store.index.notes import Notes, take
from cubinet.store.index.rows import Inserter
from cubinet.store.index.values import text

__all__ = ["flush"]

_COMPILES_KEPT = 100_000
_DAYS_KEPT = 400

_USE = """INSERT INTO raw_uses VALUES (?, ?, ?) ON CONFLICT (fingerprint) DO UPDATE
  SET last = max(last, excluded.last), count = count + excluded.count"""
_EVENT = """INSERT INTO raw_events VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE
  SET count = count + excluded.count, micros = micros + excluded.micros, bytes = bytes + excluded.bytes"""
_OTHER_BYTES = """INSERT INTO raw_nondeterminism VALUES (?, ?, 1, ?, ?) ON CONFLICT DO UPDATE
  SET count = count + 1, first = min(first, excluded.first), last = max(last, excluded.last)"""
_COMPILE = """INSERT INTO raw_compiles (at, action, family, name, target, toolchain, micros, host, outcome, reason)
  VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"""


class Writer(Protocol):
    """What is needed of the one whose notes these are."""

    folder: str
    left: str
    fs: Fs
    trimmed: bool
    count: Callable[[str], None]
    now: Callable[[], float]
    observations: Callable[[Record], bytes | None]


def flush(writer: Writer, notes: Notes) -> tuple[str, Notes | None]:
    """Write notes and those that others left.

    Returns why they were not written, or an empty text; and the notes, if it is worth while to try again.
    """
    place, why = Place(writer.folder, writer.fs), "damaged"
    left = take(writer.fs, writer.left)
    left.add(notes)
    for _ in range(3):
        try:
            with place.gate(), contextlib.closing(place.open(write=True)) as connection:
                try:
                    _apply(writer, connection, left)
                except sqlite3.Error as exc:
                    raise UnfitError(why_unfit(exc, place.path), str(exc)) from exc
        except UnfitError as exc:
            why = exc.why
        else:
            return "", None
        if why == "busy":
            return why, left
        if why not in REPLACED or not _healed(writer, place, why):
            break
    return why, None


def _healed(writer: Writer, place: Place, why: str) -> bool:
    """An empty index instead; the next query fills it from the record files."""
    try:
        place.create()
    except (OSError, sqlite3.Error, ConfigError, UnfitError):
        return False
    writer.count("index.created" if why == "missing" else "index.healed")
    return True


def _apply(writer: Writer, connection: sqlite3.Connection, notes: Notes) -> None:
    run, many = connection.execute, connection.executemany
    day = datetime.fromtimestamp(writer.now(), UTC).strftime("%Y-%m-%d")
    run("BEGIN IMMEDIATE")  # a read that turns into a write would be refused at once
    try:
        _change(writer, connection, notes.changes)
        many(_USE, [(name, moment, number) for name, (moment, number) in notes.uses.items()])
        many(_EVENT, [(day, *map(text, key), *values) for key, values in notes.events.items()])
        many(_COMPILE, notes.compiles)
        many(_OTHER_BYTES, notes.others)
        if not writer.trimmed:
            _trim(connection, writer.now())
        run("COMMIT")
    except BaseException:
        with contextlib.suppress(sqlite3.Error):
            run("ROLLBACK")
        raise
    writer.trimmed = True


def _change(writer: Writer, connection: sqlite3.Connection, changes: dict[str, Record | None]) -> None:
    run, inserter = connection.execute, Inserter(connection, writer.observations)
    for name, record in changes.items():
        if record is None:
            run("DELETE FROM raw_records WHERE fingerprint = ?", (name,))
            continue
        run("SAVEPOINT record")
        try:
            inserter.add(record)
        except sqlite3.Error:
            raise
        except Exception:  # noqa: BLE001 - one strange record must not keep the others out
            run("ROLLBACK TO record")
            writer.count("index.error")
        run("RELEASE record")


def _trim(connection: sqlite3.Connection, now: float) -> None:
    oldest = datetime.fromtimestamp(max(now - _DAYS_KEPT * 86400, 0), UTC).strftime("%Y-%m-%d")
    connection.execute("DELETE FROM raw_events WHERE day < ?", (oldest,))
    newest = "(SELECT max(id) FROM raw_compiles)"
    connection.execute(f"DELETE FROM raw_compiles WHERE id <= {newest} - {_COMPILES_KEPT}")  # noqa: S608 - our own
