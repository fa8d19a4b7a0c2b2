"""Whether what a compiler once looked at still looks the same here, asked as cheaply as is safe.

A *stamp* of a file is (device, inode, size, mtime, ctime). A stamp that did not change since the
file was hashed proves the content, if the file was at rest then: a stamp younger than two seconds, or
one from a file system whose times come from elsewhere (NFS, FUSE, …), is not trusted beyond the
process. A name that was looked up in vain still fails if the stamp of its nearest existing folder did
not change, since every new name changes it. So 1,059 files and 2,825 failed lookups cost 1,059 stats
and 48 folder stats (`docs/explanation/performance.md`).
"""

from __future__ import annotations

import os
import stat as modes
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from operator import attrgetter

from blake3 import blake3

from cubinet._fs import Fs
from cubinet.errors import FormatError
from cubinet.model import Digest, Observation, Seen

__all__ = [
    "VOUCHED",
    "Contents",
    "Difference",
    "Sheet",
    "Stamp",
    "TreeTooLargeError",
    "path_of",
    "read_observations",
    "time_digest",
    "tree_digest",
]

YOUNG_NS = 2_000_000_000
"""A file touched less than this long ago may be written again within the same clock tick."""

TREE_LIMIT = 20_000
"""Files in a folder that is hashed whole; beyond it the result is not cacheable."""

_LOCAL_KINDS = frozenset(
    [
        "ext2",
        "ext3",
        "ext4",
        "xfs",
        "btrfs",
        "tmpfs",
        "ramfs",
        "overlay",
        "zfs",
        "f2fs",
        "bcachefs",
        "squashfs",
        "erofs",
        "iso9660",
    ]
)
_FIELDS = attrgetter("st_dev", "st_ino", "st_size", "st_mtime_ns", "st_ctime_ns")
_HEAD = "cubinet-observations 1"

Stamp = tuple[int, int, int, int, int]


class TreeTooLargeError(Exception):
    """A folder has more files than are hashed whole."""


VOUCHED = "\0vouched"
"""Stands for the folder of a label whose files need not be looked at: they are those of a pinned toolchain."""


def path_of(name: str, places: Mapping[str, str]) -> str | None:
    """Where `label:relative/path` is here; `None` for a label without a place."""
    label, _, rest = name.partition(":")
    if label == "file":
        return rest
    place = places.get(label)
    return None if place is None else f"{place}/{rest}" if rest else place


def read_observations(data: bytes) -> list[Observation]:
    """The inverse of `fingerprint.observations_bytes`. Raises `FormatError`."""
    try:
        head, *lines = data.decode("utf-8", "surrogateescape").removesuffix("\n").split("\n")
        if head != _HEAD:
            raise ValueError(head[:40])
        found = []
        for line in lines:
            seen, digest, name = line.split(" ", 2)
            if "%" in name:
                name = name.replace("%00", "\0").replace("%0A", "\n").replace("%25", "%")
            found.append(Observation(name, Seen(seen), None if digest == "-" else Digest(digest)))
    except ValueError as exc:
        raise FormatError("read observations", "", f"not a list of observations ({exc})") from exc
    return found


def _stamp(path: str) -> Stamp | None:
    try:
        found: Stamp = _FIELDS(os.stat(path))
    except (OSError, ValueError):
        return None
    return found


def nearest_folder(path: str) -> str:
    """The nearest existing folder above a path that does not exist."""
    folder = os.path.dirname(path.rstrip("/"))
    while folder not in ("", "/") and not os.path.isdir(folder):
        folder = os.path.dirname(folder)
    return folder or "."


def _above(path: str) -> tuple[str, ...]:
    """The nearest existing folders above a path, and above all that links on the way to it lead to."""
    found = []
    for _ in range(40):  # as many links as the system follows
        folder = nearest_folder(path)
        found.append(folder)
        rest = os.path.relpath(path, folder).split("/")
        link = os.path.join(folder, rest[0])
        if not os.path.islink(link):
            break
        path = os.path.join(folder, os.readlink(link), *rest[1:])
    return tuple(found)


