"""Post-hooks: one Python file under a declared root that edits the object after compiling.

Its name is in the action; its content, and that of everything else it reads, is observed like a header.
The interpreter's own library counts as part of the interpreter, whose version is in the action. A hook runs in a
private folder with the same links to the roots as a compile, so it knows no place of this machine.

It must give the same bytes for the same data and files: what it makes of the clock or of chance cannot be seen.
"""

from __future__ import annotations

import os
import stat as modes
import sys
import sysconfig
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from cubinet.compilers import _hook_worker as worker
from cubinet.compilers._layout import Layout
from cubinet.compilers._observe import Observed, Scene, observe_all
from cubinet.compilers._recorder import LOG_NAME, Event, Recorder, read_log
from cubinet.compilers._worker import private_folder, run
from cubinet.errors import CompileError, CompileTimeoutError, ObjectError
from cubinet.model import Kernel, Seen, Variant
from cubinet.observations import Contents

__all__ = ["apply", "inspected"]

_GIVEN, _MADE = "hook-in", "hook-out"
_ENVIRON = {"PATH": os.defpath, "LC_ALL": "C", "TZ": "UTC", "PYTHONHASHSEED": "0", "OPENSSL_CONF": os.devnull}
# No user's site, nothing from the working folder, no files beside modules. Not -I: that ignores PYTHONHASHSEED.
_PYTHON = ("-s", "-P", "-B")


def inspected(
    variant: Variant, data: bytes, before: tuple[Kernel, ...], *, kind: str = "", entries: Sequence[str] | None = None
) -> tuple[Kernel, ...]:
    """The kernels of an edited object, with the spills the compiler told. Raises `CompileError`.

    `kind` and `entries` are what was made and must be in it, if that is not just what the variant says.
    """
    from cubinet.objects import check, inspect

    kind = kind or variant.kind
    try:
        # PTX may stand in for a cubin of an architecture that the compiler does not know
        arch = variant.target.arch if kind == variant.kind else inspect(data).arch or ""
        wanted = variant.entries if entries is None else entries
        kernels = check(data, kind=kind, arch=arch, entries=wanted if kind != "ltoir" else ())
    except ObjectError as exc:
        finding = f"what it returned is no good: cannot {exc.action} {exc.subject}: {exc.finding}"
        raise CompileError(_subject(variant), finding, "the hook must return a whole object") from exc
    known = {kernel.symbol: kernel.spills for kernel in before}
    return tuple(replace(kernel, spills=known.get(kernel.symbol)) for kernel in kernels)


def _subject(variant: Variant) -> str:
    return f"{variant.name or variant.source_name} with post-hook {variant.hook}"


def _libraries() -> list[str]:
    """Folders of the interpreter's own modules."""
    return sorted({sysconfig.get_path(name) for name in ("stdlib", "platstdlib")})


def apply(
    data: bytes, layout: Layout, recorder: Recorder, contents: Contents, timeout: float | None
) -> tuple[bytes, Observed]:
    """Run the hook over an object; the new one and what the hook looked at.

    Args:
        data: the object.
        layout: of the compile, for the request and the toolchain's own labels; its folder is left alone.
        recorder: what the hook runs under.
        contents: digests of files.
        timeout: seconds.

    Raises `CompileError` if the hook fails; then nothing is kept.
    """
    with private_folder() as folder:
        return _Run(Layout(folder, layout.request, layout.own), recorder, contents).apply(data, timeout)


