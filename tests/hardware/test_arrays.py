"""Arrays and streams of the libraries that hold device memory. Each test is skipped where its library is not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from cubinet.errors import LoadError
from cubinet.loaders.cuda import CudaModule

np = pytest.importorskip("numpy")
pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("default")]

Modules = Callable[[str], CudaModule]
N = 1000
GRID, BLOCK = 8, 128


def test_tensors_of_pytorch_on_its_current_stream(modules: Modules, api: Any) -> None:
    torch = pytest.importorskip("torch")
    kernel = modules("plain")["scale"]
    source = torch.arange(N, dtype=torch.float32, device="cuda")
    out = torch.zeros_like(source)
    kernel[GRID, BLOCK](out, source, N)
    assert torch.equal(out, source * 2)
    kernel[GRID, BLOCK](out[1:], source.requires_grad_(), N - 1, stream=torch.cuda.current_stream())
    torch.cuda.synchronize()
    assert torch.equal(out[1:], source.detach()[:-1] * 2)
    with pytest.raises(LoadError, match="a tensor on cpu"):
        kernel[GRID, BLOCK](out.cpu(), source, N)


def test_a_graph_of_pytorch_captures_launches_on_its_stream(modules: Modules, api: Any) -> None:
    torch = pytest.importorskip("torch")
    kernel = modules("plain")["scale"]
    source, out = torch.ones(N, device="cuda"), torch.zeros(N, device="cuda")
    kernel[GRID, BLOCK](out, source, N)
    torch.cuda.synchronize()
    out.zero_()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        kernel[GRID, BLOCK](out, source, N)
    assert out.sum().item() == 0
    source.fill_(3)
    graph.replay()
    torch.cuda.synchronize()
    assert out.sum().item() == 6 * N


def test_the_null_stream_is_honoured_while_pytorch_has_another(modules: Modules, api: Any) -> None:
    torch = pytest.importorskip("torch")
    module = modules("launches")
    stop, value = torch.zeros(1, dtype=torch.int32, device="cuda"), torch.zeros(1, dtype=torch.int32, device="cuda")
    module["spin"][1, 1](stop, 0)  # code is loaded at the first launch, which waits for what is running
    module["increment"][1, 1](value, stream=0)
    torch.cuda.synchronize()
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        module["spin"][1, 1](stop, 1_000_000_000)  # on the side stream, about half a second
        module["increment"][1, 1](value, stream=0)
        torch.cuda.default_stream().synchronize()
        assert not side.query()
    side.synchronize()
    assert value.item() == 2


def test_arrays_and_streams_of_cupy(modules: Modules, api: Any) -> None:
    cupy = pytest.importorskip("cupy")
    kernel = modules("plain")["scale"]
    source = cupy.arange(N, dtype=cupy.float32)
    out = cupy.zeros_like(source)
    stream = cupy.cuda.Stream(non_blocking=True)
    cupy.cuda.Device().synchronize()
    kernel[GRID, BLOCK](out, source, N, stream=stream)
    stream.synchronize()
    assert bool((out == source * 2).all())
    kernel[GRID, BLOCK](out[5:], source, np.int32(N - 5), stream=cupy.cuda.Stream.null)
    cupy.cuda.Device().synchronize()
    assert bool((out[5:] == source[:-5] * 2).all())


def test_arrays_of_jax(modules: Modules, api: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    jax = pytest.importorskip("jax")
    if jax.default_backend() != "gpu":
        pytest.skip("this JAX sees no device")
    source = jax.numpy.arange(N, dtype="float32")
    out = jax.numpy.zeros(N, "float32") + 0
    jax.block_until_ready((source, out))
    modules("plain")["scale"][GRID, BLOCK](out, source, N, stream=0)
    api.cuCtxSynchronize()
    assert np.array_equal(np.asarray(out), np.arange(N, dtype="float32") * 2)


def test_whatever_speaks_dlpack(modules: Modules, api: Any) -> None:
    torch = pytest.importorskip("torch")

    class Foreign:
        def __init__(self, tensor: Any) -> None:
            self.tensor = tensor

        def __dlpack__(self, **options: Any) -> Any:
            return self.tensor.__dlpack__(**options)

        def __dlpack_device__(self) -> Any:
            return self.tensor.__dlpack_device__()

    source, out = torch.ones(N + 4, device="cuda")[4:], torch.zeros(N, device="cuda")
    modules("plain")["scale"][GRID, BLOCK](Foreign(out), Foreign(source), N)
    torch.cuda.synchronize()
    assert out.sum().item() == 2 * N


def test_buffers_of_cuda_core(modules: Modules, api: Any) -> None:
    core = pytest.importorskip("cuda.core")
    device = core.Device(0)
    device.set_current()
    stream = device.create_stream()
    source, out = device.allocate(N * 4, stream=stream), device.allocate(N * 4, stream=stream)
    host = np.arange(N, dtype="float32")
    stream.sync()
    api.cuMemcpyHtoD(int(source.handle), host.ctypes.data, host.nbytes)
    modules("plain")["scale"][GRID, BLOCK](out, source, N, stream=stream)
    stream.sync()
    back = np.zeros_like(host)
    api.cuMemcpyDtoH(back.ctypes.data, int(out.handle), host.nbytes)
    assert np.array_equal(back, host * 2)
    for buffer in (source, out):
        buffer.close(stream)


def test_memory_of_the_host_is_refused(modules: Modules) -> None:
    with pytest.raises(LoadError, match="host's memory; copy it to the device"):
        modules("plain")["scale"][1, 1](np.zeros(4, "float32"), None, 0)
