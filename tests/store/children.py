"""What tests run in other processes: `python children.py NAME FOLDER`.

Each function forks its workers from this process, which has one thread, and prints one JSON value.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

from cubinet.model import Root
from cubinet.store.local import LocalLayer
from cubinet.testing.bench import Bench
from cubinet.testing.faults import NoSyncFs
from cubinet.testing.samples import build

WORKERS = 16


def together(work: Callable[[int], object], count: int = WORKERS) -> list[object]:
    """Run `work(0)`, `work(1)`, … each in its own process, all released at once; their results in order."""
    go_read, go_write = os.pipe()
    readers, pids = [], []
    for number in range(count):
        read, write = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(go_write)
            os.read(go_read, 1)  # returns when the parent closes its end
            try:
                os.write(write, json.dumps(work(number)).encode())
            except BaseException as exc:  # noqa: BLE001 - the parent shows it
                os.write(write, json.dumps(f"{type(exc).__name__}: {exc}").encode())
            os._exit(0)
        os.close(write)
        readers.append(read)
        pids.append(pid)
    os.close(go_read)
    os.close(go_write)
    results = []
    for read, pid in zip(readers, pids, strict=True):
        with os.fdopen(read, "rb") as file:
            data = file.read()
        os.waitpid(pid, 0)
        results.append(json.loads(data) if data else "died")
    return results


def ask(top: Path) -> object:
    """All want the same cold variant."""
    bench = Bench(top)

    def work(_: int) -> object:
        made = bench.store(seconds=0.3).get_or_compile(bench.variant())
        return made.data.decode(), str(made.status), made.layer

    return together(work)


def ask_broken(top: Path) -> object:
    """All want the same variant that does not compile."""
    bench = Bench(top)
    return together(lambda _: bench.store().get_or_compile(bench.variant("#error no good\n")).layer)


def other_headers(top: Path) -> object:
    """All want the same action, each with another header under the same label."""
    bench = Bench(top)

    def work(number: int) -> object:
        here = top / f"headers{number}"
        here.mkdir()
        (here / "a.h").write_text(f"header {number}\n")
        variant = bench.variant(roots=(Root("first", str(top / "first")), Root("second", str(here))))
        return bench.store().get_or_compile(variant).data.decode()

    return together(work)


def publish_candidates(top: Path) -> object:
    """All publish a build of the same action, without the lock that a lookup holds."""

    def work(number: int) -> object:
        made = build(str(number), action="one")
        return LocalLayer(str(top / "store"), fs=NoSyncFs()).publish(made.record, made.blobs)

    return together(work)


def publish_overlapping(top: Path) -> object:
    """All publish the same builds in another order."""

    def work(number: int) -> object:
        layer = LocalLayer(str(top / "store"), fs=NoSyncFs())
        builds = [build(str((i * 7 + number) % 20), data=b"shared") for i in range(20)]
        return sum(layer.publish(made.record, made.blobs) for made in builds)

    return together(work, 8)


def die_while_compiling(top: Path) -> object:
    """The holder of the lock is killed; the others go on at once."""
    bench = Bench(top)

    def work(number: int) -> object:
        def during() -> None:
            if number == 0:
                os.kill(os.getpid(), signal.SIGKILL)

        time.sleep(0.1 * min(number, 1))
        return bench.store(during=during).get_or_compile(bench.variant()).data.decode()

    return together(work, 4)


def fork_in_the_middle(top: Path) -> object:
    """A process forks while one of its threads compiles; parent and child both get what they ask for."""
    bench = Bench(top)
    compiling = threading.Event()
    store = bench.store(seconds=0.3, during=compiling.set, refresh=60.0)
    store.get_or_compile(bench.variant("warm\nkernel k\n"))
    compiling.clear()
    results: dict[str, object] = {}

    def compile_it() -> None:
        results["parent"] = store.get_or_compile(bench.variant()).data.decode()

    thread = threading.Thread(target=compile_it)
    thread.start()
    compiling.wait()
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        warm = store.find(bench.variant("warm\nkernel k\n"))
        same = store.get_or_compile(bench.variant())
        other = store.get_or_compile(bench.variant("other\nkernel k\n"))
        out = [warm is not None and warm.layer, same.data.decode(), other.data.decode(), store.stats()]
        os.write(write, json.dumps(out).encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as file:
        results["child"] = json.loads(file.read())
    os.waitpid(pid, 0)
    thread.join()
    return results


if __name__ == "__main__":
    print(json.dumps(globals()[sys.argv[1]](Path(sys.argv[2]))))  # noqa: T201 - the answer
