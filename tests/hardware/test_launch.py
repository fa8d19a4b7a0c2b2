"""Every launch feature, by its numbers."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from typing import Any

import pytest

from cubinet.errors import DriverError, LoadError
from cubinet.loaders.cuda import CudaModule

np = pytest.importorskip("numpy")
pytestmark = pytest.mark.gpu

Modules = Callable[[str], CudaModule]
MakeMemory = Callable[[Any], Any]
Check = Callable[[tuple[Any, ...]], Any]
N = 10_000


def test_a_kernel_is_found_by_what_it_was_asked_for_by_symbol_and_by_name(
    modules: Modules, on_device: MakeMemory
) -> None:
    module = modules("scale")
    assert len(module.kernels) == 3
    full = next(name for name in module.kernels if "<double>" in name)
    assert module["scale<double>"] is module[full] is module[module["scale<double>"].symbol]
    for name, kind in (("scale<float>", "float32"), ("scale<double>", "float64")):
        source, out = on_device(np.arange(N, dtype=kind)), on_device(np.zeros(N, kind))
        module[name][-(-N // 256), 256](out, source, 2.5, N)
        assert np.array_equal(out.get(), np.arange(N, dtype=kind) * 2.5)
    a, out = on_device(np.arange(N, dtype="float32")), on_device(np.zeros(N, "float32"))
    module["add"].launch(module["add"].configure(-(-N // 128), (128, 1)), out, a, a.pointer, N)
    assert np.array_equal(out.get(), np.arange(N, dtype="float32") * 2)
    with pytest.raises(LoadError, match=r"scale<float>\(float\*"):
        module.kernel  # noqa: B018
    with pytest.raises(LoadError, match="add"):
        module["subtract"]


def test_a_launch_config_of_cuda_core_is_taken_and_may_be_changed(modules: Modules, on_device: MakeMemory) -> None:
    core = pytest.importorskip("cuda.core")
    kernel = modules("plain").kernel
    source, out = on_device(np.ones(N, "float32")), on_device(np.zeros(N, "float32"))
    config = core.LaunchConfig(grid=1, block=256)
    kernel.launch(config, out, source, N)
    assert out.get().sum() == 256 * 2
    config.grid = (4, 1, 1)
    kernel.launch(config, out, source, N)
    assert out.get().sum() == 1024 * 2


def test_the_handle_is_a_kernel_of_cuda_core_and_outlives_the_module(modules: Modules, on_device: MakeMemory) -> None:
    core = pytest.importorskip("cuda.core")
    module = modules("plain")
    handle = module.kernel.handle
    assert isinstance(handle, core.Kernel)
    assert handle.num_arguments == len(module.kernel.parameters) == 3
    assert module.kernel.attributes.num_regs > 0
    module.close()
    del module
    source, out = on_device(np.ones(N, "float32")), on_device(np.zeros(N, "float32"))
    device = core.Device(0)
    device.set_current()
    config = core.LaunchConfig(grid=-(-N // 256), block=256)
    core.launch(device.default_stream, config, handle, out.pointer, source.pointer, ctypes.c_int(N))
    assert out.get().sum() == 2 * N


def test_parameters_of_every_size_arrive(modules: Modules, on_device: MakeMemory) -> None:
    class Mixed(ctypes.Structure):
        _fields_ = (("first", ctypes.c_int), ("second", ctypes.c_double), ("third", ctypes.c_ubyte * 5))

    kernel = modules("arguments")["sizes"]
    assert [p.size for p in kernel.parameters] == [1, 2, 4, 8, 4, 8, 24, 8, 8]
    struct = Mixed(7, 0.125, (ctypes.c_ubyte * 5)(3, 0, 0, 0, 4))
    told = np.zeros(1, np.dtype([("a", "i4"), ("b", "f8"), ("c", "S5")], align=True))[0]
    told["a"], told["b"], told["c"] = 7, 0.125, b"\x03\0\0\0\x04"
    want = [-1, -2, -3, -(2**40), 1.5, 2.25, 7, 0.125, 7, 2.0**63]
    for mixed in (struct, bytes(struct), told):
        for c in (-3, ctypes.c_int(-3), np.int32(-3)):
            out = on_device(np.zeros(10))
            kernel[1, 1](-1, np.int16(-2), c, -(2**40), 1.5, np.float64(2.25), mixed, 2**63, out)
            assert out.get().tolist() == want
    with pytest.raises(LoadError, match=r"parameter 3 \(4 bytes at byte 4\) got 8 bytes"):
        kernel[1, 1](1, 2, np.int64(3), 4, 5.0, 6.0, struct, 7, None)
    with pytest.raises(LoadError, match="8 arguments for 9 parameters"):
        kernel[1, 1](1, 2, 3, 4, 5.0, 6.0, struct, 7)


def test_a_struct_of_six_kilobytes_arrives(modules: Modules, on_device: MakeMemory) -> None:
    kernel = modules("arguments")["large"]
    values, out = np.arange(1500, dtype="int32"), on_device(np.zeros(1, "int64"))
    kernel[1, 1](values.tobytes(), out)
    assert out.get()[0] == values.sum()
    modules("arguments")["nothing"][1, 1]()


@pytest.mark.parametrize("cluster", [4, (2, 2), (2, 2, 2)])
def test_blocks_of_a_cluster_see_each_other_s_shared_memory(
    modules: Modules, on_device: MakeMemory, cluster: Any
) -> None:
    kernel = modules("launches")["neighbours"]
    sizes = (*((cluster,) if isinstance(cluster, int) else cluster), 1, 1)[:3]
    count = sizes[0] * sizes[1] * sizes[2]
    grid = tuple(2 * size for size in sizes)
    blocks = grid[0] * grid[1] * grid[2]
    out = on_device(np.zeros(blocks, "int32"))
    launch = kernel.configure(grid, 32, cluster=cluster)
    launch(out)
    clusters = blocks // count
    assert sorted(out.get().tolist()) == sorted([(1000 + rank) * 100 + count for rank in range(count)] * clusters)
    assert launch.clusters() > 0


def test_a_cluster_of_sixteen_is_asked_for(modules: Modules, on_device: MakeMemory) -> None:
    kernel = modules("launches")["neighbours"]
    with pytest.raises(LoadError, match="16 blocks"):
        kernel.configure(16, 32, cluster=16)
    out = on_device(np.zeros(16, "int32"))
    kernel.configure(16, 32, cluster=16, nonportable=True)(out)
    assert sorted(out.get().tolist()) == [(1000 + rank) * 100 + 16 for rank in range(16)]


def test_a_cluster_of_a_launch_config_counts_clusters(modules: Modules, on_device: MakeMemory) -> None:
    core = pytest.importorskip("cuda.core")
    core.Device(0).set_current()
    out = on_device(np.zeros(12, "int32"))
    modules("launches")["neighbours"].launch(core.LaunchConfig(grid=3, block=32, cluster=4), out)
    assert sorted(out.get().tolist()) == sorted([(1000 + rank) * 100 + 4 for rank in range(4)] * 3)


def test_a_cooperative_grid_waits_for_all_of_itself(
    modules: Modules, on_device: MakeMemory, api: Any, ok: Check
) -> None:
    kernel = modules("launches")["together"]
    blocks = kernel.occupancy(64) * ok(
        api.cuDeviceGetAttribute(api.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 0)
    )
    total, seen = on_device(np.zeros(1, "int32")), on_device(np.zeros(blocks, "int32"))
    kernel.configure(blocks, 64, cooperative=True)(total, seen)
    assert set(seen.get().tolist()) == {blocks * (blocks + 1) // 2}
    with pytest.raises(DriverError, match="COOPERATIVE_LAUNCH_TOO_LARGE") as caught:
        kernel.configure(blocks + 1, 64, cooperative=True)(total, seen)
    assert caught.value.code == 720


@pytest.mark.parametrize("pdl", [True, False])
def test_a_dependent_launch_begins_early_and_sees_the_memory(
    modules: Modules, on_device: MakeMemory, streams: Callable[[], int], pdl: bool
) -> None:
    module, stream = modules("launches"), streams()
    data, out = on_device(np.zeros(N, "int32")), on_device(np.zeros(N, "int32"))
    began, ended = on_device(np.zeros(1, "int64")), on_device(np.zeros(1, "int64"))
    for _ in range(2):  # the first time loads code
        module["first"][1, 256](data, N, 4_000_000, ended, stream=stream)  # about two milliseconds
        module["second"].configure(1, 256, pdl=pdl)(out, data, N, began, stream=stream)
        assert np.array_equal(out.get(), np.arange(N, dtype="int32") + 1)
    assert bool(began.get()[0] < ended.get()[0]) is pdl


def test_two_hundred_kilobytes_of_shared_memory(modules: Modules, on_device: MakeMemory) -> None:
    kernel = modules("launches")["reversed"]
    size = 200 << 10
    values = np.arange(size // 4, dtype="int32")
    source, out = on_device(values), on_device(np.zeros_like(values))
    for _ in range(2):
        kernel[1, 1024, size](out, source, len(values))
        assert np.array_equal(out.get(), values[::-1])
    assert kernel.occupancy(1024, size) == 1
    with pytest.raises(DriverError, match="max_dynamic_shared"):
        kernel.configure(1, 32, shared=1 << 20)


def test_a_captured_graph_replays_the_launches(
    modules: Modules, on_device: MakeMemory, streams: Callable[[], int], api: Any, ok: Check
) -> None:
    kernel, stream = modules("launches")["increment"], streams()
    value = on_device(np.zeros(1, "int32"))
    ok(api.cuStreamBeginCapture(stream, api.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL))
    for _ in range(3):
        kernel[1, 1](value, stream=stream)
    graph = ok(api.cuStreamEndCapture(stream))
    assert value.get()[0] == 0
    ready = ok(api.cuGraphInstantiate(graph, 0))
    for _ in range(5):
        ok(api.cuGraphLaunch(ready, stream))
    assert value.get()[0] == 15
    ok(api.cuGraphExecDestroy(ready))
    ok(api.cuGraphDestroy(graph))


def test_two_streams_run_beside_each_other_and_the_null_stream_is_meant(
    modules: Modules, on_device: MakeMemory, streams: Callable[[], int], api: Any, ok: Check
) -> None:
    module, busy, free = modules("launches"), streams(), streams()
    stop, value = on_device(np.zeros(1, "int32")), on_device(np.zeros(1, "int32"))
    module["spin"][1, 1](stop, 2_000_000_000, stream=busy)  # about a second
    module["increment"][1, 1](value, stream=free)
    ok(api.cuStreamSynchronize(free))
    module["increment"][1, 1](value, stream=0)
    ok(api.cuStreamSynchronize(0))
    still = api.cuStreamQuery(busy)[0]
    assert still == api.CUresult.CUDA_ERROR_NOT_READY
    one = np.ones(1, "int32")
    ok(api.cuMemcpyHtoDAsync(stop.pointer, one.ctypes.data, 4, free))
    ok(api.cuStreamSynchronize(busy))
    assert value.get()[0] == 2


def test_every_kind_of_stream_is_taken(
    modules: Modules, on_device: MakeMemory, streams: Callable[[], int], api: Any
) -> None:
    core = pytest.importorskip("cuda.core")
    kernel, value = modules("launches")["increment"], on_device(np.zeros(1, "int32"))
    device = core.Device(0)
    device.set_current()
    number = streams()

    class Own:
        def __cuda_stream__(self) -> tuple[int, int]:
            return 0, number

    taken = [number, api.CUstream(number), Own(), device.create_stream(), device.default_stream, None, 0]
    for stream in taken:
        kernel[1, 1](value, stream=stream)
        api.cuCtxSynchronize()
    assert value.get()[0] == len(taken)
    with pytest.raises(LoadError, match="not a stream"):
        kernel[1, 1](value, stream="0")


def test_threads_without_a_context_launch_at_once(
    modules: Modules, on_device: MakeMemory, streams: Callable[[], int]
) -> None:
    module, count = modules("scale"), 8
    kernel = module["scale<float>"]
    places = [(on_device(np.full(N, i, "float32")), on_device(np.zeros(N, "float32")), streams()) for i in range(count)]
    failed: list[BaseException] = []

    def work(number: int) -> None:
        source, out, stream = places[number]
        try:
            for _ in range(200):
                kernel[-(-N // 256), 256](out, source, float(number), N, stream=stream)
        except BaseException as exc:  # noqa: BLE001
            failed.append(exc)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    for i, (_, out, _) in enumerate(places):
        assert set(out.get().tolist()) == {float(i * i)}
