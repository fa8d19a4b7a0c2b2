"""What is special to the local layer; the rest is the contract."""

from __future__ import annotations

import errno
import os
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cubinet.errors import ConfigError, FormatError, ReadOnlyError, StoreError
from cubinet.fingerprint import digest_of
from cubinet.model import Digest, Fingerprint
from cubinet.protocols import Layer
from cubinet.store.format import FORMAT, Failure, encode_manifest
from cubinet.store.local import LocalLayer, check_trust
from cubinet.store.verify import verify
from cubinet.testing.bench import overwrite
from cubinet.testing.contracts import LayerContract
from cubinet.testing.faults import CountingFs, Fault, FaultyFs, How, NoSyncFs
from cubinet.testing.samples import build, sealed

from .files import mode, tree

root_only = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")


@pytest.fixture
def somebody(tmp_path: Path) -> Iterator[None]:
    """Not root: nothing is denied to root, and everything of root's is trusted."""
    if os.geteuid() != 0:
        yield
        return
    closed = [path for path in tmp_path.parents if mode(path) == 0o700]
    for path in closed:
        path.chmod(0o711)
    os.chown(tmp_path, 4321, -1)
    os.seteuid(4321)
    try:
        yield
    finally:
        os.seteuid(os.getuid())
        for path in closed:
            path.chmod(0o700)


def raw_path(layer: Layer, kind: str, name: str) -> Path:
    assert isinstance(layer, LocalLayer)
    return Path(layer.path(kind, name, "" if kind == "blobs" else ".json"))


