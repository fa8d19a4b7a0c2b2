"""From the recorder's events to observations: whose looks count, what the names are, what changed."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat as modes
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from cubinet.compilers._recorder import Event
from cubinet.model import Digest, Observation, Root, Seen
from cubinet.observations import Contents, Stamp, TreeTooLargeError, path_of, still_present, time_digest, tree_digest

__all__ = ["Observed", "Scene", "from_depfile", "observe", "observe_all", "trees_of"]

_DEVICES = ("null", "zero", "full", "random", "urandom", "tty", "pts/", "fd/", "stdin", "stdout", "stderr")
_IGNORED = ("/proc/", "/sys/", "/etc/malloc.conf", *(f"/dev/{name}" for name in _DEVICES))
"""Kernel windows, devices and the allocator's tuning: none reaches the result."""

_WAY_OUT = re.compile(r"/proc/[^/]+/(root|cwd|fd|map_files|task/.*)(/|$)|/dev/fd/")
"""Names below kernel windows that lead to files."""

_SPECS = "specs"
"""The one file a gcc driver looks for that changes what it compiles."""


@dataclass(frozen=True, slots=True)
class Scene:
    """Where a compile took place.

    Attributes:
        folder: its private working folder.
        places: label → absolute folder, as compilers spell it.
        beside: whether `src/` is the caller's own folder, and not one with the source alone.
        front_ends: programs whose looks are looks at sources (cc1plus).
        spelled: labels of folders that compilers name by their absolute path: their own, and roots if files
            are compiled where they are. Any other absolute path is one that a source spells out.
        timed: whether times of files reach the result, as they do in line tables.
        programs: all files of the toolchain's identity.
        carriers: programs that only start others (the shell).
    """

    folder: str
    places: Mapping[str, str]
    beside: bool
    front_ends: Collection[str]
    programs: Collection[str]
    carriers: Collection[str] = ("sh", "dash", "bash", "rm")
    spelled: Collection[str] = ()
    timed: bool = False

    def name_of(self, path: str) -> str | None:
        """`label:relative` for a path as the compiler spelled it; `None` for its own files."""
        if path == self.folder:
            return None
        if path.startswith(self.folder + "/"):
            path = path[len(self.folder) + 1 :]
        if not path.startswith("/"):
            return self._inside(path)
        if path.startswith(_IGNORED):
            return None
        best = ""
        for label in self.spelled:
            place = self.places[label]
            if (path == place or path.startswith(place + "/")) and len(place) > len(self.places.get(best, "")):
                best = label
        return f"{best}:{path[len(self.places[best]) + 1 :]}" if best else f"file:{path}"

    def _inside(self, path: str) -> str | None:
        """The name of a path below the private folder, or of one that leads out of it again."""
        parts = [part for part in path.split("/") if part not in ("", ".")]
        here: list[str] = []
        for i, part in enumerate(parts):
            rest = "/".join(parts[i:])
            if here == ["src"] and self.beside:
                return f"src:{rest}"
            if len(here) == 2 and here[0] == "include":  # a link: what follows is seen from where it leads
                return f"{here[1]}:{rest}" if here[1] in self.places else None
            if part == "..":
                if not here:  # above the folder: a place of this machine
                    return f"file:{os.path.normpath(f'{self.folder}/{rest}')}"
                here.pop()
            else:
                here.append(part)
        if here == ["src"] and self.beside:
            return "src:"
        return f"{here[1]}:" if len(here) == 2 and here[0] == "include" and here[1] in self.places else None


@dataclass(frozen=True, slots=True)
class Observed:
    """What a compile looked at, and what is wrong with keeping its result."""

    observations: tuple[Observation, ...]
    uncacheable: str = ""
    local_only: str = ""
    distrust: str = ""

    def joined(self, more: Observed) -> Observed:
        """What this and a later step looked at, together."""
        looks = dict.fromkeys((*self.observations, *more.observations))
        return Observed(
            tuple(looks), self.uncacheable or more.uncacheable, self.local_only or more.local_only, self.distrust
        )


