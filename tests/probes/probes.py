"""Every probe: what is built, what is changed, and whether that has to matter.

The first part must never give a wrong result; the second must hit. Each is run by `bench.run`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from .bench import Bench, Change, Effect, Outcome, Probe, after_a_while, clean_environ

__all__ = ["PROBES"]

NVCC, NVRTC = ("nvcc",), ("nvrtc",)
KERNEL = "__global__ void k(int* p) { *p = V; }\n"
FALLBACK = "#else\n#define V 1\n#endif\n"
LINES = "__device__ inline int twice(int x) { return x * 2; }\n"
PACED = "#define STORE(n) *p++ = n;\n"


def v(number: int) -> str:
    """A header that defines the value the kernel stores."""
    return f"#define V {number}\n"


# --- changes


def write(name: str, text: str) -> Change:
    return lambda bench: bench.write(name, text)


def remove(name: str) -> Change:
    return lambda bench: bench.remove(name)


def link(name: str, target: str) -> Change:
    return lambda bench: bench.link(name, target)


def touch(name: str, when: int) -> Change:
    return lambda bench: os.utime(bench.folder / name, (when, when))


def asks(**what: Any) -> Change:
    """Ask for something else."""

    def change(bench: Bench) -> None:
        bench.asked = replace(bench.asked, **what)

    return change


def sets(**variables: str) -> Change:
    """Change variables of the environment."""

    def change(bench: Bench) -> None:
        bench.environ |= {name: bench.filled(value) for name, value in variables.items()}

    return change


def both(*changes: Change) -> Change:
    def change(bench: Bench) -> None:
        for one in changes:
            one(bench)

    return change


def move(name: str, to: str) -> Change:
    return lambda bench: shutil.move(bench.folder / name, bench.path(to))


def copy(name: str, to: str) -> Change:
    """Copy a folder, with new times."""

    def change(bench: Bench) -> None:
        shutil.copytree(bench.folder / name, bench.path(to), symlinks=True, copy_function=shutil.copyfile)

    return change


def in_process(enter: Callable[[Bench], Callable[[], object]]) -> Change:
    """Change something of this process; what `enter` returns puts it back after the probe."""
    return lambda bench: bench.restore.callback(enter(bench)) and None  # type: ignore[func-returns-value]


def same_size_same_time(name: str, text: str) -> Change:
    """Edit a file and put its modification time back."""

    def change(bench: Bench) -> None:
        path = bench.folder / name
        info = path.stat()
        bench.write(name, text)
        assert path.stat().st_size == info.st_size
        os.utime(path, ns=(info.st_atime_ns, info.st_mtime_ns))

    return change


def while_compiling(change: Change, seconds: float = 0.12) -> Callable[[Bench], Outcome]:
    """Make a change while the first compile runs."""

    def first(bench: Bench) -> Outcome:
        store = bench.store()
        store.normalize(bench.variant())
        with after_a_while(seconds, lambda: change(bench)):
            return bench.look(store)

    return first


def in_a_window(change: Change) -> Callable[[Bench], Outcome]:
    """Make a change between two lookups of one process, within its refresh interval."""

    def first(bench: Bench) -> Outcome:
        store = bench.store(refresh=3600.0)
        store.find(bench.variant())
        change(bench)
        return bench.look(store)

    return first


def without_tools(bench: Bench) -> Outcome:
    """Compile in a store that lost its `tools` folder while it was at work."""
    store = bench.store()
    bench.compile_other(store)
    shutil.rmtree(bench.store_folder / "tools")
    return bench.look(store)


def shared_memory(files: dict[str, str]) -> Change:
    """Plant files in `/dev/shm`, gone after the probe; `{shm}` in what is asked becomes the folder."""

    def change(bench: Bench) -> None:
        folder = Path(tempfile.mkdtemp(dir="/dev/shm", prefix="cubinet-probe-"))
        bench.restore.callback(shutil.rmtree, folder)
        bench.link("shm", str(folder))
        for name, text in files.items():
            (folder / name).write_text(text)
        bench.asked = replace(
            bench.asked,
            source=bench.asked.source.replace("{shm}", str(folder)),
            file=bench.asked.file.replace("{shm}", str(folder)),
            roots=tuple(root.replace("{shm}", str(folder)) for root in bench.asked.roots),
        )

    return change


def above_private_folders(text: str) -> Change:
    """Plant a file in the folder in which compiles get their private folders; `{above}` is its name."""

    def change(bench: Bench) -> None:
        bench.above.write_text(text)
        bench.restore.callback(bench.above.unlink, missing_ok=True)

    return change


def no_embed(_compiler: str) -> str:
    asked = ["gcc", "-E", "-x", "c++", "-"]
    text = "#ifdef __has_embed\nyes\n#endif\n"
    found = subprocess.run(asked, input=text, capture_output=True, text=True, check=False).stdout
    return "" if "yes" in found else "the host compiler knows no #embed"


def no_shared_memory(_compiler: str) -> str:
    return "" if os.access("/dev/shm", os.W_OK) else "no /dev/shm"


# --- toolkits


def toolkit() -> Path:
    """The folder of the nvcc at hand."""
    found = shutil.which("nvcc", path=clean_environ().get("PATH", ""))
    if found is None:
        from cubinet.compilers._toolchain import _wheel_nvcc
        import sys

        found = _wheel_nvcc(sys.path)
    lines = subprocess.run([found, "-dryrun", "-cubin", "x.cu"], capture_output=True, text=True, check=False).stderr
    here = next(line.partition("=")[2] for line in lines.splitlines() if line.startswith("#$ _HERE_="))
    return Path(here).resolve().parent


def other_ptxas() -> Path | None:
    """A ptxas of another release than that of the toolkit: the wheel's, if nvcc is none of the wheel's."""
    import sys

    from cubinet.compilers._toolchain import _wheel_nvcc

    found = _wheel_nvcc(sys.path)
    if not found or Path(found).resolve().parents[1] == toolkit():
        return None
    return Path(found).with_name("ptxas")


def two_releases(_compiler: str) -> str:
    return "" if other_ptxas() else "one toolkit only"


def kit(name: str, *real: str) -> Change:
    """Make a toolkit in the folder: nvcc and what is named by path are files of its own, the rest links."""

    def change(bench: Bench) -> None:
        origin, target = toolkit(), bench.folder / name
        for place in ("bin", "nvvm/bin"):
            (target / place).mkdir(parents=True)
            for path in (origin / place).iterdir():
                if path.name in ("nvcc", "nvcc.profile") or f"{place}/{path.name}" in real:
                    shutil.copy2(path, target / place / path.name)
                else:
                    (target / place / path.name).symlink_to(path)
        for path in origin.iterdir():
            if path.name not in ("bin", "nvvm"):
                (target / path.name).symlink_to(path)
        (target / "nvvm/libdevice").symlink_to(origin / "nvvm/libdevice")

    return change


def own_headers(name: str) -> Change:
    """Give a toolkit of `kit` a folder of headers of its own."""

    def change(bench: Bench) -> None:
        target = bench.folder / name
        inner = "targets/x86_64-linux/include" if (target / "targets").exists() else "include"
        origin = (target / inner).resolve()
        top = target / inner.partition("/")[0]
        top.unlink()
        (target / inner).mkdir(parents=True)
        for path in origin.iterdir():
            if path.name != "cccl":
                (target / inner / path.name).symlink_to(path)
        bench.link("headers", str(target / inner))

    return change


def put_ptxas(name: str, *, folder: str = "bin", linked: bool = False, back: bool = False) -> Change:
    """Replace the ptxas of a toolkit by that of another release, or put its own back."""

    def change(bench: Bench) -> None:
        other = toolkit() / "bin/ptxas" if back else other_ptxas()
        assert other is not None
        place, new = bench.folder / name / folder / "ptxas", bench.folder / name / folder / "new"
        if linked:
            new.symlink_to(other)
        else:
            shutil.copy2(other, new)
        new.rename(place)

    return change


def program(name: str, script: str) -> Change:
    """Write a script that can be run."""

    def change(bench: Bench) -> None:
        bench.write(name, script)
        (bench.folder / name).chmod(0o755)

    return change


def edit_profile(old: str, new: str) -> Change:
    def change(bench: Bench) -> None:
        path = bench.folder / "t/bin/nvcc.profile"
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new))

    return change


def include_absolutely(name: str, header: str) -> Change:
    """Ask for a source that includes a header of a toolkit by the very path that its nvcc searches."""

    def change(bench: Bench) -> None:
        inner = "targets/x86_64-linux/include" if (bench.folder / name / "targets").exists() else "include"
        bench.asked = replace(
            bench.asked, source=f'#include "{bench.folder}/{name}/bin/../{inner}/{header}"\n' + KERNEL
        )

    return change


def _front_end() -> Path:
    found = subprocess.run(["gcc", "-print-prog-name=cc1plus"], capture_output=True, text=True, check=True).stdout
    return Path(found.strip())


def own_gcc(bench: Bench) -> None:
    """Put a copy of the host compiler's driver in front; all that it needs beside it are links."""
    shutil.copy2(os.path.realpath(str(shutil.which("gcc"))), bench.path("bin/gcc"))
    for path in _front_end().resolve().parent.iterdir():
        bench.link(_beside_front_end(path.name), str(path))
    bench.link("include", "/usr/include")  # where such a driver looks for the headers of C++


