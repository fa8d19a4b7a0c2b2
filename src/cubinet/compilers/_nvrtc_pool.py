"""Warm NVRTC workers: a burst of small kernels must not pay a process start each."""

from __future__ import annotations

import atexit
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from cubinet.compilers import _nvrtc_worker as protocol
from cubinet.compilers._recorder import LOG_NAME, Event, Recorder, read_log
from cubinet.compilers._worker import private_folder, slot

__all__ = ["Pool", "Worker", "WorkerDiedError"]

_PASSED_ON = ("LD_LIBRARY_PATH", "CUDA_HOME", "CUDA_PATH", "CONDA_PREFIX", "VIRTUAL_ENV")
"""What decides which NVRTC is found. `NVRTC_*` and everything else stays outside."""

_START_SECONDS = 120.0
_encoder, _decoder = msgspec.msgpack.Encoder(), msgspec.msgpack.Decoder()


class WorkerDiedError(Exception):
    """The worker ended, or had to be ended, before it answered. `timed_out` says which."""

    def __init__(self, finding: str, *, timed_out: bool = False) -> None:
        super().__init__(finding)
        self.timed_out = timed_out


class Worker:
    """One process with NVRTC in it, in a private folder of its own, under the recorder."""

    def __init__(self, environ: Mapping[str, str], recorder: Recorder) -> None:
        self._manager = private_folder()
        self.folder = self._manager.__enter__()
        self.recorder = recorder
        Path(self.folder, "scratch").mkdir()
        clean = {
            "PATH": "/usr/bin:/bin",
            "HOME": self.folder,
            "TMPDIR": f"{self.folder}/scratch",
            "LC_ALL": "C",
            "CUDA_CACHE_DISABLE": "1",
            **{name: environ[name] for name in _PASSED_ON if name in environ},
            **recorder.environ(self.folder),
        }
        self._process = subprocess.Popen(
            [sys.executable, "-I", protocol.__file__],
            cwd=self.folder,
            env=clean,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        path = "\0".join(os.path.abspath(entry) for entry in sys.path)
        try:
            self.about = self._ask(path.encode("utf-8", "surrogateescape"), _START_SECONDS)
        except BaseException:
            self.close()
            raise

    def compile(self, asked: Mapping[str, Any], timeout: float | None) -> tuple[dict[str, Any], list[Event]]:
        """Compile; the answer, and what NVRTC looked at meanwhile. Raises `WorkerDiedError`."""
        log = f"{self.folder}/{LOG_NAME}"
        before = os.path.getsize(log) if os.path.exists(log) else 0
        answer = self._ask(_encoder.encode(asked), timeout)
        events = list(read_log(log, before)) if not self.recorder.distrust else []
        marks = [i for i, event in enumerate(events) if event.path in (protocol.BEGIN, protocol.END)]
        return answer, events[marks[0] + 1 : marks[-1]] if len(marks) == 2 else []

    def _ask(self, data: bytes, timeout: float | None) -> dict[str, Any]:
        process, expired = self._process, threading.Event()
        assert process.stdin is not None  # noqa: S101 - a pipe
        assert process.stdout is not None  # noqa: S101 - a pipe

        def kill() -> None:
            expired.set()
            self._kill()

        timer = threading.Timer(timeout, kill) if timeout is not None else None
        if timer is not None:
            timer.daemon = True
            timer.start()
        try:
            protocol.send(process.stdin, data)
            answer = protocol.receive(process.stdout)
        except (BrokenPipeError, ValueError):
            answer = None
        except BaseException:
            self._kill()
            raise
        finally:
            if timer is not None:
                timer.cancel()
        if answer is None:
            if expired.is_set():
                raise WorkerDiedError(f"it was killed after {timeout:g} s", timed_out=True)
            raise WorkerDiedError(f"the process NVRTC ran in ended with status {process.wait(10)}")
        found: dict[str, Any] = _decoder.decode(answer)
        return found

    def _kill(self) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def clear(self) -> None:
        """Empty the folder of what the last compile needed."""
        for name in os.listdir(self.folder):
            path = f"{self.folder}/{name}"
            if name in ("scratch", LOG_NAME):
                continue
            if os.path.islink(path) or not os.path.isdir(path):
                os.unlink(path)
            else:
                shutil.rmtree(path)

    def close(self) -> None:
        """End the process and remove its folder."""
        self._kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with contextlib.suppress(BrokenPipeError):
                    stream.close()
        self._manager.__exit__(None, None, None)


class Pool:
    """Idle workers of one process. Safe in threads; a forked child starts with none."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self.environ = environ
        self._pid, self._lock, self._idle = os.getpid(), threading.Lock(), list[Worker]()
        atexit.register(self.close)

    def _mine(self) -> threading.Lock:
        if os.getpid() != self._pid:  # the parent's workers answer the parent
            self._pid, self._lock, self._idle = os.getpid(), threading.Lock(), []
        return self._lock

    @contextlib.contextmanager
    def worker(self, recorder: Recorder) -> Iterator[Worker]:
        """A worker for one compile; kept for the next one unless it died."""
        with slot():
            with self._mine():
                found = next((w for w in self._idle if w.recorder == recorder), None)
                if found is not None:
                    self._idle.remove(found)
            worker = found or Worker(self.environ, recorder)
            try:
                yield worker
            except BaseException:
                worker.close()
                raise
            worker.clear()
            with self._mine():
                self._idle.append(worker)

    def close(self) -> None:
        """End all idle workers."""
        with self._mine():
            idle, self._idle = self._idle, []
        for worker in idle:
            worker.close()
