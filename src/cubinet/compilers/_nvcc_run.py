"""One run of nvcc in a private folder: what it is told, what it looked at, what it made and said."""

from __future__ import annotations

import contextlib
import os
import re
import time
from pathlib import Path

from cubinet.compilers._layout import Layout
from cubinet.compilers._observe import Observed, Scene, from_depfile, observe, trees_of
from cubinet.compilers._recorder import LOG_NAME, Recorder, read_log
from cubinet.compilers._spills import with_spills
from cubinet.compilers._toolchain import Facts
from cubinet.compilers._verdict import first_error, is_deterministic
from cubinet.compilers._worker import Finished, run
from cubinet.errors import CompileError, CompileTimeoutError, ObjectError
from cubinet.model import Kernel
from cubinet.observations import Contents, TreeTooLargeError, path_of
from cubinet.protocols import Request

__all__ = ["Run"]

_HOST_OPTIONS = "host-options"
_QUOTED = frozenset(" \t\n\\\"'")
_SEARCH = {"include": "-I", "system": "-isystem"}
_PLAIN = re.compile(r"[A-Za-z0-9_./+@%=: -]+")
_DIRECTIVE = re.compile(rb"^[ \t]*(?:#|%:|\?\?=)(?:[^\n]*\\\n)*[^\n]*", re.MULTILINE)


