"""What an Ascend AI core object tells.

Entries are the global, visible functions; a kernel for both core kinds has two, `<name>_mix_aic` and
`<name>_mix_aiv`, and the runtime is asked for `<name>`: that is the rule here and the runtime's own.
The meanings of `e_flags` are observed, not documented.
"""

from __future__ import annotations

import struct

from cubinet.model import Kernel
from cubinet.objects.elf import SHN_UNDEF, STT_FUNC, Elf, Symbol
from cubinet.objects.info import ObjectInfo, damaged
from cubinet.objects.names import demangle

__all__ = ["describe"]

_ARCHS = {
    0x8A0000: "dav-2002",
    0x930000: "dav-2201",
    0x940000: "dav-2201",
    0x990000: "dav-3510",
    0x9A0000: "dav-3510",
}
_MIX = ("_mix_aic", "_mix_aiv")
_STB_GLOBAL, _STV_HIDDEN, _STT_OBJECT = 1, 2, 1
_ARGUMENT_SIZES = "__CCE_KernelArgSize"


def describe(elf: Elf) -> ObjectInfo:
    """Read an Ascend object. Raises `ObjectError` if it contradicts itself.

    `Kernel.params` includes the hidden address that kernels for both core kinds get on dav-2201.
    """
    if not elf.sections:
        raise damaged(elf.subject, "it has no section table")
    arch = _ARCHS.get(elf.flags)
    comment = next((section for section in elf.sections if section.name == ".comment"), None)
    banners = elf.body(comment).decode("utf-8", "backslashreplace").split("\0") if comment else []
    return ObjectInfo(
        kind="ascend",
        arch=arch,
        archs=(arch,) if arch else (),
        kernels=_kernels(elf),
        producer=next((line for line in banners if line and not line.startswith("Linker:")), ""),
    )


def _kernels(elf: Elf) -> tuple[Kernel, ...]:
    sizes: dict[str, int] = {}
    entries: dict[str, str] = {}
    for symbol in elf.symbols():
        if symbol.section == SHN_UNDEF:
            continue
        kind = symbol.info & 0xF
        if kind == STT_FUNC and symbol.info >> 4 == _STB_GLOBAL and symbol.other & 3 != _STV_HIDDEN:
            entry = elf.symbol_name(symbol)
            name = entry[: -len(_MIX[0])] if entry.endswith(_MIX) else entry
            entries.setdefault(name, entry)
        elif kind == _STT_OBJECT and symbol.size == 4:
            size = _argument_size(elf, symbol)
            if size is not None:
                sizes[elf.symbol_name(symbol)] = size
    return tuple(
        Kernel(name=demangle(name), symbol=name, params=sizes.get(f"{entry}__")) for name, entry in entries.items()
    )


def _argument_size(elf: Elf, symbol: Symbol) -> int | None:
    """The number behind a symbol in `__CCE_KernelArgSize`; `None` for any other symbol."""
    if symbol.section >= len(elf.sections):
        return None
    section = elf.sections[symbol.section]
    at = symbol.value - section.address
    if section.name != _ARGUMENT_SIZES or not 0 <= at <= section.size - 4:
        return None
    (size,) = struct.unpack_from("<I", elf.data, section.offset + at)
    return int(size)
