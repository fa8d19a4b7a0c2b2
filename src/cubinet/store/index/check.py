"""An index against one made anew from the same record files."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator

from cubinet.store.index.views import VIEWS

__all__ = ["compare"]

_COMPARED = (
    "records",
    "kernels",
    "record_blobs",
    "labels",
    "observed",
    "blobs",
    "toolchains",
    "variants",
    "totals",
    "summary",
)
_SHOWN = 20


def compare(connection: sqlite3.Connection, fresh: str) -> list[str]:
    """One sentence for each thing that differs, up to some of each kind. Raises `sqlite3.Error`."""
    problems = [
        f"the file is damaged: {text}" for (text,) in connection.execute("PRAGMA quick_check(20)") if text != "ok"
    ]
    connection.execute("ATTACH ? AS fresh", (fresh,))
    ours = dict(connection.execute("SELECT name, sql FROM main.sqlite_schema WHERE name NOT LIKE 'sqlite%'"))
    right = dict(connection.execute("SELECT name, sql FROM fresh.sqlite_schema WHERE name NOT LIKE 'sqlite%'"))
    names = sorted(ours.keys() | right.keys())
    problems += [f"the schema of {name} is not the right one" for name in names if ours.get(name) != right.get(name)]
    for view in (name for name in _COMPARED if name in VIEWS):
        try:
            problems += _rows(connection, view)
        except sqlite3.DatabaseError as exc:
            problems.append(f"{view} cannot be read: {exc}")
    return problems


def _rows(connection: sqlite3.Connection, view: str) -> Iterator[str]:
    for these, those, what in (("main", "fresh", "is wrong or has no record file"), ("fresh", "main", "is missing")):
        sql = f"SELECT * FROM {these}.{view} EXCEPT SELECT * FROM {those}.{view} LIMIT {_SHOWN}"  # noqa: S608 - our own names
        for row in connection.execute(sql):
            yield f"{view}: {', '.join(map(str, row[:6]))} {what}"