@dataclass(slots=True)
class _Looks:
    """What has been seen so far: names by kind, and whatever forbids keeping the result."""

    scene: Scene
    reads: dict[str, Stamp] = field(default_factory=dict)
    present: dict[str, Stamp | None] = field(default_factory=dict)
    absent: dict[str, None] = field(default_factory=dict)
    folders: dict[str, tuple[int, int]] = field(default_factory=dict)
    trouble: list[str] = field(default_factory=list)

    def by_front_end(self, event: Event) -> None:
        """Every look of a front end is a look at sources."""
        name = self.scene.name_of(event.path)
        if name is None:
            self._by_nobody(event.path)
        elif event.op == "W":
            self.trouble.append(f"the compiler wrote outside its folder: {event.path}")
        elif event.op == "A":
            if event.error in (errno.EACCES, errno.ELOOP, errno.EIO):
                self.trouble.append(f"{event.path} could not be looked at: {os.strerror(event.error)}")
            elif event.error != errno.ENAMETOOLONG:
                self.absent[name] = None
        elif event.op == "D":
            self.trouble.append(f"the compiler listed {event.path}")
        elif modes.S_ISDIR(event.mode):
            name = name.rstrip("/") + "/"
            self.present[name] = None
            if self.folders.setdefault(name, event.stamp[:2]) != event.stamp[:2]:
                self.trouble.append(f"{name} became another folder while compiling")
        elif event.op == "R":
            if self.reads.setdefault(name, event.stamp) != event.stamp:
                self.trouble.append(f"{name} changed while compiling")
        elif event.op == "P":
            self.present[name] = event.stamp

    def _by_nobody(self, path: str) -> None:
        if _WAY_OUT.match(path):
            self.trouble.append(f"{path} was looked at, which leads anywhere")

    def by_other(self, event: Event, program: str) -> None:
        """Drivers, code generators and shells may read their own files and each other's, nothing else."""
        if event.op == "A" and os.path.basename(event.path) == _SPECS:
            lib = self.scene.places.get("hostlib", "")
            near = lib and event.path.startswith(os.path.dirname(lib) + "/")
            self.absent[f"hostlib:{os.path.relpath(event.path, lib)}" if near else f"file:{event.path}"] = None
            return
        if self.scene.timed and os.path.basename(program) in _LINE_TABLE_WRITERS and event.path.startswith("/"):
            self._by_line_table_writer(event)
        if event.op != "R" or not event.path.startswith("/") or modes.S_ISDIR(event.mode) or event.error:
            return
        if event.path.startswith((self.scene.folder + "/", *_IGNORED)):
            return
        if os.path.realpath(event.path) not in self.scene.programs:
            by = os.path.basename(program) or "a program"
            self.trouble.append(f"{by} read {event.path}, which nothing accounts for")

    def _by_line_table_writer(self, event: Event) -> None:
        """A line table has the times of its files; a `#line` may name one that no front end looked at."""
        if event.path.startswith((self.scene.folder + "/", *_IGNORED)) or modes.S_ISDIR(event.mode):
            return
        name = self.scene.name_of(event.path)
        if name is not None and os.path.realpath(event.path) not in self.scene.programs:
            if event.op == "P":
                self.present.setdefault(name, event.stamp)
            elif event.op == "A":
                self.absent[name] = None

    def settle(self, contents: Contents, started_ns: int) -> tuple[tuple[Observation, ...], str]:
        """The observations, and what changed since the compiler looked."""
        out: list[Observation] = []
        changed: list[str] = []
        places = self.scene.places
        for name, stamp in self.reads.items():
            found = contents.digest(path_of(name, places) or "")
            if found is None or found[0] != stamp or stamp[4] > started_ns:
                changed.append(f"{name} changed while compiling")
            if found is not None:
                out.append(Observation(name, Seen.READ, Digest(found[1])))
                if self.scene.timed:
                    out.append(Observation(name, Seen.TIME, Digest(time_digest(path_of(name, places) or "", found[0]))))
        for name in self.present:
            if name in self.reads:
                continue
            if not still_present(path_of(name, places) or ""):
                changed.append(f"{name} went away while compiling")
            out.append(Observation(name, Seen.PRESENT))
            known = self.present[name]
            if self.scene.timed and known is not None:  # a `#line` names it: its time is in the line table
                out.append(Observation(name, Seen.TIME, Digest(time_digest(path_of(name, places) or "", known))))
        changed += self._replaced_folders()
        for name in self.absent:
            if os.path.exists(path_of(name, places) or ""):
                changed.append(f"{name} appeared while compiling")
            out.append(Observation(name, Seen.ABSENT))
        return tuple(out), changed[0] if changed else self._known_already() or _taken_for_one(out, places)

    def _replaced_folders(self) -> Iterator[str]:
        """Compilers search a folder only once, however many names it has."""
        for name, identity in self.folders.items():
            with contextlib.suppress(OSError):
                info = os.stat(path_of(name, self.scene.places) or "")
                if (info.st_dev, info.st_ino) != identity:
                    yield f"{name} became another folder while compiling"

    def _known_already(self) -> str:
        """Why the result depends on two names being one file; usually an empty text.

        NVRTC does not open a file with `#pragma once` that it has read by another name: it asks for its inode.
        """
        read = {stamp[:2]: name for name, stamp in self.reads.items()}
        for name, stamp in self.present.items():
            first = read.get(stamp[:2]) if stamp is not None and name not in self.reads else None
            if first is not None and os.path.normpath(first) != os.path.normpath(name):
                return f"{first} and {name} are one file here, and one was read for both"
        return ""


_ONCE = re.compile(rb"^[ \t]*#[ \t]*(pragma[ \t]+once|import)\b|_Pragma\s*\(\s*\"once\"", re.MULTILINE)


