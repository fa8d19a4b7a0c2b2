"""Real compiled objects, made once per run, and the tools to compare with."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from .cuobjdump import find_tool

DATA = Path(__file__).parent / "data"
KERNELS = DATA / "kernels.cu"

CUBINS = {
    "sm_80": ["-arch=sm_80"],
    "sm_90": ["-arch=sm_90"],
    "sm_90a": ["-arch=sm_90a"],
    "sm_100a": ["-arch=sm_100a"],
    "sm_100f": ["-arch=sm_100f"],
    "spills": ["-arch=sm_90a", "-maxrregcount=32"],
    "relocatable": ["-arch=sm_90a", "-rdc=true"],
    "debug": ["-arch=sm_90a", "-G"],
    "lineinfo": ["-arch=sm_90a", "-lineinfo"],
}
"""How the cubins of the corpus are compiled, by name; all of them from `kernels.cu`."""

_TWO = ["-fatbin", "-gencode=arch=compute_80,code=sm_80", "-gencode=arch=compute_90a,code=[sm_90a,compute_90a]"]
OTHERS = {
    "two.fatbin": _TWO,
    "small.fatbin": [*_TWO, "--compress-mode=size"],
    "fast.fatbin": [*_TWO, "--compress-mode=speed"],
    "plain.fatbin": [*_TWO, "--compress-mode=none"],
    "lto.fatbin": ["-fatbin", "-gencode=arch=compute_90a,code=lto_90a"],
    "sm_90a.ptx": ["-ptx", "-arch=sm_90a"],
}


@dataclass(frozen=True)
class Corpus:
    """A folder of compiled objects, each with the log of its compiler."""

    folder: Path

    def path(self, name: str) -> Path:
        return self.folder / (name if "." in name else f"{name}.cubin")

    def read(self, name: str) -> bytes:
        return self.path(name).read_bytes()

    def log(self, name: str) -> str:
        return (self.folder / f"{self.path(name).name}.log").read_text()


def _compile(nvcc: str, folder: Path) -> None:
    # Only what nvcc needs: a developer's NVCC_APPEND_FLAGS must not change the corpus.
    environ = {"PATH": os.environ.get("PATH", "/usr/bin:/bin"), "LC_ALL": "C", "TMPDIR": str(folder)}
    shutil.copy(KERNELS, folder / "kernels.cu")
    jobs = {f"{name}.cubin": ["-cubin", *options] for name, options in CUBINS.items()} | OTHERS
    for name, options in jobs.items():
        command = [nvcc, *options, "-Xptxas=-v", "-o", name, "kernels.cu"]
        done = subprocess.run(
            command, cwd=folder, env=environ, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, (command, done.stderr)
        (folder / f"{name}.log").write_text(done.stdout + done.stderr)


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    """`kernels.cu` compiled in all the ways above: once, also when several workers share the run."""
    nvcc = find_tool("nvcc")
    if nvcc is None:
        pytest.skip("nvcc is neither on PATH nor in this environment")
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "objects-corpus"
    folder.mkdir(exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "done").exists():
            _compile(nvcc, folder)
            (folder / "done").touch()
    return Corpus(folder)


@pytest.fixture(scope="session")
def cuobjdump() -> str:
    """Where cuobjdump is."""
    tool = find_tool("cuobjdump")
    if tool is None:
        pytest.skip("cuobjdump is neither on PATH nor in this environment")
    return tool
