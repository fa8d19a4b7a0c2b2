"""The NVRTC adapter: CUDA C++ to cubin, PTX or LTO-IR inside warm worker processes, no nvcc needed.

The worker's folder is laid out as nvcc's is, and the same recorder sees what NVRTC looks at: headers in
memory leave no trace and are part of the action, headers in folders are observed. NVRTC has no headers of
its own: the toolkit's folder is a root like any other.

For an architecture newer than all it knows NVRTC makes PTX for the newest one, which a driver can take: such a
record has the kind `ptx` though a cubin was asked for.
"""

from __future__ import annotations

import os
import re
import site
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec
from blake3 import blake3

from cubinet.compilers._layout import all_roots, hook_environment, kept_as_file, same_folders, with_seed
from cubinet.compilers._memo import Memo, stamps_of
from cubinet.compilers._nvrtc_options import parse_nvrtc
from cubinet.compilers._toolchain import find_host
from cubinet.errors import CompileError, CompileTimeoutError, ConfigError, ToolchainNotFoundError
from cubinet.fingerprint import digest_of, encode
from cubinet.model import Digest, Program, Toolchain, Variant
from cubinet.observations import nearest_folder
from cubinet.protocols import Compiled, Request, Step
from cubinet.registry import Workshop

if TYPE_CHECKING:
    from cubinet.compilers._nvrtc_pool import Library, Needs
    from cubinet.compilers._pin import Pin
    from cubinet.compilers._recorder import Recorder

__all__ = ["NvrtcCompiler"]

_ARCH = re.compile(r"(?:sm|compute)_(\d+)([af]?)")
_DECIDES = ("LD_LIBRARY_PATH", "CUDA_HOME", "CUDA_PATH", "CONDA_PREFIX")
"""Variables that decide which NVRTC is found. `NVRTC_*` and everything else stays outside."""

_CACHE = "/etc/ld.so.cache"
_REMEDY = "pip install 'cubinet[cuda]', which brings cuda-bindings and nvidia-cuda-nvrtc"


class Facts(msgspec.Struct, frozen=True):
    """What is known of the NVRTC that this interpreter finds.

    `programs` are (role, path, hex digest); `stamps` are those of `watched`: the libraries, and the folders
    where another one could appear before them.
    """

    version: str
    archs: list[int]
    programs: list[tuple[str, str, str]]
    watched: list[str]
    stamps: list[list[int]]

    @property
    def default_arch(self) -> str:
        """The oldest architecture it knows."""
        return f"sm_{min(self.archs)}"

    def toolchain(self) -> Toolchain:
        """The toolchain these facts describe."""
        programs = tuple(Program(role, path, Digest(digest)) for role, path, digest in self.programs)
        return Toolchain("nvrtc", self.version, digest_of(encode((p.role, p.digest.raw) for p in programs)), programs)

    def libraries(self) -> tuple[Library, ...]:
        """What a worker must have loaded."""
        stamps = dict(zip(self.watched, self.stamps, strict=True))
        return tuple(sorted((path, tuple(stamps[path])) for _, path, _ in self.programs))


