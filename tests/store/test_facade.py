"""`Store` with a compiler that needs no toolkit: what callers see, whatever the folder does."""

from __future__ import annotations

import errno
import logging
import os
import pickle
import shutil
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cubinet.config import Settings
from cubinet.errors import (
    CompileError,
    CompileTimeoutError,
    ConfigError,
    GateError,
    IntegrityError,
    PluginError,
    StoreError,
)
from cubinet.model import Artifact, Fingerprint, Root, Status
from cubinet.store import Store
from cubinet.testing.bench import SOURCE, Bench, overwrite
from cubinet.testing.fake_compiler import FakeCompiler
from cubinet.testing.faults import CountingFs, Fault, FaultyFs, NoSyncFs, WatchedFs
from cubinet.testing.samples import build

from .files import mode, tree

DEEP = '#include "a.h"\n#include "b.h"\nkernel deep\n'


def facts(artifact: Artifact | None) -> tuple[object, ...]:
    assert artifact is not None
    return artifact.data, artifact.status, artifact.layer, artifact.reason


# --- the three ways to an artifact


def test_a_cold_variant_is_compiled_and_stored(bench: Bench) -> None:
    made = bench.store().get_or_compile(bench.variant(family="math", labels={"dtype": "half"}, entries=["scale"]))
    assert facts(made) == (bench.expected(), Status.COMPILED, "local", "")
    assert made.messages == "fake: 2 lines"
    assert made.cacheable
    record = made.record
    assert (record.family, record.name, record.labels) == ("math", "scale", (("dtype", "half"),))
    assert [kernel.name for kernel in made.kernels] == ["scale"]
    assert record.observation_counts == (("absent", 1), ("read", 1))
    assert {role for role, _ in record.blobs} >= {"cubin", "log", "observations", "source"}
    assert bench.runs == 1


def test_a_new_process_finds_it_in_the_folder(bench: Bench) -> None:
    made = bench.store().get_or_compile(bench.variant())
    found = bench.store().get_or_compile(bench.variant())
    assert facts(found) == (bench.expected(), Status.HIT, "local", "")
    assert found.record == made.record
    assert found.messages == ""
    assert bench.runs == 1


def test_the_same_store_finds_it_in_the_process(bench: Bench) -> None:
    store = bench.store(refresh=60.0)
    store.get_or_compile(bench.variant())
    variant = bench.variant()
    for _ in range(2):  # an equal variant, then the very same one
        assert facts(store.find(variant)) == (bench.expected(), Status.HIT, "process", "")
    assert bench.runs == 1


def test_find_never_compiles_and_never_makes_a_folder(bench: Bench) -> None:
    store = bench.store()
    assert store.find(bench.variant()) is None
    assert store.find(build().fingerprint) is None
    assert list(store.records()) == []
    assert store.verify().clean
    assert bench.runs == 0
    assert not bench.folder.exists()


def test_a_fingerprint_finds_without_compiler_and_headers(bench: Bench) -> None:
    made = bench.store().get_or_compile(bench.variant())
    bench.header.unlink()
    store = Store(bench.folder, settings=Settings(), environ={})
    assert facts(store.find(made.fingerprint)) == (bench.expected(), Status.HIT, "local", "")
    assert store.find(Fingerprint("0" * 64)) is None


def test_all_blobs_of_an_artifact_can_be_read(bench: Bench) -> None:
    made = bench.store().get_or_compile(bench.variant())
    found = bench.store().find(bench.variant())
    for artifact in (made, found):
        assert artifact is not None
        assert artifact.read("cubin") == artifact.data == bench.expected()
        assert artifact.read("source") == SOURCE.encode()
        assert artifact.read("log") == b"fake: 2 lines"
        assert (artifact.read("observations") or b"").startswith(b"cubinet-observations 1\n")
        assert artifact.read("ptx") is None


def test_a_further_blob_that_is_gone_is_an_error_that_says_which(bench: Bench) -> None:
    bench.store().get_or_compile(bench.variant())
    found = bench.store().find(bench.variant())
    assert found is not None
    for path in bench.files("blobs"):
        path.unlink()
    with pytest.raises(IntegrityError, match="blake3"):
        found.read("source")


