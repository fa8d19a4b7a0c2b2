"""Lookups of variants: repeated, first, further, and as a process of their own."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from blake3 import blake3
from common import call, interleave, low, prepared, ratios, spawn, tight
from fixtures import Bench, Kernel, sibling

from cubinet import Store, Variant
from cubinet.fingerprint import action_of, action_parts
from cubinet.observations import Contents
from cubinet.store.memo import Checker


def repeat(bench: Bench) -> None:
    """The same variant again in one process."""
    kernel, store = bench.large or bench.small, bench.store
    store = Store(store.folder, settings=store.settings)
    store._checker.window = 3600.0  # the window is one of the two things that end a repeat; not measured here
    store.refresh()
    held = kernel.variant()
    store.find(held)
    by_name = {f"{i:064x}": held for i in range(1000)}
    by_variant = {kernel.variant(signature={"i": str(i)}): i for i in range(1000)}
    runs = interleave(
        {
            "floor: dict.get of a string": tight("get(key)", get=by_name.get, key=f"{7:064x}"),
            "dict.get of a held variant": tight("get(key)", get=by_variant.get, key=next(iter(by_variant))),
            "Store.find, same object": tight("find(held)", find=store.find, held=held),
            "Store.find, equal object made anew": prepared(lambda _: kernel.variant(), store.find),
            "making that object (reads the file)": call(lambda _: kernel.variant()),
        },
        rounds=8 if bench.quick else 40,
    )
    note = f"{kernel.name}; the checks of the first lookup are not over, so nothing is looked at again."
    bench.report.timing("Repeated lookup in a process", runs, note=note)
    floor, same, equal = (list(runs.values())[i] for i in (0, 2, 3))
    bench.report.goal("repeat lookup, same variant object", "<=", 3, "x dict.get", ratios(same, floor))
    micro = (low(equal) / 1e3, statistics.median(equal) / 1e3)
    bench.report.goal("repeat lookup, equal variant", "<=", 5, "us", micro)


def first(bench: Bench) -> None:
    """A new store in a warm process: what the lookup itself takes, and its check of headers."""
    for kernel, limit in zip(bench.kernels, (0.3, 2.0), strict=False):
        files = kernel.files(bench.store)
        request = bench.store.normalize(kernel.variant())
        observations = kernel.record.observations
        folder, fs = f"{bench.store.folder}/memo", bench.store._fs

        def checker(_: int, folder: str = folder, fs: object = fs) -> Checker:
            return Checker(folder, Contents(fs), fs=fs, refresh=1.0)

        def check(one: Checker, observations: object = observations, request: object = request) -> None:
            if not one.holds(observations, request.places, lambda: None):
                raise SystemExit("the memo of the set-up does not hold; a folder changed during the run")

        runs = interleave(
            {
                "floor: os.stat of the files read": call(lambda _, files=files: stat_all(files)),
                "check of all observations": prepared(checker, check),
                "Store.find": prepared(lambda _, k=kernel: (bench.again(), k.variant()), lambda s: s[0].find(s[1])),
                "Store(), Variant.from_file, Store.find": call(lambda _, k=kernel: bench.again().find(k.variant())),
            },
            rounds=6 if bench.quick else 30,
            per=5,
        )
        bench.report.timing(f"First lookup in a new store: {kernel.name}, {len(files)} files read", runs)
        floor, part, find, _ = runs.values()
        what = f"{kernel.name} ({len(files)} files)"
        milli = (low(find) / 1e6, statistics.median(find) / 1e6)
        bench.report.goal(f"first lookup, {what}", "<=", limit, "ms", milli)
        bench.report.goal(f"header check, {what}", "<=", 1.3, "x os.stat", ratios(part, floor))
    if bench.large and bench.near:
        _further(bench, bench.large, bench.near)
    _stale(bench)  # last: it changes a folder that is watched


def stat_all(files: list[str]) -> None:
    stat = os.stat
    for path in files:
        stat(path)


def _stale(bench: Bench) -> None:
    """First lookups that the memo of earlier processes does not answer."""
    samplers = {}
    for kernel in bench.kernels:

        def without(_: int, kernel: Kernel = kernel) -> tuple[Store, Variant]:
            store = bench.again()
            store._checker.folder = None
            return store, kernel.variant()

        samplers[f"{kernel.name}: no memo, every file is hashed"] = prepared(without, lambda s: _fresh(*s))
    if bench.near:
        near, own = bench.near, Path(bench.near.roots[0][1])

        def touched(i: int) -> tuple[Store, Variant]:
            (own / f"new{i}").touch()
            return bench.again(), near.variant()

        samplers[f"{near.name}: a file was added to an include folder"] = prepared(touched, lambda s: _fresh(*s))
    runs = interleave(samplers, rounds=3 if bench.quick else 8, per=2, warm=1)
    bench.report.timing("First lookup that the memo does not answer", runs)


def _further(bench: Bench, large: Kernel, near: Kernel) -> None:
    """More variants after the first one, while its looks at files still count."""
    others = [sibling(bench.store, large, signature={"tile": str(i)}) for i in range(8)]

    def opened(_: int) -> Store:
        store = bench.again()
        store.find(large.variant())
        return store

    runs = interleave(
        {
            "another variant, same observations": prepared(lambda i: (opened(i), others[i % 8]), lambda s: _fresh(*s)),
            "another kernel over the same headers": prepared(
                lambda i: (opened(i), near.variant()), lambda s: s[0].find(s[1])
            ),
        },
        rounds=5 if bench.quick else 20,
        per=5,
    )
    files = len(set(near.files(bench.store)) - set(large.files(bench.store)))
    note = f"After one lookup of {large.name}. The other kernel reads {files} files that the first did not."
    bench.report.timing("Further variants over the same headers", runs, note=note)
    for name, values in runs.items():
        milli = (low(values) / 1e6, statistics.median(values) / 1e6)
        bench.report.goal(name, "<=", 0.3, "ms", milli)


def _fresh(store: Store, variant: Variant) -> None:
    if store.find(variant) is None:
        raise SystemExit("a sibling variant is not found")


CHILD = """
import json, sys, time
now = time.perf_counter_ns
folder, source, arch, options, roots = json.loads(sys.argv[1])
a = now()
from cubinet import Root, Settings, Store, Variant
Root, Settings, Store, Variant
b = now()
import cubinet.compilers.nvcc
c = now()
store = Store(folder, settings=Settings(durable=False))
variant = Variant.from_file(source, arch, options=options, roots=[Root(*r) for r in roots])
d = now()
found = store.find(variant)
e = now()
assert found is not None
print(json.dumps([b - a, c - b, d - c, e - d]))
"""


def processes(bench: Bench) -> None:
    """The first lookup of a process, after import."""
    rows = []
    names = ("import of Store", "import of the nvcc adapter", "Store(), Variant.from_file", "Store.find")
    for kernel, limit in zip(bench.kernels, (0.3, 2.0), strict=False):
        told = json.dumps([bench.store.folder, str(kernel.source), "sm_90a", kernel.options, kernel.roots])
        argv = [sys.executable, "-c", CHILD, told]
        samples = []
        for _ in range(6 if bench.quick else 40):
            done = subprocess.run(argv, capture_output=True, text=True, check=True)
            samples.append(json.loads(done.stdout))
        parts = [sorted(column) for column in zip(*samples[1:], strict=True)]
        for name, values in zip(names, parts, strict=True):
            rows.append((f"{kernel.name}: {name}", low(values) / 1e6, statistics.median(values) / 1e6))
        milli = (low(parts[-1]) / 1e6, statistics.median(parts[-1]) / 1e6)
        bench.report.goal(f"first lookup of a process, {kernel.name}", "<=", limit, "ms", milli)
    bench.report.add("First lookup of a new process, inside it", ("what", "p10 ms", "median ms"), rows)


def commands(bench: Bench) -> None:
    """Whole processes: a hit from the command line against the compile it saves."""
    environ = os.environ | {"CUBINET_DIR": bench.store.folder}
    python = [sys.executable, "-c", "pass"]
    output = bench.scratch.path / "direct.cubin"
    for kernel, limit in zip(bench.kernels, (0.06, 0.02), strict=False):
        argv, compile_ = kernel.command(), kernel.nvcc(bench.store, output)
        hits = interleave(
            {
                "python -c pass": lambda _: spawn(python),
                "cubinet compile --json, a hit": lambda _, argv=argv: spawn(argv, environ),
            },
            rounds=5 if bench.quick else 25,
            per=1,
            warm=1,
        )
        rounds = 1 if bench.quick and kernel is not bench.small else 3
        hits["nvcc itself, the real compile"] = sorted(spawn(compile_) for _ in range(rounds))
        bench.report.timing(f"Whole process: {kernel.name}", hits, "nvcc itself, the real compile")
        _, hit, real = hits.values()
        bench.report.goal(f"hit as a process, {kernel.name}", "<=", limit, "x its compile", ratios(hit, real))


def imports(bench: Bench) -> None:
    """What the imports cost in a new process."""
    python = sys.executable
    argvs = {
        "python -c pass": [python, "-c", "pass"],
        "import cubinet": [python, "-c", "import cubinet"],
        "from cubinet import Variant": [python, "-c", "from cubinet import Variant"],
        "from cubinet import Store": [python, "-c", "from cubinet import Store"],
        "and the nvcc adapter": [python, "-c", "from cubinet import Store; import cubinet.compilers.nvcc"],
        "python -m cubinet --version": [python, "-m", "cubinet", "--version"],
    }
    samplers = {name: lambda _, argv=argv: spawn(argv) for name, argv in argvs.items()}
    runs = interleave(samplers, rounds=6 if bench.quick else 30, per=1, warm=1)
    bench.report.timing("Process start", runs)
    bare, package = runs["python -c pass"], runs["import cubinet"]
    extra = ((low(package) - low(bare)) / 1e6, (statistics.median(package) - statistics.median(bare)) / 1e6)
    bench.report.goal("import cubinet, over bare Python", "<=", 15, "ms", extra)


def keys(bench: Bench) -> None:
    """The action of a 50 KB source."""
    source = "// a kernel\n" + "__device__ float f(float x) { return x * 2.0f; }\n" * 1024
    variant = Variant(source[: 50 << 10], "sm_90a", options=("-O3", "-std=c++17", "-DTILE=128"))
    data, request = variant.source_bytes(), bench.store.normalize(variant)
    runs = interleave(
        {
            "floor: blake3 of the source": call(lambda _: blake3(data).digest()),
            "action_of(action_parts(request))": call(lambda _: action_of(action_parts(request))),
            "Store.normalize": call(lambda _: bench.store.normalize(variant)),
            "Store.action": call(lambda _: bench.store.action(variant)),
        },
        rounds=10 if bench.quick else 50,
    )
    bench.report.timing("Action of a 50 KB source", runs)
    floor, action, _, _ = runs.values()
    bench.report.goal("action of a 50 KB source, normalized", "<=", 1.5, "x blake3", ratios(action, floor))


PARTS: dict[str, Callable[[Bench], None]] = {
    "repeat": repeat,
    "first": first,
    "process": processes,
    "command": commands,
    "import": imports,
    "key": keys,
}


def run(bench: Bench, wanted: Callable[[str], bool]) -> None:
    for name, part in PARTS.items():
        if wanted(name):
            started = time.monotonic()
            part(bench)
            print(f"{name}: {time.monotonic() - started:.0f} s", file=sys.stderr, flush=True)
