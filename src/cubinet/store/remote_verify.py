"""Reading a whole remote and saying what is wrong with it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import zstandard
from blake3 import blake3

from cubinet.errors import FormatError, ReadOnlyError, TrustError
from cubinet.model import BlobRef, Fingerprint
from cubinet.protocols import Entry
from cubinet.store.envelope import BLOB_LIMIT, OBJECT_LIMIT, expand, unpack
from cubinet.store.format import NewerFormatError, decode_manifest
from cubinet.store.remote import RemoteLayer
from cubinet.store.remote_read import TIMEOUT, decode_named, listed, read_all
from cubinet.store.verify import Verification

__all__ = ["RemoteVerification", "verify_remote"]

_BATCH, _BATCH_BYTES = 512, 256 << 20


@dataclass(slots=True)
class RemoteVerification(Verification):
    """What was found in a remote. `blobs` counts those that are objects of their own and those inside records.

    `repaired` counts objects that were deleted because they were damaged.
    """

    manifests: int = 0
    repaired: int = 0


def verify_remote(
    layer: RemoteLayer, progress: Callable[[int, int], None], *, repair: bool = False
) -> RemoteVerification:
    """Check every record, blob and manifest of a remote.

    With `repair` what is damaged is deleted, so that whoever needs it compiles and writes it again; a record without
    one of its blobs goes too. Records in a newer format, or that this layer's policy does not let in, are told and
    left alone.

    Raises `RemoteError`, `ReadOnlyError` for a layer that takes no writes.
    """
    if repair and not layer.writable:
        raise ReadOnlyError("repair", layer.place, "this layer is read-only", "run it where the layer may be written")
    return _Check(layer, progress, repair=repair).run()


class _Check:
    def __init__(self, layer: RemoteLayer, progress: Callable[[int, int], None], *, repair: bool) -> None:
        self.layer, self.remote, self.progress, self.repair = layer, layer.remote, progress, repair
        self.out = RemoteVerification()
        self.needed: dict[BlobRef, list[tuple[str, str]]] = {}  # blob → who needs it, as what
        self.named: set[str] = set()
        self.bad: list[str] = []
        self.hollow: set[str] = set()  # records that lack a blob
        self.newer = False

    def run(self) -> RemoteVerification:
        """Records before blobs: a blob comes before its record, so each that is named is there."""
        records, manifests = list(listed(self.remote, "records")), list(listed(self.remote, "manifests"))
        total = len(records) + len(manifests)
        done = 0
        for entry in [e for e in (*records, *manifests) if e.size > OBJECT_LIMIT]:
            self._damaged(entry.name, f"it has {entry.size} bytes")
        for entries, check in ((records, self._record), (manifests, self._manifest)):
            for name, found in read_all(self.remote, [e.name for e in entries if e.size <= OBJECT_LIMIT]):
                self.progress(done := done + 1, total)
                if found is not None:
                    check(name, found.data)
        self._blobs({e.name: e for e in listed(self.remote, "blobs")})
        self.progress(total, total)
        if self.repair and self.bad:
            gone = list(dict.fromkeys(self.bad))
            self.remote.delete(gone, timeout=TIMEOUT)
            self.layer.refresh()
            self.out.repaired = len(gone)
        return self.out

    def _damaged(self, name: str, why: str) -> None:
        self.bad.append(name)
        kind, _, key = name.split("/")[1:]
        self.out.problems.append(f"{kind.removesuffix('s')} {key}: {why}")

    def _record(self, name: str, data: bytes) -> None:
        key = name.rpartition("/")[2]
        try:
            record = decode_named(key, data)
            fetched = self.layer.opened(Fingerprint(key), data)
            if fetched is None:
                raise FormatError("read record", key, "the blobs in it are damaged")
            if record.blob(record.kind) is None:
                raise FormatError("read record", key, f"it has no {record.kind}")
        except NewerFormatError as exc:
            self.newer = True
            self.out.problems.append(f"record {key}: {exc.finding}; it is left alone")
            return
        except TrustError as exc:
            self.out.problems.append(f"record {key}: {exc.finding}")
            self.named |= {ref.digest.hex for _, ref in record.blobs}
            return
        except FormatError as exc:
            self._damaged(name, exc.finding)
            return
        self.out.records += 1
        for ref in {ref for _, ref in record.blobs if ref.digest in fetched.blobs}:
            self.out.blobs += 1
            self.out.bytes += ref.size
        for role, ref in record.blobs:
            if ref.digest not in fetched.blobs:
                self.named.add(ref.digest.hex)
                self.needed.setdefault(ref, []).append((name, role))

    def _manifest(self, name: str, data: bytes) -> None:
        key = name.rpartition("/")[2]
        try:
            action, _ = decode_manifest(unpack(data, blobs=False).head)
            unpack(data)
            if action.hex != key:
                raise FormatError("read manifest", key, "it is that of another action")
        except NewerFormatError as exc:
            self.out.problems.append(f"manifest {key}: {exc.finding}; it is left alone")
        except FormatError as exc:
            self._damaged(name, exc.finding)
        else:
            self.out.manifests += 1

    def _blobs(self, entries: dict[str, Entry]) -> None:
        sizes: dict[str, int] = {}
        for batch in _batches(list(entries.values())):
            limit = max(entry.size for entry in batch)
            for name, found in read_all(self.remote, [entry.name for entry in batch], limit):
                key = name.rpartition("/")[2]
                size = None if found is None else _size(found.data, key)
                if size is not None:
                    sizes[key] = size
                elif found is not None:
                    self._damaged(name, "it does not have its digest")
                if key not in self.named and not self.newer:
                    self.out.spare += 1
        for ref, users in self.needed.items():
            if sizes.get(ref.digest.hex) == ref.size:
                self.out.blobs += 1
                self.out.bytes += ref.size
                continue
            for name, role in users:
                self._damaged(name, f"its {role} is gone or damaged")
                self.out.records -= name not in self.hollow
                self.hollow.add(name)


def _batches(entries: list[Entry]) -> Iterator[list[Entry]]:
    """Some objects at a time, small ones together, so that those in flight fit into memory."""
    batch: list[Entry] = []
    held = 0
    for entry in sorted(entries, key=lambda e: e.size):
        if batch and (held + entry.size > _BATCH_BYTES or len(batch) == _BATCH):
            yield batch
            batch, held = [], 0
        batch.append(entry)
        held += entry.size
    if batch:
        yield batch


def _size(frame: bytes, name: str) -> int | None:
    """How many bytes the blob of this name has; `None` if it is damaged."""
    try:
        size = zstandard.get_frame_parameters(frame).content_size
        data = expand(frame, size) if size <= BLOB_LIMIT else b"?"
    except (zstandard.ZstdError, FormatError):
        return None
    return size if blake3(data).hexdigest() == name else None