class Mounts:
    """Which paths lie on file systems whose stamps can be trusted between processes."""

    def __init__(self) -> None:
        self._kinds: list[tuple[str, str]] | None = None
        self._known: dict[int, bool] = {}

    def trusted(self, path: str, device: int) -> bool:
        """Whether the file system under `path` keeps its own, local times."""
        if device not in self._known:
            self._known[device] = self._kind(os.path.realpath(path)) in _LOCAL_KINDS
        return self._known[device]

    def _kind(self, path: str) -> str:
        if self._kinds is None:
            self._kinds = []
            try:
                with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
                    for line in file:
                        before, _, after = line.partition(" - ")
                        point = before.split(" ")[4].encode().decode("unicode_escape")
                        self._kinds.append((point.rstrip("/") + "/", after.split(" ")[0]))
            except (OSError, IndexError):
                return ""
        best = max(
            (row for row in self._kinds if (path + "/").startswith(row[0])), key=lambda r: len(r[0]), default=("", "")
        )
        return best[1]


class Contents:
    """Digests of files, remembered in the process by stamp."""

    def __init__(self, fs: Fs | None = None, clock: Callable[[], int] = time.time_ns) -> None:
        self.fs = fs or Fs()
        self.mounts = Mounts()
        self.clock = clock
        self._known: dict[str, tuple[Stamp, str]] = {}

    def digest(self, path: str) -> tuple[Stamp, str] | None:
        """Stamp and hex digest of a regular file; `None` if there is none that can be read."""
        for _ in range(3):
            try:
                info = os.stat(path)
                if not modes.S_ISREG(info.st_mode):
                    return None
                before: Stamp = _FIELDS(info)
                known = self._known.get(path)
                if known and known[0] == before:
                    return known
                value = blake3(self.fs.read(path)).hexdigest()
            except (OSError, ValueError):
                return None
            if _stamp(path) == before:
                found = (before, value)
                if self.at_rest(before):
                    self._known[path] = found
                return found
        return None

    def trust(self, path: str, stamp: Stamp, digest: str) -> None:
        """Take over what an earlier process knew, unless this one knows better."""
        if stamp[1]:
            self._known.setdefault(path, (stamp, digest))

    def at_rest(self, stamp: Stamp) -> bool:
        """Whether the last change is long enough ago for the stamp to mean something."""
        return max(stamp[3], stamp[4]) < self.clock() - YOUNG_NS

    def lasting(self, path: str, stamp: Stamp) -> bool:
        """Whether another process may rely on this stamp."""
        return self.at_rest(stamp) and self.mounts.trusted(path, stamp[0])


def time_digest(path: str, stamp: Stamp) -> str:
    """Hex digest of the time of a file's last change in nanoseconds, and of its mode."""
    try:
        mode = os.stat(path).st_mode
    except OSError:
        mode = 0
    return blake3(f"{stamp[3]} {mode:o}".encode(), derive_key_context="cubinet time v1").hexdigest()


def tree_digest(contents: Contents, folder: str) -> str:
    """Hex digest of all names and contents under a folder, links followed.

    Raises `TreeTooLargeError` beyond `TREE_LIMIT` files.
    """
    hasher, count = blake3(derive_key_context="cubinet tree v1"), 0
    visited: dict[tuple[int, int], str] = {}
    for here, folders, files in os.walk(folder, followlinks=True):
        info = os.stat(here)
        first = visited.setdefault((info.st_dev, info.st_ino), here)
        if first != here:  # a link to what was hashed already: it counts which
            for path in (here, first):
                text = os.path.relpath(path, folder).encode("utf-8", "surrogateescape")
                hasher.update(len(text).to_bytes(8, "little") + text)
            folders.clear()
            continue
        folders.sort()
        for name in sorted(files):
            count += 1
            if count > TREE_LIMIT:
                raise TreeTooLargeError(folder)
            path = f"{here}/{name}"
            found = contents.digest(path)
            text = os.path.relpath(path, folder).encode("utf-8", "surrogateescape")
            hasher.update(len(text).to_bytes(8, "little") + text + (bytes.fromhex(found[1]) if found else bytes(32)))
    return hasher.hexdigest()


