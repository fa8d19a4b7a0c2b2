"""Keeping the local layer within its limits: what goes, what stays, and in steps that nobody waits for.

A build is worth keeping by what it took to compile for each byte it takes, and less so the longer nobody has used it.
What was used within a day, or is pinned, stays whatever the limits say. Records go before blobs, and a blob only with
the last record that names it, so a reader never finds a record without its blobs.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from cubinet.errors import LockTimeoutError
from cubinet.model import Digest, Fingerprint
from cubinet.store.index import Index
from cubinet.store.index.writer import IndexWriter
from cubinet.store.keeper import STAMP
from cubinet.store.local import LocalLayer
from cubinet.store.pins import Pins

__all__ = ["Collected", "Limits", "Retention"]

PROTECTED_SECONDS = 24 * 3600.0
"""What was used, published or found again within this time stays."""

_OF_ACTION = re.compile(r"[0-9a-f]{64}(\.manifest)?")
_GOAL = 0.9
_SLICE_SECONDS = 0.05
_HALF_LIFE_SECONDS = 7 * 24 * 3600.0
_RECORD_BYTES = 4096
_LEFTOVER_SECONDS = {"failures": 3600.0, "locks": 24 * 3600.0, "bad": 30 * 24 * 3600.0, "memo": 90 * 24 * 3600.0}


@dataclass(frozen=True, slots=True)
class Limits:
    """What the local layer may take.

    Attributes:
        size: bytes; 0 for no limit.
        age: seconds since a build was used; 0 for no limit.
        free: bytes that must be left free on its disk; 0 for none.
    """

    size: int = 0
    age: float = 0.0
    free: int = 0


@dataclass(slots=True)
class Collected:
    """What a collection did, or would do.

    Attributes:
        records: builds that went.
        blobs: blobs that went with them.
        freed: bytes that were freed, by blobs and records.
        size: bytes that the layer took before; a record counts 4 KiB.
        over: bytes over the limits that could not be freed, as the rest is protected.
        pinned: builds that would have gone, but are pinned.
        recent: builds that would have gone, but were used within a day.
        leftovers: old locks, remembered errors, damaged files and memos that were swept.
        dry_run: whether nothing was done.
        busy: whether another process collects, and so nothing was done.
    """

    records: int = 0
    blobs: int = 0
    freed: int = 0
    size: int = 0
    over: int = 0
    pinned: int = 0
    recent: int = 0
    leftovers: int = 0
    dry_run: bool = False
    busy: bool = False
    victims: list[Fingerprint] = field(default_factory=list)


class Retention:
    """Collects in a local layer. One process at a time does it for a folder.

    Args:
        local: the layer.
        index: what is known of its builds and their use.
        writer: is told what went.
        now: the clock, seconds since the epoch.
        protected: seconds for which what was used or published stays.
        rest: called between slices.
    """

    def __init__(
        self,
        local: LocalLayer,
        index: Index,
        writer: IndexWriter,
        *,
        now: Callable[[], float] = time.time,
        protected: float = PROTECTED_SECONDS,
        rest: Callable[[], object] = lambda: time.sleep(0.001),
    ) -> None:
        self.local, self.index, self.writer, self.now = local, index, writer, now
        self.protected, self.rest = protected, rest
        self._names: dict[str, int] = {}

    def collect(
        self,
        limits: Limits,
        *,
        dry_run: bool = False,
        thorough: bool = True,
        progress: Callable[[int, int], None] = lambda _done, _all: None,
    ) -> Collected:
        """Bring the layer within its limits, with some room to spare.

        Args:
            limits: what it may take.
            dry_run: only say what would go.
            thorough: also look for blobs that no record names, which takes a look at every one.
            progress: gets bytes freed, and to free.

        Raises `StoreError` if the layer or its index cannot be read.
        """
        done = Collected(dry_run=dry_run)
        with self.local.writing("collect in", self.local.folder), self.local.lock("collect") as lock:
            self.local.prepare()
            try:
                lock.acquire(0.0)
            except LockTimeoutError:
                done.busy = True
                return done
            self._names = {}
            self._sweep(done)
            if thorough:
                self._sweep_blobs(done)
            self._within(limits, done, progress)
            if not dry_run:
                self._stamp()
        return done

    # --- choosing

    def _within(self, limits: Limits, done: Collected, progress: Callable[[int, int], None]) -> None:
        totals = self.index.stats()
        done.size = totals["blob_bytes"] + _RECORD_BYTES * totals["records"]
        wanted = self._to_free(limits, done.size)
        pinned = {fingerprint.hex for fingerprint in Pins(self.local).pinned()}
        border = self.now() - self.protected
        until = time.monotonic() + _SLICE_SECONDS
        for fingerprint, last in self._victims(limits, wanted):
            if done.freed >= wanted and not (limits.age and last < self.now() - limits.age):
                break
            if last >= border or self._stored(fingerprint) >= border:
                done.recent += 1
            elif fingerprint in pinned:
                done.pinned += 1
            else:
                self._remove(Fingerprint(fingerprint), done)
                progress(min(done.freed, wanted), wanted)
            if time.monotonic() >= until:
                self.writer.flush()
                self.rest()
                until = time.monotonic() + _SLICE_SECONDS
        self.writer.flush()
        done.over = max(0, wanted - done.freed - self._room(limits, done.size))

    def _to_free(self, limits: Limits, size: int) -> int:
        """Bytes: if a limit is broken, to nine tenths of it."""
        wanted = size - int(limits.size * _GOAL) if limits.size and size > limits.size else 0
        if limits.free:
            disk = os.statvfs(self.local.folder)
            free = disk.f_bavail * disk.f_frsize
            if free < limits.free:
                wanted = max(wanted, min(size, int(limits.free / _GOAL) - free))
        return wanted

    @staticmethod
    def _room(limits: Limits, size: int) -> int:
        """What is freed beyond the limit itself."""
        return limits.size - int(limits.size * _GOAL) if limits.size and size > limits.size else 0

    def _victims(self, limits: Limits, wanted: int) -> Iterator[tuple[str, float]]:
        """Builds with their last use: those that are too old, then the least worth keeping."""
        now, since = self.now(), self.index.since()
        last = "max(coalesce(last_use, 0), coalesce(created_at, 0), :since)"
        given = {"now": now, "since": since, "old": now - limits.age, "half": _HALF_LIFE_SECONDS}
        seen: set[str] = set()
        if limits.age:
            sql = f"SELECT fingerprint, {last} AS last FROM records WHERE {last} < :old ORDER BY last"  # noqa: S608
            for row in self.index.sql(sql, given, timeout=60.0):
                seen.add(row["fingerprint"])
                yield row["fingerprint"], row["last"]
        if wanted:
            worth = f"seconds / (total + {_RECORD_BYTES}.0) / (1 + max(0, :now - {last}) / :half)"
            sql = f"SELECT fingerprint, {last} AS last FROM records ORDER BY {worth}, last, fingerprint"  # noqa: S608
            for row in self.index.sql(sql, given, timeout=60.0):
                if row["fingerprint"] not in seen:
                    yield row["fingerprint"], row["last"]

    # --- removing

    def _remove(self, fingerprint: Fingerprint, done: Collected) -> None:
        record = self.local.find(fingerprint)
        if record is None:  # somebody else was quicker, or it was damaged and is in `bad` now
            if not done.dry_run:
                self.writer.note_gone(fingerprint)
            return
        free = [ref for _, ref in record.blobs if self._last_name(ref.digest) and self._rested(ref.digest)]
        if not done.dry_run:
            self.local.remove(record)
            self.writer.note_gone(fingerprint)
            for ref in list(free):
                if self._rested(ref.digest):  # still: nobody has published it again meanwhile
                    self.local.remove_blob(ref.digest)
                else:
                    free.remove(ref)
        done.records += 1
        done.blobs += len(free)
        done.freed += _RECORD_BYTES + sum(ref.size for ref in free)
        done.victims.append(fingerprint)

    def _last_name(self, digest: Digest) -> bool:
        """Count down the records and roles that name a blob; whether this was the last one."""
        name = digest.hex
        if name not in self._names:
            row = next(iter(self.index.sql("SELECT names FROM blobs WHERE digest = ?", (name,))), {"names": 0})
            self._names[name] = row["names"]
        self._names[name] -= 1
        return self._names[name] == 0

    def _stored(self, fingerprint: str) -> float:
        """When the record came here: it may have been built elsewhere, long before."""
        try:
            return self.local.fs.stat(self.local.path("records", fingerprint, ".json")).st_mtime
        except OSError:
            return 0.0

    def _rested(self, digest: Digest) -> bool:
        """Whether nobody published the blob again lately: such a record may not be in the index yet."""
        try:
            return self.local.fs.stat(self.local.path("blobs", digest.hex)).st_mtime < self.now() - self.protected
        except OSError:
            return False

    # --- leftovers

    def _sweep(self, done: Collected) -> None:
        """Remove what processes left behind."""
        for kind, seconds in _LEFTOVER_SECONDS.items():
            for path in self._old(kind, seconds):
                name = os.path.basename(path)
                if kind == "locks" and not (_OF_ACTION.fullmatch(name) and self.local.lock(name).free()):
                    continue
                done.leftovers += 1
                if not done.dry_run:
                    self.local.fs.discard(path)

    def _sweep_blobs(self, done: Collected) -> None:
        """Remove blobs that no record names, one fan of the folder after the other."""
        for fan in sorted(self.local.fs.list(f"{self.local.folder}/blobs")):
            names = list(self.local.names("blobs", fan)) if len(fan) == 2 else []
            given = (fan, f"{fan}g")
            rows = self.index.sql("SELECT digest FROM blobs WHERE digest BETWEEN ? AND ?", given) if names else ()
            known = {row["digest"] for row in rows}
            for digest in map(Digest, names):
                if digest.hex not in known and self._rested(digest):
                    done.blobs += 1
                    done.freed += self._size(digest)
                    if not done.dry_run:
                        self.local.remove_blob(digest)
            self.rest()

    def _old(self, kind: str, seconds: float) -> Iterator[str]:
        top, border = f"{self.local.folder}/{kind}", self.now() - seconds
        fans = [f"{top}/{fan}" for fan in self.local.fs.list(top)] if kind in ("failures", "memo") else [top]
        for fan in fans:
            try:
                paths = [f"{fan}/{name}" for name in self.local.fs.list(fan)]
            except OSError:
                continue
            for path in paths:
                try:
                    if self.local.fs.stat(path).st_mtime < border:
                        yield path
                except OSError:
                    continue

    def _size(self, digest: Digest) -> int:
        try:
            return self.local.fs.stat(self.local.path("blobs", digest.hex)).st_size
        except OSError:
            return 0

    def _stamp(self) -> None:
        """Note when the last collection ended, in the time of a file."""
        self.local.touch(STAMP)
