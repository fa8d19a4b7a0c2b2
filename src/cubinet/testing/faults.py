"""File systems that count, fail, or kill the process: the seam `cubinet._fs.Fs` from the other side."""

from __future__ import annotations

import errno
import fnmatch
import os
import signal
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from enum import StrEnum

from cubinet._fs import Fs

__all__ = ["CHANGES", "CountingFs", "DyingFs", "Fault", "FaultyFs", "How", "NoSyncFs", "WatchedFs"]

CHANGES = frozenset({"create", "link", "rename", "unlink", "mkdir", "open_lock"})
"""The operations after which a folder may look different. `discard` is an `unlink` that may fail."""


class WatchedFs(Fs):
    """Goes through `around` for every operation.

    The path is the name an operation is about: for `link` and `rename` the new one. `stats` goes through
    once for each of its paths.
    """

    @contextmanager
    def around(self, operation: str, path: str) -> Iterator[object]:  # noqa: ARG002 - for subclasses
        """What happens before and after an operation that succeeded; what it raises, the operation raises."""
        yield None

    def read(self, path: str, limit: int | None = None) -> bytes:
        with self.around("read", path):
            return super().read(path, limit)

    def create(self, path: str, data: bytes | memoryview, *, mode: int = 0o444, sync: bool = True) -> None:
        with self.around("create", path):
            super().create(path, data, mode=mode, sync=sync)

    def link(self, source: str, target: str) -> None:
        with self.around("link", target):
            super().link(source, target)

    def rename(self, source: str, target: str) -> None:
        with self.around("rename", target):
            super().rename(source, target)

    def touch(self, path: str) -> None:
        with self.around("touch", path):
            super().touch(path)

    def unlink(self, path: str) -> None:
        with self.around("unlink", path):
            super().unlink(path)

    def mkdir(self, path: str, mode: int = 0o755) -> None:
        with self.around("mkdir", path):
            super().mkdir(path, mode)

    def sync_folder(self, path: str) -> None:
        with self.around("sync_folder", path):
            super().sync_folder(path)

    def sync_all(self, path: str) -> None:
        with self.around("sync_all", path):
            super().sync_all(path)

    def stat(self, path: str) -> os.stat_result:
        with self.around("stat", path):
            return super().stat(path)

    def stats(self, paths: list[str]) -> list[os.stat_result]:
        with ExitStack() as stack:
            for path in paths:
                stack.enter_context(self.around("stats", path))
            return super().stats(paths)

    def list(self, path: str) -> Iterator[str]:
        with self.around("list", path):
            yield from super().list(path)

    def open_lock(self, path: str) -> int:
        fd = -1
        try:
            with self.around("open_lock", path):
                fd = super().open_lock(path)
        except BaseException:
            if fd >= 0:
                os.close(fd)
            raise
        return fd


class CountingFs(WatchedFs):
    """Counts every operation.

    Attributes:
        counts: operation → how often; `stats` counts its paths.
        calls: every operation with its path, in order.
    """

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.calls: list[tuple[str, str]] = []
        self._lock = threading.Lock()

    @contextmanager
    def around(self, operation: str, path: str) -> Iterator[object]:
        with self._lock:
            self.counts[operation] += 1
            self.calls.append((operation, path))
        yield None

    @property
    def changes(self) -> int:
        """How many operations may have changed something."""
        return sum(count for operation, count in self.counts.items() if operation in CHANGES)

    def clear(self) -> None:
        """Start from zero."""
        with self._lock:
            self.counts.clear()
            self.calls.clear()


class How(StrEnum):
    """How an operation fails."""

    REFUSED = "refused"
    """It raises and nothing happened."""
    LOST_REPLY = "lost reply"
    """It happened, and raises all the same: NFS after a retry."""
    CUT = "cut"
    """A `create` leaves half the file and raises; without an error code it raises nothing."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One way to fail.

    Args:
        code: the `errno` it raises; 0 for none (only with `How.CUT`).
        operation: the operation that fails; any that changes something if empty.
        path: a shell pattern over the whole path (`*/records/*`); any if empty.
        call: the matching call that fails, counted from 0; every one if `None`.
        how: whether anything happened.
    """

    code: int = errno.EIO
    operation: str = ""
    path: str = ""
    call: int | None = None
    how: How = How.REFUSED

    def matches(self, operation: str, path: str) -> bool:
        """Whether the fault is about such a call."""
        wanted = operation == self.operation if self.operation else operation in CHANGES
        return wanted and (not self.path or fnmatch.fnmatchcase(path, self.path))


class FaultyFs(WatchedFs):
    """Fails as it is told.

    Attributes:
        faults: what fails; may be changed at any time.
        failed: the calls that did, in order.
    """

    def __init__(self, *faults: Fault) -> None:
        self.faults = list(faults)
        self.failed: list[tuple[str, str]] = []
        self._seen: Counter[Fault] = Counter()
        self._lock = threading.Lock()

    @contextmanager
    def around(self, operation: str, path: str) -> Iterator[object]:
        fault = self._fault(operation, path)
        if fault is not None and fault.how is How.REFUSED:
            raise OSError(fault.code, os.strerror(fault.code), path)
        yield fault
        if fault is not None and fault.code:
            raise OSError(fault.code, os.strerror(fault.code), path)

    def create(self, path: str, data: bytes | memoryview, *, mode: int = 0o444, sync: bool = True) -> None:
        with self.around("create", path) as fault:
            if isinstance(fault, Fault) and fault.how is How.CUT:
                data = memoryview(data)[: len(data) // 2]
            Fs.create(self, path, data, mode=mode, sync=sync)

    def _fault(self, operation: str, path: str) -> Fault | None:
        with self._lock:
            due = None
            for fault in self.faults:
                if fault.matches(operation, path):
                    if fault.call in (None, self._seen[fault]):
                        due = due or fault
                    self._seen[fault] += 1
            if due is not None:
                self.failed.append((operation, path))
            return due


class DyingFs(WatchedFs):
    """Kills its own process with SIGKILL before step `last` of those that change something.

    A `create` has two steps: before it, and when half of its data is written.
    """

    def __init__(self, last: int) -> None:
        self.last, self.done = last, 0

    @contextmanager
    def around(self, operation: str, path: str) -> Iterator[object]:  # noqa: ARG002
        if operation in CHANGES:
            self._step()
        yield None

    def create(self, path: str, data: bytes | memoryview, *, mode: int = 0o444, sync: bool = True) -> None:
        with self.around("create", path):
            if self.done == self.last:
                Fs.create(self, path, memoryview(data)[: len(data) // 2], mode=mode, sync=sync)
            self._step()
            Fs.create(self, path, data, mode=mode, sync=sync)

    def _step(self) -> None:
        if self.done == self.last:
            os.kill(os.getpid(), signal.SIGKILL)
        self.done += 1


class NoSyncFs(Fs):
    """Never waits for the disk: for tests that make many files and cut no power."""

    def create(self, path: str, data: bytes | memoryview, *, mode: int = 0o444, sync: bool = True) -> None:  # noqa: ARG002 - the point
        super().create(path, data, mode=mode, sync=False)

    def sync_folder(self, path: str) -> None:  # noqa: ARG002
        return

    def sync_all(self, path: str) -> None:  # noqa: ARG002
        return
