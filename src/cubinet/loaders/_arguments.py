"""Arguments into bytes: counted, size-checked, and packed where the kernel's parameters lie.

How a tuple of arguments is packed is decided once for each tuple of argument types, and kept.
"""

from __future__ import annotations

import ctypes
import operator
import struct
import sys
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from cubinet.errors import LoadError
from cubinet.loaders._arrays import HostMemoryError, pointer_reader
from cubinet.loaders._parameters import Parameter

__all__ = ["Packer", "Plan", "Slot"]

_NUMBERS = {
    **{("i", 1 << n): "bhiq"[n] for n in range(4)},
    **{("u", 1 << n): "BHIQ"[n] for n in range(4)},
    **{("f", 2 << n): "efd"[n] for n in range(3)},
    ("b", 1): "?",
}
"""Kind of number, as NumPy has it, and size → struct code."""

_CTYPES = {"?": "b", **dict.fromkeys("bhilq", "i"), **dict.fromkeys("BHILQ", "u"), **dict.fromkeys("fd", "f")}
_SIGNED = {1: "b", 2: "h", 4: "i", 8: "q"}
_FLOATING = {4: "f", 8: "d"}
_PLANS_KEPT = 256

_Convert = Callable[[Any], Any]
_value, _tobytes = operator.attrgetter("value"), operator.methodcaller("tobytes")


def _as_it_is(value: Any) -> Any:
    return value


Plan = tuple[deque["Slot"], tuple[tuple[int, _Convert], ...], Callable[..., None]]
"""How arguments of some types are packed: slots that nobody uses, what makes the values of which arguments (none is
packed as it is), and `pack_into`. This and `Slot` are plain tuples, which unpack faster than named ones."""

Slot = tuple[Callable[..., None], Any, bytearray]
"""Memory for the arguments of one launch: what packs values there, the table of their addresses as the driver takes
it, and the bytes."""


