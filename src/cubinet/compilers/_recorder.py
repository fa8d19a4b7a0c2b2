"""The recorder: building it, proving that it works here, reading what it wrote. See `recorder.c`."""

from __future__ import annotations

import atexit
import os
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from blake3 import blake3

from cubinet.compilers._worker import private_folder, run
from cubinet.observations import Stamp
from cubinet.registry import Workshop

__all__ = ["Event", "Recorder", "read_log", "recorder"]

ALIAS = "/cubinet"
"""What the private folder of a compile is called where its name would reach the result."""

LOG_NAME = "record.log"


@dataclass(frozen=True, slots=True)
class Event:
    """One look. `op` is a letter of `recorder.c`; `mode` is 0 where nothing was found."""

    op: str
    pid: int
    error: int
    stamp: Stamp
    mode: int
    path: str


@dataclass(frozen=True, slots=True)
class Recorder:
    """A recorder, or why there is none."""

    library: str
    distrust: str = ""

    def environ(self, folder: str) -> dict[str, str]:
        """Variables that make every program started with them record into `folder`."""
        if self.distrust:
            return {}
        return {
            "LD_PRELOAD": self.library,
            "CUBINET_RECORDER_LOG": f"{folder}/{LOG_NAME}",
            "CUBINET_RECORDER_FOLDER": folder,
            "CUBINET_RECORDER_ALIAS": ALIAS,
        }


def read_log(path: str, offset: int = 0) -> Iterator[Event]:
    """The events in a log from a byte on, in the order they happened. Raises `ValueError` for a torn log."""
    try:
        data = Path(path).read_bytes()[offset:]
    except FileNotFoundError:
        return
    heads = data.split(b"\0")
    if heads.pop() != b"" or len(heads) % 2:
        raise ValueError("the recorder's log is cut short")
    for head, name in zip(heads[::2], heads[1::2], strict=True):
        op, pid, error, dev, ino, size, mtime, ctime, mode = head.decode("ascii").split(" ")
        stamp = (int(dev), int(ino), int(size), int(mtime), int(ctime))
        yield Event(op, int(pid), int(error), stamp, int(mode, 8), os.fsdecode(name))


def recorder(workshop: Workshop, host: str) -> Recorder:
    """The recorder for a host compiler; built and proved on first use, then found again.

    Args:
        workshop: where it is kept; without a folder it is built anew for each process.
        host: path of the host compiler driver, which nvcc needs anyway.
    """
    if workshop.settings.recorder == "off":
        return Recorder("", "switched off by the setting RECORDER")
    source = resources.files(__package__).joinpath("recorder.c").read_bytes()
    name = blake3(source + host.encode("utf-8", "surrogateescape")).hexdigest(16)
    key = f"{workshop.folder}:{name}"
    if key not in _known:
        _known[key] = _obtain(workshop, host, source, name)
    return _known[key]


_known: dict[str, Recorder] = {}


def _obtain(workshop: Workshop, host: str, source: bytes, name: str) -> Recorder:
    folder = workshop.folder
    if folder is None or set(folder) & set(" :;"):
        # LD_PRELOAD is split at blanks and colons
        manager = private_folder()
        folder = manager.__enter__()
        atexit.register(manager.__exit__, None, None, None)
        if set(folder) & set(" :;"):
            return Recorder("", f"the path {folder!r} cannot be preloaded: it has a blank or a colon")
    library = f"{folder}/recorder-{name}.so"
    if os.path.exists(library) and os.path.exists(f"{library}.proved"):
        return Recorder(library)
    try:
        with private_folder() as work:
            why = _build(host, source, work) or _prove(host, f"{work}/recorder.so", work)
            if why:
                return Recorder("", why)
            data = Path(work, "recorder.so").read_bytes()
        workshop.fs.mkdir(folder)
        for path, content, mode in ((library, data, 0o555), (f"{library}.proved", b"proved\n", 0o444)):
            temporary = f"{path}.{os.getpid()}.{os.urandom(4).hex()}"
            workshop.fs.create(temporary, content, mode=mode, sync=False)
            workshop.fs.rename(temporary, path)
    except OSError as exc:
        if workshop.folder is not None:  # a full or read-only store: try a folder of our own
            private = Workshop(workshop.settings, workshop.environ, None, type(workshop.fs)())
            return _obtain(private, host, source, name)
        return Recorder("", f"it cannot be built: {exc}")
    return Recorder(library)


def _host_environ(work: str) -> dict[str, str]:
    return {"PATH": "/usr/bin:/bin", "LC_ALL": "C", "TMPDIR": work}


def _build(host: str, source: bytes, work: str) -> str:
    Path(work, "recorder.c").write_bytes(source)
    argv = [host, "-O2", "-shared", "-fPIC", "-w", "-x", "c", "recorder.c", "-o", "recorder.so", "-ldl"]
    done = run(argv, folder=work, environ=_host_environ(work), timeout=120)
    if done.status:
        return f"{host} cannot build it: {done.output.decode(errors='replace').strip()[-300:]}"
    return ""


def _prove(host: str, library: str, work: str) -> str:
    """Have the host compiler preprocess a file with every kind of look; say what was not recorded."""
    tree = Path(work, "t")
    for name, text in {
        "src/main.cc": '#include "beside.h"\n#include "second.h"\n#if __has_include("no/such.h")\n#endif\n',
        "src/beside.h": '#include "third.h"\n',
        "a/third.h": "\n",
        "b/second.h": "\n",
        "b/third.h": "\n",
    }.items():
        place = tree / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
    check = Recorder(library)
    environ = _host_environ(work) | check.environ(str(tree))
    argv = [host, "-E", "-x", "c++", "-Imissing", "-Ia", "-Ib", "src/main.cc", "-o", "out.ii"]
    done = run(argv, folder=str(tree), environ=environ, timeout=60)
    if done.status:
        return f"with it {host} fails: {done.output.decode(errors='replace').strip()[-300:]}"
    try:
        events = list(read_log(f"{tree}/{LOG_NAME}"))
    except ValueError as exc:
        return str(exc)
    seen = {(event.op, event.path) for event in events}
    for op, path in (
        ("R", "src/beside.h"),
        ("R", "a/third.h"),
        ("R", "b/second.h"),
        ("A", "src/second.h"),
        ("A", "a/second.h"),
        ("A", "src/third.h"),
        ("A", "missing"),
        ("A", "a/no/such.h"),
        ("A", "b/no/such.h"),
    ):
        if (op, path) not in seen:
            what = "read" if op == "R" else "failed lookup"
            return f"it did not see the {what} of {path} by {host}"
    if ("R", "b/third.h") in seen:
        return "it saw a read that cannot have happened"
    return ""
