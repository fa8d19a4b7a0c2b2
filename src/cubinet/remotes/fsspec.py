"""Any file system that fsspec knows, as a remote: `memory://` for tests, `gs://`, `abfs://`, `sftp://` and more.

What such a file system promises about two writers of one name differs, and most look first and write then. So but for
`memory`, which is one dictionary in this process, nothing here is conditional and the last writer wins. On those that
write in place (`sftp`, `ftp`, `smb`) a reader may see half an object: the layer above verifies what it reads.
"""

from __future__ import annotations

import errno
import inspect
import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from blake3 import blake3

from cubinet.errors import (
    ConfigError,
    RemoteDeniedError,
    RemoteMisconfiguredError,
    RemoteUnavailableError,
    StoreError,
)
from cubinet.protocols import Entry, Object
from cubinet.remotes._base import BaseRemote, shorten
from cubinet.remotes._options import refuse

__all__ = ["FsspecRemote"]

_memory_locks: dict[int, threading.Lock] = {}
_TIMES = ("mtime", "LastModified", "last_modified", "updated", "created")


class FsspecRemote(BaseRemote):
    """`scheme://where/prefix`. Options are those of fsspec's class for the scheme."""

    def __init__(self, url: str, options: Mapping[str, object] | None = None) -> None:
        super().__init__(url, options)
        self._scheme = url.partition("://")[0]
        self._memory = self._scheme == "memory"
        self.conditional = self._memory
        self._made: tuple[int, Any, str] | None = None

    def _settle(self) -> None:
        if self._made is not None and self._made[0] == os.getpid():
            return
        with self._lock:
            if self._made is None or self._made[0] != os.getpid():
                fs = self._make()
                self._made = os.getpid(), fs, fs._strip_protocol(self._address).rstrip("/")  # noqa: SLF001

    def _make(self) -> Any:
        try:
            import fsspec
        except ImportError as exc:
            finding = f"fsspec cannot be imported ({exc})"
            raise RemoteMisconfiguredError("use", self.url, finding, "install fsspec") from exc
        try:
            kind = fsspec.get_filesystem_class(self._scheme)
        except ValueError as exc:
            raise ConfigError("use remote", self.url, shorten(exc), "check the URL's scheme") from exc
        except ImportError as exc:
            raise RemoteMisconfiguredError("use", self.url, shorten(exc), "install that package") from exc
        rules = set() if self._memory else _own_parameters(kind)
        for name in self._options:
            if rules is not None and name not in rules:
                refuse(self.url, name, "there is no such option", f"known: {', '.join(sorted(rules)) or 'none'}")
        try:
            given = {**kind._get_kwargs_from_urls(self._address), **self._options}  # noqa: SLF001
            return kind(**given, skip_instance_cache=not self._memory, use_listings_cache=False)
        except (TypeError, ValueError) as exc:
            raise ConfigError("use remote", self.url, shorten(exc), "check its options") from exc

    @property
    def _fs(self) -> Any:
        self._settle()
        return self._made[1] if self._made else None

    def _path(self, name: str) -> str:
        self._settle()
        return f"{self._made[2] if self._made else ''}/{name}"

    # `_settle` may connect (sftp does), so it runs with the call, under the deadline.
    def _start(self, body: Any, args: tuple[Any, ...], timeout: float) -> Any:  # noqa: ARG002
        return self._deadline.start(body, args)

    def prepare(self) -> None:
        """Import fsspec and the file system. Raises `ConfigError` or `RemoteMisconfiguredError`."""
        self._run("use", self._settle, timeout=10.0)

    def _get(self, name: str, timeout: float, limit: int | None) -> Object | None:  # noqa: ARG002
        try:  # one byte more tells too much from enough
            data = self._fs.cat_file(self._path(name), start=None, end=None if limit is None else limit + 1)
        except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
            return None
        if limit is not None and len(data) > limit:
            finding = f"more than the {limit} bytes that belong there"
            raise RemoteMisconfiguredError(f"read {name} from", self.url, finding)
        if self._memory:
            return Object(bytes(data), _tag(data), _time(self._fs.info(self._path(name))))
        return Object(bytes(data))

    def _put(self, name: str, data: bytes, timeout: float, create: bool, match: str) -> bool:  # noqa: ARG002, FBT001
        path = self._path(name)
        if self._memory:
            with _memory_locks.setdefault(os.getpid(), threading.Lock()):
                if (create or match) and (there := self._fs.exists(path)) is not bool(match):
                    return False
                if match and there and _tag(self._fs.cat_file(path)) != match:
                    return False
                self._fs.pipe_file(path, bytes(data))
            return True
        try:
            self._fs.pipe_file(path, bytes(data))
        except FileNotFoundError:  # a file system with real folders
            self._fs.makedirs(path.rpartition("/")[0], exist_ok=True)
            self._fs.pipe_file(path, bytes(data))
        return True

    def _stat(self, name: str, timeout: float) -> Entry | None:  # noqa: ARG002
        try:
            info = self._fs.info(self._path(name))
        except (FileNotFoundError, NotADirectoryError):
            return None
        return Entry(name, int(info["size"] or 0), _time(info)) if info["type"] == "file" else None

    def _delete(self, names: Sequence[str], timeout: float) -> None:  # noqa: ARG002
        for name in names:
            try:
                self._fs.rm_file(self._path(name))
            except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
                continue

    def _pages(self, prefix: str, timeout: float) -> Iterator[list[Entry]]:  # noqa: ARG002
        top, root = self._path(prefix.rpartition("/")[0]).rstrip("/"), self._path("")
        try:
            found = self._fs.find(top, detail=True)
        except FileNotFoundError:
            return
        whole = [(path.removeprefix(root), info) for path, info in found.items()]
        yield [Entry(name, int(info["size"] or 0), _time(info)) for name, info in whole if name.startswith(prefix)]

    def _explain(self, action: str, exc: BaseException) -> Exception:
        if isinstance(exc, PermissionError):
            return RemoteDeniedError(action, self.url, shorten(exc), "check its credentials")
        if isinstance(exc, FileNotFoundError | NotImplementedError) or getattr(exc, "errno", None) == errno.EROFS:
            return RemoteMisconfiguredError(action, self.url, shorten(exc), "check its address")
        if isinstance(exc, StoreError):
            return exc
        return RemoteUnavailableError(action, self.url, f"{type(exc).__name__}: {shorten(exc)}")

    def close(self) -> None:
        """Let go of the file system."""
        self._made = None


def _own_parameters(kind: type) -> set[str] | None:
    """The options that a file system class names; `None` if it passes others on to somebody else."""
    names: set[str] = set()
    for base in kind.__mro__:
        init = base.__dict__.get("__init__")
        if init is None or base.__name__ == "AbstractFileSystem" or base is object:
            continue
        rules = inspect.signature(init).parameters
        names |= {name for name, rule in rules.items() if rule.kind in (rule.POSITIONAL_OR_KEYWORD, rule.KEYWORD_ONLY)}
        if any(rule.kind is rule.VAR_KEYWORD for rule in rules.values()):
            return None
    return names - {"self"}


def _tag(data: bytes) -> str:
    return blake3(data).hexdigest(16)


def _time(info: Mapping[str, Any]) -> float:
    found = next((info[name] for name in _TIMES if info.get(name)), 0.0)
    if isinstance(found, datetime):
        return found.timestamp()
    return float(found) if isinstance(found, int | float) else 0.0