def test_labels_do_not_make_another_build(bench: Bench) -> None:
    store = bench.store()
    first = store.get_or_compile(bench.variant(name="one", family="a", labels={"x": "1"}))
    second = store.get_or_compile(bench.variant(name="two", family="b", labels={"x": "2"}))
    assert first.fingerprint == second.fingerprint
    assert bench.runs == 1


@pytest.mark.parametrize(
    "other",
    [
        {"source": SOURCE + "more\n"},
        {"options": ["-DX"]},
        {"kind": "ptx"},
        {"signature": {"x": "1"}},
        {"source_name": "other.cu"},
        {"entries": ["scale"]},
    ],
    ids=str,
)
def test_another_request_is_another_build(bench: Bench, other: dict[str, object]) -> None:
    store = bench.store()
    first = store.get_or_compile(bench.variant())
    second = store.get_or_compile(bench.variant(**other))  # type: ignore[arg-type]
    assert first.fingerprint != second.fingerprint
    assert bench.runs == 2


def test_another_toolchain_is_another_build(bench: Bench) -> None:
    bench.store().get_or_compile(bench.variant())
    assert bench.store(version="2.0").find(bench.variant()) is None
    assert bench.store(version="1.0").find(bench.variant()) is not None


def test_no_text_is_too_odd_to_be_asked_for(bench: Bench) -> None:
    odd = "\udcff <\"'\\\n\u2028> \U0001f600"
    variant = bench.variant(
        f"{odd}\nkernel k\n", family=odd, name=odd, labels={odd: odd}, signature={odd: odd}, options=[odd]
    )
    made = bench.store().get_or_compile(variant)
    assert made.data.endswith(b"kernel k\n")
    found = bench.store().get_or_compile(variant)
    assert found.data == made.data


# --- looking at headers again


def test_a_changed_header_is_another_build_and_both_stay(bench: Bench) -> None:
    store = bench.store()
    first = store.get_or_compile(bench.variant())
    bench.header.write_text("changed\n")
    second = store.get_or_compile(bench.variant())
    assert second.data == bench.expected("changed")
    bench.header.write_text("text of a.h\n")
    assert store.get_or_compile(bench.variant()).fingerprint == first.fingerprint
    assert bench.runs == 2


def test_a_header_that_appears_earlier_on_the_path_is_seen(bench: Bench) -> None:
    for later in (False, True):
        bench.store(later=later).get_or_compile(bench.variant())
        time.sleep(0.02)  # a tick of the file system's clock
        (bench.top / "first/a.h").write_text("shadow\n")
        assert bench.store(later=later).find(bench.variant()) is None
        assert bench.store(later=later).get_or_compile(bench.variant()).data == bench.expected("shadow")
        time.sleep(0.02)
        (bench.top / "first/a.h").unlink()
        assert bench.store(later=later).get_or_compile(bench.variant()).data == bench.expected()
        shutil.rmtree(bench.folder)


def test_a_header_that_is_gone_is_a_miss_and_an_error_of_the_compiler(bench: Bench) -> None:
    bench.store().get_or_compile(bench.variant())
    bench.header.unlink()
    assert bench.store().find(bench.variant()) is None
    with pytest.raises(CompileError, match=r"a\.h: no such file"):
        bench.store().get_or_compile(bench.variant())


def test_a_probed_name_counts_by_being_there(bench: Bench) -> None:
    source = '#probe "maybe.h"\nkernel k\n'
    assert b"\n0\n" in bench.store().get_or_compile(bench.variant(source)).data
    (bench.top / "second/maybe.h").write_text("x")
    assert b"\n1\n" in bench.store().get_or_compile(bench.variant(source)).data
    (bench.top / "second/maybe.h").write_text("its content does not count")
    assert b"\n1\n" in bench.store().get_or_compile(bench.variant(source)).data
    assert bench.runs == 2


def test_a_store_in_another_place_finds_what_the_same_headers_give(bench: Bench, tmp_path: Path) -> None:
    bench.store().get_or_compile(bench.variant())
    moved = tmp_path / "moved"
    shutil.copytree(bench.top / "second", moved / "second")
    (moved / "first").mkdir()
    roots = (Root("first", str(moved / "first")), Root("second", str(moved / "second")))
    assert bench.store().find(bench.variant(roots=roots)) is not None
    (moved / "second/a.h").write_text("other\n")
    assert bench.store().find(bench.variant(roots=roots)) is None
    assert bench.store().get_or_compile(bench.variant(roots=roots)).data == bench.expected("other")
    assert bench.store().get_or_compile(bench.variant()).data == bench.expected()


