"""A collector and a publisher at the same moment: what was just published stays whole."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.store.test_retention import DAY, Shelf

from cubinet.store.local import LocalLayer
from cubinet.store.retention import PROTECTED_SECONDS
from cubinet.testing.faults import WatchedFs
from cubinet.testing.samples import build


class MeddlingFs(WatchedFs):
    """Lets something happen, once, right before an operation on a path that ends as given."""

    def __init__(self, operation: str, end: str, meanwhile: Callable[[], object]) -> None:
        self.operation, self.end, self.meanwhile = operation, end, meanwhile
        self.done = False

    @contextmanager
    def around(self, operation: str, path: str) -> Iterator[object]:
        if not self.done and operation == self.operation and path.endswith(self.end):
            self.done = True
            self.meanwhile()
        yield None


def test_a_blob_that_is_published_again_while_its_old_record_goes_stays(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path / "store")
    old = shelf.add("old", data=b"shared" * 1000)
    shelf.time += 40 * DAY
    made = build("new", data=b"shared" * 1000)
    another = LocalLayer(shelf.local.folder, durable=False)

    def publish() -> None:
        another.publish(made.record, made.blobs)
        for ref in made.blobs:
            os.utime(another.path("blobs", ref.hex), (shelf.time, shelf.time))

    shelf.local.fs = MeddlingFs("unlink", f"/{old.hex}.json", publish)
    shelf.collect(age=30 * DAY)
    assert old not in shelf.left()
    assert all(another.read(ref) is not None for _, ref in made.record.blobs)


def test_a_blob_that_goes_while_it_is_published_again_is_written_anew(tmp_path: Path) -> None:
    made = build("one", data=b"shared" * 1000)
    layer = LocalLayer(str(tmp_path / "store"), durable=False)
    layer.publish(made.record, made.blobs)
    path = layer.path("blobs", made.main.digest.hex)
    os.utime(path, (1e9, 1e9))
    fs = MeddlingFs("touch", made.main.digest.hex, lambda: Path(path).unlink())
    LocalLayer(layer.folder, fs=fs, durable=False).publish(made.record, made.blobs)
    assert fs.done
    assert layer.read(made.main) is not None


def test_the_protected_time_is_longer_than_that_after_which_a_blob_is_touched() -> None:
    from cubinet.store.local import _FRESH_SECONDS

    assert 2 * _FRESH_SECONDS < PROTECTED_SECONDS


def test_what_was_fetched_within_a_day_stays_however_long_ago_it_was_built(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path / "store")
    made = build("pulled")  # created long ago, elsewhere
    shelf.time += 400 * DAY
    shelf.local.publish(made.record, made.blobs)  # as `pull` does, which is no use
    shelf.writer.note_publish(made.record)  # as the index finds it by itself
    for path in Path(shelf.local.folder).rglob("*"):
        if path.is_file() and path.parts[-3] in ("records", "blobs"):
            os.utime(path, (shelf.time, shelf.time))
    done = shelf.collect(age=30 * DAY)
    assert shelf.left() == {made.fingerprint}
    assert done.recent == 1
