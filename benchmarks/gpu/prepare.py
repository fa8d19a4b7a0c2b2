"""Compile what the hardware tests need, and fetch the packages, into `build/gpu`: for a machine with neither.

    python benchmarks/gpu/prepare.py [--python 3.12] [--no-site]

Carry `build/gpu` there with the rest of the tree and run `benchmarks/gpu/run.py`. Needs nvcc and, once, a package
index.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

from cubinet.config import Settings
from cubinet.store import Store

ROOT = Path(__file__).resolve().parents[2]
OUT = ROOT / "build" / "gpu"
PACKAGES = (
    "blake3",
    "msgspec",
    "zstandard",
    "platformdirs",
    "pytest>=9",
    "pytest-timeout",
    "pluggy",
    "iniconfig",
    "packaging",
)
"""What an image with PyTorch, CuPy and cuda-core lacks, or has too old; all else is taken as it is there."""

PLATFORMS = ("manylinux_2_28_x86_64", "manylinux_2_27_x86_64", "manylinux_2_17_x86_64", "manylinux2014_x86_64")
LIMIT = 48 << 20


def load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


def kernels(folder: Path) -> None:
    table, wheels = load(ROOT / "tests" / "hardware" / "table.py"), load(ROOT / "examples" / "wheel_headers.py")
    cutlass = wheels.cutlass()
    names = {}
    with Store(folder, settings=Settings(durable=False)) as store:
        for name in table.KERNELS:
            made = store.get_or_compile(table.variant(name, cutlass))
            if made.reason:
                raise SystemExit(f"{name} was not stored: {made.reason}")
            names[name] = str(made.fingerprint)
            print(f"{name:28} {made.status:9} {made.seconds:6.1f} s {len(made.data):9,} bytes", flush=True)
    for name in ("tools", "memo", "locks", "tmp"):  # of this machine, and of no use on another
        shutil.rmtree(folder / name, ignore_errors=True)
    (folder / table.INDEX).write_text(json.dumps(names, indent=1) + "\n")


def site(folder: Path, python: str) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    platforms = [f"--platform={name}" for name in PLATFORMS]
    command = [sys.executable, "-m", "pip", "install", "-qq", "--no-deps", "--no-compile"]
    command += ["--target", str(folder), "--only-binary=:all:"]
    subprocess.run([*command, f"--python-version={python}", "--implementation=cp", *platforms, *PACKAGES], check=True)
    shutil.rmtree(folder / "bin", ignore_errors=True)
    for slower in folder.glob("zstandard/_cffi*"):  # 10 MB that CPython never imports
        slower.unlink()


def size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--python", default="3.12", help="version of Python there")
    parser.add_argument("--no-site", action="store_true", help="compile only")
    given = parser.parse_args()
    OUT.mkdir(parents=True, exist_ok=True)
    kernels(OUT / "store")
    if not given.no_site:
        site(OUT / "site", given.python)
    print(f"{OUT.relative_to(ROOT)}: {size(OUT) / (1 << 20):.1f} MiB")
    if size(OUT) > LIMIT:
        raise SystemExit(f"more than {LIMIT >> 20} MiB")


if __name__ == "__main__":
    os.chdir(ROOT)
    main()