def test_within_the_refresh_interval_files_are_not_looked_at_again(bench: Bench) -> None:
    store = bench.store(refresh=60.0)
    store.get_or_compile(bench.variant())
    bench.header.write_text("changed\n")
    assert store.get_or_compile(bench.variant()).data == bench.expected()
    store.refresh()
    assert store.get_or_compile(bench.variant()).data == bench.expected("changed")


def test_the_refresh_interval_ends(bench: Bench) -> None:
    store = bench.store(refresh=60.0)
    clock = [0.0]
    store._checker.clock = lambda: clock[0]
    store.refresh()
    variant = bench.variant()
    store.get_or_compile(variant)
    bench.header.write_text("changed\n")
    clock[0] = 59.9
    assert store.find(variant) is not None
    clock[0] = 60.0
    assert store.find(variant) is None


def test_a_refresh_in_the_middle_of_a_lookup_is_not_forgotten(bench: Bench) -> None:
    # Another thread edits a header and says so while this one has checked it and reads the blob.
    bench.store().get_or_compile(bench.variant())
    stores: list[Store] = []

    class Editing(WatchedFs):
        def read(self, path: str, limit: int | None = None) -> bytes:
            if "/records/" in path and bench.header.read_text() != "changed\n":
                bench.header.write_text("changed\n")
                stores[0].refresh()
            return super().read(path, limit)

    stores.append(bench.store(fs=Editing(), refresh=60.0))
    variant = bench.variant()
    assert facts(stores[0].find(variant))[0] == bench.expected()  # it had looked before the edit
    assert stores[0].find(variant) is None
    assert stores[0].get_or_compile(bench.variant()).data == bench.expected("changed")


def test_a_header_edited_while_its_build_is_published_is_looked_at_again(bench: Bench) -> None:
    class Editing(WatchedFs):
        def link(self, source: str, target: str) -> None:
            super().link(source, target)
            if "/records/" in target:
                bench.header.write_text("changed\n")

    store = bench.store(fs=Editing(), refresh=60.0)
    assert store.get_or_compile(bench.variant()).data == bench.expected()
    assert store.get_or_compile(bench.variant()).data == bench.expected("changed")


# --- errors of the compiler


def test_a_certain_error_is_found_out_once(bench: Bench) -> None:
    store, broken = bench.store(), bench.variant("#error no good\n")
    seen = []
    for _ in range(3):
        with pytest.raises(CompileError, match="no good") as caught:
            store.get_or_compile(broken)
        seen.append((str(caught.value), caught.value.log, caught.value.command, caught.value.deterministic))
    assert len(set(seen)) == 1
    assert bench.runs == 1
    assert store.stats() == {"failed": 1, "failed.remembered": 2, "miss.no build of this action": 3}


def test_other_processes_hear_of_a_certain_error_for_a_minute(bench: Bench) -> None:
    broken = bench.variant("#error no good\n")
    first = bench.store()
    first._local.now = lambda: 1000.0
    with pytest.raises(CompileError):
        first.get_or_compile(broken)
    for now, runs in ((1000.0, 1), (1059.0, 1), (1061.0, 2), (900.0, 3)):
        store = bench.store()
        store._local.now = lambda now=now: now  # type: ignore[misc]
        with pytest.raises(CompileError, match="no good"):
            store.get_or_compile(broken)
        assert bench.runs == runs
        if runs == 2:
            shutil.rmtree(bench.folder / "failures")
            with pytest.raises(CompileError):
                first.get_or_compile(broken)  # its own process does not forget
            assert bench.runs == runs


@pytest.mark.parametrize("new_process", [False, True])
def test_editing_a_header_lifts_an_error_at_once(bench: Bench, new_process: bool) -> None:
    bench.header.write_text("#error typing error\n")
    store = bench.store()
    for _ in range(2):
        with pytest.raises(CompileError, match="typing error"):
            store.get_or_compile(bench.variant())
    bench.header.write_text("fine\n")
    store = bench.store() if new_process else store
    assert store.get_or_compile(bench.variant()).data == bench.expected("fine")
    assert bench.runs == 2


