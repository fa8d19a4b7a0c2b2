"""The writer: batches, threads, forks, many processes, and everything that goes wrong with the file."""

from __future__ import annotations

import _thread
import contextlib
import multiprocessing
import os
import resource
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cubinet.events import Counters, Event
from cubinet.model import Kernel
from cubinet.store.index import writer as module
from cubinet.testing.samples import build

from .shelf import EARLY, HISTORY, Shelf, answers


def test_a_note_writes_nothing_until_it_is_flushed(shelf: Shelf) -> None:
    shelf.put("add")
    assert not shelf.path.exists()
    assert shelf.writer.flush()
    assert shelf.path.exists()
    assert shelf.counted == {"index.created": 1}


def test_the_thread_writes_by_itself(shelf: Shelf) -> None:
    writer = shelf.new_writer(interval=0.01)
    made = shelf.put("add", note=False)
    writer.note_publish(made.record)
    for _ in range(500):
        if shelf.path.exists() and not len(writer._batch):
            break
        time.sleep(0.02)
    writer.flush()
    assert len(list(shelf.index().query())) == 1


def test_the_thread_ends_with_its_writer(shelf: Shelf) -> None:
    before = _thread._count()
    writer = shelf.new_writer(interval=0.0)
    writer.note_use(build("add").fingerprint)
    for _ in range(1000):
        if _thread._count() > before:
            break
        time.sleep(0.01)
    assert _thread._count() > before
    writer.close()
    for _ in range(1000):
        if _thread._count() <= before:
            break
        time.sleep(0.01)
    assert _thread._count() <= before


