"""Which architecture the devices of each SoC name have."""

from __future__ import annotations

__all__ = ["arch_number", "arch_of", "socs_of"]

# The longer names first: 910B and 910_93 are other devices than 910, and 910_95 is what 950 was called once.
_SOCS = (
    ("Ascend910_95", "dav-3510"),
    ("Ascend910_93", "dav-2201"),
    ("Ascend910B", "dav-2201"),
    ("Ascend910A", "dav-1001"),
    ("Ascend910Pro", "dav-1001"),
    ("Ascend950", "dav-3510"),
    ("Ascend310P", "dav-2002"),
    ("Ascend310B", "dav-3002"),
)


def arch_of(soc: str) -> str | None:
    """The architecture of a device by its name (`Ascend910B1` → `dav-2201`); `None` if the name is not known."""
    if soc == "Ascend910":
        return "dav-1001"
    return next((arch for name, arch in _SOCS if soc.lower().startswith(name.lower())), None)


def arch_number(number: int) -> str | None:
    """The same by what the runtime calls `NPU_ARCH` (2201); `None` for no number of that kind."""
    return f"dav-{number}" if 1000 <= number <= 9999 else None


def socs_of(arch: str) -> tuple[str, ...]:
    """Names of devices of an architecture, for messages."""
    return tuple(f"{name}*" for name, have in _SOCS if have == arch)
