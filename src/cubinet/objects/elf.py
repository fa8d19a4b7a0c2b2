"""A bounded reader of 64-bit little-endian ELF, for bytes that nobody vouches for.

Every offset and count is compared with the size of the file before it is used, and what the reader
hands out in total is a small multiple of that size, so a hostile header costs no more time or
memory than an honest file of its length. The only exception is `ObjectError`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from cubinet.objects.info import damaged

__all__ = ["Elf", "Section", "Symbol"]

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_PROGRAM_HEADER_SIZE = 56

SHT_NULL, SHT_SYMTAB, SHT_STRTAB, SHT_NOBITS = 0, 2, 3, 8
SHN_UNDEF, SHN_XINDEX = 0, 0xFFFF
STT_FUNC = 2

NAME_BYTES_PER_FILE_BYTE = 4
"""Names may share their tails, so together they can be longer than their table; this much longer."""

LARGEST_NOBITS = 1 << 32
"""A section without bytes in the file declares memory; more than 4 GiB is damage, not a kernel."""


class Section(NamedTuple):
    """One row of the section table, with its name looked up."""

    name: str
    type: int
    flags: int
    address: int
    offset: int
    size: int
    link: int
    info: int
    entry_size: int


class Symbol(NamedTuple):
    """One row of the symbol table. `name` is an offset: look it up with `Elf.symbol_name`."""

    name: int
    info: int
    other: int
    section: int
    value: int
    size: int


class _Strings:
    """A string table. Looks each offset up once and keeps count of what it hands out."""

    def __init__(self, data: bytes, section: tuple[int, int], subject: str) -> None:
        self._data, self._subject = data, subject
        self._start, self._end = section[0], section[0] + section[1]
        self._known: dict[int, str] = {}
        self._left = NAME_BYTES_PER_FILE_BYTE * len(data)

    def at(self, offset: int) -> str:
        known = self._known.get(offset)
        if known is not None:
            return known
        start = self._start + offset
        stop = self._data.find(b"\0", start, self._end) if start < self._end else -1
        if stop < 0:
            raise damaged(self._subject, f"name {offset} runs out of its string table")
        self._left -= stop - start
        if self._left < 0:
            raise damaged(self._subject, "its names overlap to many times the size of the file")
        name = self._data[start:stop].decode("utf-8", "backslashreplace")
        self._known[offset] = name
        return name


class Elf:
    """The parsed frame of an ELF file: header, sections, symbols.

    Args:
        data: the whole file.
        subject: what messages call it.

    Attributes:
        sections: all sections in file order, the null section included.
        end: one past the last byte that a table or a section accounts for. A linker's output ends
            there; more bytes belong to nobody.

    Raises `ObjectError` if anything lies outside the file.
    """

    def __init__(self, data: bytes, subject: str = "ELF file") -> None:
        self.data, self.subject = data, subject
        if len(data) < _HEADER.size:
            raise damaged(subject, f"cut short: {len(data)} bytes, the header alone has {_HEADER.size}")
        if data[:6] != b"\x7fELF\x02\x01":
            raise damaged(subject, "not a 64-bit little-endian ELF file", "")
        header = _HEADER.unpack_from(data)
        ident, self.type, self.machine, _, _, phoff, shoff, self.flags = header[:8]
        _, ph_size, ph_count, row_size, count, names = header[8:]
        self.os_abi, self.abi_version = ident[7], ident[8]
        self.end = _HEADER.size
        if ph_count:
            if ph_size != _PROGRAM_HEADER_SIZE:
                raise damaged(subject, f"program headers of {ph_size} bytes, expected {_PROGRAM_HEADER_SIZE}")
            self._inside("program header table", phoff, ph_count * ph_size)
        rows = self._section_rows(shoff, count, row_size)
        self.sections = self._named(rows, names)
        self._symbol_names: _Strings | None = None
        self._symbols: tuple[int, int] = (0, 0)
        self._find_symbols()

    def _inside(self, what: str, offset: int, size: int) -> None:
        end = offset + size
        if end > len(self.data):
            raise damaged(
                self.subject,
                f"cut short: its {what} ends at byte {end}, the file at {len(self.data)}",
                "look for a full disk (ptxas does not report one) and compile it again",
            )
        self.end = max(self.end, end)

    def _section_rows(self, offset: int, count: int, row_size: int) -> list[tuple[int, ...]]:
        if not offset:
            return []
        if row_size != _SECTION.size:
            raise damaged(self.subject, f"section headers of {row_size} bytes, expected {_SECTION.size}")
        self._inside("section table", offset, max(count, 1) * _SECTION.size)
        if not count:  # 65,280 sections and more: the count is in the size of the null section
            count = _SECTION.unpack_from(self.data, offset)[5]
            self._inside("section table", offset, count * _SECTION.size)
        rows = list(_SECTION.iter_unpack(self.data[offset : offset + count * _SECTION.size]))
        total = 0
        for index, row in enumerate(rows):
            if row[1] == SHT_NOBITS:
                if row[5] >= LARGEST_NOBITS:
                    raise damaged(self.subject, f"section {index} declares {row[5]} bytes of memory")
            elif row[1] != SHT_NULL:
                self._inside(f"section {index}", row[4], row[5])
                total += row[5]
        if total > len(self.data):
            raise damaged(self.subject, f"its sections overlap: {total} bytes in a file of {len(self.data)}")
        return rows

    def _named(self, rows: list[tuple[int, ...]], index: int) -> tuple[Section, ...]:
        if not rows:
            return ()
        if index == SHN_XINDEX:
            index = rows[0][6]
        if index >= len(rows) or rows[index][1] != SHT_STRTAB:
            raise damaged(self.subject, f"section {index} should hold the section names and is no string table")
        names = _Strings(self.data, (rows[index][4], rows[index][5]), self.subject)
        at = names.at
        return tuple(
            Section(at(name) if type_ else "", type_, flags, address, offset, size, link, info, entry)
            for name, type_, flags, address, offset, size, link, info, _, entry in rows
        )

    def _find_symbols(self) -> None:
        table = next((section for section in self.sections if section.type == SHT_SYMTAB), None)
        if table is None:
            return
        if table.entry_size != _SYMBOL.size or table.size % _SYMBOL.size:
            raise damaged(self.subject, f"its symbol table has {table.size} bytes in rows of {table.entry_size}")
        if table.link >= len(self.sections) or self.sections[table.link].type != SHT_STRTAB:
            raise damaged(self.subject, f"section {table.link} should hold the symbol names and is no string table")
        strings = self.sections[table.link]
        self._symbol_names = _Strings(self.data, (strings.offset, strings.size), self.subject)
        self._symbols = (table.offset, table.size)

    def symbols(self) -> Iterator[Symbol]:
        """Give all rows of `.symtab` in order; none if the file was stripped."""
        offset, size = self._symbols
        return map(Symbol._make, _SYMBOL.iter_unpack(self.data[offset : offset + size]))

    def symbol_name(self, symbol: Symbol) -> str:
        """Look up the name of a row that `symbols` gave."""
        return self._symbol_names.at(symbol.name) if self._symbol_names else ""

    def body(self, section: Section) -> bytes:
        """Copy the bytes of a section; empty for one that only declares memory."""
        if section.type in (SHT_NOBITS, SHT_NULL):
            return b""
        return self.data[section.offset : section.offset + section.size]
