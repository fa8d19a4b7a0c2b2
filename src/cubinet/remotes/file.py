"""A folder as a remote: a file system shared by machines, or a local one in tests.

A new name appears by `link`, a replaced one by `rename`: no reader sees half an object. Replacing and removing take a
lock file, so `match` holds among all who use this module; over NFS as far as its locks do.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from urllib.parse import unquote, urlsplit

from blake3 import blake3

from cubinet._fs import Fs
from cubinet.errors import ConfigError, RemoteDeniedError, RemoteMisconfiguredError, RemoteUnavailableError
from cubinet.protocols import Entry, Object
from cubinet.remotes._base import BaseRemote
from cubinet.remotes._options import take

__all__ = ["FileRemote"]

_OPEN = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK  # a pipe in the folder must not block
_NO_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)


class FileRemote(BaseRemote):
    """`file:///folder`. The folder must be there: one that is not is a mount that is missing. No options."""

    def __init__(self, url: str, options: Mapping[str, object] | None = None) -> None:
        super().__init__(url, options)
        self.conditional = True
        self._fs = Fs()
        self._root = ""

    def _settle(self) -> None:
        if self._root:
            return
        take(self.url, self._options, {})
        parts = urlsplit(self._address)
        path = unquote(parts.path)
        if parts.netloc not in ("", "localhost") or not path.startswith("/") or parts.query or "\0" in path:
            raise ConfigError("use remote", self.url, "it is not file:///folder", "give an absolute path")
        self._root = os.path.normpath(path)

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}"

    def _read(self, name: str, limit: int | None) -> tuple[bytes, os.stat_result] | None:
        try:
            fd = os.open(self._path(name), _OPEN)
        except (FileNotFoundError, NotADirectoryError):
            os.stat(self._root)  # else it is the folder that is missing
            return None
        try:
            info = os.fstat(fd)
            if not stat.S_ISREG(info.st_mode):
                return None
            if limit is not None and info.st_size > limit:
                finding = f"{info.st_size} bytes where at most {limit} belong"
                raise RemoteMisconfiguredError(f"read {name} from", self.url, finding)
            data = b"".join(iter(lambda: os.read(fd, 1 << 24), b""))
        finally:
            os.close(fd)
        return data, info

    def _get(self, name: str, timeout: float, limit: int | None) -> Object | None:  # noqa: ARG002
        found = self._read(name, limit)
        return found and Object(found[0], _tag(found[0]), found[1].st_mtime)

    def _put(self, name: str, data: bytes, timeout: float, create: bool, match: str) -> bool:  # noqa: ARG002, FBT001
        path = self._path(name)
        mode = stat.S_IMODE(os.stat(self._root).st_mode)
        folder = os.path.dirname(path)
        if not os.path.isdir(folder):
            self._fs.mkdir(folder, mode)
        if create and os.path.lexists(path):
            return False
        temporary = f"{folder}/.{os.getpid()}-{threading.get_native_id()}-{os.urandom(6).hex()}"
        self._fs.create(temporary, data)
        try:
            if create and self.conditional:
                try:
                    self._fs.link(temporary, path)
                except FileExistsError:
                    return False
                except OSError as exc:
                    if exc.errno not in _NO_LINKS:
                        raise
                    self.conditional = False  # a file system without links
                else:
                    return True
            with self._locked():
                if match and self.conditional:
                    found = self._read(name, None)
                    if found is None or _tag(found[0]) != match:
                        return False
                self._fs.rename(temporary, path)
            return True
        finally:
            self._fs.discard(temporary)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        fd = os.open(self._path(".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            yield
        finally:
            fcntl.flock(fd, fcntl.LOCK_UN)  # a child that was forked meanwhile has the descriptor too
            os.close(fd)

    def _stat(self, name: str, timeout: float) -> Entry | None:  # noqa: ARG002
        try:
            info = os.stat(self._path(name))
        except (FileNotFoundError, NotADirectoryError):
            os.stat(self._root)
            return None
        return Entry(name, info.st_size, info.st_mtime) if stat.S_ISREG(info.st_mode) else None

    def _delete(self, names: Sequence[str], timeout: float) -> None:  # noqa: ARG002
        os.stat(self._root)
        with self._locked():
            for name in names:
                try:
                    self._fs.unlink(self._path(name))
                except (FileNotFoundError, NotADirectoryError):
                    continue
                except IsADirectoryError:
                    continue  # part of other names; no object

    def _pages(self, prefix: str, timeout: float) -> Iterator[list[Entry]]:  # noqa: ARG002
        os.stat(self._root)
        folders = [prefix.rpartition("/")[0]]
        while folders:
            folder = folders.pop()
            page = []
            try:
                with os.scandir(self._path(folder)) as found:
                    for item in found:
                        name = f"{folder}/{item.name}" if folder else item.name
                        if item.name.startswith("."):
                            continue
                        if item.is_dir(follow_symlinks=False):
                            if name.startswith(prefix) or prefix.startswith(name + "/"):
                                folders.append(name)
                        elif name.startswith(prefix) and (entry := self._stat(name, 0.0)):
                            page.append(entry)
            except (FileNotFoundError, NotADirectoryError):
                continue
            yield page

    def _explain(self, action: str, exc: BaseException) -> Exception:
        if not isinstance(exc, OSError):
            return super()._explain(action, exc)
        finding = exc.strerror or str(exc)
        if isinstance(exc, PermissionError) or exc.errno == errno.EROFS:
            return RemoteDeniedError(action, self.url, finding, "check who owns the folder and how it is mounted")
        if isinstance(exc, FileNotFoundError | NotADirectoryError) and not os.path.isdir(self._root):
            return RemoteMisconfiguredError(action, self.url, "no such folder", "make or mount it")
        if isinstance(exc, IsADirectoryError | NotADirectoryError | FileExistsError):
            return RemoteMisconfiguredError(action, self.url, f"{finding}: a folder and an object share a name")
        return RemoteUnavailableError(action, self.url, finding)


def _tag(data: bytes) -> str:
    return blake3(data).hexdigest(16)
