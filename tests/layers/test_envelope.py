"""Objects of a remote: what is packed comes back, and what is hostile is refused before it takes room."""

from __future__ import annotations

import os
import struct
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec
import pytest
import zstandard
from blake3 import blake3
from hypothesis import given
from hypothesis import strategies as st

from cubinet.errors import FormatError
from cubinet.model import Digest
from cubinet.store.envelope import OBJECT_LIMIT, expand, pack, squeeze, unpack

HEAD = b'{"a":1}\n'
ROOM = 200 << 20


def digest(data: bytes) -> Digest:
    return Digest(blake3(data).hexdigest())


def named(*blobs: bytes) -> list[tuple[Digest, bytes]]:
    return [(digest(blob), blob) for blob in blobs]


def lie(entries: object, frame: bytes, *, stored: int | None = None, version: int = 1) -> bytes:
    table = {"blobs": entries, "format": version, "stored": len(frame) if stored is None else stored}
    return HEAD + msgspec.json.encode(table) + b"\n" + frame


@contextmanager
def little_room() -> Iterator[None]:
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < ROOM
    finally:
        tracemalloc.stop()


@given(st.lists(st.binary(max_size=2000), max_size=8))
def test_what_is_packed_comes_back(blobs: list[bytes]) -> None:
    data = pack(HEAD, named(*blobs))
    found = unpack(data)
    assert found.head == HEAD
    assert dict(found.blobs) == dict(named(*blobs))
    assert unpack(data, blobs=False) == type(found)(HEAD, {})


@given(st.binary(max_size=5000))
def test_a_frame_has_one_size(data: bytes) -> None:
    frame = squeeze(data)
    assert expand(frame, len(data)) == data
    for size in {0, 1, len(data) - 1, len(data) + 1, 1 << 40, -1} - {len(data)}:
        with pytest.raises(FormatError):
            expand(frame, size)


@given(st.lists(st.binary(max_size=300), max_size=4), st.data())
def test_a_changed_object_is_refused_or_the_same(blobs: list[bytes], draw: st.DataObject) -> None:
    whole = pack(HEAD, named(*blobs))
    data = bytearray(whole)
    for _ in range(draw.draw(st.integers(1, 4))):
        at = draw.draw(st.integers(0, max(0, len(data) - 1)))
        match draw.draw(st.sampled_from(("flip", "cut", "double", "insert"))):
            case "flip" if data:
                data[at] ^= 1 << draw.draw(st.integers(0, 7))
            case "cut":
                del data[at : at + draw.draw(st.integers(1, 40))]
            case "double":
                data[at:at] = data[at : at + 40]
            case _:
                data[at:at] = draw.draw(st.binary(max_size=9))
    try:
        found = unpack(bytes(data))
    except FormatError:
        return
    for name, blob in found.blobs.items():
        assert digest(blob) == name


@given(st.binary(max_size=400))
def test_bytes_of_any_kind_raise_nothing_else(data: bytes) -> None:
    for text in (data, HEAD + data, HEAD + b"{" + data, lie([], data), lie([[digest(data).hex, len(data)]], data)):
        for blobs in (True, False):
            try:
                unpack(text, blobs=blobs)
            except FormatError:
                continue


@pytest.mark.parametrize("entries", [
    [["../../../etc/passwd", 1]],
    [["a" * 63, 1]],
    [["A" * 64, 1]],
    [["a" * 64, -1]],
    [["a" * 64, 1 << 70]],
    [["a" * 64, OBJECT_LIMIT + 1]],
    [["a" * 64, OBJECT_LIMIT]] * 3,
    [["a" * 64, 1.5]],
    [["a" * 64]],
    {"a": 1},
    None,
    [[digest(b"x").hex, 1], [digest(b"x").hex, -1], [digest(b"x").hex, 1]],
])  # fmt: skip
def test_a_table_that_lies_is_refused(entries: object) -> None:
    with little_room(), pytest.raises(FormatError):
        unpack(lie(entries, squeeze(b"x")))


def test_a_table_about_other_bytes_is_refused() -> None:
    frame = squeeze(b"first second")
    right = [[digest(b"first ").hex, 6], [digest(b"second").hex, 6]]
    assert len(unpack(lie(right, frame)).blobs) == 2
    for entries in (right[::-1], [[digest(b"first ").hex, 5], [digest(b"second").hex, 7]], right[:1], right * 2):
        with pytest.raises(FormatError):
            unpack(lie(entries, frame))
    for stored in (0, len(frame) - 1, len(frame) + 1, -1, 1 << 62):
        with pytest.raises(FormatError):
            unpack(lie(right, frame, stored=stored))
    for version in (0, 2, -1):
        with pytest.raises(FormatError):
            unpack(lie(right, frame, version=version))
    with pytest.raises(FormatError):
        unpack(lie(right, frame) + b"more")