def own_front_end(bench: Bench) -> None:
    """The same with a front end of its own."""
    own_gcc(bench)
    bench.remove(_beside_front_end("cc1plus"))
    shutil.copy2(_front_end(), bench.path(_beside_front_end("cc1plus")))


def _beside_front_end(name: str) -> str:
    triplet, version = _front_end().parts[-3:-1]
    return f"lib/gcc/{triplet}/{version}/{name}"


def other_front_end(bench: Bench) -> None:
    """Put a front end with a macro beside the driver."""
    script = f'#!/bin/sh\nexec {_front_end()} "$@" -DV=2\n'
    program(_beside_front_end("cc1plus"), script)(bench)


def specs(bench: Bench) -> None:
    """Put a specs file with a macro beside the front end."""
    bench.write(_beside_front_end("specs"), "*cpp:\n+ -DV=2\n\n")


def other_nvcc() -> Path:
    """The nvcc of the other release."""
    found = other_ptxas()
    assert found is not None
    return found.with_name("nvcc")


def calls(name: str, target: Callable[[], Path]) -> Change:
    """Write a script that calls a program."""
    return lambda bench: program(name, f'#!/bin/sh\nexec {target()} "$@"\n')(bench)


IN_FRONT = "{folder}/bin:" + os.environ.get("PATH", "/usr/bin:/bin")
GCC = '#!/bin/sh\nexec /usr/bin/gcc FLAGS "$@"\n'
HALVES = "#include <cuda_fp16.h>\n__global__ void k(__half2* p) { *p = __hadd2(*p, p[1]); atomicAdd(p, p[2]); }\n"
TOOLKIT: dict[str, Any] = {"environ": {"CUBINET_NVCC": "{folder}/t/bin/nvcc"}, "own_tools": True, "compilers": NVCC}


def grow(name: str) -> Change:
    """Append a byte that no program reads."""

    def change(bench: Bench) -> None:
        assert not (bench.folder / name).is_symlink()
        with (bench.folder / name).open("ab") as file:
            file.write(b"\0")

    return change


# --- never a wrong result


def _changes(name: str, change: Change, **rest: Any) -> Probe:
    return Probe(name=name, effect=Effect.CHANGES, change=change, **rest)


def _maybe(name: str, change: Change, **rest: Any) -> Probe:
    return Probe(name=name, effect=Effect.OPEN, change=change, **rest)


def _hits(name: str, change: Change, **rest: Any) -> Probe:
    return Probe(name=name, effect=Effect.NOTHING, change=change, **rest)


BOTH_RIGHT = {"ccache": "right", "sccache": "right"}
CCACHE_WRONG = {"ccache": "WRONG", "sccache": "right"}
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
    _changes(
        "the source is edited while it is compiled",
        lambda _: None,
        first=while_compiling(write("k.cu", v(2) + KERNEL)),
        files={"k.cu": v(1) + KERNEL},
        file="k.cu",
    ),
    _changes(
        "a header is edited within the refresh interval, and put back",
        write("r/a.h", v(1)),
        first=in_a_window(write("r/a.h", v(2))),
        **ONE,
    ),
    _changes(
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
    _changes("a header that was read is edited", write("r/a.h", v(2)), **ONE, **BOTH_RIGHT),
    _changes(
        "a header of a header is edited",
        write("r/lib/b.h", v(2)),
        files={"r/a.h": '#include "lib/b.h"\n', "r/lib/b.h": v(1)},
        roots=("r=r",),
        source="#include <a.h>\n" + KERNEL,
    ),
    _changes(
        "a header is edited to the same size and its time is put back",
        same_size_same_time("r/a.h", v(2)),
        **ONE,
        **BOTH_RIGHT,
    ),
    _changes("a header is edited right after it was written", write("r/a.h", v(2)), **ONE, aged=False),
    _changes(
        "a header is edited while it is compiled", lambda _: None, first=while_compiling(write("r/a.h", v(2))), **ONE
    ),
    _changes(
        "a header is edited and put back while it is compiled",
        lambda _: None,
        first=while_compiling(both(write("r/a.h", v(2)), lambda _: time.sleep(0.1), write("r/a.h", v(1))), 0.02),
        **ONE,
    ),
    _changes(
        "a header appears in front while it is compiled",
        lambda _: None,
        first=while_compiling(write("early/a.h", v(2))),
        **TWO,
    ),
    _changes(
        "a header is emptied",
        write("r/a.h", ""),
        **{**ONE, "source": "#include <a.h>\n#ifndef V\n#define V 2\n#endif\n" + KERNEL},
    ),
    _changes(
        "a header gets one more line, which only __LINE__ shows",
        write("r/a.h", "\n__device__ int line() { return __LINE__; }\n"),
        files={"r/a.h": "__device__ int line() { return __LINE__; }\n"},
        roots=("r=r",),
        source="#include <a.h>\n__global__ void k(int* p) { *p = line(); }\n",
    ),
    _changes("the source is edited", write("k.cu", v(2) + KERNEL), files={"k.cu": v(1) + KERNEL}, file="k.cu"),
    _changes(
        "a header beside the source is edited",
        write("s/a.h", v(2)),
        files={"s/k.cu": '#include "a.h"\n' + KERNEL, "s/a.h": v(1)},
        file="s/k.cu",
    ),
    _changes(
        "a header in the folder above the source is edited",
        write("up/a.h", v(2)),
        files={"s/k.cu": '#include "../up/a.h"\n' + KERNEL, "up/a.h": v(1)},
        file="s/k.cu",
    ),
    _changes(
        "a header is deleted and one of that name in a later root takes its place",
        remove("early/a.h"),
        **{**TWO, "files": {"early/a.h": v(2), "late/a.h": v(1)}},
    ),
    _changes(
        "a header is replaced by a folder, and a later root has one",
        both(remove("early/a.h"), write("early/a.h/x", "")),
        **{**TWO, "files": {"early/a.h": v(2), "late/a.h": v(1)}},
    ),
    _changes(
        "a header is replaced by a link to another file",
        link("r/a.h", "../other.h"),
        **{**ONE, "files": {"r/a.h": v(1), "other.h": v(2)}},
    ),
    _changes(
        "a header is replaced by a link to nowhere, and a later root has one",
        link("early/a.h", "nowhere"),
        **{**TWO, "files": {"early/a.h": v(2), "late/a.h": v(1)}},
    ),
    _changes("a header is deleted, and nothing takes its place", remove("r/a.h"), **ONE),
    _changes(
        "a link that is a header is re-pointed",
        link("r/a.h", "../two.h"),
        prepare=link("r/a.h", "../one.h"),
        **{**ONE, "files": {"one.h": v(1), "two.h": v(2)}},
    ),
    _changes(
        "the file that a linked header points to is edited",
        write("one.h", v(2)),
        prepare=link("r/a.h", "../one.h"),
        **{**ONE, "files": {"one.h": v(1)}},
    ),
    _changes(
        "a folder on the way to a header is a link that is re-pointed",
        link("r/lib", "../two"),
        prepare=link("r/lib", "../one"),
        files={"one/a.h": v(1), "two/a.h": v(2)},
        roots=("r=r",),
        source="#include <lib/a.h>\n" + KERNEL,
    ),
    _changes(
        "a root that is a link is re-pointed",
        link("r", "two"),
        prepare=link("r", "one"),
        files={"one/a.h": v(1), "two/a.h": v(2)},
        roots=("r=r",),
        source="#include <a.h>\n" + KERNEL,
    ),
    _changes(
        "a root has another place, with another header",
        asks(roots=("r=other",)),
        **{**ONE, "files": {"r/a.h": v(1), "other/a.h": v(2)}},
    ),
)

