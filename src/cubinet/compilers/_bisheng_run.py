"""One compile and link by bisheng in a private folder: what is told, looked at, made and said."""

from __future__ import annotations

import contextlib
import os
import re
import time
from dataclasses import replace
from pathlib import Path

from cubinet.compilers._bisheng_options import KIND, for_compiler, for_linker
from cubinet.compilers._bisheng_toolkit import Facts
from cubinet.compilers._layout import Layout
from cubinet.compilers._observe import Observed, Scene, from_depfile, observe, trees_of
from cubinet.compilers._recorder import LOG_NAME, Event, Recorder, read_log
from cubinet.compilers._verdict import first_error, is_deterministic
from cubinet.compilers._worker import Finished, run
from cubinet.errors import CompileError, CompileTimeoutError, ObjectError
from cubinet.model import Digest, Kernel, Observation, Seen
from cubinet.observations import Contents, TreeTooLargeError, path_of
from cubinet.protocols import Request

__all__ = ["Run"]

# clang 15 knows no SOURCE_DATE_EPOCH, and a clock in the result could never hit
_CLOCKS = (
    "-Wno-builtin-macro-redefined",
    '-D__DATE__="Jan  1 1970"',
    '-D__TIME__="00:00:00"',
    '-D__TIMESTAMP__="Thu Jan  1 00:00:00 1970"',
)
_LINK = ("-m", "aicorelinux", "-Ttext", "0", "--no-mmap-output-file")
_SEARCH = {"include": "-I{}", "system": "-isystem{}", "quote": "-iquote{}"}
_TARGET = re.compile(r"^[^\n:]*:(?=\s)")
_ABSOLUTE = re.compile(rb"#\s*include\s*[\"<](/[^\">]*)")
_MARKS = (re.compile(r"\d{4}-\d\d-\d\dT[\d:]{5,8}"), re.compile(r"\bclang-[0-9a-f]{6,40}\b"))
"""What tells builds of a compiler apart in its banner: the time, and the commit. The words around it may differ."""
_RELOCATABLE, _MADE, _DEPENDS = "out/kernel.rel.o", "out/kernel.o", "out/depends"


