"""The process NVRTC runs in: started under the recorder, asked over a pipe, thrown away if it misbehaves.

Run as a script by `_nvrtc_pool.py`, with its private folder as argument. Each message is a length (4 bytes,
little-endian) and MessagePack, texts as bytes. The first one is other: the user's site folder and the module
search path, separated by NUL, so that the same `cuda.bindings` and the same library are found as in the parent.

It ends, and its folder with it, when the parent does, and when it was not asked anything for a while.
"""

from __future__ import annotations

import os
import select
import site
import struct
import sys
from collections.abc import Callable
from typing import Any

BEGIN, END = "/cubinet/begin", "/cubinet/end"
"""Names that no file has: looked for around a compile, so that the log shows where it begins and ends."""

IDLE_SECONDS = 300.0
"""A worker holds some 100 MB; a burst of kernels does not pause for so long."""

PROVED = {"src/beside.h": b"", "include/proof/found.h": b""}
"""Files that the first program includes. A recorder that does not see that is not trusted."""

MISSED = ("src/found.h", "include/proof/no/such.h")
"""Where the first program looks in vain."""

LENGTH = struct.Struct("<I")
_OUTPUT = {"cubin": "CUBIN", "ptx": "PTX", "ltoir": "LTOIR"}
_FIRST = b"""#include "beside.h"
#include "found.h"
#if __has_include("no/such.h")
#endif
__global__ void k() {}
"""


def _read(file: int, size: int) -> bytes | None:
    """So many bytes; `None` if the other side is gone."""
    data = b""
    while len(data) < size:
        more = os.read(file, size - len(data))
        if not more:
            return None
        data += more
    return data


def _receive(file: int) -> bytes | None:
    head = _read(file, LENGTH.size)
    return None if head is None else _read(file, LENGTH.unpack(head)[0])


def _send(file: int, data: bytes) -> None:
    view = memoryview(LENGTH.pack(len(data)) + data)
    while view:
        view = view[os.write(file, view) :]


def _value(result: tuple[Any, ...]) -> Any:
    if int(result[0]):
        raise RuntimeError(f"{result[0].name} ({int(result[0])})")
    return result[1] if len(result) > 1 else None


def _bytes(nvrtc: Any, program: Any, size: str, get: str) -> bytes:
    buffer = b" " * int(_value(getattr(nvrtc, size)(program)))
    _value(getattr(nvrtc, get)(program, buffer))
    return buffer


def _compile(nvrtc: Any, asked: dict[str, Any]) -> dict[str, Any]:
    headers, options, expressions = asked["headers"], asked["options"], asked["expressions"]
    program = _value(
        nvrtc.nvrtcCreateProgram(
            asked["source"],
            asked["name"],
            len(headers),
            [text for _, text in headers] or None,
            [name for name, _ in headers] or None,
        )
    )
    os.chdir(asked["folder"])
    try:
        for expression in expressions:
            _value(nvrtc.nvrtcAddNameExpression(program, expression))
        os.access(BEGIN, os.F_OK)
        (status,) = nvrtc.nvrtcCompileProgram(program, len(options), options)
        os.access(END, os.F_OK)
        answer: dict[str, Any] = {
            "status": int(status),
            "status_name": status.name,
            "log": _bytes(nvrtc, program, "nvrtcGetProgramLogSize", "nvrtcGetProgramLog").rstrip(b"\0 \n"),
        }
        if not answer["status"]:
            what = _OUTPUT[asked["kind"]]
            answer["data"] = _bytes(nvrtc, program, f"nvrtcGet{what}Size", f"nvrtcGet{what}")
            answer["names"] = [bytes(_value(nvrtc.nvrtcGetLoweredName(program, e))) for e in expressions]
        return answer
    finally:
        nvrtc.nvrtcDestroyProgram(program)


def _libraries() -> list[bytes]:
    """The NVRTC libraries that are really loaded."""
    found: dict[bytes, None] = {}
    with open("/proc/self/maps", "rb") as file:
        for line in file:
            path = b"/" + line.rstrip(b"\n").partition(b"/")[2]
            if any(name in path for name in (b"libnvrtc", b"libnvJitLink", b"libnvptxcompiler")):
                found[path] = None
    return sorted(found)


def _about(nvrtc: Any, folder: str) -> dict[str, Any]:
    """Version, libraries, architectures; compiles once, so that the builtins are loaded too."""
    archs = sorted(int(arch) for arch in _value(nvrtc.nvrtcGetSupportedArchs()))
    first = {"source": _FIRST, "name": b"src/first.cu", "headers": [], "expressions": [], "kind": "ptx"}
    options = [b"--gpu-architecture=compute_%d" % archs[-1], b"--include-path=include/proof"]
    done = _compile(nvrtc, {**first, "options": options, "folder": folder})
    if done["status"]:
        raise RuntimeError(f"{done['status_name']}: {done['log'].decode(errors='replace')}")
    version = ".".join(str(number) for number in nvrtc.nvrtcVersion()[1:])
    return {"version": version, "libraries": _libraries(), "archs": archs}


def serve(folder: str) -> None:
    """Answer requests until the pipe is closed, or nobody asks for a while."""
    # what libraries print must not end up among the answers
    requests, answers = os.dup(0), os.dup(1)
    os.dup2(os.open(os.devnull, os.O_RDWR), 0)
    os.dup2(0, 1)
    path = _receive(requests)
    if path is None:
        return
    user_site, *sys.path[:] = os.fsdecode(path).split("\0")
    # cuda.bindings looks for libraries in the site folders, not on the search path
    site.ENABLE_USER_SITE, site.USER_SITE = bool(user_site), user_site or None
    import msgspec

    decode: Callable[[bytes], Any] = msgspec.msgpack.Decoder().decode
    encode = msgspec.msgpack.Encoder().encode
    try:
        from cuda.bindings import nvrtc

        first: dict[str, Any] = _about(nvrtc, folder)
    except (ImportError, RuntimeError, OSError) as exc:
        first = {"error": f"{type(exc).__name__}: {exc}"}
    _send(answers, encode(first))
    waiting = select.poll()
    waiting.register(requests, select.POLLIN)
    while "error" not in first and waiting.poll(IDLE_SECONDS * 1000):
        data = _receive(requests)
        if data is None:
            return
        try:
            answer = _compile(nvrtc, decode(data))
        except (RuntimeError, ValueError, TypeError, OSError, MemoryError) as exc:
            answer = {"error": f"{type(exc).__name__}: {exc}"}
        _send(answers, encode(answer))


def main(folder: str) -> None:
    """Serve, and leave nothing."""
    try:
        serve(folder)
    except BrokenPipeError:  # the parent is gone
        pass
    finally:
        import shutil

        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main(sys.argv[1])
