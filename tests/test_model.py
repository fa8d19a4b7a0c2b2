"""The values: what can be one, what cannot, and that they are values."""

from __future__ import annotations

import pickle
from dataclasses import FrozenInstanceError, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cubinet.errors import ConfigError, IntegrityError
from cubinet.model import Action, Digest, Fingerprint, Kernel, Program, Root, Target, Variant
from cubinet.testing.samples import build
from cubinet.testing.strategies import digests, observations, records, roots, variants

HEX = "0123456789abcdef" * 4


def variant(**fields: Any) -> Variant:
    return Variant(**{"source": "kernel k\n", "target": "sm_90a", **fields})


# --- digests


def test_a_digest_is_written_and_read() -> None:
    assert str(Digest(HEX)) == f"blake3:{HEX}"
    assert Digest.parse(f"blake3:{HEX}") == Digest.parse(HEX) == Digest(HEX)
    assert str(Fingerprint(HEX)) == HEX
    assert Digest(HEX).raw == bytes.fromhex(HEX)


def test_digests_of_other_things_are_never_equal() -> None:
    assert len({Digest(HEX), Action(HEX), Fingerprint(HEX)}) == 3


@pytest.mark.parametrize(
    "text", ["", "0" * 63, "0" * 65, HEX.upper(), f"{HEX}\n", f" {HEX}"[:64], f"sha256:{HEX}", "g" * 64]
)
def test_what_is_no_digest_is_refused(text: str) -> None:
    for kind in (Digest, Action, Fingerprint):
        with pytest.raises(ConfigError):
            kind.parse(text)


# --- targets and roots


def test_a_target_is_written_and_read() -> None:
    assert str(Target.parse("sm_90a")) == "cuda:sm_90a"
    assert Target.parse("cuda:sm_90a") == Target("cuda", "sm_90a") != Target("cuda", "sm_90")
    assert Target.parse("ascend:dav-2201") == Target("ascend", "dav-2201")


@pytest.mark.parametrize(
    "text", ["", ":", "cuda:", "rocm:gfx942", "cuda:SM_90", "native", "cuda:all", "cuda:all-major", "sm_90 "]
)
def test_what_is_no_target_is_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        Target.parse(text)


@pytest.mark.parametrize("label", ["", "a/b", "..", "a b", "a:b", "-x", ".x", "x" * 65, "é", "a\n"])
def test_what_is_no_label_is_refused(label: str) -> None:
    with pytest.raises(ConfigError):
        Root(label, "/opt")


def test_the_path_of_a_root_is_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert Root("lib", "x").path == str(tmp_path / "x")
    for path, kind in (("/a\0b", "include"), ("/a", "other")):
        with pytest.raises(ConfigError):
            Root("lib", path, kind)


# --- variants


def test_a_variant_takes_what_is_convenient_and_keeps_what_is_exact() -> None:
    made = variant(options=["-O3"], entries=["b", "a", "b"], signature={"y": 2, "x": "1"}, labels={"k": "v"})
    assert made.target == Target("cuda", "sm_90a")
    assert made.options == ("-O3",)
    assert made.entries == ("a", "b")
    assert made.signature == (("x", "1"), ("y", "2"))
    assert made.labels == (("k", "v"),)
    assert made == variant(
        options=("-O3",), entries=("a", "b"), signature=[("x", "1"), ("y", "2")], labels=[("k", "v")]
    )
    assert hash(made) == hash(replace(made))


@pytest.mark.parametrize(
    "fields",
    [
        {"source": ""},
        {"source": " \n"},
        {"options": "-O3"},
        {"entries": "k"},
        {"kind": "object"},
        {"source_name": ""},
        {"source_name": "a/b.cu"},
        {"source_name": "../b.cu"},
        {"source_name": "kernel.py"},
        {"source_name": "a\n.cu"},
        {"source_name": "-x.cu"},
        {"options": ["a\0b"]},
        {"entries": ["a\0b"]},
        {"roots": [Root("lib", "/a"), Root("lib", "/b")]},
        {"roots": [Root("src", "/a")]},
        {"roots": [Root("toolkit2", "/a")]},
        {"target": "native"},
    ],
    ids=str,
)
def test_what_cannot_be_meant_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        variant(**fields)


