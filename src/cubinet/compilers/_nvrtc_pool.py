"""Warm NVRTC workers: a burst of small kernels must not pay a process start each."""

from __future__ import annotations

import atexit
import contextlib
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from cubinet.compilers import _nvrtc_worker as protocol
from cubinet.compilers._memo import stamps_of
from cubinet.compilers._recorder import LOG_NAME, Event, Recorder, read_log
from cubinet.compilers._worker import slot
from cubinet.errors import CompileError

__all__ = ["POOL", "LibrariesChangedError", "Needs", "Pool", "Worker", "WorkerDiedError"]

_START_SECONDS = 120.0
_WORDS = "stderr"
_KEPT = ("src", "include", "scratch", LOG_NAME, _WORDS)
_LOG_LIMIT = 1 << 20
_encoder, _decoder = msgspec.msgpack.Encoder(), msgspec.msgpack.Decoder()

Library = tuple[str, tuple[int, ...]]
"""Path and stamp."""


class WorkerDiedError(Exception):
    """The worker ended, or had to be ended, before it answered; `timed_out` says which, `log` what it printed."""

    def __init__(self, finding: str, log: str = "", *, timed_out: bool = False) -> None:
        super().__init__(finding)
        self.log, self.timed_out = log, timed_out


class LibrariesChangedError(Exception):
    """A new worker has other libraries than those it was asked to have."""


@dataclass(frozen=True, slots=True)
class Needs:
    """What a worker must be like.

    Attributes:
        environ: variables that decide which NVRTC is found; the worker gets no others of the caller's.
        path: the user's site folder or an empty text, then the module search path, all absolute.
        recorder: what it runs under.
        libraries: those it must have loaded; if none are given, a new worker loads what it finds.
    """

    environ: tuple[tuple[str, str], ...]
    path: tuple[str, ...]
    recorder: Recorder
    libraries: tuple[Library, ...] = ()


