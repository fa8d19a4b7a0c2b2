"""The CUDA loader on a driver that stands in for one (`stub_driver.c`); `test_cuda.py` runs it in its own process.

The stand-in reads launches as a device would: it keeps the bytes of every parameter, and the shape. It is too old to
tell where parameters lie, so the cubin's own table is used, unless a test says otherwise.
"""

from __future__ import annotations

import ctypes
import gc
import os
import struct
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cubinet.errors import DriverError, LoadError, NoDeviceError, ObjectError, UnsupportedTargetError
from cubinet.loaders.cuda import CudaKernel, CudaLoader
from cubinet.model import Artifact, Target
from cubinet.store.format import Stored, encode_record
from cubinet.testing.loaders import KernelContract, LoaderContract

from .cuda_kit import LIBRARY, compiled


class Seen(ctypes.Structure):
    """What the stand-in keeps."""

    _fields_ = (
        *((name, ctypes.c_uint64) for name in ("launches", "loads", "unloads", "limits_set", "stream", "function")),
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared", ctypes.c_uint),
        ("attrs", ctypes.c_uint),
        ("ids", ctypes.c_uint * 8),
        ("values", (ctypes.c_uint * 4) * 8),
        ("bytes", ctypes.c_ubyte * 65536),
    )


class Stub:
    """The other side of the stand-in."""

    def __init__(self) -> None:
        self.library = ctypes.CDLL(str(Path(os.environ["CUBINET_STUB_DRIVER"], LIBRARY)))
        self.seen = Seen.in_dll(self.library, "stub_seen")

    def sizes(self, *sizes: int) -> None:
        self.library.stub_sizes(len(sizes), (ctypes.c_uint * len(sizes))(*sizes))

    def tells(self, *offsets: int) -> None:
        self.library.stub_tells(len(offsets), (ctypes.c_uint * len(offsets))(*offsets))

    def got(self, form: str) -> tuple[Any, ...]:
        return struct.unpack("<" + form, bytes(self.seen.bytes[: struct.calcsize("<" + form)]))

    def shape(self) -> tuple[Any, ...]:
        return tuple(self.seen.grid), tuple(self.seen.block), self.seen.shared, self.seen.stream

    def attributes(self) -> dict[int, tuple[int, ...]]:
        return {self.seen.ids[i]: tuple(self.seen.values[i]) for i in range(self.seen.attrs)}


CLUSTER, COOPERATIVE, PDL = 4, 2, 6


@pytest.fixture
def stub() -> Iterator[Stub]:
    made = Stub()
    yield made
    made.library.stub_answer(0)
    made.library.stub_sizes(0, None)
    made.library.stub_tells(0xFFFFFFFF, None)


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place: Path = tmp_path_factory.mktemp("store")
    return place


@pytest.fixture(scope="session")
def kernels(folder: Path) -> Artifact:
    return compiled(folder)


ONE = 'extern "C" __global__ void only(float *out, float by) { *out = by; }'


@pytest.fixture(scope="session")
def one(folder: Path) -> Artifact:
    return compiled(folder, source=ONE)


@pytest.fixture
def loader() -> CudaLoader:
    return CudaLoader()


Get = Callable[[str], CudaKernel]


@pytest.fixture
def kernel(loader: CudaLoader, kernels: Artifact) -> Get:
    module = loader.load(kernels)
    return lambda name: module[name]


# --- the contracts


class TestCudaLoader(LoaderContract):
    @pytest.fixture
    def loader(self) -> CudaLoader:
        return CudaLoader()

    @pytest.fixture
    def artifact(self, kernels: Artifact) -> Artifact:
        return kernels

    @pytest.fixture
    def single(self, one: Artifact) -> Artifact:
        return one

    @pytest.fixture
    def unsuited(self, folder: Path) -> Artifact:
        return compiled(folder, arch="sm_100a", source=ONE)


