"""Several processes that publish at the same time."""

from __future__ import annotations

import multiprocessing
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path

from common import now
from files import Three, files_of
from fixtures import Bench, build, data_of, grown
from peers import Bare, BareSync

from cubinet.store.local import LocalLayer

PROCESSES, SIZE = 8, 64 << 10

Step = Callable[[int], object]
Make = Callable[[Path, range], Step]
"""In a writer: prepare everything for these serials, and hand back what publishes one of them."""


def one_file(bench: Bench, kind: type[Bare]) -> Make:
    def make(folder: Path, serials: range) -> Step:
        store, made = kind(folder), {i: files_of(bench, i, SIZE) for i in serials}
        return lambda i: store.put(made[i][0], made[i][2])

    return make


def three_files(bench: Bench, kind: type[Bare]) -> Make:
    def make(folder: Path, serials: range) -> Step:
        store, made = Three(folder, kind), {i: files_of(bench, i, SIZE) for i in serials}
        return lambda i: store.put(made[i])

    return make


def published(bench: Bench, *, durable: bool) -> Make:
    def make(folder: Path, serials: range) -> Step:
        layer = grown(folder)
        layer.durable = durable
        made = {i: build(bench.small.record, i, data_of(i, SIZE)) for i in serials}
        return lambda i: layer.publish(*made[i])

    return make


def together(make: Make, folder: Path, number: int) -> tuple[float, int]:
    """Publishes a second of all processes, and how many failed."""
    context = multiprocessing.get_context("fork")
    gate, out, base = context.Barrier(PROCESSES), context.SimpleQueue(), now()

    def write(serials: range) -> None:
        step, errors = make(folder, serials), 0
        gate.wait()
        started = time.monotonic()
        for i in serials:
            try:
                step(i)
            except Exception:  # noqa: BLE001 - whatever it is, it is counted
                errors += 1
        out.put((started, time.monotonic(), errors))

    ranges = [range(base + p * number, base + (p + 1) * number) for p in range(PROCESSES)]
    jobs = [context.Process(target=write, args=(serials,)) for serials in ranges]
    for job in jobs:
        job.start()
    answers = [out.get() for _ in jobs]
    for job in jobs:
        job.join()
    first, last = min(a[0] for a in answers), max(a[1] for a in answers)
    return PROCESSES * number / (last - first), sum(a[2] for a in answers)


def writers(bench: Bench) -> None:
    """8 processes, 64 KB each time, flushed and not."""
    number, rates, errors, missing = (40 if bench.quick else 200), {}, 0, 0
    plain = {
        "one file each": one_file(bench, Bare),
        "three files each": three_files(bench, Bare),
        "LocalLayer.publish": published(bench, durable=False),
    }
    flushed = {
        "one file each, fsync": one_file(bench, BareSync),
        "three files each, fsync": three_files(bench, BareSync),
        "LocalLayer.publish, durable": published(bench, durable=True),
    }
    for _ in range(2 if bench.quick else 5):
        for name, make in (plain | flushed).items():
            folder = bench.scratch.fresh("writers")
            rate, failed = together(make, folder, number)
            rates.setdefault(name, []).append(rate)
            if "publish" in name:
                errors += failed
                missing += PROCESSES * number - whole(folder)
    found = {name: (max(each), statistics.median(each)) for name, each in rates.items()}
    rows = []
    for one, three, publish in (list(plain), list(flushed)):
        rows += [
            (name, *found[name], *_over(found[name], found[one]), *_over(found[name], found[three]))
            for name in (one, three, publish)
        ]
        bench.report.goal(f"8 processes, {publish}", ">=", 0.5, "x one bare file", _over(found[publish], found[one]))
        same = _over(found[publish], found[three])
        bench.report.goal(f"8 processes, {publish}", ">=", 0.5, "x the same three files bare", same)
    bench.report.goal("8 processes: errors; builds not found after", "<=", 0, "", (errors, missing))
    note = f"{number} a process, 64 KB each; best and median of the rounds, and their ratios to the bare writes."
    head = ("what", "best a second", "median", "x one file (best)", "(median)", "x three files (best)", "(median)")
    bench.report.add(f"{PROCESSES} processes publish at once on {os.cpu_count()} cores", head, rows, note)


def _over(one: tuple[float, float], other: tuple[float, float]) -> tuple[float, float]:
    return one[0] / other[0], one[1] / other[1]


def whole(folder: Path) -> int:
    """How many builds in a store are found whole."""
    layer, count = LocalLayer(str(folder)), 0
    for fingerprint in layer.fingerprints():
        record = layer.find(fingerprint)
        count += record is not None and layer.read(record.blob("cubin")) is not None
    return count
