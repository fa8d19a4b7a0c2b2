"""Records, manifests and failures as bytes. The laws for all values are in `tests/properties`."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from blake3 import blake3

from cubinet.errors import FormatError
from cubinet.fingerprint import digest_of
from cubinet.model import Artifact, Kernel
from cubinet.store.format import (
    FORMAT,
    Failure,
    NewerFormatError,
    Stored,
    decode_failure,
    decode_manifest,
    decode_record,
    encode_failure,
    encode_manifest,
    encode_record,
)
from cubinet.testing.samples import build, sealed

RECORD = build().record
FAILURE = Failure(FORMAT, RECORD.action.hex, "a.cu", "no", "", "log", ("fake",), "fake 1", "", 1000.5)
MANIFEST = encode_manifest(RECORD.action, (RECORD.observations,))

DECODERS: dict[str, tuple[bytes, Callable[[bytes], object]]] = {
    "record": (encode_record(RECORD), decode_record),
    "manifest": (MANIFEST, decode_manifest),
    "failure": (encode_failure(FAILURE), decode_failure),
}
each_format = pytest.mark.parametrize(("data", "decode"), DECODERS.values(), ids=DECODERS)


def fields(data: bytes) -> dict[str, object]:
    found: dict[str, object] = json.loads(data)
    del found["_check"]
    return found


@each_format
def test_bytes_are_canonical_json_behind_a_check_sum(data: bytes, decode: Callable[[bytes], object]) -> None:
    assert data == sealed(fields(data))
    assert data.endswith(b"}\n")
    assert json.loads(data)["_check"] == blake3(data[len(b'{"_check":"') + 64 : -1]).hexdigest()
    assert json.loads(data)["format"] == 1
    assert list(json.loads(data)) == sorted(json.loads(data))


def test_what_was_encoded_is_decoded() -> None:
    assert decode_record(encode_record(RECORD)) == RECORD
    assert decode_manifest(MANIFEST) == (RECORD.action, (RECORD.observations,))
    assert decode_failure(encode_failure(FAILURE)) == FAILURE


def test_the_outline_is_that_of_the_record() -> None:
    record = replace(
        RECORD, names=(("b<int>", "_Z1b"), ("a", "a")), kernels=(Kernel("b<int>()", "_Z1b"), Kernel("a", "a"))
    )
    stored = Stored(encode_record(record))
    assert stored() == replace(record, names=tuple(sorted(record.names)))
    assert stored.outline() == Artifact(stored(), b"").outline == Artifact(stored, b"").outline
    assert stored.outline().kernels == (("b<int>()", "_Z1b"), ("a", "a"))
    assert pickle.loads(pickle.dumps(stored)) == stored
    for name in ("variant", "blobs", "kernels"):
        broken = Stored(sealed(fields(stored.raw) | {name: 1}))
        for read in (broken, broken.outline):
            with pytest.raises(FormatError):
                read()


@pytest.mark.parametrize("wrong", ["", "ab", "G" * 64, "AB" * 32, "a " * 32, "blake3:" + "a" * 63, "\u0661" * 64, 1])
@pytest.mark.parametrize("place", ["observations_digest", "identity", "program", "blob", "fingerprint", "action"])
def test_a_digest_that_is_none_is_refused(place: str, wrong: object) -> None:
    record: Any = fields(encode_record(RECORD))
    holder, name = {
        "identity": (record["toolchain"], "identity"),
        "program": (record["toolchain"]["programs"], "nvcc"),
        "blob": (next(iter(record["blobs"].values())), "digest"),
    }.get(place, (record, place))
    holder[name] = wrong
    with pytest.raises(FormatError):
        decode_record(sealed(record))
    holder[name] = "a" * 64  # with or without its prefix
    decode_record(sealed(record))


def test_a_fact_the_object_does_not_tell_is_left_out() -> None:
    record = replace(RECORD, kernels=(Kernel("a", "a"), Kernel("b", "b", spills=0)))
    assert json.loads(encode_record(record))["kernels"] == [
        {"name": "a", "symbol": "a"},
        {"name": "b", "spills": 0, "symbol": "b"},
    ]
    assert decode_record(encode_record(record)) == record
    assert "local_only" not in json.loads(encode_record(record))


def test_a_manifest_keeps_the_sixteen_newest() -> None:
    many = tuple(digest_of(bytes([i])) for i in range(40))
    assert decode_manifest(encode_manifest(RECORD.action, many)) == (RECORD.action, many[:16])
    longer = sealed({"format": 1, "action": RECORD.action.hex, "candidates": [d.hex for d in many]})
    assert decode_manifest(longer) == (RECORD.action, many[:16])


@each_format
def test_a_newer_format_is_told_from_damage(data: bytes, decode: Callable[[bytes], object]) -> None:
    for newer in (fields(data) | {"format": 2}, {"format": 2}, {"format": 99, "action": []}):
        with pytest.raises(NewerFormatError, match="upgrade cubinet"):
            decode(sealed(newer))


@each_format
@pytest.mark.parametrize("version", [0, -1, "1", None, 1.5, True, [1]], ids=repr)
def test_a_format_that_never_was_is_refused(data: bytes, decode: Callable[[bytes], object], version: object) -> None:
    with pytest.raises(FormatError) as caught:
        decode(sealed(fields(data) | {"format": version}))
    assert not isinstance(caught.value, NewerFormatError)


@each_format
def test_a_missing_field_is_refused_and_one_more_is_not(data: bytes, decode: Callable[[bytes], object]) -> None:
    whole = fields(data)
    for name in whole:
        with pytest.raises(FormatError):
            decode(sealed({key: value for key, value in whole.items() if key != name}))
    assert decode(sealed(whole | {"later": {"x": [1]}})) == decode(data)


@each_format
def test_nesting_without_end_is_refused(data: bytes, decode: Callable[[bytes], object]) -> None:
    deep = b"[" * 100_000 + b"]" * 100_000
    body = sealed(fields(data) | {"later": 1})[len(b'{"_check":"') + 64 : -1].replace(b'"later":1', b'"later":' + deep)
    with pytest.raises(FormatError):
        decode(b'{"_check":"' + blake3(body).hexdigest().encode() + body + b"\n")


@each_format
@pytest.mark.parametrize("junk", [b"", b"\n", b"{}", b"null", b"\xff" * 200, b'{"_check":"'], ids=repr)
def test_junk_is_refused(data: bytes, decode: Callable[[bytes], object], junk: bytes) -> None:
    with pytest.raises(FormatError):
        decode(junk)


def test_a_text_that_is_no_utf8_is_refused_when_written() -> None:
    with pytest.raises(FormatError, match="write record"):
        encode_record(replace(RECORD, name="\udcff"))
    with pytest.raises(FormatError, match="write failure"):
        encode_failure(Failure(FORMAT, "", "", "\ud800", "", "", (), "", "", 0.0))
