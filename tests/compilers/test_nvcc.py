"""What the nvcc adapter promises, with a real nvcc: see the acceptance list of the main job."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

import pytest

from cubinet.compilers.nvcc import NvccCompiler
from cubinet.errors import CompileError, CompileTimeoutError, ConfigError
from cubinet.model import Artifact, Root, Seen, Variant
from cubinet.observations import read_observations
from cubinet.store import Store

from .conftest import MakeStore, clean_environ

ARCH = "sm_90a"

TREE = {
    "lib/a.cuh": '#pragma once\n#include "detail/b.cuh"\n#if __has_include(<lib/tune.cuh>)\n#include <lib/tune.cuh>\n'
    "#else\n#define TUNE 1\n#endif\n",
    "lib/detail/b.cuh": "#pragma once\n#define FACTOR 2\n",
    "lib/unread.cuh": "#error never read\n",
}
SOURCE = (
    "#include <lib/a.cuh>\n#include <cassert>\n"
    'extern "C" __global__ void scale(float* x, int n) {\n'
    '  assert(n > 0); if (n < 0) printf("%s", __FILE__); x[threadIdx.x] *= FACTOR * TUNE; }\n'
)


def plant(root: Path, tree: dict[str, str] = TREE) -> Path:
    for name, text in tree.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def variant(*roots: Path, source: str = SOURCE, **rest: object) -> Variant:
    labels = [Root(f"r{i}", str(root)) for i, root in enumerate(roots)]
    return Variant(source, ARCH, roots=labels, **rest)  # type: ignore[arg-type]


def observed(artifact: Artifact) -> dict[str, Seen]:
    data = artifact.read("observations")
    assert data is not None
    return {o.name: o.seen for o in read_observations(data)}


def test_a_second_lookup_in_a_new_process_hits_and_gives_the_same_bytes(make_store: MakeStore, tmp_path: Path) -> None:
    asked = variant(plant(tmp_path / "inc"), entries=["scale"])
    first = make_store().get_or_compile(asked)
    second = make_store().get_or_compile(asked)
    assert (first.status, first.layer, first.reason) == ("compiled", "local", "")
    assert (second.status, second.layer) == ("hit", "local")
    assert second.data == first.data
    assert [k.name for k in second.kernels] == ["scale"]
    assert second.kernels[0].regs


def test_reads_failed_lookups_and_probes_are_observed_under_their_labels(make_store: MakeStore, tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    seen = observed(make_store().get_or_compile(variant(empty, plant(tmp_path / "inc"))))
    assert seen["r1:lib/a.cuh"] is Seen.READ
    assert seen["r1:lib/detail/b.cuh"] is Seen.READ
    assert seen["r0:lib/a.cuh"] is Seen.ABSENT
    assert seen["r1:lib/tune.cuh"] is Seen.ABSENT
    assert seen["toolkit:cuda_runtime.h"] is Seen.READ
    assert "r1:lib/unread.cuh" not in seen
    assert not any(name.startswith("file:") for name in seen)


def test_two_checkouts_share_one_fingerprint_and_the_second_hits(make_store: MakeStore, tmp_path: Path) -> None:
    here = plant(tmp_path / "one")
    there = plant(tmp_path / "other place" / "with blanks" / "deeper")
    first = make_store().get_or_compile(variant(here))
    second = make_store().get_or_compile(variant(there))
    assert second.status == "hit"
    assert second.fingerprint == first.fingerprint


def test_a_cubin_holds_no_path_of_the_machine_and_is_the_same_from_everywhere(
    make_store: MakeStore, tmp_path: Path
) -> None:
    source = (
        SOURCE + "namespace { __device__ int hidden; __global__ void local(int* p) { assert(p); *p = hidden++; } }\n"
    )
    source += "static __global__ void inside(int* p) { *p = 1; }\nvoid* keep() { return (void*)inside; }\n"
    source += "void* keep2() { return (void*)local; }\n"
    made = [
        make_store(folder=plant(tmp_path / name) / "s").get_or_compile(variant(tmp_path / name, source=source))
        for name in ("one", "an other")
    ]
    assert made[0].status == made[1].status == "compiled"
    assert made[0].data == made[1].data
    assert str(tmp_path).encode() not in made[0].data
    assert b"/tmp" not in made[0].data
    assert b"kernel.cu" in made[0].data  # __FILE__ is the source's own name
    record = made[0].record
    texts = " ".join(record.argv) + (made[0].read("log") or b"").decode()
    assert str(tmp_path) not in texts
    assert not record.local_only


@pytest.mark.parametrize(
    ("what", "edit", "undo"),
    [
        ("edit a header", ("lib/a.cuh", TREE["lib/a.cuh"] + "#define MORE 1\n"), TREE["lib/a.cuh"]),
        ("edit a nested header", ("lib/detail/b.cuh", "#define FACTOR 3\n"), TREE["lib/detail/b.cuh"]),
        ("add the target of a __has_include", ("lib/tune.cuh", "#define TUNE 5\n"), None),
        ("shadow a quoted header", ("lib/detail/detail/b.cuh", "\n"), None),
    ],
    ids=lambda value: value if isinstance(value, str) and " " in value and "\n" not in value else None,
)
def test_a_change_that_matters_compiles_and_undoing_it_hits_again(
    make_store: MakeStore, tmp_path: Path, what: str, edit: tuple[str, str], undo: str | None
) -> None:
    root = plant(tmp_path / "inc")
    first = make_store().get_or_compile(variant(root))
    place = root / edit[0]
    place.parent.mkdir(exist_ok=True)
    place.write_text(edit[1])
    second = make_store().get_or_compile(variant(root))
    # A name nobody looked for changes nothing; every other edit must compile.
    expected = "hit" if what == "shadow a quoted header" else "compiled"
    assert second.status == expected
    if undo is None:
        place.unlink()
    else:
        place.write_text(undo)
    third = make_store().get_or_compile(variant(root))
    assert third.status == "hit"
    assert third.fingerprint == first.fingerprint


def test_a_header_that_shadows_one_in_a_later_root_compiles(make_store: MakeStore, tmp_path: Path) -> None:
    early = tmp_path / "early"
    early.mkdir()
    root = plant(tmp_path / "inc")
    first = make_store().get_or_compile(variant(early, root))
    plant(early, {"lib/a.cuh": "#define FACTOR 7\n#define TUNE 1\n"})
    second = make_store().get_or_compile(variant(early, root))
    assert second.status == "compiled"
    assert second.data != first.data
    shutil.rmtree(early / "lib")
    assert make_store().get_or_compile(variant(early, root)).fingerprint == first.fingerprint


def test_a_root_that_appears_later_is_noticed(make_store: MakeStore, tmp_path: Path) -> None:
    late, root = tmp_path / "late", plant(tmp_path / "inc")
    make_store().get_or_compile(variant(late, root))
    assert make_store().get_or_compile(variant(late, root)).status == "hit"
    plant(late, {"lib/a.cuh": "#define FACTOR 7\n#define TUNE 1\n"})
    assert make_store().get_or_compile(variant(late, root)).status == "compiled"


def test_touching_files_or_editing_an_unread_header_still_hits(make_store: MakeStore, tmp_path: Path) -> None:
    root = plant(tmp_path / "inc")
    make_store().get_or_compile(variant(root))
    for path in root.rglob("*.cuh"):
        os.utime(path, (1, time.time() + 3600))
    (root / "lib/unread.cuh").write_text("#error still never read\n")
    (root / "lib/new.cuh").write_text("\n")
    assert make_store().get_or_compile(variant(root)).status == "hit"


def test_a_header_beside_the_source_file_is_found_and_observed(make_store: MakeStore, tmp_path: Path) -> None:
    folder = tmp_path / "my sources"
    plant(
        folder,
        {"k.cu": '#include "beside.cuh"\n__global__ void k(int* p) { *p = B; }\n', "beside.cuh": "#define B 1\n"},
    )
    asked = Variant.from_file(folder / "k.cu", ARCH)
    first = make_store().get_or_compile(asked)
    assert observed(first)["src:beside.cuh"] is Seen.READ
    (folder / "beside.cuh").write_text("#define B 2\n")
    second = make_store().get_or_compile(asked)
    assert second.status == "compiled"
    assert second.data != first.data


def test_line_information_keeps_a_build_local_and_says_so(make_store: MakeStore, tmp_path: Path) -> None:
    here, there = plant(tmp_path / "one"), plant(tmp_path / "two")
    made = make_store().get_or_compile(variant(here, options=["-lineinfo"]))
    assert "lineinfo" in made.record.local_only
    assert make_store().get_or_compile(variant(here, options=["-lineinfo"])).status == "hit"
    assert make_store().get_or_compile(variant(there, options=["-lineinfo"])).status == "compiled"


def test_an_unknown_option_compiles_but_is_not_stored(make_store: MakeStore, tmp_path: Path) -> None:
    # -Xcompiler -iquote brings in files that no root accounts for
    odd = ["-Xcompiler", "-idirafter/nowhere"]
    store = make_store()
    made = store.get_or_compile(variant(plant(tmp_path / "inc"), options=odd))
    assert made.status == "compiled"
    assert made.reason
    assert not made.cacheable
    assert list(store.records()) == []
    assert store.find(variant(tmp_path / "inc", options=odd)) is None


def test_a_syntax_error_names_the_callers_file_and_is_remembered(make_store: MakeStore, tmp_path: Path) -> None:
    folder = plant(tmp_path / "src", {"broken.cu": "#include <h.cuh>\n__global__ void k() { wrong; }\n"})
    root = plant(tmp_path / "inc", {"h.cuh": "#define H\n"})
    asked = Variant.from_file(folder / "broken.cu", ARCH, roots=[Root("r", str(root))])
    store = make_store()
    with pytest.raises(CompileError) as first:
        store.get_or_compile(asked)
    assert f"{folder}/broken.cu(2)" in first.value.log
    assert 'identifier "wrong" is undefined' in first.value.log
    assert first.value.deterministic
    with pytest.raises(CompileError):
        make_store().get_or_compile(asked)
    with pytest.raises(CompileError) as again:
        store.get_or_compile(asked)
    assert again.value.log == first.value.log
    assert store.stats()["failed.remembered"] == 1
    (root / "h.cuh").write_text("#define H\n#define wrong\n")
    assert store.get_or_compile(asked).status == "compiled"


def test_a_missing_header_is_looked_for_again_when_it_appears(make_store: MakeStore, tmp_path: Path) -> None:
    root = tmp_path / "inc"
    root.mkdir()
    asked = variant(root, source='#include <late.cuh>\nextern "C" __global__ void k() {}\n')
    store = make_store()
    with pytest.raises(CompileError, match=r"late\.cuh"):
        store.get_or_compile(asked)
    (root / "late.cuh").write_text("\n")
    assert store.get_or_compile(asked).status == "compiled"


def test_an_asked_kernel_that_is_not_there_is_an_error(make_store: MakeStore, tmp_path: Path) -> None:
    with pytest.raises(CompileError, match="scael"):
        make_store().get_or_compile(variant(plant(tmp_path / "inc"), entries=["scael"]))


def test_a_compile_that_takes_too_long_is_killed_whole_and_not_remembered(
    make_store: MakeStore, tmp_path: Path
) -> None:
    endless = "template<int N> struct S { static constexpr long v = S<N-1>::v + S<N-1>::v; };\n"
    endless += "#include <cuda/std/tuple>\n#include <cuda/std/functional>\n__global__ void k() {}\n"
    store = make_store(timeout=0.2)
    with pytest.raises(CompileTimeoutError) as caught:
        store.get_or_compile(variant(tmp_path, source=endless))
    assert not caught.value.deterministic
    deadline = time.time() + 5
    while time.time() < deadline and _compilers_of(tmp_path):
        time.sleep(0.05)
    assert not _compilers_of(tmp_path)
    assert make_store().get_or_compile(variant(tmp_path, source=endless)).status == "compiled"


def _compilers_of(root: Path) -> list[str]:
    """Running compilers that have a link to this root in their working folder."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            link = f"{(process / 'cwd').readlink()}/include/r0"
            if os.path.realpath(link) == str(root.resolve()):
                found.append(str(process))
        except OSError:
            continue
    return found


