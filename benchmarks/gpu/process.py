"""One process that gets a kernel in one of several ways and launches it: `process.py WAY WORK STORE FINGERPRINT`."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[2] / "tests" / "hardware" / "kernels" / "plain.cu"
N = 64


def memory() -> tuple:
    from cuda.bindings import driver as api

    _, pointer = api.cuMemAlloc(N * 4)
    return api, int(pointer)


def cubinet(find) -> None:
    from cubinet.loaders.cuda import CudaLoader

    kernel = CudaLoader().load(find()).kernel
    api, pointer = memory()
    kernel[1, N](pointer, pointer, N)
    assert not int(api.cuCtxSynchronize()[0])


def by_fingerprint(_: str, folder: str, text: str) -> None:
    from cubinet.model import Fingerprint
    from cubinet.store import Store

    cubinet(lambda: Store(folder).find(Fingerprint.parse(text)))


def by_variant(work: str, _folder: str, _text: str) -> None:
    from cubinet.model import Variant
    from cubinet.store import Store

    cubinet(lambda: Store(f"{work}/store").get_or_compile(Variant.from_file(SOURCE, "sm_90a", name="scale")))


def raw(data: bytes) -> None:
    from cuda.bindings import driver as api

    api.cuInit(0)
    _, context = api.cuDevicePrimaryCtxRetain(0)
    api.cuCtxSetCurrent(context)
    _, module = api.cuModuleLoadData(data)
    _, function = api.cuModuleGetFunction(module, b"scale")
    api, pointer = memory()
    kinds = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int)
    api.cuLaunchKernel(function, 1, 1, 1, N, 1, 1, 0, 0, ((pointer, pointer, N), kinds), 0)
    assert not int(api.cuCtxSynchronize()[0])


def nvcc(work: str, _folder: str, _text: str) -> None:
    out = f"{work}/{os.getpid()}.cubin"
    subprocess.run(["nvcc", "-cubin", "-arch=sm_90a", "-o", out, str(SOURCE)], check=True)
    raw(Path(out).read_bytes())


def nvrtc(_work: str, _folder: str, _text: str) -> None:
    core_launch(None)


def core_cache(work: str, _folder: str, _text: str) -> None:
    from cuda.core.utils import FileStreamProgramCache

    core_launch(FileStreamProgramCache(f"{work}/core"))


def core_launch(cache) -> None:
    from cuda.core import Device, LaunchConfig, Program, ProgramOptions, launch

    device = Device(0)
    device.set_current()
    program = Program(SOURCE.read_text(), "c++", ProgramOptions(arch="sm_90a"))
    made = program.compile("cubin", cache=cache) if cache is not None else program.compile("cubin")
    kernel = made.get_kernel("scale")
    _, pointer = memory()
    launch(device.default_stream, LaunchConfig(grid=1, block=N), kernel, pointer, pointer, ctypes.c_int(N))
    device.sync()


def cupy_cache(work: str, _folder: str, _text: str) -> None:
    os.environ["CUPY_CACHE_DIR"] = f"{work}/cupy"
    import cupy

    a = cupy.zeros(N, "float32")
    cupy.RawKernel(SOURCE.read_text(), "scale")((1,), (N,), (a, a, cupy.int32(N)))
    cupy.cuda.Device().synchronize()


def nothing(_work: str, _folder: str, _text: str) -> None:
    """A bare interpreter and a context."""
    from cuda.bindings import driver as api

    api.cuInit(0)
    _, context = api.cuDevicePrimaryCtxRetain(0)
    api.cuCtxSetCurrent(context)


WAYS = {
    "nothing": nothing,
    "cubinet-fingerprint": by_fingerprint,
    "cubinet-variant": by_variant,
    "nvcc": nvcc,
    "nvrtc": nvrtc,
    "core-cache": core_cache,
    "cupy-cache": cupy_cache,
}

if __name__ == "__main__":
    WAYS[sys.argv[1]](*sys.argv[2:5])
