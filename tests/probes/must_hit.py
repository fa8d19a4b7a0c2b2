"""Probes of changes that change nothing: after them a lookup has to hit."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from .bench import Bench, Change
from .changes import (
    BOTH_RIGHT,
    CLOCK,
    KERNEL,
    LINEINFO,
    LINES,
    MEMORY,
    NVCC,
    NVRTC,
    SINE,
    asks,
    both,
    calls,
    in_process,
    kit,
    link,
    move,
    must_hit,
    sets,
    toolkit,
    touch,
    v,
    write,
)

__all__ = ["MUST_HIT"]

PLAIN: dict[str, Any] = {
    "files": {
        "r/lib/a.h": '#pragma once\n#include "b.h"\n#if __has_include(<lib/tune.h>)\n#error\n#endif\n',
        "r/lib/b.h": v(1),
        "r/lib/unread.h": "",
        "k.cu": "#include <lib/a.h>\n" + KERNEL,
    },
    "roots": ("r=r",),
    "source": "#include <lib/a.h>\n" + KERNEL,
}
PATHS = (
    "#include <a.h>\n#include <cassert>\n"
    "namespace { __device__ int hidden; __global__ void local(int* p) { assert(p); *p = hidden++; } }\n"
    '__global__ void k(int* p) { printf("%s %s", __FILE__, name()); assert(*p); }\n'
    "void* keep() { return (void*)local; }\n"
)
NAMED: dict[str, Any] = {
    "files": {"r/a.h": "__device__ inline const char* name() { return __FILE__; }\n"},
    "roots": ("r=r",),
    "source": PATHS,
}


def _umask(_bench: Bench) -> Callable[[], object]:
    old = os.umask(0o077)
    return lambda: os.umask(old)


def _working_folder(bench: Bench) -> Callable[[], object]:
    old = Path.cwd()
    bench.path("elsewhere/x").parent.mkdir(exist_ok=True)
    os.chdir(bench.folder / "elsewhere")
    return lambda: os.chdir(old)


def _temporary_folder(name: str) -> Callable[[Bench], Callable[[], object]]:
    def enter(bench: Bench) -> Callable[[], object]:
        old = tempfile.tempdir
        folder = bench.folder / name
        folder.mkdir()
        tempfile.tempdir = str(folder)
        bench.environ["TMPDIR"] = str(folder)
        return lambda: setattr(tempfile, "tempdir", old)

    return enter


def touch_all(bench: Bench) -> None:
    """Set the times of everything in the folder."""
    for path in bench.folder.rglob("*"):
        os.utime(path, (1_500_000_000, 1_500_000_000))


def named_by_folder(bench: Bench) -> None:
    """Name the folder of the host compiler with -ccbin."""
    bench.asked = replace(bench.asked, options=("-ccbin", str(Path(str(shutil.which("gcc"))).parent)))


def spells(*options: str, **rest: Any) -> Change:
    return asks(options=options, **rest)


MUST_HIT = (
    must_hit(
        "for PTX -gencode says what the target says",
        spells("-gencode", "arch=compute_90a,code=sm_90a"),
        source=v(1) + KERNEL,
        kind="ptx",
        compilers=NVCC,
    ),
    must_hit(
        "for a fatbin -gencode says what -arch says",
        spells("-gencode", "arch=compute_80,code=[sm_80,compute_80]"),
        source=v(1) + KERNEL,
        kind="fatbin",
        arch="sm_80",
        compilers=NVCC,
    ),
    must_hit(
        "a root in a folder that the compiler searches anyway moves",
        asks(roots=("r=o",)),
        files={"o/keep.h": ""},
        roots=("r=/usr/include/linux/can",),
        source="#include <linux/can/error.h>\n" + v(1) + KERNEL,
        compilers=NVCC,
    ),
    must_hit("nothing changes", lambda _: None, **PLAIN, **BOTH_RIGHT),
    must_hit(
        "the headers are at another place",
        both(move("r", "some/other place/r"), asks(roots=("r=some/other place/r",))),
        **PLAIN,
        ccache="miss (hit with base_dir)",
        sccache="half a hit",
    ),
    must_hit(
        "the source file is at another place",
        both(move("k.cu", "x/y/k.cu"), asks(file="x/y/k.cu")),
        **PLAIN,
        file="k.cu",
        **BOTH_RIGHT,
    ),
    must_hit(
        "__FILE__, assert, static kernels and anonymous namespaces are compiled at another place",
        both(move("r", "o/r"), asks(roots=("r=o/r",))),
        **NAMED,
        compilers=NVCC,
        ccache="right",
        sccache="differs from nvcc",
    ),
    must_hit(
        "__FILE__ is compiled at another place",
        both(move("r", "o/r"), asks(roots=("r=o/r",))),
        **{
            **NAMED,
            "source": "#include <a.h>\n"
            "__global__ void k(const char* volatile* p) { p[0] = __FILE__; p[1] = name(); }\n",
        },
        compilers=NVRTC,
    ),
    must_hit("the root becomes a link to where it was", both(move("r", "real"), link("r", "real")), **PLAIN),
    must_hit(
        "a root that is a link is re-pointed to an equal copy",
        link("r", "two"),
        prepare=both(link("r", "one")),
        **{**PLAIN, "files": {"one/lib/a.h": v(1), "two/lib/a.h": v(1)}},
    ),
    must_hit(
        "a header is replaced by a link to an equal file",
        link("r/lib/b.h", "../../b.h"),
        **{**PLAIN, "files": {**PLAIN["files"], "b.h": v(1)}},
    ),
    must_hit("a header is edited and put back", both(write("r/lib/b.h", v(2)), write("r/lib/b.h", v(1))), **PLAIN),
    must_hit(
        "every file gets another time",
        touch_all,
        **PLAIN,
    ),
    must_hit("a header that is not read is edited", write("r/lib/unread.h", "#error\n"), **PLAIN),
    must_hit("a header that is not read appears", write("r/lib/new.h", "#error\n"), **PLAIN),
    must_hit("a folder that is not read appears", write("r/lib/more/new.h", "#error\n"), **PLAIN),
    must_hit("a dangling link appears where a header was looked for", link("r/lib/tune.h", "nowhere"), **PLAIN),
    must_hit(
        "a file beside the source that is not read is edited",
        write("notes.txt", "2"),
        **{**PLAIN, "files": {**PLAIN["files"], "notes.txt": "1"}},
        file="k.cu",
    ),
    must_hit(
        "a header appears in a later root",
        write("late/lib/b.h", v(2)),
        **{**PLAIN, "files": {**PLAIN["files"], "late/keep.h": ""}, "roots": ("r=r", "l=late")},
    ),
    must_hit("another user asks", sets(HOME="/nonexistent", USER="other", LOGNAME="other"), **PLAIN),
    must_hit("the working folder is another", in_process(_working_folder), **PLAIN),
    must_hit("the umask is another", in_process(_umask), **PLAIN),
    must_hit("the locale is another", sets(LANG="de_DE.UTF-8", LC_ALL="de_DE.UTF-8", LANGUAGE="de"), **PLAIN),
    must_hit("TMPDIR is another", in_process(_temporary_folder("tmp")), **PLAIN, compilers=NVCC),
    must_hit(
        "TMPDIR is another, with blanks and signs",
        in_process(_temporary_folder("my tmp $HOME;'#")),
        **PLAIN,
        compilers=NVCC,
    ),
    must_hit(
        "SOURCE_DATE_EPOCH is set",
        sets(SOURCE_DATE_EPOCH="1700000000"),
        **{**PLAIN, "source": CLOCK.replace("MACRO", "__DATE__")},
        compilers=NVCC,
    ),
    must_hit(
        "variables that compilers know are set",
        sets(
            INCLUDES="-DX",
            PTXAS_FLAGS="-O0",
            GCC_EXEC_PREFIX="/x/",
            COMPILER_PATH="/x",
            DEPENDENCIES_OUTPUT="/x/y",
            NVRTC_APPEND_FLAGS="-DX",
        ),
        **PLAIN,
    ),
    must_hit(
        "the time of day changes (__TIME__, __DATE__)",
        lambda _: time.sleep(1.1),
        source=CLOCK.replace("MACRO", "__TIME__ __DATE__"),
        compilers=NVCC,
        **BOTH_RIGHT,
    ),
    must_hit(
        "the time of a file changes (__TIMESTAMP__)",
        touch("r/a.h", 1_600_000_000),
        files={"r/a.h": "#define T __TIMESTAMP__\n"},
        roots=("r=r",),
        source="#include <a.h>\n" + CLOCK.replace("MACRO", "T"),
        compilers=NVCC,
    ),
    must_hit(
        "cuda_runtime.h appears in the working folder",
        both(write("elsewhere/cuda_runtime.h", "#error\n"), in_process(_working_folder)),
        **PLAIN,
        ccache="WRONG",
        sccache="not tried",
    ),
    must_hit("cuda_runtime.h appears beside the source", write("cuda_runtime.h", "#error\n"), **PLAIN, file="k.cu"),
    must_hit(
        "family, name and labels are others", asks(more={"family": "f", "name": "n", "labels": {"a": "b"}}), **PLAIN
    ),
    must_hit(
        "the entries come in another order, one twice",
        asks(more={"entries": ["b", "a", "b"]}),
        source='extern "C" __global__ void a() {}\nextern "C" __global__ void b() {}\n',
        more={"entries": ["a", "b"]},
    ),
    must_hit("a gate is set", asks(more={"check_no_spills": True}), **PLAIN, compilers=NVCC),
    must_hit(
        "the memo is deleted", lambda bench: shutil.rmtree(bench.store_folder / "memo", ignore_errors=True), **PLAIN
    ),
    must_hit(
        "all that the store knows of tools is deleted",
        lambda bench: shutil.rmtree(bench.store_folder / "tools"),
        **PLAIN,
    ),
    must_hit("the target is written with its vendor", asks(arch="cuda:sm_90a"), **PLAIN),
    must_hit("-lineinfo is given, and another working folder asks", in_process(_working_folder), **LINEINFO),
    must_hit(
        "-lineinfo is given, and a header that is not read is touched",
        touch("r/b.h", 1_500_000_000),
        **{**LINEINFO, "files": {**LINEINFO["files"], "r/b.h": ""}},
    ),
    must_hit(
        "-lineinfo is given for a source in memory, and another working folder asks",
        in_process(_working_folder),
        source=LINES + "__global__ void k(int* p) { *p = twice(*p); }\n",
        options=("-lineinfo",),
    ),
    must_hit(
        "-lineinfo is given for a source in a folder with blanks, and another working folder asks",
        in_process(_working_folder),
        files={"a b/k.cu": LINES + "__global__ void k(int* p) { *p = twice(*p); }\n"},
        file="a b/k.cu",
        options=("-lineinfo",),
    ),
    must_hit(
        "-G is given, and another working folder asks",
        in_process(_working_folder),
        **{**LINEINFO, "options": ("-G",)},
        compilers=NVRTC,
    ),
    must_hit(
        "-lineinfo is given to make PTX, and another working folder asks",
        in_process(_working_folder),
        **LINEINFO,
        kind="ptx",
    ),
    must_hit("a -D is spelled in two words", spells("-D", "V=1"), source=KERNEL, options=("-DV=1",)),
    must_hit("a -D is spelled out", spells("--define-macro=V=1"), source=KERNEL, options=("-DV=1",)),
    must_hit(
        "-use_fast_math is spelled with two dashes", spells("--use_fast_math"), source=SINE, options=("-use_fast_math",)
    ),
    must_hit(
        "-maxrregcount is spelled in two words",
        spells("--maxrregcount", "32"),
        source=SINE,
        options=("-maxrregcount=32",),
    ),
    must_hit("-Xptxas is spelled out", spells("--ptxas-options=-O1"), source=SINE, options=("-Xptxas", "-O1")),
    must_hit(
        "options of two groups are swapped",
        spells("-DV=1", "-fmad=false"),
        source=KERNEL,
        options=("-fmad=false", "-DV=1"),
    ),
    must_hit("an option is given twice", spells("-fmad=false", "-fmad=false"), source=SINE, options=("-fmad=false",)),
    must_hit(
        "an option is given, then its opposite",
        spells("-fmad=true", "-fmad=false"),
        source=SINE,
        options=("-fmad=false",),
        compilers=NVCC,
    ),
    must_hit("a macro is defined twice the same", spells("-DV=1", "-DV=1"), source=KERNEL, options=("-DV=1",)),
    must_hit("-arch repeats the target", spells("-arch=sm_90a"), source=v(1) + KERNEL),
    must_hit(
        "-gencode says what the target says",
        spells("-gencode", "arch=compute_90a,code=sm_90a"),
        source=v(1) + KERNEL,
        compilers=NVCC,
        ccache="right",
        sccache="right",
    ),
    must_hit(
        "-gencode is spelled out, in another order",
        spells("--generate-code=code=sm_90a,arch=compute_90a"),
        source=v(1) + KERNEL,
        options=("-gencode", "arch=compute_90a,code=sm_90a"),
        compilers=NVCC,
    ),
    must_hit(
        "an -I is given relative instead of absolute",
        spells("-Ir"),
        **{**PLAIN, "roots": (), "options": ("-I", "{folder}/r")},
    ),
    must_hit(
        "an -I is given with a detour",
        spells("-I{folder}/./r//"),
        **{**PLAIN, "roots": (), "options": ("-I", "{folder}/r")},
    ),
    must_hit(
        "an -I is given relative, from another folder",
        both(move("r", "x/r"), asks(more={"folder": "{folder}/x"})),
        **{**PLAIN, "roots": (), "options": ("-I", "r")},
    ),
    must_hit(
        "two -I come in one list",
        spells("-I{folder}/r,{folder}/q"),
        **{**PLAIN, "roots": (), "options": ("-I", "r", "-I", "q")},
        compilers=NVCC,
    ),
    must_hit(
        "options come from an options file instead",
        spells("-optf", "o.txt"),
        **{**PLAIN, "files": {**PLAIN["files"], "o.txt": "-I r\n-DX=1"}, "roots": (), "options": ("-Ir", "-DX=1")},
        compilers=NVCC,
    ),
    must_hit(
        "an option comes from NVCC_APPEND_FLAGS instead",
        both(sets(NVCC_APPEND_FLAGS="-fmad=false"), spells()),
        source=SINE,
        options=("-fmad=false",),
        compilers=NVCC,
    ),
    must_hit(
        "the number of threads is another", spells("-t4"), **{**PLAIN, "options": ("--threads", "1")}, compilers=NVCC
    ),
    must_hit(
        "flags for talking and keeping are given",
        spells("-v", "--keep", "--keep-dir", "x", "-time", "t.csv", "-MD", "-o", "y"),
        **PLAIN,
        compilers=NVCC,
    ),
    must_hit(
        "flags for talking and caching are given", spells("--no-cache", "-time=t.csv", "-pch"), **PLAIN, compilers=NVRTC
    ),
    must_hit("libraries to link with are given", spells("-lcudart", "-L/x", "-Xlinker", "-z"), **PLAIN, compilers=NVCC),
    must_hit("the output is named as an option, too", spells("-cubin", "-c"), **PLAIN, compilers=NVCC),
    must_hit(
        "nvcc is found by CUDA_HOME",
        lambda bench: bench.environ.update(CUDA_HOME=str(toolkit())),
        **PLAIN,
        compilers=NVCC,
    ),
    must_hit(
        "nvcc is found by CUBINET_NVCC",
        lambda bench: bench.environ.update(CUBINET_NVCC=str(toolkit() / "bin/nvcc")),
        **PLAIN,
        compilers=NVCC,
    ),
    must_hit(
        "nvcc is a script that calls it",
        both(calls("nvcc", lambda: toolkit() / "bin/nvcc"), sets(CUBINET_NVCC="{folder}/nvcc")),
        **PLAIN,
        compilers=NVCC,
    ),
    must_hit(
        "the toolkit is at another place",
        both(kit("my kit"), sets(CUBINET_NVCC="{folder}/my kit/bin/nvcc")),
        **NAMED,
        compilers=NVCC,
    ),
    must_hit(
        "the host compiler is named by NVCC_CCBIN",
        lambda bench: bench.environ.update(NVCC_CCBIN=str(shutil.which("gcc"))),
        **PLAIN,
        compilers=NVCC,
    ),
    must_hit(
        "the host compiler is named by a folder",
        named_by_folder,
        **PLAIN,
        compilers=NVCC,
    ),
    must_hit("another variant was compiled in between", Bench.compile_other, **PLAIN),
    must_hit(
        "headers in memory are given in another order",
        asks(more={"headers": {"b.h": "", "a.h": v(1)}}),
        more={"headers": {"a.h": v(1), "b.h": ""}},
        **MEMORY,
    ),
)
