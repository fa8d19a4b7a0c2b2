"""A store with layers beyond its own folder: who is asked, what comes back to whom, what goes where."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from cubinet.config import Settings
from cubinet.model import Artifact, Status
from cubinet.testing.bench import Bench


def facts(artifact: Artifact | None) -> tuple[object, ...]:
    assert artifact is not None
    return artifact.data, artifact.status, artifact.layer, artifact.reason


@pytest.fixture
def remote(tmp_path: Path) -> str:
    (tmp_path / "bucket").mkdir()
    return f"file://{tmp_path}/bucket?trust=open"


@pytest.fixture
def there(tmp_path: Path) -> Bench:
    """Another host: other folders, the same labels."""
    (tmp_path / "there").mkdir()
    return Bench.at(tmp_path / "there")


def test_a_host_finds_what_another_one_compiled(bench: Bench, there: Bench, remote: str) -> None:
    with there.store(layers=remote) as far:
        made = far.get_or_compile(there.variant())
    counts = {name: count for name, count in far.stats().items() if not name.startswith("index.")}
    assert counts == {"compiled": 1, "miss.no build of this action": 1, "upload.file": 1}
    store = bench.store(layers=remote)
    found = store.get_or_compile(bench.variant())
    assert facts(found) == (bench.expected(), Status.HIT, "file", "")
    assert found.record == made.record
    assert found.read("source") == b'#include "a.h"\nkernel scale\n'
    assert bench.runs == 0
    assert store.stats() == {"hit.file": 1}
    again = bench.store(layers=remote).find(bench.variant())
    assert facts(again) == (bench.expected(), Status.HIT, "local", "")
    assert bench.store().verify().clean


def test_a_known_fingerprint_is_found_there_too(bench: Bench, there: Bench, remote: str) -> None:
    with there.store(layers=remote) as far:
        made = far.get_or_compile(there.variant())
    found = bench.store(layers=remote).find(made.fingerprint)
    assert facts(found) == (there.expected(), Status.HIT, "file", "")


def test_another_header_here_is_a_miss_there(bench: Bench, there: Bench, remote: str) -> None:
    with there.store(layers=remote) as far:
        far.get_or_compile(there.variant())
    bench.header.write_text("other\n")
    with bench.store(layers=remote) as store:
        made = store.get_or_compile(bench.variant())
    assert facts(made) == (bench.expected("other"), Status.COMPILED, "local", "")
    (bench.top / "third").mkdir()
    third = Bench.at(bench.top / "third")
    found = third.store(layers=remote).find(third.variant())  # the older of two candidates
    assert facts(found) == (third.expected(), Status.HIT, "file", "")


def test_an_older_local_build_does_not_hide_a_remote_one(bench: Bench, there: Bench, remote: str) -> None:
    store = bench.store(layers=remote.replace("open", "open&ro"))
    store.get_or_compile(bench.variant())
    for host in (bench, there):
        host.header.write_text("other\n")
    with there.store(layers=remote) as far:
        far.get_or_compile(there.variant())
    found = bench.store(layers=remote, later=True).find(bench.variant())
    assert facts(found) == (bench.expected("other"), Status.HIT, "file", "")


def test_a_build_that_is_tied_to_its_folders_stays_here(bench: Bench, remote: str) -> None:
    with bench.store(layers=remote) as store:
        assert store.get_or_compile(bench.variant(options=["-g"])).record.local_only
    assert not any((bench.top / "bucket").rglob("records/*/*"))


def test_a_read_only_remote_gets_nothing(bench: Bench, remote: str) -> None:
    with bench.store(layers=remote + "&ro") as store:
        store.get_or_compile(bench.variant())
    assert not any((bench.top / "bucket").iterdir())
    assert "upload.file" not in store.stats()


def test_a_shared_folder_is_read_and_not_touched(bench: Bench, there: Bench) -> None:
    there.store().get_or_compile(there.variant())
    before = {path: path.stat() for path in sorted(there.folder.rglob("*"))}
    found = bench.store(layers=f"{there.folder}?trust=open").get_or_compile(bench.variant())
    assert facts(found) == (bench.expected(), Status.HIT, "shared", "")
    after = {path: path.stat() for path in sorted(there.folder.rglob("*"))}
    assert {p: (s.st_mtime_ns, s.st_ctime_ns) for p, s in before.items()} == {
        p: (s.st_mtime_ns, s.st_ctime_ns) for p, s in after.items()
    }
    assert bench.runs == 0


def test_a_hit_in_a_farther_layer_fills_the_nearer_ones(bench: Bench, there: Bench, remote: str) -> None:
    with there.store(layers=remote) as far:
        made = far.get_or_compile(there.variant())
    with bench.store(layers=f"{bench.top}/group?rw&trust=open,{remote}") as store:
        assert facts(store.find(bench.variant()))[2] == "file"
    (bench.top / "third").mkdir()
    third = Bench.at(bench.top / "third").store(layers=f"{bench.top}/group?trust=open").find(made.fingerprint)
    assert facts(third)[2] == "shared"


def test_an_artifact_from_afar_pickles_and_reads(bench: Bench, there: Bench, remote: str) -> None:
    with there.store(layers=remote) as far:
        far.get_or_compile(there.variant())
    found = bench.store(layers=remote).find(bench.variant())
    assert found is not None
    copy = pickle.loads(pickle.dumps(found))
    assert copy == found
    assert copy.read("source") == found.read("source")


def test_a_store_with_layers_pickles_as_its_settings(bench: Bench, remote: str) -> None:
    store = bench.store(layers=remote)
    assert pickle.loads(pickle.dumps(store)).settings == store.settings


def test_a_local_hit_opens_no_other_layer(bench: Bench) -> None:
    bench.store().get_or_compile(bench.variant())
    store = bench.store(layers="s3://nowhere/prefix?trust=open", later=True)
    assert facts(store.find(bench.variant()))[2] == "local"
    assert store._layers._far is None


@pytest.mark.parametrize(
    ("text", "finding"),
    [
        ("/x?trust=everybody", "trust 'everybody' is unknown"),
        ("/x?endpoint_url=y", "unknown for a folder: endpoint_url"),
        ("s3://b?ro&rw", "both ro and rw"),
        ("s3://b?budget=soon", "no number"),
        ("s3://b?budget=0", "0.0 seconds"),
        ("s3://b?client=boto", "client 'boto' is unknown"),
        ("/x?client=obstore", "s3:// alone"),
        ("s3://b?secret=abc&secret=def", "given twice"),
        ("/x,/x", "there twice"),
        ("s3://b?name=local", "taken"),
    ],
)
def test_a_layer_that_cannot_be_meant_is_refused(text: str, finding: str) -> None:
    with pytest.raises(ValueError, match=finding) as caught:
        Settings(layers=text)  # type: ignore[arg-type]
    assert "abc" not in str(caught.value)


def test_secrets_of_a_layer_are_not_shown(bench: Bench) -> None:
    settings = Settings(layers="s3://b/p?key=AKIA&secret=hidden")  # type: ignore[arg-type]
    assert "hidden" not in repr(settings)
    assert "hidden" not in repr(bench.store(layers="s3://b/p?secret=hidden"))
