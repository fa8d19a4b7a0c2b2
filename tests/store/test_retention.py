"""Keeping a local layer within its limits: what goes, in which order, and what never does."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from cubinet.model import Fingerprint, Record
from cubinet.store.index import Index, IndexWriter
from cubinet.store.local import LocalLayer
from cubinet.store.pins import Pins
from cubinet.store.retention import PROTECTED_SECONDS, Collected, Limits, Retention
from cubinet.store.verify import verify
from cubinet.testing.faults import NoSyncFs
from cubinet.testing.samples import build

DAY = 86400.0
KIB = 1024


class Shelf:
    """A layer with its index, in which time passes as a test says."""

    def __init__(self, folder: Path, now: float | None = None) -> None:
        self.time = now or time.time()
        self.local = LocalLayer(str(folder), fs=NoSyncFs(), durable=False, now=lambda: self.time)
        self.writer = IndexWriter(str(folder), self._observations, interval=3600, now=lambda: self.time)
        self.index = Index(
            str(folder), self._records, find=self.local.find, observations=self._observations, flush=self.writer.flush
        )
        self.local.prepare()
        self.index.stats()  # uses are known from now on, but by this shelf's clock
        with contextlib.closing(sqlite3.connect(folder / "index.sqlite3")) as connection:
            connection.execute("UPDATE raw_counts SET value = ? WHERE name = 'since'", (int(self.time),))
            connection.commit()
        self.pins = Pins(self.local)

    def _records(self) -> Any:
        return filter(None, map(self.local.find, self.local.fingerprints()))

    def _observations(self, record: Record) -> bytes | None:
        return self.local.read_named(record.observations)

    def add(self, name: str, *, size: int = 100 * KIB, seconds: float = 10.0, data: bytes | None = None) -> Fingerprint:
        made = build(name, data=data or (name.encode() * size)[:size], seconds=seconds)
        fresh = self.local.publish(made.record, made.blobs)
        for ref in made.blobs:
            os.utime(self.local.path("blobs", ref.hex), (self.time, self.time))
        if fresh:  # a second output of one fingerprint is no record, and the index is not told of it
            self.writer.note_publish(made.record)
        self.writer.note_use(made.fingerprint)
        return made.fingerprint

    def use(self, fingerprint: Fingerprint) -> None:
        self.writer.note_use(fingerprint)

    def collect(self, dry_run: bool = False, **limits: Any) -> Collected:
        keeping = Retention(self.local, self.index, self.writer, now=lambda: self.time)
        return keeping.collect(Limits(**limits), dry_run=dry_run)

    def left(self) -> set[Fingerprint]:
        return set(self.local.fingerprints())

    def size(self) -> int:
        blobs = sum(Path(self.local.path("blobs", name)).stat().st_size for name in self.local.names("blobs"))
        return blobs + 4096 * len(self.left())


def files(shelf: Shelf) -> list[Path]:
    """All files but those of the index."""
    return [p for p in Path(shelf.local.folder).rglob("*") if p.is_file() and not p.name.startswith("index.")]


@pytest.fixture
def shelf(tmp_path: Path) -> Shelf:
    return Shelf(tmp_path / "store")


def test_within_the_limit_nothing_goes(shelf: Shelf) -> None:
    kept = {shelf.add(str(n)) for n in range(5)}
    shelf.time += 10 * DAY
    done = shelf.collect(size=1 << 30)
    assert (done.records, done.freed, done.over) == (0, 0, 0)
    assert done.size == shelf.size()
    assert shelf.left() == kept


def test_over_the_limit_the_least_worth_keeping_goes_to_nine_tenths(shelf: Shelf) -> None:
    cheap = [shelf.add(f"cheap {n}", seconds=0.3) for n in range(5)]
    dear = [shelf.add(f"dear {n}", seconds=40.0) for n in range(5)]
    shelf.time += 10 * DAY
    limit = shelf.size() * 7 // 10
    done = shelf.collect(size=limit)
    assert set(done.victims) <= set(cheap)
    assert shelf.left() >= set(dear)
    assert limit * 0.7 < shelf.size() <= limit * 0.9
    assert done.over == 0
    assert verify(shelf.local, lambda _done, _all: None).clean


def test_a_large_build_goes_before_ten_small_ones_that_took_as_long(shelf: Shelf) -> None:
    large = shelf.add("large", size=1000 * KIB)
    small = {shelf.add(f"small {n}", size=10 * KIB) for n in range(10)}
    shelf.time += 10 * DAY
    shelf.collect(size=shelf.size() // 2)
    assert shelf.left() == small
    assert large not in shelf.left()


def test_what_was_used_lately_outlives_what_was_not(shelf: Shelf) -> None:
    old, used = shelf.add("old"), shelf.add("used")
    shelf.time += 60 * DAY
    shelf.use(used)
    shelf.time += 2 * DAY
    shelf.collect(size=shelf.size() - 1)
    assert shelf.left() == {used}
    assert old not in shelf.left()


def test_what_was_used_within_a_day_stays_whatever_the_limit(shelf: Shelf) -> None:
    old, new = shelf.add("old"), shelf.add("new")
    shelf.time += 10 * DAY
    shelf.use(new)
    shelf.time += DAY - 600
    done = shelf.collect(size=1)
    assert shelf.left() == {new}
    assert old not in shelf.left()
    assert done.recent == 1
    assert done.over == shelf.size() - 1


def test_what_is_pinned_stays_whatever_the_limit(shelf: Shelf) -> None:
    pinned, other = shelf.add("pinned"), shelf.add("other")
    shelf.pins.pin("release", [pinned])
    shelf.time += 400 * DAY
    done = shelf.collect(size=1, age=DAY)
    assert shelf.left() == {pinned}
    assert other not in shelf.left()
    assert done.pinned >= 1
    shelf.pins.unpin("release")
    shelf.collect(size=1)
    assert shelf.left() == set()


def test_what_nobody_used_for_long_goes_though_there_is_room(shelf: Shelf) -> None:
    old, used = shelf.add("old"), shelf.add("used")
    shelf.time += 31 * DAY
    shelf.use(used)
    shelf.time += 2 * DAY
    done = shelf.collect(age=30 * DAY)
    assert shelf.left() == {used}
    assert done.victims == [old]


def test_a_blob_goes_with_the_last_record_that_names_it(shelf: Shelf) -> None:
    one, two = shelf.add("one", data=b"shared" * 1000), shelf.add("two", data=b"shared" * 1000)
    (ref,) = {r for f in (one, two) for role, r in shelf.local.find(f).blobs if role == "cubin"}  # type: ignore[union-attr]
    shelf.time += 31 * DAY
    shelf.use(two)
    shelf.time += 2 * DAY
    done = shelf.collect(age=30 * DAY)
    assert shelf.local.read(ref) is not None
    assert ref.size > done.freed - 4096
    shelf.time += 60 * DAY
    shelf.collect(age=30 * DAY)
    assert shelf.local.read(ref) is None


def test_a_blob_that_a_build_not_yet_in_the_index_needs_stays(shelf: Shelf) -> None:
    old = shelf.add("old", data=b"shared" * 1000)
    shelf.time += 40 * DAY
    made = build("new", data=b"shared" * 1000)
    shelf.local.publish(made.record, made.blobs)  # by another process, which has not told the index
    os.utime(shelf.local.path("blobs", made.main.digest.hex), (shelf.time, shelf.time))
    shelf.collect(age=30 * DAY)
    assert old not in shelf.left()
    assert shelf.local.read(made.main) is not None


def test_a_dry_run_says_what_would_go_and_changes_nothing(shelf: Shelf) -> None:
    for n in range(10):
        shelf.add(str(n), data=b"same for all" * 1000 if n % 2 else None)
    shelf.time += 10 * DAY
    before = {path: path.stat().st_mtime_ns for path in files(shelf)}
    size = shelf.size()
    told = shelf.collect(dry_run=True, size=size // 2)
    after = {path: path.stat().st_mtime_ns for path in files(shelf)}
    assert before == after
    done = shelf.collect(size=size // 2)
    assert (told.victims, told.freed, told.blobs) == (done.victims, done.freed, done.blobs)
    assert size - shelf.size() == done.freed


def test_when_uses_are_forgotten_everything_counts_as_used_just_then(shelf: Shelf) -> None:
    kept = {shelf.add(str(n)) for n in range(3)}
    shelf.time += 100 * DAY
    for path in Path(shelf.local.folder).glob("index.*"):
        path.unlink()
    shelf.index.close()
    fresh = Shelf(Path(shelf.local.folder), shelf.time)
    fresh.collect(size=1, age=30 * DAY)
    assert fresh.left() == kept


def test_what_processes_left_behind_is_swept(shelf: Shelf) -> None:
    shelf.add("one")
    folder = Path(shelf.local.folder)
    ages = {
        f"failures/ab/{'a' * 64}.json": 2 * 3600,
        f"locks/{'a' * 64}": 2 * DAY,
        f"bad/records-{'a' * 64}-1": 31 * DAY,
        f"memo/ab/{'a' * 64}": 91 * DAY,
        f"blobs/ab/ab{'a' * 62}": 2 * DAY,
    }
    for name, age in ages.items():
        for path, seconds in ((folder / name, age), (folder / name.replace("aa", "ee", 1), 60)):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(b"left")
            os.utime(path, (shelf.time - seconds, shelf.time - seconds))
    held = shelf.local.lock("a" * 64)
    held.acquire(0)
    os.utime(held.path, (shelf.time - 2 * DAY, shelf.time - 2 * DAY))
    done = shelf.collect()
    assert (done.leftovers, done.blobs) == (3, 1)
    left = {name for name in ages if (folder / name).exists()}
    assert left == {f"locks/{'a' * 64}"}  # somebody holds it
    held.release()
    assert all((folder / name.replace("aa", "ee", 1)).exists() for name in ages)


def test_one_process_collects_at_a_time(shelf: Shelf) -> None:
    shelf.add("one")
    shelf.time += 10 * DAY
    with shelf.local.lock("collect") as lock:
        lock.acquire(0)
        assert shelf.collect(size=1).busy
        assert len(shelf.left()) == 1
    assert not shelf.collect(size=1).busy


def test_many_go_in_slices_and_the_index_knows(shelf: Shelf) -> None:
    for n in range(120):
        shelf.add(str(n), size=KIB)
    shelf.time += 10 * DAY
    rests: list[float] = []
    keeping = Retention(
        shelf.local, shelf.index, shelf.writer, now=lambda: shelf.time, rest=lambda: rests.append(time.monotonic())
    )
    done = keeping.collect(Limits(size=1))
    assert done.records == 120
    assert shelf.index.stats()["records"] == 0
    assert shelf.index.check() == []
    assert not list(shelf.local.names("manifests"))


class Life(RuleBasedStateMachine):
    """Random publishes, uses, pins and collections, against a model that knows when each build was last used."""

    @initialize()
    def begin(self) -> None:
        import tempfile

        self.home = tempfile.TemporaryDirectory()
        self.shelf = Shelf(Path(self.home.name) / "store")
        self.used: dict[Fingerprint, float] = {}
        self.pinned: set[Fingerprint] = set()
        self.last: Collected | None = None

    def teardown(self) -> None:
        if hasattr(self, "home"):
            self.shelf.writer.close()
            self.shelf.index.close()
            self.home.cleanup()

    @rule(name=st.integers(0, 12), shared=st.booleans(), seconds=st.sampled_from([0.1, 5.0, 60.0]))
    def publish(self, name: int, shared: bool, seconds: float) -> None:
        data = b"shared" * 500 if shared else None
        found = self.shelf.add(str(name), size=(name + 1) * KIB, data=data, seconds=seconds)
        self.used[found] = self.shelf.time

    @precondition(lambda self: self.used)
    @rule(data=st.data())
    def use(self, data: st.DataObject) -> None:
        chosen = data.draw(st.sampled_from(sorted(self.used)))
        self.shelf.use(chosen)
        self.used[chosen] = self.shelf.time

    @precondition(lambda self: self.used)
    @rule(data=st.data())
    def pin(self, data: st.DataObject) -> None:
        chosen = data.draw(st.sampled_from(sorted(self.used)))
        self.shelf.pins.pin("kept", [chosen])
        self.pinned.add(chosen)

    @precondition(lambda self: self.pinned)
    @rule()
    def unpin(self) -> None:
        self.shelf.pins.unpin("kept")
        self.pinned.clear()

    @rule(hours=st.sampled_from([1, 20, 30, 24 * 8, 24 * 40]))
    def pass_time(self, hours: int) -> None:
        self.shelf.time += hours * 3600

    @rule()
    def lose_the_index(self) -> None:
        self.shelf.writer.close()
        self.shelf.index.close()
        for path in Path(self.shelf.local.folder).glob("index.*"):
            path.unlink()
        now = self.shelf.time
        self.shelf = Shelf(Path(self.shelf.local.folder), now)
        self.used = dict.fromkeys(self.used, now)  # nothing is known, so all of it counts as used

    @rule(size=st.sampled_from([0, 1, 8 * KIB, 40 * KIB]), age=st.sampled_from([0.0, 7 * DAY]))
    def collect(self, size: int, age: float) -> None:
        before = self.shelf.left()
        done = self.shelf.collect(size=size, age=age)
        gone = before - self.shelf.left()
        assert gone == set(done.victims)
        for fingerprint in gone:
            assert fingerprint not in self.pinned
            assert self.shelf.time - self.used[fingerprint] >= PROTECTED_SECONDS - 300  # uses are kept to 5 minutes
            del self.used[fingerprint]
        protected = {f for f, at in self.used.items() if self.shelf.time - at < PROTECTED_SECONDS} | self.pinned
        if size and not protected:
            assert self.shelf.size() <= size

    @invariant()
    def no_record_outlives_its_blobs(self) -> None:
        if hasattr(self, "shelf"):
            assert self.shelf.left() == set(self.used)
            for fingerprint in self.used:
                record = self.shelf.local.find(fingerprint)
                assert record is not None
                assert all(self.shelf.local.read(ref) is not None for _, ref in record.blobs)


TestLife = Life.TestCase
TestLife.settings = settings(max_examples=8, stateful_step_count=20, deadline=None)
