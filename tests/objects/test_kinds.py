"""Telling kinds apart by content."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from cubinet.errors import ObjectError
from cubinet.objects import inspect, sniff

from .conftest import Corpus
from .handmade import elf, fatbin


def test_real_files_are_told_apart(corpus: Corpus) -> None:
    for name, kind in {"sm_90a": "cubin", "sm_90a.ptx": "ptx", "two.fatbin": "fatbin", "lto.fatbin": "fatbin"}.items():
        assert sniff(corpus.read(name)) == kind
        assert inspect(corpus.read(name)).kind == kind


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (b"", "unknown"),
        (b"\x7fELF", "elf"),
        (b"\x7fELF\x02\x01\x01", "elf"),
        (elf(), "cubin"),
        (elf(machine=0x1029), "ascend"),
        (elf(machine=62), "elf"),
        (elf(ident=b"\x7fELF\x01\x01\x01"), "elf"),
        (fatbin(), "fatbin"),
        (b"\x50\xed\x55\xba", "fatbin"),
        (b"\xed\x43\x4e\x7f\x01\x43", "ltoir"),
        (b".version 9.0\n", "ptx"),
        (b"\n\n\t .version 9.0\n", "ptx"),
        (b"// one\n//\n/* two\n */ .version 9.0\n", "ptx"),
        (b"// .version 9.0", "unknown"),
        (b"/* .version 9.0", "unknown"),
        (b"/*/ .version 9.0", "unknown"),
        (b"/**/.version 9.0", "ptx"),
        (b"//\n" * 1000, "unknown"),
        (b"#include <x>\n.version 9.0\n", "unknown"),
        (b"\x28\xb5\x2f\xfd", "unknown"),
    ],
)
def test_a_few_bytes_are_enough(data: bytes, kind: str) -> None:
    assert sniff(data) == kind


def test_a_host_program_is_named_and_refused() -> None:
    data = Path(sys.executable).read_bytes()
    assert sniff(data) == "elf"
    with pytest.raises(ObjectError, match="an ELF file for another machine"):
        inspect(data)


def test_nothing_and_noise_are_refused() -> None:
    with pytest.raises(ObjectError, match="cannot read compiled object: it is empty; look for a full disk"):
        inspect(b"")
    with pytest.raises(ObjectError, match="no kind that is known begins with 23 69 6e 63"):
        inspect(b"#include <x>")


def test_ltoir_has_a_kind_and_nothing_else() -> None:
    info = inspect(b"\xed\x43\x4e\x7f\x01\x43\x02\x83")
    assert (info.kind, info.arch, info.kernels) == ("ltoir", None, ())