def test_a_full_disk_is_no_compile_error_to_remember(make_store: MakeStore, tmp_path: Path) -> None:
    from cubinet.compilers._verdict import is_deterministic

    assert not is_deterministic("x.cu(1): error: y\nNo space left on device\n", 1)
    assert not is_deterministic("nvcc fatal   : Could not open output file 'x'\n", 1)
    assert not is_deterministic("gcc: No such file or directory\nnvcc fatal   : Failed to preprocess host\n", 1)
    assert not is_deterministic("", 1)
    assert not is_deterministic("x.cu(1): error: y\n", -9)
    assert is_deterministic("x.cu(1): error: y\n1 error detected in the compilation\n", 1)
    assert is_deterministic("ptxas error   : Entry function 'k' uses too much shared data\n", 255)


def test_an_input_that_changes_while_compiling_is_returned_but_not_stored(
    make_store: MakeStore, tmp_path: Path
) -> None:
    import threading

    root = plant(tmp_path / "inc", {"h.cuh": "#define H 1\n"})
    slow = (
        '#include <h.cuh>\n#include <cuda/std/tuple>\n#include <cuda/std/functional>\nextern "C" __global__ void k() {}'
    )
    store = make_store()
    timer = threading.Timer(0.3, lambda: (root / "h.cuh").write_text("#define H 2\n"))
    timer.start()
    made = store.get_or_compile(variant(root, source=slow))
    timer.join()
    assert made.status == "compiled"
    assert "h.cuh changed while compiling" in made.reason
    assert list(store.records()) == []


