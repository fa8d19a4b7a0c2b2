"""Cubins: every number against cuobjdump, and what the file tells of its architecture."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from cubinet.errors import ObjectError
from cubinet.objects import inspect, sniff

from .conftest import CUBINS, DATA, Corpus
from .cuobjdump import differences, res_usage
from .handmade import Piece, elf, symbol

OLD = sorted(path.name for path in DATA.glob("*.cubin"))

# Payloads as ptxas 12.9, 13.0 and 13.5 write them.
COMPAT_SPECIFIC, COMPAT_PLAIN = b"\x02\x09\x01\x00", b"\x02\x09\x00\x00"


def tool_note(options: str, form: int = 2) -> Piece:
    table = b"\0ptxas\0Cuda compilation tools, release 13.0, V13.0.88\0Build 1\0" + options.encode() + b"\0"
    starts = [table.index(word) for word in (b"ptxas", b"Cuda", b"Build", options.encode() + b"\0")]
    text = b"".join(number.to_bytes(4, "little") for number in (form, 0, *starts)) + table
    text += bytes(-len(text) % 4)
    note = b"\x0c\0\0\0" + len(text).to_bytes(4, "little") + b"\xd0\x07\0\0" + b"NVIDIA Corp\0" + text
    return Piece(".note.nv.tkinfo", note, 7)


@pytest.mark.parametrize("name", CUBINS)
def test_every_number_is_the_one_cuobjdump_prints(corpus: Corpus, cuobjdump: str, name: str) -> None:
    kernels = inspect(corpus.read(name)).kernels
    usage = res_usage(corpus.path(name), cuobjdump)
    assert differences(kernels, usage) == []
    assert len(kernels) == 21
    if name not in ("relocatable", "debug"):  # these list device functions too
        assert {kernel.symbol for kernel in kernels} == set(usage)


@pytest.mark.parametrize("name", OLD)
def test_every_number_of_ptxas_12_is_the_one_cuobjdump_prints(cuobjdump: str, name: str) -> None:
    kernels = inspect((DATA / name).read_bytes()).kernels
    usage = res_usage(DATA / name, cuobjdump)
    assert differences(kernels, usage) == []
    assert {kernel.symbol for kernel in kernels} == set(usage) == {"_Z4fillIfEvPT_S0_", "shared", "stack"}


def test_old_abi_is_read_without_any_tool() -> None:
    info = inspect((DATA / "ptxas12.9-sm_90a.cubin").read_bytes())
    shared = next(kernel for kernel in info.kernels if kernel.symbol == "shared")
    assert (shared.shared, shared.params, shared.spills) == (1424, 8, None)
    assert next(kernel for kernel in info.kernels if kernel.symbol == "stack").local == 80
    assert {kernel.name for kernel in info.kernels} == {"void fill<float>(float*, float)", "shared", "stack"}
    assert info.producer == ""


def test_sm_80_reserves_no_shared_memory_and_sm_90_reserves_1024_bytes() -> None:
    sizes = {}
    for arch in ("sm_80", "sm_90"):
        info = inspect((DATA / f"ptxas12.9-{arch}.cubin").read_bytes())
        sizes[arch] = next(kernel.shared for kernel in info.kernels if kernel.symbol == "shared")
    assert sizes == {"sm_80": 400, "sm_90": 1424}


@pytest.mark.parametrize(
    ("name", "arch"),
    [
        ("ptxas12.9-sm_80.cubin", "sm_80"),
        ("ptxas12.9-sm_90.cubin", "sm_90"),
        ("ptxas12.9-sm_90a.cubin", "sm_90a"),
        ("ptxas12.9-sm_100a.cubin", "sm_100a"),
        ("ptxas12.9-sm_100f.cubin", "sm_100f"),
    ],
)
def test_ptxas_12_tells_its_architecture(name: str, arch: str) -> None:
    info = inspect((DATA / name).read_bytes())
    assert (info.arch, info.archs) == (arch, (arch,))


@pytest.mark.parametrize("name", CUBINS)
def test_nvcc_tells_the_architecture_exactly(corpus: Corpus, name: str) -> None:
    arch = CUBINS[name][0].removeprefix("-arch=")
    info = inspect(corpus.read(name))
    assert (info.kind, info.arch, info.archs) == ("cubin", arch, (arch,))
    assert info.producer.startswith("ptxas: Cuda compilation tools, release ")
    assert "-arch" in info.options


@pytest.mark.parametrize("name", CUBINS)
def test_parameters_are_as_many_bytes_as_the_ptx_declares(corpus: Corpus, name: str) -> None:
    # By C++ name: relocatable code gives names that are local to the file another symbol.
    declared = {kernel.name: kernel.params for kernel in inspect(corpus.read("sm_90a.ptx")).kernels}
    found = {kernel.name: kernel.params for kernel in inspect(corpus.read(name)).kernels}
    assert found == declared
    assert (found["large"], found["empty"], found["quiet(float*)"]) == (3612, 0, 8)


def test_a_relocatable_object_leaves_the_stack_open(corpus: Corpus) -> None:
    assert {kernel.local for kernel in inspect(corpus.read("relocatable")).kernels} == {None}


def test_stack_counts_the_functions_that_are_called(corpus: Corpus) -> None:
    stacks = {kernel.symbol: kernel.local for kernel in inspect(corpus.read("sm_90a")).kernels}
    assert stacks["own_array"] == 800
    called, both = stacks["called"], stacks["both"]
    assert called is not None
    assert both is not None
    assert both >= called + 80
    assert stacks["recursive"] == 0  # the least it needs


def test_a_stack_that_ptxas_cannot_tell_is_none_and_not_4_gib(corpus: Corpus, cuobjdump: str) -> None:
    kernels = inspect(corpus.read("debug")).kernels
    assert [kernel.symbol for kernel in kernels if kernel.local is None] == ["recursive"]
    assert "STACK" not in res_usage(corpus.path("debug"), cuobjdump)["recursive"]


def test_a_cubin_without_any_note_may_be_for_more_than_one_architecture() -> None:
    assert inspect(elf(flags=0x06005A04)).archs == ("sm_90", "sm_90a")
    assert inspect(elf(flags=0x06006402)).archs == ("sm_100", "sm_100a", "sm_100f")
    assert inspect(elf(flags=0x06006402)).arch is None
    assert inspect(elf(flags=0x06005004)).archs == ("sm_80",)


@pytest.mark.parametrize(
    ("pieces", "flags", "archs"),
    [
        ([Piece(".nv.compat", COMPAT_SPECIFIC)], 0x06006402, ("sm_100a",)),
        ([Piece(".nv.compat", COMPAT_PLAIN)], 0x06006402, ("sm_100", "sm_100f")),
        ([Piece(".nv.compat", COMPAT_PLAIN)], 0x06005A04, ("sm_90",)),
        ([Piece(".nv.compat", b"\x02\x02\x01\x00")], 0x06005A04, ("sm_90", "sm_90a")),
        ([], 0x0600640A, ("sm_100a",)),
        ([tool_note("-v -arch sm_100f -m 64")], 0x06006402, ("sm_100f",)),
        ([tool_note("--gpu-name=sm_100")], 0x06006402, ("sm_100",)),
        ([tool_note("-arch sm_103f", form=0x81)], 0x06006702, ("sm_103f",)),
        ([tool_note("-arch sm_103f", form=3)], 0x06006702, ("sm_103", "sm_103a", "sm_103f")),
        # ptxas cannot have been run for another chip: then the note is of something else.
        ([tool_note("-arch sm_90a"), Piece(".nv.compat", COMPAT_SPECIFIC)], 0x06006402, ("sm_100a",)),
        ([tool_note("-m 64 -arch")], 0x06005A04, ("sm_90", "sm_90a")),
    ],
)
def test_architecture_comes_from_whatever_tells_it(pieces: list[Piece], flags: int, archs: tuple[str, ...]) -> None:
    assert inspect(elf(pieces, flags=flags)).archs == archs


@pytest.mark.parametrize(("flags", "arch"), [(0x5A0D5A, "sm_90a"), (0x5A055A, "sm_90"), (0x500550, "sm_80")])
def test_old_abi_tells_the_variant_in_its_flags(flags: int, arch: str) -> None:
    info = inspect(elf(flags=flags, ident=b"\x7fELF\x02\x01\x01\x33\x07"))
    assert info.arch == arch


def test_local_memory_without_a_stack_is_counted() -> None:
    pieces = [Piece(".text.k", bytes(128)), Piece(".nv.local.k", type=8, size=48)]
    (kernel,) = inspect(elf(pieces, symbols=symbol(1), names=b"\0k\0")).kernels
    assert (kernel.local, kernel.shared, kernel.regs, kernel.const, kernel.params) == (48, 0, None, None, None)


def test_device_functions_and_undefined_symbols_are_no_kernels() -> None:
    rows = symbol(1) + symbol(1, other=0) + symbol(1, section=0) + symbol(1, info=0x11)
    assert [kernel.symbol for kernel in inspect(elf([Piece(".text.k")], symbols=rows, names=b"\0k\0")).kernels] == ["k"]


def test_a_stripped_cubin_has_no_kernels() -> None:
    data = elf([Piece(".text.k", bytes(8))])
    assert inspect(data).kernels == ()


def test_a_cubin_without_sections_is_refused() -> None:
    with pytest.raises(ObjectError, match="no section table"):
        inspect(elf(header={"shoff": 0}))


@pytest.mark.parametrize(
    ("body", "finding"),
    [
        (b"\x04\x2f\xff\xff", "runs out of its section"),
        (b"\x04\x2f", "cut short"),
        (b"\x07\x2f\x00\x00", "unknown shape 7"),
    ],
)
def test_attribute_records_must_fit_their_section(body: bytes, finding: str) -> None:
    with pytest.raises(ObjectError, match=finding):
        inspect(elf([Piece(".nv.info", body)]))


def test_a_note_must_fit_its_section() -> None:
    with pytest.raises(ObjectError, match="a note runs out of its section"):
        inspect(elf([Piece(".note.nv.tkinfo", b"\x0c\0\0\0\xff\xff\xff\xff\xd0\x07\0\0NVIDIA Corp\0")]))


def test_attributes_of_symbols_that_do_not_exist_are_left_out() -> None:
    info = Piece(".nv.info", b"\x04\x2f\x08\x00" + (77).to_bytes(4, "little") + (9).to_bytes(4, "little"))
    assert inspect(elf([info], symbols=symbol(1), names=b"\0k\0")).kernels[0].regs is None


def test_a_large_cubin_takes_milliseconds(corpus: Corpus) -> None:
    data = corpus.read("debug")
    inspect(data)
    best = 1.0
    for _ in range(5):
        start = time.perf_counter()
        inspect(data)
        best = min(best, time.perf_counter() - start)
    assert best < 0.05  # ten times what an idle machine takes


def test_sniffing_reads_content_and_not_names(corpus: Corpus) -> None:
    assert sniff(corpus.read("sm_90a")) == "cubin"
    assert Path(corpus.path("sm_90a")).suffix == ".cubin"
