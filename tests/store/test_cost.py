"""What a lookup costs in file operations, exactly: more is a regression, less a reason to change the number."""

from __future__ import annotations

from pathlib import Path

import pytest

from cubinet.model import Status
from cubinet.testing.bench import Bench
from cubinet.testing.faults import CountingFs


@pytest.fixture
def fs() -> CountingFs:
    return CountingFs()


def short(bench: Bench, fs: CountingFs) -> list[str]:
    """Operations with the part of the store they touch, in order."""
    out = []
    for operation, path in fs.calls:
        try:
            kind = Path(path).relative_to(bench.folder).parts[:1]
        except ValueError:
            kind = (Path(path).relative_to(bench.top).as_posix(),)
        out.append(" ".join((operation, *kind)))
    return out


def test_a_warm_hit_in_a_new_process_reads_five_files_and_changes_none(bench: Bench, fs: CountingFs) -> None:
    bench.store(later=True).get_or_compile(bench.variant())
    store = bench.store(fs=fs, later=True)
    assert fs.calls == []  # making a store costs nothing
    found = store.find(bench.variant())
    assert found is not None
    assert short(bench, fs) == [
        "read VERSION",
        "read manifests",
        "read memo",
        "stats second/a.h",  # a file it read
        "stats first",  # the folder in which it looked in vain
        "read records",
        "read blobs",
    ]
    assert fs.changes == 0
    assert bench.runs == 1


def test_get_or_compile_costs_a_warm_hit_no_more_than_find(bench: Bench, fs: CountingFs) -> None:
    bench.store(later=True).get_or_compile(bench.variant())
    assert bench.store(fs=fs, later=True).get_or_compile(bench.variant()).status is Status.HIT
    assert fs.counts == {"read": 5, "stats": 2}


def test_a_second_variant_with_the_same_headers_stats_none_of_them_again(bench: Bench, fs: CountingFs) -> None:
    other = bench.variant('#include "a.h"\nkernel other\n')
    for variant in (bench.variant(), other):
        bench.store(later=True).get_or_compile(variant)
    store = bench.store(fs=fs, later=True, refresh=60.0)
    store.find(bench.variant())
    fs.clear()
    assert store.find(other) is not None
    assert fs.counts == {"read": 3}  # manifest, record, blob: the observations are the same set


def test_a_repeated_lookup_in_a_process_touches_no_file(bench: Bench, fs: CountingFs) -> None:
    store = bench.store(fs=fs, refresh=60.0)
    variant = bench.variant()
    store.get_or_compile(variant)
    fs.clear()
    for asked in (variant, variant, bench.variant()):
        assert store.find(asked) is not None
        assert store.get_or_compile(asked).layer == "process"
    assert fs.calls == []


def test_a_miss_reads_two_files(bench: Bench, fs: CountingFs) -> None:
    store = bench.store(fs=fs)
    assert store.find(bench.variant()) is None
    assert short(bench, fs) == ["read VERSION", "read manifests"]
    bench.store().get_or_compile(bench.variant())
    store.find(bench.variant("first\nkernel k\n"))
    fs.clear()
    assert store.find(bench.variant("second\nkernel k\n")) is None
    assert short(bench, fs) == ["read manifests"]  # the version is known by now


def test_a_lookup_by_fingerprint_reads_record_and_blob(bench: Bench, fs: CountingFs) -> None:
    made = bench.store().get_or_compile(bench.variant())
    store = bench.store(fs=fs)
    assert store.find(made.fingerprint) is not None
    assert short(bench, fs) == ["read VERSION", "read records", "read blobs"]


def test_without_a_memo_the_observations_are_read_and_the_headers_hashed(bench: Bench, fs: CountingFs) -> None:
    bench.store(later=True).get_or_compile(bench.variant())
    for path in bench.files("memo"):
        path.unlink()
    assert bench.store(fs=fs, later=True).find(bench.variant()) is not None
    reads = [call for call in short(bench, fs) if call.startswith("read")]
    assert reads == [
        "read VERSION",
        "read manifests",
        "read memo",
        "read blobs",  # the observations
        "read second/a.h",
        "read records",
        "read blobs",
    ]
    changes = [call for call in short(bench, fs) if not call.startswith(("read", "stat"))]
    assert changes == ["mkdir memo", "mkdir tmp", "create tmp", "rename memo"]


def test_a_stale_candidate_costs_no_record_and_no_object(bench: Bench, fs: CountingFs) -> None:
    bench.store(later=True).get_or_compile(bench.variant())
    bench.header.write_text("changed\n")
    assert bench.store(fs=fs, later=True).find(bench.variant()) is None
    assert "read records" not in short(bench, fs)
    assert fs.changes == 0


def test_a_publish_writes_each_file_once(bench: Bench, fs: CountingFs) -> None:
    bench.store(later=True).get_or_compile(bench.variant())
    before = len(bench.files("blobs", "records"))
    bench.store(fs=fs, later=True).get_or_compile(bench.variant("other\nkernel other\n"))
    fresh = len(bench.files("blobs", "records")) - before
    created = [call for call in short(bench, fs) if call.startswith("create")]
    assert created == ["create tmp"] * (fresh + 2)  # manifest and memo too
    assert fresh <= fs.counts["link"] <= 2 * fresh  # twice if it is the first in its folder
    assert fs.counts["rename"] in (2, 3)  # manifest (twice if it is the first in its folder), memo
    assert fs.counts["open_lock"] == 2  # the action's, the manifest's


def test_publishing_again_writes_only_a_record_that_is_not_needed(bench: Bench, fs: CountingFs) -> None:
    made = bench.store().get_or_compile(bench.variant())
    store = bench.store(fs=fs)
    assert not store.publish(made)
    assert fs.counts == {
        "read": 3 + len(made.record.blobs),  # VERSION, the record that was first, the manifest
        "stat": len(made.record.blobs),  # is it so old that a collector might take it?
        "mkdir": 3,  # of the store, `tmp`, `locks`: once a process
        "list": 1,  # of `tmp`, to sweep it: once a process
        "create": 1,
        "link": 1,
        "unlink": 1,
    }