def test_without_the_recorder_whole_roots_are_hashed_instead(make_store: MakeStore, tmp_path: Path) -> None:
    root = plant(tmp_path / "inc")
    made = make_store(recorder="off").get_or_compile(variant(root))
    assert observed(made)["r0:"] is Seen.TREE
    assert made.record.observation_counts[0][0] == "read"
    assert make_store(recorder="off").get_or_compile(variant(root)).status == "hit"
    (root / "lib/tune.cuh").write_text("#define TUNE 5\n")
    assert make_store(recorder="off").get_or_compile(variant(root)).status == "compiled"


def test_the_recorder_is_trusted_here_and_kept(make_store: MakeStore) -> None:
    store = make_store()
    adapter = store.compiler("nvcc")
    assert isinstance(adapter, NvccCompiler)
    assert adapter.recorder().distrust == ""
    assert adapter.recorder().library.startswith(store.folder)


def test_every_program_that_runs_is_part_of_the_toolchain(make_store: MakeStore, tmp_path: Path) -> None:
    adapter = make_store().compiler("nvcc")
    roles = {program.role for program in adapter.toolchain().programs}
    assert {"nvcc", "nvcc.profile", "cicc", "ptxas", "fatbinary", "host driver", "host front end"} <= roles
    for kind in ("cubin", "ptx", "fatbin"):
        made = make_store().get_or_compile(variant(plant(tmp_path / "inc"), kind=kind))
        assert made.reason == ""
        assert len(made.data) > 0


