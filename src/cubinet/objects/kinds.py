"""What kind of file some bytes are, by their content alone."""

from __future__ import annotations

import struct

__all__ = ["EM_ASCEND", "EM_CUDA", "FATBIN_MAGIC", "LTOIR_MAGIC", "sniff"]

EM_CUDA = 190
EM_ASCEND = 0x1029
"""Huawei AI core (`hiipu64`); observed on 1,190 objects, registered nowhere."""

ELF_MAGIC = b"\x7fELF"
FATBIN_MAGIC = b"\x50\xed\x55\xba"
LTOIR_MAGIC = b"\xed\x43\x4e\x7f"

_BLANKS = b" \t\r\n\v\f"


def sniff(data: bytes) -> str:
    """Tell a file's kind by its first bytes, never by its name.

    Returns `cubin`, `ptx`, `fatbin`, `ltoir` (what NVRTC makes with `-dlto`), `ascend`, `elf` (any
    other ELF file, such as a host object), or `unknown`. Says nothing about whether the rest is
    whole: `inspect` and `check` do.
    """
    if data.startswith(ELF_MAGIC):
        return _elf(data)
    if data.startswith(FATBIN_MAGIC):
        return "fatbin"
    if data.startswith(LTOIR_MAGIC):
        return "ltoir"
    return "ptx" if _is_ptx(data) else "unknown"


def _elf(data: bytes) -> str:
    if len(data) < 20 or data[4:6] != b"\x02\x01":
        return "elf"
    (machine,) = struct.unpack_from("<H", data, 18)
    return {EM_CUDA: "cubin", EM_ASCEND: "ascend"}.get(machine, "elf")


def _is_ptx(data: bytes) -> bool:
    """PTX begins with `.version`, after comments and blank lines."""
    at = 0
    while True:
        while data[at : at + 1] and data[at] in _BLANKS:
            at += 1
        if data.startswith(b"//", at):
            at = data.find(b"\n", at)
        elif data.startswith(b"/*", at):
            at = data.find(b"*/", at + 2) + 2
            at = -1 if at == 1 else at
        else:
            return data.startswith(b".version", at)
        if at < 0:
            return False
