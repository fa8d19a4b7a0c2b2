"""The Ascend runtime, `libascendcl.so`, through ctypes: signatures, structures, error codes.

They are those of `acl/acl_rt.h` 1.17; a test compiles that header and compares. Which calls there are is asked
of the library itself, since releases before CANN 8.5 lack some.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import threading
from collections.abc import Iterator
from ctypes import POINTER, Structure, Union, c_char_p, c_int, c_int32, c_int64, c_size_t, c_uint16, c_uint32, c_void_p
from typing import Any

from cubinet.errors import DriverError, NoDeviceError

__all__ = ["Acl", "BinaryOption", "BinaryOptions", "LaunchAttribute", "LaunchConfig", "open_library"]

LIBRARY = "libascendcl.so"
OPTION_MAGIC, NPU_ARCH = 2, 601
REPEAT_INITIALIZE, PARAM_INVALID = 100002, 107000
ATTRIBUTES = {
    "schedule": 1,
    "ub_size": 2,
    "engine": 3,
    "block_offset": 4,
    "block_prefetch": 5,
    "data_dump": 6,
    "timeout": 7,
    "timeout_us": 8,
}
"""Field of a launch configuration → number of the launch attribute."""


class _OptionValue(Union):
    _fields_ = (("magic", c_uint32), ("reserved", c_uint32 * 4))


class BinaryOption(Structure):
    """`aclrtBinaryLoadOption`."""

    _fields_ = (("type", c_int), ("value", _OptionValue))


class BinaryOptions(Structure):
    """`aclrtBinaryLoadOptions`."""

    _fields_ = (("options", POINTER(BinaryOption)), ("count", c_size_t))


class _AttributeValue(Union):
    # Little-endian, so a small number in the first word is the same number in every narrower member.
    _fields_ = (("number", c_uint32), ("timeout", c_uint16), ("words", c_uint32 * 4))


class LaunchAttribute(Structure):
    """`aclrtLaunchKernelAttr`."""

    _fields_ = (("id", c_int), ("value", _AttributeValue))


class LaunchConfig(Structure):
    """`aclrtLaunchKernelCfg`."""

    _fields_ = (("attributes", POINTER(LaunchAttribute)), ("count", c_size_t))


_OUT = POINTER(c_void_p)
_SIGNATURES: dict[str, tuple[Any, ...]] = {
    "aclInit": (c_char_p,),
    "aclrtGetDevice": (POINTER(c_int32),),
    "aclrtSetDevice": (c_int32,),
    "aclrtGetDeviceCount": (POINTER(c_uint32),),
    "aclrtGetDeviceInfo": (c_uint32, c_int, POINTER(c_int64)),
    "aclrtGetCurrentContext": (_OUT,),
    "aclrtSetCurrentContext": (c_void_p,),
    "aclrtBinaryLoadFromData": (c_void_p, c_size_t, POINTER(BinaryOptions), _OUT),
    "aclrtBinaryLoadFromFile": (c_char_p, POINTER(BinaryOptions), _OUT),
    "aclrtBinaryGetFunction": (c_void_p, c_char_p, _OUT),
    "aclrtBinaryUnLoad": (c_void_p,),
    "aclrtLaunchKernelWithHostArgs": (
        c_void_p, c_uint32, c_void_p, POINTER(LaunchConfig), c_void_p, c_size_t, c_void_p, c_size_t,
    ),
    "aclrtKernelArgsInit": (c_void_p, _OUT),
    "aclrtKernelArgsAppend": (c_void_p, c_void_p, c_size_t, _OUT),
    "aclrtKernelArgsFinalize": (c_void_p,),
    "aclrtLaunchKernelWithConfig": (c_void_p, c_uint32, c_void_p, POINTER(LaunchConfig), c_void_p, c_void_p),
    "aclrtSynchronizeDevice": (),
}  # fmt: skip

_NEEDED = ("aclInit", "aclrtGetDevice", "aclrtGetCurrentContext", "aclrtSetCurrentContext", "aclrtBinaryGetFunction")

ERRORS = {
    100000: "INVALID_PARAM",
    100001: "UNINITIALIZE",
    100002: "REPEAT_INITIALIZE",
    100039: "COMPILING_STUB_MODE",
    107000: "PARAM_INVALID",
    107001: "INVALID_DEVICEID",
    107002: "CONTEXT_NULL",
    107003: "STREAM_CONTEXT",
    107017: "INVALID_HANDLE",
    107025: "STREAM_UNJOINED",
    107026: "MODEL_CAPTURED",
    107027: "STREAM_CAPTURED",
    107028: "EVENT_CAPTURED",
    107029: "STREAM_NOT_CAPTURED",
    107030: "CAPTURE_MODE_NOT_SUPPORT",
    107031: "STREAM_CAPTURE_IMPLICIT",
    207000: "FEATURE_NOT_SUPPORT",
    207001: "MEMORY_ALLOCATION",
    207018: "DEVICE_OOM",
    507008: "SOC_VERSION",
    507015: "AICORE_EXCEPTION",
    507027: "KERNEL_LOOKUP",
    507033: "DEV_SETUP_ERROR",
    507035: "VECTOR_CORE_EXCEPTION",
    507046: "STREAM_SYNC_TIMEOUT",
}
"""Code → name, as the header has it without its prefix."""

_REMEDIES = {
    100039: "a stub library for linking lies on the load path, and the driver's is missing: check LD_LIBRARY_PATH",
    107002: "call aclrtSetDevice, or torch.npu.set_device, in this thread first",
}
_LONGEST = 500


class Acl:
    """One opened runtime. Every call raises `DriverError` for any code but 0.

    Args:
        library: the opened library.
        name: what messages call it.
    """

    def __init__(self, library: ctypes.CDLL, name: str) -> None:
        self.name = name
        self._library = library
        self._functions: dict[str, Any] = {}
        for function, arguments in _SIGNATURES.items():
            found = getattr(library, function, None)
            if found is not None:
                found.argtypes, found.restype = arguments, c_int
                self._functions[function] = found
        self._texts = {n: getattr(library, n, None) for n in ("aclGetRecentErrMsg", "aclrtGetSocName")}
        for text in self._texts.values():
            if text is not None:
                text.argtypes, text.restype = (), c_char_p
        self._lock = threading.Lock()
        self._owner = 0

    def has(self, *functions: str) -> bool:
        """Whether the library has all of these calls."""
        return all(function in self._functions for function in functions)

    def call(self, function: str, *arguments: object, doing: str, subject: str = "") -> None:
        """Make one call. `doing` and `subject` are for the message of a failure."""
        found = self._functions.get(function)
        if found is None:
            raise DriverError(doing, subject, f"{self.name} has no {function}", "install CANN 8.5 or later")
        code = found(*arguments)
        if code:
            raise self.error(code, function, doing, subject)

    def error(self, code: int, function: str, doing: str, subject: str) -> DriverError:
        """The error for a code, with what the runtime says about it."""
        name = ERRORS.get(code, "")
        said = " ".join(self._text("aclGetRecentErrMsg").split())[:_LONGEST]
        finding = f"{function} returned {code}" + (f" ({name})" if name else "") + (f": {said}" if said else "")
        return DriverError(doing, subject, finding, _REMEDIES.get(code, ""), code=code, name=name)

    def _text(self, function: str) -> str:
        found = self._texts[function]
        return ((found() if found is not None else None) or b"").decode("utf-8", "replace")

    def start(self) -> None:
        """Initialise the runtime once; fine if torch_npu has done it. Raises `NoDeviceError`."""
        if self._owner:
            self.same_process()
            return
        missing = [function for function in _NEEDED if function not in self._functions]
        if missing:
            finding = f"{self.name} is no Ascend runtime: it has no {missing[0]}"
            raise NoDeviceError("use", "an Ascend device", finding, "check LD_LIBRARY_PATH")
        with self._lock:
            code = self._functions["aclInit"](None)
            if code not in (0, REPEAT_INITIALIZE):
                failed = self.error(code, "aclInit", "use", "an Ascend device")
                raise NoDeviceError(failed.action, str(failed.subject), failed.finding, failed.remedy)
            self._owner = os.getpid()

    def same_process(self) -> None:
        """Raise `NoDeviceError` in a child forked after the runtime was initialised: it has no device there."""
        if self._owner != os.getpid():
            raise NoDeviceError(
                "use",
                "an Ascend device",
                "this process was forked from one that had initialised the runtime",
                "start it with the spawn method",
            )

    def soc(self) -> str:
        """The name of this machine's devices, as `Ascend910B1`; empty if the runtime does not tell."""
        return self._text("aclrtGetSocName")

    def device_info(self, device: int, attribute: int) -> int | None:
        """One attribute of a device; `None` if this runtime cannot tell it."""
        value = c_int64()
        found = self._functions.get("aclrtGetDeviceInfo")
        return None if found is None or found(device, attribute, value) else int(value.value)

    def device_count(self) -> int:
        """How many devices there are."""
        count = c_uint32()
        self.call("aclrtGetDeviceCount", count, doing="count", subject="Ascend devices")
        return int(count.value)

    def device(self) -> int | None:
        """The device that is current in this thread, if any."""
        value = c_int32()
        found = self._functions["aclrtGetDevice"](value)
        return None if found else int(value.value)

    def context(self) -> int:
        """The context that is current in this thread; 0 for none."""
        value = c_void_p()
        failed = self._functions["aclrtGetCurrentContext"](value)
        return 0 if failed else int(value.value or 0)

    @contextlib.contextmanager
    def within(self, context: int) -> Iterator[None]:
        """Make a context current, and what was current before again afterwards."""
        before = self.context()
        if before == context:
            yield
            return
        self.call("aclrtSetCurrentContext", context, doing="enter", subject="context of the device")
        try:
            yield
        finally:
            if before:
                self.call("aclrtSetCurrentContext", before, doing="go back to", subject="earlier context")


@functools.lru_cache(maxsize=16)
def open_library(path: str) -> Acl:
    """Open the runtime by name or path, once. Raises `NoDeviceError`."""
    try:
        return Acl(ctypes.CDLL(path), path)
    except OSError as exc:
        raise NoDeviceError(
            "use", "an Ascend device", str(exc), "install CANN and source its set_env.sh, which sets LD_LIBRARY_PATH"
        ) from exc
