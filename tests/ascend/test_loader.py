"""The Ascend loader against a stub of the runtime, fed real objects. Nothing here ever ran on an NPU."""

from __future__ import annotations

import ctypes
import functools
import gc
import math
import os
import pickle
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cubinet.errors import (
    ConfigError,
    CubinetError,
    DriverError,
    LoadError,
    NoDeviceError,
    ObjectError,
    UnsupportedTargetError,
)
from cubinet.loaders import _acl
from cubinet.loaders._acl_arguments import declared, pack
from cubinet.loaders.ascend import AscendKernel, AscendLaunch, AscendLoader, AscendModule
from cubinet.model import Target
from cubinet.objects.ascend import MAGIC, read

from .conftest import Artifacts
from .stub import Stub, build, compiler
from .wheels import Sample, headers, samples, smallest

P = 0x1234_5678_9ABC


class Pair(ctypes.Structure):
    _fields_ = (("a", ctypes.c_int32), ("b", ctypes.c_double))


class Small(ctypes.Structure):
    _fields_ = (("a", ctypes.c_uint8), ("b", ctypes.c_uint16))


class Tensor:
    """What the loader looks at in a tensor of torch_npu."""

    def __init__(self, address: int, place: str = "npu:0") -> None:
        kind, _, index = place.partition(":")
        self.device = type("device", (), {"type": kind, "index": int(index) if index else None})()
        self.address = address

    def data_ptr(self) -> int:
        return self.address


@functools.cache
def vector(size: int, *, noted: bool = False) -> Sample:
    """A vector kernel of 910B that reads so many bytes of arguments; `noted` if its core kind is to be in it."""
    for sample in samples():
        if sample.soc == "ascend910b" and sample.sidecar["coreType"] == "VectorCore":
            kernels = read(sample.data).kernels
            if len(kernels) == 1 and kernels[0].arguments == size and (kernels[0].hints.kind or not noted):
                return sample
    raise LookupError(size)


@pytest.fixture
def loader(stub: Stub) -> AscendLoader:
    return AscendLoader(library=stub.path, environ={})


@pytest.fixture
def module(loader: AscendLoader, artifact: Artifacts) -> AscendModule:
    return loader.load(artifact(vector(32)))


@pytest.fixture
def kernel(module: AscendModule) -> AscendKernel:
    return module.kernel


# --- what is sent

SIGNATURES: dict[str, tuple[tuple[object, ...], tuple[Any, ...], bytes]] = {
    "four pointers": (("ptr",) * 4, (1, 2, 3, P), struct.pack("<4Q", 1, 2, 3, P)),
    "tensors": ((), (Tensor(P), Tensor(P + 8), Tensor(0), None), struct.pack("<4Q", P, P + 8, 0, 0)),
    "two pointers, four numbers": (
        ("ptr", "ptr", "i32", "u32", "f32", "i32"),
        (Tensor(P), 7, -1, 2**32 - 1, 1.5, 3),
        struct.pack("<QQiIfi", P, 7, -1, 2**32 - 1, 1.5, 3),
    ),
    "a number before a pointer is padded": (
        ("i32", "ptr", "i32", "i64"),
        (-5, P, 6, -7),
        struct.pack("<i4xQi4xq", -5, P, 6, -7),
    ),
    "small numbers take four bytes each": (
        ("i8", "u8", "i16", "u16", "bool", "ptr"),
        (-128, 255, -(2**15), 2**16 - 1, True, P),
        struct.pack("<b3xB3xh2xH2x?7xQ", -128, 255, -(2**15), 2**16 - 1, True, P),
    ),
    "doubles": (("f64", "f64", "f64", "f32"), (0.1, -0.0, 1e300, 2.5), struct.pack("<dddf4x", 0.1, -0.0, 1e300, 2.5)),
    "half precision": (
        ("f16", "bf16", "bf16", "ptr", "i64"),
        (1.5, 1.0, float("nan"), P, 2**63 - 1),
        struct.pack("<e2xH2xH6xQq", 1.5, 0x3F80, 0x7FC0, P, 2**63 - 1),
    ),
    "ctypes": (
        (),
        (ctypes.c_uint64(2**64 - 1), ctypes.c_int32(-2), ctypes.c_float(0.5), ctypes.c_void_p(P), ctypes.c_double(3)),
        struct.pack("<QifQd", 2**64 - 1, -2, 0.5, P, 3.0),
    ),
    "NumPy scalars": (
        (),
        (np.int64(-9), np.float32(2), np.uint8(8), np.float64(4), np.float16(1), np.bool_(True)),
        struct.pack("<qfB3xde2x?3x", -9, 2.0, 8, 4.0, 1.0, True),
    ),
    "a structure by value": ((), (Pair(1, 2.5), None, ctypes.c_int32(4)), struct.pack("<i4xdQi4x", 1, 2.5, 0, 4)),
    "a small structure by value": (
        (Small, "ptr", "i32", "i32", "i32"),
        (Small(1, 2), P, 3, 4, 5),
        struct.pack("<BxH4xQiii4x", 1, 2, P, 3, 4, 5),
    ),
    "a NumPy structure by value": (
        (),
        (np.array((1, 2.0), dtype=[("a", "<i4"), ("b", "<f4")])[()], Tensor(P), np.int32(3), np.uint64(4)),
        struct.pack("<ifQi4xQ", 1, 2.0, P, 3, 4),
    ),
    "declared by ctypes and NumPy types": (
        (ctypes.c_void_p, np.int32, ctypes.c_float, np.dtype("f8"), ctypes.c_uint8),
        (Tensor(P), 5, 0.25, 6, 7),
        struct.pack("<QifdB7x", P, 5, 0.25, 6.0, 7),
    ),
    "declared numbers given as scalars": (
        ("i64", "i32", "f32", "ptr", "u16"),
        (np.int8(-3), ctypes.c_int16(4), np.float64(0.5), ctypes.c_void_p(None), True),
        struct.pack("<qifQH6x", -3, 4, 0.5, 0, 1),
    ),
}


