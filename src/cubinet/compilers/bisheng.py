"""The bisheng adapter: Ascend C to device objects, with the compiler and linker of a CANN toolkit.

Like nvcc's, each compile runs in an empty private folder with links to the roots, here to the toolkit too, and a
fixed environment. It was tested against programs that behave as bisheng is documented to, never against bisheng.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from cubinet.compilers._bisheng_options import KIND, parse_bisheng
from cubinet.compilers._bisheng_toolkit import ROOTS, Facts, facts, find_toolkit
from cubinet.compilers._layout import all_roots, hook_environment, same_folders
from cubinet.compilers._memo import Memo
from cubinet.compilers._toolchain import find_host
from cubinet.errors import ConfigError, ToolchainNotFoundError
from cubinet.model import Toolchain, Variant
from cubinet.objects.ascend_soc import arch_of
from cubinet.protocols import Compiled, Request, Step
from cubinet.registry import Workshop

if TYPE_CHECKING:
    from cubinet.compilers._pin import Pin
    from cubinet.compilers._recorder import Recorder

__all__ = ["BishengCompiler"]

_ENVIRONMENT = (("LC_ALL", "C"),)
_CPATH = {"CPATH": "include", "CPLUS_INCLUDE_PATH": "system"}
_ARCH = re.compile(r"dav-\d{3,5}")


class BishengCompiler:
    """Compiles Ascend C for AI cores with bisheng. See `cubinet.protocols.Compiler`.

    Args:
        workshop: what an adapter is given.
        roots: default folders of the toolkit, asked after the variables.
    """

    name = "bisheng"

    def __init__(self, workshop: Workshop, *, roots: Sequence[str] = ROOTS) -> None:
        self.workshop = workshop
        self.contents = workshop.contents
        self._roots = tuple(roots)
        self._memo = Memo(workshop, Facts)
        self._facts: tuple[float, Facts] | None = None
        self._distrust = ""

    def steps(self) -> Sequence[Step]:
        """Where the toolkit was looked for, in order."""
        return find_toolkit(self.workshop, self._roots)[1]

    def toolchain(self) -> Toolchain:
        """The bisheng and ld.lld at hand."""
        return self.facts().toolchain()

    def facts(self) -> Facts:
        """Everything known of the toolkit; looked at again after the refresh interval."""
        now = time.monotonic()
        if self._facts is None or now >= self._facts[0]:
            root, _ = find_toolkit(self.workshop, self._roots)
            self._facts = (now + self.workshop.settings.refresh, facts(self._memo, root))
        return self._facts[1]

    def refresh(self) -> None:
        """Look anew for the toolkit at the next call."""
        self._facts = None

    def _facts_or_pin(self) -> Facts:
        """The same; if there is no toolkit, those of the pinned one, with which nothing can be compiled."""
        try:
            return self.facts()
        except ToolchainNotFoundError:
            from cubinet.compilers._pin import find_pin

            pin = find_pin(self.workshop, self.name)
            if pin is None:
                raise
            programs = [(role, "", digest) for role, digest in pin.programs]
            return Facts("", "", "", "", pin.version, True, programs, pin.places, [], [], [])  # noqa: FBT003 - a record

    def pin(self) -> Pin:
        """A description of the toolkit at hand, for machines that have none. Raises `ToolchainNotFoundError`."""
        from cubinet.compilers._pin import Pin

        known = self.facts()
        programs = tuple((role, digest) for role, _, digest in known.programs)
        return Pin(self.name, known.version, programs, tuple(known.places))

    def recorder(self) -> Recorder:
        """The recorder, built by the host's C compiler, or why there is none to be trusted."""
        from cubinet.compilers._recorder import Recorder, recorder

        if self._distrust:
            return Recorder("", self._distrust)
        try:
            host = find_host(None, self.workshop.environ)
        except ToolchainNotFoundError:
            return Recorder("", "there is no gcc on PATH to build it")
        return recorder(self.workshop, host)

    def normalize(self, variant: Variant) -> Request:
        """Settle a variant; see `Compiler.normalize`."""
        arch = _architecture(variant)
        if variant.headers:
            raise ConfigError("compile with bisheng", "", "it takes no headers in memory", "give a root")
        environ = self.workshop.environ
        parsed = parse_bisheng(variant.options, arch=arch, folder=variant.folder or "/")
        known = self._facts_or_pin()
        roots = all_roots(variant, parsed.includes, environ, _CPATH)
        places = dict(known.places) | {root.label: root.path for root in roots}
        arguments = [*parsed.architectures, *parsed.arguments, *parsed.passthrough]
        for i, path in enumerate(parsed.preincludes):
            here = os.path.join(variant.folder, path)
            if os.path.exists(here):
                places[f"pre{i}"], name = os.path.split(here)
                arguments.append(f"-include=include/pre{i}/{name}")
            else:
                arguments.append(f"-include={path}")
        return Request(
            variant,
            known.toolchain(),
            tuple(arguments),
            (*_ENVIRONMENT, *hook_environment(variant, places)),
            roots,
            places,
            same=same_folders(roots, known.places if known.bisheng else {}),
            uncacheable="; ".join(parsed.uncacheable),
        )

    def compile(self, request: Request, *, timeout: float | None = None) -> Compiled:
        """Run bisheng and ld.lld, and inspect what they made; see `Compiler.compile`."""
        from cubinet.compilers._bisheng_run import Run
        from cubinet.compilers._hook import apply, inspected
        from cubinet.compilers._worker import private_folder

        self.refresh()  # what is compiled with counts, not what was there at the last look
        known, trusted = self.facts(), self.recorder()
        with private_folder() as folder:
            compiling = Run(request, known, trusted, folder, self.contents)
            done = compiling.execute(timeout)
            observed = compiling.observe()
            if observed.distrust and done.status == 0 and not self._distrust:
                self._distrust = observed.distrust
                return self.compile(request, timeout=timeout)
            data = compiling.output()
            kernels = compiling.judge(done, data, observed)
            other = compiling.foreign(data)
            if request.variant.hook:
                data, more = apply(data, compiling.layout, trusted, self.contents, timeout)
                observed = observed.joined(more)
                kernels = inspected(request.variant, data, kernels, kind=KIND)
            path, keyed = compiling.layout.path_in(data)
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
                uncacheable=request.uncacheable or observed.uncacheable or other or ("" if keyed else path),
                local_only=observed.local_only or path,
                messages=compiling.layout.named(done.output),
                kind="" if request.variant.kind == KIND else KIND,
            )


def _architecture(variant: Variant) -> str:
    target = variant.target
    if target.vendor != "ascend":
        raise ConfigError(
            "compile with bisheng", str(target), "bisheng makes Ascend code only", "as in ascend:dav-2201"
        )
    if variant.kind not in (KIND, "cubin"):
        raise ConfigError("make", variant.kind, "bisheng makes device objects only", "leave the kind out")
    if not _ARCH.fullmatch(target.arch):
        meant = arch_of(target.arch.replace("ascend", "Ascend", 1))
        remedy = f"for these devices it is ascend:{meant}" if meant else "an example: ascend:dav-2201"
        raise ConfigError("compile for", str(target), "not an architecture of bisheng", remedy)
    return target.arch
