"""The contracts of loaders and kernels, for Ascend on a stub of its runtime."""

from __future__ import annotations

import ctypes
from typing import Any

import pytest

from cubinet.loaders.ascend import AscendLoader
from cubinet.model import Artifact
from cubinet.objects.ascend import read
from cubinet.testing.loaders import KernelContract, LoaderContract

from .conftest import Artifacts
from .stub import Stub
from .wheels import smallest


class TestAscendLoader(LoaderContract):
    @pytest.fixture
    def loader(self, stub: Stub) -> AscendLoader:
        return AscendLoader(library=stub.path, environ={})

    @pytest.fixture
    def artifact(self, make_artifact: Artifacts) -> Artifact:
        return make_artifact(smallest("ascend910b", magic="_AIVEC", kernels=2))

    @pytest.fixture
    def single(self, make_artifact: Artifacts) -> Artifact:
        return make_artifact(smallest("ascend910b", magic="_AIVEC"))

    @pytest.fixture
    def unsuited(self, make_artifact: Artifacts) -> Artifact:
        return make_artifact(smallest("ascend950", magic="_AIVEC"), "dav-3510")


class TestAscendKernel(KernelContract):
    @pytest.fixture
    def kernel(self, stub: Stub, make_artifact: Artifacts) -> Any:
        return (
            AscendLoader(library=stub.path, environ={})
            .load(make_artifact(smallest("ascend910b", magic="_AIVEC")))
            .kernel
        )

    @pytest.fixture
    def arguments(self) -> tuple[Any, ...]:
        size = read(smallest("ascend910b", magic="_AIVEC").data).kernels[0].arguments or 0
        return tuple(ctypes.c_void_p(i) for i in range(size // 8))

    def launch(self, kernel: Any, arguments: tuple[Any, ...]) -> None:
        kernel.launch(1, *arguments, stream=0)


del KernelContract, LoaderContract  # or pytest would take them for tests themselves
