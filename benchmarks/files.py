"""Verified hits, misses and publishing, beside the bare file operations and other caches."""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

from blake3 import blake3
from common import Sampler, call, interleave, prepared, ratios
from fixtures import Bench, absent, build, data_of, grown, open_floor, read_floor
from peers import Bare, BareSync, Flush, usable

from cubinet import Settings, Store
from cubinet.store.format import encode_manifest, encode_record
from cubinet.store.local import LocalLayer

SIZES = {"4 KB": 4 << 10, "64 KB": 64 << 10, "1 MB": 1 << 20}
HIT_GOALS = {"4 KB": 3.0, "1 MB": 2.4}
PROBES = 100


def key_of(serial: int) -> str:
    return f"{serial * 0x9E3779B97F4A7C15 % 2**64:016x}" * 4


class Filled:
    """A store with many builds, and the probes that are looked up."""

    def __init__(self, bench: Bench, entries: int) -> None:
        folder = bench.scratch.fresh("filled")
        self.store = Store(folder, settings=Settings(durable=False))
        layer, started = self.store._local, time.perf_counter()
        for serial in range(entries):
            layer.publish(*build(bench.small.record, serial, data_of(serial, 4096)))
        self.each = (time.perf_counter() - started) / entries * 1e6
        self.probes = {}
        for name, size in SIZES.items():
            self.probes[name] = []
            for i in range(PROBES):
                serial = 10**9 + size * 1000 + i
                record, blobs = build(bench.small.record, serial, data_of(serial, size))
                layer.publish(record, blobs)
                ((digest, data),) = blobs.items()
                blob, file = layer._path("blobs", digest.hex), layer._path("records", record.fingerprint.hex, ".json")
                self.probes[name].append((record, blob, file, key_of(serial), data))

    def samplers(self, name: str) -> dict[str, Sampler]:
        store, layer, probes = self.store, self.store._local, self.probes[name]

        def both(i: int) -> None:
            _, blob, record, _, _ = probes[i * 7 % PROBES]
            read_floor(record)
            read_floor(blob)

        def proved(i: int) -> None:
            _, blob, record, _, _ = probes[i * 7 % PROBES]
            blake3(read_floor(record)).digest()
            blake3(read_floor(blob)).digest()

        def through_layer(i: int) -> None:
            record = layer.find(probes[i * 7 % PROBES][0].fingerprint)
            layer.read(record.blob("cubin"))

        return {
            "floor: open, fstat, read of the blob": call(lambda i: read_floor(probes[i * 7 % PROBES][1])),
            "the same of record and blob": call(both),
            "the same and blake3 of each": call(proved),
            "LocalLayer.find and read": call(through_layer),
            "Store.find(fingerprint)": call(lambda i: store.find(probes[i * 7 % PROBES][0].fingerprint)),
        }


def hits(bench: Bench) -> None:
    """Hits by fingerprint and misses, by size of the artifact and of the store."""
    peers = {}
    for entries in (1000,) if bench.quick else (1000, 100_000):
        filled = Filled(bench, entries)
        print(f"filled {entries}: {filled.each:.0f} us each", file=sys.stderr, flush=True)
        if entries == 1000:  # how peers behave with more is in the research notes; filling them takes minutes
            for name, kind in usable(bench.report, bench.scratch).items():
                peers[name] = kind(bench.scratch.fresh("peer"))
                for probes in filled.probes.values():
                    for *_, key, data in probes:
                        peers[name].put(key, data)
        for name in SIZES:
            samplers, probes = filled.samplers(name), filled.probes[name]
            for peer, cache in peers.items():
                samplers[peer] = call(lambda i, get=cache.get, probes=probes: get(probes[i * 7 % PROBES][3]))
            runs = interleave(samplers, rounds=6 if bench.quick else 40, per=20 if name != "1 MB" else 10, warm=PROBES)
            note = "Other caches hold the probes only, and only CuPy's verifies what it reads." if peers else ""
            bench.report.timing(f"Hit of {name}, {entries:,} entries", runs, note=note)
            _hit_goals(bench, runs, name, entries)
        _misses(bench, filled, peers, entries)
        for cache in peers.values():
            cache.close()
        peers = {}


