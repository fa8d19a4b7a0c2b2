"""From the recorder's events to observations: whose looks count, what the names are, what changed."""

from __future__ import annotations

import errno
import os
import re
import stat as modes
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from cubinet.compilers._recorder import Event
from cubinet.model import Digest, Observation, Root, Seen
from cubinet.observations import Contents, Stamp, TreeTooLargeError, path_of, still_present, tree_digest

__all__ = ["Observed", "Scene", "from_depfile", "observe"]

_IGNORED = ("/proc/", "/dev/", "/sys/", "/etc/malloc.conf")
"""Kernel windows and the allocator's tuning: none reaches the result."""

_SPECS = "specs"
"""The one file a gcc driver looks for that changes what it compiles."""


@dataclass(frozen=True, slots=True)
class Scene:
    """Where a compile took place.

    Attributes:
        folder: its private working folder.
        source: relative path of the source in it.
        places: label → absolute folder, as compilers spell it.
        front_ends: programs whose looks are looks at sources (cc1plus).
        programs: all files of the toolchain's identity.
        carriers: programs that only start others (the shell).
    """

    folder: str
    source: str
    places: Mapping[str, str]
    front_ends: Collection[str]
    programs: Collection[str]
    carriers: Collection[str] = ("sh", "dash", "bash", "rm")

    def name_of(self, path: str) -> str | None:
        """`label:relative` for a path as the compiler spelled it; `None` for its own files."""
        if path.startswith(self.folder + "/"):
            path = path[len(self.folder) + 1 :]
        while path.startswith("./"):
            path = path[2:].lstrip("/")
        if not path.startswith("/"):
            top, _, rest = path.partition("/")
            if top != "include" or not rest:
                return None
            label, _, rest = rest.partition("/")
            return f"{label}:{rest}" if label in self.places else None
        if path == self.folder or path.startswith(_IGNORED):
            return None
        best = ""
        for label, place in self.places.items():
            if (path == place or path.startswith(place + "/")) and len(place) > len(self.places.get(best, "")):
                best = label
        return f"{best}:{path[len(self.places[best]) + 1 :]}" if best else f"file:{path}"


@dataclass(frozen=True, slots=True)
class Observed:
    """What a compile looked at, and what is wrong with keeping its result."""

    observations: tuple[Observation, ...]
    uncacheable: str = ""
    local_only: str = ""
    distrust: str = ""


def observe(events: Iterable[Event], scene: Scene, contents: Contents, started_ns: int) -> Observed:
    """Turn events into observations; check that nothing changed since the compiler looked."""
    reads: dict[str, Stamp] = {}
    present: dict[str, None] = {}
    absent: dict[str, None] = {}
    programs: dict[int, str] = {}
    starting: dict[int, str] = {}
    trouble: list[str] = []
    for event in events:
        if event.op == "S":
            programs[event.pid] = event.path
            starting.pop(event.pid, None)
        elif event.op == "X":
            starting[event.pid] = event.path
        elif event.op == "F":
            starting.pop(event.pid, None)
        else:
            by = programs.get(event.pid, "")
            if by in scene.front_ends:
                _look(event, scene, reads, present, absent, trouble)
            else:
                _driver(event, scene, by, absent, trouble)
    unknown = [p for p in programs.values() if p not in scene.programs and os.path.basename(p) not in scene.carriers]
    if unknown:
        trouble.append(f"a program ran that does not belong to the toolchain: {unknown[0]}")
    distrust = ""
    if starting:
        distrust = f"{next(iter(starting.values()))} ran unrecorded (a static program?)"
    elif not set(programs.values()) & set(scene.front_ends):
        distrust = "the front end ran unrecorded"
    observations, changed = _settle(reads, present, absent, scene, contents, started_ns)
    outside = next((o.name for o in observations if o.name.startswith("file:")), "")
    return Observed(
        observations,
        uncacheable=changed or (trouble[0] if trouble else ""),
        local_only=f"it depends on {outside[5:]}, which is under no root" if outside else "",
        distrust=distrust,
    )


