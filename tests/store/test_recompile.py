"""Building stored records again."""

from __future__ import annotations

import itertools

from cubinet.testing.bench import Bench


def folders(bench: Bench) -> dict[str, str]:
    return {name: str(bench.top / name) for name in ("first", "second")}


def test_what_comes_out_the_same_is_counted(bench: Bench) -> None:
    store = bench.store()
    for kind in ("cubin", "ptx"):
        store.get_or_compile(bench.variant(kind=kind, options=["-O3"], entries=["scale"], signature={"x": "1"}))
    found = bench.store().recompile(10, folders(bench))
    assert (found.same, found.different, found.skipped, found.notes) == ({"cubin": 1, "ptx": 1}, {}, {}, [])
    assert bench.runs == 4


def test_what_comes_out_different_is_named(bench: Bench) -> None:
    count = itertools.count()
    store = bench.store(noise=lambda: str(next(count)).encode())
    store.get_or_compile(bench.variant())
    found = store.recompile(1, folders(bench))
    assert (found.same, found.different) == ({}, {"cubin": 1})
    assert "other bytes" in found.notes[0]


def test_what_cannot_be_tried_says_what_is_missing(bench: Bench) -> None:
    store = bench.store()
    store.get_or_compile(bench.variant())
    missing = store.recompile(1, {"first": str(bench.top / "first")})
    assert missing.skipped == {"cubin": 1}
    assert "give the folder of second" in missing.notes[0]
    bench.header.write_text("changed")
    assert "not the same here" in store.recompile(1, folders(bench)).notes[0]
    bench.header.unlink()
    assert "no such file" in store.recompile(1, folders(bench)).notes[0]
    other = bench.store(version="2.0").recompile(1, folders(bench))
    assert "toolchain" in other.notes[0]


def test_a_sample_is_not_larger_than_asked_and_progress_is_told(bench: Bench) -> None:
    store, said = bench.store(), []
    for i in range(5):
        store.get_or_compile(bench.variant(f"kernel k{i}\n"))
    found = store.recompile(3, folders(bench), lambda done, total: said.append((done, total)))
    assert sum(found.same.values()) == 3
    assert said == [(0, 3), (1, 3), (2, 3), (3, 3)]
    assert bench.store().recompile(3, folders(bench)).same == {"cubin": 3}


def test_an_empty_store_has_nothing_to_repeat(bench: Bench) -> None:
    found = bench.store().recompile(3, {})
    assert (found.same, found.different, found.skipped) == ({}, {}, {})


def test_headers_in_memory_are_kept_with_the_request(bench: Bench) -> None:
    bench.store().get_or_compile(bench.variant('#include "m.h"\nkernel k\n', headers={"m.h": "in memory\n"}))
    assert bench.store().recompile(1, folders(bench)).same == {"cubin": 1}


def test_text_that_is_no_utf8_cannot_be_repeated(bench: Bench) -> None:
    bench.store().get_or_compile(bench.variant(signature={"x": "\udcff"}))
    found = bench.store().recompile(1, folders(bench))
    assert (found.same, found.different, found.skipped) == ({}, {}, {"cubin": 1})
