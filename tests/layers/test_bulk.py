"""Moving many builds."""

from __future__ import annotations

from pathlib import Path

import pytest

from cubinet.errors import RemoteUnavailableError
from cubinet.remotes.file import FileRemote
from cubinet.store.bulk import pull, push
from cubinet.store.local import LocalLayer
from cubinet.store.remote import RemoteLayer
from cubinet.testing.faults import CountingFs
from cubinet.testing.remotes import FlakyRemote
from cubinet.testing.samples import build


def _remote(tmp_path: Path) -> FileRemote:
    (tmp_path / "bucket").mkdir(exist_ok=True)
    return FileRemote(f"file://{tmp_path}/bucket")


@pytest.fixture
def full(tmp_path: Path) -> LocalLayer:
    local = LocalLayer(str(tmp_path / "full"), durable=False)
    for n in range(40):
        made = build(str(n), data=bytes([n]) * (300_000 if n % 10 == 0 else 2000))
        local.publish(made.record, made.blobs)
    return local


def test_all_builds_go_there_and_come_back(tmp_path: Path, full: LocalLayer) -> None:
    layer = RemoteLayer(_remote(tmp_path))
    steps: list[tuple[int, int]] = []
    sent = push(full, layer, list(full.fingerprints()), progress=lambda done, total: steps.append((done, total)))
    assert (sent.moved, sent.present, sent.problems) == (40, 0, [])
    assert steps[-1] == (40, 40)
    other = LocalLayer(str(tmp_path / "other"), durable=False)
    come = pull(other, layer)
    assert (come.moved, come.present, come.problems) == (40, 0, [])
    assert come.size == sent.size
    for fingerprint in full.fingerprints():
        record = full.find(fingerprint)
        assert record is not None
        assert other.raw(fingerprint) == full.raw(fingerprint)
        assert other.candidates(record.action) == full.candidates(record.action)
        assert all(other.read(ref) == full.read(ref) for _, ref in record.blobs)


def test_what_is_there_is_not_sent_or_fetched_again(tmp_path: Path, full: LocalLayer) -> None:
    remote = FlakyRemote(_remote(tmp_path))
    layer, chosen = RemoteLayer(remote), list(full.fingerprints())
    push(full, layer, chosen)
    other = LocalLayer(str(tmp_path / "other"), durable=False)
    pull(other, layer)
    before = remote.calls["get_many"]
    assert (push(full, layer, chosen).present, pull(other, layer).present) == (40, 40)
    assert remote.calls["get_many"] == before + 1


def test_only_what_is_wanted_moves(tmp_path: Path, full: LocalLayer) -> None:
    layer, chosen = RemoteLayer(_remote(tmp_path)), list(full.fingerprints())
    assert push(full, layer, chosen, wanted=lambda record: record.name in ("1", "2")).moved == 2
    other = LocalLayer(str(tmp_path / "other"), durable=False)
    assert pull(other, layer, wanted=lambda record: record.name == "2").moved == 1


def test_a_build_that_is_tied_to_its_folders_stays(tmp_path: Path) -> None:
    local, made = LocalLayer(str(tmp_path / "here"), durable=False), build(local_only="-lineinfo")
    local.publish(made.record, made.blobs)
    assert push(local, RemoteLayer(_remote(tmp_path)), [made.fingerprint]).kept == 1


def test_a_transfer_that_broke_off_goes_on(tmp_path: Path, full: LocalLayer) -> None:
    layer, chosen = RemoteLayer(_remote(tmp_path)), list(full.fingerprints())
    assert push(full, layer, chosen[:17]).moved == 17
    assert (push(full, layer, chosen).moved, push(full, layer, chosen).present) == (23, 40)


def test_a_damaged_build_is_named_and_the_rest_moves(tmp_path: Path, full: LocalLayer) -> None:
    layer, chosen = RemoteLayer(_remote(tmp_path)), list(full.fingerprints())
    push(full, layer, chosen)
    victim = next((tmp_path / "bucket").glob("v1/records/*/*"))
    victim.write_bytes(victim.read_bytes()[:-3])
    come = pull(LocalLayer(str(tmp_path / "other"), durable=False), layer)
    assert come.moved == 39
    assert victim.name in come.problems[0]


def test_a_remote_that_is_gone_ends_it(tmp_path: Path, full: LocalLayer) -> None:
    remote = FlakyRemote(_remote(tmp_path), {("put", 0): "timeout"})
    with pytest.raises(RemoteUnavailableError):
        push(full, RemoteLayer(remote), list(full.fingerprints()))


def test_the_disk_is_flushed_once(tmp_path: Path, full: LocalLayer) -> None:
    layer = RemoteLayer(_remote(tmp_path))
    push(full, layer, list(full.fingerprints()))
    fs = CountingFs()
    pull(LocalLayer(str(tmp_path / "other"), fs=fs), layer)
    assert (fs.counts["sync_all"], fs.counts["sync_folder"]) == (1, 0)
