"""Usage notes: what a client used in a day, in one object."""

from __future__ import annotations

import errno
import os
import threading
import time
from collections.abc import Collection
from pathlib import Path

import pytest

from cubinet.model import Fingerprint
from cubinet.remotes.file import FileRemote
from cubinet.store.usage import LIMIT, PAUSE, NewerNoteError, Usage, dump, load, read_note, write_note
from cubinet.testing.faults import Fault, FaultyFs, NoSyncFs

NOW = 1_800_000_000.0
NAME = "v1/uses/2027-01-15/0123456789abcdef"
CLIENT = "0123456789abcdef"


def fingerprints(*numbers: int) -> list[Fingerprint]:
    return [Fingerprint(f"{number:064x}") for number in numbers]


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


class Later:
    """A clock that is a pause on at each look, as if nothing were sent lately."""

    def __init__(self) -> None:
        self.now = time.time()

    def __call__(self) -> float:
        self.now += PAUSE + 1
        return self.now


class Told:
    """Takes notes, or refuses them."""

    def __init__(self, *, takes: bool = True) -> None:
        self.takes, self.used = takes, list[set[int]]()

    def __call__(self, used: Collection[str]) -> bool:
        self.used.append({int(name, 16) for name in used})
        return self.takes


@pytest.fixture
def store(tmp_path: Path) -> str:
    (tmp_path / "store").mkdir()
    return str(tmp_path / "store")


@pytest.fixture
def remote(tmp_path: Path) -> FileRemote:
    (tmp_path / "remote").mkdir()
    return FileRemote(f"file://{tmp_path}/remote")


def note_all(usage: Usage, *numbers: int) -> list[bool]:
    return [usage.note(fingerprint) for fingerprint in fingerprints(*numbers)]


def test_it_is_time_to_send_once_a_pause(store: str) -> None:
    clock = Clock()
    usage = Usage(store, clock=clock)
    assert note_all(usage, 1, 2) == [False, False]
    clock.now = PAUSE
    assert note_all(usage, 1, 2) == [True, False]
    clock.now = 2 * PAUSE
    assert note_all(usage, 1) == [True]


def test_what_was_used_is_told_once_to_every_writer(store: str) -> None:
    usage, first, second = Usage(store, now=Later()), Told(), Told()
    note_all(usage, 1, 2, 1)
    assert usage.send([first, second])
    assert usage.send([first, second])
    assert (first.used, second.used) == ([{1, 2}], [{1, 2}])


def test_processes_of_a_folder_send_one_note_a_pause(store: str) -> None:
    told, clock = Told(), Clock()
    clock.now = time.time() + 60  # what is written from now on is a minute old
    for number in range(3):
        usage = Usage(store, now=clock)
        note_all(usage, number)
        assert usage.send([told]) is (number == 0)
        usage.save()
    clock.now += PAUSE
    assert Usage(store, now=clock).send([told])
    assert told.used == [{0}, {1, 2}]
    assert [path.name for path in Path(store, "uses").iterdir()] == ["sent"]


def test_a_clock_that_went_back_stops_no_note(store: str) -> None:
    told = Told()
    for now in (time.time, lambda: time.time() - 1e6):
        usage = Usage(store, now=now)
        note_all(usage, 1)
        assert usage.send([told])
    assert told.used == [{1}, {1}]


def test_what_one_writer_did_not_take_is_told_again(store: str) -> None:
    usage, broken = Usage(store), Told(takes=False)
    note_all(usage, 1)
    assert not usage.send([broken, Told()])
    note_all(usage, 2)
    told = Told()
    assert usage.send([told])
    assert told.used == [{1, 2}]


def test_what_a_writer_dies_of_is_told_again(store: str) -> None:
    usage = Usage(store)

    def dies(_used: Collection[str]) -> bool:
        raise KeyboardInterrupt

    note_all(usage, 1)
    with pytest.raises(KeyboardInterrupt):
        usage.send([dies])
    told = Told()
    usage.send([told])
    assert told.used == [{1}]


def test_a_process_that_reaches_no_remote_leaves_its_uses_to_the_next(store: str) -> None:
    for numbers in ((1, 2), (2, 3)):
        usage = Usage(store, fs=NoSyncFs())
        note_all(usage, *numbers)
        usage.save()
        usage.save()
    assert len(list(Path(store, "uses").iterdir())) == 2
    broken, told = Told(takes=False), Told()
    assert not Usage(store).send([broken])
    assert Usage(store).send([told])
    assert (broken.used, told.used) == ([{1, 2, 3}], [{1, 2, 3}])
    assert [path.name for path in Path(store, "uses").iterdir()] == ["sent"]


def test_many_short_processes_leave_few_files(store: str) -> None:
    for number in range(100):
        usage = Usage(store, fs=NoSyncFs())
        note_all(usage, number)
        usage.save()
    assert len(list(Path(store, "uses").iterdir())) <= 17
    told = Told()
    Usage(store).send([told])
    assert told.used == [set(range(100))]


def test_files_of_others_are_left_alone_and_damaged_ones_are_no_trouble(store: str) -> None:
    folder = Path(store, "uses")
    folder.mkdir()
    (folder / "mine").write_text("not yours")
    (folder / ("ab" * 16)).write_bytes(bytes(31) + b"\1" + b"cut short")
    (folder / ("cd" * 16)).write_bytes(b"")
    (folder / ("ef" * 16)).mkdir()
    told = Told()
    Usage(store).send([told])
    assert told.used == [{1}]
    assert sorted(path.name for path in folder.iterdir()) == ["ef" * 16, "mine", "sent"]


