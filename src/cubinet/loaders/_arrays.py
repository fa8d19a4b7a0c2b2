"""The device address of whatever holds device memory, without a copy.

Every look-up of a library is by what is already imported: nothing is imported here for a caller's sake.
"""

from __future__ import annotations

import ctypes
import operator
import sys
from collections.abc import Callable
from typing import Any

__all__ = ["HostMemoryError", "pointer_reader"]

_DL_CUDA, _DL_CUDA_MANAGED = 2, 13
_CAPSULE = (b"dltensor", b"dltensor_versioned")


class HostMemoryError(TypeError):
    """An array whose memory a device cannot read."""


class _Tensor(ctypes.Structure):
    """The head of DLPack's `DLTensor`."""

    _fields_ = (
        ("data", ctypes.c_uint64),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("dtype", ctypes.c_uint32),
        ("shape", ctypes.c_uint64),
        ("strides", ctypes.c_uint64),
        ("byte_offset", ctypes.c_uint64),
    )


def pointer_reader(example: Any) -> Callable[[Any], int] | None:
    """Return the function that gives the address of things of this type; `None` if they hold no memory.

    The function raises `HostMemoryError` for memory of the host.
    """
    kind = type(example)
    origin = kind.__module__ or ""
    torch, numpy = sys.modules.get("torch"), sys.modules.get("numpy")
    known: tuple[tuple[bool, Callable[[Any], int]], ...] = (
        (torch is not None and isinstance(example, getattr(torch, "Tensor", ())), _of_torch),
        (origin.startswith("cuda.core") and hasattr(kind, "handle") and hasattr(kind, "size"), _of_buffer),
        (origin.startswith("cuda.bindings") and kind.__name__ == "CUdeviceptr", int),
        (origin.startswith("cupy") and hasattr(kind, "data"), _of_cupy),
        (numpy is not None and isinstance(example, getattr(numpy, "ndarray", ())), _refuse),
        (hasattr(kind, "__cuda_array_interface__"), _of_interface),
        (hasattr(kind, "__dlpack__"), _of_dlpack),
        (hasattr(example, "__cuda_array_interface__"), _of_interface),
    )
    return next((read for speaks, read in known if speaks), None)


def _refuse(array: Any) -> int:
    raise HostMemoryError(f"a {type(array).__name__} in the host's memory")


def _of_torch(tensor: Any) -> int:
    if not tensor.is_cuda:
        raise HostMemoryError(f"a tensor on {tensor.device}")
    return tensor.data_ptr()  # type: ignore[no-any-return]


_of_cupy = operator.attrgetter("data.ptr")


def _of_buffer(buffer: Any) -> int:
    return int(buffer.handle or 0)


def _of_interface(array: Any) -> int:
    return int(array.__cuda_array_interface__["data"][0] or 0)


def _of_dlpack(array: Any) -> int:
    """The address in the capsule that the array gives; it goes at once, its owner is the caller's."""
    if array.__dlpack_device__()[0] not in (_DL_CUDA, _DL_CUDA_MANAGED):
        raise HostMemoryError(f"a {type(array).__name__} in the host's memory")
    capsule = array.__dlpack__(stream=-1)  # the launch is ordered by the caller's own stream
    api = ctypes.pythonapi
    valid, pointer = api.PyCapsule_IsValid, api.PyCapsule_GetPointer
    valid.argtypes = pointer.argtypes = (ctypes.py_object, ctypes.c_char_p)
    pointer.restype = ctypes.c_void_p
    plain = bool(valid(capsule, _CAPSULE[0]))
    address = pointer(capsule, _CAPSULE[0 if plain else 1])
    # The versioned form begins with version, context, deleter and flags: 32 bytes.
    tensor = _Tensor.from_address(address if plain else address + 32)
    return int(tensor.data + tensor.byte_offset)