@pytest.mark.parametrize("name", SIGNATURES)
def test_the_runtime_gets_the_exact_bytes_of_each_signature(name: str, kernel: AscendKernel, stub: Stub) -> None:
    kinds, arguments, expected = SIGNATURES[name]
    typed = kernel.declare(*kinds) if kinds else kernel
    assert len(expected) == 32
    typed.launch(AscendLaunch(20, ub_size=1024, timeout=300), *arguments, stream=0x7F)
    (launch,) = stub.launches()
    assert launch == ("hostargs", kernel.symbol, 20, 0x7F, {2: 1024, 7: 300}, expected)


WIDE = (ctypes.c_int32, ctypes.c_uint32, ctypes.c_float, ctypes.c_int64, ctypes.c_uint64, ctypes.c_double, Pair)


@given(st.lists(st.sampled_from(WIDE), max_size=12))
def test_wide_arguments_lie_as_a_compiler_lays_out_a_structure(kinds: list[Any]) -> None:
    values = [kind(i + 1) for i, kind in enumerate(kinds)]
    fields = [(f"f{i}", kind) for i, kind in enumerate(kinds)]
    whole = type("Whole", (ctypes.Structure,), {"_fields_": fields})(*values)
    packed = pack(values, None, device=0, symbol="k")
    assert packed == bytes(whole) + bytes(-ctypes.sizeof(whole) % 8)
    simple = [value if isinstance(value, ctypes.Structure) else value.value for value in values]
    assert pack(simple, declared(kinds), device=0, symbol="k") == packed


@given(st.floats(width=32))
def test_a_bfloat16_is_the_nearest_one(number: float) -> None:
    (bits,) = struct.unpack("<H", pack([number], ("bf16",), device=0, symbol="k")[:2])
    (back,) = struct.unpack("<f", struct.pack("<I", bits << 16))
    if math.isnan(number):
        assert math.isnan(back)
    elif math.isinf(back):
        assert abs(number) >= 3.3961775e38  # half a step above the largest
    else:
        assert abs(back - number) <= abs(number) * 2**-8 or abs(back - number) <= 2.0**-134


def test_launches_arrive_in_order_with_their_streams(kernel: AscendKernel, stub: Stub) -> None:
    typed = kernel.declare("ptr", "ptr", "i64", "i64")
    for i in range(50):
        typed[i + 1](i, i, i, -i, stream=0x1000 + i)
    expected = [(i + 1, 0x1000 + i, struct.pack("<QQqq", i, i, i, -i)) for i in range(50)]
    assert [(x.blocks, x.stream, x.arguments) for x in stub.launches()] == expected


ATTRIBUTES = [
    ({}, {}),
    ({"timeout": 300}, {7: 300}),
    ({"timeout": 0}, {7: 0}),
    ({"timeout_us": 2**32 * 5 + 1}, {8: 2**32 * 5 + 1}),
    ({"ub_size": 8192, "timeout": 65535}, {2: 8192, 7: 65535}),
    ({"schedule": 1, "engine": 1}, {1: 1, 3: 1}),
    ({"block_offset": 2**32 - 1, "block_prefetch": 1, "data_dump": 1}, {4: 2**32 - 1, 5: 1, 6: 1}),
]


@pytest.mark.parametrize(("given", "sent"), ATTRIBUTES, ids=str)
def test_the_runtime_gets_each_attribute_and_no_other(
    *,
    given: dict[str, int],
    sent: dict[int, int],
    kernel: AscendKernel,
    stub: Stub,
    old_stub: Stub,
    artifact: Artifacts,
) -> None:
    kernel.launch(AscendLaunch(3, **given), None, None, None, None)
    assert [(x.how, x.blocks, x.attributes) for x in stub.launches()] == [("hostargs", 3, sent)]
    old = AscendLoader(library=old_stub.path, environ={}).load(artifact(vector(40, noted=True))).kernel
    old[AscendLaunch(3, **given)](*[None] * 5)
    assert [(x.how, x.blocks, x.attributes) for x in old_stub.launches()] == [("config", 3, sent)]


@pytest.mark.parametrize(
    "bad",
    [
        {"blocks": 0},
        {"blocks": -1},
        {"blocks": 2**32},
        {"blocks": 1.5},
        {"blocks": None},
        {"blocks": 1, "timeout": 65536},
        {"blocks": 1, "timeout": -1},
        {"blocks": 1, "timeout": 1, "timeout_us": 1},
        {"blocks": 1, "schedule": 2},
        {"blocks": 1, "ub_size": 2**32},
    ],
    ids=str,
)
def test_a_configuration_out_of_range_is_refused(bad: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="cannot launch with"):
        AscendLaunch(**bad)


def test_a_number_of_blocks_out_of_range_is_refused(kernel: AscendKernel, stub: Stub) -> None:
    with pytest.raises(ConfigError, match="blocks=0"):
        kernel.launch(0, None, None, None, None)
    with pytest.raises(LoadError, match="str is no launch configuration"):
        kernel.launch("4", None, None, None, None)  # type: ignore[arg-type]
    assert stub.launches() == []


