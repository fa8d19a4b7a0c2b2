"""A device, memory on it, and the kernels: prepared ones if there are (`benchmarks/gpu/prepare.py`), else compiled.

Skipped on a machine without a device, and for no other reason unless a test says so.
"""

from __future__ import annotations

import importlib.util
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from cubinet.config import Settings
from cubinet.errors import NoDeviceError
from cubinet.loaders.cuda import CudaLoader, CudaModule
from cubinet.model import Artifact
from cubinet.store import Store


def _load(name: str) -> ModuleType:
    path = Path(__file__).with_name(f"{name}.py")
    spec = importlib.util.spec_from_file_location(f"hardware_{name}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


table = _load("table")


@pytest.fixture(scope="session")
def api() -> Any:
    """The driver, with the first device's primary context current."""
    from cubinet.loaders._cuda_driver import current, driver

    try:
        made = driver()
        current(0)
    except NoDeviceError as exc:
        pytest.skip(str(exc))
    return made


@pytest.fixture(scope="session")
def store_folder(api: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of the run's own, with what was prepared in it."""
    folder: Path = tmp_path_factory.mktemp("store")
    if table.prepared():
        shutil.copytree(table.PREPARED, folder, dirs_exist_ok=True)
        folder.chmod(0o700)  # whatever carrying it made of its mode
    return folder


Artifacts = Callable[[str], Artifact]


@pytest.fixture(scope="session")
def artifacts(store_folder: Path) -> Iterator[Artifacts]:
    """Give an artifact of the table by its name."""
    known = table.prepared(store_folder)
    with Store(store_folder, settings=Settings(durable=False)) as store:
        yield lambda name: table.artifact(store, name, known)


@pytest.fixture(scope="session")
def loader() -> CudaLoader:
    """One loader for the run."""
    return CudaLoader()


Modules = Callable[[str], CudaModule]


@pytest.fixture
def modules(artifacts: Artifacts, loader: CudaLoader) -> Modules:
    """Give a loaded module of the table by its name."""
    return lambda name: loader.load(artifacts(name))


def _ok(answer: tuple[Any, ...]) -> Any:
    assert not int(answer[0]), answer[0]
    return answer[1] if len(answer) == 2 else answer[1:]


class Memory:
    """A numpy array's worth of device memory; a launch takes it by `__cuda_array_interface__`."""

    def __init__(self, api: Any, array: Any) -> None:
        self._api, self._like = api, array
        self.pointer = int(_ok(api.cuMemAlloc(max(array.nbytes, 1))))
        self.put(array)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {
            "data": (self.pointer, False),
            "shape": self._like.shape,
            "typestr": self._like.dtype.str,
            "strides": None,
            "version": 3,
        }

    def put(self, array: Any) -> None:
        _ok(self._api.cuMemcpyHtoD(self.pointer, array.ctypes.data, array.nbytes))

    def get(self) -> Any:
        """What is there now, once all streams are done."""
        out = self._like.copy()
        _ok(self._api.cuCtxSynchronize())
        _ok(self._api.cuMemcpyDtoH(out.ctypes.data, self.pointer, out.nbytes))
        return out

    def free(self) -> None:
        _ok(self._api.cuMemFree(self.pointer))


MakeMemory = Callable[[Any], Memory]


@pytest.fixture
def on_device(api: Any) -> Iterator[MakeMemory]:
    """Put numpy arrays on the device; freed after the test."""
    made: list[Memory] = []

    def make(array: Any) -> Memory:
        made.append(Memory(api, array))
        return made[-1]

    yield make
    _ok(api.cuCtxSynchronize())
    for memory in made:
        memory.free()


@pytest.fixture
def streams(api: Any) -> Iterator[Callable[[], int]]:
    """Make streams that do not wait for the null stream."""
    made: list[Any] = []

    def make() -> int:
        made.append(_ok(api.cuStreamCreate(1)))  # CU_STREAM_NON_BLOCKING
        return int(made[-1])

    yield make
    for stream in made:
        _ok(api.cuStreamDestroy(stream))


@pytest.fixture
def ok() -> Callable[[tuple[Any, ...]], Any]:
    """Check a driver's answer and give what came with it."""
    return _ok
