"""Probes of changes that must never lead to a wrong result."""

from __future__ import annotations

import time
from typing import Any

from .bench import Change, Effect, Probe
from .changes import (
    BOTH_RIGHT,
    CCACHE_WRONG,
    CLOCK,
    FALLBACK,
    FROM,
    GCC,
    HALVES,
    IN_FRONT,
    KERNEL,
    LINEINFO,
    LINES,
    MEMORY,
    NVCC,
    NVRTC,
    SINE,
    TOOLKIT,
    above_private_folders,
    asks,
    both,
    calls,
    changes,
    copy,
    edit_profile,
    grow,
    hard_link,
    in_a_window,
    include_absolutely,
    kit,
    link,
    may_miss,
    no_embed,
    no_shared_memory,
    other_front_end,
    other_nvcc,
    own_front_end,
    own_gcc,
    own_headers,
    pause,
    program,
    put_ptxas,
    remove,
    same_size_same_time,
    sets,
    shared_memory,
    specs,
    toolkit,
    touch,
    two_releases,
    v,
    while_compiling,
    without_tools,
    write,
)
from .must_hit import MUST_HIT

__all__ = ["PROBES"]

ONE: dict[str, Any] = {"files": {"r/a.h": v(1)}, "roots": ("r=r",), "source": "#include <a.h>\n" + KERNEL}
TWO: dict[str, Any] = {
    "files": {"early/keep.h": "", "late/a.h": v(1)},
    "roots": ("e=early", "l=late"),
    "source": "#include <a.h>\n" + KERNEL,
}
QUOTED: dict[str, Any] = {**TWO, "source": '#include "a.h"\n' + KERNEL}
ASKING: dict[str, Any] = {
    "roots": ("r=r",),
    "source": "#if __has_include(<a.h>)\n#include <a.h>\n" + FALLBACK + KERNEL,
}

EDITS = (
    changes(
        "the source is edited while it is compiled",
        lambda _: None,
        first=while_compiling(write("k.cu", v(2) + KERNEL)),
        files={"k.cu": v(1) + KERNEL},
        file="k.cu",
    ),
    changes(
        "a header is edited within the refresh interval, and put back",
        write("r/a.h", v(1)),
        first=in_a_window(write("r/a.h", v(2))),
        **ONE,
    ),
    changes(
        "the folder of the source is a link that is re-pointed",
        link("s", "two"),
        prepare=link("s", "one"),
        files={
            f"{name}/{file}": text
            for name, n in (("one", 1), ("two", 2))
            for file, text in (("k.cu", '#include "a.h"\n' + KERNEL), ("a.h", v(n)))
        },
        file="s/k.cu",
    ),
    changes("a header that was read is edited", write("r/a.h", v(2)), **ONE, **BOTH_RIGHT),
    changes(
        "a header of a header is edited",
        write("r/lib/b.h", v(2)),
        files={"r/a.h": '#include "lib/b.h"\n', "r/lib/b.h": v(1)},
        roots=("r=r",),
        source="#include <a.h>\n" + KERNEL,
    ),
    changes(
        "a header is edited to the same size and its time is put back",
        same_size_same_time("r/a.h", v(2)),
        **ONE,
        **BOTH_RIGHT,
    ),
    changes("a header is edited right after it was written", write("r/a.h", v(2)), **ONE, aged=False),
    changes(
        "a header is edited while it is compiled", lambda _: None, first=while_compiling(write("r/a.h", v(2))), **ONE
    ),
    changes(
        "a header is edited and put back while it is compiled",
        lambda _: None,
        first=while_compiling(both(write("r/a.h", v(2)), pause(0.1), write("r/a.h", v(1))), 0.02),
        **ONE,
    ),
    changes(
        "a header appears in front while it is compiled",
        lambda _: None,
        first=while_compiling(write("early/a.h", v(2))),
        **TWO,
    ),
    changes(
        "a header is emptied",
        write("r/a.h", ""),
        **{**ONE, "source": "#include <a.h>\n#ifndef V\n#define V 2\n#endif\n" + KERNEL},
    ),
    changes(
        "a header gets one more line, which only __LINE__ shows",
        write("r/a.h", "\n__device__ int line() { return __LINE__; }\n"),
        files={"r/a.h": "__device__ int line() { return __LINE__; }\n"},
        roots=("r=r",),
        source="#include <a.h>\n__global__ void k(int* p) { *p = line(); }\n",
    ),
    changes("the source is edited", write("k.cu", v(2) + KERNEL), files={"k.cu": v(1) + KERNEL}, file="k.cu"),
    changes(
        "a header beside the source is edited",
        write("s/a.h", v(2)),
        files={"s/k.cu": '#include "a.h"\n' + KERNEL, "s/a.h": v(1)},
        file="s/k.cu",
    ),
    changes(
        "a header in the folder above the source is edited",
        write("up/a.h", v(2)),
        files={"s/k.cu": '#include "../up/a.h"\n' + KERNEL, "up/a.h": v(1)},
        file="s/k.cu",
    ),
    changes(
        "a header is deleted and one of that name in a later root takes its place",
        remove("early/a.h"),
        **{**TWO, "files": {"early/a.h": v(2), "late/a.h": v(1)}},
    ),
    changes(
        "a header is replaced by a folder, and a later root has one",
        both(remove("early/a.h"), write("early/a.h/x", "")),
        **{**TWO, "files": {"early/a.h": v(2), "late/a.h": v(1)}},
    ),
    changes(
        "a header is replaced by a link to another file",
        link("r/a.h", "../other.h"),
        **{**ONE, "files": {"r/a.h": v(1), "other.h": v(2)}},
    ),
    changes(
        "a header is replaced by a link to nowhere, and a later root has one",
        link("early/a.h", "nowhere"),
        **{**TWO, "files": {"early/a.h": v(2), "late/a.h": v(1)}},
    ),
    changes("a header is deleted, and nothing takes its place", remove("r/a.h"), **ONE),
    changes(
        "a link that is a header is re-pointed",
        link("r/a.h", "../two.h"),
        prepare=link("r/a.h", "../one.h"),
        **{**ONE, "files": {"one.h": v(1), "two.h": v(2)}},
    ),
    changes(
        "the file that a linked header points to is edited",
        write("one.h", v(2)),
        prepare=link("r/a.h", "../one.h"),
        **{**ONE, "files": {"one.h": v(1)}},
    ),
    changes(
        "a folder on the way to a header is a link that is re-pointed",
        link("r/lib", "../two"),
        prepare=link("r/lib", "../one"),
        files={"one/a.h": v(1), "two/a.h": v(2)},
        roots=("r=r",),
        source="#include <lib/a.h>\n" + KERNEL,
    ),
    changes(
        "a root that is a link is re-pointed",
        link("r", "two"),
        prepare=link("r", "one"),
        files={"one/a.h": v(1), "two/a.h": v(2)},
        roots=("r=r",),
        source="#include <a.h>\n" + KERNEL,
    ),
    changes(
        "a root has another place, with another header",
        asks(roots=("r=other",)),
        **{**ONE, "files": {"r/a.h": v(1), "other/a.h": v(2)}},
    ),
)