# --- what is refused before it is sent


@pytest.mark.parametrize(
    ("kinds", "arguments", "message"),
    [
        ((), (1, 2, 3, 4), "argument 1: a Python int does not tell its size; give ctypes"),
        ((), (Tensor(P), 2.5), "argument 2: a Python float does not tell its size"),
        ((), (True,), "argument 1: a Python bool does not tell its size"),
        ((), (Tensor(P, "cpu"),), "argument 1: a tensor on .*, not on an Ascend device; tensor.to"),
        ((), (Tensor(P, "cuda:0"),), "not on an Ascend device"),
        ((), (Tensor(P, "npu:1"),), "a tensor on device 1, and the kernel is on 0"),
        ((), (np.zeros(4),), "ndarray has no memory on an Ascend device; copy it"),
        ((), (np.array([([],)], dtype=[("a", "O")])[0],), "a NumPy value of type .* has no meaning on a device"),
        ((), (np.str_("text"),), "a NumPy value of type <U4 has no meaning"),
        ((), (ctypes.c_char_p(b"x"),), "c_char_p points to the host's memory; copy it"),
        ((), (ctypes.py_object(1),), "py_object points to the host's memory"),
        ((), ("text",), "str has no memory on an Ascend device"),
        ((), (object(),), "object has no memory"),
        (("ptr", "i32"), (1,), "1 arguments, declared with 2"),
        (("u8",), (256,), "argument 1: 256 does not fit u8"),
        (("i32",), (2**31,), "does not fit i32"),
        (("f32",), (1e300,), "does not fit f32"),
        (("f16",), (1e6,), "does not fit f16"),
        (("bf16",), (1e300,), "does not fit bf16"),
        (("i32",), (1.5,), "1.5 is no whole number, declared as i32"),
        (("i32",), ("1",), "found str, declared as i32"),
        (("ptr",), (-1,), "-1 is no address"),
        (("ptr",), (2**64,), "is no address"),
        (("ptr",), (1.0,), "float has no memory"),
        ((Pair,), (Small(),), "found Small, declared as Pair"),
    ],
)
def test_an_argument_that_cannot_be_meant_is_refused(
    kinds: tuple[object, ...], arguments: tuple[Any, ...], message: str, kernel: AscendKernel, stub: Stub
) -> None:
    typed = kernel.declare(*kinds) if kinds else kernel
    with pytest.raises(LoadError, match=message):
        typed.launch(1, *arguments)
    assert stub.launches() == []


@pytest.mark.parametrize("kind", ["i7", int, float, None, object, ctypes.c_char_p, np.complex64, "U4", 5])
def test_a_type_of_no_known_size_cannot_be_declared(kind: object, kernel: AscendKernel) -> None:
    with pytest.raises(LoadError, match="no type of known size; one of bool, i8"):
        kernel.declare(kind)


@pytest.mark.parametrize("count", [0, 3, 5])
def test_the_wrong_number_of_argument_bytes_is_refused(count: int, kernel: AscendKernel, stub: Stub) -> None:
    with pytest.raises(LoadError, match=f"it reads 32 bytes of arguments, given {8 * count}"):
        kernel.launch(1, *[None] * count)
    with pytest.raises(LoadError, match="it reads 32 bytes"):
        kernel.launch_packed(1, bytes(31))
    assert stub.launches() == []


def test_packed_arguments_are_sent_as_they_are(kernel: AscendKernel, stub: Stub) -> None:
    payload = kernel.pack(Tensor(P), None, None, ctypes.c_int8(-1))
    kernel.launch_packed(AscendLaunch(2), payload, stream=5)
    assert stub.launches() == [("hostargs", kernel.symbol, 2, 5, {}, struct.pack("<QQQb7x", P, 0, 0, -1))]


def test_an_object_that_does_not_tell_its_argument_bytes_takes_any(
    loader: AscendLoader, stub: Stub, artifact: Artifacts
) -> None:
    stub.soc("Ascend310P3")
    module = loader.load(artifact(smallest("ascend310p"), "dav-2002"))
    kernel = module[module.kernels[0]]
    for arguments in ((), (None,), (None,) * 9):
        kernel.launch(1, *arguments)
    assert [launch.arguments for launch in stub.launches()] == [b"", bytes(8), bytes(72)]


def test_a_mix_kernel_that_needs_a_hidden_word_is_refused_on_910b(
    loader: AscendLoader, stub: Stub, artifact: Artifacts
) -> None:
    sample = next(s for s in samples() if s.soc == "ascend910b" and s.sidecar["coreType"] == "MIX")
    module = loader.load(artifact(sample))
    kernel = module[module.kernels[0]]
    assert kernel.handle
    for payload in (b"", bytes(48), bytes(read(sample.data).kernels[0].arguments or 0)):
        with pytest.raises(LoadError, match="an address ahead of its arguments, which is not supplied"):
            kernel.launch_packed(1, payload)
    assert stub.launches() == []


