"""`query`, `stats`, `top`, `diff`, `index` and `report` over a real store."""

from __future__ import annotations

import contextlib
import csv
import json
import sqlite3
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from cubinet.cli.query import diff, index_file, query, stats, top
from cubinet.cli.report import report
from cubinet.errors import ConfigError, StoreError
from cubinet.fingerprint import digest_of
from cubinet.model import Kernel, Toolchain
from cubinet.store import Store
from cubinet.store.index import Index, IndexWriter
from cubinet.store.local import LocalLayer
from cubinet.testing.faults import NoSyncFs
from cubinet.testing.samples import Build, build


class Asker:
    """Runs commands of this process over one store folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environ = {"CUBINET_DIR": str(folder), "XDG_CONFIG_HOME": str(folder.parent / "config")}
        self.layer = LocalLayer(str(folder), fs=NoSyncFs(), durable=False)
        self.writer = IndexWriter(str(folder), lambda record: self.layer.read_named(record.observations), interval=3600)

    def put(self, text: str, **fields: Any) -> Build:
        made = build(text, **fields)
        self.layer.publish(made.record, made.blobs)
        self.writer.note_publish(made.record)
        return made

    def __call__(self, command: click.Command, *arguments: str, status: int = 0) -> str:
        result = CliRunner().invoke(command, list(arguments), env=self.environ, standalone_mode=False)
        if result.exception is not None:
            raise result.exception
        assert (result.return_value or 0) == status, result.output
        return result.stdout

    def json(self, command: click.Command, *arguments: str) -> Any:
        return json.loads(self(command, *arguments, "--json"))


def _index(store: Store) -> Index:
    layer = store._local
    return Index(
        store.folder,
        store.records,
        find=layer.find,
        observations=lambda record: layer.read_named(record.observations),
    )


@pytest.fixture
def ask(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Asker:
    """A store with three builds."""
    if not hasattr(Store, "index"):
        monkeypatch.setattr(Store, "index", property(_index), raising=False)
    asker = Asker(tmp_path / "store")
    parts, tools = (("source", "s" * 32),), Toolchain("nvcc", "13.4", digest_of(b"13.4"))
    asker.put("gemm", family="blas", parts=parts, seconds=2.0)
    asker.put(
        "gemm", family="blas", parts=parts, toolchain=tools, action="other", kernels=(Kernel("gemm", "gemm", 40),)
    )
    used = asker.put("softmax", data=b"object of gemm", created="not a date")
    asker.writer.note_use(used.fingerprint)
    asker.writer.note_event("local", "miss", "header\x1b[31m changed")
    asker.writer.flush()
    return asker


def test_query_prints_a_table_that_filters_and_orders(ask: Asker) -> None:
    lines = ask(query, "--family", "blas", "--order", "seconds", "--descending").splitlines()
    assert lines[0].split()[:4] == ["fingerprint", "family", "name", "target"]
    assert [line.split()[2] for line in lines[1:]] == ["gemm", "gemm"]
    assert "2.00" in lines[1]


def test_query_speaks_json_csv_and_lines(ask: Asker) -> None:
    rows = ask.json(query)
    assert {row["name"] for row in rows} == {"gemm", "softmax"}
    assert len(rows[0]["fingerprint"]) == 64
    assert ask.json(query, "--name", "none") == []
    lines = [json.loads(line) for line in ask(query, "--nl").splitlines()]
    assert lines == rows
    table = list(csv.DictReader(ask(query, "--csv").splitlines()))
    assert [row["fingerprint"] for row in table] == [row["fingerprint"] for row in rows]
    assert ask(query, "--nl", "--name", "none") == ""


def test_every_filter_reaches_the_index(ask: Asker) -> None:
    for arguments, number in (
        (("--name", "gemm"), 2),
        (("--arch", "sm_90a"), 3),
        (("--arch", "sm_80"), 0),
        (("--kernel", "gemm*"), 2),
        (("--toolchain", "nvcc"), 1),
        (("--label", "lib"), 3),
        (("--min-spills", "1"), 0),
        (("--used-since", "2020-01-01"), 1),
        (("--created-since", "2020-01-01"), 2),
        (("--limit", "1"), 1),
    ):
        assert len(ask.json(query, *arguments)) == number, arguments


def test_query_takes_sql_that_reads_and_no_other(ask: Asker) -> None:
    assert ask.json(query, "--sql", "SELECT count(*) AS n, x'00ff' AS b FROM records") == [{"n": 3, "b": "00ff"}]
    assert "3" in ask(query, "--sql", "SELECT count(*) FROM records")
    with pytest.raises(ConfigError, match="cannot run query"):
        ask(query, "--sql", "DELETE FROM raw_records")
    with pytest.raises(ConfigError, match="it stands alone"):
        ask(query, "--sql", "SELECT 1", "--family", "blas")
    endless = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x FROM n) SELECT count(*) FROM n"
    with pytest.raises(StoreError, match=r"longer than 0\.05 s"):
        ask(query, "--sql", endless, "--seconds", "0.05")


def test_wrong_usage_is_refused(ask: Asker) -> None:
    for command, arguments in (
        (query, ["--order", "colour"]),
        (query, ["--limit", "-1"]),
        (top, ["best"]),
        (report, ["weather"]),
        (index_file, ["burn"]),
    ):
        with pytest.raises(click.UsageError):
            ask(command, *arguments)
    with pytest.raises(ConfigError, match="not a date"):
        ask(query, "--used-since", "yesterday")


def test_stats_tells_totals(ask: Asker) -> None:
    found = ask.json(stats)
    assert (found["records"], found["uses"], found["saved"]) == (3, 1, 1.5)
    assert ask(stats).split()[:2] == ["records", "3"]


def test_top_lists_what_was_asked_for(ask: Asker) -> None:
    assert [row["name"] for row in ask.json(top, "most-used", "--limit", "1")] == ["softmax"]
    assert [row["seconds"] for row in ask.json(top, "slowest", "--limit", "1")] == [2.0]
    assert len(ask(top, "least-used").splitlines()) == 4


def test_diff_names_what_differs(ask: Asker) -> None:
    a, b = (row["fingerprint"] for row in ask.json(query, "--family", "blas", "--order", "seconds", "--descending"))
    found = {(d["what"], d["name"]): (d["a"], d["b"]) for d in ask.json(diff, a[:16], b)}
    assert found["fact", "toolchain"] == ("fake 1.0", "nvcc 13.4")
    assert found["kernel", "gemm: registers"] == (32, 40)
    assert "gemm: registers" in ask(diff, a, b)
    assert ask(diff, a, a) == ""
    with pytest.raises(ConfigError):
        ask(diff, a, "0000")


def test_reports_print_tables_and_json(ask: Asker) -> None:
    (row,) = ask.json(report, "toolchains")
    assert (row["name"], row["from"], row["to"], row["changed"]) == ("gemm", "fake 1.0", "nvcc 13.4", "registers")
    (row,) = ask.json(report, "duplicates")
    assert row["records"] == 3
    assert [row["family"] for row in ask.json(report, "cost")] == ["samples", "blas"]
    for name in ("toolchains", "duplicates", "misses", "cost"):
        assert len(ask(report, name).splitlines()) >= 2


def test_a_terminal_gets_no_escape_sequences_from_names(ask: Asker) -> None:
    assert ask.json(report, "misses")[0]["reason"] == "header\x1b[31m changed"
    assert "\x1b" not in ask(report, "misses")


def test_the_index_can_be_checked_and_rebuilt(ask: Asker) -> None:
    assert ask(index_file, "check") == "3 records, no problem\n"
    assert ask(index_file, "rebuild") == "index of 3 records\n"
    with contextlib.closing(sqlite3.connect(ask.folder / "index.sqlite3")) as connection:
        connection.execute("UPDATE raw_records SET host = 'elsewhere'")
        connection.commit()
    assert "elsewhere" not in ask(query)
    assert "records: " in ask(index_file, "check", status=1)
    ask(index_file, "rebuild")
    assert ask(index_file, "check") == "3 records, no problem\n"


def test_a_newer_index_is_answered_beside(ask: Asker) -> None:
    with contextlib.closing(sqlite3.connect(ask.folder / "index.sqlite3")) as connection:
        connection.execute("PRAGMA user_version = 99")
    assert len(ask.json(query)) == 3


def test_a_long_answer_keeps_its_columns(ask: Asker) -> None:
    numbers = "WITH RECURSIVE n(x) AS (SELECT 1000 UNION ALL SELECT x + 1 FROM n WHERE x < 2200)"
    lines = ask(query, "--sql", f"{numbers} SELECT x, 'a' || x AS name FROM n").splitlines()
    assert len(lines) == 1202
    assert lines[0].split() == ["x", "name"]
    assert {len(line) for line in lines[1:]} == {11}
