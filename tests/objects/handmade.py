"""ELF files and fatbins put together by hand, honest ones and hostile ones."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple

__all__ = ["Piece", "elf", "fatbin", "member", "symbol"]

NOBITS = 8


class Piece(NamedTuple):
    """A section: `size` and `offset` lie if given."""

    name: str
    body: bytes = b""
    type: int = 1
    info: int = 0
    entry_size: int = 0
    size: int | None = None
    offset: int | None = None
    link: int | None = None


def symbol(name: int, *, info: int = 0x12, other: int = 0x10, section: int = 1, value: int = 0, size: int = 0) -> bytes:
    """One row of a symbol table; a kernel unless said otherwise."""
    return struct.pack("<IBBHQQ", name, info, other, section, value, size)


def elf(
    pieces: Sequence[Piece] = (),
    *,
    symbols: bytes = b"",
    names: bytes = b"\0",
    machine: int = 190,
    flags: int = 0x06005A04,
    ident: bytes = b"\x7fELF\x02\x01\x01\x41\x08",
    header: dict[str, int] | None = None,
) -> bytes:
    """A cubin of these sections, then `.symtab`, `.strtab` and `.shstrtab`; `header` overrides fields."""
    all_pieces = [
        Piece("", type=0),
        *pieces,
        Piece(".symtab", symbols, 2, entry_size=24, link=len(pieces) + 2),
        Piece(".strtab", names, 3),
    ]
    section_names = b"\0" + b"".join(piece.name.encode() + b"\0" for piece in all_pieces) + b".shstrtab\0"
    all_pieces.append(Piece(".shstrtab", section_names, 3))
    body, rows, name_at = b"", b"", 1
    for piece in all_pieces:
        size = len(piece.body) if piece.size is None else piece.size
        offset = 64 + len(body) if piece.offset is None else piece.offset
        link = piece.link or 0
        rows += struct.pack(
            "<IIQQQQIIQQ", name_at, piece.type, 0, 0, offset, size, link, piece.info, 1, piece.entry_size
        )
        name_at += len(piece.name.encode()) + 1
        body += piece.body
    fields = {
        "type": 2, "machine": machine, "version": 1, "entry": 0, "phoff": 0, "shoff": 64 + len(body), "flags": flags,
        "ehsize": 64, "phentsize": 56, "phnum": 0, "shentsize": 64, "shnum": len(all_pieces),
        "shstrndx": len(all_pieces) - 1,
    }  # fmt: skip
    unknown = set(header or {}) - set(fields)
    assert not unknown
    return struct.pack("<16sHHIQQQIHHHHHH", ident.ljust(16, b"\0"), *(fields | (header or {})).values()) + body + rows


def member(
    payload: bytes,
    *,
    kind: int = 2,
    sm: int = 90,
    flags: int = 0x11,
    expanded: int = 0,
    packed: int | None = None,
    size: int | None = None,
    header: int = 64,
) -> bytes:
    """One member of a fatbin."""
    if packed is None:
        packed = len(payload) if flags & 0xA000 else 0
    length = len(payload) if size is None else size
    fields = (kind, 0x101, header, length, packed, 0, 8, 1, sm, 0, 0, flags, 0, expanded)
    return struct.pack("<HHIQIIHHIIIQQQ", *fields) + payload


def fatbin(*members: bytes, size: int | None = None, version: int = 1, header: int = 16) -> bytes:
    """One wrapper round members."""
    body = b"".join(members)
    return struct.pack("<4sHHQ", b"\x50\xed\x55\xba", version, header, len(body) if size is None else size) + body