class Worker:
    """One process with NVRTC in it, in a private folder of its own, under the recorder.

    Attributes:
        about: what it said of itself: `version`, `libraries`, `archs`, or `error`.
        distrust: why what it looks at cannot be seen; empty if it can.
        loaded: the libraries it has; empty if they may have been replaced while it loaded them.
        since: when it was last given back, by the monotonic clock.
        leaving: whether it is being ended because the interpreter is.
    """

    def __init__(self, needs: Needs) -> None:
        self.needs, self.loaded, self.since, self.leaving = needs, needs.libraries, 0.0, False
        self.distrust = needs.recorder.distrust
        self._process: subprocess.Popen[bytes] | None = None
        self._links: dict[str, str] = {}
        self.folder = os.path.realpath(tempfile.mkdtemp(prefix="cubinet-"))
        try:
            self._start()
        except BaseException:
            self.close()
            raise

    def _start(self) -> None:
        for name in ("scratch", "src", "include/proof"):
            Path(self.folder, name).mkdir(parents=True)
        for name, data in protocol.PROVED.items():
            Path(self.folder, name).write_bytes(data)
        environ = {
            "PATH": "/usr/bin:/bin",
            "HOME": self.folder,
            "TMPDIR": f"{self.folder}/scratch",
            "LC_ALL": "C",
            "CUDA_CACHE_DISABLE": "1",
            **dict(self.needs.environ),
            **self.needs.recorder.environ(self.folder),
        }
        with Path(self.folder, _WORDS).open("ab") as words:
            self._process = subprocess.Popen(
                [sys.executable, "-I", protocol.__file__, self.folder],
                cwd=self.folder,
                env=environ,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=words,
                bufsize=0,
                start_new_session=True,
            )
        assert self._process.stdin is not None  # noqa: S101 - a pipe
        assert self._process.stdout is not None  # noqa: S101 - a pipe
        self._to, self._from = self._process.stdin.fileno(), self._process.stdout.fileno()
        os.set_blocking(self._to, False)
        self.about = self._ask("\0".join(self.needs.path).encode("utf-8", "surrogateescape"), _START_SECONDS)
        self.about["libraries"] = [os.fsdecode(path) for path in self.about.get("libraries", ())]
        if not self.distrust and "error" not in self.about:
            self.distrust = self._unseen()
        for name in ("src", "include/proof"):
            shutil.rmtree(f"{self.folder}/{name}", ignore_errors=True)

    def _unseen(self) -> str:
        """What the recorder missed of the first program's looks."""
        seen = {(event.op, event.path.removeprefix(self.folder + "/")) for event in self._events(0) or ()}
        for op, names in (("R", protocol.PROVED), ("A", protocol.MISSED)):
            for name in names:
                if (op, name) not in seen:
                    return f"it did not see NVRTC {'read' if op == 'R' else 'look for'} {name}"
        return ""

    def ready(self) -> bool:
        """Whether it can be asked: alive, not about to retire, its folder still there."""
        alive = self._process is not None and self._process.poll() is None
        fresh = time.monotonic() < self.since + protocol.IDLE_SECONDS * 0.8
        return alive and fresh and os.path.isdir(f"{self.folder}/scratch")

    def compile(self, asked: Mapping[str, Any], timeout: float | None) -> tuple[dict[str, Any], list[Event] | None]:
        """Compile; the answer, and what NVRTC looked at meanwhile, `None` if that was not recorded.

        Raises `WorkerDiedError`.
        """
        log = f"{self.folder}/{LOG_NAME}"
        before = os.path.getsize(log) if os.path.exists(log) else 0
        answer = self._ask(_encoder.encode(asked), timeout)
        return answer, None if self.distrust else self._events(before)

    def _events(self, offset: int) -> list[Event] | None:
        """Those between the marks, from a byte of the log on."""
        try:
            events = list(read_log(f"{self.folder}/{LOG_NAME}", offset))
        except ValueError:
            return None
        marks = [i for i, event in enumerate(events) if event.path in (protocol.BEGIN, protocol.END)]
        return events[marks[0] + 1 : marks[1]] if len(marks) == 2 else None

    def _ask(self, data: bytes, timeout: float | None) -> dict[str, Any]:
        deadline = None if timeout is None else time.monotonic() + timeout
        said = os.path.getsize(f"{self.folder}/{_WORDS}")
        try:
            self._write(protocol.LENGTH.pack(len(data)) + data, deadline)
            (size,) = protocol.LENGTH.unpack(self._read(protocol.LENGTH.size, deadline))
            found: dict[str, Any] = _decoder.decode(self._read(size, deadline))
        except TimeoutError as exc:
            self._kill()
            raise WorkerDiedError(f"it was killed after {timeout:g} s", self._words(said), timed_out=True) from exc
        except (EOFError, BrokenPipeError, msgspec.DecodeError) as exc:
            if self.leaving:  # a daemon thread at the end of the interpreter: it must not complain
                threading.Event().wait()
            raise WorkerDiedError(self._end(), self._words(said)) from exc
        except BaseException:
            self._kill()
            raise
        return found

    def _write(self, data: bytes, deadline: float | None) -> None:
        view = memoryview(data)
        while view:
            _wait(self._to, select.POLLOUT, deadline)
            with contextlib.suppress(BlockingIOError):
                view = view[os.write(self._to, view) :]

    def _read(self, size: int, deadline: float | None) -> bytes:
        data = bytearray()
        while len(data) < size:
            _wait(self._from, select.POLLIN, deadline)
            more = os.read(self._from, size - len(data))
            if not more:
                raise EOFError
            data += more
        return bytes(data)

    def _end(self) -> str:
        """How the process ended, as a sentence."""
        assert self._process is not None  # noqa: S101 - it was asked
        try:
            status = self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._kill()
            return "the process NVRTC runs in answered nothing that can be read"
        how = f"signal {signal.Signals(-status).name}" if status < 0 else f"status {status}"
        return f"the process NVRTC runs in ended with {how}"

    def _words(self, start: int) -> str:
        """What the process printed from there on, or the end of it."""
        try:
            return Path(self.folder, _WORDS).read_bytes()[start:][-4000:].decode(errors="replace").strip()
        except OSError:
            return ""

    def _kill(self) -> None:
        if self._process is not None and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)

    def arrange(self, links: Mapping[str, str]) -> None:
        """Have these links (name → target) in the folder, and no others. Those that stay cost nothing."""
        for name in [name for name, target in self._links.items() if links.get(name) != target]:
            del self._links[name]
            os.unlink(f"{self.folder}/{name}")
        for name, target in links.items():
            if name not in self._links:
                os.symlink(target, f"{self.folder}/{name}")
                self._links[name] = target

    def clear(self) -> None:
        """Remove what the last compile left. Raises `OSError` if the folder is not as it was."""
        for folder, kept in ((self.folder, _KEPT), (f"{self.folder}/scratch", ())):
            for name in os.listdir(folder):
                if name not in kept:
                    _remove(f"{folder}/{name}")
        for name in (LOG_NAME, _WORDS):
            path = f"{self.folder}/{name}"
            if os.path.exists(path) and os.path.getsize(path) > _LOG_LIMIT:
                os.truncate(path, 0)

    def close(self) -> None:
        """End the process and remove its folder."""
        self._kill()
        if self._process is not None:
            self._process.wait()
            self._hang_up()
        shutil.rmtree(self.folder, ignore_errors=True)

    def abandon(self) -> None:
        """In a forked child: let go of the parent's process without touching it."""
        if self._process is not None:
            self._hang_up()
            self._process.returncode = 0  # not ours to wait for

    def _hang_up(self) -> None:
        assert self._process is not None  # noqa: S101 - asked before
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()


