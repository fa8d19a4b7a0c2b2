"""A folder that many hosts see: a network mount, an image layer. Read-only unless the settings say otherwise.

Reading takes no lock, makes no file or folder, and touches none; whatever the mount answers but bytes is a miss or
trouble with this layer, and an answer that does not come in time is trouble too. What is damaged stays where it is.
"""

from __future__ import annotations

import stat
from collections.abc import Callable, Mapping
from typing import TypeVar

from blake3 import blake3

from cubinet._deadline import Deadline, StuckError
from cubinet._fs import Fs
from cubinet.errors import ConfigError, FormatError, ReadOnlyError, StoreError, TrustError
from cubinet.model import Action, BlobRef, Digest, Fingerprint, Record
from cubinet.store.envelope import BLOB_LIMIT, OBJECT_LIMIT
from cubinet.store.far import Fetched, NoPolicy, Policy
from cubinet.store.format import encode_record
from cubinet.store.local import LocalLayer, check_trust

__all__ = ["SharedLayer"]

_SECONDS = 30.0
T = TypeVar("T")


class _Files(LocalLayer):
    """The files of a folder that is not ours alone, to read."""

    moves = False

    def quarantine(self, kind: str, name: str, suffix: str, why: str) -> None:
        """Tell of what is damaged; move it away only if builds go here."""
        if self.moves:
            super().quarantine(kind, name, suffix, why)
        raise FormatError(f"read {kind[:-1]}", name, why)

    def read(self, ref: BlobRef) -> bytes | None:
        """As `LocalLayer.read`, but no more is read than should be there."""
        if not 0 <= ref.size <= BLOB_LIMIT:
            raise FormatError("read blob", ref.digest, f"its record says {ref.size} bytes")
        data = self._whole(ref.digest, ref.size)
        if data is not None and len(data) != ref.size:
            raise FormatError("read blob", ref.digest, f"its record says {ref.size} bytes, it has {len(data)}")
        return data

    def read_named(self, digest: Digest) -> bytes | None:
        """As `LocalLayer.read_named`, up to the size that an observation set can have."""
        return self._whole(digest, OBJECT_LIMIT)

    def _whole(self, digest: Digest, limit: int) -> bytes | None:
        path = self.path("blobs", digest.hex)
        data = self._read(path, limit)
        if data is None:  # gone, or larger
            try:
                self.fs.stat(path)
            except OSError:
                return None
        elif blake3(data).hexdigest() == digest.hex:
            return data
        self.quarantine("blobs", digest.hex, "", f"it is not what its digest says, or more than {limit} bytes")
        return None


