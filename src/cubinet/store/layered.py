"""The lookup over layers, and what is done when a layer fails: this policy is nowhere else.

A layer in trouble costs a miss, a count and one warning, never the build; `strict` raises instead.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

from cubinet.errors import IntegrityError, StoreError
from cubinet.events import Counters
from cubinet.fingerprint import fingerprint_of
from cubinet.model import Action, Artifact, BlobRef, Digest, Fingerprint, Record
from cubinet.protocols import Request
from cubinet.store.format import Failure, decode_record
from cubinet.store.local import LocalLayer
from cubinet.store.memo import Checker

__all__ = ["Layered", "Reader"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Reader:
    """Reads further blobs of an artifact. Pickles as the folder it reads from."""

    layer: LocalLayer

    def __call__(self, ref: BlobRef) -> bytes:
        """The bytes of a blob; `IntegrityError` if it is gone or damaged."""
        data = self.layer.read(ref)
        if data is None:
            raise IntegrityError(f"blob {ref.digest}", f"its {ref.size} bytes", "others, or none")
        return data

    def __reduce__(self) -> tuple[Any, ...]:
        return _reader, (self.layer.folder,)


def _reader(folder: str) -> Reader:
    return Reader(LocalLayer(folder))


class Layered:
    """One local layer today; the order of layers is this class's business alone."""

    def __init__(self, local: LocalLayer, checker: Checker, counters: Counters, *, strict: bool) -> None:
        self.local, self.checker, self.counters, self.strict = local, checker, counters, strict
        self.reader = Reader(local)

    def warn(self, text: str, about: str = "") -> None:
        """Say something once a process; with `about`, say only the first thing about it."""
        if self.counters.first(about or text):
            import logging

            logging.getLogger("cubinet.store").warning("%s", text)

    def attempt(self, what: str, call: Callable[[], T], otherwise: T) -> tuple[T, str]:
        """Do something with a layer; on trouble go on with `otherwise` and say why."""
        try:
            return call(), ""
        except StoreError as exc:
            if self.strict:
                raise
            self.counters.add(f"error.{what}")
            self.warn(str(exc), f"{exc.action}: {exc.finding}")  # a full disk is one piece of news, not one a kernel
            return otherwise, str(exc)

    def lookup(self, request: Request, action: Action, *, again: bool = False) -> Artifact | None:
        """The build of a request whose observations hold here, newest first.

        A miss is counted with its reason, unless the same caller asks `again`.
        """
        none: tuple[Digest, ...] = ()
        candidates, _ = self.attempt("read", lambda: self.local.candidates(action), none)
        reason = "no build of this action" if not candidates else "observations differ"
        for observations in candidates:
            if self.checker.holds(observations, request.places, lambda o=observations: self._observations(o)):  # type: ignore[misc]
                artifact = self.find(fingerprint_of(action, observations))
                if artifact is not None:
                    return artifact
                reason = "its record or blob is gone"
        if not again:
            self.counters.add(f"miss.{reason}")
        return None

    def _observations(self, digest: Digest) -> bytes | None:
        # The size is not known from the digest: read_named verifies by content alone.
        return self.attempt("read", lambda: self.local.read_named(digest), None)[0]

    def find(self, fingerprint: Fingerprint) -> Artifact | None:
        """The build with this fingerprint, verified."""
        seen, _ = self.attempt("read", lambda: self.local.look(fingerprint), None)
        if seen is None:
            return None
        ref, record = seen
        data, trouble = self.attempt("read", lambda: self.local.read(ref), None) if ref else (None, "")
        if data is None:
            if not trouble:  # a record without its blob would stand in the way of the rebuild
                self.local.quarantine("records", fingerprint.hex, ".json", "its blob is gone or damaged")
            return None
        return Artifact(partial(decode_record, record), data, layer=self.local.name, _reader=self.reader)

    def publish(self, record: Record, blobs: Mapping[Digest, bytes]) -> str:
        """Store a build; why it was not stored, or an empty text."""
        fresh, why = self.attempt("publish", lambda: self.local.publish(record, blobs), otherwise=False)
        if not why and not fresh:
            first, _ = self.attempt("read", lambda: self.local.find(record.fingerprint), None)
            if first and first.blob(first.kind) != record.blob(record.kind):
                self.counters.add("nondeterministic")
        return why

    def remember_failure(self, failure: Failure) -> None:
        """Note a compile error for a minute, if that is possible."""
        self.attempt("publish", lambda: self.local.remember_failure(failure), None)

    def as_held(self, artifact: Artifact) -> Artifact:
        """The same artifact as a later lookup in this process reports it."""
        return replace(artifact, status=type(artifact.status).HIT, layer="process", seconds=0.0, messages="")
