"""The kernels that the hardware tests and the benchmarks of the loader need, and how each is compiled."""

from __future__ import annotations

import dataclasses
import json
import os
from dataclasses import dataclass
from pathlib import Path

from cubinet.model import Artifact, Fingerprint, Root, Variant
from cubinet.store import Store

__all__ = ["FAMILY", "KERNELS", "Source", "artifact", "prepared", "variant"]

HERE = Path(__file__).resolve().parent
PREPARED = Path(os.environ.get("CUBINET_GPU_STORE") or HERE.parents[1] / "build" / "gpu" / "store")
INDEX = "by-name.json"
"""Beside the records of a prepared store: name → fingerprint."""


@dataclass(frozen=True)
class Source:
    """One kernel file and one way to compile it."""

    file: str
    arch: str = "sm_90a"
    kind: str = "cubin"
    entries: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    cutlass: bool = False


def _family() -> dict[str, Source]:
    """Members of CUTLASS's GEMM family: tile, warp tile, stages, element and output type."""
    made = {}
    shapes = (
        (128, 128, 64, 64, 3),
        (128, 64, 64, 32, 3),
        (64, 128, 32, 64, 3),
        (64, 64, 32, 32, 4),
        (256, 64, 64, 64, 3),
    )
    for m, n, warp_m, warp_n, stages in shapes:
        for element in ("half_t", "bfloat16_t"):
            macros = {
                "TILE_M": m,
                "TILE_N": n,
                "WARP_M": warp_m,
                "WARP_N": warp_n,
                "STAGES": stages,
                "ELEMENT": f"cutlass::{element}",
                "OUTPUT": "float",
            }
            options = ("-std=c++17", "--expt-relaxed-constexpr", *(f"-D{k}={v}" for k, v in macros.items()))
            made[f"gemm-{m}x{n}-{element.removesuffix('_t')}"] = Source(
                "gemm.cu", entries=("gemm",), options=options, cutlass=True
            )
    return made


FAMILY = _family()
BOTH = ("-gencode=arch=compute_80,code=sm_80", "-gencode=arch=compute_90,code=[sm_90,compute_90]")

KERNELS = {
    "plain": Source("plain.cu", entries=("scale",)),
    "scale": Source("scale.cu", entries=("scale<float>", "scale<double>", "add")),
    "arguments": Source("arguments.cu"),
    "launches": Source("launches.cu"),
    "scale-sm_90": Source("plain.cu", "sm_90"),
    "scale-sm_80": Source("plain.cu", "sm_80"),
    "scale-sm_100a": Source("plain.cu", "sm_100a"),
    "scale-ptx-80": Source("plain.cu", "compute_80", "ptx"),
    "scale-ptx-90a": Source("plain.cu", "compute_90a", "ptx"),
    "scale-ptx-100": Source("plain.cu", "compute_100", "ptx"),
    "scale-fatbin": Source("plain.cu", "sm_90", "fatbin", options=BOTH),
    **FAMILY,
}


def variant(name: str, cutlass: Path | None = None) -> Variant:
    """The request for one of the kernels; those of the family need CUTLASS's include folder."""
    source = KERNELS[name]
    roots = [Root("cutlass", str(cutlass))] if source.cutlass else []
    made = Variant.from_file(
        HERE / "kernels" / source.file,
        source.arch,
        kind=source.kind,
        entries=source.entries,
        options=source.options,
        roots=roots,
        family="hardware",
    )
    return dataclasses.replace(made, name=name)


def prepared(folder: Path = PREPARED) -> dict[str, Fingerprint]:
    """What a prepared store has, by name; empty if there is none."""
    try:
        told = json.loads((folder / INDEX).read_text())
    except FileNotFoundError:
        return {}
    return {name: Fingerprint(text) for name, text in told.items()}


def artifact(store: Store, name: str, known: dict[str, Fingerprint]) -> Artifact:
    """One of the kernels: from a prepared store if that has it, else compiled here."""
    if name in known:
        found = store.find(known[name])
        assert found is not None, f"{name} is not in {store.folder}"
        return found
    return store.get_or_compile(variant(name))