def test_a_header_that_appears_lifts_an_error_at_once(bench: Bench) -> None:
    store = bench.store()
    for _ in range(2):
        with pytest.raises(CompileError):
            store.get_or_compile(bench.variant(DEEP))
    (bench.top / "first/b.h").write_text("here\n")
    assert store.get_or_compile(bench.variant(DEEP)).data.endswith(b"here\nkernel deep\n")
    assert bench.runs == 2


def test_an_error_that_may_not_come_again_is_not_remembered(bench: Bench) -> None:
    store = bench.store()
    for _ in range(3):
        with pytest.raises(CompileError, match="out of memory"):
            store.get_or_compile(bench.variant("#flaky out of memory\n"))
    assert bench.runs == 3
    assert not (bench.folder / "failures").exists()


def test_an_error_of_an_uncacheable_request_is_not_remembered(bench: Bench) -> None:
    store = bench.store()
    for _ in range(2):
        with pytest.raises(CompileError):
            store.get_or_compile(bench.variant("#error x\n", options=["-random"]))
    assert bench.runs == 2


def test_an_error_with_a_log_that_is_no_utf8_is_still_raised(bench: Bench) -> None:
    store = bench.store()
    for _ in range(2):
        with pytest.raises(CompileError):
            store.get_or_compile(bench.variant("#error \udcff\n"))


def test_a_compile_that_takes_too_long_is_not_remembered(bench: Bench) -> None:
    store = bench.store(seconds=60.0, timeout=0.01)
    for _ in range(2):
        with pytest.raises(CompileTimeoutError, match="killed after"):
            store.get_or_compile(bench.variant())
    assert bench.runs == 2


def test_a_missing_entry_is_an_error(bench: Bench) -> None:
    with pytest.raises(CompileError, match="no kernel gone"):
        bench.store().get_or_compile(bench.variant(entries=["gone"]))


def test_an_option_that_cannot_be_meant_is_an_error_before_anything_runs(bench: Bench) -> None:
    store = bench.store()
    for use in (store.find, store.get_or_compile):
        with pytest.raises(ConfigError, match="native"):
            use(bench.variant(options=["-native"]))
    assert bench.runs == 0


def test_an_unknown_compiler_is_an_error(bench: Bench) -> None:
    with pytest.raises(PluginError, match="'nobody'"):
        bench.store().find(bench.variant(compiler="nobody"))


# --- what must not be kept


def test_an_uncacheable_request_is_compiled_each_time_and_kept_nowhere(bench: Bench) -> None:
    store, variant = bench.store(), bench.variant(options=["-random"])
    for _ in range(2):
        made = store.get_or_compile(variant)
        assert facts(made) == (bench.expected(), Status.COMPILED, "", "-random is random")
        assert not made.cacheable
        assert made.read("source") == SOURCE.encode()
    assert store.find(variant) is None
    assert bench.runs == 2
    assert not bench.folder.exists()


def test_an_uncacheable_result_is_returned_and_kept_nowhere(bench: Bench) -> None:
    store, variant = bench.store(), bench.variant("#uncacheable reads the clock\nkernel k\n")
    for _ in range(2):
        made = store.get_or_compile(variant)
        assert (made.status, made.layer, made.reason) == (Status.COMPILED, "", "reads the clock")
        assert store.find(variant) is None
    assert bench.runs == 2
    assert store.stats()["uncacheable.reads the clock"] == 2
    assert not bench.files("records", "blobs", "manifests")


def test_a_build_whose_input_changed_meanwhile_is_not_kept(bench: Bench) -> None:
    store = bench.store(during=lambda: bench.header.write_text("changed\n"))
    made = store.get_or_compile(bench.variant())
    assert made.data == bench.expected()
    assert made.reason == "second:a.h changed while compiling"
    assert not bench.files("records")
    assert bench.store().get_or_compile(bench.variant()).data == bench.expected("changed")


def test_a_build_that_is_bound_to_its_folder_says_so(bench: Bench) -> None:
    made = bench.store().get_or_compile(bench.variant(options=["-g"]))
    assert made.layer == "local"
    assert "paths of this machine" in made.record.local_only


def test_another_result_of_the_same_build_is_counted_and_the_first_one_stays(bench: Bench) -> None:
    noise = iter([b"one", b"two"])
    store = bench.store(noise=lambda: next(noise))
    first = store.get_or_compile(bench.variant())
    for path in bench.files("manifests"):
        path.unlink()
    second = bench.store(noise=lambda: next(noise))
    assert second.get_or_compile(bench.variant()).data == bench.expected() + b"two"
    assert second.stats()["nondeterministic"] == 1
    assert facts(bench.store().find(bench.variant()))[0] == first.data == bench.expected() + b"one"


