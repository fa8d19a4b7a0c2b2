"""Timing, statistics and tables for the benchmarks.

Method: what is compared runs in one process, in short alternating batches, a new random order each
round, so a slow spell of a shared machine hits all of it. What counts is the ratio to a floor of the
same run: once of the 10th percentiles, which hardly move when other programs want the cores, and once
of the medians. Absolute times are those of one machine in one hour.
"""

from __future__ import annotations

import argparse
import gc
import importlib.metadata
import json
import os
import platform
import random
import shutil
import statistics
import sys
import tempfile
import time
import timeit
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cubinet.observations import Mounts

now = time.perf_counter_ns
Sampler = Callable[[int], float]
"""Runs something once and returns the nanoseconds it took; gets a number that counts up."""

PACKAGES = ("cubinet", "blake3", "msgspec", "click", "cuda-core", "cupy-cuda13x", "triton", "diskcache")


def call(function: Callable[[int], object]) -> Sampler:
    def sample(i: int) -> float:
        start = now()
        function(i)
        return now() - start

    return sample


def prepared(prepare: Callable[[int], Any], function: Callable[[Any], object]) -> Sampler:
    """Time `function(prepare(i))` without `prepare`."""

    def sample(i: int) -> float:
        state = prepare(i)
        start = now()
        function(state)
        return now() - start

    return sample


def tight(statement: str, repeat: int = 1000, **names: object) -> Sampler:
    """Time one statement in a loop; for what takes less than the clock."""
    timer = timeit.Timer(statement, globals=names)
    return lambda _: timer.timeit(repeat) * 1e9 / repeat


def interleave(samplers: Mapping[str, Sampler], rounds: int, per: int = 20, warm: int = 5) -> dict[str, list[float]]:
    """Name → sorted nanoseconds."""
    order, names = random.Random(0), list(samplers)
    serial, out = dict.fromkeys(names, 0), {name: [] for name in names}
    for name in names:
        for _ in range(min(per, warm)):
            samplers[name](serial[name])
            serial[name] += 1
    gc.collect()
    gc.disable()
    try:
        for _ in range(rounds):
            order.shuffle(names)
            for name in names:
                sampler, first = samplers[name], serial[name]
                out[name] += [sampler(i) for i in range(first, first + per)]
                serial[name] += per
            gc.collect()
    finally:
        gc.enable()
    return {name: sorted(values) for name, values in out.items()}


def low(values: Sequence[float]) -> float:
    """The 10th percentile of sorted values."""
    return values[int(len(values) * 0.1)]


def ratios(values: Sequence[float], floor: Sequence[float]) -> tuple[float, float]:
    """Of the 10th percentiles and of the medians."""
    return low(values) / low(floor), statistics.median(values) / statistics.median(floor)


def show(value: object) -> str:
    if not isinstance(value, float):
        return str(value)
    size = abs(value)
    digits = 0 if size >= 1000 else 1 if size >= 100 else 2 if size >= 1 else 3
    return f"{value:,.{digits}f}"


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    lines = ["| " + " | ".join(head) + " |", "|---" + "|--:" * (len(head) - 1) + "|"]
    lines += ["| " + " | ".join(map(show, row)) + " |" for row in rows]
    return "\n".join(lines)


