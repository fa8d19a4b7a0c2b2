"""How things become keys: one list of named parts, one encoding, one hash.

The list that is hashed is the list that `explain` compares, so nothing can be in the key and not be
explainable. `docs/reference/fingerprint.md` has the bytes; `tests/golden/` holds them still.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from blake3 import blake3

from cubinet.model import Action, Digest, Fingerprint, Observation

if TYPE_CHECKING:
    from cubinet.protocols import Request

__all__ = [
    "ACTION_CONTEXT",
    "FINGERPRINT_CONTEXT",
    "action_of",
    "action_parts",
    "digest_of",
    "encode",
    "fingerprint_of",
    "observations_bytes",
    "part_digests",
]

ACTION_CONTEXT = "cubinet action v1"
FINGERPRINT_CONTEXT = "cubinet fingerprint v1"
PART_CONTEXT = "cubinet part v1"

Part = tuple[str, bytes]


def digest_of(data: bytes | memoryview) -> Digest:
    """BLAKE3-256 of bytes."""
    return Digest(blake3(data).hexdigest())


def encode(parts: Iterable[tuple[str, bytes]]) -> bytes:
    """Join named parts so that no two lists give the same bytes.

    Each part is: length of the name, name, length of the value, value; lengths are unsigned 64-bit
    little-endian, names UTF-8.
    """
    out: list[bytes] = []
    for name, value in parts:
        out += (_head(name), _length(len(value)), value)
    return b"".join(out)


_length = struct.Struct("<Q").pack


@functools.lru_cache(maxsize=1024)
def _head(name: str) -> bytes:
    label = name.encode("utf-8", "surrogateescape")
    return _length(len(label)) + label


def _texts(name: str, values: Iterable[str]) -> bytes:
    return encode((name, value.encode("utf-8", "surrogateescape")) for value in values)


def action_parts(request: Request) -> list[Part]:
    """Everything known before compiling, except header content, as named parts in a fixed order."""
    variant = request.variant
    return [
        ("schema", b"1"),
        ("compiler", f"{variant.compiler} {request.revision}".encode()),
        ("kind", variant.kind.encode()),
        ("target", str(variant.target).encode()),
        ("arguments", _texts("argument", request.arguments)),
        ("environment", _texts("variable", (f"{key}={value}" for key, value in sorted(request.environment)))),
        ("toolchain", request.toolchain.identity.raw),
        ("roots", _texts("root", (*(f"{root.kind}:{root.label}" for root in request.roots), *request.same))),
        ("source name", variant.source_name.encode()),
        ("source", blake3(variant.source_bytes()).digest()),
        ("headers", encode((name, text.encode("utf-8", "surrogateescape")) for name, text in variant.headers)),
        ("hook", variant.hook.encode("utf-8", "surrogateescape")),
        ("entries", _texts("entry", sorted(variant.entries))),
        (
            "signature",
            encode((key, value.encode("utf-8", "surrogateescape")) for key, value in sorted(variant.signature)),
        ),
        ("folder", request.bound.encode("utf-8", "surrogateescape")),
    ]


def action_of(parts: Sequence[Part]) -> Action:
    """Hash a list of parts to an action."""
    return Action(blake3(encode(parts), derive_key_context=ACTION_CONTEXT).hexdigest())


def part_digests(parts: Sequence[Part]) -> tuple[tuple[str, str], ...]:
    """Each part's own short digest (32 hex digits), for records and `explain`."""
    return tuple((name, blake3(value, derive_key_context=PART_CONTEXT).hexdigest(16)) for name, value in parts)


def observations_bytes(observations: Iterable[Observation]) -> bytes:
    """The one byte form of a set of observations: sorted, unique, one line each.

    A line is `<how> <64 hex digits or -> <name>`; in the name `%`, newline and NUL are
    percent-encoded. The bytes are stored as a blob, so their digest names the set.
    """
    lines = sorted(
        {
            f"{o.name.replace('%', '%25').replace(chr(10), '%0A').replace(chr(0), '%00')}\0{o.seen}"
            f" {o.digest.hex if o.digest else '-'}"
            for o in observations
        }
    )
    out = ["cubinet-observations 1\n"]
    for line in lines:
        name, _, rest = line.partition("\0")
        out.append(f"{rest} {name}\n")
    return "".join(out).encode("utf-8", "surrogateescape")


def fingerprint_of(action: Action, observations: Digest) -> Fingerprint:
    """The identity of a build: its action and the digest of its observations' byte form."""
    parts = [("action", action.raw), ("observations", observations.raw)]
    return Fingerprint(blake3(encode(parts), derive_key_context=FINGERPRINT_CONTEXT).hexdigest())
