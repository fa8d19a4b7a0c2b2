"""Cubinet: a content-addressed store for compiled GPU and NPU kernels.

Names are loaded on first use, so that `import cubinet` costs next to nothing.
"""

from __future__ import annotations

TYPE_CHECKING = False  # the one from `typing` costs more to import than all of this

__version__ = "0.1.0"

_HOME = {
    "Artifact": "cubinet.model",
    "CompileError": "cubinet.errors",
    "CompileTimeoutError": "cubinet.errors",
    "ConfigError": "cubinet.errors",
    "CubinetError": "cubinet.errors",
    "Digest": "cubinet.model",
    "Fingerprint": "cubinet.model",
    "FormatError": "cubinet.errors",
    "IntegrityError": "cubinet.errors",
    "Kernel": "cubinet.model",
    "Record": "cubinet.model",
    "Root": "cubinet.model",
    "Settings": "cubinet.config",
    "Store": "cubinet.store",
    "StoreError": "cubinet.errors",
    "Target": "cubinet.model",
    "Toolchain": "cubinet.model",
    "ToolchainNotFoundError": "cubinet.errors",
    "Variant": "cubinet.model",
}

__all__ = [
    "Artifact",
    "CompileError",
    "CompileTimeoutError",
    "ConfigError",
    "CubinetError",
    "Digest",
    "Fingerprint",
    "FormatError",
    "IntegrityError",
    "Kernel",
    "Record",
    "Root",
    "Settings",
    "Store",
    "StoreError",
    "Target",
    "Toolchain",
    "ToolchainNotFoundError",
    "Variant",
    "__version__",
]

if TYPE_CHECKING:
    from cubinet.config import Settings
    from cubinet.errors import (
        CompileError,
        CompileTimeoutError,
        ConfigError,
        CubinetError,
        FormatError,
        IntegrityError,
        StoreError,
        ToolchainNotFoundError,
    )
    from cubinet.model import (
        Artifact,
        Digest,
        Fingerprint,
        Kernel,
        Record,
        Root,
        Target,
        Toolchain,
        Variant,
    )
    from cubinet.store import Store


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module 'cubinet' has no attribute {name!r}")
    import importlib

    value = getattr(importlib.import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