def _hit_goals(bench: Bench, runs: dict[str, list[float]], name: str, entries: int) -> None:
    floor, find = next(iter(runs.values())), runs["Store.find(fingerprint)"]
    if name in HIT_GOALS:
        what = f"verified hit, {name}, {entries:,} entries"
        bench.report.goal(what, "<=", HIT_GOALS[name], "x open+read", ratios(find, floor))
    for peer in ("cuda.core FileStream", "Triton FileCacheManager") if name == "4 KB" else ():
        if peer in runs:
            bench.report.goal(f"verified hit, 4 KB, ahead of {peer}", "<=", 1, "x it", ratios(find, runs[peer]))


def _misses(bench: Bench, filled: Filled, peers: dict[str, object], entries: int) -> None:
    store, folder = filled.store, filled.store.folder
    nobody = [absent(i) for i in range(PROBES)]
    paths = [f"{folder}/records/{f.hex[:2]}/{f.hex}.json" for f in nobody]
    samplers = {
        "floor: an open that fails": call(lambda i: open_floor(paths[i * 7 % PROBES])),
        "LocalLayer.find": call(lambda i: store._local.find(nobody[i * 7 % PROBES])),
        "Store.find(fingerprint)": call(lambda i: store.find(nobody[i * 7 % PROBES])),
    }
    for name, cache in peers.items():
        samplers[name] = call(lambda i, get=cache.get: get(nobody[i * 7 % PROBES].hex))
    runs = interleave(samplers, rounds=8 if bench.quick else 40)
    bench.report.timing(f"Miss, {entries:,} entries", runs)
    floor, _, find, *_ = runs.values()
    bench.report.goal(f"miss, {entries:,} entries", "<=", 1.2, "x a failed open", ratios(find, floor))


class Three:
    """The files of a publish (blob, record, manifest), written bare: what its promises cost on top."""

    def __init__(self, folder: Path, kind: type[Bare]) -> None:
        self.blobs, self.records, self.manifests = (kind(folder / name) for name in ("b", "r", "m"))

    def put(self, made: tuple[str, str, bytes, bytes, bytes]) -> None:
        key, name, data, record, manifest = made
        self.blobs.put(key, data)
        self.records.put(name, record)
        self.manifests.put(name, manifest)


def files_of(bench: Bench, serial: int, size: int) -> tuple[str, str, bytes, bytes, bytes]:
    data = data_of(serial, size)
    record, blobs = build(bench.small.record, serial, data)
    manifest = encode_manifest(record.action, (record.observations,))
    return next(iter(blobs)).hex, record.fingerprint.hex, data, encode_record(record), manifest


def puts(bench: Bench) -> None:
    """Publishing one after the other."""
    template = bench.small.record
    for name, size in SIZES.items():
        bare, three = Bare(bench.scratch.fresh("bare")), Three(bench.scratch.fresh("bare"), Bare)
        layer = grown(bench.scratch.fresh("put"))
        base = iter(range(size * 10**6, size * 10**6 + 10**6))

        def fresh(_: int, size: int = size, base: object = base) -> tuple[str, bytes]:
            serial = next(base)
            return key_of(serial), data_of(serial, size)

        def fresh_build(_: int, size: int = size, base: object = base) -> tuple[object, object]:
            serial = next(base)
            return build(template, serial, data_of(serial, size))

        samplers = {
            "floor: one file, temporary name, rename": prepared(fresh, lambda s, bare=bare: bare.put(*s)),
            "the files of a publish, bare": prepared(
                lambda _, size=size, base=base: files_of(bench, next(base), size), three.put
            ),
            "LocalLayer.publish": prepared(fresh_build, lambda s, layer=layer: layer.publish(*s)),
        }
        rounds, per = 5 if bench.quick else 20, 10 if size < 1 << 20 else 5
        runs = interleave(samplers, rounds, per)
        bench.report.timing(f"Publish of {name}, not flushed", runs, note="A publish is blob, record and manifest.")
        if size != 64 << 10:
            _peers_put(bench, name, fresh, rounds, per)


