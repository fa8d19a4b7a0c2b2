"""Other hosts, and what is killed: `python s3_children.py …`.

`bare PLAN` is a host without a compiler; PLAN is a JSON file (see `bare`).

`hammer TOP LAYERS PROCESSES VARIANTS KILLS FOLDERS` lets processes look up and compile all variants in random orders,
each with a folder of its own (`separate`) or all with one (`one`), and kills and replaces at most KILLS of them at
random. Prints how many died; TOP/acknowledged has a line for each fingerprint that a process knew to be in the remote,
TOP/wrong one for each wrong answer.

`storm TOP LAYERS HOSTS PROCESSES VARIANTS SECONDS LEASES` starts processes at once on hosts, each with a folder, all of
which want all variants. Prints JSON: compiles by variant, and answers that were wrong.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from cubinet.config import Settings
from cubinet.errors import ToolchainNotFoundError
from cubinet.fingerprint import digest_of
from cubinet.model import Fingerprint, Variant
from cubinet.store import Store
from cubinet.testing.bench import Bench

BIG = 300_000
"""More than what travels with a record."""


def source(number: int) -> str:
    """The text of a variant; every tenth is big."""
    body = f"{number:08}" * (BIG // 8) if number % 10 == 0 else f"number {number}"
    return f'#include "a.h"\n{body}\nkernel scale{number}\n'


def expected(number: int) -> bytes:
    """The object of a variant."""
    text = source(number).partition("\n")[2]
    return f"cubin sm_90a 1.0\ntext of a.h\n{text}".encode()


def variant(bench: Bench, number: int) -> Variant:
    """What is asked for."""
    return bench.variant(source(number), name=f"scale{number}")


def place(folder: Path) -> Bench:
    """A host's folders."""
    folder.mkdir(parents=True, exist_ok=True)
    return Bench(folder) if (folder / "first").is_dir() else Bench.at(folder)


# --- a host without a compiler


def bare(plan: dict[str, Any]) -> None:
    """Do the steps that come on standard input, a line each, and answer each with a line of JSON.

    `fresh` looks the plan's sources up in an empty folder, `again` in the same folder with a new store, `known` its
    fingerprints in another empty folder: the answers are digest, status and layer of each. `miss` looks up a source
    that nobody has compiled; the answer is the error.
    """
    settings = Settings(layers=plan["layers"], toolchain=plan["pin"], refresh=0.0, durable=False)

    def store(name: str) -> Store:
        return Store(f"{plan['top']}/{name}", settings=settings, environ={"PATH": "/nonexistent"})

    def made(text: str) -> Variant:
        roots = {"lib": plan["root"]}
        return Variant(text, plan["arch"], kind=plan["kind"], roots=roots, compiler=plan["compiler"])

    for line in sys.stdin:
        step = line.strip()
        answer: object = None
        with store("known" if step == "known" else "empty") as one:
            if step == "miss":
                try:
                    one.get_or_compile(made(plan["sources"][0] + "// changed\n"))
                except ToolchainNotFoundError as exc:
                    answer = type(exc).__name__
            else:
                wanted = map(Fingerprint, plan["known"]) if step == "known" else map(made, plan["sources"])
                found = [one.find(what) for what in wanted]
                answer = [(digest_of(a.data).hex, a.status.value, a.layer) if a else None for a in found]
        print(json.dumps(answer), flush=True)  # noqa: T201 - the answer


# --- processes that die


def _note(path: Path, text: str) -> None:
    """Append in one write: whoever dies has written it or not."""
    fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    os.write(fd, f"{text}\n".encode())
    os.close(fd)


def work(bench: Bench, layers: str, numbers: list[int], notes: Path) -> None:
    """Ask for variants; note what is known to be in the remote, and what is wrong."""
    store = bench.store(layers=layers, drain=60.0, timeout=60.0)
    pending: list[str] = []
    for at, number in enumerate(numbers):
        got = store.get_or_compile(variant(bench, number))
        if got.data != expected(number):
            _note(notes / "wrong", f"{number} {got.status.value} {got.layer} {len(got.data)}")
        if got.layer == "s3":
            _note(notes / "acknowledged", got.fingerprint.hex)
        elif got.status.value == "compiled":
            pending.append(got.fingerprint.hex)
        if at % 5 == 4 or at == len(numbers) - 1:
            dropped = store.stats().get("upload.dropped", 0)
            if store.flush(60.0) == 0 and store.stats().get("upload.dropped", 0) == dropped == 0:
                for name in pending:
                    _note(notes / "acknowledged", name)
            pending.clear()
    for name, count in store.stats().items():
        _note(notes / "counts", f"{name} {count}")
    store.close()


