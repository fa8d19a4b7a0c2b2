"""The gate: what passes, what does not, and what the refusal says."""

from __future__ import annotations

import itertools
import resource
import signal
import subprocess
from pathlib import Path

import pytest

from cubinet.errors import ObjectError
from cubinet.objects import check, inspect
from cubinet.objects.checking import spills

from .conftest import CUBINS, Corpus
from .cuobjdump import find_tool
from .handmade import Piece, elf, fatbin, member, symbol


def test_every_cubin_of_the_corpus_passes(corpus: Corpus) -> None:
    for name, options in CUBINS.items():
        arch = options[0].removeprefix("-arch=")
        kernels = check(corpus.read(name), kind="cubin", arch=arch, entries=["scale", "fill<float>", "ns::plain"])
        assert len(kernels) == 21
        assert {kernel.spills for kernel in kernels} == {None}


def test_spills_are_those_that_ptxas_printed(corpus: Corpus) -> None:
    log = corpus.log("spills.cubin")
    kernels = check(corpus.read("spills"), kind="cubin", arch="sm_90a", entries=[], log=log)
    printed = {}
    lines = log.splitlines()
    for line, following in itertools.pairwise(lines):
        if "Function properties for" in line:
            words = following.replace(",", "").split()
            printed[line.split()[-1]] = int(words[4]) + int(words[8])
    assert {kernel.symbol: kernel.spills for kernel in kernels} == {k.symbol: printed[k.symbol] for k in kernels}
    greedy = next(kernel for kernel in kernels if kernel.symbol == "greedy")
    assert greedy.spills
    assert greedy.spills > 100
    assert next(kernel for kernel in kernels if kernel.symbol == "scale").spills == 0


def test_spills_of_a_fatbin_are_those_of_the_architecture(corpus: Corpus) -> None:
    log = corpus.log("two.fatbin")
    for arch in ("sm_80", "sm_90a"):
        kernels = check(corpus.read("two.fatbin"), kind="fatbin", arch=arch, entries=[], log=log)
        assert {kernel.spills for kernel in kernels} == {0}
        assert {arch for _, arch in spills(log)} == {"sm_80", "sm_90a"}
    other = log.replace("for 'sm_90a'", "for 'sm_75'")
    kernels = check(corpus.read("two.fatbin"), kind="fatbin", arch="sm_90a", entries=[], log=other)
    assert {kernel.spills for kernel in kernels} == {None}


def test_spills_are_read_in_the_form_of_nvrtc_too() -> None:
    log = (
        "ptxas info    : Compiling entry function 'k' for 'sm_90a'\n"
        "ptxas info    : Function properties for k\n"
        "ptxas         .     8 bytes stack frame, 12 bytes spill stores, 4 bytes spill loads\n"
        "ptxas info    : Function properties for _Z6helperfi\n"
        "    16 bytes stack frame, 16 bytes spill stores, 16 bytes spill loads\n"
    )
    assert spills(log) == {("k", "sm_90a"): 16, ("_Z6helperfi", "sm_90a"): 32}
    assert spills("") == spills("nothing of the sort\n 1 bytes spill stores, 2 bytes spill loads") == {}


def test_every_truncation_is_found(corpus: Corpus) -> None:
    for name in ("sm_90a", "sm_80", "relocatable"):
        data = corpus.read(name)
        for size in {*range(0, len(data), 997), *range(4096, len(data), 4096), len(data) - 1, len(data) - 56}:
            with pytest.raises(ObjectError):
                check(data[:size], kind="cubin", arch=CUBINS[name][0].removeprefix("-arch="), entries=[])


def test_half_a_file_names_the_full_disk(corpus: Corpus) -> None:
    with pytest.raises(ObjectError) as info:
        check(corpus.read("sm_90a")[:4096], kind="cubin", arch="sm_90a", entries=[])
    assert "cut short" in str(info.value)
    assert "look for a full disk" in str(info.value)