class TestLocalLayer(LayerContract):
    @pytest.fixture
    def layer(self, tmp_path: Path) -> Layer:
        return LocalLayer(str(tmp_path / "store"), fs=NoSyncFs())

    def read_raw(self, layer: Layer, kind: str, name: str) -> bytes | None:
        path = raw_path(layer, kind, name)
        return path.read_bytes() if path.exists() else None

    def write_raw(self, layer: Layer, kind: str, name: str, data: bytes) -> None:
        path = raw_path(layer, kind, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        path.write_bytes(data)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def layer(folder: Path) -> LocalLayer:
    return LocalLayer(str(folder), fs=NoSyncFs())


def publish(layer: LocalLayer, text: str = "scale", **fields: Any) -> None:
    made = build(text, **fields)
    layer.publish(made.record, made.blobs)


def clean(folder: Path) -> bool:
    found = verify(LocalLayer(str(folder)), lambda _done, _all: None)
    return found.clean and not list(folder.glob("tmp/*"))


def whole(folder: Path, text: str) -> bool:
    made, layer = build(text), LocalLayer(str(folder))
    return layer.find(made.fingerprint) == made.record and all(layer.read(ref) for _, ref in made.record.blobs)


def refusal(call: Callable[[], object]) -> str:
    """What the store says when it refuses; empty if it does not."""
    try:
        call()
    except StoreError as exc:
        return str(exc)
    return ""


# --- the folder


@pytest.fixture(params=[0o000, 0o022, 0o077, 0o777], ids=oct)
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    old = os.umask(request.param)
    yield request.param
    os.umask(old)


def test_modes_do_not_depend_on_the_umask(layer: LocalLayer, folder: Path, umask: int) -> None:
    publish(layer)
    folders = {path for path in [folder, *tree(folder)] if path.is_dir()}
    files = {path for path in tree(folder) if path.is_file()}
    assert {mode(path) for path in folders} == {0o755}
    assert {mode(path) for path in files} == {0o444}
    assert {path.parts[len(folder.parts)] for path in files} == {
        "CACHEDIR.TAG",
        "VERSION",
        "blobs",
        "manifests",
        "records",
    }


def test_the_folder_says_what_it_is(layer: LocalLayer, folder: Path) -> None:
    publish(layer)
    assert (folder / "VERSION").read_text() == "cubinet-store 1\n"
    assert (folder / "CACHEDIR.TAG").read_bytes().startswith(b"Signature: 8a477f597d28d172789f06886806bc55\n")


def test_names_are_spread_over_folders_of_two_digits(layer: LocalLayer, folder: Path) -> None:
    made = build()
    publish(layer)
    name = made.fingerprint.hex
    assert (folder / "records" / name[:2] / f"{name}.json").is_file()
    for digest, data in made.blobs.items():
        assert (folder / "blobs" / digest.hex[:2] / digest.hex).read_bytes() == data


def test_reading_makes_no_folder(layer: LocalLayer, folder: Path) -> None:
    made = build()
    assert layer.find(made.fingerprint) is None
    assert layer.read(made.main) is None
    assert layer.candidates(made.record.action) == ()
    assert layer.failure(made.record.action) is None
    assert list(layer.fingerprints()) == []
    assert not folder.exists()


@pytest.mark.parametrize(
    "text", ["cubinet-store 2\n", "cubinet-store 0\n", "cubinet-store", "", "other 1\n", "x" * 500]
)
def test_a_folder_of_another_version_is_refused_and_left_alone(folder: Path, text: str) -> None:
    publish(LocalLayer(str(folder)))
    overwrite(folder / "VERSION", text.encode())
    before = {path: path.stat().st_mtime_ns for path in tree(folder)}
    layer, made = LocalLayer(str(folder)), build()
    for use in (
        lambda: layer.find(made.fingerprint),
        lambda: layer.read(made.main),
        lambda: layer.publish(made.record, made.blobs),
    ):
        with pytest.raises(FormatError, match="VERSION"):
            use()
    assert {path: path.stat().st_mtime_ns for path in tree(folder)} == before


def test_a_version_file_that_lost_only_its_line_end_is_fine(layer: LocalLayer, folder: Path) -> None:
    publish(layer)
    overwrite(folder / "VERSION", b"cubinet-store 1")
    assert whole(folder, "scale")


def test_the_store_may_be_deleted_at_any_time(layer: LocalLayer, folder: Path) -> None:
    for gone in (".", "tmp", "records", "blobs", "manifests", "VERSION", "."):
        publish(layer, "scale")
        path = folder / gone
        path.unlink() if path.is_file() else shutil.rmtree(path)
        publish(layer, "scale")
        assert whole(folder, "scale"), gone
        assert (folder / "VERSION").exists() or gone == "VERSION"


def test_a_folder_deleted_after_it_was_prepared_is_made_again_with_its_version(layer: LocalLayer, folder: Path) -> None:
    publish(layer)
    shutil.rmtree(folder)
    assert layer.find(build().fingerprint) is None
    publish(layer)
    assert (folder / "VERSION").exists()
    assert (folder / "CACHEDIR.TAG").exists()


def test_a_file_where_the_folder_should_be_is_an_error(layer: LocalLayer, folder: Path) -> None:
    folder.write_text("not a folder")
    assert layer.find(build().fingerprint) is None
    with pytest.raises(StoreError, match="Not a directory"):
        publish(layer)
    assert folder.read_text() == "not a folder"


def test_a_link_into_nowhere_is_an_error(layer: LocalLayer, folder: Path) -> None:
    folder.symlink_to(folder.parent / "gone")
    assert layer.find(build().fingerprint) is None
    with pytest.raises(StoreError):
        publish(layer)


def test_foreign_files_in_the_folder_are_left_out(layer: LocalLayer, folder: Path) -> None:
    publish(layer)
    made = build()
    fan = folder / "records" / made.fingerprint.hex[:2]
    for name in ("README", "x.json", "0" * 64, made.fingerprint.hex + ".json.bak"):
        (fan / name).write_text("?")
    (folder / "records" / ".DS_Store").write_text("?")
    (folder / "records" / "lost+found").mkdir()
    (folder / "blobs" / "ab").mkdir(exist_ok=True)
    (folder / "blobs" / "README").write_text("?")
    assert list(layer.fingerprints()) == [made.fingerprint]
    assert verify(layer, lambda _done, _all: None).clean


# --- publishing


def test_files_are_synced_before_they_get_their_name_and_the_folder_after(folder: Path) -> None:
    fs = CountingFs()
    publish(LocalLayer(str(folder), fs=fs))
    fs.clear()
    made = build("other")
    LocalLayer(str(folder), fs=fs).publish(made.record, made.blobs)
    record = str(raw_path(LocalLayer(str(folder)), "records", made.fingerprint.hex))
    order = [(operation, path) for operation, path in fs.calls if operation in ("link", "sync_folder")]
    assert order[-2:] == [("link", record), ("sync_folder", str(Path(record).parent))]
    linked = list(dict.fromkeys(path for operation, path in order if operation == "link"))
    assert len(linked) == len(made.blobs) + 1
    assert linked[-1] == record  # after all blobs
    assert fs.counts["create"] == len(linked) + 1  # nothing is written twice; the last one is the manifest


def test_publishing_again_writes_nothing(layer: LocalLayer, folder: Path) -> None:
    publish(layer)
    before = {path: (path.stat().st_ino, path.stat().st_mtime_ns) for path in tree(folder) if path.is_file()}
    publish(layer)
    publish(LocalLayer(str(folder)))
    assert {path: (path.stat().st_ino, path.stat().st_mtime_ns) for path in tree(folder) if path.is_file()} == before


@pytest.mark.parametrize("code", [errno.EPERM, errno.EOPNOTSUPP, errno.EMLINK], ids=errno.errorcode.get)
def test_a_file_system_without_hard_links_will_do(folder: Path, code: int) -> None:
    layer = LocalLayer(str(folder), fs=FaultyFs(Fault(code, "link")))
    made = build()
    assert layer.publish(made.record, made.blobs)
    assert clean(folder)
    assert whole(folder, "scale")
    assert not layer.publish(made.record, made.blobs)
    assert clean(folder)
    assert whole(folder, "scale")


def test_without_hard_links_the_first_record_still_wins(folder: Path) -> None:
    layer = LocalLayer(str(folder), fs=FaultyFs(Fault(errno.EPERM, "link")))
    publish(layer)
    second = build(data=b"second")
    assert not layer.publish(second.record, second.blobs)
    assert whole(folder, "scale")


@pytest.mark.parametrize("code", [errno.EIO, errno.ESTALE, errno.EEXIST], ids=errno.errorcode.get)
def test_a_link_whose_reply_was_lost_counts(folder: Path, code: int) -> None:
    layer = LocalLayer(str(folder), fs=FaultyFs(Fault(code, "link", how=How.LOST_REPLY)))
    publish(layer)
    assert clean(folder)
    assert whole(folder, "scale")


@pytest.mark.parametrize("operation", ["create", "link", "rename"])
@pytest.mark.parametrize("code", [errno.ESTALE, errno.EIO, errno.EDQUOT, errno.EINTR], ids=errno.errorcode.get)
def test_a_refused_publish_leaves_nothing_half_done(folder: Path, operation: str, code: int) -> None:
    publish(LocalLayer(str(folder)), "older")
    layer = LocalLayer(str(folder), fs=FaultyFs(Fault(code, operation)))
    with pytest.raises(StoreError, match="cannot publish"):
        publish(layer)
    assert clean(folder)
    assert whole(folder, "older")


@pytest.mark.parametrize("state", ["no store", "a store", "a damaged blob", "another candidate"])
@pytest.mark.parametrize("how", [How.REFUSED, How.CUT, How.LOST_REPLY], ids=str)
def test_a_disk_that_is_full_at_any_operation_leaves_the_store_whole(tmp_path: Path, state: str, how: How) -> None:
    made = build()
    base = tmp_path / "base"
    if state != "no store":
        publish(LocalLayer(str(base), fs=NoSyncFs()), "older")
    if state == "a damaged blob":
        publish(LocalLayer(str(base), fs=NoSyncFs()))
        overwrite(raw_path(LocalLayer(str(base)), "blobs", made.main.digest.hex), b"damaged")
    if state == "another candidate":
        publish(LocalLayer(str(base), fs=NoSyncFs()), "other", action="scale")

    def prepared(name: str) -> Path:
        folder = tmp_path / name
        if base.exists():
            shutil.copytree(base, folder)
        return folder

    counting = CountingFs()
    publish(LocalLayer(str(prepared("dry")), fs=counting, durable=False))
    refused = 0
    for n in range(counting.changes):
        folder = prepared(str(n))
        fs = FaultyFs(Fault(errno.ENOSPC, call=n, how=how))
        trouble = refusal(lambda: LocalLayer(str(folder), fs=fs, durable=False).publish(made.record, made.blobs))  # noqa: B023
        refused += bool(trouble)
        assert "No space left" in trouble if trouble else whole(folder, "scale"), fs.failed
        found = verify(LocalLayer(str(folder)), lambda _done, _all: None)
        assert found.clean or state == "a damaged blob", (fs.failed, found.problems)
        if how is How.REFUSED and fs.failed[0][0] != "unlink":
            assert not list(folder.glob("tmp/*")), fs.failed
        assert state == "no store" or whole(folder, "older")
        publish(LocalLayer(str(folder), fs=NoSyncFs()))
        assert whole(folder, "scale"), fs.failed
        assert verify(LocalLayer(str(folder)), lambda _done, _all: None).clean
        shutil.rmtree(folder)
    assert refused >= 6


@pytest.mark.parametrize("code", [errno.EROFS, errno.EACCES, errno.EPERM], ids=errno.errorcode.get)
def test_a_read_only_folder_is_said_to_be_one(folder: Path, code: int) -> None:
    publish(LocalLayer(str(folder)), "older")
    layer = LocalLayer(str(folder), fs=FaultyFs(Fault(code)))
    with pytest.raises(ReadOnlyError, match="cannot publish"):
        publish(layer)
    assert layer.find(build("older").fingerprint) is not None
    assert "ermi" in layer.writable() or "ead-only" in layer.writable()


def test_a_folder_that_is_not_mine_to_write_is_read_only(tmp_path: Path, somebody: None) -> None:
    folder = tmp_path / "store"
    publish(LocalLayer(str(folder), fs=NoSyncFs()), "older")
    for path in [folder, *tree(folder)]:
        if path.is_dir():
            path.chmod(0o555)
    layer = LocalLayer(str(folder))
    with pytest.raises(ReadOnlyError, match="Permission denied"):
        publish(layer)
    assert layer.writable() == "Permission denied"
    assert whole(folder, "older")
    for path in [folder, *tree(folder)]:
        if path.is_dir():
            path.chmod(0o755)


def test_a_file_that_cannot_be_read_is_trouble_and_not_a_miss(folder: Path) -> None:
    publish(LocalLayer(str(folder)))
    made = build()
    layer = LocalLayer(
        str(folder), fs=FaultyFs(Fault(errno.EIO, "read", "*/records/*"), Fault(errno.EIO, "read", "*/blobs/*"))
    )
    with pytest.raises(StoreError, match="Input/output error"):
        layer.find(made.fingerprint)
    with pytest.raises(StoreError, match="Input/output error"):
        layer.read(made.main)
    assert whole(folder, "scale")


def test_an_interrupt_leaves_no_temporary_file(folder: Path) -> None:
    class Interrupted(NoSyncFs):
        def link(self, source: str, target: str) -> None:
            if "/records/" in target:
                raise KeyboardInterrupt
            super().link(source, target)

    with pytest.raises(KeyboardInterrupt):
        publish(LocalLayer(str(folder), fs=Interrupted()))
    assert clean(folder)


# --- manifests


def test_candidates_come_newest_first_and_sixteen_at_most(layer: LocalLayer) -> None:
    builds = [build(str(i), action="one") for i in range(20)]
    for made in builds:
        layer.publish(made.record, made.blobs)
    found = layer.candidates(builds[0].record.action)
    assert found == tuple(made.record.observations for made in reversed(builds[4:]))


def test_publishing_an_old_candidate_again_puts_it_in_front(layer: LocalLayer) -> None:
    one, two = build("one", action="same"), build("two", action="same")
    for made in (one, two, one):
        layer.publish(made.record, made.blobs)
    assert layer.candidates(one.record.action) == (one.record.observations, two.record.observations)


@pytest.mark.parametrize("data", [b"", b"{}", b"\0" * 100], ids=repr)
def test_a_damaged_manifest_is_moved_away_and_written_anew(layer: LocalLayer, folder: Path, data: bytes) -> None:
    publish(layer)
    path = raw_path(layer, "manifests", build().record.action.hex)
    overwrite(path, data)
    assert layer.candidates(build().record.action) == ()
    assert not path.exists()
    publish(layer)
    assert layer.candidates(build().record.action) == (build().record.observations,)


def test_the_manifest_of_another_action_counts_for_nothing(layer: LocalLayer) -> None:
    publish(layer)
    path = raw_path(layer, "manifests", build().record.action.hex)
    overwrite(path, encode_manifest(build("other").record.action, (digest_of(b"x"),)))
    assert layer.candidates(build().record.action) == ()
    publish(layer)
    assert layer.candidates(build().record.action) == (build().record.observations,)


def test_a_manifest_of_a_newer_format_is_left_alone(layer: LocalLayer) -> None:
    publish(layer)
    path = raw_path(layer, "manifests", build().record.action.hex)
    newer = sealed({"format": 2, "action": 7, "candidates": {}})
    overwrite(path, newer)
    assert layer.candidates(build().record.action) == ()
    publish(layer, "two", action="scale")
    assert path.read_bytes() == newer


# --- failures


def failure(expires: float) -> Failure:
    return Failure(FORMAT, build().record.action.hex, "a.cu", "no", "", "log", (), "fake 1", "", expires)


def test_a_failure_is_remembered_for_a_minute(folder: Path) -> None:
    clock = [1000.0]
    layer = LocalLayer(str(folder), now=lambda: clock[0])
    action = build().record.action
    layer.remember_failure(failure(1060.0))
    assert layer.failure(action) == failure(1060.0)
    clock[0] = 1059.9
    assert layer.failure(action) is not None
    clock[0] = 1060.0
    assert layer.failure(action) is None
    clock[0] = 1000.0
    assert layer.failure(action) is None  # it is gone, not only old


def test_a_failure_from_the_future_does_not_count(folder: Path) -> None:
    layer = LocalLayer(str(folder), now=lambda: 1000.0)
    layer.remember_failure(failure(5000.0))
    assert layer.failure(build().record.action) is None


def test_a_failure_can_be_forgotten(folder: Path) -> None:
    layer = LocalLayer(str(folder), now=lambda: 1000.0)
    layer.forget_failure(build().record.action)
    layer.remember_failure(failure(1060.0))
    layer.forget_failure(build().record.action)
    assert layer.failure(build().record.action) is None


@pytest.mark.parametrize("data", [b"", b"{}", sealed({"format": 1})], ids=repr)
def test_a_damaged_failure_is_dropped(folder: Path, data: bytes) -> None:
    layer = LocalLayer(str(folder), now=lambda: 1000.0)
    layer.remember_failure(failure(1060.0))
    path = raw_path(layer, "failures", build().record.action.hex)
    overwrite(path, data)
    assert layer.failure(build().record.action) is None
    assert not path.exists()


def test_a_failure_of_a_newer_format_is_left_alone(folder: Path) -> None:
    layer = LocalLayer(str(folder), now=lambda: 1000.0)
    layer.remember_failure(failure(1060.0))
    path = raw_path(layer, "failures", build().record.action.hex)
    overwrite(path, sealed({"format": 2}))
    assert layer.failure(build().record.action) is None
    assert path.exists()


# --- leftovers


def test_temporary_files_of_an_hour_ago_are_swept(layer: LocalLayer, folder: Path) -> None:
    publish(layer)
    old, young = Path(layer.temporary()), Path(layer.temporary())
    for path, age in ((old, 3700), (young, 60)):
        path.write_text("left")
        os.utime(path, (time.time() - age, time.time() - age))
    publish(LocalLayer(str(folder)), "other")
    assert not old.exists()
    assert young.exists()


def test_what_is_not_ours_is_never_swept(layer: LocalLayer, folder: Path) -> None:
    # Somebody may name a folder that has a `tmp` and a `bad` of its own.
    mine = [folder / "tmp/thesis.tex", folder / "tmp/a-1-2-3-x", *(folder / f"bad/{i}" for i in range(100))]
    for path in mine:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("years of work")
        os.utime(path, (1, 1))
    publish(layer)
    overwrite(raw_path(layer, "records", build().fingerprint.hex), b"")
    assert layer.find(build().fingerprint) is None
    assert all(path.exists() for path in mine)


def test_bad_files_are_kept_but_not_without_end(folder: Path) -> None:
    said: list[str] = []
    layer = LocalLayer(str(folder), fs=NoSyncFs(), warn=said.append)
    for i in range(70):
        publish(layer, str(i))
        overwrite(raw_path(layer, "records", build(str(i)).fingerprint.hex), b"damaged")
        assert layer.find(build(str(i)).fingerprint) is None
    kept = list(folder.glob("bad/*"))
    assert len(kept) == 64
    assert {path.read_bytes() for path in kept} == {b"damaged"}
    newest = build("69").fingerprint.hex
    assert any(newest in path.name for path in kept)
    assert len(said) == 70
    assert "damaged" in said[0]
    assert str(folder) in said[0]


def test_damage_that_cannot_be_moved_away_is_a_miss_and_said(folder: Path) -> None:
    said: list[str] = []
    publish(LocalLayer(str(folder)))
    overwrite(raw_path(LocalLayer(str(folder)), "records", build().fingerprint.hex), b"damaged")
    layer = LocalLayer(str(folder), fs=FaultyFs(Fault(errno.EROFS)), warn=said.append)
    assert layer.find(build().fingerprint) is None
    assert "cannot be moved away" in said[0]


def test_damage_that_another_process_moved_away_first_is_no_news(folder: Path) -> None:
    said: list[str] = []
    layer = LocalLayer(str(folder), warn=said.append)
    publish(layer)
    layer.quarantine("records", build("gone").fingerprint.hex, ".json", "somebody was quicker")
    assert said == []


def test_a_damaged_blob_that_cannot_be_moved_away_is_not_published_over(folder: Path) -> None:
    publish(LocalLayer(str(folder)), "other", data=b"same")
    overwrite(raw_path(LocalLayer(str(folder)), "blobs", digest_of(b"same").hex), b"????")
    layer = LocalLayer(str(folder), fs=FaultyFs(Fault(errno.EIO, "rename", "*/bad/*")))
    with pytest.raises(StoreError):
        publish(layer, data=b"same")
    assert LocalLayer(str(folder)).find(build(data=b"same").fingerprint) is None


# --- whom to trust


def test_a_folder_that_is_not_there_yet_is_trusted(tmp_path: Path) -> None:
    check_trust(str(tmp_path / "a/b/c"))


@pytest.mark.parametrize("bits", [0o777, 0o775, 0o757, 0o1777, 0o2775])
def test_a_folder_that_others_can_write_is_refused(tmp_path: Path, bits: int) -> None:
    tmp_path.chmod(bits)
    with pytest.raises(ConfigError, match="others can write"):
        check_trust(str(tmp_path))


@pytest.mark.parametrize("bits", [0o700, 0o755, 0o750, 0o2755])
def test_a_folder_that_only_i_can_write_is_trusted(tmp_path: Path, bits: int) -> None:
    tmp_path.chmod(bits)
    check_trust(str(tmp_path))


def test_a_folder_that_others_can_replace_is_refused(tmp_path: Path) -> None:
    inner = tmp_path / "outer/inner"
    inner.mkdir(parents=True, mode=0o755)
    (tmp_path / "outer").chmod(0o777)
    with pytest.raises(ConfigError, match="outer"):
        check_trust(str(inner))
    with pytest.raises(ConfigError, match="outer"):
        check_trust(str(inner / "not there yet"))
    (tmp_path / "outer").chmod(0o1777)  # sticky, as /tmp: others cannot move what is mine
    check_trust(str(inner))


def test_a_link_is_as_good_as_the_way_to_its_end(tmp_path: Path) -> None:
    (tmp_path / "open/inner").mkdir(parents=True)
    (tmp_path / "open").chmod(0o777)
    (tmp_path / "link").symlink_to(tmp_path / "open/inner")
    with pytest.raises(ConfigError, match="open"):
        check_trust(str(tmp_path / "link"))


@root_only
def test_a_folder_of_somebody_else_is_refused(tmp_path: Path) -> None:
    os.chown(tmp_path, 12345, -1)
    with pytest.raises(ConfigError, match="belongs to user 12345"):
        check_trust(str(tmp_path))


@root_only
def test_what_belongs_to_root_is_trusted_by_all(tmp_path: Path, somebody: None) -> None:
    check_trust(str(tmp_path))
    for path in ("/usr", "/tmp/not-there-yet", "/usr/not-there-yet"):
        check_trust(path)
    os.seteuid(os.getuid())
    os.seteuid(5432)
    with pytest.raises(ConfigError, match="belongs to user 4321"):
        check_trust(str(tmp_path))


def test_a_digest_that_names_no_blob_is_a_miss(layer: LocalLayer) -> None:
    assert layer.read_named(Digest("0" * 64)) is None
    publish(layer)
    made = build()
    assert layer.read_named(made.main.digest) == made.data
    overwrite(raw_path(layer, "blobs", made.main.digest.hex), b"?")
    assert layer.read_named(made.main.digest) is None
    assert layer.find(Fingerprint("0" * 64)) is None