class NvrtcCompiler:
    """Compiles CUDA C++ with NVRTC. See `cubinet.protocols.Compiler`."""

    name = "nvrtc"

    def __init__(self, workshop: Workshop) -> None:
        self.workshop = workshop
        self.contents = workshop.contents
        self._memo = Memo(workshop, Facts)
        self._facts: tuple[float, tuple[str, ...], Facts] | None = None
        self._none: tuple[str, list[list[int]], ToolchainNotFoundError] | None = None

    def steps(self) -> Sequence[Step]:
        """NVRTC is found by cuda-bindings: wheels first, then the system's libraries, then `CUDA_HOME`."""
        try:
            found = next(path for role, path, _ in self.facts().programs if role == "libnvrtc")
        except ToolchainNotFoundError as exc:
            return (Step("cuda-bindings", exc.steps[0].removeprefix("cuda-bindings: ")),)
        return (Step("cuda-bindings", found, chosen=True),)

    def toolchain(self) -> Toolchain:
        """The NVRTC at hand."""
        return self.facts().toolchain()

    def refresh(self) -> None:
        """Look anew at the libraries at the next call."""
        self._facts = self._none = None

    def recorder(self) -> Recorder:
        """The recorder, built with any host compiler there is, or why it is not trusted."""
        from cubinet.compilers._recorder import Recorder, recorder

        try:
            host = find_host(None, self.workshop.environ)
        except ToolchainNotFoundError:
            return Recorder("", "there is no gcc to build the recorder with")
        return recorder(self.workshop, host)

    def facts(self) -> Facts:
        """Everything known of NVRTC; looked at again after the refresh interval. Starts a worker if new."""
        now, path = time.monotonic(), _search_path()
        if self._facts is None or now >= self._facts[0] or path != self._facts[1]:
            deciding = (f"{name}={value}" for name, value in self._deciding())
            text = "\0".join((sys.executable, *_packages(path), *deciding))
            key = blake3(text.encode("utf-8", "surrogateescape")).hexdigest(16)
            known = self._found(key)
            self._facts = (now + self.workshop.settings.refresh, path, known)
        return self._facts[2]

    def _found(self, key: str) -> Facts:
        """The facts; that there is none is believed too while the folders where it would be have their stamps."""
        if self._none is not None and self._none[:2] == (key, self._around()):
            raise self._none[2].with_traceback(None)
        try:
            return self._memo.get(f"nvrtc-{key}", self._learn)
        except ToolchainNotFoundError as exc:
            self._none = (key, self._around(), exc)
            raise

    def _around(self) -> list[list[int]]:
        folders = _watched(_search_path(), self.workshop.environ)
        return stamps_of([os.stat(path) for path in folders if os.path.exists(path)])

    def _facts_or_pin(self) -> Facts:
        """The same; if there is no NVRTC, those of the pinned one, with which nothing can be compiled."""
        try:
            return self.facts()
        except ToolchainNotFoundError:
            from cubinet.compilers._pin import find_pin

            pin = find_pin(self.workshop, self.name)
            if pin is None:
                raise
            return Facts(pin.version, list(pin.archs), [(role, "", digest) for role, digest in pin.programs], [], [])

    def pin(self) -> Pin:
        """A description of the NVRTC at hand, for machines that have none. Raises `ToolchainNotFoundError`."""
        from cubinet.compilers._pin import Pin

        known = self.facts()
        programs = tuple((role, digest) for role, _, digest in known.programs)
        return Pin(self.name, known.version, programs, archs=tuple(known.archs))

    def _deciding(self) -> tuple[tuple[str, str], ...]:
        environ = self.workshop.environ
        return tuple((name, environ[name]) for name in _DECIDES if environ.get(name))

    def _needs(self, known: Facts | None) -> Needs:
        from cubinet.compilers._nvrtc_pool import Needs

        libraries = () if known is None else known.libraries()
        return Needs(self._deciding(), _search_path(), self.recorder(), libraries)

    def _learn(self) -> Facts:
        from cubinet.compilers._nvrtc_pool import POOL, WorkerDiedError, stamped

        try:
            for _ in range(3):
                with POOL.worker(self._needs(None)) as worker:
                    about, before = worker.about, stamped(worker.about["libraries"])
                if "error" in about:
                    raise ToolchainNotFoundError("nvrtc", (f"cuda-bindings: {_one_line(about['error'])}",), _REMEDY)
                programs = [
                    (re.sub(r"\.(so|alt).*", "", os.path.basename(path)), path, blake3().update_mmap(path).hexdigest())
                    for path, _ in before
                ]
                folders = _watched(_search_path(), self.workshop.environ)
                watched = sorted({*folders, *(path for path, _ in before)})
                stamps = stamps_of([os.stat(path) for path in watched])
                known = Facts(about["version"], about["archs"], programs, watched, stamps)
                if before and known.libraries() == before:
                    return known
        except (WorkerDiedError, OSError) as exc:
            raise ToolchainNotFoundError("nvrtc", (f"cuda-bindings: {exc}",), _REMEDY) from exc
        raise ToolchainNotFoundError("nvrtc", ("cuda-bindings: its libraries keep changing",), "wait, and try again")

    def normalize(self, variant: Variant) -> Request:
        """Settle a variant; see `Compiler.normalize`."""
        if variant.target.vendor != "cuda":
            raise ConfigError("compile with NVRTC", str(variant.target), "NVRTC makes CUDA code only")
        if variant.kind == "fatbin":
            raise ConfigError(
                "compile with NVRTC", "fatbin", "NVRTC makes none", "one of cubin, ptx, ltoir; or use nvcc"
            )
        for name, text in ((variant.source_name, variant.source), *variant.headers):
            if "\0" in text or "\0" in name:
                raise ConfigError("compile with NVRTC", name, "it has a NUL character, and NVRTC reads no further")
        known = self._facts_or_pin()
        kind = _kind_made(variant, known.archs)
        parsed = parse_nvrtc(with_seed(variant.options), kind=kind, folder=variant.folder or "/", environ={})
        if parsed.bound:
            variant = kept_as_file(variant, self.workshop)
        roots = all_roots(variant, parsed.includes, {}, {})
        places = {root.label: root.path for root in roots}
        arguments = [*_architecture(variant, parsed.architectures, known.archs), *parsed.arguments, *parsed.passthrough]
        in_memory = {name for name, _ in variant.headers}
        for i, path in enumerate(parsed.preincludes):
            # NVRTC looks among the headers in memory, in the working folder, then where it looks for all headers
            here = os.path.join(variant.folder, path)
            if path not in in_memory and os.path.exists(here):
                places[f"pre{i}"], name = os.path.split(here)
                arguments.append(f"--pre-include={here if parsed.bound else f'include/pre{i}/{name}'}")
            else:
                arguments.append(f"--pre-include={path}")
        bound = ""
        if parsed.bound:
            bound = "\0".join(f"{label}={place}" for label, place in sorted(places.items())) or "a private folder"
        return Request(
            variant,
            known.toolchain(),
            tuple(arguments),
            hook_environment(variant, places),
            roots,
            places,
            same=same_folders(roots, {}),
            uncacheable="; ".join(parsed.uncacheable),
            bound=bound,
            bound_by=f"{', '.join(parsed.bound)} writes the paths of this machine into it" if bound else "",
        )

    def compile(self, request: Request, *, timeout: float | None = None) -> Compiled:
        """Have a worker compile and inspect what it made; see `Compiler.compile`."""
        from cubinet.compilers._nvrtc_pool import WorkerDiedError

        variant = request.variant
        subject, version = variant.name or variant.source_name, f"NVRTC {request.toolchain.version}"
        try:
            made = self._compile(request, subject, timeout)
        except WorkerDiedError as exc:
            if exc.timed_out:
                remedy = "raise CUBINET_TIMEOUT, or look for a runaway template"
                raise CompileTimeoutError(subject, str(exc), remedy, exc.log, (), version) from exc
            raise CompileError(subject, str(exc), "try nvcc, which may tell more", exc.log, (), version) from exc
        except OSError as exc:
            raise CompileError(subject, f"NVRTC cannot be run: {exc}", "see cubinet doctor", "", (), version) from exc
        return self._edited(request, made, timeout) if variant.hook else made

    def _compile(self, request: Request, subject: str, timeout: float | None) -> Compiled:
        from cubinet.compilers._nvrtc_pool import POOL, LibrariesChangedError
        from cubinet.compilers._nvrtc_run import Run

        for _ in range(3):
            known = self.facts()
            try:
                with POOL.worker(self._needs(known)) as worker:
                    kind = _kind_made(request.variant, known.archs)
                    made = Run(request, worker, self.contents, kind=kind, subject=subject).compile(timeout)
            except LibrariesChangedError:
                self.refresh()
                continue
            if known.toolchain().identity != request.toolchain.identity:
                return replace(made, uncacheable="NVRTC was replaced while compiling")
            return made
        raise CompileError(subject, "the libraries of NVRTC keep changing", "wait, and try again")

    def _edited(self, request: Request, made: Compiled, timeout: float | None) -> Compiled:
        """The same after the post-hook."""
        from cubinet.compilers._hook import apply, inspected
        from cubinet.compilers._layout import Layout

        data, more = apply(made.data, Layout("", request, {}), self.recorder(), self.contents, timeout)
        entries = {symbol for name, symbol in made.names if not name.startswith("&")}
        entries |= {entry for entry in request.variant.entries if entry.startswith("_Z")}
        kernels = inspected(request.variant, data, made.kernels, kind=made.kind, entries=sorted(entries))
        looks = tuple(dict.fromkeys((*made.observations, *more.observations)))
        return replace(
            made,
            data=data,
            kernels=kernels,
            observations=looks,
            uncacheable=made.uncacheable or more.uncacheable,
            local_only=made.local_only or more.local_only,
        )


