"""A rebuilt index gives the answers of the live one."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from cubinet.model import Digest, Record
from cubinet.store.index.views import VIEWS
from cubinet.testing.samples import build
from cubinet.testing.strategies import records

from .shelf import EARLY, HISTORY, Shelf, answers, consistent

TEXTS = ("add", "gemm", "scale")
_any_record = records().map(consistent) | st.builds(
    lambda text, tools, when: build(text, family=tools, created=when).record,
    st.sampled_from(TEXTS),
    st.sampled_from(["a", "b"]),
    st.sampled_from(["2026-01-02T03:04:05+00:00", "2026-02-02", "never"]),
)
_pick = st.integers(0, 5)


def _publish(shelf: Shelf, known: list[Record], record: Record) -> None:
    if all(record.fingerprint != other.fingerprint for other in known):
        shelf.put_record(record)
        known.append(record)


def _use(shelf: Shelf, known: list[Record], which: int, when: int) -> None:
    fingerprint = known[which % len(known)].fingerprint if known else build("nobody").fingerprint
    shelf.writer.note_use(fingerprint, when)


def _remove(shelf: Shelf, known: list[Record], which: int) -> None:
    if known:
        record = known.pop(which % len(known))
        shelf.remove(record.fingerprint)
        shelf.writer.note_gone(record.fingerprint)


Step = Callable[[Shelf, list[Record]], object]
_steps: st.SearchStrategy[Step] = st.one_of(
    _any_record.map(lambda record: lambda shelf, known: _publish(shelf, known, record)),
    st.builds(lambda n, t: lambda shelf, known: _use(shelf, known, n, t), _pick, st.integers(EARLY, EARLY + 9999)),
    _pick.map(lambda n: lambda shelf, known: _remove(shelf, known, n)),
    st.builds(
        lambda reason, seconds: lambda shelf, known: shelf.writer.note_event("local", "miss", reason, seconds),
        st.text(max_size=5),
        st.floats(0, 10),
    ),
    st.builds(
        lambda outcome: (
            lambda shelf, known: shelf.writer.note_compile(action="a", seconds=1, outcome=outcome, when=EARLY)
        ),
        st.sampled_from(["ok", "failed"]),
    ),
    st.builds(
        lambda hexed: (
            lambda shelf, known: shelf.writer.note_nondeterminism(build("add").fingerprint, Digest(hexed), EARLY)
        ),
        st.sampled_from(["ab" * 32, "cd" * 32]),
    ),
    st.just(lambda shelf, known: shelf.writer.flush()),
)


@settings(max_examples=12)
@given(st.lists(_steps, max_size=14))
def test_a_rebuilt_index_has_the_answers_of_the_live_one(steps: list[Step]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        shelf, known = Shelf(Path(folder, "store")), list[Record]()
        shelf.layer.publish(build("first").record, {})  # so that there is a store
        for step in steps:
            step(shelf, known)
        index = shelf.index()
        live = answers(index)
        assert len(live["records"]) == len(known) + 1
        assert index.check() == []
        index.rebuild()
        assert answers(index) == live
        assert answers(shelf.index()) == live
        shelf.path.unlink()
        again = answers(shelf.index(), *HISTORY)
        for view in {*VIEWS} - {*HISTORY, "records", "totals", "summary"}:
            assert again[view] == live[view], view
        assert [row[:-2] for row in again["records"]] == [row[:-2] for row in live["records"]]  # but for use times
        assert not shelf.warned


def test_a_record_that_nobody_noted_is_found_from_its_file(shelf: Shelf) -> None:
    shelf.fill()
    index = shelf.index()
    assert len(list(index.query())) == 4
    shelf.put("killed before its flush", note=False)
    assert len(list(shelf.index().query())) == 5


def test_a_record_whose_file_was_deleted_by_hand_is_gone(shelf: Shelf) -> None:
    made = shelf.fill()
    assert shelf.index().stats()["records"] == 4
    shelf.remove(made[0].fingerprint)
    index = shelf.index()
    assert {row.name for row in index.query()} == {"gemm", "gemm2", "scale"}
    assert index.check() == []


def test_a_damaged_record_is_in_no_answer(shelf: Shelf) -> None:
    made = shelf.fill()
    name = made[2].fingerprint.hex
    shelf.remove(made[2].fingerprint)
    (shelf.folder / "records" / name[:2] / f"{name}.json").write_bytes(b"{")
    index = shelf.index()
    index.rebuild()
    assert index.stats()["records"] == 3


def test_progress_goes_up_to_the_number_of_records(shelf: Shelf) -> None:
    shelf.fill()
    seen: list[tuple[int, int]] = []
    shelf.index().rebuild(lambda done, total: seen.append((done, total)))
    assert seen[0] == (0, 4)
    assert seen[-1] == (4, 4)


def test_pins_are_those_of_their_files(shelf: Shelf) -> None:
    made = shelf.fill()
    index = shelf.index()
    assert list(index.sql("SELECT * FROM pins")) == []
    folder = shelf.folder / "pins"
    folder.mkdir()
    (folder / "release").write_text("".join(f"{one.fingerprint.hex}\n" for one in made[:2]))
    (folder / "damaged").write_bytes(b"\xff\nno fingerprint\n")
    pinned = [{"fingerprint": one.fingerprint.hex, "tag": "release"} for one in made[:2]]
    question = "SELECT * FROM pins ORDER BY fingerprint"
    right = sorted(pinned, key=lambda row: row["fingerprint"])
    assert list(shelf.index().sql(question)) == right
    index.rebuild()
    assert list(index.sql(question)) == right
    os.utime(folder / "release", (1, 1))
    os.utime(folder / "damaged", (1, 1))
    assert list(shelf.index().sql(question)) == right
    (folder / "release").unlink()
    assert list(shelf.index().sql(question)) == []


def test_it_is_told_since_when_uses_are_known(shelf: Shelf) -> None:
    shelf.fill()
    assert time.time() - 60 < shelf.index().since() <= time.time()
    with contextlib.closing(sqlite3.connect(shelf.path)) as connection:
        connection.execute("UPDATE raw_counts SET value = 1700000000 WHERE name = 'since'")
        connection.commit()
    index = shelf.index()
    index.rebuild()
    assert index.since() == 1_700_000_000
    shelf.path.unlink()
    assert shelf.index().since() > time.time() - 60
