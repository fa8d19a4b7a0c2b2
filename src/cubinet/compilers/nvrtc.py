"""The NVRTC adapter: CUDA C++ to cubin, PTX or LTO-IR inside warm worker processes, no nvcc needed.

The worker's folder is laid out as nvcc's is, and the same recorder sees what NVRTC looks at: headers in
memory leave no trace and are part of the action, headers in folders are observed. NVRTC has no headers of
its own: the toolkit's folder is a root like any other.
"""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Sequence

import msgspec
from blake3 import blake3

from cubinet.compilers._layout import all_roots, hook_environment, kept_as_file, with_seed
from cubinet.compilers._memo import Memo, stamps_of
from cubinet.compilers._nvrtc_options import parse_nvrtc
from cubinet.compilers._nvrtc_pool import Pool, WorkerDiedError
from cubinet.compilers._nvrtc_run import ARCH, Run, kind_made
from cubinet.compilers._recorder import Recorder, recorder
from cubinet.compilers._toolchain import find_host
from cubinet.errors import CompileError, CompileTimeoutError, ConfigError, ToolchainNotFoundError
from cubinet.fingerprint import digest_of, encode
from cubinet.model import Digest, Program, Toolchain, Variant
from cubinet.protocols import Compiled, Request, Step
from cubinet.registry import Workshop

__all__ = ["NvrtcCompiler"]

_DECIDES = ("LD_LIBRARY_PATH", "CUDA_HOME", "CUDA_PATH", "CONDA_PREFIX")
_REMEDY = "pip install 'cubinet[cuda]', which brings cuda-bindings and nvidia-cuda-nvrtc"


class Facts(msgspec.Struct, frozen=True):
    """What is known of the NVRTC that this interpreter finds."""

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


