"""Verification of a remote: what is damaged is said, and with repair it is gone and can be healed."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import Any

import pytest

from cubinet.errors import ReadOnlyError
from cubinet.remotes.file import FileRemote
from cubinet.store.envelope import OBJECT_LIMIT, pack, squeeze
from cubinet.store.format import encode_record
from cubinet.store.remote import RemoteLayer
from cubinet.store.remote_verify import RemoteVerification, verify_remote
from cubinet.store.trust import Policy
from cubinet.testing.samples import Build, build, sealed


class Far:
    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.folder = folder
        self.layer = RemoteLayer(FileRemote(f"file://{folder}"), inline=20)
        self.small, self.large = build("small"), build("large", data=b"a larger object" * 10)
        for one in (self.small, self.large):
            self.layer.publish(one.record, one.blobs)

    def path(self, kind: str, name: str) -> Path:
        return self.folder / "v1" / kind / name[:2] / name

    def verify(self, **rest: Any) -> RemoteVerification:
        return verify_remote(self.layer, lambda _done, _all: None, **rest)

    def write(self, kind: str, name: str, data: bytes) -> None:
        self.path(kind, name).parent.mkdir(parents=True, exist_ok=True)
        self.path(kind, name).write_bytes(data)


@pytest.fixture
def far(tmp_path: Path) -> Far:
    return Far(tmp_path / "remote")


def heals(far: Far, one: Build) -> bool:
    far.layer.publish(one.record, one.blobs)
    return far.verify().clean and far.layer.fetch(one.fingerprint, timeout=5) is not None


def test_a_whole_remote_is_clean(far: Far) -> None:
    seen: list[tuple[int, int]] = []
    found = verify_remote(far.layer, lambda done, total: seen.append((done, total)))
    assert found == RemoteVerification(
        records=2, blobs=8, bytes=sum(map(len, [*far.small.blobs.values(), *far.large.blobs.values()])), manifests=2
    )
    assert found.clean
    assert seen[-1] == (4, 4)


def test_an_empty_remote_is_clean(tmp_path: Path) -> None:
    layer = RemoteLayer(FileRemote(f"file://{tmp_path}"))
    assert verify_remote(layer, lambda _done, _all: None) == RemoteVerification()


@pytest.mark.parametrize("at", [0, 40, 300, -1])
def test_a_damaged_record_is_said_and_repaired(far: Far, at: int) -> None:
    path = far.path("records", far.small.fingerprint.hex)
    data = bytearray(path.read_bytes())
    data[at] ^= 0xFF
    path.write_bytes(data)
    found = far.verify()
    assert found.records == 1
    assert [text.partition(":")[0] for text in found.problems] == [f"record {far.small.fingerprint.hex}"]
    assert path.exists()
    assert far.verify(repair=True).repaired == 1
    assert not path.exists()
    assert heals(far, far.small)


def test_a_record_under_another_name_is_damaged(far: Far) -> None:
    far.path("records", far.small.fingerprint.hex).write_bytes(
        far.path("records", far.large.fingerprint.hex).read_bytes()
    )
    found = far.verify(repair=True)
    assert found.problems == [f"record {far.small.fingerprint.hex}: it is that of another build"]
    assert heals(far, far.small)


@pytest.mark.parametrize("damage", [b"nonsense", squeeze(b"other bytes"), b"", None])
def test_a_blob_that_is_damaged_or_gone_takes_its_record_along(far: Far, damage: bytes | None) -> None:
    path = far.path("blobs", far.large.main.digest.hex)
    if damage is None:
        path.unlink()
    else:
        path.write_bytes(damage)
    found = far.verify()
    assert f"record {far.large.fingerprint.hex}: its cubin is gone or damaged" in found.problems
    assert len(found.problems) == (1 if damage is None else 2)
    assert found.records == 1
    far.verify(repair=True)
    assert not path.exists()
    assert not far.path("records", far.large.fingerprint.hex).exists()
    assert heals(far, far.large)


def test_a_record_that_lacks_two_blobs_is_counted_once(far: Far) -> None:
    for path in far.folder.glob("v1/blobs/*/*"):
        path.unlink()
    lacking = {text.split()[1] for text in far.verify().problems}
    assert far.verify().records == 2 - len(lacking)
    assert far.large.fingerprint.hex + ":" in lacking


def test_a_blob_in_a_record_that_is_not_the_one_it_names_is_missing(far: Far) -> None:
    raw = encode_record(far.small.record)
    far.write("records", far.small.fingerprint.hex, pack(raw, []))
    found = far.verify(repair=True)
    assert f"record {far.small.fingerprint.hex}: its cubin is gone or damaged" in found.problems
    assert heals(far, far.small)


def test_a_record_without_what_it_was_built_for_is_damaged(far: Far) -> None:
    record = dataclasses.replace(far.small.record, blobs=())
    far.write("records", record.fingerprint.hex, pack(encode_record(record), []))
    assert far.verify(repair=True).problems == [f"record {record.fingerprint.hex}: it has no cubin"]


def test_a_record_that_is_too_large_is_damaged(far: Far) -> None:
    path = far.path("records", far.small.fingerprint.hex)
    os.truncate(path, OBJECT_LIMIT + 1)
    assert far.verify(repair=True).problems == [f"record {far.small.fingerprint.hex}: it has {OBJECT_LIMIT + 1} bytes"]
    assert heals(far, far.small)


def test_a_damaged_manifest_is_said_and_repaired(far: Far) -> None:
    path = far.path("manifests", far.small.record.action.hex)
    path.write_bytes(b"nonsense")
    found = far.verify(repair=True)
    assert found.manifests == 1
    assert [text.split(":")[0] for text in found.problems] == [f"manifest {far.small.record.action.hex}"]
    assert not path.exists()
    assert heals(far, far.small)


def test_what_is_in_a_newer_format_is_said_and_left_alone(far: Far) -> None:
    newer = pack(sealed({"format": 2}), [])
    far.write("records", far.small.fingerprint.hex, newer)
    far.write("manifests", far.small.record.action.hex, newer)
    found = far.verify(repair=True)
    assert len(found.problems) == 2
    assert all(text.endswith("it is left alone") for text in found.problems)
    assert found.repaired == 0
    assert far.path("records", far.small.fingerprint.hex).read_bytes() == newer
    assert found.spare == 0


def test_a_record_that_nobody_trusted_signed_is_said_and_left_alone(far: Far) -> None:
    far.layer.policy = Policy("signed", {})
    found = far.verify(repair=True)
    assert (found.records, found.repaired, found.spare) == (0, 0, 0)
    assert sorted(found.problems) == sorted(
        f"record {one.fingerprint.hex}: nobody signed it" for one in (far.small, far.large)
    )
    assert far.path("records", far.small.fingerprint.hex).exists()


def test_a_blob_that_no_record_names_is_counted_and_checked(far: Far) -> None:
    from blake3 import blake3

    far.write("blobs", blake3(b"spare").hexdigest(), squeeze(b"spare"))
    found = far.verify()
    assert (found.spare, found.clean) == (1, True)
    far.write("blobs", blake3(b"spare").hexdigest(), squeeze(b"damaged"))
    assert far.verify(repair=True).repaired == 1
    assert far.verify().spare == 0


def test_a_read_only_layer_is_verified_but_not_repaired(far: Far) -> None:
    layer = RemoteLayer(far.layer.remote, writable=False)
    assert verify_remote(layer, lambda _done, _all: None).clean
    with pytest.raises(ReadOnlyError, match="read-only"):
        verify_remote(layer, lambda _done, _all: None, repair=True)


def test_names_that_are_not_ours_are_no_problem(far: Far) -> None:
    far.write("records", "ab" * 33, b"x")
    far.write("blobs", "README", b"x")
    assert far.verify(repair=True).clean
    assert far.path("blobs", "README").exists()
