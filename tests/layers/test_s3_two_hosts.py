"""A host without a compiler gets what another one compiled, and how many requests that takes.

Host A has a compiler. Host B has an empty folder, a description of A's compiler, and an interpreter that sees neither
the wheels nor the programs of one. Both reach the server through a proxy that counts.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.servers.process import Server
from tests.servers.proxy import Proxy

import cubinet
from cubinet.config import Settings
from cubinet.fingerprint import digest_of
from cubinet.model import Status, Variant
from cubinet.store import Store

CHILDREN = str(Path(__file__).with_name("s3_children.py"))
ARCH = "sm_90a"
HEADERS = {
    "scale.cuh": '#pragma once\n#include "lib/factor.cuh"\n#define SCALE(x) ((x) * FACTOR + NUMBER)\n',
    "factor.cuh": "#pragma once\n#define FACTOR 3\n",
}


def source(number: int) -> str:
    return (
        f'#define NUMBER {number}\n#include "lib/scale.cuh"\n'
        f'extern "C" __global__ void k{number}(int* p) {{ p[threadIdx.x] = SCALE(p[threadIdx.x]); }}\n'
    )


def plant(root: Path) -> str:
    (root / "lib").mkdir(parents=True)
    for name, text in HEADERS.items():
        (root / "lib" / name).write_text(text)
    return str(root)


@dataclass(frozen=True)
class Traffic:
    """A place on the server, reached through a proxy."""

    server: Server
    place: str
    proxy: Proxy

    def layers(self, client: str) -> str:
        options = {**self.server.options(), "endpoint_url": self.proxy.endpoint, "trust": "open", "budget": 20}
        options |= {"client": client} if client else {}
        return f"s3://{self.place}?" + "&".join(f"{name}={value}" for name, value in options.items())


@pytest.fixture
def server(s3_server: Server, place: str, proxy: Proxy) -> Traffic:
    return Traffic(s3_server, place, proxy)


def without_a_compiler(folder: Path) -> dict[str, str]:
    """An environment whose Python has all libraries of this one but those of CUDA."""
    folder.mkdir()
    for entry in Path(sysconfig.get_path("purelib")).iterdir():
        if not entry.name.startswith(("cuda", "nvidia", "__editable__", "_cubinet", "cubinet")):
            (folder / entry.name).symlink_to(entry)
    package = str(Path(cubinet.__file__).parent.parent)
    return {"PATH": "/nonexistent", "PYTHONPATH": f"{folder}{os.pathsep}{package}", "HOME": str(folder.parent)}


def pin(path: Path, compiler: str, store: Path) -> str:
    command = [sys.executable, "-m", "cubinet", "toolchain", "--compiler", compiler, "-o", str(path)]
    subprocess.run(command, env={**os.environ, "CUBINET_DIR": str(store)}, check=True)
    return str(path)


@contextmanager
def another_host(top: Path, **plan: Any) -> Iterator[Callable[[str], Any]]:
    """Host B: what it answers to a step."""
    (top / "plan.json").write_text(json.dumps({"top": str(top), **plan}))
    command = [sys.executable, "-S", CHILDREN, "bare", str(top / "plan.json")]  # -S: no libraries but on PYTHONPATH
    with subprocess.Popen(
        command, env=without_a_compiler(top / "libraries"), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:  # fmt: skip
        assert child.stdin is not None
        assert child.stdout is not None

        def ask(step: str) -> Any:
            print(step, file=child.stdin, flush=True)
            return json.loads(child.stdout.readline())  # type: ignore[union-attr]

        yield ask
        child.stdin.close()
        assert child.wait(30) == 0


def count(proxy: Proxy) -> dict[str, int]:
    """Requests by method and status since the last time; those for notes of use, one a client and day, by that name."""
    log, notes = proxy.log[:], "/v1/uses/"
    proxy.reset()
    return dict(Counter(f"{one.method} {'note' if notes in one.path else one.status}" for one in log))


@pytest.mark.parametrize(
    ("variants", "given", "client"),
    [
        (200, {"compiler": "nvrtc", "kind": "ptx"}, ""),
        (20, {"compiler": "nvrtc", "kind": "cubin"}, "obstore"),
        (6, {"compiler": "nvcc", "kind": "cubin"}, ""),
    ],
    ids=["200 by NVRTC", "20 by NVRTC and obstore", "6 by nvcc"],
)
def test_a_host_without_a_compiler_gets_what_another_one_compiled(
    tmp_path: Path, server: Traffic, variants: int, given: dict[str, Any], client: str
) -> None:
    there, proxy = server.layers(client), server.proxy
    sources = [source(number) for number in range(variants)]
    root = plant(tmp_path / "a")
    settings = Settings(layers=there, durable=False, drain=60.0)  # type: ignore[arg-type]
    with Store(tmp_path / "store", settings=settings) as host:
        wanted = [Variant(s, ARCH, roots={"lib": root}, **given) for s in sources]
        made = [host.get_or_compile(variant) for variant in wanted]
        assert host.flush(60.0) == 0
    assert {a.status for a in made} == {Status.COMPILED}
    assert host.stats()["upload.s3"] == variants
    # a manifest that is not there, then record and manifest; once a PUT that tells whether the server keeps conditions
    once = {"PUT 412": 1, "GET note": 1, "PUT note": 1}
    assert count(proxy) == {"GET 404": variants, "PUT 200": 2 * variants, **once}

    there = f"{there}&ro"
    plan = {"layers": there, "pin": pin(tmp_path / "pin.json", given["compiler"], tmp_path / "store"), "arch": ARCH,
            **given, "sources": sources, "root": plant(tmp_path / "b"),
            "known": [a.fingerprint.hex for a in made]}  # fmt: skip
    right = [[digest_of(a.data).hex, "hit"] for a in made]

    with another_host(tmp_path, **plan) as ask:
        assert ask("fresh") == [[*one, "s3"] for one in right]
        assert count(proxy) == {"GET 200": 2 * variants}
        assert ask("again") == [[*one, "local"] for one in right]
        assert count(proxy) == {}
        assert ask("known") == [[*one, "s3"] for one in right]
        assert count(proxy) == {"GET 200": variants}
        assert ask("miss") == "ToolchainNotFoundError"
        assert count(proxy) == {"GET 404": 1}
