"""What NVIDIA's own tool says of a cubin: the answer key for `cubinet.objects`."""

from __future__ import annotations

import re
import shutil
import site
import subprocess
import sysconfig
from collections.abc import Mapping
from pathlib import Path

from cubinet.model import Kernel

__all__ = ["differences", "find_tool", "res_usage"]

_FUNCTION = re.compile(r"^ Function (\S+):$")
_NUMBER = re.compile(r"([A-Z]+(?:\[\d+\])?):(\d+)")


def find_tool(name: str) -> str | None:
    """Where a program of the CUDA toolkit is: on `PATH` or in the wheels of this environment."""
    folders = [sysconfig.get_path("platlib"), sysconfig.get_path("purelib"), *site.getsitepackages()]
    for place in [shutil.which(name), *(f"{folder}/nvidia/cu13/bin/{name}" for folder in folders)]:
        if place and Path(place).is_file():
            return place
    return None


def res_usage(path: str | Path, tool: str | None = None) -> dict[str, dict[str, int]]:
    """The numbers of `cuobjdump -res-usage` by symbol: `{"scale": {"REG": 8, "STACK": 0, …}}`.

    What it calls UNKNOWN is left out. Device functions of a relocatable or debug object are among
    the symbols. `path` must be a cubin.
    Raises `FileNotFoundError` if there is no cuobjdump.
    """
    tool = tool or find_tool("cuobjdump")
    if tool is None:
        raise FileNotFoundError("cuobjdump is neither on PATH nor in this environment")
    command = [tool, "-res-usage", str(path)]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120, check=True)
    found: dict[str, dict[str, int]] = {}
    symbol = ""
    for line in done.stdout.splitlines():
        if head := _FUNCTION.match(line):
            symbol = head[1]
        elif symbol:
            found[symbol] = {name: int(number) for name, number in _NUMBER.findall(line)}
            symbol = ""
    return found


def differences(kernels: tuple[Kernel, ...], usage: Mapping[str, Mapping[str, int]]) -> list[str]:
    """Where Cubinet's numbers and cuobjdump's differ: one line each, none if they agree.

    A stack that a relocatable object leaves open is `None` for us and 0 for cuobjdump, which calls
    only some stacks UNKNOWN.
    """
    lines = []
    for kernel in kernels:
        have = usage.get(kernel.symbol)
        if have is None:
            lines.append(f"{kernel.symbol}: cuobjdump does not list it")
            continue
        local = have["STACK"] + have["LOCAL"] if "STACK" in have else None
        want = (have["REG"], have["SHARED"], local, have.get("CONSTANT[0]"))
        ours = (kernel.regs, kernel.shared, 0 if kernel.local is None and local == 0 else kernel.local, kernel.const)
        if ours != want:
            lines.append(f"{kernel.symbol}: regs, shared, local, const are {ours}, cuobjdump says {want}")
    return lines
