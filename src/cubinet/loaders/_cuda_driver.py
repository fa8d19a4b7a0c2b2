"""The CUDA driver: whether there is one, what it refused, which device and context a thread has.

Nothing is asked of `cuda.core` before `cuInit` worked: without a driver its object code fails once and then hangs.
"""

from __future__ import annotations

import ctypes
import functools
import os
import threading
from dataclasses import dataclass
from typing import Any

from cubinet.errors import DriverError, NoDeviceError, UnsupportedTargetError

__all__ = [
    "DAMAGED",
    "INVALID_CONTEXT",
    "INVALID_VALUE",
    "NOT_SUPPORTED",
    "Device",
    "checked",
    "current",
    "driver",
    "function",
    "inside",
    "ordinal",
    "refused",
]

NOT_INITIALIZED, NO_DEVICE = 3, 100
INVALID_VALUE, INVALID_CONTEXT, NO_BINARY, UNSUPPORTED_PTX, NOT_SUPPORTED = 1, 201, 209, 222, 801
DAMAGED = (200, 218)
"""Invalid image, invalid PTX."""

_lock = threading.Lock()
_state: dict[str, Any] = {}


@dataclass(frozen=True, slots=True)
class Device:
    """One device: its number, compute capability and name."""

    number: int
    capability: tuple[int, int]
    name: str

    def __str__(self) -> str:
        major, minor = self.capability
        return f"{self.name} (device {self.number}, sm_{major}{minor})"


def driver() -> Any:
    """Return `cuda.bindings.driver` with the driver initialised. Raises `NoDeviceError` with the reason."""
    api = _state.get("driver")
    if api is None:
        with _lock:
            api = _state["driver"] = _probe()
    return api


def _probe() -> Any:
    try:
        from cuda.bindings import driver as api
    except ImportError as exc:
        raise NoDeviceError("use", "CUDA", f"no driver bindings: {exc}", "pip install 'cubinet[cuda]'") from exc
    try:
        (code,) = api.cuInit(0)
    except RuntimeError as exc:  # what cuda-pathfinder raises when it finds no libcuda.so.1
        reason = (str(exc).strip() or "no driver library").splitlines()[0].rstrip(".")
        raise NoDeviceError("use", "CUDA", reason, "install the NVIDIA driver") from exc
    if int(code) == NOT_INITIALIZED:
        raise NoDeviceError(
            "use", "CUDA", "the driver does not work in a forked process", "start workers with 'spawn' or 'forkserver'"
        )
    if int(code):
        raise NoDeviceError("use", "CUDA", f"cuInit: {_words(api, code)}", "see whether nvidia-smi works")
    code, count = api.cuDeviceGetCount()
    if int(code) or not count:
        raise NoDeviceError("use", "CUDA", "the driver shows no device", "see CUDA_VISIBLE_DEVICES and nvidia-smi")
    return api


@functools.cache
def function(name: str) -> Any:
    """A function of the driver, for ctypes: what is called at each launch.

    Handles and addresses must be given as pointers of ctypes: it has no signature, so an int arrives as 32 bits.
    """
    own_streams = os.environ.get("CUDA_PYTHON_CUDA_PER_THREAD_DEFAULT_STREAM", "0") not in ("", "0")  # as the bindings
    library = ctypes.CDLL("libcuda.so.1")  # the one that the bindings have loaded
    return getattr(library, f"{name}_ptsz" if own_streams and name in _ON_STREAMS else name)


_ON_STREAMS = ("cuLaunchKernelEx",)


def _forget() -> None:
    """In a forked child nothing of the parent's driver is of use."""
    global _lock  # noqa: PLW0603 - a thread of the parent may have held the old one
    _lock = threading.Lock()
    _state.clear()


os.register_at_fork(after_in_child=_forget)


def _words(api: Any, code: Any) -> str:
    _, name = api.cuGetErrorName(code)
    _, text = api.cuGetErrorString(code)
    return f"{_text(name) or int(code)} ({_text(text)})"


def _text(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value or "")


