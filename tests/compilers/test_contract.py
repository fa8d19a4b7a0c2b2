"""The contract of compilers, for nvcc and NVRTC."""

from __future__ import annotations

import pytest

from cubinet.model import Target
from cubinet.protocols import Compiler
from cubinet.testing.contracts import CompilerContract

from .conftest import MakeStore

SOURCE = '#include "contract.h"\nextern "C" __global__ void k(int* p) { *p = CONTRACT; }\n'
TEMPLATE = (
    '#include "contract.h"\nnamespace { template <class T> __global__ void k(T* p) { *p = CONTRACT; }\n'
    "template __global__ void k<int>(int*); }\n"
)


class Real(CompilerContract):
    """What both have in common."""

    name: str
    text = SOURCE

    @pytest.fixture
    def compiler(self, make_store: MakeStore) -> Compiler:
        return make_store().compiler(self.name)

    @pytest.fixture
    def target(self) -> Target:
        return Target("cuda", "sm_90a")

    @pytest.fixture
    def source(self) -> str:
        return self.text


class TestNvcc(Real):
    name = "nvcc"


class TestNvrtc(Real):
    name = "nvrtc"


class TestNvrtcWithInternalKernels(Real):
    name = "nvrtc"
    text = TEMPLATE


class TestNvrtcToPtx(Real):
    name = "nvrtc"
    kind = "ptx"


class TestNvrtcForAnArchitectureThatIsTooNew(Real):
    name = "nvrtc"

    @pytest.fixture
    def target(self) -> Target:
        return Target("cuda", "sm_999")


del CompilerContract, Real  # or pytest would take them for tests themselves
