"""Ascend objects, by hand. Their rules are checked on real ones in `tests/ascend`."""

from __future__ import annotations

import struct

import pytest

from cubinet.errors import ObjectError
from cubinet.objects import check, inspect
from cubinet.objects.ascend import read

from .handmade import Piece, elf, symbol

NAMES = b"\0add_mix_aic\0add_mix_aiv\0mul\0add_mix_aic__\0mul__\0hidden\0"
AT = {name: NAMES.index(b"\0" + name.encode() + b"\0") + 1 for name in NAMES.decode().split("\0") if name}


def ascend(flags: int = 0x940000, comment: bytes = b"Linker: LLD 15.0.5\0clang version 15.0.5\0") -> bytes:
    pieces = [
        Piece(".text", bytes(64)),
        Piece("__CCE_KernelArgSize", struct.pack("<II", 104, 56)),
        Piece(".comment", comment),
    ]
    rows = b"".join(
        [
            symbol(AT["add_mix_aic"], other=0),
            symbol(AT["add_mix_aiv"], other=0, value=16),
            symbol(AT["mul"], other=0, value=32),
            symbol(AT["hidden"], other=2),
            symbol(AT["hidden"], other=0, section=0),
            symbol(AT["hidden"], info=0x02, other=0),
            symbol(AT["add_mix_aic__"], info=0x21, other=0, section=2, size=4),
            symbol(AT["mul__"], info=0x21, other=0, section=2, value=4, size=4),
        ]
    )
    return elf(pieces, symbols=rows, names=NAMES, machine=0x1029, flags=flags, ident=b"\x7fELF\x02\x01\x01")


def test_both_halves_of_a_kernel_are_one_kernel() -> None:
    info = inspect(ascend())
    assert [(kernel.symbol, kernel.params) for kernel in info.kernels] == [("add", 104), ("mul", 56)]
    assert info.producer == "clang version 15.0.5"


@pytest.mark.parametrize(
    ("flags", "arch"),
    [(0x8A0000, "dav-2002"), (0x930000, "dav-2201"), (0x9A0000, "dav-3510"), (0x123456, None)],
)
def test_architecture_is_known_or_none(flags: int, arch: str | None) -> None:
    assert inspect(ascend(flags)).arch == arch


def test_an_argument_size_outside_its_section_is_left_out() -> None:
    rows = symbol(1, other=0) + symbol(3, info=0x21, other=0, section=2, value=2**63, size=4)
    rows += symbol(3, info=0x21, other=0, section=999, size=4)
    data = elf([Piece(".text")], symbols=rows, names=b"\0k\0k__\0", machine=0x1029)
    assert inspect(data).kernels[0].params is None


def test_an_object_is_checked_like_a_cubin() -> None:
    kernels = check(ascend(), kind="ascend", arch="dav-2201", entries=["add"])
    assert [kernel.symbol for kernel in kernels] == ["add", "mul"]
    with pytest.raises(ObjectError, match="it is for dav-2201"):
        check(ascend(), kind="ascend", arch="dav-3510", entries=[])
    with pytest.raises(ObjectError, match="an architecture that is not known"):
        check(ascend(0x123456), kind="ascend", arch="dav-2201", entries=[])
    with pytest.raises(ObjectError, match="its tables end at byte"):
        check(ascend() + b"x", kind="ascend", arch="dav-2201", entries=[])


def test_no_section_table_is_refused() -> None:
    with pytest.raises(ObjectError, match="no section table"):
        inspect(elf(machine=0x1029, header={"shoff": 0}))


def test_what_is_no_device_object_is_refused_by_name() -> None:
    host = elf([Piece("__aicore_rel_binary", bytes(64))], machine=62)
    for data, finding in (
        (host, "a host object with device code embedded"),
        (elf(machine=62), "it is for machine 0x3e, not 0x1029"),
        (elf(), "it is of kind cubin"),
        (b"!<arch>\nx", "an archive of host objects"),
        (b"", "it is of kind unknown"),
        (b".version 9.0\n", "it is of kind ptx"),
    ):
        with pytest.raises(ObjectError, match=finding):
            read(data)


def test_without_symbols_there_are_no_kernels() -> None:
    data = elf([Piece(".ascend.meta.k", bytes(8), 7)], machine=0x1029, flags=0x930000)
    assert read(data).kernels == ()


@pytest.mark.parametrize(
    "body",
    [b"", b"\1", b"\1\0\xff\xff", b"\1\0\4\0\3", b"\1\0\4\0\3\0\0\0", bytes(5000), b"\3\0\4\0\1\0\2\0", b"\xff" * 5000],
)
def test_hints_that_do_not_walk_are_left_out(body: bytes) -> None:
    names = b"\0k\0"
    row = struct.pack("<IBBHQQ", 1, 0x12, 0, 1, 0, 0)
    data = elf([Piece(".ascend.meta.k", body, 7)], symbols=row, names=names, machine=0x1029, flags=0x930000)
    (kernel,) = read(data).kernels
    assert kernel.symbol == "k"
    assert kernel.hints.kind in (None, "aiv")
    assert kernel.hints.ratio in (None, (1, 2))
