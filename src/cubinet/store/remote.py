"""A layer over a remote: object storage, or whatever a `Remote` adapter reaches.

A lookup costs one GET if the fingerprint is known, two on a fresh machine, and never a LIST or a HEAD. Nothing rests on
create-only writes being exclusive: names are content, so the worst that two writers do is to write the same twice.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping

from blake3 import blake3

from cubinet.errors import FormatError, ReadOnlyError, RemoteError, RemoteMisconfiguredError, TrustError
from cubinet.fingerprint import fingerprint_of
from cubinet.model import Action, BlobRef, Digest, Fingerprint, Record
from cubinet.protocols import Object, Remote
from cubinet.store.envelope import BLOB_LIMIT, INLINE_LIMIT, OBJECT_LIMIT, expand, pack, squeeze, unpack
from cubinet.store.far import Fetched, NoPolicy, Policy, Recent
from cubinet.store.format import (
    MANIFEST_CANDIDATES,
    NewerFormatError,
    decode_manifest,
    decode_record,
    encode_manifest,
    encode_record,
)

__all__ = ["REFRESH_SECONDS", "RemoteLayer"]

_ROOT = "v1"
_BACKGROUND_SECONDS = 30.0
_TRIES = 3
_ABSENT_SECONDS = 10.0
REFRESH_SECONDS = 12 * 3600.0
"""A blob older than this is written again by whoever would have written it, so that no collector takes it away."""


class RemoteLayer:
    """Builds in a remote. Safe in threads, survives `fork` as far as its remote does.

    Args:
        remote: where.
        name: for counters and messages.
        policy: which records are let in.
        writable: whether builds go there.
        inline: bytes up to which blobs travel with their record.
        now: the clock, seconds since the epoch.
    """

    def __init__(
        self,
        remote: Remote,
        *,
        name: str = "remote",
        policy: Policy | None = None,
        writable: bool = True,
        inline: int = INLINE_LIMIT,
        now: Callable[[], float] = time.time,
    ) -> None:
        self.remote, self.name, self.policy = remote, name, policy or NoPolicy()
        self.writable, self.inline, self.now = writable and not remote.read_only, inline, now
        self.place = remote.url
        self._absent: Recent[str, float] = Recent()
        self._manifests: Recent[Action, Object | None] = Recent()

    def prepare(self) -> None:
        """Import what calls need; takes a second the first time, and asks nobody anything."""
        self.remote.prepare()

    # --- reading

    def find(self, fingerprint: Fingerprint, *, timeout: float = _BACKGROUND_SECONDS) -> Record | None:
        """The record of a fingerprint, checked and admitted; `None` if there is none, or a damaged one."""
        try:
            fetched = self.fetch(fingerprint, timeout=timeout, main=False)
        except FormatError:
            return None
        return fetched.record if fetched else None

    def fetch(self, fingerprint: Fingerprint, *, timeout: float, main: bool = True) -> Fetched | None:
        """A build, verified: its record and the blobs that travel with it, with `main` at least the main one.

        Raises `RemoteError`, `TrustError`, and `FormatError` for a damaged one.
        """
        name = self.object_name("records", fingerprint.hex)
        if self._known_absent(name):
            return None
        until = time.monotonic() + timeout
        found = self._get(name, timeout)
        if found is None:
            self._absent.put(name, time.monotonic())
            return None
        fetched = self._open(fingerprint, found.data)
        if not main:
            return fetched
        ref = fetched.record.blob(fetched.record.kind)
        if ref is None:
            raise FormatError("read record", fingerprint, "it has no blob of its kind")
        if ref.digest not in fetched.blobs:
            data = self._blob(ref, until - time.monotonic())
            if data is None:
                return None
            fetched.blobs[ref.digest] = data
        return fetched

    def opened(self, fingerprint: Fingerprint, data: bytes) -> Fetched | None:
        """The build in a record object; `None` if it is damaged. Raises `TrustError`."""
        try:
            return self._open(fingerprint, data)
        except FormatError:
            return None

    def _open(self, fingerprint: Fingerprint, data: bytes) -> Fetched:
        envelope = unpack(data, blobs=False)
        record = decode_record(envelope.head)
        if record.fingerprint != fingerprint:
            raise FormatError("read record", fingerprint, f"it is the record of {record.fingerprint}")
        if fingerprint_of(record.action, record.observations) != fingerprint:
            raise FormatError("read record", fingerprint, "its parts do not give its fingerprint")
        self.policy.admit(envelope.head, record)
        blobs = unpack(data).blobs  # only now is anything unpacked
        wanted = {ref.digest: ref.size for _, ref in record.blobs}
        return Fetched(record, envelope.head, {d: b for d, b in blobs.items() if wanted.get(d) == len(b)})

    def read(self, ref: BlobRef, *, timeout: float = _BACKGROUND_SECONDS) -> bytes | None:
        """The verified bytes of a blob that is an object of its own; `None` if it is gone or damaged."""
        try:
            return self._blob(ref, timeout)
        except FormatError:
            return None

    def _blob(self, ref: BlobRef, timeout: float) -> bytes | None:
        if not 0 <= ref.size <= BLOB_LIMIT:
            raise FormatError("read blob", ref.digest, f"its record says {ref.size} bytes")
        if timeout <= 0:
            return None
        limit = ref.size + (ref.size >> 7) + 1024  # what zstd may add to bytes that do not shrink
        found = self._get(self.object_name("blobs", ref.digest.hex), timeout, limit)
        data = _blob(found.data, ref) if found is not None else None
        if found is not None and data is None:
            raise FormatError("read blob", ref.digest, f"what is there are not its {ref.size} bytes")
        return data

    def candidates(self, action: Action, *, timeout: float) -> list[tuple[Digest, bytes | None]]:
        """Observation sets seen with an action, newest first, each with its bytes if they came along."""
        name = self.object_name("manifests", action.hex)
        if self._known_absent(name):
            return []
        found = self._get(name, timeout)
        self._manifests.put(action, found)
        if found is None:
            self._absent.put(name, time.monotonic())
            return []
        try:
            return list(_sets(action, found.data).items())
        except NewerFormatError:
            return []

    # --- writing

    def publish(self, record: Record, blobs: Mapping[Digest, bytes]) -> bool:
        """Store a build; `False` if the fingerprint was there already. See `Layer.publish`."""
        return self.upload(record, encode_record(record), blobs)

    def upload(
        self, record: Record, raw: bytes, blobs: Mapping[Digest, bytes], *, timeout: float = _BACKGROUND_SECONDS
    ) -> bool:
        """The same for a record in its stored form, `raw`, which keeps its signatures and unknown fields."""
        if not self.writable:
            raise ReadOnlyError("publish", record.fingerprint, f"{self.place} is read-only")
        inside = [(d, data) for d, data in blobs.items() if len(data) <= self.inline]
        for digest, data in blobs.items():
            if len(data) > self.inline:
                self._upload_blob(digest, data, timeout)
        # record after its blobs: a reader that sees it must find them
        name, data = self.object_name("records", record.fingerprint.hex), pack(raw, inside)
        fresh = self.remote.put(name, data, timeout=timeout, create=True)
        if not fresh and self._damaged_record(record.fingerprint, name, timeout):
            fresh = self.remote.put(name, data, timeout=timeout)
        self._absent.pop(name, 0.0)
        if fresh and self.remote.conditional is None:  # once: a refusal tells that the remote keeps to conditions
            self.remote.put(name, data, timeout=timeout, create=True)
        observed = blobs.get(record.observations)
        self._add_candidate(record.action, record.observations, observed, timeout)
        return fresh

    def _upload_blob(self, digest: Digest, data: bytes, timeout: float) -> None:
        name, frame = self.object_name("blobs", digest.hex), squeeze(data)
        if self.remote.put(name, frame, timeout=timeout, create=True):
            return
        try:
            found = self._get(name, timeout, len(frame) * 2 + 1024)
        except FormatError:
            found = None
        whole = found is not None and _blob(found.data, BlobRef(digest, len(data))) is not None
        old = found is not None and 0 < found.modified < self.now() - REFRESH_SECONDS
        if not whole or old:
            self.remote.put(name, frame, timeout=timeout)

    def _damaged_record(self, fingerprint: Fingerprint, name: str, timeout: float) -> bool:
        """Whether what stands under a record's name is wrong, or not let in: then it is replaced."""
        try:
            found = self._get(name, timeout)
            if found is None:
                return True
            decode_record(unpack(found.data, blobs=False).head)
        except NewerFormatError:
            return False
        except FormatError:
            return True
        try:
            fetched = self.opened(fingerprint, found.data)
        except TrustError:  # what nobody here believes is of no use to those who believe us
            return True
        if fetched is None:
            return True
        inside = [ref.digest for _, ref in fetched.record.blobs if ref.size <= self.inline]
        return not fetched.blobs.keys() >= set(inside)

    def _add_candidate(self, action: Action, observations: Digest, observed: bytes | None, timeout: float) -> None:
        """Put a set in front of the others. A lost race loses a hint: it is tried again, and then let be."""
        name = self.object_name("manifests", action.hex)
        for attempt in range(_TRIES):
            # What was not looked at is taken for absent: for a new action that saves a request, and if it is wrong
            # the conditional write tells.
            look = attempt or self.remote.conditional is not True
            try:
                found = self._get(name, timeout) if look else self._manifests.pop(action, None)
            except FormatError:  # too large to be one
                self.remote.delete([name], timeout=timeout)
                continue
            sets = {} if found is None else _manifest(action, found.data)
            if sets is None:  # a newer format
                return
            if next(iter(sets), None) == observations:
                return
            sets.pop(observations, None)
            known = dict(list({observations: observed, **sets}.items())[:MANIFEST_CANDIDATES])
            data = pack(encode_manifest(action, tuple(known)), [(d, b) for d, b in known.items() if b is not None])
            tag = found.tag if found is not None else ""
            if self.remote.put(name, data, timeout=timeout, create=found is None, match=tag):
                self._absent.pop(name, 0.0)
                return

    # --- the rest

    def names(self, kind: str, *, timeout: float = _BACKGROUND_SECONDS) -> Iterator[str]:
        """The hex names of all records, blobs or manifests. Lists: never on the way of a lookup.

        Empty objects, which a server may make of a write that was cut off, are none.
        """
        for entry in self.remote.scan(f"{_ROOT}/{kind}/", timeout=timeout):
            name = entry.name.rpartition("/")[2]
            if entry.size and len(name) == 64 and entry.name == self.object_name(kind, name):
                yield name

    def refresh(self) -> None:
        """Believe nothing that was seen before."""
        self._absent.clear()
        self._manifests.clear()

    def close(self) -> None:
        """Let go of connections."""
        self.refresh()
        self.remote.close()

    @staticmethod
    def object_name(kind: str, name: str) -> str:
        """Where a record, blob or manifest is, by its 64 hex digits."""
        return f"{_ROOT}/{kind}/{name[:2]}/{name}"

    def _get(self, name: str, timeout: float, limit: int = OBJECT_LIMIT) -> Object | None:
        """An object. One that is too large is damaged, and no reason to think ill of the remote."""
        try:
            return self.remote.get(name, timeout=timeout, limit=limit)
        except RemoteMisconfiguredError as exc:
            try:
                entry = self.remote.stat(name, timeout=timeout)
            except RemoteError:
                raise exc from None
            if entry is None or entry.size <= limit:
                raise
            raise FormatError("read object", name, f"{entry.size} bytes, where at most {limit} belong") from exc

    def _known_absent(self, name: str) -> bool:
        seen = self._absent.get(name)
        return seen is not None and time.monotonic() - seen < _ABSENT_SECONDS


def _blob(frame: bytes, ref: BlobRef) -> bytes | None:
    try:
        data = expand(frame, ref.size)
    except FormatError:
        return None
    return data if blake3(data).hexdigest() == ref.digest.hex else None


def _manifest(action: Action, data: bytes) -> dict[Digest, bytes | None] | None:
    """Candidates with their sets; none if it is damaged or another's; `None` if it is in a newer format."""
    try:
        return _sets(action, data)
    except NewerFormatError:
        return None
    except FormatError:
        return {}


def _sets(action: Action, data: bytes) -> dict[Digest, bytes | None]:
    found, candidates = decode_manifest(unpack(data, blobs=False).head)
    if found != action:
        raise FormatError("read manifest", action, f"it is the manifest of {found}")
    sets = unpack(data).blobs
    return {digest: sets.get(digest) for digest in candidates}
