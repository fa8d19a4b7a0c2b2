"""What every loader and every loaded kernel must do, as pytest classes: subclass one and give its fixtures.

They need a device, or a driver that stands in for one; with neither, skip in the fixtures on `NoDeviceError`.
"""

from __future__ import annotations

import gc
import pickle
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest

from cubinet.errors import DriverError, LoadError, NoDeviceError, UnsupportedTargetError
from cubinet.model import Artifact, Target

__all__ = ["KernelContract", "LoaderContract"]


class LoaderContract:
    """For `cubinet.protocols.Loader` and the modules that it gives."""

    @pytest.fixture
    def loader(self) -> Any:
        """A loader that has loaded nothing."""
        raise NotImplementedError

    @pytest.fixture
    def artifact(self) -> Artifact:
        """An artifact for the device at hand, with two kernels or more."""
        raise NotImplementedError

    @pytest.fixture
    def single(self) -> Artifact:
        """An artifact for the device at hand, with one kernel."""
        raise NotImplementedError

    @pytest.fixture
    def unsuited(self) -> Artifact:
        """An artifact of this vendor for a device that is not at hand."""
        raise NotImplementedError

    def test_it_has_a_name_and_knows_its_vendor(self, loader: Any, artifact: Artifact) -> None:
        assert loader.name == artifact.record.target.vendor
        assert loader.supports(artifact.record.target)
        other = {"cuda": Target("ascend", "dav-2201"), "ascend": Target("cuda", "sm_90a")}[loader.name]
        assert not loader.supports(other)

    def test_every_kernel_is_found_by_symbol_and_by_name(self, loader: Any, artifact: Artifact) -> None:
        with loader.load(artifact) as module:
            assert sorted(module.kernels) == sorted(kernel.name for kernel in artifact.kernels)
            for kernel in artifact.kernels:
                assert module[kernel.symbol] is module[kernel.name]
                assert module[kernel.symbol].name == kernel.name

    def test_a_kernel_that_is_not_there_is_an_error_that_lists_those_that_are(
        self, loader: Any, artifact: Artifact
    ) -> None:
        module = loader.load(artifact)
        with pytest.raises(LoadError) as caught:
            module["no such kernel"]
        assert all(kernel.name in str(caught.value) for kernel in artifact.kernels[:3])
        module["".join(artifact.kernels[0].symbol)]  # the module is as good as before

    def test_the_only_kernel_has_a_name_of_its_own(self, loader: Any, artifact: Artifact, single: Artifact) -> None:
        module = loader.load(single)
        assert module.kernel is module[module.kernels[0]]
        with pytest.raises(LoadError) as caught:
            loader.load(artifact).kernel  # noqa: B018
        assert all(kernel.name in str(caught.value) for kernel in artifact.kernels[:3])

    def test_a_closed_module_says_so_and_its_kernels_live_on(self, loader: Any, single: Artifact) -> None:
        module = loader.load(single)
        kernel = module.kernel
        module.close()
        module.close()
        gc.collect()
        with pytest.raises(LoadError, match="closed"):
            module[single.kernels[0].symbol]
        assert loader.load(single).kernel.name == kernel.name

    def test_code_for_another_device_is_refused(self, loader: Any, unsuited: Artifact) -> None:
        with pytest.raises(UnsupportedTargetError) as caught:
            loader.load(unsuited)
        assert caught.value.target == str(unsuited.record.target)
        assert caught.value.device
        assert caught.value.device in str(caught.value)
        assert unsuited.record.target.arch in str(caught.value)
        again = pickle.loads(pickle.dumps(caught.value))  # noqa: S301 - our own, made one line up
        assert (str(again), again.target, again.device) == (str(caught.value), caught.value.target, caught.value.device)
        assert not loader.damaged(caught.value)

    def test_code_of_another_vendor_is_refused(self, loader: Any, artifact: Artifact) -> None:
        other = {"cuda": Target("ascend", "dav-2201"), "ascend": Target("cuda", "sm_90a")}[loader.name]
        foreign = replace(artifact, _record=replace(artifact.record, target=other))
        with pytest.raises(UnsupportedTargetError):
            loader.load(foreign)

    def test_bytes_that_are_no_object_are_told_apart(self, loader: Any, single: Artifact) -> None:
        ref = replace(single.record.blobs[0][1], digest=replace(single.record.blobs[0][1].digest, hex="00" * 32))
        record = replace(single.record, blobs=((single.record.kind, ref),))
        with pytest.raises(LoadError) as caught:
            loader.load(replace(single, _record=record, data=bytes(len(single.data))))
        assert not isinstance(caught.value, (NoDeviceError, UnsupportedTargetError))
        assert loader.damaged(caught.value)
        loader.load(single)  # what is sound loads as before

    def test_another_error_of_a_driver_is_not_taken_for_damage(self, loader: Any) -> None:
        assert not loader.damaged(DriverError("load", "kernel", "out of memory", code=2, name="OUT_OF_MEMORY"))

    def test_a_device_that_is_not_there_is_an_error(self, loader: Any, single: Artifact) -> None:
        for device in (4711, -1, "first"):
            with pytest.raises(NoDeviceError):
                loader.load(single, device)
        assert loader.load(single, 0).kernel.name == single.kernels[0].name

    def test_threads_load_the_same_at_once(self, loader: Any, artifact: Artifact) -> None:
        name = artifact.kernels[0].symbol
        with ThreadPoolExecutor(8) as pool:
            found = list(pool.map(lambda _: loader.load(artifact)[name], range(64)))
        assert {kernel.name for kernel in found} == {artifact.kernels[0].name}


class KernelContract:
    """For what a module gives by name."""

    @pytest.fixture
    def kernel(self) -> Any:
        """A kernel with one parameter or more."""
        raise NotImplementedError

    @pytest.fixture
    def arguments(self) -> tuple[Any, ...]:
        """Arguments that it takes."""
        raise NotImplementedError

    def launch(self, kernel: Any, arguments: tuple[Any, ...]) -> None:
        """Launch it on one block, on the default stream."""
        raise NotImplementedError

    def test_it_launches(self, kernel: Any, arguments: tuple[Any, ...]) -> None:
        for _ in range(3):
            self.launch(kernel, arguments)

    def test_it_tells_its_name(self, kernel: Any) -> None:
        assert kernel.name in repr(kernel)
        assert kernel.symbol

    def test_too_few_and_too_many_arguments_are_counted(self, kernel: Any, arguments: tuple[Any, ...]) -> None:
        for wrong in (arguments[:-1], (*arguments, arguments[-1])):
            with pytest.raises(LoadError) as caught:
                self.launch(kernel, wrong)
            assert kernel.name in str(caught.value)
        self.launch(kernel, arguments)

    def test_an_argument_that_is_no_argument_is_named(self, kernel: Any, arguments: tuple[Any, ...]) -> None:
        for place in range(len(arguments)):
            with pytest.raises(LoadError) as caught:
                self.launch(kernel, (*arguments[:place], object(), *arguments[place + 1 :]))
            assert f"{place + 1}" in str(caught.value)
        self.launch(kernel, arguments)

    def test_threads_launch_at_once(self, kernel: Any, arguments: tuple[Any, ...]) -> None:
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda _: self.launch(kernel, arguments), range(200)))
