"""The Ascend reader on every object of two public wheels, against the vendor's own description of each."""

from __future__ import annotations

import contextlib
import hashlib
import struct
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cubinet.errors import ObjectError
from cubinet.objects import check, inspect
from cubinet.objects.ascend import MAGIC, read
from cubinet.objects.ascend_soc import arch_number, arch_of, socs_of

from .wheels import Sample, samples, smallest

MAGICS = {
    "RT_DEV_BINARY_MAGIC_ELF": 0x43554245,
    "RT_DEV_BINARY_MAGIC_ELF_AIVEC": 0x41415246,
    "RT_DEV_BINARY_MAGIC_ELF_AICUBE": 0x41494343,
}
SOCS = {"ascend310p": "dav-2002", "ascend910b": "dav-2201", "ascend910_93": "dav-2201", "ascend950": "dav-3510"}
many = settings(max_examples=3 * settings().max_examples)


@pytest.fixture(scope="module")
def everything() -> tuple[Sample, ...]:
    return samples()


def test_all_objects_are_there_and_are_what_their_vendor_made(everything: tuple[Sample, ...]) -> None:
    assert len(everything) == 379
    assert {s.soc for s in everything} == set(SOCS)
    for sample in everything:
        assert hashlib.sha256(sample.data).hexdigest() == sample.sidecar["sha256"].rjust(64, "0"), sample


def test_kernels_of_every_object_are_those_its_vendor_lists(everything: tuple[Sample, ...]) -> None:
    for sample in everything:
        wanted = sorted(kernel["kernelName"] for kernel in sample.sidecar["kernelList"])
        assert sorted(k.symbol for k in read(sample.data).kernels) == wanted, sample
        assert sorted(k.symbol for k in inspect(sample.data).kernels) == wanted, sample


def test_magic_of_every_object_is_the_one_its_vendor_gives(everything: tuple[Sample, ...]) -> None:
    for sample in everything:
        assert read(sample.data).magic == MAGICS[sample.sidecar["magic"]], sample
    assert set(MAGIC.values()) == set(MAGICS.values())


def test_architecture_of_every_object_is_that_of_its_folder(everything: tuple[Sample, ...]) -> None:
    for sample in everything:
        assert read(sample.data).arch == SOCS[sample.soc] == arch_of(sample.soc.replace("ascend", "Ascend")), sample


def test_mix_kernels_are_those_whose_cores_wait_for_each_other(everything: tuple[Sample, ...]) -> None:
    for sample in everything:
        for kernel in read(sample.data).kernels:
            assert kernel.mix == (sample.sidecar["coreType"] == "MIX") == bool(sample.sidecar.get("intercoreSync"))
            assert kernel.hidden == (8 if kernel.mix and sample.soc in ("ascend910b", "ascend910_93") else 0)


def test_argument_bytes_of_every_kernel_are_those_of_its_declared_tensors(everything: tuple[Sample, ...]) -> None:
    # The vendor's calling convention: one pointer a tensor, one to the workspace, one to the tiling data.
    known = 0
    for sample in everything:
        declared = 8 * (sample.tensors + 2)
        for kernel in read(sample.data).kernels:
            if sample.soc == "ascend310p":
                assert kernel.arguments is None, sample
            else:
                assert kernel.arguments == declared + kernel.hidden, sample
                known += 1
    assert known == 630


def test_every_object_is_linked_and_names_its_compiler(everything: tuple[Sample, ...]) -> None:
    for sample in everything:
        found = read(sample.data)
        assert found.linked
        assert "clang version 15.0.5" in found.banner
        assert found.banner.startswith("20"), sample  # the time it was built, the one part that differs by release
        assert found.linker == "Linker: LLD 15.0.5"
        assert inspect(sample.data).producer == found.banner


def test_hints_agree_with_the_vendor_where_there_are_any(everything: tuple[Sample, ...]) -> None:
    kinds = {"MIX": "mix_aic_main", "VectorCore": "aiv"}
    seen = 0
    for sample in everything:
        for kernel in read(sample.data).kernels:
            if kernel.hints.kind is not None:
                assert kernel.hints.kind == kinds[sample.sidecar["coreType"]], sample
                seen += 1
            if kernel.hints.ratio is not None:
                assert kernel.mix
                assert kernel.hints.ratio == (1, 2)
                assert sample.sidecar["taskRation"] in ("1:2", "tilingKey")
    assert seen > 100


