"""The pages follow the store, and the store does not notice."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import random
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cubinet.errors import StoreError
from cubinet.testing.samples import build
from cubinet.web import app
from cubinet.web.snapshot import ReadingFs, Snapshot, copy_live

from .conftest import Pages, Shelf

pytestmark = pytest.mark.filterwarnings("ignore:unclosed database:ResourceWarning")

PATHS = (
    "/",
    "/index",
    "/index/records",
    "/index/kernels.json",
    "/report/toolchains",
    "/search?q=gemm",
    "/index/slowest.csv",
)


def state(folder: Path) -> dict[str, tuple[int, ...]]:
    """Everything about every file and folder that a write would change."""
    found = dict[str, tuple[int, ...]]()
    for path in (folder, *folder.rglob("*")):
        info = path.lstat()
        found[str(path)] = (info.st_ino, info.st_mode, info.st_size, info.st_mtime_ns, info.st_ctime_ns, info.st_nlink)
    return found


@contextlib.contextmanager
def copies(folder: str, **more: float) -> Iterator[Snapshot]:
    snapshot = Snapshot(folder, **more)
    try:
        yield snapshot
    finally:
        snapshot.close()


def count(snapshot: Snapshot) -> int:
    with contextlib.closing(sqlite3.connect(snapshot.path)) as connection:
        found: int = connection.execute("SELECT count(*) FROM records").fetchone()[0]
        return found


def test_pages_change_no_file_of_the_store(shelf: Shelf) -> None:
    with contextlib.closing(sqlite3.connect(shelf.folder / "index.sqlite3", isolation_level=None)) as writer:
        writer.execute("UPDATE raw_records SET uses = 7")  # so that there is a log to be read too
        assert (shelf.folder / "index.sqlite3-wal").stat().st_size > 0
        before = state(shelf.folder)
        site = app(shelf.index(), every=0.0)
        for path in PATHS:
            assert Pages(site)(path).status_code == 200
        assert Pages(site)("/index/records.json?_shape=array").json()[0]["uses"] == 7
        site.close()
        assert state(shelf.folder) == before


def test_pages_come_while_everything_is_locked(shelf: Shelf, pages: Pages) -> None:
    writer = sqlite3.connect(shelf.folder / "index.sqlite3", isolation_level=None)
    writer.execute("BEGIN EXCLUSIVE")
    writer.execute("UPDATE raw_records SET uses = 9")
    with (shelf.folder / "locks" / "index.gate").open() as gate:
        fcntl.flock(gate, fcntl.LOCK_EX)
        for path in PATHS:
            assert pages(path).status_code == 200
        assert pages("/index/records.json?_shape=array").json()[0]["uses"] != 9
    writer.execute("COMMIT")
    writer.close()
    assert pages("/index/records.json?_shape=array").json()[0]["uses"] == 9


def test_a_writer_is_never_kept_waiting(shelf: Shelf, pages: Pages) -> None:
    done, failed = threading.Event(), list[object]()
    commits = 0

    def write() -> None:
        nonlocal commits
        writer = sqlite3.connect(shelf.folder / "index.sqlite3", isolation_level=None, timeout=0)
        try:
            while not done.is_set():
                writer.execute("BEGIN IMMEDIATE")
                writer.execute("UPDATE raw_records SET uses = uses + 1")
                writer.execute("COMMIT")
                commits += 1
                # a reader anywhere in the log would make this one busy
                busy, *_ = writer.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
                if busy:
                    failed.append("the log could not be reset")
                time.sleep(0.002)
        except sqlite3.Error as exc:
            failed.append(exc)
        finally:
            writer.close()

    thread = threading.Thread(target=write)
    thread.start()
    try:
        for path in PATHS * 2:
            assert pages(path).status_code == 200
    finally:
        done.set()
        thread.join()
    assert failed == []
    assert commits > 10


def test_pages_follow_the_store(shelf: Shelf, pages: Pages) -> None:
    assert "<b>5</b>records" in pages.text("/")
    noted, other = shelf.put("noted"), shelf.put("other", note=False)  # one that the index does not have yet
    shelf.writer.flush()
    assert "<b>7</b>records" in pages.text("/")
    pages.text("/index")
    for made in (noted, other):
        pages.text(f"/record/{made.fingerprint.hex}")
    (shelf.folder / "records" / noted.fingerprint.hex[:2] / f"{noted.fingerprint.hex}.json").unlink()
    assert pages(f"/record/{noted.fingerprint.hex}").status_code == 404


def test_an_unchanged_store_is_not_copied_again(shelf: Shelf) -> None:
    past = time.time() - 100
    for path in (shelf.folder / "records").iterdir():
        os.utime(path, (past, past))
    with copies(str(shelf.folder), every=0.0) as snapshot:
        snapshot.refresh()
        snapshot.refresh()
        assert snapshot.generation == 1
        shelf.put("more")
        shelf.writer.flush()
        snapshot.refresh()
        assert snapshot.generation == 2
        assert len(list(Path(snapshot.path).parent.iterdir())) == 1


def test_a_store_without_an_index_is_shown_from_its_records(shelf: Shelf) -> None:
    for path in shelf.folder.glob("index.sqlite3*"):
        path.unlink()
    before = state(shelf.folder)
    with copies(str(shelf.folder)) as snapshot:
        assert count(snapshot) == 5
    assert state(shelf.folder) == before


@pytest.mark.parametrize("damage", [b"", b"no database", b"SQLite format 3\0" + bytes(8192)])
def test_a_damaged_index_is_left_alone_and_not_shown(shelf: Shelf, damage: bytes) -> None:
    shelf.writer.close()
    (shelf.folder / "index.sqlite3").write_bytes(damage)
    before = state(shelf.folder)
    with copies(str(shelf.folder)) as snapshot:
        assert count(snapshot) == 5
    assert state(shelf.folder) == before


def test_an_index_of_a_newer_release_is_left_alone_and_not_shown(shelf: Shelf) -> None:
    shelf.writer.close()
    with contextlib.closing(sqlite3.connect(shelf.folder / "index.sqlite3")) as connection:
        connection.execute("PRAGMA user_version = 99")
    before = state(shelf.folder)
    with copies(str(shelf.folder)) as snapshot:
        assert count(snapshot) == 5
    assert state(shelf.folder) == before


def test_what_is_no_file_is_not_opened_as_an_index(shelf: Shelf) -> None:
    shelf.writer.close()
    (shelf.folder / "index.sqlite3").unlink()
    os.mkfifo(shelf.folder / "index.sqlite3")
    with copies(str(shelf.folder)) as snapshot:
        assert count(snapshot) == 5


def test_a_damaged_record_stays_where_it_is(shelf: Shelf) -> None:
    made = build("used", seconds=3.3)
    path = shelf.folder / "records" / made.fingerprint.hex[:2] / f"{made.fingerprint.hex}.json"
    path.chmod(0o644)
    path.write_bytes(b"{}")
    for index in shelf.folder.glob("index.sqlite3*"):
        index.unlink()
    with copies(str(shelf.folder)) as snapshot:
        assert count(snapshot) == 4
    assert path.read_bytes() == b"{}"


def test_an_index_that_goes_bad_later_does_not_take_the_pages_with_it(shelf: Shelf) -> None:
    with copies(str(shelf.folder), every=0.0) as snapshot:
        shelf.writer.close()
        (shelf.folder / "index.sqlite3").write_bytes(b"no database")
        shelf.put("later", note=False)
        snapshot.refresh()
        assert count(snapshot) == 6


def test_an_index_that_is_damaged_further_in_is_shown_from_records_after_one_error(shelf: Shelf) -> None:
    shelf.writer.close()
    path = shelf.folder / "index.sqlite3"
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        ((root,),) = connection.execute("SELECT rootpage FROM sqlite_schema WHERE name = 'raw_kernels'")
        ((size,),) = connection.execute("PRAGMA page_size")
    data = bytearray(path.read_bytes())
    data[(root - 1) * size : root * size] = b"\xff" * size
    path.write_bytes(data)
    before = state(shelf.folder)
    site = app(shelf.index(), every=0.0)
    pages = Pages(site)
    assert pages("/index/kernels.json?_shape=array").status_code in (400, 500)
    assert len(pages("/index/kernels.json?_shape=array").json()) == 5
    assert "<b>5</b>records" in pages.text("/")
    site.close()
    assert state(shelf.folder) == before


def test_many_visitors_at_once_see_whole_pages_while_the_store_grows(shelf: Shelf, pages: Pages) -> None:
    async def visit(number: int) -> int:
        answer = await pages.site.ds.client.get(PATHS[number % len(PATHS)])
        return int(answer.status_code)

    async def crowd() -> list[int]:
        return await asyncio.gather(*map(visit, range(30)))

    for number in range(2):
        shelf.put(f"more {number}")
        shelf.writer.flush()
        assert set(asyncio.run(crowd())) == {200}
    assert "<b>7</b>records" in pages.text("/")


def test_a_copy_that_cannot_be_written_leaves_the_last_one(shelf: Shelf) -> None:
    with copies(str(shelf.folder), every=0.0) as snapshot:
        shelf.put("more")
        shelf.writer.flush()
        wall = Path(snapshot.path).parent / "2.sqlite3"
        wall.mkdir()  # nothing can be written there
        snapshot.refresh()
        assert count(snapshot) == 5
        wall.rmdir()
        snapshot.refresh()
        assert count(snapshot) == 6


def test_no_store_is_an_error_that_says_so(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="there is no store"):
        Snapshot(str(tmp_path / "nowhere"))
    assert not (tmp_path / "nowhere").exists()


def test_closing_leaves_nothing_behind(shelf: Shelf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    site = app(shelf.index())
    (copy,) = (tmp_path / "tmp").iterdir()
    assert copy.stat().st_mode & 0o777 == 0o700
    site.close()
    assert list((tmp_path / "tmp").iterdir()) == []


def test_reading_files_change_nothing(tmp_path: Path) -> None:
    fs, path = ReadingFs(), str(tmp_path / "file")
    Path(path).write_bytes(b"here")
    attempts: list[Callable[[], object]] = [
        lambda: fs.create(path + "2", b""), lambda: fs.link(path, path + "2"), lambda: fs.rename(path, path + "2"),
        lambda: fs.touch(path), lambda: fs.unlink(path), lambda: fs.discard(path), lambda: fs.mkdir(path + "2"),
        lambda: fs.open_lock(path + "2"),
    ]  # fmt: skip
    before = state(tmp_path)
    for attempt in attempts:
        with pytest.raises(OSError, match="only reads"):
            attempt()
    assert state(tmp_path) == before
    assert fs.read(path) == b"here"


WRITER = """
import random, sqlite3, sys, time
path, seconds, seed = sys.argv[1], float(sys.argv[2]), sys.argv[3]
chance, end = random.Random(seed), time.monotonic() + seconds
while time.monotonic() < end:
    c = sqlite3.connect(path, isolation_level=None, timeout=20)
    c.execute(f"PRAGMA wal_autocheckpoint = {chance.choice([1, 5, 50, 1000])}")
    c.execute(f"PRAGMA cache_size = {chance.choice([1, 10, 2000])}")
    for _ in range(chance.randrange(1, 40)):
        c.execute("BEGIN IMMEDIATE")
        for _ in range(chance.choice([1, 1, 5, 300])):
            a, b = chance.randrange(2000), chance.randrange(2000)
            c.execute("UPDATE purses SET coins = coins - 1, filler = randomblob(300) WHERE id = ?", (a,))
            c.execute("UPDATE purses SET coins = coins + 1 WHERE id = ?", (b,))
        c.execute("UPDATE clock SET ticks = ticks + 1")
        c.execute(chance.choice(["COMMIT", "COMMIT", "COMMIT", "ROLLBACK"]))
        if chance.random() < 0.1:
            c.execute(f"PRAGMA wal_checkpoint({chance.choice(['PASSIVE', 'FULL', 'RESTART', 'TRUNCATE'])})")
    c.close()
