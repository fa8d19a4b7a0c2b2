"""Collection on a remote: what goes, what must not, and what others may do meanwhile."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cubinet.cli.keep import collect as command
from cubinet.cli.remote import verify_remote_command
from cubinet.config import duration
from cubinet.errors import ConfigError, LockTimeoutError, ReadOnlyError, RemoteError, RemoteUnavailableError
from cubinet.model import Digest
from cubinet.protocols import Entry, Object
from cubinet.remotes.file import FileRemote
from cubinet.store.envelope import OBJECT_LIMIT, pack
from cubinet.store.format import encode_manifest
from cubinet.store.remote import RemoteLayer
from cubinet.store.remote_collect import Collected, collect
from cubinet.store.remote_lease import LEASE_SECONDS
from cubinet.store.remote_verify import verify_remote
from cubinet.store.usage import dump, write_note
from cubinet.testing.faults import NoSyncFs
from cubinet.testing.samples import Build, build, sealed

HOUR, DAY = 3600.0, 86400.0
START = 1_800_000_000.0
MONTH = 30 * DAY


class Folder(FileRemote):
    """A folder whose clock is the test's, that can die at its n-th request and stay dead."""

    def __init__(self, url: str, options: Any = None) -> None:
        super().__init__(url, options)
        self._fs = NoSyncFs()
        self.time = START
        self.calls, self.dies_at = 0, 0
        self.before: Callable[[str, str], None] = lambda _what, _name: None
        self._count = threading.Lock()

    def _step(self, what: str, name: str) -> None:
        with self._count:
            self.calls += 1
            dead = self.dies_at and self.calls >= self.dies_at
        if dead:
            raise RemoteUnavailableError(what, self.url, "the connection broke")
        self.before(what, name)

    def _get(self, name: str, timeout: float, limit: int | None) -> Object | None:
        self._step("get", name)
        return super()._get(name, timeout, limit)

    def _put(self, name: str, data: bytes, timeout: float, create: bool, match: str) -> bool:
        self._step("put", name)
        done = super()._put(name, data, timeout, create, match)
        if done:
            os.utime(self._path(name), (self.time, self.time))
        return done

    def _stat(self, name: str, timeout: float) -> Entry | None:
        if timeout:  # else it is part of a listing
            self._step("stat", name)
        return super()._stat(name, timeout)

    def _delete(self, names: Sequence[str], timeout: float) -> None:
        if self.calls + 1 == self.dies_at:  # in the middle of them
            super()._delete(names[: len(names) // 2], timeout)
        self._step("delete", names[0])
        super()._delete(names, timeout)

    def _pages(self, prefix: str, timeout: float) -> Iterator[list[Entry]]:
        self._step("scan", prefix)
        return super()._pages(prefix, timeout)


class Place:
    """A remote, a writer of it, and its collector. The host's clock is wrong by `skew`."""

    def __init__(self, folder: Path, skew: float = 0.0) -> None:
        folder.mkdir(exist_ok=True)
        self.folder, self.skew = folder, skew
        self.remote = Folder(f"file://{folder}")
        self.layer = RemoteLayer(self.remote, inline=-1, now=self.now)

    def now(self) -> float:
        return self.remote.time + self.skew

    def wait(self, seconds: float) -> None:
        self.remote.time += seconds

    def publish(self, *builds: Build) -> None:
        for one in builds:
            self.layer.refresh()
            self.layer.publish(one.record, one.blobs)

    def use(self, *builds: Build, client: str = "0123456789abcdef") -> None:
        assert write_note(self.remote, client, {b.fingerprint.hex for b in builds}, timeout=5, now=self.now)

    def collect(self, unused_for: float = MONTH, **rest: Any) -> Collected:
        return collect(self.remote, unused_for=unused_for, now=self.now, **rest)

    def has(self, *builds: Build) -> list[bool]:
        self.layer.refresh()
        found = [self.layer.fetch(b.fingerprint, timeout=5) for b in builds]
        return [
            f is not None and all(f.blobs.get(r.digest) or self.layer.read(r) for _, r in f.record.blobs) for f in found
        ]

    def listing(self) -> dict[str, tuple[int, bytes]]:
        files = [path for path in self.folder.rglob("*") if path.is_file() and not path.name.startswith(".")]
        return {str(p.relative_to(self.folder)): (p.stat().st_mtime_ns, p.read_bytes()) for p in files}

    def blobs(self) -> set[str]:
        return {path.name for path in self.folder.glob("v1/blobs/*/*")}

    def clean(self) -> bool:
        return verify_remote(self.layer, lambda _done, _all: None).clean


@pytest.fixture
def far(tmp_path: Path) -> Place:
    return Place(tmp_path / "remote")


def hexes(*builds: Build) -> set[str]:
    return {digest.hex for one in builds for digest in one.blobs}


def test_what_nobody_used_goes_and_its_blobs_go_after_the_grace(far: Place) -> None:
    old, used, new = build("old"), build("used"), build("new")
    far.publish(old, used)
    far.wait(25 * DAY)
    far.use(used)
    far.publish(new)
    far.wait(10 * DAY)
    first = far.collect()
    assert (first.records, dict(first.kept)) == (3, {"used lately": 1, "written lately": 1})
    assert dict(first.deleted) == {"records": 1, "candidates": 1, "manifests": 1}
    assert first.waiting == len(hexes(old))
    assert far.has(old, used, new) == [False, True, True]
    assert far.blobs() == hexes(old, used, new)
    far.wait(23 * HOUR)
    assert "blobs" not in far.collect().deleted
    far.wait(2 * HOUR)
    last = far.collect()
    assert last.deleted["blobs"] == len(hexes(old))
    assert last.waiting == 0
    assert far.blobs() == hexes(used, new)
    assert far.clean()


def test_freed_bytes_are_those_of_the_objects(far: Place) -> None:
    far.publish(build("old"))
    before = sum(len(data) for _, data in far.listing().values())
    far.wait(40 * DAY)
    freed = far.collect().bytes
    far.wait(2 * DAY)
    freed += far.collect().bytes
    assert freed == before
    far.wait(DAY)
    far.collect()
    assert far.listing() == {}


def test_a_dry_run_changes_nothing_and_tells_what_a_run_does(far: Place) -> None:
    far.publish(build("old"), build("older"))
    far.wait(40 * DAY)
    far.publish(build("new"))
    for _ in range(2):
        before = far.listing()
        would = far.collect(dry_run=True)
        assert far.listing() == before
        assert would.dry_run
        did = far.collect()
        assert (would.kept, would.deleted, would.bytes) == (did.kept, did.deleted, did.bytes)
        assert (would.waiting, would.waiting_bytes) == (did.waiting, did.waiting_bytes)
        far.wait(2 * DAY)


def test_an_empty_remote_is_nothing_to_do(far: Place) -> None:
    found = far.collect()
    assert (found.records, dict(found.deleted), found.bytes) == (0, {}, 0)
    assert far.listing() == {}


def test_a_writer_that_shares_a_blob_between_mark_and_sweep_keeps_it(far: Place) -> None:
    first, second = build("a", data=b"shared object"), build("b", data=b"shared object")
    far.publish(first)
    far.wait(40 * DAY)
    far.collect()
    far.wait(25 * HOUR)
    far.publish(second)
    far.collect()
    assert far.has(first, second) == [False, True]
    assert far.blobs() == hexes(second)


def test_a_writer_that_comes_while_blobs_are_listed_keeps_its_blob(far: Place) -> None:
    first, second = build("a", data=b"shared object"), build("b", data=b"shared object")
    far.publish(first)
    far.wait(40 * DAY)
    far.collect()
    far.wait(25 * HOUR)
    other = RemoteLayer(FileRemote(f"file://{far.folder}"), inline=-1, now=far.now)

    def comes(what: str, name: str) -> None:
        if name == "v1/collect/state" and what != "get":  # records were read, blobs listed, none deleted
            far.remote.before = lambda _what, _name: None
            other.publish(second.record, second.blobs)

    far.remote.before = comes
    far.collect()
    assert far.has(second) == [True]


def test_a_writer_that_relied_on_a_young_blob_is_seen_before_the_sweep(far: Place) -> None:
    first, second = build("a", data=b"shared object"), build("b", data=b"shared object")
    far.publish(first)
    far.wait(11 * HOUR)
    far.collect(unused_for=0)  # its record goes, its blobs are marked
    far.publish(second)  # skips the blob: it is younger than 12 h
    far.wait(25 * HOUR)
    far.collect()
    assert far.has(second) == [True]


def test_blobs_of_a_record_that_goes_wait_though_they_were_marked_long_ago(far: Place) -> None:
    first, second = build("a", data=b"shared object"), build("b", data=b"shared object")
    far.publish(first)
    far.wait(11 * HOUR)
    far.collect(unused_for=0)
    far.publish(second)
    far.wait(40 * DAY)
    found = far.collect()
    assert found.deleted["records"] == 1
    assert second.main.digest.hex in far.blobs()


def test_a_reader_with_an_old_manifest_meets_a_miss(far: Place) -> None:
    old = build("old")
    far.publish(old)
    reader = RemoteLayer(far.remote, inline=-1)
    [(observations, _)] = reader.candidates(old.record.action, timeout=5)
    far.wait(40 * DAY)
    far.collect()
    assert observations == old.record.observations
    assert reader.fetch(old.fingerprint, timeout=5) is None
    assert RemoteLayer(far.remote).candidates(old.record.action, timeout=5) == []
    far.publish(old)
    assert RemoteLayer(far.remote).candidates(old.record.action, timeout=5) != []
    assert far.has(old) == [True]


def test_a_manifest_forgets_only_what_goes_and_keeps_the_sets_of_the_others(far: Place) -> None:
    old, new = (build(name, action="same") for name in ("old", "new"))
    far.publish(old)
    far.wait(40 * DAY)
    far.publish(new)
    assert dict(far.collect().deleted) == {"records": 1, "candidates": 1}
    found = RemoteLayer(far.remote).candidates(new.record.action, timeout=5)
    assert found == [(new.record.observations, new.blobs[new.record.observations])]


def test_a_candidate_that_comes_while_its_manifest_is_changed_is_not_lost(far: Place) -> None:
    old, new, meanwhile = (build(name, action="same") for name in ("old", "new", "meanwhile"))
    far.publish(old)
    far.wait(40 * DAY)
    far.publish(new)
    other = RemoteLayer(FileRemote(f"file://{far.folder}"), inline=-1)

    def comes(what: str, name: str) -> None:
        if what == "put" and name.startswith("v1/manifests/"):
            far.remote.before = lambda _what, _name: None
            other.publish(meanwhile.record, meanwhile.blobs)

    far.remote.before = comes
    far.collect()
    found = dict(RemoteLayer(far.remote).candidates(new.record.action, timeout=5))
    assert found.keys() >= {new.record.observations, meanwhile.record.observations}


def test_a_blob_that_was_written_again_and_never_named_goes_in_the_end(far: Place) -> None:
    made = build()
    far.publish(made)
    far.wait(40 * DAY)
    far.collect()
    far.wait(25 * HOUR)
    path = next(far.folder.glob("v1/blobs/*/*"))
    far.remote.put(str(path.relative_to(far.folder)), path.read_bytes(), timeout=5)  # and its writer died
    far.collect()
    assert far.blobs() == {path.name}
    far.wait(25 * HOUR)
    far.collect()
    assert far.blobs() == set()


def test_a_candidate_whose_record_is_gone_is_forgotten(far: Place) -> None:
    made = build()
    far.publish(made)
    name = f"v1/manifests/{made.record.action.hex[:2]}/{made.record.action.hex}"
    sets = (made.record.observations, Digest("0" * 64))
    far.remote.put(name, pack(encode_manifest(made.record.action, sets), []), timeout=5)
    assert far.collect().deleted["candidates"] == 1
    assert RemoteLayer(far.remote).candidates(made.record.action, timeout=5) == [(sets[0], None)]


@pytest.mark.parametrize("skew", [-3 * DAY, 3 * DAY, 10 * 365 * DAY])
def test_a_host_whose_clock_is_wrong_collects_the_same(tmp_path: Path, skew: float) -> None:
    far = Place(tmp_path / "remote", skew)
    old, used, new = build("old"), build("used"), build("new")
    far.publish(old, used)
    far.wait(25 * DAY)
    far.use(used)
    far.publish(new)
    far.wait(10 * DAY)
    far.collect()
    far.wait(23 * HOUR)
    assert "blobs" not in far.collect().deleted
    far.wait(2 * HOUR)
    assert far.collect().deleted["blobs"] == len(hexes(old))
    assert far.has(old, used, new) == [False, True, True]


def test_a_second_collector_is_told_of_the_first(far: Place) -> None:
    far.remote.put("v1/collect/lease", b"somebody", timeout=5)
    far.publish(build())
    far.wait(40 * DAY)
    far.remote.put("v1/collect/lease", b"somebody", timeout=5)
    before = far.listing()
    with pytest.raises(LockTimeoutError, match="another collector is at work"):
        far.collect()
    assert far.listing() == before
    far.wait(LEASE_SECONDS + 1)
    assert far.collect().deleted["records"] == 1
    assert "v1/collect/lease" not in far.listing()


def test_a_lost_lease_stops_before_the_next_deletion(far: Place) -> None:
    made = build()
    far.publish(made)
    far.wait(40 * DAY)
    ticks = iter(range(0, 10**9, int(LEASE_SECONDS)))
    stolen = FileRemote(f"file://{far.folder}")

    def steals(what: str, name: str) -> None:
        if (what, name) == ("scan", "v1/records/"):
            stolen.put("v1/collect/lease", b"the other", timeout=5)

    far.remote.before = steals
    with pytest.raises(LockTimeoutError, match="took over"):
        far.collect(clock=lambda: float(next(ticks)))
    assert far.has(made) == [True]
    assert far.listing()["v1/collect/lease"][1] == b"the other"


def test_a_long_run_says_that_it_is_still_at_work(far: Place) -> None:
    far.publish(*(build(f"k{i}") for i in range(20)))
    far.wait(40 * DAY)
    ticks = iter(range(0, 10**9, int(LEASE_SECONDS)))
    marks = set[int]()

    def looks(what: str, name: str) -> None:
        if (what, name) == ("put", "v1/collect/lease"):
            marks.add(len(marks))

    far.remote.before = looks
    assert far.collect(clock=lambda: float(next(ticks))).deleted["records"] == 20
    assert len(marks) > 20


def test_a_collector_killed_at_any_request_leaves_a_remote_that_the_next_one_finishes(tmp_path: Path) -> None:
    at, done = 0, False
    while not done:
        at += 1
        far = Place(tmp_path / f"at{at}")
        old, new = build("old", action="same"), build("new", action="same")
        gone = build("gone", data=b"gone before")
        far.publish(gone)
        far.wait(20 * DAY)
        far.collect(unused_for=DAY)
        far.publish(old)
        far.wait(40 * DAY)
        far.publish(new)
        far.use(new)
        far.remote.calls, far.remote.dies_at = 0, at
        try:
            far.collect()
            done = True
        except RemoteError:
            pass
        done = far.remote.calls < at
        far.remote.dies_at = 0
        assert far.clean(), at
        assert far.has(gone, new) == [False, True]
        for _ in range(2):
            far.wait(2 * DAY)
            far.collect()
        assert far.has(old, new) == [False, True]
        assert far.blobs() == hexes(new), at
        assert not any(name.startswith("v1/collect/") for name in far.listing()), at
    assert at > 15


def newer_record(far: Place, one: Build) -> str:
    name = f"v1/records/{one.fingerprint.hex[:2]}/{one.fingerprint.hex}"
    far.remote.put(name, pack(sealed({"format": 2, "what": "ever"}), []), timeout=5)
    return name


def test_a_record_in_a_newer_format_stays_and_so_does_every_blob(far: Place) -> None:
    old, newer = build("old"), build("newer")
    far.publish(old, newer)
    name = newer_record(far, newer)
    far.wait(40 * DAY)
    far.collect()
    far.wait(2 * DAY)
    found = far.collect()
    assert "blobs" not in found.deleted
    assert dict(found.kept) == {"in a newer format": 1}
    assert "no blob goes: 1 records are in a newer format" in found.notes[0]
    assert name in far.listing()
    assert far.blobs() == hexes(old, newer)


def test_a_note_in_a_newer_format_keeps_every_record(far: Place) -> None:
    old = build("old")
    far.publish(old)
    far.wait(40 * DAY)
    far.remote.put("v1/uses/2027-01-01/0123456789abcdef", dump({"format": 2}), timeout=5)
    found = far.collect()
    assert dict(found.kept) == {"use is not known": 1}
    assert "no record goes" in found.notes[0]
    assert far.has(old) == [True]


def test_a_damaged_record_goes_when_it_is_old(far: Place) -> None:
    made = build()
    far.publish(made)
    path = next(far.folder.glob("v1/records/*/*"))
    path.write_bytes(b"damaged")
    os.utime(path, (START, START))
    far.wait(23 * HOUR)
    assert dict(far.collect().kept) == {"damaged, but young": 1}
    far.wait(2 * HOUR)
    assert far.collect().deleted["records"] == 1


def test_a_damaged_record_that_was_healed_meanwhile_stays(far: Place) -> None:
    made = build()
    far.publish(made)
    path = next(far.folder.glob("v1/records/*/*"))
    path.write_bytes(b"damaged")
    os.utime(path, (START, START))
    far.wait(2 * DAY)
    other = Folder(f"file://{far.folder}")
    other.time = far.remote.time

    def heals(what: str, _name: str) -> None:
        if what == "stat" and "records" in _name:
            RemoteLayer(other, inline=-1).publish(made.record, made.blobs)

    far.remote.before = heals
    far.collect()
    assert far.has(made) == [True]


def test_a_record_that_is_too_large_stops_nobody(far: Place) -> None:
    far.publish(build("old"))
    name = f"v1/records/ab/{'ab' * 32}"
    far.remote.put(name, b"x", timeout=5)
    os.truncate(far.folder / name, OBJECT_LIMIT + 1)
    os.utime(far.folder / name, (START, START))
    far.wait(40 * DAY)
    assert far.collect().deleted["records"] == 2


def test_only_names_that_cubinet_gives_are_touched(far: Place) -> None:
    far.publish(build("old"))
    foreign = [
        "mine/v1/records/ab/" + "ab" * 32,
        "v1/records/ab/" + "cd" * 32,
        "v1/records/ab/notes",
        "v1/blobs/" + "ab" * 32,
        "v1/blobs/ab/" + "ab" * 33,
        "v1/manifests/AB/" + "AB" * 32,
        "v1/uses/yesterday/0123456789abcdef",
        "v1/uses/2000-01-01/somebody",
        "v1/bundles/ab/" + "ab" * 32,
        "v1/locks/readme",
        "v2/records/ab/" + "ab" * 32,
    ]  # fmt: skip
    for name in foreign:
        far.remote.put(name, b"not ours", timeout=5)
    for _ in range(3):
        far.wait(90 * DAY)
        far.collect()
    assert sorted(far.listing()) == sorted(foreign)


def test_old_notes_and_leases_of_dead_compilers_are_swept(far: Place) -> None:
    made = build()
    far.publish(made)
    far.remote.put("v1/locks/ab/" + "ab" * 32, b"left behind", timeout=5)
    far.use(made)
    far.wait(20 * DAY)
    far.use(made)
    far.remote.put("v1/locks/cd/" + "cd" * 32, b"at work", timeout=5)
    far.wait(15 * DAY - HOUR)
    far.remote.put("v1/locks/cd/" + "cd" * 32, b"at work", timeout=5)
    far.wait(HOUR)
    found = far.collect()
    assert dict(found.deleted) == {"notes": 1, "leases": 1}
    days = [name.split("/")[2] for name in far.listing() if name.startswith("v1/uses/")]
    assert days == [f"{datetime.fromtimestamp(START + 20 * DAY, UTC):%Y-%m-%d}"]
    assert far.has(made) == [True]


def test_a_damaged_state_or_note_is_as_none(far: Place) -> None:
    far.publish(build("old"))
    far.wait(40 * DAY)
    far.collect()
    far.remote.put("v1/collect/state", b"nonsense", timeout=5)
    far.remote.put("v1/uses/2027-01-01/0123456789abcdef", b"nonsense", timeout=5)
    far.wait(2 * DAY)
    assert "blobs" not in far.collect().deleted
    far.wait(2 * DAY)
    assert far.collect().deleted["blobs"] > 0


def test_three_hundred_records(far: Place) -> None:
    builds = [build(f"kernel{i}") for i in range(300)]
    far.layer.inline = 1 << 20
    far.publish(*builds)
    far.wait(20 * DAY)
    far.use(*builds[::3])
    far.wait(20 * DAY)
    found = far.collect()
    assert (found.records, found.deleted["records"], found.kept["used lately"]) == (300, 200, 100)
    assert far.has(*builds) == [i % 3 == 0 for i in range(300)]


@pytest.mark.parametrize(
    ("arguments", "finding"),
    [({"unused_for": -1.0}, "cannot be meant"), ({"unused_for": float("nan")}, "cannot be meant"),
     ({"grace": HOUR}, "the grace is shorter")],
)  # fmt: skip
def test_times_that_cannot_be_meant_are_refused(far: Place, arguments: dict[str, float], finding: str) -> None:
    with pytest.raises(ConfigError, match=finding):
        far.collect(**arguments)


def test_a_missing_folder_is_no_empty_remote(tmp_path: Path) -> None:
    with pytest.raises(RemoteError, match="no such folder"):
        collect(FileRemote(f"file://{tmp_path}/nowhere"), unused_for=DAY)


def test_a_remote_that_takes_no_writes_can_only_be_looked_at(far: Place) -> None:
    far.publish(build("old"))
    far.wait(40 * DAY)
    far.remote.read_only = True
    assert far.collect(dry_run=True).deleted["records"] == 1
    with pytest.raises(ReadOnlyError):
        far.collect()


@pytest.mark.parametrize("times", [1, 2])
def test_a_record_that_cannot_be_read_once_is_asked_for_again_and_else_nothing_goes(far: Place, times: int) -> None:
    far.publish(build("old"), build("older"))
    far.wait(40 * DAY)
    name = next(name for name in far.listing() if name.startswith("v1/records/"))
    failed = list[str]()

    def fails(what: str, which: str) -> None:
        if (what, which) == ("get", name) and len(failed) < times:
            failed.append(which)
            raise RemoteUnavailableError("read", far.remote.url, "503 SlowDown")

    far.remote.before = fails
    if times == 1:
        assert far.collect().deleted["records"] == 2
    else:
        before = far.listing()
        with pytest.raises(RemoteError, match="SlowDown"):
            far.collect()
        assert far.listing() == before


steps = st.lists(
    st.one_of(
        st.tuples(st.just("publish"), st.integers(0, 5)),
        st.tuples(st.just("use"), st.integers(0, 5)),
        st.tuples(st.just("wait"), st.sampled_from([HOUR, 11 * HOUR, 13 * HOUR, 25 * HOUR, 5 * DAY])),
        st.tuples(st.just("collect"), st.sampled_from([DAY, 4 * DAY, 10 * DAY])),
    ),
    min_size=4,
    max_size=25,
)

# builds 0 and 1, 2 and 3, 4 and 5 have an object in common; all of 0 to 2 one action
BUILDS = [build(f"k{i}", data=f"object {i // 2}".encode() * 3, action="same" if i < 3 else None) for i in range(6)]


@settings(max_examples=40)
@given(steps=steps)
def test_any_history_leaves_whole_builds_and_no_litter(steps: list[tuple[str, Any]], tmp_path_factory: Any) -> None:
    far = Place(tmp_path_factory.mktemp("history") / "remote")
    last: dict[int, float] = {}  # when a build was last written or used
    for what, which in steps:
        if what == "publish":
            if not far.has(BUILDS[which])[0]:
                last[which] = far.remote.time
            far.publish(BUILDS[which])
        elif what == "use":
            if far.has(BUILDS[which])[0]:
                far.use(BUILDS[which])
                last[which] = far.remote.time
        elif what == "wait":
            far.wait(float(which))
        else:
            far.collect(unused_for=float(which))
            for one in list(last):
                if not far.has(BUILDS[one])[0]:
                    assert last.pop(one) < far.remote.time - float(which), f"build {one} went though it was used"
        assert far.clean()
    for _ in range(2):
        far.wait(25 * HOUR)
        far.collect(unused_for=100 * DAY)
    left = [one for one in BUILDS if far.has(one)[0]]
    assert far.blobs() == hexes(*left)


class Cli:
    """The command as a process has it, over a store with one remote."""

    def __init__(self, far: Place, capsys: pytest.CaptureFixture[str], layers: str) -> None:
        self.far, self.capsys, self.layers = far, capsys, layers

    def __call__(self, *argv: str) -> str:
        assert command.main(["--remote", *argv], standalone_mode=False) == 0
        return self.capsys.readouterr().out


@pytest.fixture
def cli(far: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Cli:
    far.remote.time = time.time() - 40 * DAY
    far.publish(build("old"))
    far.remote.time = time.time()
    far.publish(build("new"))
    for name in [name for name in os.environ if name.startswith("CUBINET")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("CUBINET_DIR", str(tmp_path / "store"))
    layers = f"file://{far.folder}?trust=open"
    monkeypatch.setenv("CUBINET_LAYERS", layers)
    return Cli(far, capsys, layers)


def test_the_command_tells_first_and_then_does_it(cli: Cli) -> None:
    before = cli.far.listing()
    told = cli("file", "--dry-run")
    assert "would delete: 1 candidates, 1 manifests, 1 records\n" in told
    assert cli.far.listing() == before
    done = cli("--unused-for", "30d")
    assert "kept: 1 written lately\ndeleted: 1 candidates, 1 manifests, 1 records\n" in done
    assert "without a record: 4 blobs, " in done
    assert cli.far.has(build("old"), build("new")) == [False, True]


def test_the_command_prints_one_json_object(cli: Cli) -> None:
    found = json.loads(cli("--json", "--dry-run", "--grace", "1d"))
    assert found["deleted"] == {"records": 1, "candidates": 1, "manifests": 1}
    assert (found["dry_run"], found["records"], found["waiting"]) == (True, 2, 4)


def test_the_command_leaves_a_read_only_layer_alone(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUBINET_LAYERS", cli.layers + "&ro")
    assert "would delete" in cli("--dry-run")
    with pytest.raises(ReadOnlyError, match="read-only"):
        cli()


def test_the_command_says_which_remotes_there_are(cli: Cli) -> None:
    with pytest.raises(ConfigError, match="known: file"):
        cli("s3")


def test_verify_of_a_remote_finds_and_repairs(cli: Cli) -> None:
    path = next(cli.far.folder.glob("v1/manifests/*/*"))
    path.write_bytes(b"nonsense")
    for repair, status, text in ((False, 1, "--repair deletes"), (True, 1, "1 damaged objects were deleted")):
        assert verify_remote_command(None, repair=repair, as_json=False) == status
        assert text in cli.capsys.readouterr().out
    assert verify_remote_command("file", repair=False, as_json=True) == 0
    found = json.loads(cli.capsys.readouterr().out)
    assert (found["clean"], found["records"], found["manifests"]) == (True, 2, 1)


@pytest.mark.parametrize(
    ("text", "seconds"), [("30d", 30 * DAY), ("12h", 12 * HOUR), ("90m", 5400.0), ("45s", 45.0), ("1.5d", 1.5 * DAY)]
)
def test_durations_have_a_unit(text: str, seconds: float) -> None:
    assert duration(text) == seconds


@pytest.mark.parametrize("text", ["", "30", "d", "-1d", "1w", "1 d", "1e9d", "nan", "30d30d", "٣d"])
def test_a_duration_that_cannot_be_meant_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="as in 30d"):
        duration(text)
