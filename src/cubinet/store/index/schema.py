"""The schema of the index file and how an older one becomes the current one, by sqlite-utils' migrations.

`user_version` is the number of migrations that were applied, `application_id` says that the file is ours.
"""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING

from cubinet.errors import ConfigError
from cubinet.store.index.tables import INDICES, RECOUNT, TABLES, TRIGGERS
from cubinet.store.index.views import VIEWS

if TYPE_CHECKING:
    from sqlite_utils.db import Database
    from sqlite_utils.migrations import Migrations

__all__ = ["APPLICATION_ID", "SCHEMA", "migrate"]

SCHEMA = 2
APPLICATION_ID = 0x43554249  # "CUBI"


def _run(db: Database, script: str) -> None:
    # `executescript` would commit, and a migration is one transaction.
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            db.execute(statement)
            statement = ""


def _migrations() -> Migrations:
    try:
        from sqlite_utils.migrations import Migrations
    except ImportError as exc:
        raise ConfigError("use index", "", f"{exc.name} is not installed", "pip install 'cubinet[index]'") from exc
    steps = Migrations("cubinet-index")

    @steps()
    def tables(db: Database) -> None:
        _run(db, TABLES)
        db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        db.execute("PRAGMA user_version = 1")

    @steps()
    def answers(db: Database) -> None:
        _run(db, INDICES)
        _run(db, RECOUNT)
        _run(db, TRIGGERS)
        for name, query in VIEWS.items():
            db.execute(f"CREATE VIEW {name} AS {query}")
        db.execute("PRAGMA user_version = 2")

    return steps


def migrate(connection: sqlite3.Connection, *, only_tables: bool = False) -> None:
    """Bring a file to the current schema; `only_tables`: without what makes loading slow.

    Raises `ConfigError` if sqlite-utils is not installed, and `sqlite3.Error`.
    """
    steps = _migrations()
    from sqlite_utils.db import Database

    steps.apply(Database(connection, execute_plugins=False), stop_before="answers" if only_tables else None)
