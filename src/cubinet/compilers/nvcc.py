"""The nvcc adapter.

Each compile runs in an empty private folder: the source under `src/`, every root as a link
`include/<label>`, relative `-I`, a fixed environment, a constant `--frandom-seed`. So neither the
result nor its key knows where anything was, and paths with blanks work. What made each of these
necessary is in `docs/explanation/design.md`.
"""

from __future__ import annotations

import functools
import os
import re
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from cubinet.compilers._layout import all_roots, hook_environment, kept_as_file, same_folders, with_seed
from cubinet.compilers._memo import Memo
from cubinet.compilers._nvcc_options import NVCC, parse_nvcc
from cubinet.compilers._toolchain import Facts, facts, find_host, find_nvcc
from cubinet.errors import ConfigError, ToolchainNotFoundError
from cubinet.model import Toolchain, Variant
from cubinet.protocols import Compiled, Request, Step
from cubinet.registry import Workshop

if TYPE_CHECKING:
    from cubinet.compilers._pin import Pin
    from cubinet.compilers._recorder import Recorder

__all__ = ["NvccCompiler"]

_ENVIRONMENT = (("LC_ALL", "C"), ("SOURCE_DATE_EPOCH", "0"))
"""`__DATE__` and `__TIME__` are those of 1970: a clock in the result could never hit."""

_CPATH = {"CPATH": "include", "CPLUS_INCLUDE_PATH": "system"}


class NvccCompiler:
    """Compiles CUDA C++ to cubin, PTX or fatbin with nvcc. See `cubinet.protocols.Compiler`."""

    name = "nvcc"

    def __init__(self, workshop: Workshop) -> None:
        self.workshop = workshop
        self.contents = workshop.contents
        self._memo = Memo(workshop, Facts)
        self._facts: dict[str | None, tuple[float, Facts]] = {}
        self._toolchain: tuple[Facts, Toolchain] | None = None
        self._distrust = ""

    def steps(self) -> Sequence[Step]:
        """Where nvcc was looked for, in order."""
        return find_nvcc(self.workshop)[1]

    def toolchain(self) -> Toolchain:
        """The nvcc and host compiler at hand."""
        return self._toolchain_of(self.facts())

    def _toolchain_of(self, known: Facts) -> Toolchain:
        if self._toolchain is None or self._toolchain[0] is not known:
            self._toolchain = (known, known.toolchain())
        return self._toolchain[1]

    def facts(self, host: str | None = None) -> Facts:
        """Everything known of them; looked at again after the refresh interval."""
        now = time.monotonic()
        until, known = self._facts.get(host, (0.0, None))
        if known is None or now >= until:
            nvcc, _ = find_nvcc(self.workshop)
            known = facts(self._memo, nvcc, find_host(host, self.workshop.environ))
            self._facts[host] = (now + self.workshop.settings.refresh, known)
        return known

    def _facts_or_pin(self, host: str | None) -> Facts:
        """The same; if there is no compiler, those of the pinned one, with which nothing can be compiled."""
        try:
            return self.facts(host)
        except ToolchainNotFoundError:
            from cubinet.compilers._pin import find_pin

            pin = find_pin(self.workshop, self.name)
            if pin is None or host is not None:
                raise
            programs = [(role, "", digest) for role, digest in pin.programs]
            return Facts("", "", pin.version, pin.default_arch, programs, pin.places, [], [])

    def pin(self) -> Pin:
        """A description of the compiler at hand, for machines that have none. Raises `ToolchainNotFoundError`."""
        from cubinet.compilers._pin import Pin

        known = self.facts()
        programs = tuple((role, digest) for role, _, digest in known.programs)
        return Pin(self.name, known.version, programs, tuple(known.places), known.default_arch)

    def refresh(self) -> None:
        """Look anew for nvcc and the host compiler at the next call."""
        self._facts.clear()

    def recorder(self) -> Recorder:
        """The recorder for the default host compiler, or why it is not trusted."""
        from cubinet.compilers._recorder import Recorder, recorder

        found = recorder(self.workshop, self.facts().host)
        return Recorder("", self._distrust) if self._distrust else found

    def normalize(self, variant: Variant) -> Request:
        """Settle a variant; see `Compiler.normalize`."""
        if variant.target.vendor != "cuda":
            raise ConfigError("compile with nvcc", str(variant.target), "nvcc makes CUDA code only")
        environ = self.workshop.environ
        if variant.kind == "ltoir":
            raise ConfigError(
                "make ltoir with nvcc", "", "nvcc makes it only on the way to linking", "use compiler nvrtc"
            )
        if variant.headers:
            raise ConfigError(
                "compile with nvcc", "", "it takes no headers in memory", "give a root, or compiler nvrtc"
            )
        options = with_seed(variant.options)
        parsed = parse_nvcc(options, kind=variant.kind, folder=variant.folder or "/", environ=environ)
        known = self._facts_or_pin(parsed.host_compiler)
        if parsed.bound:
            variant = kept_as_file(variant, self.workshop)
        roots = all_roots(variant, parsed.includes, environ, _CPATH)
        places = dict(known.places) | {root.label: root.path for root in roots}
        arguments = [*_architecture(variant, parsed.architectures), *parsed.arguments, *parsed.passthrough]
        for i, path in enumerate(parsed.preincludes):
            # gcc looks for it in the working folder first, then where it looks for quoted includes
            here = os.path.join(variant.folder, path)
            if os.path.exists(here):
                places[f"pre{i}"], name = os.path.split(here)
                arguments.append(f"--pre-include=include/pre{i}/{name}")
            else:
                arguments.append(f"--pre-include={path}")
        bound = bound_by = ""
        if parsed.bound:
            bound = "\0".join(f"{label}={place}" for label, place in sorted(places.items()))
            bound_by = f"{_short(parsed.bound)} writes the paths of this machine into it"
        return Request(
            variant,
            self._toolchain_of(known),
            tuple(arguments),
            (*_ENVIRONMENT, *hook_environment(variant, places)),
            roots,
            places,
            same=same_folders(roots, _searched(known.places) if known.nvcc else {}),
            uncacheable="; ".join(parsed.uncacheable),
            bound=bound,
            bound_by=bound_by,
            detail=parsed.host_compiler,
        )

    def compile(self, request: Request, *, timeout: float | None = None) -> Compiled:
        """Run nvcc and inspect what it made; see `Compiler.compile`."""
        from cubinet.compilers._hook import apply, inspected
        from cubinet.compilers._nvcc_run import Run
        from cubinet.compilers._recorder import Recorder, recorder
        from cubinet.compilers._worker import private_folder

        host = request.detail if isinstance(request.detail, str) else None
        self.refresh()  # what is compiled with counts, not what was there at the last look
        known = self.facts(host)
        trusted = recorder(self.workshop, known.host)
        if self._distrust:
            trusted = Recorder("", self._distrust)
        with private_folder() as folder:
            compiling = Run(request, known, trusted, folder, self.contents)
            done = compiling.execute(timeout)
            observed = compiling.observe()
            if observed.distrust and done.status == 0:
                self._distrust = observed.distrust
                return self.compile(request, timeout=timeout)
            data = compiling.output()
            kernels = compiling.with_spills(compiling.judge(done, data, observed), data)
            if request.variant.hook:
                data, more = apply(data, compiling.layout, trusted, self.contents, timeout)
                observed = observed.joined(more)
                kernels = inspected(request.variant, data, kernels)
            path, keyed = compiling.layout.path_in(data)
            other = ""
            if known.toolchain().identity != request.toolchain.identity or not self._memo.unchanged(known):
                other = "the compiler changed while compiling"
            other = other or compiling.unkeyed(observed)
            return Compiled(
                data,
                compiling.layout.neutral(done.output),
                kernels,
                observed.observations,
                compiling.shown,
                done.seconds,
                uncacheable=request.uncacheable
                or observed.uncacheable
                or other
                or ("" if keyed or request.bound else path),
                local_only=request.bound_by or observed.local_only or path,
                messages=compiling.layout.named(done.output),
            )