SHADOWS = (
    changes("a header appears in an earlier root", write("early/a.h", v(2)), **TWO, **CCACHE_WRONG),
    changes(
        "a header in an earlier root goes away",
        remove("early/a.h"),
        **{**TWO, "files": {"early/a.h": v(2), "late/a.h": v(1)}},
    ),
    changes(
        "a folder with a header appears in an earlier root",
        write("early/lib/a.h", v(2)),
        **{**TWO, "files": {"early/keep.h": "", "late/lib/a.h": v(1)}, "source": "#include <lib/a.h>\n" + KERNEL},
    ),
    changes("an earlier root appears", write("early/a.h", v(2)), **{**TWO, "files": {"late/a.h": v(1)}}, **BOTH_RIGHT),
    changes(
        "an earlier root deep in folders that do not exist appears",
        write("x/y/z/a.h", v(2)),
        **{**TWO, "files": {"late/a.h": v(1)}, "roots": ("e=x/y/z", "l=late")},
    ),
    changes(
        "an earlier root that was a file becomes a folder",
        both(remove("early"), write("early/a.h", v(2))),
        **{**TWO, "files": {"early": "", "late/a.h": v(1)}},
    ),
    changes(
        "a quoted header appears beside the source",
        write("a.h", v(2)),
        **{**QUOTED, "files": {**QUOTED["files"], "k.cu": QUOTED["source"]}, "source": "", "file": "k.cu"},
        **CCACHE_WRONG,
    ),
    changes(
        "a quoted header appears in the folder of a source in memory",
        write("s/a.h", v(2)),
        **QUOTED,
        more={"source_folder": "{folder}/s"},
    ),
    changes(
        "a header appears beside the header that includes it",
        write("late/lib/a.h", v(2)),
        files={"late/lib/b.h": '#include "a.h"\n', "late/a.h": v(1)},
        roots=("l=late",),
        source="#include <lib/b.h>\n" + KERNEL,
    ),
    changes(
        "a header appears in a folder reached through a link",
        write("real/a.h", v(2)),
        prepare=both(write("real/keep.h", ""), link("early", "real")),
        **{**TWO, "files": {"late/a.h": v(1)}},
    ),
    changes(
        "a link to a folder with the header appears in an earlier root",
        link("early/lib", "../real"),
        **{
            **TWO,
            "files": {"early/keep.h": "", "real/a.h": v(2), "late/lib/a.h": v(1)},
            "source": "#include <lib/a.h>\n" + KERNEL,
        },
    ),
    changes(
        "the end of a dangling link appears",
        write("end/a.h", v(2)),
        prepare=both(write("end/keep.h", ""), link("early/a.h", "../end/a.h")),
        **TWO,
    ),
    changes(
        "a chain of dangling links is re-pointed in its middle",
        link("middle/a.h", "../end/a.h"),
        prepare=both(
            write("end/a.h", v(2)),
            write("nowhere/keep.h", ""),
            link("middle/a.h", "../nowhere/a.h"),
            link("early/a.h", "../middle/a.h"),
        ),
        **TWO,
    ),
    changes(
        "a root is a chain of dangling links that is re-pointed in its middle",
        link("middle/early", "../end"),
        prepare=both(
            write("end/a.h", v(2)),
            write("nowhere/keep.h", ""),
            link("middle/early", "../nowhere/x"),
            link("links/early", "../middle/early"),
        ),
        **{**TWO, "files": {"late/a.h": v(1)}, "roots": ("e=links/early", "l=late")},
    ),
    changes(
        "a toolkit header is shadowed by a root",
        write("r/cuda_fp16.h", v(2)),
        files={"r/keep.h": ""},
        roots=("r=r",),
        source="#include <cuda_fp16.h>\n#ifndef V\n#define V 1\n#endif\n" + KERNEL,
        compilers=NVCC,
    ),
    changes(
        "a header of the host compiler is shadowed by a root",
        write("r/climits", v(2)),
        files={"r/keep.h": ""},
        roots=("r=r",),
        source="#include <climits>\n#ifndef V\n#define V 1\n#endif\n" + KERNEL,
        compilers=NVCC,
    ),
    changes(
        "cuda_runtime.h appears in the folder of a source in memory",
        write("s/cuda_runtime.h", v(2)),
        source="#ifndef V\n#define V 1\n#endif\n#if V == 1\n" + KERNEL + "#endif\n",
        files={"s/keep.h": ""},
        more={"source_folder": "{folder}/s"},
        compilers=NVCC,
    ),
)

QUESTIONS = (
    changes(
        "the target of a __has_include appears",
        write("r/a.h", v(2)),
        **{**ASKING, "files": {"r/keep.h": ""}},
        **CCACHE_WRONG,
    ),
    changes(
        "the target of a __has_include disappears",
        remove("r/a.h"),
        **{**ASKING, "files": {"r/a.h": v(2)}},
        **CCACHE_WRONG,
    ),
    changes(
        "the target of a quoted __has_include appears beside a header",
        write("r/lib/a.h", ""),
        files={"r/lib/b.h": '#if __has_include("a.h")\n#define V 2\n' + FALLBACK},
        roots=("r=r",),
        source="#include <lib/b.h>\n" + KERNEL,
    ),
    changes(
        "the target of a __has_include that is only asked for becomes a folder",
        both(remove("r/a.h"), write("r/a.h/x", "")),
        files={"r/a.h": ""},
        roots=("r=r",),
        source="#if __has_include(<a.h>)\n#define V 2\n" + FALLBACK + KERNEL,
    ),
    changes(
        "the target of a __has_include_next appears",
        write("late/a.h", v(2)),
        files={"early/a.h": "#if __has_include_next(<a.h>)\n#include_next <a.h>\n" + FALLBACK, "late/keep.h": ""},
        roots=("e=early", "l=late"),
        source="#include <a.h>\n" + KERNEL,
        compilers=NVCC,
    ),
    changes(
        "another header takes the place of an #include_next",
        write("middle/a.h", v(2)),
        files={"early/a.h": "#include_next <a.h>\n", "middle/keep.h": "", "late/a.h": v(1)},
        roots=("e=early", "m=middle", "l=late"),
        source="#include <a.h>\n" + KERNEL,
    ),
    changes(
        "a header included by a macro is edited",
        write("r/a.h", v(2)),
        **{**ONE, "source": "#define H <a.h>\n#include H\n" + KERNEL},
        **BOTH_RIGHT,
    ),
    changes(
        "a header chosen by a macro of another header changes",
        write("r/which.h", "#define H <b.h>\n"),
        files={"r/which.h": "#define H <a.h>\n", "r/a.h": v(1), "r/b.h": v(2)},
        roots=("r=r",),
        source="#include <which.h>\n#include H\n" + KERNEL,
    ),
    changes(
        "a header named in -D is edited",
        write("r/a.h", v(2)),
        **{**ONE, "source": "#include H\n" + KERNEL, "options": ('-DH="a.h"',)},
        compilers=NVRTC,
    ),
    changes(
        "the file of an #embed is edited",
        write("r/a.bin", "2"),
        files={"r/a.bin": "1"},
        roots=("r=r",),
        source="#if !__has_embed(<a.bin>)\n#error no embed\n#endif\n"
        "__device__ const unsigned char data[] = {\n#embed <a.bin>\n};\n"
        "__global__ void k(int* p) { *p = data[*p]; }\n",
        compilers=NVCC,
        needs=no_embed,
    ),
)


