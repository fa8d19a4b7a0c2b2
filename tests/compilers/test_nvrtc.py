"""What the NVRTC adapter promises, with a real NVRTC."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import threading
import time
import venv
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

import cubinet
from cubinet.compilers import _nvrtc_worker
from cubinet.compilers._nvrtc_pool import POOL
from cubinet.compilers.nvrtc import NvrtcCompiler
from cubinet.config import Settings
from cubinet.errors import CompileError, CompileTimeoutError, ConfigError
from cubinet.model import Artifact, Root, Seen, Variant
from cubinet.store import Store

from .conftest import MakeStore, clean_environ
from .trees import observed, plant

ARCH = "sm_90a"
TINY = 'extern "C" __global__ void k(int* p) { *p = 1; }\n'
TEMPLATE = "template <class T> __global__ void scale(T* x) { *x *= 2; }\n"
HIDDEN = (
    "static __global__ void inside(int* p) { *p = 1; }\n"
    "namespace { template <class T> __global__ void local(T* p) { *p = 2; } }\n"
    "__global__ void open(int* p) { *p = 3; }\n"
)
SLOW = (
    "template <int N, int M> struct S { static constexpr long v = (S<N - 1, M>::v + S<N - 1, M + 1>::v) % 7; };\n"
    "template <int M> struct S<0, M> { static constexpr long v = M; };\n"
    "__global__ void k(long* p) { *p = S<120, 0>::v; }\n"
)
"""Takes more than a second, and ends."""

TREE = {
    "lib/a.cuh": '#pragma once\n#include "detail/b.cuh"\n#if __has_include(<lib/tune.cuh>)\n#include <lib/tune.cuh>\n'
    "#else\n#define TUNE 1\n#endif\n",
    "lib/detail/b.cuh": "#pragma once\n#define FACTOR 2\n",
    "lib/unread.cuh": "#error never read\n",
}
SOURCE = '#include <lib/a.cuh>\nextern "C" __global__ void scale(float* x) { x[threadIdx.x] *= FACTOR * TUNE; }\n'


def variant(source: str = TINY, *roots: Path, **rest: Any) -> Variant:
    labels = [Root(f"r{i}", str(root)) for i, root in enumerate(roots)]
    return Variant(source, rest.pop("arch", ARCH), roots=labels, compiler="nvrtc", **rest)


@pytest.fixture(scope="module", autouse=True)
def learned(tools: Path) -> None:
    """What is known of NVRTC, learned once; `make_store` copies it."""
    store = Store(tools.parent, settings=Settings(durable=False), environ=clean_environ(os.environ))
    store.compiler("nvrtc").toolchain()


def adapter(store: Store) -> NvrtcCompiler:
    found = store.compiler("nvrtc")
    assert isinstance(found, NvrtcCompiler)
    return found


def workers() -> set[int]:
    """Processes with NVRTC in them that this one has started."""
    found = set()
    for process in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((process / "stat").read_text().rpartition(")")[2].split()[1])
            if parent == os.getpid() and _nvrtc_worker.__file__.encode() in (process / "cmdline").read_bytes():
                found.add(int(process.name))
        except OSError:
            continue
    return found


@pytest.fixture
def alone() -> Iterator[None]:
    """No warm workers from other tests."""
    POOL.close()
    yield
    POOL.close()


# --- the same kernel, kept apart and found again


def test_the_same_kernel_by_nvcc_and_by_nvrtc_is_two_builds(make_store: MakeStore) -> None:
    made = [make_store().get_or_compile(replace(variant(entries=["k"]), compiler=c)) for c in ("nvcc", "nvrtc")]
    assert [artifact.status for artifact in made] == ["compiled", "compiled"]
    assert made[0].record.action != made[1].record.action
    again = [make_store().get_or_compile(replace(variant(entries=["k"]), compiler=c)) for c in ("nvcc", "nvrtc")]
    assert [artifact.status for artifact in again] == ["hit", "hit"]
    assert [artifact.record.toolchain.name for artifact in again] == ["nvcc", "nvrtc"]


def test_a_template_is_found_by_its_expression_on_a_hit_in_a_new_process(make_store: MakeStore) -> None:
    asked = variant(TEMPLATE, entries=["scale<float>", "scale<double>"])
    first = make_store().get_or_compile(asked)
    second = make_store().get_or_compile(asked)
    assert (first.status, second.status) == ("compiled", "hit")
    assert second.data == first.data
    for artifact in (first, second):
        assert artifact.symbol("scale<float>") == "_Z5scaleIfEvPT_"
        assert artifact.symbol("_Z5scaleIdEvPT_") == "_Z5scaleIdEvPT_"
        assert artifact.symbol("scale<int>") is None
    assert make_store().get_or_compile(variant(TEMPLATE, entries=["scale<double>", "scale<float>"])).status == "hit"
    assert make_store().get_or_compile(variant(TEMPLATE, entries=["scale<float>"])).status == "compiled"


def test_an_entry_may_be_a_symbol_or_a_variable(make_store: MakeStore) -> None:
    source = f"{TEMPLATE}__constant__ int table[3];\ntemplate __global__ void scale<int>(int*);\n"
    made = make_store().get_or_compile(variant(source, entries=["_Z5scaleIiEvPT_", "&table"]))
    assert [kernel.symbol for kernel in made.kernels] == ["_Z5scaleIiEvPT_"]
    assert made.symbol("&table") == "table"


@pytest.mark.parametrize(
    "entry", ["missing", "scale<wrong>", "_Z5scaleIsEvPT_", "device", "not an expression", "k\udcff"]
)
def test_an_entry_that_is_not_there_is_an_error(make_store: MakeStore, entry: str) -> None:
    with pytest.raises(CompileError) as caught:
        make_store().get_or_compile(variant(f"{TEMPLATE}__device__ int device() {{ return 1; }}", entries=[entry]))
    assert entry.replace("\udcff", "") in str(caught.value) + caught.value.log


# --- headers in memory


def test_headers_in_memory_are_keyed_by_content_and_not_by_order(make_store: MakeStore) -> None:
    source = '#include <a.h>\n#include "sub/b.h"\nextern "C" __global__ void k(int* p) { *p = A + B; }\n'
    headers = {"a.h": "#define A 1\n", "sub/b.h": "#define B 2\n"}
    first = make_store().get_or_compile(variant(source, headers=headers))
    assert first.status == "compiled"
    assert observed(first) == {}
    turned = dict(reversed(headers.items()))
    assert make_store().get_or_compile(variant(source, headers=turned)).status == "hit"
    changed = make_store().get_or_compile(variant(source, headers=headers | {"a.h": "#define A 3\n"}))
    assert changed.status == "compiled"
    assert changed.data != first.data
    assert make_store().get_or_compile(variant(source, headers=headers | {"unread.h": ""})).status == "compiled"


@pytest.mark.parametrize("include", ["<a.h>", '"a.h"'])
def test_a_header_in_memory_wins_over_one_on_disk(make_store: MakeStore, tmp_path: Path, include: str) -> None:
    source = f"#include {include}\n__global__ void k(int* p) {{ *p = A; }}\n"
    plant(tmp_path / "src", {"k.cu": source, "a.h": "#define A beside\n"})
    root = plant(tmp_path / "inc", {"a.h": "#define A root\n"})
    asked = Variant.from_file(
        tmp_path / "src/k.cu", ARCH, compiler="nvrtc", roots={"r": str(root)}, headers={"a.h": "#define A 1\n"}
    )
    made = make_store().get_or_compile(asked)
    assert "r:a.h" not in observed(made)
    (root / "a.h").write_text("#define A 2\n")
    (tmp_path / "src/a.h").write_text("#define A 2\n")
    assert make_store().get_or_compile(asked).status == "hit"


def test_a_header_in_memory_may_include_one_on_disk(make_store: MakeStore, tmp_path: Path) -> None:
    root = plant(tmp_path / "inc", {"b.h": "#define B 1\n"})
    asked = variant("#include <a.h>\n__global__ void k(int* p) { *p = B; }", root, headers={"a.h": "#include <b.h>\n"})
    made = make_store().get_or_compile(asked)
    assert observed(made)["r0:b.h"] is Seen.READ
    assert made.reason == made.record.local_only == ""


def test_a_text_with_a_nul_is_refused(make_store: MakeStore) -> None:
    for asked in (variant(TINY + "\0"), variant(headers={"a.h": "\0"}), variant(headers={"a\0.h": ""})):
        with pytest.raises(ConfigError, match="NUL"):
            make_store().get_or_compile(asked)


# --- headers in folders


def test_reads_failed_lookups_and_probes_are_observed_under_their_labels(make_store: MakeStore, tmp_path: Path) -> None:
    made = make_store().get_or_compile(variant(SOURCE, tmp_path / "none", plant(tmp_path / "inc", TREE)))
    seen = observed(made)
    assert seen["r1:lib/a.cuh"] is Seen.READ
    assert seen["r1:lib/detail/b.cuh"] is Seen.READ
    assert seen["r0:lib/a.cuh"] is Seen.ABSENT
    assert seen["r0:lib/tune.cuh"] is Seen.ABSENT
    assert seen["r1:lib/tune.cuh"] is Seen.ABSENT
    assert "r1:lib/unread.cuh" not in seen
    assert {name.partition(":")[0] for name in seen} == {"r0", "r1"}


EDITS = {
    "edit a header": ("r/lib/a.cuh", TREE["lib/a.cuh"] + "#define MORE 1\n"),
    "edit a nested header": ("r/lib/detail/b.cuh", "#define FACTOR 3\n"),
    "add the target of a __has_include": ("r/lib/tune.cuh", "#define TUNE 5\n"),
    "shadow a header": ("early/lib/a.cuh", "#define FACTOR 7\n#define TUNE 1\n"),
    "add a target of a __has_include in front": ("early/lib/tune.cuh", "#define TUNE 9\n"),
}


@pytest.mark.parametrize("edit", EDITS.values(), ids=EDITS)
def test_a_change_that_matters_compiles_and_undoing_it_hits_again(
    make_store: MakeStore, tmp_path: Path, edit: tuple[str, str]
) -> None:
    roots = tmp_path / "early", plant(tmp_path / "r", TREE)
    first = make_store().get_or_compile(variant(SOURCE, *roots))
    place = tmp_path / edit[0]
    before = place.read_text() if place.exists() else None
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(edit[1])
    second = make_store().get_or_compile(variant(SOURCE, *roots))
    assert second.status == "compiled"
    fresh = make_store(folder=tmp_path / "fresh").get_or_compile(variant(SOURCE, *roots))
    assert (fresh.fingerprint, fresh.data) == (second.fingerprint, second.data)
    if before is None:
        place.unlink()
    else:
        place.write_text(before)
    third = make_store().get_or_compile(variant(SOURCE, *roots))
    assert (third.status, third.fingerprint, third.data) == ("hit", first.fingerprint, first.data)


def test_what_changes_nothing_still_hits(make_store: MakeStore, tmp_path: Path) -> None:
    root = plant(tmp_path / "r", TREE)
    first = make_store().get_or_compile(variant(SOURCE, root))
    for path in root.rglob("*.cuh"):
        os.utime(path, (1, time.time() + 3600))
    plant(root, {"lib/unread.cuh": "#error still never read\n", "lib/new.cuh": ""})
    moved = shutil.copytree(root, tmp_path / "an other place")
    for found in (variant(SOURCE, root), variant(SOURCE, moved), variant(SOURCE, root, name="x", family="y")):
        assert make_store().get_or_compile(found).fingerprint == first.fingerprint
        assert make_store().get_or_compile(found).status == "hit"


def test_the_target_of_a_has_include_that_goes_away_is_noticed(make_store: MakeStore, tmp_path: Path) -> None:
    source = (
        "#if __has_include(<x.h>)\n#define X 1\n#else\n#define X 2\n#endif\n__global__ void k(int* p) { *p = X; }\n"
    )
    root = plant(tmp_path / "r", {"x.h": "#error not read\n"})
    first = make_store().get_or_compile(variant(source, root))
    assert observed(first)["r0:x.h"] is Seen.READ  # NVRTC opens it, unlike gcc
    (root / "x.h").unlink()
    second = make_store().get_or_compile(variant(source, root))
    assert second.status == "compiled"
    assert second.data != first.data


def test_include_next_and_includes_by_macro_are_observed(make_store: MakeStore, tmp_path: Path) -> None:
    one = plant(tmp_path / "one", {"x.h": "#include_next <x.h>\n", "named by macro.h": "#define M 4\n"})
    two = plant(tmp_path / "two", {"x.h": "#define X 1\n"})
    source = (
        "#include <x.h>\n#define NAME <named by macro.h>\n#include NAME\n__global__ void k(int* p) { *p = X + M; }\n"
    )
    seen = observed(make_store().get_or_compile(variant(source, one, two)))
    assert {seen[name] for name in ("r0:x.h", "r1:x.h", "r0:named by macro.h")} == {Seen.READ}


def test_a_header_beside_the_source_file_is_observed(make_store: MakeStore, tmp_path: Path) -> None:
    folder = plant(
        tmp_path / "my sources",
        {"src/k.cu": '#include "b.h"\n#include "../up/u.h"\n__global__ void k(int* p) { *p = B + U; }\n'}
        | {"src/b.h": "#define B 1\n", "up/u.h": "#define U 1\n"},
    )
    asked = Variant.from_file(folder / "src/k.cu", ARCH, compiler="nvrtc")
    first = make_store().get_or_compile(asked)
    assert observed(first)["src:b.h"] is Seen.READ
    assert observed(first)["src:../up/u.h"] is Seen.READ
    assert "src:k.cu" not in observed(first)
    assert first.record.local_only == ""
    for name in ("src/b.h", "up/u.h"):
        (folder / name).write_text("#define B 2\n#define U 2\n")
        changed = make_store().get_or_compile(asked)
        assert changed.status == "compiled"


def test_a_source_text_with_a_folder_finds_headers_there(make_store: MakeStore, tmp_path: Path) -> None:
    folder = plant(tmp_path / "src", {"b.h": "#define B 1\n"})
    asked = variant('#include "b.h"\n__global__ void k(int* p) { *p = B; }', source_folder=str(folder))
    first = make_store().get_or_compile(asked)
    assert observed(first)["src:b.h"] is Seen.READ
    moved = shutil.copytree(folder, tmp_path / "moved")
    assert make_store().get_or_compile(replace(asked, source_folder=str(moved))).status == "hit"
    (folder / "b.h").write_text("#define B 2\n")
    assert make_store().get_or_compile(asked).data != first.data


def test_a_file_given_before_the_source_is_observed_or_in_memory(make_store: MakeStore, tmp_path: Path) -> None:
    folder = plant(tmp_path / "pre fix", {"p.h": "#define P 1\n"})
    source = "__global__ void k(int* p) { *p = P; }"
    asked = variant(source, options=["-include", "p.h"], folder=str(folder))
    made = make_store().get_or_compile(asked)
    assert observed(made)["pre0:p.h"] is Seen.READ
    assert made.record.local_only == ""
    (folder / "p.h").write_text("#define P 2\n")
    assert make_store().get_or_compile(asked).status == "compiled"
    inside = make_store().get_or_compile(replace(asked, headers=(("p.h", "#define P 3\n"),)))
    assert observed(inside) == {}


def test_an_absolute_include_keeps_a_build_local(make_store: MakeStore, tmp_path: Path) -> None:
    folder = plant(tmp_path / "x", {"h.h": "#define H 1\n"})
    made = make_store().get_or_compile(variant(f'#include "{folder}/h.h"\n__global__ void k(int* p) {{ *p = H; }}'))
    assert "under no root" in made.record.local_only
    assert observed(made)[f"file:{folder}/h.h"] is Seen.READ


def during_the_next_compile(action: Callable[[], object]) -> threading.Thread:
    """Do something while the one warm worker there is compiles."""

    def wait() -> None:
        while POOL._idle:
            time.sleep(0.005)
        time.sleep(0.15)
        action()

    thread = threading.Thread(target=wait)
    thread.start()
    return thread


def test_an_input_that_changes_while_compiling_is_returned_but_not_stored(
    make_store: MakeStore, tmp_path: Path, alone: None
) -> None:
    root = plant(tmp_path / "inc", {"h.h": "#define H 1\n"})
    adapter(make_store()).compile(make_store().normalize(variant()))
    store = make_store()
    editor = during_the_next_compile(lambda: (root / "h.h").write_text("#define H 2\n"))
    made = store.get_or_compile(variant(f"#include <h.h>\n{SLOW}", root))
    editor.join()
    assert "h.h changed while compiling" in made.reason
    assert list(store.records()) == []


# --- bytes that are the same everywhere

_BUILD = """
import sys
from cubinet import Settings, Store, Variant
from cubinet.fingerprint import digest_of
folder, root, source = sys.argv[1:]
store = Store(folder, settings=Settings(durable=False))
made = store.get_or_compile(
    Variant(source, "sm_90a", compiler="nvrtc", roots={"r": root}, entries=["local<int>"], options=["-default-device"])
)
print(made.status, made.fingerprint, digest_of(made.data), str(made.record.names))
"""


def test_internal_kernels_are_the_same_bytes_from_two_processes_and_folders(
    make_store: MakeStore, tmp_path: Path
) -> None:
    source = f"#include <h.h>\n{HIDDEN}"
    said: list[str] = []
    for name in ("one", "an other"):
        root = plant(tmp_path / name, {"h.h": "__device__ inline const char* where() { return __FILE__; }\n"})
        temporary = plant(tmp_path / f"t-{len(said)}", {})
        store = root / "store"
        shutil.copytree(Path(make_store().folder) / "tools", store / "tools")
        argv = [sys.executable, "-c", _BUILD, str(store), str(root), source]
        environ = clean_environ(os.environ) | {"TMPDIR": str(temporary)}
        said.append(subprocess.run(argv, cwd=root, env=environ, capture_output=True, text=True, check=True).stdout)
    assert said[0].startswith("compiled ")
    assert said[0] == said[1]


def test_no_path_of_the_machine_is_in_anything_stored(make_store: MakeStore, tmp_path: Path) -> None:
    root = plant(
        tmp_path / "r",
        {"h.h": "#warning look here\n__device__ inline const char* where() { return __FILE__; }\n"},
    )
    source = (
        f"#include <h.h>\n{HIDDEN}\n__global__ void k(const char** p) {{ assert(p); *p = where(); p[1] = __FILE__; }}"
    )
    for asked in (
        variant(source, root),
        variant(source, root, source_folder=str(plant(tmp_path / "src", {"kernel.cu": source}))),
    ):
        made = make_store().get_or_compile(asked)
        assert made.reason == made.record.local_only == ""
        stored = b"".join(made.read(role) or b"" for role, _ in made.record.blobs) + " ".join(made.record.argv).encode()
        assert b"include/r0/h.h" in made.data
        for path in (str(tmp_path), "/tmp/cubinet-", str(Path.cwd())):
            assert path.encode() not in stored
        assert f"{root}/h.h" in made.messages or os.path.relpath(root) in made.messages


@pytest.mark.parametrize("option", ["-lineinfo", "-G"])
def test_debug_information_binds_a_build_to_its_folders(make_store: MakeStore, tmp_path: Path, option: str) -> None:
    source = "#include <h.h>\n__global__ void k(int* p) { *p = twice(*p); }\n"
    here, there = (
        plant(tmp_path / name, {"h.h": "__device__ inline int twice(int x) { return 2 * x; }\n", "k.cu": source})
        for name in ("one", "two")
    )

    def asked(folder: Path) -> Variant:
        options, roots = [option], {"r": str(folder)}
        return Variant.from_file(folder / "k.cu", ARCH, compiler="nvrtc", options=options, roots=roots)

    made = make_store().get_or_compile(asked(here))
    assert made.reason == ""
    assert option[1:] in made.record.local_only.replace("generate-line-info", "lineinfo").replace("device-debug", "G")
    assert str(here).encode() in made.data  # what a debugger opens
    assert b"/tmp/cubinet-" not in made.data
    assert make_store().get_or_compile(asked(here)).status == "hit"
    POOL.close()
    assert make_store(folder=tmp_path / "again").get_or_compile(asked(here)).data == made.data
    moved = make_store().get_or_compile(asked(there))
    assert (moved.status, str(here).encode() in moved.data) == ("compiled", False)


def test_debug_information_of_a_text_names_a_file_that_is_kept(make_store: MakeStore, tmp_path: Path) -> None:
    made = make_store().get_or_compile(variant(options=["-lineinfo"]))
    (kept,) = (tmp_path / "store/tools/sources").glob("*/kernel.cu")
    assert kept.read_text() == TINY
    assert str(kept.parent).encode() in made.data
    assert make_store().get_or_compile(variant(options=["-lineinfo"])).status == "hit"


@pytest.mark.parametrize(
    ("word", "place"), [("__TIME__", "source"), ("__DATE__", "source"), ("__TIME__", "memory"), ("__DATE__", "root")]
)
def test_what_has_the_clock_in_it_is_not_stored(make_store: MakeStore, tmp_path: Path, word: str, place: str) -> None:
    text = f"#define NOW {word}\n"
    root = plant(tmp_path / "r", {"now.h": text if place == "root" else "#define NOW 1\n"})
    source = "#include <now.h>\n__global__ void k(const char** p) { *p = (const char*)NOW; }"
    asked = variant(
        text + source.partition("\n")[2] if place == "source" else source,
        root,
        headers={"now.h": text} if place == "memory" else {},
    )
    store = make_store()
    made = store.get_or_compile(asked)
    assert "__DATE__ or __TIME__" in made.reason
    assert not made.cacheable
    assert list(store.records()) == []


# --- other outputs


def test_ptx_and_lto_ir_are_kinds_of_their_own(make_store: MakeStore) -> None:
    made = {kind: make_store().get_or_compile(variant(kind=kind, entries=["k"])) for kind in ("cubin", "ptx", "ltoir")}
    assert made["cubin"].data[:4] == b"\x7fELF"
    assert b".visible .entry k(" in made["ptx"].data
    assert b"\0" not in made["ptx"].data
    assert [kernel.name for kernel in made["ptx"].kernels] == ["k"]
    assert made["ltoir"].data[:4] == bytes.fromhex("ed434e7f")
    assert made["ltoir"].symbol("k") == "k"
    for kind, artifact in made.items():
        assert (artifact.status, artifact.record.kind, artifact.reason) == ("compiled", kind, "")
        again = make_store().get_or_compile(variant(kind=kind, entries=["k"]))
        assert (again.status, again.data) == ("hit", artifact.data)
    with pytest.raises(ConfigError, match="fatbin"):
        make_store().get_or_compile(variant(kind="fatbin"))


@pytest.mark.parametrize("arch", ["sm_999", "sm_999a"])
def test_ptx_stands_in_for_a_cubin_of_an_architecture_that_is_too_new(make_store: MakeStore, arch: str) -> None:
    store = make_store()
    newest = max(adapter(store).facts().archs)
    asked = variant(TEMPLATE, arch=arch, entries=["scale<float>"])
    made = store.get_or_compile(asked)
    assert (made.status, made.record.kind, str(made.record.target)) == ("compiled", "ptx", f"cuda:{arch}")
    assert f".target sm_{newest}".encode() in made.data
    again = make_store().get_or_compile(asked)
    assert (again.status, again.record.kind, again.data) == ("hit", "ptx", made.data)
    assert again.symbol("scale<float>") == "_Z5scaleIfEvPT_"
    request = store.normalize(asked)
    assert store.normalize(replace(asked, options=request.arguments)).arguments == request.arguments


def test_an_architecture_that_is_too_old_is_an_error(make_store: MakeStore) -> None:
    with pytest.raises(CompileError, match="gpu-architecture"):
        make_store().get_or_compile(variant(arch="sm_20"))
    with pytest.raises(ConfigError, match="name it once"):
        make_store().get_or_compile(variant(options=["-arch=sm_80"]))
    with pytest.raises(ConfigError, match="an example"):
        make_store().get_or_compile(variant(arch="sm_x"))


# --- errors


def test_a_syntax_error_names_the_callers_files_and_is_remembered(make_store: MakeStore, tmp_path: Path) -> None:
    root = plant(tmp_path / "inc", {"h.h": "#define H\n", "bad.h": "#ifdef BAD\nint x = ;\n#endif\n"})
    folder = plant(tmp_path / "src", {"k.cu": "#include <h.h>\n#include <bad.h>\n__global__ void k() { wrong; }\n"})
    asked = Variant.from_file(folder / "k.cu", ARCH, compiler="nvrtc", roots={"r": str(root)})
    store = make_store()
    with pytest.raises(CompileError) as first:
        store.get_or_compile(asked)
    assert f"{folder}/k.cu(3): error" in first.value.log
    assert 'identifier "wrong" is undefined' in str(first.value)
    assert first.value.deterministic
    assert first.value.toolchain.startswith("NVRTC ")
    with pytest.raises(CompileError) as again:
        store.get_or_compile(asked)
    assert again.value.log == first.value.log
    assert store.stats()["failed.remembered"] == 1
    with pytest.raises(CompileError) as other:
        store.get_or_compile(replace(asked, options=("-DBAD",), folder="/"))
    assert f"{root}/bad.h(2): error" in other.value.log
    (root / "h.h").write_text("#define H\n#define wrong\n")
    assert store.get_or_compile(asked).status == "compiled"


def test_a_missing_header_is_looked_for_again_when_it_appears(make_store: MakeStore, tmp_path: Path) -> None:
    root, store = plant(tmp_path / "inc", {}), make_store()
    with pytest.raises(CompileError, match=r"late\.h"):
        store.get_or_compile(variant(f"#include <late.h>\n{TINY}", root))
    (root / "late.h").write_text("\n")
    assert store.get_or_compile(variant(f"#include <late.h>\n{TINY}", root)).status == "compiled"


def test_an_error_costs_no_worker(make_store: MakeStore) -> None:
    store = make_store()
    store.get_or_compile(variant())
    before = workers()
    for i in range(3):
        with pytest.raises(CompileError):
            store.get_or_compile(variant(f"wrong {i}"))
    store.get_or_compile(variant(TINY + "// again\n"))
    assert workers() == before


# --- workers that die


def test_an_abort_inside_nvrtc_is_an_error_and_the_next_compile_works(make_store: MakeStore, alone: None) -> None:
    compiler = adapter(make_store())
    request = compiler.normalize(variant())
    compiler.compile(request)
    with pytest.raises(CompileError, match="ended with signal SIGABRT") as caught:  # the table would refuse this one
        compiler.compile(replace(request, arguments=(*request.arguments, "--dopt=")))
    assert "out_of_range" in caught.value.log
    assert not caught.value.deterministic
    assert compiler.compile(request).kernels
    assert len(workers()) == 1


def kill_workers() -> None:
    for worker in workers():
        os.kill(worker, signal.SIGKILL)


def test_a_worker_killed_in_the_middle_is_an_error_and_the_next_compile_works(
    make_store: MakeStore, alone: None
) -> None:
    store = make_store()
    store.get_or_compile(variant())
    killer = during_the_next_compile(kill_workers)
    with pytest.raises(CompileError, match="ended with signal SIGKILL") as caught:
        store.get_or_compile(variant(SLOW))
    killer.join()
    assert not caught.value.deterministic
    assert store.get_or_compile(variant(TINY + "// 2\n")).status == "compiled"


def test_a_worker_that_died_while_idle_is_replaced(make_store: MakeStore, alone: None) -> None:
    store = make_store()
    store.get_or_compile(variant())
    before = workers()
    kill_workers()
    while not all(_is_dead(pid) for pid in before):
        time.sleep(0.01)
    assert store.get_or_compile(variant(TINY + "// 2\n")).status == "compiled"
    assert not workers() & before


def _is_dead(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"


def test_a_worker_whose_folder_was_swept_away_is_replaced(make_store: MakeStore, alone: None) -> None:
    store = make_store()
    store.get_or_compile(variant())
    for worker in POOL._idle:
        shutil.rmtree(worker.folder)
    assert store.get_or_compile(variant(TINY + "// 2\n")).status == "compiled"
    assert len(workers()) == 1


def test_a_worker_that_waited_too_long_ends_by_itself(
    make_store: MakeStore, alone: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = Path(make_store().folder, "worker.py")
    text = Path(_nvrtc_worker.__file__).read_text()
    copy.write_text(text.replace("IDLE_SECONDS = 300.0", "IDLE_SECONDS = 0.2"))
    monkeypatch.setattr(_nvrtc_worker, "__file__", str(copy))
    store = make_store()
    store.get_or_compile(variant())
    (worker,) = POOL._idle
    assert worker._process is not None
    worker._process.wait(10)
    assert not Path(worker.folder).exists()
    assert store.get_or_compile(variant(TINY + "// 2\n")).status == "compiled"


def test_a_compile_that_takes_too_long_is_killed_and_the_next_one_works(make_store: MakeStore, alone: None) -> None:
    make_store().get_or_compile(variant())
    before = workers()
    start = time.monotonic()
    with pytest.raises(CompileTimeoutError, match=r"killed after 0\.3 s") as caught:
        make_store(timeout=0.3).get_or_compile(variant(SLOW))
    assert time.monotonic() - start < 5
    assert not caught.value.deterministic
    assert not workers() & before
    assert make_store().get_or_compile(variant(TINY + "// 2\n")).status == "compiled"


# --- the pool


def test_workers_are_shared_by_compiles_and_by_stores(make_store: MakeStore, alone: None) -> None:
    for i in range(4):
        make_store().get_or_compile(variant(f"{TINY}// {i}\n"))
    assert len(workers()) == 1


def test_threads_use_several_workers_and_no_more_than_may_compile(make_store: MakeStore, alone: None) -> None:
    store, most = make_store(), [0]
    sources = [f"{TINY}// {i}\n" for i in range(24)]

    def build(source: str) -> Artifact:
        made = store.get_or_compile(variant(source))
        most[0] = max(most[0], len(workers()))
        return made

    with ThreadPoolExecutor(8) as threads:
        made = list(threads.map(build, sources))
    assert len({artifact.fingerprint for artifact in made}) == 24
    assert len({artifact.data for artifact in made}) == 1
    cores = len(os.sched_getaffinity(0))
    assert min(2, cores) <= most[0] <= cores


def test_a_burst_of_small_kernels_costs_little_more_than_nvrtc_itself(
    make_store: MakeStore, alone: None, record_property: Any
) -> None:
    store = make_store(refresh=60.0)
    start = time.perf_counter()
    store.get_or_compile(variant())
    first = time.perf_counter() - start
    start = time.perf_counter()
    for i in range(20):
        store.get_or_compile(variant(f"{TINY}// {i}\n"))
    each = (time.perf_counter() - start) / 20
    start = time.perf_counter()
    for i in range(20):
        assert store.get_or_compile(variant(f"{TINY}// {i}\n")).status == "hit"
    hit = (time.perf_counter() - start) / 20
    for name, seconds in (("first", first), ("each", each), ("hit", hit)):
        record_property(f"milliseconds {name}", round(seconds * 1000, 3))
    print(f"first {first * 1000:.0f} ms, {each * 1000:.1f} ms a kernel, {hit * 1000:.3f} ms a hit")  # noqa: T201
    assert len(workers()) == 1
    assert each < first  # no process start


_FORK = """
import os, sys
from cubinet import Settings, Store, Variant
store = Store(sys.argv[1], settings=Settings(durable=False))
def build(text):
    return store.get_or_compile(Variant(f'extern "C" __global__ void k() {{}}  // {text}', "sm_90a", compiler="nvrtc"))
