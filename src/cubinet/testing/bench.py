"""Stores over one folder with the fake compiler, and a few headers for it: a store's life without a toolkit."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cubinet._fs import Fs
from cubinet.config import Settings
from cubinet.model import Root, Target, Variant
from cubinet.store import Store
from cubinet.testing.fake_compiler import FakeCompiler
from cubinet.testing.faults import NoSyncFs

__all__ = ["SOURCE", "Bench", "overwrite"]

SOURCE = '#include "a.h"\nkernel scale\n'
_HOUR_NS = 3_600_000_000_000


@dataclass(frozen=True, slots=True)
class Bench:
    """A store folder, include folders `first` and `second` (with `a.h`), and a count of compiler runs."""

    top: Path

    @classmethod
    def at(cls, top: Path) -> Bench:
        """Make the include folders."""
        for name in ("first", "second"):
            (top / name).mkdir()
        (top / "second/a.h").write_text("text of a.h\n")
        return cls(top)

    @property
    def folder(self) -> Path:
        """The store's."""
        return self.top / "store"

    @property
    def header(self) -> Path:
        """The one that the plain variant includes."""
        return self.top / "second/a.h"

    def store(self, *, fs: Fs | None = None, later: bool = False, **more: Any) -> Store:
        """A new store, as in a new process.

        Args:
            fs: the seam for file changes; one that does not wait for the disk if not given.
            later: pretend that all files have been at rest for an hour, so that their stamps are trusted.
            more: arguments of `FakeCompiler`, and settings.
        """
        mine = {name: more.pop(name) for name in ("seconds", "version", "during", "noise") if name in more}
        adapter = FakeCompiler(str(self.top / "runs"), **mine)
        settings = Settings(**{"durable": False, "refresh": 0.0, **more})
        store = Store(self.folder, settings=settings, environ={}, fs=fs or NoSyncFs(), compilers={"fake": adapter})
        if later:
            store._contents.clock = lambda: time.time_ns() + _HOUR_NS  # noqa: SLF001 - no caller should want this
        return store

    def variant(self, source: str = SOURCE, **fields: Any) -> Variant:
        """A request for the fake compiler."""
        roots = (Root("first", str(self.top / "first")), Root("second", str(self.top / "second")))
        return Variant(
            source, Target("cuda", "sm_90a"), **{"compiler": "fake", "roots": roots, "name": "scale", **fields}
        )

    def expected(self, header: str = "text of a.h") -> bytes:
        """The object of the plain variant."""
        return f"cubin sm_90a 1.0\n{header}\nkernel scale\n".encode()

    @property
    def runs(self) -> int:
        """How often the compiler ran, in all processes."""
        try:
            return (self.top / "runs").read_bytes().count(b"\n")
        except FileNotFoundError:
            return 0

    def files(self, *kinds: str) -> list[Path]:
        """All files of the store, or those of some kinds (`records`, `blobs`, …), sorted."""
        found = (path for path in sorted(self.folder.rglob("*")) if path.is_file())
        return [path for path in found if not kinds or path.relative_to(self.folder).parts[0] in kinds]


def overwrite(path: Path, data: bytes) -> None:
    """Change a file in place, though it is read-only."""
    os.chmod(path, 0o644)
    path.write_bytes(data)
