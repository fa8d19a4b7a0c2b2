"""Which nvcc and host compiler, and who they really are.

Identity is the content of every program that takes part, so the same toolkit at another prefix is the
same toolchain and a patched `ptxas` in the same place is another. What was learned about a compiler is
kept beside the store and believed for as long as every file has its stamp.
"""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
from blake3 import blake3

from cubinet.compilers._memo import Memo, stamps_of
from cubinet.errors import ToolchainNotFoundError
from cubinet.fingerprint import digest_of, encode
from cubinet.model import Digest, Program, Toolchain
from cubinet.protocols import Step
from cubinet.registry import Workshop

__all__ = ["Facts", "facts", "find_host", "find_nvcc"]

_REMEDY = "install a CUDA toolkit, or pip install 'cubinet[cuda]', or set CUBINET_NVCC"
_TEMPORARY = re.compile(r"tmpxft_[0-9a-f]+_[0-9a-f]+|module_id_file_name \S+")
_VERSION = re.compile(r"-D__CUDACC_VER_(MAJOR|MINOR|BUILD)__=(\d+)")


class Facts(msgspec.Struct, frozen=True):
    """What is known of one pair of nvcc and host compiler.

    `programs` are (role, path, hex digest); `stamps` are those of `watched`: the programs and whatever
    led to them. `places` are label → folder for the toolkit's headers and the host compiler's.
    """

    nvcc: str
    host: str
    version: str
    default_arch: str
    programs: list[tuple[str, str, str]]
    places: dict[str, str]
    watched: list[str]
    stamps: list[list[int]]

    def toolchain(self) -> Toolchain:
        """The toolchain these facts describe."""
        programs = tuple(Program(role, path, Digest(digest)) for role, path, digest in self.programs)
        identity = digest_of(encode((p.role, p.digest.raw) for p in programs))
        return Toolchain("nvcc", self.version, identity, programs)

    def front_ends(self) -> set[str]:
        """Programs that read sources."""
        return {path for role, path, _ in self.programs if role == "host front end"}


def find_nvcc(workshop: Workshop) -> tuple[str, list[Step]]:
    """The nvcc to use, and every place that was asked. Raises `ToolchainNotFoundError`.

    Order: the setting, `CUBINET_NVCC`, `NVCC`, `$CUDA_HOME/bin`, `$CUDA_PATH/bin`, `PATH`, a
    `nvidia-cuda-nvcc` wheel. A variable that names an nvcc must be right; the others may lack one.
    """
    env, steps = workshop.environ, []
    named = [("CUBINET_NVCC", env.get("CUBINET_NVCC", "")), ("NVCC", env.get("NVCC", ""))]
    if workshop.settings.nvcc and workshop.settings.nvcc != env.get("CUBINET_NVCC"):
        named.insert(0, ("setting nvcc", workshop.settings.nvcc))
    for rule, value in named:
        if not value:
            steps.append(Step(rule, "not set"))
            continue
        found = which(os.path.expanduser(value), env.get("PATH", os.defpath))
        if not found:
            steps.append(Step(rule, f"{value}: no such program"))
            raise ToolchainNotFoundError("nvcc", _texts(steps), f"correct {rule}")
        steps.append(Step(rule, found, chosen=True))
        return found, steps
    for rule in ("CUDA_HOME", "CUDA_PATH"):
        folder = env.get(rule, "")
        path = os.path.join(folder, "bin", "nvcc") if folder else ""
        if path and os.access(path, os.X_OK):
            steps.append(Step(f"${rule}/bin", path, chosen=True))
            return path, steps
        steps.append(Step(f"${rule}/bin", f"no nvcc in {folder}/bin" if folder else "not set"))
    on_path = which("nvcc", env.get("PATH", os.defpath))
    steps.append(Step("PATH", on_path or "no nvcc on it", chosen=bool(on_path)))
    if on_path:
        return on_path, steps
    wheel = _wheel_nvcc(sys.path)
    steps.append(Step("PyPI wheel", wheel or "no nvidia-cuda-nvcc installed", chosen=bool(wheel)))
    if wheel:
        return wheel, steps
    raise ToolchainNotFoundError("nvcc", _texts(steps), _REMEDY)


