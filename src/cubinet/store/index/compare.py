"""What differs between two records."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from cubinet.errors import FormatError
from cubinet.model import Kernel, Record
from cubinet.observations import read_observations

__all__ = ["Difference", "differences"]

_RESOURCES = ("regs", "shared", "local", "const", "params", "spills")
_FACTS = ("family", "name", "entries", "kind", "seconds", "host", "producer", "created", "local_only")


@dataclass(frozen=True, slots=True)
class Difference:
    """One thing that differs: `what` is `fact`, `part`, `blob`, `observation` or `kernel`; `None`: it is not there."""

    what: str
    name: str
    a: str | int | float | None
    b: str | int | float | None


def differences(a: Record, b: Record, observations: Callable[[Record], bytes | None]) -> list[Difference]:
    """Everything, in the order fact, part, blob, observation, kernel."""
    return [
        *_pairs("fact", _facts(a), _facts(b)),
        *_pairs("part", dict(a.parts), dict(b.parts)),
        *_pairs("blob", _blobs(a), _blobs(b)),
        *(() if a.observations == b.observations else _observed(a, b, observations)),
        *_pairs("kernel", _kernels(a), _kernels(b)),
    ]


Facts = Mapping[str, str | int | float | None]


def _pairs(what: str, a: Facts, b: Facts) -> Iterator[Difference]:
    for name in [*a, *(name for name in b if name not in a)]:
        if a.get(name) != b.get(name):
            yield Difference(what, name, a.get(name), b.get(name))


def _facts(record: Record) -> Facts:
    found: dict[str, str | int | float | None] = {"target": str(record.target)}
    for name in _FACTS:
        value = getattr(record, name)
        found[name] = " ".join(value) if isinstance(value, tuple) else value
    tools = record.toolchain
    return found | {"toolchain": f"{tools.name} {tools.version}", "toolchain identity": str(tools.identity)}


def _blobs(record: Record) -> Facts:
    sizes = {f"{role} bytes": ref.size for role, ref in record.blobs}
    return {role: str(ref.digest) for role, ref in record.blobs if role != "observations"} | sizes


def _observed(a: Record, b: Record, observations: Callable[[Record], bytes | None]) -> Iterator[Difference]:
    sides: list[Facts] = []
    for record in (a, b):
        try:
            data = observations(record)
            seen = read_observations(data) if data is not None else None
        except FormatError:
            seen = None
        if seen is None:
            yield Difference("observation", "(all)", str(a.observations), str(b.observations))
            return
        sides.append({o.name: f"{o.seen} {o.digest}" if o.digest else str(o.seen) for o in seen})
    yield from _pairs("observation", *sides)


def _kernels(record: Record) -> Facts:
    found: dict[str, str | int | float | None] = {}
    for kernel in record.kernels:
        found |= {f"{kernel.name}: {_word(name)}": getattr(kernel, name) for name in _RESOURCES} | {
            kernel.name: _there(kernel)
        }
    return found


def _word(name: str) -> str:
    return {"regs": "registers", "const": "constant", "params": "parameters"}.get(name, name)


def _there(kernel: Kernel) -> str:
    return kernel.symbol
