"""The views are what their page says, and the schema is one that heals and answers."""

from __future__ import annotations

import contextlib
import re
import sqlite3
from pathlib import Path

import pytest

from cubinet.store.index import Index
from cubinet.store.index.query import question
from cubinet.store.index.schema import APPLICATION_ID, SCHEMA, migrate
from cubinet.store.index.views import VIEWS, VIEWS_VERSION

from .shelf import Shelf

PAGE = Path(__file__).parents[2] / "docs/reference/index-schema.md"


def _documented() -> dict[str, list[list[str]]]:
    """View → rows of (column, unit, meaning)."""
    parts = re.split(r"^## `(\w+)`$", PAGE.read_text("utf-8"), flags=re.MULTILINE)
    found = {}
    for name, text in zip(parts[1::2], parts[2::2], strict=True):
        lines = [line for line in text.splitlines() if line.startswith("| `")]
        found[name] = [[cell.strip(" `") for cell in line.strip("|").split("|")] for line in lines]
    return found


@pytest.fixture
def filled(shelf: Shelf) -> Index:
    shelf.fill()
    return shelf.index()


def test_every_view_is_documented_and_every_documented_view_is_there(filled: Index) -> None:
    there = {row["name"] for row in filled.sql("SELECT name FROM sqlite_schema WHERE type = 'view'")}
    assert set(_documented()) == there == set(VIEWS)


@pytest.mark.parametrize("view", VIEWS)
def test_every_column_is_documented_in_its_order_with_a_meaning(filled: Index, view: str) -> None:
    there = [row["name"] for row in filled.sql("SELECT name FROM pragma_table_info(?)", [view])]
    rows = _documented()[view]
    assert sorted(row[0] for row in rows) == sorted(there)
    assert all(len(row) == 3 and row[2] for row in rows)


def test_the_version_of_the_views_is_told_and_documented(filled: Index) -> None:
    assert filled.stats()["views_version"] == VIEWS_VERSION
    assert f"now {VIEWS_VERSION}:" in PAGE.read_text("utf-8")


def test_a_new_file_says_whose_it_is_and_which_schema() -> None:
    with contextlib.closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        migrate(connection)
        assert connection.execute("PRAGMA user_version").fetchone() == (SCHEMA,)
        assert connection.execute("PRAGMA application_id").fetchone() == (APPLICATION_ID,)
        migrate(connection)
        assert connection.execute("PRAGMA user_version").fetchone() == (SCHEMA,)


@pytest.mark.parametrize(
    "filters",
    [
        {"family": "a"},
        {"family": "a*"},
        {"family": "a", "name": "b"},
        {"name": "a"},
        {"target": "sm_90a"},
        {"kernel": "gemm*"},
        {"label": "cutlass"},
        {"label": "team=a"},
        {"toolchain": "nvcc 13.0"},
        {"min_spills": 1},
        {"used_since": 1},
        {"created_since": 1},
        {"order_by": "size", "descending": True, "limit": 3},
        {"order_by": "created", "limit": 3},
        {"order_by": "seconds", "limit": 3},
        {"order_by": "registers", "limit": 3},
        {"order_by": "spills", "limit": 3},
        {"order_by": "uses", "limit": 3},
        {"order_by": "last_use", "limit": 3},
        {"family": "a", "order_by": "size", "limit": 3},
        {"family": "a", "order_by": "created", "limit": 3},
        {"family": "a", "order_by": "seconds", "limit": 3},
        {"family": "a", "order_by": "uses", "limit": 3},
        {"target": "sm_90a", "order_by": "created", "limit": 3},
    ],
    ids=str,
)
def test_a_documented_question_reads_an_index_and_sorts_nothing(filters: dict[str, object]) -> None:
    """By the plan for an empty file: what a full one does is measured in `benchmarks/bench_index.py`."""
    sql, params = question(**filters)  # type: ignore[arg-type]
    with contextlib.closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        migrate(connection)
        plan = [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {sql}", params)]
    assert "SCAN r" not in plan
    assert not any("TEMP B-TREE" in step for step in plan), plan
