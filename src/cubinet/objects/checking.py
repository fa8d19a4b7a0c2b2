"""What a compiler adapter asks of every output before anybody else sees it.

An exit status proves nothing: with a full disk ptxas of CUDA 12.9 and 13.0 writes half a cubin and
exits with 0 (13.5 no longer does).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from cubinet.errors import ObjectError
from cubinet.model import Kernel
from cubinet.objects import ascend, cubin
from cubinet.objects.elf import Elf
from cubinet.objects.info import Image, ObjectInfo
from cubinet.objects.kinds import sniff
from cubinet.objects.names import names_entry
from cubinet.objects.reader import inspect, unreadable

__all__ = ["check", "spills"]

FULL_DISK = "look for a full disk and compile it again"

_MOST_LISTED = 20
_LONGEST_LISTED = 200
_COMPILING = re.compile(r"Compiling entry function '([^'\n]*)' for '([^'\n]*)'")
_PROPERTIES = re.compile(r"Function properties for '?([^'\s]+)")
_SPILLS = re.compile(r"(\d{1,12}) bytes spill stores, (\d{1,12}) bytes spill loads")


def check(data: bytes, *, kind: str, arch: str, entries: Sequence[str], log: str = "") -> tuple[Kernel, ...]:
    """Check a compiler's output against what was asked for, and return its kernels.

    Args:
        data: the output, whole.
        kind: `cubin`, `ptx`, `fatbin`, or another kind that `sniff` knows.
        arch: architecture asked for, as `sm_90a`; for PTX `compute_90a` means the same. A cubin that
            cannot tell `sm_100` from `sm_100f` passes for both, and not for `sm_100a`. A fatbin must
            have a cubin for it or, if it has no cubin at all, PTX.
        entries: kernels that must be there, as `names_entry` takes them.
        log: what the compiler printed; with `ptxas -v` in it, `Kernel.spills` is filled in.

    Raises `ObjectError` if the output is empty, of another kind, for another machine or
    architecture, cut short, followed by more than its own tables account for, or lacks an entry.
    """
    subject = f"{kind} for {arch}"
    if not data:
        raise ObjectError("use compiled", subject, "it is empty", FULL_DISK)
    found = sniff(data)
    if found != kind:
        finding = f"it is of kind {found}" if found not in ("unknown", "elf") else unreadable(data, found).finding
        raise ObjectError("use compiled", subject, finding, f"ask the compiler for a {kind}")
    info = _whole(data, kind, subject) if kind in ("cubin", "ascend") else inspect(data)
    if kind == "fatbin":
        kernels, known = _of_images(info.images, arch, subject)
    else:
        _same_arch(info, arch, subject)
        kernels, known = info.kernels, kind != "ltoir"
    if known:
        _all_there(kernels, entries, subject)
    elif entries:
        raise ObjectError(
            "find entries in", subject, "its kernels cannot be listed", "compile with --compress-mode=none"
        )
    counts = spills(log)
    return tuple(replace(k, spills=_spilled(counts, k.symbol, arch)) for k in kernels) if counts else kernels


def _whole(data: bytes, kind: str, subject: str) -> ObjectInfo:
    elf = Elf(data, subject)
    if elf.end != len(data):
        finding = f"its tables end at byte {elf.end}, the file at {len(data)}"
        raise ObjectError("use compiled", subject, finding, FULL_DISK)
    return cubin.describe(elf) if kind == "cubin" else ascend.describe(elf)


def _real(arch: str) -> str:
    return arch.replace("compute_", "sm_", 1) if arch.startswith("compute_") else arch


def _same_arch(info: ObjectInfo, arch: str, subject: str) -> None:
    asked = _real(arch) if info.kind == "ptx" else arch
    if info.kind != "ltoir" and asked not in info.archs:  # LTO-IR does not tell
        have = " or ".join(info.archs) or "an architecture that is not known"
        raise ObjectError("use compiled", subject, f"it is for {have}", "check the target and the compiler's options")


def _of_images(images: tuple[Image, ...], arch: str, subject: str) -> tuple[tuple[Kernel, ...], bool]:
    """Kernels of the members for `arch`, and whether all these members could be read."""
    real = _real(arch)
    cubins = [] if real != arch else [image for image in images if image.kind == "cubin"]
    usable = cubins or [image for image in images if image.kind in ("ptx", "ltoir")]
    chosen = [image for image in usable if real in image.archs]
    if not chosen:
        have = ", ".join(f"{image.kind} for {' or '.join(image.archs)}" for image in images[:_MOST_LISTED])
        raise ObjectError("use compiled", subject, f"it has {have or 'no members'}", "check the target and -gencode")
    kernels = {kernel.symbol: kernel for image in chosen for kernel in image.kernels}
    return tuple(kernels.values()), not any(image.note for image in chosen)


def _all_there(kernels: tuple[Kernel, ...], entries: Sequence[str], subject: str) -> None:
    missing = dict.fromkeys(entries)
    for kernel in kernels:
        for entry in [entry for entry in missing if names_entry(entry, kernel)]:
            del missing[entry]
        if not missing:
            return
    if missing:
        names = [kernel.name[:_LONGEST_LISTED] for kernel in kernels[:_MOST_LISTED]]
        more = f" and {len(kernels) - len(names)} more" if len(kernels) > len(names) else ""
        raise ObjectError(
            "find entry",
            ", ".join(repr(entry) for entry in missing),
            f"the {subject} has {', '.join(names) or 'no kernels'}{more}",
            "name kernels as they are listed here, and instantiate templates in the source",
        )


def spills(log: str) -> dict[tuple[str, str], int]:
    """Read what `ptxas -v` printed: bytes of spill stores and loads by symbol and architecture.

    Device functions that were not inlined are in it under their own symbols.
    """
    found: dict[tuple[str, str], int] = {}
    function = arch = ""
    for line in log.splitlines():
        compiling = _COMPILING.search(line)
        properties = _PROPERTIES.search(line)
        if compiling is not None:
            function, arch = compiling[1], compiling[2]
        elif properties is not None:
            function = properties[1]
        elif (spilled := _SPILLS.search(line)) is not None and function:
            found[function, arch] = int(spilled[1]) + int(spilled[2])
    return found


def _spilled(counts: dict[tuple[str, str], int], symbol: str, arch: str) -> int | None:
    return counts.get((symbol, _real(arch)))
