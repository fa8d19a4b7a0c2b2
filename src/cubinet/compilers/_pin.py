"""A toolchain that is not on this machine, known by a description that another machine wrote.

With it a machine without a compiler can name what it wants, and so find it. It says: whoever compiled with these
programs had the headers that belong to them. So headers of the toolchain and of its host compiler, which are not here
to be compared, are taken to be the same; those of the caller's own roots are compared as always.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

import msgspec

from cubinet.errors import ConfigError
from cubinet.observations import VOUCHED
from cubinet.registry import Workshop

__all__ = ["Pin", "describe", "find_pin", "read_pins"]

_LIMIT = 1 << 20


class Pin(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A toolchain: adapter, version, (role, hex digest) of each program, and the labels of its own header folders."""

    compiler: str
    version: str
    programs: tuple[tuple[str, str], ...]
    labels: tuple[str, ...] = ()
    default_arch: str = ""
    archs: tuple[int, ...] = ()

    @property
    def places(self) -> dict[str, str]:
        """Its labels, with the mark that stands for a folder that need not be looked at."""
        return dict.fromkeys(self.labels, VOUCHED)


class _File(msgspec.Struct):
    format: int
    toolchains: tuple[Pin, ...]


def describe(pins: Sequence[Pin]) -> bytes:
    """The file for some toolchains."""
    return msgspec.json.format(msgspec.json.encode(_File(1, tuple(pins)), order="sorted"), indent=1) + b"\n"


def read_pins(path: str) -> tuple[Pin, ...]:
    """The toolchains in a file. Raises `ConfigError`."""
    remedy = "make it with cubinet toolchain -o FILE where the compiler is"
    try:
        with open(path, "rb") as file:
            data = file.read(_LIMIT + 1)
        found = msgspec.json.decode(data, type=_File)
    except OSError as exc:
        raise ConfigError("read toolchain", path, exc.strerror or str(exc), remedy) from exc
    except (msgspec.DecodeError, RecursionError) as exc:
        raise ConfigError("read toolchain", path, str(exc), remedy) from exc
    if found.format != 1:
        raise ConfigError("read toolchain", path, f"format {found.format}, this release knows 1", "upgrade cubinet")
    return found.toolchains


def find_pin(workshop: Workshop, compiler: str) -> Pin | None:
    """The toolchain that the setting `TOOLCHAIN` gives for an adapter; `None` if it gives none."""
    path = workshop.settings.toolchain
    if not path:
        return None
    return next((pin for pin in read_pins(os.path.expanduser(path)) if pin.compiler == compiler), None)
