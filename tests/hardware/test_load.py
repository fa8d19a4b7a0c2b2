"""What is loaded, what is refused, what is shared, what heals."""

from __future__ import annotations

import gc
import shutil
import subprocess
import sys
import textwrap
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cubinet.config import Settings
from cubinet.errors import DriverError, ToolchainNotFoundError, UnsupportedTargetError
from cubinet.loaders.cuda import CudaLoader, CudaModule
from cubinet.model import Artifact, Status
from cubinet.store import Store

np = pytest.importorskip("numpy")
pytestmark = pytest.mark.gpu

Artifacts = Callable[[str], Artifact]
MakeMemory = Callable[[Any], Any]
N = 1000


def doubles(module: CudaModule, on_device: MakeMemory) -> bool:
    source, out = on_device(np.arange(N, dtype="float32")), on_device(np.zeros(N, "float32"))
    module["scale"][-(-N // 128), 128](out, source, N)
    return bool(np.array_equal(out.get(), np.arange(N, dtype="float32") * 2))


def hopper(api: Any) -> bool:
    from cubinet.loaders._cuda_driver import current

    return current(0)[1].capability == (9, 0)


@pytest.mark.parametrize("name", ["plain", "scale-sm_90", "scale-ptx-80", "scale-ptx-90a", "scale-fatbin"])
def test_exact_older_ptx_and_fatbin_all_run(
    artifacts: Artifacts, loader: CudaLoader, on_device: MakeMemory, api: Any, name: str
) -> None:
    if not hopper(api):
        pytest.skip("the table's architectures are Hopper's")
    assert doubles(loader.load(artifacts(name)), on_device)


@pytest.mark.parametrize("name", ["scale-sm_80", "scale-sm_100a", "scale-ptx-100"])
def test_code_for_another_device_is_refused_before_the_driver_sees_it(
    artifacts: Artifacts, api: Any, name: str
) -> None:
    if not hopper(api):
        pytest.skip("the table's architectures are Hopper's")
    loader, artifact = CudaLoader(), artifacts(name)
    # Not even an object: if the driver saw these bytes the error would be another.
    with pytest.raises(UnsupportedTargetError) as caught:
        loader.load(replace(artifact, data=b"nothing that a driver takes"))
    text = str(caught.value)
    assert artifact.record.target.arch in text
    assert "sm_90" in text
    assert "sm_90a" in text.partition(";")[2]


def test_the_driver_refuses_code_for_another_device_with_the_same_error(artifacts: Artifacts, api: Any) -> None:
    artifact = artifacts("scale-sm_100a")
    record = replace(artifact.record, target=artifacts("plain").record.target)  # a record that lies
    with pytest.raises(UnsupportedTargetError, match="no code for this device"):
        CudaLoader().load(replace(artifact, _record=record))


def test_a_damaged_image_is_told_apart(artifacts: Artifacts, loader: CudaLoader, api: Any) -> None:
    good = artifacts("plain")
    bad = replace(good, data=bytes(64) + good.data[64:])
    fresh = CudaLoader()
    with pytest.raises(DriverError) as caught:
        fresh.load(bad)
    assert fresh.damaged(caught.value), (caught.value.code, caught.value.name)
    assert caught.value.name.startswith("CUDA_ERROR_")
    ptx = artifacts("scale-ptx-80")
    with pytest.raises(DriverError) as caught:
        fresh.load(replace(ptx, data=ptx.data.replace(b"ld.param", b"ld.parm!", 1)))
    assert fresh.damaged(caught.value), (caught.value.code, caught.value.name)


def test_a_flipped_bit_in_a_stored_cubin_heals(
    store_folder: Path, artifacts: Artifacts, loader: CudaLoader, on_device: MakeMemory, tmp_path: Path
) -> None:
    folder, good = tmp_path / "store", artifacts("plain")
    shutil.copytree(store_folder, folder)
    folder.chmod(0o700)
    ref = good.record.blob("cubin")
    assert ref is not None
    blob = folder / "blobs" / ref.digest.hex[:2] / ref.digest.hex
    damaged = bytearray(blob.read_bytes())
    damaged[len(damaged) // 2] ^= 1
    blob.chmod(0o644)
    blob.write_bytes(damaged)
    with Store(folder, settings=Settings(durable=False)) as store:
        assert store.find(good.fingerprint) is None
        assert list((folder / "bad").iterdir())
        assert store.publish(good)
        found = store.find(good.fingerprint)
    assert found is not None
    assert found.data == good.data
    assert doubles(loader.load(found), on_device)


def test_a_flipped_bit_is_compiled_away_where_there_is_a_compiler(
    loader: CudaLoader, on_device: MakeMemory, tmp_path: Path
) -> None:
    source = 'extern "C" __global__ void scale(float *o, const float *i, int n)'
    source += "{ int k = blockIdx.x * blockDim.x + threadIdx.x; if (k < n) o[k] = i[k] * 2; }"
    from cubinet.model import Variant

    def get() -> Artifact:
        with Store(tmp_path, settings=Settings(durable=False, refresh=0.0)) as store:
            return store.get_or_compile(Variant(source, "sm_90a"))

    try:
        good = get()
    except ToolchainNotFoundError as exc:
        pytest.skip(str(exc))
    ref = good.record.blob("cubin")
    assert ref is not None
    blob = tmp_path / "blobs" / ref.digest.hex[:2] / ref.digest.hex
    damaged = bytearray(blob.read_bytes())
    damaged[-100] ^= 4
    blob.chmod(0o644)
    blob.write_bytes(damaged)
    again = get()
    assert again.status is Status.COMPILED
    assert again.data == good.data
    assert get().status is Status.HIT
    assert doubles(loader.load(again), on_device)


def test_the_same_bytes_are_loaded_once_and_let_go_with_the_last_owner(artifacts: Artifacts, api: Any) -> None:
    loader, artifact = CudaLoader(), artifacts("scale")
    with ThreadPoolExecutor(8) as pool:
        modules = list(pool.map(lambda _: loader.load(artifact), range(32)))
    assert len({int(module["add"]) for module in modules}) == 1
    launch = modules[0]["add"].configure(1, 32)
    held = weakref.ref(modules[0]._library)
    for module in modules:
        module.close()
    del module, modules
    gc.collect()
    assert held() is not None  # the launch has it
    del launch
    gc.collect()
    assert held() is None
    assert not len(loader._libraries)


def test_a_forked_child_is_told_why_it_has_no_device(store_folder: Path, artifacts: Artifacts) -> None:
    text = """
        import os, sys
        from cubinet.errors import NoDeviceError
        from cubinet.loaders.cuda import CudaLoader
        from cubinet.model import Fingerprint
        from cubinet.store import Store
        artifact = Store(sys.argv[1]).find(Fingerprint(sys.argv[2]))
        loader = CudaLoader()
        module = loader.load(artifact)
        child = os.fork()
        if not child:
            module.close()
            del module
            try:
                loader.load(artifact)
            except NoDeviceError as exc:
                os._exit(0 if "fork" in str(exc) else 2)
            os._exit(3)
        sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    """
    argv = [sys.executable, "-c", textwrap.dedent(text), str(store_folder), artifacts("plain").fingerprint.hex]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr


def test_loading_writes_no_file(artifacts: Artifacts, on_device: MakeMemory) -> None:
    written: list[str] = []

    def hook(event: str, args: tuple[Any, ...]) -> None:
        if event == "open" and listening and isinstance(args[1], str) and set(args[1]) & set("wax+"):
            written.append(str(args[0]))

    listening = False
    sys.addaudithook(hook)
    artifact = artifacts("plain")
    listening = True
    module = CudaLoader().load(artifact)
    module.kernel  # noqa: B018
    listening = False
    assert not written