def _searched(places: Mapping[str, str]) -> dict[str, str]:
    """The folders nvcc and the host compiler search by themselves."""
    found = {label: path for label, path in places.items() if label != "hostlib"}
    return found | {f"{label}/cccl": f"{path}/cccl" for label, path in places.items() if label.startswith("toolkit")}


def _architecture(variant: Variant, given: Sequence[str]) -> list[str]:
    """Arguments for the architecture: the target's, or those given as options if they include it."""
    arch = variant.target.arch
    if not re.fullmatch(r"(sm|compute|lto)_\d+[af]?", arch):
        raise ConfigError("compile for", arch, "not an architecture of nvcc", "an example: sm_90a")
    if variant.kind == "cubin" and not arch.startswith("sm_"):
        raise ConfigError("make a cubin for", arch, "a cubin is for a real architecture", "name one, as sm_90a")
    if not given:
        return list(_canonical(arch, variant.kind))
    number = arch.partition("_")[2]
    if not any(re.search(rf"(sm|compute|lto)_{number}\b", entry) for entry in given):
        raise ConfigError(
            "compile for", arch, f"the options name other architectures: {' '.join(given)}", "name it once"
        )
    return list(given)


@functools.lru_cache(maxsize=256)
def _canonical(arch: str, kind: str) -> tuple[str, ...]:
    """`-arch` as the option table spells it, so that it equals a `-gencode` of the same meaning."""
    return parse_nvcc([f"-arch={arch}"], kind=kind, folder="/", environ={}).architectures


def _short(names: Sequence[str]) -> str:
    """Options as people write them: `-lineinfo`, not `--generate-line-info`."""
    found = [NVCC.find(name) for name in names]
    return ", ".join(f[0].short[0] if f and f[0].short else name for f, name in zip(found, names, strict=True))