def test_a_mix_kernel_on_950_has_no_hidden_word_and_is_launched(
    loader: AscendLoader, stub: Stub, artifact: Artifacts
) -> None:
    stub.soc("Ascend950PR_9599")
    sample = next(s for s in samples() if s.soc == "ascend950" and s.sidecar["coreType"] == "MIX")
    module = loader.load(artifact(sample, "dav-3510"))
    size = read(sample.data).kernels[0].arguments or 0
    module[module.kernels[0]].launch(1, *[None] * (size // 8))
    assert [len(launch.arguments) for launch in stub.launches()] == [size]


@pytest.mark.parametrize(
    ("soc", "sample", "arch", "message"),
    [
        ("Ascend310P3", "ascend910b", "dav-2201", r"it is for dav-2201 .*Ascend910B\*.*device 0 is Ascend310P3"),
        ("Ascend910B1", "ascend950", "dav-3510", r"it is for dav-3510 .*device 0 is Ascend910B1 \(dav-2201\)"),
        ("Ascend950PR_9599", "ascend910_93", "dav-2201", "compile it for ascend:dav-3510"),
        ("Ascend910_9392", "ascend310p", "dav-2002", "compile it for ascend:dav-2201"),
    ],
)
def test_an_object_for_another_device_is_refused_though_the_runtime_would_take_it(
    *, soc: str, sample: str, arch: str, message: str, loader: AscendLoader, stub: Stub, artifact: Artifacts
) -> None:
    stub.soc(soc)
    with pytest.raises(UnsupportedTargetError, match=message) as caught:
        loader.load(artifact(smallest(sample), arch))
    assert caught.value.target == f"ascend:{arch}"
    assert soc in caught.value.device
    assert stub.loaded() == 0


def test_the_same_object_runs_on_910b_and_910_93(loader: AscendLoader, stub: Stub, artifact: Artifacts) -> None:
    for soc in ("Ascend910B4-1", "Ascend910_9362"):
        stub.soc(soc)
        assert loader.load(artifact(vector(32))).kernel.handle


def test_a_device_with_an_unknown_name_is_known_by_its_architecture(
    loader: AscendLoader, stub: Stub, artifact: Artifacts
) -> None:
    stub.soc("Ascend2000")
    assert loader.load(artifact(vector(32))).kernel.handle
    stub.library.stub_npu_arch(3510)
    with pytest.raises(UnsupportedTargetError, match=r"device 0 is Ascend2000 \(dav-3510\)"):
        loader.load(artifact(vector(40)))
    for name in ("Ascend2000", ""):
        stub.soc(name)
        stub.library.stub_npu_arch(0)
        with pytest.raises(UnsupportedTargetError, match="architecture unknown"):
            loader.load(artifact(vector(40)))


def test_an_object_with_unknown_flags_is_refused(loader: AscendLoader, artifact: Artifacts) -> None:
    data = bytearray(vector(32).data)
    struct.pack_into("<I", data, 48, 0x970000)
    with pytest.raises(UnsupportedTargetError, match="flags 0x970000, of no known architecture"):
        loader.load(artifact(bytes(data)))


def test_an_object_that_was_not_linked_is_refused(loader: AscendLoader, artifact: Artifacts) -> None:
    data = bytearray(vector(32).data)
    struct.pack_into("<H", data, 16, 1)
    with pytest.raises(LoadError, match=r"it was compiled and not linked; link it with ld.lld"):
        loader.load(artifact(bytes(data)))


def test_bytes_that_are_no_object_are_refused(loader: AscendLoader, stub: Stub, artifact: Artifacts) -> None:
    for data in (b"", b"junk", vector(32).data[:100]):
        with pytest.raises(LoadError, match="its bytes are no good") as caught:
            loader.load(artifact(data))
        assert isinstance(caught.value.__cause__, ObjectError)
        assert loader.damaged(caught.value)
    assert stub.loaded() == 0


def test_an_artifact_of_another_vendor_is_refused(loader: AscendLoader, stub: Stub) -> None:
    from cubinet.testing.samples import build as sample_build

    with pytest.raises(UnsupportedTargetError, match="it is for cuda:sm_90a; load it with that vendor's loader") as e:
        loader.load(sample_build().artifact())
    assert not loader.damaged(e.value)
    assert stub.lines() == []
    assert loader.supports(Target("ascend", "dav-2201"))
    assert not loader.supports(Target("cuda", "sm_90a"))


# --- loading


@pytest.mark.parametrize("soc", ["ascend310p", "ascend910b", "ascend910_93", "ascend950"])
def test_every_object_loads_with_the_magic_its_vendor_gives_and_has_its_kernels(
    soc: str, loader: AscendLoader, stub: Stub, artifact: Artifacts
) -> None:
    stub.soc(soc.replace("ascend", "Ascend"))
    magics = {"ELF": "aicore", "ELF_AIVEC": "vector", "ELF_AICUBE": "cube"}
    for sample in [s for s in samples() if s.soc == soc][::5]:
        module = loader.load(artifact(sample, read(sample.data).arch or ""))
        magic = MAGIC[magics[sample.sidecar["magic"].removeprefix("RT_DEV_BINARY_MAGIC_")]]
        line = next(line for line in reversed(stub.lines()) if line.startswith("load"))
        assert f"load data size={len(sample.data)} magic={magic:#x}" in line
        for kernel in sample.sidecar["kernelList"]:
            assert module[kernel["kernelName"]].handle
        module.close()
    gc.collect()
    assert stub.loaded() == 0


def test_the_same_bytes_are_loaded_once(loader: AscendLoader, stub: Stub, artifact: Artifacts) -> None:
    first, second = loader.load(artifact(vector(32))), loader.load(artifact(vector(32), name="again"))
    assert first.kernel.handle == second.kernel.handle
    other = loader.load(artifact(vector(40)))
    assert stub.loaded() == 2
    assert sum(line.startswith("load") for line in stub.lines()) == 2
    assert sum(line.startswith("function") for line in stub.lines()) == 1
    other.close()


def test_it_leaves_the_device_with_its_last_owner(loader: AscendLoader, stub: Stub, artifact: Artifacts) -> None:
    first, second = loader.load(artifact(vector(32))), loader.load(artifact(vector(32)))
    kernel = first.kernel
    first.close()
    second.close()
    gc.collect()
    kernel.launch(1, None, None, None, None)
    assert stub.loaded() == 1
    del kernel
    gc.collect()
    assert stub.loaded() == 0
    assert stub.lines()[-1] == "unload 1"
    with loader.load(artifact(vector(32))) as again:
        assert again.kernel.handle


def test_a_closed_module_says_so(module: AscendModule) -> None:
    module.close()
    module.close()
    for use in (lambda: module.kernel, lambda: module["x"], lambda: module.device):
        with pytest.raises(LoadError, match="it is closed; load it again"):
            use()
    assert "closed" in repr(module)


def test_each_device_has_its_own(loader: AscendLoader, stub: Stub, artifact: Artifacts) -> None:
    zero, one = loader.load(artifact(vector(32))), loader.load(artifact(vector(32)), device=1)
    assert (zero.device, one.device) == (0, 1)
    assert zero.kernel.handle != one.kernel.handle
    assert stub.loaded() == 2
    zero.kernel.launch(1, None, None, None, None)  # the thread's own device is as it was
    with pytest.raises(LoadError, match="it was loaded on device 1, and this thread uses another context"):
        one.kernel.launch(1, None, None, None, None)
    with pytest.raises(LoadError, match="a tensor on device 0, and the kernel is on 1"):
        one.kernel.pack(Tensor(P, "npu:0"))
    zero.close()
    one.close()
    gc.collect()
    assert stub.loaded() == 0  # each in its own context, or the stub would have refused


def test_another_context_of_the_same_device_has_its_own(loader: AscendLoader, stub: Stub, artifact: Artifacts) -> None:
    first = loader.load(artifact(vector(32)))
    stub.library.aclrtSetCurrentContext(ctypes.c_void_p(0xD0))
    second = loader.load(artifact(vector(32)))
    assert (first.device, second.device) == (0, 0)
    assert first.kernel.handle != second.kernel.handle
    second.kernel.launch(1, None, None, None, None)
    with pytest.raises(LoadError, match="this thread uses another context"):
        first.kernel.launch(1, None, None, None, None)


def test_a_new_thread_gets_the_context_of_the_kernel(kernel: AscendKernel, stub: Stub) -> None:
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda i: kernel.launch(i + 1, None, None, None, None), range(40)))
    assert sorted(launch.blocks for launch in stub.launches()) == list(range(1, 41))