def which(name: str, path: str) -> str:
    """The program a shell would run, as `shutil.which` finds it at a fifth of the cost; or an empty text."""
    folders = [""] if "/" in name else path.split(os.pathsep)
    for folder in folders:
        full = f"{folder}/{name}" if folder else name
        if ("/" in full) and os.access(full, os.X_OK) and os.path.isfile(full):
            return full
    return ""


def _texts(steps: Sequence[Step]) -> tuple[str, ...]:
    return tuple(f"{step.rule}: {step.found}" for step in steps)


def _wheel_nvcc(path: Sequence[str]) -> str:
    for entry in path:
        found = sorted(Path(entry or ".", "nvidia").glob("cu[0-9]*/bin/nvcc"), key=lambda p: int(p.parts[-3][2:] or 0))
        if found and os.access(found[-1], os.X_OK):
            return str(found[-1])
    return ""


def find_host(choice: str | None, environ: Mapping[str, str]) -> str:
    """The host compiler nvcc would use for `-ccbin choice`. Raises `ToolchainNotFoundError`."""
    path = environ.get("PATH", os.defpath)
    name = choice or "gcc"
    if os.path.isdir(name):
        name = os.path.join(name, "gcc")
    found = which(name, path)
    if not found:
        step = f"-ccbin {choice}: no such program" if choice else "PATH: no gcc on it"
        raise ToolchainNotFoundError("nvcc", (step,), "nvcc preprocesses with the host compiler: install gcc")
    return os.path.abspath(found)


def facts(memo: Memo[Facts], nvcc: str, host: str) -> Facts:
    """What is known of this pair, from memory while no file changed. Raises `ToolchainNotFoundError`."""
    key = blake3(f"{nvcc}\0{host}".encode("utf-8", "surrogateescape")).hexdigest(16)
    return memo.get(f"nvcc-{key}", lambda: _learn(nvcc, host))


def _learn(nvcc: str, host: str) -> Facts:
    from cubinet.compilers._worker import private_folder, run

    with private_folder() as work:
        Path(work, "x.cu").touch()
        lines = _dryrun(nvcc, host, work)
        real = os.path.join(_value(lines, "_HERE_") or os.path.dirname(os.path.realpath(nvcc)), "nvcc")
        if os.path.realpath(real) != os.path.realpath(nvcc) and _plain(_dryrun(real, host, work)) != _plain(lines):
            raise ToolchainNotFoundError(
                "nvcc",
                (f"{nvcc}: a wrapper that changes what {real} does",),
                f"set CUBINET_NVCC={real}, give options here",
            )
        listing = run(
            [host, "-E", "-v", "-x", "c++", os.devnull], folder=work, environ=_environ(host, work), timeout=60
        )
        front = run([host, "-print-prog-name=cc1plus"], folder=work, environ=_environ(host, work), timeout=60)
    text = "\n".join(lines)
    version = dict(_VERSION.findall(text))
    arch = re.search(r"ptxas .*?-arch=(sm_\w+)", text)
    here, cicc = os.path.dirname(real), _value(lines, "CICC_PATH")
    candidates = [
        ("nvcc", real),
        ("nvcc.profile", f"{here}/nvcc.profile"),
        ("cicc", f"{cicc}/cicc"),
        ("libdevice", f"{_value(lines, 'NVVMIR_LIBRARY_DIR')}/libdevice.10.bc"),
        # nvcc searches cicc's folder before its own
        *((name, which(name, f"{cicc}:{here}")) for name in ("ptxas", "fatbinary", "nvlink", "cudafe++")),
        ("host driver", host),
        ("host front end", _front_end(host, front.output.decode(errors="surrogateescape").strip())),
    ]
    # Links and folders too: one may be pointed elsewhere, and a program may appear in front of another.
    named = [path for _, path in candidates if os.path.isfile(path)]
    watched = {nvcc, host, cicc, here, *named, *map(os.path.realpath, named), *map(os.path.dirname, named)}
    stamps = stamps_of([os.stat(path) for path in sorted(watched)])
    programs = []
    for role, path in candidates:
        path = os.path.realpath(path)  # noqa: PLW2901 - what runs, not what names it
        if os.path.isfile(path):
            programs.append((role, path, blake3().update_mmap(path).hexdigest()))
    missing = {"nvcc", "cicc", "ptxas", "host driver", "host front end"} - {role for role, _, _ in programs}
    if missing or len(version) != 3 or arch is None:
        what = f"no {', '.join(sorted(missing))} beside it" if missing else "its -dryrun cannot be read"
        raise ToolchainNotFoundError("nvcc", (f"{nvcc}: {what}",), "check the toolkit, or set CUBINET_NVCC to another")
    places = _toolkit_places(lines) | _host_places(listing.output.decode(errors="surrogateescape"), programs)
    number = ".".join(version[part] for part in ("MAJOR", "MINOR", "BUILD"))
    return Facts(real, host, number, arch[1], programs, places, sorted(watched), stamps)


