"""The CUDA loader: artifacts for NVIDIA devices to kernels that can be launched.

Needs `cubinet[cuda]`; nothing of it is imported, and no driver is touched, before the first `load`. Bytes go to the
driver straight from the artifact: no file is written.
"""

from __future__ import annotations

from typing import Any, Self

from cubinet.errors import CubinetError, DriverError, LoadError, UnsupportedTargetError
from cubinet.loaders._cuda_arch import runs_on, wanted
from cubinet.loaders._cuda_driver import DAMAGED, Device, current, driver, ordinal, refused
from cubinet.loaders._cuda_kernel import CudaKernel
from cubinet.loaders._cuda_launch import Launch
from cubinet.loaders._cuda_library import Libraries, Library, Refusal
from cubinet.model import Artifact, Kernel, Target

__all__ = ["CudaKernel", "CudaLoader", "CudaModule", "Launch"]

_MOST_LISTED = 20
_NOT_FOUND = 500


class CudaLoader:
    """Loads cubins, PTX and fatbins for NVIDIA devices. Safe in threads; a forked child starts anew."""

    name = "cuda"

    def __init__(self) -> None:
        self._libraries = Libraries()

    def supports(self, target: Target) -> bool:
        """Whether artifacts for this target are this loader's. Says nothing about the device at hand."""
        return target.vendor == "cuda"

    def load(self, artifact: Artifact, device: Any = None) -> CudaModule:
        """Load an artifact; the same bytes in the same context are loaded once in a process.

        Args:
            artifact: what a lookup returned.
            device: a number, a `cuda.core.Device` or a `torch.device`; the thread's current one if not given.

        Raises:
            NoDeviceError: no driver, no device, or not that one.
            UnsupportedTargetError: it was compiled for another device.
            DriverError: the driver refused the bytes; `damaged` tells whether for what they are.
        """
        context, place = current(ordinal(device))
        outline = artifact.outline
        _suits(artifact, place)

        def load() -> Library:
            return Library(artifact.data, outline.kind, target=outline.target, context=context, device=place)

        try:
            library = self._libraries.get((context, outline.digest or artifact.fingerprint.hex), load)
        except Refusal as exc:
            code, device = exc.args[0], str(place)
            raise refused(code, "load", _called(artifact), target=outline.target, device=device) from None
        return CudaModule(artifact, library)

    def damaged(self, error: CubinetError) -> bool:
        """Whether an error of `load` means that the bytes are no sound object: worth compiling again, once."""
        return isinstance(error, DriverError) and error.code in DAMAGED


class CudaModule:
    """The kernels of one artifact, loaded. A context manager; its kernels keep what they need when it is closed."""

    def __init__(self, artifact: Artifact, library: Library) -> None:
        self.artifact = artifact
        self._library: Library | None = library
        self._kernels: dict[str, CudaKernel] = {}

    @property
    def device(self) -> Device:
        """The device it was loaded for."""
        return self._open().device

    @property
    def kernels(self) -> tuple[str, ...]:
        """The names of its kernels: C++ names where there are."""
        return tuple(name for name, _ in self.artifact.outline.kernels) or tuple(self._symbols())

    @property
    def kernel(self) -> CudaKernel:
        """The only kernel. Raises `LoadError` if there are several, or none."""
        told = self.artifact.outline.kernels
        if len(told) == 1:
            full, symbol = told[0]
            return self._kernels.get(symbol) or self._made(symbol, full, full)
        names = self.kernels
        if len(names) != 1:
            raise LoadError(
                "choose the only kernel of", _called(self.artifact), _listed(names), "name one: module[name]"
            )
        return self[names[0]]

    def __getitem__(self, name: str) -> CudaKernel:
        """A kernel by symbol, C++ name, or the name it was asked for. Raises `LoadError` if there is none."""
        found = self._kernels.get(name)
        if found is None:
            symbol = self.artifact.symbol(name) or self._named(name) or name
            full = next((full for full, have in self.artifact.outline.kernels if have == symbol), symbol)
            found = self._kernels[name] = self._kernels.get(symbol) or self._made(symbol, full, name)
        return found

    def _made(self, symbol: str, full: str, name: str) -> CudaKernel:
        library = self._open()
        code, handle = driver().cuLibraryGetKernel(library.handle, symbol.encode("utf-8", "surrogateescape"))
        if int(code) == _NOT_FOUND:
            raise LoadError(
                "find kernel", repr(name), f"{_called(self.artifact)} has {_listed(self.kernels)}", "", library.target
            )
        if int(code):
            raise refused(code, "find kernel", name, target=library.target, device=str(library.device))
        return self._kernels.setdefault(symbol, CudaKernel(library, handle, symbol, full))

    def _named(self, name: str) -> str:
        """The symbol of the only kernel that a name means as one means it in a source, as `scale<float>`."""
        from cubinet.objects import names_entry

        meant = [symbol for full, symbol in self.artifact.outline.kernels if names_entry(name, Kernel(full, symbol))]
        return meant[0] if len(meant) == 1 else ""

    def _symbols(self) -> list[str]:
        """All kernels as the driver lists them, for an object that could not be read."""
        api, library = driver(), self._open()
        _, count = api.cuLibraryGetKernelCount(library.handle)
        _, handles = api.cuLibraryEnumerateKernels(count, library.handle)
        return sorted(api.cuKernelGetName(handle)[1].decode() for handle in handles or ())

    def _open(self) -> Library:
        if self._library is None:
            raise LoadError("use module", _called(self.artifact), "it is closed", "load it again")
        return self._library

    def close(self) -> None:
        """Let go. The driver unloads the code when no kernel or launch taken from it is left."""
        self._library = None
        self._kernels.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        where = "closed" if self._library is None else str(self._library.device)
        return f"<CudaModule {_called(self.artifact)}, {where}>"


def _called(artifact: Artifact) -> str:
    record = artifact.record
    return " ".join(part for part in (record.family, record.name or record.fingerprint.hex[:12]) if part)


def _listed(names: tuple[str, ...]) -> str:
    shown = ", ".join(names[:_MOST_LISTED])
    return (shown + (f" and {len(names) - _MOST_LISTED} more" if len(names) > _MOST_LISTED else "")) or "no kernels"


def _suits(artifact: Artifact, device: Device) -> None:
    """Raise `UnsupportedTargetError` for what cannot run on a device, before the driver sees it."""
    target, kind, *_ = artifact.outline
    vendor, _, arch = target.partition(":")
    if vendor == "cuda" and kind in ("cubin", "ptx") and runs_on(kind, arch, device.capability):
        return
    subject = _called(artifact)
    if vendor != "cuda":
        have = f"it is for {target}, the device is {device}"
        raise UnsupportedTargetError("load", subject, have, "use the loader of its vendor", target, str(device))
    if kind == "fatbin":
        from cubinet.objects import inspect

        images = [(image.kind, arch) for image in inspect(artifact.data).images for arch in image.archs]
    elif kind in ("cubin", "ptx"):
        images = [(kind, arch)]
    else:
        raise LoadError("load", subject, f"a driver takes no {kind}", "compile a cubin, PTX or fatbin", target)
    if not any(runs_on(image, arch, device.capability) for image, arch in images):
        have = ", ".join(f"{image} for {arch}" for image, arch in images) or "nothing"
        raise UnsupportedTargetError(
            "load",
            subject,
            f"it has {have}; the device is {device}",
            f"compile for {wanted(device.capability)}",
            target,
            str(device),
        )
