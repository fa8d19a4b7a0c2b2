"""Filters, orders, top lists and differences."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from cubinet.errors import ConfigError
from cubinet.fingerprint import digest_of
from cubinet.model import Kernel, Observation, Record, Seen, Target, Toolchain
from cubinet.store.index import Difference, Index
from cubinet.testing.samples import build

from .shelf import EARLY, Shelf


def _tools(version: str) -> Toolchain:
    return Toolchain("nvcc", version, digest_of(version.encode()))


MANGLED = "_ZN4math6reduceIfLi32EEEvPT_" + "x" * 2000


@pytest.fixture
def index(shelf: Shelf) -> Index:
    shelf.put("gemm_a", family="blas", toolchain=_tools("13.0"), seconds=9.0, created="2026-03-01T00:00:00+00:00")
    shelf.put(
        "gemm_b",
        family="blas",
        toolchain=_tools("13.4"),
        labels=(("team", "x"),),
        kernels=(Kernel("gemm<float>", "_Z4gemmIfEvv", 128, 64, 8, 4, 4, 40), Kernel("gemm<half>", "_Z4gemmIhEvv", 32)),
    )
    used = shelf.put("softmax", family="nn[0]", target=Target("ascend", "dav-2201"), data=b"x" * 9000)
    shelf.put(
        "reduce",
        family="",
        observations=[
            Observation("cutlass:a.h", Seen.READ, digest_of(b"a")),
            Observation("cutlass:dir with blank/b.h", Seen.PRESENT),
            Observation("src:none.h", Seen.ABSENT),
        ],
        kernels=(Kernel("math::reduce<float, 32>(float*)", MANGLED, 64, spills=0),),
        local_only="line tables",
    )
    shelf.writer.note_use(used.fingerprint, EARLY)
    return shelf.index()


def names(index: Index, **filters: Any) -> set[str]:
    found = [row.name for row in index.query(**filters)]
    assert len(found) == len(set(found)), "a record came twice"
    return set(found)


ALL = {"gemm_a", "gemm_b", "softmax", "reduce"}


def _spelled(value: Any) -> str:
    text = " ".join(sorted(value)) if isinstance(value, set) else str(value)
    return text if len(text) < 60 else digest_of(text.encode()).hex[:8]


@pytest.mark.parametrize(
    ("filters", "found"),
    [
        ({}, ALL),
        ({"family": "blas"}, {"gemm_a", "gemm_b"}),
        ({"family": "b*"}, {"gemm_a", "gemm_b"}),
        ({"family": ""}, {"reduce"}),
        ({"family": "*"}, ALL),
        ({"family": "nn[[]0]"}, {"softmax"}),
        ({"name": "gemm_?"}, {"gemm_a", "gemm_b"}),
        ({"name": "gemm"}, set()),
        ({"family": "blas", "name": "gemm_b"}, {"gemm_b"}),
        ({"target": "sm_90a"}, ALL - {"softmax"}),
        ({"target": "cuda:sm_90a"}, ALL - {"softmax"}),
        ({"target": "sm_9"}, set()),
        ({"target": "ascend:*"}, {"softmax"}),
        ({"kernel": "gemm*"}, {"gemm_a", "gemm_b"}),
        ({"kernel": "gemm<*"}, {"gemm_b"}),
        ({"kernel": "_Z4gemmI*"}, {"gemm_b"}),
        ({"kernel": "*reduce*"}, {"reduce"}),
        ({"kernel": MANGLED}, {"reduce"}),
        ({"kernel": MANGLED[:-1] + "*"}, {"reduce"}),
        ({"kernel": MANGLED[:-1]}, set()),
        ({"kernel": "*"}, ALL),
        ({"kernel": "gemm*", "family": "blas", "order_by": "size"}, {"gemm_a", "gemm_b"}),
        ({"toolchain": "nvcc"}, {"gemm_a", "gemm_b"}),
        ({"toolchain": "13.4"}, {"gemm_b"}),
        ({"toolchain": "nvcc 13.*"}, {"gemm_a", "gemm_b"}),
        ({"toolchain": str(digest_of(b"13.0"))}, {"gemm_a"}),
        ({"label": "cutlass"}, {"reduce"}),
        ({"label": "lib"}, ALL - {"reduce"}),
        ({"label": "cutlass", "kernel": "*", "order_by": "size"}, {"reduce"}),
        ({"label": "cutlas"}, set()),
        ({"label": "team=x"}, {"gemm_b"}),
        ({"label": "made=by hand"}, ALL - {"gemm_b"}),
        ({"min_spills": 1}, {"gemm_b"}),
        ({"min_spills": 0}, {"gemm_b", "reduce"}),
        ({"used_since": EARLY - 86400}, {"softmax"}),
        ({"used_since": datetime(2026, 1, 1, tzinfo=UTC)}, set()),
        ({"created_since": "2026-02-01"}, {"gemm_a"}),
        ({"created_since": datetime(2026, 1, 1, tzinfo=UTC)}, ALL),
        ({"limit": 0}, set()),
    ],
    ids=_spelled,
)
def test_a_filter_finds_what_fits(index: Index, filters: dict[str, Any], found: set[str]) -> None:
    assert names(index, **filters) == found


def test_rows_come_in_the_order_that_was_asked_for(index: Index) -> None:
    assert [row.name for row in index.query(order_by="size", descending=True, limit=1)] == ["softmax"]
    assert [row.name for row in index.query(order_by="seconds", descending=True, limit=1)] == ["gemm_a"]
    sizes = [row.size for row in index.query(order_by="size")]
    assert sizes == sorted(sizes)


@pytest.mark.parametrize(
    "filters",
    [{"order_by": "size; DROP"}, {"limit": -1}, {"used_since": "yesterday"}, {"order_by": "fingerprint"}],
    ids=str,
)
def test_a_filter_that_cannot_be_meant_is_refused_at_once(index: Index, filters: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        index.query(**filters)


def test_numbers_beyond_all_limits_find_what_they_can(index: Index) -> None:
    assert names(index, limit=10**40) == ALL
    assert names(index, min_spills=10**40) == set()
    assert names(index, created_since=10**40) == set()


def test_a_row_has_the_facts_of_its_record(index: Index) -> None:
    (row,) = index.query(name="gemm_b")
    assert (row.kernels, row.registers, row.shared, row.local, row.spills) == (2, 128, 64, 8, 40)
    assert (row.toolchain, row.target, row.kind, row.uses, row.last_use) == (
        "nvcc 13.4",
        "cuda:sm_90a",
        "cubin",
        0,
        None,
    )
    (row,) = index.query(name="softmax")
    assert (row.size, row.spills, row.uses, row.last_use) == (9000, None, 1, EARLY // 300 * 300)


def test_the_views_tell_more(index: Index) -> None:
    (row,) = index.sql("SELECT state, local_only, toolchain FROM records WHERE name = 'reduce'")
    assert row == {"state": "local only", "local_only": "line tables", "toolchain": "fake 1.0"}
    rows = index.sql(
        "SELECT label, read, present, absent FROM observed JOIN records USING (fingerprint) WHERE name = 'reduce'"
    )
    assert [tuple(row.values()) for row in rows] == [("cutlass", 1, 1, 0), ("src", 0, 0, 1)]


def test_top_lists(index: Index) -> None:
    assert next(index.top("largest")).name == "softmax"
    assert next(index.top("slowest")).name == "gemm_a"
    assert next(index.top("most-used")).name == "softmax"
    assert len(list(index.top("least-used", 2))) == 2
    assert "softmax" not in {row.name for row in index.top("least-used", 3)}
    with pytest.raises(ConfigError, match="largest"):
        index.top("best")


def test_answers_come_in_constant_memory(shelf: Shelf) -> None:
    template = build("one").record
    for number in range(1000):
        shelf.writer.note_publish(
            replace(template, fingerprint=build(str(number)).fingerprint, name=f"{number} " + "x" * 2000)
        )
    shelf.layer.publish(template, {})
    shelf.writer.flush()
    index = shelf.index()
    index._fresh = float("inf")  # these have no files
    tracemalloc.start()
    assert sum(1 for _ in index.query()) == 1000
    assert tracemalloc.get_traced_memory()[1] < 1_500_000
    tracemalloc.stop()


def test_an_answer_that_is_not_read_to_its_end_holds_nothing(index: Index, shelf: Shelf) -> None:
    rows = index.query()
    next(rows)
    rows.close()  # type: ignore[attr-defined]
    index.rebuild()
    assert index.stats()["records"] == 4


def test_two_answers_can_be_read_at_once_while_others_write(index: Index, shelf: Shelf) -> None:
    one, two = index.query(), index.sql("SELECT name FROM records")
    first = [next(one).name, next(two)["name"]]
    shelf.put("later")
    shelf.writer.flush()
    assert len([*first, *one, *two]) == 8


def _record(index: Index, name: str) -> Record:
    return next(record for record in index.sources.records() if record.name == name)


def test_a_difference_names_parts_observations_and_resources(index: Index) -> None:
    a, b = _record(index, "gemm_a"), _record(index, "gemm_b")
    found = {(d.what, d.name): (d.a, d.b) for d in index.diff(a, b)}
    assert found["fact", "toolchain"] == ("nvcc 13.0", "nvcc 13.4")
    assert found["fact", "seconds"] == (9.0, 1.5)
    assert found["part", "seed"] == (dict(a.parts)["seed"], dict(b.parts)["seed"])
    assert found["kernel", "gemm<float>: registers"] == (None, 128)
    assert ("observation", "lib:a.h") in found
    assert ("observation", "src:a.h") not in found
    assert index.diff(a, a) == []


def test_a_difference_of_observations_that_are_gone_is_one_line(index: Index, shelf: Shelf) -> None:
    a, b = _record(index, "gemm_a"), _record(index, "gemm_b")
    (shelf.folder / "blobs" / a.observations.hex[:2] / a.observations.hex).unlink()
    found = [d for d in index.diff(a, b) if d.what == "observation"]
    assert found == [Difference("observation", "(all)", str(a.observations), str(b.observations))]
