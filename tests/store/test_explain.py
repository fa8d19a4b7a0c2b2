"""Why a lookup ends as it does: what differs is named, and the answer agrees with the lookup."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cubinet.config import Settings
from cubinet.errors import CompileError, StoreError
from cubinet.fingerprint import action_of, action_parts, digest_of
from cubinet.model import OUTPUT_KINDS, Fingerprint, Kernel, Program, Root, Target, Toolchain, Variant
from cubinet.store import Store
from cubinet.store import explain as module
from cubinet.store.explain import Change, Explanation, explain_fingerprint
from cubinet.testing.bench import SOURCE, Bench, overwrite
from cubinet.testing.fake_compiler import FakeCompiler
from cubinet.testing.faults import NoSyncFs

MATH: dict[str, Any] = {"options": ["-O3"], "family": "math"}


def check(answer: Explanation) -> Explanation:
    """What holds for every answer."""
    assert answer.outcome in ("hit", "miss", "uncacheable")
    assert answer.summary
    assert (answer.outcome == "hit") is (answer.fingerprint is not None)
    assert bool(answer.changes) is (answer.nearest is not None)
    assert bool(answer.relation) is (answer.nearest is not None)
    for change in answer.changes:
        assert change.what in ("part", "observation", "layer")
        assert change.name
        assert change.detail.strip()
    text = json.dumps(asdict(answer), default=str)
    for word in ("unknown", "not kept", "it is not what it was", "None", "nothing → nothing"):
        assert word not in answer.summary + "".join(change.detail for change in answer.changes)
    assert json.loads(text)["outcome"] == answer.outcome
    return answer


def explain(bench: Bench, **fields: Any) -> Explanation:
    """The answer, which must agree with a lookup."""
    variant = bench.variant(**fields)
    answer = check(bench.store().explain(variant))
    assert (answer.outcome == "hit") is (bench.store().find(variant) is not None)
    assert answer.action == bench.store().action(variant)
    return answer


@pytest.fixture
def stocked(bench: Bench) -> Bench:
    bench.store().get_or_compile(bench.variant(**MATH))
    return bench


# --- how it ends


def test_a_hit_says_what_is_the_same(stocked: Bench) -> None:
    answer = explain(stocked, **MATH)
    assert answer.outcome == "hit"
    assert answer.summary == "the local layer has it, and all it looked at is the same here (1 absent, 1 read)"
    assert stocked.runs == 1


def test_a_build_that_looked_at_nothing_is_a_hit_too(bench: Bench) -> None:
    bench.store().get_or_compile(bench.variant("kernel k\n"))
    assert "(nothing)" in explain(bench, source="kernel k\n").summary


def test_what_nobody_has_built_is_new(bench: Bench) -> None:
    assert "it is new here" in explain(bench).summary
    bench.store().get_or_compile(bench.variant())
    assert "it is new here" in explain(bench, source="other\n", name="other").summary
    assert "it is new here" in explain(bench, source="other\n", name="").summary


def test_an_uncacheable_request_says_why(stocked: Bench) -> None:
    answer = explain(stocked, options=["-random"])
    assert (answer.outcome, answer.summary) == ("uncacheable", "it is never stored: -random is random")


def test_an_error_of_a_moment_ago_is_told(bench: Bench) -> None:
    with pytest.raises(CompileError):
        bench.store().get_or_compile(bench.variant("#error no way\n"))
    assert "it failed to compile within the last minute: no way" in explain(bench, source="#error no way\n").summary


def test_a_hit_that_a_gate_refuses_says_so(stocked: Bench) -> None:
    (record,) = stocked.store().records()
    shutil.rmtree(stocked.folder / "records")
    stocked.store()._local.publish(replace(record, kernels=(Kernel("scale", "scale", spills=7),)), {})
    answer = check(stocked.store().explain(stocked.variant(**MATH, check_no_spills=True)))
    assert answer.outcome == "hit"
    assert answer.summary.endswith("; a gate refuses it: bytes of spills: scale: 7")


@pytest.mark.parametrize("kind", ["manifests", "records", "blobs"])
def test_a_layer_in_trouble_is_the_answer(stocked: Bench, kind: str) -> None:
    class Broken(NoSyncFs):
        def read(self, path: str, limit: int | None = None) -> bytes:
            if f"/{kind}/" in path:
                raise OSError(5, "Input/output error")
            return super().read(path, limit)

    store = stocked.store(fs=Broken())
    answer = check(store.explain(stocked.variant(**MATH)))
    assert answer.outcome == "miss"
    assert answer.summary.startswith("the local layer cannot be asked: cannot read ")
    assert "Input/output error" in answer.summary
    assert store.stats() == {}
    if kind != "manifests":
        (record,) = stocked.store().records()
        assert "Input/output error" in check(explain_fingerprint(store._layers, record.fingerprint)).summary
    with pytest.raises(StoreError):
        stocked.store(fs=Broken(), strict=True).explain(stocked.variant(**MATH))


# --- parts


@pytest.mark.parametrize(
    ("fields", "part", "detail"),
    [
        ({"options": ["-O2"]}, "arguments", "-O3 → -O2"),
        ({"options": []}, "arguments", "-O3 removed"),
        ({"options": ["-O3", "-O3"]}, "arguments", "-O3 added"),
        ({"options": ["-O3", "-x", "-y"]}, "arguments", "-x added; -y added"),
        ({"kind": "ptx"}, "kind", "cubin → ptx"),
        ({"target": Target("cuda", "sm_90")}, "target", "cuda:sm_90a → cuda:sm_90"),
        ({"source": SOURCE + "more\n"}, "source", "line 3: nothing → 'more'"),
        ({"source": SOURCE.replace("scale", "scales")}, "source", "line 2: 'kernel scale' → 'kernel scales'"),
        ({"source": SOURCE.replace("\n", "\r\n")}, "source", "its line ends changed"),
        ({"source": '#include "a.h"\n'}, "source", "line 2: 'kernel scale' → nothing"),
        ({"source_name": "b.cu"}, "source name", "kernel.cu → b.cu"),
        ({"entries": ("scale",)}, "entries", "scale added"),
        ({"signature": (("x", "1"),)}, "signature", "x added"),
        ({"headers": (("b.h", "x"),)}, "headers", "b.h added"),
        ({"hook": "second:edit.py"}, "hook", "none → second:edit.py"),
        ({"compiler": "other"}, "compiler", "fake → other"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_part_that_differs_is_named(stocked: Bench, fields: dict[str, Any], part: str, detail: str) -> None:
    store = stocked.store()
    store._compilers["other"] = FakeCompiler(name="other")
    variant = replace(stocked.variant(**MATH), **fields)
    answer = check(store.explain(variant))
    assert answer.outcome == "miss"
    assert answer.relation == "the same family and name"
    assert Change("part", part, detail) in answer.changes
    if len(answer.changes) == 1:
        verb = "differ" if part in ("arguments", "entries", "headers") else "differs"
        assert answer.summary.endswith(f"(the same family and name): its {part} {verb}: {detail}")


OTHERS = {
    "options that set the same": (
        {"options": ["--define-macro=A=1", "--define-macro=B=1", "--use_fast_math"]},
        {"options": ["--define-macro=A=2", "--maxrregcount=32", "--define-macro=B=1"]},
        "--define-macro=A=1 → --define-macro=A=2; --use_fast_math removed; --maxrregcount=32 added",
    ),
    "options in another order": (
        {"options": ["-DA", "-UA"]},
        {"options": ["-UA", "-DA"]},
        "another order: -DA -UA → -UA -DA",
    ),
    "entries": ({"entries": ["scale"]}, {"entries": []}, "scale removed"),
    "a signature": (
        {"signature": {"dtype": "half", "n": "1"}},
        {"signature": {"dtype": "float", "m": "1"}},
        "dtype: 'half' → 'float'; n removed; m added",
    ),
    "headers": (
        {"headers": {"a.h": "text", "b.h": "b"}},
        {"headers": {"a.h": "another", "c.h": "c"}},
        "a.h changed; b.h removed; c.h added",
    ),
    "a hook": ({"hook": "second:a.py"}, {}, "second:a.py → none"),
    "a long line": (
        {"source": f"{'x' * 500}1{'y' * 500}\n"},
        {"source": f"{'x' * 500}2{'y' * 500}\n"},
        f"line 1: '{'x' * 30}1{'y' * 29}' → '{'x' * 30}2{'y' * 29}'",
    ),
    "blanks": ({"source": "a\n b\n"}, {"source": "a\nb\n"}, "line 2: ' b' → 'b'"),
}


@pytest.mark.parametrize(("was", "now", "detail"), OTHERS.values(), ids=OTHERS)
def test_what_became_of_each_is_said(bench: Bench, was: dict[str, Any], now: dict[str, Any], detail: str) -> None:
    bench.store().get_or_compile(bench.variant(**was))
    (change,) = explain(bench, **now).changes
    assert change.detail == detail


def test_another_toolchain_is_named_with_what_changed_in_it(stocked: Bench) -> None:
    answer = check(stocked.store(version="2.0").explain(stocked.variant(**MATH)))
    assert answer.changes == (Change("part", "toolchain", "fake 1.0 → fake 2.0: fake changed"),)


@pytest.mark.parametrize(
    ("was", "now", "detail"),
    [
        ({"ptxas": b"1", "cicc": b"1"}, {"ptxas": b"2", "cicc": b"1"}, "nvcc 13.0: ptxas changed"),
        ({"ptxas": b"1"}, {"ptxas": b"1", "nvlink": b"1"}, "nvcc 13.0: nvlink added"),
        ({"ptxas": b"1", "a": b"1", "b": b""}, {"ptxas": b"2", "a": b"2"}, "nvcc 13.0: ptxas, a changed; b removed"),
        ({}, {}, "nvcc 13.0: its identity changed"),
    ],
)
def test_the_programs_that_changed_are_named(was: dict[str, bytes], now: dict[str, bytes], detail: str) -> None:
    def toolchain(programs: dict[str, bytes]) -> Toolchain:
        found = tuple(Program(role, "", digest_of(data)) for role, data in programs.items())
        return Toolchain("nvcc", "13.0", digest_of(b""), found)

    assert module._toolchain(toolchain(was), toolchain(now)) == detail


def test_roots_in_another_order_are_named(stocked: Bench) -> None:
    roots = stocked.variant().roots[::-1]
    (change,) = explain(stocked, **MATH, roots=roots).changes
    assert change == Change("part", "roots", "another order: first, second → second, first")


def test_roots_under_other_labels_and_of_other_kinds_are_named(stocked: Bench) -> None:
    first, second = stocked.variant().roots
    (change,) = explain(stocked, **MATH, roots=(replace(first, label="early"), replace(second, kind="system"))).changes
    assert change.detail == "first removed; second removed; early added; second (system) added"


def test_two_labels_of_one_folder_are_named(stocked: Bench) -> None:
    store, variant = stocked.store(), stocked.variant(**MATH)
    request = replace(store.normalize(variant), same=("first=second",))
    parts = action_parts(request)
    (change,) = check(module.explain(store._layers, request, action_of(parts), parts)).changes
    assert change == Change("part", "roots", "one folder here is first and second")


def test_a_build_that_is_tied_to_other_folders_is_named(bench: Bench, tmp_path: Path) -> None:
    bench.store().get_or_compile(bench.variant(options=["-g"]))
    moved = shutil.copytree(bench.top / "second", tmp_path / "moved")
    roots = (bench.variant().roots[0], Root("second", str(moved)))
    (change,) = explain(bench, options=["-g"], roots=roots).changes
    assert change == Change("part", "folder", "it is tied to its folders, and they are not the same")
    assert {c.name for c in explain(bench).changes} == {"arguments", "folder"}


# --- observations

Edit = Callable[[Bench], object]
EDITS: dict[str, tuple[Edit, str, str]] = {
    "changed": (lambda b: b.header.write_text("x"), "second:a.h", "changed"),
    "gone": (lambda b: b.header.rename(b.top / "away"), "second:a.h", "is gone"),
    "shadowed": (lambda b: (b.top / "first/a.h").write_text("x"), "first:a.h", "appeared, in front of second:a.h"),
}


@pytest.mark.parametrize(("edit", "name", "detail"), EDITS.values(), ids=EDITS)
def test_a_header_that_differs_is_named(stocked: Bench, edit: Edit, name: str, detail: str) -> None:
    edit(stocked)
    answer = explain(stocked, **MATH)
    assert answer.relation == "the same action"
    assert answer.changes == (Change("observation", name, detail),)
    assert answer.summary.endswith(f"(the same action): {name} {detail}")


def test_a_name_that_was_only_asked_for_is_named(bench: Bench) -> None:
    source = '#probe "maybe.h"\nkernel k\n'
    bench.store().get_or_compile(bench.variant(source))
    (bench.top / "second/maybe.h").write_text("x")
    assert explain(bench, source=source).changes == (Change("observation", "second:maybe.h", "appeared"),)
    bench.store().get_or_compile(bench.variant(source))
    (bench.top / "second/maybe.h").unlink()
    assert explain(bench, source=source).outcome == "hit"


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


def test_a_label_without_headers_here_is_named(stocked: Bench) -> None:
    roots = (Root("first", str(stocked.top / "first")), Root("second", str(stocked.top / "nowhere")))
    assert explain(stocked, **MATH, roots=roots).changes == (Change("observation", "second:a.h", "is gone"),)


# --- which build is compared


def test_the_same_name_comes_before_the_same_source(stocked: Bench) -> None:
    stocked.store().get_or_compile(stocked.variant("kernel other\n", options=["-O1"], family="math", name="other"))
    named = explain(stocked, source="kernel other\n", options=["-O2"], family="math")
    assert (named.relation, {c.name for c in named.changes}) == (
        "the same family and name",
        {"arguments", "source"},
    )
    same = explain(stocked, source="kernel other\n", options=["-O2"], family="new")
    assert (same.relation, [c.detail for c in same.changes]) == ("the same source", ["-O1 → -O2"])


def test_the_same_action_comes_first_whatever_its_name(stocked: Bench) -> None:
    stocked.store().get_or_compile(stocked.variant(options=["-O1"], family="other"))
    stocked.header.write_text("changed\n")
    answer = explain(stocked, options=["-O1"], family="math")
    assert (answer.relation, [c.name for c in answer.changes]) == ("the same action", ["second:a.h"])


def test_of_two_that_are_as_near_the_newer_one_is_compared(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    fingerprints = {}
    for option in ("-a", "-b", "-c"):
        made = bench.store().get_or_compile(bench.variant(options=[option]))
        fingerprints[option] = made
        record = replace(made.record, created=f"2026-01-0{'-a-c-b'.index(option)}T00:00:00+00:00")
        shutil.rmtree(bench.folder / "records" / made.fingerprint.hex[:2])
        bench.store()._local.publish(record, {})
    assert explain(bench, options=["-d"]).nearest == fingerprints["-b"].fingerprint


# --- files that are lost


def test_a_manifest_that_is_lost_is_named(stocked: Bench) -> None:
    for path in stocked.files("manifests"):
        path.unlink()
    answer = explain(stocked, **MATH)
    assert answer.relation == "the same action"
    assert answer.changes == (Change("layer", "local", "the manifest that leads to it is gone, or was damaged"),)
    stocked.header.write_text("changed\n")
    assert [change.name for change in explain(stocked, **MATH).changes] == ["local", "second:a.h"]


@pytest.mark.parametrize("how", ["gone", "damaged"])
def test_a_record_that_is_lost_is_named(stocked: Bench, how: str) -> None:
    (path,) = stocked.files("records")
    if how == "gone":
        path.unlink()
    else:
        overwrite(path, b"{}")
    answer = check(stocked.store().explain(stocked.variant(**MATH)))
    assert how in answer.summary
    assert [change.detail for change in answer.changes] in (
        ["its record is gone"],
        ["its record is damaged, or in a newer format"],
    )
    assert stocked.store().find(stocked.variant(**MATH)) is None


@pytest.mark.parametrize("how", ["gone", "damaged"])
def test_an_object_that_is_lost_is_named(stocked: Bench, how: str) -> None:
    (path,) = [path for path in stocked.files("blobs") if path.read_bytes().startswith(b"cubin -O3")]
    if how == "gone":
        path.unlink()
    else:
        overwrite(path, b"?")
    answer = check(stocked.store().explain(stocked.variant(**MATH)))
    assert [change.detail for change in answer.changes] == [f"its cubin is {how}"]
    assert stocked.store().find(stocked.variant(**MATH)) is None


def test_a_list_of_observations_that_is_lost_is_named(stocked: Bench) -> None:
    (path,) = [path for path in stocked.files("blobs") if path.read_bytes().startswith(b"cubinet-observations")]
    path.unlink()
    (change,) = explain(stocked, **MATH).changes
    assert change.detail == "its list of observations is gone, or was damaged"


def test_a_list_of_observations_that_a_lookup_does_not_need_changes_nothing(stocked: Bench) -> None:
    stocked.store(later=True).find(stocked.variant(**MATH))
    (path,) = [path for path in stocked.files("blobs") if path.read_bytes().startswith(b"cubinet-observations")]
    path.unlink()
    variant = stocked.variant(**MATH)
    assert stocked.store(later=True).find(variant) is not None
    assert stocked.store(later=True).explain(variant).outcome == "hit"


def test_a_blob_that_a_lookup_does_not_need_changes_nothing(stocked: Bench) -> None:
    (path,) = [path for path in stocked.files("blobs") if path.read_bytes() == SOURCE.encode()]
    overwrite(path, b"?")
    assert explain(stocked, **MATH).outcome == "hit"


@pytest.mark.parametrize("role", ["source", "request"])
def test_what_is_lost_of_the_nearest_build_leaves_an_answer(stocked: Bench, role: str) -> None:
    (record,) = stocked.store().records()
    ref = record.blob(role)
    assert ref is not None
    stocked.folder.joinpath("blobs", ref.digest.hex[:2], ref.digest.hex).unlink()
    answer = stocked.store().explain(stocked.variant("other\n", options=["-O2"], family="math"))
    assert {change.name: change.detail for change in answer.changes} == {
        "source": "its text changed" if role == "source" else "line 1: '#include \"a.h\"' → 'other'",
        "arguments": "-O3 → -O2" if role == "source" else "what it was is not kept",
    }


# --- by fingerprint


def test_a_fingerprint_says_what_it_is_or_what_is_wrong_with_it(stocked: Bench) -> None:
    store = stocked.store()
    (record,) = store.records()
    known = check(explain_fingerprint(store._layers, record.fingerprint))
    assert (known.outcome, known.action) == ("hit", record.action)
    assert known.summary.startswith("the local layer has it: cubin of scale for cuda:sm_90a, made by fake 1.0 at 20")
    lost = check(explain_fingerprint(store._layers, Fingerprint("0" * 64)))
    assert (lost.outcome, lost.summary) == ("miss", "the local layer does not have it: its record is gone")
    overwrite(stocked.files("records")[0], b"{}")
    bad = explain_fingerprint(stocked.store()._layers, record.fingerprint)
    assert "damaged" in bad.summary


# --- any change of one thing

TEXTS = st.text("ab <>\"'\\\n=;→é", min_size=1, max_size=8)
NAMES = st.sampled_from(["a", "b", "c"])
PAIRS = st.dictionaries(NAMES, TEXTS, max_size=3)
FIELDS: dict[str, st.SearchStrategy[Any]] = {
    "options": st.lists(st.sampled_from(["-O1", "-O2", "--a=1", "--a=2", "--define-macro=X=1", "-v"]), max_size=4),
    "kind": st.sampled_from(OUTPUT_KINDS),
    "target": st.sampled_from([Target("cuda", arch) for arch in ("sm_90", "sm_90a", "sm_80")]),
    "source": TEXTS.map(lambda text: f"kernel k\n{text}").filter(lambda text: "#" not in text and "!" not in text),
    "source_name": st.sampled_from(["a.cu", "b.cu", "kernel.cu"]),
    "entries": st.sets(st.just("k")).map(tuple),
    "signature": PAIRS,
    "headers": PAIRS,
    "hook": st.sampled_from(["", "first:a.py", "first:b.py"]),
    "roots": st.permutations([Root("first", "/nowhere/1"), Root("second", "/nowhere/2"), Root("third", "/nowhere/3")]),
    "compiler": st.sampled_from(["fake", "other"]),
}
PARTS = {"options": "arguments", "source_name": "source name"}
BASE: dict[str, Any] = {"source": "kernel k\nbase", "target": Target("cuda", "sm_90a"), "name": "n", "compiler": "fake"}


@st.composite
def two_variants(draw: st.DrawFn) -> tuple[Variant, Variant, str]:
    base = BASE | {name: draw(values) for name, values in FIELDS.items()}
    field = draw(st.sampled_from(sorted(FIELDS)))
    return Variant(**base), Variant(**base | {field: draw(FIELDS[field])}), field


@given(two_variants())
def test_any_change_of_one_field_is_named_and_every_answer_agrees_with_the_lookup(
    pair: tuple[Variant, Variant, str],
) -> None:
    was, now, field = pair
    with TemporaryDirectory(prefix="cubinet-") as folder:
        compilers = {"fake": FakeCompiler(), "other": FakeCompiler(name="other")}
        store = Store(folder, settings=Settings(durable=False), environ={}, compilers=compilers)
        store.get_or_compile(was)
        answer = check(store.explain(now))
        assert (answer.outcome == "hit") is (store.find(now) is not None) is (was == now)
        if was != now:
            assert answer.relation in ("the same family and name", "the same action")
            assert [change.name for change in answer.changes] == [PARTS.get(field, field)]


# --- real compilers


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> tuple[Store, dict[str, Variant]]:
    """A store with one kernel built by nvcc and by NVRTC."""
    top = tmp_path_factory.mktemp("real")
    (top / "inc").mkdir()
    (top / "inc/h.h").write_text("#define H 1\n")
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("NVCC", "CUBINET"))}
    store = Store(top / "store", settings=Settings(durable=False, refresh=0.0), environ=environ)
    source = '#include <h.h>\nextern "C" __global__ void k(int* p) { *p = H * X; }\n'
    built = {
        compiler: Variant(
            source,
            Target("cuda", "sm_90a"),
            compiler=compiler,
            options=["-DX=1", "--maxrregcount=32"],
            roots=[Root("r", str(top / "inc"))],
            name=compiler,
        )
        for compiler in ("nvcc", "nvrtc")
    }
    for variant in built.values():
        assert store.get_or_compile(variant).reason == ""
    return store, built


@pytest.mark.parametrize("compiler", ["nvcc", "nvrtc"])
@pytest.mark.parametrize(
    ("options", "detail"),
    [
        (["-DX=2", "--maxrregcount=32"], "--define-macro=X=1 → --define-macro=X=2"),
        (["-DX=1", "-maxrregcount", "64"], "--maxrregcount=32 → --maxrregcount=64"),
        (["-DX=1"], "--maxrregcount=32 removed"),
        (["-DX=1", "--maxrregcount=32", "-use_fast_math", "-lineinfo"], ""),
        (["-DX=1", "-DY", "--maxrregcount=32"], "--define-macro=Y added"),
    ],
    ids=str,
)
def test_options_of_real_compilers_are_named_in_one_spelling(
    real: tuple[Store, dict[str, Variant]], compiler: str, options: list[str], detail: str
) -> None:
    store, built = real
    assert check(store.explain(built[compiler])).outcome == "hit"
    answer = check(store.explain(replace(built[compiler], options=tuple(options))))
    assert answer.relation == "the same family and name"
    details = {change.name: change.detail for change in answer.changes}
    if detail:
        assert details == {"arguments": detail}
    else:
        assert details["arguments"] == "--generate-line-info added; --use_fast_math added"
        assert details["folder"].endswith("writes the paths of this machine into it, and they are not the same")


@pytest.mark.parametrize("compiler", ["nvcc", "nvrtc"])
def test_a_program_of_a_real_toolchain_that_changed_is_named(
    real: tuple[Store, dict[str, Variant]], compiler: str
) -> None:
    store, built = real
    request = store.normalize(built[compiler])
    role = {"nvcc": "ptxas", "nvrtc": "libnvrtc-builtins"}[compiler]
    programs = tuple(
        replace(program, digest=digest_of(b"patched")) if program.role == role else program
        for program in request.toolchain.programs
    )
    patched = replace(request.toolchain, identity=digest_of(b"another"), programs=programs)
    request = replace(request, toolchain=patched)
    parts = action_parts(request)
    answer = check(module.explain(store._layers, request, action_of(parts), parts))
    (change,) = answer.changes
    assert change == Change("part", "toolchain", f"{patched.name} {patched.version}: {role} changed")


def test_headers_of_real_compilers_are_named_by_label(real: tuple[Store, dict[str, Variant]]) -> None:
    store, built = real
    for variant in built.values():
        header = Path(variant.roots[0].path, "h.h")
        header.write_text("#define H 2\n")
        assert check(store.explain(variant)).changes == (Change("observation", "r:h.h", "changed"),)
        header.unlink()
        assert Change("observation", "r:h.h", "is gone") in check(store.explain(variant)).changes
        header.write_text("#define H 1\n")
        assert check(store.explain(variant)).outcome == "hit"


def test_the_same_kernel_by_the_other_compiler_is_no_near_miss(real: tuple[Store, dict[str, Variant]]) -> None:
    store, built = real
    answer = check(store.explain(replace(built["nvcc"], compiler="nvrtc", name="nvrtc")))
    assert answer.outcome == "hit"
    other = check(store.explain(replace(built["nvrtc"], target=Target("cuda", "sm_80"), name="new")))
    assert other.relation == "the same source"
    assert other.changes[0].name in ("target", "arguments")


def test_a_hook_that_is_added_says_which_and_what_runs_it(real: tuple[Store, dict[str, Variant]]) -> None:
    store, built = real
    answer = check(store.explain(replace(built["nvcc"], hook="r:edit.py")))
    details = {change.name: change.detail for change in answer.changes}
    assert details["hook"] == "none → r:edit.py"
    assert details["environment"].startswith("PYTHON=CPython 3.")
    assert details["environment"].endswith(" added, for the post-hook")
