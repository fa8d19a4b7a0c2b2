"""The lookup of a store: find, or compile once and keep."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from cubinet._fs import Fs
from cubinet.config import Settings
from cubinet.errors import CompileError, CompileTimeoutError, ConfigError, LockTimeoutError, StoreError
from cubinet.events import Counters, Event
from cubinet.fingerprint import action_of, action_parts, observations_bytes
from cubinet.model import Action, Artifact, Fingerprint, Record, Status, Variant
from cubinet.observations import Contents
from cubinet.protocols import Compiler, Request
from cubinet.registry import Workshop, compiler
from cubinet.store.building import passed, record_of
from cubinet.store.failures import Failures
from cubinet.store.keeper import Keeper
from cubinet.store.layered import Layered
from cubinet.store.local import LocalLayer, check_trust
from cubinet.store.memo import Checker
from cubinet.store.opening import Opener
from cubinet.store.single_flight import SingleFlight
from cubinet.store.uploads import Uploads

if TYPE_CHECKING:
    from cubinet.store.index import Index, IndexWriter
    from cubinet.store.lease import Lease
    from cubinet.store.retention import Retention
    from cubinet.store.usage import Usage

__all__ = ["Lookup"]

_Sound = tuple[Artifact, bool]
"""A result, and whether it is the right one for everybody who asks for the same."""

_HELD_LIMIT = 4096
_ALONE: tuple[Lease | None, Artifact | None] = (None, None)


class Lookup:
    """What a `Store` does to find or make a build. Its arguments are those of `Store`."""

    def __init__(
        self,
        folder: str | os.PathLike[str] | None = None,
        *,
        settings: Settings | None = None,
        environ: Mapping[str, str] | None = None,
        fs: Fs | None = None,
        compilers: Mapping[str, Compiler] | None = None,
    ) -> None:
        settings = settings or Settings.from_env(environ=environ)
        if folder is not None:
            settings = replace(settings, dir=os.path.abspath(os.fspath(folder)))
        self.settings, self._fs = settings, fs or Fs()
        self._own_environ, self._environ = environ, dict(os.environ if environ is None else environ)
        self._given = dict(compilers or {})
        self.folder = settings.folder
        if settings.trust == "owner":
            check_trust(self.folder)
        self.counters = Counters()
        if settings.stats:
            _told_at_exit(self.counters)
        self._contents = Contents(self._fs)
        self._local = LocalLayer(self.folder, fs=self._fs, durable=settings.durable, warn=self._damaged)
        self._checker = Checker(
            f"{self.folder}/memo",
            self._contents,
            fs=self._fs,
            refresh=settings.refresh,
            temporary=self._local.temporary,
        )
        self._opener = Opener(settings, self._environ, self._fs, self.counters, self._warn)
        self._layers = Layered(
            self._local,
            self._checker,
            self.counters,
            strict=settings.strict,
            open_far=self._opener.layers,
            uploads=Uploads(self.counters, self._warn, settings.drain),
            sign=self._opener.sign(),
            admit=self._opener.admit(),
            published=self._published,
            differs=lambda record, digest: self.notes.note_nondeterminism(record.fingerprint, digest),
            uses=self._uses(),
        )
        self._failures = Failures(self._layers, self._contents)
        self._flight: SingleFlight[tuple[Action, tuple[tuple[str, str], ...]], _Sound] = SingleFlight()
        self._compilers = dict(self._given)
        self._held: dict[Variant, tuple[object, Artifact]] = {}
        self._index: Index | None = None
        self._notes: IndexWriter | None = None
        self._made: dict[str, IndexWriter] = {}
        self.counters.listen(self._told)
        self._keeper = Keeper(self._local, settings, self._layers.uploads, self._retention, self._warn)

    def _uses(self) -> Usage | None:
        if not any(spec.scheme and spec.writable for spec in self.settings.far):
            return None
        from cubinet.store.usage import Usage

        return Usage(self.folder, fs=self._fs)

    def find(self, what: Variant | Fingerprint) -> Artifact | None:
        """The build of a variant, or with a fingerprint; `None` if no layer has it. Never compiles.

        Raises `ConfigError`; for a variant also `ToolchainNotFoundError`.
        """
        held = what._held  # noqa: SLF001 - the slot exists for this line
        if held is not None:
            checker = self._checker
            if held[0] is checker.generation and checker.clock() < checker.deadline:
                return held[1]
        if isinstance(what, Fingerprint):
            start = time.perf_counter()
            artifact = self._layers.find(what)
            return None if artifact is None else self._hit(None, artifact, start)
        return self._find(what)

    def _find(self, variant: Variant) -> Artifact | None:
        generation = self._checker.current()
        held = self._held.get(variant)
        if held is not None and held[0] is generation:
            passed(variant, held[1])
            object.__setattr__(variant, "_held", held)
            self.counters.add("hit.process")
            return held[1]
        start = time.perf_counter()
        request = self.normalize(variant)
        if request.uncacheable:
            self.counters.add("miss.uncacheable")
            return None
        artifact = self._layers.lookup(request, action_of(action_parts(request)))
        if artifact is None:
            return None
        artifact = self._hit(variant, artifact, start)
        passed(variant, artifact)
        object.__setattr__(variant, "_held", self._hold(variant, artifact, generation))
        return artifact

    def _hit(self, variant: Variant | None, artifact: Artifact, start: float) -> Artifact:
        seconds = time.perf_counter() - start
        self.counters.tell(
            Event(
                "hit",
                artifact.layer,
                artifact._fingerprint,  # noqa: SLF001 - asking for the record would read it
                variant.family if variant else "",
                variant.name if variant else "",
                seconds,
                len(artifact.data),
                artifact,
            )
        )
        return replace(artifact, seconds=seconds)

    def _hold(self, variant: Variant, artifact: Artifact, generation: object) -> tuple[object, Artifact]:
        # The window in which the files were looked at, which may be over by now.
        entry = (generation, self._layers.as_held(artifact))
        if len(self._held) >= _HELD_LIMIT:
            self._held.clear()
        self._held[variant] = entry
        return entry  # for the variant itself once it has passed its gates: from there nothing is asked any more

    def get_or_compile(self, variant: Variant) -> Artifact:
        """The build of a variant, compiled if no layer has it. One compile at a time per variant.

        A store that cannot be read or written costs only the compile: the artifact comes back with
        the reason in `reason`.

        Raises `CompileError`, `ToolchainNotFoundError`, `ConfigError`.
        """
        found = self.find(variant)
        if found is not None:
            return found
        request = self.normalize(variant)
        parts = action_parts(request)
        action = action_of(parts)
        if request.uncacheable:
            return passed(variant, self._compile(request, action, parts)[0])
        # The places too: two callers may have other files under the same labels.
        key = (action, tuple(sorted(request.places.items())))
        while True:
            (artifact, sound), mine = self._flight.run(key, lambda: self._locked(request, action, parts))
            if mine:
                return passed(variant, artifact)
            if sound:
                return passed(variant, self._layers.as_held(artifact))

    def _locked(self, request: Request, action: Action, parts: list[tuple[str, bytes]]) -> _Sound:
        """Under the lock of this action: look again, then compile."""
        with self._local.lock(action.hex) as lock:
            waited = True
            try:
                lock.acquire(self.settings.limit)
            except (OSError, StoreError, LockTimeoutError):
                waited = False  # a folder without locks means one more compile, no more
            if waited:
                start, generation = time.perf_counter(), self._checker.current()
                found = self._layers.lookup(request, action, again=True)
                if found is not None:
                    self._hold(request.variant, found, generation)
                    return self._hit(request.variant, found, start), True
            self._failures.check(action, request)
            start = time.perf_counter()
            lease, found = self._layers.lease(request, action, self.settings.limit) if self.settings.leases else _ALONE
            if found is not None:
                return self._hit(request.variant, found, start), True
            try:
                return self._compile(request, action, parts, lease)
            except BaseException:
                if lease is not None:
                    lease.release()
                raise

    def _compile(
        self, request: Request, action: Action, parts: list[tuple[str, bytes]], lease: Lease | None = None
    ) -> _Sound:
        release = lease.release if lease else lambda: None
        start = time.perf_counter()
        try:
            made = self.compiler(request.variant.compiler).compile(request, timeout=self.settings.limit)
            observed = observations_bytes(made.observations)
            record, blobs = record_of(request, action, parts, made, observed)
        except BaseException as exc:
            release()
            if isinstance(exc, CompileError):
                self._failed(request, action, exc, time.perf_counter() - start)
            raise
        self.counters.tell(self._event(request, "compiled", record, made.seconds))
        self._note_compile(request, action, made.seconds)
        reason = made.uncacheable
        if reason:
            release()
            self.counters.add(f"uncacheable.{reason}")
        else:
            try:
                reason = self._layers.publish(record, blobs, release)
            except BaseException:  # strict, or interrupted
                release()
                raise
        seconds = time.perf_counter() - start
        more = {role: blobs[ref.digest] for role, ref in record.blobs if role != record.kind}
        layer = "" if reason else self._local.name
        artifact = Artifact(
            record,
            made.data,
            Status.COMPILED,
            layer,
            seconds,
            reason,
            cacheable=not made.uncacheable,
            messages=made.messages,
            _more=more,
            _reader=self._layers.reader,
        )
        if not reason:
            self._checker.refresh()  # what was looked at before the compile may be old by now
            generation = self._checker.current()
            if self._checker.remember(record.observations, request.places, observed):
                self._hold(request.variant, artifact, generation)
        return artifact, not made.uncacheable

    def _failed(self, request: Request, action: Action, exc: CompileError, seconds: float) -> None:
        self.counters.tell(self._event(request, "failed", seconds=seconds))
        self._note_compile(request, action, seconds, exc)
        if exc.deterministic and not request.uncacheable:
            self._failures.remember(action, request, exc)

    def _note_compile(self, request: Request, action: Action, seconds: float, exc: CompileError | None = None) -> None:
        variant, tools = request.variant, request.toolchain
        late = isinstance(exc, CompileTimeoutError)
        self.notes.note_compile(
            action=action.hex,
            seconds=seconds,
            outcome="ok" if exc is None else "timeout" if late else "failed",
            reason="" if exc is None else exc.finding,
            family=variant.family,
            name=variant.name,
            target=str(variant.target),
            toolchain=f"{tools.name} {tools.version}",
            host=os.uname().nodename,
        )

    @staticmethod
    def _event(request: Request, what: str, record: Record | None = None, seconds: float = 0.0) -> Event:
        variant, ref = request.variant, record.blob(record.kind) if record else None
        fingerprint = record.fingerprint if record else None
        return Event(what, "", fingerprint, variant.family, variant.name, seconds, ref.size if ref else 0)

    def listen(self, listener: Callable[[Event], object]) -> None:
        """Call this with every {py:class}`cubinet.events.Event` from now on.

        It is called while a lookup waits, so it should do little. Hits in the memory of the process are too cheap to be
        told, except the first in each refresh window. One that raises is not called again.
        """
        self.counters.listen(listener)

    def normalize(self, variant: Variant) -> Request:
        """A variant as its compiler adapter settled it: arguments, roots, whether it can be kept."""
        return self.compiler(variant.compiler).normalize(variant)

    def action(self, variant: Variant) -> Action:
        """The action of a variant: everything known before compiling, except header content."""
        return action_of(action_parts(self.normalize(variant)))

    def compiler(self, name: str) -> Compiler:
        """The compiler adapter with this name. Raises `PluginError`."""
        found = self._compilers.get(name)
        if found is None:
            workshop = Workshop(self.settings, self._environ, self._tools(), self._fs, self._contents)
            found = self._compilers[name] = compiler(name, workshop)
        return found

    def _tools(self) -> str | None:
        """Where adapters may keep programs and what they know of programs: never where others can write."""
        try:
            check_trust(self.folder)
        except ConfigError:
            return None
        return f"{self.folder}/tools"

    @property
    def index(self) -> Index:
        """Questions about the records of the local layer and their use."""
        if self._index is None:
            from cubinet.store.index import Index

            self._index = Index(
                self.folder,
                self._records,
                find=self._local.find,
                observations=self._observations,
                fs=self._fs,
                flush=self.notes.flush,
                warn=self._warn,
            )
        return self._index

    @property
    def notes(self) -> IndexWriter:
        """What this process tells the index."""
        if self._notes is None:
            from cubinet.store.index import IndexWriter

            made = IndexWriter(self.folder, self._observations, fs=self._fs, count=self.counters.add)
            self._notes = self._made.setdefault("notes", made)  # another thread may have been quicker
        return self._notes

    def _told(self, event: Event) -> None:
        self.notes.told(event)

    def _published(self, record: Record) -> None:
        self.notes.note_publish(record)
        self._keeper.published(record)

    def _retention(self) -> Retention:
        from cubinet.store.retention import Retention

        return Retention(self._local, self.index, self.notes)

    def _records(self) -> Iterator[Record]:
        return filter(None, map(self._local.find, self._local.fingerprints()))

    def _observations(self, record: Record) -> bytes | None:
        return self._local.read_named(record.observations)

    def refresh(self) -> None:
        """Look at every file again at the next lookup, though the refresh interval is not over."""
        self._forget()
        self._layers.refresh()

    def _forget(self) -> None:
        self._checker.refresh()
        self._held.clear()
        for adapter in self._compilers.values():
            adapter.refresh()

    def stats(self) -> dict[str, int]:
        """What happened in this process: hits by layer, misses by reason, compiles, errors."""
        return self.counters.snapshot()

    def flush(self, seconds: float | None = None) -> int:
        """Wait until everything compiled here is where it goes, at most so long (`DRAIN` if not given).

        Returns how many builds did not get there; `push` sends them.
        """
        return self._layers.uploads.drain(seconds)

    def close(self) -> None:
        """Finish uploads within `DRAIN` seconds, and let go of what is held in memory."""
        self._layers.close()
        if self._notes is not None:
            self._notes.close()
        if self._index is not None:
            self._index.close()
            self._index = None
        self._forget()

    def _warn(self, text: str, about: str = "") -> None:
        self._layers.warn(text, about)

    def _damaged(self, text: str) -> None:
        self.counters.add("damaged")
        self._layers.warn(text)


def _told_at_exit(counters: Counters) -> None:
    import atexit
    import sys

    from cubinet.metrics import Tally

    tally = Tally()
    counters.listen(tally)
    atexit.register(lambda: print(tally.line(), file=sys.stderr))  # noqa: T201 - asked for
