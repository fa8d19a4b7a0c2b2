"""What tests of the store share; child processes use it too."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cubinet._fs import Fs
from cubinet.config import Settings
from cubinet.model import Root, Target, Variant
from cubinet.store import Store
from cubinet.testing.fake_compiler import FakeCompiler
from cubinet.testing.faults import NoSyncFs

SOURCE = '#include "a.h"\nkernel scale\n'
TARGET = Target("cuda", "sm_90a")


@dataclass(frozen=True)
class Bench:
    """A store folder, include folders `first` and `second` (with `a.h`), and a count of compiler runs."""

    top: Path

    @classmethod
    def at(cls, top: Path) -> Bench:
        """Make the folders."""
        for name in ("first", "second"):
            (top / name).mkdir()
        (top / "second/a.h").write_text("text of a.h\n")
        return cls(top)

    @property
    def folder(self) -> Path:
        return self.top / "store"

    @property
    def header(self) -> Path:
        return self.top / "second/a.h"

    def store(self, *, fs: Fs | None = None, later: bool = False, **settings: Any) -> Store:
        """A new store, as in a new process. With `later`, all files here are long at rest.

        Keywords of `FakeCompiler` go there, all others are settings.
        """
        adapter = FakeCompiler(str(self.top / "runs"))
        for name in ("seconds", "version", "during", "noise"):
            if name in settings:
                setattr(adapter, name, settings.pop(name))
        chosen = Settings(**{"durable": False, "refresh": 0.0, **settings})
        store = Store(self.folder, settings=chosen, environ={}, fs=fs or NoSyncFs(), compilers={"fake": adapter})
        if later:
            store._contents.clock = lambda: time.time_ns() + 3_600_000_000_000
        return store

    def variant(self, source: str = SOURCE, **fields: Any) -> Variant:
        """A request for the fake compiler."""
        roots = (Root("first", str(self.top / "first")), Root("second", str(self.top / "second")))
        return Variant(source, TARGET, **{"compiler": "fake", "roots": roots, "name": "scale", **fields})

    @property
    def runs(self) -> int:
        """How often the compiler ran, in all processes."""
        try:
            return (self.top / "runs").read_bytes().count(b"\n")
        except FileNotFoundError:
            return 0

    def files(self, *kinds: str) -> list[Path]:
        """All files of the store, or those of some kinds."""
        return [path for path in tree(self.folder) if path.is_file() and (not kinds or path.parts[-3] in kinds)]

    def expected(self, header: str = "text of a.h") -> bytes:
        """The object of the plain variant."""
        return f"cubin sm_90a 1.0\n{header}\nkernel scale\n".encode()


def tree(folder: Path) -> Iterator[Path]:
    """Everything under a folder, sorted."""
    yield from sorted(folder.rglob("*"))


def mode(path: Path) -> int:
    """Permission bits of a file."""
    return stat.S_IMODE(path.stat().st_mode)


def overwrite(path: Path, data: bytes) -> None:
    """Change a file in place, though it is read-only."""
    os.chmod(path, 0o644)
    path.write_bytes(data)
