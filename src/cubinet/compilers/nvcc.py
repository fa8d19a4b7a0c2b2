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
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from cubinet.compilers._nvcc_options import NVCC, parse_nvcc
from cubinet.compilers._observe import Observed, Scene, from_depfile, observe
from cubinet.compilers._recorder import LOG_NAME, Recorder, read_log, recorder
from cubinet.compilers._toolchain import Facts, facts, find_host, find_nvcc
from cubinet.compilers._verdict import first_error, is_deterministic
from cubinet.compilers._worker import Finished, private_folder, run
from cubinet.errors import CompileError, CompileTimeoutError, ConfigError, ObjectError
from cubinet.model import Kernel, Root, Toolchain, Variant
from cubinet.observations import Contents
from cubinet.protocols import Compiled, Request, Step
from cubinet.registry import Workshop

__all__ = ["NvccCompiler"]

_ENVIRONMENT = (("LC_ALL", "C"), ("SOURCE_DATE_EPOCH", "0"))
"""`__DATE__` and `__TIME__` are those of 1970: a clock in the result could never hit."""

_SEED = "--frandom-seed=1"
_SEARCH = {"include": "-I", "system": "-isystem"}
_CPATH = (("CPATH", "include"), ("CPLUS_INCLUDE_PATH", "system"))
_PLAIN = re.compile(r"[A-Za-z0-9_./+@%=:-]+")
_SCRATCH = re.compile(rb"tmpxft_[0-9a-f]+_[0-9a-f]+-\d+_")


class NvccCompiler:
    """Compiles CUDA C++ to cubin, PTX or fatbin with nvcc. See `cubinet.protocols.Compiler`."""

    name = "nvcc"

    def __init__(self, workshop: Workshop) -> None:
        self.workshop = workshop
        self.contents = workshop.contents
        self._facts: dict[str | None, tuple[float, Facts]] = {}
        self._distrust = ""

    def steps(self) -> Sequence[Step]:
        """Where nvcc was looked for, in order."""
        return find_nvcc(self.workshop)[1]

    def toolchain(self) -> Toolchain:
        """The nvcc and host compiler at hand."""
        return self.facts().toolchain()

    def facts(self, host: str | None = None) -> Facts:
        """Everything known of them; looked at again after the refresh interval."""
        now = time.monotonic()
        until, known = self._facts.get(host, (0.0, None))
        if known is None or now >= until:
            nvcc, _ = find_nvcc(self.workshop)
            known = facts(self.workshop, nvcc, find_host(host, self.workshop.environ))
            self._facts[host] = (now + self.workshop.settings.refresh, known)
        return known

    def refresh(self) -> None:
        """Look anew for nvcc and the host compiler at the next call."""
        self._facts.clear()

    def recorder(self) -> Recorder:
        """The recorder for the default host compiler, or why it is not trusted."""
        found = recorder(self.workshop, self.facts().host)
        return Recorder("", self._distrust) if self._distrust else found

    def normalize(self, variant: Variant) -> Request:
        """Settle a variant; see `Compiler.normalize`."""
        if variant.target.vendor != "cuda":
            raise ConfigError("compile with nvcc", str(variant.target), "nvcc makes CUDA code only")
        environ = self.workshop.environ
        parsed = parse_nvcc(variant.options, kind=variant.kind, folder=os.getcwd(), environ=environ)
        known = self.facts(parsed.host_compiler)
        roots = _all_roots(variant, parsed.includes, environ)
        places = dict(known.places) | {root.label: root.path for root in roots}
        arguments = [*parsed.arguments, *_architecture(variant, parsed.architectures), *parsed.passthrough]
        for i, path in enumerate(parsed.preincludes):
            # gcc looks for it in the working folder first, then where it looks for quoted includes
            if os.path.exists(path):
                places[f"pre{i}"], name = os.path.split(os.path.abspath(path))
                arguments.append(f"--pre-include=include/pre{i}/{name}")
            else:
                arguments.append(f"--pre-include={path}")
        if not any(argument.startswith("--frandom-seed") for argument in arguments):
            arguments.append(_SEED)
        bound = ""
        if parsed.bound:
            here = [f"{root.label}={root.path}" for root in roots]
            bound = "\0".join((variant.source_folder or "", *here))
        return Request(
            variant,
            known.toolchain(),
            tuple(arguments),
            _ENVIRONMENT,
            roots,
            places,
            uncacheable="; ".join(parsed.uncacheable),
            bound=bound,
        )

    def compile(self, request: Request, *, timeout: float | None = None) -> Compiled:
        """Run nvcc and inspect what it made; see `Compiler.compile`."""
        variant = request.variant
        parsed = parse_nvcc(variant.options, kind=variant.kind, folder=os.getcwd(), environ=self.workshop.environ)
        known = self.facts(parsed.host_compiler)
        trusted = recorder(self.workshop, known.host)
        if self._distrust:
            trusted = Recorder("", self._distrust)
        with private_folder() as folder:
            run_ = _Run(request, known, trusted, folder, self.contents)
            run_.prepare()
            done = run_.execute(timeout)
            observed = run_.observe()
            if observed.distrust and done.status == 0:
                self._distrust = observed.distrust
                return self.compile(request, timeout=timeout)
            data = run_.output()
            kernels = run_.judge(done, data, observed)
            local_only = observed.local_only or run_.unmapped
            if request.bound:
                local_only = f"{_short(parsed.bound)} writes the paths of this machine into it"
            return Compiled(
                data,
                run_.neutral(done.output),
                kernels,
                observed.observations,
                run_.shown,
                done.seconds,
                uncacheable=request.uncacheable or observed.uncacheable,
                local_only=local_only,
                widened=bool(trusted.distrust),
                messages=run_.named(done.output),
            )


