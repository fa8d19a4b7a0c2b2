"""Which builds were used, told to a remote in one small object a client and day instead of a request a hit.

A client is a store folder on a host, so that short-lived processes share a note. Those that never reach a remote leave
what they used in `uses/` of the folder, and the next one that has a remote open sends it; a folder sends one note a
pause, however many processes it has. Notes are advice to `remote_collect.py`: a lost one may cost a compile, never
more.
"""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, TypeVar

import msgspec
from blake3 import blake3

from cubinet._fs import Fs
from cubinet.errors import FormatError

if TYPE_CHECKING:
    from cubinet.model import Fingerprint
    from cubinet.protocols import Remote

__all__ = ["LIMIT", "NOTE_BYTES", "PAUSE", "NewerNoteError", "Usage", "dump", "load", "read_note", "write_note"]

T = TypeVar("T")

LIMIT = 1 << 16
"""Most builds that a note names, and that a process remembers until it has sent them."""

NOTE_BYTES = 8 << 20
"""Most bytes of a note."""

PAUSE = 600.0
"""Seconds between two notes of a process."""

_FILES = 16
"""Files in `uses/` above which a process that adds one makes one of them all."""

_TRIES = 3
_OURS = re.compile(r"[0-9a-f]{32}")


class Usage:
    """What this process used. Safe in threads; a forked child starts with nothing, as its parent still has it.

    Args:
        folder: of the local layer.
        clock: seconds, for the pause between notes of this process.
        now: seconds since the epoch, for the pause between notes of all processes with this folder.
    """

    def __init__(
        self,
        folder: str,
        *,
        fs: Fs | None = None,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], float] = time.time,
    ) -> None:
        self.folder, self.fs, self.clock, self.now = f"{folder}/uses", fs or Fs(), clock, now
        where = f"{os.uname().nodename}\0{os.path.realpath(folder)}"
        self.client = blake3(where.encode("utf-8", "surrogateescape")).hexdigest(8)
        self._reset()

    def _reset(self) -> None:
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._used: set[bytes] = set()
        self._next = self.clock() + PAUSE

    def note(self, fingerprint: Fingerprint) -> bool:
        """Remember a use; whether it is time to `send`, which is said once a pause."""
        if os.getpid() != self._pid:
            self._reset()
        with self._lock:
            if len(self._used) < LIMIT:
                self._used.add(fingerprint.raw)
            if self.clock() < self._next:
                return False
            self._next = self.clock() + PAUSE
            return True

    def send(self, writers: Sequence[Callable[[Collection[str]], bool]]) -> bool:
        """Give everything that was used, here and by earlier processes, to each of `writers`.

        Each gets fingerprints as hex and says whether it took them. If one did not, all are told again next time.
        Nobody is told, and `False` comes back, less than a pause after a process with this folder has told them:
        then `save`.
        """
        if os.getpid() != self._pid:
            self._reset()
        if self._sent_lately():
            return False
        with self._lock:
            mine, self._used = self._used, set()
        try:
            files, used = self._saved()
            used |= mine
            taken = not used or all([writer({raw.hex() for raw in used}) for writer in writers])  # noqa: C419 - each is told
        except BaseException:
            self._keep(mine)
            raise
        if not taken:
            self._keep(mine)
        elif used:
            self._stamp()
            for path in files:
                self.fs.discard(path)
        return taken

    def _sent_lately(self) -> bool:
        try:
            return 0 <= self.now() - self.fs.stat(f"{self.folder}/sent").st_mtime < PAUSE
        except OSError:
            return False

    def _stamp(self) -> None:
        name = f"{self.folder}/{os.urandom(16).hex()}"
        try:
            self._make_folder()
            self.fs.create(name, b"", sync=False)
            self.fs.rename(name, f"{self.folder}/sent")
        except OSError:  # then a note is written more often
            self.fs.discard(name)

    def _make_folder(self) -> None:
        self.fs.stat(os.path.dirname(self.folder))  # a store that is not there is not ours to make
        self.fs.mkdir(self.folder)

    def save(self) -> None:
        """Leave what was not sent to a later process. A folder that cannot be written costs the news, no more."""
        if os.getpid() != self._pid:
            self._reset()
        with self._lock:
            mine, self._used = self._used, set()
        if not mine:
            return
        try:
            files = list(self._files())
            if len(files) >= _FILES:
                files, more = self._saved()
                mine |= more
            else:
                files = []
            self._make_folder()
            self.fs.create(f"{self.folder}/{os.urandom(16).hex()}", b"".join(list(mine)[:LIMIT]), sync=False)
        except OSError:
            return
        for path in files:
            self.fs.discard(path)

    def _keep(self, used: Iterable[bytes]) -> None:
        with self._lock:
            self._used |= set(used)

    def _files(self) -> Iterable[str]:
        return (f"{self.folder}/{name}" for name in self.fs.list(self.folder) if _OURS.fullmatch(name))

    def _saved(self) -> tuple[list[str], set[bytes]]:
        files, used = [], set[bytes]()
        try:
            files = list(self._files())
        except OSError:
            return [], used
        for path in files:
            try:
                data = self.fs.read(path, 32 * LIMIT)
            except (OSError, ValueError):  # gone, or none of ours: it is removed with the others
                continue
            used |= {data[at : at + 32] for at in range(0, len(data) - 31, 32)}
        return files, set(list(used)[:LIMIT])