# --- a folder in trouble


@pytest.fixture
def warnings(caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    caplog.set_level(logging.DEBUG, "cubinet")
    return lambda: [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


@pytest.mark.parametrize(
    "code", [errno.ENOSPC, errno.EROFS, errno.EACCES, errno.EIO, errno.EDQUOT], ids=errno.errorcode.get
)
def test_a_folder_that_cannot_be_written_costs_only_the_compile(
    bench: Bench, code: int, warnings: Callable[[], list[str]]
) -> None:
    store = bench.store(fs=FaultyFs(Fault(code)))
    for i in range(3):
        made = store.get_or_compile(bench.variant(f"text {i}\nkernel k\n"))
        assert made.data == f"cubin sm_90a 1.0\ntext {i}\nkernel k\n".encode()
        assert (made.status, made.layer) == (Status.COMPILED, "")
        assert os.strerror(code) in made.reason
        assert made.cacheable
    assert bench.runs == 3
    assert len(warnings()) == 1
    assert os.strerror(code) in warnings()[0]
    assert not bench.folder.exists()
    assert store.stats()["error.publish"] == 3


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EROFS], ids=errno.errorcode.get)
def test_a_folder_that_cannot_be_written_any_more_still_gives_what_it_has(
    bench: Bench, code: int, warnings: Callable[[], list[str]]
) -> None:
    bench.store().get_or_compile(bench.variant())
    store = bench.store(fs=FaultyFs(Fault(code)))
    assert facts(store.get_or_compile(bench.variant())) == (bench.expected(), Status.HIT, "local", "")
    assert warnings() == []
    store.get_or_compile(bench.variant("other\nkernel k\n"))
    assert len(warnings()) == 1
    assert store.verify().clean


@pytest.mark.parametrize("call", range(60))
def test_a_folder_that_fails_at_any_one_operation_costs_only_the_compile(bench: Bench, call: int) -> None:
    fs = FaultyFs(Fault(errno.ENOSPC, call=call))
    made = bench.store(fs=fs).get_or_compile(bench.variant())
    assert made.data == bench.expected()
    assert bench.store().verify().clean
    again = bench.store().get_or_compile(bench.variant())
    assert again.data == bench.expected()
    assert again.status == (Status.COMPILED if made.reason else Status.HIT)
    if not fs.failed:
        assert call > 20


def test_a_folder_that_cannot_be_read_costs_only_the_compile(bench: Bench, warnings: Callable[[], list[str]]) -> None:
    bench.store().get_or_compile(bench.variant())
    store = bench.store(fs=FaultyFs(Fault(errno.EIO, "read", f"{bench.folder}/*")))
    for _ in range(2):
        made = store.get_or_compile(bench.variant())
        assert made.data == bench.expected()
    assert len(warnings()) == 2  # reading, publishing
    assert bench.store().find(bench.variant()) is not None


def test_a_passing_trouble_with_a_blob_does_not_cost_its_record(bench: Bench) -> None:
    made = bench.store().get_or_compile(bench.variant())
    store = bench.store(fs=FaultyFs(Fault(errno.EMFILE, "read", "*/blobs/*", call=0)))
    assert store.find(made.fingerprint) is None
    assert store.find(made.fingerprint) is not None
    assert not (bench.folder / "bad").exists()


def test_a_store_of_a_newer_release_is_left_alone_and_costs_only_the_compile(
    bench: Bench, warnings: Callable[[], list[str]]
) -> None:
    bench.store().get_or_compile(bench.variant())
    overwrite(bench.folder / "VERSION", b"cubinet-store 2\n")
    before = {path: path.stat().st_mtime_ns for path in tree(bench.folder)}
    store = bench.store()
    for _ in range(2):
        made = store.get_or_compile(bench.variant())
        assert made.data == bench.expected()
        assert "upgrade cubinet" in made.reason
    assert len(warnings()) == 1
    assert {path: path.stat().st_mtime_ns for path in tree(bench.folder)} == before