def test_a_table_of_a_million_entries_is_refused() -> None:
    entry = b'["' + digest(b"").hex.encode() + b'",0],'
    data = HEAD + b'{"format":1,"stored":0,"blobs":[' + entry * 900_000 + b"]}\n"
    with little_room(), pytest.raises(FormatError):
        unpack(data)


def test_a_head_without_an_end_is_refused() -> None:
    with little_room(), pytest.raises(FormatError):
        unpack(b"x" * OBJECT_LIMIT)
    with little_room(), pytest.raises(FormatError):
        unpack(b"x" * (OBJECT_LIMIT - 1) + b"\n")
    with pytest.raises(FormatError):
        pack(b"x" * (16 << 20) + b"\n", [])


def _frame(says: int | None, window_log: int, blocks: bytes) -> bytes:
    """A zstd frame by hand: magic, descriptor, window, content size, blocks."""
    size = b"" if says is None else struct.pack("<Q", says)
    descriptor = 0 if says is None else 0xC0
    return b"\x28\xb5\x2f\xfd" + bytes([descriptor, (window_log - 10) << 3]) + size + blocks


def _rle(count: int, last: bool = True) -> bytes:
    return struct.pack("<I", int(last) | 1 << 1 | count << 3)[:3] + b"\0"


def test_a_frame_that_says_much_is_refused() -> None:
    for says in (1 << 36, 1 << 62, (1 << 64) - 3, OBJECT_LIMIT + 1, 1 << 20):
        frame = _frame(says, 20, _rle(1000))
        with little_room(), pytest.raises(FormatError):
            expand(frame, 1000)
        with little_room(), pytest.raises(FormatError):
            unpack(lie([["a" * 64, says]], frame))


def test_a_frame_that_holds_more_than_it_says_is_refused() -> None:
    bomb = _frame(1000, 27, b"".join(_rle(128 << 10, last=False) for _ in range(100_000)) + _rle(1))
    with little_room(), pytest.raises(FormatError):
        expand(bomb, 1000)


def test_a_frame_that_holds_less_than_it_says_is_refused() -> None:
    with pytest.raises(FormatError):
        expand(_frame(1000, 20, _rle(999)), 1000)
    assert expand(_frame(1000, 20, _rle(1000)), 1000) == bytes(1000)


def test_a_frame_without_a_size_is_refused() -> None:
    frame = zstandard.ZstdCompressor(write_content_size=False).compress(bytes(1000))
    with pytest.raises(FormatError):
        expand(frame, 1000)
    with little_room(), pytest.raises(FormatError):
        expand(_frame(None, 20, _rle(1000)), 1000)


@pytest.mark.parametrize("window_log", [28, 31, 41])
def test_a_huge_window_is_refused(window_log: int) -> None:
    with little_room(), pytest.raises(FormatError):
        expand(_frame(1000, window_log, _rle(1000)), 1000)


def test_a_second_frame_and_other_kinds_of_frame_are_refused() -> None:
    frame = squeeze(b"x" * 100)
    skippable = struct.pack("<II", 0x184D2A50, 4) + b"skip"
    for data in (frame + frame, frame + skippable, skippable + frame, frame + b"\0", b"", b"x", frame[:-1], skippable):
        with pytest.raises(FormatError):
            expand(data, 100)


def test_a_frame_with_a_dictionary_is_refused() -> None:
    samples: list[bytes | bytearray | memoryview] = [
        os.urandom(20) + b"the same text again and again" * 4 for _ in range(400)
    ]
    words = zstandard.train_dictionary(4096, samples)
    frame = zstandard.ZstdCompressor(dict_data=words).compress(bytes(samples[0]))
    with pytest.raises(FormatError):
        expand(frame, len(samples[0]))


def test_the_largest_object_fits_in_the_room() -> None:
    blob = os.urandom(1 << 20) * 16
    data = pack(HEAD, named(blob, b"small"))
    with little_room():
        assert unpack(data).blobs[digest(blob)] == blob
    zeros = bytes(OBJECT_LIMIT)
    with little_room():
        assert len(unpack(pack(HEAD, [(digest(zeros), zeros)])).blobs) == 1


def test_a_large_blob_comes_back() -> None:
    data = bytes(160 << 20)
    assert expand(squeeze(data), len(data)) == data
