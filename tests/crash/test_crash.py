"""A process may die at any moment: what was there stays whole, what was coming is whole or absent."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from cubinet.errors import CompileError
from cubinet.model import Status
from cubinet.store.local import LocalLayer
from cubinet.testing.bench import Bench, overwrite

from .victims import BROKEN, BUILDS, OTHER, sample

pytestmark = pytest.mark.crash
VICTIMS = str(Path(__file__).with_name("victims.py"))


def victims(*arguments: str) -> str:
    command = [sys.executable, VICTIMS, *arguments]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


class Before:
    """What the folder looks like before the process that dies."""

    def no_store(self, bench: Bench) -> None:
        return

    def another_build(self, bench: Bench) -> None:
        bench.store(later=True).get_or_compile(bench.variant(OTHER))

    def the_build_with_its_object_damaged(self, bench: Bench) -> None:
        self.both(bench)
        (path,) = [path for path in bench.files("blobs") if path.read_bytes() == bench.expected()]
        overwrite(path, b"damaged")

    def the_build_with_its_record_damaged(self, bench: Bench) -> None:
        made = self.both(bench)
        overwrite(Path(LocalLayer(str(bench.folder)).path("records", made, ".json")), b"")

    def the_build_with_an_object_of_another_damaged(self, bench: Bench) -> None:
        self.both(bench)
        for path in bench.files("records", "manifests"):  # the object is published again over a damaged one
            path.unlink()
        bench.store(later=True).get_or_compile(bench.variant(OTHER))
        (path,) = [path for path in bench.files("blobs") if path.read_bytes() == bench.expected()]
        overwrite(path, b"damaged")

    def the_build_of_another_header(self, bench: Bench) -> None:
        self.both(bench)
        bench.header.write_text("an older text\n")
        bench.store(later=True).get_or_compile(bench.variant())
        bench.header.write_text("text of a.h\n")
        for path in bench.files("records"):
            if b'"name":"scale"' in path.read_bytes() and b"other" not in path.read_bytes():
                path.unlink()

    def the_build_with_a_memo_that_is_stale(self, bench: Bench) -> None:
        self.both(bench)  # the copies have other inodes and other places anyhow

    def both(self, bench: Bench) -> str:
        bench.store(later=True).get_or_compile(bench.variant(OTHER))
        return bench.store(later=True).get_or_compile(bench.variant()).fingerprint.hex


BEFORE: dict[str, Callable[[Bench], object]] = {
    name.replace("_", " "): getattr(Before(), name) for name in vars(Before) if name[0] != "_" and name != "both"
}


@pytest.mark.parametrize("before", BEFORE.values(), ids=BEFORE)
def test_a_process_that_dies_at_any_step_of_a_lookup_leaves_a_whole_store(
    tmp_path: Path, before: Callable[[Bench], object]
) -> None:
    (tmp_path / "base").mkdir()
    base = Bench.at(tmp_path / "base")
    before(base)
    other = base.store().find(base.variant(OTHER)) if base.folder.exists() else None
    damaged = base.folder.exists() and not _copy(base, tmp_path / "looked at").store().verify().clean
    (tmp_path / "copies").mkdir()
    deaths = int(victims("die", "plain", str(base.top), str(tmp_path / "copies")))
    assert deaths >= 3
    for step in range(deaths + 1):
        bench = Bench(tmp_path / "copies" / str(step))
        if other is not None:
            still = bench.store().find(bench.variant(OTHER))
            assert still is not None, step
            assert still.data == other.data, step
        found = bench.store().find(bench.variant())
        assert found is None or found.data == bench.expected(), step
        problems = bench.store().verify().problems
        assert not problems or damaged, (step, problems)
        again = bench.store().get_or_compile(bench.variant())
        assert (again.data, again.reason) == (bench.expected(), ""), step
        assert bench.store().verify().clean, step
        final = bench.store().find(bench.variant())
        assert final is not None, step
        assert final.data == bench.expected(), step
        _sweep(bench)
        assert not [path for path in bench.files() if _leftover(bench, path)], step
    assert found is not None  # the survivor's


def test_a_process_that_dies_noting_an_error_leaves_a_whole_store(tmp_path: Path) -> None:
    (tmp_path / "base").mkdir()
    base = Bench.at(tmp_path / "base")
    base.store(later=True).get_or_compile(base.variant())
    (tmp_path / "copies").mkdir()
    deaths = int(victims("die", "broken", str(base.top), str(tmp_path / "copies")))
    assert deaths >= 3
    for step in range(deaths + 1):
        bench = Bench(tmp_path / "copies" / str(step))
        for _ in range(2):
            with pytest.raises(CompileError, match="no good"):
                bench.store().get_or_compile(bench.variant(BROKEN))
        assert bench.runs <= 3, step
        assert bench.store().get_or_compile(bench.variant()).status is Status.HIT, step
        assert bench.store().verify().clean, step
        _sweep(bench)
        assert not [path for path in bench.files() if _leftover(bench, path)], step


@pytest.mark.slow
def test_writers_that_are_killed_at_random_leave_a_whole_store(tmp_path: Path) -> None:
    folder = tmp_path / "store"
    deaths, published, wrong = map(int, victims("write", str(folder), "4").split())
    assert deaths > 20
    assert published > 100
    assert wrong == 0
    layer = LocalLayer(str(folder))
    found = Bench(tmp_path).store().verify()
    assert found.clean, found.problems
    assert not (folder / "bad").exists()
    assert 0 < found.records <= BUILDS
    for number in range(BUILDS):
        made = sample(number)
        layer.publish(made.record, made.blobs)
        assert layer.find(made.fingerprint) == made.record
        assert layer.read(made.main) == made.data
        assert made.record.observations in layer.candidates(made.record.action)
    assert Bench(tmp_path).store().verify().records == BUILDS


def _copy(bench: Bench, to: Path) -> Bench:
    shutil.copytree(bench.top, to)
    return Bench(to)


def _sweep(bench: Bench) -> None:
    """What the first process that writes an hour later does."""
    store = bench.store()
    store._local.now = lambda: time.time() + 3700
    store.get_or_compile(bench.variant("a later one\nkernel k\n"))


def _leftover(bench: Bench, path: Path) -> bool:
    kind, *rest = path.relative_to(bench.folder).parts
    if kind in ("records", "blobs", "manifests", "failures", "memo"):
        return len(rest) != 2 or len(rest[1].removesuffix(".json")) != 64
    if kind == "tmp" and f"-{os.getpid()}-" in rest[0]:  # the index, in a thread of this process
        return False
    return kind not in ("VERSION", "CACHEDIR.TAG", "bad", "locks") and not kind.startswith("index.")