class Run:
    """One run, from the empty folder to the inspected object."""

    def __init__(self, request: Request, known: Facts, trusted: Recorder, folder: str, contents: Contents) -> None:
        self.request, self.known, self.recorder, self.folder, self.contents = request, known, trusted, folder, contents
        self.variant = request.variant
        self.layout = Layout(folder, request, {})  # the toolkit's headers too by a link: no path of it is compiled in
        self.layout.prepare()
        for name in ("out", "scratch"):
            Path(folder, name).mkdir()
        self.started_ns = 0
        self.trees: dict[str, str] = {}
        compile_words, link_words = self._words()
        self.shown = ("bisheng", *compile_words, "&&", "ld.lld", *link_words)
        extra = ("-MD", "-MF", _DEPENDS) if trusted.distrust else ()
        self.steps = ((known.bisheng, *extra, *compile_words), (known.linker, *link_words))

    def _words(self) -> tuple[list[str], list[str]]:
        arguments, given = self.request.arguments, self.variant.source_name
        words = [*for_compiler(arguments), "--cce-aicore-only", *_CLOCKS]
        if any(argument.startswith("-g") for argument in arguments):
            words += ("-ffile-compilation-dir=.", f"-ffile-prefix-map={self.known.root}=toolkit")
        if not given.endswith((".asc", ".cce")) and not any(a.startswith("-x=") for a in arguments):
            words += ("-x", "asc")
        for root in self.request.roots:
            if root.kind in _SEARCH:
                words.append(_SEARCH[root.kind].format(f"include/{root.label}"))
        words += (f"-Iinclude/toolkit/{path}" for path in self.known.includes)
        link = [*_LINK, *for_linker(arguments), _RELOCATABLE, "-o", _MADE]
        return [*words, self.layout.source, "-o", _RELOCATABLE], link

    def execute(self, timeout: float | None) -> Finished:
        """Compile, then link. Raises `CompileError` if a program cannot be started, `CompileTimeoutError`."""
        environ = {
            "PATH": f"{os.path.dirname(self.known.bisheng)}:/usr/bin:/bin",
            "TMPDIR": f"{self.folder}/scratch",
            "HOME": self.folder,
            "ASCEND_HOME_PATH": self.known.root,
            **dict(self.request.environment),
            **self.recorder.environ(self.folder),
        }
        if self.recorder.distrust:
            with contextlib.suppress(TreeTooLargeError, OSError):
                self.trees = trees_of(self.request.roots, self.contents)
        self.started_ns = time.time_ns()
        done = Finished(0, b"", 0.0)
        for argv in self.steps:
            left = None if timeout is None else max(0.001, timeout - done.seconds)
            try:
                step = run(argv, folder=self.folder, environ=environ, timeout=left)
            except OSError as exc:
                raise CompileError(self.subject, f"{argv[0]}: {exc.strerror}", "see cubinet doctor") from exc
            done = Finished(step.status, done.output + step.output, done.seconds + step.seconds, step.timed_out)
            if step.timed_out:
                finding = f"{os.path.basename(argv[0])} was killed after {timeout:g} s"
                log = self.layout.named(done.output)
                remedy = "raise CUBINET_TIMEOUT, or look for a runaway template"
                raise CompileTimeoutError(self.subject, finding, remedy, log, self.shown, self.toolchain)
            if step.status:
                break
        return done

    def observe(self) -> Observed:
        """What both programs looked at."""
        if self.recorder.distrust:
            return self._from_depfile()
        try:
            events = list(read_log(f"{self.folder}/{LOG_NAME}"))
        except ValueError as exc:
            return Observed((), uncacheable=str(exc))
        own = self.known.files()
        ran = {event.path for event in events if event.op == "S"}
        helpers = {path for path in ran - own if self.known.owns(path)}
        scene = self._scene(own | helpers)
        observed = observe(_without_programs(events, own), scene, self.contents, self.started_ns)
        if not helpers and os.path.realpath(self.known.bisheng) not in ran:
            return replace(observed, distrust="bisheng ran unrecorded (a static program?)")
        return self.layout.without_source(self._with_helpers(observed, helpers))

    def _scene(self, programs: set[str]) -> Scene:
        places, beside = self.request.places, bool(self.layout.beside)
        return Scene(self.folder, places, beside, programs, programs, spelled=tuple(self.known.places))

    def _with_helpers(self, observed: Observed, helpers: set[str]) -> Observed:
        """Programs of the toolkit that the two started are observed like headers: by content."""
        more = []
        for path in sorted(helpers):
            found = self.contents.digest(path)
            if found is None or found[0][4] > self.started_ns:
                return replace(observed, uncacheable=f"{path} changed while compiling")
            more.append(Observation(self.known.owns(path) or "", Seen.READ, Digest(found[1])))
        return observed.joined(Observed(tuple(more)))

    def _from_depfile(self) -> Observed:
        try:
            text = os.fsdecode(Path(self.folder, _DEPENDS).read_bytes())
        except FileNotFoundError:
            return Observed((), uncacheable="the compiler wrote no dependency file")
        text = _TARGET.sub("kernel :", text, count=1)
        scene = self._scene(self.known.files())
        observed = from_depfile(text, self.request.roots, scene, self.contents, self.started_ns, before=self.trees)
        if not self.known.told and not observed.local_only:
            # a dependency file does not list what else of the toolkit was read: its version must stand for that
            observed = replace(observed, local_only="the toolkit does not tell its version")
        return self.layout.without_source(observed)

    def output(self) -> bytes:
        """The linked object; empty if there is none."""
        try:
            return Path(self.folder, _MADE).read_bytes()
        except FileNotFoundError:
            return b""

    def judge(self, done: Finished, data: bytes, observed: Observed) -> tuple[Kernel, ...]:
        """The kernels of a good result. Raises `CompileError`."""
        log = done.output.decode(errors="replace")
        if done.status == 0:
            try:
                return self._read_back(data)
            except ObjectError as exc:
                finding = f"bisheng and ld.lld exited 0 but cannot {exc.action} {exc.subject}: {exc.finding}"
                raise self._failed(finding, done, exc.remedy) from exc
        program = "ld.lld" if Path(self.folder, _RELOCATABLE).exists() else "bisheng"
        finding = f"{program} ended with status {done.status}: {first_error(self.layout.named(done.output))}"
        error = self._failed(finding, done, certain=is_deterministic(log, done.status) and not observed.uncacheable)
        error.observations = observed.observations
        raise error

    def _failed(self, finding: str, done: Finished, remedy: str = "", *, certain: bool = False) -> CompileError:
        log = self.layout.named(done.output)
        return CompileError(self.subject, finding, remedy, log, self.shown, self.toolchain, certain)

    def _read_back(self, data: bytes) -> tuple[Kernel, ...]:
        from cubinet.objects import check, inspect, names_entry
        from cubinet.objects.ascend import ARCHS, read

        arch = self.variant.target.arch
        subject = f"object for {arch}"
        found = read(data, subject) if data else None
        if found is not None and not found.linked:
            raise ObjectError("use compiled", subject, "it is not linked", "see what ld.lld says")
        if found is not None and found.arch is None and arch not in ARCHS:
            # nobody has seen objects for this one: its flags cannot be compared
            kernels = inspect(data).kernels
            missing = [e for e in self.variant.entries if not any(names_entry(e, kernel) for kernel in kernels)]
            if missing:
                raise ObjectError("find entry", ", ".join(missing), f"the {subject} has none of that name")
            return kernels
        return check(data, kind=KIND, arch=arch, entries=self.variant.entries)

    def foreign(self, data: bytes) -> str:
        """Why the object is not of this compiler, by its own banner; or an empty text."""
        from cubinet.objects.ascend import read

        banner = read(data).banner
        contradict = any(
            one and other and one[0] != other[0]
            for one, other in ((mark.search(banner), mark.search(self.known.banner)) for mark in _MARKS)
        )
        return f"the object says it was made by {banner}" if contradict else ""

    def unkeyed(self, observed: Observed) -> str:
        """What about this compile the key cannot hold, as a sentence; or an empty text."""
        texts = [self.variant.source_bytes()]
        for o in observed.observations:
            if o.digest is not None and o.name.partition(":")[0] not in self.known.places:
                with contextlib.suppress(OSError):
                    texts.append(Path(path_of(o.name, self.request.places) or "").read_bytes())
        for path in {path for text in texts for path in _ABSOLUTE.findall(text)}:
            if self.known.owns(os.fsdecode(path)):
                return f"{os.fsdecode(path)} is included by the toolchain's own path"
        return ""

    @property
    def subject(self) -> str:
        """What messages call the compile."""
        return self.variant.name or self.variant.source_name

    @property
    def toolchain(self) -> str:
        """What messages call the compiler."""
        return f"bisheng {self.known.version}"


def _without_programs(events: list[Event], own: set[str]) -> list[Event]:
    """Events but for the programs' looks at themselves, which their digests cover."""
    return [e for e in events if e.op in "SXF" or not e.path.startswith("/") or os.path.realpath(e.path) not in own]