def test_every_object_passes_the_check_of_a_compile_for_it_alone(everything: tuple[Sample, ...]) -> None:
    for sample in everything:
        name = sample.sidecar["kernelList"][0]["kernelName"]
        assert check(sample.data, kind="ascend", arch=SOCS[sample.soc], entries=[name])
        with pytest.raises(ObjectError):
            check(sample.data, kind="ascend", arch="dav-1001", entries=[name])


@pytest.mark.parametrize(
    ("soc", "arch"),
    [
        ("Ascend910B1", "dav-2201"),
        ("Ascend910B4-1", "dav-2201"),
        ("Ascend910_9392", "dav-2201"),
        ("Ascend910_9589", "dav-3510"),
        ("Ascend950PR_9599", "dav-3510"),
        ("Ascend310P3", "dav-2002"),
        ("Ascend310B1", "dav-3002"),
        ("Ascend910A", "dav-1001"),
        ("Ascend910", "dav-1001"),
        ("Ascend910C", None),
        ("Ascend1000", None),
        ("", None),
    ],
)
def test_a_device_name_gives_its_architecture_or_nothing(soc: str, arch: str | None) -> None:
    assert arch_of(soc) == arch


def test_numbers_and_names_of_architectures_go_together() -> None:
    assert arch_number(2201) == "dav-2201"
    assert arch_number(0) is None
    assert "Ascend910B*" in socs_of("dav-2201")
    assert socs_of("dav-9999") == ()


def test_an_object_that_was_not_linked_says_so() -> None:
    data = bytearray(smallest("ascend910b", magic="_AIVEC").data)
    struct.pack_into("<H", data, 16, 1)
    assert not read(bytes(data)).linked


def hostile(data: bytes) -> None:
    for reader in (read, inspect):
        try:
            reader(data)
        except ObjectError as exc:
            str(exc).encode()


@many
@given(st.data())
def test_a_damaged_object_is_read_or_refused(data: st.DataObject) -> None:
    sample = data.draw(st.sampled_from([smallest(soc) for soc in ("ascend310p", "ascend910b", "ascend950")]))
    changed = bytearray(sample.data)
    sections = struct.unpack_from("<Q", changed, 40)[0]
    for _ in range(data.draw(st.integers(1, 6))):
        at = data.draw(st.one_of(st.integers(0, 63), st.integers(sections, len(changed) - 1)))
        size = data.draw(st.sampled_from([1, 2, 4, 8]))
        value = data.draw(st.one_of(st.sampled_from([0, 1, 2**15, 2**31, 2**32 - 1, 2**63, 2**64 - 1]), st.integers(0)))
        piece = (value % 2 ** (8 * size)).to_bytes(size, "little")
        changed[at : at + size] = piece[: len(changed) - at]
    hostile(bytes(changed[: data.draw(st.sampled_from([len(changed), len(changed) // 2, sections + 70]))]))


@pytest.mark.parametrize("value", [0, 1, 0x7F, 0x80, 0xFF])
def test_each_byte_of_the_header_and_the_tables_can_take_any_value(value: int) -> None:
    data = bytearray(smallest("ascend950", magic="_AIVEC").data)
    sections, count = struct.unpack_from("<Q", data, 40)[0], struct.unpack_from("<H", data, 60)[0]
    for at in (*range(64), *range(sections, sections + 64 * count)):
        before, data[at] = data[at], value
        with contextlib.suppress(ObjectError):
            read(bytes(data))
        data[at] = before


def test_sizes_that_lie_take_no_memory() -> None:
    data = bytearray(smallest("ascend950", magic="_AIVEC").data)
    sections, count = struct.unpack_from("<Q", data, 40)[0], struct.unpack_from("<H", data, 60)[0]
    tracemalloc.start()
    try:
        for row in range(sections, sections + 64 * count, 64):
            for field in (24, 32, 56):  # offset, size, entry size
                before = data[row + field : row + field + 8]
                for value in (2**31, 2**40, 2**63, 2**64 - 1):
                    data[row + field : row + field + 8] = value.to_bytes(8, "little")
                    with contextlib.suppress(ObjectError):
                        read(bytes(data))
                data[row + field : row + field + 8] = before
        assert tracemalloc.get_traced_memory()[1] < 200 * len(data)
    finally:
        tracemalloc.stop()


def test_every_cut_of_an_object_is_refused(everything: tuple[Sample, ...]) -> None:
    data = smallest("ascend910b").data
    for end in range(0, len(data), 97):
        with pytest.raises(ObjectError):
            check(data[:end], kind="ascend", arch="dav-2201", entries=[])
