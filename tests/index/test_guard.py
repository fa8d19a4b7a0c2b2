"""SQL of people: it reads, it ends, it does nothing else."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import pytest

from cubinet.errors import ConfigError, StoreError
from cubinet.store.index import Index

from .shelf import Shelf

ATTACKS = [
    "DELETE FROM raw_records",
    "UPDATE raw_records SET name = 'x'",
    "INSERT INTO raw_pins VALUES ('a', 'b')",
    "REPLACE INTO raw_pins VALUES ('a', 'b')",
    "DROP VIEW records",
    "DROP TABLE raw_records",
    "CREATE TABLE evil (x)",
    "CREATE TEMP TABLE evil (x)",
    "CREATE VIEW evil AS SELECT 1",
    "CREATE TRIGGER evil AFTER INSERT ON raw_records BEGIN SELECT 1; END",
    "CREATE VIRTUAL TABLE evil USING fts5(x)",
    "ALTER TABLE raw_records RENAME TO evil",
    "ATTACH '/tmp/evil' AS evil",
    "ATTACH ':memory:' AS evil",
    "DETACH main",
    "VACUUM",
    "VACUUM INTO '/tmp/evil'",
    "REINDEX",
    "ANALYZE",
    "BEGIN",
    "BEGIN EXCLUSIVE",
    "COMMIT",
    "SAVEPOINT evil",
    "PRAGMA journal_mode = DELETE",
    "PRAGMA query_only = OFF",
    "PRAGMA writable_schema = ON",
    "PRAGMA trusted_schema = ON",
    "PRAGMA user_version = 99",
    "PRAGMA user_version",
    "PRAGMA mmap_size = 1",
    "PRAGMA temp_store_directory = '/tmp'",
    "PRAGMA wal_checkpoint(TRUNCATE)",
    "PRAGMA optimize",
    "SELECT load_extension('/tmp/evil.so')",
    "SELECT fts3_tokenizer('simple')",
    "SELECT writefile('/tmp/evil', 'x')",
    "SELECT readfile('/etc/passwd')",
    "SELECT * FROM pragma_wal_checkpoint",
    "SELECT * FROM pragma_user_version",
    "WITH x AS (SELECT 1) DELETE FROM raw_records",
    "EXPLAIN DELETE FROM raw_records",
    "SELECT 1; DELETE FROM raw_records",
    "SELECT randomblob(1000000000)",
    "SELECT nothing FROM nowhere",
    "not sql at all",
    "SELECT '\0'",
    "SELECT 1 " + "+ 1" * 2_000_000,
]


@pytest.fixture
def index(shelf: Shelf) -> Index:
    shelf.fill()
    return shelf.index()


@pytest.mark.parametrize("text", ATTACKS, ids=lambda text: text[:50].replace("\0", "NUL"))
def test_only_reading_is_allowed(index: Index, shelf: Shelf, text: str) -> None:
    index.stats()
    before = {path: path.read_bytes() for path in shelf.folder.glob("index.sqlite3")}
    with pytest.raises(ConfigError, match="cannot run query"):
        list(index.sql(text))
    assert {path: path.read_bytes() for path in shelf.folder.glob("index.sqlite3")} == before
    assert not Path("/tmp/evil").exists()
    assert index.stats()["records"] == 4


@pytest.mark.parametrize(
    "text",
    [
        "SELECT name FROM records WHERE name LIKE 'g%'",
        "SELECT name FROM pragma_table_info('records')",
        "SELECT name FROM pragma_table_list",
        "SELECT r.name, e.value FROM records AS r, json_each(r.entries) AS e",
        "SELECT printf('%.*c', 5000000, 'x') IS NULL AS none",
        "SELECT json_extract(entries, '$[0]') AS name FROM records",
        "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n WHERE x < 5) SELECT x AS name FROM n",
        "SELECT name, row_number() OVER (ORDER BY size) AS row FROM records",
        "EXPLAIN QUERY PLAN SELECT * FROM records",
        "VALUES (1), (2)",
    ],
)
def test_all_kinds_of_reading_are_allowed(index: Index, text: str) -> None:
    assert list(index.sql(text))


def test_parameters_come_by_position_and_by_name(index: Index) -> None:
    assert list(index.sql("SELECT name FROM records WHERE name = ?", ["gemm"])) == [{"name": "gemm"}]
    assert list(index.sql("SELECT name FROM records WHERE name = :n", {"n": "gemm"})) == [{"name": "gemm"}]


def test_wrong_parameters_are_an_error_not_a_traceback(index: Index) -> None:
    for params in ([], ["a", "b"], [10**40], [object()], ["\ud800"]):
        with pytest.raises(ConfigError):
            list(index.sql("SELECT name FROM records WHERE name = ?", params))


ENDLESS = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT {} FROM n"


def test_an_endless_query_ends_with_its_time(index: Index) -> None:
    with pytest.raises(StoreError, match=r"longer than 0\.1 s"):
        list(index.sql(ENDLESS.format("count(*)"), timeout=0.1))
    with pytest.raises(StoreError, match=r"longer than 0\.1 s"):
        for _row in index.sql(ENDLESS.format("x"), timeout=0.1):
            pass


def test_rows_come_one_by_one_in_constant_memory(index: Index) -> None:
    rows = index.sql(ENDLESS.format("x, hex(randomblob(1000)) AS junk"), timeout=30)
    next(rows)
    tracemalloc.start()
    for _ in range(2000):
        next(rows)
    assert tracemalloc.get_traced_memory()[1] < 500_000
    tracemalloc.stop()
    rows.close()  # type: ignore[attr-defined]