@pytest.mark.parametrize("operation", ["mkdir", "create", "list", "stat"])
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EROFS, errno.EIO])
def test_a_folder_that_cannot_be_written_costs_only_the_news(store: str, code: int, operation: str) -> None:
    fs = FaultyFs(Fault(code, operation))
    usage = Usage(store, fs=fs)
    note_all(usage, 1)
    usage.save()
    assert fs.failed
    assert not Path(store, "uses").exists() or not any(Path(store, "uses").iterdir())


def test_a_store_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    usage = Usage(str(tmp_path / "nowhere"))
    note_all(usage, 1)
    usage.save()
    assert not (tmp_path / "nowhere").exists()


def test_a_process_remembers_a_bounded_number(store: str) -> None:
    usage, told = Usage(store), Told()
    note_all(usage, *range(LIMIT + 100))
    usage.send([told])
    assert len(told.used[0]) == LIMIT


def test_threads_lose_nothing(store: str) -> None:
    usage, told = Usage(store, now=Later()), Told()
    threads = [threading.Thread(target=note_all, args=(usage, *range(i, 4000, 8))) for i in range(8)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        usage.send([told])
    usage.send([told])
    assert set().union(*told.used) == set(range(4000))


def test_a_forked_child_does_not_tell_what_its_parent_used(store: str) -> None:
    usage = Usage(store, now=Later())
    note_all(usage, 1)
    pid = os.fork()
    if not pid:
        status = 1
        try:
            note_all(usage, 2)
            told = Told()
            usage.send([told])
            status = 0 if told.used == [{2}] else 2
        finally:
            os._exit(status)
    assert os.waitpid(pid, 0)[1] == 0
    told = Told()
    usage.send([told])
    assert told.used == [{1}]


def test_a_client_is_a_folder_on_a_host(tmp_path: Path) -> None:
    here, there = Usage(str(tmp_path / "a")), Usage(str(tmp_path / "b"))
    assert here.client == Usage(str(tmp_path / "a")).client != there.client
    assert len(here.client) == 16


def test_notes_of_a_day_are_one_object(remote: FileRemote) -> None:
    for names in ({"aa"}, {"bb"}, {"aa"}):
        assert write_note(remote, CLIENT, names, timeout=5, now=lambda: NOW)
    assert [entry.name for entry in remote.scan("v1/", timeout=5)] == [NAME]
    found = remote.get(NAME, timeout=5)
    assert found is not None
    assert read_note(found.data) == {"aa", "bb"}
    assert write_note(remote, CLIENT, {"cc"}, timeout=5, now=lambda: NOW + 86400)
    assert len(list(remote.scan("v1/uses/", timeout=5))) == 2


def test_two_writers_of_a_note_lose_nothing(remote: FileRemote) -> None:
    class Slow(FileRemote):
        def put(self, name: str, data: bytes, *, timeout: float, create: bool = False, match: str = "") -> bool:
            if not tries:  # the other one comes between our look and our write
                tries.append(name)
                assert write_note(remote, CLIENT, {"other"}, timeout=5, now=lambda: NOW)
            return super().put(name, data, timeout=timeout, create=create, match=match)

    tries: list[str] = []
    assert write_note(Slow(remote._address), CLIENT, {"mine"}, timeout=5, now=lambda: NOW)
    found = remote.get(NAME, timeout=5)
    assert found is not None
    assert read_note(found.data) == {"mine", "other"}


def test_a_note_that_holds_them_already_is_not_written(remote: FileRemote) -> None:
    assert write_note(remote, CLIENT, {"aa", "bb"}, timeout=5, now=lambda: NOW)
    before = remote.stat(NAME, timeout=5)
    assert write_note(remote, CLIENT, {"aa"}, timeout=5, now=lambda: NOW + 1)
    assert remote.stat(NAME, timeout=5) == before


def test_a_damaged_note_is_written_anew_and_a_newer_one_is_left(remote: FileRemote) -> None:
    remote.put(NAME, b"nonsense", timeout=5)
    assert write_note(remote, CLIENT, {"aa"}, timeout=5, now=lambda: NOW)
    found = remote.get(NAME, timeout=5)
    assert found is not None
    assert read_note(found.data) == {"aa"}
    newer = dump({"format": 2, "used": ["bb"]})
    remote.put(NAME, newer, timeout=5)
    assert write_note(remote, CLIENT, {"cc"}, timeout=5, now=lambda: NOW)
    after = remote.get(NAME, timeout=5)
    assert after is not None
    assert after.data == newer
    with pytest.raises(NewerNoteError, match="format 2"):
        read_note(newer)


def test_any_changed_byte_makes_a_note_none() -> None:
    data = dump({"format": 1, "used": ["aa"]})
    assert load(data, dict) == {"format": 1, "used": ["aa"]}
    for at in range(len(data)):
        changed = bytearray(data)
        changed[at] ^= 1
        assert load(bytes(changed), dict) in (None, {"format": 1, "used": ["aa"]})
        assert load(data[:at], dict) is None


def test_a_bomb_is_not_unpacked() -> None:
    import zstandard

    assert load(zstandard.compress(bytes(200 << 20)), dict) is None
    assert load(zstandard.ZstdCompressor(write_content_size=False).compress(bytes(100)), dict) is None