class SharedLayer:
    """Builds in a shared folder, as a `LocalLayer` lays them out. Safe in threads, survives `fork`.

    Args:
        folder: where.
        name: for counters and messages.
        policy: which records are let in.
        owner_only: refuse the folder if somebody else than its user could have written into it.
        writable: whether builds go there; folders then get mode 2775, so that a group can share it.
        patience: seconds to wait for the mount to say whether there is such a folder.
    """

    def __init__(
        self,
        folder: str,
        *,
        name: str = "shared",
        policy: Policy | None = None,
        owner_only: bool = False,
        writable: bool = False,
        fs: Fs | None = None,
        durable: bool = True,
        patience: float = _SECONDS,
    ) -> None:
        self.remote, self._patience = None, patience
        self.name, self.place, self.policy = name, folder, policy or NoPolicy()
        self.owner_only, self.writable = owner_only, writable
        self._files = _Files(folder, fs=fs, durable=durable, shared=True)
        self._files.moves = writable
        self._target = LocalLayer(folder, fs=fs, durable=durable, shared=True)
        self._deadline = Deadline()

    def prepare(self) -> None:
        """Look whether there is such a folder: one that is not mounted looks like one in which nothing was built."""
        if not self.writable and not self._in_time(self._there, self._patience):
            raise StoreError("use layer", self.place, "no such folder", "make or mount it")

    def _there(self) -> bool:
        try:
            return stat.S_ISDIR(self._files.fs.stat(self.place).st_mode)
        except OSError:
            return False

    def _trusted(self) -> None:
        if self.owner_only:
            try:
                check_trust(self.place)
            except ConfigError as exc:
                raise TrustError("use layer", self.place, exc.finding, "chmod it, or say trust=signed or open") from exc

    # --- reading

    def find(self, fingerprint: Fingerprint) -> Record | None:
        """The record of a fingerprint, checked and admitted; `None` if there is none, or a damaged one."""
        try:
            found = self._admitted(fingerprint)
        except FormatError:
            return None
        return found[0] if found else None

    def _admitted(self, fingerprint: Fingerprint) -> tuple[Record, bytes] | None:
        self._trusted()
        found = self._files.raw(fingerprint)
        if found is not None:
            self.policy.admit(found[1], found[0])
        return found

    def fetch(self, fingerprint: Fingerprint, *, timeout: float, main: bool = True) -> Fetched | None:
        """A build, verified, with all of its blobs that are whole. Raises `TrustError`, `StoreError`."""

        def look() -> Fetched | None:
            found = self._admitted(fingerprint)
            if found is None:
                return None
            record, raw = found
            if main and record.blob(record.kind) is None:
                raise FormatError("read record", fingerprint, "it has no blob of its kind")
            blobs = {}
            for role, ref in record.blobs if main else ():
                try:
                    data = self._files.read(ref)
                except FormatError:
                    if role == record.kind:
                        raise
                    continue
                if data is not None:
                    blobs[ref.digest] = data
                elif role == record.kind:
                    return None
            return Fetched(record, raw, blobs)

        return self._in_time(look, timeout)

    def read(self, ref: BlobRef, *, timeout: float = _SECONDS) -> bytes | None:
        """The verified bytes of a blob; `None` if it is gone or damaged."""

        def look() -> bytes | None:
            try:
                return self._files.read(ref)
            except FormatError:
                return None

        return self._in_time(look, timeout)

    def candidates(self, action: Action, *, timeout: float) -> list[tuple[Digest, bytes | None]]:
        """Observation sets seen with an action, newest first, with their bytes."""

        def look() -> list[tuple[Digest, bytes | None]]:
            self._trusted()
            found: list[tuple[Digest, bytes | None]] = []
            trouble: FormatError | None = None
            for digest in self._files.candidates(action):
                try:
                    found.append((digest, self._files.read_named(digest)))
                except FormatError as exc:
                    trouble = exc
            if trouble is not None and not found:
                raise trouble
            return found

        return self._in_time(look, timeout)

    def _in_time(self, look: Callable[[], T], timeout: float) -> T:
        try:
            return self._deadline.run(look, timeout)
        except StuckError as exc:
            raise StoreError("read", self.place, str(exc), "look at its mount") from exc

    # --- writing

    def publish(self, record: Record, blobs: Mapping[Digest, bytes]) -> bool:
        """Store a build; `False` if the fingerprint was there already. See `Layer.publish`."""
        return self.upload(record, encode_record(record), blobs)

    def upload(self, record: Record, raw: bytes, blobs: Mapping[Digest, bytes], *, timeout: float = _SECONDS) -> bool:
        """The same for a record in its stored form."""
        if not self.writable:
            raise ReadOnlyError("write to", self.place, "this layer is read-only", "say ?rw if builds are to go there")

        def write() -> bool:
            try:
                self._admitted(record.fingerprint)
            except TrustError as exc:  # what nobody here believes is of no use to those who believe us
                self._target.quarantine("records", record.fingerprint.hex, ".json", exc.finding)
            except FormatError:
                pass  # moved away
            return self._target.publish(record, blobs, raw)

        return self._in_time(write, timeout)

    def refresh(self) -> None:
        """Nothing is remembered."""

    def close(self) -> None:
        """Nothing is held open."""