def _wait(file: int, what: int, deadline: float | None) -> None:
    poll = select.poll()
    poll.register(file, what)
    left = None if deadline is None else max(0.0, deadline - time.monotonic()) * 1000
    if not poll.poll(left):
        raise TimeoutError


def _remove(path: str) -> None:
    if os.path.islink(path) or not os.path.isdir(path):
        os.unlink(path)
    else:
        shutil.rmtree(path)


def stamped(paths: Sequence[str]) -> tuple[Library, ...]:
    """Libraries as they are now; none if one of them is gone."""
    try:
        stamps = stamps_of([os.stat(path) for path in paths])
    except OSError:
        return ()
    return tuple((path, tuple(stamp)) for path, stamp in sorted(zip(paths, stamps, strict=True)))


class Pool:
    """The workers of one process. Safe in threads; a forked child starts with none."""

    def __init__(self) -> None:
        self._limit = max(2, len(os.sched_getaffinity(0)))
        self._lock, self._idle, self._all = threading.Lock(), list[Worker](), set[Worker]()
        atexit.register(self._leave)
        os.register_at_fork(after_in_child=self._forget)

    def _forget(self) -> None:
        self._lock, self._idle, mine = threading.Lock(), [], self._all
        self._all = set()
        for worker in mine:
            worker.abandon()

    @contextlib.contextmanager
    def worker(self, needs: Needs) -> Iterator[Worker]:
        """A worker for one compile, kept for the next one unless it misbehaved. Waits for a `slot`.

        Raises `OSError`, `WorkerDiedError`, `LibrariesChangedError`.
        """
        with slot():
            worker, good = self._take(needs), False
            try:
                yield worker
                good = True
            except CompileError:  # the source's fault, not the worker's
                good = True
                raise
            finally:
                self._give(worker, good=good)

    def _take(self, needs: Needs) -> Worker:
        with self._lock:
            # the newest first, so that those that are too many grow old
            found = next((w for w in reversed(self._idle) if needs.libraries and w.needs == needs), None)
            # workers that were ended, or have libraries that were replaced, are of no use to anybody
            rest = [w for w in self._idle if w is not found]
            dead = [w for w in rest if not w.ready() or stamped([p for p, _ in w.loaded]) != w.loaded]
            self._idle = [w for w in rest if w not in dead]
        for worker in dead:
            self._close(worker)
        if found is not None:
            if found.ready():
                return found
            self._close(found)
            return self._take(needs)
        return self._start(needs)

    def _start(self, needs: Needs) -> Worker:
        started = time.time_ns()
        before = stamped([path for path, _ in needs.libraries])
        if before != needs.libraries:
            raise LibrariesChangedError
        worker = Worker(needs)
        with self._lock:
            self._all.add(worker)
        found = stamped(worker.about["libraries"])
        if needs.libraries and found != needs.libraries:
            self._close(worker)
            raise LibrariesChangedError
        # a library that was at rest when the process began is the one that was loaded
        if all(max(stamp[3], stamp[4]) < started - _REST_NS for _, stamp in found):
            worker.loaded = found
        return worker

    def _give(self, worker: Worker, *, good: bool) -> None:
        if good and worker.loaded and "error" not in worker.about:
            with contextlib.suppress(OSError):
                worker.clear()
                worker.since = time.monotonic()
                worker.needs = Needs(worker.needs.environ, worker.needs.path, worker.needs.recorder, worker.loaded)
                with self._lock:
                    self._idle.append(worker)
                    surplus = self._idle[: -self._limit]
                    self._idle = self._idle[-self._limit :]
                for other in surplus:
                    self._close(other)
                return
        self._close(worker)

    def _close(self, worker: Worker) -> None:
        with self._lock:
            self._all.discard(worker)
        worker.close()

    def _leave(self) -> None:
        for worker in self._all:
            worker.leaving = True
        self.close()

    def close(self) -> None:
        """End all workers."""
        with self._lock:
            mine, self._all, self._idle = self._all, set(), []
        for worker in mine:
            worker.close()


_REST_NS = 100_000_000
"""Times of files lag behind the clock by a tick of the kernel."""

POOL = Pool()
"""All adapters of a process share it, however many stores there are."""
