"""Ascend kernels, ready to launch, over the vendor's runtime alone.

Everything here was checked against a stub of the runtime that is compiled from its public header, never on an
NPU. Nothing happens at import; the runtime is opened by the first `load`.
"""

from __future__ import annotations

import ctypes
import os
import sys
import tempfile
import threading
import weakref
from collections.abc import Mapping
from typing import Any, Self

from cubinet.errors import CubinetError, DriverError, LoadError, NoDeviceError, ObjectError, UnsupportedTargetError
from cubinet.loaders import _acl
from cubinet.loaders._acl import Acl, BinaryOption, BinaryOptions
from cubinet.loaders._acl_kernel import AscendKernel, AscendLaunch, Binary
from cubinet.model import Artifact, Kernel, Target
from cubinet.objects.ascend import AscendObject, read
from cubinet.objects.ascend_soc import arch_number, arch_of, socs_of
from cubinet.objects.names import demangle, names_entry

__all__ = ["AscendKernel", "AscendLaunch", "AscendLoader", "AscendModule"]

_MOST_LISTED = 20
_LOAD = "load"
_TORCH_NAMES = ("npu", "privateuseone")
_FROM_DATA, _FROM_FILE = "aclrtBinaryLoadFromData", "aclrtBinaryLoadFromFile"

_loaded: weakref.WeakValueDictionary[tuple[str, int, str], Binary] = weakref.WeakValueDictionary()
_loading = threading.Lock()


class AscendLoader:
    """Loads objects of vendor `ascend`. Loading the same bytes twice in one context gives the same handles.

    Args:
        library: name or path of the runtime.
        environ: where `ASCEND_LAUNCH_BLOCKING` is looked up; the process's own by default.
    """

    name = "ascend"

    def __init__(self, *, library: str = _acl.LIBRARY, environ: Mapping[str, str] | None = None) -> None:
        self.library = library
        self.environ = os.environ if environ is None else environ

    def supports(self, target: Target) -> bool:
        """Whether artifacts for this target are this loader's business. Asks no device."""
        return target.vendor == "ascend"

    def load(self, artifact: Artifact, device: Any = None) -> AscendModule:
        """Load an artifact onto a device.

        Args:
            artifact: what a store gave.
            device: its number, or a `torch.device`; by default the current one of this thread, else the one torch_npu
                uses, else 0. A thread that has a current device keeps it.

        Raises `NoDeviceError`, `UnsupportedTargetError`, `DriverError`; `LoadError` for an object that cannot be read
        or launched.
        """
        target = artifact.record.target
        if not self.supports(target):
            raise UnsupportedTargetError(
                "load", _name(artifact), f"it is for {target}", "load it with that vendor's loader", str(target)
            )
        acl = _acl.open_library(self.library)
        acl.start()
        context, number = _place(acl, _ordinal(device))
        key = (self.library, context, _digest(artifact))
        with _loading:
            binary = _loaded.get(key)
            if binary is None:
                binary = _loaded[key] = _load(acl, artifact, context, number)
        blocking = self.environ.get("ASCEND_LAUNCH_BLOCKING", "") not in ("", "0")
        return AscendModule(artifact, binary, blocking=blocking)

    def damaged(self, error: CubinetError) -> bool:
        """Whether an error of `load` means that the bytes are no sound object: worth compiling again, once."""
        refused = isinstance(error, DriverError) and (error.action, error.code) == (_LOAD, _acl.PARAM_INVALID)
        return refused or isinstance(error.__cause__, ObjectError)


class AscendModule:
    """The kernels of one artifact, loaded. A context manager; its kernels keep what they need when it is closed."""

    def __init__(self, artifact: Artifact, binary: Binary, *, blocking: bool) -> None:
        self.artifact, self._blocking = artifact, blocking
        self._binary: Binary | None = binary
        self._facts = binary.object.kernels
        self._kernels: dict[str, AscendKernel] = {}

    @property
    def device(self) -> int:
        """The number of the device it was loaded onto."""
        return self._open().device

    @property
    def kernels(self) -> tuple[str, ...]:
        """The names of its kernels: C++ names where there are."""
        return tuple(demangle(kernel.symbol) for kernel in self._facts)

    def __getitem__(self, name: str) -> AscendKernel:
        """A kernel by symbol, C++ name, or the name it was asked for. Raises `LoadError` if there is none."""
        binary = self._open()
        found = self._kernels.get(name)
        if found is None:
            symbol = self.artifact.symbol(name) or self._named(name) or name
            facts = next((kernel for kernel in self._facts if kernel.symbol == symbol), None)
            if facts is None:
                raise LoadError("find kernel", repr(name), f"{_name(self.artifact)} has {self._listed()}")
            made = AscendKernel(binary, facts, blocking=self._blocking)
            found = self._kernels[name] = self._kernels.setdefault(symbol, made)
        return found

    def _named(self, name: str) -> str:
        """The symbol of the only kernel that a name means as one means it in a source, as `scale<float>`."""
        known = (Kernel(demangle(kernel.symbol), kernel.symbol) for kernel in self._facts)
        meant = [kernel.symbol for kernel in known if names_entry(name, kernel)]
        return meant[0] if len(meant) == 1 else ""

    def _listed(self) -> str:
        names = self.kernels
        more = f" and {len(names) - _MOST_LISTED} more" if len(names) > _MOST_LISTED else ""
        return ", ".join(names[:_MOST_LISTED]) + more or "no kernels"

    @property
    def kernel(self) -> AscendKernel:
        """The only kernel. Raises `LoadError` if there are several, or none."""
        if len(self._facts) != 1:
            raise LoadError("choose the only kernel of", _name(self.artifact), self._listed(), "name one: module[name]")
        return self[self._facts[0].symbol]

    def _open(self) -> Binary:
        if self._binary is None:
            raise LoadError("use module", _name(self.artifact), "it is closed", "load it again")
        return self._binary

    def close(self) -> None:
        """Let go. It leaves the device when no kernel taken from it is left."""
        self._binary = None
        self._kernels.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        where = "closed" if self._binary is None else f"Ascend device {self._binary.device}"
        return f"<AscendModule {_name(self.artifact)}, {where}>"


