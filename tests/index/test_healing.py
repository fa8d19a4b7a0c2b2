"""Whatever happens to the file, the next question is answered, and writing goes on."""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from cubinet.errors import StoreError
from cubinet.store.index.files import Place
from cubinet.store.index.mounts import network_mount
from cubinet.store.index.schema import APPLICATION_ID, SCHEMA, migrate

from .shelf import HISTORY, Shelf, answers


def _empty(path: Path) -> None:
    path.write_bytes(b"")


def _delete(path: Path) -> None:
    path.unlink()


def _garbage(path: Path) -> None:
    path.write_bytes(os.urandom(5000))


def _cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def _cut_to_one_page(path: Path) -> None:
    os.truncate(path, 4096)


def _overwrite_the_middle(path: Path) -> None:
    with path.open("r+b") as file:
        for at in range(4096, path.stat().st_size, 8192):
            file.seek(at)
            file.write(b"\xff" * 4096)


def _somebody_elses(path: Path) -> None:
    path.unlink()
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE notes (text)")
        connection.commit()


def _without_a_table(path: Path) -> None:
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("DROP TABLE raw_records")
        connection.commit()


def _folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


DAMAGES = [
    _empty,
    _delete,
    _garbage,
    _cut,
    _cut_to_one_page,
    _overwrite_the_middle,
    _somebody_elses,
    _without_a_table,
]
_damages = pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__.strip("_"))


