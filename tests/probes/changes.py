"""What probes change: files, links, times, what is asked, the environment, whole toolkits."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from .bench import Bench, Change, Effect, Outcome, Probe, clean_environ, in_another_thread

NVCC, NVRTC = ("nvcc",), ("nvrtc",)
KERNEL = "__global__ void k(int* p) { *p = V; }\n"
FALLBACK = "#else\n#define V 1\n#endif\n"
LINES = "__device__ inline int twice(int x) { return x * 2; }\n"


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


def hard_link(name: str, to: str) -> Change:
    def change(bench: Bench) -> None:
        bench.remove(name)
        os.link(bench.folder / to, bench.folder / name)

    return change


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
    """Move something."""

    def change(bench: Bench) -> None:
        shutil.move(bench.folder / name, bench.path(to))

    return change


def copy(name: str, to: str) -> Change:
    """Copy a folder, with new times."""

    def change(bench: Bench) -> None:
        shutil.copytree(bench.folder / name, bench.path(to), symlinks=True, copy_function=shutil.copyfile)

    return change


def in_process(enter: Callable[[Bench], Callable[[], object]]) -> Change:
    """Change something of this process; what `enter` returns puts it back after the probe."""

    def change(bench: Bench) -> None:
        bench.restore.callback(enter(bench))

    return change


def same_size_same_time(name: str, text: str) -> Change:
    """Edit a file and put its modification time back."""

    def change(bench: Bench) -> None:
        path = bench.folder / name
        info = path.stat()
        bench.write(name, text)
        assert path.stat().st_size == info.st_size
        os.utime(path, ns=(info.st_atime_ns, info.st_mtime_ns))

    return change


def pause(seconds: float) -> Change:
    """Wait; a twelfth of it with NVRTC, which is as much faster than nvcc."""
    return lambda bench: time.sleep(seconds if bench.compiler == "nvcc" else seconds / 12)


def while_compiling(change: Change, seconds: float = 0.18) -> Callable[[Bench], Outcome]:
    """Make a change while the first compile runs."""

    def first(bench: Bench) -> Outcome:
        store = bench.store()
        bench.compile_other(store)  # so that everything there is to start is started
        with in_another_thread(lambda: both(pause(seconds), change)(bench)):
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


def wheel_nvcc() -> Path | None:
    """The nvcc that is installed as a wheel."""
    found = [path for entry in sys.path for path in Path(entry or ".", "nvidia").glob("cu[0-9]*/bin/nvcc")]
    return found[0] if found else None


def toolkit() -> Path:
    """The folder of the nvcc at hand."""
    nvcc = shutil.which("nvcc", path=clean_environ().get("PATH", "")) or wheel_nvcc()
    assert nvcc is not None
    lines = subprocess.run([nvcc, "-dryrun", "-cubin", "x.cu"], capture_output=True, text=True, check=False).stderr
    here = next(line.partition("=")[2] for line in lines.splitlines() if line.startswith("#$ _HERE_="))
    return Path(here).resolve().parent


def other_ptxas() -> Path | None:
    """A ptxas of another release than that of the toolkit: the wheel's, if nvcc is none of the wheel's."""
    found = wheel_nvcc()
    if found is None or found.resolve().parents[1] == toolkit():
        return None
    return found.with_name("ptxas")


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


def include_absolutely(name: str, header: str, form: str = "#include {path}\n", by: str = "") -> Change:
    """Ask for a source that includes a header of a toolkit by the very path that its nvcc searches.

    Args:
        name, header: the toolkit and its header.
        form: how the source includes it.
        by: a header that is to do that instead of the source.
    """

    def change(bench: Bench) -> None:
        inner = "targets/x86_64-linux/include" if (bench.folder / name / "targets").exists() else "include"
        text = form.replace("{path}", f'"{bench.folder}/{name}/bin/../{inner}/{header}"')
        if by:
            bench.write(by, text)
            text = f"#include <{Path(by).name}>\n"
        bench.asked = replace(bench.asked, source=text + KERNEL)

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

    def change(bench: Bench) -> None:
        program(name, f'#!/bin/sh\nexec {target()} "$@"\n')(bench)

    return change


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


# --- what several probes ask, and what was found for other caches

BOTH_RIGHT = {"ccache": "right", "sccache": "right"}
CCACHE_WRONG = {"ccache": "WRONG", "sccache": "right"}
SINE = "__global__ void k(float* p, float a) { *p = sinf(*p) / a + *p * a; }\n"
CLOCK = (
    "__device__ const char when[] = MACRO;\n"
    "__global__ void k(char* p) { for (int i = 0; i < 8; i++) p[i] = when[i]; }\n"
)
FROM: dict[str, Any] = {
    "files": {"s/k.cu": "#include <a.h>\n__global__ void k(int* p) { *p = twice(*p); }\n", "r/a.h": LINES},
    "file": "s/k.cu",
    "roots": ("r=r",),
}
LINEINFO: dict[str, Any] = {**FROM, "options": ("-lineinfo",)}
MEMORY: dict[str, Any] = {"source": "#include <a.h>\n" + KERNEL, "compilers": NVRTC}


# --- kinds of probes


def changes(name: str, change: Change, **rest: Any) -> Probe:
    return Probe(name=name, effect=Effect.CHANGES, change=change, **rest)


def may_miss(name: str, change: Change, **rest: Any) -> Probe:
    return Probe(name=name, effect=Effect.OPEN, change=change, **rest)


def must_hit(name: str, change: Change, **rest: Any) -> Probe:
    return Probe(name=name, effect=Effect.NOTHING, change=change, **rest)
