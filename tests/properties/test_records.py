"""Laws of the record format: what was written is read, and nothing else is."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cubinet.errors import FormatError
from cubinet.model import Action, Digest, Record
from cubinet.store.format import (
    Failure,
    decode_failure,
    decode_manifest,
    decode_record,
    encode_failure,
    encode_manifest,
    encode_record,
)
from cubinet.testing.samples import build
from cubinet.testing.strategies import actions, digests, records, texts


@given(records())
def test_a_record_comes_back_as_it_was(record: Record) -> None:
    data = encode_record(record)
    assert decode_record(data) == record
    assert encode_record(decode_record(data)) == data


@given(actions(), st.lists(digests(), max_size=16))
def test_a_manifest_comes_back_as_it_was(action: Action, candidates: list[Digest]) -> None:
    assert decode_manifest(encode_manifest(action, tuple(candidates))) == (action, tuple(candidates))


@given(st.lists(texts(), min_size=7, max_size=7), st.lists(texts(), max_size=3), st.floats(0, 1e12))
def test_a_failure_comes_back_as_it_was(facts: list[str], command: list[str], expires: float) -> None:
    action, subject, finding, remedy, log, toolchain, observed = facts
    failure = Failure(1, action, subject, finding, remedy, log, tuple(command), toolchain, observed, expires)
    assert decode_failure(encode_failure(failure)) == failure


@given(records(), st.data())
def test_a_record_with_one_byte_changed_is_refused(record: Record, data: st.DataObject) -> None:
    raw = bytearray(encode_record(record))
    position = data.draw(st.integers(0, len(raw) - 1))
    raw[position] ^= data.draw(st.integers(1, 255))
    with pytest.raises(FormatError):
        decode_record(bytes(raw))


@given(records(), st.data())
def test_a_record_that_is_cut_or_longer_is_refused(record: Record, data: st.DataObject) -> None:
    raw = encode_record(record)
    with pytest.raises(FormatError):
        decode_record(raw[: data.draw(st.integers(0, len(raw) - 1))])
    with pytest.raises(FormatError):
        decode_record(raw + data.draw(st.binary(min_size=1, max_size=5)))


def test_every_single_bit_of_a_record_counts() -> None:
    raw = bytearray(encode_record(build().record))
    for position in range(len(raw)):
        for bit in range(8):
            raw[position] ^= 1 << bit
            with pytest.raises(FormatError):
                decode_record(bytes(raw))
            raw[position] ^= 1 << bit
    assert decode_record(bytes(raw)) == build().record


@given(st.binary(max_size=300))
def test_junk_is_no_record(data: bytes) -> None:
    for decode in (decode_record, decode_manifest, decode_failure):
        with pytest.raises(FormatError):
            decode(data)