def _peers_put(bench: Bench, name: str, fresh: Callable[[int], tuple[str, bytes]], rounds: int, per: int) -> None:
    """Other caches, after ours: some delete files as they go, which makes ext4 slow to create others."""
    bare = Bare(bench.scratch.fresh("bare"))
    samplers = {"floor: one file, temporary name, rename": prepared(fresh, lambda s: bare.put(*s))}
    for peer, kind in usable(bench.report, bench.scratch).items():
        cache = kind(bench.scratch.fresh("peer"))
        samplers[peer] = prepared(fresh, lambda s, cache=cache: cache.put(*s))
    runs = interleave(samplers, rounds, per)
    note = "cuda.core flushes each file to disk, the others do not."
    bench.report.timing(f"Put of {name} by other caches", runs, note=note)


def durable(bench: Bench) -> None:
    """Publishing with every file flushed."""
    size, base = 4 << 10, iter(range(10**12, 10**13))
    flush, bare = Flush(bench.scratch.fresh("flush")), BareSync(bench.scratch.fresh("sync"))
    three = Three(bench.scratch.fresh("bare"), BareSync)
    layer = grown(bench.scratch.fresh("durable"))
    layer.durable = True

    def fresh(_: int) -> tuple[str, bytes]:
        serial = next(base)
        return key_of(serial), data_of(serial, size)

    def fresh_build(_: int) -> tuple[object, object]:
        serial = next(base)
        return build(bench.small.record, serial, data_of(serial, size))

    runs = interleave(
        {
            "floor: overwrite and fdatasync": prepared(fresh, lambda s: flush.put(*s)),
            "one file, fsync, rename": prepared(fresh, lambda s: bare.put(*s)),
            "the files of a publish, each with fsync": prepared(lambda _: files_of(bench, next(base), size), three.put),
            "LocalLayer.publish, durable": prepared(fresh_build, lambda s: layer.publish(*s)),
        },
        rounds=4 if bench.quick else 15,
        per=10,
    )
    flush.close()
    bench.report.timing("Publish of 4 KB, flushed to disk", runs)


def bulk(bench: Bench) -> None:
    """Many in one go, as a rate: medians over rounds."""
    number, rates = (300 if bench.quick else 2000), {}
    for turn in range(3):
        one, three = Bare(bench.scratch.fresh("bare")), Three(bench.scratch.fresh("bare"), Bare)
        layer, empty = grown(bench.scratch.fresh("bulk")), LocalLayer(str(bench.scratch.fresh("bulk")), durable=False)
        serials = range(10**14 + turn * 10**6, 10**14 + turn * 10**6 + number)
        made = [files_of(bench, serial, 4096) for serial in serials]
        builds = [build(bench.small.record, serial, data_of(serial, 4096)) for serial in serials]
        work: dict[str, Callable[[int], object]] = {
            "floor: one file each": lambda i, one=one, made=made: one.put(made[i][0], made[i][2]),
            "three files each, bare": lambda i, three=three, made=made: three.put(made[i]),
            "LocalLayer.publish": lambda i, layer=layer, builds=builds: layer.publish(*builds[i]),
            "LocalLayer.publish, into an empty store": lambda i, empty=empty, builds=builds: empty.publish(*builds[i]),
        }
        for name, step in work.items():
            started = time.perf_counter()
            for i in range(number):
                step(i)
            rates.setdefault(name, []).append(number / (time.perf_counter() - started))
    floor = statistics.median(rates["floor: one file each"])
    rows = [(name, max(each), statistics.median(each), statistics.median(each) / floor) for name, each in rates.items()]
    head = ("what", "best a second", "median a second", "x floor")
    bench.report.add(f"{number:,} publishes of 4 KB in a row", head, rows)


PARTS: dict[str, Callable[[Bench], None]] = {"hit": hits, "put": puts, "durable": durable, "bulk": bulk}


def run(bench: Bench, wanted: Callable[[str], bool]) -> None:
    for name, part in PARTS.items():
        if wanted(name):
            started = time.monotonic()
            part(bench)
            print(f"{name}: {time.monotonic() - started:.0f} s", file=sys.stderr, flush=True)
