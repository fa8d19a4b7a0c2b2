"""One compile in an NVRTC worker: what it is told, what it looked at, what it made and said."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from cubinet.compilers._layout import Layout
from cubinet.compilers._nvrtc_pool import Worker
from cubinet.compilers._observe import Observed, Scene, observe_all
from cubinet.compilers._recorder import ALIAS, Event
from cubinet.compilers._spills import with_spills
from cubinet.compilers._verdict import first_error, is_deterministic
from cubinet.errors import CompileError, ObjectError
from cubinet.model import Kernel
from cubinet.observations import Contents, path_of
from cubinet.protocols import Compiled, Request

__all__ = ["Run"]

_CLOCK = re.compile(rb"\b__(DATE|TIME|TIMESTAMP)__\b")
_SPLICE = re.compile(rb"\\[ \t]*\r?\n")
_LOOKS = re.compile(rb"\b(?:include|include_next|import|embed|__has_include|__has_include_next|__has_embed)\b")
_PLAIN_LOOK = re.compile(rb"""\s*\(?\s*(?:<([^>\n]*)>|"([^"\n]*)")""")
_DIRECTIVE = re.compile(rb"#|%:|\?\?=|\*/")
_DEFINED = re.compile(rb"(?:ifdef|ifndef|defined)\s*\(?\s*$")


