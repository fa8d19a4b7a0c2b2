"""The process NVRTC runs in: started under the recorder, asked over a pipe, thrown away if it misbehaves.

Run as a script by `_nvrtc_pool.py`. Each message is a length (4 bytes, little-endian) and MessagePack. The
first one gives the module search path, so that the same `cuda.bindings` is found as in the parent.
"""

from __future__ import annotations

import os
import struct
import sys
from collections.abc import Callable
from typing import IO, Any

BEGIN, END = "/cubinet/begin", "/cubinet/end"
"""Names that no file has: looked for around a compile, so that the log shows where it begins and ends."""

_LENGTH = struct.Struct("<I")


def send(stream: IO[bytes], data: bytes) -> None:
    """Write one message."""
    stream.write(_LENGTH.pack(len(data)) + data)
    stream.flush()


def receive(stream: IO[bytes]) -> bytes | None:
    """Read one message; `None` at the end."""
    head = stream.read(_LENGTH.size)
    if len(head) < _LENGTH.size:
        return None
    (size,) = _LENGTH.unpack(head)
    data = stream.read(size)
    return data if len(data) == size else None


def _value(result: tuple[Any, ...]) -> Any:
    if int(result[0]):
        raise RuntimeError(f"{result[0].name} ({int(result[0])})")
    return result[1] if len(result) > 1 else None


def _bytes(nvrtc: Any, program: Any, size: str, get: str) -> bytes:
    buffer = b" " * int(_value(getattr(nvrtc, size)(program)))
    _value(getattr(nvrtc, get)(program, buffer))
    return buffer


_OUTPUT = {"cubin": "CUBIN", "ptx": "PTX", "ltoir": "LTOIR"}


def _compile(nvrtc: Any, asked: dict[str, Any]) -> dict[str, Any]:
    headers = asked["headers"]
    program = _value(
        nvrtc.nvrtcCreateProgram(
            asked["source"],
            os.fsencode(asked["name"]),
            len(headers),
            [text for _, text in headers] or None,
            [os.fsencode(name) for name, _ in headers] or None,
        )
    )
    try:
        for expression in asked["expressions"]:
            _value(nvrtc.nvrtcAddNameExpression(program, expression.encode()))
        options = [os.fsencode(option) for option in asked["options"]]
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
            answer["names"] = {
                expression: bytes(_value(nvrtc.nvrtcGetLoweredName(program, expression.encode()))).decode()
                for expression in asked["expressions"]
            }
        return answer
    finally:
        nvrtc.nvrtcDestroyProgram(program)


def _libraries() -> list[str]:
    """The NVRTC libraries that are really loaded."""
    found: dict[str, None] = {}
    with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as file:
        for line in file:
            path = line.rstrip("\n").partition("/")
            if "libnvrtc" in path[2] or "libnvJitLink" in path[2] or "libnvptxcompiler" in path[2]:
                found[f"/{path[2]}"] = None
    return sorted(found)


def _about(nvrtc: Any) -> dict[str, Any]:
    """Version, libraries, architectures; compiles once, so that the builtins are loaded too."""
    arch = max(_value(nvrtc.nvrtcGetSupportedArchs()))
    warm = {"source": b"__global__ void k() {}", "name": "warm.cu", "headers": [], "expressions": [], "kind": "ptx"}
    done = _compile(nvrtc, {**warm, "options": [f"--gpu-architecture=compute_{arch}"]})
    if done["status"]:
        raise RuntimeError(done["log"].decode(errors="replace"))
    version = nvrtc.nvrtcVersion()
    return {
        "version": ".".join(str(number) for number in version[1:]),
        "libraries": _libraries(),
        "archs": sorted(int(a) for a in _value(nvrtc.nvrtcGetSupportedArchs())),
    }


def serve() -> None:
    """Answer requests until the pipe is closed."""
    # what libraries print must not end up among the answers
    answers = os.fdopen(os.dup(1), "wb")
    quiet = os.open(os.devnull, os.O_WRONLY)
    os.dup2(quiet, 1)
    requests = sys.stdin.buffer
    path = receive(requests)
    if path is None:
        return
    sys.path[:] = path.decode("utf-8", "surrogateescape").split("\0")
    import msgspec

    decode: Callable[[bytes], Any] = msgspec.msgpack.Decoder().decode
    encode = msgspec.msgpack.Encoder().encode
    try:
        from cuda.bindings import nvrtc

        first: dict[str, Any] = _about(nvrtc)
    except (ImportError, RuntimeError, OSError) as exc:
        first = {"error": f"{type(exc).__name__}: {exc}"}
    send(answers, encode(first))
    while "error" not in first:
        data = receive(requests)
        if data is None:
            return
        try:
            answer = _compile(nvrtc, decode(data))
        except RuntimeError as exc:
            answer = {"error": str(exc)}
        send(answers, encode(answer))


if __name__ == "__main__":
    serve()
