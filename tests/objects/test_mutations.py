"""Real files, damaged at random: whatever the bytes, an answer or an `ObjectError`, and soon."""

from __future__ import annotations

import contextlib
import struct
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cubinet.errors import ObjectError
from cubinet.objects import ObjectInfo, check, inspect, sniff

from .conftest import DATA, Corpus
from .handmade import elf, fatbin, member

NAMES = ("sm_90a", "sm_100f", "relocatable", "lineinfo", "two.fatbin", "small.fatbin", "fast.fatbin", "sm_90a.ptx")
OLD = sorted(path.name for path in DATA.glob("*.cubin"))
NUMBERS = [0, 1, 2, 0x7F, 0x80, 0xFF, 0x7FFF, 0xFFFF, 2**31 - 1, 2**31, 2**32 - 1, 2**40, 2**63 - 1, 2**63, 2**64 - 1]
SECONDS = 3.0
# One example takes a millisecond: many, in proportion to what the profile asks for.
many = settings(max_examples=10 * settings().max_examples)


def survives(data: bytes) -> None:
    """Everything that takes bytes, on these bytes."""
    start = time.perf_counter()
    sniff(data)
    try:
        info = inspect(data)
    except ObjectError as exc:
        str(exc).encode()
    else:
        assert isinstance(info, ObjectInfo)
        for kernel in (*info.kernels, *(kernel for image in info.images for kernel in image.kernels)):
            (kernel.name + kernel.symbol).encode()
            for number in (kernel.regs, kernel.shared, kernel.local, kernel.const, kernel.params):
                assert number is None or 0 <= number < 2**34
    for kind in ("cubin", "ptx", "fatbin"):
        try:
            check(data, kind=kind, arch="sm_90a", entries=["scale", "fill<float>"])
        except ObjectError as exc:
            str(exc).encode()
    assert time.perf_counter() - start < SECONDS


def places(data: bytes) -> list[int]:
    """Where a change is most likely to matter: header, tables, and the first bytes of each section."""
    spots = [*range(64)]
    if sniff(data) == "cubin":
        shoff, count = struct.unpack_from("<Q", data, 40)[0], struct.unpack_from("<H", data, 60)[0]
        spots += range(shoff, shoff + 64 * count)
        for row in range(shoff, shoff + 64 * count, 64):
            offset, size = struct.unpack_from("<QQ", data, row + 24)
            spots += range(offset, min(offset + min(size, 96), len(data)))
    return [spot for spot in spots if spot < len(data)]


@st.composite
def damaged(draw: st.DrawFn, data: bytes, other: bytes) -> bytes:
    """One to six changes: a bit, a number, a cut, a removed, repeated or foreign piece."""
    changed = bytearray(data)
    spots = places(data)
    for _ in range(draw(st.integers(1, 6))):
        at = draw(st.one_of(st.sampled_from(spots), st.integers(0, len(data) - 1)))
        at = min(at, max(len(changed) - 1, 0))
        what = draw(st.sampled_from(["bit", "number", "number", "number", "cut", "remove", "repeat", "splice"]))
        length = draw(st.integers(1, 4096))
        if what == "bit" and changed:
            changed[at] ^= 1 << draw(st.integers(0, 7))
        elif what == "number":
            size = draw(st.sampled_from([1, 2, 4, 8]))
            number = draw(st.one_of(st.sampled_from(NUMBERS), st.integers(0, 2**64 - 1)))
            piece = (number % 2 ** (8 * size)).to_bytes(size, "little")
            changed[at : at + size] = piece[: len(changed) - at]
        elif what == "cut":
            del changed[at:]
        elif what == "remove":
            del changed[at : at + length]
        elif what == "repeat":
            changed[at:at] = changed[at : at + length]
        elif what == "splice":
            source = draw(st.integers(0, len(other) - 1))
            changed[at : at + length] = other[source : source + length]
    return bytes(changed)


@many
@given(st.data())
def test_a_damaged_file_is_read_or_refused(corpus: Corpus, data: st.DataObject) -> None:
    files = {name: corpus.read(name) for name in NAMES}
    name, other = data.draw(st.sampled_from(NAMES)), data.draw(st.sampled_from(NAMES))
    survives(data.draw(damaged(files[name], files[other])))


@many
@given(st.data())
def test_a_damaged_file_of_ptxas_12_is_read_or_refused(data: st.DataObject) -> None:
    name, other = data.draw(st.sampled_from(OLD)), data.draw(st.sampled_from(OLD))
    survives(data.draw(damaged((DATA / name).read_bytes(), (DATA / other).read_bytes())))


@many
@given(st.data())
def test_a_damaged_member_of_a_fatbin_is_read_or_refused(data: st.DataObject) -> None:
    whole = (DATA / "ptxas12.9-sm_90a.cubin").read_bytes()
    one = member(
        data.draw(damaged(whole, whole)),
        kind=data.draw(st.integers(0, 10)),
        sm=data.draw(st.sampled_from([0, 80, 90, 2**32 - 1])),
        flags=data.draw(st.sampled_from([0, 0x11, 0x100011, 0x2011, 0x8011, 2**64 - 1])),
        expanded=data.draw(st.sampled_from(NUMBERS)),
        packed=data.draw(st.sampled_from([0, 1, 2**32 - 1])),
        header=data.draw(st.sampled_from([0, 63, 64, 64, 64, 72, 2**32 - 1])),
        size=data.draw(st.sampled_from([None, None, None, 0, 8, 2**63])),
    )
    survives(fatbin(one))


@many
@given(st.binary(max_size=400))
def test_noise_behind_each_magic_is_read_or_refused(noise: bytes) -> None:
    for magic in (b"", b"\x7fELF\x02\x01", elf()[:64], fatbin()[:8], b"\xed\x43\x4e\x7f", b".version 9.0"):
        survives(magic + noise)


@pytest.mark.parametrize("name", OLD)
@pytest.mark.parametrize("value", [0x00, 0x01, 0x7F, 0x80, 0xFF])
def test_each_byte_that_frames_the_file_can_take_any_value(name: str, value: int) -> None:
    data = bytearray((DATA / name).read_bytes())
    start = time.perf_counter()
    for at in places(bytes(data)):
        before, data[at] = data[at], value
        with contextlib.suppress(ObjectError):
            inspect(bytes(data))
        data[at] = before
    assert time.perf_counter() - start < 10 * SECONDS


def test_a_fatbin_of_many_tiny_members_is_read_in_time() -> None:
    survives(fatbin(*[member(b"", kind=9)] * 20_000))
    survives(fatbin(member(elf())) * 2_000)
    survives(fatbin() * 20_000)
    survives(fatbin() + bytes(4 << 20) + fatbin())
