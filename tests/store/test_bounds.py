"""Exits, forks, listeners and settings that are out of the ordinary: nothing waits without end."""

from __future__ import annotations

import fcntl
import gc
import math
import os
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable

import pytest

from cubinet.config import Settings
from cubinet.errors import ConfigError
from cubinet.events import Counters, Event
from cubinet.layer_spec import layer_specs
from cubinet.metrics import Tally
from cubinet.store.far import Recent
from cubinet.store.index.files import Place
from cubinet.store.uploads import Job, Uploads
from cubinet.testing.bench import Bench

_ONE_HIT = """
import sys
from pathlib import Path
from cubinet.store.uploads import Job, Uploads
from cubinet.testing.bench import Bench
bench = Bench(Path(sys.argv[1]))
with bench.store(later=True) as store:
    assert store.find(bench.variant())
{more}
"""


def _run(bench: Bench, more: str = "") -> subprocess.CompletedProcess[str]:
    script = _ONE_HIT.format(more=more)
    command = [sys.executable, "-c", script, str(bench.top)]
    return subprocess.run(command, capture_output=True, text=True, timeout=15, check=True)


def _in_child(call: Callable[[], object]) -> bool:
    """Whether a call ends in a forked child."""
    pid = os.fork()
    if pid == 0:
        try:
            call()
        finally:
            os._exit(0)
    for _ in range(100):
        if os.waitpid(pid, os.WNOHANG)[0]:
            return True
        time.sleep(0.03)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return False


@pytest.fixture
def filled(bench: Bench) -> Bench:
    with bench.store() as store:
        store.get_or_compile(bench.variant())
        store.notes.flush()
    return bench


def test_a_process_ends_though_another_one_holds_the_notes(filled: Bench) -> None:
    fd = os.open(filled.folder / "index.notes", os.O_RDONLY | os.O_CREAT, 0o644)
    try:
        fcntl.flock(fd, fcntl.LOCK_SH)
        _run(filled)
    finally:
        os.close(fd)


def test_closing_a_store_after_a_hit_opens_no_database(filled: Bench) -> None:
    _run(filled)  # leaves notes, which the next one finds
    done = _run(filled, "import time; time.sleep(0.5); print('sqlite3' in sys.modules)")
    assert done.stdout == "False\n"


def test_a_fork_does_not_keep_the_gate_of_the_index(filled: Bench) -> None:
    place = Place(str(filled.folder))
    with place.gate(exclusive=True):
        pid = os.fork()
        if pid == 0:
            time.sleep(30)
            os._exit(0)
    try:
        start = time.monotonic()
        with place.gate():
            pass
        assert time.monotonic() - start < 4
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def test_a_forked_child_counts_though_a_thread_counted_at_that_moment() -> None:
    tally, recent = Tally(), Recent[int, int]()
    with tally._lock, recent._lock:
        assert _in_child(lambda: tally(Event("hit", "local")))
        assert _in_child(lambda: recent.put(1, 2))


def test_a_listener_that_asks_for_the_very_build_it_is_told_of_holds_nobody_up(bench: Bench) -> None:
    store = bench.store()
    variant = bench.variant()
    seen: list[bytes] = []

    def listen(event: Event) -> None:
        if event.what == "compiled" and not seen:
            seen.append(b"")
            seen.append(store.get_or_compile(variant).data)

    store.listen(listen)
    thread = threading.Thread(target=store.get_or_compile, args=(variant,), daemon=True)
    thread.start()
    thread.join(10)
    assert not thread.is_alive()
    assert store.find(variant) is not None


def test_stores_that_are_dropped_leave_no_threads(filled: Bench) -> None:
    before = threading.active_count()
    for _ in range(20):
        assert filled.store(later=True).find(filled.variant()) is not None
    gc.collect()
    for _ in range(100):
        if threading.active_count() <= before + 1:
            break
        time.sleep(0.03)
    assert threading.active_count() <= before + 1


@pytest.mark.parametrize("place", ["s3:/bucket/x", "S3://bucket/x", "file:/tmp/x"])
def test_a_mistyped_url_is_no_folder(place: str) -> None:
    with pytest.raises(ConfigError, match="URL"):
        layer_specs(place)


@pytest.mark.parametrize(
    "given", [{"size": "100GG"}, {"age": "30y"}, {"drain": None}, {"size": -1}, {"drain": math.nan}]
)
def test_settings_in_python_are_checked_too(given: dict[str, object]) -> None:
    with pytest.raises(ConfigError):
        Settings(**given)  # type: ignore[arg-type]
    assert Settings(size="100G").size == 100 << 30  # type: ignore[arg-type]


def test_an_endless_drain_waits_for_its_jobs(bench: Bench) -> None:
    store = bench.store(drain=math.inf)
    done: list[int] = []

    def work() -> None:
        time.sleep(0.2)
        done.append(1)

    store._layers.uploads.add(Job(work, 0))
    assert store.flush() == 0
    assert done == [1]


def test_a_store_over_its_limits_is_not_counted_as_damaged(bench: Bench) -> None:
    store = bench.store(size=1)
    store.get_or_compile(bench.variant())
    store.flush()
    assert "damaged" not in store.stats()


def test_a_queue_that_nobody_has_any_more_is_not_kept() -> None:
    uploads = Uploads(Counters(), lambda _text: None, 1.0)
    uploads.at_end(int)
    reference = weakref.ref(uploads)
    del uploads
    gc.collect()
    assert reference() is None


def test_a_child_forked_while_the_index_is_written_can_write_it_too(filled: Bench) -> None:
    store = filled.store()
    artifact = store.find(filled.variant())
    assert artifact is not None
    over = threading.Event()

    def note() -> None:
        store.notes.note_use(artifact.fingerprint)
        store.notes.flush()

    def busy() -> None:
        while not over.is_set():
            note()

    thread = threading.Thread(target=busy)
    thread.start()
    try:
        assert all(_in_child(note) for _ in range(15))
    finally:
        over.set()
        thread.join()
