"""Removing from a remote what nobody uses, while others read and write it.

Order makes it safe, not locks. A manifest forgets a build before its record goes, so that a reader who comes fresh does
not ask for it, and a record goes before its blobs. A blob goes only if an earlier run, at least `grace` ago, found no
record that names it, this run finds none either, and nobody has written it since. A writer that skips a blob because it
is there does so only while the blob is younger than `REFRESH_SECONDS`; its record has then long been there when the
grace period ends. So a run never waits, and whoever comes at the worst moment meets a miss.

Ages are by the remote's clock: that of the host does not matter. The lease spares two collectors the same work; nothing
is wrong if both do it.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain

import msgspec

from cubinet.errors import (
    ConfigError,
    FormatError,
    ReadOnlyError,
)
from cubinet.fingerprint import fingerprint_of
from cubinet.model import Action, Digest
from cubinet.protocols import Entry, Object, Remote
from cubinet.store.envelope import OBJECT_LIMIT, pack, unpack
from cubinet.store.format import NewerFormatError, decode_manifest, encode_manifest
from cubinet.store.remote import REFRESH_SECONDS
from cubinet.store.remote_lease import CLOCK, LEASE_SECONDS, CollectorLease
from cubinet.store.remote_read import TIMEOUT, decode_named, listed, read_all
from cubinet.store.usage import NOTE_BYTES, NewerNoteError, dump, load, read_note

__all__ = ["GRACE", "Collected", "collect"]

GRACE = 24 * 3600.0
"""Seconds for which a blob must have been without a record."""

_DAY = 24 * 3600.0
_BATCH = 500
_MARKS = 400_000
"""Most blobs that are marked in a run; the others wait for the next one."""

_STATE = "v1/collect/state"
_NOTE = re.compile(r"v1/uses/\d{4}-\d\d-\d\d/[0-9a-f]{16}")

Progress = Callable[[int, int], None]


@dataclass(slots=True)
class Collected:
    """What a run did, or would do.

    Attributes:
        records: how many there were.
        kept: records that stay, by reason.
        deleted: objects that went, by kind; `candidates` are entries of manifests.
        bytes: that this frees.
        waiting: blobs that no record names, which a later run may delete; `waiting_bytes` is their size.
        notes: sentences about what was left alone and why.
    """

    place: str
    dry_run: bool
    records: int = 0
    kept: dict[str, int] = field(default_factory=dict)
    deleted: dict[str, int] = field(default_factory=dict)
    bytes: int = 0
    waiting: int = 0
    waiting_bytes: int = 0
    notes: list[str] = field(default_factory=list)


def collect(
    remote: Remote,
    *,
    unused_for: float,
    grace: float = GRACE,
    dry_run: bool = False,
    now: Callable[[], float] = time.time,
    clock: Callable[[], float] = time.monotonic,
    progress: Progress = lambda _done, _all: None,
) -> Collected:
    """Delete records that nobody has used for `unused_for` seconds, and blobs that nothing needs.

    What it may delete has a name that Cubinet gives, below `v1/`. It can be ended at any time and run again. A dry run
    writes nothing; it goes by `now`, seconds since the epoch, where a real one asks the remote for the time.

    Raises `ConfigError`, `LockTimeoutError` if another collector is at work, `RemoteError`.
    """
    if not unused_for >= 0:
        raise ConfigError("collect", remote.url, f"unused for {unused_for} s cannot be meant")
    if not grace >= REFRESH_SECONDS:
        finding = f"writers rely for {REFRESH_SECONDS / 3600:.0f} h on a blob they have seen, and the grace is shorter"
        raise ConfigError("collect", remote.url, finding, "24h is a good value")
    if remote.read_only and not dry_run:
        raise ReadOnlyError("collect", remote.url, "it takes no writes")
    lease = None if dry_run else CollectorLease(remote, clock)
    at = now() if lease is None else lease.time
    try:
        return _Run(remote, lease, at=at, oldest=at - unused_for, grace=grace, progress=progress).run()
    finally:
        if lease is not None:
            lease.release()


def _hex(name: str) -> str:
    return name.rpartition("/")[2]


def _count(counts: dict[str, int], what: str, more: int = 1) -> None:
    counts[what] = counts.get(what, 0) + more


class _State(msgspec.Struct):
    """When each blob was first found without a record."""

    format: int
    found: dict[str, float]


class _Run:
    """One run. Without a lease it is a dry one."""

    def __init__(
        self,
        remote: Remote,
        lease: CollectorLease | None,
        *,
        at: float,
        oldest: float,
        grace: float,
        progress: Progress,
    ) -> None:
        self.remote, self.lease, self.at, self.oldest, self.grace = remote, lease, at, oldest, grace
        self.progress = progress
        self.out = Collected(remote.url, dry_run=lease is None)
        self.named: set[str] = set()  # blobs of records that stay
        self.released: set[str] = set()  # blobs of records that go
        self.damaged: set[str] = set()
        self.newer = 0

    def run(self) -> Collected:
        """All of it, in the order that the module's text gives reasons for."""
        notes = [e for e in self.remote.scan("v1/uses/", timeout=TIMEOUT) if _NOTE.fullmatch(e.name)]
        used = self._used(notes)
        records = {_hex(e.name): e for e in listed(self.remote, "records")}
        going = self._sort(records, used)
        self._forget(records.keys(), going)
        self._delete("records", [records[n] for n in going if n not in self.damaged or self._unchanged(records[n])])
        self._blobs()
        self._delete("notes", [e for e in notes if not self._in_window(e)])
        self._delete("leases", [e for e in listed(self.remote, "locks") if e.modified < self.at - self.grace])
        clocks = self.remote.scan(CLOCK, timeout=TIMEOUT)
        self._delete("leases", [e for e in clocks if e.modified < self.at - LEASE_SECONDS])
        return self.out

    def _check(self) -> None:
        if self.lease is not None:
            self.lease.check()

    def _delete(self, kind: str, entries: list[Entry]) -> None:
        for start in range(0, len(entries), _BATCH):
            part = entries[start : start + _BATCH]
            if self.lease is not None:
                self.lease.check()
                self.remote.delete([entry.name for entry in part], timeout=TIMEOUT)
            _count(self.out.deleted, kind, len(part))
            self.out.bytes += sum(entry.size for entry in part)

    def _read(self, entries: list[Entry], limit: int = OBJECT_LIMIT) -> Iterator[tuple[str, Object | None]]:
        small = [entry.name for entry in entries if entry.size <= limit]
        for done, found in enumerate(read_all(self.remote, small, limit)):
            self.progress(done, len(small))
            self._check()
            yield found
        self.progress(len(small), len(small))

    # --- which records stay

    def _in_window(self, note: Entry) -> bool:
        """Whether something in a note may have been used lately: its client writes it during one day of its own."""
        return self._age_known(note.modified) + _DAY >= self.oldest

    def _age_known(self, modified: float) -> float:
        return modified if modified > 0 else self.at

    def _used(self, notes: list[Entry]) -> set[str] | None:
        """The builds that notes of the window name; `None` if one of them cannot be understood."""
        used: set[str] = set()
        for _, found in self._read([e for e in notes if self._in_window(e)], NOTE_BYTES):
            try:
                used |= read_note(found.data) if found is not None else frozenset()
            except NewerNoteError as exc:
                self.out.notes.append(f"no record goes: {exc}")
                return None
        return used

    def _sort(self, records: dict[str, Entry], used: set[str] | None) -> list[str]:
        """The records that go; fills in what the blobs need to know."""
        going = []
        self.out.records = len(records)
        large: list[tuple[str, Object | None]] = [(e.name, None) for e in records.values() if e.size > OBJECT_LIMIT]
        for name, found in chain(large, self._read(list(records.values()))):
            entry = records[key := _hex(name)]
            if found is None and entry.size <= OBJECT_LIMIT:  # somebody was faster
                continue
            modified = self._age_known(max(entry.modified, found.modified if found else 0.0))
            try:
                record = decode_named(key, found.data if found else b"")
            except NewerFormatError:
                self.newer += 1
                _count(self.out.kept, "in a newer format")
                continue
            except FormatError:
                if modified < self.at - self.grace:
                    going.append(key)
                    self.damaged.add(key)
                else:
                    _count(self.out.kept, "damaged, but young")
                continue
            blobs = {ref.digest.hex for _, ref in record.blobs}
            why = "written lately" if modified >= self.oldest else "used lately"
            if modified >= self.oldest or used is None or key in used:
                _count(self.out.kept, why if used is not None else "use is not known")
                self.named |= blobs
            else:
                going.append(key)
                self.released |= blobs
        return going

    def _unchanged(self, entry: Entry) -> bool:
        """Whether nobody healed it meanwhile."""
        there = self.remote.stat(entry.name, timeout=TIMEOUT)
        return there is not None and there.modified == entry.modified

    # --- manifests

    def _forget(self, records: Iterable[str], going: list[str]) -> None:
        """Take what goes, and what is not there, out of manifests."""
        gone, there = set(going), set(records)
        entries = {e.name: e for e in listed(self.remote, "manifests")}
        empty: list[Entry] = []  # a candidate that comes while one waits here is a hint lost: it costs a compile
        for name, found in self._read(list(entries.values())):
            if found is None:
                continue
            try:
                head = unpack(found.data, blobs=False).head
                action, candidates = decode_manifest(head)
                sets = unpack(found.data).blobs
                if action.hex != _hex(name):
                    raise FormatError("read manifest", name, "it is that of another action")
            except NewerFormatError:
                continue
            except FormatError:
                if self._age_known(found.modified) < self.at - self.grace:
                    empty.append(entries[name])
                continue
            keep = [c for c in candidates if self._leads_on(action, c, gone, there)]
            if len(keep) < len(candidates):
                _count(self.out.deleted, "candidates", len(candidates) - len(keep))
            if not keep:
                empty.append(entries[name])
                if len(empty) == _BATCH:
                    self._delete("manifests", empty)
                    empty = []
            elif len(keep) < len(candidates) and self.lease is not None:
                self.lease.check()
                data = pack(encode_manifest(action, tuple(keep)), [(c, sets[c]) for c in keep if c in sets])
                # who added a candidate meanwhile has written it anew: then it stays as it is until the next run
                self.remote.put(name, data, timeout=TIMEOUT, match=found.tag)
        self._delete("manifests", empty)

    def _leads_on(self, action: Action, candidate: Digest, gone: set[str], there: set[str]) -> bool:
        key = fingerprint_of(action, candidate).hex
        if key in gone:
            return False
        # what is not in the listing may have come after it
        return key in there or self.remote.stat(f"v1/records/{key[:2]}/{key}", timeout=TIMEOUT) is not None

    # --- blobs

    def _blobs(self) -> None:
        """Delete blobs whose time is over, and mark those that are found now."""
        if self.newer:
            self.out.notes.append(
                f"no blob goes: {self.newer} records are in a newer format, and what they need is not known here"
            )
            self._mark({})
            return
        before = self._marks()
        spare = [e for e in listed(self.remote, "blobs") if _hex(e.name) not in self.named]
        marks: dict[str, float] = {}
        due: dict[str, list[Entry]] = {}
        for entry in spare:
            key = _hex(entry.name)
            found = before.get(key, self.at)
            if key in self.released or entry.modified > found or found > self.at or entry.modified <= 0:
                found = self.at
            if found <= self.at - self.grace:  # and not written since
                due.setdefault(key[:2], []).append(entry)
                continue
            self.out.waiting += 1
            self.out.waiting_bytes += entry.size
            if len(marks) < _MARKS:
                marks[key] = found
        self._mark(marks)
        for part, entries in due.items():
            self._sweep(part, entries)

    def _sweep(self, part: str, entries: list[Entry]) -> None:
        """Delete those that are as they were, looked at just before: who needs one has written it again."""
        if self.lease is not None:
            self.lease.check()
        there = {e.name: e.modified for e in self.remote.scan(f"v1/blobs/{part}/", timeout=TIMEOUT)}
        self._delete("blobs", [e for e in entries if there.get(e.name) == e.modified])

    def _marks(self) -> dict[str, float]:
        found = self.remote.get(_STATE, timeout=TIMEOUT, limit=OBJECT_LIMIT)
        state = load(found.data, _State) if found is not None else None
        return state.found if state is not None and state.format == 1 else {}

    def _mark(self, marks: dict[str, float]) -> None:
        if self.lease is None:
            return
        self.lease.check()
        if marks:
            self.remote.put(_STATE, dump(_State(1, marks)), timeout=TIMEOUT)
        else:
            self.remote.delete([_STATE], timeout=TIMEOUT)