def _named(what: str, name: str, **rest: Any) -> tuple[Probe, ...]:
    """A header and a folder of some name: in each, an edit has to be seen."""
    return (
        changes(
            f"a header with {what} in its name and its folder's is edited",
            write(f"r/{name}/{name}.h", v(2)),
            files={f"r/{name}/{name}.h": v(1)},
            roots=("r=r",),
            source=f"#include <{name}/{name}.h>\n" + KERNEL,
            **rest,
        ),
        changes(
            f"a header appears in a root with {what} in its path",
            write(f"{name}/a.h", v(2)),
            **{**TWO, "files": {f"{name}/keep.h": "", "late/a.h": v(1)}, "roots": (f"e={name}", "l=late")},
        ),
    )


NAMES = (
    *_named("blanks", "a b  c"),
    *_named("# and %", "a#b%20%0A"),
    *_named("$ and quotes", "a$HOME'b"),
    *_named("letters beyond ASCII", "ä漢🙂"),
    *_named("250 characters", "n" * 248),
    *_named("a backslash and other signs", "a\\b,c=d:e;f&g~@*?![0](1)+"),
    changes(
        "a header appears in a root with a line end in its path",
        write("a\nb/a.h", v(2)),
        **{**TWO, "files": {"a\nb/keep.h": "", "late/a.h": v(1)}, "roots": ("e=a\nb", "l=late")},
    ),
    changes(
        "a header appears in a root whose path is no UTF-8",
        write("a\udcffb/a.h", v(2)),
        **{**TWO, "files": {"a\udcffb/keep.h": "", "late/a.h": v(1)}, "roots": ("e=a\udcffb", "l=late")},
    ),
    changes(
        "a header appears in a root named in an option with blanks",
        write("a b/a.h", v(2)),
        **{
            **TWO,
            "files": {"a b/keep.h": "", "late/a.h": v(1)},
            "roots": (),
            "options": ("-I", "{folder}/a b", "-I{folder}/late"),
        },
        **BOTH_RIGHT,
    ),
)

WAYS: dict[str, Any] = {"files": {"one/a.h": v(1), "two/a.h": v(2)}, "source": "#include <a.h>\n" + KERNEL}
SPECIAL = "#ifdef __CUDA_ARCH_FEAT_SM90_ALL\n#include <a.h>\n" + FALLBACK + KERNEL
SECOND = "#if __CUDA_ARCH__ == 900\n#include <a.h>\n" + FALLBACK + KERNEL
TWO_ARCHS = ("-gencode", "arch=compute_80,code=sm_80", "-gencode", "arch=compute_90,code=sm_90")
MACRO = "#ifndef V\n#define V 1\n#endif\n" + KERNEL

