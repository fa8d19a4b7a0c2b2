"""Looking at files again: contents, folders, names. The memo over it is in `tests/store/test_memo.py`."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from cubinet.errors import FormatError
from cubinet.fingerprint import digest_of, observations_bytes
from cubinet.model import Digest, Observation, Seen
from cubinet.observations import (
    Contents,
    Difference,
    Mounts,
    Sheet,
    TreeTooLargeError,
    nearest_folder,
    path_of,
    read_observations,
    still_present,
    tree_digest,
)
from cubinet.testing.faults import CountingFs, WatchedFs


def later() -> int:
    return time.time_ns() + 3_600_000_000_000


# --- names


def test_a_name_is_found_in_the_place_of_its_label() -> None:
    places = {"lib": "/opt/lib", "src": "/src"}
    assert path_of("lib:a/b.h", places) == "/opt/lib/a/b.h"
    assert path_of("lib:", places) == "/opt/lib"
    assert path_of("src:a:b.h", places) == "/src/a:b.h"
    assert path_of("file:/etc/x.h", places) == "/etc/x.h"
    assert path_of("other:a.h", places) is None


def test_the_nearest_folder_is_the_first_that_exists(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for name in ("x", "a/b/c", "a/b/", "file/x"):
        assert nearest_folder(f"{tmp_path}/{name}") == str(tmp_path)
    assert nearest_folder("/no/such/thing") == "/"


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"cubinet-observations 2\n",
        b"cubinet-observations 1\nread\n",
        b"cubinet-observations 1\nread - \xff\nx\n",
        b"cubinet-observations 1\nseen - lib:a.h\n",
        b"cubinet-observations 1\nread 12 lib:a.h\n",
        b"cubinet-observations 1\nread ../../etc lib:a.h\n",
        b"cubinet-observations 1\n\n",
    ],
    ids=repr,
)
def test_what_is_no_list_of_observations_is_refused(data: bytes) -> None:
    with pytest.raises(FormatError):
        read_observations(data)


# --- contents


def test_content_is_hashed_once_if_the_file_is_at_rest(tmp_path: Path) -> None:
    path = tmp_path / "a.h"
    path.write_text("a")
    for clock, reads in ((later, 1), (time.time_ns, 3)):
        fs = CountingFs()
        contents = Contents(fs, clock)
        for _ in range(3):
            found = contents.digest(str(path))
            assert found is not None
            assert found[1] == digest_of(b"a").hex
        assert fs.counts["read"] == reads


def test_a_changed_file_is_hashed_again(tmp_path: Path) -> None:
    path = tmp_path / "a.h"
    path.write_text("a")
    contents = Contents(clock=later)
    first = contents.digest(str(path))
    time.sleep(0.02)
    path.write_text("b")
    second = contents.digest(str(path))
    assert first is not None
    assert second is not None
    assert (first[1], second[1]) == (digest_of(b"a").hex, digest_of(b"b").hex)


def test_a_file_that_changes_while_it_is_read_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "a.h"
    path.write_text("a")

    class Writing(WatchedFs):
        left = 1

        def read(self, path: str, limit: int | None = None) -> bytes:
            data = super().read(path, limit)
            if self.left:
                self.left -= 1
                time.sleep(0.02)
                Path(path).write_text(f"{self.left} more")
            return data

    fs = Writing()
    found = Contents(fs, later).digest(str(path))
    assert found is not None
    assert found[1] == digest_of(b"0 more").hex
    fs.left = 10
    assert Contents(fs, later).digest(str(path)) is None


def test_what_is_no_regular_file_has_no_content(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "loop").symlink_to("loop")
    contents = Contents()
    for name in ("gone", "", "pipe", "loop", "a\0b"):
        assert contents.digest(f"{tmp_path}/{name}") is None


def test_what_another_process_knew_is_believed_unless_this_one_knows_better(tmp_path: Path) -> None:
    path = tmp_path / "a.h"
    path.write_text("a")
    fs = CountingFs()
    contents = Contents(fs, later)
    found = contents.digest(str(path))
    assert found is not None
    contents.trust(str(path), found[0], "0" * 64)
    assert contents.digest(str(path)) == found
    other = Contents(fs, later)
    other.trust(str(path), found[0], "1" * 64)
    assert other.digest(str(path)) == (found[0], "1" * 64)
    other.trust("/never", (0, 0, 0, 0, 0), "2" * 64)
    assert other.digest("/never") is None


def test_a_file_touched_in_the_future_is_never_at_rest(tmp_path: Path) -> None:
    path = tmp_path / "a.h"
    path.write_text("a")
    now = time.time() + 7200
    os.utime(path, (now, now))
    fs = CountingFs()
    contents = Contents(fs, later)
    for _ in range(2):
        assert contents.digest(str(path)) is not None
    assert fs.counts["read"] == 2


def test_only_file_systems_that_keep_their_own_times_are_trusted(tmp_path: Path) -> None:
    mounts = Mounts()
    mounts._kinds = [("/", "ext4"), ("/net/", "nfs4"), ("/net/local/", "xfs"), ("/fuse/", "fuse.sshfs")]
    for number, (path, trusted) in enumerate(
        [("/a", True), ("/net/a", False), ("/network/a", True), ("/net/local/a", True), ("/fuse/x/y", False)]
    ):
        assert mounts.trusted(path, number) is trusted, path
    assert Mounts().trusted(str(tmp_path), tmp_path.stat().st_dev) in (True, False)


# --- whole folders


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    top = tmp_path / "top"
    for name in ("a.h", "sub/b.h", "sub/deep/c.h", "other/d.h"):
        (top / name).parent.mkdir(parents=True, exist_ok=True)
        (top / name).write_text(name)
    return top


def digest(folder: Path) -> str:
    return tree_digest(Contents(), str(folder))


def test_a_folder_is_its_names_and_contents_and_nothing_else(folder: Path, tmp_path: Path) -> None:
    first = digest(folder)
    os.utime(folder / "a.h", (1, 1))
    (folder / "a.h").chmod(0o600)
    folder.rename(tmp_path / "moved")
    assert digest(tmp_path / "moved") == first


def test_no_change_in_a_folder_is_missed(folder: Path) -> None:
    seen = [digest(folder)]

    def look() -> None:
        seen.append(digest(folder))

    (folder / "sub/b.h").write_text("x")
    look()
    (folder / "sub/new.h").touch()
    look()
    (folder / "sub/new.h").rename(folder / "sub/newer.h")
    look()
    (folder / "sub/newer.h").rename(folder / "newer.h")
    look()
    (folder / "sub/deep/c.h").unlink()
    look()
    (folder / "link.h").symlink_to("a.h")
    look()
    (folder / "nowhere.h").symlink_to("gone.h")
    look()
    assert len(set(seen)) == len(seen)


def test_where_a_link_inside_a_folder_leads_is_not_missed(folder: Path) -> None:
    # Both ends are hashed already when the walk comes to `zzz`.
    link, seen = folder / "zzz", [digest(folder)]
    for end in ("sub", "other", "sub/deep", "."):
        link.symlink_to(end)
        seen.append(digest(folder))
        link.unlink()
    assert len(set(seen)) == len(seen)


def test_a_link_back_up_does_not_go_round_for_ever(folder: Path) -> None:
    (folder / "sub/deep/up").symlink_to("../..")
    (folder / "self").symlink_to(".")
    assert digest(folder) == digest(folder)


def test_a_folder_with_too_many_files_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cubinet.observations.TREE_LIMIT", 3)
    with pytest.raises(TreeTooLargeError, match="top"):
        digest(folder)


# --- sheets


def test_what_holds_has_no_differences(folder: Path) -> None:
    looks = [
        Observation("lib:a.h", Seen.READ, digest_of(b"a.h")),
        Observation("lib:sub/", Seen.PRESENT),
        Observation("lib:sub/b.h", Seen.PRESENT),
        Observation("lib:gone.h", Seen.ABSENT),
        Observation("lib:other", Seen.TREE, Digest(digest(folder / "other"))),
    ]
    sheet = Sheet.of(read_observations(observations_bytes(looks)), {"lib": str(folder)})
    assert list(sheet.differences(Contents())) == []
    assert sheet.folders() == [str(folder)]


def test_each_thing_that_does_not_hold_is_told_with_what_is_different(folder: Path) -> None:
    wrong = digest_of(b"x")
    looks = [
        Observation("gone:a.h", Seen.ABSENT),
        Observation("lib:a.h", Seen.READ, wrong),
        Observation("lib:b.h", Seen.READ, wrong),
        Observation("lib:sub/b.h", Seen.ABSENT),
        Observation("lib:sub/b.h/", Seen.PRESENT),
        Observation("lib:other", Seen.TREE, wrong),
        Observation("lib:no", Seen.TREE, wrong),
        Observation("also:a.h", Seen.READ, digest_of(b"a.h")),
    ]
    sheet = Sheet.of(looks, {"lib": str(folder), "also": str(folder)})
    assert set(sheet.differences(Contents())) == {
        Difference("gone:a.h", "its label has no folder here"),
        Difference("lib:a.h", "changed"),
        Difference("lib:b.h", "is gone"),
        Difference("lib:sub/b.h", "appeared"),
        Difference("lib:sub/b.h/", "is gone"),
        Difference("lib:other", "something in it changed"),
        Difference("lib:no", "something in it changed"),
        Difference("also:a.h", "it is the same file here as one that differs"),
    }


def test_what_must_be_there_must_be_the_same_kind_of_thing(folder: Path) -> None:
    assert still_present(f"{folder}/a.h")
    assert still_present(f"{folder}/sub/")
    assert still_present("/")
    assert not still_present(f"{folder}/a.h/")
    assert not still_present(f"{folder}/sub")
    assert not still_present(f"{folder}/gone")
    assert not still_present("a\0b")


def test_the_folders_of_vain_looks_are_the_nearest_that_exist(folder: Path, tmp_path: Path) -> None:
    (folder / "dangling.h").symlink_to(tmp_path / "elsewhere/x.h")
    names = ["gone.h", "sub/gone.h", "no/such/gone.h", "sub/deep/no/", "a.h/x.h", "dangling.h"]
    sheet = Sheet.of([Observation(f"lib:{name}", Seen.ABSENT) for name in names], {"lib": str(folder)})
    assert sheet.folders() == [str(folder), f"{folder}/sub", f"{folder}/sub/deep", str(tmp_path)]