class TestCudaKernel(KernelContract):
    @pytest.fixture
    def kernel(self, loader: CudaLoader, kernels: Artifact) -> CudaKernel:
        return loader.load(kernels)["scale<float>"]

    @pytest.fixture
    def arguments(self) -> tuple[Any, ...]:
        return 4096, None, 2.5, 7

    def launch(self, kernel: CudaKernel, arguments: tuple[Any, ...]) -> None:
        kernel[1, 1](*arguments)


# --- what reaches the device


def test_every_parameter_arrives_at_its_place(kernel: Get, stub: Stub) -> None:
    stub.sizes(8, 8, 4, 4)
    kernel("scale<float>")[(3, 2), 128](0x7F0000001000, 2**63 + 5, 2.5, -7, stream=0x55)
    assert stub.got("QQfi") == (0x7F0000001000, 2**63 + 5, 2.5, -7)
    assert stub.shape() == ((3, 2, 1), (128, 1, 1), 0, 0x55)
    stub.sizes(1, 2, 4, 8, 4, 8, 24, 8, 8)
    mixed = struct.pack("<ixxxxd5sxxx", 7, 0.5, b"abcde")
    kernel("sizes")[1, 1](-1, -2, -3, -4, 5.5, 6.25, mixed, 2**64 - 1, None)
    assert stub.got("bhiqfd24sQQ") == (-1, -2, -3, -4, 5.5, 6.25, mixed, 2**64 - 1, 0)


def test_a_large_struct_and_no_parameters_at_all(kernel: Get, stub: Stub, kernels: Artifact) -> None:
    large = kernel("large")
    assert [(p.offset, p.size) for p in large.parameters] == [(0, 6000), (6000, 8)]
    stub.sizes(6000, 8)
    data = os.urandom(6000)
    large[1, 1](data, 99)
    assert bytes(stub.seen.bytes[:6008]) == data + (99).to_bytes(8, "little")
    stub.sizes()
    before = stub.seen.launches
    kernel("nothing")[1, 1]()
    assert stub.seen.launches == before + 1


def test_parameters_end_where_the_object_says(kernel: Get, kernels: Artifact) -> None:
    for told in kernels.kernels:
        parameters = kernel(told.symbol).parameters
        last = parameters[-1] if parameters else None
        assert told.params == (last.offset + last.size if last else 0)


def test_a_driver_that_tells_the_parameters_is_believed(loader: CudaLoader, folder: Path, stub: Stub) -> None:
    stub.sizes(8, 4)
    stub.tells(0, 8)
    ptx = compiled(folder, arch="compute_80", kind="ptx", source=ONE)
    loader.load(ptx).kernel[1, 1](77, 1.5)
    assert stub.got("Qf") == (77, 1.5)
    stub.tells(4, 8)  # they overlap
    with pytest.raises(ObjectError, match="does not follow"):
        loader.load(ptx).kernel  # noqa: B018


def test_without_a_table_there_is_no_guess(loader: CudaLoader, folder: Path, stub: Stub) -> None:
    with pytest.raises(LoadError, match="the driver cannot tell them"):
        loader.load(compiled(folder, arch="compute_80", kind="ptx", source=ONE)).kernel  # noqa: B018


def test_launch_attributes_are_those_asked_for(kernel: Get, stub: Stub) -> None:
    scale, args = kernel("scale<float>"), (0, 0, 1.0, 1)
    scale.configure((8, 4, 2), 32, cluster=(4, 2, 1))(*args)
    assert stub.attributes() == {CLUSTER: (4, 2, 1, 0)}
    scale.configure(8, 32, cooperative=True, pdl=True, cluster=2)(*args)
    assert {key: value[0] for key, value in stub.attributes().items()} == {CLUSTER: 2, COOPERATIVE: 1, PDL: 1}
    scale[8, 32](*args)
    assert stub.attributes() == {}
    scale.configure(16, 32, cluster=16, nonportable=True)(*args)
    assert stub.attributes()[CLUSTER][:3] == (16, 1, 1)


