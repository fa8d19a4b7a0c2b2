"""The lookup over layers: which is asked when, what comes back to which, and what a layer in trouble costs.

Trouble costs a miss, a count and one warning, never the build; `strict` raises instead. For layers beyond the local one
`guard.py` has the budget and the breaker.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from cubinet.errors import ConfigError, IntegrityError, RemoteError, StoreError
from cubinet.events import Counters
from cubinet.fingerprint import fingerprint_of
from cubinet.model import Action, Artifact, BlobRef, Digest, Fingerprint, Record
from cubinet.protocols import Request
from cubinet.store.far import FarLayer, Fetched
from cubinet.store.format import Failure, Stored, decode_record, encode_record
from cubinet.store.guard import Guard
from cubinet.store.local import LocalLayer
from cubinet.store.memo import Checker
from cubinet.store.uploads import Job, Uploads

if TYPE_CHECKING:
    from cubinet.store.lease import Lease
    from cubinet.store.usage import Usage

__all__ = ["Guarded", "Layered", "Reader"]

T = TypeVar("T")
Guarded = tuple[FarLayer, Guard]

_UPLOAD_SECONDS = 30.0
_OUTSIDE = b" file:"
"""In a set: a file of one machine. Such builds stay in their local layer, so a set from elsewhere that has one is
made up, perhaps to have somebody read a whole disk."""
_NO_LIMIT = 1e6
_LEAST_SECONDS = 0.25
"""That a lookup may take though the compile is quicker: enough to hear from a healthy remote."""


@dataclass(frozen=True, slots=True)
class Reader:
    """Reads further blobs of an artifact. Pickles as the folder it reads from."""

    layer: LocalLayer
    far: Callable[[BlobRef], bytes | None] | None = None

    def __call__(self, ref: BlobRef) -> bytes:
        """The bytes of a blob; `IntegrityError` if it is gone or damaged."""
        data = self.layer.read(ref)
        if data is None and self.far is not None:
            data = self.far(ref)
        if data is None:
            raise IntegrityError(f"blob {ref.digest}", f"its {ref.size} bytes", "others, or none")
        return data

    def __reduce__(self) -> tuple[Any, ...]:
        return _reader, (self.layer.folder,)


def _reader(folder: str) -> Reader:
    return Reader(LocalLayer(folder))


class Layered:
    """The local layer, and the others in the order in which they are asked.

    Args:
        local: the local layer.
        open_far: makes the others; called when the local one has missed for the first time.
        uploads: the queue of what goes to them.
        sign: a record's stored form → the same with a signature.
        admit: raises `TrustError` for a record that was revoked after it came here; `None` if nothing is revoked.
        uses: what remotes are told of uses.
        published: called with each record that comes into the local layer.
        differs: called with a record whose main blob is not the one that was stored first, and its digest.
    """

    def __init__(
        self,
        local: LocalLayer,
        checker: Checker,
        counters: Counters,
        *,
        strict: bool,
        open_far: Callable[[], Sequence[Guarded]] = tuple,
        uploads: Uploads | None = None,
        sign: Callable[[bytes], bytes] | None = None,
        admit: Callable[[bytes, Record], object] | None = None,
        uses: Usage | None = None,
        published: Callable[[Record], object] = lambda _record: None,
        differs: Callable[[Record, Digest], object] = lambda _record, _digest: None,
    ) -> None:
        self.local, self.checker, self.counters, self.strict = local, checker, counters, strict
        self.uploads, self.sign, self.admit = uploads or Uploads(counters, self.warn, 0.0), sign, admit
        self.uses, self.published, self.differs = uses, published, differs
        self._open_far = open_far
        self._far: list[Guarded] | None = None
        # what came from another layer can come again: no need to wait for the disk
        self._back = LocalLayer(local.folder, fs=local.fs, durable=False, warn=local.warn)
        self.reader = Reader(local, self._read_far)

    @property
    def far(self) -> list[Guarded]:
        """The layers beyond the local one."""
        if self._far is None:
            self._far = list(self._open_far())
            if self.uses is not None:
                self.uploads.at_end(self._tell)
        return self._far

    def warn(self, text: str, about: str = "") -> None:
        """Say something once a process; with `about`, say only the first thing about it."""
        if self.counters.first(about or text):
            import logging

            logging.getLogger("cubinet.store").warning("%s", text)

    def attempt(self, what: str, call: Callable[[], T], otherwise: T) -> tuple[T, str]:
        """Do something with the local layer; on trouble go on with `otherwise` and say why."""
        try:
            return call(), ""
        except StoreError as exc:
            if self.strict:
                raise
            self.counters.add(f"error.{what}")
            self.warn(str(exc), f"{exc.action}: {exc.finding}")  # a full disk is one piece of news, not one a kernel
            return otherwise, str(exc)

    # --- lookups

    def lookup(self, request: Request, action: Action, *, again: bool = False) -> Artifact | None:
        """The build of a request whose observations hold here, newest first.

        A miss is counted with its reason, unless the same caller asks `again`: then the local layer alone is asked.
        """
        none: tuple[Digest, ...] = ()
        candidates, _ = self.attempt("read", lambda: self.local.candidates(action), none)
        begun = again
        reason = "no build of this action" if not candidates else "observations differ"
        for observations in candidates:
            if self.checker.holds(observations, request.places, lambda o=observations: self._observations(o)):  # type: ignore[misc]
                fingerprint = fingerprint_of(action, observations)
                artifact = self._find_here(fingerprint)
                if artifact is None and not again:
                    begun = begun or self._begin(fingerprint_of(action, candidates[0]))
                    artifact = self._find_far(fingerprint)
                if artifact is not None:
                    return artifact
                reason = "its record or blob is gone"
        if not again and self.far:
            if not begun:
                self._begin(fingerprint_of(action, candidates[0]) if candidates else None)
            artifact = self.lookup_far(request, action, set(candidates))
            if artifact is not None:
                return artifact
        if not again:
            self.counters.add(f"miss.{reason}")
        return None

    def lookup_far(self, request: Request, action: Action, known: set[Digest]) -> Artifact | None:
        """The same beyond the local layer, where sets that are `known` not to lead to a build are passed over."""
        for layer, guard in self.far:
            none: list[tuple[Digest, bytes | None]] = []
            found, _ = guard.attempt("read", partial(layer.candidates, action), none)
            for observations, data in found:
                if observations in known or (data is not None and _OUTSIDE in data):
                    continue
                known.add(observations)
                if self.checker.holds(observations, request.places, lambda d=data: d):  # type: ignore[misc]
                    artifact = self._find_far(fingerprint_of(action, observations))
                    if artifact is not None:
                        return artifact
        return None

    def _begin(self, near: Fingerprint | None) -> bool:
        """Start the clocks: a layer may take as long as it is told to, and at most half of a compile like `near`."""
        seconds = None
        if near is not None and self.far:
            record, _ = self.attempt("read", lambda: self.local.find(near), None)
            seconds = max(record.seconds / 2, _LEAST_SECONDS) if record else None
        for layer, guard in self.far:
            guard.begin(layer.prepare, seconds)
        return True

    def _observations(self, digest: Digest) -> bytes | None:
        # The size is not known from the digest: read_named verifies by content alone.
        return self.attempt("read", lambda: self.local.read_named(digest), None)[0]

    def find(self, fingerprint: Fingerprint) -> Artifact | None:
        """The build with this fingerprint, verified."""
        artifact = self._find_here(fingerprint)
        if artifact is None and self.far:
            self._begin(None)
            artifact = self._find_far(fingerprint)
        return artifact

    def _find_here(self, fingerprint: Fingerprint) -> Artifact | None:
        seen, _ = self.attempt("read", lambda: self.local.look(fingerprint), None)
        if seen is None:
            return None
        ref, record = seen
        data, trouble = self.attempt("read", lambda: self.local.read(ref), None) if ref else (None, "")
        if data is None:
            if not trouble:  # a record without its blob would stand in the way of the rebuild
                self.local.quarantine("records", fingerprint.hex, ".json", "its blob is gone or damaged")
            return None
        if self.admit is not None and not self._admitted(fingerprint, record):
            return None
        self._use(fingerprint)
        return Artifact(Stored(record), data, layer=self.local.name, _fingerprint=fingerprint, _reader=self.reader)

    def _admitted(self, fingerprint: Fingerprint, raw: bytes) -> bool:
        assert self.admit is not None  # noqa: S101 - asked by the caller
        try:
            self.admit(raw, decode_record(raw))
        except StoreError as exc:
            if self.strict:
                raise
            self.counters.add(f"refused.{self.local.name}")
            self.warn(str(exc))
            self.local.quarantine("records", fingerprint.hex, ".json", exc.finding)
            return False
        return True

    def _find_far(self, fingerprint: Fingerprint) -> Artifact | None:
        for at, (layer, guard) in enumerate(self.far):
            found, _ = guard.attempt("read", partial(layer.fetch, fingerprint), None)
            if found is not None and not found.record.local_only:
                return self._arrived(found, at)
        return None

    def _arrived(self, found: Fetched, at: int) -> Artifact:
        """Hand over what a layer gave, and put it into the layers before it."""
        record, (layer, guard) = found.record, self.far[at]
        self._use(record.fingerprint)
        missing = [ref for _, ref in record.blobs if ref.digest not in found.blobs]

        def back() -> None:
            for ref in missing:
                data, _ = guard.attempt("read", partial(layer.read, ref), None, limit=_UPLOAD_SECONDS)
                if data is None:
                    return
                found.blobs[ref.digest] = data
            fresh, _ = self.attempt(
                "publish", lambda: self._back.publish(record, found.blobs, found.raw), otherwise=False
            )
            if fresh:
                self.published(record)

        size = sum(map(len, found.blobs.values()))
        if missing:
            self.uploads.add(Job(back, size))
        else:
            back()
        for nearer, its_guard in self.far[:at]:
            if nearer.writable and not missing:
                self.uploads.add(Job(partial(self._send, nearer, its_guard, record, found.raw, found.blobs), size))
        ref = record.blob(record.kind)
        data = found.blobs[ref.digest] if ref else b""
        more = {role: found.blobs[r.digest] for role, r in record.blobs if r.digest in found.blobs}
        return Artifact(
            record, data, layer=layer.name, _fingerprint=record.fingerprint, _more=more, _reader=self.reader
        )

    def _read_far(self, ref: BlobRef) -> bytes | None:
        for layer, guard in self.far:
            guard.begin(layer.prepare)
            data, _ = guard.attempt("read", partial(layer.read, ref), None)
            if data is not None:
                return data
        return None

    # --- publishing

    def publish(self, record: Record, blobs: Mapping[Digest, bytes], then: Callable[[], object] = lambda: None) -> str:
        """Store a build, here at once and elsewhere later; why it was not stored here, or an empty text.

        `then` is called when it is everywhere, or nowhere else.
        """
        raw, why = self.attempt("publish", partial(self._stored, record), b"")
        if why:
            then()
            return why
        if self.sign is not None:
            record = decode_record(raw)
        fresh, why = self.attempt("publish", lambda: self.local.publish(record, blobs, raw), otherwise=False)
        if fresh:
            self.published(record)
        elif not why:
            first, _ = self.attempt("read", lambda: self.local.find(record.fingerprint), None)
            ref = record.blob(record.kind)
            if first and ref and first.blob(first.kind) != ref:
                self.counters.add("nondeterministic")
                self.differs(first, ref.digest)
        self._upload(record, raw, blobs, then)
        return why

    def _stored(self, record: Record) -> bytes:
        raw = encode_record(record)
        return self.sign(raw) if self.sign is not None else raw

    def _upload(self, record: Record, raw: bytes, blobs: Mapping[Digest, bytes], then: Callable[[], object]) -> None:
        targets = [] if record.local_only else [pair for pair in self.far if pair[0].writable]
        if not targets:
            then()
            return

        self._use(record.fingerprint)  # it may be there already, and old

        def send() -> None:
            try:
                for layer, guard in targets:
                    self._send(layer, guard, record, raw, blobs)
            finally:
                then()

        self.uploads.add(Job(send, len(raw) + sum(map(len, blobs.values())), dropped=then))

    def _send(self, layer: FarLayer, guard: Guard, record: Record, raw: bytes, blobs: Mapping[Digest, bytes]) -> None:
        try:
            guard.begin(layer.prepare)
            fresh, why = guard.attempt(
                "publish", partial(layer.upload, record, raw, blobs), otherwise=False, limit=_UPLOAD_SECONDS
            )
        except (ConfigError, RemoteError, StoreError) as exc:  # strict: there is nobody to raise it to
            fresh, why = False, str(exc)
            self.warn(why)
        if why:
            self.counters.add("upload.dropped")
        elif fresh:
            self.counters.add(f"upload.{layer.name}")

    def lease(self, request: Request, action: Action, limit: float | None) -> tuple[Lease | None, Artifact | None]:
        """The right to compile in the name of all hosts, or what another one has compiled meanwhile; or neither."""
        nothing: tuple[Lease | None, Artifact | None] = (None, None)
        pair = next((p for p in self.far if p[0].remote is not None and p[0].writable), None)
        if pair is None or pair[0].remote is None:
            return nothing
        layer, guard = pair
        from cubinet.store.lease import take

        def look() -> Artifact | None:
            layer.refresh()
            guard.begin(layer.prepare)
            return self.lookup_far(request, action, set())

        guard.begin(layer.prepare)
        wait = partial(take, pair[0].remote, action, look, limit=limit)
        return guard.attempt("lease", wait, nothing, limit=limit or _NO_LIMIT)[0]

    def remember_failure(self, failure: Failure) -> None:
        """Note a compile error for a minute, if that is possible."""
        self.attempt("publish", lambda: self.local.remember_failure(failure), None)

    def reject(self, artifact: Artifact, why: str) -> None:
        """Move a build away that has its digest and is no sound object all the same."""
        ref = artifact.record.blob(artifact.record.kind)
        self.local.quarantine("records", artifact.fingerprint.hex, ".json", why)
        if ref is not None:
            self.local.quarantine("blobs", ref.digest.hex, "", why)

    def as_held(self, artifact: Artifact) -> Artifact:
        """The same artifact as a later lookup in this process reports it."""
        return replace(artifact, status=type(artifact.status).HIT, layer="process", seconds=0.0, messages="")

    def refresh(self) -> None:
        """Believe nothing that was seen in other layers before, and try those again that were left alone."""
        for layer, guard in self._far or ():
            layer.refresh()
            guard.forget()

    def _use(self, fingerprint: Fingerprint) -> None:
        if self.uses is not None and self.uses.note(fingerprint) and self._far:
            self.uploads.add(Job(self._tell, 0, build=False))

    def _tell(self) -> None:
        """Tell the remotes what was used, or leave that to a later process."""
        if self.uses is None:
            return
        told = [pair for pair in self._far or () if pair[0].remote is not None and pair[0].writable]
        if not told or not self.uses.send([partial(self._tell_one, *pair) for pair in told]):
            self.uses.save()

    def _tell_one(self, layer: FarLayer, guard: Guard, used: Collection[str]) -> bool:
        from cubinet.store.usage import write_note

        assert layer.remote is not None  # noqa: S101 - asked by the caller
        assert self.uses is not None  # noqa: S101
        try:
            guard.begin(layer.prepare)
            call = partial(write_note, layer.remote, self.uses.client, used)
            return guard.attempt("note", call, otherwise=False, limit=_UPLOAD_SECONDS)[0]
        except (ConfigError, RemoteError, StoreError):  # strict: there is nobody to raise it to, and it was counted
            return False

    def close(self) -> None:
        """Finish what is to be uploaded, within its time, and let go of everything."""
        if self._far:
            self.uploads.drain()
            for layer, _ in self._far:
                layer.close()
        elif self.uses is not None:
            self.uses.save()
        self.local.close()
