"""The queue of what goes to other layers: its bounds, its end, and what is said of what did not go."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from cubinet.events import Counters
from cubinet.store import uploads as module
from cubinet.store.uploads import Job, Uploads
from cubinet.testing.bench import Bench
from cubinet.testing.remotes import in_child


class Post:
    """A queue, and what it said."""

    def __init__(self, seconds: float = 5.0) -> None:
        self.said: list[str] = []
        self.counters = Counters()
        self.queue = Uploads(self.counters, self.said.append, seconds)
        self.go = threading.Event()
        self.started = threading.Event()
        self.done: list[int] = []
        self.dropped: list[int] = []

    def job(self, number: int, size: int = 10, *, waits: bool = False) -> Job:
        def run() -> None:
            self.started.set()
            if waits:
                self.go.wait(20)
            self.done.append(number)

        return Job(run, size, lambda: self.dropped.append(number))

    def block(self) -> None:
        """Keep the thread busy until `go`."""
        self.queue.add(self.job(-1, waits=True))
        assert self.started.wait(10)


def test_jobs_run_in_order_and_drain_waits_for_them() -> None:
    post = Post()
    for number in range(100):
        assert post.queue.add(post.job(number))
    assert post.queue.drain() == 0
    assert post.done == list(range(100))
    assert post.queue.waiting == 0
    assert post.said == []


def test_too_many_jobs_are_dropped_and_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_JOBS", 3)
    post = Post()
    post.block()
    assert [post.queue.add(post.job(n)) for n in range(5)] == [True, True, True, False, False]
    assert post.dropped == [3, 4]
    assert post.counters.snapshot() == {"upload.dropped": 2}
    assert all("cubinet push" in text for text in post.said)
    post.go.set()
    assert post.queue.drain() == 0
    assert post.done == [-1, 0, 1, 2]


def test_too_many_bytes_are_dropped_but_a_large_one_alone_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_BYTES", 100)
    post = Post()
    post.block()
    assert post.queue.add(post.job(0, size=1000))
    assert not post.queue.add(post.job(1, size=1))
    post.go.set()
    assert post.queue.drain() == 0
    post.go.clear()
    post.started.clear()
    post.block()
    assert [post.queue.add(post.job(n, size=50)) for n in (2, 3, 4)] == [True, True, False]
    post.go.set()
    assert post.queue.drain() == 0


def test_what_is_not_done_in_time_is_dropped_and_told_of() -> None:
    post = Post(seconds=0.1)
    post.block()
    for number in range(3):
        post.queue.add(post.job(number))
    start = time.monotonic()
    assert post.queue.drain() == 4
    assert time.monotonic() - start < 2.0
    assert post.dropped == [0, 1, 2]
    assert post.counters.snapshot() == {"upload.dropped": 3}
    assert len(post.said) == 1
    assert post.said[0].startswith("4 builds")
    assert "cubinet push" in post.said[0]
    post.go.set()
    assert post.queue.drain(5.0) == 0
    assert post.queue.add(post.job(9))
    assert post.queue.drain(5.0) == 0
    assert post.done == [-1, 9]


def test_what_is_no_build_is_not_told_of_as_one() -> None:
    post = Post(seconds=0.1)
    post.block()
    post.queue.add(Job(lambda: None, 0, lambda: post.dropped.append(7), build=False))
    post.queue.add(post.job(1))
    assert post.queue.drain() == 2
    assert post.dropped == [7, 1]
    assert post.counters.snapshot() == {"upload.dropped": 1}
    assert post.said[0].startswith("2 builds stay")
    post.go.set()
    assert post.queue.drain(5.0) == 0
    post.go.clear()
    post.started.clear()
    post.queue.at_end(lambda: post.go.wait(20))
    assert post.queue.drain() == 0
    assert len(post.said) == 1
    post.go.set()


def test_a_job_that_fails_does_not_stop_the_others() -> None:
    post = Post()

    def broken() -> None:
        raise ZeroDivisionError("a bug")

    post.queue.add(Job(broken, 1))
    post.queue.add(post.job(1))
    assert post.queue.drain() == 0
    assert post.done == [1]
    assert "a bug" in post.said[0]


def test_many_threads_add_and_drain() -> None:
    post = Post()

    def work(first: int) -> None:
        for number in range(first, first + 50):
            post.queue.add(post.job(number))
            if number % 10 == 0:
                post.queue.drain()

    threads = [threading.Thread(target=work, args=(100 * n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert post.queue.drain() == 0
    assert len(post.done) == 400


def test_a_forked_child_has_a_queue_of_its_own() -> None:
    post = Post()
    post.block()
    post.queue.add(post.job(1))

    def child() -> str:
        waiting = post.queue.waiting
        post.go.set()
        post.queue.add(post.job(2))
        return f"{waiting} {post.queue.drain()} {post.done}"

    with post.queue._changed:  # as held by a thread that the child has not
        assert in_child(child) == "0 0 [2]"
    post.go.set()
    assert post.queue.drain() == 0
    assert post.done == [-1, 1]


PROGRAM = """
import sys
from pathlib import Path
from cubinet.testing.bench import Bench
bench = Bench.at(Path(sys.argv[1]))
store = bench.store(layers=sys.argv[2], drain=float(sys.argv[3]))
for number in range(20):
    store.get_or_compile(bench.variant(f"number {number}\\nkernel scale\\n"))