OPTIONS = (
    changes(
        "the order of two -I is swapped",
        asks(options=("-I", "two", "-I", "one")),
        **WAYS,
        options=("-I", "one", "-I", "two"),
    ),
    changes(
        "an -I becomes -isystem, and so comes later",
        asks(options=("-isystem", "one", "-I", "two")),
        **WAYS,
        options=("-I", "one", "-I", "two"),
        compilers=NVCC,
    ),
    changes("the order of two roots is swapped", asks(roots=("b=two", "a=one")), **WAYS, roots=("a=one", "b=two")),
    changes(
        "a root becomes one for quoted includes only",
        asks(roots=("quote:a=one", "b=two")),
        **WAYS,
        roots=("a=one", "b=two"),
        compilers=NVCC,
    ),
    changes("a -D gets another value", asks(options=("-DV=2",)), source=MACRO, options=("-DV=1",), **BOTH_RIGHT),
    changes("a -D is left out", asks(options=()), source=MACRO, options=("-DV=2",)),
    changes(
        "the order of two -D of one name is swapped",
        asks(options=("-DV=2", "-DV=1")),
        source=MACRO,
        options=("-DV=1", "-DV=2"),
        compilers=NVCC,
    ),
    changes(
        "a -U comes behind a -D instead of in front",
        asks(options=("-DV=2", "-UV")),
        source=MACRO,
        options=("-UV", "-DV=2"),
        compilers=NVCC,
    ),
    changes(
        "sm_90 becomes sm_90a",
        asks(arch="sm_90a"),
        source="#ifdef __CUDA_ARCH_FEAT_SM90_ALL\n#define V 2\n" + FALLBACK + KERNEL,
        arch="sm_90",
    ),
    changes(
        "a header under __CUDA_ARCH_FEAT_SM90_ALL is edited",
        write("r/a.h", v(3)),
        files={"r/a.h": v(2)},
        roots=("r=r",),
        source=SPECIAL,
        **CCACHE_WRONG,
    ),
    changes(
        "the source is edited under __CUDA_ARCH_FEAT_SM90_ALL",
        asks(source=SPECIAL.replace("<a.h>", "<b.h>")),
        files={"r/a.h": v(2), "r/b.h": v(3)},
        roots=("r=r",),
        source=SPECIAL,
        **CCACHE_WRONG,
    ),
    changes(
        "a header that only the second of two architectures reads is edited",
        write("r/a.h", v(3)),
        files={"r/a.h": v(2)},
        roots=("r=r",),
        source=SECOND,
        kind="fatbin",
        options=TWO_ARCHS,
        arch="sm_90",
        compilers=NVCC,
        ccache="WRONG",
        sccache="fails at random",
    ),
    changes(
        "the source is edited where only the second of two architectures looks",
        asks(source=SECOND.replace("<a.h>", "<b.h>")),
        files={"r/a.h": v(2), "r/b.h": v(3)},
        roots=("r=r",),
        source=SECOND,
        kind="fatbin",
        options=TWO_ARCHS,
        arch="sm_90",
        compilers=NVCC,
        ccache="WRONG",
        sccache="fails at random",
    ),
    changes(
        "a fatbin gets a second architecture",
        asks(options=TWO_ARCHS),
        source=v(1) + KERNEL,
        kind="fatbin",
        options=TWO_ARCHS[2:],
        arch="sm_90",
        compilers=NVCC,
    ),
    may_miss(
        "a header for the host only is edited",
        write("r/a.h", "#define HOST 2\n"),
        files={"r/a.h": "#define HOST 1\n"},
        roots=("r=r",),
        source="#ifndef __CUDA_ARCH__\n#include <a.h>\n#endif\n" + v(1) + KERNEL,
    ),
    may_miss(
        "the source is edited under #ifndef __CUDA_ARCH__",
        asks(source="#ifndef __CUDA_ARCH__\nint host = 2;\n#endif\n" + v(1) + KERNEL),
        source="#ifndef __CUDA_ARCH__\nint host = 1;\n#endif\n" + v(1) + KERNEL,
    ),
    changes(
        "-rdc=true is added",
        asks(options=("-rdc=true",)),
        source="__device__ int g; __device__ int f(int); __device__ __noinline__ int f(int x) { return x + g; }\n"
        "__global__ void k(int* p) { *p = f(*p); }\n",
        **BOTH_RIGHT,
    ),
    changes(
        "-c becomes -dc",
        asks(options=("-cubin", "-dc")),
        source=v(1) + KERNEL,
        options=("-cubin", "-c"),
        compilers=NVCC,
        **CCACHE_WRONG,
    ),
    changes("-Xptxas -O0 is added", asks(options=("-Xptxas", "-O0")), source=SINE, **BOTH_RIGHT),
    changes(
        "two -Xptxas -O are swapped",
        asks(options=("-Xptxas=-O3", "-Xptxas=-O0")),
        source=SINE,
        options=("-Xptxas=-O0", "-Xptxas=-O3"),
        compilers=NVCC,
    ),
    changes("-fmad=false is added", asks(options=("-fmad=false",)), source=SINE, **BOTH_RIGHT),
    changes("-use_fast_math is added", asks(options=("-use_fast_math",)), source=SINE),
    changes("-maxrregcount is added", asks(options=("-maxrregcount=16",)), source=SINE),
    changes("-w is added", asks(options=("-w",)), source=SINE),
    changes(
        "-std=c++20 is added",
        asks(options=("-std=c++20",)),
        source="#if __cplusplus > 201800\n#define V 2\n" + FALLBACK + KERNEL,
    ),
    changes(
        "--split-compile gets another number",
        asks(options=("--split-compile=2",)),
        source="".join(f"__global__ void k{i}(float* p) {{ *p = sinf(*p) + {i}; }}\n" for i in range(4)),
        options=("--split-compile=1",),
    ),
    changes("a cubin becomes PTX", asks(kind="ptx"), source=v(1) + KERNEL),
    changes(
        "an option of the host compiler is added", asks(options=("-Xcompiler", "-DV=2")), source=MACRO, compilers=NVCC
    ),
    changes(
        "a file that an option of the host compiler includes is edited",
        write("p.h", v(3)),
        files={"p.h": v(2)},
        source=MACRO,
        options=("-Xcompiler", "-include,{folder}/p.h"),
        compilers=NVCC,
    ),
    changes(
        "the content of an --options-file changes a macro",
        write("o.txt", "-DV=2"),
        files={"o.txt": "-DV=1"},
        source=MACRO,
        options=("--options-file=o.txt",),
        compilers=NVCC,
        **CCACHE_WRONG,
    ),
    changes(
        "the content of an --options-file changes code generation",
        write("o.txt", "-fmad=false"),
        files={"o.txt": "-fmad=true"},
        source=SINE,
        options=("--options-file=o.txt",),
        compilers=NVCC,
        **CCACHE_WRONG,
    ),
    changes(
        "the content of an options file, given as -optf f, changes",
        write("o.txt", "-DV=2"),
        files={"o.txt": "-DV=1"},
        source=MACRO,
        options=("-optf", "o.txt"),
        compilers=NVCC,
        ccache="right",
    ),
    changes(
        "an options file that an options file names changes",
        write("o/p.txt", "-DV=2"),
        files={"o.txt": "-optf o/p.txt", "o/p.txt": "-DV=1"},
        source=MACRO,
        options=("-optf", "o.txt"),
        compilers=NVCC,
    ),
    changes(
        "NVCC_PREPEND_FLAGS gets a -D", sets(NVCC_PREPEND_FLAGS="-DV=2"), source=MACRO, compilers=NVCC, **CCACHE_WRONG
    ),
    changes(
        "NVCC_APPEND_FLAGS gets a -D", sets(NVCC_APPEND_FLAGS="-DV=2"), source=MACRO, compilers=NVCC, **CCACHE_WRONG
    ),
    changes(
        "NVCC_APPEND_FLAGS gets -fmad=false",
        sets(NVCC_APPEND_FLAGS="-fmad=false"),
        source=SINE,
        compilers=NVCC,
        **CCACHE_WRONG,
    ),
    changes(
        "a -D moves from NVCC_PREPEND_FLAGS to NVCC_APPEND_FLAGS",
        sets(NVCC_PREPEND_FLAGS="", NVCC_APPEND_FLAGS="-DV=2"),
        source=MACRO,
        options=("-DV=1",),
        environ={"NVCC_PREPEND_FLAGS": "-DV=2"},
        compilers=NVCC,
    ),
    changes(
        "a header in a folder of NVCC_APPEND_FLAGS is edited",
        write("r/a.h", v(2)),
        files={"r/a.h": v(1)},
        source="#include <a.h>\n" + KERNEL,
        environ={"NVCC_APPEND_FLAGS": "-I{folder}/r"},
        compilers=NVCC,
    ),
    changes(
        "an options file named in NVCC_APPEND_FLAGS changes",
        write("o.txt", "-DV=2"),
        files={"o.txt": "-DV=1"},
        source=MACRO,
        environ={"NVCC_APPEND_FLAGS": "--options-file {folder}/o.txt"},
        compilers=NVCC,
    ),
    changes(
        "a file of -include is edited",
        write("p.h", v(2)),
        files={"p.h": v(1)},
        source=KERNEL,
        options=("-include", "{folder}/p.h"),
    ),
    changes(
        "a file of a relative -include appears in front of one in a root",
        write("p.h", v(2)),
        files={"r/p.h": v(1)},
        roots=("r=r",),
        source=KERNEL,
        options=("-include", "p.h"),
        compilers=NVCC,
    ),
    changes(
        "another file of -include is asked for",
        asks(options=("-include", "q.h")),
        files={"p.h": v(1), "q.h": v(2)},
        source=KERNEL,
        options=("-include", "p.h"),
        compilers=NVCC,
    ),
    changes(
        "a file of -include above the folder of a compile is edited",
        above_private_folders(v(2)),
        prepare=above_private_folders(v(1)),
        source=KERNEL,
        options=("-include", "../{above}"),
    ),
    changes(
        "CPATH appears",
        sets(CPATH="{folder}/r"),
        **{**ASKING, "files": {"r/a.h": v(2)}, "roots": ()},
        compilers=NVCC,
        **BOTH_RIGHT,
    ),
    changes(
        "a header in a folder of CPATH is edited",
        write("r/a.h", v(2)),
        **{**ONE, "roots": ()},
        environ={"CPATH": "{folder}/r"},
        compilers=NVCC,
    ),
    changes(
        "the order of two folders in CPATH is swapped",
        sets(CPATH="{folder}/two:{folder}/one"),
        **WAYS,
        environ={"CPATH": "{folder}/one:{folder}/two"},
        compilers=NVCC,
    ),
    changes(
        "CPATH changes from a folder the host compiler searches anyway",
        sets(CPATH="{folder}/r"),
        **{**ASKING, "files": {"r/a.h": v(2)}, "roots": ()},
        environ={"CPATH": "/usr/local/include"},
        compilers=NVCC,
    ),
    changes(
        "a name expression is added",
        asks(more={"entries": ["k<int>", "k<float>"]}),
        source="template <class T> __global__ void k(T* p) { *p = 1; }\n",
        more={"entries": ["k<int>"]},
        compilers=NVRTC,
    ),
    changes(
        "the source gets another name, which __FILE__ shows",
        asks(more={"source_name": "other.cu"}),
        source="__device__ const char name[] = __FILE__;\n__global__ void k(int* p) { *p = name[*p]; }\n",
    ),
)

