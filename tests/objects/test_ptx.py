"""PTX text: what it declares, and text made to be slow."""

from __future__ import annotations

import contextlib
import time

import pytest

from cubinet.errors import ObjectError
from cubinet.objects import inspect

from .conftest import Corpus

HEAD = ".version 9.0\n.target sm_90a\n.address_size 64\n"


def ptx(body: str, head: str = HEAD) -> bytes:
    return (head + body).encode()


def test_the_head_of_real_ptx_is_read(corpus: Corpus) -> None:
    info = inspect(corpus.read("sm_90a.ptx"))
    assert (info.kind, info.arch, info.archs, info.address_size) == ("ptx", "sm_90a", ("sm_90a",), 64)
    major, _, minor = info.version.partition(".")
    assert int(major) >= 8
    assert minor.isdigit()
    assert info.producer.startswith("Cuda compilation tools, release ")


def test_entries_of_real_ptx_are_those_of_the_cubin(corpus: Corpus) -> None:
    of_ptx = {(kernel.name, kernel.symbol) for kernel in inspect(corpus.read("sm_90a.ptx")).kernels}
    of_cubin = {(kernel.name, kernel.symbol) for kernel in inspect(corpus.read("sm_90a")).kernels}
    assert of_ptx == of_cubin
    assert len(of_ptx) == 21


def test_ptx_knows_no_registers(corpus: Corpus) -> None:
    for kernel in inspect(corpus.read("sm_90a.ptx")).kernels:
        assert (kernel.regs, kernel.shared, kernel.local, kernel.const, kernel.spills) == (None,) * 5


@pytest.mark.parametrize(
    ("parameters", "size"),
    [
        ("", 0),
        (".param .u64 a", 8),
        (".param .u8 a, .param .u64 b", 16),
        (".param .u64 a, .param .u8 b", 9),
        (".param .u64 .ptr .align 1 a, .param .f32 b", 12),
        (".param .u64 .ptr .global .align 16 a", 8),
        (".param .u64 .ptr a", 8),
        (".param .align 4 .b8 a[3600], .param .u64 b", 3608),
        (".param .u8 a, .param .align 64 .b8 b[128]", 192),
        (".param .b16 a, .param .bf16 b, .param .f16x2 c", 8),
        (".param .v4 .f32 a", 16),
        (".param .b128 a", 16),
        (".param .texref a", 8),
        (".param .align 0 .b8 a[3]", 3),
        (".param .strange a", None),
        (".param .u64", None),
        (".param .u64 a\n\t/* a comment, with a comma */ , // and (one)\n.param .u32 b", 12),
    ],
)
def test_parameters_are_laid_out_as_ptxas_does(parameters: str, size: int | None) -> None:
    (kernel,) = inspect(ptx(f".visible .entry k(\n{parameters}\n)\n{{\nret;\n}}\n")).kernels
    assert kernel.params == size


def test_comments_and_strings_hold_no_entries() -> None:
    body = (
        '// .entry no1(\n/* .entry no2( { */ .file 1 "/x/.entry no3(.cu"\n.entry yes { ret; }\n'
        '.pragma ".entry no4 {";\n'
    )
    assert [kernel.symbol for kernel in inspect(ptx(body)).kernels] == ["yes"]


def test_nvrtc_ends_its_ptx_with_nul() -> None:
    data = b"//\n// Generated\n//\n\n" + ptx(".entry k()\n{\nret;\n}\n") + b"\0"
    assert [kernel.symbol for kernel in inspect(data).kernels] == ["k"]


@pytest.mark.parametrize(
    ("data", "finding"),
    [
        (b".version 9.0\n", "it has no .target"),
        (b".version\n.target sm_90\n", "it has no .version"),
        (ptx(".entry k()\n{\nret;\n"), "cut short or mixed up"),
        (ptx(".entry k(.param .u64 a"), "cut short or mixed up"),
        (ptx(".entry k()\n{\nret;\n}\n.visible .entr"), "cut short: it stops within a statement"),
        (ptx(".entry k()\n{\nret;\n}\n/* no end"), None),
        (ptx("\0.entry k()\n{\nret;\n}\n"), "holds NUL bytes"),
    ],
)
def test_ptx_that_lacks_something_is_refused(data: bytes, finding: str | None) -> None:
    if finding is None:
        inspect(data)
        return
    with pytest.raises(ObjectError, match=finding):
        inspect(data)


def test_every_cut_within_a_block_is_found(corpus: Corpus) -> None:
    data = corpus.read("sm_90a.ptx")
    last = data.rindex(b"}")
    for at in range(data.rindex(b"{") + 1, last, 37):
        with pytest.raises(ObjectError, match="cut short"):
            inspect(data[:at])


@pytest.mark.parametrize(
    "unit",
    ["/*", "//", '"', ".entry x(", ".entry ", ".version ", ".param ", "{", "(", ".entry k(.param .u64 a" + " " * 50],
    ids=["comment", "line", "string", "parameters", "entry", "version", "param", "brace", "bracket", "blanks"],
)
def test_text_full_of_beginnings_takes_no_longer_than_other_text(unit: str) -> None:
    data = ptx(unit * (400_000 // len(unit)))
    start = time.perf_counter()
    with contextlib.suppress(ObjectError):
        inspect(data)
    assert time.perf_counter() - start < 3


def test_a_parameter_with_a_megabyte_of_blanks_takes_no_longer() -> None:
    start = time.perf_counter()
    (kernel,) = inspect(ptx(".entry k(.param .u64 a" + " " * 1_000_000 + "!){}")).kernels
    assert kernel.params is None
    assert time.perf_counter() - start < 2