def test_strict_raises_what_would_have_been_a_warning(bench: Bench) -> None:
    with pytest.raises(StoreError, match="No space left"):
        bench.store(fs=FaultyFs(Fault(errno.ENOSPC)), strict=True).get_or_compile(bench.variant())
    bench.store().get_or_compile(bench.variant())
    broken = bench.store(fs=FaultyFs(Fault(errno.EIO, "read", "*/records/*")), strict=True)
    with pytest.raises(StoreError, match="Input/output error"):
        broken.find(bench.variant())


def test_a_folder_deleted_between_two_lookups_is_made_again(bench: Bench) -> None:
    store = bench.store()
    for runs in (1, 2):
        assert store.get_or_compile(bench.variant()).status is Status.COMPILED
        assert bench.runs == runs
        assert bench.store().find(bench.variant()) is not None
        shutil.rmtree(bench.folder)


def test_a_folder_in_a_folder_that_is_not_there_is_made(bench: Bench, tmp_path: Path) -> None:
    deep = tmp_path / "not/there/yet"
    store = Store(deep, settings=Settings(durable=False), compilers={"fake": FakeCompiler()}, environ={})
    assert store.get_or_compile(bench.variant()).layer == "local"
    assert mode(deep) == 0o755


def test_a_folder_that_others_can_write_is_refused_unless_it_is_open(bench: Bench) -> None:
    bench.store().get_or_compile(bench.variant())
    bench.folder.chmod(0o777)
    with pytest.raises(ConfigError, match="others can write"):
        bench.store()
    assert bench.store(trust="open").find(bench.variant()) is not None


# --- gates


@pytest.mark.parametrize("gate", ["check_no_spills", "check_no_local_memory"])
def test_a_gate_holds_at_every_lookup_and_only_for_who_set_it(bench: Bench, gate: str) -> None:
    # The fake compiler tells neither, and what is unknown does not pass.
    store = bench.store(refresh=60.0)
    fields: dict[str, Any] = {gate: True}
    gated, plain = bench.variant(**fields), bench.variant()
    for _ in range(3):
        for use in (store.get_or_compile, store.find, bench.store().find):
            with pytest.raises(GateError, match="scale: unknown"):
                use(gated)
    for use in (store.find, store.get_or_compile, bench.store().find):
        assert facts(use(plain))[0] == bench.expected()
    assert bench.runs == 1


# --- publishing and looking around


def test_an_artifact_from_elsewhere_can_be_published(bench: Bench, tmp_path: Path) -> None:
    made = bench.store().get_or_compile(bench.variant())
    other = Store(tmp_path / "other", settings=Settings(durable=False), environ={})
    assert other.publish(made)
    assert not other.publish(made)
    found = other.find(made.fingerprint)
    assert facts(found)[0] == bench.expected()
    assert found is not None
    assert found.read("source") == SOURCE.encode()


def test_an_artifact_with_other_bytes_than_its_record_says_is_refused(bench: Bench) -> None:
    made = bench.store().get_or_compile(bench.variant())
    with pytest.raises(ConfigError, match="its cubin is not the one"):
        bench.store().publish(replace(made, data=b"other"))


def test_publishing_to_a_full_disk_raises(bench: Bench) -> None:
    store = bench.store(fs=FaultyFs(Fault(errno.ENOSPC)))
    with pytest.raises(StoreError, match="No space left"):
        store.publish(build().artifact())


def test_the_beginning_of_a_fingerprint_will_do(bench: Bench) -> None:
    store = bench.store()
    made = store.get_or_compile(bench.variant())
    for digits in (4, 10, 64):
        assert store.resolve(made.fingerprint.hex[:digits]) == made.fingerprint
    assert store.resolve(f"  {made.fingerprint.hex[:8].upper()}\n") == made.fingerprint


@pytest.mark.parametrize("text", ["", "abc", "../..", "zzzz", "*" * 10, "ab/cd", "0" * 65])
def test_what_begins_no_fingerprint_is_refused(bench: Bench, text: str) -> None:
    store = bench.store()
    store.get_or_compile(bench.variant())
    with pytest.raises(ConfigError, match="find fingerprint"):
        store.resolve(text)


def test_a_beginning_of_two_fingerprints_is_refused(bench: Bench) -> None:
    store = bench.store()
    store.get_or_compile(bench.variant())
    fan = bench.folder / "records/ab"
    fan.mkdir(exist_ok=True)
    for end in "01":
        (fan / f"{'ab' * 31}0{end}.json").write_text("")
    with pytest.raises(ConfigError, match="2 begin so"):
        store.resolve("ababab")