_FOR_ANOTHER = {
    NO_BINARY: ("it has no code for this device", "compile for the device at hand"),
    UNSUPPORTED_PTX: ("its PTX is newer than the driver", "update the driver, or compile a cubin"),
}


def refused(
    code: Any, action: str, subject: str, *, target: str = "", device: str = ""
) -> DriverError | UnsupportedTargetError:
    """Make the error for what the driver answered: code for another device is no error of the driver's."""
    api, number = driver(), int(code)
    try:
        code = api.CUresult(number)
    except ValueError:  # newer than the bindings
        return DriverError(action, subject, f"error {number}", "", target, device, number)
    if number in _FOR_ANOTHER:
        finding, remedy = _FOR_ANOTHER[number]
        return UnsupportedTargetError(action, subject, f"{device}: {finding}", remedy, target, device)
    _, name = api.cuGetErrorName(code)
    remedy = "the bytes are damaged; compile it again" if number in DAMAGED else ""
    return DriverError(action, subject, _words(api, code), remedy, target, device, number, _text(name))


def checked(answer: tuple[Any, ...], action: str, subject: str = "") -> Any:
    """Return what a driver call gave after its code. Raises `DriverError`."""
    if int(answer[0]):
        raise refused(answer[0], action, subject)
    return answer[1] if len(answer) == 2 else answer[1:]


class inside:  # noqa: N801 - it reads as the verb it is
    """The driver with a context current, whatever the thread had; as it was afterwards."""

    __slots__ = ("_api", "_context", "_pushed")

    def __init__(self, context: int) -> None:
        self._api, self._context = driver(), context

    def __enter__(self) -> Any:
        api = self._api
        self._pushed = int(api.cuCtxGetCurrent()[1]) != self._context
        if self._pushed:
            checked(api.cuCtxPushCurrent(api.CUcontext(self._context)), "use a context")
        return api

    def __exit__(self, *_: object) -> None:
        if self._pushed:
            self._api.cuCtxPopCurrent()


def ordinal(device: Any) -> int | None:
    """Read a device as callers give it: a number, `cuda.core.Device`, `torch.device`, or `None` for the current one."""
    if device is None or (isinstance(device, int) and not isinstance(device, bool)):
        return device
    for attribute in ("device_id", "index", "id"):
        number = getattr(device, attribute, None)
        if isinstance(number, int):
            return number
    if getattr(device, "type", "") == "cuda":  # torch.device("cuda")
        return None
    raise NoDeviceError("use device", repr(device), "not a device's number", "give 0, or a cuda.core or torch device")


def current(wanted: int | None) -> tuple[int, Device]:
    """Return the context to load in, and its device.

    A thread that has no context gets the device's primary one, which every library shares.
    """
    api = driver()
    context = int(checked(api.cuCtxGetCurrent(), "read the current context"))
    number = int(checked(api.cuCtxGetDevice(), "read the current device")) if context else None
    if number is None or (wanted is not None and wanted != number):
        number = wanted or 0
        primary = _primary(api, number)
        if not context:
            checked(api.cuCtxSetCurrent(primary), "use the context of", f"device {number}")
        context = int(primary)
    return context, _device(api, number)


def _primary(api: Any, number: int) -> Any:
    with _lock:
        found = _state.get(f"context {number}")
        if found is None:
            code, handle = api.cuDeviceGet(number)
            if int(code):
                _, count = api.cuDeviceGetCount()
                raise NoDeviceError("use device", str(number), f"the driver shows {count}", "they are counted from 0")
            found = checked(api.cuDevicePrimaryCtxRetain(handle), "use the context of", f"device {number}")
            _state[f"context {number}"] = found
    return found


def _device(api: Any, number: int) -> Device:
    found = _state.get(f"device {number}")
    if found is None:
        what = api.CUdevice_attribute
        major = checked(api.cuDeviceGetAttribute(what.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, number), "ask")
        minor = checked(api.cuDeviceGetAttribute(what.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, number), "ask")
        _, name = api.cuDeviceGetName(128, number)
        found = Device(number, (major, minor), _text(name).rstrip("\0") or "CUDA device")
        _state[f"device {number}"] = found
    return found