def test_the_same_toolkit_at_another_prefix_is_the_same_toolchain(make_store: MakeStore, tmp_path: Path) -> None:
    store = make_store()
    adapter = store.compiler("nvcc")
    assert isinstance(adapter, NvccCompiler)
    prefix = Path(adapter.facts().nvcc).parents[1].resolve()
    copy = tmp_path / "moved toolkit"
    _copy_tree(prefix, copy)
    environ = clean_environ(os.environ) | {"CUBINET_NVCC": str(copy / "bin/nvcc")}
    moved = Store(tmp_path / "other", environ=environ).compiler("nvcc").toolchain()
    assert moved.identity == adapter.toolchain().identity


def _copy_tree(source: Path, target: Path) -> None:
    """What a compile needs of a toolkit. Not as hard links: those would change the originals' ctime."""
    for part in ("bin", "nvvm", "include", "targets"):
        if (source / part).is_dir():
            shutil.copytree(
                source / part, target / part, symlinks=True, ignore=shutil.ignore_patterns("lib64", "nsight*")
            )


def test_a_patched_ptxas_is_another_toolchain(make_store: MakeStore, tmp_path: Path) -> None:
    adapter = make_store().compiler("nvcc")
    assert isinstance(adapter, NvccCompiler)
    prefix = Path(adapter.facts().nvcc).parents[1].resolve()
    _copy_tree(prefix, tmp_path / "t")
    ptxas = tmp_path / "t/bin/ptxas"
    with ptxas.open("ab") as file:
        file.write(b"\0")
    environ = clean_environ(os.environ) | {"CUBINET_NVCC": str(tmp_path / "t/bin/nvcc")}
    patched = Store(tmp_path / "other", environ=environ).compiler("nvcc").toolchain()
    assert patched.identity != adapter.toolchain().identity


def test_a_wrapper_script_is_seen_through(make_store: MakeStore, tmp_path: Path) -> None:
    adapter = make_store().compiler("nvcc")
    assert isinstance(adapter, NvccCompiler)
    wrapper = tmp_path / "nvcc"
    wrapper.write_text(f'#!/bin/sh\nexec "{adapter.facts().nvcc}" "$@"\n')
    wrapper.chmod(0o755)
    environ = clean_environ(os.environ) | {"CUBINET_NVCC": str(wrapper)}
    assert Store(tmp_path / "o", environ=environ).compiler("nvcc").toolchain() == adapter.toolchain()
    wrapper.write_text(f'#!/bin/sh\nexec "{adapter.facts().nvcc}" -DSNEAKY "$@"\n')
    with pytest.raises(CompileError, match="wrapper"):
        Store(tmp_path / "o", environ=environ).compiler("nvcc").toolchain()


