"""The ELF reader against headers made to hurt it."""

from __future__ import annotations

import struct
import time

import pytest

from cubinet.errors import ObjectError
from cubinet.objects import inspect
from cubinet.objects.elf import Elf

from .handmade import NOBITS, Piece, elf, symbol

HUGE = 2**64 - 8


def test_an_honest_file_reads() -> None:
    parsed = Elf(elf([Piece(".text.k", b"code")], symbols=symbol(1), names=b"\0k\0"))
    assert [section.name for section in parsed.sections] == ["", ".text.k", ".symtab", ".strtab", ".shstrtab"]
    (row,) = parsed.symbols()
    assert parsed.symbol_name(row) == "k"
    assert parsed.body(parsed.sections[1]) == b"code"
    assert parsed.end == len(parsed.data)


@pytest.mark.parametrize(
    ("header", "finding"),
    [
        ({"shoff": HUGE}, "cut short: its section table ends at byte"),
        ({"shoff": 2**63}, "cut short"),
        ({"shnum": 65535}, "cut short: its section table"),
        ({"shentsize": 0}, "section headers of 0 bytes"),
        ({"shentsize": 65535}, "section headers of 65535 bytes"),
        ({"phoff": HUGE, "phnum": 1}, "cut short: its program header table"),
        ({"phnum": 65535}, "cut short: its program header table"),
        ({"phnum": 1, "phentsize": 0}, "program headers of 0 bytes"),
        ({"shstrndx": 65534}, "should hold the section names"),
        ({"shstrndx": 0}, "should hold the section names"),
        ({"shstrndx": 1}, "should hold the section names"),
        ({"shstrndx": 65535}, "should hold the section names"),
    ],
)
def test_a_header_that_points_outside_is_refused(header: dict[str, int], finding: str) -> None:
    with pytest.raises(ObjectError, match=finding):
        inspect(elf([Piece(".text.k", b"code")], header=header))


@pytest.mark.parametrize(
    ("piece", "finding"),
    [
        (Piece(".text", size=2**64 - 1), "cut short"),
        (Piece(".text", offset=HUGE, size=16), "cut short"),
        (Piece(".text", offset=2**63, size=2**63), "cut short"),
        (Piece(".nv.shared.k", type=NOBITS, size=2**40), "declares 1099511627776 bytes of memory"),
    ],
)
def test_a_section_that_cannot_be_is_refused(piece: Piece, finding: str) -> None:
    with pytest.raises(ObjectError, match=finding):
        inspect(elf([piece]))


def test_a_section_without_bytes_may_lie_anywhere() -> None:
    assert inspect(elf([Piece(".nv.shared.k", type=NOBITS, offset=HUGE, size=4096)])).kernels == ()


def test_sections_that_overlap_to_more_than_the_file_are_refused() -> None:
    honest = elf([Piece(".nv.info", b"\x01\x00\x00\x00" * 64)])
    overlapping = [Piece(f".nv.info.{i}", offset=0, size=len(honest)) for i in range(8)]
    with pytest.raises(ObjectError, match="its sections overlap"):
        inspect(elf(overlapping))


def test_names_without_an_end_are_refused() -> None:
    with pytest.raises(ObjectError, match="runs out of its string table"):
        inspect(elf([Piece(".text.k")], symbols=symbol(0), names=b"k"))
    with pytest.raises(ObjectError, match="runs out of its string table"):
        inspect(elf([Piece(".text.k")], symbols=symbol(2**32 - 1), names=b"\0k\0"))


def test_a_symbol_table_in_odd_rows_is_refused() -> None:
    with pytest.raises(ObjectError, match="symbol table has 25 bytes"):
        inspect(elf(symbols=symbol(0) + b"x"))


def test_a_symbol_table_without_names_is_refused() -> None:
    data = bytearray(elf(symbols=symbol(0)))
    (shoff,) = struct.unpack_from("<Q", data, 40)
    struct.pack_into("<I", data, shoff + 64 + 40, 99)
    with pytest.raises(ObjectError, match="section 99 should hold the symbol names"):
        inspect(bytes(data))


def test_more_sections_than_16_bits_count_are_read() -> None:
    data = bytearray(elf([Piece(".text.k", b"code")], symbols=symbol(1), names=b"\0k\0"))
    (shoff,) = struct.unpack_from("<Q", data, 40)
    struct.pack_into("<Q", data, shoff + 32, 5)  # the count, in the size of the null section
    struct.pack_into("<I", data, shoff + 40, 4)  # the index of the names, in its link
    struct.pack_into("<HH", data, 60, 0, 0xFFFF)
    assert [kernel.symbol for kernel in inspect(bytes(data)).kernels] == ["k"]


def test_a_count_in_the_null_section_is_bounded_too() -> None:
    data = bytearray(elf())
    (shoff,) = struct.unpack_from("<Q", data, 40)
    struct.pack_into("<Q", data, shoff + 32, 2**60)
    struct.pack_into("<H", data, 60, 0)
    with pytest.raises(ObjectError, match="cut short: its section table"):
        inspect(bytes(data))


def test_names_that_share_one_long_tail_cost_no_more_than_the_file() -> None:
    names = b"\0" + b"k" * 40_000 + b"\0"
    rows = b"".join(symbol(1 + i) for i in range(20_000))
    data = elf([Piece(".text.k")], symbols=rows, names=names)
    start = time.perf_counter()
    with pytest.raises(ObjectError, match="its names overlap"):
        inspect(data)
    assert time.perf_counter() - start < 2


def test_many_symbols_of_one_name_cost_one_kernel() -> None:
    info = Piece(".nv.info.k", b"\x01\x37\0\0" * 20_000)
    data = elf([Piece(".text.k"), info], symbols=symbol(1) * 20_000, names=b"\0k\0")
    start = time.perf_counter()
    assert len(inspect(data).kernels) == 1
    assert time.perf_counter() - start < 2


def test_other_classes_and_byte_orders_are_not_read() -> None:
    for ident in (b"\x7fELF\x01\x01\x01", b"\x7fELF\x02\x02\x01"):
        with pytest.raises(ObjectError, match="not a 64-bit little-endian ELF file"):
            Elf(elf(ident=ident))


def test_a_name_that_is_no_utf_8_reads_and_can_be_written() -> None:
    (kernel,) = inspect(elf([Piece(".text.k")], symbols=symbol(1), names=b"\0k\xff\0")).kernels
    assert kernel.symbol == "k\\xff"
