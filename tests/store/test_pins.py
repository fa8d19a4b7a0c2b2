"""Pins: files that say what stays."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from cubinet.errors import ConfigError, FormatError, ReadOnlyError, StoreError
from cubinet.model import Fingerprint
from cubinet.store.local import LocalLayer
from cubinet.store.pins import Pins
from cubinet.testing.faults import Fault, FaultyFs

ONE, TWO, THREE = (Fingerprint(digit * 64) for digit in "123")


@pytest.fixture
def pins(tmp_path: Path) -> Pins:
    return Pins(LocalLayer(str(tmp_path / "store"), durable=False))


def test_a_tag_keeps_what_is_pinned_until_it_is_let_go(pins: Pins) -> None:
    assert pins.tags() == {}
    assert pins.pin("release-1.0", [TWO, ONE]) == 2
    assert pins.pin("release-1.0", [ONE, THREE]) == 1
    assert pins.pin("other", [ONE]) == 1
    assert pins.tags() == {"other": frozenset([ONE]), "release-1.0": frozenset([ONE, TWO, THREE])}
    assert pins.pinned() == {ONE, TWO, THREE}
    assert pins.unpin("release-1.0", [TWO]) == 1
    assert pins.unpin("release-1.0") == 2
    assert pins.pinned() == {ONE}
    with pytest.raises(ConfigError, match="no such tag"):
        pins.unpin("release-1.0")


@pytest.mark.parametrize("tag", ["", "..", "a/b", ".hidden", "a b", "x" * 65, "a\n", "-x"])
def test_a_tag_that_is_no_plain_name_is_refused(pins: Pins, tag: str) -> None:
    with pytest.raises(ConfigError):
        pins.pin(tag, [ONE])


def test_a_damaged_file_is_told_and_not_taken_for_nothing(pins: Pins) -> None:
    pins.pin("one", [ONE])
    path = Path(pins.folder, "one")
    path.chmod(0o644)
    path.write_text(path.read_text()[:-9])
    with pytest.raises(FormatError, match="one"):
        pins.pinned()


def test_eight_threads_may_pin_at_once(pins: Pins) -> None:
    chosen = [Fingerprint(f"{n:064x}") for n in range(16)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda f: pins.pin("all", [f]), chosen))
    assert pins.pinned() == frozenset(chosen)


@pytest.mark.parametrize(("code", "kind"), [(28, StoreError), (30, ReadOnlyError)], ids=["full", "read-only"])
def test_a_disk_that_takes_nothing_loses_nothing(tmp_path: Path, code: int, kind: type[Exception]) -> None:
    fs = FaultyFs()
    pins = Pins(LocalLayer(str(tmp_path / "store"), fs=fs, durable=False))
    pins.pin("one", [ONE])
    fs.faults.append(Fault(code, "create", path="*/tmp/*"))
    with pytest.raises(kind):
        pins.pin("one", [TWO])
    assert pins.pinned() == {ONE}
