"""Compile a kernel of CUTLASS size, find it again, and look at what was kept. Run by `make demo`."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from wheel_headers import cutlass

HERE = Path(__file__).resolve().parent


def cubinet(*arguments: str, folder: str) -> float:
    """Run the command as a person would, echo it, and return its wall-clock seconds."""
    print(f"\n$ cubinet {' '.join(arguments)}", flush=True)
    start = time.perf_counter()
    subprocess.run([sys.executable, "-m", "cubinet", *arguments], check=True, env=os.environ | {"CUBINET_DIR": folder})
    return time.perf_counter() - start


def main() -> None:
    """Everything in a folder of its own, so that the first run is a first run."""
    include = cutlass()
    source = str(HERE / "gemm_cutlass.cu")
    options = ("--", "--expt-relaxed-constexpr")
    arguments = ("compile", source, "--arch", "sm_90a", "-I", f"cutlass={include}", *options)
    with tempfile.TemporaryDirectory(prefix="cubinet-demo-") as folder:
        print("First time: nobody has this kernel, so nvcc compiles it and every file it looks at is noted.")
        first = cubinet(*arguments, folder=folder)
        print("\nSecond time: a new process checks those files and takes the kernel from the store.")
        second = cubinet(*arguments, folder=folder)
        print("\nWhat is kept:")
        cubinet("ls", folder=folder)
        print(f"\ncompile {first:.2f} s, hit {second * 1000:.0f} ms: {first / second:.0f} times faster")


if __name__ == "__main__":
    main()
