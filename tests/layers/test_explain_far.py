"""What `explain` and `doctor` say of layers beyond the local one."""

from __future__ import annotations

from pathlib import Path

import pytest

from cubinet.model import Fingerprint
from cubinet.remotes.file import FileRemote
from cubinet.store.explain_far import examine
from cubinet.store.remote import RemoteLayer
from cubinet.store.shared import SharedLayer
from cubinet.testing.bench import Bench


@pytest.fixture
def remote(tmp_path: Path) -> str:
    (tmp_path / "bucket").mkdir()
    return f"file://{tmp_path}/bucket?trust=open"


@pytest.fixture
def there(tmp_path: Path) -> Bench:
    (tmp_path / "there").mkdir()
    return Bench.at(tmp_path / "there")


def told(bench: Bench, layers: str) -> tuple[str, list[tuple[str, str]]]:
    found = bench.store(layers=layers).explain(bench.variant())
    return found.outcome, [(answer.layer, answer.outcome) for answer in found.layers]


def test_each_layer_says_why_it_has_no_build(bench: Bench, there: Bench, remote: str) -> None:
    (bench.top / "image").mkdir()
    layers = f"{bench.top}/image?trust=open,{remote},file:///nowhere/else?trust=open&name=gone"
    with there.store(layers=remote) as far:
        far.get_or_compile(there.variant())
    bench.header.write_text("other\n")
    found = bench.store(layers=layers).explain(bench.variant())
    assert [(a.layer, a.outcome) for a in found.layers] == [("shared", "miss"), ("file", "miss"), ("gone", "failed")]
    assert "1 builds of it from other headers" in found.layers[1].why
    assert "no such folder" in found.layers[2].why


def test_a_build_that_is_only_far_away_is_a_hit(bench: Bench, there: Bench, remote: str) -> None:
    with there.store(layers=remote) as far:
        made = far.get_or_compile(there.variant())
    assert told(bench, remote) == ("hit", [("file", "hit")])
    assert not bench.folder.joinpath("records").exists()  # asking is not fetching
    found = bench.store(layers=remote).explain(made.fingerprint)
    assert (found.outcome, found.fingerprint) == ("hit", made.fingerprint)
    assert bench.store(layers=remote).explain(Fingerprint("0" * 64)).outcome == "miss"


def test_layers_behind_the_one_that_has_it_are_skipped(bench: Bench, remote: str) -> None:
    with bench.store(layers=remote) as store:
        store.get_or_compile(bench.variant())
    assert told(bench, remote) == ("hit", [("file", "skipped")])


def test_a_checkup_tries_what_a_remote_can_do(tmp_path: Path) -> None:
    (tmp_path / "bucket").mkdir()
    found = examine(RemoteLayer(FileRemote(f"file://{tmp_path}/bucket")))
    assert (found.problem, found.answers, found.writable, found.exclusive) == ("", True, True, True)
    assert not [path for path in (tmp_path / "bucket").rglob("*") if path.is_file() and "lock" not in path.name]
    gone = examine(RemoteLayer(FileRemote(f"file://{tmp_path}/none")))
    assert (gone.answers, "no such folder" in gone.problem) == (False, True)
    assert examine(SharedLayer(str(tmp_path))).writable is None


def test_a_folder_that_is_not_mounted_is_no_empty_one(
    bench: Bench, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = bench.store(layers=f"{tmp_path}/none?trust=open")
    assert store.get_or_compile(bench.variant()).data == bench.expected()
    assert "no such folder; make or mount it" in caplog.text
    assert "no such folder" in examine(SharedLayer(f"{tmp_path}/none")).problem