IN_MEMORY = (
    changes(
        "a header in memory has another text",
        asks(more={"headers": {"a.h": v(2)}}),
        more={"headers": {"a.h": v(1)}},
        **MEMORY,
    ),
    changes(
        "a header in memory comes before one in a root",
        asks(more={"headers": {"a.h": v(2)}}),
        files={"r/a.h": v(1)},
        roots=("r=r",),
        **MEMORY,
    ),
    changes(
        "a header in a root that one in memory includes is edited",
        write("r/b.h", v(2)),
        files={"r/b.h": v(1)},
        roots=("r=r",),
        more={"headers": {"a.h": "#include <b.h>\n"}},
        **MEMORY,
    ),
    changes(
        "a header appears in a root that one in memory asks for",
        write("r/b.h", v(2)),
        files={"r/keep.h": ""},
        roots=("r=r",),
        more={"headers": {"a.h": "#if __has_include(<b.h>)\n#include <b.h>\n" + FALLBACK}},
        **MEMORY,
    ),
)

CC: dict[str, Any] = {"source": MACRO, "own_tools": True, "compilers": NVCC}
TOOLS = (
    changes(
        "a specs file of the host compiler appears", specs, prepare=own_front_end, environ={"PATH": IN_FRONT}, **CC
    ),
    changes(
        "a ptxas appears in front of that of the toolkit",
        put_ptxas("t", folder="nvvm/bin"),
        prepare=kit("t"),
        source=SINE,
        needs=two_releases,
        **TOOLKIT,
    ),
    changes(
        "what the store knows of tools is deleted under a running process, and a header of what it compiles is edited",
        write("r/a.h", v(2)),
        first=without_tools,
        **ONE,
    ),
    changes(
        "ptxas is replaced",
        put_ptxas("t"),
        prepare=kit("t", "bin/ptxas"),
        source=SINE,
        needs=two_releases,
        **TOOLKIT,
        **CCACHE_WRONG,
    ),
    changes(
        "ptxas is a link that is re-pointed",
        put_ptxas("t", linked=True),
        prepare=kit("t"),
        source=SINE,
        needs=two_releases,
        **TOOLKIT,
    ),
    changes(
        "ptxas is replaced during a compile and put back",
        put_ptxas("t", back=True),
        prepare=kit("t", "bin/ptxas"),
        first=while_compiling(put_ptxas("t")),
        source=SINE,
        needs=two_releases,
        **TOOLKIT,
    ),
    changes(
        "ptxas is replaced within the refresh interval and put back",
        put_ptxas("t", back=True),
        prepare=kit("t", "bin/ptxas"),
        first=in_a_window(put_ptxas("t")),
        source=SINE,
        needs=two_releases,
        **TOOLKIT,
    ),
    may_miss(
        "ptxas gets another content with the same effect",
        grow("t/bin/ptxas"),
        prepare=kit("t", "bin/ptxas"),
        source=SINE,
        **TOOLKIT,
    ),
    changes(
        "cicc is replaced by one that fails",
        program("t/nvvm/bin/cicc", "#!/bin/sh\nexit 1\n"),
        prepare=kit("t", "nvvm/bin/cicc"),
        source=SINE,
        **TOOLKIT,
        **CCACHE_WRONG,
    ),
    changes(
        "cicc is a link that is re-pointed",
        both(program("bad", "#!/bin/sh\nexit 1\n"), link("t/nvvm/bin/cicc", "{folder}/bad")),
        prepare=kit("t"),
        source=SINE,
        **TOOLKIT,
    ),
    changes(
        "nvcc.profile gets a flag for ptxas",
        edit_profile("PTXAS_FLAGS     +=", "PTXAS_FLAGS     += -O0 "),
        prepare=kit("t"),
        source=SINE,
        **TOOLKIT,
        **CCACHE_WRONG,
    ),
    changes(
        "nvcc.profile gets a macro",
        edit_profile("INCLUDES        +=", "INCLUDES        += -DV=2 "),
        prepare=kit("t"),
        source=MACRO,
        **TOOLKIT,
    ),
    changes(
        "a toolkit header is edited",
        write("headers/cuda_fp16.h", v(2)),
        prepare=both(kit("t"), own_headers("t"), write("headers/cuda_fp16.h", v(1))),
        source="#include <cuda_fp16.h>\n" + KERNEL,
        **TOOLKIT,
    ),
    changes(
        "a header appears in the toolkit's folder",
        write("headers/a.h", v(2)),
        prepare=both(kit("t"), own_headers("t")),
        source=ASKING["source"],
        **TOOLKIT,
    ),
    changes(
        "a further folder of headers appears in the toolkit",
        write("headers/cccl/a.h", v(2)),
        prepare=both(kit("t"), own_headers("t")),
        source=ASKING["source"],
        **TOOLKIT,
    ),
    changes(
        "a header in one toolkit, included by its absolute name, is edited while another toolkit compiles",
        both(sets(CUBINET_NVCC="{folder}/u/bin/nvcc"), write("headers/a.h", v(2))),
        prepare=both(
            kit("u"),
            own_headers("u"),
            write("headers/a.h", v(1)),
            kit("t"),
            own_headers("t"),
            write("headers/a.h", v(1)),
            include_absolutely("t", "a.h"),
        ),
        **TOOLKIT,
    ),
    changes(
        "a header in one toolkit, named absolutely by a macro, is edited while another toolkit compiles",
        both(sets(CUBINET_NVCC="{folder}/u/bin/nvcc"), write("headers/a.h", v(2))),
        prepare=both(
            kit("u"),
            own_headers("u"),
            write("headers/a.h", v(1)),
            kit("t"),
            own_headers("t"),
            write("headers/a.h", v(1)),
            include_absolutely("t", "a.h", "#define H {path}\n#include H\n"),
        ),
        **TOOLKIT,
    ),
    changes(
        "a header in one toolkit, named absolutely by another header, is edited while another toolkit compiles",
        both(sets(CUBINET_NVCC="{folder}/u/bin/nvcc"), write("headers/a.h", v(2))),
        prepare=both(
            kit("u"),
            own_headers("u"),
            write("headers/a.h", v(1)),
            kit("t"),
            own_headers("t"),
            write("headers/a.h", v(1)),
            include_absolutely("t", "a.h", by="r/b.h"),
        ),
        roots=("r=r",),
        **TOOLKIT,
    ),
    changes(
        "-lineinfo is given, and the toolkit is at another place",
        both(kit("u"), sets(CUBINET_NVCC="{folder}/u/bin/nvcc")),
        prepare=kit("t"),
        files={"k.cu": HALVES},
        file="k.cu",
        options=("-lineinfo",),
        **TOOLKIT,
    ),
    changes(
        "a script that stands for nvcc gets a flag",
        program("nvcc", '#!/bin/sh\nexec "$(dirname "$0")"/t/bin/nvcc -DV=2 "$@"\n'),
        prepare=both(kit("t"), program("nvcc", '#!/bin/sh\nexec "$(dirname "$0")"/t/bin/nvcc "$@"\n')),
        source=MACRO,
        **{**TOOLKIT, "environ": {"CUBINET_NVCC": "{folder}/nvcc"}},
    ),
    changes(
        "the nvcc in PATH becomes another release",
        calls("bin/nvcc", other_nvcc),
        prepare=calls("bin/nvcc", lambda: toolkit() / "bin/nvcc"),
        source=SINE,
        needs=two_releases,
        **{**TOOLKIT, "environ": {"PATH": IN_FRONT}},
    ),
    changes(
        "a gcc appears in front in PATH",
        program("bin/gcc", GCC.replace("FLAGS", "-DV=2")),
        environ={"PATH": IN_FRONT},
        **CC,
        ccache="right / WRONG",
        sccache="right",
    ),
    changes(
        "the gcc in PATH is replaced",
        program("bin/gcc", GCC.replace("FLAGS", "-DV=2")),
        prepare=program("bin/gcc", GCC.replace("FLAGS", "-DV=1")),
        environ={"PATH": IN_FRONT},
        **CC,
        ccache="right / WRONG",
        sccache="right",
    ),
    changes(
        "the compiler of -ccbin is replaced",
        program("cc/gcc", GCC.replace("FLAGS", "-DV=2")),
        prepare=program("cc/gcc", GCC.replace("FLAGS", "-DV=1")),
        options=("-ccbin", "{folder}/cc/gcc"),
        **CC,
        ccache="right",
    ),
    changes(
        "the compiler of NVCC_CCBIN is replaced",
        program("cc/gcc", GCC.replace("FLAGS", "-DV=2")),
        prepare=program("cc/gcc", GCC.replace("FLAGS", "-DV=1")),
        environ={"NVCC_CCBIN": "{folder}/cc/gcc"},
        **CC,
        **CCACHE_WRONG,
    ),
    may_miss(
        "the gcc in PATH is another file with the same effect",
        grow("bin/gcc"),
        prepare=own_gcc,
        environ={"PATH": IN_FRONT},
        **CC,
    ),
    changes(
        "the front end of the host compiler is replaced",
        other_front_end,
        prepare=own_front_end,
        environ={"PATH": IN_FRONT},
        **CC,
    ),
)

