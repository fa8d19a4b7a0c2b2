"""The stub runtimes and artifacts of real objects."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Callable, Iterator

import pytest

from cubinet.errors import ObjectError
from cubinet.loaders import _acl, ascend
from cubinet.model import Artifact, Kernel, Target
from cubinet.objects import inspect
from cubinet.testing.samples import build as sample_build

from . import stub as stubs
from .stub import Stub
from .wheels import Sample, samples

Artifacts = Callable[..., Artifact]


@pytest.fixture(scope="session")
def quick_collections() -> Iterator[None]:
    """What there is by now is left out of collections, of which each test needs some: 60 ms less each time."""
    samples()
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture(scope="session")
def stub_of_today(quick_collections: None, tmp_path_factory: pytest.TempPathFactory) -> Stub:
    return Stub(stubs.build(tmp_path_factory.mktemp("acl")))


@pytest.fixture(scope="session")
def stub_of_old(quick_collections: None, tmp_path_factory: pytest.TempPathFactory) -> Stub:
    return Stub(stubs.build(tmp_path_factory.mktemp("acl81"), "-DWITHOUT_DATA"))


@pytest.fixture
def stub(stub_of_today: Stub) -> Iterator[Stub]:
    """A runtime as of CANN 8.5 and later, as after a start of the process."""
    yield from _fresh(stub_of_today)


@pytest.fixture
def old_stub(stub_of_old: Stub) -> Iterator[Stub]:
    """A runtime as of CANN 8.1."""
    yield from _fresh(stub_of_old)


def _fresh(stub: Stub) -> Iterator[Stub]:
    gc.collect()
    ascend._loaded.clear()
    _acl.open_library.cache_clear()
    stub.reset()
    yield stub
    gc.collect()


@pytest.fixture
def make_artifact() -> Artifacts:
    """Make the artifact that a store would give for an object."""

    def make(sample: Sample | bytes, arch: str = "dav-2201", *, name: str = "sample") -> Artifact:
        data = sample if isinstance(sample, bytes) else sample.data
        kernels: tuple[Kernel, ...] = ()
        with contextlib.suppress(ObjectError):
            kernels = inspect(data).kernels
        made = sample_build(name, data=data, target=Target("ascend", arch), kernels=kernels)
        return made.artifact()

    return make


@pytest.fixture
def artifact(make_artifact: Artifacts) -> Artifacts:
    """The same by a shorter name."""
    return make_artifact