@dataclass(frozen=True, slots=True)
class Difference:
    """One observation that does not hold here: its name and what is different."""

    name: str
    what: str


@dataclass(slots=True)
class Sheet:
    """A set of observations with paths filled in for this machine.

    Attributes:
        reads: path → hex digest it must have.
        present: paths that must exist; with a trailing slash, as a folder.
        absent: paths that must not exist.
        times: path → hex digest its time must have.
        trees: folder → hex digest of everything in it.
        names: path → the observation's name, for messages.
        lost: names whose label has no place here.
        clashing: names whose path must have other content by another name.
    """

    reads: dict[str, str] = field(default_factory=dict)
    present: list[str] = field(default_factory=list)
    absent: list[str] = field(default_factory=list)
    trees: dict[str, str] = field(default_factory=dict)
    times: dict[str, str] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)
    lost: list[str] = field(default_factory=list)
    clashing: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, observations: Iterable[Observation], places: Mapping[str, str]) -> Sheet:
        """Resolve names to paths."""
        sheet = cls()
        for o in observations:
            if places.get(o.name.partition(":")[0]) == VOUCHED:
                continue
            path = path_of(o.name, places)
            if path is None:
                sheet.lost.append(o.name)
                continue
            sheet.names.setdefault(path, o.name)
            if o.seen in (Seen.READ, Seen.TREE, Seen.TIME):
                digest = o.digest.hex if o.digest else ""
                wanted = {Seen.READ: sheet.reads, Seen.TREE: sheet.trees, Seen.TIME: sheet.times}[o.seen]
                if wanted.setdefault(path, digest) != digest:  # two labels have one place here
                    sheet.clashing.append(o.name)
            else:
                (sheet.present if o.seen is Seen.PRESENT else sheet.absent).append(path)
        return sheet

    def differences(self, contents: Contents) -> Iterator[Difference]:
        """Look at everything; yield what does not hold."""
        yield from (Difference(name, "its label has no folder here") for name in self.lost)
        yield from (Difference(name, "it is the same file here as one that differs") for name in self.clashing)
        for path, digest in self.reads.items():
            found = contents.digest(path)
            if found is None:
                yield Difference(self.names[path], "is gone")
            elif found[1] != digest:
                yield Difference(self.names[path], "changed")
        yield from self._other_times(contents)
        for path in self.present:
            if not still_present(path):
                yield Difference(self.names[path], "is gone")
        for path in self.absent:
            if os.path.exists(path):
                yield Difference(self.names[path], "appeared")
        for path, digest in self.trees.items():
            try:
                same = tree_digest(contents, path) == digest
            except (TreeTooLargeError, OSError):
                same = False
            if not same:
                yield Difference(self.names[path], "something in it changed")

    def _other_times(self, contents: Contents) -> Iterator[Difference]:
        for path, digest in self.times.items():
            found = contents.digest(path)
            if found is not None and time_digest(path, found[0]) != digest:
                yield Difference(self.names[path], "has another time")

    def folders(self) -> list[str]:
        """The nearest existing folders above all absent paths, and above what links among them point to."""
        known: dict[str, tuple[str, ...]] = {}
        out: dict[str, None] = {}
        for path in self.absent:
            plain = path.rstrip("/")
            parent = os.path.dirname(plain)
            if parent not in known:
                known[parent] = (parent,) if os.path.isdir(parent) else _above(parent)
            out.update(dict.fromkeys(known[parent]))
            if os.path.islink(plain):
                out.update(dict.fromkeys(_above(plain)))
        return list(out)


def still_present(path: str) -> bool:
    """Whether a name that must exist does, as the kind of thing it was."""
    try:
        folder = modes.S_ISDIR(os.stat(path).st_mode)  # with a slash at its end, only a folder is found
    except (OSError, ValueError):
        return False
    return folder == (path[-1] == "/")


stamp_of: Callable[[os.stat_result], Stamp] = _FIELDS
"""The stamp in what `os.stat` says."""
