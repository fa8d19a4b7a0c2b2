"""Reading a whole local store and saying what is wrong with it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from cubinet.model import Digest, Record
from cubinet.store.local import LocalLayer

__all__ = ["Verification", "verify"]


@dataclass(slots=True)
class Verification:
    """What was found: counts, and one sentence for each thing that was wrong.

    `spare` counts blobs no record names; they are left alone, a publish may be under way.
    """

    records: int = 0
    blobs: int = 0
    bytes: int = 0
    spare: int = 0
    problems: list[str] = field(default_factory=list)

    @property
    def clean(self) -> bool:
        """Whether nothing was wrong."""
        return not self.problems


def verify(layer: LocalLayer, progress: Callable[[int, int], None]) -> Verification:
    """Check every record and every blob of a local layer; move what is damaged to `bad/`.

    A record whose blob is damaged goes too, so that the next lookup rebuilds both.
    """
    found = Verification()
    fingerprints = list(layer.fingerprints())
    good: dict[str, bool] = {}
    named: set[str] = set()
    for done, fingerprint in enumerate(fingerprints):
        progress(done, len(fingerprints))
        record = layer.find(fingerprint)
        if record is None:
            found.problems.append(f"record {fingerprint} was damaged or is in a newer format")
            continue
        found.records += 1
        bad = _blobs(layer, record, good, named, found)
        if bad:
            why = f"its {bad} is gone or damaged"
            layer.quarantine("records", fingerprint.hex, ".json", why)
            found.problems.append(f"record {fingerprint}: {why}")
    progress(len(fingerprints), len(fingerprints))
    for name in layer.names("blobs"):
        if name not in named:
            found.spare += 1
            if layer.read_named(Digest(name)) is None:
                found.problems.append(f"blob {name}, which no record names, was damaged")
    return found


def _blobs(layer: LocalLayer, record: Record, good: dict[str, bool], named: set[str], found: Verification) -> str:
    """The role of the first blob that is gone or damaged."""
    bad = ""
    for role, ref in record.blobs:
        name = ref.digest.hex
        named.add(name)
        if name not in good:
            good[name] = layer.read(ref) is not None
            if good[name]:
                found.blobs += 1
                found.bytes += ref.size
        if not good[name]:
            bad = bad or role
    return bad
