"""Spill counts of kernels.

They are in no object file: ptxas prints them when asked, and asking it changes the notes in what it makes.
So it is asked a second time, beside the build, and only about kernels that can have spilled: a spilled
register lives in local memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from cubinet.model import Kernel

__all__ = ["with_spills"]


def with_spills(kernels: Sequence[Kernel], ask: Callable[[], str]) -> tuple[Kernel, ...]:
    """Kernels with their spill bytes. `ask` runs ptxas verbosely and returns what it printed, or an empty text."""
    if all(kernel.spills is not None for kernel in kernels):
        return tuple(kernels)
    known = [replace(k, spills=0) if k.spills is None and k.local == 0 else k for k in kernels]
    if all(kernel.spills is not None for kernel in known):
        return tuple(known)
    from cubinet.objects.checking import spills

    counts = {symbol: count for (symbol, _), count in spills(ask()).items()}
    return tuple(replace(k, spills=counts.get(k.symbol)) if k.spills is None else k for k in known)
