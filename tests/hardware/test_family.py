"""A family of CUTLASS kernels out of a store: no compiler, no headers, no network.

Only for a prepared store (`benchmarks/gpu/prepare.py`): what is compiled here would not show it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from cubinet.loaders.cuda import CudaLoader
from cubinet.model import Artifact

from .conftest import table

np = pytest.importorskip("numpy")
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not set(table.FAMILY) <= set(table.prepared()), reason="no prepared store"),
]

Artifacts = Callable[[str], Artifact]
MakeMemory = Callable[[Any], Any]


def test_all_members_load(artifacts: Artifacts, loader: CudaLoader) -> None:
    modules = [loader.load(artifacts(name)) for name in table.FAMILY]
    assert len(modules) >= 10
    assert all(module["gemm"].attributes.num_regs > 0 for module in modules)
    assert len({module.artifact.fingerprint for module in modules}) == len(modules)


@pytest.mark.parametrize("name", table.FAMILY)
def test_a_member_multiplies(artifacts: Artifacts, loader: CudaLoader, on_device: MakeMemory, name: str) -> None:
    module = loader.load(artifacts(name))
    shape = on_device(np.zeros(4, "int32"))
    module["shape"][1, 1](shape)
    threads, shared, tile_m, tile_n = shape.get().tolist()
    m, n, k = 384, 320, 256
    rng = np.random.default_rng(7)
    a, b = rng.integers(-3, 4, (m, k)).astype("float32"), rng.integers(-3, 4, (n, k)).astype("float32")
    c = rng.integers(-3, 4, (m, n)).astype("float32")

    def narrow(values: Any) -> Any:
        if name.endswith("half"):
            return values.astype("float16")
        return (values.view("uint32") >> 16).astype("uint16")  # small whole numbers: exact in bfloat16

    d = on_device(np.zeros((m, n), "float32"))
    launch = module["gemm"].configure((-(-m // tile_m), -(-n // tile_n)), threads, shared=shared)
    launch(m, n, k, on_device(narrow(a)), on_device(narrow(b)), on_device(c), d, 2.0, 1.0)
    assert np.array_equal(d.get(), 2 * (a @ b.T) + c)