def test_a_launch_config_counts_clusters_and_may_be_changed(kernel: Get, stub: Stub) -> None:
    core = pytest.importorskip("cuda.core")
    scale, args = kernel("scale<float>"), (0, 0, 1.0, 1)
    config = core.LaunchConfig(grid=(4, 2), block=64, shmem_size=1024, programmatic_stream_serialization=True)
    for _ in range(2):
        scale.launch(config, *args)
        assert stub.shape() == ((4, 2, 1), (64, 1, 1), 1024, 0)
        assert set(stub.attributes()) == {PDL}
    config.cluster = (2, 2, 1)
    config.programmatic_stream_serialization = False
    scale.launch(config, *args)
    assert stub.shape()[0] == (8, 4, 1)
    assert stub.attributes() == {CLUSTER: (2, 2, 1, 0)}
    config.cluster, config.shmem_size = (16, 1, 1), 0
    with pytest.raises(LoadError, match="nonportable"):
        scale.launch(config, *args)
    with pytest.raises(LoadError, match="no launch configuration"):
        scale.launch((1, 1), *args)
    with pytest.raises(LoadError, match="prepared for nothing"):
        scale.launch(kernel("nothing").configure(1, 1), *args)


def test_much_shared_memory_is_asked_for_once(kernel: Get, stub: Stub) -> None:
    scale, args = kernel("scale<double>"), (0, 0, 1.0, 1)
    before = stub.seen.limits_set
    for _ in range(3):
        scale[1, 32, 200 << 10](*args)
        scale.configure(2, 32, shared=100 << 10)(*args)
    assert stub.seen.limits_set == before + 1
    with pytest.raises(DriverError, match="CUDA_ERROR_INVALID_VALUE") as caught:
        scale.configure(1, 1, shared=1 << 20)
    assert caught.value.code == 1
    assert "Stand-in" in caught.value.device


@pytest.mark.parametrize(
    "shape", [(0, 1), (1, (1, 1, 1, 1)), ("1", 1), (1, ()), (1.5, 1), (-1, 1), 7, (1,), (1, 1, -1)]
)
def test_a_shape_that_cannot_be_meant_is_refused(kernel: Get, shape: Any) -> None:
    with pytest.raises(LoadError):
        kernel("nothing")[shape]


def test_lists_are_shapes_too(kernel: Get, stub: Stub) -> None:
    kernel("nothing")[[2, 3], [4, 5, 6]]()
    assert stub.shape()[:2] == ((2, 3, 1), (4, 5, 6))


def test_a_launch_that_the_driver_refuses_is_told_whole(kernel: Get, stub: Stub) -> None:
    stub.library.stub_answer(701)
    with pytest.raises(DriverError) as caught:
        kernel("nothing").configure(1, 1024, pdl=True)()
    assert caught.value.code == 701
    assert "grid=(1, 1, 1), block=(1024, 1, 1), pdl=True" in str(caught.value)
    stub.library.stub_answer(0)
    kernel("nothing")[1, 1]()


def test_a_thread_without_a_context_gets_one(kernel: Get, stub: Stub) -> None:
    scale, failed = kernel("scale<float>"), []
    scale[1, 1](1, 2, 3.0, 4)
    before = stub.seen.launches

    def work() -> None:
        try:
            for _ in range(100):
                scale[1, 1](1, 2, 3.0, 4)
        except BaseException as exc:  # noqa: BLE001
            failed.append(exc)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    assert stub.seen.launches == before + 800


def test_the_handle_keeps_the_library(loader: CudaLoader, one: Artifact, stub: Stub) -> None:
    core = pytest.importorskip("cuda.core")
    gc.collect()
    before = stub.seen.unloads
    module = loader.load(one)
    handle = module.kernel.handle
    assert isinstance(handle, core.Kernel)
    module.close()
    del module
    gc.collect()
    assert stub.seen.unloads == before
    del handle
    gc.collect()
    assert stub.seen.unloads == before + 1


# --- what is loaded


