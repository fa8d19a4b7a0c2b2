"""Records as rows. Raw `sqlite3`: sqlite-utils would cost six times as much here."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterable
from datetime import datetime

from blake3 import blake3

from cubinet.model import Record
from cubinet.store.index.values import LONGEST, count, micros_of, text

__all__ = ["Inserter", "Observed", "observed_by_label"]

Observed = tuple[str, int, int, int, str]
"""A label, how often it was read, found present and found absent, and the digest of all that."""

_COLUMNS = (
    "fingerprint, action, variant, family, name, target, kind, entries, toolchain, created, created_at, micros, "
    "host, producer, observed, main, size, total, kernels, registers, shared, local, spills, local_only"
)
_INSERT = f"INSERT INTO raw_records ({_COLUMNS}) VALUES ({', '.join('?' * 24)})"  # noqa: S608 - our own names
_SAME = ("source", "source name", "arguments", "headers", "hook", "signature")
"""Parts that two compilers must have in common for their results to be compared."""


def _maybe(value: int | None) -> int | None:
    return None if value is None else count(value)


def _epoch(created: str) -> int | None:
    try:
        return int(datetime.fromisoformat(created).timestamp())
    except (ValueError, OverflowError, OSError):
        return None


def observed_by_label(data: bytes) -> list[Observed]:
    """Sum up the byte form of a set of observations by label; empty if it is none."""
    head, *lines = data.removesuffix(b"\n").split(b"\n")
    if not head.startswith(b"cubinet-observations "):
        return []
    found: dict[bytes, list[bytes]] = {}
    for line in lines:
        label = line.split(b" ", 2)[-1].partition(b":")[0]
        found.setdefault(label, []).append(line)
    rows = []
    for label, mine in sorted(found.items()):
        looks = [line.partition(b" ")[0] for line in mine]
        read, absent = looks.count(b"read") + looks.count(b"tree"), looks.count(b"absent")
        digest = blake3(b"\n".join(mine)).hexdigest()
        rows.append((label.decode("utf-8", "replace"), read, looks.count(b"present"), absent, digest))
    return rows


def _variant_key(record: Record) -> str:
    parts = dict(record.parts)
    same = [record.family, record.name, str(record.target), record.kind, *record.entries]
    named = json.dumps([same, [parts.get(name, "") for name in _SAME]])
    return blake3(named.encode()).hexdigest(16)


def _most(values: Iterable[int | None]) -> int | None:
    known = [count(value) for value in values if value is not None]
    return max(known) if known else None


class Inserter:
    """Puts records into an open index, in the caller's transaction.

    Args:
        connection: where.
        observations: the bytes of the observations of a record, `None` if they are gone.
    """

    def __init__(self, connection: sqlite3.Connection, observations: Callable[[Record], bytes | None]) -> None:
        self.connection, self.observations = connection, observations

    def add(self, record: Record) -> None:
        """Insert a record, in place of the one that is there with its fingerprint."""
        run = self.connection.execute
        run("DELETE FROM raw_records WHERE fingerprint = ?", (record.fingerprint.hex,))
        self.add_new(record)

    def add_new(self, record: Record) -> None:
        """The same for a fingerprint that is not there."""
        run, many = self.connection.execute, self.connection.executemany
        blobs = {role: (self._blob(ref.digest.hex, count(ref.size)), count(ref.size)) for role, ref in record.blobs}
        main, size = blobs.get(record.kind, (None, 0))
        tools, entries = record.toolchain, json.dumps(record.entries)
        spills = [count(kernel.spills) for kernel in record.kernels if kernel.spills is not None]
        values = (
            record.fingerprint.hex,
            record.action.hex,
            self._id("raw_variants", ("key",), (_variant_key(record),)),
            text(record.family),
            text(record.name),
            str(record.target),
            record.kind,
            entries if len(entries) <= LONGEST else "[]",
            self._id(
                "raw_toolchains",
                ("identity", "name", "version"),
                (tools.identity.hex, text(tools.name), text(tools.version)),
            ),
            text(record.created),
            _epoch(record.created),
            micros_of(record.seconds),
            text(record.host),
            text(record.producer),
            self._observed(record),
            main,
            size,
            sum(dict(blobs.values()).values()),
            len(record.kernels),
            _most(kernel.regs for kernel in record.kernels),
            _most(kernel.shared for kernel in record.kernels),
            _most(kernel.local for kernel in record.kernels),
            sum(spills) if spills else None,
            text(record.local_only),
        )
        row = run(_INSERT, values).lastrowid
        named = [(row, text(role), blob) for role, (blob, _) in blobs.items()]
        many("INSERT OR IGNORE INTO raw_record_blobs VALUES (?, ?, ?)", named)
        many(
            "INSERT INTO raw_kernels (record, position, name, symbol, registers, shared, local, constant, parameters, "
            "spills) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            [
                (
                    row,
                    at,
                    text(k.name),
                    text(k.symbol),
                    *map(_maybe, (k.regs, k.shared, k.local, k.const, k.params, k.spills)),
                )
                for at, k in enumerate(record.kernels)
            ],
        )
        if record.labels:
            labels = [(row, text(name), text(value)) for name, value in record.labels]
            many("INSERT OR IGNORE INTO raw_labels VALUES (?, ?, ?)", labels)

    def _id(self, table: str, columns: tuple[str, ...], values: tuple[str, ...]) -> int:
        where = " AND ".join(f"{name} = ?" for name in columns)
        found = self.connection.execute(f"SELECT id FROM {table} WHERE {where}", values).fetchone()  # noqa: S608
        if found:
            return int(found[0])
        marks = ", ".join("?" * len(values))
        made = self.connection.execute(f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({marks})", values)  # noqa: S608
        assert made.lastrowid is not None  # noqa: S101 - for the type: an insert has one
        return made.lastrowid

    def _blob(self, digest: str, size: int) -> int:
        run = self.connection.execute
        found = run("SELECT id FROM raw_blobs WHERE digest = ?", (digest,)).fetchone()
        if found:
            return int(found[0])
        return run("INSERT INTO raw_blobs (digest, size) VALUES (?, ?)", (digest, size)).lastrowid or 0

    def _observed(self, record: Record) -> int:
        run = self.connection.execute
        digest = record.observations.hex
        found = run("SELECT id FROM raw_sets WHERE digest = ?", (digest,)).fetchone()
        if found:
            return int(found[0])
        data = self.observations(record)
        row = run("INSERT INTO raw_sets (digest) VALUES (?)", (digest,)).lastrowid or 0
        rows = [(row, *values) for values in observed_by_label(data or b"")]
        self.connection.executemany("INSERT OR IGNORE INTO raw_observed VALUES (?, ?, ?, ?, ?, ?)", rows)
        return row
