"""What was learned about a compiler, kept beside the store and believed while every file has its stamp."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Generic, Protocol, TypeVar

import msgspec
from blake3 import blake3

from cubinet.registry import Workshop

__all__ = ["Memo", "stamps_of"]

_HEAD = b"cubinet-toolchain 1 "


class _Learned(Protocol):
    @property
    def watched(self) -> list[str]: ...
    @property
    def stamps(self) -> list[list[int]]: ...


T = TypeVar("T", bound=_Learned)


def stamps_of(infos: Sequence[os.stat_result]) -> list[list[int]]:
    """The stamps of files, comparable and storable."""
    return [[i.st_dev, i.st_ino, i.st_size, i.st_mtime_ns, i.st_ctime_ns] for i in infos]


class Memo(Generic[T]):
    """Facts of one kind by name: in the process, then in the workshop's folder."""

    def __init__(self, workshop: Workshop, kind: type[T]) -> None:
        self.workshop = workshop
        self._known: dict[str, T] = {}
        self._decoder = msgspec.json.Decoder(kind)

    def get(self, name: str, learn: Callable[[], T]) -> T:
        """The facts with this name; learned anew if a file they rest on changed."""
        known = self._known.get(name) or self._read(name)
        if known is None or not self.unchanged(known):
            known = learn()
            self._write(name, known)
        self._known[name] = known
        return known

    def unchanged(self, known: T) -> bool:
        """Whether every file these facts rest on has its stamp still."""
        try:
            return stamps_of(self.workshop.fs.stats(known.watched)) == known.stamps
        except OSError:
            return False

    def _path(self, name: str) -> str:
        return f"{self.workshop.folder}/toolchain-{name}.json"

    def _read(self, name: str) -> T | None:
        if self.workshop.folder is None:
            return None
        try:
            data = self.workshop.fs.read(self._path(name))
            body = data[len(_HEAD) + 65 :]
            if data.startswith(_HEAD) and data[len(_HEAD) : len(_HEAD) + 64] == blake3(body).hexdigest().encode():
                return self._decoder.decode(body)
        except (OSError, msgspec.DecodeError):
            pass
        return None

    def _write(self, name: str, known: T) -> None:
        if self.workshop.folder is None:
            return
        body = msgspec.json.encode(known)
        temporary = f"{self._path(name)}.{os.getpid()}.{os.urandom(4).hex()}"
        try:
            self.workshop.fs.mkdir(self.workshop.folder)
            self.workshop.fs.create(temporary, _HEAD + blake3(body).hexdigest().encode() + b"\n" + body, sync=False)
            self.workshop.fs.rename(temporary, self._path(name))
        except OSError:  # a full or read-only store: learned again next time
            self.workshop.fs.discard(temporary)
