"""The reports."""

from __future__ import annotations

from typing import Any

import pytest

from cubinet.errors import ConfigError
from cubinet.fingerprint import digest_of
from cubinet.model import Kernel, Toolchain

from .shelf import EARLY, Shelf

PARTS = (("source", "s" * 32), ("arguments", "a" * 32))


def _tools(version: str) -> Toolchain:
    return Toolchain("nvcc", version, digest_of(version.encode()))


def _compiled(shelf: Shelf, version: str, regs: int, data: bytes, day: int, **more: object) -> str:
    fields: dict[str, Any] = {
        "name": "gemm",
        "entries": ("gemm",),
        "parts": PARTS,
        "toolchain": _tools(version),
        "kernels": (Kernel("gemm", "gemm", regs=regs, spills=0),),
        "created": f"2026-01-{day:02}T00:00:00+00:00",
        **more,
    }
    made = shelf.put(f"{version} {regs} {day} {more}", data=data, **fields)
    return made.fingerprint.hex


def test_toolchains_compares_the_newest_builds_of_one_variant_in_the_order_of_compilers(shelf: Shelf) -> None:
    _compiled(shelf, "13.0", 999, b"old", 1)
    a = _compiled(shelf, "13.0", 32, b"abc", 2, seconds=1.0)
    b = _compiled(shelf, "13.4", 40, b"abcd", 3, seconds=2.0)
    c = _compiled(shelf, "9.9", 40, b"abcd", 4)
    _compiled(shelf, "13.9", 50, b"other", 5, parts=(("source", "t" * 32), ("arguments", "a" * 32)))
    _compiled(shelf, "13.9", 50, b"other", 6, parts=(("source", "s" * 32), ("arguments", "b" * 32)))
    _compiled(shelf, "13.9", 50, b"other", 7, name="other")
    rows = list(shelf.index().report("toolchains"))
    assert [(row["fingerprint"], row["fingerprint_to"]) for row in rows] == [(a, b), (b, c)]
    first = rows[0]
    assert (first["from"], first["to"]) == ("nvcc 13.0", "nvcc 13.4")
    assert (first["registers"], first["registers_to"], first["size"], first["size_to"]) == (32, 40, 3, 4)
    assert (first["seconds"], first["seconds_to"]) == (1.0, 2.0)
    assert first["changed"] == "registers,size"
    assert rows[1]["changed"] == ""
    assert len(list(shelf.index().report("toolchains", 1))) == 1


def test_duplicates_lists_variants_with_the_same_object_by_what_is_saved(shelf: Shelf) -> None:
    for name in ("a", "b", "c"):
        shelf.put(name, data=b"same")
    for name in ("d", "e"):
        shelf.put(name, data=b"x" * 100)
    shelf.put("f", data=b"alone")
    rows = list(shelf.index().report("duplicates"))
    assert [(row["records"], row["size"], row["saved"]) for row in rows] == [(2, 100, 100), (3, 4, 8)]
    assert sorted(rows[1]["names"].split(",")) == ["a", "b", "c"]


def test_misses_lists_reasons_by_how_often_they_came(shelf: Shelf) -> None:
    shelf.put("a")
    for reason in ("header changed", "new", "header changed"):
        shelf.writer.note_event("local", "miss", reason, 0.5)
    shelf.writer.note_event("local", "hit")
    rows = list(shelf.index().report("misses"))
    assert [(row["reason"], row["count"], row["seconds"]) for row in rows] == [
        ("header changed", 2, 1.0),
        ("new", 1, 0.5),
    ]


def test_cost_is_what_hits_saved_by_family(shelf: Shelf) -> None:
    slow = shelf.put("slow", seconds=100.0, family="big")
    fast = shelf.put("fast", seconds=1.0, family="small")
    for fingerprint, times in ((slow.fingerprint, 2), (fast.fingerprint, 5)):
        for _ in range(times):
            shelf.writer.note_use(fingerprint, EARLY)
    rows = list(shelf.index().report("cost"))
    assert [(row["family"], row["uses"], row["saved"]) for row in rows] == [("big", 2, 200.0), ("small", 5, 5.0)]
    assert shelf.index().stats()["saved"] == 205.0


def test_reports_of_an_empty_store_are_empty(shelf: Shelf) -> None:
    index = shelf.index()
    for name in ("toolchains", "duplicates", "misses", "cost"):
        assert list(index.report(name)) == []
    with pytest.raises(ConfigError, match="toolchains"):
        index.report("weather")