if len(sys.argv) > 4:
    exec(sys.argv[4])
"""


def _run(tmp_path: Path, *more: str) -> subprocess.CompletedProcess[str]:
    (tmp_path / "bucket").mkdir()
    (tmp_path / "host").mkdir()
    arguments = [sys.executable, "-c", PROGRAM, str(tmp_path / "host"), f"file://{tmp_path}/bucket?trust=open", *more]
    return subprocess.run(arguments, check=False, capture_output=True, text=True, timeout=60)


def test_a_process_that_ends_at_once_has_uploaded_everything(tmp_path: Path, bench: Bench) -> None:
    done = _run(tmp_path, "20")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    store = bench.store(layers=f"file://{tmp_path}/bucket?trust=open")
    for number in range(20):
        assert store.find(bench.variant(f"number {number}\nkernel scale\n"))
    assert bench.runs == 0


@pytest.mark.parametrize("end", ["sys.exit(3)", "raise ValueError('a bug of the program')"])
def test_also_a_process_that_fails(tmp_path: Path, end: str) -> None:
    assert _run(tmp_path, "20", end).returncode != 0
    assert len(list((tmp_path / "bucket/v1/records").glob("*/*"))) == 20


def test_also_a_process_made_by_multiprocessing(tmp_path: Path) -> None:
    end = (
        "import multiprocessing as m\n"
        "store.flush()\n"
        "p = m.get_context('fork').Process(target=store.get_or_compile, args=(bench.variant('kernel more\\n'),))\n"
        "p.start(); p.join(); sys.exit(p.exitcode)"
    )
    done = _run(tmp_path, "20", end)
    assert done.returncode == 0, done.stderr
    assert len(list((tmp_path / "bucket/v1/records").glob("*/*"))) == 21


def test_a_process_whose_time_is_over_says_what_stayed(tmp_path: Path) -> None:
    end = (
        "import time, cubinet.store.remote as r\n"
        "store.flush(20)\n"
        "upload = r.RemoteLayer.upload\n"
        "r.RemoteLayer.upload = lambda *a, **k: (time.sleep(0.5), upload(*a, **k))[1]\n"
        "for n in range(5): store.get_or_compile(bench.variant(f'more {n}\\nkernel scale\\n'))\n"
    )
    start = time.monotonic()
    done = _run(tmp_path, "0.2", end)
    assert done.returncode == 0, done.stderr
    assert time.monotonic() - start < 20
    assert "on this host alone for now" in done.stderr
    assert "Traceback" not in done.stderr
