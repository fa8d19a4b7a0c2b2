"""A store folder with its local layer, the writer of its index, and questions to it."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from cubinet.model import BlobRef, Fingerprint, Record
from cubinet.store.index import Index, IndexWriter
from cubinet.store.index.views import VIEWS
from cubinet.store.local import LocalLayer
from cubinet.testing.faults import NoSyncFs
from cubinet.testing.samples import Build, build

HISTORY = ("uses", "compiles", "events", "nondeterminism")
"""Views of what record files do not tell."""
EARLY = 1_700_000_100


class Shelf:
    """Everything about one folder. `index()` and `writer()` are those of a new process."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / "index.sqlite3"
        self.layer = LocalLayer(str(folder), fs=NoSyncFs(), durable=False)
        self.counted: Counter[str] = Counter()
        self.warned: list[str] = []
        self.writer = self.new_writer()

    def new_writer(self, **more: Any) -> IndexWriter:
        given = {"interval": 3600.0, "count": lambda name: self.counted.update([name]), **more}
        return IndexWriter(str(self.folder), self.observations, **given)

    def observations(self, record: Record) -> bytes | None:
        return self.layer.read_named(record.observations)

    def records(self) -> Iterator[Record]:
        for fingerprint in self.layer.fingerprints():
            record = self.layer.find(fingerprint)
            if record is not None:
                yield record

    def index(self, **more: Any) -> Index:
        given = {"flush": self.writer.flush, "warn": self.warned.append, **more}
        return Index(str(self.folder), self.records, find=self.layer.find, observations=self.observations, **given)

    def put(self, text: str, *, note: bool = True, **fields: Any) -> Build:
        """Publish a sample."""
        made = build(text, **fields)
        self.layer.publish(made.record, made.blobs)
        if note:
            self.writer.note_publish(made.record)
        return made

    def put_record(self, record: Record) -> None:
        self.layer.publish(record, {})
        self.writer.note_publish(record)

    def remove(self, fingerprint: Fingerprint) -> None:
        (self.folder / "records" / fingerprint.hex[:2] / f"{fingerprint.hex}.json").unlink()

    def fill(self) -> list[Build]:
        """Four builds, used and missed."""
        made = [self.put(name, seconds=float(n)) for n, name in enumerate(("add", "gemm", "gemm2", "scale"), 1)]
        self.writer.note_use(made[1].fingerprint, EARLY)
        self.writer.note_use(made[1].fingerprint, EARLY + 600)
        self.writer.note_event("local", "miss", "no build of this action", 0.5)
        self.writer.note_compile(action="ab", seconds=1.25, outcome="failed", reason="no such header", when=EARLY)
        assert self.writer.flush()
        return made


def answers(index: Index, *leave_out: str) -> dict[str, list[tuple[Any, ...]]]:
    """All rows of all views, sorted."""
    found = {}
    for view in VIEWS:
        if view not in leave_out:
            rows = (tuple(row.values()) for row in index.sql(f"SELECT * FROM {view}", timeout=60))
            found[view] = sorted(rows, key=repr)
    return found


def settled(seconds: float = 2.1) -> None:
    """Wait until the time of a folder tells whether it changed."""
    time.sleep(seconds)


def consistent(record: Record) -> Record:
    """A record whose blobs have the size that their digest says: a digest has one size."""
    return replace(record, blobs=tuple((r, BlobRef(b.digest, int(b.digest.hex[:6], 16))) for r, b in record.blobs))
