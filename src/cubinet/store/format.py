"""Records, manifests and failures as bytes, and back. `docs/reference/record-format.md` is the contract.

Canonical JSON: sorted keys, no blanks, UTF-8. A file begins with its own check sum over everything
that follows it, so any flipped bit is seen before a field is believed.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Any

import msgspec
from blake3 import blake3

from cubinet.errors import FormatError
from cubinet.model import Action, BlobRef, Digest, Fingerprint, Kernel, Outline, Program, Record, Target, Toolchain
from cubinet.protocols import Request

__all__ = [
    "FORMAT",
    "Asked",
    "Failure",
    "Stored",
    "decode_failure",
    "decode_manifest",
    "decode_record",
    "decode_request",
    "encode_failure",
    "encode_manifest",
    "encode_record",
    "encode_request",
    "glimpse",
    "record_fields",
    "seal_record",
]

FORMAT = 1
MANIFEST_CANDIDATES = 16
SIGNATURES = 64
"""Most signatures a record may have: checking one takes longer than reading the record."""

_PREFIX = b'{"_check":"'
_BODY = len(_PREFIX) + 64  # where the checked bytes start: at the quote that closes the sum


def _seal(fields: dict[str, Any], what: str) -> bytes:
    try:
        body = b'",' + msgspec.json.encode(fields, order="sorted")[1:]
    except UnicodeEncodeError as exc:  # a name or option that is not UTF-8 where it came from
        raise FormatError(f"write {what}", "", f"a text in it is not UTF-8 ({exc.reason})") from exc
    return _PREFIX + blake3(body).hexdigest().encode() + body + b"\n"


def _open(data: bytes, what: str) -> bytes:
    """The same bytes if their check sum is right."""
    if not data.startswith(_PREFIX) or data[-1:] != b"\n":
        raise FormatError(f"read {what}", "", "empty or cut short" if len(data) < _BODY else "not in this format")
    if blake3(data[_BODY:-1]).hexdigest().encode() != data[len(_PREFIX) : _BODY]:
        raise FormatError(f"read {what}", "", "its check sum does not match")
    return data


class _Blob(msgspec.Struct):
    digest: str
    size: int


class _Variant(msgspec.Struct):
    family: str
    name: str
    entries: tuple[str, ...]
    target: str
    kind: str
    labels: dict[str, str]


class _Toolchain(msgspec.Struct):
    name: str
    version: str
    identity: str
    programs: dict[str, str]


class _Compile(msgspec.Struct):
    seconds: float
    argv: tuple[str, ...]
    host: str


class _Signature(msgspec.Struct):
    key: str
    sig: str


class _Record(msgspec.Struct):
    format: int
    fingerprint: str
    action: str
    variant: _Variant
    toolchain: msgspec.Raw
    parts: dict[str, str]
    blobs: dict[str, _Blob]
    kernels: tuple[Kernel, ...]
    compile: _Compile
    observations_digest: str
    observations: dict[str, int]
    created: str
    producer: str
    local_only: str = ""
    names: dict[str, str] = {}
    signatures: Annotated[tuple[_Signature, ...], msgspec.Meta(max_length=SIGNATURES)] = ()


class _GlimpseVariant(msgspec.Struct):
    kind: str


class _Glimpse(msgspec.Struct):
    format: int
    fingerprint: str
    variant: _GlimpseVariant
    blobs: dict[str, _Blob]


class _OutlineVariant(msgspec.Struct):
    kind: str
    target: str


class _OutlineKernel(msgspec.Struct):
    name: str
    symbol: str


class _Outline(msgspec.Struct):
    variant: _OutlineVariant
    blobs: dict[str, _Blob]
    kernels: tuple[_OutlineKernel, ...]
    names: dict[str, str] = {}


class _Versioned(msgspec.Struct):
    format: int


class _Manifest(msgspec.Struct):
    format: int
    action: str
    candidates: tuple[str, ...]


class Failure(msgspec.Struct, frozen=True):
    """A deterministic compile error: what it was, what the compiler had looked at, until when it counts."""

    format: int
    action: str
    subject: str
    finding: str
    remedy: str
    log: str
    command: tuple[str, ...]
    toolchain: str
    observations: str
    expires: float


_record_decoder = msgspec.json.Decoder(_Record)
_glimpse_decoder = msgspec.json.Decoder(_Glimpse)
_toolchain_decoder = msgspec.json.Decoder(_Toolchain)
_outline_decoder = msgspec.json.Decoder(_Outline)
_manifest_decoder = msgspec.json.Decoder(_Manifest)
_failure_decoder = msgspec.json.Decoder(Failure)
_version_decoder = msgspec.json.Decoder(_Versioned)
_fields_decoder = msgspec.json.Decoder(dict[str, msgspec.Raw])


def _decode(decoder: msgspec.json.Decoder[Any], data: bytes, what: str) -> Any:
    _open(data, what)
    try:
        found = decoder.decode(data)
    except (msgspec.DecodeError, RecursionError) as exc:
        try:
            found = _version_decoder.decode(data)
        except (msgspec.DecodeError, RecursionError):
            found = None
        if found is None or found.format <= FORMAT:
            raise FormatError(f"read {what}", "", str(exc)) from exc
    if found.format < FORMAT:
        raise FormatError(f"read {what}", "", f"format {found.format} has never been")
    if found.format > FORMAT:
        raise NewerFormatError(
            f"read {what}", "", f"format {found.format}, this release knows {FORMAT}", "upgrade cubinet"
        )
    return found


class NewerFormatError(FormatError):
    """Whole, but written by a newer release: left alone."""


def encode_record(record: Record) -> bytes:
    """A record as the bytes of its file."""
    tools = record.toolchain
    fields = {
        "format": FORMAT,
        "fingerprint": record.fingerprint.hex,
        "action": record.action.hex,
        "variant": {
            "family": record.family,
            "name": record.name,
            "entries": record.entries,
            "target": str(record.target),
            "kind": record.kind,
            "labels": dict(record.labels),
        },
        "toolchain": {
            "name": tools.name,
            "version": tools.version,
            "identity": str(tools.identity),
            "programs": {program.role: str(program.digest) for program in tools.programs},
        },
        "parts": dict(record.parts),
        "blobs": {role: {"digest": str(ref.digest), "size": ref.size} for role, ref in record.blobs},
        "kernels": [
            {name: getattr(kernel, name) for name in kernel.__slots__ if getattr(kernel, name) is not None}
            for kernel in record.kernels
        ],
        "compile": {"seconds": round(record.seconds, 6), "argv": record.argv, "host": record.host},
        "observations_digest": str(record.observations),
        "observations": dict(record.observation_counts),
        "created": record.created,
        "producer": record.producer,
    }
    if record.names:
        fields["names"] = dict(record.names)
    if record.local_only:
        fields["local_only"] = record.local_only
    if record.signatures:
        fields["signatures"] = [{"key": key, "sig": sig} for key, sig in sorted(record.signatures)]
    return _seal(fields, "record")


def record_fields(data: bytes) -> dict[str, msgspec.Raw]:
    """The fields of a record, each value in the bytes it is stored in, unknown ones too; without `_check`.

    Raises `FormatError`, also if sealing the fields would not give the same bytes: a name twice, another order, blanks.
    """
    _open(data, "record")
    try:
        fields = _fields_decoder.decode(data)
    except (msgspec.DecodeError, RecursionError) as exc:
        raise FormatError("read record", "", str(exc)) from exc
    del fields["_check"]
    if seal_record(fields) != data:
        raise FormatError("read record", "", "its JSON is not canonical")
    return fields


def seal_record(fields: dict[str, Any]) -> bytes:
    """Fields as the bytes of a record's file; the inverse of `record_fields`."""
    return _seal(fields, "record")


