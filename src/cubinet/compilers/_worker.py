"""Running a compiler: its own process group, its own folder, a time limit, no shell."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

__all__ = ["Finished", "private_folder", "run", "slot"]

_BYTES_A_WORKER = 512 << 20
"""What one cicc was measured to need for a large kernel."""


def _workers() -> int:
    cores = len(os.sched_getaffinity(0))
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return max(1, min(cores, memory // _BYTES_A_WORKER))


_slots, _owner = threading.BoundedSemaphore(_workers()), os.getpid()


def slot() -> threading.BoundedSemaphore:
    """Enter it to compile: at most as many at once in this process as there are cores and memory for."""
    global _slots, _owner
    if _owner != os.getpid():  # slots that other threads held are lost to a forked child
        _slots, _owner = threading.BoundedSemaphore(_workers()), os.getpid()
    return _slots


@dataclass(frozen=True, slots=True)
class Finished:
    """How a program ended: status as `subprocess` gives it, all it printed, wall-clock seconds."""

    status: int
    output: bytes
    seconds: float
    timed_out: bool = False


@contextlib.contextmanager
def private_folder() -> Iterator[str]:
    """A new folder nobody else can enter, gone afterwards. Its path is a real path."""
    folder = os.path.realpath(tempfile.mkdtemp(prefix="cubinet-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _kill(process: subprocess.Popen[bytes]) -> None:
    # The whole group: killing nvcc alone leaves cicc running and holding the pipe.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)


def run(argv: Sequence[str], *, folder: str, environ: Mapping[str, str], timeout: float | None = None) -> Finished:
    """Run a program in a folder with exactly this environment and wait for it.

    Waits for a `slot`. An interrupt kills it with all its children. Raises `OSError` if it cannot be started.
    """
    with slot():
        start = time.monotonic()
        process = subprocess.Popen(
            list(argv),
            cwd=folder,
            env=dict(environ),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        timed_out = False
        try:
            try:
                output, _ = process.communicate(timeout=timeout)
            except subprocess.TimeoutExpired:
                timed_out = True
                _kill(process)
                output, _ = process.communicate()
        except BaseException:
            _kill(process)
            process.wait()
            raise
        return Finished(process.returncode, output, time.monotonic() - start, timed_out)