def _look(
    event: Event,
    scene: Scene,
    reads: dict[str, Stamp],
    present: dict[str, None],
    absent: dict[str, None],
    trouble: list[str],
) -> None:
    name = scene.name_of(event.path)
    if event.op == "W":
        if name is not None:
            trouble.append(f"the compiler wrote outside its folder: {event.path}")
    elif name is None:
        return
    elif event.op == "A":
        if event.error in (errno.EACCES, errno.ELOOP, errno.EIO):
            trouble.append(f"{event.path} could not be looked at: {os.strerror(event.error)}")
        elif event.error != errno.ENAMETOOLONG:
            absent[name] = None
    elif event.op in "DL":
        trouble.append(f"the compiler listed or loaded {event.path}")
    elif modes.S_ISDIR(event.mode):
        present[name.rstrip("/") + "/"] = None
    elif event.op == "R":
        if reads.setdefault(name, event.stamp) != event.stamp:
            trouble.append(f"{name} changed while compiling")
    elif event.op == "P":
        present[name] = None


def _driver(event: Event, scene: Scene, by: str, absent: dict[str, None], trouble: list[str]) -> None:
    """Drivers, code generators and shells may read their own files and each other's, nothing else."""
    if event.op == "A" and os.path.basename(event.path) == _SPECS:
        lib = scene.places.get("hostlib", "")
        if lib and event.path.startswith(os.path.dirname(lib)):
            absent[f"hostlib:{os.path.relpath(event.path, lib)}"] = None
    elif event.op in "RL" and event.path.startswith("/") and not modes.S_ISDIR(event.mode):
        if event.path.startswith((scene.folder + "/", *_IGNORED)):
            return
        if os.path.realpath(event.path) not in scene.programs and (event.op == "R" or event.error == 0):
            trouble.append(f"{os.path.basename(by) or 'a program'} read {event.path}, which nothing accounts for")


def _settle(
    reads: Mapping[str, Stamp],
    present: Iterable[str],
    absent: Iterable[str],
    scene: Scene,
    contents: Contents,
    started_ns: int,
) -> tuple[tuple[Observation, ...], str]:
    out: list[Observation] = []
    changed = ""
    for name, stamp in reads.items():
        found = contents.digest(path_of(name, scene.places) or "")
        if found is None or found[0] != stamp or stamp[4] > started_ns:
            changed = changed or f"{name} changed while compiling"
        if found is not None:
            out.append(Observation(name, Seen.READ, Digest(found[1])))
    for name in present:
        if name in reads:
            continue
        if not still_present(path_of(name, scene.places) or ""):
            changed = changed or f"{name} went away while compiling"
        out.append(Observation(name, Seen.PRESENT))
    for name in absent:
        if os.path.exists(path_of(name, scene.places) or ""):
            changed = changed or f"{name} appeared while compiling"
        out.append(Observation(name, Seen.ABSENT))
    return tuple(out), changed


_DEP_BREAK = re.compile(r"\\\n")
_DEP_WORD = re.compile(r"(?:\\ |[^ \n])+")


def from_depfile(
    text: str, roots: Sequence[Root], scene: Scene, contents: Contents, started_ns: int
) -> Observed:
    """The fallback: files from the compiler's dependency file, and every root hashed whole.

    A dependency file lists neither failed lookups nor `__has_include`; whole folders cover both for
    the caller's roots, not for the toolkit's and the host compiler's own folders.
    """
    _, _, listed = _DEP_BREAK.sub(" ", text).partition(" : ")
    names = [scene.name_of(word.replace("\\ ", " ")) for word in _DEP_WORD.findall(listed)]
    trees = {root.label: root.path for root in roots}
    out: list[Observation] = []
    for name in {n: None for n in names if n is not None and n.partition(":")[0] not in trees}:
        found = contents.digest(path_of(name, scene.places) or "")
        if found is None or found[0][4] > started_ns:
            return Observed((), uncacheable=f"{name} changed while compiling")
        out.append(Observation(name, Seen.READ, Digest(found[1])))
    try:
        out += (Observation(f"{label}:", Seen.TREE, Digest(tree_digest(contents, p))) for label, p in trees.items())
    except TreeTooLargeError as exc:
        return Observed((), uncacheable=f"{exc} is too large to hash whole, and the recorder is not trusted")
    outside = next((o.name for o in out if o.name.startswith("file:")), "")
    return Observed(tuple(out), local_only=f"it depends on {outside[5:]}, which is under no root" if outside else "")
