"""One kernel on an Ascend device: how it is launched."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import sys
import threading
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

from cubinet.errors import ConfigError, DriverError, LoadError
from cubinet.loaders._acl import ATTRIBUTES, Acl, LaunchAttribute, LaunchConfig
from cubinet.loaders._acl_arguments import Declared, declared, pack
from cubinet.objects.ascend import AscendObject, ObjectKernel
from cubinet.objects.names import demangle

__all__ = ["AscendKernel", "AscendLaunch", "Binary"]

_HOST_ARGUMENTS = "aclrtLaunchKernelWithHostArgs"
_LIMITS = {
    "blocks": (1, 1 << 32),
    "ub_size": (0, 1 << 32),
    "timeout": (0, 1 << 16),
    "timeout_us": (0, 1 << 64),
    "schedule": (0, 2),
    "engine": (0, 2),
    "block_offset": (0, 1 << 32),
    "block_prefetch": (0, 2),
    "data_dump": (0, 2),
}


@dataclass(frozen=True, slots=True)
class AscendLaunch:
    """How to launch. `None` leaves an attribute to the runtime: it is not sent.

    Attributes:
        blocks: how many blocks; the runtime calls it `numBlocks`.
        ub_size: bytes of the unified buffer given to a SIMT kernel at launch.
        timeout: seconds after which the runtime stops it, up to 65,535; 0 for never. Not with `timeout_us`.
        timeout_us: the same in microseconds.
        schedule: 0 normal, 1 batch: all blocks start together.
        engine: 0 cube cores, 1 vector cores.
        block_offset: number of the first block.
        block_prefetch, data_dump: 0 or 1.

    Raises `ConfigError` for a number out of range.
    """

    blocks: int
    ub_size: int | None = None
    timeout: int | None = None
    timeout_us: int | None = None
    schedule: int | None = None
    engine: int | None = None
    block_offset: int | None = None
    block_prefetch: int | None = None
    data_dump: int | None = None

    def __post_init__(self) -> None:
        for name, (least, end) in _LIMITS.items():
            value = getattr(self, name)
            if value is None and name != "blocks":
                continue
            if not isinstance(value, int) or not least <= value < end:
                raise ConfigError(
                    "launch with", f"{name}={value!r}", f"expected a whole number from {least} to {end - 1}"
                )
        if self.timeout is not None and self.timeout_us is not None:
            raise ConfigError("launch with", "timeout and timeout_us", "the runtime takes one of them", "leave one out")


@functools.lru_cache(maxsize=256)
def _native(config: AscendLaunch) -> LaunchConfig | None:
    """The runtime's form of a configuration; `None` if it has no attributes."""
    given = [(number, getattr(config, name)) for name, number in ATTRIBUTES.items()]
    given = [(number, value) for number, value in given if value is not None]
    if not given:
        return None
    attributes = (LaunchAttribute * len(given))()
    for attribute, (number, value) in zip(attributes, given, strict=True):
        attribute.id = number
        attribute.value.words[0], attribute.value.words[1] = value & 0xFFFFFFFF, value >> 32
    return LaunchConfig(ctypes.cast(attributes, ctypes.POINTER(LaunchAttribute)), len(given))


@functools.lru_cache(maxsize=256)
def _of_blocks(blocks: int) -> AscendLaunch:
    return AscendLaunch(blocks)


class Binary:
    """An object on a device, unloaded with its last owner, in the context it was loaded in."""

    def __init__(self, acl: Acl, handle: int, context: int, device: int, found: AscendObject) -> None:
        self.acl, self.handle, self.context, self.device, self.object = acl, handle, context, device, found
        self._functions: dict[str, int] = {}
        self._lock = threading.Lock()
        # Not at the end of the process: torch_npu may have finalised the runtime by then.
        weakref.finalize(self, _unload, acl, handle, context, os.getpid()).atexit = False

    def function(self, symbol: str) -> int:
        """The runtime's handle for a kernel. Raises `DriverError`."""
        with self._lock:
            if symbol not in self._functions:
                found = ctypes.c_void_p()
                with self.acl.within(self.context):
                    self.acl.call(
                        "aclrtBinaryGetFunction",
                        self.handle,
                        symbol.encode(),
                        found,
                        doing="find kernel",
                        subject=symbol,
                    )
                self._functions[symbol] = int(found.value or 0)
            return self._functions[symbol]


def _unload(acl: Acl, handle: int, context: int, owner: int) -> None:
    if os.getpid() != owner:
        return  # a forked child has no device: what it inherits is the parent's
    with contextlib.suppress(DriverError), acl.within(context):  # a context that is gone took the object with it
        acl.call("aclrtBinaryUnLoad", handle, doing="unload", subject="object")


