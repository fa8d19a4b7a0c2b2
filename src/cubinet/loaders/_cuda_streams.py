"""Which stream a launch goes to, as the number that the driver takes."""

from __future__ import annotations

import sys
from typing import Any

from cubinet.errors import LoadError

__all__ = ["stream_number"]


def stream_number(stream: Any, device: int) -> int:
    """Return the stream's handle: 0 is the null stream.

    `None` means PyTorch's current stream on the device if PyTorch is loaded, else the null stream. An int is
    a handle; everything else must have `__cuda_stream__`, or be a stream of PyTorch or CuPy, or of the bindings.
    """
    if stream is None:
        torch = sys.modules.get("torch")
        raw = getattr(getattr(torch, "_C", None), "_cuda_getCurrentRawStream", None) if torch is not None else None
        return raw(device) if raw is not None else 0
    try:
        return stream.__cuda_stream__()[1]  # type: ignore[no-any-return]
    except (AttributeError, TypeError):
        return _other(stream)


def _other(stream: Any) -> int:
    if isinstance(stream, int) and not isinstance(stream, bool) and stream >= 0:
        return stream
    protocol = getattr(stream, "__cuda_stream__", None)
    if isinstance(protocol, tuple):  # an early form of the protocol was a property
        return int(protocol[1])
    for attribute in ("cuda_stream", "ptr"):  # PyTorch, CuPy
        number = getattr(stream, attribute, None)
        if isinstance(number, int):
            return number
    if type(stream).__name__ == "CUstream" or type(stream).__module__.startswith("cuda.bindings"):
        return int(stream)
    raise LoadError("launch on", repr(stream), "not a stream", "give a handle, or an object with __cuda_stream__")
