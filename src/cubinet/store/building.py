"""From what a compiler handed back to a record, and from an artifact to what its caller may have."""

from __future__ import annotations

import datetime as dt
import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from cubinet import __version__
from cubinet.errors import GateError
from cubinet.fingerprint import digest_of, fingerprint_of, part_digests
from cubinet.model import Action, Artifact, BlobRef, Digest, Record, Variant
from cubinet.protocols import Compiled, Request
from cubinet.store.format import encode_request

__all__ = ["passed", "record_of"]


def record_of(
    request: Request, action: Action, parts: Sequence[tuple[str, bytes]], made: Compiled, observed: bytes
) -> tuple[Record, dict[Digest, bytes]]:
    """The record of a build, and its blobs.

    `observed` is the byte form of `made.observations`.
    """
    variant, kind, tools = request.variant, made.kind or request.variant.kind, request.toolchain
    contents = {kind: made.data, "source": variant.source_bytes(), "observations": observed}
    contents["request"] = encode_request(request)
    if made.log:
        contents["log"] = made.log
    contents.update(made.extra)
    named = {role: (digest_of(data), data) for role, data in contents.items()}
    record = Record(
        fingerprint=fingerprint_of(action, named["observations"][0]),
        action=action,
        family=variant.family,
        name=variant.name,
        entries=variant.entries,
        target=variant.target,
        kind=kind,
        labels=variant.labels,
        toolchain=replace(tools, programs=tuple(sorted(tools.programs, key=lambda program: program.role))),
        parts=tuple(sorted(part_digests(parts))),
        blobs=tuple((role, BlobRef(digest, len(data))) for role, (digest, data) in sorted(named.items())),
        kernels=made.kernels,
        seconds=round(made.seconds, 6),
        argv=made.argv,
        host=os.uname().nodename,
        observations=named["observations"][0],
        observation_counts=tuple(sorted(Counter(str(o.seen) for o in made.observations).items())),
        created=dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
        producer=f"cubinet {__version__}",
        local_only=made.local_only,
        names=made.names,
    )
    return record, dict(named.values())


def passed(variant: Variant, artifact: Artifact) -> Artifact:
    """The artifact, if it passes the gates of the variant. Gates are no part of a build's identity.

    Raises `GateError` naming the kernels and their bytes.
    """
    for asked, field, what in (
        (variant.check_no_spills, "spills", "bytes of spills"),
        (variant.check_no_local_memory, "local", "bytes of local memory a thread"),
    ):
        found = {k.name: getattr(k, field) for k in artifact.kernels if getattr(k, field) != 0} if asked else {}
        if found:
            text = ", ".join(f"{name}: {'unknown' if n is None else n}" for name, n in sorted(found.items()))
            raise GateError(variant.name or variant.source_name, f"{what}: {text}", f"check_no_{_GATES[field]} is set")
    return artifact


_GATES = {"spills": "spills", "local": "local_memory"}