class AscendKernel:
    """A kernel that can be launched, from any thread of this process.

    Attributes:
        symbol: its name in the object.
        name: its C++ name, or the symbol if it has none.
        handle: the runtime's `aclrtFuncHandle`, as a number.
    """

    def __init__(
        self, binary: Binary, facts: ObjectKernel, *, blocking: bool, kinds: tuple[Declared, ...] | None = None
    ) -> None:
        self._binary, self._facts, self._blocking, self._kinds = binary, facts, blocking, kinds
        self.symbol, self.name = facts.symbol, demangle(facts.symbol)
        self.handle = binary.function(facts.symbol)

    def __repr__(self) -> str:
        return f"<AscendKernel {self.name}, Ascend device {self._binary.device}>"

    def declare(self, *kinds: object) -> Self:
        """The same kernel with the types of its arguments: names as `i32` or `ptr`, ctypes or NumPy types."""
        return type(self)(self._binary, self._facts, blocking=self._blocking, kinds=declared(kinds))

    def __getitem__(self, config: AscendLaunch | int) -> Callable[..., None]:
        """Bind a configuration, or a number of blocks: `kernel[20](x, y)`."""
        return functools.partial(self.launch, config)

    def launch(self, config: AscendLaunch | int, *arguments: Any, stream: Any = None) -> None:
        """Launch on a stream and return at once, or after it ran if `ASCEND_LAUNCH_BLOCKING` was set at load.

        Args:
            config: an `AscendLaunch`, or just the number of blocks.
            arguments: tensors on the device, ctypes or NumPy scalars, ctypes structures by value, `None` for a null
                pointer; Python numbers only after `declare`.
            stream: a number, something with `npu_stream`, 0 for the default stream. By default torch_npu's current
                one if torch_npu is loaded, taken now: that also sends off the operators it holds back.

        Raises `LoadError` for arguments that do not fit the kernel, `DriverError` if the runtime refuses.
        """
        self.launch_packed(config, self.pack(*arguments), stream=stream)

    def pack(self, *arguments: Any) -> bytes:
        """The bytes of these arguments, for `launch_packed`. They hold no reference to any tensor."""
        return pack(arguments, self._kinds, device=self._binary.device, symbol=self.name)

    def launch_packed(self, config: AscendLaunch | int, payload: bytes, *, stream: Any = None) -> None:
        """Launch with arguments that are bytes already."""
        self._refuse(payload)
        binary, acl = self._binary, self._binary.acl
        acl.same_process()
        chosen = self._chosen(config)
        here = acl.context()
        if here and here != binary.context:
            finding = f"it was loaded on device {binary.device}, and this thread uses another context"
            raise LoadError("launch", self.name, finding, "load it there, too: loaded objects are kept by context")
        if not here:  # a new thread
            acl.call("aclrtSetCurrentContext", binary.context, doing="launch", subject=self.name)
        buffer = (ctypes.c_char * len(payload)).from_buffer_copy(payload) if payload else None
        self._send(chosen, _stream(stream, binary.device, self.name), buffer)
        if self._blocking:
            acl.call("aclrtSynchronizeDevice", doing="wait for", subject=self.name)

    def _chosen(self, config: AscendLaunch | int) -> AscendLaunch:
        if isinstance(config, AscendLaunch):
            return config
        if isinstance(config, int):
            return _of_blocks(config)
        finding = f"{type(config).__name__} is no launch configuration"
        raise LoadError("launch", self.name, finding, "give an AscendLaunch or a number of blocks")

    def _refuse(self, payload: bytes) -> None:
        facts = self._facts
        if facts.hidden:
            finding = "its cores wait for each other through an address ahead of its arguments, which is not supplied"
            remedy = "launch kernel.handle with aclrtKernelArgsAppend, which puts it there"
            raise LoadError("launch", self.name, finding, remedy)
        wanted = facts.arguments
        if wanted is not None and len(payload) != wanted + -wanted % 8:
            remedy = "compare number and types of the arguments with the kernel's source"
            raise LoadError("launch", self.name, f"it reads {wanted} bytes of arguments, given {len(payload)}", remedy)

    def _send(self, config: AscendLaunch, stream: int, buffer: ctypes.Array[ctypes.c_char] | None) -> None:
        acl, native = self._binary.acl, _native(config)
        size = len(buffer) if buffer is not None else 0
        call = functools.partial(acl.call, doing="launch", subject=self.name)
        if acl.has(_HOST_ARGUMENTS):
            call(_HOST_ARGUMENTS, self.handle, config.blocks, stream, native, buffer, size, None, 0)
            return
        arguments, parameter = ctypes.c_void_p(), ctypes.c_void_p()
        call("aclrtKernelArgsInit", self.handle, arguments)
        if buffer is not None:  # all of them as one: each append starts at a multiple of 8, which is not our layout
            call("aclrtKernelArgsAppend", arguments, buffer, size, parameter)
        call("aclrtKernelArgsFinalize", arguments)
        call("aclrtLaunchKernelWithConfig", self.handle, config.blocks, stream, native, arguments, None)


def _stream(stream: Any, device: int, symbol: str) -> int:
    if stream is None:
        torch_npu = sys.modules.get("torch_npu")
        if torch_npu is None:
            return 0
        stream = torch_npu.npu.current_stream(device)
    found = getattr(stream, "npu_stream", getattr(stream, "value", stream))
    if isinstance(stream, ctypes.c_void_p) and found is None:
        return 0
    if isinstance(found, bool) or not isinstance(found, int) or not 0 <= found < 1 << 64:
        raise LoadError(
            "launch", symbol, f"{type(stream).__name__} is no stream", "give its number, or a stream of torch_npu"
        )
    return found