def _search_path() -> tuple[str, ...]:
    """The user's site folder, then where a worker looks for modules.

    Not the working folder, which `""` stands for: no code comes from there.
    """
    user = site.getusersitepackages() if site.ENABLE_USER_SITE else ""
    return (user, *(os.path.abspath(entry) for entry in sys.path if entry))


def _packages(path: Sequence[str]) -> list[str]:
    """Folders that may have the bindings, or a library. What else is on the search path may change as it likes."""
    entries = dict.fromkeys((*site.getsitepackages(), *path))
    found = (f"{entry}/{name}" for entry in entries if entry for name in ("nvidia", "cuda"))
    return [folder for folder in found if os.path.isdir(folder)]


def _watched(path: Sequence[str], environ: Mapping[str, str]) -> set[str]:
    """Folders that change when another library appears where it would be found first."""
    import glob

    found = set(_packages(path))
    for folder in list(found):
        found.update(glob.glob(f"{glob.escape(folder)}/*/"), glob.glob(f"{glob.escape(folder)}/*/lib/"))
    named = [entry for entry in environ.get("LD_LIBRARY_PATH", "").split(os.pathsep) if entry]
    for name in ("CUDA_HOME", "CUDA_PATH", "CONDA_PREFIX"):
        named += [f"{environ[name]}/lib64", f"{environ[name]}/lib"] if environ.get(name) else []
    found.update(entry if os.path.isdir(entry) else nearest_folder(os.path.abspath(entry)) for entry in named)
    return found | ({_CACHE} if os.path.exists(_CACHE) else set())


