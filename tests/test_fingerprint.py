"""Keys by example. The laws are in `tests/properties/test_keys.py`, the vectors in `tests/golden`."""

from __future__ import annotations

from blake3 import blake3

from cubinet.fingerprint import (
    ACTION_CONTEXT,
    FINGERPRINT_CONTEXT,
    action_of,
    action_parts,
    digest_of,
    encode,
    fingerprint_of,
    observations_bytes,
    part_digests,
)
from cubinet.model import Action, Digest, Observation, Root, Seen, Target, Toolchain, Variant
from cubinet.protocols import Request

A_HEADER = Observation("lib:a.h", Seen.READ, digest_of(b"a"))


def request(**fields: object) -> Request:
    given = {"arguments": ("-O3",), "environment": (("LC_ALL", "C"),), "roots": (Root("lib", "/opt/lib"),), **fields}
    toolchain = Toolchain("nvcc", "13.0", digest_of(b"nvcc"))
    return Request(Variant("source", Target("cuda", "sm_90a")), toolchain, places={}, **given)  # type: ignore[arg-type]


def test_a_digest_is_plain_blake3() -> None:
    empty = "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262"
    assert digest_of(b"") == digest_of(memoryview(b"")) == Digest(empty)
    assert str(digest_of(b"")) == f"blake3:{empty}"


def test_an_action_is_keyed_blake3_of_its_encoded_parts() -> None:
    parts = [("a", b"1"), ("b", b"2")]
    assert action_of(parts).hex == blake3(encode(parts), derive_key_context=ACTION_CONTEXT).hexdigest()
    assert action_of(parts).hex != digest_of(encode(parts)).hex


def test_a_fingerprint_is_keyed_blake3_of_action_and_observations() -> None:
    action, observed = Action("1" * 64), Digest("2" * 64)
    parts = encode([("action", action.raw), ("observations", observed.raw)])
    assert fingerprint_of(action, observed).hex == blake3(parts, derive_key_context=FINGERPRINT_CONTEXT).hexdigest()


def test_the_parts_of_an_action_are_these_in_this_order() -> None:
    assert [name for name, _ in action_parts(request())] == [
        "schema",
        "compiler",
        "kind",
        "target",
        "arguments",
        "environment",
        "toolchain",
        "roots",
        "source name",
        "source",
        "headers",
        "hook",
        "entries",
        "signature",
        "folder",
    ]


def test_parts_are_readable_where_they_can_be() -> None:
    parts = dict(action_parts(request()))
    assert parts["target"] == b"cuda:sm_90a"
    assert parts["arguments"] == encode([("argument", b"-O3")])
    assert parts["environment"] == encode([("variable", b"LC_ALL=C")])
    assert parts["roots"] == encode([("root", b"include:lib")])
    assert parts["source"] == digest_of(b"source").raw


def test_a_digest_of_a_part_tells_only_that_part() -> None:
    one, two = dict(part_digests(action_parts(request()))), dict(part_digests(action_parts(request(arguments=()))))
    assert {name for name in one if one[name] != two[name]} == {"arguments"}


def test_observations_are_lines_sorted_by_name() -> None:
    data = observations_bytes(
        [Observation("src:b.h", Seen.ABSENT), A_HEADER, A_HEADER, Observation("lib:c/", Seen.PRESENT)]
    )
    assert data.decode() == (
        f"cubinet-observations 1\nread {digest_of(b'a').hex} lib:a.h\npresent - lib:c/\nabsent - src:b.h\n"
    )


def test_no_observations_are_a_set_too() -> None:
    assert observations_bytes([]) == b"cubinet-observations 1\n"
