"""Times of the loader beside its peers, as one JSON line on stdout; `run.py` makes the table.

What is compared runs in one process in short batches in turn, in a new order each round. A kernel of one small block
is launched, so that the device is never what is waited for, and each batch ends with a synchronisation outside the
clock. What needs a process of its own (first launches) is one process for each sample.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import importlib.util
import json
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cubinet.config import Settings
from cubinet.loaders._cuda_driver import current, driver
from cubinet.loaders.cuda import CudaLoader
from cubinet.store import Store

ROOT = Path(__file__).resolve().parents[2]
now = time.perf_counter_ns
N = 64
BATCH = 200
ROW = 16


def load_table() -> Any:
    spec = importlib.util.spec_from_file_location("hardware_table", ROOT / "tests" / "hardware" / "table.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["hardware_table"] = module
    spec.loader.exec_module(module)
    return module


table = load_table()


def interleaved(samplers: dict[str, Callable[[], float]], rounds: int) -> dict[str, dict[str, float]]:
    """10th percentile and median, in microseconds, of what each sampler gives in nanoseconds."""
    for sampler in samplers.values():
        sampler(), sampler()
    found: dict[str, list[float]] = {name: [] for name in samplers}
    gc.collect()
    gc.disable()
    for _ in range(rounds):
        order = list(samplers)
        random.shuffle(order)
        for name in order:
            found[name].append(samplers[name]() / 1000)
        gc.collect()
    gc.enable()
    return {
        name: {"p10": sorted(times)[len(times) // 10], "p50": statistics.median(times)} for name, times in found.items()
    }


def batch(launch: Callable[[], object], wait: Callable[[], object]) -> Callable[[], float]:
    def sample() -> float:
        start = now()
        for _ in range(BATCH):
            launch()
        took = now() - start
        wait()
        return took / BATCH

    return sample


def packed(out: int, source: int) -> tuple[Any, int]:
    """The arguments of `scale` in memory, and the address of the table of their addresses."""
    memory = ctypes.create_string_buffer(20 + 4 + 24)
    base = ctypes.addressof(memory)
    memory[:20] = out.to_bytes(8, "little") + source.to_bytes(8, "little") + N.to_bytes(4, "little")
    memory[24:48] = b"".join((base + at).to_bytes(8, "little") for at in (0, 8, 16))
    return memory, base + 24


def in_a_row(sampler: Callable[[], float]) -> Callable[[], float]:
    """The mean of several samples on end, as of a process that loads one kernel after the other.

    A single one between others runs with cold caches of the processor, and most of its time is theirs.
    """
    return lambda: sum(sampler() for _ in range(ROW)) / ROW


class Bench:
    def __init__(self, folder: Path, rounds: int) -> None:
        self.rounds = rounds
        self.api = driver()
        current(0)
        shutil.copytree(table.PREPARED, folder)
        folder.chmod(0o700)
        self.folder, self.known = folder, table.prepared(folder)
        self.store = Store(folder, settings=Settings(durable=False))
        self.artifact = table.artifact(self.store, "plain", self.known)
        self.groups: dict[str, Any] = {}
        self.ratios: list[dict[str, Any]] = []
        self.missing: list[str] = []

    def ratio(self, group: str, name: str, floor: str, goal: str = "") -> None:
        rows = self.groups.get(group, {})
        value = rows[name]["p10"] / rows[floor]["p10"] if name in rows and floor in rows else None
        self.ratios.append({"name": f"{group}: {name} ÷ {floor}", "value": value, "goal": goal})

    # --- launches

    def launches(self) -> None:
        from cuda.core import Device, LaunchConfig, launch

        api, device = self.api, Device(0)
        device.set_current()
        stream = device.create_stream()
        kernel = CudaLoader().load(self.artifact).kernel
        _, out = api.cuMemAlloc(N * 4)
        _, source = api.cuMemAlloc(N * 4)
        out, source, handle = int(out), int(source), kernel.handle
        config, fast = LaunchConfig(grid=1, block=N), kernel[1, N]
        number, wait = int(stream.handle), api.cuCtxSynchronize
        c_n = ctypes.c_int(N)
        samplers = {
            "kernel.launch, ints": lambda: kernel.launch(config, out, source, N, stream=stream),
            "kernel.launch, ctypes number": lambda: kernel.launch(config, out, source, c_n, stream=stream),
            "kernel[grid, block], ints": lambda: kernel[1, N](out, source, N, stream=stream),
            "prepared launch, ints": lambda: fast(out, source, N, stream=stream),
            "prepared launch, ints, stream as number": lambda: fast(out, source, N, stream=number),
            "cuda.core.launch, ctypes number": lambda: launch(stream, config, handle, out, source, c_n),
            "cuda.core.launch, ints": lambda: launch(stream, config, handle, out, source, N),
        }
        ready, function, call = api.CUlaunchConfig(), api.CUfunction(int(kernel)), api.cuLaunchKernelEx
        ready.gridDimX = ready.gridDimY = ready.gridDimZ = ready.blockDimY = ready.blockDimZ = 1
        ready.blockDimX, ready.hStream = N, api.CUstream(number)
        memory, address = packed(out, source)
        samplers["cuda.bindings, packed before"] = lambda: call(ready, function, address, 0)
        self.with_cupy(samplers, kernel, config, stream)
        self.with_torch(samplers, kernel, config)
        self.groups["launch"] = interleaved(
            {name: batch(function, wait) for name, function in samplers.items()}, self.rounds
        )
        del memory
        self.ratio("launch", "kernel.launch, ints", "cuda.core.launch, ints", "≤ 1.05")
        self.ratio("launch", "kernel.launch, ctypes number", "cuda.core.launch, ctypes number", "≤ 1.05")
        self.ratio("launch", "kernel.launch, CuPy arrays", "CuPy RawKernel, CuPy arrays", "≤ 1.05")
        self.ratio("launch", "kernel[grid, block], CuPy arrays", "CuPy RawKernel, CuPy arrays", "≤ 1.05")
        self.ratio("launch", "kernel[grid, block], ints", "cuda.core.launch, ints")
        self.ratio("launch", "kernel.launch, ints", "cuda.bindings, packed before")
        self.ratio("launch", "kernel.launch, tensors, current stream", "Triton, tensors, current stream")

    def with_cupy(self, samplers: dict[str, Any], kernel: Any, config: Any, stream: Any) -> None:
        try:
            import cupy
            import numpy as np
        except ImportError as exc:
            self.missing.append(f"CuPy: {exc}")
            return
        raw = cupy.RawKernel((ROOT / "tests/hardware/kernels/plain.cu").read_text(), "scale")
        a, b, n = cupy.ones(N, "float32"), cupy.zeros(N, "float32"), np.int32(N)
        self.outer = cupy.cuda.Stream.from_external(stream)  # CuPy does not hold the stream in use
        self.outer.use()
        samplers["CuPy RawKernel, CuPy arrays"] = lambda: raw((1,), (N,), (b, a, n))
        samplers["kernel.launch, CuPy arrays"] = lambda: kernel.launch(config, b, a, n, stream=stream)
        samplers["kernel[grid, block], CuPy arrays"] = lambda: kernel[1, N](b, a, n, stream=stream)

    def with_torch(self, samplers: dict[str, Any], kernel: Any, config: Any) -> None:
        try:
            import torch
        except ImportError as exc:
            self.missing.append(f"PyTorch: {exc}")
            return
        a, b = torch.ones(N, device="cuda"), torch.zeros(N, device="cuda")
        samplers["kernel.launch, tensors, current stream"] = lambda: kernel.launch(config, b, a, N)
        try:
            import triton
            import triton.language as tl
        except ImportError as exc:
            self.missing.append(f"Triton: {exc}")
            return
        place = Path(tempfile.mkdtemp(), "kernel.py")
        text = "import triton\nimport triton.language as tl\n@triton.jit\ndef scale(o, i, n, B: tl.constexpr):\n"
        text += "    x = tl.program_id(0) * B + tl.arange(0, B)\n    m = x < n\n"
        place.write_text(text + "    tl.store(o + x, tl.load(i + x, mask=m) * 2, mask=m)\n")
        spec = importlib.util.spec_from_file_location("triton_kernel", place)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        del triton, tl
        samplers["Triton, tensors, current stream"] = lambda: module.scale[(1,)](b, a, N, B=64)

    # --- a hit, and the first launch of what it gave

    def first_launches(self) -> None:  # noqa: PLR0915 - one sampler after the other
        api, data, print_ = self.api, self.artifact.data, self.artifact.fingerprint
        loader, store = CudaLoader(), self.store
        _, out = api.cuMemAlloc(N * 4)
        out = int(out)
        ref = self.artifact.record.blob("cubin")
        blob = self.folder / "blobs" / ref.digest.hex[:2] / ref.digest.hex

        def hit() -> float:
            start = now()
            kernel = loader.load(store.find(print_)).kernel
            kernel[1, N](out, out, N)
            api.cuCtxSynchronize()
            return now() - start

        def loaded() -> float:
            start = now()
            kernel = loader.load(self.artifact).kernel
            kernel[1, N](out, out, N)
            api.cuCtxSynchronize()
            return now() - start

        memory, address = packed(out, out)

        def raw(read: Callable[[], bytes]) -> float:
            start = now()
            image = read()
            _, module = api.cuModuleLoadData(image)
            _, function = api.cuModuleGetFunction(module, b"scale")
            api.cuLaunchKernel(function, 1, 1, 1, N, 1, 1, 0, 0, address, 0)
            api.cuCtxSynchronize()
            took = now() - start
            api.cuModuleUnload(module)
            return took

        def library() -> float:
            start = now()
            _, made = api.cuLibraryLoadData(data, [], [], 0, [], [], 0)
            api.cuLibraryGetModule(made)
            _, function = api.cuLibraryGetKernel(made, b"scale")
            api.cuLaunchKernel(api.CUfunction(int(function)), 1, 1, 1, N, 1, 1, 0, 0, address, 0)
            api.cuCtxSynchronize()
            took = now() - start
            api.cuLibraryUnload(made)
            return took

        def core() -> float:
            from cuda.core import Device, LaunchConfig, ObjectCode, launch

            device = Device(0)
            device.set_current()
            start = now()
            kernel = ObjectCode.from_cubin(data).get_kernel("scale")
            launch(device.default_stream, LaunchConfig(grid=1, block=N), kernel, out, out, ctypes.c_int(N))
            api.cuCtxSynchronize()
            return now() - start

        samplers = {
            "store hit, load, launch": hit,
            "held artifact, load, launch": loaded,
            "cuModuleLoadData, launch": lambda: raw(lambda: data),
            "open, read, cuModuleLoadData, launch": lambda: raw(blob.read_bytes),
            "cuLibraryLoadData, launch": library,
            "cuda.core from bytes, launch": core,
            "store hit alone": self.hit_alone,
        }
        row, alone = f"first launch, {ROW} in a row", "first launch, one between others"
        self.groups[row] = interleaved({name: in_a_row(sampler) for name, sampler in samplers.items()}, self.rounds)
        self.groups[alone] = interleaved(samplers, self.rounds)
        del memory
        for group, goal in ((row, "≤ 1.5"), (alone, "")):
            self.ratio(group, "held artifact, load, launch", "cuModuleLoadData, launch", goal)
            self.ratio(group, "store hit, load, launch", "open, read, cuModuleLoadData, launch", goal)
            self.ratio(group, "held artifact, load, launch", "cuLibraryLoadData, launch")
            self.ratio(group, "held artifact, load, launch", "cuda.core from bytes, launch")

    def hit_alone(self) -> float:
        start = now()
        self.store.find(self.artifact.fingerprint)
        return now() - start

    # --- a new process

    def processes(self, rounds: int) -> None:
        group = "a new process, until its first launch is done"
        place = Path(__file__).with_name("process.py")
        with tempfile.TemporaryDirectory() as work:
            ways = ["nothing", "cubinet-fingerprint", "cubinet-variant", "nvcc", "nvrtc", "core-cache", "cupy-cache"]
            samplers = {}
            for way in ways:
                command = [sys.executable, str(place), way, work, str(self.folder), str(self.artifact.fingerprint)]
                tried = subprocess.run(command, capture_output=True, text=True, check=False)  # fills caches
                if tried.returncode:
                    lines = tried.stderr.strip().splitlines()
                    self.missing.append(f"{way}: {lines[-1] if lines else tried.returncode}")
                    continue

                def sample(command: list[str] = command) -> float:
                    start = now()
                    subprocess.run(command, check=True, capture_output=True)
                    return now() - start

                samplers[way] = sample
            self.groups[group] = interleaved(samplers, rounds)
        for other in ("nvcc", "nvrtc", "core-cache", "cupy-cache", "nothing"):
            self.ratio(group, "cubinet-fingerprint", other)
        self.ratio(group, "cubinet-variant", "core-cache")
        self.ratio(group, "cubinet-variant", "cupy-cache")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    quick = parser.parse_args().quick
    with tempfile.TemporaryDirectory() as work:
        bench = Bench(Path(work, "store"), 40 if quick else 300)
        for step in (bench.launches, bench.first_launches, lambda: bench.processes(3 if quick else 10)):
            try:
                step()
            except Exception as exc:  # noqa: BLE001 - the other groups are worth having
                bench.missing.append(f"{getattr(step, '__name__', 'processes')}: {type(exc).__name__}: {exc}")
    print(json.dumps({"groups": bench.groups, "ratios": bench.ratios, "missing": bench.missing}))


if __name__ == "__main__":
    main()