def test_use_times_are_kept_to_five_minutes_and_counts_add_up(shelf: Shelf) -> None:
    made = shelf.put("add")
    for when in (EARLY, EARLY + 1, EARLY + 700, EARLY + 20):
        shelf.writer.note_use(made.fingerprint, when)
    shelf.writer.flush()
    shelf.writer.note_use(made.fingerprint, EARLY)
    (row,) = shelf.index().query()
    assert (row.uses, row.last_use) == (5, (EARLY + 700) // 300 * 300)


def test_a_use_noted_before_its_record_counts(shelf: Shelf) -> None:
    made = shelf.put("add", note=False, seconds=2.0)
    shelf.writer.note_use(made.fingerprint, EARLY)
    shelf.writer.flush()
    shelf.writer.note_publish(made.record)
    assert shelf.index().stats()["saved"] == 2.0


def test_events_of_a_day_add_up(shelf: Shelf) -> None:
    shelf.put("add")
    for _ in range(3):
        shelf.writer.note_event("s3", "hit", seconds=0.25, size=1000)
        shelf.writer.flush()
    (row,) = shelf.index().sql("SELECT * FROM events")
    assert (row["count"], row["seconds"], row["bytes"]) == (3, 0.75, 3000)


def test_publishing_a_fingerprint_again_replaces_its_rows(shelf: Shelf) -> None:
    made = shelf.put("add")
    shelf.writer.flush()
    shelf.writer.note_publish(replace(made.record, kernels=(Kernel("other", "other", spills=3),), family="new"))
    shelf.writer.flush()
    with contextlib.closing(sqlite3.connect(shelf.path)) as connection:
        assert connection.execute("SELECT count(*) FROM raw_kernels").fetchone() == (1,)
        assert connection.execute("SELECT family, records, spilling FROM raw_totals").fetchall() == [("new", 1, 1)]


def test_the_last_record_takes_its_blobs_and_totals_along(shelf: Shelf) -> None:
    made = shelf.fill()
    for one in made:
        shelf.remove(one.fingerprint)
        shelf.writer.note_gone(one.fingerprint)
    index = shelf.index()
    assert {value for name, value in index.stats().items() if name not in ("since", "views_version")} == {0}
    left = answers(index, *HISTORY, "summary")
    assert all(rows == [] for rows in left.values()), left


def test_a_blob_goes_with_its_last_record_only(shelf: Shelf) -> None:
    one, two = shelf.put("a", data=b"same"), shelf.put("b", data=b"same")
    index = shelf.index()
    assert list(index.sql("SELECT mains FROM blobs WHERE size = 4")) == [{"mains": 2}]
    shelf.remove(one.fingerprint)
    shelf.writer.note_gone(one.fingerprint)
    assert list(index.sql("SELECT mains FROM blobs WHERE size = 4")) == [{"mains": 1}]
    shelf.remove(two.fingerprint)
    shelf.writer.note_gone(two.fingerprint)
    assert list(index.sql("SELECT mains FROM blobs WHERE size = 4")) == []


def test_the_buffer_is_bounded_and_what_does_not_fit_is_counted(shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_LIMIT", 3)
    made = [shelf.put(str(i)) for i in range(5)]
    shelf.writer.note_use(made[0].fingerprint)
    shelf.writer.note_event("local", "hit")
    shelf.writer.note_compile(action="a", seconds=1, outcome="ok")
    assert len(shelf.writer._batch) == 3
    assert shelf.counted["index.lost"] == 5
    assert len(list(shelf.index().query())) == 5  # from their files


def test_events_of_the_store_become_notes_and_its_own_do_not(shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_LIMIT", 4)
    counters = Counters()
    writer = shelf.new_writer(count=counters.add)
    counters.listen(writer.told)
    made = shelf.put("add")
    counters.tell(Event("hit", "local", made.fingerprint, seconds=0.5, size=100))
    counters.add("hit.process")
    for _ in range(3):
        counters.add("miss.new")
    counters.add("miss.one too many")
    assert counters.snapshot()["index.lost"] == 1
    assert writer.flush()
    index = shelf.index()
    assert [row.uses for row in index.query()] == [1]
    rows = index.sql("SELECT layer, what, reason, count, seconds, bytes FROM events ORDER BY what, layer")
    assert [tuple(row.values()) for row in rows] == [
        ("local", "hit", "", 1, 0.5, 100),
        ("process", "hit", "", 1, 0.0, 0),
        ("", "miss", "new", 3, 0.0, 0),
    ]


def test_a_locked_file_costs_time_and_nothing_else(shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cubinet.store.index.files.BUSY_SECONDS", 0.05)
    made = shelf.fill()
    with contextlib.closing(sqlite3.connect(shelf.path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        shelf.put("later")
        shelf.writer.note_use(made[0].fingerprint, EARLY)
        assert not shelf.writer.flush()
        shelf.writer.note_use(made[0].fingerprint, EARLY)
        assert not shelf.writer.flush()
        assert len(list(shelf.index().query())) == 4  # what is there will do
        other.execute("ROLLBACK")
    assert shelf.writer.flush()
    assert shelf.counted["index.busy"] >= 2
    assert shelf.counted["index.lost"] == 0
    found = {row.name: row.uses for row in shelf.index().query()}
    assert found == {"add": 2, "gemm": 2, "gemm2": 0, "scale": 0, "later": 0}


def test_a_full_disk_surfaces_nowhere(shelf: Shelf) -> None:
    shelf.fill()
    for number in range(200):
        shelf.put(f"kernel{number}")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, before[1]))
    try:
        assert not shelf.writer.flush()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
    assert shelf.counted["index.lost"] == 1
    index = shelf.index()
    assert index.stats()["records"] == 204
    assert index.check() == []


def test_a_python_without_sqlite_loses_notes_and_nothing_else(shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    shelf.put("add")
    with monkeypatch.context() as without:
        without.setitem(sys.modules, "sqlite3", None)
        without.delitem(sys.modules, "cubinet.store.index.flushing", raising=False)
        assert not shelf.writer.flush()
        shelf.writer.note_event("local", "hit")
        shelf.writer.close()
    assert shelf.counted["index.error"] == 1
    assert shelf.counted["index.lost"] >= 1
    (row,) = shelf.index().query()
    assert row.name == "add"


def test_a_record_that_sqlite_cannot_take_keeps_nobody_else_out(shelf: Shelf) -> None:
    good, bad = shelf.put("good"), build("bad")
    odd = replace(
        bad.record,
        family="\ud800 and \0",
        kernels=(Kernel("k", "k", regs=10**40),),
        seconds=float("inf"),
        created="+99999-01-01",
    )
    shelf.writer.note_publish(odd)
    shelf.writer.note_publish(replace(build("worse").record, seconds="no number"))  # type: ignore[arg-type]
    assert shelf.writer.flush()
    assert shelf.counted["index.error"] == 1
    with contextlib.closing(sqlite3.connect(shelf.path)) as connection:
        found = connection.execute("SELECT fingerprint FROM raw_records").fetchall()
    assert sorted(found) == sorted([(good.fingerprint.hex,), (bad.fingerprint.hex,)])


def test_observations_that_cannot_be_read_keep_the_record_in(shelf: Shelf) -> None:
    def gone(_record: object) -> bytes | None:
        return None

    writer = module.IndexWriter(str(shelf.folder), gone, interval=3600)
    made = shelf.put("add", note=False)
    writer.note_publish(made.record)
    writer.flush()
    (row,) = shelf.index().query()
    assert row.name == "add"


def test_without_a_store_there_is_no_index(shelf: Shelf) -> None:
    shelf.writer.note_event("local", "miss", "new")
    assert not shelf.writer.flush()
    assert not shelf.folder.exists()
    shelf.put("add")
    assert shelf.writer.flush()


def test_old_events_and_compiles_go(shelf: Shelf) -> None:
    shelf.put("add", note=False)
    day = 86400.0
    writer = shelf.new_writer(now=lambda: 1000 * day)
    writer.note_event("local", "hit")
    writer.flush()
    writer = shelf.new_writer(now=lambda: 1500 * day)
    writer.note_event("local", "miss")
    writer.flush()
    assert [row["what"] for row in shelf.index().sql("SELECT what FROM events")] == ["miss"]


def test_a_forked_child_starts_empty_and_writes_its_own(shelf: Shelf) -> None:
    one, two = shelf.put("parent"), shelf.put("child", note=False)
    shelf.writer.note_use(one.fingerprint, EARLY)
    child = os.fork()
    if child == 0:
        empty = len(shelf.writer._batch) == 0
        shelf.writer.note_publish(two.record)
        shelf.writer.note_use(two.fingerprint, EARLY)
        written = shelf.writer.flush()
        os._exit(0 if empty and written else 1)
    assert os.waitpid(child, 0)[1] == 0
    shelf.writer.flush()
    assert {row.name: row.uses for row in shelf.index().query()} == {"parent": 1, "child": 1}


def test_an_index_survives_a_fork_while_its_lock_is_held(shelf: Shelf) -> None:
    shelf.fill()
    index = shelf.index()
    assert index.stats()["records"] == 4
    with index._mine():
        child = os.fork()
        if child == 0:
            signal.alarm(20)
            os._exit(0 if index.stats()["records"] == 4 else 1)
    assert os.waitpid(child, 0)[1] == 0


SCRIPT = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from tests.index.shelf import Shelf, EARLY
shelf = Shelf(Path(sys.argv[1]))
made = shelf.put("add")
shelf.writer.note_use(made.fingerprint, EARLY)
shelf.writer.note_compile(action="ab", seconds=1, outcome="failed")
"""


SHORT = """
import sys
from cubinet.model import Fingerprint
from cubinet.store.index import IndexWriter
writer = IndexWriter(sys.argv[1], lambda record: None)
writer.note_use(Fingerprint(sys.argv[2]), 1_700_000_100)
writer.note_event("local", "hit", seconds=0.001)
import atexit
atexit.register(lambda: print("sqlite3" in sys.modules, "threads"))
sys.exit(writer.close())
"""


def test_a_process_that_only_hit_loads_no_database_and_its_notes_are_written_by_the_next(shelf: Shelf) -> None:
    made = shelf.put("add")
    shelf.writer.flush()
    for _ in range(3):
        command = [sys.executable, "-c", SHORT, str(shelf.folder), made.fingerprint.hex]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        assert done.stdout == "False threads\n"
    index = shelf.index()
    assert [row.uses for row in index.query()] == [3]
    assert next(index.sql("SELECT count, seconds FROM events WHERE what = 'hit'")) == {"count": 3, "seconds": 0.003}
    assert (shelf.folder / "index.notes").read_bytes() == b""


@pytest.mark.parametrize(
    "data",
    [
        b"\xff\n\n{}\n[" * 50,
        b'{"uses":[["short",1,1]],"events":[]}\n',
        b'{"uses":[["' + b"a" * 64 + b'",99999999999999999999999999,1]],"events":[]}\n',
        b"[" * 100_000,
    ],
    ids=["noise", "no fingerprint", "huge", "deep"],
)
def test_notes_that_are_none_are_left_out(shelf: Shelf, data: bytes) -> None:
    made = shelf.put("add")
    good = f'{{"uses":[["{made.fingerprint.hex}",1700000100,2]],"events":[]}}\n'.encode()
    (shelf.folder / "index.notes").write_bytes(data + b"\n" + good)
    assert shelf.writer.flush()
    assert [row.uses for row in shelf.index().query()] == [2]


def test_leaving_the_interpreter_writes_what_was_noted(shelf: Shelf) -> None:
    command = [sys.executable, "-c", SCRIPT, str(shelf.folder), str(Path(__file__).parents[2])]
    subprocess.run(command, check=True)
    (row,) = shelf.index().query()
    assert row.uses == 1
    assert len(list(shelf.index().sql("SELECT * FROM compiles"))) == 1


def _work(folder: str, number: int) -> None:
    shelf = Shelf(Path(folder))
    shelf.writer = shelf.new_writer(interval=0.02)
    for step in range(12):
        made = shelf.put(f"{number}-{step}")
        shelf.writer.note_use(made.fingerprint, EARLY)
        shelf.writer.note_use(build("shared").fingerprint, EARLY)
        shelf.writer.note_compile(action="a", seconds=1, outcome="ok", when=EARLY)
        shelf.writer.note_event("local", "miss", "new")
        if step % 5 == 0:
            shelf.writer.flush()
    assert set(shelf.counted) <= {"index.created", "index.busy"}, shelf.counted
    # no flush here: leaving does it


@pytest.mark.parametrize("rebuilding", [False, True], ids=["alone", "while it is rebuilt"])
def test_sixteen_processes_write_at_once_and_nothing_is_lost(shelf: Shelf, rebuilding: bool) -> None:
    context = multiprocessing.get_context("fork")
    shelf.put("shared")
    workers = [context.Process(target=_work, args=(str(shelf.folder), number)) for number in range(16)]
    for worker in workers:
        worker.start()
    index = shelf.index()
    while rebuilding and any(worker.is_alive() for worker in workers):
        index.rebuild()
        assert index.stats()["records"] > 0
    for worker in workers:
        worker.join(120)
        assert worker.exitcode == 0
    index = shelf.index()
    assert index.stats()["records"] == 16 * 12 + 1
    assert index.stats()["uses"] == 2 * 16 * 12
    assert next(index.sql("SELECT count(*) AS n FROM compiles")) == {"n": 16 * 12}
    assert next(index.sql("SELECT sum(count) AS n FROM events")) == {"n": 16 * 12}
    assert index.check() == []


def test_a_killed_process_loses_no_record(shelf: Shelf) -> None:
    child = os.fork()
    if child == 0:
        shelf.put("noted, never flushed")
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)
    assert [row.name for row in shelf.index().query()] == ["noted, never flushed"]


def test_threads_lose_no_note(shelf: Shelf) -> None:
    made = shelf.put("add")

    def use() -> None:
        for number in range(300):
            shelf.writer.note_use(made.fingerprint, EARLY)
            if number % 100 == 0:
                shelf.writer.flush()

    threads: list[Any] = [threading.Thread(target=use) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (row,) = shelf.index().query()
    assert row.uses == 2400
