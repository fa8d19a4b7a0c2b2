"""Packing: every kind of argument, into bytes that are checked one by one; and what is refused, by name."""

from __future__ import annotations

import ctypes
import math
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cubinet.errors import LoadError, ObjectError
from cubinet.loaders._arguments import Packer
from cubinet.loaders._arrays import pointer_reader
from cubinet.loaders._parameters import Parameter, laid_out, parameters_of, typed
from cubinet.model import Artifact

from .cuda_kit import compiled


def packer(*sizes: int, types: str = "") -> Packer:
    at, made = 0, []
    for index, size in enumerate(sizes):
        step = min(size, 8) if size in (1, 2, 4, 8) else 4
        at = -(-at // step) * step
        made.append(Parameter(index, at, size))
        at += size
    return Packer("kernel", typed(made, f"kernel({types})") if types else made)


def packed(packs: Packer, *args: Any) -> bytes:
    """As a launch packs."""
    plan = packs.plan(args)
    pack, _, memory = slot = packs.slot(plan)
    values = list(args)
    try:
        for place, convert in plan[1]:
            values[place] = convert(values[place])
        pack(*values)
    except (struct.error, TypeError, ValueError, OverflowError, AttributeError):
        packs.pack(slot, args)
    return bytes(memory[: packs.size])


# --- numbers


@given(st.sampled_from([1, 2, 4, 8]), st.data())
def test_every_whole_number_that_fits_arrives_and_no_other(size: int, data: st.DataObject) -> None:
    value = data.draw(st.integers(-(2 ** (8 * size + 1)), 2 ** (8 * size + 1)))
    packs = packer(size)
    if -(2 ** (8 * size - 1)) <= value < 2 ** (8 * size):
        assert packed(packs, value) == (value % 2 ** (8 * size)).to_bytes(size, "little")
    else:
        with pytest.raises(LoadError, match=r"parameter 1 .* does not fit"):
            packed(packs, value)


@given(st.floats(width=32), st.floats())
def test_every_float_arrives(single: float, double: float) -> None:
    got = struct.unpack("<f4xd", packed(packer(4, 8), single, double))
    for have, want in zip(got, (single, double), strict=True):
        assert have == want or (math.isnan(have) and math.isnan(want))


def test_a_float_too_large_for_its_parameter_is_refused() -> None:
    with pytest.raises(LoadError, match="parameter 1"):
        packed(packer(4), 1e300)


def test_a_bool_and_none_are_numbers_too() -> None:
    assert packed(packer(1, 8), True, None) == struct.pack("<?7xQ", True, 0)
    with pytest.raises(LoadError, match=r"parameter 1 .* got None"):
        packed(packer(4), None)


def test_types_in_the_name_decide_what_a_number_becomes() -> None:
    packs = packer(4, 8, 4, 8, 2, types="float, double, int, float const*, __half")
    assert [p.kind for p in packs.parameters] == ["float", "float", "integer", "pointer", "float"]
    assert packed(packs, 2, 3, 4, 5, 1.5) == struct.pack("<f4xdi4xQe", 2.0, 3.0, 4, 5, 1.5)
    for wrong in ((1.0, 1.0, 1.5, 5, 1.0), (1.0, 1.0, 1, 5.0, 1.0), (1.0, 1.0, 1, 5, 1)):
        with pytest.raises(LoadError, match="parameter"):
            packed(packs, *wrong)


def test_a_float_of_two_bytes_is_not_guessed() -> None:
    with pytest.raises(LoadError, match="numpy scalar of its type"):
        packed(packer(2), 1.5)
    with pytest.raises(LoadError, match="numpy scalar of its type"):
        packed(packer(2, types="__nv_bfloat16"), 1.5)


# --- what has bytes


class Mixed(ctypes.Structure):
    _fields_ = (("first", ctypes.c_int), ("second", ctypes.c_double))


def test_ctypes_scalars_and_structs_by_value() -> None:
    packs = packer(4, 8, 16, 8)
    args = ctypes.c_uint(2**32 - 1), ctypes.c_double(0.5), Mixed(7, 0.25), ctypes.c_void_p(0x1000)
    assert packed(packs, *args) == struct.pack("<I4xdi4xdQ", 2**32 - 1, 0.5, 7, 0.25, 0x1000)
    assert packed(packs, *args[:3], ctypes.c_void_p(None)).endswith(bytes(8))
    assert packed(packer(12), (ctypes.c_float * 3)(1, 2, 3)) == struct.pack("<3f", 1, 2, 3)


def test_ctypes_numbers_that_hold_their_bytes_otherwise() -> None:
    packs = packer(4, 1, 8, 2)
    args = ctypes.c_int.__ctype_be__(1), ctypes.c_bool(True), ctypes.c_long(-2), ctypes.c_char(b"x")
    with pytest.raises(LoadError, match="parameter 4"):
        packed(packs, *args)
    assert packed(packs, *args[:3], ctypes.c_ushort(65535)) == bytes([0, 0, 0, 1]) + struct.pack(
        "<?3xqH", True, -2, 65535
    )


def test_the_same_slot_takes_one_launch_after_the_other() -> None:
    packs = packer(8, 4)
    plan = packs.plan((1, 2))
    slot = packs.slot(plan)
    table = ctypes.cast(slot[1], ctypes.POINTER(ctypes.c_uint64))
    for values in ((1, 2), (2**40, -1)):
        slot[0](*values)
        assert ctypes.c_int64.from_address(table[0]).value == values[0]
        assert ctypes.c_int32.from_address(table[1]).value == values[1]
    assert packs.plan((3, 4)) is plan is packs.whole


def test_a_type_that_comes_again_has_its_plan_again() -> None:
    packs = packer(8, 4)
    first = packs.plan((1, ctypes.c_int(2)))
    other = packs.plan((ctypes.c_void_p(1), 2))
    assert packs.last == ([ctypes.c_void_p, int], other)
    assert packs.plan((5, ctypes.c_int(6))) is first
    assert packs.last == ([int, ctypes.c_int], first)


def test_numpy_scalars_and_records() -> None:
    np = pytest.importorskip("numpy")
    record = np.zeros(1, np.dtype([("a", "i4"), ("b", "f8")], align=True))[0]
    record["a"], record["b"] = 7, 0.25
    args = np.int32(-1), np.float64(0.5), record, np.float16(1.5), np.bool_(True)
    got = packed(packer(4, 8, 16, 2, 1), *args)
    assert got == struct.pack("<i4xdi4xde?", -1, 0.5, 7, 0.25, 1.5, True)
    assert packed(packer(16), record.tobytes()) == packed(packer(16), memoryview(record.tobytes()))


@pytest.mark.parametrize("value", [ctypes.c_longlong(1), ctypes.c_short(1), Mixed(), b"123", b"12345", bytearray(8)])
def test_another_size_is_refused_with_both_sizes(value: Any) -> None:
    size = len(bytes(value))
    with pytest.raises(LoadError) as caught:
        packed(packer(8, 4), 0, value)
    assert f"parameter 2 (4 bytes at byte 8) got {size} bytes" in str(caught.value)


def test_bytes_of_another_size_are_refused_though_the_first_were_right() -> None:
    packs = packer(4)
    assert packed(packs, b"1234") == b"1234"
    with pytest.raises(LoadError, match="got 5 bytes"):
        packed(packs, b"12345")
    assert packed(packs, b"4321") == b"4321"


def test_arguments_are_counted() -> None:
    with pytest.raises(LoadError, match=r"2 arguments for 3 parameters \(8 bytes, 4 bytes, 16 bytes\)"):
        packed(packer(8, 4, 16), 1, 2)
    assert packed(packer()) == b""


# --- device memory


class OnDevice:
    def __init__(self, pointer: int) -> None:
        self.__cuda_array_interface__ = {"data": (pointer, False), "shape": (4,), "typestr": "<f4", "version": 3}


class Speaks(OnDevice):
    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {"data": (self.pointer, False)}

    @__cuda_array_interface__.setter
    def __cuda_array_interface__(self, told: dict[str, Any]) -> None:
        self.pointer = told["data"][0]


def test_the_array_interface_gives_an_address() -> None:
    assert packed(packer(8, 8), OnDevice(2**47), Speaks(5)) == struct.pack("<QQ", 2**47, 5)
    assert packed(packer(8), OnDevice(2**63 + 1)) == struct.pack("<Q", 2**63 + 1)
    with pytest.raises(LoadError, match=r"parameter 1 .* got a OnDevice"):
        packed(packer(4), OnDevice(1))
    with pytest.raises(LoadError, match="give a number"):
        packed(packer(8, types="double"), OnDevice(1))


def test_dlpack_gives_an_address_with_its_offset_and_nothing_is_kept() -> None:
    np = pytest.importorskip("numpy")
    base = np.arange(10, dtype="float32")

    class Pretends:
        """DLPack of the host that says it is of a device: the address is what matters here."""

        def __dlpack__(self, stream: int | None = None) -> Any:
            assert stream == -1
            return base[3:].__dlpack__()

        def __dlpack_device__(self) -> tuple[int, int]:
            return 2, 0

    assert packed(packer(8), Pretends()) == struct.pack("<Q", base.ctypes.data + 12)

    class Versioned(Pretends):
        def __dlpack__(self, stream: int | None = None) -> Any:
            return base[5:].__dlpack__(max_version=(1, 0))

    assert packed(packer(8), Versioned()) == struct.pack("<Q", base.ctypes.data + 20)


def test_memory_of_the_host_is_refused() -> None:
    np = pytest.importorskip("numpy")

    class Host:
        def __dlpack__(self, stream: int | None = None) -> Any:
            return np.zeros(3).__dlpack__()

        def __dlpack_device__(self) -> tuple[int, int]:
            return 1, 0

    for array in (np.zeros(3), np.zeros(()), Host()):
        with pytest.raises(LoadError, match="host's memory; copy it to the device"):
            packed(packer(8), array)


def test_the_pointer_of_the_bindings_and_what_is_no_array() -> None:
    driver = pytest.importorskip("cuda.bindings.driver")
    assert packed(packer(8), driver.CUdeviceptr(77)) == struct.pack("<Q", 77)
    stream = pytest.importorskip("cuda.core").LEGACY_DEFAULT_STREAM  # has a handle, and is no memory
    for wrong in (object(), "text", [1], {}, 1j, stream):
        assert pointer_reader(wrong) is None
        with pytest.raises(LoadError, match=r"parameter 1 .* got a"):
            packed(packer(8), wrong)


# --- the table


@pytest.fixture(scope="module")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    return compiled(tmp_path_factory.mktemp("store"))


def test_the_table_of_a_real_cubin(kernels: Artifact) -> None:
    def table(symbol: str) -> list[tuple[int, int]] | None:
        found = parameters_of(kernels.data, symbol)
        return None if found is None else [(p.offset, p.size) for p in found]

    scale = next(kernel.symbol for kernel in kernels.kernels if "<float>" in kernel.name)
    assert table(scale) == [(0, 8), (8, 8), (16, 4), (20, 4)]
    assert table("sizes") == [(0, 1), (2, 2), (4, 4), (8, 8), (16, 4), (24, 8), (32, 24), (56, 8), (64, 8)]
    assert table("large") == [(0, 6000), (6000, 8)]
    assert table("nothing") == []
    assert table("another") is None


def test_types_of_a_real_name(kernels: Artifact) -> None:
    name = next(kernel.name for kernel in kernels.kernels if "<double>" in kernel.name)
    places = parameters_of(kernels.data, next(k.symbol for k in kernels.kernels if k.name == name))
    assert places is not None
    assert [p.type for p in typed(places, name)] == ["double*", "double const*", "double", "int"]
    assert [p.kind for p in typed(places, name)] == ["pointer", "pointer", "float", "integer"]


@pytest.mark.parametrize(
    ("name", "types"),
    [
        ("f(int, float)", ["int", "float"]),
        (
            "void f<a<b, c>, (d)1>(std::pair<int, char>, void (*)(int, int))",
            ["std::pair<int, char>", "void (*)(int, int)"],
        ),
        ("f(int)", ["", ""]),  # another number of parameters: not believed
        ("f", ["", ""]),
        ("f)", ["", ""]),
        ("f(unsigned long, T* const)", ["unsigned long", "T* const"]),
    ],
)
def test_types_are_taken_from_a_name_or_left(name: str, types: list[str]) -> None:
    assert [p.type for p in typed([Parameter(0, 0, 8), Parameter(1, 8, 8)], name)] == types


@given(st.binary(max_size=64), st.integers(0, 2**16))
def test_a_damaged_cubin_is_an_object_error_or_read(kernels: Artifact, noise: bytes, at: int) -> None:
    data = bytearray(kernels.data)
    at %= len(data)
    data[at : at + len(noise)] = noise
    try:
        found = parameters_of(bytes(data), "sizes")
    except ObjectError:
        return
    for before, after in zip(found or (), (found or ())[1:], strict=False):
        assert before.offset + before.size <= after.offset


@pytest.mark.parametrize(
    "places",
    [
        [Parameter(0, 0, 8), Parameter(1, 4, 8)],
        [Parameter(0, 0, 8), Parameter(2, 8, 8)],
        [Parameter(0, 0, 8), Parameter(0, 8, 8)],
        [Parameter(0, 0, 0)],
        [Parameter(0, 65535, 2)],
    ],
)
def test_a_table_that_contradicts_itself_is_refused(places: list[Parameter]) -> None:
    with pytest.raises(ObjectError, match="does not follow"):
        laid_out(places, "kernel")
