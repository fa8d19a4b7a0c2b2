"""Other caches behind one interface, and the floors: put, get, close. Keys are 64 hex digits."""

from __future__ import annotations

import contextlib
import json
import os
import warnings
from pathlib import Path

from common import Report, Scratch
from fixtures import read_floor

# The floors are the calls of `os` themselves.
# ruff: noqa: PTH103, PTH104

FANS = [f"{i:02x}" for i in range(256)]


class Bare:
    """The floor: one file, written under a temporary name and renamed. Nothing is verified."""

    sync = False

    def __init__(self, folder: Path) -> None:
        self.folder, self.serial = str(folder), 0
        for name in ("tmp", *FANS):
            os.makedirs(f"{folder}/{name}", exist_ok=True)

    def path(self, key: str) -> str:
        return f"{self.folder}/{key[:2]}/{key}"

    def put(self, key: str, data: bytes) -> None:
        self.serial += 1
        temporary = f"{self.folder}/tmp/{os.getpid()}-{self.serial}"
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        os.write(fd, data)
        if self.sync:
            os.fsync(fd)
        os.close(fd)
        os.rename(temporary, self.path(key))

    def get(self, key: str) -> bytes | None:
        try:
            return read_floor(self.path(key))
        except FileNotFoundError:
            return None

    def close(self) -> None:
        """Nothing is held."""


class BareSync(Bare):
    """The same, flushed before it gets its name."""

    sync = True


class Flush:
    """The limit of durability: overwrite a file that is there, and wait for the disk."""

    def __init__(self, folder: Path) -> None:
        self.fd = os.open(f"{folder}/flush", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)

    def put(self, _: str, data: bytes) -> None:
        os.pwrite(self.fd, data, 0)
        os.fdatasync(self.fd)

    def close(self) -> None:
        os.close(self.fd)


class CudaCore:
    """cuda.core's `FileStreamProgramCache`. It flushes each file it writes."""

    def __init__(self, folder: Path) -> None:
        from cuda.core.utils import FileStreamProgramCache

        self.cache = FileStreamProgramCache(str(folder))

    def put(self, key: str, data: bytes) -> None:
        self.cache[key] = data

    def get(self, key: str) -> bytes | None:
        return self.cache.get(key)

    def close(self) -> None:
        self.cache.close()


class CudaCoreMemory(CudaCore):
    """cuda.core's `InMemoryProgramCache`."""

    def __init__(self, _: Path) -> None:
        from cuda.core.utils import InMemoryProgramCache

        self.cache = InMemoryProgramCache()


class Cupy:
    """CuPy's kernel cache on disk. It verifies a SHA-1."""

    def __init__(self, folder: Path) -> None:
        from cupy.cuda._compiler_cache import DiskKernelCacheBackend

        self.cache = DiskKernelCacheBackend(str(folder))

    def put(self, key: str, data: bytes) -> None:
        self.cache.save(key, data, "")

    def get(self, key: str) -> bytes | None:
        return self.cache.load(key)

    def close(self) -> None:
        """Nothing is held."""


class DiskCache:
    """diskcache with its default settings: SQLite, and files for what is large."""

    def __init__(self, folder: Path) -> None:
        import diskcache

        self.cache = diskcache.Cache(str(folder), size_limit=1 << 40)

    def put(self, key: str, data: bytes) -> None:
        self.cache.set(key, data)

    def get(self, key: str) -> bytes | None:
        return self.cache.get(key)

    def close(self) -> None:
        self.cache.close()


class Triton:
    """What `triton.compile` does: group file, metadata, binary."""

    def __init__(self, folder: Path) -> None:
        from triton import knobs
        from triton.runtime.cache import get_cache_manager

        self.knobs, self.manager, self.folder = knobs, get_cache_manager, str(folder)

    def put(self, key: str, data: bytes) -> None:
        self.knobs.cache.dir = self.folder
        manager = self.manager(key)
        about = json.dumps({"name": "k", "shared": 0, "num_warps": 4})
        files = {"k.cubin": manager.put(data, "k.cubin"), "k.json": manager.put(about, "k.json", binary=False)}
        manager.put_group("k.json", files)

    def get(self, key: str) -> bytes | None:
        self.knobs.cache.dir = self.folder
        group = self.manager(key).get_group("k.json")
        if not group:
            return None
        json.loads(Path(group["k.json"]).read_bytes())
        return Path(group["k.cubin"]).read_bytes()

    def close(self) -> None:
        """Nothing is held."""


PEERS = {
    "cuda.core FileStream": CudaCore,
    "cuda.core InMemory": CudaCoreMemory,
    "CuPy disk cache (verifies)": Cupy,
    "Triton FileCacheManager": Triton,
    "diskcache": DiskCache,
}


def usable(report: Report, scratch: Scratch) -> dict[str, type]:
    """The peers that are installed and work here."""
    found = {}
    for name, kind in PEERS.items():
        try:
            with warnings.catch_warnings(), contextlib.closing(kind(scratch.fresh("try"))) as peer:
                warnings.simplefilter("ignore")
                peer.put("ab" * 32, b"x" * 100)
                if peer.get("ab" * 32) != b"x" * 100:
                    report.leave_out(name, "it does not give back what was put")
                    continue
        except Exception as exc:  # noqa: BLE001 - whatever is wrong with a peer, the others can be measured
            report.leave_out(name, exc)
            continue
        found[name] = kind
    return found
