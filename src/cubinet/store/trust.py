"""Who vouches for a record: Ed25519 signatures, the keys that are trusted, and what is revoked.

A signature covers every field of a record except the check sum and the signatures, in the bytes they are stored in,
so fields of later releases are covered too. Action and fingerprint are among them: a record cannot vouch for another
build, as long as the reader checks that it is the one it asked for, as `store/local.py` does.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

import msgspec
from blake3 import blake3

from cubinet.errors import ConfigError, FormatError, TrustError
from cubinet.model import Record
from cubinet.store.format import SIGNATURES, record_fields, seal_record
from cubinet.store.keys import (
    Keyring,
    PrivateKey,
    PublicKey,
    ed25519,
    is_plain,
    key_file,
    load_keyring,
    load_private,
    read_guarded,
    strict_base64,
    told_lines,
)

__all__ = [
    "Keyring",
    "Policy",
    "PrivateKey",
    "PublicKey",
    "Revoked",
    "load_keyring",
    "load_private",
    "load_revoked",
    "sign",
    "signing_bytes",
    "verify",
]

CONTEXT = b"cubinet record v1\n"
"""What signed bytes begin with: a signature for something else can never pass for one of a record."""

_KEY_ID = re.compile(r"ed25519:[0-9a-f]{16}")
_ENTRY = re.compile(r"[0-9a-f]{64}|blake3:[0-9a-f]{64}|ed25519:[0-9a-f]{16}|producer \S.*")
_REMEMBERED = 4096

_vouched: dict[tuple[bytes, bytes], None] = {}
"""Digest of a record and the public key that signed it: what this process has verified."""


def signing_bytes(raw: bytes) -> bytes:
    """What a signature of this record covers. Raises `FormatError` if the record is not whole."""
    return _signing_bytes(record_fields(raw))


def _signing_bytes(fields: Mapping[str, msgspec.Raw]) -> bytes:
    covered = {name: value for name, value in fields.items() if name != "signatures"}
    return CONTEXT + msgspec.json.encode(covered, order="sorted")


def sign(raw: bytes, key: PrivateKey) -> bytes:
    """The record with this key's signature, in place of an older one; those of other keys stay.

    Raises `FormatError` if the record is not whole or has too many signatures.
    """
    fields = record_fields(raw)
    others = [one for one in _signatures(fields) if one["key"] != key.id]
    if len(others) >= SIGNATURES:
        raise FormatError("sign record", _subject(fields), f"it has {len(others)} signatures already")
    mine = {"key": key.id, "sig": base64.b64encode(key.sign(_signing_bytes(fields))).decode()}
    return seal_record({**fields, "signatures": sorted([*others, mine], key=lambda one: str(one["key"]))})


def verify(raw: bytes, trusted: Keyring) -> str:
    """The id of a trusted key that signed this record.

    One good signature of a trusted key suffices, whatever the others are worth, and those of unknown keys are not
    looked at. The caller checks that the record is the one that was asked for.

    Raises `TrustError` if nobody trusted vouches, `FormatError` if the record is not whole, `ConfigError` if
    `cryptography` is missing.
    """
    fields = record_fields(raw)
    signatures = _signatures(fields)
    known = [(trusted[one["key"]], one["sig"]) for one in signatures if one["key"] in trusted]
    digest = blake3(raw).digest()
    for key, _ in known:
        if (digest, key.raw) in _vouched:
            return key.id
    covered = _signing_bytes(fields)
    for key, text in known:
        if _is_signature(key, text, covered):
            if len(_vouched) >= _REMEMBERED:
                _vouched.clear()
            _vouched[digest, key.raw] = None
            return key.id
    if known:
        finding = f"its signature by {known[0][0].id} is wrong: it was changed after it was signed"
        raise TrustError("trust record", _subject(fields), finding, "delete it where it came from, and build it again")
    if signatures:
        ids = [one["key"] if _KEY_ID.fullmatch(one["key"]) else ascii(one["key"][:40]) for one in signatures]
        finding = "signed only by keys that are not trusted: " + ", ".join(ids[:3]) + (", …" if len(ids) > 3 else "")
    else:
        finding = "nobody signed it"
    raise TrustError("trust record", _subject(fields), finding, "trust its builder's key with cubinet key trust")


def _subject(fields: Mapping[str, msgspec.Raw]) -> str:
    """The fingerprint, if it is one: the record may be anybody's."""
    found = re.fullmatch(rb'"([0-9a-f]{64})"', bytes(fields.get("fingerprint", b"")))
    return found[1].decode() if found else ""