class NvrtcCompiler:
    """Compiles CUDA C++ with NVRTC. See `cubinet.protocols.Compiler`."""

    name = "nvrtc"

    def __init__(self, workshop: Workshop) -> None:
        self.workshop = workshop
        self.contents = workshop.contents
        self.pool = Pool(workshop.environ)
        self._memo = Memo(workshop, Facts)
        self._facts: tuple[float, Facts] | None = None

    def steps(self) -> Sequence[Step]:
        """NVRTC is found by cuda-bindings: wheels first, then the system's libraries, then `CUDA_HOME`."""
        try:
            found = next(path for role, path, _ in self.facts().programs if role == "libnvrtc")
        except ToolchainNotFoundError as exc:
            return (Step("cuda-bindings", exc.steps[0]),)
        return (Step("cuda-bindings", found, chosen=True),)

    def toolchain(self) -> Toolchain:
        """The NVRTC at hand."""
        return self.facts().toolchain()

    def refresh(self) -> None:
        """Look anew at the libraries at the next call."""
        self._facts = None

    def recorder(self) -> Recorder:
        """The recorder, built with any host compiler there is, or why it is not trusted."""
        try:
            host = find_host(None, self.workshop.environ)
        except ToolchainNotFoundError:
            return Recorder("", "there is no gcc to build it with")
        return recorder(self.workshop, host)

    def facts(self) -> Facts:
        """Everything known of NVRTC; looked at again after the refresh interval. Starts a worker if new."""
        now = time.monotonic()
        if self._facts is None or now >= self._facts[0]:
            path = "\0".join((sys.executable, *sys.path, *(self.workshop.environ.get(n, "") for n in _DECIDES)))
            key = blake3(path.encode("utf-8", "surrogateescape")).hexdigest(16)
            known = self._memo.get(f"nvrtc-{key}", self._learn)
            self._facts = (now + self.workshop.settings.refresh, known)
        return self._facts[1]

    def _learn(self) -> Facts:
        try:
            with self.pool.worker(self.recorder()) as worker:
                about = worker.about
        except (WorkerDiedError, OSError) as exc:
            raise ToolchainNotFoundError("nvrtc", (f"cuda-bindings: {exc}",), _REMEDY) from exc
        if "error" in about:
            raise ToolchainNotFoundError("nvrtc", (f"cuda-bindings: {about['error'].strip()}",), _REMEDY)
        programs = []
        for path in about["libraries"]:
            role = re.sub(r"\.(so|alt).*", "", os.path.basename(path))
            programs.append((role, path, blake3().update_mmap(path).hexdigest()))
        # a library that appears earlier on the search path changes its folder
        folders = [entry for entry in sys.path if os.path.isdir(entry)]
        folders += [f"{entry}/nvidia" for entry in folders if os.path.isdir(f"{entry}/nvidia")]
        watched = sorted({*folders, *(path for _, path, _ in programs)})
        return Facts(
            about["version"], about["archs"], programs, watched, stamps_of([os.stat(path) for path in watched])
        )

    def normalize(self, variant: Variant) -> Request:
        """Settle a variant; see `Compiler.normalize`."""
        if variant.target.vendor != "cuda":
            raise ConfigError("compile with NVRTC", str(variant.target), "NVRTC makes CUDA code only")
        parsed = parse_nvrtc(with_seed(variant.options), kind=variant.kind, folder=variant.folder or "/", environ={})
        known = self.facts()
        if parsed.bound:
            variant = kept_as_file(variant, self.workshop)
        roots = all_roots(variant, parsed.includes, {}, {})
        places = {root.label: root.path for root in roots}
        arguments = [*_architecture(variant, parsed.architectures, known), *parsed.arguments, *parsed.passthrough]
        arguments += (f"--pre-include={path}" for path in parsed.preincludes)
        bound = ""
        if parsed.bound:
            bound = "\0".join(f"{root.label}={root.path}" for root in roots) or "a private folder"
        return Request(
            variant,
            known.toolchain(),
            tuple(arguments),
            hook_environment(variant, places),
            roots,
            places,
            uncacheable="; ".join(parsed.uncacheable),
            bound=bound,
            bound_by=f"{', '.join(parsed.bound)} writes the paths of this machine into it" if bound else "",
        )

    def compile(self, request: Request, *, timeout: float | None = None) -> Compiled:
        """Have a worker compile and inspect what it made; see `Compiler.compile`."""
        variant = request.variant
        subject, known = variant.name or variant.source_name, f"NVRTC {request.toolchain.version}"
        try:
            with self.pool.worker(self.recorder()) as worker:
                return Run(request, worker, self.contents, subject).compile(timeout)
        except WorkerDiedError as exc:
            if exc.timed_out:
                remedy = "raise CUBINET_TIMEOUT, or look for a runaway template"
                raise CompileTimeoutError(subject, str(exc), remedy, toolchain=known) from exc
            raise CompileError(subject, str(exc), "try nvcc, which tells more", toolchain=known) from exc


def _architecture(variant: Variant, given: Sequence[str], known: Facts) -> tuple[str, ...]:
    """The argument for the architecture, and for the kind. PTX stands in for an unknown architecture."""
    match = ARCH.fullmatch(variant.target.arch)
    if match is None:
        raise ConfigError("compile for", variant.target.arch, "not an architecture of NVRTC", "an example: sm_90a")
    asked = given[0].partition("=")[2] if given else variant.target.arch
    named = ARCH.fullmatch(asked)
    if named is None or named.groups() != match.groups():
        raise ConfigError("compile for", variant.target.arch, f"the options name {asked}", "name it once")
    kind = kind_made(variant, known.archs)
    spelled = [f"--gpu-architecture={_reached(asked, known.archs)}"]
    return parse_nvrtc(spelled, kind=kind, folder="/", environ={}).architectures


def _reached(arch: str, archs: Sequence[int]) -> str:
    """The newest architecture that NVRTC knows, if the one asked for is newer still."""
    number = int(ARCH.fullmatch(arch)[1])  # type: ignore[index]
    if number in archs or number <= max(archs):
        return arch
    return f"compute_{max(archs)}"
