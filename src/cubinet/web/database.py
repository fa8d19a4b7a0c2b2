"""Datasette's view of the snapshot. Imports Datasette: only `site` imports this module."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import threading
from collections.abc import Callable
from typing import Any, TypeVar

from datasette.database import Database
from datasette.utils import sqlite_timelimit

from cubinet.store.index.views import VIEWS
from cubinet.web.snapshot import Snapshot

__all__ = ["Live"]

T = TypeVar("T")

_ALLOWED = {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_RECURSIVE}
_PRAGMAS = {
    "schema_version", "table_info", "table_xinfo", "foreign_key_list", "index_list", "index_info", "index_xinfo",
    "function_list", "compile_options",
}  # fmt: skip
_FORBIDDEN = {"load_extension", "fts3_tokenizer", "readfile", "writefile", "edit"}
_OTHERS = {"sqlite_master", "sqlite_schema", "json_each", "json_tree"}
_COMPUTED = {"seconds", "saved"}
_LONGEST = 1 << 20


def _authorize(action: int, first: str | None, second: str | None, _db: str | None, inner: str | None) -> int:
    """Visitors read the views; the tables behind them only through these."""
    allowed = action in _ALLOWED
    if action == sqlite3.SQLITE_READ:
        allowed = (
            bool(inner) or not second or first in VIEWS or first in _OTHERS or not (first or "").startswith("raw_")
        )
    elif action == sqlite3.SQLITE_FUNCTION:
        allowed = (second or "").lower() not in _FORBIDDEN
    elif action == sqlite3.SQLITE_PRAGMA:
        allowed = (first or "").lower() in _PRAGMAS
    return sqlite3.SQLITE_OK if allowed else sqlite3.SQLITE_DENY


def _give_types(connection: sqlite3.Connection) -> None:
    """Datasette compares with texts. A column that is computed has no type, so no number of it would ever match one."""
    for view in VIEWS:
        names = [row[1] for row in connection.execute(f"PRAGMA main.table_xinfo({view})")]
        if not _COMPUTED.isdisjoint(names):
            columns = ", ".join(f"CAST({n} AS REAL) AS {n}" if n in _COMPUTED else n for n in names)
            connection.execute(f"CREATE TEMP VIEW {view} AS SELECT {columns} FROM main.{view}")  # noqa: S608 - ours


class Live(Database):  # type: ignore[misc]  # Datasette has no types
    """The newest copy of the index: views only, and nothing that writes. Each thread has two connections of its own."""

    def __init__(self, ds: Any, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        super().__init__(ds, path=snapshot.path, is_mutable=True)
        self._mine = threading.local()
        self._open_ones: set[sqlite3.Connection] = set()

    @property
    def path(self) -> str:
        """The newest copy; each has another name."""
        return self.snapshot.path

    @path.setter
    def path(self, _path: str) -> None:
        pass

    @property
    def size(self) -> int:
        """Bytes of the newest copy."""
        try:
            return os.stat(self.path).st_size
        except FileNotFoundError:  # the next one took its place just now
            return 0

    def _connection(self, *, guarded: bool) -> sqlite3.Connection:
        have: dict[bool, tuple[int, sqlite3.Connection]] = self._mine.__dict__.setdefault("have", {})
        generation, connection = have.get(guarded, (0, None))
        if connection is None or generation != self.snapshot.generation:
            if connection is not None:
                self._open_ones.discard(connection)
                connection.close()
            have[guarded] = self.snapshot.generation, self._open(guarded=guarded)
        return have[guarded][1]

    def _open(self, *, guarded: bool) -> sqlite3.Connection:
        for _ in range(10):
            try:
                # immutable: this copy never changes, the next one has another name
                connection = sqlite3.connect(f"file:{self.snapshot.path}?mode=ro&immutable=1", uri=True,
                                             check_same_thread=False)  # fmt: skip
                break
            except sqlite3.OperationalError:  # the next copy took its place
                continue
        else:
            raise sqlite3.OperationalError("the copy of the index is gone")
        connection.execute("PRAGMA trusted_schema = OFF")
        _give_types(connection)
        connection.execute("PRAGMA query_only = ON")
        self.ds._prepare_connection(connection, self.name)  # noqa: SLF001 - as Datasette's own `execute_fn`
        if guarded:
            connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _LONGEST)
            connection.execute(
                "SELECT 1 FROM json_each('[]'), json_tree('[]')"
            )  # made now: making them looks like a write
            connection.set_authorizer(_authorize)
        self._open_ones.add(connection)
        return connection

    def close(self) -> None:
        """Close all connections; nobody uses them any more."""
        while self._open_ones:
            self._open_ones.pop().close()

    async def execute_fn(self, fn: Callable[[sqlite3.Connection], T]) -> T:
        """Run something of Datasette's, or of a visitor's, in a thread."""
        return await self._run(lambda: fn(self._connection(guarded=True)))

    async def ask(self, fn: Callable[[sqlite3.Connection], T], seconds: float = 3.0) -> T:
        """Run questions of our own pages in a thread; after `seconds` `sqlite3.OperationalError` comes of it."""

        def run() -> T:
            connection = self._connection(guarded=False)
            with sqlite_timelimit(connection, seconds * 1000):
                return fn(connection)

        return await self._run(run)

    async def _run(self, do: Callable[[], T]) -> T:
        try:
            return await asyncio.get_running_loop().run_in_executor(self.ds.executor, do)
        except sqlite3.DatabaseError as exc:
            if getattr(exc, "sqlite_errorcode", 0) & 0xFF in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
                self.snapshot.distrust()
            raise

    async def table_names(self) -> list[str]:
        """Views are all there is."""
        return []

    async def hidden_table_names(self) -> list[str]:
        """The same."""
        return []

    async def table_exists(self, table: str) -> bool:  # noqa: ARG002 - the name is Datasette's
        """The same."""
        return False

    async def attached_databases(self) -> list[Any]:
        """None, ever."""
        return []
