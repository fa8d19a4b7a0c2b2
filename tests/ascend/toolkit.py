"""A fake CANN toolkit: small real programs in the vendor's folders, which hand back real objects.

It proves argument lists, order, environment, dependency files, failure paths and identity. It proves nothing about
bisheng itself, which cannot be had without the toolkit.
"""

from __future__ import annotations

import atexit
import functools
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from cubinet.objects.ascend import read

from .stub import compiler
from .wheels import Sample, smallest

HERE = Path(__file__).parent
ARCHS = {"dav-2201": "ascend910b", "dav-3510": "ascend950", "dav-2002": "ascend310p"}
TOOLS = {"9": "bin", "8.5": "compiler/ccec_compiler/bin", "host": "{host}/bin", "bisheng": "tools/bisheng_compiler/bin"}


def sample(arch: str) -> Sample:
    """The object that the fake makes everything of."""
    return smallest(ARCHS[arch], magic="" if arch == "dav-2002" else "_AIVEC", kernels=2 if arch == "dav-2002" else 1)


def banner(arch: str = "dav-2201") -> str:
    """What the real compiler of that object said of itself."""
    return read(sample(arch).data).banner


@functools.cache
def _program(source: str, said: str, *options: str) -> Path:
    folder = Path(tempfile.mkdtemp(prefix="fake-toolkit-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    out = folder / "program"
    command = [compiler(), "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-Wno-format-truncation", "-O1"]
    subprocess.run(
        [*command, *options, f'-DBANNER="{said}"', str(HERE / source), "-o", str(out)], check=True, timeout=60
    )
    return out


def make(
    root: Path,
    *,
    host: str = "x86_64-linux",
    layout: str = "9",
    said: str = "",
    version: str = "9.1.0",
    inner: str = "V1",
    options: Sequence[str] = (),
) -> Path:
    """Lay a toolkit out: programs, headers, versions, and the objects it makes everything of."""
    tools = root / TOOLS[layout].format(host=host)
    tools.mkdir(parents=True)
    for name, source in (("bisheng", "fake_bisheng.c"), ("ld.lld", "fake_ld.c"), ("helper", "fake_ld.c")):
        shutil.copy(_program(source, said or banner(), *options), tools / name)
    (tools.parent / "lib").mkdir()
    for arch in ARCHS:
        (tools.parent / "lib" / f"{arch}.o").write_bytes(sample(arch).data)
    unseen = bytearray(sample("dav-2201").data)
    unseen[48:52] = (0x970000).to_bytes(4, "little")
    (tools.parent / "lib" / "dav-3002.o").write_bytes(unseen)
    headers = root / (f"{host}/asc/include/adv_api" if layout != "8.5" else "compiler/tikcpp/tikcfw")
    headers.mkdir(parents=True)
    (headers / "kernel_operator.h").write_text("#define KERNEL_OPERATOR 1\n")
    if version:
        info = root / host / "ascend_toolkit_install.info"
        info.parent.mkdir(exist_ok=True)
        info.write_text(
            f"package_name=Ascend-cann-toolkit\nversion={version}\ninnerversion={inner}\narch={os.uname()[4]}\n"
        )
    return root
