"""What a compiled object says of itself: the values that inspecting one gives."""

from __future__ import annotations

from dataclasses import dataclass

from cubinet.errors import ObjectError
from cubinet.model import Kernel

__all__ = ["Image", "ObjectInfo", "damaged"]


@dataclass(frozen=True, slots=True)
class Image:
    """One member of a fatbin.

    Attributes:
        kind: `ptx`, `cubin`, `ltoir`, or `unknown` for a kind this release has no name for.
        arch: architecture as compiled, `None` if neither the fatbin nor the member tells it fully.
        archs: everything `arch` can be; one if it is known, empty if nothing is told.
        size: bytes the member takes in the fatbin, as it lies there.
        compressed: whether it lies there compressed.
        kernels: its kernels.
        note: why its kernels are not known; empty if they are.
    """

    kind: str
    arch: str | None
    archs: tuple[str, ...]
    size: int
    compressed: bool
    kernels: tuple[Kernel, ...] = ()
    note: str = ""


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """What a compiled object says of itself.

    Attributes:
        kind: `cubin`, `ptx`, `fatbin`, `ltoir` or `ascend`.
        arch: architecture exactly as compiled (`sm_90a`, `dav-2201`), `None` if the file does not
            tell it in full (a cubin may show that it is for `sm_100` and not whether it is for
            `sm_100f`) or, for a fatbin, if it has members for several.
        archs: everything `arch` can be; one if it is known.
        kernels: the kernels; for a fatbin those of its members, each symbol once.
        producer: the compiler's own banner, empty if there is none.
        options: options of ptxas, as it recorded them.
        images: the members of a fatbin.
        version: of PTX, its `.version`.
        address_size: of PTX, its `.address_size` in bits.
    """

    kind: str
    arch: str | None = None
    archs: tuple[str, ...] = ()
    kernels: tuple[Kernel, ...] = ()
    producer: str = ""
    options: tuple[str, ...] = ()
    images: tuple[Image, ...] = ()
    version: str = ""
    address_size: int | None = None


def damaged(subject: str, finding: str, remedy: str = "compile it again") -> ObjectError:
    """Return the error for bytes that contradict themselves or their own size."""
    return ObjectError("read", subject, finding, remedy)
