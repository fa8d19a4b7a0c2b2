"""Reading a compiled object of any kind."""

from __future__ import annotations

from cubinet.errors import ObjectError
from cubinet.objects import ascend, cubin, fatbin, ptx
from cubinet.objects.elf import Elf
from cubinet.objects.info import ObjectInfo
from cubinet.objects.kinds import sniff

__all__ = ["inspect", "unreadable"]


def inspect(data: bytes) -> ObjectInfo:
    """Tell what a compiled object says of itself, without a device, a driver or vendor tools.

    Safe for bytes from anywhere: time and memory are bounded by a multiple of their number, and
    `ObjectError` is the only exception, raised for what is no compiled object and for one that
    contradicts itself. That it reads does not mean that it is undamaged: a changed instruction
    shows in a digest and nowhere else.
    """
    kind = sniff(data)
    if kind == "cubin":
        return cubin.describe(Elf(data, "cubin"))
    if kind == "ptx":
        return ptx.describe(data)
    if kind == "fatbin":
        return fatbin.describe(data)
    if kind == "ascend":
        return ascend.describe(Elf(data, "Ascend object"))
    if kind == "ltoir":
        return ObjectInfo(kind="ltoir")
    raise unreadable(data, kind)


def unreadable(data: bytes, kind: str) -> ObjectError:
    """Return the error for what `sniff` gave no kind that can be inspected."""
    if not data:
        return ObjectError("read", "compiled object", "it is empty", "look for a full disk and compile it again")
    if kind == "elf":
        return ObjectError(
            "read",
            "compiled object",
            "an ELF file for another machine, such as a host object",
            "device code in it can be taken out with cuobjdump -xelf all",
        )
    return ObjectError("read", "compiled object", f"no kind that is known begins with {data[:8].hex(' ')}")
