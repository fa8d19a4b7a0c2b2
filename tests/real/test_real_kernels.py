"""Real kernels of public libraries, compiled, stored, described and found again, with a real nvcc."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.objects.cuobjdump import differences, find_tool, res_usage

from cubinet.compilers.nvcc import NvccCompiler
from cubinet.model import Artifact, Observation, Seen
from cubinet.observations import read_observations
from cubinet.store import Store

from .conftest import ROOT, ROW, Headers, MakeStore, cache_folder
from .kernels import FAMILIES, KERNELS, SOURCES, Real, params

FASTEST = [kernel for kernel in KERNELS if kernel.quick]
HIDDEN = next(kernel for kernel in KERNELS if kernel.source == "pipeline")
"""It has symbols with internal linkage, which nvcc names by the folder it compiles in."""


def observations(artifact: Artifact) -> tuple[Observation, ...]:
    data = artifact.read("observations")
    assert data is not None
    return tuple(read_observations(data))


def machine_paths(store: Store, kernel: Real, places: dict[str, Path]) -> set[bytes]:
    """Folders of this machine that a result must not name, as spelled and as they really are."""
    given = store.normalize(kernel.variant(places)).places
    here = {tempfile.gettempdir(), store.folder, str(Path.home()), str(ROOT), str(cache_folder()), *given.values()}
    return {os.fsencode(form) for path in here for form in (path, os.path.realpath(path)) if len(form) > 1}


def disagreements(artifact: Artifact, folder: Path) -> list[str]:
    """Where our numbers and cuobjdump's differ, for a cubin or the member of a fatbin."""
    file = folder / f"object.{artifact.record.kind}"
    file.write_bytes(artifact.data)
    if artifact.record.kind == "fatbin":
        tool = find_tool("cuobjdump")
        assert tool is not None
        subprocess.run([tool, "-xelf", "all", file], cwd=folder, check=True, capture_output=True)
        (file,) = folder.glob(f"*.{artifact.record.target.arch}.cubin")
    return differences(artifact.kernels, res_usage(file))


@pytest.mark.parametrize("kernel", params())
def test_a_real_kernel_is_stored_with_true_facts_and_found_again(
    kernel: Real,
    headers: Headers,
    make_store: MakeStore,
    tmp_path: Path,
    record_property: Callable[[str, object], None],
) -> None:
    places = headers(kernel.labels)
    store = make_store(tmp_path / "store")
    made = store.get_or_compile(kernel.variant(places))
    assert (made.status, made.reason, made.record.local_only) == ("compiled", "", "")

    looks = observations(made)
    own = re.compile(FAMILIES[kernel.family].own)
    assert any(own.match(look.name) and look.seen is Seen.READ for look in looks)
    assert not [look.name for look in looks if look.name.startswith("file:")]
    assert not [look.name for look in looks if look.seen is Seen.TREE]

    assert made.kernels
    if kernel.kind == "ptx":
        assert {k.regs for k in made.kernels} == {None}
    else:
        assert disagreements(made, tmp_path) == []

    kept = made.data + (made.read("log") or b"") + os.fsencode(" ".join(made.record.argv))
    assert [path for path in machine_paths(store, kernel, places) if path in kept] == []
    assert [text for text in kernel.texts if text not in made.data] == []

    start = time.perf_counter()
    again = make_store(tmp_path / "store").get_or_compile(kernel.variant(places))
    hit = time.perf_counter() - start
    assert (again.status, again.fingerprint) == ("hit", made.fingerprint)
    assert again.data == made.data
    assert again.kernels == made.kernels

    seen = Counter(look.seen for look in looks)
    row = {
        "family": kernel.family,
        "name": kernel.name,
        "toolchain": made.record.toolchain.version,
        "kernels": len(made.kernels),
        "read": seen[Seen.READ],
        "absent": seen[Seen.ABSENT],
        "compile_s": round(made.record.seconds, 2),
        "hit_ms": round(hit * 1000, 2),
        "bytes": len(made.data),
        "fingerprint": made.fingerprint.hex,
    }
    record_property(ROW, row)


@pytest.mark.real
@pytest.mark.parametrize("kernel", params(k for k in FASTEST if k.labels))
def test_a_copy_of_the_headers_at_another_prefix_is_the_same_build(
    kernel: Real, headers: Headers, make_store: MakeStore, tmp_path: Path
) -> None:
    places = headers(kernel.labels)
    first = make_store().get_or_compile(kernel.variant(places))
    copies = {label: tmp_path / "another prefix" / label for label in places}
    for label, place in places.items():
        shutil.copytree(place, copies[label])
    second = make_store().get_or_compile(kernel.variant(copies))
    assert (second.status, second.fingerprint) == ("hit", first.fingerprint)
    assert second.data == first.data


@pytest.mark.real
@pytest.mark.parametrize("kernel", params((*FASTEST, HIDDEN)))
def test_compiling_it_in_another_folder_gives_the_same_bytes(
    kernel: Real, headers: Headers, make_store: MakeStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    places = headers(kernel.labels)
    first = make_store().get_or_compile(kernel.variant(places))
    shutil.copytree(SOURCES, tmp_path / "another checkout")
    (tmp_path / "tmp").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    links = {label: tmp_path / f"a link to {label}" for label in places}
    for label, place in places.items():
        links[label].symlink_to(place)
    second = make_store(tmp_path / "store").get_or_compile(kernel.variant(links, tmp_path / "another checkout"))
    assert second.status == "compiled"
    assert second.fingerprint == first.fingerprint
    assert second.data == first.data


@pytest.mark.real
def test_cub_from_a_toolkit_at_another_prefix_is_the_same_build(make_store: MakeStore, tmp_path: Path) -> None:
    kernel = Real("cccl", "block_sort", "sm_90a", ("block_sort",))
    store = make_store()
    first = store.get_or_compile(kernel.variant({}))
    adapter = store.compiler("nvcc")
    assert isinstance(adapter, NvccCompiler)
    toolkit = Path(adapter.facts().nvcc).parents[1].resolve()
    for part in ("bin", "nvvm", "include", "targets"):
        if (toolkit / part).is_dir():
            ignored = shutil.ignore_patterns("lib", "lib64", "nsight*", "ncu*", "nsys*")
            shutil.copytree(toolkit / part, tmp_path / "a toolkit" / part, symlinks=True, ignore=ignored)
    second = make_store(CUBINET_NVCC=str(tmp_path / "a toolkit/bin/nvcc")).get_or_compile(kernel.variant({}))
    assert (second.status, second.fingerprint) == ("hit", first.fingerprint)
    moved = make_store(tmp_path / "store", CUBINET_NVCC=str(tmp_path / "a toolkit/bin/nvcc"))
    third = moved.get_or_compile(kernel.variant({}))
    assert (third.status, third.fingerprint) == ("compiled", first.fingerprint)
    assert third.data == first.data