def _signatures(fields: Mapping[str, msgspec.Raw]) -> list[dict[str, Any]]:
    """The signatures of a record, with what later releases may have put beside them."""
    try:
        found = msgspec.json.decode(fields.get("signatures", b"[]"), type=list[dict[str, Any]])
    except (msgspec.DecodeError, RecursionError) as exc:
        raise FormatError("read record", _subject(fields), f"signatures: {exc}") from exc
    if len(found) > SIGNATURES or not all(isinstance(one.get(name), str) for one in found for name in ("key", "sig")):
        raise FormatError("read record", _subject(fields), "malformed signatures")
    return found


def _is_signature(key: PublicKey, text: str, data: bytes) -> bool:
    signature = strict_base64(text)
    public = ed25519().Ed25519PublicKey.from_public_bytes(key.raw)
    from cryptography.exceptions import InvalidSignature

    try:
        public.verify(signature or b"", data)
    except InvalidSignature:
        return False
    return True


@dataclass(frozen=True, slots=True)
class Revoked:
    """What is not to be used any more, whoever vouches for it."""

    fingerprints: frozenset[str] = frozenset()
    blobs: frozenset[str] = frozenset()
    keys: frozenset[str] = frozenset()
    producers: frozenset[str] = frozenset()

    @classmethod
    def parse(cls, entries: Mapping[str, str]) -> Self:
        """From entries and where each is written. Raises `ConfigError` for one that is malformed."""
        for entry, where in entries.items():
            if not (_ENTRY.fullmatch(entry) and is_plain(entry)):
                what = "expected a fingerprint, blake3:DIGEST, ed25519:KEY or producer TEXT"
                raise ConfigError("read revocation", where, f"{entry[:80]!a} is none", what)
        return cls(
            frozenset(entry for entry in entries if len(entry) == 64 and " " not in entry),
            frozenset(entry for entry in entries if entry.startswith("blake3:")),
            frozenset(entry for entry in entries if entry.startswith("ed25519:")),
            frozenset(entry.removeprefix("producer ") for entry in entries if entry.startswith("producer ")),
        )

    def __bool__(self) -> bool:
        return bool(self.fingerprints or self.blobs or self.keys or self.producers)

    def why(self, record: Record) -> str:
        """Why this record is revoked; empty if it is not.

        A signature of a revoked key counts for nothing, so a record that has others is judged by those.
        """
        if record.fingerprint.hex in self.fingerprints:
            return "its fingerprint is revoked"
        for _, ref in record.blobs:
            if str(ref.digest) in self.blobs:
                return f"its blob {ref.digest} is revoked"
        if record.producer in self.producers:
            return f"its producer, {record.producer}, is revoked"
        signers = {key for key, _ in record.signatures}
        if signers and signers <= self.keys:
            return f"its key is revoked: {', '.join(sorted(signers)[:3])}"
        return ""


def load_revoked(path: str, *, required: bool = False) -> Revoked:
    """The entries of this file; none if it is not there and need not be.

    Raises `ConfigError` if it is malformed or others can write it.
    """
    data = read_guarded(path, "revocations", required=required)
    if data is None:
        return Revoked()
    return Revoked.parse({" ".join(line.split()): f"{path}:{number}" for number, line in told_lines(data, path)})


@dataclass(frozen=True, slots=True)
class Policy:
    """Which records a layer lets in: `owner` and `open` need no signature, `signed` one by a key of the keyring.

    What is revoked stays out under every kind.
    """

    kind: str = "owner"
    keyring: Keyring = field(default_factory=dict)
    revoked: Revoked = field(default_factory=Revoked)

    def __post_init__(self) -> None:
        if self.kind not in ("owner", "signed", "open"):
            raise ConfigError("use trust", repr(self.kind), "unknown kind", "owner, signed or open")

    @classmethod
    def load(cls, kind: str, environ: Mapping[str, str], *, trusted_keys: str = "", revoked: str = "") -> Self:
        """Read what a policy needs, from the files the settings name or those beside the configuration.

        A file that is named must be there. Raises `ConfigError`.
        """
        keyring: Keyring = {}
        if kind == "signed":
            keyring = load_keyring(key_file("trusted-keys", environ, trusted_keys), required=bool(trusted_keys))
        return cls(kind, keyring, load_revoked(key_file("revoked", environ, revoked), required=bool(revoked)))

    @property
    def looks(self) -> bool:
        """Whether `admit` looks at records at all: if not, nobody needs to read one for it."""
        return self.kind == "signed" or bool(self.revoked)

    def admit(self, raw_record: bytes, record: Record) -> None:
        """Let in a record, in its stored bytes and as they were decoded. Raises `TrustError` if it must stay out."""
        if not self.looks:
            return
        why = self.revoked.why(record)
        if why:
            raise TrustError(
                "trust record", record.fingerprint, why, "delete it where it came from, and build it again"
            )
        if self.kind == "signed":
            verify(raw_record, {name: key for name, key in self.keyring.items() if name not in self.revoked.keys})
