"""The `.ascend.meta.<entry>` sections: what the compiler noted about each entry of an Ascend object.

A list of `u16 type, u16 length, bytes`, little-endian, with zeros between. Absent from a quarter of real
objects and not always walkable, so all of it is a hint: what cannot be read is left out.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from cubinet.objects.elf import Elf

__all__ = ["Hints", "hints"]

_PREFIX = ".ascend.meta."
_HEAD = struct.Struct("<HH")
_KERNEL_TYPE, _RATIO = 1, 3
_KINDS = {1: "aicore", 2: "aic", 3: "aiv", 4: "mix_aic_main", 5: "mix_aiv_main"}
_MOST_ITEMS = 64


@dataclass(frozen=True, slots=True)
class Hints:
    """What was noted: the kernel's kind and, for a mix kernel, how many cube and vector cores make a group."""

    kind: str | None = None
    ratio: tuple[int, int] | None = None


def hints(elf: Elf) -> dict[str, Hints]:
    """Entry → hints, for the entries that have any."""
    return {
        section.name[len(_PREFIX) :]: _walk(elf.data[section.offset : section.offset + min(section.size, 4096)])
        for section in elf.sections
        if section.name.startswith(_PREFIX) and section.size <= len(elf.data)
    }


def _walk(body: bytes) -> Hints:
    kind: str | None = None
    ratio: tuple[int, int] | None = None
    at = 0
    for _ in range(_MOST_ITEMS):
        if at + _HEAD.size > len(body):
            break
        what, length = _HEAD.unpack_from(body, at)
        value = body[at + _HEAD.size : at + _HEAD.size + length]
        at += _HEAD.size + length
        if len(value) != length:
            break
        if what == _KERNEL_TYPE and length == 4:
            kind = _KINDS.get(int.from_bytes(value, "little"))
        elif what == _RATIO and length == 4:
            first, second = _HEAD.unpack(value)
            ratio = (first, second)
    return Hints(kind, ratio)
