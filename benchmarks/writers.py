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
from fixtures import Bench, build, data_of
from peers import Bare, BareSync

from cubinet.store.local import LocalLayer

PROCESSES, SIZE = 8, 64 << 10


def one_file(bench: Bench, kind: type[Bare]) -> Callable[[Path, int], Callable[[int], object]]:
    def make(folder: Path, serial: int) -> Callable[[int], object]:
        store, made = kind(folder), {}
        for i in range(serial, serial + bench_number(bench)):
            made[i] = files_of(bench, i, SIZE)
        return lambda i: store.put(made[i][0], made[i][2])

    return make


def three_files(bench: Bench, kind: type[Bare]) -> Callable[[Path, int], Callable[[int], object]]:
    def make(folder: Path, serial: int) -> Callable[[int], object]:
        store = Three.__new__(Three)
        store.blobs, store.records, store.manifests = (kind(folder / name) for name in ("b", "r", "m"))
        made = {i: files_of(bench, i, SIZE) for i in range(serial, serial + bench_number(bench))}
        return lambda i: store.put(made[i])

    return make


def published(bench: Bench, *, durable: bool) -> Callable[[Path, int], Callable[[int], object]]:
    def make(folder: Path, serial: int) -> Callable[[int], object]:
        layer = LocalLayer(str(folder), durable=durable)
        made = {i: build(bench.small.record, i, data_of(i, SIZE)) for i in range(serial, serial + bench_number(bench))}
        return lambda i: layer.publish(*made[i])

    return make


def bench_number(bench: Bench) -> int:
    return 40 if bench.quick else 200


def _write(make: Callable[[Path, int], Callable[[int], object]], folder: Path, serial: int, number: int, gate: object, out: object) -> None:
    step, errors = make(folder, serial), 0
    gate.wait()
    started = time.monotonic()
    for i in range(serial, serial + number):
        try:
            step(i)
        except Exception:  # noqa: BLE001 - whatever it is, it is counted
            errors += 1
    out.put((started, time.monotonic(), errors))


def together(make: Callable[[Path, int], Callable[[int], object]], folder: Path, number: int) -> tuple[float, int]:
    """Publishes a second of all processes, and how many failed."""
    context = multiprocessing.get_context("fork")
    gate, out = context.Barrier(PROCESSES), context.SimpleQueue()
    base = now()
    jobs = [
        context.Process(target=_write, args=(make, folder, base + p * 10**6, number, gate, out)) for p in range(PROCESSES)
    ]
    for job in jobs:
        job.start()
    answers = [out.get() for _ in jobs]
    for job in jobs:
        job.join()
    first, last = min(a[0] for a in answers), max(a[1] for a in answers)
    return PROCESSES * number / (last - first), sum(a[2] for a in answers)


def writers(bench: Bench) -> None:
    """8 processes, 64 KB each time, flushed and not."""
    number, rates, errors, missing = bench_number(bench), {}, 0, 0
    kinds = {
        "floor: one file each": one_file(bench, Bare),
        "three files each, bare": three_files(bench, Bare),
        "LocalLayer.publish": published(bench, durable=False),
        "one file each, fsync": one_file(bench, BareSync),
        "three files each, fsync": three_files(bench, BareSync),
        "LocalLayer.publish, durable": published(bench, durable=True),
    }
    for _ in range(2 if bench.quick else 5):
        for name, make in kinds.items():
            folder = bench.scratch.fresh("writers")
            rate, failed = together(make, folder, number)
            rates.setdefault(name, []).append(rate)
            if "publish" in name:
                errors += failed
                missing += PROCESSES * number - _whole(folder)
    bases = {"floor: one file each": list(kinds)[:3], "one file each, fsync": list(kinds)[3:]}
    rows = []
    for base, names in bases.items():
        for name in names:
            ratio = max(rates[name]) / max(rates[base]), statistics.median(rates[name]) / statistics.median(rates[base])
            rows.append((name, max(rates[name]), statistics.median(rates[name]), *ratio))
            if "publish" in name:
                bench.report.goal(f"8 processes, {name}", ">=", 0.5, "x one bare file", ratio)
    three = {name: (max(each), statistics.median(each)) for name, each in rates.items()}
    for name, base in (("LocalLayer.publish", "three files each, bare"), ("LocalLayer.publish, durable", "three files each, fsync")):
        ratio = three[name][0] / three[base][0], three[name][1] / three[base][1]
        bench.report.goal(f"8 processes, {name}, same three files", ">=", 0.5, "x them bare", ratio)
    bench.report.goal("8 processes: errors, and builds not found after", "<=", 0, "", (errors, missing))
    note = f"{number} a process, 64 KB each; the first ratio is of the best round. Errors: {errors}, builds missing after: {missing}."
    head = ("what", "best a second", "median a second", "x floor (best)", "x floor (median)")
    bench.report.add(f"{PROCESSES} processes publish at once on {os.cpu_count()} cores", head, rows, note)


def _whole(folder: Path) -> int:
    """How many builds in a store are found whole."""
    layer, count = LocalLayer(str(folder)), 0
    for fingerprint in layer.fingerprints():
        record = layer.find(fingerprint)
        count += record is not None and layer.read(record.blob("cubin")) is not None
    return count