STORES = "__global__ void k(int* p) {\n#include <a/x.h>\n#include <b/x.h>\n}\n"
ONCE: dict[str, Any] = {
    "files": {"r/a/x.h": "#pragma once\n*p++ = 1;\n", "r/b/x.h": "#pragma once\n*p++ = 1;\n"},
    "roots": ("r=r",),
    "source": STORES,
}
NEXT: dict[str, Any] = {
    "files": {"one/x.h": "*p++ = 1;\n#include_next <x.h>\n", "last/x.h": "*p++ = 2;\n"},
    "roots": ("a=one", "b=two", "c=last"),
    "source": "__global__ void k(int* p) {\n#include <x.h>\n}\n",
}
ABOVE = '#include "../../{above}"\n'
ABSOLUTE = '#include "{folder}/r/a.h"\n' + KERNEL
PLACES = (
    changes(
        "-lineinfo is given, and everything is copied to another place",
        both(copy("s", "o/s"), copy("r", "o/r"), asks(file="o/s/k.cu", roots=("r=o/r",))),
        **LINEINFO,
        **CCACHE_WRONG,
    ),
    changes(
        "-G is given, and everything is copied to another place",
        both(copy("s", "o/s"), copy("r", "o/r"), asks(file="o/s/k.cu", roots=("r=o/r",))),
        **{**FROM, "options": ("-G",)},
        random="the names of nvcc's temporary files are in it",
    ),
    changes(
        "-lineinfo is given, and a header gets another time",
        touch("r/a.h", 1_600_000_000),
        prepare=touch("r/a.h", 1_500_000_000),
        **LINEINFO,
        compilers=NVCC,
    ),
    changes(
        "-lineinfo is given, and the source gets another time",
        touch("s/k.cu", 1_600_000_000),
        prepare=touch("s/k.cu", 1_500_000_000),
        **LINEINFO,
        compilers=NVCC,
    ),
    changes("-lineinfo is given, and a header is edited", write("r/a.h", LINES.replace("2", "3")), **LINEINFO),
    changes(
        "-lineinfo is given, and a header in /dev/shm is edited",
        write("shm/a.h", LINES.replace("2", "3")),
        prepare=shared_memory({"k.cu": FROM["files"]["s/k.cu"], "a.h": LINES}),
        file="{shm}/k.cu",
        roots=("r={shm}",),
        options=("-lineinfo",),
        needs=no_shared_memory,
    ),
    changes(
        "-lineinfo is given, and a file that a #line names gets another time",
        touch("s/gen.y", 1_600_000_000),
        prepare=touch("s/gen.y", 1_500_000_000),
        files={
            "s/k.cu": LINES + '#line 1 "{folder}/s/gen.y"\n__global__ void k(int* p) { *p = twice(*p); }\n',
            "s/gen.y": "",
        },
        file="s/k.cu",
        options=("-lineinfo",),
        compilers=NVCC,
    ),
    changes(
        "-src-in-ptx is given, and a file that a #line names is edited",
        both(write("s/gen.y", "other\n"), touch("s/gen.y", 1_500_000_000)),
        prepare=touch("s/gen.y", 1_500_000_000),
        files={
            "s/k.cu": LINES + '#line 1 "{folder}/s/gen.y"\n__global__ void k(int* p) { *p = twice(*p); }\n',
            "s/gen.y": "first\n",
        },
        file="s/k.cu",
        options=("-lineinfo", "-src-in-ptx"),
        kind="ptx",
        compilers=NVCC,
    ),
    changes(
        "a file that is included by way of /proc is edited",
        write("r/a.h", v(2)),
        files={"r/a.h": v(1)},
        source='#include "/proc/self/root{folder}/r/a.h"\n' + KERNEL,
    ),
    changes(
        "a file outside of every root, included by its absolute name, is edited",
        write("r/a.h", v(2)),
        files={"r/a.h": v(1)},
        source=ABSOLUTE,
    ),
    changes(
        "a file in /dev/shm, included by its absolute name, is edited",
        write("shm/a.h", v(2)),
        prepare=shared_memory({"a.h": v(1)}),
        source='#include "{shm}/a.h"\n' + KERNEL,
        needs=no_shared_memory,
    ),
    changes(
        "a file included by its absolute name is edited, while the root it was in is somewhere else",
        both(write("r/a.h", v(2)), asks(roots=("r=o",))),
        files={"r/a.h": v(1), "o/a.h": v(1)},
        roots=("r=r",),
        source=ABSOLUTE,
    ),
    changes(
        "a header above the folder of a compile is edited",
        above_private_folders(v(2)),
        prepare=above_private_folders(v(1)),
        source=ABOVE + KERNEL,
        compilers=NVCC,
    ),
    changes(
        "a header appears above the folder of a compile",
        above_private_folders(v(2)),
        source='#if __has_include("../../{above}")\n' + ABOVE + FALLBACK + KERNEL,
        compilers=NVCC,
    ),
    changes(
        "a header of a source in memory, whose name passes through a root's label, is edited",
        both(write("include/mylib/a.h", v(2)), write("include/a.h", v(3))),
        files={"include/mylib/a.h": v(1), "include/a.h": v(4), "src/keep.cu": ""},
        roots=("mylib=include",),
        source='#include "../include/mylib/a.h"\n' + KERNEL,
        more={"source_folder": "{folder}/src"},
    ),
    changes(
        "of two equal headers with #pragma once, one gets the time of the other",
        touch("r/b/x.h", 1_500_000_000),
        prepare=both(touch("r/a/x.h", 1_500_000_000), touch("r/b/x.h", 1_600_000_000)),
        **ONCE,
        compilers=NVCC,
    ),
    changes(
        'of two equal headers with _Pragma("once"), one gets the time of the other',
        touch("r/b/x.h", 1_500_000_000),
        prepare=both(touch("r/a/x.h", 1_500_000_000), touch("r/b/x.h", 1_600_000_000)),
        **{**ONCE, "files": {"r/a/x.h": '_Pragma("once")\n*p++ = 1;\n', "r/b/x.h": '_Pragma("once")\n*p++ = 1;\n'}},
        compilers=NVCC,
    ),
    changes(
        "of two equal headers with #pragma once, one becomes a link to the other",
        link("r/b/x.h", "../a/x.h"),
        prepare=both(touch("r/a/x.h", 1_500_000_000), touch("r/b/x.h", 1_600_000_000)),
        **ONCE,
    ),
    changes(
        "of two equal headers with #pragma once, one becomes a hard link to the other",
        hard_link("r/b/x.h", "r/a/x.h"),
        prepare=both(touch("r/a/x.h", 1_500_000_000), touch("r/b/x.h", 1_600_000_000)),
        **ONCE,
    ),
    changes(
        "a link to a header with #pragma once becomes a copy",
        both(write("r/b/x.h", "#pragma once\n*p++ = 1;\n"), touch("r/b/x.h", 1_600_000_000)),
        prepare=link("r/b/x.h", "../a/x.h"),
        **ONCE,
    ),
    changes(
        "a root that is a link to another root becomes a copy",
        both(remove("two"), copy("one", "two")),
        prepare=link("two", "one"),
        **NEXT,
        compilers=NVCC,
    ),
    changes(
        "a root that is a copy of another root becomes a link",
        both(remove("two"), link("two", "one")),
        prepare=copy("one", "two"),
        **NEXT,
        compilers=NVCC,
    ),
    changes(
        "a root that is a folder the compiler searches anyway becomes another",
        asks(roots=("r=r",)),
        **{**ASKING, "files": {"r/a.h": v(2)}, "roots": ("r=/usr/include",)},
        compilers=NVCC,
    ),
    changes(
        "the time of day changes (__TIME__)",
        lambda _: time.sleep(1.1),
        source=CLOCK.replace("MACRO", "__TIME__"),
        compilers=NVRTC,
        random="it holds the clock",
    ),
    changes(
        "the day changes (__DATE__)",
        lambda _: None,
        source=CLOCK.replace("MACRO", "__DATE__"),
        compilers=NVRTC,
        random="it holds the clock",
    ),
    changes(
        "the time of day changes (__TIME__ in a header)",
        lambda _: time.sleep(1.1),
        files={"r/a.h": "#define T __TIME__\n"},
        roots=("r=r",),
        source="#include <a.h>\n" + CLOCK.replace("MACRO", "T"),
        compilers=NVRTC,
        random="it holds the clock",
    ),
    may_miss(
        "-lineinfo is given, and a root that is a link is re-pointed to an equal copy",
        link("l", "two"),
        prepare=both(link("l", "one"), touch("one/a.h", 1_500_000_000), touch("two/a.h", 1_500_000_000)),
        **{
            **LINEINFO,
            "files": {"s/k.cu": FROM["files"]["s/k.cu"], "one/a.h": LINES, "two/a.h": LINES},
            "roots": ("r=l",),
        },
    ),
)

