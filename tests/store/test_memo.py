"""Checks remembered: in the process by time, between processes by stamps. Never a wrong "holds"."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import pytest

from cubinet._fs import Fs
from cubinet.fingerprint import digest_of, observations_bytes
from cubinet.model import Digest, Observation, Seen
from cubinet.observations import Contents, tree_digest
from cubinet.store.memo import Checker
from cubinet.testing.faults import CountingFs, Fault, FaultyFs

from .files import tree


def later() -> int:
    return time.time_ns() + 3_600_000_000_000


def tick() -> None:
    """Let the clock of the file system go on: these tests pretend that files are long at rest."""
    time.sleep(0.02)


class Looks:
    """Observations of files under one folder, and checkers that all have one memo folder, as processes would."""

    def __init__(self, top: Path) -> None:
        self.top, self.root, self.elsewhere = top, top / "root", top / "elsewhere"
        self.root.mkdir()
        self.elsewhere.mkdir()

    def write(self, name: str, text: str) -> Path:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def checker(self, *, fs: Fs | None = None, clock: Callable[[], int] = later, folder: bool = True) -> Checker:
        memo = str(self.top / "memo") if folder else None
        fs = fs or Fs()
        return Checker(memo, Contents(fs, clock), fs=fs, refresh=0.0)

    def read(self, name: str) -> Observation:
        return Observation(f"lib:{name}", Seen.READ, digest_of((self.root / name).read_bytes()))

    def holds(
        self, checker: Checker, looks: Iterable[Observation], places: Mapping[str, Path] | None = None
    ) -> tuple[bool, bool]:
        """Whether they hold, and whether the observations had to be loaded."""
        data = observations_bytes(looks)
        loaded: list[bytes] = []

        def load() -> bytes:
            loaded.append(data)
            return data

        paths = {label: str(path) for label, path in (places or {"lib": self.root}).items()}
        return checker.holds(digest_of(data), paths, load), bool(loaded)


@pytest.fixture
def looks(tmp_path: Path) -> Looks:
    return Looks(tmp_path)


def absent(name: str) -> Observation:
    return Observation(f"lib:{name}", Seen.ABSENT)


def present(name: str) -> Observation:
    return Observation(f"lib:{name}", Seen.PRESENT)


def test_what_held_for_one_process_is_known_to_the_next(looks: Looks) -> None:
    looks.write("a.h", "a")
    seen = [looks.read("a.h"), absent("sub/b.h"), absent("c.h")]
    assert looks.holds(looks.checker(), seen) == (True, True)
    fs = CountingFs()
    assert looks.holds(looks.checker(fs=fs), seen) == (True, False)
    assert fs.counts == {"read": 1, "stats": 2}


def test_a_young_file_is_hashed_each_time(looks: Looks) -> None:
    looks.write("a.h", "a")
    seen = [looks.read("a.h")]
    for _ in range(2):
        fs = CountingFs()
        assert looks.holds(looks.checker(fs=fs, clock=time.time_ns), seen) == (True, True)
        assert ("read", str(looks.root / "a.h")) in fs.calls


def test_a_file_on_a_network_file_system_is_hashed_each_time(looks: Looks) -> None:
    looks.write("a.h", "a")
    seen = [looks.read("a.h")]
    for _ in range(2):
        checker = looks.checker()
        checker.contents.mounts._kinds = [("/", "nfs4")]
        assert looks.holds(checker, seen) == (True, True)


class Changes:
    """Each makes an observation of `everything` untrue."""

    def new_text_of_the_same_length(self, looks: Looks) -> None:
        looks.write("a.h", "b")

    def another_file_in_its_place(self, looks: Looks) -> None:
        looks.write("x.h", "b").replace(looks.root / "a.h")

    def gone(self, looks: Looks) -> None:
        (looks.root / "a.h").unlink()

    def a_folder_in_its_place(self, looks: Looks) -> None:
        (looks.root / "a.h").unlink()
        (looks.root / "a.h").mkdir()

    def a_link_to_another(self, looks: Looks) -> None:
        (looks.root / "a.h").unlink()
        (looks.root / "a.h").symlink_to(looks.write("x.h", "b"))

    def the_name_looked_for_appears(self, looks: Looks) -> None:
        looks.write("b.h", "x")

    def the_name_looked_for_appears_as_a_folder(self, looks: Looks) -> None:
        (looks.root / "b.h").mkdir()

    def the_name_looked_for_appears_as_a_link(self, looks: Looks) -> None:
        (looks.root / "b.h").symlink_to(looks.root / "a.h")

    def a_name_looked_for_below_a_missing_folder_appears(self, looks: Looks) -> None:
        looks.write("deep/er/c.h", "x")

    def the_folder_looked_in_is_another(self, looks: Looks) -> None:
        shutil.rmtree(looks.root / "sub")
        looks.write("sub/d.h", "x")

    def what_was_there_is_gone(self, looks: Looks) -> None:
        (looks.root / "there/probed.h").unlink()

    def what_was_a_folder_is_a_file(self, looks: Looks) -> None:
        (looks.root / "there/dir").rmdir()
        looks.write("there/dir", "x")

    def what_was_a_file_is_a_folder(self, looks: Looks) -> None:
        (looks.root / "there/probed.h").unlink()
        (looks.root / "there/probed.h").mkdir()

    def a_link_to_nowhere_is_fulfilled(self, looks: Looks) -> None:
        (looks.elsewhere / "nowhere.h").write_text("x")

    def a_folder_link_to_nowhere_is_fulfilled(self, looks: Looks) -> None:
        (looks.elsewhere / "no/where").mkdir(parents=True)
        (looks.elsewhere / "no/where/e.h").write_text("x")

    def the_root_is_gone(self, looks: Looks) -> None:
        shutil.rmtree(looks.root)


class Harmless:
    """None of these does."""

    def a_touch(self, looks: Looks) -> None:
        os.utime(looks.root / "a.h")

    def the_same_text_again(self, looks: Looks) -> None:
        looks.write("a.h", "a")

    def a_link_to_the_same_text(self, looks: Looks) -> None:
        (looks.root / "a.h").unlink()
        (looks.root / "a.h").symlink_to(looks.write("x.h", "a"))

    def another_name_beside_it(self, looks: Looks) -> None:
        looks.write("other.h", "x")

    def new_text_of_what_was_only_probed(self, looks: Looks) -> None:
        looks.write("there/probed.h", "y")

    def a_missing_folder_appears_empty(self, looks: Looks) -> None:
        (looks.root / "deep").mkdir()


def each(changes: type) -> pytest.MarkDecorator:
    made = changes()
    names = [name for name in vars(changes) if not name.startswith("_")]
    return pytest.mark.parametrize("change", [getattr(made, name) for name in names], ids=names)


def everything(looks: Looks) -> list[Observation]:
    looks.write("a.h", "a")
    looks.write("there/probed.h", "x")  # a folder in which nothing is looked for in vain
    (looks.root / "there/dir").mkdir()
    (looks.root / "sub").mkdir()
    (looks.root / "dangling.h").symlink_to(looks.elsewhere / "nowhere.h")
    (looks.root / "dangling").symlink_to(looks.elsewhere / "no/where")
    vain = ["b.h", "deep/er/c.h", "sub/d.h", "dangling.h", "dangling/e.h"]
    return [looks.read("a.h"), present("there/probed.h"), present("there/dir/"), *map(absent, vain)]


@each(Changes)
def test_no_change_that_matters_is_missed(looks: Looks, change: Callable[[Looks], object]) -> None:
    seen = everything(looks)
    assert looks.holds(looks.checker(), seen) == (True, True)
    assert looks.holds(looks.checker(), seen) == (True, False)
    tick()
    change(looks)
    assert looks.holds(looks.checker(), seen)[0] is False
    assert looks.holds(looks.checker(folder=False), seen)[0] is False


@each(Harmless)
def test_a_change_that_does_not_matter_is_looked_through(looks: Looks, change: Callable[[Looks], object]) -> None:
    seen = everything(looks)
    looks.holds(looks.checker(), seen)
    tick()
    change(looks)
    assert looks.holds(looks.checker(), seen)[0] is True
    assert looks.holds(looks.checker(), seen) == (True, False)  # and noted anew


def test_only_what_changed_is_hashed_again(looks: Looks) -> None:
    for i in range(5):
        looks.write(f"{i}.h", str(i))
    seen = [looks.read(f"{i}.h") for i in range(5)]
    looks.holds(looks.checker(), seen)
    tick()
    os.utime(looks.root / "3.h")
    fs = CountingFs()
    assert looks.holds(looks.checker(fs=fs), seen) == (True, True)
    assert [path for operation, path in fs.calls if operation == "read"][1:] == [str(looks.root / "3.h")]


def test_a_memo_is_of_one_place(looks: Looks, tmp_path: Path) -> None:
    looks.write("a.h", "a")
    seen = [looks.read("a.h")]
    looks.holds(looks.checker(), seen)
    other = tmp_path / "other"
    shutil.copytree(looks.root, other)
    assert looks.holds(looks.checker(), seen, {"lib": other}) == (True, True)
    tick()
    (other / "a.h").write_text("b")
    assert looks.holds(looks.checker(), seen, {"lib": other})[0] is False
    assert looks.holds(looks.checker(), seen) == (True, False)


def test_a_memo_is_of_one_set_of_observations(looks: Looks) -> None:
    looks.write("a.h", "a")
    assert looks.holds(looks.checker(), [looks.read("a.h")]) == (True, True)
    assert looks.holds(looks.checker(), [Observation("lib:a.h", Seen.READ, digest_of(b"b"))]) == (False, True)
    assert looks.holds(looks.checker(), [absent("a.h")]) == (False, True)


def test_a_label_without_a_place_does_not_hold(looks: Looks) -> None:
    looks.write("a.h", "a")
    assert looks.holds(looks.checker(), [looks.read("a.h")], {"other": looks.root}) == (False, True)
    assert looks.holds(looks.checker(), [absent("b.h")], {"other": looks.root}) == (False, True)


def test_two_labels_at_one_place_hold_only_if_they_agree(looks: Looks) -> None:
    looks.write("x.h", "new")
    places = {"lib": looks.root, "old": looks.root, "and": looks.root}
    for label in ("and", "old"):  # names sort before and after
        stale = Observation(f"{label}:x.h", Seen.READ, digest_of(b"text of another folder"))
        assert looks.holds(looks.checker(), [looks.read("x.h"), stale], places)[0] is False
    same = Observation("old:x.h", Seen.READ, digest_of(b"new"))
    assert looks.holds(looks.checker(), [looks.read("x.h"), same], places)[0] is True


def test_whole_folders_are_hashed_each_time(looks: Looks) -> None:
    looks.write("a.h", "a")
    seen = [Observation("lib:", Seen.TREE, Digest(tree_digest(Contents(), str(looks.root))))]
    for _ in range(2):
        assert looks.holds(looks.checker(), seen) == (True, True)
    looks.write("b.h", "b")
    assert looks.holds(looks.checker(), seen) == (False, True)


def test_observations_that_cannot_be_had_do_not_hold(looks: Looks) -> None:
    digest = digest_of(b"gone")
    assert not looks.checker().holds(digest, {}, lambda: None)
    assert not looks.checker().holds(digest, {}, lambda: b"no observations")


@pytest.mark.parametrize("operation", ["create", "rename", "mkdir", "read"])
def test_a_memo_that_cannot_be_written_or_read_only_costs_time(looks: Looks, operation: str) -> None:
    looks.write("a.h", "a")
    seen = [looks.read("a.h")]
    fs = FaultyFs(Fault(28, operation, f"{looks.top}/memo*"))
    for _ in range(2):
        assert looks.holds(looks.checker(fs=fs), seen) == (True, True)
    assert not [path for path in tree(looks.top / "memo") if path.is_file()] or operation == "read"


def test_a_name_that_is_no_utf8_only_costs_time(looks: Looks) -> None:
    name = os.fsdecode(b"\xff.h")
    looks.write(name, "a")
    seen = [looks.read(name), absent(os.fsdecode(b"\xfe.h"))]
    for _ in range(2):
        assert looks.holds(looks.checker(), seen)[0] is True


def test_within_a_window_nothing_is_looked_at_twice(looks: Looks) -> None:
    looks.write("a.h", "a")
    fs, now = CountingFs(), [0.0]
    checker = Checker(None, Contents(fs, later), fs=fs, refresh=1.0, clock=lambda: now[0])
    seen = [looks.read("a.h")]
    assert looks.holds(checker, seen) == (True, True)
    window = checker.current()
    looks.write("a.h", "b")
    now[0] = 0.9
    assert looks.holds(checker, seen) == (True, False)
    assert checker.current() is window
    now[0] = 1.0
    assert looks.holds(checker, seen)[0] is False
    assert checker.current() is not window


def test_differences_are_named(looks: Looks) -> None:
    seen = everything(looks)
    looks.write("a.h", "b")
    looks.write("b.h", "x")
    (looks.root / "there/probed.h").unlink()
    found = looks.checker().differences(observations_bytes(seen), {"lib": str(looks.root)})
    assert {(d.name, d.what) for d in found} == {
        ("lib:a.h", "changed"),
        ("lib:b.h", "appeared"),
        ("lib:there/probed.h", "is gone"),
    }