def test_threads_that_load_at_once_share_one(loader: AscendLoader, stub: Stub, artifact: Artifacts) -> None:
    made, barrier, found = artifact(vector(32)), threading.Barrier(8), []

    def load() -> None:
        barrier.wait(30)
        found.append(loader.load(made).kernel)

    threads = [threading.Thread(target=load) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len({kernel.handle for kernel in found}) == 1
    assert sum(line.startswith("load") for line in stub.lines()) == 1


def test_threads_that_load_launch_and_let_go_do_not_trip_over_each_other(
    loader: AscendLoader, stub: Stub, artifact: Artifacts
) -> None:
    made = [artifact(vector(32)), artifact(vector(40))]

    def work(i: int) -> None:
        with loader.load(made[i % 2]) as module:
            module.kernel.launch(i + 1, *[None] * (4 + i % 2))

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(200)))
    gc.collect()
    assert sorted(launch.blocks for launch in stub.launches()) == list(range(1, 201))
    assert stub.loaded() == 0


def test_a_kernel_is_found_by_name_or_the_module_says_what_it_has(loader: AscendLoader, artifact: Artifacts) -> None:
    sample = smallest("ascend910b", magic="_AIVEC", kernels=2)
    module = loader.load(artifact(sample))
    assert set(module.kernels) == {kernel["kernelName"] for kernel in sample.sidecar["kernelList"]}
    assert module[module.kernels[1]].symbol == module[module.kernels[1]].name == module.kernels[1]
    assert module.kernels[0] in repr(module[module.kernels[0]])
    with pytest.raises(LoadError, match=f"find kernel 'nothing': sample has {module.kernels[0]}"):
        module["nothing"]
    with pytest.raises(LoadError, match="choose the only kernel of sample"):
        _ = module.kernel


# --- streams


@pytest.mark.parametrize("stream", [0, 0x55, ctypes.c_void_p(0x55), ctypes.c_void_p(None)], ids=str)
def test_a_given_stream_is_used_and_so_is_the_null_stream(stream: Any, kernel: AscendKernel, stub: Stub) -> None:
    kernel.launch(1, None, None, None, None, stream=stream)
    assert stub.launches()[0].stream == (getattr(stream, "value", stream) or 0)


@pytest.mark.parametrize("stream", [-1, 2**64, 1.5, "s", True, object()])
def test_what_is_no_stream_is_refused(stream: Any, kernel: AscendKernel, stub: Stub) -> None:
    with pytest.raises(LoadError, match="is no stream; give its number, or a stream of torch_npu"):
        kernel.launch(1, None, None, None, None, stream=stream)
    assert stub.launches() == []