HOOK = """
import os
from pathlib import Path
def edit(data):
    note = Path("include/t/note.txt")
    return data + f"\\n// {BODY}\\n".encode()
"""


def _hook(name: str, change: Change, body: str = "note.read_text()", **rest: Any) -> Probe:
    files = {"t/hook.py": HOOK.replace("BODY", body), "t/note.txt": "one", **rest.pop("files", {})}
    return Probe(
        **{
            "name": f"a post-hook {name}",
            "effect": Effect.CHANGES,
            "change": change,
            "files": files,
            "roots": ("t=t",),
            "source": v(1) + KERNEL,
            "kind": "ptx",
            "more": {"hook": "t:hook.py"},
            **rest,
        }
    )


HOOKS = (
    _hook("is edited", write("t/hook.py", HOOK.replace("BODY", "2"))),
    _hook("reads a file that is edited", write("t/note.txt", "two")),
    _hook("looks for a file that appears", write("t/more.txt", ""), "os.path.exists('include/t/more.txt')"),
    _hook("asks for the size of a file that grows", write("t/note.txt", "three"), "note.stat().st_size"),
    _hook("asks for the time of a file that is touched", touch("t/note.txt", 1_500_000_000), "note.stat().st_mtime"),
    _hook(
        "asks where a link leads that is re-pointed",
        link("t/l", "hook.py"),
        "os.readlink('include/t/l')",
        prepare=link("t/l", "note.txt"),
    ),
    _hook(
        "asks whether a file can be run that no longer can",
        lambda bench: (bench.folder / "t/note.txt").chmod(0o644),
        "os.access('include/t/note.txt', os.X_OK)",
        prepare=lambda bench: (bench.folder / "t/note.txt").chmod(0o755),
    ),
    _hook(
        "asks whether a file is a link that becomes one",
        both(write("t/same.txt", "one"), link("t/note.txt", "same.txt")),
        "note.is_symlink()",
    ),
    _hook(
        "imports a module that is edited",
        write("t/helper.py", "X = 2\n"),
        "(__import__('sys').path.insert(0, 'include/t'), __import__('helper').X)[1]",
        files={"t/helper.py": "X = 1\n"},
    ),
    _hook("lists a folder to which a file is added", write("t/more.txt", ""), "sorted(os.listdir('include/t'))"),
    _hook(
        "reads a file above its folder that is edited",
        above_private_folders("two"),
        "Path('../{above}').read_text()",
        prepare=above_private_folders("one"),
    ),
    _hook(
        "reads a file in /dev/shm that is edited",
        write("shm/a", "two"),
        "Path(os.path.realpath('include/t/../shm'), 'a').read_text()",
        prepare=shared_memory({"a": "one"}),
        needs=no_shared_memory,
    ),
    _hook(
        "starts a program that reads a file that is edited",
        write("t/note.txt", "two"),
        "__import__('subprocess').check_output(['cat', 'include/t/note.txt'], text=True)",
    ),
    _hook(
        "stays the same, and a file beside it that it does not read is edited",
        write("t/other.txt", "2"),
        files={"t/other.txt": "1"},
        effect=Effect.NOTHING,
    ),
    _hook(
        "stays the same, and it and its file are touched",
        both(touch("t/hook.py", 1_500_000_000), touch("t/note.txt", 1_500_000_000)),
        effect=Effect.NOTHING,
    ),
)