def test_roots_may_be_a_mapping_or_pairs() -> None:
    expected = (Root("one", "/a"), Root("two", "/b"))
    for given_roots in ({"one": "/a", "two": "/b"}, [("one", "/a"), ("two", "/b")], [Root("one", "/a"), ("two", "/b")]):
        assert variant(roots=given_roots).roots == expected


@pytest.mark.parametrize("fields", [{"roots": ["/a"]}, {"roots": [None]}, {"source": b"kernel k"}], ids=str)
def test_what_is_of_the_wrong_kind_is_refused_with_what_to_give(fields: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="give"):
        variant(**fields)


def test_options_keep_the_folder_in_which_their_paths_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert variant(options=["-Ix"]).folder == str(tmp_path)
    assert variant(options=["-Ix"], folder="/opt").folder == "/opt"
    assert variant().folder == ""


def test_a_variant_comes_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "scale.cu"
    path.write_bytes(b"// \xff caf\xc3\xa9\nkernel k\n")
    made = Variant.from_file(path, "sm_90a", family="math")
    assert made.source_bytes() == path.read_bytes()
    assert (made.source_name, made.name, made.family) == ("scale.cu", "scale", "math")
    assert made.source_folder == str(tmp_path)
    odd = tmp_path / "$scale.cu"
    odd.write_text("x")
    assert Variant.from_file(odd, Target("cuda", "sm_90a")).source_name == "kernel.cu"
    with pytest.raises(ConfigError, match="No such file"):
        Variant.from_file(tmp_path / "gone.cu", "sm_90a")


def test_values_cannot_be_changed() -> None:
    for value, name in (
        (variant(), "source"),
        (Digest(HEX), "hex"),
        (Root("lib", "/"), "path"),
        (build().record, "kind"),
    ):
        with pytest.raises(FrozenInstanceError):
            setattr(value, name, "x")


@given(st.one_of(variants(), records(), digests(), observations(), roots()))
def test_values_pickle(value: object) -> None:
    again = pickle.loads(pickle.dumps(value))
    assert again == value
    assert hash(again) == hash(value)
    assert type(again) is type(value)


def test_where_a_program_lies_is_not_its_identity() -> None:
    assert Program("cc", "/usr/bin/cc", Digest(HEX)) == Program("cc", "/opt/cc", Digest(HEX))


# --- artifacts


def test_an_artifact_knows_its_record() -> None:
    made = build()
    artifact = made.artifact()
    assert artifact.fingerprint == made.fingerprint
    assert artifact.kernels == made.record.kernels
    assert artifact.cacheable


def test_a_kernel_is_found_by_any_of_its_names() -> None:
    kernels = (Kernel("scale<float>", "_Z5scaleIfE"), Kernel("add", "add"))
    artifact = build(kernels=kernels, names=(("ns::scale<float>", "_Z5scaleIfE"),)).artifact()
    for name in ("ns::scale<float>", "scale<float>", "_Z5scaleIfE"):
        assert artifact.symbol(name) == "_Z5scaleIfE"
    assert artifact.symbol("add") == "add"
    assert artifact.symbol("gone") is None


def test_artifacts_are_equal_by_what_they_hold() -> None:
    one, two = build().artifact(), build().artifact()
    assert one == two
    assert hash(one) == hash(two)
    assert one != replace(one, data=b"other")
    assert one != "an artifact"


def test_an_artifact_without_a_layer_has_what_it_was_given() -> None:
    made = build()
    artifact = replace(made.artifact(), _more={})
    assert artifact.read("cubin") == made.data
    assert artifact.read("ptx") is None
    with pytest.raises(IntegrityError, match="no layer at hand"):
        artifact.read("source")
