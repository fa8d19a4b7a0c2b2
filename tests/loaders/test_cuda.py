"""What the CUDA loader does where there is no device, and the suite that runs on a driver that stands in for one."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from cubinet.errors import LoadError
from cubinet.loaders._cuda_arch import runs_on, wanted
from cubinet.loaders._cuda_streams import stream_number

from .cuda_kit import build_driver

HERE = Path(__file__).resolve().parent


def _without_driver(text: str, **environ: str) -> subprocess.CompletedProcess[str]:
    clean = {k: v for k, v in os.environ.items() if k != "LD_LIBRARY_PATH"} | environ
    command = [sys.executable, "-c", textwrap.dedent(text)]
    return subprocess.run(command, env=clean, capture_output=True, text=True, timeout=60, check=False)


def test_importing_the_loader_imports_nothing_of_cuda() -> None:
    done = _without_driver("""
        import sys
        import cubinet.loaders.cuda
        found = {name.partition(".")[0] for name in sys.modules} & {"cuda", "numpy", "torch", "cupy", "ctypes.util"}
        sys.exit(repr(found) if found else 0)
    """)
    assert done.returncode == 0, done.stderr


def test_the_suite_holds_on_a_driver_that_stands_in(tmp_path: Path) -> None:
    pytest.importorskip("cuda.bindings.driver")
    build_driver(tmp_path)
    paths = os.pathsep.join(filter(None, [str(tmp_path), os.environ.get("LD_LIBRARY_PATH", "")]))
    environ = {k: v for k, v in os.environ.items() if not k.startswith(("STUB_", "CUBINET_", "PYTEST_"))}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:randomly", "--tb=short"]
    done = subprocess.run(
        [*command, "-n0", str(HERE / "on_stub_driver.py")],
        env=environ | {"LD_LIBRARY_PATH": paths, "CUBINET_STUB_DRIVER": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
        cwd=HERE.parents[1],
    )
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
    assert " passed" in done.stdout
    assert "skipped" not in done.stdout.replace("pip cannot", "")


def _reason(environ: dict[str, str]) -> str:
    done = _without_driver(
        """
        from cubinet.errors import NoDeviceError
        from cubinet.loaders.cuda import CudaLoader
        from cubinet.testing.samples import build
        for _ in range(2):  # the second time as the first: nothing is left half made
            try:
                CudaLoader().load(build().artifact())
            except NoDeviceError as exc:
                print(exc)
        """,
        **environ,
    )
    assert done.returncode == 0, done.stderr
    first, second = done.stdout.splitlines()
    assert first == second
    return first


def test_no_driver_library_is_an_error_that_says_so(tmp_path: Path) -> None:
    pytest.importorskip("cuda.bindings.driver")
    try:
        import ctypes

        ctypes.CDLL("libcuda.so.1")
    except OSError:
        assert "cannot use CUDA" in _reason({})
    else:
        pytest.skip("this machine has a driver")


def test_a_driver_that_does_not_start_is_an_error_with_its_reason(tmp_path: Path) -> None:
    pytest.importorskip("cuda.bindings.driver")
    build_driver(tmp_path)
    place = {"LD_LIBRARY_PATH": str(tmp_path)}
    assert "CUDA_ERROR_NO_DEVICE" in _reason(place | {"STUB_INIT": "100"})
    assert "spawn" in _reason(place | {"STUB_INIT": "3"})


@pytest.mark.parametrize(
    ("kind", "arch", "yes", "no"),
    [
        ("cubin", "sm_90a", ["9.0"], ["9.1", "8.0", "10.0"]),
        ("cubin", "sm_90", ["9.0"], ["8.9", "10.0"]),
        ("cubin", "sm_80", ["8.0", "8.6", "8.9"], ["7.5", "9.0"]),
        ("cubin", "sm_86", ["8.6", "8.9"], ["8.0", "9.0"]),
        ("cubin", "sm_100a", ["10.0"], ["10.3", "9.0"]),
        ("cubin", "sm_100f", ["10.0", "10.3"], ["10.1", "9.0", "12.0", "11.0"]),
        ("cubin", "sm_103f", ["10.3"], ["10.0"]),
        ("cubin", "sm_100", ["10.0", "10.3"], ["10.1", "12.0"]),
        ("cubin", "sm_101f", ["10.1"], ["10.0", "10.3"]),
        ("cubin", "sm_120f", ["12.0", "12.1"], ["10.0"]),
        ("ptx", "compute_80", ["8.0", "8.9", "9.0", "10.1", "12.0"], ["7.5"]),
        ("ptx", "sm_80", ["8.0", "9.0"], ["7.5"]),
        ("ptx", "compute_90a", ["9.0"], ["10.0", "8.9"]),
        ("ptx", "compute_100f", ["10.0", "10.3"], ["12.0", "9.0"]),
        ("cubin", "dav-2201", [], ["9.0"]),
        ("cubin", "native", [], ["9.0"]),
    ],
)
def test_what_runs_where(kind: str, arch: str, yes: list[str], no: list[str]) -> None:
    def runs(text: str) -> bool:
        major, minor = text.split(".")
        return runs_on(kind, arch, (int(major), int(minor)))

    assert [device for device in yes if not runs(device)] == []
    assert [device for device in no if runs(device)] == []


def test_what_to_compile_is_said_best_first() -> None:
    assert wanted((9, 0)).startswith("sm_90a, sm_90,")
    assert wanted((10, 3)).startswith("sm_103a, sm_103f, sm_103,")
    assert wanted((8, 6)).startswith("sm_86,")


def test_streams_are_numbers_or_say_their_own() -> None:
    class Method:
        def __cuda_stream__(self) -> tuple[int, int]:
            return 0, 77

    class Property:
        __cuda_stream__ = (0, 78)

    class Cupy:
        ptr = 79

    class Torch:
        cuda_stream = 80

    found = [stream_number(stream, 0) for stream in (5, Method(), Property(), Cupy(), Torch(), 0)]
    assert found == [5, 77, 78, 79, 80, 0]
    for wrong in ("0", True, -1, 1.0, object()):
        with pytest.raises(LoadError, match="not a stream"):
            stream_number(wrong, 0)


def test_without_pytorch_the_null_stream_is_the_current_one() -> None:
    if "torch" in sys.modules:
        pytest.skip("PyTorch is loaded")
    assert stream_number(None, 0) == 0