FAILED = (
    changes(
        "a missing header whose name is no UTF-8 appears after a failed build",
        write("r/\udcff.h", v(1)),
        files={"r/keep.h": ""},
        roots=("r=r",),
        source="#include <\udcff.h>\n" + KERNEL,
        compilers=NVCC,
    ),
    changes(
        "a missing header appears after a failed build", write("r/a.h", v(1)), **{**ONE, "files": {"r/keep.h": ""}}
    ),
    changes(
        "an error in a header is mended after a failed build",
        write("r/a.h", v(1)),
        **{**ONE, "files": {"r/a.h": "#error no\n"}},
    ),
    changes(
        "an error in a header above the folder of a compile is mended after a failed build",
        above_private_folders(v(1)),
        prepare=above_private_folders("#error no\n"),
        source=ABOVE + KERNEL,
        compilers=NVCC,
    ),
    changes(
        "an error in a header in /dev/shm is mended after a failed build",
        write("shm/a.h", v(1)),
        prepare=shared_memory({"a.h": "#error no\n"}),
        source='#include "{shm}/a.h"\n' + KERNEL,
        needs=no_shared_memory,
    ),
    changes(
        "a missing root appears after a failed build",
        write("late/a.h", v(1)),
        roots=("l=late",),
        source="#include <a.h>\n" + KERNEL,
    ),
    changes(
        "a header whose two copies clash becomes a link after a failed build",
        link("r/b/x.h", "../a/x.h"),
        **{
            **ONCE,
            "files": {"r/a/x.h": "#pragma once\nstruct S {};\n", "r/b/x.h": "#pragma once\nstruct S {};\n"},
            "source": "#include <a/x.h>\n#include <b/x.h>\n" + v(1) + KERNEL,
        },
        compilers=NVRTC,
    ),
)

SAFE_MODE: dict[str, Any] = {"settings": {"recorder": "off"}, "compilers": NVCC}
FALLBACK_MODE = (
    changes("without the recorder, a header that was read is edited", write("r/a.h", v(2)), **ONE, **SAFE_MODE),
    changes("without the recorder, a header appears in an earlier root", write("early/a.h", v(2)), **TWO, **SAFE_MODE),
    changes(
        "without the recorder, the target of a __has_include appears",
        write("r/a.h", v(2)),
        **{**ASKING, "files": {"r/keep.h": ""}},
        **SAFE_MODE,
    ),
    changes(
        "without the recorder, a header is edited while it is compiled",
        lambda _: None,
        first=while_compiling(write("r/a.h", v(2))),
        **ONE,
        **SAFE_MODE,
    ),
    changes(
        "without the recorder, a header appears in front while it is compiled",
        lambda _: None,
        first=while_compiling(write("early/a.h", v(2))),
        **TWO,
        **SAFE_MODE,
    ),
    changes(
        "without the recorder, a header in the folder above the source is edited",
        write("up/a.h", v(2)),
        files={"s/k.cu": '#include "../up/a.h"\n' + KERNEL, "up/a.h": v(1)},
        file="s/k.cu",
        **SAFE_MODE,
    ),
    changes(
        "without the recorder, a file in /dev/shm, included by its absolute name, is edited",
        write("shm/a.h", v(2)),
        prepare=shared_memory({"a.h": v(1)}),
        source='#include "{shm}/a.h"\n' + KERNEL,
        needs=no_shared_memory,
        **SAFE_MODE,
    ),
    changes(
        "without the recorder, of two equal headers with #pragma once, one gets the time of the other",
        touch("r/b/x.h", 1_500_000_000),
        prepare=both(touch("r/a/x.h", 1_500_000_000), touch("r/b/x.h", 1_600_000_000)),
        **ONCE,
        **SAFE_MODE,
    ),
)

PROBES = (
    *EDITS,
    *SHADOWS,
    *QUESTIONS,
    *NAMES,
    *OPTIONS,
    *IN_MEMORY,
    *TOOLS,
    *PLACES,
    *HOOKS,
    *FAILED,
    *FALLBACK_MODE,
    *MUST_HIT,
)
