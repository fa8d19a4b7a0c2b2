"""Locks among the processes of a host, and single flight among threads."""

from __future__ import annotations

import errno
import threading
import time
from pathlib import Path

import pytest

from cubinet._fs import Fs
from cubinet.errors import LockTimeoutError
from cubinet.store.lock import FileLock
from cubinet.store.single_flight import SingleFlight
from cubinet.testing.faults import Fault, FaultyFs


def lock(path: Path, fs: Fs | None = None) -> FileLock:
    return FileLock(fs or Fs(), str(path), prepare=lambda: None)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "lock"


def test_a_lock_is_held_by_one_and_leaves_no_file(path: Path) -> None:
    with lock(path) as first:
        assert first.acquire(0)
        with pytest.raises(LockTimeoutError, match="still held"), lock(path) as second:
            second.acquire(0)
        assert path.exists()
    assert not path.exists()
    with lock(path) as third:
        assert third.acquire(0)


def test_a_lock_timeout_is_also_the_builtin_one(path: Path) -> None:
    with lock(path) as first, lock(path) as second:
        first.acquire(0)
        with pytest.raises(TimeoutError):
            second.acquire(0.01)


def test_whoever_does_not_need_the_lock_any_more_stops_waiting(path: Path) -> None:
    with lock(path) as first, lock(path) as second:
        first.acquire(0)
        assert second.acquire(10, waiting=lambda: True) is False


def test_the_next_one_gets_the_lock_when_it_is_released(path: Path) -> None:
    order: list[str] = []

    def second() -> None:
        with lock(path) as mine:
            mine.acquire(10)
            order.append("second")

    with lock(path) as first:
        first.acquire(0)
        thread = threading.Thread(target=second)
        thread.start()
        time.sleep(0.1)
        order.append("first")
    thread.join()
    assert order == ["first", "second"]


def test_a_lock_file_left_by_a_killed_process_does_not_count(path: Path) -> None:
    path.write_text("left")
    with lock(path) as mine:
        assert mine.acquire(0)
    assert not path.exists()


def test_a_lock_whose_file_was_removed_is_not_the_lock_any_more(path: Path) -> None:
    # Somebody deleted the store: the old holder and the new one both go on, which costs one more compile.
    with lock(path) as first, lock(path) as second:
        first.acquire(0)
        path.unlink()
        assert second.acquire(0)


def test_a_lock_in_a_folder_that_is_gone_makes_it(tmp_path: Path) -> None:
    with lock(tmp_path / "gone/lock") as mine:
        assert mine.acquire(0)


@pytest.mark.parametrize("code", [errno.EROFS, errno.ENOSPC, errno.EACCES], ids=errno.errorcode.get)
def test_where_there_can_be_no_lock_it_says_so(path: Path, code: int) -> None:
    with pytest.raises(OSError, match=r".") as caught, lock(path, FaultyFs(Fault(code))) as mine:
        mine.acquire(0)
    assert caught.value.errno == code


def test_many_threads_hold_it_one_at_a_time(path: Path) -> None:
    inside, most = 0, 0

    def work() -> None:
        nonlocal inside, most
        for _ in range(5):
            with lock(path) as mine:
                mine.acquire(30)
                inside += 1
                most = max(most, inside)
                time.sleep(0.001)
                inside -= 1

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == 1
    assert not path.exists()


# --- single flight


def test_late_callers_get_the_first_ones_result() -> None:
    flight: SingleFlight[str, int] = SingleFlight()
    started, go = threading.Event(), threading.Event()
    results: list[tuple[int, bool]] = []

    def compute() -> int:
        started.set()
        go.wait(10)
        return 42

    threads = [threading.Thread(target=lambda: results.append(flight.run("k", compute))) for _ in range(4)]
    threads[0].start()
    started.wait(10)
    for thread in threads[1:]:
        thread.start()
    time.sleep(0.05)
    go.set()
    for thread in threads:
        thread.join()
    assert sorted(results) == [(42, False)] * 3 + [(42, True)]


def test_a_key_can_be_computed_again_when_it_is_done() -> None:
    flight: SingleFlight[str, int] = SingleFlight()
    assert flight.run("k", lambda: 1) == (1, True)
    assert flight.run("k", lambda: 2) == (2, True)


def test_an_error_is_raised_and_forgotten() -> None:
    flight: SingleFlight[str, float] = SingleFlight()
    with pytest.raises(ZeroDivisionError):
        flight.run("k", lambda: 1 / 0)
    assert flight.run("k", lambda: 1) == (1, True)
    assert flight._running == {}
