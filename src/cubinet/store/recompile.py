"""Building stored records again and comparing the bytes: what tells whether a compiler is deterministic here."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from cubinet.errors import CubinetError
from cubinet.fingerprint import action_of, action_parts, digest_of, observations_bytes, part_digests
from cubinet.model import Record, Root, Target, Variant
from cubinet.protocols import Compiler
from cubinet.store.format import Asked, decode_request
from cubinet.store.local import LocalLayer

__all__ = ["Repeated", "recompile"]

NONDETERMINISTIC = frozenset({"ltoir"})
"""NVRTC's LTO-IR has other bytes most times, whatever seed it is given."""


@dataclass(slots=True)
class Repeated:
    """What came of it: counts by output kind, and one sentence for each that was not the same.

    `same` and `different` compare bytes; a build whose inputs are not here, or differ, is `skipped`.
    """

    same: dict[str, int] = field(default_factory=dict)
    different: dict[str, int] = field(default_factory=dict)
    skipped: dict[str, int] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    @property
    def good(self) -> bool:
        """Whether nothing differs but output kinds whose compilers never give the same bytes twice."""
        return not self.different.keys() - NONDETERMINISTIC


def recompile(
    layer: LocalLayer,
    compiler: Callable[[str], Compiler],
    count: int,
    folders: Mapping[str, str],
    *,
    timeout: float | None,
    progress: Callable[[int, int], None],
) -> Repeated:
    """Compile a random sample of `count` records again. `folders` says where labels are here."""
    found, names = Repeated(), list(layer.fingerprints())
    chosen = random.sample(names, min(count, len(names)))
    for done, fingerprint in enumerate(chosen):
        progress(done, len(chosen))
        record = layer.find(fingerprint)
        if record is None:
            continue
        try:
            same, why = _again(layer, compiler, record, folders, timeout)
        except CubinetError as exc:
            same, why = None, str(exc)
        verdict = found.skipped if same is None else found.same if same else found.different
        verdict[record.kind] = verdict.get(record.kind, 0) + 1
        if why:
            found.notes.append(f"{record.fingerprint.hex[:16]} {record.name}: {why}")
    progress(len(chosen), len(chosen))
    return found


def _again(
    layer: LocalLayer,
    compiler: Callable[[str], Compiler],
    record: Record,
    folders: Mapping[str, str],
    timeout: float | None,
) -> tuple[bool | None, str]:
    """Whether the same bytes came out, or `None` and why it could not be tried."""
    blobs = {role: layer.read(ref) for role, ref in record.blobs}
    asked, source = blobs.get("request"), blobs.get("source")
    if asked is None or source is None:
        return None, "what was asked for, or its source, is not kept"
    variant, missing = _variant(decode_request(asked), source, folders)
    if missing:
        return None, f"give the folder of {', '.join(missing)}, as -I {missing[0]}=DIR"
    adapter = compiler(variant.compiler)
    request = adapter.normalize(variant)
    parts = action_parts(request)
    if action_of(parts) != record.action:
        mine = dict(part_digests(parts))
        return None, f"not the same action here: {', '.join(n for n, d in record.parts if mine.get(n) != d)} differ"
    made = adapter.compile(request, timeout=timeout)
    if digest_of(observations_bytes(made.observations)) != record.observations:
        return None, "what it looks at is not the same here"
    ref = record.blob(record.kind)
    if ref is not None and digest_of(made.data) == ref.digest:
        return True, ""
    return False, f"the compiler made other bytes ({len(made.data)}, stored: {ref.size if ref else 0})"


def _variant(asked: Asked, source: bytes, folders: Mapping[str, str]) -> tuple[Variant, list[str]]:
    labels = [label for _, label in asked.roots]
    missing = [label for label in labels if label not in folders]
    roots = [Root(label, folders.get(label, "/"), kind) for kind, label in asked.roots if label != "src"]
    variant = Variant(
        source.decode("utf-8", "surrogateescape"),
        Target.parse(asked.target),
        kind=asked.kind,
        options=asked.arguments,
        roots=tuple(roots),
        entries=asked.entries,
        source_name=asked.source_name,
        source_folder=folders.get("src") if "src" in labels else None,
        headers=asked.headers,
        hook=asked.hook,
        signature=asked.signature,
        compiler=asked.compiler,
    )
    return variant, missing
