"""The two record formats inside a cubin: NVIDIA's attribute records and its ELF notes.

Undocumented by the vendor; found by comparing with cuobjdump, for CUDA 12.9 to 13.5.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from cubinet.objects.info import damaged

__all__ = ["Tool", "attributes", "pairs", "tools"]

FMT_NONE, FMT_BYTE, FMT_HALF, FMT_SIZED = 1, 2, 3, 4

REGCOUNT = 0x2F
MIN_STACK_SIZE = 0x12
CBANK_PARAM_SIZE = 0x19
COMPAT_ARCH_SPECIFIC = 0x09

_NOTE = struct.Struct("<III")
_TOOL = struct.Struct("<IIIIII")
_PAIR = struct.Struct("<II")
_NOTE_OWNER = b"NVIDIA Corp\0"
_NOTE_TOOL = 2000
_TOOL_FORMATS = (2, 0x81)
"""Of CUDA 13, and of CUDA 12.9 in files with the new ABI; the layout is the same."""


def attributes(body: bytes, subject: str) -> Iterator[tuple[int, int, bytes]]:
    """Walk `.nv.info`, `.nv.info.<kernel>` or `.nv.compat`: (attribute, short value, payload).

    A record has either a short value or a payload; the other is 0 or empty. Raises `ObjectError`
    if a record has an unknown shape or runs out of its section.
    """
    at, end = 0, len(body)
    while at < end:
        if at + 4 > end:
            raise damaged(subject, f"an attribute record is cut short at byte {at} of its section")
        shape, attribute, value = body[at], body[at + 1], body[at + 2] | body[at + 3] << 8
        at += 4
        if shape == FMT_SIZED:
            if at + value > end:
                raise damaged(subject, f"attribute {attribute:#04x} runs out of its section")
            yield attribute, 0, body[at : at + value]
            at += value
        elif shape in (FMT_NONE, FMT_BYTE, FMT_HALF):
            yield attribute, value & 0xFF if shape == FMT_BYTE else value, b""
        else:
            raise damaged(subject, f"attribute record of unknown shape {shape}")


def pairs(payload: bytes) -> Iterator[tuple[int, int]]:
    """Read a payload of (symbol index, number) pairs; an odd rest is left out."""
    return _PAIR.iter_unpack(payload[: len(payload) - len(payload) % _PAIR.size])


class Tool(NamedTuple):
    """One program that worked on a cubin, as `.note.nv.tkinfo` tells it."""

    name: str
    banner: str
    options: tuple[str, ...]


def _string(table: bytes, offset: int) -> str:
    stop = table.find(b"\0", offset)
    return table[offset : stop if stop >= 0 else len(table)].decode("utf-8", "backslashreplace")


def tools(body: bytes, subject: str) -> list[Tool]:
    """Read `.note.nv.tkinfo`: newest program first (nvlink before the ptxas runs it joined).

    A note in a newer format is left out. Raises `ObjectError` if a note runs out of the section.
    """
    found: list[Tool] = []
    at = 0
    while at + _NOTE.size <= len(body):
        owner_size, size, kind = _NOTE.unpack_from(body, at)
        start = at + _NOTE.size + (owner_size + 3 & ~3)
        if start + size > len(body):
            raise damaged(subject, "a note runs out of its section")
        owner, text = body[at + _NOTE.size : at + _NOTE.size + owner_size], body[start : start + size]
        at = start + (size + 3 & ~3)
        if owner != _NOTE_OWNER or kind != _NOTE_TOOL or size < _TOOL.size:
            continue
        form, _, name, banner, build, options = _TOOL.unpack_from(text)
        if form in _TOOL_FORMATS:
            table = text[_TOOL.size :]
            words = f"{_string(table, name)}: {_string(table, banner)}, {_string(table, build)}"
            found.append(Tool(_string(table, name), words, tuple(_string(table, options).split())))
    return found
