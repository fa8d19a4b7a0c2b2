"""Checking a whole store."""

from __future__ import annotations

from pathlib import Path

import pytest

from cubinet.model import Digest
from cubinet.store.local import LocalLayer
from cubinet.store.verify import Verification, verify
from cubinet.testing.bench import overwrite
from cubinet.testing.faults import NoSyncFs
from cubinet.testing.samples import Build, build, sealed


@pytest.fixture
def layer(tmp_path: Path) -> LocalLayer:
    return LocalLayer(str(tmp_path / "store"), fs=NoSyncFs())


def stock(layer: LocalLayer, *builds: Build) -> None:
    for made in builds:
        layer.publish(made.record, made.blobs)


def check(layer: LocalLayer) -> Verification:
    return verify(layer, lambda _done, _all: None)


def blob_path(layer: LocalLayer, digest: Digest) -> Path:
    return Path(layer.path("blobs", digest.hex))


def test_an_empty_store_is_clean(layer: LocalLayer) -> None:
    assert check(layer) == Verification()
    assert check(layer).clean


def test_a_whole_store_is_clean_and_counted(layer: LocalLayer) -> None:
    one, two = build("one", data=b"shared"), build("two", data=b"shared")
    stock(layer, one, two)
    found = check(layer)
    assert found.clean
    blobs = {**one.blobs, **two.blobs}
    assert (found.records, found.blobs, found.spare) == (2, len(blobs), 0)
    assert found.bytes == sum(map(len, blobs.values()))


def test_progress_goes_from_nothing_to_all(layer: LocalLayer) -> None:
    stock(layer, *(build(str(i)) for i in range(3)))
    said: list[tuple[int, int]] = []
    verify(layer, lambda done, total: said.append((done, total)))
    assert said == [(0, 3), (1, 3), (2, 3), (3, 3)]


def test_a_damaged_record_is_named_once_and_moved_away(layer: LocalLayer) -> None:
    stock(layer, build("one"), build("two"))
    overwrite(Path(layer.path("records", build("one").fingerprint.hex, ".json")), b"")
    found = check(layer)
    assert found.problems == [f"record {build('one').fingerprint} was damaged or is in a newer format"]
    assert found.records == 1
    assert found.spare == len(set(build("one").blobs) - set(build("two").blobs))
    assert check(layer).clean


def test_a_damaged_blob_takes_all_its_records_with_it(layer: LocalLayer) -> None:
    one, two, three = build("one", data=b"shared"), build("two", data=b"shared"), build("three")
    stock(layer, one, two, three)
    overwrite(blob_path(layer, one.main.digest), b"SHARED")
    problems = check(layer).problems
    assert sorted(problems) == sorted(f"record {made.fingerprint}: its cubin is gone or damaged" for made in (one, two))
    assert list(layer.fingerprints()) == [three.fingerprint]
    assert check(layer).clean
    stock(layer, one, two)
    assert check(layer).records == 3


def test_a_blob_that_no_record_names_is_spare(layer: LocalLayer) -> None:
    made = build()
    stock(layer, made)
    Path(layer.path("records", made.fingerprint.hex, ".json")).unlink()
    found = check(layer)
    assert found.clean
    assert found.spare == len(made.blobs)
    overwrite(blob_path(layer, made.main.digest), b"?")
    assert check(layer).problems == [f"blob {made.main.digest.hex}, which no record names, was damaged"]
    assert check(layer).clean


def test_a_newer_record_is_named_and_stays(layer: LocalLayer) -> None:
    stock(layer, build())
    path = Path(layer.path("records", build().fingerprint.hex, ".json"))
    overwrite(path, sealed({"format": 2}))
    for _ in range(2):
        assert len(check(layer).problems) == 1
    assert path.exists()
