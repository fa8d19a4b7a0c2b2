"""Post-hooks: one Python file under a declared root that edits the object after compiling.

Its name is in the action; its content, and that of everything else it reads, is observed like a header.
The interpreter's own library counts as part of the interpreter, whose version is in the action.
"""

from __future__ import annotations

import os
import sys
import sysconfig
import time
from dataclasses import replace
from pathlib import Path

from cubinet.compilers import _hook_worker as worker
from cubinet.compilers._layout import Layout
from cubinet.compilers._observe import Observed, Scene, observe_all
from cubinet.compilers._recorder import LOG_NAME, Recorder, read_log
from cubinet.compilers._worker import run
from cubinet.errors import CompileError, CompileTimeoutError, ObjectError
from cubinet.model import Kernel, Variant
from cubinet.observations import Contents

__all__ = ["apply", "inspected"]

_ENVIRON = {"LC_ALL": "C", "PYTHONDONTWRITEBYTECODE": "1", "PYTHONHASHSEED": "0"}


def inspected(variant: Variant, data: bytes, before: tuple[Kernel, ...]) -> tuple[Kernel, ...]:
    """The kernels of an edited object, with the spills the compiler told. Raises `CompileError`."""
    from cubinet.objects import check

    try:
        kernels = check(data, kind=variant.kind, arch=variant.target.arch, entries=variant.entries)
    except ObjectError as exc:
        subject = f"{variant.name or variant.source_name}: post-hook {variant.hook}"
        raise CompileError(subject, f"after it, cannot {exc.action} {exc.subject}: {exc.finding}") from exc
    known = {kernel.symbol: kernel.spills for kernel in before}
    return tuple(replace(kernel, spills=known.get(kernel.symbol)) for kernel in kernels)


def _is_library(path: str) -> bool:
    for name in ("stdlib", "platstdlib"):
        folder = sysconfig.get_path(name)
        if path.startswith(folder + "/") and not path.startswith(
            (f"{folder}/site-packages/", f"{folder}/dist-packages/")
        ):
            return True
    return path in {folder for name in ("stdlib", "platstdlib") if (folder := sysconfig.get_path(name))}


def apply(
    data: bytes, layout: Layout, recorder: Recorder, contents: Contents, timeout: float | None
) -> tuple[bytes, Observed]:
    """Run the hook over an object; the new one and what the hook looked at.

    Raises `CompileError` if the hook fails; then nothing is kept.
    """
    variant, folder = layout.variant, layout.folder
    label, _, rest = variant.hook.partition(":")
    hook, given, made = f"include/{label}/{rest}", "hook-in", "hook-out"
    Path(folder, given).write_bytes(data)
    log = f"{folder}/{LOG_NAME}"
    before = os.path.getsize(log) if os.path.exists(log) else 0
    started_ns = time.time_ns()
    environ = {"PATH": os.defpath, "HOME": folder, "TMPDIR": folder, **_ENVIRON, **recorder.environ(folder)}
    argv = [sys.executable, "-I", worker.__file__, hook, given, made]
    done = run(argv, folder=folder, environ=environ, timeout=timeout)
    text, subject = layout.named(done.output), f"{variant.name or variant.source_name}: post-hook {variant.hook}"
    if done.timed_out:
        raise CompileTimeoutError(subject, f"it was killed after {timeout:g} s", "", text)
    if done.status:
        last = text.strip().splitlines()[-1:] or [f"status {done.status}"]
        raise CompileError(subject, last[0], "see the log", text)
    if recorder.distrust:
        return Path(folder, made).read_bytes(), Observed((), uncacheable="what the post-hook reads cannot be seen")
    events = [event for event in read_log(log, before) if not _is_library(event.path)]
    marks = [i for i, event in enumerate(events) if event.path in (worker.BEGIN, worker.END)]
    scene = Scene(folder, layout.request.places, bool(layout.beside), (), ())
    looks = events[marks[0] + 1 : marks[-1]] if len(marks) == 2 else []
    observed = observe_all([e for e in looks if e.op in "RAPWD"], scene, contents, started_ns)
    if any(event.op in "SX" for event in looks):
        observed = Observed(observed.observations, uncacheable="the post-hook starts other programs")
    return Path(folder, made).read_bytes(), observed