class _Run:
    """One run of a hook in a folder of its own."""

    def __init__(self, layout: Layout, recorder: Recorder, contents: Contents) -> None:
        self.layout, self.recorder, self.contents = layout, recorder, contents
        self.variant, self.folder = layout.variant, layout.folder
        label, _, rest = self.variant.hook.partition(":")
        self.hook = f"include/{label}/{rest}"
        self.subject = _subject(self.variant)

    def apply(self, data: bytes, timeout: float | None) -> tuple[bytes, Observed]:
        self.layout.prepare()
        if not Path(self.folder, self.hook).is_file():
            raise CompileError(self.subject, "there is no such file", "a hook is named LABEL:FILE.py, under a root")
        Path(self.folder, _GIVEN).write_bytes(data)
        started_ns = time.time_ns()
        environ = {**_ENVIRON, "HOME": self.folder, "TMPDIR": self.folder, **self.recorder.environ(self.folder)}
        argv = [sys.executable, *_PYTHON, worker.__file__, self.hook, _GIVEN, _MADE, *_libraries()]
        done = run(argv, folder=self.folder, environ=environ, timeout=timeout)
        text = self.layout.named(done.output)
        if done.timed_out:
            remedy = "raise CUBINET_TIMEOUT, or look for an endless loop in it"
            raise CompileTimeoutError(self.subject, f"it was killed after {timeout:g} s", remedy, text)
        made = self._made()
        if done.status or made is None:
            last = text.strip().splitlines()[-1:] or [f"it ended with status {done.status}, and made nothing"]
            raise CompileError(self.subject, last[0], "see the log" if text.strip() else "", text)
        return made, self._checked(made, self._observed(started_ns))

    def _made(self) -> bytes | None:
        try:
            return Path(self.folder, _MADE).read_bytes()
        except OSError:
            return None

    def _observed(self, started_ns: int) -> Observed:
        if self.recorder.distrust:
            return Observed((), uncacheable=f"what the post-hook reads cannot be seen: {self.recorder.distrust}")
        try:
            events = list(read_log(f"{self.folder}/{LOG_NAME}"))
        except ValueError as exc:
            return Observed((), uncacheable=str(exc))
        marks = [i for i, event in enumerate(events) if event.path in (worker.BEGIN, worker.END)]
        looks = events[marks[0] + 1 : marks[-1]] if len(marks) == 2 else []
        libraries = tuple(f"{folder}/" for folder in _libraries())
        read, asked = _parted([event for event in looks if not _inside(event, libraries)])
        scene = Scene(self.folder, self.layout.request.places, bool(self.layout.beside), (), ())
        observed = observe_all(read, scene, self.contents, started_ns)
        # of a file that it asks about a hook may use size and time, and of a link where it leads
        files = [replace(event, op="R") for event in asked if modes.S_ISREG(event.mode)]
        observed = observed.joined(observe_all(files, replace(scene, timed=True), self.contents, started_ns))
        link = next((event.path for event in asked if self._is_link(event.path)), "")
        if link:
            observed = replace(observed, uncacheable=observed.uncacheable or f"the post-hook asks about a link: {link}")
        if not any(o.name == self.variant.hook and o.seen is Seen.READ for o in observed.observations):
            return Observed((), uncacheable="what the post-hook reads was not recorded")
        program = next((event.path for event in looks if event.op in "SX"), "")
        trouble = f"the post-hook starts other programs: {program}" if program else observed.uncacheable
        return replace(observed, uncacheable=trouble.replace("the compiler", "the post-hook"))

    def _is_link(self, path: str) -> bool:
        """Whether a path is a link, and none of those this folder is made of."""
        whole = os.path.join(self.folder, path)
        return os.path.dirname(whole) not in (self.folder, f"{self.folder}/include") and os.path.islink(whole)

    def _checked(self, made: bytes, observed: Observed) -> Observed:
        """The same, unless the hook wrote the name of a folder into the object."""
        path, keyed = self.layout.path_in(made)
        if not path:
            return observed
        trouble = "" if keyed or self.layout.request.bound else path
        return replace(observed, uncacheable=observed.uncacheable or trouble, local_only=observed.local_only or path)


def _parted(looks: Sequence[Event]) -> tuple[list[Event], list[Event]]:
    """Looks at what files hold and which there are, and questions about files that are there."""
    read: list[Event] = []
    asked: list[Event] = []
    importing = 0
    for event in looks:
        if event.path in (worker.IMPORT, worker.IMPORTED):
            importing += 1 if event.path == worker.IMPORT else -1
            continue
        question = event.op == "P" and not importing
        if question:
            asked.append(event)
        if event.op in "RAPWD" and not (question and modes.S_ISREG(event.mode)):
            read.append(event)
    return read, asked


def _inside(event: Event, libraries: tuple[str, ...]) -> bool:
    """Whether a look is one at the interpreter's own modules. Installed packages are not among them."""
    path = f"{event.path}/"
    return path.startswith(libraries) and "/site-packages/" not in path and "/dist-packages/" not in path