build("first")
from cubinet.compilers._nvrtc_pool import POOL
(mine,) = POOL._idle
before = set(os.listdir("/proc/self/fd"))
child = os.fork()
if child == 0:
    inherited = {str(mine._to), str(mine._from)} & set(os.listdir("/proc/self/fd"))
    made = build("in the child")
    (other,) = POOL._idle
    print(made.status, other._process.pid != mine._process.pid, sorted(inherited), flush=True)
    sys.exit(0)  # runs what is registered for the end
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), os.path.isdir(mine.folder), mine._process.poll())
print(build("in the parent").status, POOL._idle == [mine])
"""


def test_a_forked_child_starts_its_own_workers_and_leaves_the_parents_alone(
    make_store: MakeStore, tmp_path: Path
) -> None:
    environ = clean_environ(os.environ) | {"TMPDIR": str(plant(tmp_path / "t", {})), "PYTHONWARNINGS": "error"}
    argv = [sys.executable, "-c", _FORK, make_store().folder]
    done = subprocess.run(argv, env=environ, capture_output=True, text=True, timeout=60, check=True)
    assert done.stderr == ""
    assert done.stdout.splitlines() == ["compiled True []", "0 True None", "compiled True"]
    assert list((tmp_path / "t").iterdir()) == []


_SESSION = """
import os, signal, sys, threading, time
started = []
def hook(name, args):
    if name in ("subprocess.Popen", "os.fork", "os.exec", "os.posix_spawn"):
        started.append(name)
