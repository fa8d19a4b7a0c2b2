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

PACKAGES = {
    "nvidia-cutlass": ("4.2.0.0", "cutlass_library/source/include"),
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


def cutlass() -> Path:
    """The include folder of CUTLASS."""
    version, inside = PACKAGES["nvidia-cutlass"]
    return headers("nvidia-cutlass", version, inside)
