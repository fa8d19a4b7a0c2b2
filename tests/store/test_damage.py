"""Whatever happens to a file of the store: never a wrong result, a miss at most, and whole again after it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from cubinet.errors import IntegrityError
from cubinet.model import Status
from cubinet.store.local import LocalLayer
from cubinet.testing.bench import Bench, overwrite

KINDS = ("records", "blobs", "manifests", "memo")
CHANGES: dict[str, Callable[[bytes], bytes]] = {
    "upper case": bytes.upper,
    "twice": lambda data: data + data,
    "one line more": lambda data: data + b"\n",
    "other JSON": lambda _data: b"{}",
    "zeros": lambda data: bytes(len(data)),
}


@pytest.fixture
def stocked(bench: Bench) -> Bench:
    """A store with one build, made when all files were at rest."""
    bench.store(later=True).get_or_compile(bench.variant())
    return bench


def file_of(bench: Bench, kind: str) -> Path:
    """The one file of a kind; for blobs that of the object."""
    (path,) = [path for path in bench.files(kind) if kind != "blobs" or path.read_bytes() == bench.expected()]
    return path


def assert_heals(bench: Bench) -> None:
    made = bench.store(later=True).get_or_compile(bench.variant())
    assert made.data == bench.expected()
    assert not made.reason
    again = bench.store(later=True).find(bench.variant())
    assert again is not None
    assert (again.data, again.layer) == (bench.expected(), "local")


@pytest.mark.parametrize("kind", KINDS)
def test_a_flipped_bit_at_any_position_is_seen_and_healed(stocked: Bench, kind: str) -> None:
    size = file_of(stocked, kind).stat().st_size
    step = max(1, size // 80)  # every single byte is in `tests/properties`, at the format itself
    for position in range(0, size, step):
        path = file_of(stocked, kind)
        data = bytearray(path.read_bytes())
        if position >= len(data):  # the next one is shorter: times have fewer digits
            break
        data[position] ^= 1 << position % 8
        overwrite(path, bytes(data))
        assert_heals(stocked)
        assert file_of(stocked, kind).read_bytes() != data
    rebuilt = kind in ("records", "blobs", "manifests")
    assert (stocked.runs > size // step) is rebuilt


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_cut_at_any_length_is_seen_and_healed(stocked: Bench, kind: str) -> None:
    size = file_of(stocked, kind).stat().st_size
    for length in {0, 1, 2, size // 3, size // 2, size - 2, size - 1, *range(3, size - 2, max(1, size // 20))}:
        path = file_of(stocked, kind)
        overwrite(path, path.read_bytes()[:length])
        assert_heals(stocked)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_other_content_is_seen_and_healed(stocked: Bench, kind: str, change: Callable[[bytes], bytes]) -> None:
    path = file_of(stocked, kind)
    overwrite(path, change(path.read_bytes()))
    assert_heals(stocked)


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_that_is_gone_is_made_again(stocked: Bench, kind: str) -> None:
    file_of(stocked, kind).unlink()
    assert_heals(stocked)
    assert file_of(stocked, kind).exists()


def test_damage_is_counted_and_said_and_kept_in_bad(stocked: Bench, caplog: pytest.LogCaptureFixture) -> None:
    overwrite(file_of(stocked, "records"), b"damaged")
    store = stocked.store()
    assert store.get_or_compile(stocked.variant()).status is Status.COMPILED
    assert store.stats()["damaged"] == 1
    assert [path.read_bytes() for path in stocked.folder.glob("bad/*")] == [b"damaged"]
    assert ["was damaged and is now in" in record.getMessage() for record in caplog.records] == [True]


def test_a_record_whose_blob_is_gone_is_a_miss_and_does_not_stand_in_the_way(stocked: Bench) -> None:
    file_of(stocked, "blobs").unlink()
    assert stocked.store().find(stocked.variant()) is None
    assert not stocked.files("records")
    assert_heals(stocked)


def test_damaged_observations_cost_a_compile_when_no_memo_stands_in(stocked: Bench) -> None:
    (path,) = [path for path in stocked.files("blobs") if path.read_bytes().startswith(b"cubinet-observations")]
    for position in range(0, path.stat().st_size, 5):
        data = bytearray(path.read_bytes())
        data[position] ^= 1
        overwrite(path, bytes(data))
        for memo in stocked.files("memo"):
            memo.unlink()
        assert_heals(stocked)
        assert path.read_bytes() != data


@pytest.mark.parametrize("role", ["source", "log"])
def test_a_damaged_further_blob_is_an_error_when_read_and_healed_after_verify(stocked: Bench, role: str) -> None:
    found = stocked.store().find(stocked.variant())
    assert found is not None
    ref = found.record.blob(role)
    assert ref is not None
    overwrite(Path(LocalLayer(str(stocked.folder)).path("blobs", ref.digest.hex)), b"damaged")
    with pytest.raises(IntegrityError):
        found.read(role)
    problems = stocked.store().verify().problems
    assert problems == [f"record {found.fingerprint}: its {role} is gone or damaged"]
    assert stocked.store().verify().clean
    made = stocked.store().get_or_compile(stocked.variant())
    assert made.status is Status.COMPILED
    again = stocked.store().find(stocked.variant())
    assert again is not None
    assert again.read(role) == made.read(role)


def test_swapped_files_are_seen_and_healed(stocked: Bench) -> None:
    other = stocked.variant("other\nkernel k\n")
    stocked.store().get_or_compile(other)
    for kind in ("records", "manifests", "blobs"):
        one, two = [path for path in stocked.files(kind) if kind != "blobs" or path.read_bytes().startswith(b"cubin ")]
        first, second = one.read_bytes(), two.read_bytes()
        overwrite(one, second)
        overwrite(two, first)
        assert_heals(stocked)
        assert stocked.store().get_or_compile(other).data == b"cubin sm_90a 1.0\nother\nkernel k\n"


def test_a_store_of_which_every_file_is_damaged_is_healed(stocked: Bench) -> None:
    for path in stocked.files(*KINDS):
        overwrite(path, b"\xff" * 100)
    assert_heals(stocked)
    assert stocked.store().verify().clean