class Run:
    """One run, from the empty folder to the inspected object."""

    def __init__(self, request: Request, known: Facts, trusted: Recorder, folder: str, contents: Contents) -> None:
        self.request, self.known, self.recorder, self.folder, self.contents = request, known, trusted, folder, contents
        self.variant = request.variant
        self.layout = Layout(folder, request, known.places)
        self.layout.prepare()
        for name in ("out", "scratch"):
            Path(folder, name).mkdir()
        self.direct = self._is_direct()
        self.made = f"out/kernel.{self.variant.kind}"
        self.started_ns = 0
        self.trees: dict[str, str] = {}
        self.scene = Scene(
            folder,
            request.places,
            bool(self.layout.beside),
            known.front_ends(),
            {path for _, path, _ in known.programs},
            spelled=(*known.places, *((root.label for root in request.roots) if self.direct else ())),
            timed=bool(request.bound),
        )
        self.argv, self.shown = self._argv()
        lines = ("".join(f"\\{c}" if c in _QUOTED else c for c in option) for option in self._host_options())
        Path(folder, _HOST_OPTIONS).write_bytes(os.fsencode("\n".join(lines) + "\n"))

    def _is_direct(self) -> bool:
        """Whether the caller's own files are compiled under their own paths.

        Line tables name files, so a build that has them is of use only with the paths a debugger or
        profiler can open. Such a build is bound to its folders anyway.
        """
        roots = self.request.roots
        texts = (self.variant.source_name, *(root.path for root in roots))
        return bool(self.request.bound and self.layout.beside and all(map(_PLAIN.fullmatch, texts)))

    def _argv(self) -> tuple[list[str], tuple[str, ...]]:
        """The argument list, and the same without anything of this machine."""
        actual, shown = [self.known.nvcc, "-ccbin", self.known.host, "-Xcompiler", f"@{_HOST_OPTIONS}"], ["nvcc"]
        common = [f"-{self.variant.kind}", *self.request.arguments]
        for root in self.request.roots:
            if root.kind in _SEARCH:
                common += (_SEARCH[root.kind], root.path if self.direct else f"include/{root.label}")
        if self.recorder.distrust:
            actual += ("-MD", "-MF", "out/depends")
        if self.variant.kind == "cubin":
            actual += ("--keep", "--keep-dir", "scratch")  # the PTX, to count spills from
        source = f"{self.layout.beside}/{self.variant.source_name}" if self.direct else self.layout.source
        common += ("-o", self.made, source)
        return actual + common, tuple(shown + common)

    def _host_options(self) -> list[str]:
        """What the host compiler is told beside nvcc's own words: in a file, which can carry any path."""
        places = {path: label for label, path in self.known.places.items() if label.startswith(("toolkit", "host"))}
        maps = {"include/": "", "src/": "", **places}
        options = [f"-fmacro-prefix-map={old}={new}" for old, new in maps.items()]
        # a clock in the result could never hit; __DATE__ and __TIME__ follow SOURCE_DATE_EPOCH
        options += ("-Wno-builtin-macro-redefined", '-D__TIMESTAMP__="Thu Jan  1 00:00:00 1970"')
        if any(path.endswith("cc1plus") for path in self.scene.front_ends):
            # or gcc replaces a spelled path by a shorter real one, which names this machine's folders
            options.append("-fno-canonical-system-headers")
        options += (f"-iquoteinclude/{root.label}" for root in self.request.roots if root.kind == "quote")
        return options

    def unkeyed(self, observed: Observed) -> str:
        """What about this compile the key cannot hold, as a sentence; or an empty text."""
        if self.request.bound and not self.direct:
            return "line tables would name a folder that is gone afterwards"
        texts = [self.variant.source_bytes()]
        for o in observed.observations:
            if o.digest is not None and o.name.partition(":")[0] not in self.known.places:
                with contextlib.suppress(OSError):
                    texts.append(Path(path_of(o.name, self.request.places) or "").read_bytes())
        given = "\n".join(self.request.arguments)
        for place in self.known.places.values():
            start = os.fsencode(f"{place}/")
            # An include, or a macro that may become one. Few texts name such a folder at all.
            if f"{place}/" in given or any(
                start in line for text in texts if start in text for line in _DIRECTIVE.findall(text)
            ):
                return f"the toolchain's own folder {place} is named in it"
        return ""

    def execute(self, timeout: float | None) -> Finished:
        environ = {
            "PATH": f"{os.path.dirname(self.known.host)}:/usr/bin:/bin",
            "TMPDIR": f"{self.folder}/scratch",
            "HOME": self.folder,
            **dict(self.request.environment),
            **self.recorder.environ(self.folder),
        }
        if self.recorder.distrust:
            with contextlib.suppress(TreeTooLargeError, OSError):
                self.trees = trees_of(self.request.roots, self.contents)
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
                self.layout.named(done.output),
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
            return self.layout.without_source(
                from_depfile(
                    os.fsdecode(text),
                    self.request.roots,
                    self.scene,
                    self.contents,
                    self.started_ns,
                    before=self.trees,
                )
            )
        try:
            events = list(read_log(f"{self.folder}/{LOG_NAME}"))
        except ValueError as exc:
            return Observed((), uncacheable=str(exc))
        return self.layout.without_source(observe(events, self.scene, self.contents, self.started_ns))

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
                    self.layout.named(done.output),
                    self.shown,
                    self._toolchain(),
                )
                raise error from exc
        error = CompileError(
            self.subject,
            f"nvcc ended with status {done.status}: {first_error(self.layout.named(done.output))}",
            "",
            self.layout.named(done.output),
            self.shown,
            self._toolchain(),
            is_deterministic(log, done.status) and not observed.uncacheable,
        )
        error.observations = observed.observations
        raise error

    def with_spills(self, kernels: tuple[Kernel, ...], data: bytes) -> tuple[Kernel, ...]:
        """The kernels with their spills, asked of ptxas where the object leaves that open."""
        if self.variant.kind != "cubin":
            return kernels

        def ask() -> str:
            from cubinet.objects import inspect

            kept = list(Path(self.folder, "scratch").glob("*.ptx"))
            ptxas = next(path for role, path, _ in self.known.programs if role == "ptxas")
            if len(kept) != 1:
                return ""
            argv = [ptxas, "-v", *inspect(data).options, str(kept[0]), "-o", "out/again.cubin"]
            environ = {"PATH": "/usr/bin:/bin", "LC_ALL": "C", "TMPDIR": f"{self.folder}/scratch"}
            return run(argv, folder=self.folder, environ=environ, timeout=600).output.decode(errors="replace")

        return with_spills(kernels, ask)

    @property
    def subject(self) -> str:
        return self.variant.name or self.variant.source_name

    def _toolchain(self) -> str:
        return f"nvcc {self.known.version}"