TORCH_NPU = """
queue, current, asked = [], 0x700, []

class Stream:
    def __init__(self, number): self.number = number
    @property
    def npu_stream(self):
        queue.clear()  # asking for the handle sends off what is queued on the host
        return self.number

class npu:
    @staticmethod
    def current_stream(device): asked.append(device); return Stream(current)
    @staticmethod
    def current_device(): return 1
"""


@pytest.fixture
def torch_npu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A stand-in for torch_npu, which cannot be imported without CANN: the two calls the loader makes."""
    (tmp_path / "torch_npu.py").write_text(TORCH_NPU)
    monkeypatch.syspath_prepend(str(tmp_path))
    import torch_npu

    yield torch_npu
    del sys.modules["torch_npu"]


def test_the_current_stream_of_torch_npu_is_taken_at_each_launch(
    torch_npu: Any, loader: AscendLoader, stub: Stub, artifact: Artifacts
) -> None:
    module = loader.load(artifact(vector(32)))
    assert module.device == 1  # torch_npu's current device, in a thread that has none
    for torch_npu.current in (0x700, 0x800):
        torch_npu.queue.append("an operator")
        module.kernel.launch(1, None, None, None, None)
        assert torch_npu.queue == []
    module.kernel.launch(1, None, None, None, None, stream=0)
    module.kernel.launch(1, None, None, None, None, stream=torch_npu.Stream(0x900))
    assert [launch.stream for launch in stub.launches()] == [0x700, 0x800, 0, 0x900]
    assert torch_npu.asked == [1, 1]


@pytest.mark.parametrize(("value", "waits"), [("1", True), ("0", False), ("", False)])
def test_launch_blocking_waits_after_each_launch(value: str, waits: bool, stub: Stub, artifact: Artifacts) -> None:
    loader = AscendLoader(library=stub.path, environ={"ASCEND_LAUNCH_BLOCKING": value})
    loader.load(artifact(vector(32))).kernel.launch(1, None, None, None, None)
    assert ("synchronize" in stub.lines()) == waits


# --- a runtime that refuses, is old, or is not there

FAILURES = [
    ("aclInit", 100039, NoDeviceError, "COMPILING_STUB_MODE.*a stub library for linking lies on the load path"),
    ("aclInit", 507033, NoDeviceError, "aclInit returned 507033 .DEV_SETUP_ERROR.: EZ9999: told to fail by the test"),
    ("aclrtGetDeviceCount", 107002, DriverError, "cannot count Ascend devices: .*CONTEXT_NULL"),
    ("aclrtSetDevice", 507033, DriverError, "cannot use Ascend device 0: aclrtSetDevice returned 507033"),
    ("aclrtBinaryLoadFromData", 207018, DriverError, "cannot load sample: .*returned 207018 .DEVICE_OOM."),
    ("aclrtBinaryGetFunction", 507027, DriverError, "cannot find kernel .*KERNEL_LOOKUP"),
    ("aclrtLaunchKernelWithHostArgs", 107027, DriverError, "cannot launch .*STREAM_CAPTURED"),
    ("aclrtLaunchKernelWithHostArgs", 999999, DriverError, "returned 999999: EZ9999"),
    ("aclrtSynchronizeDevice", 507015, DriverError, "cannot wait for .*AICORE_EXCEPTION"),
]


@pytest.mark.parametrize(("call", "code", "kind", "message"), FAILURES, ids=str)
def test_what_the_runtime_refuses_is_an_error_with_its_code_and_words(
    *, call: str, code: int, kind: type[CubinetError], message: str, stub: Stub, artifact: Artifacts
) -> None:
    loader = AscendLoader(library=stub.path, environ={"ASCEND_LAUNCH_BLOCKING": "1"})
    stub.fail(call, code)
    with pytest.raises(kind, match=message) as caught:
        loader.load(artifact(vector(32))).kernel.launch(1, None, None, None, None)
    if isinstance(caught.value, DriverError):
        assert caught.value.code == code
    again = pickle.loads(pickle.dumps(caught.value))
    assert str(again) == str(caught.value)
    loader.load(artifact(vector(32))).kernel.launch(1, None, None, None, None)  # nothing stuck


def test_an_object_that_the_runtime_calls_invalid_is_worth_compiling_again(
    stub: Stub, loader: AscendLoader, artifact: Artifacts
) -> None:
    for call, code, damaged in (
        ("aclrtBinaryLoadFromData", 107000, True),
        ("aclrtBinaryLoadFromData", 207018, False),
        ("aclrtBinaryGetFunction", 107000, False),
    ):
        stub.fail(call, code)
        with pytest.raises(DriverError) as caught:
            _ = loader.load(artifact(vector(32))).kernel
        assert loader.damaged(caught.value) is damaged


def test_a_runtime_that_was_initialised_already_is_used(stub: Stub, loader: AscendLoader, artifact: Artifacts) -> None:
    assert stub.library.aclInit(None) == 0
    assert loader.load(artifact(vector(32))).kernel.handle
    assert stub.lines()[:2] == ["init NULL", "init NULL"]


def test_no_device_and_the_wrong_device_are_told_apart(stub: Stub, loader: AscendLoader, artifact: Artifacts) -> None:
    for device in (2, -1):
        with pytest.raises(NoDeviceError, match=f"Ascend device {device}: there are 2"):
            loader.load(artifact(vector(32)), device=device)
    stub.library.stub_devices(0)
    with pytest.raises(NoDeviceError, match="the runtime sees none; check ASCEND_RT_VISIBLE_DEVICES"):
        loader.load(artifact(vector(32)))


def test_a_device_may_be_named_as_torch_names_it(loader: AscendLoader, artifact: Artifacts) -> None:
    made = artifact(vector(32))
    assert loader.load(made, device=Tensor(P, "npu:1").device).device == 1
    assert loader.load(made, device=Tensor(P, "npu").device).device == 1
    for wrong in (Tensor(P, "cpu").device, Tensor(P, "cuda:0").device, "npu:0", 1.0, True):
        with pytest.raises(NoDeviceError, match="it is no Ascend device; give its number"):
            loader.load(made, device=wrong)


def test_a_machine_without_the_runtime_has_no_device(tmp_path: Path, artifact: Artifacts) -> None:
    with pytest.raises(NoDeviceError, match=r"install CANN and source its set_env.sh"):
        AscendLoader(library="libascendcl-is-not-here.so").load(artifact(vector(32)))
    (tmp_path / "junk.so").write_bytes(b"junk")
    with pytest.raises(NoDeviceError, match="use an Ascend device"):
        AscendLoader(library=str(tmp_path / "junk.so")).load(artifact(vector(32)))


def test_a_library_that_is_another_one_lacks_the_calls(artifact: Artifacts) -> None:
    with pytest.raises(NoDeviceError, match=r"libc.so.6 is no Ascend runtime: it has no aclInit"):
        AscendLoader(library="libc.so.6").load(artifact(vector(32)))


def test_an_old_runtime_loads_from_a_file_without_a_sidecar(
    old_stub: Stub, artifact: Artifacts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    module = AscendLoader(library=old_stub.path, environ={}).load(artifact(vector(40, noted=True)))
    module.kernel.declare("i32", "ptr", "i32", "i64", "i64").launch(7, 1, P, 2, 3, 4, stream=9)
    assert f"load file size={len(vector(40, noted=True).data)} magic=0" in old_stub.lines()[2]
    expected: tuple[object, ...] = ("config", module.kernel.symbol, 7, 9, {}, struct.pack("<i4xQi4xqq", 1, P, 2, 3, 4))
    assert old_stub.launches() == [expected]
    assert list(tmp_path.iterdir()) == []


def test_a_runtime_without_a_way_to_launch_says_so(artifact: Artifacts, tmp_path: Path) -> None:
    bare = Stub(build(tmp_path, "-DWITHOUT_DATA", "-DWITHOUT_ARGUMENTS"))
    bare.reset()
    kernel = AscendLoader(library=bare.path, environ={}).load(artifact(vector(40, noted=True))).kernel
    with pytest.raises(DriverError, match="has no aclrtKernelArgsInit; install CANN 8"):
        kernel.launch(1, *[None] * 5)


def test_an_object_is_never_taken_for_another_with_the_same_record(
    loader: AscendLoader, stub: Stub, artifact: Artifacts
) -> None:
    first = artifact(vector(32))
    other = replace(first, data=vector(40).data)
    assert loader.load(first).kernel.symbol == read(vector(32).data).kernels[0].symbol
    kept = loader.load(first)
    assert loader.load(other).kernel.symbol == read(vector(40).data).kernels[0].symbol
    assert kept.device == 0


def test_an_old_runtime_is_not_left_to_guess_the_core_kind(old_stub: Stub, artifact: Artifacts) -> None:
    found = (s for s in samples() if s.soc == "ascend910b" and s.sidecar["coreType"] == "VectorCore")
    silent = next(s for s in found if not any(k.hints.kind for k in read(s.data).kernels))
    with pytest.raises(LoadError, match=r"has no aclrtBinaryLoadFromData.*does not tell its core kind .vector."):
        AscendLoader(library=old_stub.path, environ={}).load(artifact(silent))
    assert old_stub.loaded() == 0


@pytest.mark.parametrize(
    "call", ["aclrtBinaryLoadFromFile", "aclrtKernelArgsInit", "aclrtKernelArgsAppend", "aclrtKernelArgsFinalize"]
)
def test_each_call_of_an_old_runtime_may_fail(call: str, old_stub: Stub, artifact: Artifacts) -> None:
    loader = AscendLoader(library=old_stub.path, environ={})
    old_stub.fail(call, 207001)
    with pytest.raises(DriverError, match=f"{call} returned 207001 .MEMORY_ALLOCATION."):
        loader.load(artifact(vector(40, noted=True))).kernel.launch(1, *[None] * 5)


def test_a_forked_child_is_refused_and_leaves_the_parents_objects_alone(
    stub: Stub, loader: AscendLoader, artifact: Artifacts
) -> None:
    module = loader.load(artifact(vector(32)))
    kernel = module.kernel
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        said = []
        for use in (lambda: loader.load(artifact(vector(32))), lambda: kernel.launch(1, None, None, None, None)):
            try:
                use()
            except NoDeviceError as exc:
                said.append(str(exc))
        del module, kernel
        gc.collect()
        os.write(writer, f"{len(said)} {stub.loaded()} {said[0]}".encode())
        os._exit(0)
    os.close(writer)
    os.waitpid(child, 0)
    text = os.read(reader, 1000).decode()
    os.close(reader)
    assert text.startswith("2 1 cannot use an Ascend device: this process was forked")
    assert stub.loaded() == 1
    kernel.launch(1, None, None, None, None)


def test_importing_it_opens_nothing() -> None:
    code = "import sys, cubinet.loaders.ascend; assert 'numpy' not in sys.modules and 'msgspec' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, env={"LD_LIBRARY_PATH": "/nowhere", "PATH": ""})


# --- the definitions

LAYOUTS = """
#include <stdio.h>
#include "acl/acl_rt.h"
#define NUMBER(name) printf("%s %llu\\n", #name, (unsigned long long)(name))
int main(void) {
    NUMBER(sizeof(aclrtBinaryLoadOption)); NUMBER(offsetof(aclrtBinaryLoadOption, value));
    NUMBER(sizeof(aclrtBinaryLoadOptions)); NUMBER(offsetof(aclrtBinaryLoadOptions, numOpt));
    NUMBER(sizeof(aclrtLaunchKernelAttr)); NUMBER(offsetof(aclrtLaunchKernelAttr, value));
    NUMBER(sizeof(aclrtLaunchKernelCfg)); NUMBER(offsetof(aclrtLaunchKernelCfg, numAttrs));
    NUMBER(ACL_RT_BINARY_LOAD_OPT_MAGIC); NUMBER(ACL_DEV_ATTR_NPU_ARCH);
    NUMBER(ACL_RT_BINARY_MAGIC_ELF_AICORE); NUMBER(ACL_RT_BINARY_MAGIC_ELF_VECTOR_CORE);
    NUMBER(ACL_RT_BINARY_MAGIC_ELF_CUBE_CORE);
    NUMBER(ACL_RT_LAUNCH_KERNEL_ATTR_SCHEM_MODE); NUMBER(ACL_RT_LAUNCH_KERNEL_ATTR_DYN_UBUF_SIZE);
    NUMBER(ACL_RT_LAUNCH_KERNEL_ATTR_ENGINE_TYPE); NUMBER(ACL_RT_LAUNCH_KERNEL_ATTR_BLOCKDIM_OFFSET);
    NUMBER(ACL_RT_LAUNCH_KERNEL_ATTR_BLOCK_TASK_PREFETCH); NUMBER(ACL_RT_LAUNCH_KERNEL_ATTR_DATA_DUMP);
    NUMBER(ACL_RT_LAUNCH_KERNEL_ATTR_TIMEOUT); NUMBER(ACL_RT_LAUNCH_KERNEL_ATTR_TIMEOUT_US);
    NUMBER(ACL_RT_ENGINE_TYPE_AIC); NUMBER(ACL_RT_ENGINE_TYPE_AIV);
// codes
}
"""


def test_structures_numbers_and_codes_are_those_of_the_header(tmp_path: Path) -> None:
    include = headers(tmp_path)
    known = {
        "sizeof(aclrtBinaryLoadOption)": ctypes.sizeof(_acl.BinaryOption),
        "offsetof(aclrtBinaryLoadOption, value)": _acl.BinaryOption.value.offset,
        "sizeof(aclrtBinaryLoadOptions)": ctypes.sizeof(_acl.BinaryOptions),
        "offsetof(aclrtBinaryLoadOptions, numOpt)": _acl.BinaryOptions.count.offset,
        "sizeof(aclrtLaunchKernelAttr)": ctypes.sizeof(_acl.LaunchAttribute),
        "offsetof(aclrtLaunchKernelAttr, value)": _acl.LaunchAttribute.value.offset,
        "sizeof(aclrtLaunchKernelCfg)": ctypes.sizeof(_acl.LaunchConfig),
        "offsetof(aclrtLaunchKernelCfg, numAttrs)": _acl.LaunchConfig.count.offset,
        "ACL_RT_BINARY_LOAD_OPT_MAGIC": _acl.OPTION_MAGIC,
        "ACL_DEV_ATTR_NPU_ARCH": _acl.NPU_ARCH,
        "ACL_RT_BINARY_MAGIC_ELF_AICORE": MAGIC["aicore"],
        "ACL_RT_BINARY_MAGIC_ELF_VECTOR_CORE": MAGIC["vector"],
        "ACL_RT_BINARY_MAGIC_ELF_CUBE_CORE": MAGIC["cube"],
        "ACL_RT_ENGINE_TYPE_AIC": 0,
        "ACL_RT_ENGINE_TYPE_AIV": 1,
    }
    attributes = {
        "schedule": "SCHEM_MODE",
        "ub_size": "DYN_UBUF_SIZE",
        "engine": "ENGINE_TYPE",
        "block_offset": "BLOCKDIM_OFFSET",
        "block_prefetch": "BLOCK_TASK_PREFETCH",
        "data_dump": "DATA_DUMP",
        "timeout": "TIMEOUT",
        "timeout_us": "TIMEOUT_US",
    }
    known |= {f"ACL_RT_LAUNCH_KERNEL_ATTR_{attributes[name]}": number for name, number in _acl.ATTRIBUTES.items()}
    codes = {f"ACL_ERROR_{'RT_' if c > 100100 else ''}{name}": c for c, name in _acl.ERRORS.items()}
    known |= codes
    (tmp_path / "layout.c").write_text(LAYOUTS.replace("// codes", "".join(f"    NUMBER({name});\n" for name in codes)))
    program = str(tmp_path / "layout")
    flags = ["-w", f"-I{include}", f"-I{include}/acl"]
    subprocess.run([compiler(), *flags, str(tmp_path / "layout.c"), "-o", program], check=True)
    said = subprocess.run([program], capture_output=True, text=True, check=True).stdout.splitlines()
    assert {name: int(number) for name, _, number in (line.rpartition(" ") for line in said)} == known


def test_a_stub_with_another_signature_does_not_compile(tmp_path: Path) -> None:
    with pytest.raises(subprocess.CalledProcessError):
        build(tmp_path, "-DaclrtBinaryUnLoad(x)=aclrtBinaryUnLoad(x, int more)")