def test_what_ptxas_leaves_on_a_full_disk_is_refused(corpus: Corpus, tmp_path: Path) -> None:
    ptxas = find_tool("ptxas")
    if ptxas is None:
        pytest.skip("ptxas is neither on PATH nor in this environment")

    def no_space() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (12288, 12288))

    out = tmp_path / "k.cubin"
    command = [ptxas, "-arch=sm_90a", str(corpus.path("sm_90a.ptx")), "-o", str(out)]
    subprocess.run(command, preexec_fn=no_space, capture_output=True, check=False)  # 13.0 exits with 0, 13.5 with 255
    assert out.stat().st_size == 12288
    with pytest.raises(ObjectError, match="the file at 12288; look for a full disk"):
        check(out.read_bytes(), kind="cubin", arch="sm_90a", entries=[])


def test_bytes_behind_the_tables_are_refused(corpus: Corpus) -> None:
    with pytest.raises(ObjectError, match="its tables end at byte"):
        check(corpus.read("sm_90a") + b"\0", kind="cubin", arch="sm_90a", entries=[])


def test_every_truncated_fatbin_is_refused(corpus: Corpus) -> None:
    data = corpus.read("two.fatbin")
    for size in {*range(0, len(data), 1999), len(data) - 1}:
        with pytest.raises(ObjectError):
            check(data[:size], kind="fatbin", arch="sm_90a", entries=[])


@pytest.mark.parametrize(
    ("asked", "name"),
    [("sm_90", "sm_90a"), ("sm_90a", "sm_90"), ("sm_100f", "sm_100a"), ("sm_100a", "sm_100f"), ("sm_80", "sm_90a")],
)
def test_another_architecture_is_refused(corpus: Corpus, asked: str, name: str) -> None:
    with pytest.raises(ObjectError, match=f"cannot use compiled cubin for {asked}: it is for {name};"):
        check(corpus.read(name), kind="cubin", arch=asked, entries=[])


def test_an_architecture_that_the_file_leaves_open_passes() -> None:
    unsure = elf([Piece(".nv.compat", b"\x02\x09\x00\x00")], flags=0x06006402)
    for arch in ("sm_100", "sm_100f"):
        assert check(unsure, kind="cubin", arch=arch, entries=[]) == ()
    with pytest.raises(ObjectError, match="it is for sm_100 or sm_100f"):
        check(unsure, kind="cubin", arch="sm_100a", entries=[])


def test_ptx_is_for_a_virtual_or_a_real_architecture(corpus: Corpus) -> None:
    data = corpus.read("sm_90a.ptx")
    for arch in ("sm_90a", "compute_90a"):
        assert len(check(data, kind="ptx", arch=arch, entries=["ns::plain"])) == 21
    with pytest.raises(ObjectError, match="it is for sm_90a"):
        check(data, kind="ptx", arch="compute_90", entries=[])


def test_a_cubin_is_never_for_a_virtual_architecture(corpus: Corpus) -> None:
    with pytest.raises(ObjectError, match="it is for sm_90a"):
        check(corpus.read("sm_90a"), kind="cubin", arch="compute_90a", entries=[])


@pytest.mark.parametrize("name", ["two.fatbin", "small.fatbin", "fast.fatbin", "plain.fatbin"])
def test_a_fatbin_has_the_kernels_of_the_architecture(corpus: Corpus, name: str) -> None:
    for arch in ("sm_80", "sm_90a"):
        kernels = check(corpus.read(name), kind="fatbin", arch=arch, entries=["scale", "fill<double>"])
        shared = next(kernel.shared for kernel in kernels if kernel.symbol == "dynamic")
        assert shared == {"sm_80": 1200, "sm_90a": 2224}[arch]
    with pytest.raises(ObjectError, match="it has cubin for sm_80, cubin for sm_90a, ptx for sm_90a"):
        check(corpus.read(name), kind="fatbin", arch="sm_100a", entries=[])


def test_a_fatbin_of_ptx_alone_passes_for_its_architecture() -> None:
    text = b".version 9.0\n.target sm_90a\n.entry k()\n{\nret;\n}\n"
    data = fatbin(member(text, kind=1, flags=0x100011))
    for arch in ("sm_90a", "compute_90a"):
        assert [kernel.symbol for kernel in check(data, kind="fatbin", arch=arch, entries=["k"])] == ["k"]


