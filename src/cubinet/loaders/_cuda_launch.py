"""Prepared launches.

A launch is prepared once for each shape (`kernel[grid, block]`, `kernel.configure(…)`, or a
`cuda.core.LaunchConfig` as `kernel.launch` sees it) and stream; what is left for each call is packing the arguments
and one call of the driver, `cuLaunchKernelEx`.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from cubinet.errors import LoadError
from cubinet.loaders._arguments import Packer
from cubinet.loaders._cuda_driver import (
    INVALID_CONTEXT,
    INVALID_VALUE,
    NOT_SUPPORTED,
    checked,
    driver,
    function,
    inside,
    refused,
)
from cubinet.loaders._cuda_library import Library
from cubinet.loaders._cuda_streams import stream_number
from cubinet.loaders._parameters import Parameter, laid_out, parameters_of, typed

__all__ = ["Dim", "Entry", "Launch", "Shape", "keep"]

Dim = int | Sequence[int]

PORTABLE_CLUSTER = 8
"""Blocks of a cluster that every device takes."""

_KEPT = 256


_CONFIG = struct.Struct("@3I3IIPPI4x")
"""`CUlaunchConfig`: grid, block, dynamic shared memory, stream, address and number of its attributes."""

_ATTRIBUTE = struct.Struct("@i4x3I52x")
"""`CUlaunchAttribute`: its number, and the words in which the attributes that are used here have their values."""

_CLUSTER_DIMENSION, _COOPERATIVE, _STREAM_SERIALIZATION = 4, 2, 6


class Shape(NamedTuple):
    """A launch but for stream and arguments; `grid` counts blocks."""

    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    cluster: tuple[int, int, int] | None = None
    shared: int = 0
    cooperative: bool = False
    pdl: bool = False
    nonportable: bool = False


class Entry:
    """What all launches of one kernel share. Keeps the library loaded."""

    __slots__ = ("argument", "handle", "launch", "library", "name", "packer", "symbol")

    def __init__(self, library: Library, handle: Any, symbol: str, name: str) -> None:
        api = driver()
        self.library, self.symbol, self.name = library, symbol, name
        self.handle = int(handle)  # a CUkernel; launches take it as a CUfunction
        self.launch = function("cuLaunchKernelEx")
        # ctypes passes what `byref` gives faster than anything else; what is at the address is never read
        self.argument = ctypes.byref(ctypes.c_char.from_address(self.handle))
        with inside(library.context):
            self.packer = Packer(name, typed(self._parameters(api, handle), name))

    def _parameters(self, api: Any, handle: Any) -> Sequence[Parameter]:
        """The parameter table: from the driver, or from the cubin itself where the driver is too old to tell."""
        found: list[Parameter] = []
        while True:
            try:
                code, offset, size = api.cuKernelGetParamInfo(handle, len(found))
            except RuntimeError:  # the bindings found no such function in the driver
                break
            number = int(code)
            if not number:
                found.append(Parameter(len(found), offset, size))
            elif number == INVALID_VALUE:
                return laid_out(found, self.symbol)
            elif number == NOT_SUPPORTED:
                break
            else:
                raise self.refused(code, "find parameters of")
        table = parameters_of(self.library.data, self.symbol) if self.library.kind == "cubin" else None
        if table is None:
            raise LoadError("find parameters of", self.name, "the driver cannot tell them", "update it to CUDA 12.4")
        return table

    def attribute(self, name: str) -> int:
        """One `CU_FUNC_ATTRIBUTE_…` of the kernel on the library's device."""
        with inside(self.library.context) as api:
            what = getattr(api.CUfunction_attribute, f"CU_FUNC_ATTRIBUTE_{name}")
            answer = api.cuKernelGetAttribute(what, api.CUkernel(self.handle), self.library.device.number)
        return int(checked(answer, "ask", self.name))

    def set_attribute(self, name: str, value: int) -> None:
        """Set one attribute on the library's device. Raises `DriverError`."""
        with inside(self.library.context) as api:
            what = getattr(api.CUfunction_attribute, f"CU_FUNC_ATTRIBUTE_{name}")
            kernel = api.CUkernel(self.handle)
            (code,) = api.cuKernelSetAttribute(what, value, kernel, self.library.device.number)
        if int(code):
            raise self.refused(code, f"set {name.lower()} = {value} for")

    def occupancy(self, block: tuple[int, int, int], shared: int) -> int:
        """Blocks that one multiprocessor of the library's device runs at a time."""
        with inside(self.library.context) as api:
            threads = block[0] * block[1] * block[2]
            kernel = api.CUfunction(self.handle)
            answer = api.cuOccupancyMaxActiveBlocksPerMultiprocessor(kernel, threads, shared)
        return int(checked(answer, "ask occupancy of", self.name))

    def refused(self, code: Any, action: str, more: str = "") -> LoadError:
        """Make the error for what the driver answered."""
        library = self.library
        return refused(code, action, self.name + more, target=library.target, device=str(library.device))