def _taken_for_one(observations: Iterable[Observation], places: Mapping[str, str]) -> str:
    """Why the result depends on times of files; usually an empty text.

    gcc reads a file with `#pragma once` a second time only if its time, size or content differ from the
    first: of two equal files in two places it skips one, or not, as their times happen to be.
    """
    paths: dict[Digest, dict[str, str]] = {}
    for o in observations:
        if o.digest is not None and o.seen is Seen.READ:
            # by name, not by where links lead: a link may be a copy tomorrow
            paths.setdefault(o.digest, {})[os.path.normpath(path_of(o.name, places) or "")] = o.name
    for found in paths.values():
        if len(found) > 1:
            first, second, *_ = found.items()
            try:
                content = Path(first[0]).read_bytes()
            except OSError:
                continue
            if _ONCE.search(content):
                return f"{first[1]} and {second[1]} are equal and have #pragma once: their times decide"
    return ""


def observe_all(events: Iterable[Event], scene: Scene, contents: Contents, started_ns: int) -> Observed:
    """The same for events that are all looks at sources, as those of an NVRTC worker while it compiles."""
    looks = _Looks(scene)
    for event in events:
        looks.by_front_end(event)
    observations, changed = looks.settle(contents, started_ns)
    trouble = changed or (looks.trouble[0] if looks.trouble else "")
    return Observed(observations, uncacheable=trouble, local_only=_outside(observations))


def observe(events: Iterable[Event], scene: Scene, contents: Contents, started_ns: int) -> Observed:
    """Turn events into observations; check that nothing changed since the compiler looked."""
    looks = _Looks(scene)
    programs: dict[int, str] = {}
    starting: dict[int, str] = {}
    for event in events:
        if event.op == "S":
            programs[event.pid] = event.path
            starting.pop(event.pid, None)
        elif event.op == "X":
            starting[event.pid] = event.path
        elif event.op == "F":
            starting.pop(event.pid, None)
        elif programs.get(event.pid) in scene.front_ends:
            looks.by_front_end(event)
        else:
            looks.by_other(event, programs.get(event.pid, ""))
    for program in programs.values():
        if program not in scene.programs and os.path.basename(program) not in scene.carriers:
            looks.trouble.append(f"a program ran that does not belong to the toolchain: {program}")
    distrust = ""
    if starting:
        distrust = f"{next(iter(starting.values()))} ran unrecorded (a static program?)"
    elif not set(programs.values()) & set(scene.front_ends):
        distrust = "the front end ran unrecorded"
    observations, changed = looks.settle(contents, started_ns)
    trouble = changed or (looks.trouble[0] if looks.trouble else "")
    return Observed(observations, uncacheable=trouble, local_only=_outside(observations), distrust=distrust)


def _outside(observations: Iterable[Observation]) -> str:
    name = next((o.name for o in observations if o.name.startswith("file:")), "")
    return f"it depends on {name[5:]}, which is under no root" if name else ""


_LINE_TABLE_WRITERS = ("cicc", "ptxas")

_DEP_BREAK = re.compile(r"\\\n")
_DEP_WORD = re.compile(r"(?:\\ |[^ \n])+")


def trees_of(roots: Sequence[Root], contents: Contents) -> dict[str, str]:
    """Label → digest of everything under each root. Raises `TreeTooLargeError`, `OSError`."""
    return {root.label: tree_digest(contents, root.path) for root in roots}


def from_depfile(
    text: str, roots: Sequence[Root], scene: Scene, contents: Contents, started_ns: int, *, before: Mapping[str, str]
) -> Observed:
    """The fallback: files from the compiler's dependency file, and every root hashed whole.

    A dependency file lists neither failed lookups nor `__has_include`; whole folders cover both for
    the caller's roots, not for the toolkit's and the host compiler's own folders. `before` is what
    `trees_of` said before the compile.
    """
    _, _, listed = _DEP_BREAK.sub(" ", text).partition(" : ")
    names = [scene.name_of(word.replace("\\ ", " ")) for word in _DEP_WORD.findall(listed)]
    read: list[Observation] = []
    for name in {n: None for n in names if n is not None}:
        found = contents.digest(path_of(name, scene.places) or "")
        if found is None or found[0][4] > started_ns:
            return Observed((), uncacheable=f"{name} changed while compiling")
        read.append(Observation(name, Seen.READ, Digest(found[1])))
    try:
        trees = trees_of(roots, contents)
    except (TreeTooLargeError, OSError) as exc:
        return Observed((), uncacheable=f"{exc} cannot be hashed whole, and the recorder is not trusted")
    if trees != before:
        return Observed((), uncacheable="something under a root changed while compiling")
    # what a root's digest covers need not be named again; what lies beside it must be
    out = [o for o in read if o.name.partition(":")[0] not in trees or ".." in o.name.partition(":")[2].split("/")]
    out += (Observation(f"{label}:", Seen.TREE, Digest(digest)) for label, digest in trees.items())
    return Observed(tuple(out), uncacheable=_taken_for_one(read, scene.places), local_only=_outside(out))