def glimpse(data: bytes, fingerprint: Fingerprint) -> BlobRef | None:
    """The main blob of a record that is whole, without making a `Record` of it: a tenth of the work.

    Raises as `decode_record`, and `FormatError` if it is the record of another fingerprint.
    """
    wire: _Glimpse = _decode(_glimpse_decoder, data, "record")
    if wire.fingerprint != fingerprint.hex:
        raise FormatError("read record", fingerprint, f"it is the record of {wire.fingerprint[:80]}")
    main = wire.blobs.get(wire.variant.kind)
    try:
        return BlobRef(Digest.parse(main.digest), main.size) if main else None
    except ValueError as exc:
        raise FormatError("read record", "", str(exc)) from exc


def decode_record(data: bytes) -> Record:
    """The inverse. Raises `FormatError`, `NewerFormatError` for a newer one."""
    wire: _Record = _decode(_record_decoder, data, "record")
    variant, fingerprint, action = wire.variant, wire.fingerprint, wire.action
    checked = len(fingerprint) == len(action) == 64 and _is_hex(fingerprint + action)
    try:
        observations, *digests = _digests(wire.observations_digest, *[blob.digest for blob in wire.blobs.values()])
        return Record(
            Fingerprint.known(fingerprint) if checked else Fingerprint(fingerprint),
            Action.known(action) if checked else Action(action),
            variant.family,
            variant.name,
            variant.entries,
            _target(variant.target),
            variant.kind,
            tuple(sorted(variant.labels.items())),
            _toolchain(bytes(wire.toolchain)),
            tuple(wire.parts.items()),
            tuple([(r, BlobRef(d, b.size)) for (r, b), d in zip(wire.blobs.items(), digests, strict=True)]),
            wire.kernels,
            wire.compile.seconds,
            wire.compile.argv,
            wire.compile.host,
            observations,
            tuple(sorted(wire.observations.items())),
            wire.created,
            wire.producer,
            tuple(sorted(wire.names.items())),
            wire.local_only,
            tuple(sorted([(s.key, s.sig) for s in wire.signatures])) if wire.signatures else (),
        )
    except (ValueError, RecursionError) as exc:  # ConfigError of a malformed digest or target; a malformed toolchain
        raise FormatError("read record", "", str(exc)) from exc


