"""A store tells the remotes that it writes to what it used."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from cubinet.store.usage import read_note
from cubinet.testing.bench import Bench


@pytest.fixture
def bucket(tmp_path: Path) -> Path:
    (tmp_path / "bucket").mkdir()
    return tmp_path / "bucket"


def notes(bucket: Path) -> set[str]:
    return set[str]().union(*(read_note(path.read_bytes()) for path in bucket.glob("v1/uses/*/*")))


def forget(bucket: Path) -> None:
    for path in bucket.glob("v1/uses/*/*"):
        path.unlink()


def test_uses_of_a_process_that_opens_no_remote_are_told_by_the_next_that_does(bench: Bench, bucket: Path) -> None:
    layers = f"file://{bucket}?trust=open"
    with bench.store(layers=layers) as store:
        made = store.get_or_compile(bench.variant())
    assert notes(bucket) == {made.fingerprint.hex}
    forget(bucket)
    with bench.store(layers=layers) as store:
        assert store.find(bench.variant()) is not None
        assert store._layers._far is None
    assert notes(bucket) == set()
    os.utime(bench.folder / "uses" / "sent", (1, 1))
    bench.header.write_text("other\n")
    with bench.store(layers=layers) as store:
        other = store.get_or_compile(bench.variant())
    assert notes(bucket) == {made.fingerprint.hex, other.fingerprint.hex}
    assert [path.name for path in (bench.folder / "uses").iterdir()] == ["sent"]
    assert store.verify().clean


def test_a_hit_in_a_remote_is_told(bench: Bench, bucket: Path, tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    there = Bench.at(tmp_path / "there")
    layers = f"file://{bucket}?trust=open"
    with there.store(layers=layers) as store:
        made = store.get_or_compile(there.variant())
    forget(bucket)
    with bench.store(layers=layers) as store:
        assert store.find(bench.variant()) is not None
    assert notes(bucket) == {made.fingerprint.hex}


def test_a_read_only_remote_is_told_nothing(bench: Bench, bucket: Path) -> None:
    with bench.store(layers=f"file://{bucket}?trust=open&ro") as store:
        store.get_or_compile(bench.variant())
    assert list(bucket.iterdir()) == []
    assert not (bench.folder / "uses").exists()


def test_a_process_that_closes_nothing_tells_when_it_ends(bucket: Path, tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    code = f"""
from pathlib import Path
from cubinet.testing.bench import Bench
bench = Bench.at(Path({str(tmp_path)!r}) / "there")
store = bench.store(layers="file://{bucket}?trust=open")
print(store.get_or_compile(bench.variant()).fingerprint.hex)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert notes(bucket) == {done.stdout.strip()}


def test_a_remote_that_takes_no_note_is_told_later(bench: Bench, bucket: Path) -> None:
    layers = f"file://{bucket}?trust=open"
    (bucket / "v1").mkdir()
    (bucket / "v1" / "uses").write_text("in the way")
    with bench.store(layers=layers) as store:
        made = store.get_or_compile(bench.variant())
    assert made.fingerprint == bench.store(layers=layers).find(bench.variant()).fingerprint  # type: ignore[union-attr]
    (bucket / "v1" / "uses").unlink()
    bench.header.write_text("other\n")
    with bench.store(layers=layers) as store:
        other = store.get_or_compile(bench.variant())
    assert notes(bucket) == {made.fingerprint.hex, other.fingerprint.hex}
