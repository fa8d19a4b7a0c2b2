"""Whole builds out of nothing, for tests of layers: every digest in them is right."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from blake3 import blake3

from cubinet.fingerprint import action_of, digest_of, fingerprint_of, observations_bytes
from cubinet.model import (
    Action,
    Artifact,
    BlobRef,
    Digest,
    Fingerprint,
    Kernel,
    Observation,
    Program,
    Record,
    Seen,
    Target,
    Toolchain,
)

__all__ = ["Build", "build", "sealed"]


@dataclass(frozen=True, slots=True)
class Build:
    """A record with the blobs it names."""

    record: Record
    blobs: Mapping[Digest, bytes]

    @property
    def fingerprint(self) -> Fingerprint:
        """The identity of the build."""
        return self.record.fingerprint

    @property
    def main(self) -> BlobRef:
        """The compiled object's blob."""
        ref = self.record.blob(self.record.kind)
        assert ref is not None
        return ref

    @property
    def data(self) -> bytes:
        """The compiled object."""
        return self.blobs[self.main.digest]

    def artifact(self) -> Artifact:
        """The same as a lookup returns it."""
        more = {role: self.blobs[ref.digest] for role, ref in self.record.blobs}
        return Artifact(self.record, self.data, _more=more)


def build(
    text: str = "scale",
    *,
    data: bytes | None = None,
    action: str | None = None,
    observations: Iterable[Observation] | None = None,
    **fields: Any,
) -> Build:
    """A build that differs from others in `text`, the seed of everything that is not given.

    Args:
        text: seed, and the kernel's name.
        data: the compiled object. Builds with the same seed and other data have one fingerprint.
        action: another seed, for the action alone: builds of one action with other observations.
        observations: what the compiler looked at; one header that depends on `text` if not given.
        fields: fields of the record to be different.
    """
    if observations is None:
        observations = [
            Observation("lib:a.h", Seen.READ, digest_of(text.encode())),
            Observation("src:a.h", Seen.ABSENT),
        ]
    observed = observations_bytes(observations)
    contents = {
        "cubin": f"object of {text}".encode() if data is None else data,
        "source": f"kernel {text}".encode(),
        "observations": observed,
        "log": b"compiled " + text.encode(),
    }
    seed: Action = action_of([("seed", (text if action is None else action).encode())])
    record = Record(
        fingerprint=fingerprint_of(seed, digest_of(observed)),
        action=seed,
        family="samples",
        name=text,
        entries=(text,),
        target=Target("cuda", "sm_90a"),
        kind="cubin",
        labels=(("made", "by hand"),),
        toolchain=Toolchain("fake", "1.0", digest_of(b"fake 1.0"), (Program("cc", "", digest_of(b"cc")),)),
        parts=(("seed", digest_of(seed.raw).hex[:32]),),
        blobs=tuple((role, BlobRef(digest_of(value), len(value))) for role, value in sorted(contents.items())),
        kernels=(Kernel(text, text, regs=32, shared=0),),
        seconds=1.5,
        argv=("fake", "kernel.cu"),
        host="here",
        observations=digest_of(observed),
        observation_counts=(("absent", 1), ("read", 1)),
        created="2026-01-02T03:04:05+00:00",
        producer="cubinet test",
    )
    return Build(replace(record, **fields), {digest_of(value): value for value in contents.values()})


def sealed(fields: Mapping[str, Any]) -> bytes:
    """Any fields as the bytes of a file with a right check sum, written from the format's description."""
    body = b'",' + json.dumps(fields, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()[1:]
    return b'{"_check":"' + blake3(body).hexdigest().encode() + body + b"\n"
