"""What the lookup asks of a layer beyond the local one, whether it is a folder or a remote."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from cubinet.model import Action, BlobRef, Digest, Fingerprint, Record
from cubinet.protocols import Remote

__all__ = ["FarLayer", "Fetched", "NoPolicy", "Policy", "Recent"]

K = TypeVar("K")
V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class Fetched:
    """A build as a layer gave it: its record, the record's line as it is stored, and verified blobs by digest."""

    record: Record
    raw: bytes
    blobs: dict[Digest, bytes]


class Policy(Protocol):
    """Which records a layer may give."""

    def admit(self, raw_record: bytes, record: Record) -> object:
        """Nothing, or a `TrustError`."""
        ...


class NoPolicy:
    """Lets everything in."""

    def admit(self, raw_record: bytes, record: Record) -> None:
        """Nothing to say."""


class FarLayer(Protocol):
    """A layer beyond the local one. A miss is `None`; trouble raises `StoreError` or `RemoteError`."""

    name: str
    place: str
    writable: bool

    @property
    def remote(self) -> Remote | None:
        """What it is a layer over; `None` for a folder."""
        ...

    def prepare(self) -> None:
        """Whatever takes time the first time and asks nobody anything."""
        ...

    def candidates(self, action: Action, *, timeout: float) -> list[tuple[Digest, bytes | None]]:
        """Observation sets seen with an action, newest first, each with its bytes if they came along."""
        ...

    def fetch(self, fingerprint: Fingerprint, *, timeout: float, main: bool = True) -> Fetched | None:
        """A build, verified and admitted; with `main` at least its main blob. Raises `TrustError`."""
        ...

    def read(self, ref: BlobRef, *, timeout: float) -> bytes | None:
        """The verified bytes of a blob; `None` if it is gone or damaged."""
        ...

    def upload(self, record: Record, raw: bytes, blobs: Mapping[Digest, bytes], *, timeout: float) -> bool:
        """Store a build; `False` if the fingerprint was there already."""
        ...

    def refresh(self) -> None:
        """Believe nothing that was seen before."""
        ...

    def close(self) -> None:
        """Let go of what is open."""
        ...


class Recent(Generic[K, V]):
    """The last few thousand things that were seen. Safe in threads, survives `fork`."""

    LIMIT = 4096

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._items: OrderedDict[K, V] = OrderedDict()
        self._pid = os.getpid()

    def _mine(self) -> threading.Lock:
        if os.getpid() != self._pid:  # the lock may have been held by a thread that is not here
            self._lock, self._pid = threading.Lock(), os.getpid()
        return self._lock

    def put(self, key: K, value: V) -> None:
        """Remember; the oldest goes."""
        with self._mine():
            self._items[key] = value
            self._items.move_to_end(key)
            if len(self._items) > self.LIMIT:
                self._items.popitem(last=False)

    def get(self, key: K) -> V | None:
        """What was seen, or `None`."""
        return self._items.get(key)

    def pop(self, key: K, otherwise: V) -> V:
        """What was seen, which is then forgotten."""
        with self._mine():
            return self._items.pop(key, otherwise)

    def clear(self) -> None:
        """Forget."""
        with self._mine():
            self._items.clear()
