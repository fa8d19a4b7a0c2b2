"""The seam to the operating system, and the kit that fails on purpose behind it."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from cubinet._fs import Fs
from cubinet.testing.faults import CountingFs, Fault, FaultyFs, How, NoSyncFs, WatchedFs

from .files import mode


@pytest.fixture
def fs() -> Fs:
    return Fs()


def test_a_file_is_read_whole(fs: Fs, tmp_path: Path) -> None:
    for data in (b"", b"x", os.urandom(1 << 20)):
        (tmp_path / "f").write_bytes(data)
        assert fs.read(str(tmp_path / "f")) == data
        assert fs.read(str(tmp_path / "f"), len(data)) == data


def test_a_file_larger_than_the_limit_is_not_read(fs: Fs, tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"12345")
    with pytest.raises(ValueError, match="5"):
        fs.read(str(tmp_path / "f"), 4)


def test_what_is_not_there_or_no_file_is_the_systems_error(fs: Fs, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        fs.read(str(tmp_path / "gone"))
    with pytest.raises(IsADirectoryError):
        fs.read(str(tmp_path))


def test_a_name_that_is_taken_is_not_written_over(fs: Fs, tmp_path: Path) -> None:
    path = str(tmp_path / "f")
    fs.create(path, b"first")
    with pytest.raises(FileExistsError):
        fs.create(path, b"second")
    assert fs.read(path) == b"first"
    assert mode(tmp_path / "f") == 0o444


def test_nothing_stays_of_a_write_that_failed(fs: Fs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_fd: int) -> None:
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="full"):
        fs.create(str(tmp_path / "f"), b"data")
    assert list(tmp_path.iterdir()) == []


def test_folders_are_made_with_their_parents_and_may_be_there(fs: Fs, tmp_path: Path) -> None:
    for _ in range(2):
        fs.mkdir(str(tmp_path / "a/b/c"))
    assert mode(tmp_path / "a") == mode(tmp_path / "a/b/c") == 0o755


def test_a_folder_below_a_link_to_nowhere_is_an_error(fs: Fs, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "gone")
    for name in ("link/a", "link/a/b"):
        with pytest.raises(FileNotFoundError):
            fs.mkdir(str(tmp_path / name))


def test_listing_a_folder_that_is_not_there_gives_nothing(fs: Fs, tmp_path: Path) -> None:
    (tmp_path / "f").touch()
    assert list(fs.list(str(tmp_path))) == ["f"]
    assert list(fs.list(str(tmp_path / "gone"))) == []


def test_discarding_what_cannot_be_discarded_is_fine(fs: Fs, tmp_path: Path) -> None:
    fs.discard(str(tmp_path / "gone"))
    fs.discard(str(tmp_path))
    assert tmp_path.exists()


# --- the kit


def every_operation(fs: Fs, folder: Path) -> None:
    top = str(folder)
    fs.mkdir(f"{top}/d")
    fs.create(f"{top}/d/a", b"1234")
    fs.link(f"{top}/d/a", f"{top}/d/b")
    fs.rename(f"{top}/d/b", f"{top}/d/c")
    fs.sync_folder(f"{top}/d")
    fs.stat(f"{top}/d/a")
    fs.stats([f"{top}/d/a", f"{top}/d/c", f"{top}/d"])
    fs.read(f"{top}/d/a")
    list(fs.list(f"{top}/d"))
    os.close(fs.open_lock(f"{top}/d/l"))
    fs.discard(f"{top}/d/c")
    fs.unlink(f"{top}/d/a")


def test_counting_counts_each_operation_and_each_stat(tmp_path: Path) -> None:
    fs = CountingFs()
    every_operation(fs, tmp_path)
    single = ("mkdir", "create", "link", "rename", "sync_folder", "stat", "read", "list", "open_lock")
    assert fs.counts == dict.fromkeys(single, 1) | {"stats": 3, "unlink": 2}
    assert fs.changes == 7
    assert fs.calls[0] == ("mkdir", f"{tmp_path}/d")
    fs.clear()
    assert (fs.counts, fs.calls, fs.changes) == ({}, [], 0)


@pytest.mark.parametrize("made", [WatchedFs, NoSyncFs, FaultyFs, CountingFs])
def test_without_a_fault_every_kit_behaves_as_the_real_one(made: type[Fs], tmp_path: Path) -> None:
    every_operation(made(), tmp_path)
    assert sorted(path.name for path in (tmp_path / "d").iterdir()) == ["l"]


def test_a_fault_hits_the_call_it_is_for(tmp_path: Path) -> None:
    fs = FaultyFs(Fault(errno.EIO, "create", "*/b*", call=1))
    fs.create(f"{tmp_path}/a", b"")
    fs.create(f"{tmp_path}/b0", b"")
    with pytest.raises(OSError, match="Input/output"):
        fs.create(f"{tmp_path}/b1", b"")
    fs.create(f"{tmp_path}/b2", b"")
    assert fs.failed == [("create", f"{tmp_path}/b1")]
    assert not (tmp_path / "b1").exists()


def test_a_fault_for_any_operation_hits_changes_only(tmp_path: Path) -> None:
    fs = FaultyFs(Fault(errno.EROFS))
    assert list(fs.list(str(tmp_path))) == []
    fs.stat(str(tmp_path))
    for use in (
        lambda: fs.mkdir(f"{tmp_path}/a"),
        lambda: fs.create(f"{tmp_path}/a", b""),
        lambda: fs.open_lock(f"{tmp_path}/a"),
        lambda: fs.unlink(f"{tmp_path}/a"),
    ):
        with pytest.raises(OSError, match="Read-only"):
            use()
    fs.discard(f"{tmp_path}/a")
    assert list(tmp_path.iterdir()) == []


def test_a_lost_reply_raises_though_it_happened(tmp_path: Path) -> None:
    fs = FaultyFs(Fault(errno.ESTALE, how=How.LOST_REPLY))
    for use in (
        lambda: fs.mkdir(f"{tmp_path}/d"),
        lambda: fs.create(f"{tmp_path}/a", b"whole"),
        lambda: fs.link(f"{tmp_path}/a", f"{tmp_path}/b"),
        lambda: fs.open_lock(f"{tmp_path}/l"),
    ):
        with pytest.raises(OSError, match=r"[Ss]tale"):
            use()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b", "d", "l"]
    assert (tmp_path / "b").read_bytes() == b"whole"


def test_a_cut_file_may_be_told_or_not(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No space"):
        FaultyFs(Fault(errno.ENOSPC, how=How.CUT)).create(f"{tmp_path}/a", b"1234")
    FaultyFs(Fault(0, "create", how=How.CUT)).create(f"{tmp_path}/b", b"1234")
    assert [(tmp_path / name).read_bytes() for name in "ab"] == [b"12", b"12"]


def test_the_dying_one_dies_at_its_step_and_not_before(tmp_path: Path) -> None:
    program = (
        "import sys\nfrom cubinet.testing.faults import DyingFs\n"
        "fs = DyingFs(int(sys.argv[2])); top = sys.argv[1]\n"
        "fs.mkdir(top + '/d'); fs.create(top + '/d/a', b'1234'); fs.link(top + '/d/a', top + '/d/b')\n"
    )
    found = []
    for last in range(5):
        top = tmp_path / str(last)
        top.mkdir()
        done = subprocess.run([sys.executable, "-c", program, str(top), str(last)], check=False)
        files = {path.relative_to(top).as_posix(): path.stat().st_size for path in top.rglob("*") if path.is_file()}
        found.append((done.returncode, (top / "d").exists(), files))
    killed = -signal.SIGKILL
    assert found == [
        (killed, False, {}),
        (killed, True, {}),
        (killed, True, {"d/a": 2}),
        (killed, True, {"d/a": 4}),
        (0, True, {"d/a": 4, "d/b": 4}),
    ]
