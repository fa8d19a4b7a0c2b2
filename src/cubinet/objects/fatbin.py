"""What a fatbin tells: its members, and of each what the member tells.

A file is one or more wrappers, one after the other (a device section of a host object has one per
source file), each with members. A member that is compressed with zstd (CUDA 13's default for PTX) is
decompressed, all members of a file together to no more than `MOST_EXPANDED` bytes. One compressed
with LZ4 (CUDA 12's default for PTX, and `--compress-mode=speed`) is named without its kernels, and
so is LTO-IR: `Image.note` says why. The layout is undocumented; observed for fatbinary 13.0 and 13.5.
"""

from __future__ import annotations

import struct
from dataclasses import replace
from typing import NamedTuple

from cubinet.model import Kernel
from cubinet.objects import cubin, ptx
from cubinet.objects.elf import Elf
from cubinet.objects.info import Image, ObjectInfo, damaged
from cubinet.objects.kinds import FATBIN_MAGIC

__all__ = ["MOST_EXPANDED", "describe"]

MOST_EXPANDED = 64 << 20
"""Bytes that the members of one file may decompress to."""

_WRAPPER = struct.Struct("<4sHHQ")
_MEMBER = struct.Struct("<HHIQIIHHIIIQQQ")
_VERSION = 1
_KINDS = {1: "ptx", 2: "cubin", 8: "ltoir"}
_LZ4, _ZSTD, _ARCH_SPECIFIC, _FAMILY = 0x2000, 0x8000, 0x100000, 0x200000


class _Member(NamedTuple):
    kind: str
    payload: bytes
    size: int
    sm: int
    flags: int
    expanded: int

    @property
    def compressed(self) -> bool:
        return bool(self.flags & (_LZ4 | _ZSTD))

    @property
    def arch(self) -> str:
        """The architecture as fatbinary wrote it down."""
        suffix = "a" if self.flags & _ARCH_SPECIFIC else "f" if self.flags & _FAMILY else ""
        return f"sm_{self.sm}{suffix}"


def describe(data: bytes, subject: str = "fatbin") -> ObjectInfo:
    """Read a fatbin. Raises `ObjectError` if it, or a member that can be read, contradicts itself."""
    images: list[Image] = []
    left = MOST_EXPANDED
    producer = ""
    for member in _members(data, subject):
        image, info = _image(member, f"{subject}, member {len(images) + 1} ({member.kind})", left)
        images.append(image)
        if info is not None:
            producer = producer or info.producer
            left -= member.expanded if member.compressed else 0
    archs = tuple(dict.fromkeys(arch for image in images for arch in image.archs))
    kernels: dict[str, Kernel] = {}
    for image in sorted(images, key=lambda image: image.kind != "cubin"):  # PTX knows less: it comes last
        for kernel in image.kernels:
            kernels.setdefault(kernel.symbol, kernel)
    return ObjectInfo(
        kind="fatbin",
        arch=archs[0] if len(archs) == 1 else None,
        archs=archs,
        kernels=tuple(kernels.values()),
        producer=producer,
        images=tuple(images),
    )


def _members(data: bytes, subject: str) -> list[_Member]:
    found: list[_Member] = []
    at, end = 0, len(data)
    while True:
        following = data.find(FATBIN_MAGIC, at)
        if data[at : following if following >= 0 else end].strip(b"\0"):  # zeros pad one wrapper from the next
            raise damaged(subject, f"no wrapper at byte {at}")
        if following < 0:
            return found
        at = following
        if at + _WRAPPER.size > end:
            raise damaged(subject, f"cut short: a wrapper begins at byte {at}, the file ends at {end}")
        _, version, header, size = _WRAPPER.unpack_from(data, at)
        if version != _VERSION or header < _WRAPPER.size:
            raise damaged(subject, f"wrapper of version {version} with a header of {header} bytes", "update Cubinet")
        if at + header + size > end:
            raise damaged(
                subject,
                f"cut short: the wrapper at byte {at} ends at {at + header + size}, the file at {end}",
                "look for a full disk and compile it again",
            )
        _wrapped(data, at + header, at + header + size, found, subject)
        at += header + size


def _wrapped(data: bytes, at: int, end: int, found: list[_Member], subject: str) -> None:
    while at < end:
        if at + _MEMBER.size > end:
            raise damaged(subject, f"a member begins at byte {at} of a wrapper that ends at {end}")
        kind, _, header, size, packed, _, _, _, sm, _, _, flags, _, expanded = _MEMBER.unpack_from(data, at)
        if header < _MEMBER.size or at + header + size > end:
            raise damaged(subject, f"the member at byte {at} ends at {at + header + size}, its wrapper at {end}")
        compressed = flags & (_LZ4 | _ZSTD)
        if compressed and packed > size:
            raise damaged(subject, f"the member at byte {at} has {packed} compressed bytes in {size}")
        start = at + header
        payload = data[start : start + (packed if compressed else size)]
        found.append(_Member(_KINDS.get(kind, "unknown"), payload, size, sm, flags, expanded))
        at = start + size


def _image(member: _Member, subject: str, left: int) -> tuple[Image, ObjectInfo | None]:
    image = Image(
        kind=member.kind,
        arch=member.arch,
        archs=(member.arch,),
        size=member.size,
        compressed=member.compressed,
    )
    if member.kind not in ("ptx", "cubin"):
        return replace(image, note=f"{member.kind} holds no kernels that can be listed"), None
    content, note = _content(member, subject, left)
    if content is None:
        return replace(image, note=note), None
    info = ptx.describe(content, subject) if member.kind == "ptx" else cubin.describe(Elf(content, subject))
    # ptxas wrote the member for one architecture and fatbinary noted which; believe the member.
    archs = (member.arch,) if member.arch in info.archs else info.archs
    arch = archs[0] if len(archs) == 1 else None
    return replace(image, arch=arch, archs=archs, kernels=info.kernels), info


def _content(member: _Member, subject: str, left: int) -> tuple[bytes | None, str]:
    """The member's bytes as they were before fatbinary, or `None` and why not."""
    if not member.compressed:
        return member.payload, ""
    if not member.flags & _ZSTD:
        return None, "compressed with LZ4, which is not read"
    if member.expanded > left:
        return None, f"expands to {member.expanded} bytes, more than the {MOST_EXPANDED} read of one file"
    try:
        import zstandard
    except ImportError:
        return None, "compressed with zstd; install zstandard to have it read"
    try:
        with zstandard.ZstdDecompressor(max_window_size=MOST_EXPANDED).stream_reader(member.payload) as reader:
            # One byte more than declared, whatever the frame itself declares: it may lie.
            content = reader.read(member.expanded + 1)
    except zstandard.ZstdError as exc:
        raise damaged(subject, f"its zstd frame cannot be read ({exc})") from exc
    if len(content) != member.expanded:
        raise damaged(subject, f"decompresses to {len(content)} bytes or more, {member.expanded} declared")
    return content, ""
