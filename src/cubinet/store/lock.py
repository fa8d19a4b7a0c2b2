"""A lock among the processes of one host: `flock`, which the kernel frees when its holder dies.

It only saves work. Every failure of it means one more compile, so callers go on without it.
"""

from __future__ import annotations

import errno
import fcntl
import os
import time
from collections.abc import Callable
from types import TracebackType
from typing import Self

from cubinet._fs import Fs
from cubinet.errors import LockTimeoutError

__all__ = ["FileLock"]

_POLL_SECONDS = 0.02


class FileLock:
    """One lock file, removed again by its holder.

    Not for network file systems, where `flock` may be local to each host.
    """

    def __init__(self, fs: Fs, path: str, *, prepare: Callable[[], None]) -> None:
        self.fs, self.path, self.prepare, self._fd = fs, path, prepare, -1

    def acquire(self, timeout: float | None, waiting: Callable[[], bool] = lambda: False) -> bool:
        """Take the lock; `False` if `waiting()`, asked between attempts, says that it is not needed.

        Raises `LockTimeoutError` after `timeout` seconds, `OSError` if there can be no lock.
        """
        end = None if timeout is None else time.monotonic() + timeout
        self.prepare()
        while True:
            fd = self._open()
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                # The last holder may have removed the file between our open and our lock.
                if self._is_current(fd):
                    self._fd = fd
                    return True
            except OSError as exc:
                if exc.errno not in (errno.EWOULDBLOCK, errno.EINTR):
                    os.close(fd)
                    raise
            except BaseException:
                os.close(fd)
                raise
            os.close(fd)
            if waiting():
                return False
            if end is not None and time.monotonic() > end:
                raise LockTimeoutError("take lock", self.path, f"still held after {timeout:.0f} s")
            time.sleep(_POLL_SECONDS)

    def free(self) -> bool:
        """Whether nobody holds it now; makes nothing."""
        try:
            fd = os.open(self.path, os.O_RDWR | os.O_CLOEXEC)
        except OSError:
            return False
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
        finally:
            os.close(fd)
        return True

    def _open(self) -> int:
        try:
            return self.fs.open_lock(self.path)
        except FileNotFoundError:  # the store was deleted under our feet
            self.fs.mkdir(os.path.dirname(self.path))
            return self.fs.open_lock(self.path)

    def _is_current(self, fd: int) -> bool:
        try:
            there = self.fs.stat(self.path)
        except FileNotFoundError:
            return False
        mine = os.fstat(fd)
        return (there.st_dev, there.st_ino) == (mine.st_dev, mine.st_ino)

    def release(self) -> None:
        """Let go, if held."""
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            self.fs.discard(self.path)
            fcntl.flock(fd, fcntl.LOCK_UN)  # a child that was forked meanwhile has the descriptor too
            os.close(fd)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()
