"""Names of kernels: from the symbol to C++ and from what a caller writes to the kernel it means."""

from __future__ import annotations

import re
from functools import lru_cache

from cubinet.model import Kernel
from cubinet.objects.mangled import GiveUpError, Parser
from cubinet.objects.spelling import canonical

__all__ = ["demangle", "names_entry"]

LONGEST = 1 << 16
"""A longer symbol stays as it is."""


@lru_cache(maxsize=4096)
def demangle(symbol: str) -> str:
    """Give the C++ form of a symbol as `c++filt` writes it, or the symbol itself.

    Never fails and never takes long; names that need a C++ expression to write them stay mangled.
    """
    if not symbol.startswith("_Z") or len(symbol) > LONGEST:
        return symbol
    try:
        return Parser(symbol).whole()
    except (GiveUpError, RecursionError):
        return symbol


@lru_cache(maxsize=4096)
def _name_alone(symbol: str) -> str:
    """The qualified name in C++, without return type and parameters; the symbol if it is none."""
    if not symbol.startswith("_Z") or len(symbol) > LONGEST:
        return symbol
    try:
        return Parser(symbol).name_alone()
    except (GiveUpError, RecursionError):
        return symbol


@lru_cache(maxsize=4096)
def _canonical(text: str) -> str:
    return canonical(text)


_PARAMETERS = re.compile(r"\)\s*$")


def names_entry(entry: str, kernel: Kernel) -> bool:
    """Tell whether `entry`, as a caller writes it, means this kernel.

    It does if it is the symbol; or the full C++ name with namespaces (anonymous ones left out) and,
    for a template, all its arguments; or that name with the parameter types. Blanks do not matter,
    nor how a value or a built-in type is spelled: `f<4u, unsigned>` is `f<(int)4, unsigned int>`,
    `f<true>` is `f<(bool)1>`, `f<const float*>` is `f<float const*>`, `f<uint32_t>` is
    `f<unsigned int>`, `f<half>` is `f<__half>`.

    What the symbol does not hold cannot be compared: write the value of a constant, the
    `(ns::Mode)1` of an enumerator, the type behind a `using`, and default arguments, as the C++
    name in `Kernel.name` has them. `f` does not mean `f<float>`.
    """
    if entry in (kernel.symbol, kernel.name):
        return True
    if not kernel.symbol.startswith("_Z"):
        return _canonical(entry) == kernel.symbol
    want = _canonical(entry)
    if _PARAMETERS.search(entry) and want == _canonical(demangle(kernel.symbol)):
        return True
    return want == _canonical(_name_alone(kernel.symbol))
