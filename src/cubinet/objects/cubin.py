"""What a cubin tells without a device, a driver or cuobjdump.

The numbers are those that `cuobjdump -res-usage` prints:

=============  ===========================  =================================================
`Kernel`       cuobjdump                    where it lies
=============  ===========================  =================================================
`regs`         `REG`                        `.nv.info`, REGCOUNT of the kernel's symbol
`shared`       `SHARED`                     size of `.nv.shared.<kernel>`
`local`        `STACK` + `LOCAL`            `.nv.info`, MIN_STACK_SIZE; size of `.nv.local.<kernel>`
`const`        `CONSTANT[0]`                size of `.nv.constant0.<kernel>`
`params`       not printed                  `.nv.info.<kernel>`, CBANK_PARAM_SIZE
=============  ===========================  =================================================

`shared` is static shared memory. From sm_90 on, a kernel of a file that uses shared memory anywhere
counts 1,024 bytes more than its source declares: the driver's reserved block. `local` is what one
thread needs with all functions it calls. For a recursive kernel that is the least it needs, or
`None` where ptxas says that it cannot tell (`-G`; cuobjdump prints UNKNOWN); in a relocatable object
(`-rdc=true`), where the linker fills it in later, it is `None` though cuobjdump prints 0. `const` is
the driver's area and the parameters. Spills are not recorded.

Both ELF ABIs are read: 8 (CUDA 13, and 12.9 for sm_100 and up) and 7 (CUDA 12.9 and older).
Checked against cuobjdump 13.5 on files of ptxas 12.9, 13.0 and 13.5.
"""

from __future__ import annotations

from cubinet.model import Kernel
from cubinet.objects.attributes import (
    CBANK_PARAM_SIZE,
    COMPAT_ARCH_SPECIFIC,
    MIN_STACK_SIZE,
    REGCOUNT,
    Tool,
    attributes,
    pairs,
    tools,
)
from cubinet.objects.elf import SHN_UNDEF, STT_FUNC, Elf, Section
from cubinet.objects.info import ObjectInfo, damaged
from cubinet.objects.names import demangle

__all__ = ["describe"]


ENTRY_FLAG = 0x10
"""In a symbol's `st_other`: this function is a kernel. Others are device functions."""

NEW_ABI = 0x41
OLD_ABI_ARCH_SPECIFIC = 0x800
NEW_ABI_ARCH_SPECIFIC = 0x08
"""`a` in `e_flags` of the new ABI. Only ptxas 12.9 sets it; 13.0 moved the fact to `.nv.compat`."""

FIRST_SUFFIX, FIRST_FAMILY = 90, 100
"""sm_90a was the first architecture with a variant, sm_100f the first family."""

DEMANGLED_BYTES = 1 << 19
"""`Kernel.name` is the symbol itself after this many bytes of symbols in one file: a bound on time."""

UNKNOWN_STACK = 0xFFFFFFFF

_ARCH_OPTIONS = ("-arch", "--gpu-name")


def describe(elf: Elf) -> ObjectInfo:
    """Read a cubin. Raises `ObjectError` if it contradicts itself."""
    if not elf.sections:
        raise damaged(elf.subject, "it has no section table")
    sections = {section.name: section for section in elf.sections}
    ran = _tools(elf, sections)
    archs = _archs(elf, sections, ran)
    ptxas = next((tool for tool in ran if tool.name == "ptxas"), ran[0] if ran else None)
    return ObjectInfo(
        kind="cubin",
        arch=archs[0] if len(archs) == 1 else None,
        archs=archs,
        kernels=_kernels(elf, sections),
        producer=ptxas.banner if ptxas else "",
        options=ptxas.options if ptxas else (),
    )


def _tools(elf: Elf, sections: dict[str, Section]) -> list[Tool]:
    note = sections.get(".note.nv.tkinfo")
    return tools(elf.body(note), elf.subject) if note else []


def _archs(elf: Elf, sections: dict[str, Section], ran: list[Tool]) -> tuple[str, ...]:
    """All architectures that the file can be for, by what it tells; only one if it tells enough."""
    new = elf.os_abi == NEW_ABI
    number = elf.flags >> 8 & 0xFF if new else elf.flags & 0xFF
    plain = f"sm_{number}"
    if number < FIRST_SUFFIX:
        return (plain,)
    if not new:
        return (plain + "a" if elf.flags & OLD_ABI_ARCH_SPECIFIC else plain,)
    known = (plain, plain + "a", plain + "f") if number >= FIRST_FAMILY else (plain, plain + "a")
    told = next((arch for tool in ran if (arch := _told(tool.options)) in known), "")
    if told:
        return (told,)
    if elf.flags & NEW_ABI_ARCH_SPECIFIC:
        return (plain + "a",)
    compat = sections.get(".nv.compat")
    for attribute, value, _ in attributes(elf.body(compat), elf.subject) if compat else ():
        if attribute == COMPAT_ARCH_SPECIFIC:
            return (plain + "a",) if value else tuple(arch for arch in known if not arch.endswith("a"))
    return known


def _told(options: tuple[str, ...]) -> str:
    """The architecture that ptxas was run for."""
    for option, following in zip(options, (*options, "")[1:], strict=True):
        name, equals, value = option.partition("=")
        if name in _ARCH_OPTIONS:
            return value if equals else following
    return ""


def _kernels(elf: Elf, sections: dict[str, Section]) -> tuple[Kernel, ...]:
    registers, stacks = _counts(elf, sections)
    made: dict[str, Kernel] = {}
    length = 0
    for index, symbol in enumerate(elf.symbols()):
        if symbol.info & 0xF != STT_FUNC or not symbol.other & ENTRY_FLAG or symbol.section == SHN_UNDEF:
            continue
        name = elf.symbol_name(symbol)
        if name in made:
            continue
        length += len(name)
        local = sections.get(f".nv.local.{name}")
        stack = stacks.get(index)
        shared = sections.get(f".nv.shared.{name}")
        const = sections.get(f".nv.constant0.{name}")
        made[name] = Kernel(
            name=demangle(name) if length <= DEMANGLED_BYTES else name,
            symbol=name,
            regs=registers.get(index),
            shared=shared.size if shared else 0,
            local=None if stack is None and local is None else (stack or 0) + (local.size if local else 0),
            const=const.size if const else None,
            params=_params(elf, sections.get(f".nv.info.{name}")),
        )
    return tuple(made.values())


def _counts(elf: Elf, sections: dict[str, Section]) -> tuple[dict[int, int], dict[int, int]]:
    """Registers and stack bytes by symbol index."""
    registers: dict[int, int] = {}
    stacks: dict[int, int] = {}
    info = sections.get(".nv.info")
    for attribute, _, payload in attributes(elf.body(info), elf.subject) if info else ():
        if attribute == REGCOUNT:
            registers.update(pairs(payload))
        elif attribute == MIN_STACK_SIZE:
            stacks.update((symbol, size) for symbol, size in pairs(payload) if size != UNKNOWN_STACK)
    return registers, stacks


def _params(elf: Elf, info: Section | None) -> int | None:
    """Bytes of parameters: 0 if the kernel has a record of itself that names none."""
    if info is None:
        return None
    return next((value for attr, value, _ in attributes(elf.body(info), elf.subject) if attr == CBANK_PARAM_SIZE), 0)
