"""What there is, is documented, and what is documented, is there."""

from __future__ import annotations

import importlib
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import click
import pytest

import cubinet
from cubinet import errors
from cubinet.cli import cli
from cubinet.config import SETTINGS, Settings
from cubinet.model import Kernel, Seen, Variant
from cubinet.objects import ObjectInfo
from cubinet.protocols import Request
from cubinet.registry import BUILT_IN, plugins
from cubinet.store import Store
from cubinet.store.format import Asked, Failure

from .blocks import ROOT, reader_environ

REFERENCE = ROOT / "docs" / "reference"


def page(name: str) -> str:
    return (REFERENCE / name).read_text("utf-8")


def sections(text: str) -> dict[str, str]:
    """The text below each second-level heading."""
    parts = re.split(r"^## (.+)$", text, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def rows(text: str) -> list[list[str]]:
    """The cells of all tables, without their heads."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    heads = {i - 1 for i, line in enumerate(lines) if set(line) <= set("|-")}
    cells = [re.split(r"(?<!\\)\|", line.strip("|")) for line in lines]
    return [[cell.strip() for cell in row] for i, row in enumerate(cells) if i not in heads and i - 1 not in heads]


def coded(text: str) -> set[str]:
    """Everything in single backquotes."""
    return set(re.findall(r"(?<!`)`([^`\n]+)`(?!`)", text))


def first_column(text: str) -> set[str]:
    return {name for row in rows(text) for name in coded(row[0])}


# --- Python


def test_every_public_name_is_in_the_table_of_the_interface() -> None:
    assert first_column(sections(page("api/index.md"))["`cubinet`"]) == set(cubinet.__all__)


def test_every_module_with_a_page_has_an_all_and_every_page_is_listed() -> None:
    index = page("api/index.md")
    for path in sorted((REFERENCE / "api").glob("*.md")):
        if path.stem == "index":
            continue
        assert re.search(rf"^{path.stem}$", index, re.MULTILINE), path.name
        for name in re.findall(r"automodule:: (\S+)", path.read_text("utf-8")):
            assert importlib.import_module(name).__all__


def test_every_error_says_when_it_is_raised_and_what_to_do() -> None:
    text = page("errors.md")
    described = {row[0].strip("`"): row[1:] for row in rows(text)}
    assert sorted(described) == sorted(errors.__all__)
    assert all(all(cells) for cells in described.values())


def test_the_tree_of_errors_is_that_of_the_code() -> None:
    tree = re.search(r"```text\n(.*?)```", page("errors.md"), re.DOTALL)
    assert tree is not None
    above: dict[int, type] = {}
    shown = []
    for line in tree[1].splitlines():
        found = re.search(r"[A-Z]\w+", line)
        assert found is not None
        depth, kind = found.start() // 4, getattr(errors, found[0])
        shown.append(found[0])
        assert depth == 0 or above[depth - 1] in kind.__bases__, line
        also = re.findall(r"also (\w+)", line)
        assert [
            base.__name__ for base in kind.__bases__ if base.__module__ == "builtins" and base is not Exception
        ] == also
        above[depth] = kind
    assert sorted(shown) == sorted(errors.__all__)


# --- settings


def test_every_setting_has_a_row_with_its_names_and_default() -> None:
    found = {coded(row[0]).pop(): row for row in rows(sections(page("settings.md"))["The settings"])}
    assert sorted(found) == sorted(f"CUBINET_{setting.name}" for setting in SETTINGS)
    for setting in SETTINGS:
        row = found[f"CUBINET_{setting.name}"]
        assert row[1] == f"`{setting.name.lower()}`"
        if setting.default != "":
            assert row[3] == f"`{setting.default}`", setting.name


def test_settings_have_one_list_of_names_and_defaults() -> None:
    assert {f.name: f.default for f in fields(Settings)} == {s.name.lower(): s.default for s in SETTINGS}


def test_every_variable_that_the_code_names_is_documented() -> None:
    text = page("settings.md")
    names: set[str] = set()
    for source in (ROOT / "src").rglob("*.py"):
        code = source.read_text("utf-8")
        names |= set(re.findall(r"\b(?:CUBINET_CONFIG|CUDA_[A-Z]+|C\w*PATH|XDG_[A-Z_]+|NVCC_[A-Z_]+)\b", code))
    names -= {"CICC_PATH"}  # what nvcc prints
    assert names - {"NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS"} <= coded(text), names - coded(text)
    assert {"NVCC", "NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS"} <= coded(text)


# --- commands


def commands() -> Iterator[tuple[str, click.Command]]:
    assert isinstance(cli, click.Group)
    context = click.Context(cli)
    for name in cli.list_commands(context):
        command = cli.get_command(context, name)
        assert command is not None
        yield name, command


def test_every_command_has_a_section_and_every_section_a_command() -> None:
    found = {head.removeprefix("cubinet ") for head in sections(page("cli.md")) if head.startswith("cubinet ")}
    assert found == {name for name, _ in commands()}


@pytest.mark.parametrize(("name", "command"), [*commands()], ids=[name for name, _ in commands()])
def test_every_option_has_a_row_and_every_row_an_option(name: str, command: click.Command) -> None:
    section = sections(page("cli.md"))[f"cubinet {name}"].split("### ")[0]
    documented = {text.split(" ")[0] for text in first_column(section)}
    options = [parameter for parameter in command.params if isinstance(parameter, click.Option)]
    assert documented == {spelling for option in options for spelling in option.opts} - {"--help", "-h"}
    assert all(option.help for option in options)
    assert command.help


def test_the_exit_statuses_are_those_of_the_command() -> None:
    documented = {int(row[0]) for row in rows(sections(page("cli.md"))["Exit status"])}
    in_code = importlib.import_module("cubinet.cli").__doc__ or ""
    assert documented == {int(number) for number in re.findall(r"\b(\d+) [a-z]", in_code)}


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    """A folder with one build in its store, and an environment for it."""
    folder = tmp_path_factory.mktemp("reader")
    environ = reader_environ(folder)
    (folder / "k.cu").write_text('#include <cstdio>\nextern "C" __global__ void k() { int unused; }\n')
    environ["CUBINET_DURABLE"] = "0"
    cubinet_json(folder, environ, "compile", "k.cu", "--arch", "sm_90a", "-o", "k.cubin")
    return folder, environ


def cubinet_json(folder: Path, environ: dict[str, str], *arguments: str) -> Any:
    """What a command prints with `--json`, whatever its status."""
    command = [sys.executable, "-m", "cubinet", *arguments[:2], "--json", *arguments[2:]]
    done = subprocess.run(command, cwd=folder, env=environ, stdout=subprocess.PIPE, check=False, timeout=120)
    return json.loads(done.stdout)


def keys(value: Any, open_ended: Iterable[str] = ()) -> set[str]:
    """All field names in a JSON document; of `open_ended` fields only what is in their values."""
    if isinstance(value, list):
        return set().union(*(keys(item, open_ended) for item in value))
    if not isinstance(value, dict):
        return set()
    found = set(value)
    for name, inner in value.items():
        below = inner.values() if name in open_ended and isinstance(inner, dict) else [inner]
        found |= set().union(*(keys(item, open_ended) for item in below))
    return found


def test_every_field_of_compile_is_documented(reader: tuple[Path, dict[str, str]]) -> None:
    section = sections(page("cli.md"))["cubinet compile"]
    for more in ([], ["--no-compile"], ["-O0", "--no-compile"]):
        arguments = ["compile", "k.cu", "--arch", "sm_90a", *[m for m in more if m.startswith("--")]]
        arguments += ["--", *[m for m in more if not m.startswith("--")]]
        found = cubinet_json(*reader, *arguments)
        assert set(found) == first_column(section.split("### The JSON object")[1])
        assert keys(found) <= coded(section) | {str(seen) for seen in Seen}
        assert set(found["observations"]) <= {str(seen) for seen in Seen}


@pytest.mark.parametrize(
    ("arguments", "open_ended"),
    [
        (["verify", "--recompile=1"], ["same", "different", "skipped"]),
        (["doctor"], ["packages", "programs"]),
    ],
    ids=["verify", "doctor"],
)
def test_every_field_of_a_report_is_documented(
    arguments: list[str], open_ended: list[str], reader: tuple[Path, dict[str, str]]
) -> None:
    folder, environ = reader
    environ = environ | {"CUBINET_LAYERS": f"{folder}/shared?trust=open"}
    found = cubinet_json(folder, environ, *arguments)
    assert keys(found, open_ended) == coded(
        sections(page("cli.md"))[f"cubinet {arguments[0]}"].split("`--json`")[1]
    ) - {"--json"}


def test_every_field_of_explain_is_documented(reader: tuple[Path, dict[str, str]]) -> None:
    section = sections(page("cli.md"))["cubinet explain"]
    for options in (["-O0"], []):  # a miss with something near, a hit
        found = cubinet_json(*reader, "explain", "k.cu", "--arch", "sm_90a", "--", *options)
        assert set(found) == first_column(section.split("### The JSON object")[1])
        assert keys(found) <= coded(section)


def test_every_field_of_inspect_is_documented(reader: tuple[Path, dict[str, str]]) -> None:
    found = cubinet_json(*reader, "inspect", "k.cubin")
    assert set(found) == {"file", *(f.name for f in fields(ObjectInfo))}
    assert set(found) == first_column(sections(page("objects.md"))["The object"])
    assert keys(found) <= coded(page("objects.md"))


def test_every_fact_of_a_kernel_has_a_row() -> None:
    assert first_column(sections(page("objects.md"))["Kernels"]) == {f.name for f in fields(Kernel)}


# --- formats


def test_every_field_of_a_record_is_documented(reader: tuple[Path, dict[str, str]]) -> None:
    (record,) = cubinet_json(*reader, "ls")
    text = page("record-format.md").split("(record)=")[1].split("(manifest)=")[0]
    top = {name for row in rows(text.split("Roles of blobs")[0]) for name in coded(row[0])}
    assert top == set(record) | {"local_only", "names", "signatures"}
    open_ended = ["programs", "parts", "blobs", "observations", "labels"]
    assert keys(record, open_ended) - {"const", "params"} <= coded(text)
    for kind in record["blobs"]:
        assert kind in coded(text.split("Roles of blobs")[1])


def test_every_field_of_a_request_is_documented() -> None:
    text = page("record-format.md").split("(request)=")[1].split("(manifest)=")[0]
    assert first_column(text) == set(Asked.__struct_fields__)


def test_every_field_of_manifests_and_failures_is_documented(reader: tuple[Path, dict[str, str]]) -> None:
    folder, _ = reader
    _, manifest, failure = re.split(r"^\((?:manifest|failure)\)=$", page("record-format.md"), flags=re.MULTILINE)
    (file,) = (folder / "store" / "manifests").glob("*/*.json")
    assert first_column(manifest) == set(json.loads(file.read_bytes())) - {"_check"}
    assert first_column(failure) == set(Failure.__struct_fields__)


def test_every_part_of_an_action_is_documented_in_order() -> None:
    from cubinet.fingerprint import action_parts
    from cubinet.model import Digest, Toolchain

    request = Request(Variant("x", "sm_90a"), Toolchain("", "", Digest("0" * 64)), (), (), (), {})
    documented = [coded(row[0]).pop() for row in rows(sections(page("fingerprint.md"))["The parts of an action"])]
    assert documented == [name for name, _ in action_parts(request)]


def test_every_way_to_look_is_documented() -> None:
    documented = first_column(sections(page("fingerprint.md"))["Observations"])
    assert {str(seen) for seen in Seen} <= documented


def test_everything_in_a_store_is_in_its_layout(reader: tuple[Path, dict[str, str]], tmp_path: Path) -> None:
    folder, environ = tmp_path / "reader", reader[1]
    shutil.copytree(reader[0], folder)
    environ = environ | {"CUBINET_DIR": str(folder / "store")}
    (folder / "bad.cu").write_text("nonsense\n")
    command = [sys.executable, "-m", "cubinet", "compile", "bad.cu", "--arch", "sm_90a"]
    subprocess.run(command, cwd=folder, env=environ, capture_output=True, check=False, timeout=120)
    store = Store(folder / "store")
    (record,) = store.records()
    ref = record.blob("source")
    assert ref is not None
    blob = folder / "store" / "blobs" / ref.digest.hex[:2] / ref.digest.hex
    blob.chmod(0o644)
    blob.write_bytes(b"")
    store.verify()
    store.pins.pin("release", [record.fingerprint])
    store.collect()
    layout = re.search(r"```text\n(.*?)```", page("store-layout.md"), re.DOTALL)
    assert layout is not None
    documented = {re.split(r"[/ ]", line)[0] for line in layout[1].splitlines()}
    there = {path.name for path in (folder / "store").iterdir()} - {"index.sqlite3-wal", "index.sqlite3-shm"}
    assert there <= documented
    assert documented - there <= {"uses", "index.notes"}  # with a remote; of a process that did not write the index
    deletable = first_column(sections(page("store-layout.md"))["What may be deleted by hand"])
    assert {name.partition("/")[0] for name in deletable} == documented


def test_every_entry_point_group_and_adapter_is_documented() -> None:
    text = page("entry-points.md")
    groups = {head.strip("`"): below for head, below in sections(text).items() if head.startswith("`")}
    assert set(groups) == set(BUILT_IN)
    for group, below in groups.items():
        documented = {coded(row[0]).pop(): coded(row[1]).pop() for row in rows(below)}
        assert documented == BUILT_IN[group]
        assert {name: target for name, (target, owner) in plugins(group).items() if owner == "cubinet"} == BUILT_IN[
            group
        ]


def test_every_counter_of_the_code_is_documented() -> None:
    documented = first_column(page("counters.md"))
    in_code: set[str] = set()
    for source in (ROOT / "src" / "cubinet" / "store").glob("*.py"):
        in_code |= set(re.findall(r"counters\.add\(f?\"([^\"{]+)", source.read_text("utf-8")))
    for name in in_code:
        assert any(have.startswith(name) for have in documented), name


def test_every_word_of_the_design_is_in_the_glossary() -> None:
    glossary = (ROOT / "docs" / "glossary.md").read_text("utf-8")
    words = sections((ROOT / "docs" / "explanation" / "design.md").read_text("utf-8"))
    (table,) = (below for head, below in words.items() if head.startswith("1. "))
    named = [word for row in rows(table) for word in re.findall(r"\*\*([^*]+)\*\*", "|".join(row))]
    assert len(named) > 15
    for word in named:
        assert re.search(rf"^{word}\n  ", glossary, re.MULTILINE), word
