"""Why a lookup hit, or what it would have needed to.

A replay: the request's named parts against those of the nearest known build, and each observation of that
build against what is here. What is compared is what was hashed, so there is always an answer.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from cubinet.errors import FormatError
from cubinet.fingerprint import fingerprint_of, part_digests
from cubinet.model import Action, Digest, Fingerprint, Record
from cubinet.protocols import Request
from cubinet.store.format import decode_request
from cubinet.store.layered import Layered

__all__ = ["Change", "Explanation", "explain"]


@dataclass(frozen=True, slots=True)
class Change:
    """One thing that differs: a named part or an observation, and how."""

    what: str
    name: str
    detail: str


@dataclass(frozen=True, slots=True)
class Explanation:
    """The answer.

    Attributes:
        outcome: `hit`, `miss` or `uncacheable`.
        summary: one sentence.
        action: of what was asked for.
        fingerprint: of the build that hit.
        nearest: the known build that was compared with, if it was no hit.
        relation: how that build was chosen.
        changes: everything that differs from it; empty for a hit.
    """

    outcome: str
    summary: str
    action: Action
    fingerprint: Fingerprint | None = None
    nearest: Fingerprint | None = None
    relation: str = ""
    changes: tuple[Change, ...] = ()


def explain(layers: Layered, request: Request, action: Action, parts: Sequence[tuple[str, bytes]]) -> Explanation:
    """Replay the lookup of a request and say how it ends, and why."""
    if request.uncacheable:
        return Explanation("uncacheable", f"it is never stored: {request.uncacheable}", action)
    closest: tuple[list[Change], Fingerprint] | None = None
    for observations in layers.local.candidates(action):
        fingerprint = fingerprint_of(action, observations)
        changes = _observations(layers, request, observations)
        if not changes:
            record = layers.local.find(fingerprint)
            ref = record.blob(record.kind) if record else None
            if record and ref and layers.local.read(ref) is not None:
                counts = ", ".join(f"{count} {seen}" for seen, count in record.observation_counts)
                summary = f"the {layers.local.name} layer has it, and all it looked at is the same here ({counts})"
                return Explanation("hit", summary, action, fingerprint)
            changes = [Change("layer", layers.local.name, "its record or its object is gone or damaged")]
        if closest is None or len(changes) < len(closest[0]):
            closest = changes, fingerprint
    if closest is not None:
        changes, fingerprint = closest
        return _miss(action, fingerprint, "the same action", changes)
    return _unlike(layers, request, action, parts)


def _observations(layers: Layered, request: Request, observations: Digest) -> list[Change]:
    data = layers.local.read_named(observations)
    if data is None:
        return [Change("layer", layers.local.name, "its list of observations is gone or damaged")]
    try:
        found = layers.checker.differences(data, request.places)
    except FormatError as exc:
        return [Change("layer", layers.local.name, str(exc))]
    return [Change("observation", difference.name, difference.what) for difference in found]


def _unlike(layers: Layered, request: Request, action: Action, parts: Sequence[tuple[str, bytes]]) -> Explanation:
    """No build has this action: compare with the one that comes closest."""
    variant, mine = request.variant, dict(part_digests(parts))
    best: tuple[int, int, Record, str] | None = None
    for fingerprint in layers.local.fingerprints():
        record = layers.local.find(fingerprint)
        if record is None:
            continue
        theirs = dict(record.parts)
        if record.action == action:
            rank, relation = 2, "the same action, though its manifest is lost"
        elif (record.family or record.name) and (record.family, record.name) == (variant.family, variant.name):
            rank, relation = 0, "the same family and name"
        elif theirs.get("source") == mine["source"]:
            rank, relation = 1, "the same source"
        else:
            continue
        differing = sum(theirs.get(name) != digest for name, digest in mine.items())
        if best is None or (rank, differing) < best[:2]:
            best = rank, differing, record, relation
    if best is None:
        summary = (
            f"the {layers.local.name} layer has no build of this family and name, source or action: it is new here"
        )
        return Explanation("miss", summary, action)
    _, _, record, relation = best
    changes = list(_parts(request, record, mine, _arguments(layers, record)))
    if not changes:
        changes = _observations(layers, request, record.observations)
    return _miss(action, record.fingerprint, relation, changes)


def _miss(action: Action, nearest: Fingerprint, relation: str, changes: list[Change]) -> Explanation:
    first = changes[0] if changes else Change("layer", "", "the manifest that names it is lost")
    more = f", and {len(changes) - 1} more" if len(changes) > 1 else ""
    text = " ".join(filter(None, (first.what if first.what != "observation" else "", first.name, first.detail)))
    summary = f"compared with {nearest.hex[:12]} ({relation}): {text}{more}"
    return Explanation("miss", summary, action, nearest=nearest, relation=relation, changes=tuple(changes))


def _arguments(layers: Layered, record: Record) -> Sequence[str] | None:
    """The canonical arguments of a build; `None` if they were not kept."""
    ref = record.blob("request")
    data = layers.local.read(ref) if ref else None
    try:
        return decode_request(data).arguments if data is not None else None
    except FormatError:
        return None


def _parts(request: Request, record: Record, mine: dict[str, str], arguments: Sequence[str] | None) -> Iterable[Change]:
    theirs = dict(record.parts)
    for name, digest in mine.items():
        if theirs.get(name) != digest:
            yield Change("part", name, _detail(name, request, record, arguments))
    for name in theirs.keys() - mine.keys():
        yield Change("part", name, "it was there then, and is not now")


def _detail(name: str, request: Request, record: Record, arguments: Sequence[str] | None) -> str:
    variant = request.variant
    if name == "arguments":
        return _lists(arguments, request.arguments) if arguments is not None else "its arguments were not kept"
    if name == "toolchain":
        return _toolchain(request, record)
    if name == "roots":
        return "the include roots differ: now " + (", ".join(f"{r.kind}:{r.label}" for r in request.roots) or "none")
    if name == "entries":
        return _lists(record.entries, variant.entries)
    simple = {
        "target": (str(record.target), str(variant.target)),
        "kind": (record.kind, variant.kind),
        "compiler": (record.toolchain.name, variant.compiler),
        "source name": ("another one", variant.source_name),
    }
    if name in simple:
        was, now = simple[name]
        return f"{was} → {now}"
    return "its content changed"


def _lists(was: Sequence[str], now: Sequence[str]) -> str:
    """What left and what came, as `-O3 → -O2`."""
    gone, come = [word for word in was if word not in now], [word for word in now if word not in was]
    if not gone and not come:
        return f"in another order: {' '.join(now)}"
    return f"{' '.join(gone) or 'nothing'} → {' '.join(come) or 'nothing'}"


def _toolchain(request: Request, record: Record) -> str:
    was, now = record.toolchain, request.toolchain
    before = {program.role: program.digest for program in was.programs}
    after = {program.role: program.digest for program in now.programs}
    changed = [
        role for role in (*before, *(r for r in after if r not in before)) if before.get(role) != after.get(role)
    ]
    versions = f"{was.name} {was.version} → {now.name} {now.version}" if was.version != now.version else was.name
    return f"{versions}: {', '.join(changed) or 'its identity'} changed"