def test_the_same_bytes_are_loaded_once_and_unloaded_with_the_last(
    loader: CudaLoader, one: Artifact, stub: Stub
) -> None:
    gc.collect()
    loads, unloads = stub.seen.loads, stub.seen.unloads
    first, second = loader.load(one), loader.load(replace(one))
    assert stub.seen.loads == loads + 1
    launch = second.kernel.configure(1, 1)
    del first, second
    gc.collect()
    assert stub.seen.unloads == unloads
    launch(1, 2.0)
    del launch
    gc.collect()
    assert stub.seen.unloads == unloads + 1
    loader.load(one)
    assert stub.seen.loads == loads + 2


def test_loading_and_launching_read_only_the_outline_of_a_record(loader: CudaLoader, one: Artifact, stub: Stub) -> None:
    stored = Stored(encode_record(one.record))
    found = Artifact(stored, one.data)
    assert found.outline == one.outline
    loader.load(found).kernel[1, 1](7, 0.5)
    loader.load(found)["only"][1, 1](7, 0.5)
    assert found._record is stored
    assert found.record.fingerprint == one.record.fingerprint
    lies = Artifact(Stored(encode_record(replace(one.record, target=Target("cuda", "sm_80")))), one.data)
    with pytest.raises(UnsupportedTargetError, match="cubin for sm_80"):
        loader.load(lies)


def test_a_thread_finds_kernels_in_a_library_of_another_device(loader: CudaLoader, one: Artifact, stub: Stub) -> None:
    here, there = loader.load(one, 0).kernel, loader.load(one, 1).kernel
    assert there.occupancy(64) == here.occupancy(64) > 0
    here[1, 1](1, 2.0)  # the context of the thread is what it was


def test_each_device_has_its_own(loader: CudaLoader, one: Artifact, stub: Stub) -> None:
    loads = stub.seen.loads
    here, there = loader.load(one, 0), loader.load(one, 1)
    assert stub.seen.loads == loads + 2
    assert (here.device.number, there.device.number) == (0, 1)

    class Device:
        device_id = 1

    assert loader.load(one, Device()).device.number == 1
    assert stub.seen.loads == loads + 2


def test_the_driver_never_sees_code_for_another_device(loader: CudaLoader, folder: Path, stub: Stub) -> None:
    loads = stub.seen.loads
    for arch, kind in (("sm_80", "cubin"), ("sm_100a", "cubin"), ("compute_100", "ptx")):
        with pytest.raises(UnsupportedTargetError) as caught:
            loader.load(compiled(folder, arch, kind, ONE))
        text = str(caught.value)
        assert arch in text
        assert "Stand-in (device 0, sm_90)" in text
        assert "sm_90a" in text
    assert stub.seen.loads == loads


def test_a_fatbin_is_judged_by_what_is_in_it(loader: CudaLoader, folder: Path, one: Artifact) -> None:
    fat = compiled(folder, "sm_90a", "fatbin", ONE)
    assert loader.load(fat).kernels == ("only",)
    wrong = replace(fat, _record=replace(fat.record, target=Target("cuda", "sm_100a")))
    assert loader.load(wrong).kernels == ("only",)
    assert loader.load(compiled(folder, "sm_80", "fatbin", ONE)).kernels == ("only",)  # as PTX
    other = compiled(folder, "sm_100a", "fatbin", ONE)
    with pytest.raises(UnsupportedTargetError, match="cubin for sm_100a, ptx for sm_100a"):
        loader.load(other)


def test_what_a_driver_does_not_take_is_no_matter_for_it(loader: CudaLoader, one: Artifact) -> None:
    with pytest.raises(LoadError, match="takes no ltoir"):
        loader.load(replace(one, _record=replace(one.record, kind="ltoir")))


def test_a_forked_child_starts_anew_and_is_told_why_it_cannot(loader: CudaLoader, one: Artifact, stub: Stub) -> None:
    module = loader.load(one)
    child = os.fork()
    if not child:
        code = 3
        try:
            module.close()
            gc.collect()
            code = 4 if stub.seen.unloads else 5
            loader.load(one)
        except NoDeviceError as exc:
            code = 0 if "fork" in str(exc) else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert loader.load(one).kernel.name == "only"
