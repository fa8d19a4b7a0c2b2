"""A folder that many hosts see: a network mount, an image layer. Read-only unless the settings say otherwise.

Reading takes no lock, makes no file or folder, and touches none; whatever the mount answers but bytes is a miss or
trouble with this layer, and an answer that does not come in time is trouble too. What is damaged stays where it is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

from cubinet._deadline import Deadline, StuckError
from cubinet._fs import Fs
from cubinet.errors import ConfigError, FormatError, ReadOnlyError, StoreError, TrustError
from cubinet.model import Action, BlobRef, Digest, Fingerprint, Record
from cubinet.store.far import Fetched, NoPolicy, Policy
from cubinet.store.format import encode_record
from cubinet.store.local import LocalLayer, check_trust

__all__ = ["SharedLayer"]

_SECONDS = 30.0
T = TypeVar("T")


class _Files(LocalLayer):
    """The files of a folder that is not ours alone."""

    writes = False

    def quarantine(self, kind: str, name: str, suffix: str, why: str) -> None:
        """Move what is damaged away only if builds go here."""
        if self.writes:
            super().quarantine(kind, name, suffix, why)

    def _prepare(self) -> None:
        if not self.writes:
            raise ReadOnlyError("write to", self.folder, "this layer is read-only", "say ?rw if builds are to go there")
        super()._prepare()


class SharedLayer:
    """Builds in a shared folder, as a `LocalLayer` lays them out. Safe in threads, survives `fork`.

    Args:
        folder: where.
        name: for counters and messages.
        policy: which records are let in.
        owner_only: refuse the folder if somebody else than its user could have written into it.
        writable: whether builds go there; folders then get mode 2775, so that a group can share it.
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
    ) -> None:
        self.remote = None
        self.name, self.place, self.policy = name, folder, policy or NoPolicy()
        self.owner_only, self.writable = owner_only, writable
        self._files = _Files(folder, fs=fs, durable=durable, shared=True)
        self._files.writes = writable
        self._deadline = Deadline()

    def prepare(self) -> None:
        """Nothing to do."""

    def _trusted(self) -> None:
        if self.owner_only:
            try:
                check_trust(self.place)
            except ConfigError as exc:
                raise TrustError("use layer", self.place, exc.finding, "chmod it, or say trust=signed or open") from exc

    # --- reading

    def find(self, fingerprint: Fingerprint) -> Record | None:
        """The record of a fingerprint, checked and admitted; `None` if there is none, or a damaged one."""
        found = self._admitted(fingerprint)
        return found[0] if found else None

    def _admitted(self, fingerprint: Fingerprint) -> tuple[Record, bytes] | None:
        self._trusted()
        found = self._files.raw(fingerprint)
        if found is not None:
            self.policy.admit(found[1], found[0])
        return found

    def fetch(self, fingerprint: Fingerprint, *, timeout: float, main: bool = True) -> Fetched | None:
        """A build, verified, with all of its blobs that are there. Raises `TrustError`, `StoreError`."""

        def look() -> Fetched | None:
            found = self._admitted(fingerprint)
            if found is None:
                return None
            record, raw = found
            blobs = {}
            for role, ref in record.blobs:
                data = self._files.read(ref) if main else None
                if data is not None:
                    blobs[ref.digest] = data
                elif main and role == record.kind:
                    return None
            return Fetched(record, raw, blobs)

        return self._in_time(look, timeout)

    def read(self, ref: BlobRef, *, timeout: float = _SECONDS) -> bytes | None:
        """The verified bytes of a blob; `None` if it is gone or damaged."""
        return self._in_time(lambda: self._files.read(ref), timeout)

    def candidates(self, action: Action, *, timeout: float) -> list[tuple[Digest, bytes | None]]:
        """Observation sets seen with an action, newest first, with their bytes."""

        def look() -> list[tuple[Digest, bytes | None]]:
            self._trusted()
            return [(digest, self._files.read_named(digest)) for digest in self._files.candidates(action)]

        return self._in_time(look, timeout)

    def _in_time(self, look: Callable[[], T], timeout: float) -> T:
        try:
            return self._deadline.run(look, timeout)
        except StuckError as exc:
            raise StoreError("read", self.place, str(exc), "look at its mount") from exc
        except FormatError as exc:  # a newer store: left alone
            raise StoreError("read", self.place, exc.finding, exc.remedy) from exc

    # --- writing

    def publish(self, record: Record, blobs: Mapping[Digest, bytes]) -> bool:
        """Store a build; `False` if the fingerprint was there already. See `Layer.publish`."""
        return self.upload(record, encode_record(record), blobs)

    def upload(self, record: Record, raw: bytes, blobs: Mapping[Digest, bytes], *, timeout: float = _SECONDS) -> bool:
        """The same for a record in its stored form."""
        return self._in_time(lambda: self._files.publish(record, blobs, raw), timeout)

    def refresh(self) -> None:
        """Nothing is remembered."""

    def close(self) -> None:
        """Nothing is held open."""
