"""Real cubins, and a driver that stands in for one: compiled here, once a run."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from cubinet.config import Settings
from cubinet.errors import ToolchainNotFoundError
from cubinet.model import Artifact, Variant
from cubinet.store import Store

__all__ = ["build_driver", "compiled"]

HERE = Path(__file__).resolve().parent
LIBRARY = "libcuda.so.1"


def compiled(folder: Path, arch: str = "sm_90a", kind: str = "cubin", source: str = "") -> Artifact:
    """`kernels.cu`, or another source; in the first `scale<float>` was asked for by that name."""
    settings = Settings(durable=False)
    rest: dict[str, Any] = {"kind": kind, "family": "tests", "name": "kernels"}
    if source:
        variant = Variant(source, arch, **rest)
    else:
        variant = Variant.from_file(HERE / "kernels.cu", arch, entries=["scale<float>"], **rest)
    with Store(folder, settings=settings) as store:
        try:
            return store.get_or_compile(variant)
        except ToolchainNotFoundError as exc:
            pytest.skip(str(exc))


def build_driver(folder: Path) -> None:
    """Compile `stub_driver.c` to the name under which a driver is looked for."""
    command = ["cc", "-O1", "-w", "-shared", "-fPIC", "-pthread", f"-Wl,-soname,{LIBRARY}"]
    subprocess.run([*command, "-o", str(folder / LIBRARY), str(HERE / "stub_driver.c"), "-ldl"], check=True)