class Run:
    """One compile in a worker.

    Line tables and debug information name files and the working folder. A build that has them is bound to its
    folders anyway, so it is compiled under the caller's own paths, in the folder of its source.
    """

    def __init__(self, request: Request, worker: Worker, contents: Contents, *, kind: str, subject: str) -> None:
        self.request, self.worker, self.contents, self.subject, self.kind = request, worker, contents, subject, kind
        self.variant = request.variant
        self.layout = Layout(worker.folder, request, {})
        self.name, self.folder, where = self.layout.source, worker.folder, "include"
        if request.bound:
            self.folder = self.layout.beside or "/"
            self.name = f"{self.layout.beside or f'{ALIAS}/src'}/{self.variant.source_name}"
            where = ""
        self.argv = [*request.arguments]
        for root in request.roots:
            if root.kind != "beside":  # NVRTC has one kind of search folder
                self.argv.append(f"--include-path={f'{where}/{root.label}' if where else root.path}")
        # a mangled name is no expression: NVRTC would not find it, we do
        self.expressions = [entry for entry in self.variant.entries if not entry.startswith("_Z")]

    @property
    def shown(self) -> tuple[str, ...]:
        """The argument list, for people."""
        return ("nvrtc", *self.argv, self.name)

    def compile(self, timeout: float | None) -> Compiled:
        links = {f"include/{label}": place for label, place in self.request.places.items()}
        self.worker.arrange(links | ({"src": self.layout.beside} if self.layout.beside else {}))
        started_ns, start = time.time_ns(), time.perf_counter()
        asked = self._asked()
        answer, events = self.worker.compile(asked, timeout)
        seconds = time.perf_counter() - start
        log = answer.get("log", b"")
        observed = self._observed(events, started_ns)
        if "error" in answer or answer["status"]:
            raise self._error(answer, log, observed)
        data = answer["data"].rstrip(b"\0") if self.kind == "ptx" else answer["data"]
        names = dict(zip(self.expressions, map(os.fsdecode, answer["names"]), strict=True))
        kernels = self._kernels(data, log, names)
        if self.kind == "cubin":
            left = None if timeout is None else max(1.0, timeout - (time.perf_counter() - start))
            kernels = with_spills(kernels, lambda: self._verbose(asked, left))
        path, keyed = self.layout.path_in(data)
        return Compiled(
            data,
            self.layout.neutral(log),
            kernels,
            observed.observations,
            self.shown,
            seconds,
            uncacheable=self.request.uncacheable
            or observed.uncacheable
            or ("" if keyed or self.request.bound else path)
            or self._clock(observed),
            local_only=self.request.bound_by or observed.local_only or path,
            messages=self._named(log),
            kind=self.kind,
            names=tuple(sorted(names.items())),
        )

    def _asked(self) -> dict[str, Any]:
        """The message for the worker, all texts as bytes."""
        options = [*self.argv, *(["-dlto"] if self.kind == "ltoir" else [])]
        return {
            "source": self.variant.source_bytes(),
            "name": os.fsencode(self.name),
            "headers": [(os.fsencode(name), os.fsencode(text)) for name, text in self.variant.headers],
            "expressions": [os.fsencode(expression) for expression in self.expressions],
            "kind": self.kind,
            "options": [os.fsencode(option) for option in options],
            "folder": os.fsencode(self.folder),
        }

    def _named(self, log: bytes) -> str:
        return self.layout.named(log).replace(f"{ALIAS}/src/", "")

    def _verbose(self, asked: Mapping[str, Any], timeout: float | None) -> str:
        options = [*asked["options"], b"--ptxas-options=--verbose"]
        again, _ = self.worker.compile({**asked, "options": options}, timeout)
        return str(again.get("log", b"").decode(errors="replace"))

    def _observed(self, events: Sequence[Event] | None, started_ns: int) -> Observed:
        distrust = self.worker.distrust
        if distrust:
            if self.request.roots or self.request.bound:
                return Observed((), uncacheable=f"what NVRTC reads cannot be seen: {distrust}")
            outside = self._outside_memory()
            return Observed((), uncacheable=f"{outside}, and that cannot be seen: {distrust}" if outside else "")
        if events is None:
            return Observed((), uncacheable="what NVRTC read was not recorded")
        spelled = tuple(self.request.places) if self.request.bound else ()
        scene = Scene(self.worker.folder, self.request.places, bool(self.layout.beside), (), (), spelled=spelled)
        looks = [event for event in events if not event.path.startswith(f"{ALIAS}/")]
        observed = self.layout.without_source(observe_all(looks, scene, self.contents, started_ns))
        program = next((event.path for event in looks if event.op in "SX"), "")
        return replace(observed, uncacheable=f"NVRTC started {program}") if program else observed

    def _texts(self) -> dict[str, bytes]:
        """Everything in memory by name."""
        headers = {name: os.fsencode(text) for name, text in self.variant.headers}
        return {self.variant.source_name: self.variant.source_bytes(), **headers}

    def _clock(self, observed: Observed) -> str:
        """Why the result may have the time of day in it: NVRTC lets nobody set its clock."""
        for name, text in self._texts().items():
            if _CLOCK.search(text):
                return f"__DATE__ or __TIME__ is in {name}"
        for o in observed.observations:
            place = path_of(o.name, self.request.places) if o.digest else None
            if place is not None and _CLOCK.search(Path(place).read_bytes()):
                return f"__DATE__ or __TIME__ is in {o.name}"
        return ""

    def _outside_memory(self) -> str:
        """Why NVRTC may look at a file though there is no folder to search: a path, or a name nobody can tell."""
        for argument in self.request.arguments:
            name = argument.removeprefix("--pre-include=")
            if name != argument and name not in dict(self.variant.headers):
                return f"{argument} names a file"
        for where, text in self._texts().items():
            for line in _SPLICE.sub(b"", text).splitlines():
                for found in _LOOKS.finditer(line):
                    before = line[: found.start()]
                    if not _DIRECTIVE.search(before) or _DEFINED.search(before):
                        continue  # a word in a comment, or the question whether one may ask
                    named = _PLAIN_LOOK.match(line, found.end())
                    file = b"/" if named is None else named[1] or named[2] or b""
                    if file.startswith(b"/") or b".." in file.split(b"/"):
                        return f"{where} may include a file: {os.fsdecode(line.strip())[:80]}"
        return ""

    def _kernels(self, data: bytes, log: bytes, names: Mapping[str, str]) -> tuple[Kernel, ...]:
        from cubinet.objects import check

        arch = self.variant.target.arch
        if self.kind != self.variant.kind:
            arch = next(a for a in self.request.arguments if a.startswith("--gpu-architecture=")).partition("=")[2]
        # by symbol: NVRTC may resolve a name to another spelling; `&x` is a variable. LTO-IR does not tell its kernels.
        named = (symbol for entry, symbol in names.items() if not entry.startswith("&"))
        entries = [*named, *(e for e in self.variant.entries if e.startswith("_Z"))]
        try:
            return check(
                data,
                kind=self.kind,
                arch=arch,
                entries=entries if self.kind != "ltoir" else (),
                log=log.decode(errors="replace"),
            )
        except ObjectError as exc:
            finding = f"NVRTC succeeded but cannot {exc.action} {exc.subject}: {exc.finding}"
            raise CompileError(self.subject, finding, exc.remedy, self._named(log)) from exc

    def _error(self, answer: Mapping[str, Any], log: bytes, observed: Observed) -> CompileError:
        text = self._named(log)
        known = f"NVRTC {self.request.toolchain.version}"
        if "error" in answer:
            return CompileError(self.subject, f"NVRTC refused: {answer['error']}", "", text, self.shown, known)
        error = CompileError(
            self.subject,
            f"{answer['status_name']}: {first_error(text)}",
            "",
            text,
            self.shown,
            known,
            is_deterministic(log.decode(errors="replace"), answer["status"]) and not observed.uncacheable,
        )
        error.observations = observed.observations
        return error