def test_the_environment_of_the_caller_reaches_no_compile(make_store: MakeStore, tmp_path: Path) -> None:
    root = plant(tmp_path / "inc")
    first = make_store().get_or_compile(variant(root))
    noisy = {**os.environ, "INCLUDES": "-DX", "PTXAS_FLAGS": "-O0", "TMPDIR": str(tmp_path), "LC_ALL": "de_DE.UTF-8"}
    assert make_store(environ=noisy).get_or_compile(variant(root)).status == "hit"
    assert make_store(environ=noisy, folder=tmp_path / "n").get_or_compile(variant(root)).data == first.data


def test_another_vendors_target_is_refused(make_store: MakeStore) -> None:
    with pytest.raises(ConfigError, match="CUDA code only"):
        make_store().get_or_compile(Variant("int x;", "ascend:dav-2201"))


def test_line_information_names_files_that_a_profiler_can_open(make_store: MakeStore, tmp_path: Path) -> None:
    folder = plant(tmp_path / "src", {"k.cu": "#include <h.cuh>\n__global__ void k(int* p) { *p = twice(*p); }\n"})
    root = plant(tmp_path / "inc", {"h.cuh": "__device__ inline int twice(int x) { return 2 * x; }\n"})
    asked = Variant.from_file(folder / "k.cu", ARCH, roots=[Root("r", str(root))], options=["-lineinfo"])
    made = make_store().get_or_compile(asked)
    assert f"{folder}".encode() in made.data
    assert f"{root}".encode() in made.data
    looks = {(o.name, o.seen) for o in read_observations(made.read("observations") or b"")}
    assert {("r:h.cuh", Seen.READ), ("r:h.cuh", Seen.TIME), ("src:k.cu", Seen.TIME)} <= looks
    assert make_store().get_or_compile(asked).status == "hit"
    os.utime(root / "h.cuh", (1, 1))
    assert make_store().get_or_compile(asked).status == "compiled"


def test_a_header_in_a_root_does_not_find_headers_beside_the_source(make_store: MakeStore, tmp_path: Path) -> None:
    folder = plant(
        tmp_path / "src",
        {"k.cu": "#include <a.cuh>\n__global__ void k(int* p) { *p = U; }\n", "u.cuh": "#define U 1\n"},
    )
    first = plant(tmp_path / "one", {"a.cuh": '#include "u.cuh"\n'})
    second = plant(tmp_path / "two", {"u.cuh": "#define U 2\n"})
    asked = Variant.from_file(folder / "k.cu", ARCH, roots=[Root("one", str(first)), Root("two", str(second))])
    made = make_store().get_or_compile(asked)
    assert observed(made)["two:u.cuh"] is Seen.READ
    assert "src:u.cuh" not in observed(made)


def test_a_source_finds_headers_in_the_folder_above(make_store: MakeStore, tmp_path: Path) -> None:
    folder = plant(
        tmp_path / "p q",
        {
            "src/my kernel.cu": '#include "../up/u.cuh"\nstatic __global__ void k(int* p) { *p = U; }\n'
            "void* f() { return (void*)k; }\n"
        }
        | {"up/u.cuh": "#define U 1\n"},
    )
    asked = Variant.from_file(folder / "src/my kernel.cu", ARCH)
    made = make_store().get_or_compile(asked)
    assert asked.source_name == "my kernel.cu"
    assert observed(made)["src:../up/u.cuh"] is Seen.READ
    assert made.record.local_only == ""
    moved = shutil.copytree(folder, tmp_path / "moved")
    again = make_store(folder=tmp_path / "s2").get_or_compile(Variant.from_file(moved / "src/my kernel.cu", ARCH))
    assert (again.status, again.fingerprint, again.data) == ("compiled", made.fingerprint, made.data)


def test_a_file_given_before_the_source_is_observed_too(make_store: MakeStore, tmp_path: Path) -> None:
    folder = plant(tmp_path / "pre fix", {"p.h": "#define P 1\n"})
    asked = variant(source="__global__ void k(int* p) { *p = P; }", options=["-include", str(folder / "p.h")])
    made = make_store().get_or_compile(asked)
    assert observed(made)["pre0:p.h"] is Seen.READ
    assert made.record.local_only == ""
    (folder / "p.h").write_text("#define P 2\n")
    assert make_store().get_or_compile(asked).status == "compiled"