class Packer:
    """Packs arguments for one kernel. Safe in threads: each launch takes a slot of its own.

    Args:
        kernel: its name, for messages.
        parameters: where each parameter lies.

    Attributes:
        whole: the plan for whole numbers alone, once there is one.
        last: the types of other arguments that were planned last, and their plan.
    """

    def __init__(self, kernel: str, parameters: Sequence[Parameter]) -> None:
        self.kernel, self.parameters = kernel, tuple(parameters)
        last = self.parameters[-1] if self.parameters else None
        self.size = last.offset + last.size if last else 0
        self.plans: dict[tuple[type, ...], Plan] = {}
        self.whole: Plan | None = None
        self.last: tuple[list[type], Any] = [], None

    def slot(self, plan: Plan) -> Slot:
        """Make a slot. The first part of a plan has those that were given back."""
        at, count = -(-self.size // 8) * 8, len(self.parameters)  # the table comes behind the arguments
        memory = bytearray(at + 8 * count + 1)
        held = ctypes.c_char.from_buffer(memory)  # keeps the bytes where they are
        base = ctypes.addressof(held)
        struct.pack_into(f"={count}Q", memory, at, *[base + parameter.offset for parameter in self.parameters])
        return partial(plan[2], memory, 0), ctypes.byref(held, at), memory

    def plan(self, args: tuple[Any, ...]) -> Plan:
        """How arguments of these types are packed; it is the `last` plan then. Raises `LoadError` if they cannot be."""
        kinds = list(map(type, args))
        made = self.plans.get(tuple(kinds))
        if made is None:
            made = self._plan(args)
            if len(self.plans) >= _PLANS_KEPT:
                self.plans.clear()
            self.plans[tuple(kinds)] = made
        if all(kind is int for kind in kinds):
            self.whole = made
        else:
            self.last = kinds, made
        return made

    def _plan(self, args: tuple[Any, ...]) -> Plan:
        if len(args) != len(self.parameters):
            listed = ", ".join(p.type or f"{p.size} bytes" for p in self.parameters[:32])
            raise self._error(f"{len(args)} arguments for {len(self.parameters)} parameters ({listed})")
        form, at, converts = "<", 0, []
        for place, (parameter, arg) in enumerate(zip(self.parameters, args, strict=True)):
            code, convert = self._one(parameter, arg)
            form += f"{parameter.offset - at}x{code}" if parameter.offset > at else code
            at = parameter.offset + parameter.size
            if convert is not _as_it_is:
                converts.append((place, convert))
        return deque(), tuple(converts), struct.Struct(form).pack_into

    def pack(self, slot: Slot, args: tuple[Any, ...]) -> None:
        """Pack arguments that the plan's own way refused, or tell why they cannot be packed."""
        converts = dict(self.plan(args)[1])
        for place, (parameter, arg) in enumerate(zip(self.parameters, args, strict=True)):
            try:
                value = converts.get(place, _as_it_is)(arg)
            except HostMemoryError as exc:
                raise self._error(f"{parameter} got {exc}", "copy it to the device first") from exc
            except (TypeError, ValueError, OverflowError, AttributeError) as exc:
                raise self._error(f"{parameter} got a {type(arg).__name__}: {exc}") from exc
            slot[2][parameter.offset : parameter.offset + parameter.size] = self._bytes(parameter, value)

    # --- one parameter

    def _one(self, parameter: Parameter, arg: Any) -> tuple[str, _Convert]:
        """The struct code for a parameter and the function that makes the value to pack."""
        if isinstance(arg, float):
            return self._float(parameter, arg)
        if isinstance(arg, int):
            return self._int(parameter, arg)
        if arg is None:
            return self._whole(parameter, arg, lambda _none: 0, pointer=True)
        return self._scalar(parameter, arg) or self._pointer(parameter, arg)

    def _int(self, parameter: Parameter, arg: int) -> tuple[str, _Convert]:
        if parameter.kind != "float":
            return self._whole(parameter, arg, _as_it_is)
        if parameter.size not in _FLOATING:
            raise self._error(f"{parameter} got an int", "give a numpy scalar of its type, or its bytes")
        return _FLOATING[parameter.size], _as_it_is

    def _scalar(self, parameter: Parameter, arg: Any) -> tuple[str, _Convert] | None:
        """What is packed as the bytes that it is, or as a number of its own type."""
        code, numpy = f"{parameter.size}s", sys.modules.get("numpy")
        if isinstance(arg, (bytes, bytearray, memoryview, ctypes.Structure, ctypes.Union, ctypes.Array)):
            return code, self._sized(parameter)
        if isinstance(arg, ctypes._SimpleCData):  # noqa: SLF001 - the base of all scalars of ctypes
            self._same(parameter, arg, ctypes.sizeof(arg))
            native = getattr(arg, "__ctype_le__", type(arg)) is type(arg)  # there are numbers of the other byte order
            kind = _CTYPES.get(arg._type_, "") if native else ""  # type: ignore[attr-defined]
            own = _NUMBERS.get((kind, parameter.size))
            return (own, _value) if own else (code, bytes)
        generic: Any = getattr(numpy, "generic", ())
        if not isinstance(arg, generic):
            return None
        if arg.dtype.kind in "VSU":  # one type for every length
            return code, self._sized(parameter, _tobytes)
        self._same(parameter, arg, arg.dtype.itemsize)
        own = _NUMBERS.get((arg.dtype.kind, parameter.size))
        return (own, _as_it_is) if own else (code, _tobytes)

    def _pointer(self, parameter: Parameter, arg: Any) -> tuple[str, _Convert]:
        reader = pointer_reader(arg)
        if reader is None:
            raise self._error(
                f"{parameter} got a {type(arg).__name__}",
                "give a number, an array on the device, a ctypes or numpy scalar, or bytes",
            )
        if parameter.kind == "float":
            raise self._error(f"{parameter} got a {type(arg).__name__}", "give a number")
        return self._whole(parameter, arg, reader, pointer=True)

    def _whole(
        self, parameter: Parameter, arg: Any, convert: _Convert, *, pointer: bool = False
    ) -> tuple[str, _Convert]:
        if parameter.size not in _SIGNED or (pointer and parameter.size != 8):
            raise self._error(
                f"{parameter} got {'a ' + type(arg).__name__ if arg is not None else 'None'}",
                "give its bytes, or a ctypes.Structure" if parameter.size > 8 else "give a number of its size",
            )
        return _SIGNED[parameter.size], convert

    def _float(self, parameter: Parameter, arg: float) -> tuple[str, _Convert]:
        if parameter.size == 2 and parameter.type == "__half":
            return "e", _as_it_is
        if parameter.kind in ("integer", "pointer") or parameter.size not in _FLOATING:
            raise self._error(
                f"{parameter} got the float {arg!r}",
                "give a numpy scalar of its type, or its bytes" if parameter.size == 2 else "give a value of its type",
            )
        return _FLOATING[parameter.size], _as_it_is

    def _same(self, parameter: Parameter, arg: Any, size: int) -> None:
        if size != parameter.size:
            raise self._error(f"{parameter} got {size} bytes ({type(arg).__name__})")

    def _sized(self, parameter: Parameter, read: Callable[[Any], bytes] = bytes) -> _Convert:
        def convert(arg: Any) -> bytes:
            data = read(arg)
            if len(data) != parameter.size:
                raise self._error(f"{parameter} got {len(data)} bytes ({type(arg).__name__})")
            return data

        return convert

    def _bytes(self, parameter: Parameter, value: Any) -> bytes:
        """One value as the bytes of its parameter; integers of either sign."""
        size = parameter.size
        if isinstance(value, bytes):
            return value
        if isinstance(value, float) or (isinstance(value, int) and parameter.kind == "float"):
            try:
                return struct.pack({2: "<e", 4: "<f", 8: "<d"}[size], value)
            except (OverflowError, struct.error) as exc:
                raise self._error(f"{parameter} got {value!r}: {exc}") from exc
        if not isinstance(value, int):  # a NumPy scalar: it has its bytes
            return bytes(value.tobytes())
        if not -(1 << size * 8 - 1) <= value < 1 << size * 8:
            raise self._error(f"{parameter} got {value}, which does not fit")
        return int(value & (1 << size * 8) - 1).to_bytes(size, "little")

    def _error(self, finding: str, remedy: str = "") -> LoadError:
        return LoadError("launch", self.kernel, finding, remedy)