@dataclass
class Report:
    """Tables in the order they were made, and the goals they answer."""

    tables: dict[str, dict[str, Any]] = field(default_factory=dict)
    goals: list[tuple[str, str, float, float, str]] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)

    def add(self, title: str, head: Sequence[str], rows: Sequence[Sequence[object]], note: str = "") -> None:
        self.tables[title] = {"head": list(head), "rows": [list(row) for row in rows], "note": note}
        print(self._one(title), flush=True)

    def timing(self, title: str, runs: Mapping[str, Sequence[float]], floor: str = "", note: str = "") -> None:
        """One row for each; ratios to the first row unless another is named."""
        base = runs[floor or next(iter(runs))]
        rows = [
            (name, low(values) / 1e3, statistics.median(values) / 1e3, *ratios(values, base))
            for name, values in runs.items()
        ]
        self.add(title, ("what", "p10 us", "median us", "x floor (p10)", "x floor (median)"), rows, note)

    def goal(self, what: str, sign: str, limit: float, unit: str, reached: tuple[float, float]) -> None:
        """`reached` is by 10th percentile and by median; the first decides."""
        met = reached[0] <= limit if sign == "<=" else reached[0] >= limit
        self.goals.append((what, f"{sign} {limit:g} {unit}", *reached, "yes" if met else "NO"))

    def leave_out(self, what: str, why: object) -> None:
        self.left_out.append(f"{what}: {why}")
        print(f"left out {what}: {why}", file=sys.stderr, flush=True)

    def _one(self, title: str) -> str:
        made = self.tables[title]
        note = f"{made['note']}\n\n" if made["note"] else ""
        return f"## {title}\n\n{note}{table(made['head'], made['rows'])}\n"

    def finish(self, title: str, environment: Mapping[str, str], folder: Path | None, name: str) -> None:
        """Print goals and environment; with a folder, keep everything there as Markdown and JSON."""
        goals = table(("what", "goal", "reached (p10)", "reached (median)", "met"), self.goals)
        facts = "\n".join(f"- {key}: {value}" for key, value in environment.items())
        absent = "".join(f"- left out: {text}\n" for text in self.left_out)
        print(f"## Goals\n\n{goals}\n\n{facts}\n{absent}")
        if folder is None:
            return
        folder.mkdir(parents=True, exist_ok=True)
        body = "\n".join(self._one(each) for each in self.tables)
        text = f"# {title}\n\n{facts}\n{absent}\n## Goals\n\n{goals}\n\n{body}"
        (folder / f"{name}.md").write_text(text)
        content = {"environment": environment, "left_out": self.left_out, "goals": self.goals, "tables": self.tables}
        (folder / f"{name}.json").write_text(json.dumps(content, indent=1) + "\n")
        print(f"kept as {name}.md and {name}.json in {folder.name}/", file=sys.stderr)


def arguments(description: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--quick", action="store_true", help="about a minute: fewer samples, 1,000 entries only")
    parser.add_argument("--only", default="", help="comma list: only the parts whose name begins so")
    parser.add_argument("--save", default="", metavar="NAME", help="keep the tables as results/<date>-NAME.{md,json}")
    parser.add_argument("--work", default=None, help="folder for scratch files; on the file system to be measured")
    return parser.parse_args()


class Scratch:
    """A folder that is gone at the end; whole trees are renamed first, so that deleting disturbs nothing."""

    def __init__(self, parent: str | None) -> None:
        self.path = Path(tempfile.mkdtemp(prefix="cubinet-bench-", dir=parent))

    def fresh(self, name: str) -> Path:
        path = self.path / f"{name}-{now()}"
        path.mkdir()
        return path

    def close(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)


def spawn(argv: Sequence[str], environ: Mapping[str, str] | None = None) -> float:
    """Run a program to its end with its output thrown away; nanoseconds."""
    null = [(os.POSIX_SPAWN_OPEN, fd, os.devnull, os.O_RDWR, 0) for fd in (0, 1, 2)]
    start = now()
    pid = os.posix_spawnp(argv[0], list(argv), environ or os.environ, file_actions=null)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    took = now() - start
    if status:
        raise SystemExit(f"{' '.join(argv)} ended with status {status}")
    return took


def pressure() -> tuple[int, int]:
    """(ns now, µs in which some program waited for a core since boot)."""
    try:
        line = Path("/proc/pressure/cpu").read_text().splitlines()[0]
    except OSError:
        return now(), 0
    return now(), int(line.rpartition("=")[2])


def environment(work: Path, before: tuple[int, int]) -> dict[str, str]:
    """What a reader needs to judge the figures; no host names, no paths."""
    found = {}
    for name in PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    kind = Mounts()._kind(str(work.resolve()))
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    after = pressure()
    waited = (after[1] - before[1]) * 1e5 / max(1, after[0] - before[0])
    return {
        "date": time.strftime("%Y-%m-%d"),
        "machine": f"{os.cpu_count()} cores ({platform.machine()}), {memory:.0f} GiB, {kind or 'unknown'} file system, "
        f"{platform.system()} {'.'.join(platform.release().split('.')[:2])}",
        "python": platform.python_version(),
        "versions": ", ".join(f"{name} {version}" for name, version in found.items()),
        "some program waited for a core": f"{waited:.0f} % of the run",
    }
