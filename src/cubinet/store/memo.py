"""Observation checks, remembered: in the process by time, between processes by stamps.

A memo file says: with these labels at these places, the observation set with this digest held when
the files had these stamps. It is a shortcut of this machine, made by its owner; losing it costs one
round of hashing.
"""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable, Mapping

import msgspec
from blake3 import blake3

from cubinet._fs import Fs
from cubinet.errors import FormatError
from cubinet.model import Digest
from cubinet.observations import Contents, Difference, Sheet, Stamp, read_observations, stamp_of, still_present

__all__ = ["Checker"]

_HEAD = b"cubinet-memo 1\n"
_UNTRUSTED: Stamp = (0, 0, 0, 0, 0)


class _Memo(msgspec.Struct, array_like=True):
    files: list[str]
    folders: list[str]
    present: list[str]
    stamps: bytes


_encoder, _decoder = msgspec.msgpack.Encoder(), msgspec.msgpack.Decoder(_Memo)
_stamp_decoder = msgspec.msgpack.Decoder(list[Stamp])


class Checker:
    """Tells whether observation sets hold here.

    Within `refresh` seconds each file and folder is looked at once at most, however many variants
    share it. `refresh()` ends such a window at once. Safe in threads: the worst a race does is to
    look twice. `temporary` names a new file, in a folder that somebody sweeps if this process is killed.
    """

    def __init__(
        self,
        folder: str | None,
        contents: Contents,
        *,
        fs: Fs,
        refresh: float,
        temporary: Callable[[], str] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.folder, self.contents, self.fs, self.window, self.clock = folder, contents, fs, refresh, clock
        self.temporary = temporary or (lambda: f"{folder}/tmp/{os.urandom(16).hex()}")
        self.refresh()

    def refresh(self) -> None:
        """Forget what was looked at: the next check looks again."""
        self.generation = object()
        self.deadline = self.clock() + self.window
        self._held: set[str] = set()
        self._stamps: dict[str, Stamp] = {}

    def current(self) -> object:
        """The present window; a new object each time a window ends."""
        if self.clock() >= self.deadline:
            self.refresh()
        return self.generation

    def holds(self, observations: Digest, places: Mapping[str, str], load: Callable[[], bytes | None]) -> bool:
        """Whether the set with this digest holds here. `load` gets its bytes, if they are needed."""
        self.current()
        key, held = self._key(observations, places), self._held  # this window's, though it may end meanwhile
        if key in held:
            return True
        memo = self._read(key)
        if memo and self._unchanged(memo):
            held.add(key)
            return True
        data = load()
        if data is None:
            return False
        try:
            sheet = Sheet.of(read_observations(data), places)
        except FormatError:
            return False
        if memo:
            self._trust(memo, sheet)
        if next(self._examine(sheet), None) is not None:
            return False
        held.add(key)
        self._keep(key, sheet)
        return True

    def differences(self, data: bytes, places: Mapping[str, str]) -> list[Difference]:
        """All observations of a set that do not hold here. Raises `FormatError`."""
        return list(self._examine(Sheet.of(read_observations(data), places)))

    def remember(self, observations: Digest, places: Mapping[str, str], data: bytes) -> bool:
        """Note a set that was just made here; `False` if it does not hold any more."""
        self.current()
        held, sheet = self._held, Sheet.of(read_observations(data), places)
        if next(self._examine(sheet), None) is not None:
            return False
        key = self._key(observations, places)
        held.add(key)
        self._keep(key, sheet)
        return True

    def _examine(self, sheet: Sheet) -> itertools.chain[Difference]:
        return itertools.chain(sheet.differences(self.contents))

    @staticmethod
    def _key(observations: Digest, places: Mapping[str, str]) -> str:
        text = "\0".join(f"{label}={place}" for label, place in sorted(places.items()))
        data = observations.raw + text.encode("utf-8", "surrogateescape")
        return blake3(data, derive_key_context="cubinet memo v1").hexdigest()

    def _path(self, key: str) -> str:
        return f"{self.folder}/{key[:2]}/{key}"

    def _gather(self, paths: list[str]) -> bytes:
        """The stamps of paths, each looked at once a window. Raises as `Fs.stats`."""
        known = self._stamps
        fresh = [path for path in paths if path not in known]
        if fresh:
            known.update(zip(fresh, map(stamp_of, self.fs.stats(fresh)), strict=True))
        return _encoder.encode([known[path] for path in paths])

    def _read(self, key: str) -> _Memo | None:
        if self.folder is None:
            return None
        try:
            data = self.fs.read(self._path(key))
            body = memoryview(data)[len(_HEAD) + 32 :]
            if data.startswith(_HEAD) and blake3(body).digest() == data[len(_HEAD) : len(_HEAD) + 32]:
                return _decoder.decode(body)
        except (OSError, msgspec.DecodeError):
            pass
        return None

    def _unchanged(self, memo: _Memo) -> bool:
        try:
            if self._gather(memo.files + memo.folders) != memo.stamps:
                return False
        except (OSError, OverflowError, ValueError):
            return False
        return all(map(still_present, memo.present))

    def _trust(self, memo: _Memo, sheet: Sheet) -> None:
        """Files whose own stamp is the noted one need no hashing, though others changed."""
        stamps = _stamp_decoder.decode(memo.stamps)
        for path, stamp in zip(memo.files, stamps, strict=False):  # the rest is of folders
            if path in sheet.reads:
                self.contents.trust(path, stamp, sheet.reads[path])

    def _keep(self, key: str, sheet: Sheet) -> None:
        if self.folder is None or sheet.trees:
            return
        files, folders = list(dict.fromkeys((*sheet.reads, *sheet.times))), sheet.folders()
        try:
            # Stamps are taken anew and compared with those of the hashed content: a file that changed in
            # between must not get its new stamp beside its old digest.
            rows = []
            for path in files:
                found = self.contents.digest(path)
                if found is None or found[1] != sheet.reads.get(path, found[1]):
                    return
                rows.append(found[0] if self.contents.lasting(path, found[0]) else _UNTRUSTED)
            infos = self.fs.stats(folders)
            for path, info in zip(folders, infos, strict=True):
                stamp = (info.st_dev, info.st_ino, info.st_size, info.st_mtime_ns, info.st_ctime_ns)
                rows.append(stamp if self.contents.lasting(path, stamp) else _UNTRUSTED)
            if any(os.path.exists(path) for path in sheet.absent):
                return
            body = _encoder.encode(_Memo(files, folders, sheet.present, _encoder.encode(rows)))
            self._write(key, _HEAD + blake3(body).digest() + body)
        except (OSError, OverflowError, UnicodeEncodeError):
            return

    def _write(self, key: str, data: bytes) -> None:
        path, temporary = self._path(key), self.temporary()
        self.fs.mkdir(os.path.dirname(path))
        self.fs.mkdir(os.path.dirname(temporary))
        self.fs.create(temporary, data, sync=False)
        try:
            self.fs.rename(temporary, path)
        except BaseException:
            self.fs.discard(temporary)
            raise
