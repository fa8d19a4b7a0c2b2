"""A loaded kernel."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

from cubinet.errors import LoadError
from cubinet.loaders._cuda_launch import Dim, Entry, Launch, Shape, keep
from cubinet.loaders._cuda_library import Library
from cubinet.loaders._parameters import Parameter

__all__ = ["CudaKernel"]

_state = operator.attrgetter(
    "grid", "block", "cluster", "shmem_size", "is_cooperative", "programmatic_stream_serialization"
)
"""All of a `cuda.core.LaunchConfig`, as a tuple."""


class CudaKernel:
    """A kernel on a device. Keeps its library loaded; safe in threads.

    Attributes:
        name: its C++ name, or its symbol.
        symbol: its symbol.
    """

    def __init__(self, library: Library, handle: Any, symbol: str, name: str) -> None:
        self._entry = Entry(library, handle, symbol, name)
        self.name, self.symbol = name, symbol
        self._indexed: dict[Any, Launch] = {}
        self._shapes: dict[Shape, Launch] = {}
        self._last: tuple[Any, Any, Any] = (None, None, None)
        self._handle: Any = None

    def configure(
        self,
        grid: Dim,
        block: Dim,
        *,
        cluster: Dim | None = None,
        shared: int = 0,
        cooperative: bool = False,
        pdl: bool = False,
        nonportable: bool = False,
    ) -> Launch:
        """Prepare a launch.

        Args:
            grid: blocks, in one to three dimensions; always blocks, also with `cluster`.
            block: threads of a block.
            cluster: blocks of a cluster.
            shared: dynamic shared memory in bytes; the kernel's limit is raised where that is needed.
            cooperative: all blocks run at once and can wait for each other.
            pdl: may begin before the kernel in front of it in the stream ends (programmatic dependent launch).
            nonportable: allow clusters of more than 8 blocks, which not every device can run.

        Raises `LoadError` for a shape that cannot be meant, `DriverError` for what the device does not have.
        """
        shape = Shape(
            self._dim("grid", grid),
            self._dim("block", block),
            None if cluster is None else self._dim("cluster", cluster),
            shared,
            cooperative,
            pdl,
            nonportable,
        )
        found = self._shapes.get(shape)
        if found is None:
            found = keep(self._shapes, shape, Launch(self._entry, shape))
        return found

    def __getitem__(self, shape: tuple[Dim, Dim] | tuple[Dim, Dim, int]) -> Launch:
        """`kernel[grid, block]` or `kernel[grid, block, shared]`: the prepared launch."""
        try:
            return self._indexed[shape]
        except KeyError:
            return keep(self._indexed, shape, self._from_index(shape))  # type: ignore[no-any-return]
        except TypeError:  # a list in it
            return self._from_index(shape)

    def _from_index(self, shape: Any) -> Launch:
        if not isinstance(shape, tuple) or len(shape) not in (2, 3):
            raise LoadError("launch", self.name, f"[{shape!r}] is no grid and block", "as in kernel[grid, block](…)")
        return self.configure(shape[0], shape[1], shared=shape[2] if len(shape) == 3 else 0)

    def launch(self, config: Any, *args: Any, stream: Any = None) -> None:
        """Launch.

        Args:
            config: a `cuda.core.LaunchConfig`, or what `configure` made.
            args: one for each parameter: numbers, arrays on the device, ctypes or numpy scalars, bytes.
            stream: a handle, 0 for the null stream, or any object with `__cuda_stream__`; if not given, PyTorch's
                current stream on the device if PyTorch is loaded, else the null stream.

        Raises `LoadError` for arguments that do not fit the parameters, `DriverError` for what the driver refused.
        """
        seen, state, run = self._last
        if config is seen and _state(config) == state:  # a configuration can be changed after it was used
            run(args, stream)
        else:
            self._launch_of(config).run(args, stream)

    def _launch_of(self, config: Any) -> Launch:
        if isinstance(config, Launch):
            if config.kernel != self._entry.symbol:
                raise LoadError("launch", self.name, f"{config!r} was prepared for {config.kernel}")
            return config
        try:
            state = grid, block, cluster, shared, cooperative, pdl = _state(config)
        except AttributeError as exc:
            raise LoadError(
                "launch", self.name, f"a {type(config).__name__} is no launch configuration", "give a LaunchConfig"
            ) from exc
        blocks = grid if cluster is None else tuple(g * c for g, c in zip(grid, cluster, strict=True))
        made = self.configure(blocks, block, cluster=cluster, shared=shared or 0, cooperative=cooperative, pdl=pdl)
        self._last = (config, state, made.run)
        return made

    @property
    def handle(self) -> Any:
        """The kernel as a `cuda.core.Kernel`, for everything that takes one. It keeps the library loaded."""
        if self._handle is None:
            import weakref

            from cuda.core import Kernel

            entry = self._entry
            made = Kernel.from_handle(entry.handle)
            weakref.finalize(made, id, entry).atexit = False  # holds `entry` until `made` is gone
            self._handle = made
        return self._handle

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """Where its parameters lie, and their types where its name tells them."""
        return self._entry.packer.parameters

    @property
    def attributes(self) -> Any:
        """What the driver tells of it (`num_regs`, `max_threads_per_block`, …): `cuda.core`'s view for its device."""
        return self.handle.attributes[self._entry.library.device.number]

    def occupancy(self, block: Dim, shared: int = 0) -> int:
        """Blocks of this size, with this much dynamic shared memory, that one multiprocessor runs at a time."""
        return self._entry.occupancy(self._dim("block", block), shared)

    def __int__(self) -> int:
        """The `CUkernel` handle, which the driver's launch functions take as a `CUfunction` too."""
        return self._entry.handle

    def __repr__(self) -> str:
        return f"<CudaKernel {self.name} on {self._entry.library.device}>"

    def _dim(self, what: str, value: Any) -> tuple[int, int, int]:
        if value.__class__ is int and value > 0:
            return value, 1, 1
        given = tuple(value) if isinstance(value, Sequence) else (value,)
        sizes = (*given, 1, 1)[:3]
        if not 1 <= len(given) <= 3 or any(not isinstance(n, int) or n < 1 for n in sizes):
            raise LoadError("launch", self.name, f"{what}={value!r}", "one to three whole numbers from 1")
        return sizes
