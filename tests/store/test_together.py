"""Many threads and many processes at one store: one compile, the right result for each."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from cubinet.errors import CompileError
from cubinet.model import Artifact, Root, Status
from cubinet.store.local import LocalLayer
from cubinet.testing.bench import Bench
from cubinet.testing.samples import build

CHILDREN = str(Path(__file__).with_name("children.py"))


def children(name: str, top: Path) -> Any:
    command = [sys.executable, CHILDREN, name, str(top)]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def at_once(count: int, work: Callable[[int], Any]) -> list[Any]:
    """Run `work` in threads that all start together; results or errors in order."""
    barrier = threading.Barrier(count)

    def one(number: int) -> Any:
        barrier.wait()
        try:
            return work(number)
        except Exception as exc:  # noqa: BLE001 - the test looks at it
            return exc

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(one, range(count)))


# --- processes


def test_sixteen_processes_that_want_one_cold_variant_compile_it_once(bench: Bench) -> None:
    results = children("ask", bench.top)
    assert bench.runs == 1
    assert [data for data, _, _ in results] == [bench.expected().decode()] * 16
    assert sorted(status for _, status, _ in results) == ["compiled"] + ["hit"] * 15
    assert {layer for _, _, layer in results} == {"local"}
    assert bench.store().verify().clean
    assert not list(bench.folder.glob("locks/*"))
    assert not list(bench.folder.glob("tmp/*"))


def test_sixteen_processes_that_want_what_does_not_compile_find_out_once(bench: Bench) -> None:
    assert children("ask_broken", bench.top) == ["CompileError: cannot compile scale: no good"] * 16
    assert bench.runs == 1


def test_processes_with_other_headers_each_get_their_own_and_none_is_lost(bench: Bench) -> None:
    results = children("other_headers", bench.top)
    assert results == [bench.expected(f"header {i}").decode() for i in range(16)]
    action = bench.store().action(bench.variant())
    assert len(bench.store()._local.candidates(action)) == 16
    for number in range(16):
        roots = (Root("first", str(bench.top / "first")), Root("second", str(bench.top / f"headers{number}")))
        assert bench.store().find(bench.variant(roots=roots)) is not None


def test_no_candidate_is_lost_when_many_publish_to_one_action(bench: Bench) -> None:
    assert children("publish_candidates", bench.top) == [True] * 16
    expected = {build(str(number), action="one").record.observations for number in range(16)}
    layer = LocalLayer(str(bench.folder))
    assert set(layer.candidates(build("0", action="one").record.action)) == expected


def test_processes_that_publish_the_same_agree_on_who_was_first(bench: Bench) -> None:
    assert sum(children("publish_overlapping", bench.top)) == 20
    assert bench.store().verify().records == 20
    assert not list(bench.folder.glob("tmp/*"))


def test_a_killed_compile_holds_nobody_up(bench: Bench) -> None:
    start = time.monotonic()
    assert children("die_while_compiling", bench.top) == ["died"] + [bench.expected().decode()] * 3
    assert time.monotonic() - start < 30
    assert bench.runs == 2
    assert not list(bench.folder.glob("locks/*"))


def test_a_fork_in_the_middle_of_a_compile_harms_neither_side(bench: Bench) -> None:
    result = children("fork_in_the_middle", bench.top)
    assert result["parent"] == bench.expected().decode()
    warm, same, other, stats = result["child"]
    assert warm == "process"
    assert same == bench.expected().decode()
    assert other == "cubin sm_90a 1.0\nother\nkernel k\n"
    assert stats["compiled"] == 1
    assert bench.runs == 3


# --- threads


def test_sixteen_threads_that_want_one_cold_variant_compile_it_once(bench: Bench) -> None:
    store = bench.store(seconds=0.1)
    results = at_once(16, lambda _: store.get_or_compile(bench.variant()))
    assert bench.runs == 1
    assert [made.data for made in results] == [bench.expected()] * 16
    assert sorted(made.status for made in results) == [Status.COMPILED] + [Status.HIT] * 15
    assert all(made.messages == "" for made in results if made.status is Status.HIT)


def test_sixteen_threads_with_a_store_each_compile_once(bench: Bench) -> None:
    results = at_once(16, lambda _: bench.store(seconds=0.1).get_or_compile(bench.variant()))
    assert bench.runs == 1
    assert [made.data for made in results] == [bench.expected()] * 16


def test_threads_that_want_other_variants_do_not_wait_for_each_other(bench: Bench) -> None:
    barrier = threading.Barrier(4)  # breaks if two compiles cannot run at the same time
    store = bench.store(during=lambda: barrier.wait(10))
    results = at_once(4, lambda i: store.get_or_compile(bench.variant(f"text {i}\nkernel k\n")).data)
    assert results == [f"cubin sm_90a 1.0\ntext {i}\nkernel k\n".encode() for i in range(4)]


def test_threads_share_an_error(bench: Bench) -> None:
    store = bench.store(seconds=0.1)
    results = at_once(8, lambda _: store.get_or_compile(bench.variant("#error no good\n")))
    assert all(isinstance(made, CompileError) for made in results)
    assert bench.runs == 1


def test_threads_with_other_headers_under_the_same_label_do_not_share(bench: Bench) -> None:
    # The labels are the same and so is the action; only the places differ.
    started = threading.Event()
    store = bench.store(seconds=0.2, during=started.set)
    other = bench.top / "other"
    other.mkdir()
    (other / "a.h").write_text("other\n")
    there = bench.variant(roots=(Root("first", str(bench.top / "first")), Root("second", str(other))))

    def work(number: int) -> bytes:
        if number == 0:
            return store.get_or_compile(bench.variant()).data
        started.wait(10)
        return store.get_or_compile(there).data

    assert at_once(2, work) == [bench.expected(), bench.expected("other")]


def test_nobody_is_given_a_result_whose_input_changed_meanwhile(bench: Bench) -> None:
    # The second caller asks after the edit, while the first one's compile, which read the old text, still runs.
    edited, asked = threading.Event(), threading.Event()

    def during() -> None:
        if not edited.is_set():
            bench.header.write_text("changed\n")
            edited.set()
            asked.wait(10)
            time.sleep(0.2)

    store = bench.store(during=during)

    def work(number: int) -> Artifact:
        if number:
            edited.wait(10)
            asked.set()
        return store.get_or_compile(bench.variant())

    first, second = at_once(2, work)
    assert (first.data, first.reason) == (bench.expected(), "second:a.h changed while compiling")
    assert (second.data, second.reason) == (bench.expected("changed"), "")
    assert bench.runs == 2


def test_an_interrupted_compile_is_taken_over_by_the_next_caller(bench: Bench) -> None:
    interrupts = iter([KeyboardInterrupt()])
    started = threading.Event()

    def during() -> None:
        started.set()
        time.sleep(0.2)
        for interrupt in interrupts:
            raise interrupt

    store = bench.store(during=during)

    def work(number: int) -> bytes:
        if number == 0:
            with pytest.raises(KeyboardInterrupt):
                store.get_or_compile(bench.variant())
            return b"interrupted"
        started.wait(10)
        return store.get_or_compile(bench.variant()).data

    assert at_once(3, work) == [b"interrupted", bench.expected(), bench.expected()]
    assert bench.runs == 2
    assert not list(bench.folder.glob("locks/*"))


def test_readers_and_writers_in_threads_see_only_whole_artifacts(bench: Bench) -> None:
    store = bench.store()
    builds = [build(str(i), data=bytes([i]) * 10_000) for i in range(10)]

    def work(number: int) -> bool:
        for _ in range(5):
            for made in builds:
                if number % 2:
                    store.publish(made.artifact())
                else:
                    found = store.find(made.fingerprint)
                    if found is not None and found.data != made.data:
                        return False
        return True

    assert at_once(6, work) == [True] * 6
    assert store.verify().clean