def _name(artifact: Artifact) -> str:
    return artifact.record.name or str(artifact.fingerprint)[:16]


def _digest(artifact: Artifact) -> str:
    ref = artifact.record.blob(artifact.record.kind)
    if ref is not None and ref.size == len(artifact.data):
        return ref.digest.hex
    from cubinet.fingerprint import digest_of

    return digest_of(artifact.data).hex


def _ordinal(device: Any) -> int | None:
    """The number of a device as people name one. Raises `NoDeviceError`."""
    found = device if isinstance(device, int) else getattr(device, "index", None)
    kind = getattr(device, "type", "npu")
    if device is None or (kind in _TORCH_NAMES and found is None and hasattr(device, "type")):
        return None
    if isinstance(found, bool) or not isinstance(found, int) or kind not in _TORCH_NAMES:
        raise NoDeviceError("use device", repr(device), "it is no Ascend device", "give its number")
    return found


def _place(acl: Acl, device: int | None) -> tuple[int, int]:
    """Context and number of the device to load onto."""
    before = acl.context()
    current = acl.device() if before else None
    if before and current is not None and device in (None, current):
        return before, current
    if device is None:
        torch_npu = sys.modules.get("torch_npu")
        device = int(torch_npu.npu.current_device()) if torch_npu is not None else 0
    count = acl.device_count()
    if not count:
        raise NoDeviceError("use", "an Ascend device", "the runtime sees none", "check ASCEND_RT_VISIBLE_DEVICES")
    if not 0 <= device < count:
        raise NoDeviceError("use", f"Ascend device {device}", f"there are {count}", "they are counted from 0")
    acl.call("aclrtSetDevice", device, doing="use", subject=f"Ascend device {device}")
    context = acl.context()
    if before:
        acl.call("aclrtSetCurrentContext", before, doing="go back to", subject="earlier context")
    return context, device


def _load(acl: Acl, artifact: Artifact, context: int, device: int) -> Binary:
    try:
        found = read(artifact.data, _name(artifact))
    except ObjectError as exc:
        target = str(artifact.record.target)
        raise LoadError(_LOAD, _name(artifact), f"its bytes are no good: {exc.finding}", exc.remedy, target) from exc
    _refuse_wrong_device(acl, found, artifact, device)
    if not found.linked:
        raise LoadError("load", _name(artifact), "it was compiled and not linked", "link it with ld.lld -m aicorelinux")
    with acl.within(context):
        handle = _handle(acl, found, artifact)
    return Binary(acl, handle, context, device, found)


def _refuse_wrong_device(acl: Acl, found: AscendObject, artifact: Artifact, device: int) -> None:
    """The runtime loads objects for other devices without a word, and the device then fails or miscounts."""
    soc = acl.soc()
    number = acl.device_info(device, _acl.NPU_ARCH)
    have = arch_of(soc) or (arch_number(number) if number is not None else None)
    target, here = str(artifact.record.target), f"{soc or 'a device without a name'} ({have or 'architecture unknown'})"
    if have is None:
        finding, remedy = f"device {device} is {here}", "this release of Cubinet does not know it"
    elif found.arch is None:
        finding, remedy = (
            f"its header has flags {found.flags:#x}, of no known architecture",
            "compile it for the device",
        )
    elif found.arch != have:
        socs = ", ".join(socs_of(found.arch))
        finding, remedy = f"it is for {found.arch} ({socs}), device {device} is {here}", f"compile it for ascend:{have}"
    else:
        return
    raise UnsupportedTargetError("load", _name(artifact), finding, remedy, target, here)


def _handle(acl: Acl, found: AscendObject, artifact: Artifact) -> int:
    handle = ctypes.c_void_p()
    if acl.has(_FROM_DATA):
        option = BinaryOption(type=_acl.OPTION_MAGIC)
        option.value.magic = found.magic
        options = BinaryOptions(ctypes.pointer(option), 1)
        data = artifact.data
        acl.call(_FROM_DATA, data, len(data), options, handle, doing=_LOAD, subject=_name(artifact))
        return int(handle.value or 0)
    # From a file the runtime takes no core kind: without one in the object it would guess.
    if found.core != "cube" and not all(kernel.mix or kernel.hints.kind for kernel in found.kernels):
        finding = f"{acl.name} has no {_FROM_DATA}, and the object does not tell its core kind ({found.core}) otherwise"
        raise LoadError("load", _name(artifact), finding, "install CANN 8.5 or later")
    with tempfile.TemporaryDirectory(prefix="cubinet-") as folder:  # alone in it: a sidecar would be read, too
        path = f"{os.path.realpath(folder)}/kernel.o"
        with open(path, "wb") as file:
            file.write(artifact.data)
        acl.call(_FROM_FILE, os.fsencode(path), None, handle, doing=_LOAD, subject=_name(artifact))
    return int(handle.value or 0)
