"""A store whose recorder and toolchain facts were made once for the whole run."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from cubinet.config import Settings
from cubinet.model import Target, Variant
from cubinet.store import Store

FOREIGN = ("CPATH", "CPLUS_INCLUDE_PATH", "CUDA_HOME", "CUDA_PATH", "SOURCE_DATE_EPOCH", "LD_PRELOAD")


def clean_environ(environ: Mapping[str, str]) -> dict[str, str]:
    """An environment without settings that would reach a compile."""
    return {k: v for k, v in environ.items() if not k.startswith(("NVCC", "CUBINET_")) and k not in FOREIGN}


@pytest.fixture(scope="session")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The `tools` folder of a store that has compiled once."""
    folder = tmp_path_factory.mktemp("tools")
    store = Store(folder, settings=Settings(durable=False), environ=clean_environ(os.environ))
    store.get_or_compile(Variant('extern "C" __global__ void k() {}', Target("cuda", "sm_90a")))
    return folder / "tools"


MakeStore = Callable[..., Store]


@pytest.fixture
def make_store(tmp_path: Path, tools: Path) -> MakeStore:
    """Make stores over one folder; each is like a new process."""
    folder = tmp_path / "store"
    folder.mkdir()
    shutil.copytree(tools, folder / "tools")

    def make(*, folder: Path = folder, environ: Mapping[str, str] = os.environ, **settings: object) -> Store:
        chosen = Settings(**{"durable": False, "refresh": 0.0, **settings})  # type: ignore[arg-type]
        return Store(folder, settings=chosen, environ=clean_environ(environ))

    return make
