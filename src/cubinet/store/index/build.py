"""Filling an index from record files: whole, or by what changed since it was last compared."""

from __future__ import annotations

import contextlib
import os
import re
import sqlite3
import time
from collections.abc import Callable, Iterator

from blake3 import blake3

from cubinet.errors import StoreError
from cubinet.model import Fingerprint, Record
from cubinet.store.index.files import connect, finish, new_file
from cubinet.store.index.rows import Inserter
from cubinet.store.index.schema import migrate

__all__ = ["Sources", "build", "catch_up", "copy_history"]

_HEX64 = re.compile(r"[0-9a-f]{64}")
_NAME = re.compile(r"([0-9a-f]{64})\.json")
_FANS = [f"{number:02x}" for number in range(256)]
_SETTLED_NS = 2_000_000_000
_SLICE = 200
_NOT_THERE = -1
_PINS = "pins"
_PINS_LIMIT = 64 << 20
_PIN = "INSERT OR IGNORE INTO raw_pins VALUES (?, ?)"

_HISTORY = {
    "raw_uses": "ON CONFLICT DO UPDATE SET last = excluded.last, count = excluded.count "
    "WHERE excluded.last <> last OR excluded.count <> count",
    "raw_compiles": "ON CONFLICT DO NOTHING",
    "raw_events": "ON CONFLICT DO UPDATE SET count = excluded.count, micros = excluded.micros, bytes = excluded.bytes",
    "raw_nondeterminism": "ON CONFLICT DO UPDATE SET count = excluded.count, first = excluded.first, "
    "last = excluded.last",
}
"""What record files do not tell."""

_SINCE = """UPDATE raw_counts SET value = min(value, (SELECT value FROM other.raw_counts WHERE name = 'since'))
  WHERE name = 'since'"""

Progress = Callable[[int, int], None]


class Sources:
    """Where the truth is: the record files of a store folder.

    Args:
        folder: the store's.
        records: all its records.
        find: one record.
        observations: the bytes of the observations of a record, `None` if they are gone.
    """

    def __init__(
        self,
        folder: str,
        records: Callable[[], Iterator[Record]],
        find: Callable[[Fingerprint], Record | None],
        observations: Callable[[Record], bytes | None],
    ) -> None:
        self.folder, self.records, self.find, self.observations = folder, records, find, observations

    def stamps(self) -> dict[str, int]:
        """When each folder of records was last changed, if that is long enough ago to be seen by its time."""
        found, young = {}, time.time_ns() - _SETTLED_NS
        for fan in _FANS:
            try:
                stamp = os.stat(f"{self.folder}/records/{fan}").st_mtime_ns
            except OSError:
                stamp = _NOT_THERE
            found[fan] = stamp if stamp < young else 0
        return found | {_PINS: self._pins_stamp(young)}

    def pins(self) -> list[tuple[str, str]]:
        """Fingerprints with the tags that hold them, from `pins/<tag>`; a file that cannot be read has none."""
        found = []
        for tag, path, _ in self._tags():
            with contextlib.suppress(OSError), open(path, encoding="ascii", errors="replace") as file:
                found += [(name, tag) for name in file.read(_PINS_LIMIT).split() if _HEX64.fullmatch(name)]
        return found

    def _tags(self) -> list[tuple[str, str, os.stat_result]]:
        try:
            with os.scandir(f"{self.folder}/pins") as entries:
                return sorted((e.name, e.path, e.stat()) for e in entries if e.is_file())
        except OSError:
            return []

    def _pins_stamp(self, young: int) -> int:
        """Something that differs when the pins do; 0 if they changed too short a while ago to tell."""
        tags = [(name, info.st_mtime_ns, info.st_size, info.st_ino) for name, _, info in self._tags()]
        if any(time >= young for _, time, _, _ in tags):
            return 0
        return int.from_bytes(blake3(repr(tags).encode("utf-8", "replace")).digest(7), "big") + 1

    def names(self, fan: str) -> set[str]:
        """The fingerprints that have a record file in one of these folders."""
        try:
            found = os.listdir(f"{self.folder}/records/{fan}")
        except (FileNotFoundError, NotADirectoryError):
            return set()
        except OSError as exc:
            raise StoreError("list", f"{self.folder}/records/{fan}", exc.strerror or str(exc)) from exc
        return {match[1] for match in map(_NAME.fullmatch, found) if match and match[1].startswith(fan)}


