"""Keys and formats stay as they were written: see `make.py`."""

from __future__ import annotations

import importlib.util
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cubinet.config import Settings
from cubinet.errors import FormatError
from cubinet.fingerprint import ACTION_CONTEXT, FINGERPRINT_CONTEXT, PART_CONTEXT
from cubinet.model import Root, Status
from cubinet.store import Store
from cubinet.store.local import LocalLayer
from cubinet.testing.bench import overwrite
from cubinet.testing.fake_compiler import FakeCompiler


def _load() -> Any:
    spec = importlib.util.spec_from_file_location("golden_make", Path(__file__).with_name("make.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


make = _load()
VECTORS = make.load()
PRESENT = {ACTION_CONTEXT, FINGERPRINT_CONTEXT, PART_CONTEXT, "length-prefixed", "cubinet-observations 1"}
PRESENT |= {"cubinet tree v1", "format 1"}


@pytest.mark.parametrize("vector", VECTORS, ids=[f"{number} {v.what}" for number, v in enumerate(VECTORS)])
def test_no_key_changes_under_the_version_it_was_made_with(vector: Any) -> None:
    if vector.version in PRESENT:
        assert make.COMPUTE[vector.what](vector.given) == vector.gives, (
            f"{vector.what} changed: give {vector.version!r} a new version and run tests/golden/make.py"
        )


def test_every_present_version_has_vectors() -> None:
    assert {vector.version for vector in VECTORS} >= PRESENT
    recorded = {(v.what, v.version, v.gives) for v in VECTORS}
    assert {(v.what, v.version, v.gives) for v in make.vectors()} <= recorded, "run tests/golden/make.py"


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """The store that release 0.1 wrote, where it can be written."""
    shutil.copytree(make.STORE, tmp_path / "store")
    return tmp_path / "store"


def store(folder: Path) -> Store:
    return Store(folder, settings=Settings(), environ={}, compilers={"fake": FakeCompiler()})


def test_an_old_store_is_still_whole(old: Path) -> None:
    found = store(old).verify()
    assert found.clean
    assert (found.records, found.blobs, found.spare) == (1, 5, 0)


def test_an_old_store_still_answers_without_a_compile(old: Path) -> None:
    found = store(old).get_or_compile(make.STORED)
    assert (found.status, found.layer) == (Status.HIT, "local")
    assert found.data == b"cubin -O3 sm_90a 1.0\na header that never changes\n0\nkernel golden\n"
    assert found.read("log") == b"fake: 3 lines"
    record = found.record
    assert (record.host, record.producer, record.created) == ("golden", "cubinet 0.1.0", "2026-11-29T00:00:00+00:00")
    assert record.labels == (("made", "once"),)
    assert [kernel.regs for kernel in record.kernels] == [6]


def test_an_old_store_answers_where_it_cannot_be_written(old: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in old.rglob("*")}
    layer = LocalLayer(str(old))
    (fingerprint,) = layer.fingerprints()
    record = layer.find(fingerprint)
    assert record is not None
    assert layer.candidates(record.action) == (record.observations,)
    assert all(layer.read(ref) is not None for _, ref in record.blobs)
    assert {path: path.stat().st_mtime_ns for path in old.rglob("*")} == before


def test_an_old_store_sees_that_a_header_is_another_now(old: Path, tmp_path: Path) -> None:
    shutil.copytree(make.HEADERS, tmp_path / "headers")
    roots = (Root("empty", str(tmp_path / "headers/empty")), Root("golden", str(tmp_path / "headers")))
    moved = replace(make.STORED, roots=roots)
    assert store(old).find(moved) is not None
    (tmp_path / "headers/empty/not_there.h").write_text("it is there now")
    assert store(old).find(moved) is None


def test_this_release_writes_what_the_old_one_wrote(old: Path, tmp_path: Path) -> None:
    found = store(old).find(make.STORED)
    assert found is not None
    store(tmp_path / "new").publish(found)
    for kind in ("records", "blobs", "manifests", "VERSION", "CACHEDIR.TAG"):
        paths = [path for path in [old / kind, *(old / kind).rglob("*")] if path.is_file()]
        assert paths
        for path in paths:
            assert (tmp_path / "new" / path.relative_to(old)).read_bytes() == path.read_bytes()


def test_a_store_of_a_newer_format_is_refused(old: Path) -> None:
    version = old / "VERSION"
    found = store(old).find(make.STORED)
    assert found is not None
    overwrite(version, b"cubinet-store 2\n")
    with pytest.raises(FormatError, match="upgrade cubinet"):
        store(old).publish(found)
