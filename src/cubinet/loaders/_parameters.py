"""Where a kernel's parameters lie: from the cubin's own table, and their types from a C++ name.

The table is one KPARAM_INFO record for each parameter in `.nv.info.<kernel>`, in a second form where one of them is
large: undocumented by the vendor, found by comparing with sources, for CUDA 13.0.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from cubinet.errors import ObjectError
from cubinet.objects.attributes import attributes
from cubinet.objects.elf import Elf

__all__ = ["Parameter", "laid_out", "parameters_of", "typed"]

_KPARAM_INFO = 0x17
_KPARAM_INFO_V2 = 0x45
_RECORD = struct.Struct("<IHHI")
_MOST_BYTES = 1 << 16
_MOST = 1 << 13

_FLOATS = {"float": 4, "double": 8, "__half": 2, "__nv_bfloat16": 2}
_INTEGERS = frozenset(
    "bool char short int long unsigned signed wchar_t char8_t char16_t char32_t __int128 size_t".split()  # noqa: SIM905
)


class Parameter(NamedTuple):
    """One parameter of a kernel: its place from 0, bytes from the start of the parameters, size in bytes.

    `type` is its C++ type if the kernel's name tells it, else empty.
    """

    index: int  # type: ignore[assignment]  # nobody misses the method of tuples
    offset: int
    size: int
    type: str = ""

    @property
    def kind(self) -> str:
        """`float`, `integer`, `pointer`, or empty if the type is another or unknown."""
        if not self.type:
            return ""
        if self.type.endswith(("*", "&")):
            return "pointer"
        words = self.type.replace("const", "").split()
        if len(words) == 1 and words[0] in _FLOATS:
            return "float"
        return "integer" if words and all(word in _INTEGERS for word in words) else ""

    def __str__(self) -> str:
        what = f"{self.type}, " if self.type else ""
        return f"parameter {self.index + 1} ({what}{self.size} bytes at byte {self.offset})"


def parameters_of(data: bytes, symbol: str) -> tuple[Parameter, ...] | None:
    """Read the parameters of a kernel out of a cubin; `None` if the cubin has no record of the kernel.

    Raises `ObjectError` for a cubin, or a table, that contradicts itself.
    """
    elf = Elf(data, "cubin")
    wanted = f".nv.info.{symbol}"
    section = next((section for section in elf.sections if section.name == wanted), None)
    if section is None:
        return None
    found = []
    for attribute, _, payload in attributes(elf.body(section), elf.subject):
        if attribute not in (_KPARAM_INFO, _KPARAM_INFO_V2):
            continue
        if len(payload) != _RECORD.size:
            raise ObjectError("read parameters of", symbol, f"a record of {len(payload)} bytes", "update Cubinet")
        _, index, offset, last = _RECORD.unpack(payload)
        found.append(Parameter(index, offset, last >> 18 if attribute == _KPARAM_INFO else last))
    return laid_out(found, symbol)


def laid_out(found: Iterable[Parameter], symbol: str) -> tuple[Parameter, ...]:
    """Put parameters in order. Raises `ObjectError` if they overlap, leave one out, or are too many."""
    ordered = tuple(sorted(found))
    at = 0
    for place, parameter in enumerate(ordered):
        index, offset, size, _ = parameter
        wrong = index != place or offset < at or not size
        at = offset + size
        if wrong or at > _MOST_BYTES or place >= _MOST:
            raise ObjectError("read parameters of", symbol, f"{parameter} does not follow the one before")
    return ordered


def typed(parameters: Sequence[Parameter], name: str) -> tuple[Parameter, ...]:
    """Add the types that a kernel's C++ name tells, if it tells one for each parameter."""
    types = _types(name)
    if len(types) != len(parameters):
        return tuple(parameters)
    return tuple(parameter._replace(type=told) for parameter, told in zip(parameters, types, strict=True))


def _types(name: str) -> list[str]:
    """The parameter list at the end of `void scale<float>(float*, int)`, split."""
    if not name.endswith(")"):
        return []
    depth, end, found = 0, len(name) - 1, []
    for at in range(len(name) - 1, -1, -1):
        letter = name[at]
        if letter in ")>]}":
            depth += 1
        elif letter in "(<[{":
            depth -= 1
        if (letter == "," and depth == 1) or (letter == "(" and not depth):
            found.append(name[at + 1 : end].strip())
            end = at
        if not depth:
            break
    return found[::-1] if any(found) else []
