"""What must not be collected: tags, each a file `pins/<tag>` with one fingerprint a line.

Files and not rows of the index, since the index may be thrown away at any time and a pin may not.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from cubinet.errors import ConfigError, FormatError, StoreError
from cubinet.model import Fingerprint
from cubinet.store.local import LocalLayer

__all__ = ["Pins"]

_TAG = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_LIMIT = 64 << 20
_LOCK_SECONDS = 10.0

Change = Callable[[frozenset[Fingerprint]], frozenset[Fingerprint]]


class Pins:
    """The tags of a local layer."""

    def __init__(self, local: LocalLayer) -> None:
        self.local, self.folder = local, f"{local.folder}/pins"

    def tags(self) -> dict[str, frozenset[Fingerprint]]:
        """Every tag with what it pins. Raises `FormatError` for a damaged file: nothing may be collected then."""
        try:
            names = sorted(filter(_TAG.fullmatch, self.local.fs.list(self.folder)))
        except OSError as exc:
            raise StoreError("list", self.folder, exc.strerror or str(exc)) from exc
        return {name: self._read(name) for name in names}

    def pinned(self) -> frozenset[Fingerprint]:
        """Everything that is pinned."""
        return frozenset().union(*self.tags().values())

    def pin(self, tag: str, fingerprints: Iterable[Fingerprint]) -> int:
        """Keep these builds under a tag; how many were not there yet. Raises `ConfigError`, `StoreError`."""
        wanted = frozenset(fingerprints)
        return self._change(tag, lambda have: have | wanted)

    def unpin(self, tag: str, fingerprints: Iterable[Fingerprint] | None = None) -> int:
        """Let go of these builds, or of the whole tag; how many were there. Raises `ConfigError`, `StoreError`."""
        gone = None if fingerprints is None else frozenset(fingerprints)
        if tag not in self.tags():
            raise ConfigError("unpin", tag, "there is no such tag", "see cubinet pin")
        return -self._change(tag, lambda have: frozenset() if gone is None else have - gone)

    def _change(self, tag: str, change: Change) -> int:
        if not _TAG.fullmatch(tag):
            raise ConfigError("pin", repr(tag), "not a plain tag", "use up to 64 letters, digits, '.', '_', '-'")
        with self.local.writing("pin", tag), self.local.lock("pins") as lock:
            self.local.prepare()
            lock.acquire(_LOCK_SECONDS)
            have = self._read(tag)
            want = change(have)
            if want != have:
                self._write(tag, want)
        return len(want) - len(have)

    def _read(self, tag: str) -> frozenset[Fingerprint]:
        path = f"{self.folder}/{tag}"
        try:
            lines = self.local.fs.read(path, _LIMIT).decode("ascii", "replace").splitlines()
            return frozenset(Fingerprint(line) for line in lines)
        except FileNotFoundError:
            return frozenset()
        except ValueError as exc:  # ConfigError of a line that is no fingerprint
            raise FormatError("read pins", path, str(exc), "mend or remove this file") from exc
        except OSError as exc:
            raise StoreError("read pins", path, exc.strerror or str(exc)) from exc

    def _write(self, tag: str, wanted: frozenset[Fingerprint]) -> None:
        fs, path, temporary = self.local.fs, f"{self.folder}/{tag}", self.local.temporary()
        if not wanted:
            fs.unlink(path)
            return
        fs.mkdir(self.folder)
        fs.create(temporary, "".join(sorted(f"{f.hex}\n" for f in wanted)).encode(), sync=self.local.durable)
        try:
            fs.rename(temporary, path)
        except BaseException:
            fs.discard(temporary)
            raise