class NewerNoteError(FormatError):
    """A note by a newer release: whole, but nobody here knows what it says."""


class _Note(msgspec.Struct):
    format: int
    used: tuple[str, ...] = ()


def dump(value: object) -> bytes:
    """A value as JSON behind its check sum, in a zstd frame."""
    from cubinet.store.envelope import squeeze

    body = msgspec.json.encode(value, order="sorted")
    return squeeze(blake3(body).digest() + body)


def load(data: bytes, kind: type[T]) -> T | None:
    """The inverse; `None` if it is damaged. Nothing is unpacked that says it is larger than an object may be."""
    import zstandard

    from cubinet.store.envelope import OBJECT_LIMIT, expand

    try:
        size = zstandard.get_frame_parameters(data).content_size
        whole = expand(data, size) if 32 < size <= OBJECT_LIMIT else b""
        body = whole[32:]
        return msgspec.json.decode(body, type=kind) if whole and blake3(body).digest() == whole[:32] else None
    except (zstandard.ZstdError, FormatError, msgspec.DecodeError, RecursionError, ValueError):
        return None


def read_note(data: bytes) -> frozenset[str]:
    """The fingerprints in a note, as hex; none if it is damaged. Raises `NewerNoteError`."""
    note = load(data, _Note)
    if note is not None and note.format > 1:
        raise NewerNoteError("read usage note", "", f"format {note.format}, this release knows 1", "upgrade cubinet")
    return frozenset(note.used[:LIMIT] if note else ())


def write_note(
    remote: Remote, client: str, used: Collection[str], *, timeout: float, now: Callable[[], float] = time.time
) -> bool:
    """Add fingerprints to today's note of a client; whether it holds them. Raises `RemoteError`.

    Two requests, one if it holds them already.
    """
    until = time.monotonic() + timeout
    name = f"v1/uses/{datetime.fromtimestamp(now(), UTC):%Y-%m-%d}/{client}"
    for _ in range(_TRIES):
        left = max(until - time.monotonic(), 0.1)
        found = remote.get(name, timeout=left, limit=NOTE_BYTES)
        try:
            known = read_note(found.data) if found else frozenset[str]()
        except NewerNoteError:  # two releases in one folder: the newer one tells
            return True
        both = known.union(used)
        if found and both == known:
            return True
        data = dump(_Note(1, tuple(sorted(both)[:LIMIT])))
        left = max(until - time.monotonic(), 0.1)
        if remote.put(name, data, timeout=left, create=found is None, match=found.tag if found else ""):
            return True
    return False