SHADOWS = (
    _changes("a header appears in an earlier root", write("early/a.h", v(2)), **TWO, **CCACHE_WRONG),
    _changes(
        "a header in an earlier root goes away",
        remove("early/a.h"),
        **{**TWO, "files": {"early/a.h": v(2), "late/a.h": v(1)}},
    ),
    _changes(
        "a folder with a header appears in an earlier root",
        write("early/lib/a.h", v(2)),
        **{**TWO, "files": {"early/keep.h": "", "late/lib/a.h": v(1)}, "source": "#include <lib/a.h>\n" + KERNEL},
    ),
    _changes("an earlier root appears", write("early/a.h", v(2)), **{**TWO, "files": {"late/a.h": v(1)}}, **BOTH_RIGHT),
    _changes(
        "an earlier root deep in folders that do not exist appears",
        write("x/y/z/a.h", v(2)),
        **{**TWO, "files": {"late/a.h": v(1)}, "roots": ("e=x/y/z", "l=late")},
    ),
    _changes(
        "an earlier root that was a file becomes a folder",
        both(remove("early"), write("early/a.h", v(2))),
        **{**TWO, "files": {"early": "", "late/a.h": v(1)}},
    ),
    _changes(
        "a quoted header appears beside the source",
        write("a.h", v(2)),
        **{**QUOTED, "files": {**QUOTED["files"], "k.cu": QUOTED["source"]}, "source": "", "file": "k.cu"},
        **CCACHE_WRONG,
    ),
    _changes(
        "a quoted header appears in the folder of a source in memory",
        write("s/a.h", v(2)),
        **QUOTED,
        more={"source_folder": "{folder}/s"},
    ),
    _changes(
        "a header appears beside the header that includes it",
        write("late/lib/a.h", v(2)),
        files={"late/lib/b.h": '#include "a.h"\n', "late/a.h": v(1)},
        roots=("l=late",),
        source="#include <lib/b.h>\n" + KERNEL,
    ),
    _changes(
        "a header appears in a folder reached through a link",
        write("real/a.h", v(2)),
        prepare=both(write("real/keep.h", ""), link("early", "real")),
        **{**TWO, "files": {"late/a.h": v(1)}},
    ),
    _changes(
        "a link to a folder with the header appears in an earlier root",
        link("early/lib", "../real"),
        **{
            **TWO,
            "files": {"early/keep.h": "", "real/a.h": v(2), "late/lib/a.h": v(1)},
            "source": "#include <lib/a.h>\n" + KERNEL,
        },
    ),
    _changes(
        "the end of a dangling link appears",
        write("end/a.h", v(2)),
        prepare=both(write("end/keep.h", ""), link("early/a.h", "../end/a.h")),
        **TWO,
    ),
    _changes(
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
    _changes(
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
    _changes(
        "a toolkit header is shadowed by a root",
        write("r/cuda_fp16.h", v(2)),
        files={"r/keep.h": ""},
        roots=("r=r",),
        source="#include <cuda_fp16.h>\n#ifndef V\n#define V 1\n#endif\n" + KERNEL,
        compilers=NVCC,
    ),
    _changes(
        "a header of the host compiler is shadowed by a root",
        write("r/climits", v(2)),
        files={"r/keep.h": ""},
        roots=("r=r",),
        source="#include <climits>\n#ifndef V\n#define V 1\n#endif\n" + KERNEL,
        compilers=NVCC,
    ),
    _changes(
        "cuda_runtime.h appears in the folder of a source in memory",
        write("s/cuda_runtime.h", v(2)),
        source="#ifndef V\n#define V 1\n#endif\n#if V == 1\n" + KERNEL + "#endif\n",
        files={"s/keep.h": ""},
        more={"source_folder": "{folder}/s"},
        compilers=NVCC,
    ),
)

QUESTIONS = (
    _changes(
        "the target of a __has_include appears",
        write("r/a.h", v(2)),
        **{**ASKING, "files": {"r/keep.h": ""}},
        **CCACHE_WRONG,
    ),
    _changes(
        "the target of a __has_include disappears",
        remove("r/a.h"),
        **{**ASKING, "files": {"r/a.h": v(2)}},
        **CCACHE_WRONG,
    ),
    _changes(
        "the target of a quoted __has_include appears beside a header",
        write("r/lib/a.h", ""),
        files={"r/lib/b.h": '#if __has_include("a.h")\n#define V 2\n' + FALLBACK},
        roots=("r=r",),
        source="#include <lib/b.h>\n" + KERNEL,
    ),
    _changes(
        "the target of a __has_include that is only asked for becomes a folder",
        both(remove("r/a.h"), write("r/a.h/x", "")),
        files={"r/a.h": ""},
        roots=("r=r",),
        source="#if __has_include(<a.h>)\n#define V 2\n" + FALLBACK + KERNEL,
    ),
    _changes(
        "the target of a __has_include_next appears",
        write("late/a.h", v(2)),
        files={"early/a.h": "#if __has_include_next(<a.h>)\n#include_next <a.h>\n" + FALLBACK, "late/keep.h": ""},
        roots=("e=early", "l=late"),
        source="#include <a.h>\n" + KERNEL,
        compilers=NVCC,
    ),
    _changes(
        "another header takes the place of an #include_next",
        write("middle/a.h", v(2)),
        files={"early/a.h": "#include_next <a.h>\n", "middle/keep.h": "", "late/a.h": v(1)},
        roots=("e=early", "m=middle", "l=late"),
        source="#include <a.h>\n" + KERNEL,
    ),
    _changes(
        "a header included by a macro is edited",
        write("r/a.h", v(2)),
        **{**ONE, "source": "#define H <a.h>\n#include H\n" + KERNEL},
        **BOTH_RIGHT,
    ),
    _changes(
        "a header chosen by a macro of another header changes",
        write("r/which.h", "#define H <b.h>\n"),
        files={"r/which.h": "#define H <a.h>\n", "r/a.h": v(1), "r/b.h": v(2)},
        roots=("r=r",),
        source="#include <which.h>\n#include H\n" + KERNEL,
    ),
    _changes(
        "a header named in -D is edited",
        write("r/a.h", v(2)),
        **{**ONE, "source": "#include H\n" + KERNEL, "options": ('-DH="a.h"',)},
        compilers=NVRTC,
    ),
    _changes(
        "the file of an #embed is edited",
        write("r/a.bin", "2"),
        files={"r/a.bin": "1"},
        roots=("r=r",),
        source="#if !__has_embed(<a.bin>)\n#error no embed\n#endif\n__device__ const unsigned char data[] = {\n#embed <a.bin>\n};\n__global__ void k(int* p) { *p = data[*p]; }\n",
        compilers=NVCC,
        needs=no_embed,
    ),
)


def _named(what: str, name: str, **rest: Any) -> tuple[Probe, ...]:
    """A header and a folder of some name: in each, an edit has to be seen."""
    return (
        _changes(
            f"a header with {what} in its name and its folder's is edited",
            write(f"r/{name}/{name}.h", v(2)),
            files={f"r/{name}/{name}.h": v(1)},
            roots=("r=r",),
            source=f"#include <{name}/{name}.h>\n" + KERNEL,
            **rest,
        ),
        _changes(
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
    _changes(
        "a header appears in a root with a line end in its path",
        write("a\nb/a.h", v(2)),
        **{**TWO, "files": {"a\nb/keep.h": "", "late/a.h": v(1)}, "roots": ("e=a\nb", "l=late")},
    ),
    _changes(
        "a header appears in a root whose path is no UTF-8",
        write("a\udcffb/a.h", v(2)),
        **{**TWO, "files": {"a\udcffb/keep.h": "", "late/a.h": v(1)}, "roots": ("e=a\udcffb", "l=late")},
    ),
    _changes(
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
SINE = "__global__ void k(float* p, float a) { *p = sinf(*p) / a + *p * a; }\n"
MACRO = "#ifndef V\n#define V 1\n#endif\n" + KERNEL

OPTIONS = (
    _changes(
        "the order of two -I is swapped",
        asks(options=("-I", "two", "-I", "one")),
        **WAYS,
        options=("-I", "one", "-I", "two"),
    ),
    _changes(
        "an -I becomes -isystem, and so comes later",
        asks(options=("-isystem", "one", "-I", "two")),
        **WAYS,
        options=("-I", "one", "-I", "two"),
        compilers=NVCC,
    ),
    _changes("the order of two roots is swapped", asks(roots=("b=two", "a=one")), **WAYS, roots=("a=one", "b=two")),
    _changes(
        "a root becomes one for quoted includes only",
        asks(roots=("quote:a=one", "b=two")),
        **WAYS,
        roots=("a=one", "b=two"),
        compilers=NVCC,
    ),
    _changes("a -D gets another value", asks(options=("-DV=2",)), source=MACRO, options=("-DV=1",), **BOTH_RIGHT),
    _changes("a -D is left out", asks(options=()), source=MACRO, options=("-DV=2",)),
    _changes(
        "the order of two -D of one name is swapped",
        asks(options=("-DV=2", "-DV=1")),
        source=MACRO,
        options=("-DV=1", "-DV=2"),
        compilers=NVCC,
    ),
    _changes(
        "a -U comes behind a -D instead of in front",
        asks(options=("-DV=2", "-UV")),
        source=MACRO,
        options=("-UV", "-DV=2"),
        compilers=NVCC,
    ),
    _changes(
        "sm_90 becomes sm_90a",
        asks(arch="sm_90a"),
        source="#ifdef __CUDA_ARCH_FEAT_SM90_ALL\n#define V 2\n" + FALLBACK + KERNEL,
        arch="sm_90",
    ),
    _changes(
        "a header under __CUDA_ARCH_FEAT_SM90_ALL is edited",
        write("r/a.h", v(3)),
        files={"r/a.h": v(2)},
        roots=("r=r",),
        source=SPECIAL,
        **CCACHE_WRONG,
    ),
    _changes(
        "the source is edited under __CUDA_ARCH_FEAT_SM90_ALL",
        asks(source=SPECIAL.replace("<a.h>", "<b.h>")),
        files={"r/a.h": v(2), "r/b.h": v(3)},
        roots=("r=r",),
        source=SPECIAL,
        **CCACHE_WRONG,
    ),
    _changes(
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
    _changes(
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
    _changes(
        "a fatbin gets a second architecture",
        asks(options=TWO_ARCHS),
        source=v(1) + KERNEL,
        kind="fatbin",
        options=TWO_ARCHS[2:],
        arch="sm_90",
        compilers=NVCC,
    ),
    _maybe(
        "a header for the host only is edited",
        write("r/a.h", "#define HOST 2\n"),
        files={"r/a.h": "#define HOST 1\n"},
        roots=("r=r",),
        source="#ifndef __CUDA_ARCH__\n#include <a.h>\n#endif\n" + v(1) + KERNEL,
    ),
    _maybe(
        "the source is edited under #ifndef __CUDA_ARCH__",
        asks(source="#ifndef __CUDA_ARCH__\nint host = 2;\n#endif\n" + v(1) + KERNEL),
        source="#ifndef __CUDA_ARCH__\nint host = 1;\n#endif\n" + v(1) + KERNEL,
    ),
    _changes(
        "-rdc=true is added",
        asks(options=("-rdc=true",)),
        source="__device__ int g; __device__ int f(int); __device__ __noinline__ int f(int x) { return x + g; }\n__global__ void k(int* p) { *p = f(*p); }\n",
        **BOTH_RIGHT,
    ),
    _changes(
        "-c becomes -dc",
        asks(options=("-cubin", "-dc")),
        source=v(1) + KERNEL,
        options=("-cubin", "-c"),
        compilers=NVCC,
        **CCACHE_WRONG,
    ),
    _changes("-Xptxas -O0 is added", asks(options=("-Xptxas", "-O0")), source=SINE, **BOTH_RIGHT),
    _changes(
        "two -Xptxas -O are swapped",
        asks(options=("-Xptxas=-O3", "-Xptxas=-O0")),
        source=SINE,
        options=("-Xptxas=-O0", "-Xptxas=-O3"),
        compilers=NVCC,
    ),
    _changes("-fmad=false is added", asks(options=("-fmad=false",)), source=SINE, **BOTH_RIGHT),
    _changes("-use_fast_math is added", asks(options=("-use_fast_math",)), source=SINE),
    _changes("-maxrregcount is added", asks(options=("-maxrregcount=16",)), source=SINE),
    _changes("-w is added", asks(options=("-w",)), source=SINE),
    _changes(
        "-std=c++20 is added",
        asks(options=("-std=c++20",)),
        source="#if __cplusplus > 201800\n#define V 2\n" + FALLBACK + KERNEL,
    ),
    _changes(
        "--split-compile gets another number",
        asks(options=("--split-compile=2",)),
        source="".join(f"__global__ void k{i}(float* p) {{ *p = sinf(*p) + {i}; }}\n" for i in range(4)),
        options=("--split-compile=1",),
    ),
    _changes("a cubin becomes PTX", asks(kind="ptx"), source=v(1) + KERNEL),
    _changes(
        "an option of the host compiler is added", asks(options=("-Xcompiler", "-DV=2")), source=MACRO, compilers=NVCC
    ),
    _changes(
        "a file that an option of the host compiler includes is edited",
        write("p.h", v(3)),
        files={"p.h": v(2)},
        source=MACRO,
        options=("-Xcompiler", "-include,{folder}/p.h"),
        compilers=NVCC,
    ),
    _changes(
        "the content of an --options-file changes a macro",
        write("o.txt", "-DV=2"),
        files={"o.txt": "-DV=1"},
        source=MACRO,
        options=("--options-file=o.txt",),
        compilers=NVCC,
        **CCACHE_WRONG,
    ),
    _changes(
        "the content of an --options-file changes code generation",
        write("o.txt", "-fmad=false"),
        files={"o.txt": "-fmad=true"},
        source=SINE,
        options=("--options-file=o.txt",),
        compilers=NVCC,
        **CCACHE_WRONG,
    ),
    _changes(
        "the content of an options file, given as -optf f, changes",
        write("o.txt", "-DV=2"),
        files={"o.txt": "-DV=1"},
        source=MACRO,
        options=("-optf", "o.txt"),
        compilers=NVCC,
        ccache="right",
    ),
    _changes(
        "an options file that an options file names changes",
        write("o/p.txt", "-DV=2"),
        files={"o.txt": "-optf o/p.txt", "o/p.txt": "-DV=1"},
        source=MACRO,
        options=("-optf", "o.txt"),
        compilers=NVCC,
    ),
    _changes(
        "NVCC_PREPEND_FLAGS gets a -D", sets(NVCC_PREPEND_FLAGS="-DV=2"), source=MACRO, compilers=NVCC, **CCACHE_WRONG
    ),
    _changes(
        "NVCC_APPEND_FLAGS gets a -D", sets(NVCC_APPEND_FLAGS="-DV=2"), source=MACRO, compilers=NVCC, **CCACHE_WRONG
    ),
    _changes(
        "NVCC_APPEND_FLAGS gets -fmad=false",
        sets(NVCC_APPEND_FLAGS="-fmad=false"),
        source=SINE,
        compilers=NVCC,
        **CCACHE_WRONG,
    ),
    _changes(
        "a -D moves from NVCC_PREPEND_FLAGS to NVCC_APPEND_FLAGS",
        sets(NVCC_PREPEND_FLAGS="", NVCC_APPEND_FLAGS="-DV=2"),
        source=MACRO,
        options=("-DV=1",),
        environ={"NVCC_PREPEND_FLAGS": "-DV=2"},
        compilers=NVCC,
    ),
    _changes(
        "a header in a folder of NVCC_APPEND_FLAGS is edited",
        write("r/a.h", v(2)),
        files={"r/a.h": v(1)},
        source="#include <a.h>\n" + KERNEL,
        environ={"NVCC_APPEND_FLAGS": "-I{folder}/r"},
        compilers=NVCC,
    ),
    _changes(
        "an options file named in NVCC_APPEND_FLAGS changes",
        write("o.txt", "-DV=2"),
        files={"o.txt": "-DV=1"},
        source=MACRO,
        environ={"NVCC_APPEND_FLAGS": "--options-file {folder}/o.txt"},
        compilers=NVCC,
    ),
    _changes(
        "a file of -include is edited",
        write("p.h", v(2)),
        files={"p.h": v(1)},
        source=KERNEL,
        options=("-include", "{folder}/p.h"),
    ),
    _changes(
        "a file of a relative -include appears in front of one in a root",
        write("p.h", v(2)),
        files={"r/p.h": v(1)},
        roots=("r=r",),
        source=KERNEL,
        options=("-include", "p.h"),
        compilers=NVCC,
    ),
    _changes(
        "another file of -include is asked for",
        asks(options=("-include", "q.h")),
        files={"p.h": v(1), "q.h": v(2)},
        source=KERNEL,
        options=("-include", "p.h"),
        compilers=NVCC,
    ),
    _changes(
        "a file of -include above the folder of a compile is edited",
        above_private_folders(v(2)),
        prepare=above_private_folders(v(1)),
        source=KERNEL,
        options=("-include", "../{above}"),
    ),
    _changes(
        "CPATH appears",
        sets(CPATH="{folder}/r"),
        **{**ASKING, "files": {"r/a.h": v(2)}, "roots": ()},
        compilers=NVCC,
        **BOTH_RIGHT,
    ),
    _changes(
        "a header in a folder of CPATH is edited",
        write("r/a.h", v(2)),
        **{**ONE, "roots": ()},
        environ={"CPATH": "{folder}/r"},
        compilers=NVCC,
    ),
    _changes(
        "the order of two folders in CPATH is swapped",
        sets(CPATH="{folder}/two:{folder}/one"),
        **WAYS,
        environ={"CPATH": "{folder}/one:{folder}/two"},
        compilers=NVCC,
    ),
    _changes(
        "CPATH changes from a folder the host compiler searches anyway",
        sets(CPATH="{folder}/r"),
        **{**ASKING, "files": {"r/a.h": v(2)}, "roots": ()},
        environ={"CPATH": "/usr/local/include"},
        compilers=NVCC,
    ),
    _changes(
        "a name expression is added",
        asks(more={"entries": ["k<int>", "k<float>"]}),
        source="template <class T> __global__ void k(T* p) { *p = 1; }\n",
        more={"entries": ["k<int>"]},
        compilers=NVRTC,
    ),
    _changes(
        "the source gets another name, which __FILE__ shows",
        asks(more={"source_name": "other.cu"}),
        source="__device__ const char name[] = __FILE__;\n__global__ void k(int* p) { *p = name[*p]; }\n",
    ),
)

MEMORY: dict[str, Any] = {"source": "#include <a.h>\n" + KERNEL, "compilers": NVRTC}
IN_MEMORY = (
    _changes(
        "a header in memory has another text",
        asks(more={"headers": {"a.h": v(2)}}),
        more={"headers": {"a.h": v(1)}},
        **MEMORY,
    ),
    _changes(
        "a header in memory comes before one in a root",
        asks(more={"headers": {"a.h": v(2)}}),
        files={"r/a.h": v(1)},
        roots=("r=r",),
        **MEMORY,
    ),
    _changes(
        "a header in a root that one in memory includes is edited",
        write("r/b.h", v(2)),
        files={"r/b.h": v(1)},
        roots=("r=r",),
        more={"headers": {"a.h": "#include <b.h>\n"}},
        **MEMORY,
    ),
    _changes(
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
    _changes(
        "a specs file of the host compiler appears", specs, prepare=own_front_end, environ={"PATH": IN_FRONT}, **CC
    ),
    _changes(
        "a ptxas appears in front of that of the toolkit",
        put_ptxas("t", folder="nvvm/bin"),
        prepare=kit("t"),
        source=SINE,
        needs=two_releases,
        **TOOLKIT,
    ),
    _changes(
        "what the store knows of tools is deleted under a running process, and a header of what it compiles is edited",
        write("r/a.h", v(2)),
        first=without_tools,
        **ONE,
    ),
    _changes(
        "ptxas is replaced",
        put_ptxas("t"),
        prepare=kit("t", "bin/ptxas"),
        source=SINE,
        needs=two_releases,
        **TOOLKIT,
        **CCACHE_WRONG,
    ),
    _changes(
        "ptxas is a link that is re-pointed",
        put_ptxas("t", linked=True),
        prepare=kit("t"),
        source=SINE,
        needs=two_releases,
        **TOOLKIT,
    ),
    _changes(
        "ptxas is replaced during a compile and put back",
        put_ptxas("t", back=True),
        prepare=kit("t", "bin/ptxas"),
        first=while_compiling(put_ptxas("t")),
        source=SINE,
        needs=two_releases,
        **TOOLKIT,
    ),
    _changes(
        "ptxas is replaced within the refresh interval and put back",
        put_ptxas("t", back=True),
        prepare=kit("t", "bin/ptxas"),
        first=in_a_window(put_ptxas("t")),
        source=SINE,
        needs=two_releases,
        **TOOLKIT,
    ),
    _maybe(
        "ptxas gets another content with the same effect",
        grow("t/bin/ptxas"),
        prepare=kit("t", "bin/ptxas"),
        source=SINE,
        **TOOLKIT,
    ),
    _changes(
        "cicc is replaced by one that fails",
        program("t/nvvm/bin/cicc", "#!/bin/sh\nexit 1\n"),
        prepare=kit("t", "nvvm/bin/cicc"),
        source=SINE,
        **TOOLKIT,
        **CCACHE_WRONG,
    ),
    _changes(
        "cicc is a link that is re-pointed",
        both(program("bad", "#!/bin/sh\nexit 1\n"), link("t/nvvm/bin/cicc", "{folder}/bad")),
        prepare=kit("t"),
        source=SINE,
        **TOOLKIT,
    ),
    _changes(
        "nvcc.profile gets a flag for ptxas",
        edit_profile("PTXAS_FLAGS     +=", "PTXAS_FLAGS     += -O0 "),
        prepare=kit("t"),
        source=SINE,
        **TOOLKIT,
        **CCACHE_WRONG,
    ),
    _changes(
        "nvcc.profile gets a macro",
        edit_profile("INCLUDES        +=", "INCLUDES        += -DV=2 "),
        prepare=kit("t"),
        source=MACRO,
        **TOOLKIT,
    ),
    _changes(
        "a toolkit header is edited",
        write("headers/cuda_fp16.h", v(2)),
        prepare=both(kit("t"), own_headers("t"), write("headers/cuda_fp16.h", v(1))),
        source="#include <cuda_fp16.h>\n" + KERNEL,
        **TOOLKIT,
    ),
    _changes(
        "a header appears in the toolkit's folder",
        write("headers/a.h", v(2)),
        prepare=both(kit("t"), own_headers("t")),
        source=ASKING["source"],
        **TOOLKIT,
    ),
    _changes(
        "a further folder of headers appears in the toolkit",
        write("headers/cccl/a.h", v(2)),
        prepare=both(kit("t"), own_headers("t")),
        source=ASKING["source"],
        **TOOLKIT,
    ),
    _changes(
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
    _changes(
        "-lineinfo is given, and the toolkit is at another place",
        both(kit("u"), sets(CUBINET_NVCC="{folder}/u/bin/nvcc")),
        prepare=kit("t"),
        files={"k.cu": HALVES},
        file="k.cu",
        options=("-lineinfo",),
        **TOOLKIT,
    ),
    _changes(
        "a script that stands for nvcc gets a flag",
        program("nvcc", '#!/bin/sh\nexec "$(dirname "$0")"/t/bin/nvcc -DV=2 "$@"\n'),
        prepare=both(kit("t"), program("nvcc", '#!/bin/sh\nexec "$(dirname "$0")"/t/bin/nvcc "$@"\n')),
        source=MACRO,
        **{**TOOLKIT, "environ": {"CUBINET_NVCC": "{folder}/nvcc"}},
    ),
    _changes(
        "the nvcc in PATH becomes another release",
        calls("bin/nvcc", other_nvcc),
        prepare=calls("bin/nvcc", lambda: toolkit() / "bin/nvcc"),
        source=SINE,
        needs=two_releases,
        **{**TOOLKIT, "environ": {"PATH": IN_FRONT}},
    ),
    _changes(
        "a gcc appears in front in PATH",
        program("bin/gcc", GCC.replace("FLAGS", "-DV=2")),
        environ={"PATH": IN_FRONT},
        **CC,
        ccache="right / WRONG",
        sccache="right",
    ),
    _changes(
        "the gcc in PATH is replaced",
        program("bin/gcc", GCC.replace("FLAGS", "-DV=2")),
        prepare=program("bin/gcc", GCC.replace("FLAGS", "-DV=1")),
        environ={"PATH": IN_FRONT},
        **CC,
        ccache="right / WRONG",
        sccache="right",
    ),
    _changes(
        "the compiler of -ccbin is replaced",
        program("cc/gcc", GCC.replace("FLAGS", "-DV=2")),
        prepare=program("cc/gcc", GCC.replace("FLAGS", "-DV=1")),
        options=("-ccbin", "{folder}/cc/gcc"),
        **CC,
        ccache="right",
    ),
    _changes(
        "the compiler of NVCC_CCBIN is replaced",
        program("cc/gcc", GCC.replace("FLAGS", "-DV=2")),
        prepare=program("cc/gcc", GCC.replace("FLAGS", "-DV=1")),
        environ={"NVCC_CCBIN": "{folder}/cc/gcc"},
        **CC,
        **CCACHE_WRONG,
    ),
    _maybe(
        "the gcc in PATH is another file with the same effect",
        grow("bin/gcc"),
        prepare=own_gcc,
        environ={"PATH": IN_FRONT},
        **CC,
    ),
    _changes(
        "the front end of the host compiler is replaced",
        other_front_end,
        prepare=own_front_end,
        environ={"PATH": IN_FRONT},
        **CC,
    ),
)

FROM: dict[str, Any] = {
    "files": {"s/k.cu": "#include <a.h>\n__global__ void k(int* p) { *p = twice(*p); }\n", "r/a.h": LINES},
    "file": "s/k.cu",
    "roots": ("r=r",),
}
LINEINFO: dict[str, Any] = {**FROM, "options": ("-lineinfo",)}
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
CLOCK = "__device__ const char when[] = MACRO;\n__global__ void k(char* p) { for (int i = 0; i < 8; i++) p[i] = when[i]; }\n"

PLACES = (
    _changes(
        "-lineinfo is given, and everything is copied to another place",
        both(copy("s", "o/s"), copy("r", "o/r"), asks(file="o/s/k.cu", roots=("r=o/r",))),
        **LINEINFO,
        **CCACHE_WRONG,
    ),
    _changes(
        "-G is given, and everything is copied to another place",
        both(copy("s", "o/s"), copy("r", "o/r"), asks(file="o/s/k.cu", roots=("r=o/r",))),
        **{**FROM, "options": ("-G",)},
        random="the names of nvcc's temporary files are in it",
    ),
    _changes(
        "-lineinfo is given, and a header gets another time",
        touch("r/a.h", 1_600_000_000),
        prepare=touch("r/a.h", 1_500_000_000),
        **LINEINFO,
        compilers=NVCC,
    ),
    _changes(
        "-lineinfo is given, and the source gets another time",
        touch("s/k.cu", 1_600_000_000),
        prepare=touch("s/k.cu", 1_500_000_000),
        **LINEINFO,
        compilers=NVCC,
    ),
    _changes("-lineinfo is given, and a header is edited", write("r/a.h", LINES.replace("2", "3")), **LINEINFO),
    _changes(
        "-lineinfo is given, and a header in /dev/shm is edited",
        write("shm/a.h", LINES.replace("2", "3")),
        prepare=shared_memory({"k.cu": FROM["files"]["s/k.cu"], "a.h": LINES}),
        file="{shm}/k.cu",
        roots=("r={shm}",),
        options=("-lineinfo",),
        needs=no_shared_memory,
    ),
    _changes(
        "a file outside of every root, included by its absolute name, is edited",
        write("r/a.h", v(2)),
        files={"r/a.h": v(1)},
        source=ABSOLUTE,
    ),
    _changes(
        "a file in /dev/shm, included by its absolute name, is edited",
        write("shm/a.h", v(2)),
        prepare=shared_memory({"a.h": v(1)}),
        source='#include "{shm}/a.h"\n' + KERNEL,
        needs=no_shared_memory,
    ),
    _changes(
        "a file included by its absolute name is edited, while the root it was in is somewhere else",
        both(write("r/a.h", v(2)), asks(roots=("r=o",))),
        files={"r/a.h": v(1), "o/a.h": v(1)},
        roots=("r=r",),
        source=ABSOLUTE,
    ),
    _changes(
        "a header above the folder of a compile is edited",
        above_private_folders(v(2)),
        prepare=above_private_folders(v(1)),
        source=ABOVE + KERNEL,
        compilers=NVCC,
    ),
    _changes(
        "a header appears above the folder of a compile",
        above_private_folders(v(2)),
        source='#if __has_include("../../{above}")\n' + ABOVE + FALLBACK + KERNEL,
        compilers=NVCC,
    ),
    _changes(
        "a header of a source in memory, whose name passes through a root's label, is edited",
        both(write("include/mylib/a.h", v(2)), write("include/a.h", v(3))),
        files={"include/mylib/a.h": v(1), "include/a.h": v(4), "src/keep.cu": ""},
        roots=("mylib=include",),
        source='#include "../include/mylib/a.h"\n' + KERNEL,
        more={"source_folder": "{folder}/src"},
    ),
    _changes(
        "of two equal headers with #pragma once, one gets the time of the other",
        touch("r/b/x.h", 1_500_000_000),
        prepare=both(touch("r/a/x.h", 1_500_000_000), touch("r/b/x.h", 1_600_000_000)),
        **ONCE,
        compilers=NVCC,
    ),
    _changes(
        'of two equal headers with _Pragma("once"), one gets the time of the other',
        touch("r/b/x.h", 1_500_000_000),
        prepare=both(touch("r/a/x.h", 1_500_000_000), touch("r/b/x.h", 1_600_000_000)),
        **{**ONCE, "files": {"r/a/x.h": '_Pragma("once")\n*p++ = 1;\n', "r/b/x.h": '_Pragma("once")\n*p++ = 1;\n'}},
        compilers=NVCC,
    ),
    _changes(
        "of two equal headers with #pragma once, one becomes a link to the other",
        link("r/b/x.h", "../a/x.h"),
        prepare=both(touch("r/a/x.h", 1_500_000_000), touch("r/b/x.h", 1_600_000_000)),
        **ONCE,
    ),
    _changes(
        "of two equal headers with #pragma once, one becomes a hard link to the other",
        lambda bench: (bench.remove("r/b/x.h"), os.link(bench.folder / "r/a/x.h", bench.folder / "r/b/x.h")) and None,
        prepare=both(touch("r/a/x.h", 1_500_000_000), touch("r/b/x.h", 1_600_000_000)),
        **ONCE,
    ),
    _changes(
        "a link to a header with #pragma once becomes a copy",
        both(write("r/b/x.h", "#pragma once\n*p++ = 1;\n"), touch("r/b/x.h", 1_600_000_000)),
        prepare=link("r/b/x.h", "../a/x.h"),
        **ONCE,
    ),
    _changes(
        "a root that is a link to another root becomes a copy",
        both(remove("two"), copy("one", "two")),
        prepare=link("two", "one"),
        **NEXT,
        compilers=NVCC,
    ),
    _changes(
        "a root that is a copy of another root becomes a link",
        both(remove("two"), link("two", "one")),
        prepare=copy("one", "two"),
        **NEXT,
        compilers=NVCC,
    ),
    _changes(
        "a root that is a folder the compiler searches anyway becomes another",
        asks(roots=("r=r",)),
        **{**ASKING, "files": {"r/a.h": v(2)}, "roots": ("r=/usr/include",)},
        compilers=NVCC,
    ),
    _changes(
        "the time of day changes (__TIME__)",
        lambda _: time.sleep(1.1),
        source=CLOCK.replace("MACRO", "__TIME__"),
        compilers=NVRTC,
        random="it holds the clock",
    ),
    _changes(
        "the day changes (__DATE__)",
        lambda _: None,
        source=CLOCK.replace("MACRO", "__DATE__"),
        compilers=NVRTC,
        random="it holds the clock",
    ),
    _changes(
        "the time of day changes (__TIME__ in a header)",
        lambda _: time.sleep(1.1),
        files={"r/a.h": "#define T __TIME__\n"},
        roots=("r=r",),
        source="#include <a.h>\n" + CLOCK.replace("MACRO", "T"),
        compilers=NVRTC,
        random="it holds the clock",
    ),
    _maybe(
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
    _changes(
        "a missing header whose name is no UTF-8 appears after a failed build",
        write("r/\udcff.h", v(1)),
        files={"r/keep.h": ""},
        roots=("r=r",),
        source="#include <\udcff.h>\n" + KERNEL,
        compilers=NVCC,
    ),
    _changes(
        "a missing header appears after a failed build", write("r/a.h", v(1)), **{**ONE, "files": {"r/keep.h": ""}}
    ),
    _changes(
        "an error in a header is mended after a failed build",
        write("r/a.h", v(1)),
        **{**ONE, "files": {"r/a.h": "#error no\n"}},
    ),
    _changes(
        "an error in a header above the folder of a compile is mended after a failed build",
        above_private_folders(v(1)),
        prepare=above_private_folders("#error no\n"),
        source=ABOVE + KERNEL,
        compilers=NVCC,
    ),
    _changes(
        "an error in a header in /dev/shm is mended after a failed build",
        write("shm/a.h", v(1)),
        prepare=shared_memory({"a.h": "#error no\n"}),
        source='#include "{shm}/a.h"\n' + KERNEL,
        needs=no_shared_memory,
    ),
    _changes(
        "a missing root appears after a failed build",
        write("late/a.h", v(1)),
        roots=("l=late",),
        source="#include <a.h>\n" + KERNEL,
    ),
    _changes(
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

# --- must hit

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
    "#include <a.h>\n#include <cassert>\nnamespace { __device__ int hidden; __global__ void local(int* p) { assert(p); *p = hidden++; } }\n"
    '__global__ void k(int* p) { printf("%s %s", __FILE__, name()); assert(*p); }\nvoid* keep() { return (void*)local; }\n'
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


def spells(*options: str, **rest: Any) -> Change:
    return asks(options=options, **rest)


SAME = (
    _hits(
        "for PTX -gencode says what the target says",
        spells("-gencode", "arch=compute_90a,code=sm_90a"),
        source=v(1) + KERNEL,
        kind="ptx",
        compilers=NVCC,
    ),
    _hits(
        "for a fatbin -gencode says what -arch says",
        spells("-gencode", "arch=compute_80,code=[sm_80,compute_80]"),
        source=v(1) + KERNEL,
        kind="fatbin",
        arch="sm_80",
        compilers=NVCC,
    ),
    _hits(
        "a root in a folder that the compiler searches anyway moves",
        asks(roots=("r=o",)),
        files={"o/keep.h": ""},
        roots=("r=/usr/include/linux/can",),
        source="#include <linux/can/error.h>\n" + v(1) + KERNEL,
        compilers=NVCC,
    ),
    _hits("nothing changes", lambda _: None, **PLAIN, **BOTH_RIGHT),
    _hits(
        "the headers are at another place",
        both(move("r", "some/other place/r"), asks(roots=("r=some/other place/r",))),
        **PLAIN,
        ccache="miss (hit with base_dir)",
        sccache="half a hit",
    ),
    _hits(
        "the source file is at another place",
        both(move("k.cu", "x/y/k.cu"), asks(file="x/y/k.cu")),
        **PLAIN,
        file="k.cu",
        **BOTH_RIGHT,
    ),
    _hits(
        "__FILE__, assert, static kernels and anonymous namespaces are compiled at another place",
        both(move("r", "o/r"), asks(roots=("r=o/r",))),
        **NAMED,
        compilers=NVCC,
        ccache="right",
        sccache="differs from nvcc",
    ),
    _hits(
        "__FILE__ is compiled at another place",
        both(move("r", "o/r"), asks(roots=("r=o/r",))),
        **{
            **NAMED,
            "source": "#include <a.h>\n__global__ void k(const char* volatile* p) { p[0] = __FILE__; p[1] = name(); }\n",
        },
        compilers=NVRTC,
    ),
    _hits("the root becomes a link to where it was", both(move("r", "real"), link("r", "real")), **PLAIN),
    _hits(
        "a root that is a link is re-pointed to an equal copy",
        link("r", "two"),
        prepare=both(link("r", "one")),
        **{**PLAIN, "files": {"one/lib/a.h": v(1), "two/lib/a.h": v(1)}},
    ),
    _hits(
        "a header is replaced by a link to an equal file",
        link("r/lib/b.h", "../../b.h"),
        **{**PLAIN, "files": {**PLAIN["files"], "b.h": v(1)}},
    ),
    _hits("a header is edited and put back", both(write("r/lib/b.h", v(2)), write("r/lib/b.h", v(1))), **PLAIN),
    _hits(
        "every file gets another time",
        lambda bench: [os.utime(path, (1_500_000_000, 1_500_000_000)) for path in bench.folder.rglob("*")] and None,
        **PLAIN,
    ),
    _hits("a header that is not read is edited", write("r/lib/unread.h", "#error\n"), **PLAIN),
    _hits("a header that is not read appears", write("r/lib/new.h", "#error\n"), **PLAIN),
    _hits("a folder that is not read appears", write("r/lib/more/new.h", "#error\n"), **PLAIN),
    _hits("a dangling link appears where a header was looked for", link("r/lib/tune.h", "nowhere"), **PLAIN),
    _hits(
        "a file beside the source that is not read is edited",
        write("notes.txt", "2"),
        **{**PLAIN, "files": {**PLAIN["files"], "notes.txt": "1"}},
        file="k.cu",
    ),
    _hits(
        "a header appears in a later root",
        write("late/lib/b.h", v(2)),
        **{**PLAIN, "files": {**PLAIN["files"], "late/keep.h": ""}, "roots": ("r=r", "l=late")},
    ),
    _hits("another user asks", sets(HOME="/nonexistent", USER="other", LOGNAME="other"), **PLAIN),
    _hits("the working folder is another", in_process(_working_folder), **PLAIN),
    _hits("the umask is another", in_process(_umask), **PLAIN),
    _hits("the locale is another", sets(LANG="de_DE.UTF-8", LC_ALL="de_DE.UTF-8", LANGUAGE="de"), **PLAIN),
    _hits("TMPDIR is another", in_process(_temporary_folder("tmp")), **PLAIN, compilers=NVCC),
    _hits(
        "TMPDIR is another, with blanks and signs",
        in_process(_temporary_folder("my tmp $HOME;'#")),
        **PLAIN,
        compilers=NVCC,
    ),
    _hits(
        "SOURCE_DATE_EPOCH is set",
        sets(SOURCE_DATE_EPOCH="1700000000"),
        **{**PLAIN, "source": CLOCK.replace("MACRO", "__DATE__")},
        compilers=NVCC,
    ),
    _hits(
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
    _hits(
        "the time of day changes (__TIME__, __DATE__)",
        lambda _: time.sleep(1.1),
        source=CLOCK.replace("MACRO", "__TIME__ __DATE__"),
        compilers=NVCC,
        **BOTH_RIGHT,
    ),
    _hits(
        "the time of a file changes (__TIMESTAMP__)",
        touch("r/a.h", 1_600_000_000),
        files={"r/a.h": "#define T __TIMESTAMP__\n"},
        roots=("r=r",),
        source="#include <a.h>\n" + CLOCK.replace("MACRO", "T"),
        compilers=NVCC,
    ),
    _hits(
        "cuda_runtime.h appears in the working folder",
        both(write("elsewhere/cuda_runtime.h", "#error\n"), in_process(_working_folder)),
        **PLAIN,
        ccache="WRONG",
        sccache="not tried",
    ),
    _hits("cuda_runtime.h appears beside the source", write("cuda_runtime.h", "#error\n"), **PLAIN, file="k.cu"),
    _hits("family, name and labels are others", asks(more={"family": "f", "name": "n", "labels": {"a": "b"}}), **PLAIN),
    _hits(
        "the entries come in another order, one twice",
        asks(more={"entries": ["b", "a", "b"]}),
        source='extern "C" __global__ void a() {}\nextern "C" __global__ void b() {}\n',
        more={"entries": ["a", "b"]},
    ),
    _hits("a gate is set", asks(more={"check_no_spills": True}), **PLAIN, compilers=NVCC),
    _hits("the memo is deleted", lambda bench: shutil.rmtree(bench.store_folder / "memo", ignore_errors=True), **PLAIN),
    _hits(
        "all that the store knows of tools is deleted",
        lambda bench: shutil.rmtree(bench.store_folder / "tools"),
        **PLAIN,
    ),
    _hits("the target is written with its vendor", asks(arch="cuda:sm_90a"), **PLAIN),
    _hits("-lineinfo is given, and another working folder asks", in_process(_working_folder), **LINEINFO),
    _hits(
        "-lineinfo is given, and a header that is not read is touched",
        touch("r/b.h", 1_500_000_000),
        **{**LINEINFO, "files": {**LINEINFO["files"], "r/b.h": ""}},
    ),
    _hits(
        "-lineinfo is given for a source in memory, and another working folder asks",
        in_process(_working_folder),
        source=LINES + "__global__ void k(int* p) { *p = twice(*p); }\n",
        options=("-lineinfo",),
    ),
    _hits(
        "-lineinfo is given for a source in a folder with blanks, and another working folder asks",
        in_process(_working_folder),
        files={"a b/k.cu": LINES + "__global__ void k(int* p) { *p = twice(*p); }\n"},
        file="a b/k.cu",
        options=("-lineinfo",),
    ),
    _hits("a -D is spelled in two words", spells("-D", "V=1"), source=KERNEL, options=("-DV=1",)),
    _hits("a -D is spelled out", spells("--define-macro=V=1"), source=KERNEL, options=("-DV=1",)),
    _hits(
        "-use_fast_math is spelled with two dashes", spells("--use_fast_math"), source=SINE, options=("-use_fast_math",)
    ),
    _hits(
        "-maxrregcount is spelled in two words",
        spells("--maxrregcount", "32"),
        source=SINE,
        options=("-maxrregcount=32",),
    ),
    _hits("-Xptxas is spelled out", spells("--ptxas-options=-O1"), source=SINE, options=("-Xptxas", "-O1")),
    _hits(
        "options of two groups are swapped",
        spells("-DV=1", "-fmad=false"),
        source=KERNEL,
        options=("-fmad=false", "-DV=1"),
    ),
    _hits("an option is given twice", spells("-fmad=false", "-fmad=false"), source=SINE, options=("-fmad=false",)),
    _hits(
        "an option is given, then its opposite",
        spells("-fmad=true", "-fmad=false"),
        source=SINE,
        options=("-fmad=false",),
        compilers=NVCC,
    ),
    _hits("a macro is defined twice the same", spells("-DV=1", "-DV=1"), source=KERNEL, options=("-DV=1",)),
    _hits("-arch repeats the target", spells("-arch=sm_90a"), source=v(1) + KERNEL),
    _hits(
        "-gencode says what the target says",
        spells("-gencode", "arch=compute_90a,code=sm_90a"),
        source=v(1) + KERNEL,
        compilers=NVCC,
        ccache="right",
        sccache="right",
    ),
    _hits(
        "-gencode is spelled out, in another order",
        spells("--generate-code=code=sm_90a,arch=compute_90a"),
        source=v(1) + KERNEL,
        options=("-gencode", "arch=compute_90a,code=sm_90a"),
        compilers=NVCC,
    ),
    _hits(
        "an -I is given relative instead of absolute",
        spells("-Ir"),
        **{**PLAIN, "roots": (), "options": ("-I", "{folder}/r")},
    ),
    _hits(
        "an -I is given with a detour",
        spells("-I{folder}/./r//"),
        **{**PLAIN, "roots": (), "options": ("-I", "{folder}/r")},
    ),
    _hits(
        "an -I is given relative, from another folder",
        both(move("r", "x/r"), asks(more={"folder": "{folder}/x"})),
        **{**PLAIN, "roots": (), "options": ("-I", "r")},
    ),
    _hits(
        "two -I come in one list",
        spells("-I{folder}/r,{folder}/q"),
        **{**PLAIN, "roots": (), "options": ("-I", "r", "-I", "q")},
        compilers=NVCC,
    ),
    _hits(
        "options come from an options file instead",
        spells("-optf", "o.txt"),
        **{**PLAIN, "files": {**PLAIN["files"], "o.txt": "-I r\n-DX=1"}, "roots": (), "options": ("-Ir", "-DX=1")},
        compilers=NVCC,
    ),
    _hits(
        "an option comes from NVCC_APPEND_FLAGS instead",
        both(sets(NVCC_APPEND_FLAGS="-fmad=false"), spells()),
        source=SINE,
        options=("-fmad=false",),
        compilers=NVCC,
    ),
    _hits(
        "the number of threads is another", spells("-t4"), **{**PLAIN, "options": ("--threads", "1")}, compilers=NVCC
    ),
    _hits(
        "flags for talking and keeping are given",
        spells("-v", "--keep", "--keep-dir", "x", "-time", "t.csv", "-MD", "-o", "y"),
        **PLAIN,
        compilers=NVCC,
    ),
    _hits(
        "flags for talking and caching are given", spells("--no-cache", "-time=t.csv", "-pch"), **PLAIN, compilers=NVRTC
    ),
    _hits("libraries to link with are given", spells("-lcudart", "-L/x", "-Xlinker", "-z"), **PLAIN, compilers=NVCC),
    _hits("the output is named as an option, too", spells("-cubin", "-c"), **PLAIN, compilers=NVCC),
    _hits(
        "nvcc is found by CUDA_HOME",
        lambda bench: bench.environ.update(CUDA_HOME=str(toolkit())),
        **PLAIN,
        compilers=NVCC,
    ),
    _hits(
        "nvcc is found by CUBINET_NVCC",
        lambda bench: bench.environ.update(CUBINET_NVCC=str(toolkit() / "bin/nvcc")),
        **PLAIN,
        compilers=NVCC,
    ),
    _hits(
        "nvcc is a script that calls it",
        both(
            lambda bench: program("nvcc", f'#!/bin/sh\nexec {toolkit()}/bin/nvcc "$@"\n')(bench),
            sets(CUBINET_NVCC="{folder}/nvcc"),
        ),
        **PLAIN,
        compilers=NVCC,
    ),
    _hits(
        "the toolkit is at another place",
        both(kit("my kit"), sets(CUBINET_NVCC="{folder}/my kit/bin/nvcc")),
        **NAMED,
        compilers=NVCC,
    ),
    _hits(
        "the host compiler is named by NVCC_CCBIN",
        lambda bench: bench.environ.update(NVCC_CCBIN=str(shutil.which("gcc"))),
        **PLAIN,
        compilers=NVCC,
    ),
    _hits(
        "the host compiler is named by a folder",
        lambda bench: asks(options=("-ccbin", os.path.dirname(str(shutil.which("gcc")))))(bench),
        **PLAIN,
        compilers=NVCC,
    ),
    _hits("another variant was compiled in between", Bench.compile_other, **PLAIN),
    _hits(
        "headers in memory are given in another order",
        asks(more={"headers": {"b.h": "", "a.h": v(1)}}),
        more={"headers": {"a.h": v(1), "b.h": ""}},
        **MEMORY,
    ),
)


PROBES = (*EDITS, *SHADOWS, *QUESTIONS, *NAMES, *OPTIONS, *IN_MEMORY, *TOOLS, *PLACES, *HOOKS, *FAILED, *SAME)