def fork(call: Callable[[], object]) -> int:
    """A process that does this and ends; one that fails says why and ends with 1."""
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        call()
        code = 0
    except BaseException as exc:  # noqa: BLE001 - the parent sees the status
        os.write(2, f"{type(exc).__name__}: {exc}\n".encode())
    finally:
        os._exit(code)


def hammer(top: Path, layers: str, processes: int, variants: int, kills: int, *, one_folder: bool) -> int:
    """See the module."""
    dice = random.Random(11)
    benches = [place(top / ("one" if one_folder else f"host{i}")) for i in range(processes)]

    def start(at: int) -> int:
        order = dice.sample(range(variants), variants)
        return fork(lambda: work(benches[at], layers, order, top))

    pids = {start(at): at for at in range(processes)}
    killed = 0
    while pids:
        if killed < kills:
            time.sleep(dice.uniform(0.02, 0.25))
            os.kill(dice.choice(list(pids)), signal.SIGKILL)
        pid, status = os.wait()
        at, code = pids.pop(pid), os.waitstatus_to_exitcode(status)
        if code == -signal.SIGKILL:
            killed += 1
            pids[start(at)] = at
        elif code:
            raise SystemExit(f"a process ended with status {code}")
    return killed


# --- a cold start


def storm(top: Path, layers: str, *, hosts: int, processes: int, variants: int, seconds: float, leases: bool) -> Any:
    """See the module."""
    benches = [place(top / f"host{i}") for i in range(hosts)]
    ready, go = os.pipe()

    def run(bench: Bench) -> None:
        os.close(go)
        os.read(ready, 1)  # until all are there
        with bench.store(layers=layers, leases=leases, drain=60.0, timeout=120.0, seconds=seconds) as store:
            for number in range(variants):
                got = store.get_or_compile(variant(bench, number))
                if got.data != expected(number):
                    _note(top / "wrong", f"{number} {got.layer} {len(got.data)}")
        for name, count in store.stats().items():
            _note(top / "counts", f"{name} {count}")

    pids = [fork(partial(run, benches[at % hosts])) for at in range(hosts * processes)]
    start = time.perf_counter()
    os.close(go)
    failed = sum(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) != 0 for pid in pids)
    took = time.perf_counter() - start
    runs = [Counter(line.split()[1] for line in _lines(bench.top / "runs")) for bench in benches]
    by_variant = [sum(run[f"'scale{number}'"] for run in runs) for number in range(variants)]
    most = max(max(run.values(), default=0) for run in runs)
    counts: Counter[str] = Counter()
    for line in _lines(top / "counts"):
        name, _, count = line.rpartition(" ")
        counts[name] += int(count)
    return {"compiles": by_variant, "most on a host": most, "wrong": len(_lines(top / "wrong")),
            "failed": failed, "seconds": round(took, 2), "counts": dict(counts)}  # fmt: skip


def _lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def main(what: str, *given: str) -> None:
    """See the module."""
    if what == "bare":
        bare(json.loads(Path(given[0]).read_text()))
        return
    import s3fs  # noqa: F401 - once for all children; its client is made in each

    if what == "hammer":
        top, layers, processes, variants, kills, folders = given
        one = folders == "one"
        print(hammer(Path(top), layers, int(processes), int(variants), int(kills), one_folder=one))  # noqa: T201
    else:
        top, layers, hosts, processes, variants, seconds, leases = given
        numbers = {"hosts": int(hosts), "processes": int(processes), "variants": int(variants)}
        told = storm(Path(top), layers, **numbers, seconds=float(seconds), leases=leases == "1")
        print(json.dumps(told))  # noqa: T201 - the answer


if __name__ == "__main__":
    main(*sys.argv[1:])