class Launch:
    """A kernel with grid, block and everything else of a launch but arguments and stream. Call it to launch.

    Attributes:
        run: the same as calling it, a little faster: `run(args, stream)`, with the arguments as a tuple.
    """

    __slots__ = ("_configs", "_entry", "run", "shape")

    def __init__(self, entry: Entry, shape: Shape) -> None:
        self._entry, self.shape = entry, shape
        self._configs: dict[int, Any] = {}
        _check(entry.name, shape)
        if shape.shared > entry.library.shared_limits.get(entry.symbol, 0):
            if shape.shared > entry.attribute("MAX_DYNAMIC_SHARED_SIZE_BYTES"):
                entry.set_attribute("MAX_DYNAMIC_SHARED_SIZE_BYTES", shape.shared)
            entry.library.shared_limits[entry.symbol] = shape.shared
        if shape.nonportable:
            entry.set_attribute("NON_PORTABLE_CLUSTER_SIZE_ALLOWED", 1)
        self.run = _runner(entry, shape, self._configs)

    def __call__(self, *args: Any, stream: Any = None) -> None:
        """Launch with these arguments; `stream` as in `CudaKernel.launch`."""
        self.run(args, stream)

    @property
    def kernel(self) -> str:
        """The symbol of the kernel that it launches."""
        return self._entry.symbol

    def occupancy(self) -> int:
        """Blocks of this launch that one multiprocessor runs at a time."""
        return self._entry.occupancy(self.shape.block, self.shape.shared)

    def clusters(self) -> int:
        """Clusters of this launch that the device runs at a time."""
        count, config, entry = ctypes.c_int(), _config(self.shape, 0), self._entry
        with inside(entry.library.context):
            code = function("cuOccupancyMaxActiveClusters")(ctypes.byref(count), entry.argument, config)
        if code:
            raise entry.refused(code, "ask occupancy of")
        return count.value

    def __repr__(self) -> str:
        return f"Launch({_told(self.shape)})"


def _runner(entry: Entry, shape: Shape, configs: dict[int, Any]) -> Callable[..., None]:
    """Return the function that launches. What it needs at each call is in its own variables: that is fastest."""
    device, packer = entry.library.device.number, entry.packer
    kernel, launch = entry.argument, entry.launch
    trouble = (struct.error, TypeError, ValueError, OverflowError, AttributeError)

    def run(args: tuple[Any, ...], stream: Any) -> None:
        if stream is None:
            stream = stream_number(None, device)
        try:
            config = configs[stream if stream.__class__ is int else stream.__cuda_stream__()[1]]
        except (KeyError, AttributeError, TypeError):
            number = stream_number(stream, device)
            config = configs.get(number) or keep(configs, number, _config(shape, number))
        for arg in args:
            if arg.__class__ is not int:
                kinds, plan = packer.last
                if kinds != [*map(type, args)]:
                    plan = packer.plan(args)
                break
        else:
            plan = packer.whole or packer.plan(args)
        free, converts, _ = plan
        try:
            slot = free.pop()  # a slot of its own: another thread may launch while the driver runs
        except IndexError:
            slot = packer.slot(plan)
        pack, table, _ = slot
        try:
            if converts:
                values = [*args]
                for place, convert in converts:
                    values[place] = convert(args[place])
                pack(*values)
            else:
                pack(*args)
        except trouble:
            packer.pack(slot, args)
        code = launch(config, kernel, table, None)
        if code:
            _retry(entry, shape, code, config, table)
        free.append(slot)

    return run


def _retry(entry: Entry, shape: Shape, code: int, config: Any, table: Any) -> None:
    """Launch again in a thread that had no context; raise what else the driver refused."""
    api = driver()
    if code == INVALID_CONTEXT and not int(checked(api.cuCtxGetCurrent(), "read the current context")):
        checked(api.cuCtxSetCurrent(api.CUcontext(entry.library.context)), "use the context of", entry.name)
        code = entry.launch(config, entry.argument, table, None)
    if code:
        raise entry.refused(code, "launch", f" with {_told(shape)}")


def _config(shape: Shape, stream: int) -> Any:
    """The driver's own launch configuration for a stream: the one place where launch attributes are made."""
    attributes = []
    if shape.cluster is not None:
        attributes.append((_CLUSTER_DIMENSION, *shape.cluster))
    if shape.cooperative:
        attributes.append((_COOPERATIVE, 1, 0, 0))
    if shape.pdl:
        attributes.append((_STREAM_SERIALIZATION, 1, 0, 0))
    at, count = _CONFIG.size, len(attributes)
    memory = bytearray(at + _ATTRIBUTE.size * count)
    held = ctypes.c_char.from_buffer(memory)  # keeps the bytes where they are
    for place, attribute in enumerate(attributes):
        _ATTRIBUTE.pack_into(memory, at + _ATTRIBUTE.size * place, *attribute)
    where = ctypes.addressof(held) + at if count else 0
    _CONFIG.pack_into(memory, 0, *shape.grid, *shape.block, shape.shared, stream, where, count)
    return ctypes.byref(held)


def keep(kept: dict[Any, Any], key: Any, value: Any) -> Any:
    """Put a value in a dictionary that is emptied when it grows too large."""
    if len(kept) >= _KEPT:
        kept.clear()
    kept[key] = value
    return value


def _told(shape: Shape) -> str:
    default = Shape._field_defaults
    return ", ".join(f"{k}={v}" for k, v in shape._asdict().items() if k not in default or v != default[k])


def _check(name: str, shape: Shape) -> None:
    """Refuse what the driver would refuse with less to say."""
    if shape.shared < 0:
        raise LoadError("launch", name, f"shared={shape.shared}", "give bytes from 0")
    if shape.cluster is None:
        return
    if any(blocks % size for blocks, size in zip(shape.grid, shape.cluster, strict=True)):
        raise LoadError("launch", name, f"a grid of {shape.grid} blocks in clusters of {shape.cluster}", "make it even")
    size = shape.cluster[0] * shape.cluster[1] * shape.cluster[2]
    if size > PORTABLE_CLUSTER and not shape.nonportable:
        finding = f"clusters of {size} blocks, more than the {PORTABLE_CLUSTER} that every device takes"
        raise LoadError("launch", name, finding, "allow them with configure(…, nonportable=True)")