def _environ(host: str, work: str) -> dict[str, str]:
    return {"PATH": f"{os.path.dirname(host)}:/usr/bin:/bin", "LC_ALL": "C", "TMPDIR": work}


def _dryrun(nvcc: str, host: str, work: str) -> list[str]:
    from cubinet.compilers._worker import run

    argv = [nvcc, "-dryrun", "-cubin", "-ccbin", host, "x.cu"]
    try:
        done = run(argv, folder=work, environ=_environ(host, work), timeout=60)
    except OSError as exc:
        raise ToolchainNotFoundError("nvcc", (f"{nvcc}: {exc.strerror}",), "set CUBINET_NVCC to another") from exc
    text = done.output.decode(errors="surrogateescape")
    if done.status:
        last = text.strip().splitlines()[-1:] or [f"status {done.status}"]
        raise ToolchainNotFoundError("nvcc", (f"{nvcc}: {last[0]}",), "set CUBINET_NVCC to another")
    return [line[3:] for line in text.splitlines() if line.startswith("#$ ")]


def _plain(lines: list[str]) -> list[str]:
    return [_TEMPORARY.sub("", line) for line in lines if not line.startswith(("PATH=", "LD_LIBRARY_PATH="))]


def _value(lines: list[str], name: str) -> str:
    found = [line[len(name) + 1 :] for line in lines if line.startswith(f"{name}=")]
    return found[-1].strip() if found else ""


def _front_end(host: str, answer: str) -> str:
    # clang has no cc1plus: it answers with the bare name and runs itself
    return answer if os.path.isabs(answer) else host


def _toolkit_places(lines: list[str]) -> dict[str, str]:
    folders: list[str] = []
    for name in ("INCLUDES", "SYSTEM_INCLUDES"):
        for word in shlex.split(_value(lines, name)):
            path = word.removeprefix("-isystem").removeprefix("-I")
            if path and not any(path.startswith(have + "/") for have in folders):
                folders.append(path)
    return {f"toolkit{i or ''}": path for i, path in enumerate(folders)}


def _host_places(listing: str, programs: list[tuple[str, str, str]]) -> dict[str, str]:
    places = {}
    _, _, rest = listing.partition("#include <...> search starts here:\n")
    for i, line in enumerate(rest.partition("End of search list")[0].splitlines()):
        places[f"host{i}"] = line.strip().removesuffix(" (framework directory)").rstrip("/")
    front = next((path for role, path, _ in programs if role == "host front end"), "")
    if os.path.basename(front).startswith("cc1"):
        places["hostlib"] = os.path.dirname(front)
    return places