def _one_line(text: str) -> str:
    return "; ".join(line.strip() for line in text.splitlines() if line.strip())


def _arch(arch: str) -> re.Match[str]:
    match = _ARCH.fullmatch(arch)
    if match is None:
        raise ConfigError("compile for", arch, "not an architecture of NVRTC", "an example: sm_90a")
    return match


def _kind_made(variant: Variant, archs: Sequence[int]) -> str:
    """What NVRTC can make of what was asked: PTX instead of a cubin for an architecture newer than it."""
    return "ptx" if variant.kind == "cubin" and int(_arch(variant.target.arch)[1]) > max(archs) else variant.kind


def _architecture(variant: Variant, given: Sequence[str], archs: Sequence[int]) -> tuple[str, ...]:
    """The argument for the architecture; for one that is too new, the newest that NVRTC knows."""
    match, newest = _arch(variant.target.arch), max(archs)
    reached = f"compute_{newest}" if int(match[1]) > newest else variant.target.arch
    asked = given[0].partition("=")[2] if given else reached
    named = _ARCH.fullmatch(asked)
    if asked != reached and (named is None or named.groups() != match.groups()):
        raise ConfigError("compile for", variant.target.arch, f"the options name {asked}", "name it once")
    kind = _kind_made(variant, archs)
    return parse_nvrtc([f"--gpu-architecture={reached}"], kind=kind, folder="/", environ={}).architectures
