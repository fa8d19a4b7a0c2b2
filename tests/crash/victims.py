"""What is killed: `python victims.py …`.

`die SCENARIO BASE TOP` copies BASE to TOP/0, TOP/1, … and runs the scenario in each copy, in a process that dies
before file operation 0, 1, …, until one survives. Prints how many died.

`write FOLDER SECONDS` lets eight processes publish and read at random and kills and replaces them at random.
Prints how many died and how many builds were published by a process that was not killed meanwhile.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

from cubinet.errors import CompileError
from cubinet.store.local import LocalLayer
from cubinet.testing.bench import SOURCE, Bench
from cubinet.testing.faults import DyingFs
from cubinet.testing.samples import Build, build

OTHER = "other\nkernel other\n"
BROKEN = "#error no good\n"
BUILDS = 40
WRITERS = 8


def compile_plain(bench: Bench, fs: DyingFs) -> None:
    """Look up the plain variant, and compile and publish it if it is not there whole."""
    bench.store(fs=fs, later=True, durable=True).get_or_compile(bench.variant(SOURCE))


def compile_broken(bench: Bench, fs: DyingFs) -> None:
    """Note a compile error."""
    try:
        bench.store(fs=fs, later=True).get_or_compile(bench.variant(BROKEN))
    except CompileError:
        return


SCENARIOS: dict[str, Callable[[Bench, DyingFs], None]] = {"plain": compile_plain, "broken": compile_broken}


def die(scenario: str, base: Path, top: Path) -> int:
    """See the module."""
    for last in range(1000):
        place = top / str(last)
        shutil.copytree(base, place, symlinks=True)
        pid = os.fork()
        if pid == 0:
            SCENARIOS[scenario](Bench(place), DyingFs(last))
            os._exit(0)
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        if status == 0:
            return last
        if status != -signal.SIGKILL:
            raise SystemExit(f"step {last} ended with status {status}")
    raise SystemExit("it never survives")


def sample(number: int) -> Build:
    """One of the builds that writers publish: some share an action, some an object."""
    return build(f"build {number}", action=f"action {number % 10}", data=bytes([number % 5]) * 5_000)


def write_for_ever(folder: str, seed: int, done: int) -> None:
    """Publish and read; write a byte to `done` for each build, or `!` for a wrong one."""
    layer, dice = LocalLayer(folder, durable=False), random.Random(seed)
    while True:
        made = sample(dice.randrange(BUILDS))
        if dice.random() < 0.5:
            layer.publish(made.record, made.blobs)
            os.write(done, b".")
        record = layer.find(made.fingerprint)
        if record is not None and (record != made.record or layer.read(made.main) != made.data):
            os.write(done, b"!")


def write(folder: str, seconds: float) -> tuple[int, bytes]:
    """See the module."""
    read, done = os.pipe()
    os.set_blocking(done, False)
    dice, seeds, killed = random.Random(7), iter(range(10**9)), 0

    def start() -> int:
        pid = os.fork()
        if pid == 0:
            try:
                write_for_ever(folder, next(seeds) * WRITERS + os.getpid(), done)
            except BlockingIOError:
                time.sleep(60)
            except BaseException as exc:  # noqa: BLE001 - the parent shows it
                os.write(2, f"{type(exc).__name__}: {exc}\n".encode())
                os.write(done, b"!")
            os._exit(1)
        return pid

    pids = [start() for _ in range(WRITERS)]
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        time.sleep(dice.uniform(0.0, 0.03))
        victim = dice.randrange(WRITERS)
        os.kill(pids[victim], signal.SIGKILL)
        os.waitpid(pids[victim], 0)
        killed += 1
        pids[victim] = start()
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    os.close(done)
    with os.fdopen(read, "rb") as file:
        return killed, file.read()


if __name__ == "__main__":
    if sys.argv[1] == "die":
        print(die(sys.argv[2], Path(sys.argv[3]), Path(sys.argv[4])))  # noqa: T201 - the answer
    else:
        deaths, said = write(sys.argv[2], float(sys.argv[3]))
        print(deaths, said.count(b"."), said.count(b"!"))  # noqa: T201 - the answer