def test_folders_named_in_options_and_variables_are_roots(make_store: MakeStore, tmp_path: Path) -> None:
    one = plant(tmp_path / "o ne", {"a.h": "#define A 1\n"})
    two = plant(tmp_path / "two", {"b.h": "#define B 2\n"})
    three = plant(tmp_path / "three", {"c.h": "#define C 3\n"})
    asked = variant(
        source="#include <a.h>\n#include <b.h>\n#include <c.h>\n__global__ void k(int* p) { *p = A + B + C; }",
        options=[f"-I{one}", "-isystem", str(two)],
    )
    made = make_store().normalize(asked)
    assert [(root.label, root.kind) for root in made.roots] == [("i0", "include"), ("i1", "system")]
    settings = {"CPATH": str(three)}
    store = Store(tmp_path / "s", environ=clean_environ(os.environ) | settings)
    built = store.get_or_compile(asked)
    assert {"i0:a.h", "i1:b.h", "i2:c.h"} <= set(observed(built))
    assert built.record.local_only == ""


def test_two_roots_that_are_one_folder_are_not_taken_for_two(make_store: MakeStore, tmp_path: Path) -> None:
    one = plant(tmp_path / "one", {"a.h": "#define A 1\n", "b.h": "#define B 1\n"})
    two = plant(tmp_path / "two", {"b.h": "#define B 2\n"})
    link = tmp_path / "link"
    link.symlink_to(one)
    asked = variant(link, one, source="#include <a.h>\n#include <b.h>\n__global__ void k(int* p) { *p = A + B; }")
    first = make_store().get_or_compile(asked)
    link.unlink()
    link.symlink_to(two)
    second = make_store().get_or_compile(asked)
    assert (second.status, first.data == second.data) == ("compiled", False)
    link.unlink()
    link.symlink_to(one)
    assert make_store().get_or_compile(asked).fingerprint == first.fingerprint


def test_equal_headers_with_pragma_once_depend_on_their_times_and_are_not_kept(
    make_store: MakeStore, tmp_path: Path
) -> None:
    tree = {
        "a/h.h": "#pragma once\n#include <x.h>\n",
        "b/h.h": "#pragma once\n#include <x.h>\n",
        "x.h": "#define X 1\n",
    }
    root = plant(tmp_path / "inc", tree)
    for path in root.rglob("*.h"):
        os.utime(path, (1000, 1000))
    source = '#include "a/h.h"\n#include "b/h.h"\n__global__ void k(int* p) { *p = X; }'
    made = make_store().get_or_compile(variant(root, source=source))
    assert "pragma once" in made.reason
    (root / "b/h.h").write_text("#pragma once\n#include <x.h>  // another one\n")
    assert make_store().get_or_compile(variant(root, source=source)).reason == ""


def test_no_clock_reaches_the_result(make_store: MakeStore, tmp_path: Path) -> None:
    source = (
        "__device__ const char* when[] = {__DATE__, __TIME__, __TIMESTAMP__, __BASE_FILE__};\n__global__ void k() {}"
    )
    made = [make_store(folder=tmp_path / name).get_or_compile(variant(source=source)) for name in ("s1", "s2")]
    assert made[0].data == made[1].data
    assert b"1970" in made[0].data


def test_a_toolkit_in_a_folder_with_a_blank_leaves_no_path_either(make_store: MakeStore, tmp_path: Path) -> None:
    adapter = make_store().compiler("nvcc")
    assert isinstance(adapter, NvccCompiler)
    _copy_tree(Path(adapter.facts().nvcc).parents[1].resolve(), tmp_path / "my toolkit")
    environ = clean_environ(os.environ) | {"CUBINET_NVCC": str(tmp_path / "my toolkit/bin/nvcc")}
    source = "#include <cooperative_groups.h>\n#include <cassert>\nnamespace cg = cooperative_groups;\n"
    source += "__global__ void k(int* p) { auto g = cg::this_grid(); g.sync(); assert(p); *p = 1; }"
    made = Store(tmp_path / "s", environ=environ).get_or_compile(variant(source=source))
    assert (made.reason, made.record.local_only) == ("", "")
    assert made.data == make_store().get_or_compile(variant(source=source)).data
