"""What a process noted for the index and has not written yet; and a file for notes of processes that end at once."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import time
from collections.abc import Iterator

import msgspec

from cubinet._fs import Fs
from cubinet.model import Record
from cubinet.store.index.values import count, text

__all__ = ["Notes", "leave", "take"]

_LARGEST_FILE = 1 << 20
_LOCK_SECONDS = 0.2
_HEX64 = re.compile(r"[0-9a-f]{64}")


class Notes:
    """Changes of records (`None`: it is gone), uses (last, count), events (count, microseconds, bytes), and more."""

    __slots__ = ("changes", "compiles", "events", "others", "uses")  # a dataclass would take a hit longer than all else

    def __init__(self) -> None:
        self.changes: dict[str, Record | None] = {}
        self.uses: dict[str, tuple[int, int]] = {}
        self.events: dict[tuple[str, str, str], tuple[int, int, int]] = {}
        self.compiles: list[tuple[object, ...]] = []
        self.others: list[tuple[str, str, int, int]] = []

    def __len__(self) -> int:
        return len(self.changes) + len(self.uses) + len(self.events) + len(self.compiles) + len(self.others)

    def use(self, fingerprint: str, moment: int, number: int = 1) -> None:
        """Count uses of a record, the last at some moment."""
        last, before = self.uses.get(fingerprint, (moment, 0))
        self.uses[fingerprint] = (max(last, moment), before + number)

    def event(self, key: tuple[str, str, str], number: int, micros: int, size: int) -> None:
        """Count events of one kind."""
        old = self.events.get(key, (0, 0, 0))
        self.events[key] = (old[0] + number, old[1] + micros, old[2] + size)

    def add(self, later: Notes) -> None:
        """Take over what was noted later."""
        self.changes.update(later.changes)
        for fingerprint, (moment, number) in later.uses.items():
            self.use(fingerprint, moment, number)
        for key, values in later.events.items():
            self.event(key, *values)
        self.compiles += later.compiles
        self.others += later.others


@contextlib.contextmanager
def _locked(fs: Fs, path: str) -> Iterator[int]:
    """The file, which nobody else adds to or empties meanwhile.

    Raises `OSError`, also if somebody keeps it for long: whoever may read a file can lock it, and a process at its end
    must not wait for that.
    """
    fd = fs.open_lock(path)
    try:
        end = time.monotonic() + _LOCK_SECONDS
        while True:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > end:
                    raise
                time.sleep(0.01)
        try:
            yield fd
        finally:
            fcntl.flock(fd, fcntl.LOCK_UN)  # a child that was forked meanwhile has the descriptor too
    finally:
        os.close(fd)


def leave(fs: Fs, path: str, notes: Notes) -> bool:
    """Append uses and events to a file for a later process; `False` if there is more to write, or no room.

    Opening a database takes longer than all the rest of a process that asks for one kernel.
    """
    if notes.changes or notes.compiles or notes.others:
        return False
    fields = {
        "uses": [(name, *values) for name, values in notes.uses.items()],
        "events": [(*map(text, key), *values) for key, values in notes.events.items()],
    }
    line = msgspec.json.encode(fields) + b"\n"
    try:
        with _locked(fs, path) as fd:
            end = os.lseek(fd, 0, os.SEEK_END)
            return end + len(line) <= _LARGEST_FILE and os.write(fd, line) == len(line)
    except OSError:
        return False


def take(fs: Fs, path: str) -> Notes:
    """What others left, which is then no longer there. Lines that are none are left out."""
    found = Notes()
    try:
        if not fs.stat(path).st_size:
            return found
        with _locked(fs, path) as fd:
            data = os.read(fd, _LARGEST_FILE)
            os.ftruncate(fd, 0)
    except OSError:
        return found
    for line in data.splitlines():
        try:
            left = msgspec.json.decode(line, type=_Left)
        except (msgspec.DecodeError, RecursionError):
            continue
        for name, moment, number in left.uses:
            if _HEX64.fullmatch(name):
                found.use(name, count(moment), count(number))
        for layer, what, reason, *values in left.events:
            found.event((text(layer), text(what), text(reason)), *map(count, values))
    return found


class _Left(msgspec.Struct):
    uses: list[tuple[str, int, int]]
    events: list[tuple[str, str, str, int, int, int]]
