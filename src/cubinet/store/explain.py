"""Why a lookup hit, or what it would have needed to.

A replay: the request's named parts against those of the nearest known build, and each observation of that
build against what is here. What is compared is what was hashed, so there is always an answer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from cubinet.errors import FormatError, GateError, StoreError
from cubinet.fingerprint import encode, fingerprint_of, part_digests
from cubinet.model import Action, Artifact, Digest, Fingerprint, Observation, Record, Seen, Toolchain
from cubinet.observations import Difference, read_observations
from cubinet.protocols import Request
from cubinet.store.building import passed
from cubinet.store.explain_far import LayerAnswer, ask_layers
from cubinet.store.format import Asked, decode_request
from cubinet.store.layered import Layered

__all__ = ["Change", "Explanation", "explain", "explain_fingerprint"]

_PLURAL = ("arguments", "entries", "headers", "roots")
_MOST_SHOWN = 60
_NO_TEXT = "\ufffd"
"""Stands for arguments that could not be written down."""


@dataclass(frozen=True, slots=True)
class Change:
    """One thing that differs: a named part, an observation or a file of the layer, and how."""

    what: str
    name: str
    detail: str

    def __str__(self) -> str:
        if self.what == "part":
            return f"its {self.name} {'differ' if self.name in _PLURAL else 'differs'}: {self.detail}"
        return f"{self.name} {self.detail}" if self.what == "observation" else self.detail


@dataclass(frozen=True, slots=True)
class Explanation:
    """The answer.

    Attributes:
        outcome: `hit`, `miss` or `uncacheable`.
        summary: one sentence.
        action: of what was asked for; `None` if that was a fingerprint nobody has.
        fingerprint: of the build that hit.
        nearest: the known build that was compared with, if it was no hit.
        relation: how that build was chosen.
        changes: everything that differs from it; empty for a hit.
        layers: what each layer beyond the local one says, in the order in which they are asked.
    """

    outcome: str
    summary: str
    action: Action | None
    fingerprint: Fingerprint | None = None
    nearest: Fingerprint | None = None
    relation: str = ""
    changes: tuple[Change, ...] = ()
    layers: tuple[LayerAnswer, ...] = ()


def explain(layers: Layered, request: Request, action: Action, parts: Sequence[tuple[str, bytes]]) -> Explanation:
    """Replay the lookup of a request and say how it ends, and why.

    A miss is compared with a build of the same action, whose observations differ; else with one of the same
    family and name; else with one of the same source. Among several it is the one with the fewest differences.
    """
    try:
        answer = _Explaining(layers, request, action, parts).answer()
    except StoreError as exc:
        answer = _trouble(layers, exc, action)
    if answer.outcome == "uncacheable":
        return answer
    return _beyond(layers, answer, ask_layers(layers, request, action, None, had=answer.outcome == "hit"))


def _beyond(layers: Layered, answer: Explanation, asked: Iterable[LayerAnswer]) -> Explanation:
    """The answer of the local layer, with what the others say."""
    told = tuple(asked)
    hit = next((layer for layer in told if layer.outcome == "hit"), None)
    if hit is None:
        return replace(answer, layers=told)
    local = f"the {layers.local.name} layer does not have it"
    return Explanation("hit", f"{hit.why}; {local}", answer.action, hit.fingerprint, layers=told)


def explain_fingerprint(layers: Layered, fingerprint: Fingerprint) -> Explanation:
    """Say whether there is a build with this fingerprint, and what it is or what is wrong with it."""
    name = layers.local.name
    try:
        found = _build(layers, fingerprint)
    except StoreError as exc:
        return _beyond(layers, _trouble(layers, exc, None), ask_layers(layers, None, None, fingerprint, had=False))
    if isinstance(found, str):
        answer = Explanation("miss", f"the {name} layer does not have it: {found}", None)
        return _beyond(layers, answer, ask_layers(layers, None, None, fingerprint, had=False))
    record, tools = found.record, found.record.toolchain
    what = f"{record.kind} of {record.name or 'a kernel without a name'} for {record.target}"
    summary = f"the {name} layer has it: {what}, made by {tools.name} {tools.version} at {record.created}"
    return Explanation("hit", summary, record.action, fingerprint)


def _trouble(layers: Layered, exc: StoreError, action: Action | None) -> Explanation:
    if layers.strict:
        raise exc
    return Explanation("miss", f"the {layers.local.name} layer cannot be asked: {exc}", action)


def _build(layers: Layered, fingerprint: Fingerprint) -> Artifact | str:
    """A build, or what keeps a lookup from it."""
    there = fingerprint.hex in layers.local.names("records", fingerprint.hex[:2])
    record = layers.local.find(fingerprint)
    if record is None:
        return f"its record is {'damaged, or in a newer format' if there else 'gone'}"
    ref = record.blob(record.kind)
    there = ref is not None and ref.digest.hex in layers.local.names("blobs", ref.digest.hex[:2])
    data = layers.local.read(ref) if ref else None
    if data is None:
        return f"its {record.kind} is {'damaged' if there else 'gone'}"
    return Artifact(record, data, layer=layers.local.name)


class _Explaining:
    """One question on its way to an answer."""

    def __init__(self, layers: Layered, request: Request, action: Action, parts: Sequence[tuple[str, bytes]]) -> None:
        self.layers, self.request, self.action = layers, request, action
        self.layer, self.mine = layers.local, dict(part_digests(parts))

    def answer(self) -> Explanation:
        if self.request.uncacheable:
            return Explanation("uncacheable", f"it is never stored: {self.request.uncacheable}", self.action)
        closest: tuple[list[Change], Fingerprint] | None = None
        for observations in self.layer.candidates(self.action):
            fingerprint = fingerprint_of(self.action, observations)
            changes = self._observations(observations)
            if not changes:
                found = _build(self.layers, fingerprint)
                if not isinstance(found, str):
                    return self._hit(found)
                changes = [Change("layer", self.layer.name, found)]
            if closest is None or len(changes) < len(closest[0]):
                closest = changes, fingerprint
        if closest is not None:
            return self._miss(closest[1], "the same action", closest[0])
        return self._unlike()

    def _hit(self, artifact: Artifact) -> Explanation:
        counts = ", ".join(f"{count} {seen}" for seen, count in artifact.record.observation_counts)
        summary = f"the {self.layer.name} layer has it, and all it looked at is the same here ({counts or 'nothing'})"
        try:
            passed(self.request.variant, artifact)
        except GateError as exc:
            summary += f"; a gate refuses it: {exc.finding}"
        return Explanation("hit", summary, self.action, artifact.fingerprint)

    def _miss(self, nearest: Fingerprint | None, relation: str, changes: Sequence[Change]) -> Explanation:
        more = f", and {len(changes) - 1} more" if len(changes) > 1 else ""
        summary = f"{changes[0]}{more}"
        if nearest is not None:
            summary = f"compared with {nearest.hex[:12]} ({relation}): {summary}"
        failure = self.layer.failure(self.action)
        if failure is not None:
            summary += f"; it failed to compile within the last minute: {failure.finding}"
        changes = tuple(changes) if nearest is not None else ()
        return Explanation("miss", summary, self.action, nearest=nearest, relation=relation, changes=changes)

    # --- builds of the same action

    def _observations(self, observations: Digest) -> list[Change]:
        """What a set of observations saw that is not so here."""
        layers = self.layers
        data = self.layer.read_named(observations)
        if data is None:  # a lookup does not need it as long as no stamp changed
            if layers.checker.holds(observations, self.request.places, lambda: None):
                return []
            return [Change("layer", self.layer.name, "its list of observations is gone, or was damaged")]
        try:
            differences = layers.checker.differences(data, self.request.places)
            seen = read_observations(data)
        except FormatError as exc:
            return [Change("layer", self.layer.name, str(exc))]
        return [Change("observation", difference.name, _seen(difference, seen)) for difference in differences]

    # --- builds of another action

    def _unlike(self) -> Explanation:
        """No manifest leads to a build: compare with the record that comes closest."""
        best: tuple[tuple[int, int], Record, str] | None = None
        for record in self._records():
            near = self._nearness(record)
            if near is None:
                continue
            rank, relation = near
            if rank == 0:
                differing = len(self._observations(record.observations))
            else:
                theirs = dict(record.parts)
                differing = sum(theirs.get(name) != digest for name, digest in self.mine.items())
            key = (rank, differing)
            if best is None or key < best[0] or (key == best[0] and record.created > best[1].created):
                best = key, record, relation
        if best is None:
            text = "has no build of this family and name, source or action: it is new here"
            return self._miss(None, "", [Change("layer", self.layer.name, f"the {self.layer.name} layer {text}")])
        _, record, relation = best
        if record.action == self.action:
            lost = Change("layer", self.layer.name, "the manifest that leads to it is gone, or was damaged")
            return self._miss(record.fingerprint, relation, [lost, *self._observations(record.observations)])
        return self._miss(record.fingerprint, relation, list(_Parts(self.layers, self.request, record, self.mine)))

    def _records(self) -> Iterator[Record]:
        for fingerprint in self.layer.fingerprints():
            record = self.layer.find(fingerprint)
            if record is not None:
                yield record

    def _nearness(self, record: Record) -> tuple[int, str] | None:
        variant = self.request.variant
        if record.action == self.action:
            return 0, "the same action"
        if (variant.family or variant.name) and (record.family, record.name) == (variant.family, variant.name):
            return 1, "the same family and name"
        if dict(record.parts).get("source") == self.mine["source"]:
            return 2, "the same source"
        return None


def _seen(difference: Difference, seen: Iterable[Observation]) -> str:
    """How one observation differs; a name that appeared may stand in front of the one that was read."""
    if difference.what != "appeared":
        return difference.what
    label, _, rest = difference.name.partition(":")
    behind = [o.name for o in seen if o.seen is Seen.READ and o.name.partition(":")[2] == rest]
    others = [name for name in behind if name.partition(":")[0] != label]
    return f"appeared, in front of {others[0]}" if others else "appeared"


class _Parts:
    """The parts of an action that differ between a request and a record, each with what it was and what it is."""

    def __init__(self, layers: Layered, request: Request, record: Record, mine: Mapping[str, str]) -> None:
        self.layers, self.request, self.variant, self.record, self.mine = layers, request, request.variant, record, mine
        self.theirs = dict(record.parts)
        data = self._blob("request")
        try:
            asked = None if data is None else decode_request(data)
        except FormatError:
            asked = None
        self.asked = None if asked is None or asked.arguments == (_NO_TEXT,) else asked

    def __iter__(self) -> Iterator[Change]:
        for name, digest in self.mine.items():
            if self.theirs.get(name) != digest:
                yield Change("part", name, self._detail(name) or "it is not what it was")
        for name in self.theirs.keys() - self.mine.keys():
            yield Change("part", name, "there is none now")

    def _blob(self, role: str) -> bytes | None:
        ref = self.record.blob(role)
        return self.layers.local.read(ref) if ref else None

    def _detail(self, name: str) -> str:
        if name not in self.theirs:
            return "there was none then"
        request, variant, record = self.request, self.variant, self.record
        known: dict[str, Callable[[], str]] = {
            "schema": lambda: "keys are made differently now",
            "target": lambda: f"{record.target} → {variant.target}",
            "toolchain": lambda: _toolchain(record.toolchain, request.toolchain),
            "source": self._source,
            "entries": lambda: _names(record.entries, variant.entries),
            "environment": self._environment,
            "folder": self._folder,
        }
        if self.asked is not None:
            known |= self._asked(self.asked)
        return known[name]() if name in known else "what it was is not kept"

    def _asked(self, was: Asked) -> dict[str, Callable[[], str]]:
        """The parts that only the stored request tells."""
        request, now = self.request, self.variant

        def compiler() -> str:
            same = was.compiler == now.compiler
            return f"the {now.compiler} adapter works differently now" if same else f"{was.compiler} → {now.compiler}"

        def roots() -> str:
            before = [_root(kind, label) for kind, label in was.roots]
            return _ordered(before, [_root(root.kind, root.label) for root in request.roots]) or self._one_folder()

        return {
            "compiler": compiler,
            "kind": lambda: f"{was.kind} → {now.kind}",
            "arguments": lambda: _arguments(was.arguments, request.arguments),
            "roots": roots,
            "source name": lambda: f"{was.source_name} → {now.source_name}",
            "headers": lambda: _pairs(was.headers, now.headers, shown=False),
            "hook": lambda: f"{was.hook or 'none'} → {now.hook or 'none'}",
            "signature": lambda: _pairs(was.signature, now.signature, shown=True),
        }

    def _one_folder(self) -> str:
        if self.request.same:
            return "one folder here is " + ", ".join(pair.replace("=", " and ") for pair in self.request.same)
        return "two labels were one folder there, and are not here"

    def _source(self) -> str:
        """The first line that differs."""
        data = self._blob("source")
        if data is None:
            return "its text changed"
        was, now = data.decode("utf-8", "surrogateescape").splitlines(), self.variant.source.splitlines()
        at = next((i for i, (a, b) in enumerate(zip(was, now, strict=False)) if a != b), min(len(was), len(now)))
        before, after = ("".join(lines[at : at + 1]) for lines in (was, now))
        if before == after:
            return "its line ends changed"
        return f"line {at + 1}: {_step(before, after)}"

    def _environment(self) -> str:
        now = [f"{name}={value}" for name, value in sorted(self.request.environment)]
        hook = [variable for variable in now if variable.startswith("PYTHON=")]
        rest = (variable.encode("utf-8", "surrogateescape") for variable in now if variable not in hook)
        without = encode(("variable", variable) for variable in rest)
        if hook and dict(part_digests([("environment", without)])) == {"environment": self.theirs["environment"]}:
            return f"{hook[0]} added, for the post-hook"
        return f"it was another one; now it is {' '.join(now) or 'empty'}"

    def _folder(self) -> str:
        if not self.request.bound:
            return "it was tied to its folders, and is not now"
        why = self.request.bound_by or "it is tied to its folders"
        return f"{why}, and they are not the same"


def _step(before: str, after: str) -> str:
    """From one text to another, both cut short around what differs."""
    start = next((i for i, (a, b) in enumerate(zip(before, after, strict=False)) if a != b), len(before))
    start = max(0, min(start, len(before), len(after)) - _MOST_SHOWN // 2)
    pieces = (text[start : start + _MOST_SHOWN] for text in (before, after))
    return " → ".join(repr(piece) if piece else "nothing" for piece in pieces)


def _root(kind: str, label: str) -> str:
    return label if kind == "include" else f"{label} ({kind})"


def _changes(gone: Iterable[str], come: Iterable[str], changed: Iterable[str] = ()) -> str:
    """What changed, left and came, as a list in words."""
    return "; ".join((*changed, *(f"{name} removed" for name in gone), *(f"{name} added" for name in come)))


def _names(was: Sequence[str], now: Sequence[str]) -> str:
    gone, come = Counter(was) - Counter(now), Counter(now) - Counter(was)
    return _changes(gone.elements(), come.elements())


def _ordered(was: Sequence[str], now: Sequence[str]) -> str:
    """The same for a list whose order counts."""
    if Counter(was) == Counter(now):
        return f"another order: {', '.join(was)} → {', '.join(now)}" if list(was) != list(now) else ""
    return _names(was, now)


def _key(argument: str) -> str:
    """What an argument sets: `--maxrregcount`, `--define-macro=X`."""
    name, _, value = argument.partition("=")
    return f"{name}={value.partition('=')[0]}" if name == "--define-macro" else name


def _arguments(was: Sequence[str], now: Sequence[str]) -> str:
    """What became of each option, as `--optimize=3 → --optimize=2`."""
    gone, come = list((Counter(was) - Counter(now)).elements()), list((Counter(now) - Counter(was)).elements())
    if not gone and not come:
        return f"another order: {' '.join(was)} → {' '.join(now)}"
    if len(gone) == len(come) == 1:
        return f"{gone[0]} → {come[0]}"
    changed = []
    for key in dict.fromkeys(map(_key, gone)):
        before, after = ([word for word in words if _key(word) == key] for words in (gone, come))
        if len(before) == len(after) == 1:
            changed.append(f"{before[0]} → {after[0]}")
            gone.remove(before[0])
            come.remove(after[0])
    return _changes(gone, come, changed)


def _pairs(was: Iterable[tuple[str, str]], now: Iterable[tuple[str, str]], *, shown: bool) -> str:
    before, after = dict(was), dict(now)
    both = [name for name in before if name in after and before[name] != after[name]]
    changed = [f"{n}: {_step(before[n], after[n])}" if shown else f"{n} changed" for n in both]
    return _changes((n for n in before if n not in after), (n for n in after if n not in before), changed)


def _toolchain(was: Toolchain, now: Toolchain) -> str:
    before = {program.role: program.digest for program in was.programs}
    after = {program.role: program.digest for program in now.programs}
    changed = [role for role in before if role in after and before[role] != after[role]]
    names = (f"{was.name} {was.version}", f"{now.name} {now.version}")
    which = names[0] if names[0] == names[1] else f"{names[0]} → {names[1]}"
    if was.name != now.name:  # other programs altogether
        return which
    text = [f"{', '.join(changed)} changed"] if changed else []
    rest = _changes((r for r in before if r not in after), (r for r in after if r not in before), text)
    return f"{which}: {rest or 'its identity changed'}"