def build(sources: Sources, path: str, progress: Progress, history: str | None = None) -> None:
    """Make a new index file from all records, with the history of another if that can be read."""
    total = sum(len(sources.names(fan)) for fan in _FANS)
    stamps = sources.stamps()  # before the records: what comes later is found by `catch_up`
    with contextlib.closing(new_file(path)) as connection:
        migrate(connection, only_tables=True)
        connection.execute("BEGIN")
        inserter = Inserter(connection, sources.observations)
        for done, record in enumerate(sources.records()):
            inserter.add_new(record)
            if done % _SLICE == 0:
                progress(done, max(total, done))
        connection.executemany(_PIN, sources.pins())
        connection.executemany("INSERT INTO raw_fans VALUES (?, ?)", list(stamps.items()))
        connection.execute("COMMIT")
        if history is not None:
            copy_history(connection, history)
        migrate(connection)
        finish(connection)
    progress(total, total)


def copy_history(connection: sqlite3.Connection, path: str) -> None:
    """Take over what record files do not tell from another index, as far as that can be read."""
    try:
        connection.execute("ATTACH ? AS other", (path,))
    except sqlite3.Error:
        return
    try:
        for table, conflict in _HISTORY.items():
            with contextlib.suppress(sqlite3.Error):  # damaged: what cannot be read is lost
                connection.execute(f"INSERT INTO {table} SELECT * FROM other.{table} WHERE true {conflict}")  # noqa: S608
                if table == "raw_uses":
                    connection.execute(_SINCE)
    finally:
        with contextlib.suppress(sqlite3.Error):
            connection.execute("DETACH other")


def behind(sources: Sources, connection: sqlite3.Connection) -> dict[str, int]:
    """The folders of records that changed since the index was compared with them, with their present stamps."""
    known = dict(connection.execute("SELECT fan, stamp FROM raw_fans"))
    return {fan: stamp for fan, stamp in sources.stamps().items() if stamp == 0 or known.get(fan) != stamp}


def catch_up(sources: Sources, path: str, enough: int) -> bool:
    """Add records that are not in the index, remove those that have no file.

    `False`, with nothing done, if more than `enough` are not there: building anew is faster.
    """
    with contextlib.closing(connect(path, write=False)) as connection:
        stamps = behind(sources, connection)
        if not stamps:
            return True
        missing, gone = set[str](), set[str]()
        for fan in stamps.keys() - {_PINS}:
            # the index first: a record that comes between the two looks is not taken for one that is gone
            found = connection.execute(
                "SELECT fingerprint FROM raw_records WHERE fingerprint >= ? AND fingerprint < ?", (fan, fan + "g")
            )
            have = {name for (name,) in found}
            names = sources.names(fan)
            missing |= names - have
            gone |= have - names
    if len(missing) > enough:
        return False
    pins = sources.pins() if _PINS in stamps else None
    settled = [(fan, stamp) for fan, stamp in stamps.items() if stamp]
    if not (missing or gone or settled) and pins is None:
        return True
    with contextlib.closing(connect(path, write=True)) as connection:
        waiting = sorted(missing)
        for start in range(0, len(waiting), _SLICE):
            records = [sources.find(Fingerprint(name)) for name in waiting[start : start + _SLICE]]
            _write(connection, sources, [record for record in records if record is not None], [], [])
        _write(connection, sources, [], sorted(gone), settled, pins=pins)
    return True


def _write(
    connection: sqlite3.Connection,
    sources: Sources,
    records: list[Record],
    gone: list[str],
    settled: list[tuple[str, int]],
    *,
    pins: list[tuple[str, str]] | None = None,
) -> None:
    inserter = Inserter(connection, sources.observations)
    connection.execute("BEGIN IMMEDIATE")
    try:
        for record in records:
            inserter.add(record)
        connection.executemany("DELETE FROM raw_records WHERE fingerprint = ?", [(name,) for name in gone])
        connection.executemany("INSERT OR REPLACE INTO raw_fans VALUES (?, ?)", settled)
        if pins is not None:
            connection.execute("DELETE FROM raw_pins")
            connection.executemany(_PIN, pins)
        connection.execute("COMMIT")
    except BaseException:
        with contextlib.suppress(sqlite3.Error):
            connection.execute("ROLLBACK")
        raise
