"""Objects of a remote: a sealed line, then what it speaks of. `docs/reference/remote-layout.md` is the contract.

A record object is the record's line exactly as a local layer has it, a line that says which blobs follow, and one zstd
frame with these blobs one after the other; a manifest object is the same with observation sets. So one GET brings
a build. Larger blobs are objects of their own, one frame each.

Everything read is hostile until its digest is right: sizes are bounded before anything is unpacked.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import msgspec
import zstandard
from blake3 import blake3

from cubinet.errors import FormatError
from cubinet.model import Digest

__all__ = ["BLOB_LIMIT", "INLINE_LIMIT", "OBJECT_LIMIT", "Envelope", "expand", "pack", "squeeze", "unpack"]

INLINE_LIMIT = 256 << 10
"""Bytes up to which a blob travels inside its record's object."""

OBJECT_LIMIT = 64 << 20
"""Most bytes of a record or manifest object, and of what its frame unpacks to."""

BLOB_LIMIT = 2 << 30
"""Most bytes of a blob."""

_HEAD_LIMIT, _TABLE_LIMIT = 8 << 20, 64 << 10
"""Most bytes of the two lines: what is parsed takes many times the room of its text."""

_LEVEL = 3
_WINDOW = 1 << 27

_local = threading.local()  # contexts are dear to make, and not for two threads at once


class _Table(msgspec.Struct):
    format: int
    blobs: tuple[tuple[str, int], ...]
    stored: int


_table_decoder = msgspec.json.Decoder(_Table)


@dataclass(frozen=True, slots=True)
class Envelope:
    """An object that was unpacked: its first line with the newline, and the verified blobs by digest."""

    head: bytes
    blobs: Mapping[Digest, bytes]


def squeeze(data: bytes) -> bytes:
    """One zstd frame that tells its content's size."""
    if not hasattr(_local, "packer"):
        _local.packer = zstandard.ZstdCompressor(level=_LEVEL, write_checksum=False, write_content_size=True)
    packed: bytes = _local.packer.compress(data)
    return packed


def expand(frame: bytes | memoryview, size: int) -> bytes:
    """The `size` bytes in a frame. Raises `FormatError` for any other size, before room is made for it."""
    try:
        facts = zstandard.get_frame_parameters(frame)
        if facts.content_size != size or facts.window_size > max(_WINDOW, size) or facts.dict_id:
            raise FormatError("unpack", "", f"its frame says {facts.content_size} bytes, expected {size}")
        if not hasattr(_local, "unpacker"):
            _local.unpacker = zstandard.ZstdDecompressor(max_window_size=_WINDOW)
        data: bytes = _local.unpacker.decompress(frame, max_output_size=size, allow_extra_data=False) if size else b""
    except (zstandard.ZstdError, ValueError) as exc:
        raise FormatError("unpack", "", f"not a zstd frame, or a damaged one ({exc})") from exc
    if len(data) != size:
        raise FormatError("unpack", "", f"it holds {len(data)} bytes, expected {size}")
    return data


def pack(head: bytes, blobs: Iterable[tuple[Digest, bytes]]) -> bytes:
    """An object: `head`, which ends in its only newline, and blobs."""
    blobs = list(blobs)
    if len(head) > _HEAD_LIMIT:
        raise FormatError("write object", "", f"its {len(head)} bytes are more than a remote takes")
    frame = squeeze(b"".join(data for _, data in blobs))
    table = _Table(1, tuple((digest.hex, len(data)) for digest, data in blobs), len(frame))
    return head + msgspec.json.encode(table, order="sorted") + b"\n" + frame


def unpack(data: bytes, *, blobs: bool = True) -> Envelope:
    """The inverse. Raises `FormatError` for anything that `pack` does not make, and for blobs without their digest.

    With `blobs` false only the first line is looked at.
    """
    end = data.find(b"\n", 0, _HEAD_LIMIT) + 1
    if not end:
        raise FormatError("read object", "", "empty, cut short, or not in this format")
    if not blobs:
        return Envelope(data[:end], {})
    second = data.find(b"\n", end, end + _TABLE_LIMIT) + 1
    try:
        table = _table_decoder.decode(data[end : second or end])
        named = [(Digest(name), size) for name, size in table.blobs]
    except (msgspec.DecodeError, RecursionError, ValueError) as exc:
        raise FormatError("read object", "", f"its list of blobs is damaged ({exc})") from exc
    total = sum(size for _, size in named)
    if table.format != 1 or any(size < 0 for _, size in named) or total > OBJECT_LIMIT:
        raise FormatError("read object", "", "its list of blobs is impossible")
    if len(data) - second != table.stored:
        raise FormatError("read object", "", f"{len(data) - second} bytes follow, expected {table.stored}")
    body = memoryview(expand(memoryview(data)[second:], total))
    found, at = {}, 0
    for digest, size in named:
        piece = bytes(body[at : at + size])
        at += size
        if blake3(piece).hexdigest() != digest.hex:
            raise FormatError("read object", "", f"its blob {digest} does not have its digest")
        found[digest] = piece
    return Envelope(data[:end], found)
