"""Laws of keys: what must change an action does, what must not does not, and no two inputs share their bytes."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from cubinet.errors import FormatError
from cubinet.fingerprint import (
    action_of,
    action_parts,
    digest_of,
    encode,
    fingerprint_of,
    observations_bytes,
    part_digests,
)
from cubinet.model import Action, Digest, Observation, Root, Seen, Target, Toolchain, Variant
from cubinet.observations import read_observations
from cubinet.protocols import Request
from cubinet.testing.fake_compiler import FakeCompiler
from cubinet.testing.strategies import actions, digests, observations, texts, variants

PARTS = st.lists(st.tuples(texts(), st.binary(max_size=20)), max_size=6)

VARIANTS = variants().filter(lambda variant: "-native" not in variant.options)  # which the fake compiler refuses

BASE = Variant(
    "kernel a\nkernel b\n",
    Target("cuda", "sm_90"),
    options=("-DA", "-DB"),
    roots=(Root("one", "/opt/one"), Root("two", "/opt/two", "system")),
    entries=("a", "b"),
    signature=(("x", "1"), ("y", "2")),
    compiler="fake",
)


def vary(variant: Variant, **fields: Any) -> Variant:
    """Another variant, from what callers may give: mappings and lists too."""
    return replace(variant, **fields)


def action(variant: Variant) -> Action:
    return action_of(action_parts(FakeCompiler().normalize(variant)))


# --- the encoding


def decoded(data: bytes) -> list[tuple[str, bytes]]:
    """The inverse of `encode`, written from its description."""
    out, position = [], 0

    def take() -> bytes:
        nonlocal position
        length = int.from_bytes(data[position : position + 8], "little")
        position += 8 + length
        return data[position - length : position]

    while position < len(data):
        out.append((take().decode("utf-8", "surrogateescape"), take()))
    return out


@given(PARTS)
def test_encoded_parts_can_be_read_back(parts: list[tuple[str, bytes]]) -> None:
    assert decoded(encode(parts)) == parts


@given(PARTS, PARTS)
def test_no_two_lists_of_parts_give_the_same_bytes(one: list[tuple[str, bytes]], two: list[tuple[str, bytes]]) -> None:
    assert (encode(one) == encode(two)) is (one == two)


def test_a_length_is_eight_bytes_little_endian() -> None:
    assert encode([("ab", b"xyz")]) == b"\2\0\0\0\0\0\0\0ab\3\0\0\0\0\0\0\0xyz"


# --- actions


Change = Callable[[Variant], Variant]

MATTERS: dict[str, list[Change]] = {
    "source": [lambda v: vary(v, source=v.source + " "), lambda v: vary(v, source=v.source[:-1])],
    "target": [
        lambda v: vary(v, target=Target("cuda", "sm_90a")),
        lambda v: vary(v, target=Target("ascend", "sm_90")),
    ],
    "kind": [lambda v: vary(v, kind="ptx")],
    "options": [
        lambda v: vary(v, options=("-DA",)),
        lambda v: vary(v, options=("-DB", "-DA")),
        lambda v: vary(v, options=("-DA-DB",)),
        lambda v: vary(v, options=("-DA", "-DB", "-DB")),
        lambda v: vary(v, options=("-DA", "-DB", "-g")),
    ],
    "roots": [
        lambda v: vary(v, roots=v.roots[:1]),
        lambda v: vary(v, roots=v.roots[::-1]),
        lambda v: vary(v, roots=(Root("one", "/opt/one", "system"), v.roots[1])),
        lambda v: vary(v, roots=(Root("three", "/opt/one"), v.roots[1])),
    ],
    "entries": [lambda v: vary(v, entries=("a",)), lambda v: vary(v, entries=("a b",))],
    "source_name": [lambda v: vary(v, source_name="other.cu")],
    "source_folder": [lambda v: vary(v, source_folder="/anywhere")],  # whether there is one, not where
    "hook": [lambda v: vary(v, hook="one:a.py"), lambda v: vary(v, hook="one:b.py")],
    "headers": [
        lambda v: vary(v, headers={"a.h": "x"}),
        lambda v: vary(v, headers={"a.h": "y"}),
        lambda v: vary(v, headers={"a.hx": ""}),
    ],
    "signature": [
        lambda v: vary(v, signature={"x": "1"}),
        lambda v: vary(v, signature={"x": "2", "y": "1"}),
        lambda v: vary(v, signature={"x": "1y2"}),
    ],
    "compiler": [lambda v: vary(v, compiler="other")],
}
NEVER: dict[str, list[Change]] = {
    "family": [lambda v: vary(v, family="math")],
    "check_no_spills": [lambda v: vary(v, check_no_spills=True)],
    "check_no_local_memory": [lambda v: vary(v, check_no_local_memory=True)],
    "name": [lambda v: vary(v, name="add")],
    "labels": [lambda v: vary(v, labels={"x": "1"})],
    "folder": [lambda v: vary(v, folder="/elsewhere")],  # the adapter resolves paths in options with it
    "_held": [],
}
LOCATIONS: list[Change] = [
    lambda v: vary(v, roots=tuple(Root(r.label, f"/elsewhere{r.path}", r.kind) for r in v.roots)),
    lambda v: vary(v, entries=v.entries[::-1]),
    lambda v: vary(v, entries=v.entries * 2),
    lambda v: vary(v, signature=tuple(v.signature)[::-1]),
    lambda v: vary(v, signature=dict(reversed(v.signature))),
    lambda v: vary(v, options=list(v.options)),
]


def test_every_field_of_a_variant_is_known_to_matter_or_not() -> None:
    assert {field.name for field in dataclasses.fields(Variant)} == set(MATTERS) | set(NEVER)


@pytest.mark.parametrize("field", MATTERS)
def test_a_field_that_matters_changes_the_action(field: str) -> None:
    changed = [action(change(BASE)) for change in MATTERS[field]]
    assert len({action(BASE), *changed}) == 1 + len(changed)


def test_no_two_changes_give_the_same_action() -> None:
    changed = [action(change(BASE)) for changes in MATTERS.values() for change in changes]
    assert len(set(changed)) == len(changed)


@pytest.mark.parametrize("field", NEVER)
def test_a_label_never_changes_the_action(field: str) -> None:
    for change in NEVER[field]:
        assert change(BASE) != BASE
        assert action(change(BASE)) == action(BASE)


@given(VARIANTS, texts(), st.dictionaries(texts(), texts()))
def test_labels_never_change_any_action(variant: Variant, text: str, labels: dict[str, str]) -> None:
    variant = replace(variant, compiler="fake")
    assert action(vary(variant, family=text, name=text, labels=labels)) == action(variant)


@pytest.mark.parametrize("number", range(len(LOCATIONS)))
def test_places_and_the_order_of_sets_never_change_the_action(number: int) -> None:
    assert action(LOCATIONS[number](BASE)) == action(BASE)


@given(VARIANTS)
def test_the_place_of_the_source_never_changes_the_action(variant: Variant) -> None:
    here, there = replace(variant, source_folder="/here"), replace(variant, source_folder="/there")
    assert action(here) == action(there)


@given(VARIANTS, VARIANTS)
def test_variants_with_one_action_differ_only_in_what_never_matters(one: Variant, two: Variant) -> None:
    def facts(v: Variant) -> tuple[object, ...]:
        roots = tuple((root.label, root.kind) for root in v.roots)
        rest = (v.source, v.target, v.kind, v.options, v.entries, v.source_name, v.signature, v.compiler)
        return (*rest, roots, v.headers, v.source_folder is None)

    assume(not any(option.startswith("-") for option in (*one.options, *two.options)))
    assert (action(one) == action(two)) is (facts(one) == facts(two))


REQUEST = FakeCompiler().normalize(BASE)
REQUEST_CHANGES: dict[str, Request] = {
    "variant": replace(REQUEST, variant=replace(BASE, source="x")),
    "toolchain": replace(REQUEST, toolchain=Toolchain("fake", "1.0", digest_of(b"another"))),
    "arguments": replace(REQUEST, arguments=(*REQUEST.arguments, "x")),
    "environment": replace(REQUEST, environment=(("LC_ALL", "C"), ("X", "1"))),
    "roots": replace(REQUEST, roots=REQUEST.roots[:1]),
    "same": replace(REQUEST, same=("one=two",)),
    "bound": replace(REQUEST, bound="/home/me"),
    "revision": replace(REQUEST, revision="2"),
}
REQUEST_NEVER: dict[str, Request] = {
    "places": replace(REQUEST, places={"one": "/elsewhere"}),
    "uncacheable": replace(REQUEST, uncacheable="it is not kept at all"),
    "bound_by": replace(REQUEST, bound_by="words"),
    "detail": replace(REQUEST, detail="what follows from the variant"),
}


def test_every_field_of_a_request_is_known_to_matter_or_not() -> None:
    assert {field.name for field in dataclasses.fields(Request)} == set(REQUEST_CHANGES) | set(REQUEST_NEVER)
    base = action_of(action_parts(REQUEST))
    assert base not in {action_of(action_parts(changed)) for changed in REQUEST_CHANGES.values()}
    assert {action_of(action_parts(changed)) for changed in REQUEST_NEVER.values()} == {base}


def test_the_version_of_a_toolchain_is_only_what_it_calls_itself() -> None:
    renamed = replace(REQUEST, toolchain=replace(REQUEST.toolchain, version="99", name="x"))
    assert action_parts(renamed) == action_parts(REQUEST)


def test_the_order_of_the_environment_does_not_matter() -> None:
    pairs = (("A", "1"), ("B", "2"))
    one, two = replace(REQUEST, environment=pairs), replace(REQUEST, environment=pairs[::-1])
    assert action_parts(one) == action_parts(two)


@given(VARIANTS)
def test_every_part_has_a_name_of_its_own_and_a_digest(variant: Variant) -> None:
    parts = action_parts(FakeCompiler().normalize(variant))
    assert len({name for name, _ in parts}) == len(parts)
    found = part_digests(parts)
    assert [name for name, _ in found] == [name for name, _ in parts]
    assert {len(digest) for _, digest in found} == {32}


@given(st.binary())
def test_any_bytes_may_be_source_options_or_signature(raw: bytes) -> None:
    raw = raw.replace(b"\0", b"")
    odd = os.fsdecode(raw)
    variant = Variant(f"x{odd}", Target("cuda", "sm_90"), options=(f"x{odd}",), signature=((f"x{odd}", odd),))
    parts = dict(action_parts(FakeCompiler().normalize(variant)))
    assert decoded(parts["arguments"])[0] == ("argument", b"x" + raw)
    assert decoded(parts["signature"]) == [(f"x{odd}", raw)]
    assert parts["source"] == digest_of(b"x" + raw).raw


# --- fingerprints


@given(actions(), digests(), actions(), digests())
def test_a_fingerprint_is_of_its_action_and_its_observations(a: Action, x: Digest, b: Action, y: Digest) -> None:
    assert (fingerprint_of(a, x) == fingerprint_of(b, y)) is ((a, x) == (b, y))
    assert fingerprint_of(a, x).hex not in (a.hex, x.hex)


# --- observations

SETS = st.lists(observations(), max_size=8)


@given(SETS, st.randoms(use_true_random=False))
def test_order_and_repeats_of_observations_do_not_matter(found: list[Observation], dice: Random) -> None:
    again = found * 2
    dice.shuffle(again)
    assert observations_bytes(again) == observations_bytes(found)


@given(SETS)
def test_observations_can_be_read_back_sorted_by_name(found: list[Observation]) -> None:
    again = read_observations(observations_bytes(found))
    assert len(again) == len(set(found))
    assert set(again) == set(found)
    names = [o.name for o in again]
    assert names == sorted(names, key=escaped)
    assert observations_bytes(again) == observations_bytes(found)


def escaped(name: str) -> str:
    return name.replace("%", "%25").replace("\n", "%0A").replace("\0", "%00")


@given(SETS, SETS)
def test_no_two_sets_of_observations_give_the_same_bytes(one: list[Observation], two: list[Observation]) -> None:
    assert (observations_bytes(one) == observations_bytes(two)) is (set(one) == set(two))


ODD = ["", " ", "a b", "%", "%0A", "%250A", "\n", "\0", "a\nread - b", "\r", "\x85", "\u2028", "é", "\udcff", "-"]


@pytest.mark.parametrize("name", ODD, ids=ascii)
@pytest.mark.parametrize("seen", Seen)
def test_no_name_is_too_odd(name: str, seen: Seen) -> None:
    one = Observation(f"lib:{name}", seen, digest_of(b"x") if seen in (Seen.READ, Seen.TREE) else None)
    data = observations_bytes([one])
    assert read_observations(data) == [one]
    assert data.count(b"\n") == 2


def test_odd_names_stay_apart() -> None:
    assert len({observations_bytes([Observation(name, Seen.ABSENT)]) for name in ODD}) == len(ODD)


@given(st.binary(max_size=60))
def test_junk_is_no_list_of_observations(data: bytes) -> None:
    assume(data.rstrip(b"\n") != b"cubinet-observations 1")
    with pytest.raises(FormatError):
        read_observations(data)
