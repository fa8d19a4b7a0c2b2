"""The device headers of MLX, out of its library.

MLX compiles its kernels at run time and carries their sources as texts in `libmlx.so`, not as files.
"""

from __future__ import annotations

from pathlib import Path

__all__ = ["write_headers"]

_FOLDER = "mlx/backend/cuda/device"
_HEADERS = {
    "atomic_ops.cuh": "void atomic_add_general(",
    "binary_ops.cuh": "struct FloorDivide {",
    "cast_op.cuh": "struct CastOp {",
    "complex.cuh": "struct is_complex :",
    "config.h": "#define MAX_NDIM ",
    "cute_dequant.cuh": "struct uint24_t {",
    "fp16_math.cuh": "#define MLX_DEFINE_HALF_OP(",
    "gather.cuh": "__global__ void gather(",
    "hadamard.cuh": "struct Pow2Log2 {",
    "indexing.cuh": "inline __host__ __device__ auto absolute_index(",
    "qmm_sm80.cuh": "void qmm_sm80_kernel(",
    "scatter.cuh": "__global__ void scatter(",
    "scatter_axis.cuh": "__global__ void scatter_axis(",
    "scatter_ops.cuh": "struct ScatterAssign {",
    "ternary_ops.cuh": "struct Select {",
    "unary_ops.cuh": "struct ArcCosh {",
    "utils.cuh": "struct alignas(sizeof(T) * N) AlignedVector {",
}
"""Each header and what no other text has: its file name does not stand beside it."""


def write_headers(library: Path, root: Path) -> None:
    """Write the headers that a `libmlx.so` carries as files under `root`."""
    texts = {part for part in library.read_bytes().split(b"\0") if part.startswith(b"// Copyright")}
    folder = root / _FOLDER
    folder.mkdir(parents=True)
    for name, mark in _HEADERS.items():
        (text,) = (text for text in texts if mark.encode() in text)
        folder.joinpath(name).write_bytes(text)