def test_ptx_does_not_stand_in_for_a_cubin_that_was_asked_for() -> None:
    text = b".version 9.0\n.target sm_90a\n.entry k()\n{\nret;\n}\n"
    data = fatbin(member(elf(flags=0x06005004), sm=80), member(text, kind=1, flags=0x100011))
    with pytest.raises(ObjectError, match="it has cubin for sm_80, ptx for sm_90a"):
        check(data, kind="fatbin", arch="sm_90a", entries=[])


def test_an_empty_fatbin_is_refused() -> None:
    with pytest.raises(ObjectError, match="it has no members"):
        check(fatbin(), kind="fatbin", arch="sm_90a", entries=[])


def test_entries_that_cannot_be_looked_for_are_not_taken_for_there(corpus: Corpus) -> None:
    data = fatbin(member(b"anything", flags=0x102011, expanded=99))
    assert check(data, kind="fatbin", arch="sm_90a", entries=[]) == ()
    with pytest.raises(ObjectError, match="cannot find entries in fatbin for sm_90a: its kernels cannot be listed"):
        check(data, kind="fatbin", arch="sm_90a", entries=["k"])
    with pytest.raises(ObjectError, match="its kernels cannot be listed"):
        check(corpus.read("lto.fatbin"), kind="fatbin", arch="sm_90a", entries=["scale"])


def test_a_missing_entry_is_named_with_what_is_there(corpus: Corpus) -> None:
    with pytest.raises(ObjectError) as info:
        check(corpus.read("sm_90a"), kind="cubin", arch="sm_90a", entries=["scale", "scael", "fill<half>"])
    text = str(info.value)
    assert text.startswith("cannot find entry 'scael', 'fill<half>': the cubin for sm_90a has ")
    assert "void fill<float>(float*, float)" in text
    assert text.endswith(" and 1 more; name kernels as they are listed here, and instantiate templates in the source")


def test_a_cubin_without_kernels_has_no_entries() -> None:
    assert check(elf(), kind="cubin", arch="sm_90a", entries=[]) == ()
    with pytest.raises(ObjectError, match="has no kernels"):
        check(elf(), kind="cubin", arch="sm_90a", entries=["k"])


@pytest.mark.parametrize(
    ("data", "kind", "finding"),
    [
        (b"", "cubin", "it is empty"),
        (b"", "ptx", "it is empty"),
        (b"\0" * 4096, "cubin", "no kind that is known begins with 00 00"),
        (elf(machine=62), "cubin", "an ELF file for another machine"),
        (elf(machine=0x1029), "cubin", "it is of kind ascend"),
        (fatbin(), "cubin", "it is of kind fatbin"),
        (b".version 9.0\n", "cubin", "it is of kind ptx"),
        (elf(), "ptx", "it is of kind cubin"),
        (elf(), "fatbin", "it is of kind cubin"),
    ],
)
def test_another_kind_is_refused(data: bytes, kind: str, finding: str) -> None:
    with pytest.raises(ObjectError, match=finding):
        check(data, kind=kind, arch="sm_90a", entries=[])


def test_ltoir_passes_without_entries() -> None:
    data = b"\xed\x43\x4e\x7f\x01\x43\x02\x83"
    assert check(data, kind="ltoir", arch="sm_90a", entries=[]) == ()
    with pytest.raises(ObjectError, match="cannot be listed"):
        check(data, kind="ltoir", arch="sm_90a", entries=["k"])


def test_checking_a_thousand_entries_of_a_thousand_kernels_is_quick() -> None:
    names = b"\0" + b"".join(b"_Z5k%04dPf\0" % number for number in range(1000))
    rows = b"".join(symbol(1 + 11 * number) for number in range(1000))
    data = elf([Piece(".text")], symbols=rows, names=names)
    assert len(inspect(data).kernels) == 1000
    entries = [f"k{number:04}" for number in range(1000)]
    assert len(check(data, kind="cubin", arch="sm_90a", entries=entries)) == 1000