"""


@pytest.mark.parametrize("seconds", [2.0, pytest.param(60.0, marks=pytest.mark.long)])
def test_a_copy_of_a_database_in_motion_is_one_of_its_moments(tmp_path: Path, seconds: float) -> None:
    live, copy = str(tmp_path / "live"), str(tmp_path / "copy")
    with contextlib.closing(sqlite3.connect(live, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.executescript("""
            CREATE TABLE purses (id INTEGER PRIMARY KEY, coins INTEGER, filler BLOB);
            CREATE TABLE clock (ticks INTEGER);
            INSERT INTO clock VALUES (0);
            WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 1999)
              INSERT INTO purses SELECT i, 100, randomblob(300) FROM n;""")
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, live, str(seconds), str(random.random())]) for _ in range(2)
    ]
    last = made = 0
    try:
        while any(writer.poll() is None for writer in writers):
            if not copy_live(live, copy):
                continue
            made += 1
            with contextlib.closing(sqlite3.connect(copy)) as connection:
                ((ticks,),) = connection.execute("SELECT ticks FROM clock").fetchall()
                assert connection.execute("SELECT sum(coins), count(*) FROM purses").fetchone() == (200_000, 2000)
                assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
            assert ticks >= last
            last = ticks
            for name in ("copy", "copy-wal", "copy-shm"):
                (tmp_path / name).unlink(missing_ok=True)
    finally:
        for writer in writers:
            writer.wait()
    assert [writer.returncode for writer in writers] == [0, 0]
    assert made >= 3
    assert last > 0


def test_a_log_that_begins_anew_during_the_copy_makes_it_start_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    live, copies_of = str(tmp_path / "live"), list[str]()
    writer = sqlite3.connect(live, isolation_level=None)
    writer.execute("PRAGMA journal_mode = WAL")
    writer.execute("CREATE TABLE a (x)")
    original = shutil.copyfile

    def copyfile(source: str, to: str) -> object:
        done = original(source, to)
        copies_of.append(source)
        if len(copies_of) == 1:  # between the database and its log
            writer.execute("INSERT INTO a VALUES (1)")
            writer.execute("PRAGMA wal_checkpoint(RESTART)")
            writer.execute("INSERT INTO a VALUES (2)")
        return done

    monkeypatch.setattr(shutil, "copyfile", copyfile)
    assert copy_live(live, str(tmp_path / "copy"))
    writer.close()
    assert copies_of.count(live) == 2
    with contextlib.closing(sqlite3.connect(tmp_path / "copy")) as connection:
        assert connection.execute("SELECT x FROM a").fetchall() == [(1,), (2,)]
