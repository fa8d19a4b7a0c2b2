"""One compile in an NVRTC worker: what it is told, what it looked at, what it made and said."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cubinet.compilers._hook import apply, inspected
from cubinet.compilers._layout import Layout
from cubinet.compilers._nvrtc_pool import Worker
from cubinet.compilers._observe import Observed, Scene, observe_all
from cubinet.compilers._recorder import Event
from cubinet.compilers._spills import with_spills
from cubinet.compilers._verdict import first_error, is_deterministic
from cubinet.errors import CompileError, ObjectError
from cubinet.model import Kernel, Variant
from cubinet.observations import Contents, path_of
from cubinet.protocols import Compiled, Request

__all__ = ["ARCH", "Run", "kind_made"]

_CLOCK = re.compile(rb"\b__(DATE|TIME|TIMESTAMP)__\b")
ARCH = re.compile(r"(?:sm|compute)_(\d+)([af]?)")


def kind_made(variant: Variant, archs: Sequence[int]) -> str:
    """What NVRTC can make of what was asked: PTX instead of a cubin for an architecture newer than it."""
    number = int(ARCH.fullmatch(variant.target.arch)[1])  # type: ignore[index]
    return "ptx" if variant.kind == "cubin" and number > max(archs) else variant.kind


class Run:
    """One compile in a worker."""

    def __init__(self, request: Request, worker: Worker, contents: Contents, subject: str) -> None:
        self.request, self.worker, self.contents, self.subject = request, worker, contents, subject
        self.variant = request.variant
        self.layout = Layout(worker.folder, request, {})
        self.kind = kind_made(self.variant, worker.about["archs"])
        self.argv = [*request.arguments]
        for root in request.roots:
            if root.kind != "beside":  # NVRTC has one kind of search folder
                self.argv.append(f"--include-path=include/{root.label}")

    def compile(self, timeout: float | None) -> Compiled:
        self.layout.prepare()
        started_ns, start = time.time_ns(), time.perf_counter()
        asked = {
            "source": self.variant.source_bytes(),
            "name": self.layout.source,
            "headers": [(name, text.encode("utf-8", "surrogateescape")) for name, text in self.variant.headers],
            "expressions": self.variant.entries,
            "kind": self.kind,
            "options": [*self.argv, *(["-dlto"] if self.kind == "ltoir" else [])],
        }
        answer, events = self.worker.compile(asked, timeout)
        seconds = time.perf_counter() - start
        log = answer.get("log", b"")
        observed = self._observed(events, started_ns)
        if "error" in answer or answer["status"]:
            raise self._error(answer, log, observed)
        data = answer["data"].rstrip(b"\0") if self.kind == "ptx" else answer["data"]
        kernels = self._kernels(data, log)
        if self.kind == "cubin":
            kernels = with_spills(kernels, lambda: self._verbose(asked, timeout))
        if self.variant.hook:
            data, more = apply(data, self.layout, self.worker.recorder, self.contents, timeout)
            observed = observed.joined(more)
            kernels = inspected(self.variant, data, kernels)
        path, keyed = self.layout.path_in(data)
        return Compiled(
            data,
            self.layout.neutral(log),
            kernels,
            observed.observations,
            ("nvrtc", *self.argv, self.layout.source),
            seconds,
            uncacheable=self.request.uncacheable
            or observed.uncacheable
            or ("" if keyed or self.request.bound else path)
            or self._clock(observed),
            local_only=self.request.bound_by or observed.local_only or path,
            messages=self.layout.named(log),
            kind=self.kind,
            names=tuple(sorted(answer["names"].items())),
        )

    def _clock(self, observed: Observed) -> str:
        """Why the result may have the time of day in it: NVRTC lets nobody set its clock."""
        texts = {self.layout.source: self.variant.source_bytes()}
        texts.update((name, text.encode("utf-8", "surrogateescape")) for name, text in self.variant.headers)
        if any(_CLOCK.search(text) for text in texts.values()):
            return "__DATE__ or __TIME__ is in its source"
        for o in observed.observations:
            place = path_of(o.name, self.request.places) if o.digest else None
            if place is not None and _CLOCK.search(Path(place).read_bytes()):
                return f"__DATE__ or __TIME__ is in {o.name}"
        return ""

    def _verbose(self, asked: Mapping[str, Any], timeout: float | None) -> str:
        again, _ = self.worker.compile({**asked, "options": [*asked["options"], "--ptxas-options=--verbose"]}, timeout)
        return str(again.get("log", b"").decode(errors="replace"))

    def _observed(self, events: Sequence[Event], started_ns: int) -> Observed:
        if self.worker.recorder.distrust:
            if self.request.roots:
                return Observed((), uncacheable=f"what NVRTC reads cannot be seen: {self.worker.recorder.distrust}")
            return Observed(())  # headers in memory alone: there is nothing to look at
        scene = Scene(self.worker.folder, self.request.places, bool(self.layout.beside), (), ())
        return self.layout.without_source(observe_all(events, scene, self.contents, started_ns))

    def _kernels(self, data: bytes, log: bytes) -> tuple[Kernel, ...]:
        from cubinet.objects import check

        arch = self.variant.target.arch
        if self.kind != self.variant.kind:
            arch = next(a for a in self.request.arguments if a.startswith("--gpu-architecture=")).partition("=")[2]
        try:
            # NVRTC itself refuses a name expression without a kernel, and may resolve it to another spelling
            return check(data, kind=self.kind, arch=arch, entries=(), log=log.decode(errors="replace"))
        except ObjectError as exc:
            finding = f"NVRTC succeeded but cannot {exc.action} {exc.subject}: {exc.finding}"
            raise CompileError(self.subject, finding, exc.remedy, self.layout.named(log)) from exc

    def _error(self, answer: Mapping[str, Any], log: bytes, observed: Observed) -> CompileError:
        text = self.layout.named(log)
        known = f"NVRTC {self.request.toolchain.version}"
        if "error" in answer:
            return CompileError(self.subject, f"NVRTC refused: {answer['error']}", "", text, toolchain=known)
        error = CompileError(
            self.subject,
            f"{answer['status_name']}: {first_error(text)}",
            "",
            text,
            ("nvrtc", *self.argv, self.layout.source),
            known,
            is_deterministic(log.decode(errors="replace"), answer["status"]) and not observed.uncacheable,
        )
        error.observations = observed.observations
        return error
