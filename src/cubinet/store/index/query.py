"""Questions to the index: filters as SQL, and rows as values."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any

from cubinet.errors import ConfigError

__all__ = ["ORDERS", "Row", "question", "rows"]

ORDERS = ("created", "size", "seconds", "registers", "spills", "uses", "last_use")
"""What rows can be ordered by."""

_BY = {"created": "created_at", "seconds": "micros"}
_CHUNK = 256
_WILD = "*?["
_MOST = 1 << 62
_LONGEST = 10_000


@dataclass(frozen=True, slots=True)
class Row:
    """One record as the index has it. The view `records` has the same columns, and more.

    Attributes:
        fingerprint: of the record, 64 hex digits.
        family, name: the caller's, empty if there are none.
        target: as `cuda:sm_90a`.
        kind: of the main blob, as `cubin`.
        toolchain: name and version.
        created: when it was compiled, as in the record.
        seconds: the compile took.
        size: bytes of the main blob.
        total: bytes of all its blobs.
        kernels: how many are in it.
        registers, shared, local: most of any of its kernels; `None` if not known.
        spills: bytes, of all its kernels together; `None` if not known.
        uses: how often it was used, as far as noted.
        last_use: seconds since the epoch, to 5 minutes; `None` if it never was.
    """

    fingerprint: str
    family: str
    name: str
    target: str
    kind: str
    toolchain: str
    created: str
    seconds: float
    size: int
    total: int
    kernels: int
    registers: int | None
    shared: int | None
    local: int | None
    spills: int | None
    uses: int
    last_use: int | None


_NAMES = tuple(f.name for f in fields(Row))
_TOOLCHAIN = "(SELECT name || ' ' || version FROM raw_toolchains WHERE id = r.toolchain)"
_COLUMNS = ", ".join(
    {"toolchain": _TOOLCHAIN, "seconds": "r.micros / 1000000.0"}.get(name, f"r.{name}") for name in _NAMES
)


def _moment(value: float | datetime | str) -> int:
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError as exc:
            raise ConfigError("use time", repr(value), "not a date", "as 2026-11-29 or 2026-11-29T08:00") from exc
    try:
        return max(-_MOST, min(int(value.timestamp() if isinstance(value, datetime) else value), _MOST))
    except (OverflowError, ValueError) as exc:
        raise ConfigError("use time", repr(value), "not a moment") from exc


def _after(prefix: str) -> str:
    """A text that is behind all that begin so."""
    return prefix + "\U0010ffff"


class _Filters:
    """Tables, conditions and their parameters, as they come together."""

    def __init__(self) -> None:
        self.tables = "raw_records AS r"
        self.where: list[str] = []
        self.params: list[Any] = []

    def add(self, condition: str, *values: Any) -> None:
        self.where.append(condition)
        self.params += values

    def text(self, column: str, wanted: str | None) -> None:
        """Exact, or by a pattern, whose literal start can use an index."""
        if wanted is None:
            return
        start = _literal(wanted)
        if start == wanted:
            self.add(f"r.{column} = ?", wanted)
        else:
            self.add(f"r.{column} >= ? AND r.{column} < ? AND r.{column} GLOB ?", start, _after(start), wanted)

    def least(self, column: str, value: int | None) -> None:
        if value is not None:
            self.add(f"r.{column} >= ?", value)

    def kernel(self, pattern: str) -> None:
        """Each arm has an index; a record comes once, with the first of its kernels that matches."""
        self.tables = "raw_kernels AS k CROSS JOIN raw_records AS r ON r.id = k.record"
        start = _literal(pattern)[:64]
        known = (start, _after(start), pattern)
        arm = "(substr(k.{0}, 1, 64) >= ? AND substr(k.{0}, 1, 64) < ? AND k.{0} GLOB ?)"
        self.add(f"({arm.format('name')} OR {arm.format('symbol')})", *known, *known)
        earlier = "e.record = k.record AND e.position < k.position AND (e.name GLOB ? OR e.symbol GLOB ?)"
        self.add(f"NOT EXISTS (SELECT 1 FROM raw_kernels AS e WHERE {earlier})", pattern, pattern)  # noqa: S608 - ours

    def label(self, label: str, *, streaming: bool) -> None:
        key, equals, value = label.partition("=")
        if equals:
            self.add("r.id IN (SELECT record FROM raw_labels WHERE name = ? AND value = ?)", key, value)
        elif streaming:
            self.tables = "raw_observed AS o CROSS JOIN raw_records AS r ON r.observed = o.observed"
            self.add("o.label = ?", label)
        else:
            self.add("EXISTS (SELECT 1 FROM raw_observed AS o WHERE o.observed = r.observed AND o.label = ?)", label)

    def toolchain(self, wanted: str) -> None:
        known = "name || ' ' || version GLOB ? OR name = ? OR version = ? OR identity = ?"
        values = [wanted.removeprefix("blake3:")] * 4
        self.add(f"r.toolchain IN (SELECT id FROM raw_toolchains WHERE {known})", *values)  # noqa: S608 - ours


def _literal(pattern: str) -> str:
    """What a pattern begins with."""
    return (
        pattern[: min(pattern.find(c) for c in _WILD if c in pattern)] if any(c in pattern for c in _WILD) else pattern
    )


def question(
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
) -> tuple[str, list[Any]]:
    """The SQL and its parameters. Raises `ConfigError` for an order, a limit or a time that is none."""
    for given in (family, name, target, kernel, toolchain, label):
        if given is not None and (len(given) > _LONGEST or given != given.encode("utf-8", "replace").decode()):
            raise ConfigError("query", repr(given[:80]), "longer than any pattern, or no text")
    filters = _Filters()
    if kernel is not None:
        filters.kernel(kernel)
    if label is not None:
        filters.label(label, streaming=kernel is None and order_by is None)
    filters.text("family", family)
    filters.text("name", name)
    filters.text("target", target if target is None or ":" in target else f"cuda:{target}")
    if toolchain is not None:
        filters.toolchain(toolchain)
    filters.least("spills", None if min_spills is None else min(min_spills, _MOST))
    filters.least("last_use", None if used_since is None else _moment(used_since))
    filters.least("created_at", None if created_since is None else _moment(created_since))
    where = f" WHERE {' AND '.join(filters.where)}" if filters.where else ""
    sql = f"SELECT {_COLUMNS} FROM {filters.tables}{where}{_order(order_by, descending)}"  # noqa: S608 - all ours
    if limit is None:
        return sql, filters.params
    if limit < 0:
        raise ConfigError("limit", "rows", f"{limit} is negative")
    return f"{sql} LIMIT ?", [*filters.params, min(limit, _MOST)]


def _order(order_by: str | None, descending: bool) -> str:  # noqa: FBT001
    if order_by is None:
        return ""
    if order_by not in ORDERS:
        raise ConfigError("order by", repr(order_by), "no such order", f"one of {', '.join(ORDERS)}")
    columns = [_BY.get(order_by, order_by)] + (["last_use"] if order_by == "uses" else [])
    return " ORDER BY " + ", ".join(f"r.{column}{' DESC' if descending else ''}" for column in columns)


def rows(connection: sqlite3.Connection, sql: str, params: Sequence[Any]) -> Iterator[Row]:
    """The answer, some rows at a time."""
    cursor = connection.execute(sql, params)
    while chunk := cursor.fetchmany(_CHUNK):
        for values in chunk:
            yield Row(*values)
