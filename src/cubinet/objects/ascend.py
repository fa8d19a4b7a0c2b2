"""What an Ascend AI core object tells.

Entries are the global, visible functions; a kernel for both core kinds has two, `<name>_mix_aic` and
`<name>_mix_aiv`, and the runtime is asked for `<name>`: that is the rule here and the runtime's own. The
`.ascend.meta.` sections are hints: a quarter of real objects has none, and some do not walk.
The meanings of `e_flags` are observed on 1,190 objects, not documented: any other value means "not known".
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from cubinet.errors import ObjectError
from cubinet.model import Kernel
from cubinet.objects.ascend_hints import Hints, hints
from cubinet.objects.elf import SHN_UNDEF, STT_FUNC, Elf, Symbol
from cubinet.objects.info import ObjectInfo, damaged
from cubinet.objects.kinds import EM_ASCEND, sniff
from cubinet.objects.names import demangle

__all__ = ["ARCHS", "MAGIC", "AscendObject", "ObjectKernel", "describe", "read"]

_FLAGS = {
    0x8A0000: ("dav-2002", "aicore"),
    0x930000: ("dav-2201", "vector"),
    0x940000: ("dav-2201", "cube"),
    0x990000: ("dav-3510", "vector"),
    0x9A0000: ("dav-3510", "cube"),
}
ARCHS = frozenset(arch for arch, _ in _FLAGS.values())
"""Architectures whose objects can be told from others."""

MAGIC = {"aicore": 0x43554245, "vector": 0x41415246, "cube": 0x41494343}
"""What the runtime wants to be told of an object's core kind when it loads one."""

_MIX = ("_mix_aic", "_mix_aiv")
_STB_GLOBAL, _STV_HIDDEN, _STT_OBJECT, _ET_EXEC = 1, 2, 1, 2
_ARGUMENT_SIZES = "__CCE_KernelArgSize"
_HIDDEN_WORD = 8
_EMBEDDED = "__aicore_rel_"


@dataclass(frozen=True, slots=True)
class ObjectKernel:
    """One kernel of an object.

    Attributes:
        symbol: the name the runtime is asked for.
        entries: the functions behind it; two for a kernel that runs on both core kinds.
        arguments: bytes it reads in all, hidden ones included; `None` if the object does not tell.
        hidden: bytes ahead of the declared arguments that are not the caller's: the address by which the
            cores of a mix kernel wait for each other, on dav-2201.
        hints: what the compiler noted about it.
    """

    symbol: str
    entries: tuple[str, ...]
    arguments: int | None
    hidden: int
    hints: Hints

    @property
    def mix(self) -> bool:
        """Whether it is made for both core kinds together."""
        return self.entries[0].endswith(_MIX)


@dataclass(frozen=True, slots=True)
class AscendObject:
    """What an object is.

    Attributes:
        flags: `e_flags` of its header.
        arch: architecture (`dav-2201`), `None` if the flags are none that are known.
        core: core kind to tell the runtime: `aicore`, `vector` or `cube`, the keys of `MAGIC`.
        linked: whether it can be launched; `False` for what a linker has yet to see.
        kernels: its kernels.
        banner: first line of its compiler's `--version`; empty if it has none.
        linker: the same of its linker.
    """

    flags: int
    arch: str | None
    core: str
    linked: bool
    kernels: tuple[ObjectKernel, ...]
    banner: str
    linker: str

    @property
    def magic(self) -> int:
        """The number for `ACL_RT_BINARY_LOAD_OPT_MAGIC`."""
        return MAGIC[self.core]


def describe(elf: Elf) -> ObjectInfo:
    """Read an Ascend object. Raises `ObjectError` if it contradicts itself.

    `Kernel.params` includes the hidden address that kernels for both core kinds get on dav-2201.
    """
    found = _read(elf)
    return ObjectInfo(
        kind="ascend",
        arch=found.arch,
        archs=(found.arch,) if found.arch else (),
        kernels=tuple(Kernel(name=demangle(k.symbol), symbol=k.symbol, params=k.arguments) for k in found.kernels),
        producer=found.banner,
    )


def read(data: bytes, subject: str = "Ascend object") -> AscendObject:
    """Read an object with everything a loader needs. Raises `ObjectError`, for host objects too."""
    if sniff(data) == "ascend":
        return _read(Elf(data, subject))
    if data.startswith(b"!<arch>\n"):
        raise ObjectError("read", subject, "it is an archive of host objects", _DEVICE_ONLY)
    if sniff(data) == "elf":
        elf = Elf(data, subject)
        if any(section.name.startswith(_EMBEDDED) for section in elf.sections):
            raise ObjectError("read", subject, "it is a host object with device code embedded", _DEVICE_ONLY)
        finding = f"it is for machine {elf.machine:#x}, not {EM_ASCEND:#x}"
        raise ObjectError("read", subject, finding, "compile it for an Ascend device")
    raise ObjectError("read", subject, f"it is of kind {sniff(data)}", "compile it for an Ascend device")


_DEVICE_ONLY = "compile with --cce-aicore-only"


def _read(elf: Elf) -> AscendObject:
    if not elf.sections:
        raise damaged(elf.subject, "it has no section table")
    arch, core = _FLAGS.get(elf.flags, (None, "cube"))
    kernels = _kernels(elf, arch)
    comment = next((section for section in elf.sections if section.name == ".comment"), None)
    banners = elf.body(comment).decode("utf-8", "backslashreplace").split("\0") if comment else []
    return AscendObject(
        flags=elf.flags,
        arch=arch,
        core="aicore" if any(kernel.mix for kernel in kernels) else core,
        linked=elf.type == _ET_EXEC,
        kernels=kernels,
        banner=next((line for line in banners if line and not line.startswith("Linker:")), ""),
        linker=next((line for line in banners if line.startswith("Linker:")), ""),
    )


def _kernels(elf: Elf, arch: str | None) -> tuple[ObjectKernel, ...]:
    sizes: dict[str, int] = {}
    entries: dict[str, list[str]] = {}
    for symbol in elf.symbols():
        if symbol.section == SHN_UNDEF:
            continue
        kind = symbol.info & 0xF
        if kind == STT_FUNC and symbol.info >> 4 == _STB_GLOBAL and symbol.other & 3 != _STV_HIDDEN:
            entry = elf.symbol_name(symbol)
            entries.setdefault(entry[: -len(_MIX[0])] if entry.endswith(_MIX) else entry, []).append(entry)
        elif kind == _STT_OBJECT and symbol.size == 4:
            size = _argument_size(elf, symbol)
            if size is not None:
                sizes[elf.symbol_name(symbol)] = size
    noted = hints(elf)
    return tuple(
        ObjectKernel(
            symbol=name,
            entries=tuple(found),
            arguments=next((sizes[f"{entry}__"] for entry in found if f"{entry}__" in sizes), None),
            hidden=_HIDDEN_WORD if arch == "dav-2201" and found[0].endswith(_MIX) else 0,
            hints=next((noted[entry] for entry in found if entry in noted), Hints()),
        )
        for name, found in entries.items()
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
