"""SQL of people over the index: it reads, it ends, and it does nothing else."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from cubinet.errors import ConfigError, StoreError

__all__ = ["guarded"]

_ALLOWED = {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_RECURSIVE}
_PRAGMAS = {
    "foreign_key_list", "function_list", "index_info", "index_list", "index_xinfo", "table_info", "table_list",
    "table_xinfo",
}  # fmt: skip
_FORBIDDEN = {"load_extension", "fts3_tokenizer", "readfile", "writefile", "edit", "zipfile"}
_EPONYMOUS = ("pragma_table_info", "pragma_table_xinfo", "pragma_table_list", "pragma_index_list", "pragma_index_info",
              "json_each", "json_tree")  # fmt: skip
_STEPS = 2000
_LONGEST_SQL = _LONGEST_VALUE = 1 << 20


def _authorize(action: int, first: str | None, second: str | None, _db: str | None, _inner: str | None) -> int:
    if action in _ALLOWED:
        return sqlite3.SQLITE_OK
    if action == sqlite3.SQLITE_FUNCTION and (second or "").lower() not in _FORBIDDEN:
        return sqlite3.SQLITE_OK
    if action == sqlite3.SQLITE_PRAGMA and (first or "").lower() in _PRAGMAS:
        return sqlite3.SQLITE_OK
    return sqlite3.SQLITE_DENY


def guarded(
    connection: sqlite3.Connection, text: str, params: Sequence[Any] | Mapping[str, Any], timeout: float
) -> Iterator[dict[str, Any]]:
    """Rows of a query. The time limit counts the database's time, not the reader's.

    Raises `ConfigError` for what is not allowed or no SQL, `StoreError` when the time is over.
    """
    clock = _Clock(timeout)
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _LONGEST_VALUE)  # one step with more could outlast the time limit
    connection.setlimit(sqlite3.SQLITE_LIMIT_SQL_LENGTH, _LONGEST_SQL)
    # Tables that come into being when they are first named: that looks like a write to the authorizer.
    connection.execute(f"SELECT 1 FROM {', '.join(f'{name}(0)' for name in _EPONYMOUS)} LIMIT 0")  # noqa: S608 - ours
    connection.set_progress_handler(clock.over, _STEPS)
    connection.set_authorizer(_authorize)
    try:
        with clock:
            cursor = connection.execute(text, params)
        names = [column[0] for column in cursor.description or ()]
        while True:
            with clock:  # one at a time: the first row must not wait for others
                row = cursor.fetchone()
            if row is None:
                return
            yield dict(zip(names, row, strict=True))
    except sqlite3.Error as exc:
        if exc.args and str(exc.args[0]) == "interrupted":
            raise StoreError(
                "run query", "", f"it took longer than {timeout:g} s", "narrow it, or give it more time"
            ) from exc
        code = getattr(exc, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
        if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_BUSY):
            raise
        remedy = "only reading is allowed" if code == sqlite3.SQLITE_AUTH else "see docs/reference/index-schema.md"
        raise ConfigError("run query", "", str(exc), remedy) from exc
    except (
        OverflowError,
        ValueError,
        UnicodeEncodeError,
        sqlite3.Warning,
    ) as exc:  # several statements, NUL, huge numbers
        raise ConfigError("run query", "", str(exc)) from exc


class _Clock:
    """Time spent inside the database."""

    def __init__(self, limit: float) -> None:
        self.left, self.since = limit, 0.0

    def over(self) -> bool:
        return time.monotonic() - self.since > self.left

    def __enter__(self) -> None:
        self.since = time.monotonic()

    def __exit__(self, *_: object) -> None:
        self.left -= time.monotonic() - self.since
