"""The local layer: a folder on a local disk. `docs/reference/store-layout.md` is the contract.

Publishing writes a temporary file, flushes it and gives it its final name by `link`, which fails if
the name is taken: the first one wins and a reader never sees half a file. Blobs come first, then the
record, then the manifest. Everything read is verified; what is wrong moves to `bad/` and is a miss.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import TypeVar

from blake3 import blake3

from cubinet._fs import Fs
from cubinet.errors import ConfigError, FormatError, LockTimeoutError, ReadOnlyError, StoreError
from cubinet.fingerprint import fingerprint_of
from cubinet.model import Action, BlobRef, Digest, Fingerprint, Record
from cubinet.store.format import (
    Failure,
    NewerFormatError,
    decode_failure,
    decode_manifest,
    decode_record,
    encode_failure,
    encode_manifest,
    encode_record,
    glimpse,
)
from cubinet.store.lock import FileLock

__all__ = ["STORE_VERSION", "LocalLayer", "check_trust"]

STORE_VERSION = 1
_VERSION_TEXT = "cubinet-store "
_TAG = b"Signature: 8a477f597d28d172789f06886806bc55\n# This folder is a cache made by cubinet.\n"
_RECORD_LIMIT = 64 << 20
_BAD_LIMIT = 64
_STALE_TRIES = 3
_LEFTOVER_SECONDS = 3600.0
_MANIFEST_SECONDS = 1.0
_FRESH_SECONDS = 3600.0
_READ_ONLY = (errno.EROFS, errno.EACCES, errno.EPERM)
_GONE = (errno.ENOENT, errno.ESTALE, errno.ENOTDIR)

# What this class writes into `tmp` and `bad`, and therefore may remove from there: somebody may have named a
# folder that has a `tmp` of its own.
_OUR_TEMPORARY = re.compile(r".+-\d+-\d+-\d+-[0-9a-f]{8}")
_OUR_BAD = re.compile(r"(records|blobs|manifests)-[0-9a-f]{64}-\d+")
_FAN = re.compile(r"[0-9a-f]{2}")
_NAME = re.compile(r"([0-9a-f]{64})(\.json)?")

_serial = itertools.count()
T = TypeVar("T")


def check_trust(folder: str) -> None:
    """Refuse a folder that somebody else could have written into. Fine if it is not there yet.

    Looks at every folder above it too, and above what it links to.

    Raises `ConfigError`.
    """
    ends = {os.path.abspath(folder), os.path.realpath(folder)}
    for end in sorted(ends):
        path, parent = end, os.path.dirname(end)
        _check_folder(folder, path, itself=True)
        while parent != path:
            path, parent = parent, os.path.dirname(parent)
            _check_folder(folder, path, itself=False)


def _check_folder(folder: str, path: str, *, itself: bool) -> None:
    try:
        info = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as exc:
        raise ConfigError("use store folder", folder, f"{path}: {exc.strerror}") from exc
    writable = info.st_mode & (0o022 if itself else 0o002)
    sticky = info.st_mode & 0o1000 and not itself  # as /tmp: others cannot move what is mine
    if info.st_uid not in (0, os.geteuid()):
        finding = f"{path} belongs to user {info.st_uid}, not to you"
    elif writable and not sticky:
        finding = f"others can write {path} (mode {info.st_mode & 0o7777:04o})"
    else:
        return
    raise ConfigError("use store folder", folder, finding, "chmod go-w it, name another, or say CUBINET_TRUST=open")


class LocalLayer:
    """A folder of records and blobs.

    Args:
        folder: where; made when first written to.
        durable: flush files and folders to disk before they count as published.
        shared: others of the same group write too, perhaps from other hosts: folders get mode 2775, and no file is
            locked.
        now: the clock, seconds since the epoch.
        warn: called with a sentence when something was quarantined.
    """

    name = "local"

    def __init__(
        self,
        folder: str,
        *,
        fs: Fs | None = None,
        durable: bool = True,
        shared: bool = False,
        now: Callable[[], float] = time.time,
        warn: Callable[[str], None] = lambda _text: None,
    ) -> None:
        self.folder, self.fs, self.durable, self.now, self.warn = folder, fs or Fs(), durable, now, warn
        self.shared, self._folder_mode = shared, 0o2775 if shared else 0o755
        self._ready = False
        self._version_checked = False

    # --- reading

    def find(self, fingerprint: Fingerprint) -> Record | None:
        """The record of a fingerprint, checked; `None` if there is none, or a damaged one."""
        return self._record(fingerprint, self._decoded)

    def look(self, fingerprint: Fingerprint) -> tuple[BlobRef | None, bytes] | None:
        """The main blob of a record and the record's bytes, their check sum verified; `None` as for `find`."""
        return self._record(fingerprint, lambda data, f: (glimpse(data, f), data))

    def raw(self, fingerprint: Fingerprint) -> tuple[Record, bytes] | None:
        """The record as for `find`, and the bytes it is stored in."""
        return self._record(fingerprint, lambda data, f: (self._decoded(data, f), data))

    def _decoded(self, data: bytes, fingerprint: Fingerprint) -> Record:
        record = decode_record(data)
        if record.fingerprint != fingerprint:
            raise FormatError("read record", fingerprint, f"it is the record of {record.fingerprint}")
        if fingerprint_of(record.action, record.observations) != fingerprint:
            raise FormatError("read record", fingerprint, "its parts do not give its fingerprint")
        return record

    def _record(self, fingerprint: Fingerprint, decode: Callable[[bytes, Fingerprint], T]) -> T | None:
        name = fingerprint.hex
        data = self._read(self.path("records", name, ".json"), _RECORD_LIMIT)
        if data is None:
            return None
        try:
            return decode(data, fingerprint)
        except NewerFormatError:
            return None
        except FormatError as exc:
            self.quarantine("records", name, ".json", str(exc))
            return None

    def read(self, ref: BlobRef) -> bytes | None:
        """The verified bytes of a blob; `None` if it is gone or damaged."""
        name = ref.digest.hex
        data = self._read(self.path("blobs", name), ref.size)
        if data is not None and len(data) == ref.size and blake3(data).hexdigest() == name:
            return data
        if data is not None or self._read(self.path("blobs", name), None) is not None:
            self.quarantine("blobs", name, "", f"its {ref.size} bytes do not have their digest")
        return None

    def read_named(self, digest: Digest) -> bytes | None:
        """The verified bytes of a blob whose size is not known beforehand."""
        data = self._read(self.path("blobs", digest.hex), None)
        if data is not None and blake3(data).hexdigest() != digest.hex:
            self.quarantine("blobs", digest.hex, "", f"its {len(data)} bytes do not have their digest")
            return None
        return data

    def candidates(self, action: Action) -> tuple[Digest, ...]:
        """Observation sets seen with an action, newest first."""
        return self._manifest(action) or ()

    def _manifest(self, action: Action) -> tuple[Digest, ...] | None:
        """The same; `None` for a manifest in a newer format."""
        data = self._read(self.path("manifests", action.hex, ".json"), _RECORD_LIMIT)
        if data is None:
            return ()
        try:
            found, candidates = decode_manifest(data)
        except NewerFormatError:
            return None
        except FormatError as exc:
            self.quarantine("manifests", action.hex, ".json", str(exc))
            return ()
        return candidates if found == action else ()

    def failure(self, action: Action) -> Failure | None:
        """A remembered compile error that has not run out."""
        data = self._read(self.path("failures", action.hex, ".json"), _RECORD_LIMIT)
        if data is None:
            return None
        try:
            found = decode_failure(data)
        except NewerFormatError:
            return None
        except FormatError:
            found = None
        if found is None or found.action != action.hex or not self.now() < found.expires < self.now() + 61:
            self.fs.discard(self.path("failures", action.hex, ".json"))
            return None
        return found

    def fingerprints(self) -> Iterator[Fingerprint]:
        """All records, in no order."""
        for name in self.names("records"):
            yield Fingerprint(name)

    def names(self, kind: str, fan_out: str | None = None) -> Iterator[str]:
        """The hex names in one of the fanned-out folders, or in one fan of it."""
        for fan in [fan_out] if fan_out else self._list(f"{self.folder}/{kind}"):
            if not _FAN.fullmatch(fan):
                continue
            for name in self._list(f"{self.folder}/{kind}/{fan}"):
                match = _NAME.fullmatch(name)
                if match and name.startswith(fan) and bool(match[2]) is (kind != "blobs"):
                    yield match[1]

    def _list(self, path: str) -> list[str]:
        try:
            return sorted(self.fs.list(path))
        except OSError as exc:
            raise StoreError("list", path, exc.strerror or str(exc), "see cubinet doctor") from exc

    def path(self, kind: str, name: str, suffix: str = "") -> str:
        """Where a file of the layer is, by its 64 hex digits."""
        return f"{self.folder}/{kind}/{name[:2]}/{name}{suffix}"

    def _read(self, path: str, limit: int | None) -> bytes | None:
        if not self._version_checked:
            self._check_version()
        for attempt in range(_STALE_TRIES):
            try:
                return self.fs.read(path, limit)
            except ValueError:  # larger than it can be
                return None
            except OSError as exc:
                if exc.errno == errno.ESTALE and attempt + 1 < _STALE_TRIES:  # replaced on a network mount: open anew
                    continue
                if exc.errno in _GONE:
                    return None
                raise StoreError("read", path, exc.strerror or str(exc), "see cubinet doctor") from exc
        return None

    def _check_version(self) -> None:
        try:
            text = self.fs.read(f"{self.folder}/VERSION", 200).decode("ascii", "replace").strip()
        except ValueError:
            text = "a file of more than 200 bytes"
        except OSError:
            return  # no store yet, or one we cannot read: the caller will see
        number = text.removeprefix(_VERSION_TEXT)
        if number != str(STORE_VERSION):
            newer = text.startswith(_VERSION_TEXT) and number.isdigit()
            raise FormatError(
                "use store",
                self.folder,
                f"its VERSION is {text[:40]!r}, this release knows {_VERSION_TEXT}{STORE_VERSION}",
                "upgrade cubinet, or name another folder" if newer else "name another folder",
            )
        self._version_checked = True

    # --- writing

    def publish(self, record: Record, blobs: Mapping[Digest, bytes], raw: bytes = b"") -> bool:
        """Store a build; `False` if the fingerprint was there already. See `Layer.publish`.

        `raw` is the record's stored form, if it has one: it keeps signatures and fields of later releases.
        """
        with self.writing("publish", record.fingerprint):
            self.prepare()
            encoded, name = raw or encode_record(record), record.fingerprint.hex
            for digest, data in blobs.items():
                self._publish_blob(digest, data)
            # record after its blobs: a reader that sees it must find them
            fresh = self._publish_file("records", name, ".json", encoded)
            if not fresh and self.find(record.fingerprint) is None:  # a damaged one, which `find` moved away
                fresh = self._publish_file("records", name, ".json", encoded)
            self._add_candidate(record.action, record.observations)
            return fresh

    def remember_failure(self, failure: Failure) -> None:
        """Note a deterministic compile error for a minute."""
        with self.writing("remember failure of", failure.action):
            self.prepare()
            self._replace("failures", failure.action, encode_failure(failure))

    def forget_failure(self, action: Action) -> None:
        """Drop a remembered compile error, if there is one."""
        self.fs.discard(self.path("failures", action.hex, ".json"))

    def remove(self, record: Record) -> None:
        """Let a build go: its place in the manifest, then its record. Blobs stay, others may name them."""
        action = record.action
        with self.lock(f"{action.hex}.manifest") as lock:
            with contextlib.suppress(OSError, LockTimeoutError):
                lock.acquire(_MANIFEST_SECONDS)
            have = self._manifest(action)
            rest = tuple(c for c in have or () if c != record.observations)
            if have and not rest:
                self.fs.discard(self.path("manifests", action.hex, ".json"))
            elif have and rest != have:
                self._replace("manifests", action.hex, encode_manifest(action, rest))
        self.fs.discard(self.path("records", record.fingerprint.hex, ".json"))

    def remove_blob(self, digest: Digest) -> None:
        """Let a blob go that no record names."""
        self.fs.discard(self.path("blobs", digest.hex))

    def touch(self, name: str) -> None:
        """Give a file of the layer's folder the present time; an empty one is made if there is none."""
        path = f"{self.folder}/{name}"
        try:
            self.fs.touch(path)
        except FileNotFoundError:
            with contextlib.suppress(FileExistsError):
                self.fs.create(path, b"", mode=0o644, sync=False)

    def lock(self, name: str) -> FileLock:
        """A lock among the processes of this host. Entering it may raise `OSError`."""
        return FileLock(self.fs, f"{self.folder}/locks/{name}", prepare=self.prepare)

    def quarantine(self, kind: str, name: str, suffix: str, why: str) -> None:
        """Move a file that is wrong out of the way, if the layer can be written."""
        try:
            self._move_away(kind, name, suffix, why)
        except OSError:
            self.warn(f"{kind[:-1]} {name} is damaged and cannot be moved away: {why}")

    def _move_away(self, kind: str, name: str, suffix: str, why: str) -> None:
        self._mkdir(f"{self.folder}/bad")
        try:
            self.fs.rename(self.path(kind, name, suffix), f"{self.folder}/bad/{kind}-{name}-{time.time_ns()}")
        except FileNotFoundError:  # another process was quicker
            return
        self._bound_bad()
        self.warn(f"{kind[:-1]} {name} was damaged and is now in {self.folder}/bad: {why}")

    def _bound_bad(self) -> None:
        try:
            found = filter(_OUR_BAD.fullmatch, self.fs.list(f"{self.folder}/bad"))
            oldest_first = sorted(found, key=lambda name: name.rpartition("-")[2])
        except OSError:  # they stay for now
            return
        for name in oldest_first[:-_BAD_LIMIT]:
            self.fs.discard(f"{self.folder}/bad/{name}")

    def close(self) -> None:
        """Nothing is held open between calls."""

    def writable(self) -> str:
        """Why the layer cannot be written, or an empty text; leaves nothing behind but the folder."""
        try:
            self._ready = False
            self.prepare()
            path = self.temporary()
            self.fs.create(path, b"cubinet", sync=False)
            self.fs.unlink(path)
        except OSError as exc:
            return exc.strerror or str(exc)
        except StoreError as exc:
            return str(exc)
        return ""

    def _mkdir(self, path: str) -> None:
        self.fs.mkdir(path, self._folder_mode)

    def writing(self, action: str, subject: object) -> _Writing:
        """A block in which the system's refusals become ours."""
        return _Writing(self, action, subject)

    def prepare(self) -> None:
        """Make the folder and what every writer needs in it, if that was not done yet."""
        if self._ready:
            return
        self._check_version()
        for name in ("", "/tmp") if self.shared else ("", "/tmp", "/locks"):
            self._mkdir(self.folder + name)
        for name, data in (("CACHEDIR.TAG", _TAG), ("VERSION", f"{_VERSION_TEXT}{STORE_VERSION}\n".encode())):
            path = f"{self.folder}/{name}"
            if not os.path.exists(path):
                self._link_new(data, path)
        self._sweep()
        self._ready = self._version_checked = True

    def _sweep(self) -> None:
        """Remove temporary files that a killed process left more than an hour ago."""
        for name in filter(_OUR_TEMPORARY.fullmatch, self.fs.list(f"{self.folder}/tmp")):
            path = f"{self.folder}/tmp/{name}"
            try:
                if self.fs.stat(path).st_mtime < self.now() - _LEFTOVER_SECONDS:
                    self.fs.unlink(path)
            except OSError:  # another process was quicker
                continue

    def temporary(self) -> str:
        """A new name in `tmp`; what is left there is swept an hour later."""
        node = os.uname().nodename.replace("/", "_")[:64]
        return f"{self.folder}/tmp/{node}-{os.getpid()}-{threading.get_ident()}-{next(_serial)}-{os.urandom(4).hex()}"

    def _publish_blob(self, digest: Digest, data: bytes) -> None:
        # A blob that is there is never written again, but one that is damaged must not stay either.
        try:
            there = self.fs.read(self.path("blobs", digest.hex), len(data))
        except FileNotFoundError:
            there = None
        except ValueError:
            there = b""
        if there == data:
            if self._freshened(digest):
                return
        elif there is not None:
            self._move_away("blobs", digest.hex, "", "it was damaged when the same blob was published again")
        self._publish_file("blobs", digest.hex, "", data)

    def _freshened(self, digest: Digest) -> bool:
        """Keep a collector from taking a blob for one that nobody needs any more; `False` if one was quicker."""
        path = self.path("blobs", digest.hex)
        try:
            if self.fs.stat(path).st_mtime < self.now() - _FRESH_SECONDS:
                self.fs.touch(path)
        except OSError as exc:
            return not isinstance(exc, FileNotFoundError)
        return True

    def _publish_file(self, kind: str, name: str, suffix: str, data: bytes) -> bool:
        path = self.path(kind, name, suffix)
        try:
            fresh = self._link_new(data, path)
        except FileNotFoundError:  # the store was deleted under our feet
            self._mkdir(f"{self.folder}/tmp")
            fresh = self._link_new(data, path)
        if fresh and self.durable:
            self.fs.sync_folder(os.path.dirname(path))
        return fresh

    def _link_new(self, data: bytes, path: str) -> bool:
        """Give data a name unless it is taken."""
        temporary = self.temporary()
        self.fs.create(temporary, data, sync=self.durable)
        try:
            try:
                return self._link(temporary, path)
            except FileNotFoundError:  # the first name in this fan-out folder
                self._mkdir(os.path.dirname(path))
                return self._link(temporary, path)
        finally:
            self.fs.discard(temporary)

    def _link(self, temporary: str, path: str) -> bool:
        try:
            self.fs.link(temporary, path)
        except FileExistsError:
            return False
        except OSError as exc:
            if self._was_linked(temporary):
                return True  # the reply was lost, not the link
            if exc.errno not in (errno.EPERM, errno.EOPNOTSUPP, errno.EMLINK):
                raise
            if os.path.exists(path):
                return False
            self.fs.rename(temporary, path)  # a file system without hard links
        return True

    def _was_linked(self, temporary: str) -> bool:
        try:
            return self.fs.stat(temporary).st_nlink > 1
        except OSError:
            return False

    def _replace(self, kind: str, name: str, data: bytes) -> None:
        path, temporary = self.path(kind, name, ".json"), self.temporary()
        self.fs.create(temporary, data, sync=False)
        try:
            try:
                self.fs.rename(temporary, path)
            except FileNotFoundError:
                self._mkdir(os.path.dirname(path))
                self.fs.rename(temporary, path)
        except BaseException:
            self.fs.discard(temporary)
            raise

    def _add_candidate(self, action: Action, observations: Digest) -> None:
        if self.candidates(action)[:1] == (observations,):
            return
        with self.lock(f"{action.hex}.manifest") as lock:
            if not self.shared:  # locks of network mounts are not to be relied on, or waited for
                with contextlib.suppress(OSError, LockTimeoutError):  # without it two writers may lose a hint
                    lock.acquire(_MANIFEST_SECONDS)
            old = self._manifest(action)
            if old is not None:
                rest = tuple(c for c in old if c != observations)
                self._replace("manifests", action.hex, encode_manifest(action, (observations, *rest)))


class _Writing:
    """Turns the system's refusals into ours, and starts over once if the folder vanished."""

    def __init__(self, layer: LocalLayer, action: str, subject: object) -> None:
        self.layer, self.action, self.subject = layer, action, subject

    def __enter__(self) -> None:
        if self.layer._ready and not os.path.isdir(f"{self.layer.folder}/tmp"):  # noqa: SLF001
            self.layer._ready = False  # noqa: SLF001 - deleted under our feet

    def __exit__(self, kind: object, exc: BaseException | None, trace: object) -> None:
        if not isinstance(exc, OSError) or isinstance(exc, StoreError):
            return
        why = exc.strerror or str(exc)
        if exc.errno in _READ_ONLY:
            raise ReadOnlyError(self.action, self.subject, f"{self.layer.folder}: {why}", "see cubinet doctor") from exc
        remedy = "make room, or name another folder" if exc.errno in (errno.ENOSPC, errno.EDQUOT) else ""
        raise StoreError(self.action, self.subject, f"{self.layer.folder}: {why}", remedy) from exc
