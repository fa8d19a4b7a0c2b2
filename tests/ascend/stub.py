"""The stub runtime (`stub_acl.c`): built once a run, and what it recorded."""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from .wheels import headers

SOURCE = Path(__file__).with_name("stub_acl.c")
_LAUNCH = re.compile(r"launch (\w+) (\S+) blocks=(\d+) stream=(\S+) attrs=(\S*) args=(\S*)")


class Launch(NamedTuple):
    """One launch, as the runtime saw it."""

    how: str
    kernel: str
    blocks: int
    stream: int
    attributes: dict[int, int]
    arguments: bytes


def compiler() -> str:
    found = shutil.which("gcc") or shutil.which("cc")
    if found is None:
        pytest.skip("no host C compiler on PATH")
    return found


def build(folder: Path, *options: str) -> Path:
    """Compile the stub against the real header; a signature that differs from it does not compile."""
    include = headers(folder / "include")
    library = folder / f"libascendcl{len(list(folder.glob('*.so')))}.so"
    command = [compiler(), "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-Wno-deprecated-declarations", "-O1"]
    command += ["-shared", "-fPIC", f"-I{include}", f"-I{include}/acl", *options, str(SOURCE), "-o", str(library)]
    subprocess.run([*command, "-lpthread"], check=True, timeout=60)
    return library


class Stub:
    """A built stub, and the switches it has."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)
        self.library = ctypes.CDLL(self.path)
        self.library.stub_text.restype = ctypes.c_char_p

    def reset(self) -> None:
        self.library.stub_reset()

    def lines(self) -> list[str]:
        text: bytes = self.library.stub_text()
        return text.decode().splitlines()

    def launches(self) -> list[Launch]:
        return [_launch(line) for line in self.lines() if line.startswith("launch")]

    def loaded(self) -> int:
        return int(self.library.stub_loaded())

    def soc(self, name: str) -> None:
        self.library.stub_soc(name.encode())

    def fail(self, call: str, code: int) -> None:
        self.library.stub_fail(call.encode(), code)


def _launch(line: str) -> Launch:
    found = _LAUNCH.fullmatch(line)
    assert found is not None, line
    pairs: Sequence[str] = found[5].split(",") if found[5] else ()
    attributes = {int(number): int(value) for number, _, value in (pair.partition(":") for pair in pairs)}
    return Launch(found[1], found[2], int(found[3]), int(found[4], 16), attributes, bytes.fromhex(found[6]))