sys.addaudithook(hook)
from cubinet import Settings, Store, Variant
folder, what = sys.argv[1:]
store = Store(folder, settings=Settings(durable=False))
text = 'extern "C" __global__ void k() {}'
found = store.find(Variant(text, "sm_90a", compiler="nvrtc"))
print(found.status, len(started), "cubinet.compilers._nvrtc_pool" in sys.modules, flush=True)
if what != "hit":
    store.get_or_compile(Variant(text + "// " + what, "sm_90a", compiler="nvrtc"))
    from cubinet.compilers._nvrtc_pool import POOL
    (worker,) = POOL._idle
    print(worker.folder, worker._process.pid, flush=True)
if what == "thread":
    slow = Variant(sys.stdin.read(), "sm_90a", compiler="nvrtc")
    threading.Thread(target=store.get_or_compile, args=(slow,), daemon=True).start()
    time.sleep(0.3)
if what == "killed":
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("what", ["hit", "closed", "thread", "killed"])
def test_nothing_is_left_of_a_process_and_a_warm_lookup_starts_none(
    make_store: MakeStore, tmp_path: Path, what: str
) -> None:
    store = make_store()
    store.get_or_compile(variant('extern "C" __global__ void k() {}'))
    (tmp_path / "t").mkdir()
    environ = clean_environ(os.environ) | {"TMPDIR": str(tmp_path / "t")}
    argv = [sys.executable, "-c", _SESSION, store.folder, what]
    done = subprocess.run(argv, env=environ, input=SLOW, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == (-signal.SIGKILL if what == "killed" else 0), done.stderr
    assert done.stderr == ""
    lines = done.stdout.splitlines()
    assert lines[0] == "hit 0 False"
    if what != "hit":
        folder, pid = lines[1].split()
        assert folder.startswith(str(tmp_path))
        deadline = time.monotonic() + 10
        while Path(f"/proc/{pid}").exists() and time.monotonic() < deadline:
            time.sleep(0.01)
        assert not Path(f"/proc/{pid}").exists()
    assert list((tmp_path / "t").iterdir()) == []


# --- which NVRTC


def test_the_toolchain_is_the_library_and_its_builtins(make_store: MakeStore) -> None:
    found = adapter(make_store()).toolchain()
    assert found.name == "nvrtc"
    assert {program.role for program in found.programs} >= {"libnvrtc", "libnvrtc-builtins"}
    assert all(Path(program.path).is_file() for program in found.programs)
    (step,) = adapter(make_store()).steps()
    assert step.chosen
    assert "libnvrtc" in step.found


def test_the_environment_of_the_caller_reaches_no_compile(make_store: MakeStore, tmp_path: Path) -> None:
    asked = variant("#ifdef SNEAKY\n#error no\n#endif\n" + TINY)
    first = make_store().get_or_compile(asked)
    cuda = plant(tmp_path / "cuda", {"include/x.h": "", "lib64/libnothing.so": ""})
    environ = {
        **os.environ,
        "NVRTC_PREPEND_FLAGS": "-DSNEAKY",
        "NVRTC_APPEND_FLAGS": "-DSNEAKY",
        "NVRTC_DISABLE_CONCURRENT_NVVM": "1",
        "CPATH": str(cuda),
        "TMPDIR": "/nonexistent",
        "LC_ALL": "de_DE.UTF-8",
    }
    for more in ({}, {"CUDA_HOME": str(cuda), "CUDA_PATH": str(cuda)}):
        clean = clean_environ(environ) | more | {k: v for k, v in environ.items() if k.startswith("NVRTC")}
        store = Store(make_store().folder, settings=Settings(durable=False), environ=clean)
        assert store.get_or_compile(asked).status == "hit"
        fresh = Store(tmp_path / f"fresh{len(more)}", settings=Settings(durable=False), environ=clean)
        again = fresh.get_or_compile(asked)
        assert (again.status, again.fingerprint, again.data) == ("compiled", first.fingerprint, first.data)


def lib_folder() -> Path:
    return Path(sysconfig.get_path("purelib"), "nvidia/cu13/lib")


def copy_library(folder: Path, patch: bytes = b"") -> Path:
    """A folder with NVRTC in it; with a patch it is another NVRTC."""
    folder.mkdir(parents=True, exist_ok=True)
    for path in lib_folder().glob("libnvrtc*"):
        shutil.copy(path, folder)
    for path in folder.glob("libnvrtc-builtins*"):
        path.write_bytes(path.read_bytes() + patch)
    return folder


@dataclass(frozen=True)
class Bare:
    """An interpreter whose own packages are none; it can import some of ours, but NVRTC is not among them."""

    python: Path
    packages: Path

    def run(self, script: str, *arguments: object, **environ: str) -> str:
        argv = [str(self.python), "-c", script, *map(str, arguments)]
        clean = clean_environ(os.environ) | {"LD_LIBRARY_PATH": ""} | environ
        done = subprocess.run(argv, env=clean, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, done.stderr
        assert done.stderr == ""
        return done.stdout


MakeBare = Callable[..., Bare]


@pytest.fixture
def make_bare(tmp_path: Path) -> MakeBare:
    def make(*names: str) -> Bare:
        folder = tmp_path / "venv"
        venv.EnvBuilder(symlinks=True).create(folder)
        (packages,) = folder.glob("lib/python*/site-packages")
        shared = plant(tmp_path / "shared", {})
        ours = Path(sysconfig.get_path("purelib"))
        for name in ("blake3", "msgspec", "platformdirs", *names):
            (shared / name).symlink_to(ours / name)
        source = Path(cubinet.__file__).parents[1]
        (packages / "shared.pth").write_text(f"{shared}\n{source}\n")
        return Bare(folder / "bin/python", packages)

    return make


_WHICH = """
import os, sys, time
from cubinet import Settings, Store, Variant
folder, *steps = sys.argv[1:]
asked = Variant('extern "C" __global__ void k() {}', "sm_90a", compiler="nvrtc")
def told(store):
    made = store.get_or_compile(asked)
    programs = {p.role: p.path for p in store.compiler("nvrtc").toolchain().programs}
    print(made.status, made.record.toolchain.identity, programs["libnvrtc"], made.reason or "-")
store = Store(folder, settings=Settings(durable=False, refresh=0.0))
told(store)
for step in steps:
    came, place = step.split("=")
    os.makedirs(os.path.dirname(place), exist_ok=True)
    if os.path.exists(place):
        os.rename(place, place + ".old")
    os.rename(came, place)
    told(store)
told(Store(folder, settings=Settings(durable=False, refresh=0.0)))
"""


def test_another_library_that_is_found_first_is_noticed(make_bare: MakeBare, tmp_path: Path) -> None:
    bare = make_bare("cuda")
    late, early = copy_library(tmp_path / "late"), tmp_path / "early"
    steps = (
        f"{copy_library(tmp_path / 'new', b'1')}={early}",
        f"{copy_library(tmp_path / 'wheel', b'2')}={bare.packages}/nvidia/cu13/lib",
    )
    said = bare.run(_WHICH, tmp_path / "s", *steps, LD_LIBRARY_PATH=f"{early}:{late}")
    lines = [line.split(" ", 3) for line in said.splitlines()]
    assert [Path(line[2]).parent for line in lines[:3]] == [late, early, bare.packages / "nvidia/cu13/lib"]
    assert [line[0] for line in lines] == ["compiled", "compiled", "compiled", "hit"]
    assert len({line[1] for line in lines}) == 3
    assert {line[3] for line in lines} == {"-"}


def test_a_library_replaced_in_its_place_is_noticed_and_warm_workers_go(
    make_store: MakeStore, make_bare: MakeBare, tmp_path: Path
) -> None:
    place = copy_library(tmp_path / "lib")
    (builtins,) = place.glob("libnvrtc-builtins*")
    plant(tmp_path / "new", {})
    new = tmp_path / "new" / builtins.name
    new.write_bytes(builtins.read_bytes() + b"1")
    said = make_bare("cuda").run(_WHICH, tmp_path / "s", f"{new}={builtins}", LD_LIBRARY_PATH=str(place))
    before, after, later = (line.split(" ", 3) for line in said.splitlines())
    # the same bytes in another place are the same toolchain
    assert before[1] == str(adapter(make_store()).toolchain().identity)
    assert before[1] != after[1] == later[1]
    assert [line[0] for line in (before, after, later)] == ["compiled", "compiled", "hit"]
    assert {line[3] for line in (before, after, later)} == {"-"}


def test_a_worker_is_never_asked_that_has_other_libraries(make_store: MakeStore, alone: None) -> None:
    store = make_store(refresh=600.0)
    store.get_or_compile(variant())
    (worker,) = POOL._idle
    worker.loaded = tuple((path, (*stamp[:4], stamp[4] + 1)) for path, stamp in worker.loaded)
    worker.needs = replace(worker.needs, libraries=worker.loaded)
    store.get_or_compile(variant(TINY + "// 2\n"))
    assert POOL._idle != [worker]
    assert len(workers()) == 1


def test_libraries_that_change_between_lookup_and_compile_keep_the_result_out(make_store: MakeStore) -> None:
    compiler = adapter(make_store())
    request = compiler.normalize(variant())
    other = replace(request.toolchain, identity=request.toolchain.programs[0].digest)
    assert "replaced" in compiler.compile(replace(request, toolchain=other)).uncacheable


_MISSING = """
import sys
from cubinet import Settings, Store, ToolchainNotFoundError, Variant
store = Store(sys.argv[1], settings=Settings(durable=False))
try:
    store.get_or_compile(Variant('__global__ void k() {}', "sm_90a", compiler="nvrtc"))
except ToolchainNotFoundError as exc:
    print(exc)
(step,) = store.compiler("nvrtc").steps()
print(step.chosen, step.found)
"""


@pytest.mark.parametrize(
    ("packages", "finding"),
    [([], "ModuleNotFoundError: No module named 'cuda'"), (["cuda"], "libnvrtc.so")],
    ids=["no cuda-bindings", "no libnvrtc"],
)
def test_what_is_missing_is_named_with_a_remedy(
    make_bare: MakeBare, tmp_path: Path, packages: list[str], finding: str
) -> None:
    error, step = make_bare(*packages).run(_MISSING, tmp_path / "s").splitlines()
    assert error.startswith("cannot compile with nvrtc: no compiler found (cuda-bindings: ")
    assert finding in error
    assert "pip install 'cubinet[cuda]'" in error
    assert step.startswith("False ")
    assert finding in step


def test_no_code_comes_from_the_working_folder(
    make_store: MakeStore, tmp_path: Path, alone: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(plant(tmp_path / "evil", {"msgspec.py": "raise SystemExit", "struct.py": "raise SystemExit"}))
    monkeypatch.setattr(sys, "path", ["", *sys.path])  # as in an interactive session
    assert make_store().get_or_compile(variant()).status == "compiled"


# --- without the recorder


@pytest.fixture
def no_gcc(make_store: MakeStore, tmp_path: Path) -> Store:
    (tmp_path / "bin").mkdir()
    return make_store(environ={**os.environ, "PATH": str(tmp_path / "bin")})


def test_without_gcc_headers_in_memory_alone_can_still_be_stored(no_gcc: Store, make_store: MakeStore) -> None:
    assert "gcc" in adapter(no_gcc).recorder().distrust
    source = '#include <a.h>\n#ifdef __has_include\n#if __has_include("b.h")\n#endif\n#endif\n' + TINY
    made = no_gcc.get_or_compile(variant(source, headers={"a.h": "#pragma once\n"}))
    assert (made.status, made.reason, made.cacheable) == ("compiled", "", True)
    assert no_gcc.get_or_compile(variant(source, headers={"a.h": "#pragma once\n"})).status == "hit"


def test_without_gcc_what_has_roots_is_returned_and_not_stored(no_gcc: Store, tmp_path: Path) -> None:
    made = no_gcc.get_or_compile(variant(SOURCE, plant(tmp_path / "inc", TREE)))
    assert made.status == "compiled"
    assert not made.cacheable
    assert made.reason == "what NVRTC reads cannot be seen: there is no gcc to build the recorder with"
    assert list(no_gcc.records()) == []


@pytest.mark.parametrize(
    "line",
    [
        '#include "/etc/hostname"',
        "# include </etc/hostname>",
        '#include "../../../../etc/hostname"',
        '#define X "/etc/hostname"\n#include X',
        '#if __has_include("/etc/hostname")\n#endif',
        '/* */ %: /* */ include "/etc/hostname"',
        '#inc\\\nlude "/etc/hostname"',
        '# /*\n*/ include "/etc/hostname"',
        '#define ASK __has_include\n#if ASK("/etc/hostname")\n#endif',
    ],
)
@pytest.mark.parametrize("place", ["source", "memory"])
def test_without_gcc_a_path_out_of_memory_is_not_stored(no_gcc: Store, line: str, place: str) -> None:
    text = f"#if 0\n{line}\n#endif\n"
    source = (text if place == "source" else '#include "a.h"\n') + TINY
    made = no_gcc.get_or_compile(variant(source, headers={"a.h": text if place == "memory" else "\n"}))
    assert "may include a file" in made.reason
    assert list(no_gcc.records()) == []


def test_without_gcc_a_file_before_the_source_is_not_stored(no_gcc: Store, tmp_path: Path) -> None:
    plant(tmp_path / "x", {"p.h": "\n"})
    asked = variant(options=["-include", str(tmp_path / "x/p.h")])
    assert "names a file" in no_gcc.get_or_compile(asked).reason
    inside = variant(options=["-include", "p.h"], headers={"p.h": "\n"})
    assert no_gcc.get_or_compile(inside).reason == ""


def test_a_recorder_that_does_not_see_nvrtc_is_not_trusted(
    make_store: MakeStore, tmp_path: Path, alone: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(_nvrtc_worker.PROVED, "src/unread.h", b"")
    made = make_store().get_or_compile(variant(SOURCE, plant(tmp_path / "inc", TREE)))
    assert made.reason == "what NVRTC reads cannot be seen: it did not see NVRTC read src/unread.h"


def test_a_log_without_its_marks_is_not_believed(
    make_store: MakeStore, tmp_path: Path, alone: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = make_store()
    store.get_or_compile(variant())
    monkeypatch.setattr(_nvrtc_worker, "END", "/cubinet/another")
    made = store.get_or_compile(variant(SOURCE, plant(tmp_path / "inc", TREE)))
    assert made.reason == "what NVRTC read was not recorded"
