"""The table of real kernels: what is compiled, for which device, with whose headers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import pytest

from cubinet.model import Root, Variant

__all__ = ["FAMILIES", "KERNELS", "SOURCES", "Family", "Real", "params"]

SOURCES = Path(__file__).resolve().parent / "sources"


@dataclass(frozen=True)
class Family:
    """A library: the header folders its kernels need, in search order, and names it must be read under."""

    roots: tuple[str, ...]
    own: str
    options: tuple[str, ...] = ("--expt-relaxed-constexpr", "-std=c++17")


FAMILIES = {
    "cccl": Family((), r"toolkit\d*:.*\bcuda/std/"),
    "cutlass": Family(("cutlass",), "cutlass:"),
    # needs a newer CCCL than some toolkits have, in front of the toolkit's own
    "flashinfer": Family(("cccl", "flashinfer"), "flashinfer:"),
    "mlx": Family(("mlx",), "mlx:"),
    "tilelang": Family(("tilelang", "cutlass"), "tilelang:"),
}


@dataclass(frozen=True)
class Real:
    """One kernel: a source of ours that instantiates templates of a public library.

    `texts` must be readable in the result: what assertions say, without a folder of any machine.
    """

    family: str
    source: str
    arch: str
    entries: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    kind: str = "cubin"
    note: str = ""
    more_roots: tuple[str, ...] = ()
    texts: tuple[bytes, ...] = ()
    quick: bool = False

    @property
    def name(self) -> str:
        """The test's id."""
        kind = "" if self.kind == "cubin" else self.kind
        return "-".join(part for part in (self.family, self.source, self.note, kind, self.arch) if part)

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels of the roots, in search order."""
        return FAMILIES[self.family].roots + self.more_roots

    def variant(self, places: dict[str, Path], sources: Path = SOURCES) -> Variant:
        """The request, with headers and sources where they are said to be."""
        return Variant.from_file(
            sources / self.family / f"{self.source}.cu",
            self.arch,
            kind=self.kind,
            options=(*FAMILIES[self.family].options, *self.options),
            roots=[Root(label, str(places[label])) for label in self.labels],
            entries=self.entries,
            family=self.family,
            name=self.name,
        )


def _cutlass() -> Iterable[Real]:
    simt = ("cutlass::Kernel<FloatGemm>",)
    yield Real("cutlass", "gemm_simt", "sm_80", simt, quick=True)
    yield Real("cutlass", "gemm_simt", "sm_100a", simt)
    yield Real("cutlass", "gemm_simt", "compute_90a", simt, kind="ptx")
    both = ("-gencode=arch=compute_80,code=sm_80", "-gencode=arch=compute_90a,code=[sm_90a,compute_90a]")
    yield Real("cutlass", "gemm_simt", "sm_90a", simt, both, kind="fatbin")
    yield Real("cutlass", "gemm_tensorop", "sm_80", ("cutlass::Kernel<HalfGemm>",))
    yield Real("cutlass", "gemm_int8", "sm_80", ("cutlass::Kernel<Int8Gemm>",))
    yield Real("cutlass", "conv2d", "sm_80", ("cutlass::Kernel<Fprop>",))
    yield Real("cutlass", "cute_mma", "sm_80", ("cute_mma",))
    asserts = (b"cutlass/cute/pointer_flagged.hpp",)
    yield Real("cutlass", "hopper_pingpong", "sm_90a", ("cutlass::device_kernel<Pingpong>",), texts=asserts)
    yield Real("cutlass", "hopper_fp8", "sm_90a", ("cutlass::device_kernel<Float8>",), texts=asserts)
    yield Real("cutlass", "blackwell_1sm", "sm_100a", ("cutlass::device_kernel<Blackwell>",), texts=asserts)
    yield Real("cutlass", "blackwell_2sm", "sm_100a", ("cutlass::device_kernel<Pair>",), texts=asserts)


def _flashinfer() -> Iterable[Real]:
    yield Real(
        "flashinfer",
        "activation",
        "sm_90a",
        ("flashinfer::activation::act_and_mul_kernel<half, &(silu(float const&)), 8>",),
        quick=True,
    )
    rope = (
        "flashinfer::BatchQKApplyRotaryPosIdsKernel<false, 128, 8, 16, half, int32_t, 1, false>",
        "flashinfer::BatchQKApplyRotaryPosIdsCosSinCacheKernel<true, 128, 8, 16, nv_bfloat16, int32_t, 1, false>",
    )
    yield Real("flashinfer", "rope", "sm_80", rope)
    yield Real("flashinfer", "rope", "sm_100a", rope)
    for note, arch, cache, sliding, capped in (
        ("half", "sm_80", "half", "false", "false"),
        ("sliding", "sm_90a", "half", "true", "false"),
        ("fp8", "sm_100a", "__nv_fp8_e4m3", "false", "true"),
    ):
        shape = "8, 16" if cache == "half" else "16, 8"
        entry = (
            "flashinfer::BatchDecodeWithPagedKVCacheKernel<(flashinfer::PosEncodingMode)1, 2, 1, "
            f"{shape}, 4, 2, flashinfer::DefaultAttention<false, {sliding}, {capped}, false>, "
            f"flashinfer::BatchDecodeParams<half, {cache}, half, int>>"
        )
        options = (f"-DCACHE={cache}", f"-DSLIDING={sliding}", f"-DSOFT_CAP={capped}")
        yield Real("flashinfer", "decode", arch, (entry,), options, note=note)
    merge = (
        "flashinfer::MergeStateKernel<8, half, half>",
        "flashinfer::MergeStatesKernel<8, half, half>",
        "flashinfer::MergeStatesLargeNumIndexSetsKernel<8, 16, 8, 4, half, half>",
    )
    yield Real("flashinfer", "cascade", "sm_80", merge)
    append = (
        "flashinfer::AppendPagedKVCacheKernel<128, 8, half, int>",
        "flashinfer::AppendPagedKVCacheDecodeKernel<128, 8, nv_bfloat16, int>",
    )
    yield Real("flashinfer", "append", "sm_90a", append)
    packing = "flashinfer::quantization::SegmentPackBitsKernel<(flashinfer::quantization::BitOrder)1, int>"
    yield Real("flashinfer", "quantization", "sm_90a", (packing,))
    top = "flashinfer::sampling::RadixTopKMaskLogitsKernel_MultiCTA<1024, 4, true, float, int32_t>"
    yield Real("flashinfer", "topk", "sm_90a", (top,))


def _mlx() -> Iterable[Real]:
    ops = (
        "mlx::core::cu::binary<mlx::core::cu::LogAddExp, float>",
        "mlx::core::cu::binary<mlx::core::cu::Maximum, half>",
    )
    yield Real("mlx", "elementwise", "sm_90a", ops, quick=True)
    yield Real("mlx", "elementwise", "sm_100a", ops)
    gather = (
        "mlx::core::cu::gather<float, int32_t, 1, 1, int32_t>",
        "mlx::core::cu::gather<half, uint32_t, 2, 2, int64_t>",
    )
    yield Real("mlx", "gather", "sm_80", gather)
    yield Real("mlx", "gather", "sm_90a", gather)
    scatter = (
        "mlx::core::cu::scatter<float, int32_t, mlx::core::cu::ScatterSum, 1, 1, int32_t>",
        "mlx::core::cu::scatter<int32_t, uint32_t, mlx::core::cu::ScatterMax, 2, 1, int64_t>",
        "mlx::core::cu::masked_scatter<float, true, false, int>",
    )
    yield Real("mlx", "scatter", "sm_90a", scatter)
    axis = "scatter_axis<nv_bfloat16, uint32_t, mlx::core::cu::ScatterSum, 2, true, false, int64_t>"
    yield Real("mlx", "scatter_axis", "sm_100a", (f"mlx::core::cu::{axis}",))
    yield Real("mlx", "hadamard", "sm_80", ("mlx::core::cu::hadamard_n<float, 1024, 16, 4, 1>",))
    # three libraries in one closure: MLX's kernel, CUTLASS under it, the toolkit's CCCL under both
    asserts = (b"cutlass/cute/container/array_subbyte.hpp",)
    yield Real("mlx", "qmm", "sm_80", more_roots=("cutlass",), texts=asserts)


def _cccl() -> Iterable[Real]:
    asserts = (b"asserting.cu", b"toolkit/cccl/cuda/std/")
    checked = ("-DCCCL_ENABLE_DEVICE_ASSERTIONS",)
    yield Real("cccl", "asserting", "sm_90a", ("asserting",), checked, texts=asserts, quick=True)
    yield Real("cccl", "asserting", "sm_80", ("asserting",), checked, texts=asserts)
    yield Real("cccl", "block_sort", "sm_80", ("block_sort",))
    yield Real("cccl", "block_sort", "sm_100a", ("block_sort",))
    yield Real("cccl", "device_reduce", "sm_90a")  # CUB's version and the device are in the kernels' names
    yield Real("cccl", "device_scan", "sm_100a")
    yield Real("cccl", "pipeline", "sm_90a", ("pipelined",))


def _tilelang() -> Iterable[Real]:
    yield Real("tilelang", "softmax", "sm_90a", ("softmax",), quick=True)
    yield Real("tilelang", "gemm", "sm_80", ("step",))
    yield Real("tilelang", "gemm", "sm_90a", ("step",))
    yield Real("tilelang", "tma", "sm_90a", ("bulk",))
    yield Real("tilelang", "tma", "sm_100a", ("bulk",))


KERNELS = (*_cutlass(), *_flashinfer(), *_mlx(), *_cccl(), *_tilelang())


def params(kernels: Iterable[Real] = KERNELS) -> list[object]:
    """The kernels as parameters; all but the quick ones are `real`."""
    return [pytest.param(k, id=k.name, marks=() if k.quick else pytest.mark.real) for k in kernels]