def test_records_come_in_order_and_damaged_ones_are_left_out(bench: Bench) -> None:
    store = bench.store()
    builds = sorted((build(str(i)) for i in range(10)), key=lambda made: made.fingerprint)
    for made in builds:
        store.publish(made.artifact())
    overwrite(Path(store._local.path("records", builds[3].fingerprint.hex, ".json")), b"")
    assert [record.fingerprint for record in store.records()] == [b.fingerprint for b in builds if b is not builds[3]]


# --- the object itself


def test_a_store_pickles_as_its_settings(bench: Bench) -> None:
    store = bench.store(refresh=7.0)
    store.get_or_compile(bench.variant())
    again: Store = pickle.loads(pickle.dumps(store))
    assert again.settings == store.settings
    assert again.folder == store.folder
    assert again.stats() == {}
    assert facts(again.get_or_compile(bench.variant()))[1:3] == (Status.HIT, "local")


def test_an_artifact_pickles_and_can_still_read_its_blobs(bench: Bench) -> None:
    made = bench.store().get_or_compile(bench.variant())
    found = bench.store().find(bench.variant())
    for artifact in (made, found):
        again: Artifact = pickle.loads(pickle.dumps(artifact))
        assert again == artifact
        assert again.read("source") == SOURCE.encode()


def test_a_variant_pickles_without_what_was_found_for_it(bench: Bench) -> None:
    variant = bench.variant()
    bench.store(refresh=60.0).get_or_compile(variant)
    again = pickle.loads(pickle.dumps(variant))
    assert again == variant
    assert again._held is None


def test_two_stores_do_not_mix_what_they_found(bench: Bench, tmp_path: Path) -> None:
    store, variant = bench.store(refresh=60.0), bench.variant()
    store.get_or_compile(variant)
    empty = Store(tmp_path / "empty", settings=Settings(refresh=60.0), environ={}, compilers=store._given)
    assert empty.find(variant) is None
    assert store.find(variant) is not None


def test_many_variants_do_not_fill_the_memory(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cubinet.store.lookup._HELD_LIMIT", 3)
    store = bench.store(refresh=60.0)
    for i in range(10):
        store.get_or_compile(bench.variant(f"kernel k{i}\n"))
        assert len(store._held) <= 3


def test_a_store_is_a_context_and_can_be_closed_twice(bench: Bench) -> None:
    with bench.store() as store:
        store.get_or_compile(bench.variant())
    store.close()
    assert store.find(bench.variant()) is not None
    assert repr(store) == f"<Store {bench.folder}>"


def test_the_environment_gives_the_settings(tmp_path: Path, bench: Bench) -> None:
    environ = {"CUBINET_DIR": str(tmp_path / "one"), "MYLIB_CUBINET_DIR": str(tmp_path / "two"), "CUBINET_REFRESH": "3"}
    environ["XDG_CONFIG_HOME"] = str(tmp_path)
    assert Store.from_env(environ=environ).folder == str(tmp_path / "one")
    store = Store.from_env("MYLIB", environ)
    assert store.folder == str(tmp_path / "two")
    assert store.settings.refresh == 3.0
    assert Store.from_env("OTHER", environ).folder == str(tmp_path / "one")
    assert Store(tmp_path / "three", environ=environ).folder == str(tmp_path / "three")


def test_counts_say_what_happened(bench: Bench) -> None:
    store = bench.store(refresh=60.0)
    store.get_or_compile(bench.variant())
    store.find(bench.variant())
    assert store.stats() == {"compiled": 1, "hit.process": 1, "miss.no build of this action": 1}
    fresh = bench.store()
    fresh.find(bench.variant())
    bench.header.write_text("changed\n")
    fresh.find(bench.variant())
    assert fresh.stats() == {"hit.local": 1, "miss.observations differ": 1}


@pytest.mark.parametrize("durable", [True, False])
def test_settings_for_the_disk_reach_the_layer(bench: Bench, durable: bool) -> None:
    fs = CountingFs()
    made = bench.store(fs=fs, durable=durable).get_or_compile(bench.variant())
    assert fs.counts["sync_folder"] == (len(made.record.blobs) + 1 if durable else 0)


def test_the_disk_is_not_waited_for_in_these_tests(bench: Bench) -> None:
    assert isinstance(bench.store()._fs, NoSyncFs)
