"""From an artifact to a module: who loads it, and what happens to an image that no driver takes."""

from __future__ import annotations

from typing import Any

import pytest

from cubinet import registry
from cubinet.errors import DriverError, StoreError
from cubinet.model import Artifact, Fingerprint, Target
from cubinet.testing.bench import Bench


class Loader:
    """Takes every image but those it was told to refuse."""

    name = "cuda"

    def __init__(self) -> None:
        self.refuse, self.code = 0, 200
        self.loaded: list[bytes] = []

    def supports(self, target: Target) -> bool:
        return target.vendor == self.name

    def load(self, artifact: Artifact, device: Any = None) -> tuple[bytes, Any]:
        if self.refuse:
            self.refuse -= 1
            raise DriverError("load", "k", "invalid image", code=self.code, name="CUDA_ERROR_INVALID_IMAGE")
        self.loaded.append(artifact.data)
        return artifact.data, device

    def damaged(self, error: Exception) -> bool:
        return isinstance(error, DriverError) and error.code == 200


@pytest.fixture
def loader(monkeypatch: pytest.MonkeyPatch) -> Loader:
    made = Loader()
    monkeypatch.setitem(registry._loaders, "cuda", made)
    return made


def test_a_variant_is_compiled_and_loaded(bench: Bench, loader: Loader) -> None:
    assert bench.store().load(bench.variant(), 3) == (bench.expected(), 3)
    assert bench.store(later=True).load(bench.variant()) == (bench.expected(), None)
    assert bench.runs == 1


def test_an_artifact_and_a_fingerprint_are_loaded_as_they_are(bench: Bench, loader: Loader) -> None:
    store = bench.store()
    made = store.get_or_compile(bench.variant())
    assert store.load(made)[0] == store.load(made.fingerprint)[0] == bench.expected()
    with pytest.raises(StoreError, match="no layer has it"):
        store.load(Fingerprint("0" * 64))


def test_an_image_that_the_driver_refuses_is_compiled_again_once(bench: Bench, loader: Loader) -> None:
    store = bench.store(later=True)
    variant = bench.variant()
    store.get_or_compile(variant)
    loader.refuse = 1
    assert store.load(variant)[0] == bench.expected()
    assert bench.runs == 2
    assert len(list((bench.folder / "bad").iterdir())) == 2
    assert store.stats()["damaged"] == 2  # its record and its blob
    assert bench.store(later=True).find(bench.variant()) is not None
    loader.refuse = 2
    with pytest.raises(DriverError):
        store.load(variant)
    assert bench.runs == 3


def test_what_is_not_the_image_s_fault_moves_nothing(bench: Bench, loader: Loader) -> None:
    store = bench.store()
    made = store.get_or_compile(bench.variant())
    loader.refuse, loader.code = 1, 2  # out of memory
    with pytest.raises(DriverError):
        store.load(bench.variant())
    loader.refuse, loader.code = 1, 200
    with pytest.raises(DriverError):  # what was handed in cannot be compiled again
        store.load(made)
    assert not (bench.folder / "bad").exists()
    assert bench.runs == 1
