"""Kernel arguments as the bytes that an Ascend kernel reads.

Each argument starts at a multiple of its alignment, at least 4, and the whole is padded to a multiple of 8. No
object tells the types of its arguments, so a plain Python number needs a declaration of its size.
"""

from __future__ import annotations

import ctypes
import struct
import sys
from collections.abc import Sequence
from typing import Any

from cubinet.errors import LoadError

__all__ = ["TYPES", "Declared", "declared", "pack"]

TYPES = {
    "bool": "?", "i8": "b", "u8": "B", "i16": "h", "u16": "H", "i32": "i", "u32": "I", "i64": "q", "u64": "Q",
    "f16": "e", "f32": "f", "f64": "d", "bf16": "", "ptr": "P",
}  # fmt: skip
"""Names for `declare`, and how `struct` packs them."""

_BY_DTYPE = {"b1": "bool", **{f"{kind}{size}": f"{kind}{size * 8}" for kind in "iuf" for size in (1, 2, 4, 8)}}
_LEAST, _WHOLE = 4, 8
_BY_VALUE = "biufcV"
"""Kinds of NumPy scalars that are numbers or structures."""
_HOST_POINTERS = ("z", "Z", "O")

Declared = str | type[ctypes.Structure]
"""A name in `TYPES`, or a ctypes structure taken by value."""


def declared(kinds: Sequence[object]) -> tuple[Declared, ...]:
    """Settle a declaration: names of `TYPES`, ctypes types, NumPy scalar types. Raises `LoadError`."""
    return tuple(_declared(kind) for kind in kinds)


def _declared(kind: Any) -> Declared:
    if isinstance(kind, str) and kind in TYPES:
        return kind
    if isinstance(kind, type) and issubclass(kind, ctypes.Structure):
        return kind
    numpy = sys.modules.get("numpy")
    code = getattr(kind, "_type_", "")
    if isinstance(kind, type) and isinstance(code, str) and hasattr(ctypes, kind.__name__):
        if kind is ctypes.c_void_p:
            return "ptr"
        family = "bool" if code == "?" else "f" if code in "fd" else "i" if code.islower() else "u" if code else ""
        name = family if family == "bool" else f"{family}{8 * ctypes.sizeof(kind)}"
        if code in "?bBhHiIlLqQfd" and name in TYPES:
            return name
    elif numpy is not None:
        try:
            dtype = numpy.dtype(kind)
        except TypeError:
            dtype = None
        known = dtype is not None and f"{dtype.kind}{dtype.itemsize}" in _BY_DTYPE
        if known and not any(kind is vague for vague in (int, float, bool, None)):
            return _BY_DTYPE[f"{dtype.kind}{dtype.itemsize}"]
    raise LoadError("declare argument as", repr(kind), "no type of known size", f"one of {', '.join(TYPES)}")


def pack(arguments: Sequence[Any], kinds: Sequence[Declared] | None, *, device: int, symbol: str) -> bytes:
    """Lay arguments out. Raises `LoadError` for one that has no bytes, or other bytes than declared."""
    if kinds is not None and len(arguments) != len(kinds):
        finding = f"{len(arguments)} arguments, declared with {len(kinds)}"
        raise LoadError("launch", symbol, finding, "give as many as were declared")
    out = bytearray()
    for i, argument in enumerate(arguments):
        try:
            data, alignment = _typed(argument, kinds[i], device) if kinds is not None else _bare(argument, device)
        except _Refused as exc:
            finding, remedy = exc.args
            raise LoadError("launch", symbol, f"argument {i + 1}: {finding}", remedy) from exc.__cause__
        out += bytes(-len(out) % max(_LEAST, alignment)) + data
    return bytes(out + bytes(-len(out) % _WHOLE))


class _Refused(Exception):  # noqa: N818 - never leaves this module
    """Finding and remedy for one argument."""


def _bare(argument: Any, device: int) -> tuple[bytes, int]:
    if argument is None:
        return bytes(8), 8
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(argument, numpy.generic):
        if argument.dtype.hasobject or argument.dtype.kind not in _BY_VALUE:
            raise _Refused(f"a NumPy value of type {argument.dtype} has no meaning on a device", "")
        return argument.tobytes(), argument.dtype.alignment
    if isinstance(argument, ctypes._SimpleCData | ctypes.Structure | ctypes.Union):  # noqa: SLF001 - its only name
        if getattr(argument, "_type_", "") in _HOST_POINTERS:
            raise _Refused(f"{type(argument).__name__} points to the host's memory", "copy it to the device first")
        return bytes(argument), ctypes.alignment(type(argument))
    if isinstance(argument, bool | int | float):
        remedy = "give ctypes.c_int32(…) or the like, or declare the kernel's arguments"
        raise _Refused(f"a Python {type(argument).__name__} does not tell its size", remedy)
    return struct.pack("<Q", _pointer(argument, device)), 8


def _typed(argument: Any, kind: Declared, device: int) -> tuple[bytes, int]:
    if isinstance(kind, type):
        if not isinstance(argument, kind):
            raise _Refused(f"found {type(argument).__name__}, declared as {kind.__name__}", "")
        return bytes(argument), ctypes.alignment(kind)
    if kind == "ptr":
        return struct.pack("<Q", _pointer(argument, device)), 8
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(argument, numpy.generic):
        argument = argument.item()
    elif isinstance(argument, ctypes._SimpleCData):  # noqa: SLF001
        argument = argument.value
    if isinstance(argument, float) and kind[0] in "iu":
        raise _Refused(f"{argument!r} is no whole number, declared as {kind}", "")
    if not isinstance(argument, bool | int | float):
        raise _Refused(f"found {type(argument).__name__}, declared as {kind}", "")
    try:
        data = _bf16(argument) if kind == "bf16" else struct.pack("<" + TYPES[kind], argument)
    except (struct.error, OverflowError) as exc:
        raise _Refused(f"{argument!r} does not fit {kind}", "declare a larger type") from exc
    return data, len(data)


def _bf16(number: float) -> bytes:
    """The nearest bfloat16, ties to even: the upper half of a float32."""
    (bits,) = struct.unpack("<I", struct.pack("<f", number))
    if bits & 0x7FFFFFFF > 0x7F800000:
        return struct.pack("<H", bits >> 16 | 0x40)  # a NaN stays one
    return struct.pack("<H", (bits + 0x7FFF + (bits >> 16 & 1)) >> 16)


def _pointer(argument: Any, device: int) -> int:
    if argument is None:
        return 0
    if isinstance(argument, ctypes.c_void_p):
        return argument.value or 0
    if isinstance(argument, int) and not isinstance(argument, bool):
        if 0 <= argument < 1 << 64:
            return argument
        raise _Refused(f"{argument} is no address", "")
    data_ptr = getattr(argument, "data_ptr", None)
    if not callable(data_ptr):
        what = type(argument).__name__
        hint = (
            "copy it to the device first" if hasattr(argument, "__array_interface__") else "give a tensor of torch_npu"
        )
        raise _Refused(f"{what} has no memory on an Ascend device", hint)
    where = getattr(argument, "device", None)
    kind, index = getattr(where, "type", "npu"), getattr(where, "index", None)
    if kind not in ("npu", "privateuseone"):
        raise _Refused(f"a tensor on {where}, not on an Ascend device", f"tensor.to('npu:{device}')")
    if index is not None and index != device:
        raise _Refused(f"a tensor on device {index}, and the kernel is on {device}", f"tensor.to('npu:{device}')")
    return int(data_ptr())
