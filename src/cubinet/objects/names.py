"""Names of kernels: from the symbol to C++ and from what a caller writes to the kernel it means."""

from __future__ import annotations

import re
from functools import lru_cache

from cubinet.model import Kernel
from cubinet.objects.mangled import GiveUpError, Parser
from cubinet.objects.spelling import canonical

__all__ = ["demangle", "names_entry"]

LONGEST = 1 << 14
"""A longer symbol stays as it is."""


_STATIC = re.compile(r"__nv_static_(\d{1,5})_")
_PARAMETERS = re.compile(r"\)\s*$")


def _mangled(symbol: str) -> str:
    """The part of a symbol that is a mangled C++ name; empty if there is none.

    Relocatable code (`-rdc=true`) puts `__nv_static_<length>_<file>_` before names that are local to
    a file.
    """
    prefix = _STATIC.match(symbol)
    name = symbol[prefix.end() + int(prefix[1]) + 1 :] if prefix else symbol
    return name if name.startswith("_Z") and len(name) <= LONGEST else ""


@lru_cache(maxsize=4096)
def demangle(symbol: str) -> str:
    """Give the C++ form of a symbol as `c++filt` writes it, or the symbol itself.

    Never fails and never takes long; names that need a C++ expression to write them stay mangled.
    """
    name = _mangled(symbol)
    if not name:
        return symbol
    try:
        return Parser(name).whole()
    except (GiveUpError, RecursionError):
        return symbol


@lru_cache(maxsize=4096)
def _name_alone(symbol: str) -> str:
    """The qualified name in C++, without return type and parameters; the symbol if it cannot be written."""
    try:
        return Parser(_mangled(symbol)).name_alone()
    except (GiveUpError, RecursionError):
        return symbol


@lru_cache(maxsize=4096)
def _canonical(text: str) -> str:
    return canonical(text)


def names_entry(entry: str, kernel: Kernel) -> bool:
    """Tell whether `entry`, as a caller writes it, means this kernel.

    It does if it is the symbol; or the full C++ name with namespaces (anonymous ones left out) and,
    for a template, its arguments or the first of them, since the rest may be defaults that the symbol
    spells out; or that name with the parameter types. Blanks do not matter,
    nor how a value or a built-in type is spelled: `f<4u, unsigned>` is `f<(int)4, unsigned int>`,
    `f<true>` is `f<(bool)1>`, `f<const float*>` is `f<float const*>`, `f<uint32_t>` is
    `f<unsigned int>`, `f<half>` is `f<__half>`.

    What the symbol does not hold cannot be compared: write the value of a constant, the
    `(ns::Mode)1` of an enumerator and the type behind a `using` as the C++ name in `Kernel.name` has
    them. `f` does not mean `f<float>`.
    """
    if entry in (kernel.symbol, kernel.name):
        return True
    want = _canonical(entry)
    if not _mangled(kernel.symbol):
        return want == kernel.symbol
    if _PARAMETERS.search(entry) and want == _canonical(demangle(kernel.symbol)):
        return True
    name = _canonical(_name_alone(kernel.symbol))
    return want == name or (want.endswith(">") and name.startswith(f"{want[:-1]},"))