@_damages
def test_the_next_question_mends_it(shelf: Shelf, damage: Callable[[Path], None]) -> None:
    shelf.fill()
    before = answers(shelf.index(), *HISTORY, "records", "totals", "summary")
    damage(shelf.path)
    index = shelf.index()
    assert {row.name for row in index.query()} == {"add", "gemm", "gemm2", "scale"}
    assert answers(index, *HISTORY, "records", "totals", "summary") == before
    assert index.check() == []
    assert not shelf.warned
    with contextlib.closing(sqlite3.connect(shelf.path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)


@_damages
def test_writing_goes_on_and_no_error_surfaces(shelf: Shelf, damage: Callable[[Path], None]) -> None:
    shelf.fill()
    damage(shelf.path)
    shelf.put("later")
    shelf.writer.flush()
    shelf.put("latest")
    shelf.writer.flush()
    assert {row.name for row in shelf.index().query()} == {"add", "gemm", "gemm2", "scale", "later", "latest"}
    assert shelf.index().check() == []


def test_a_folder_in_its_place_is_no_trouble_for_questions_or_writers(shelf: Shelf) -> None:
    shelf.fill()
    _folder(shelf.path)
    shelf.put("later")
    shelf.writer.flush()
    assert len(list(shelf.index().query())) == 5


def test_a_log_of_an_old_file_does_not_reach_the_new_one(shelf: Shelf) -> None:
    shelf.fill()
    with contextlib.closing(sqlite3.connect(shelf.path)) as other:
        other.execute("PRAGMA wal_autocheckpoint = 0")
        other.execute("INSERT INTO raw_pins VALUES ('of the old file', 'x')")
        other.commit()
        log = Path(f"{shelf.path}-wal").read_bytes()
        assert len(log) > 4000
    _garbage(shelf.path)
    Path(f"{shelf.path}-wal").write_bytes(log)
    index = shelf.index()
    assert len(list(index.query())) == 4
    assert list(index.sql("SELECT * FROM pins")) == []


def _older(shelf: Shelf) -> None:
    """The file as the first schema had it: the same rows, without what came after."""
    with contextlib.closing(sqlite3.connect(shelf.path, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = DELETE")
        old = shelf.path.with_name("older")
        with contextlib.closing(sqlite3.connect(old, isolation_level=None)) as target:
            migrate(target, only_tables=True)
            target.execute("ATTACH ? AS live", (str(shelf.path),))
            tables = target.execute("SELECT name FROM main.sqlite_schema WHERE name GLOB 'raw_*' AND type = 'table'")
            for (name,) in tables.fetchall():
                target.execute(f"INSERT OR REPLACE INTO main.{name} SELECT * FROM live.{name}")
            assert target.execute("PRAGMA user_version").fetchone() == (1,)
    old.rename(shelf.path)


def test_an_older_file_is_brought_up_to_date_with_its_use_times(shelf: Shelf) -> None:
    shelf.fill()
    before = answers(shelf.index())
    _older(shelf)
    index = shelf.index()
    assert answers(index) == before
    assert [row.uses for row in index.top("most-used", 1)] == [2]


def test_a_writer_brings_an_older_file_up_to_date(shelf: Shelf) -> None:
    made = shelf.fill()
    _older(shelf)
    shelf.writer.note_use(made[1].fingerprint)
    assert shelf.writer.flush()
    assert [row.uses for row in shelf.index().top("most-used", 1)] == [3]


def test_a_newer_file_is_left_alone_and_answered_beside(shelf: Shelf) -> None:
    shelf.fill()
    with contextlib.closing(sqlite3.connect(shelf.path)) as connection:
        connection.execute(f"PRAGMA user_version = {SCHEMA + 1}")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    before = shelf.path.read_bytes()
    shelf.put("later")
    assert not shelf.writer.flush()
    index = shelf.index()
    assert len(list(index.query())) == 5
    with pytest.raises(StoreError, match="newer"):
        index.rebuild()
    assert index.check() == []
    assert shelf.path.read_bytes() == before
    assert shelf.counted["index.newer"] == 1
    assert any("newer" in text for text in shelf.warned)
    private = Path(index._private)
    assert private.exists()
    index.close()
    assert not private.exists()


def test_a_file_that_pretends_to_be_newer_and_is_not_ours_is_replaced(shelf: Shelf) -> None:
    shelf.fill()
    _somebody_elses(shelf.path)
    with contextlib.closing(sqlite3.connect(shelf.path)) as connection:
        connection.execute(f"PRAGMA user_version = {SCHEMA + 1}")
    assert len(list(shelf.index().query())) == 4
    with contextlib.closing(sqlite3.connect(shelf.path)) as connection:
        assert connection.execute("PRAGMA application_id").fetchone() == (APPLICATION_ID,)


def test_rows_that_are_quietly_wrong_are_found_by_check_and_mended_by_rebuild(shelf: Shelf) -> None:
    made = shelf.fill()
    assert shelf.index().check() == []
    with contextlib.closing(sqlite3.connect(shelf.path)) as connection:
        connection.execute("UPDATE raw_records SET size = 7 WHERE name = 'add'")
        connection.execute("UPDATE raw_counts SET value = 99 WHERE name = 'blobs'")
        connection.execute("DELETE FROM raw_kernels WHERE name = 'scale'")
        connection.execute("DROP INDEX records_size")
        connection.commit()
    index = shelf.index()
    problems = "\n".join(index.check())
    for word in ("records: ", "summary: ", "kernels: ", "records_size", made[0].fingerprint.hex):
        assert word in problems
    index.rebuild()
    assert index.check() == []


def test_a_rebuild_keeps_use_times(shelf: Shelf) -> None:
    shelf.fill()
    index = shelf.index()
    before = answers(index)
    index.rebuild()
    assert answers(index) == before
    assert before["uses"] != []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
@pytest.mark.parametrize("state", ["at rest", "live", "behind", "without an index"])
def test_a_store_that_cannot_be_written_is_answered(shelf: Shelf, tmp_path: Path, state: str) -> None:
    shelf.fill()
    shelf.index().stats()
    if state == "without an index":
        shelf.path.unlink()
    if state == "behind":
        shelf.put("later", note=False)
    for folder in (tmp_path, *tmp_path.parents):
        if not folder.stat().st_mode & 0o005 and folder != Path("/"):
            folder.chmod(folder.stat().st_mode | 0o055)
    live = sqlite3.connect(shelf.path) if state == "live" else None
    if live is not None:
        live.execute("INSERT INTO raw_pins VALUES ('ab', 'only in the log')")
        live.commit()
    files = {path: path.read_bytes() for path in shelf.folder.rglob("*") if path.is_file() and "-shm" not in path.name}

    def ask() -> str:
        index = Shelf(shelf.folder).index()
        found = len(list(index.query())), len(list(index.sql("SELECT * FROM pins"))), len(index.check())
        index.close()
        return " ".join(map(str, found))

    assert _as_nobody(ask) == f"{5 if state == 'behind' else 4} {1 if state == 'live' else 0} 0"
    assert {path: path.read_bytes() for path in files if path.exists()} == files
    if live is not None:
        live.close()


def _as_nobody(ask: Callable[[], str]) -> str:
    """What a call gives in a child that may write nothing."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setgid(65534)
            os.setuid(65534)
            text = ask()
        except BaseException as exc:  # noqa: BLE001 - the parent shows it
            text = repr(exc)
        os.write(writer, text.encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, encoding="utf-8") as file:
        text = file.read()
    os.waitpid(child, 0)
    return text


def test_a_process_killed_at_any_moment_leaves_an_index_that_heals(shelf: Shelf) -> None:
    shelf.fill()
    for pause in (0.02, 0.05, 0.09, 0.14, 0.2):
        child = os.fork()
        if child == 0:
            index = shelf.index()
            for number in itertools.count():
                shelf.put(f"{pause} {number}")
                shelf.writer.flush()
                index.rebuild()
        time.sleep(pause)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        index = shelf.index()
        there = sum(1 for _ in shelf.layer.fingerprints())
        assert len(list(index.query())) == there
        assert index.check() == []
        assert [row.uses for row in index.top("most-used", 1)] == [2]
    assert not shelf.warned


def test_what_a_killed_rebuild_leaves_is_swept_with_the_rest(shelf: Shelf) -> None:
    shelf.fill()
    left = Path(Place(str(shelf.folder)).temporary())
    left.write_bytes(b"half an index")
    os.utime(left, (1, 1))
    shelf.layer._ready = False
    shelf.put("later")
    assert not left.exists()


MOUNTS = """\
22 1 254:0 / / rw,relatime - ext4 /dev/vda rw
30 22 0:40 / /shared rw - nfs4 server:/export rw
31 22 0:41 / /shared/local rw - xfs /dev/vdb rw
32 22 0:42 / /mnt/with\\040blank rw - lustre mds:/x rw
33 22 0:43 / /home/me/s3 rw - fuse.s3fs s3fs rw
34 22 0:44 / /over rw - ext4 /dev/vdc rw
35 34 0:45 / /over rw - cifs //server/x rw
broken line
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/", ""),
        ("/shared/store", "nfs4"),
        ("/shared/local/store", ""),
        ("/sharedness/store", ""),
        ("/mnt/with blank/store", "lustre"),
        ("/home/me/s3", "fuse.s3fs"),
        ("/over/x", "cifs"),
    ],
)
def test_a_network_mount_is_seen(tmp_path: Path, path: str, kind: str) -> None:
    (tmp_path / "mountinfo").write_text(MOUNTS)
    assert network_mount(path, str(tmp_path / "mountinfo")) == kind


def test_on_a_network_mount_the_index_is_private_with_one_warning(shelf: Shelf, tmp_path: Path) -> None:
    shelf.fill()
    shelf.path.unlink()
    (tmp_path / "mountinfo").write_text(f"22 1 254:0 / {shelf.folder} rw - nfs server:/x rw\n")
    index = shelf.index(mountinfo=str(tmp_path / "mountinfo"))
    assert len(list(index.query())) == 4
    shelf.put("later", note=False)
    index._fresh = 0.0
    assert len(list(index.query())) == 5
    assert not shelf.path.exists()
    assert len(shelf.warned) == 1
    assert "network mount (nfs)" in shelf.warned[0]


def test_a_store_that_is_not_there_is_empty_and_stays_so(shelf: Shelf) -> None:
    index = shelf.index()
    assert list(index.query()) == []
    assert index.stats()["records"] == 0
    assert not shelf.folder.exists()
    shelf.fill()
    index._fresh = 0.0
    assert len(list(index.query())) == 4
