"""Many builds at once between the local layer and a remote: at the network's speed, not one request after the other.

Requests run side by side, the disk is flushed once at the end, and what is there already is not sent again, so a
transfer that was cut off goes on where it was.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field

from cubinet.errors import CubinetError, RemoteError, StoreError, TrustError
from cubinet.model import Fingerprint, Record
from cubinet.protocols import Object
from cubinet.store.envelope import OBJECT_LIMIT
from cubinet.store.local import LocalLayer
from cubinet.store.remote import RemoteLayer

__all__ = ["Moved", "pull", "push"]

Progress = Callable[[int, int], None]
WIDTH = 32
"""Builds that are under way at once."""

_SECONDS = 30.0
_LISTED = 256
"""From this many builds on, it is cheaper to list what is there than to ask for each."""

_HOPELESS = 8
"""Errors of a remote in a row after which the rest is not tried."""


@dataclass(slots=True)
class Moved:
    """What a transfer did.

    Attributes:
        moved: builds that were sent or fetched.
        present: builds that were there already.
        kept: builds that may not leave their host (`-lineinfo`).
        size: bytes of blobs that moved, unpacked.
        problems: one sentence for each build that failed.
    """

    moved: int = 0
    present: int = 0
    kept: int = 0
    size: int = 0
    problems: list[str] = field(default_factory=list)

    @property
    def clean(self) -> bool:
        """Whether all that should move did."""
        return not self.problems


def push(
    local: LocalLayer,
    layer: RemoteLayer,
    fingerprints: Collection[Fingerprint],
    *,
    wanted: Callable[[Record], bool] = lambda _record: True,
    sign: Callable[[bytes], bytes] | None = None,
    progress: Progress = lambda _done, _all: None,
) -> Moved:
    """Send builds to a remote, those that it does not have.

    Args:
        local: where they are.
        layer: where they go.
        fingerprints: of the local layer.
        wanted: which of their records to send.
        sign: puts our signature to a record's stored form.
        progress: gets how many are done, and all.

    Raises `RemoteError` if the remote fails again and again: what was sent until then stays.
    """
    done = Moved()
    known = set(layer.names("records")) if len(fingerprints) >= _LISTED else set()
    hinted = set(layer.names("manifests")) if known else set()  # who dies between the two leaves a record without one
    stop = _Stop()

    def send(fingerprint: Fingerprint) -> tuple[str, int]:
        stop.check()
        found = local.raw(fingerprint)
        if fingerprint.hex in known and (found is None or found[0].action.hex in hinted):
            return "present", 0
        if found is None:
            raise StoreError("push", fingerprint, "its record is gone or damaged", "cubinet verify")
        record, raw = found
        if not wanted(record):
            return "", 0
        if record.local_only:
            return "kept", 0
        blobs = {}
        for role, ref in record.blobs:
            data = local.read(ref)
            if data is None:
                raise StoreError("push", fingerprint, f"its {role} is gone or damaged", "cubinet verify")
            blobs[ref.digest] = data
        fresh = layer.upload(record, sign(raw) if sign else raw, blobs, timeout=_SECONDS)
        return ("moved", sum(map(len, blobs.values()))) if fresh else ("present", 0)

    with ThreadPoolExecutor(WIDTH, thread_name_prefix="cubinet-push") as pool:
        for at, answer in enumerate(_in_turn(pool, send, fingerprints)):
            progress(at, len(fingerprints))
            try:
                how, size = answer.result()
            except CubinetError as exc:
                stop.failed(exc)
                done.problems.append(str(exc))
                continue
            stop.worked()
            done.size += size
            if how:
                setattr(done, how, getattr(done, how) + 1)
    stop.check()
    progress(len(fingerprints), len(fingerprints))
    return done


def pull(
    local: LocalLayer,
    layer: RemoteLayer,
    fingerprints: Collection[Fingerprint] | None = None,
    *,
    wanted: Callable[[Record], bool] = lambda _record: True,
    progress: Progress = lambda _done, _all: None,
) -> Moved:
    """Fetch builds from a remote, those that the local layer does not have; all of its builds if none are named.

    Raises `RemoteError` as `push`, and `ReadOnlyError` or `StoreError` if the local layer cannot be written.
    """
    done = Moved()
    names = [f.hex for f in fingerprints] if fingerprints is not None else sorted(layer.names("records"))
    have = set(local.names("records"))
    missing = [name for name in names if name not in have]
    done.present = len(names) - len(missing)
    stop = _Stop()
    quick = LocalLayer(local.folder, fs=local.fs, durable=False, warn=local.warn)
    asked = (layer.object_name("records", name) for name in missing)
    for at, (name, answer) in enumerate(layer.remote.get_many(asked, timeout=_SECONDS, limit=OBJECT_LIMIT)):
        progress(at, len(missing))
        try:
            if isinstance(answer, RemoteError):
                raise answer
            size = _arrive(quick, layer, Fingerprint(name.rpartition("/")[2]), answer, wanted)
        except (RemoteError, TrustError) as exc:
            done.problems.append(str(exc))
            stop.failed(exc)
            stop.check()
            continue
        stop.worked()
        if size is None:
            done.problems.append(f"{name} is damaged, or a blob of it is gone")
        elif size >= 0:
            done.moved += 1
            done.size += size
    if local.durable and done.moved:
        local.fs.sync_all(local.folder)
    progress(len(missing), len(missing))
    return done


def _arrive(
    local: LocalLayer,
    layer: RemoteLayer,
    fingerprint: Fingerprint,
    found: Object | None,
    wanted: Callable[[Record], bool],
) -> int | None:
    """Bytes of a build that is here now; -1 if it is not wanted, `None` if it is not whole."""
    if found is None:
        return None
    fetched = layer.opened(fingerprint, found.data)
    if fetched is None:
        return None
    if not wanted(fetched.record) or fetched.record.local_only:
        return -1
    for _, ref in fetched.record.blobs:
        if ref.digest not in fetched.blobs:
            data = layer.read(ref, timeout=_SECONDS)
            if data is None:
                return None
            fetched.blobs[ref.digest] = data
    local.publish(fetched.record, fetched.blobs, fetched.raw)
    return sum(map(len, fetched.blobs.values()))


def _in_turn(
    pool: ThreadPoolExecutor,
    send: Callable[[Fingerprint], tuple[str, int]],
    fingerprints: Iterable[Fingerprint],
) -> Iterator[Future[tuple[str, int]]]:
    """Results in order, with a bounded number under way: a build's blobs are in memory while it is sent."""
    waiting: list[Future[tuple[str, int]]] = []
    for fingerprint in fingerprints:
        waiting.append(pool.submit(send, fingerprint))
        if len(waiting) >= 2 * WIDTH:
            yield waiting.pop(0)
    yield from waiting


class _Stop:
    """Gives up after several errors of a remote in a row: it is the remote then, not the build."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._row = 0
        self._last: CubinetError | None = None

    def failed(self, exc: CubinetError) -> None:
        if isinstance(exc, RemoteError):
            with self._lock:
                self._row, self._last = self._row + 1, exc

    def worked(self) -> None:
        with self._lock:
            if self._row < _HOPELESS:
                self._row = 0

    def check(self) -> None:
        if self._row >= _HOPELESS and self._last is not None:
            raise self._last
