"""Headers of public libraries, fetched once; a store for the run; a table of what was compiled."""

from __future__ import annotations

import fcntl
import importlib.util
import json
import os
import platform
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from cubinet.config import Settings
from cubinet.store import Store

from .mlx import write_headers

ROOT = Path(__file__).resolve().parents[2]
FOREIGN = ("CPATH", "CPLUS_INCLUDE_PATH", "SOURCE_DATE_EPOCH", "LD_PRELOAD")
ROW = "real kernel"

_PACKAGES = {
    "cccl": "nvidia-cuda-cccl",
    "cutlass": "nvidia-cutlass",
    "flashinfer": "flashinfer-python",
    "mlx": "mlx-cuda-13",
    "tilelang": "tilelang",
}


def _load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


wheels = _load(ROOT / "examples" / "wheel_headers.py")


def cache_folder() -> Path:
    """Where fetched headers are."""
    folder: Path = wheels.cache_folder()
    return folder


def clean_environ(environ: Mapping[str, str]) -> dict[str, str]:
    """An environment without settings that would reach a compile."""
    return {k: v for k, v in environ.items() if not k.startswith(("NVCC", "CUBINET_")) and k not in FOREIGN}


def _fetch(label: str) -> Path:
    """The headers under a label; one process at a time fetches."""
    cache_folder().mkdir(parents=True, exist_ok=True)
    with cache_folder().joinpath("lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        found: Path = _mlx() if label == "mlx" else wheels.package(_PACKAGES[label])
    return found


def _mlx() -> Path:
    """The texts in MLX's library as files. The library itself is large and not kept."""
    package = _PACKAGES["mlx"]
    target = cache_folder() / f"{package}-{wheels.PACKAGES[package][0]}-device"
    if not target.is_dir():
        with tempfile.TemporaryDirectory(dir=cache_folder()) as work, pytest.MonkeyPatch.context() as patch:
            patch.setenv("XDG_CACHE_HOME", work)
            write_headers(wheels.package(package) / "libmlx.so", Path(work, "headers"))
            Path(work, "headers").rename(target)
    return target


Headers = Callable[[tuple[str, ...]], dict[str, Path]]


@pytest.fixture
def headers(request: pytest.FixtureRequest) -> Headers:
    """Give the folders of headers under some labels. A quick test is skipped if they cannot be had."""
    quick = request.node.get_closest_marker("real") is None

    def get(labels: tuple[str, ...]) -> dict[str, Path]:
        if labels and platform.machine() != "x86_64":
            pytest.skip("the hashes of the header packages are those of x86-64 wheels")
        try:
            return {label: _fetch(label) for label in labels}
        except subprocess.CalledProcessError:
            if not quick:
                raise
            pytest.skip(f"pip cannot fetch the headers of {', '.join(labels)}")

    return get


MakeStore = Callable[..., Store]


@pytest.fixture(scope="session")
def session_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the run's store."""
    return tmp_path_factory.mktemp("store")


@pytest.fixture
def make_store(session_folder: Path) -> Iterator[MakeStore]:
    """Make stores over the run's folder, or another; each is like a new process."""
    made: list[Store] = []

    def make(folder: Path = session_folder, **environ: str) -> Store:
        settings = Settings(durable=False, refresh=0.0)
        made.append(Store(folder, settings=settings, environ=clean_environ(os.environ) | environ))
        return made[-1]

    yield make
    for store in made:
        store.close()


# --- the table


def _rows(reporter: Any) -> list[dict[str, Any]]:
    reports = reporter.stats.get("passed", []) + reporter.stats.get("failed", [])
    return [value for report in reports for name, value in report.user_properties if name == ROW]


def _span(values: list[float], form: str) -> str:
    low, high = format(min(values), form), format(max(values), form)
    return low if low == high else f"{low}-{high}"


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Print what was compiled, one line a family; write it whole to `$CUBINET_REAL_REPORT`."""
    rows = _rows(terminalreporter)
    if not rows:
        return
    columns = (("read", ".0f"), ("absent", ".0f"), ("compile_s", ".1f"), ("hit_ms", ".1f"), ("bytes", ",.0f"))
    lines = [("family", "variants", *(name for name, _ in columns))]
    for family in sorted({row["family"] for row in rows}):
        mine = [row for row in rows if row["family"] == family]
        lines.append((family, str(len(mine)), *(_span([row[name] for row in mine], form) for name, form in columns)))
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    terminalreporter.section("real kernels")
    for first, *rest in lines:
        cells = [first.ljust(widths[0]), *(c.rjust(w) for c, w in zip(rest, widths[1:], strict=True))]
        terminalreporter.write_line("  ".join(cells))
    report = os.environ.get("CUBINET_REAL_REPORT")
    if report:
        Path(report).write_text(json.dumps(rows, indent=2) + "\n")
