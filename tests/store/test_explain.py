"""Why a lookup ends as it does: what differs is named, and the answer agrees with the lookup."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from cubinet.model import Root, Target
from cubinet.store.explain import Change, Explanation
from cubinet.testing.bench import SOURCE, Bench, overwrite


def explain(bench: Bench, **fields: Any) -> Explanation:
    """The answer, which must agree with a lookup."""
    variant = bench.variant(**fields)
    answer = bench.store().explain(variant)
    assert (answer.outcome == "hit") is (bench.store().find(variant) is not None)
    assert answer.action == bench.store().action(variant)
    assert answer.summary
    assert not answer.changes or answer.nearest is not None
    return answer


@pytest.fixture
def stocked(bench: Bench) -> Bench:
    bench.store().get_or_compile(bench.variant(options=["-O3"], family="math"))
    return bench


def test_a_hit_says_what_is_the_same(stocked: Bench) -> None:
    answer = explain(stocked, options=["-O3"])
    assert answer.outcome == "hit"
    assert answer.fingerprint is not None
    assert answer.changes == ()
    assert "1 read" in answer.summary
    assert stocked.runs == 1


def test_what_nobody_has_built_is_new(bench: Bench) -> None:
    assert "it is new here" in explain(bench).summary
    bench.store().get_or_compile(bench.variant())
    assert "it is new here" in explain(bench, source="other\n", name="other").summary


def test_an_uncacheable_request_says_why(stocked: Bench) -> None:
    answer = explain(stocked, options=["-random"])
    assert (answer.outcome, answer.summary) == ("uncacheable", "it is never stored: -random is random")


@pytest.mark.parametrize(
    ("fields", "part", "detail"),
    [
        ({"options": ["-O2"]}, "arguments", "-O3 → -O2"),
        ({"options": []}, "arguments", "-O3 → nothing"),
        ({"options": ["-O3", "-O3"]}, "arguments", "in another order: -O3 -O3"),
        ({"kind": "ptx"}, "kind", "cubin → ptx"),
        ({"target": Target("cuda", "sm_90")}, "target", "cuda:sm_90a → cuda:sm_90"),
        ({"source": SOURCE + "more\n"}, "source", "its content changed"),
        ({"source_name": "b.cu"}, "source name", "another one → b.cu"),
        ({"entries": ["scale"]}, "entries", "nothing → scale"),
        ({"signature": {"x": "1"}}, "signature", "its content changed"),
        ({"headers": {"b.h": "x"}}, "headers", "its content changed"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_part_that_differs_is_named(stocked: Bench, fields: dict[str, Any], part: str, detail: str) -> None:
    variant = replace(stocked.variant(), options=("-O3",), family="math")
    variant = replace(variant, **fields)
    answer = stocked.store().explain(variant)
    assert answer.outcome == "miss"
    assert answer.relation == "the same family and name"
    assert Change("part", part, detail) in answer.changes
    assert part in answer.summary or len(answer.changes) > 1


def test_another_toolchain_is_named_with_what_changed_in_it(stocked: Bench) -> None:
    answer = stocked.store(version="2.0").explain(stocked.variant(options=["-O3"], family="math"))
    assert answer.changes == (Change("part", "toolchain", "fake 1.0 → fake 2.0: fake changed"),)


def test_roots_in_another_order_are_named(stocked: Bench) -> None:
    roots = stocked.variant().roots[::-1]
    answer = explain(stocked, options=["-O3"], family="math", roots=roots)
    assert [(change.what, change.name) for change in answer.changes] == [("part", "roots")]


Edit = Callable[[Bench], object]
EDITS: dict[str, tuple[Edit, Change]] = {
    "changed": (lambda b: b.header.write_text("x"), Change("observation", "second:a.h", "changed")),
    "gone": (lambda b: b.header.rename(b.top / "away"), Change("observation", "second:a.h", "is gone")),
    "appeared": (
        lambda b: (b.top / "first/a.h").write_text("x"),
        Change("observation", "first:a.h", "appeared"),
    ),
}


@pytest.mark.parametrize(("edit", "change"), EDITS.values(), ids=EDITS)
def test_a_header_that_differs_is_named(stocked: Bench, edit: Edit, change: Change) -> None:
    edit(stocked)
    answer = explain(stocked, options=["-O3"])
    assert answer.relation == "the same action"
    assert answer.changes == (change,)


def test_the_build_with_the_fewest_differences_is_compared(stocked: Bench) -> None:
    (stocked.top / "second/b.h").write_text("b")
    source = '#include "a.h"\n#include "b.h"\nkernel k\n'
    for a, b in (("1", "1"), ("2", "2")):
        stocked.header.write_text(a)
        (stocked.top / "second/b.h").write_text(b)
        stocked.store().get_or_compile(stocked.variant(source))
    stocked.header.write_text("1")
    assert explain(stocked, source=source).changes in (
        (Change("observation", "second:a.h", "changed"),),
        (Change("observation", "second:b.h", "changed"),),
    )


@pytest.mark.parametrize("kind", ["records", "manifests"])
def test_a_file_that_is_gone_is_named(stocked: Bench, kind: str) -> None:
    for path in stocked.files(kind):
        path.unlink()
    answer = explain(stocked, options=["-O3"])
    assert answer.outcome == "miss"
    assert "gone" in answer.summary or "lost" in answer.summary


def test_a_blob_that_a_lookup_does_not_need_changes_nothing(stocked: Bench) -> None:
    (path,) = [path for path in stocked.files("blobs") if path.read_bytes() == SOURCE.encode()]
    overwrite(path, b"?")
    assert explain(stocked, options=["-O3"]).outcome == "hit"


def test_a_label_without_headers_here_is_named(stocked: Bench) -> None:
    roots = (Root("first", str(stocked.top / "first")), Root("second", str(stocked.top / "nowhere")))
    answer = explain(stocked, options=["-O3"], roots=roots)
    assert answer.changes == (Change("observation", "second:a.h", "is gone"),)
