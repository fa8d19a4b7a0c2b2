"""The reports: what people would otherwise write SQL for."""

from __future__ import annotations

import itertools
import sqlite3
from collections.abc import Callable, Iterator
from typing import Any

__all__ = ["REPORTS", "SUMMARY", "TOPS"]

SUMMARY = "SELECT * FROM summary"

TOPS = {
    "largest": ("size", True),
    "slowest": ("seconds", True),
    "most-used": ("uses", True),
    "least-used": ("uses", False),
}
"""Kind → (order, descending)."""

_SEVERAL = "SELECT id FROM raw_variants WHERE toolchains > 1"
# The newest record of each toolchain; toolchains in the order in which they first compiled this variant.
_VERSIONS = """
SELECT r.fingerprint, r.family, r.name, r.target, r.kind, t.name || ' ' || t.version, r.registers, r.spills, r.size,
  r.micros / 1000000.0, r.kernels FROM (
    SELECT toolchain, min(coalesce(created_at, 0)) AS first FROM raw_records WHERE variant = ?1 GROUP BY toolchain) AS n
  JOIN raw_records AS r ON r.id = (SELECT id FROM raw_records WHERE variant = ?1 AND toolchain = n.toolchain
    ORDER BY created_at DESC LIMIT 1)
  JOIN raw_toolchains AS t ON t.id = r.toolchain ORDER BY n.first, t.version, t.identity"""
_COMPARED = (("registers", 6), ("spills", 7), ("size", 8), ("seconds", 9))

_DUPLICATES = """
SELECT b.digest, b.size, b.mains AS records, (b.mains - 1) * b.size AS saved,
  (SELECT group_concat(fingerprint) FROM (SELECT fingerprint FROM raw_records WHERE main = b.id LIMIT 5))
    AS fingerprints,
  (SELECT group_concat(name) FROM (SELECT DISTINCT name FROM raw_records WHERE main = b.id LIMIT 5)) AS names
FROM raw_blobs AS b WHERE b.mains > 1 ORDER BY (b.mains - 1) * b.size DESC LIMIT ?"""

_MISSES = """
SELECT reason, layer, sum(count) AS count, sum(micros) / 1000000.0 AS seconds, min(day) AS first, max(day) AS last
FROM raw_events WHERE what = 'miss' GROUP BY reason, layer ORDER BY 3 DESC LIMIT ?"""

_COST = """
SELECT n.family, sum(n.records) AS records, sum(n.micros) / 1000000.0 AS seconds, sum(n.uses) AS uses,
  sum(n.saved) / 1000000.0 AS saved FROM raw_totals AS n GROUP BY n.family
  ORDER BY sum(n.saved) DESC, n.family LIMIT ?"""


def _dicts(connection: sqlite3.Connection, sql: str, limit: int | None) -> Iterator[dict[str, Any]]:
    cursor = connection.execute(sql, (-1 if limit is None else limit,))
    names = [column[0] for column in cursor.description]
    for row in cursor:
        yield dict(zip(names, row, strict=True))


def _toolchains(connection: sqlite3.Connection, limit: int | None) -> Iterator[dict[str, Any]]:
    """The same variant under one compiler and under the next: what it became, `changed` says in what."""
    given = 0
    for (variant,) in connection.execute(_SEVERAL):
        versions = connection.execute(_VERSIONS, (variant,)).fetchall()
        for a, b in itertools.pairwise(versions):
            if limit is not None and given >= limit:
                return
            given += 1
            row = {"family": a[1], "name": a[2], "target": a[3], "kind": a[4], "from": a[5], "to": b[5]}
            for name, at in _COMPARED:
                row |= {name: a[at], f"{name}_to": b[at]}
            changed = [name for name, at in _COMPARED[:3] if a[at] != b[at]]
            yield row | {"changed": ",".join(changed), "fingerprint": a[0], "fingerprint_to": b[0]}


REPORTS: dict[str, Callable[[sqlite3.Connection, int | None], Iterator[dict[str, Any]]]] = {
    "toolchains": _toolchains,
    "duplicates": lambda connection, limit: _dicts(connection, _DUPLICATES, limit),
    "misses": lambda connection, limit: _dicts(connection, _MISSES, limit),
    "cost": lambda connection, limit: _dicts(connection, _COST, limit),
}
