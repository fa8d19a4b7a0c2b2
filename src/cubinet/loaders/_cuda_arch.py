"""Which artifact runs on which device: exact, then family, then PTX.

====================  ===================================================================
compiled for          runs on
====================  ===================================================================
`sm_90a`              compute capability 9.0 and nothing else
`sm_100f`             the family: 10.0 and 10.3
`sm_90`               9.0 and later 9.x
PTX `compute_90a`     9.0 only; PTX `compute_100f` the family; PTX `compute_80` 8.0 and later
====================  ===================================================================
"""

from __future__ import annotations

import functools
import re

__all__ = ["runs_on", "wanted"]

_ARCH = re.compile(r"(?:sm|compute|lto)_(\d{1,2})(\d)([af]?)")

_APART = frozenset({(10, 1)})
"""Of another family than the rest of its major version: what became 11.0 in CUDA 13."""


@functools.lru_cache(256)
def runs_on(kind: str, arch: str, capability: tuple[int, int]) -> bool:
    """Whether code of this kind (`cubin`, `ptx`) for this architecture can run on a device."""
    match = _ARCH.fullmatch(arch)
    if match is None:
        return False
    have, suffix = (int(match[1]), int(match[2])), match[3]
    if suffix == "a" or have in _APART or capability in _APART:
        return have == capability or (suffix == "" and kind == "ptx" and capability >= have)
    if suffix == "" and kind == "ptx":
        return capability >= have
    return have[0] == capability[0] and capability[1] >= have[1]


def wanted(capability: tuple[int, int]) -> str:
    """What to compile for a device, best first, in words."""
    number = f"{capability[0]}{capability[1]}"
    exact = f"sm_{number}a, " if capability >= (9, 0) else ""
    family = f"sm_{number}f, " if capability >= (10, 0) else ""
    return f"{exact}{family}sm_{number}, or PTX for compute_{number} or older"
