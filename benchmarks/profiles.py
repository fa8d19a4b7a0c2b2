"""Where the time goes: chosen functions, their own time without that of the others that are chosen."""

from __future__ import annotations

import functools
import importlib
import statistics
from collections.abc import Callable

from common import low, now
from files import Filled
from fixtures import Bench

HIT = (
    "cubinet._fs:Fs.read",
    "cubinet.store.format:_open",
    "cubinet.store.format:_decode",
    "cubinet.store.local:decode_record",
    "cubinet.store.local:glimpse",
    "cubinet.store.local:fingerprint_of",
    "cubinet.store.local:LocalLayer._record",
    "cubinet.store.local:LocalLayer.read",
    "cubinet.store.layered:Layered.attempt",
)
FIRST = (
    *HIT,
    "cubinet._fs:Fs.stats",
    "cubinet.observations:still_present",
    "cubinet.store.memo:still_present",
    "cubinet.store.memo:stamps_of",
    "cubinet.store.memo:Checker._gather",
    "cubinet.store.memo:Checker._read",
    "cubinet.store.memo:Checker._key",
    "cubinet.store.memo:Checker.holds",
    "cubinet.compilers.nvcc:find_nvcc",
    "cubinet.compilers.nvcc:find_host",
    "cubinet.compilers.nvcc:facts",
    "cubinet.compilers._toolchain:Facts.toolchain",
    "cubinet.compilers.nvcc:parse_nvcc",
    "cubinet.compilers.nvcc:NvccCompiler.normalize",
    "cubinet.store.facade:action_parts",
    "cubinet.store.facade:action_of",
    "cubinet.store.local:decode_manifest",
    "cubinet.store.local:LocalLayer.candidates",
)


class Marks:
    """Replaces functions by timed ones. A name that is not there (any more) is passed over."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self.own: dict[str, float] = {}
        self.calls: dict[str, int] = {}
        self.stack: list[float] = []
        self.undo: list[tuple[object, str, object]] = []
        for name in names:
            module, _, path = name.partition(":")
            owner, _, attribute = path.rpartition(".")
            try:
                where = importlib.import_module(module)
                where = getattr(where, owner) if owner else where
                original = vars(where)[attribute]
            except (ImportError, AttributeError, KeyError):
                continue
            plain = original.__func__ if isinstance(original, staticmethod) else original
            timed = self._timed(path, plain)
            setattr(where, attribute, staticmethod(timed) if isinstance(original, staticmethod) else timed)
            self.undo.append((where, attribute, original))

    def _timed(self, name: str, function: Callable[..., object]) -> Callable[..., object]:
        stack = self.stack

        @functools.wraps(function)
        def wrapper(*args: object, **rest: object) -> object:
            stack.append(0.0)
            start = now()
            try:
                return function(*args, **rest)
            finally:
                took = now() - start
                self.own[name] = self.own.get(name, 0.0) + took - stack.pop()
                self.calls[name] = self.calls.get(name, 0) + 1
                if stack:
                    stack[-1] += took

        return wrapper

    def close(self) -> None:
        for where, attribute, original in self.undo:
            setattr(where, attribute, original)


def parts(
    prepare: Callable[[int], object], run: Callable[[object], object], names: tuple[str, ...], rounds: int
) -> list[tuple[str, int, float, float]]:
    """(function, calls, µs of its own, share) for one run: of those near the 10th percentile."""
    plain = []
    for i in range(rounds):
        state = prepare(i)
        start = now()
        run(state)
        plain.append(now() - start)
    marks, seen = Marks(names), []
    try:
        for i in range(rounds):
            state = prepare(i)
            marks.own, marks.calls, marks.stack[:] = {}, {}, []
            start = now()
            run(state)
            took = now() - start
            seen.append((took, {**marks.own, "everything else": took - sum(marks.own.values())}, dict(marks.calls)))
    finally:
        marks.close()
    seen.sort(key=lambda each: each[0])
    quiet = seen[: max(3, rounds // 5)]
    whole = statistics.median(each[0] for each in quiet)
    rows = []
    for name in quiet[0][1]:
        own = statistics.median(each[1].get(name, 0.0) for each in quiet)
        rows.append((name, quiet[0][2].get(name, 1), own / 1e3, 100 * own / whole))
    rows.sort(key=lambda row: -row[2])
    bare = low(sorted(plain))
    return [
        *rows,
        ("all, timed so", 1, whole / 1e3, 100.0),
        ("all, not taken apart", 1, bare / 1e3, 100 * bare / whole),
    ]


def profiles(bench: Bench) -> None:
    """The verified hit and the first lookups, taken apart."""
    head = ("function (its own time)", "calls", "us", "%")
    filled, rounds = Filled(bench, 200), (60 if bench.quick else 400)
    probes = [probe[0].fingerprint for probe in filled.probes["4 KB"]]
    note = "Timing each function adds to it; the last row is the same without."
    rows = parts(lambda i: probes[i % len(probes)], filled.store.find, HIT, rounds)
    bench.report.add("Where the time goes: hit of 4 KB by fingerprint", head, rows, note)
    for kernel in bench.kernels:
        rows = parts(
            lambda _, kernel=kernel: (bench.again(), kernel.variant()), lambda s: s[0].find(s[1]), FIRST, rounds // 4
        )
        bench.report.add(f"Where the time goes: first lookup of {kernel.name}", head, rows, note)