@lru_cache(64)  # most records of a store are of a few toolchains
def _toolchain(data: bytes) -> Toolchain:
    wire = _toolchain_decoder.decode(data)
    identity, *digests = _digests(wire.identity, *wire.programs.values())
    programs = sorted(zip(wire.programs, digests, strict=True))
    return Toolchain(wire.name, wire.version, identity, tuple(Program(role, "", digest) for role, digest in programs))


def _digests(*texts: str) -> list[Digest]:
    """`Digest.parse` of each, all checked at once."""
    digits = [text.removeprefix(Digest.prefix) for text in texts]
    if {64}.issuperset(map(len, digits)) and _is_hex("".join(digits)):
        return [Digest.known(text) for text in digits]
    return [Digest.parse(text) for text in texts]  # raises for the one that is wrong


def _is_hex(text: str) -> bool:
    """Whether text is lower-case hex digits in pairs and nothing else."""
    try:
        return bytes.fromhex(text).hex() == text
    except ValueError:
        return False


_target = lru_cache(256)(Target.parse)


@dataclass(frozen=True, slots=True)
class Stored:
    """A record's stored form, its check sum verified: call it for the `Record`."""

    raw: bytes

    def __call__(self) -> Record:
        """As `decode_record`."""
        return decode_record(self.raw)

    def outline(self) -> Outline:
        """What a loader must know, in a tenth of the time. Raises `FormatError`."""
        try:
            wire = _outline_decoder.decode(self.raw)
            main = wire.blobs.get(wire.variant.kind)
            digest = Digest.parse(main.digest).hex if main else ""
        except (msgspec.DecodeError, RecursionError, ValueError) as exc:
            raise FormatError("read record", "", str(exc)) from exc
        kernels, variant = tuple([(kernel.name, kernel.symbol) for kernel in wire.kernels]), wire.variant
        return Outline(variant.target, variant.kind, digest, kernels, tuple(sorted(wire.names.items())))


class Asked(msgspec.Struct, frozen=True):
    """What was asked for, without source and without places: enough to build it again where its roots are."""

    format: int
    compiler: str
    target: str
    kind: str
    arguments: tuple[str, ...]
    roots: tuple[tuple[str, str], ...]
    source_name: str
    entries: tuple[str, ...]
    headers: tuple[tuple[str, str], ...]
    hook: str
    signature: tuple[tuple[str, str], ...]


def encode_request(request: Request) -> bytes:
    """The bytes of the `request` blob. Text that is no UTF-8 is replaced: such a build cannot be repeated."""
    variant = request.variant
    asked = {
        "format": FORMAT,
        "compiler": variant.compiler,
        "target": str(variant.target),
        "kind": variant.kind,
        "arguments": request.arguments,
        "roots": [(root.kind, root.label) for root in request.roots],
        "source_name": variant.source_name,
        "entries": variant.entries,
        "headers": variant.headers,
        "hook": variant.hook,
        "signature": variant.signature,
    }
    try:
        return msgspec.json.encode(asked, order="sorted")
    except UnicodeEncodeError:
        return msgspec.json.encode({**asked, "headers": [], "signature": [], "arguments": ["\ufffd"]}, order="sorted")


def decode_request(data: bytes) -> Asked:
    """The inverse. Raises `FormatError`."""
    try:
        return msgspec.json.decode(data, type=Asked)
    except msgspec.DecodeError as exc:
        raise FormatError("read request", "", str(exc)) from exc


def encode_manifest(action: Action, candidates: tuple[Digest, ...]) -> bytes:
    """The newest `MANIFEST_CANDIDATES` observation sets of an action, newest first."""
    names = [c.hex for c in candidates[:MANIFEST_CANDIDATES]]
    return _seal({"format": FORMAT, "action": action.hex, "candidates": names}, "manifest")


def decode_manifest(data: bytes) -> tuple[Action, tuple[Digest, ...]]:
    """The inverse. Raises `FormatError`."""
    wire: _Manifest = _decode(_manifest_decoder, data, "manifest")
    try:
        return Action(wire.action), tuple(Digest(c) for c in wire.candidates[:MANIFEST_CANDIDATES])
    except ValueError as exc:
        raise FormatError("read manifest", "", str(exc)) from exc


def encode_failure(failure: Failure) -> bytes:
    """A failure as the bytes of its file."""
    return _seal(msgspec.structs.asdict(failure), "failure")


def decode_failure(data: bytes) -> Failure:
    """The inverse. Raises `FormatError`."""
    found: Failure = _decode(_failure_decoder, data, "failure")
    return found
