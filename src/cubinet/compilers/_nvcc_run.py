"""One run of nvcc in a private folder: what it is told, what it looked at, what it made and said."""

from __future__ import annotations

import os
import re
import time
from dataclasses import replace
from pathlib import Path

from cubinet.compilers._observe import Observed, Scene, from_depfile, observe
from cubinet.compilers._recorder import LOG_NAME, Recorder, read_log
from cubinet.compilers._toolchain import Facts
from cubinet.compilers._verdict import first_error, is_deterministic
from cubinet.compilers._worker import Finished, run
from cubinet.errors import CompileError, CompileTimeoutError, ObjectError
from cubinet.fingerprint import digest_of
from cubinet.model import Kernel
from cubinet.observations import Contents
from cubinet.protocols import Request

__all__ = ["Run"]

_SEARCH = {"include": "-I", "system": "-isystem"}
_PLAIN = re.compile(r"[A-Za-z0-9_./+@%=:-]+")
_SCRATCH = re.compile(rb"tmpxft_[0-9a-f]+_[0-9a-f]+-\d+_")


class Run:
    """One run, from the empty folder to the inspected object."""

    def __init__(self, request: Request, known: Facts, trusted: Recorder, folder: str, contents: Contents) -> None:
        self.request, self.known, self.recorder, self.folder, self.contents = request, known, trusted, folder, contents
        self.variant = request.variant
        self.source = f"src/{self.variant.source_name}"
        self.beside = next((root.path for root in request.roots if root.kind == "beside"), None)
        self.direct = self._is_direct()
        self.made = f"out/kernel.{self.variant.kind}"
        self.started_ns = 0
        self.scene = Scene(
            folder,
            self.source,
            request.places,
            bool(self.beside),
            known.front_ends(),
            {path for _, path, _ in known.programs},
        )
        self.argv, self.shown = self._argv()

    def _is_direct(self) -> bool:
        """Whether the caller's own files are compiled under their own paths.

        Line tables name files, so a build that has them is of use only with the paths a debugger or
        profiler can open. Such a build is bound to its folders anyway.
        """
        roots = self.request.roots
        texts = (self.variant.source_name, *(root.path for root in roots))
        return bool(self.request.bound and self.beside and all(map(_PLAIN.fullmatch, texts)))

    def _argv(self) -> tuple[list[str], tuple[str, ...]]:
        """The argument list, and the same without anything of this machine."""
        actual, shown = [self.known.nvcc, "-ccbin", self.known.host], ["nvcc"]
        if any(path.endswith("cc1plus") for path in self.scene.front_ends):
            # or gcc replaces a spelled path by a shorter real one, which names this machine's folders
            actual += ("-Xcompiler", "-fno-canonical-system-headers")
        for old, new in (("include/", ""), ("src/", ""), *self._toolkit_prefixes()):
            option = f"-fmacro-prefix-map={old}={new}"
            if _PLAIN.fullmatch(option):  # nvcc's quoting cannot carry the others
                actual += ("-Xcompiler", option)
        common = [f"-{self.variant.kind}", *self.request.arguments]
        for root in self.request.roots:
            where = root.path if self.direct else f"include/{root.label}"
            if root.kind == "quote":
                common += ("-Xcompiler", f"-iquote{where}")
            elif root.kind != "beside":
                common += (_SEARCH[root.kind], where)
        if self.recorder.distrust:
            actual += ("-MD", "-MF", "out/depends")
        source = f"{self.beside}/{self.variant.source_name}" if self.direct else self.source
        common += ("-o", self.made, source)
        return actual + common, tuple(shown + common)

    def _toolkit_prefixes(self) -> list[tuple[str, str]]:
        return [(path, label) for label, path in self.known.places.items() if label.startswith(("toolkit", "host"))]

    def prepare(self) -> None:
        for name in ("include", "out", "scratch"):
            Path(self.folder, name).mkdir()
        if self.beside:
            Path(self.folder, "src").symlink_to(self.beside)
        else:
            Path(self.folder, "src").mkdir()
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
            return self._without_source(
                from_depfile(os.fsdecode(text), self.request.roots, self.scene, self.contents, self.started_ns)
            )
        try:
            events = list(read_log(f"{self.folder}/{LOG_NAME}"))
        except ValueError as exc:
            return Observed((), uncacheable=str(exc))
        return self._without_source(observe(events, self.scene, self.contents, self.started_ns))

    def _without_source(self, observed: Observed) -> Observed:
        """The source is in the action already; what was read must have been that source."""
        if not self.beside:
            return observed
        name = f"src:{self.variant.source_name}"
        read = [o.digest for o in observed.observations if o.name == name]
        same = read in ([], [digest_of(self.variant.source_bytes())])
        changed = "" if same else f"{name} changed while compiling"
        rest = tuple(o for o in observed.observations if o.name != name)
        return replace(observed, observations=rest, uncacheable=observed.uncacheable or changed)

    def output(self) -> bytes:
        try:
            return Path(self.folder, self.made).read_bytes()
        except FileNotFoundError:
            return b""

    def path_in(self, data: bytes) -> str:
        """A folder of this machine that can be read in the result, as a sentence; or an empty text."""
        for place in (self.folder, *self.request.places.values()):
            if os.fsencode(place) in data:
                return f"the path {place} is in it"
        return ""

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
