"""Every change Cubinet makes to a file goes through this class, and every read of a store file.

One seam, so that tests can count the operations, make any of them fail, or kill the process before
each of them (`cubinet.testing.faults`). Plain `os` calls on plain strings: `pathlib` alone costs more
than the rest of a 4 KB read.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

__all__ = ["Fs"]

_READ = os.O_RDONLY | os.O_CLOEXEC
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC


class Fs:
    """The operating system's files. All methods raise `OSError` as the system does."""

    def read(self, path: str, limit: int | None = None) -> bytes:
        """The whole file, or a `ValueError` if it is larger than `limit` bytes."""
        fd = os.open(path, _READ)
        try:
            size = os.fstat(fd).st_size
            if limit is not None and size > limit:
                raise ValueError(size)
            data = os.read(fd, size)
            while len(data) < size:  # one read takes at most 2 GiB
                more = os.read(fd, size - len(data))
                if not more:
                    break
                data += more
            return data
        finally:
            os.close(fd)

    def create(self, path: str, data: bytes | memoryview, *, mode: int = 0o444, sync: bool = True) -> None:
        """Write a new file; `FileExistsError` if the name is taken. Nothing stays of a failed write."""
        fd = os.open(path, _CREATE, 0o600)
        try:
            try:
                view = memoryview(data)
                while view:
                    view = view[os.write(fd, view) :]
                os.fchmod(fd, mode)
                if sync:
                    os.fsync(fd)
            finally:
                os.close(fd)
        except BaseException:
            self.discard(path)
            raise

    def link(self, source: str, target: str) -> None:
        """Give a file a second name; `FileExistsError` if that is taken."""
        os.link(source, target)

    def rename(self, source: str, target: str) -> None:
        """Move a file over another in one step."""
        os.rename(source, target)

    def touch(self, path: str) -> None:
        """Give a file the present time."""
        os.utime(path)

    def unlink(self, path: str) -> None:
        """Remove a file."""
        os.unlink(path)

    def discard(self, path: str) -> None:
        """Remove a file if that is possible."""
        try:
            self.unlink(path)
        except OSError:
            return

    def mkdir(self, path: str, mode: int = 0o755) -> None:
        """Make a folder and its parents; fine if it is there. The mode does not depend on the umask."""
        try:
            os.mkdir(path)
        except FileExistsError:
            return
        except FileNotFoundError:
            parent = os.path.dirname(path)
            if parent == path or (os.path.islink(parent) and not os.path.exists(parent)):
                raise  # a link to nowhere can hold nothing
            self.mkdir(parent, mode)
            try:
                os.mkdir(path)
            except FileExistsError:
                return
        os.chmod(path, mode)

    def sync_folder(self, path: str) -> None:
        """Make new names in a folder survive a power cut."""
        fd = os.open(path, _READ | os.O_DIRECTORY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def sync_all(self, path: str) -> None:
        """Flush everything on the file system of a folder: one wait for many files."""
        import ctypes

        fd = os.open(path, _READ | os.O_DIRECTORY)
        try:
            syncfs = getattr(ctypes.CDLL(None, use_errno=True), "syncfs", None)
            if syncfs is None:
                os.sync()
            elif syncfs(fd):
                code = ctypes.get_errno()
                raise OSError(code, os.strerror(code), path)
        finally:
            os.close(fd)

    def stat(self, path: str) -> os.stat_result:
        """What `os.stat` says."""
        return os.stat(path)

    def stats(self, paths: list[str]) -> list[os.stat_result]:
        """`os.stat` of each path, at C speed; raises at the first that is not there."""
        return list(map(os.stat, paths))

    def list(self, path: str) -> Iterator[str]:
        """Names in a folder, unsorted; none if it is not there."""
        try:
            with os.scandir(path) as entries:
                for entry in entries:
                    yield entry.name
        except FileNotFoundError:
            return

    def open_lock(self, path: str) -> int:
        """A descriptor of a lock file, made if needed."""
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