def _all_roots(variant: Variant, includes: Sequence[tuple[str, str]], environ: object) -> tuple[Root, ...]:
    """The source's own folder, then declared roots, then those from options and from `CPATH`."""
    roots = [Root("src", variant.source_folder, "quote")] if variant.source_folder else []
    roots += variant.roots
    taken = {root.label for root in roots}
    found = list(includes)
    for name, kind in _CPATH:
        value = environ.get(name, "") if hasattr(environ, "get") else ""
        found += ((kind, entry or ".") for entry in value.split(os.pathsep) if value)
    number = 0
    for kind, path in found:
        while f"i{number}" in taken:
            number += 1
        roots.append(Root(f"i{number}", path, kind))
        taken.add(f"i{number}")
    return tuple(roots)


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


class _Run:
    """One run of nvcc in its folder."""

    def __init__(self, request: Request, known: Facts, trusted: Recorder, folder: str, contents: Contents) -> None:
        self.request, self.known, self.recorder, self.folder, self.contents = request, known, trusted, folder, contents
        self.variant = request.variant
        self.source = f"src/{self.variant.source_name}"
        self.direct = self._is_direct()
        self.made = f"out/kernel.{self.variant.kind}"
        self.started_ns = 0
        self.unmapped = ""
        self.scene = Scene(
            folder,
            self.source,
            request.places,
            known.front_ends(),
            {path for _, path, _ in known.programs},
        )
        self.argv, self.shown = self._argv()

    def _is_direct(self) -> bool:
        """Whether the caller's own files are compiled where they are.

        Line tables name files, so a build that has them is of use only with the paths a debugger or
        profiler can open. Such a build is bound to its folders anyway.
        """
        folder = self.variant.source_folder
        if not self.request.bound or folder is None:
            return False
        path = f"{folder}/{self.variant.source_name}"
        try:
            same = Path(path).read_bytes() == self.variant.source_bytes()
        except OSError:
            return False
        return same and all(_PLAIN.fullmatch(text) for text in (path, *(root.path for root in self.request.roots)))

    def _argv(self) -> tuple[list[str], tuple[str, ...]]:
        """The argument list, and the same without anything of this machine."""
        actual, shown = [self.known.nvcc, "-ccbin", self.known.host], ["nvcc"]
        if any(path.endswith("cc1plus") for path in self.scene.front_ends):
            # or gcc replaces a spelled path by a shorter real one, which names this machine's folders
            actual += ("-Xcompiler", "-fno-canonical-system-headers")
        for old, new in (("include/", ""), ("src/", ""), *self._toolkit_prefixes()):
            option = f"-fmacro-prefix-map={old}={new}"
            if _PLAIN.fullmatch(option):
                actual += ("-Xcompiler", option)
            else:
                self.unmapped = f"the path {old} cannot be kept out of it"
        common = [f"-{self.variant.kind}", *self.request.arguments]
        for root in self.request.roots:
            where = root.path if self.direct else f"include/{root.label}"
            common += ("-Xcompiler", f"-iquote{where}") if root.kind == "quote" else (_SEARCH[root.kind], where)
        if self.recorder.distrust:
            actual += ("-MD", "-MF", "out/depends")
        source = f"{self.variant.source_folder}/{self.variant.source_name}" if self.direct else self.source
        common += ("-o", self.made, source)
        return actual + common, tuple(shown + common)

    def _toolkit_prefixes(self) -> list[tuple[str, str]]:
        return [(path, label) for label, path in self.known.places.items() if label.startswith(("toolkit", "host"))]

    def prepare(self) -> None:
        for name in ("src", "include", "out", "scratch"):
            Path(self.folder, name).mkdir()
        Path(self.folder, self.source).write_bytes(self.variant.source_bytes())
        for label, place in self.request.places.items():
            if label not in self.known.places:
                Path(self.folder, "include", label).symlink_to(place)

    def execute(self, timeout: float | None) -> Finished:
        environ = {
            "PATH": f"{os.path.dirname(self.known.host)}:/usr/bin:/bin",
            "TMPDIR": f"{self.folder}/scratch",
            "HOME": self.folder,
            **dict(self.request.environment),
            **self.recorder.environ(self.folder),
        }
        self.started_ns = time.time_ns()
        try:
            done = run(self.argv, folder=self.folder, environ=environ, timeout=timeout)
        except OSError as exc:
            raise CompileError(self.subject, f"{self.known.nvcc}: {exc.strerror}", "see cubinet doctor") from exc
        if done.timed_out:
            raise CompileTimeoutError(
                self.subject,
                f"nvcc was killed after {timeout:g} s",
                "raise CUBINET_TIMEOUT, or look for a runaway template",
                self.named(done.output),
                self.shown,
                self._toolchain(),
            )
        return done

    def observe(self) -> Observed:
        if self.recorder.distrust:
            try:
                text = Path(self.folder, "out/depends").read_bytes()
            except FileNotFoundError:
                return Observed((), uncacheable="the compiler wrote no dependency file")
            roots = [replace(root) for root in self.request.roots]
            return from_depfile(os.fsdecode(text), roots, self.scene, self.contents, self.started_ns)
        try:
            events = list(read_log(f"{self.folder}/{LOG_NAME}"))
        except ValueError as exc:
            return Observed((), uncacheable=str(exc))
        return observe(events, self.scene, self.contents, self.started_ns)

    def output(self) -> bytes:
        try:
            return Path(self.folder, self.made).read_bytes()
        except FileNotFoundError:
            return b""

    def judge(self, done: Finished, data: bytes, observed: Observed) -> tuple[Kernel, ...]:
        """The kernels of a good result. Raises `CompileError`."""
        from cubinet.objects import check

        log = done.output.decode(errors="replace")
        if done.status == 0:
            try:
                return check(
                    data, kind=self.variant.kind, arch=self.variant.target.arch, entries=self.variant.entries, log=log
                )
            except ObjectError as exc:
                error = CompileError(
                    self.subject,
                    f"nvcc exited 0 but cannot {exc.action} {exc.subject}: {exc.finding}",
                    exc.remedy,
                    self.named(done.output),
                    self.shown,
                    self._toolchain(),
                )
                raise error from exc
        error = CompileError(
            self.subject,
            f"nvcc ended with status {done.status}: {first_error(self.named(done.output))}",
            "",
            self.named(done.output),
            self.shown,
            self._toolchain(),
            is_deterministic(log, done.status) and not observed.uncacheable,
        )
        error.observations = observed.observations
        raise error

    @property
    def subject(self) -> str:
        return self.variant.name or self.variant.source_name

    def _toolchain(self) -> str:
        return f"nvcc {self.known.version}"

    def neutral(self, output: bytes) -> bytes:
        """A log without temporary names and folders of this machine, to be stored."""
        out = _SCRATCH.sub(b"", output).replace(os.fsencode(self.folder) + b"/", b"")
        for label, place in self.known.places.items():
            out = out.replace(os.fsencode(place) + b"/", label.encode() + b":")
        return out

    def named(self, output: bytes) -> str:
        """A log with the caller's file names, to be read."""
        text = _SCRATCH.sub(b"", output).decode(errors="replace").replace(self.folder + "/", "")
        folder = self.variant.source_folder
        if folder:
            text = re.sub(
                rf"(?<![\w/.]){re.escape(self.source)}", lambda _: _shown(f"{folder}/{self.variant.source_name}"), text
            )
        else:
            text = re.sub(rf"(?<![\w/.]){re.escape(self.source)}", lambda _: self.variant.source_name, text)
        for label, place in self.request.places.items():
            if label not in self.known.places:
                text = re.sub(rf"(?<![\w/.])include/{re.escape(label)}/", lambda _, p=place: f"{_shown(p)}/", text)  # type: ignore[misc]
        return text


def _shown(path: str) -> str:
    """A path as a person in this folder would write it."""
    relative = os.path.relpath(path)
    return path if relative.startswith("..") else relative
