"""What our own pages show, asked from one connection to the snapshot. Nothing here knows Datasette."""

from __future__ import annotations

import itertools
import re
import sqlite3
from collections.abc import Iterator, Sequence
from typing import Any

from cubinet.store.index.reports import REPORTS
from cubinet.web.plots import Histogram, histograms

__all__ = ["home", "kernel", "plots", "record", "report", "search"]

_SOME = 50
_GROUPS = ("family", "target", "toolchain")
_KERNEL = "name, symbol, registers, shared, local, constant, parameters, spills"
_HEX = re.compile(r"[0-9a-f]{4,64}")

Rows = list[dict[str, Any]]


def _rows(connection: sqlite3.Connection, sql: str, params: Sequence[Any] = ()) -> Rows:
    cursor = connection.execute(sql, params)
    names = [column[0] for column in cursor.description]
    return [dict(zip(names, row, strict=True)) for row in cursor]


def home(connection: sqlite3.Connection) -> dict[str, Any]:
    """Totals of the store, and by family, target and compiler."""
    groups = {
        by: _rows(
            connection,
            f"SELECT {by}, sum(records) AS records, sum(size) AS size, sum(seconds) AS seconds, "  # noqa: S608 - ours
            "sum(spilling) AS spilling, "
            f"sum(uses) AS uses, sum(saved) AS saved FROM totals GROUP BY {by} ORDER BY 2 DESC LIMIT 12",
        )
        for by in _GROUPS
    }
    return {"summary": _rows(connection, "SELECT * FROM summary")[0], "groups": groups}


def plots(connection: sqlite3.Connection) -> list[Histogram]:
    """Histograms over all records."""
    return histograms(connection.execute("SELECT seconds, size FROM records"))


def record(connection: sqlite3.Connection, fingerprint: str) -> dict[str, Any] | None:
    """All that is known about a record; `None` if there is none."""
    found = _rows(connection, "SELECT * FROM records WHERE fingerprint = ?", [fingerprint])
    if not found:
        return None

    def about(what: str, order: str) -> Rows:
        sql = f"SELECT {what} WHERE fingerprint = ? ORDER BY {order} LIMIT 1000"
        return _rows(connection, sql, [fingerprint])

    return {
        "facts": found[0],
        "kernels": about(f"position, {_KERNEL} FROM kernels", "position"),
        "blobs": about("role, digest, size FROM record_blobs", "role"),
        "labels": about("name, value FROM labels", "name"),
        "observed": about("label, read, present, absent, digest FROM observed", "label"),
        "pins": about("tag FROM pins", "tag"),
        "changing": about("digest, count, first, last FROM nondeterminism", "first"),
        "others": _rows(
            connection,
            "SELECT fingerprint, toolchain, created, registers, spills, size, seconds, uses FROM records "
            "WHERE family = ? AND name = ? AND target = ? AND variant = ? AND fingerprint <> ? LIMIT 50",
            [*(found[0][name] for name in ("family", "name", "target", "variant")), fingerprint],
        ),
    }


def kernel(connection: sqlite3.Connection, fingerprint: str, position: int) -> dict[str, Any] | None:
    """A kernel of a record, and the kernels of the same name in others."""
    found = _rows(
        connection,
        f"SELECT position, {_KERNEL} FROM kernels WHERE fingerprint = ? AND position = ?",  # noqa: S608 - ours
        [fingerprint, position],
    )
    if not found:
        return None
    others = _rows(
        connection,
        "SELECT k.fingerprint, k.position, r.family, r.target, r.toolchain, k.registers, k.shared, k.local, k.spills "
        "FROM kernels AS k JOIN records AS r USING (fingerprint) "
        "WHERE substr(k.name, 1, 64) = substr(?1, 1, 64) AND k.name = ?1 "
        "AND NOT (k.fingerprint = ?2 AND k.position = ?3) LIMIT 100",
        [found[0]["name"], fingerprint, position],
    )
    facts = _rows(
        connection, "SELECT family, name, target, toolchain FROM records WHERE fingerprint = ?", [fingerprint]
    )
    return {"kernel": found[0], "record": facts[0], "others": others, "fingerprint": fingerprint}


def search(connection: sqlite3.Connection, text: str) -> dict[str, Any]:
    """Records by the first digits of a fingerprint; families, records, kernels by a part of a name or a pattern."""
    facts = "SELECT fingerprint, family, name, target, toolchain, size, seconds, registers, spills FROM records WHERE"
    fits = "{0} GLOB ?1" if set(text) & set("*?[") else "instr(lower({0}), lower(?1))"
    found: dict[str, Any] = {"text": text, "some": _SOME, "records": [], "families": [], "kernels": []}
    if not text:
        return found
    digits = text.lower().removeprefix("blake3:")
    if _HEX.fullmatch(digits):
        sql = f"{facts} fingerprint >= ? AND fingerprint < ? LIMIT {_SOME}"
        found["records"] = _rows(connection, sql, [digits, digits + "g"])
    found["records"] += _rows(connection, f"{facts} {fits.format('name')} LIMIT {_SOME}", [text])
    found["families"] = _rows(
        connection,
        "SELECT family, sum(records) AS records FROM totals "  # noqa: S608 - ours
        f"WHERE {fits.format('family')} GROUP BY family LIMIT {_SOME}",
        [text],
    )
    found["kernels"] = _rows(
        connection,
        f"SELECT fingerprint, position, {_KERNEL} FROM kernels "  # noqa: S608 - ours
        f"WHERE {fits.format('name')} OR {fits.format('symbol')} LIMIT {_SOME}",
        [text],
    )
    return found


def report(connection: sqlite3.Connection, name: str, limit: int) -> tuple[Rows, bool]:
    """At most `limit` rows of a report, and whether there are more."""
    rows: Iterator[dict[str, Any]] = REPORTS[name](connection, limit + 1)
    given = list(itertools.islice(rows, limit + 1))
    return given[:limit], len(given) > limit
