"""One object loaded by the driver, shared by everybody in the process who asks for the same bytes."""

from __future__ import annotations

import os
import sys
import threading
import weakref
from collections.abc import Callable
from typing import Any

from cubinet.loaders._cuda_driver import Device, driver, inside

__all__ = ["Libraries", "Library", "Refusal"]


class Library:
    """A `CUlibrary`. Unloaded when nobody has it any more: no module, kernel or launch.

    Attributes:
        data: the bytes it was loaded from.
        kind: `cubin`, `ptx` or `fatbin`.
        shared_limits: dynamic shared memory that kernels were allowed here, in bytes by symbol.
    """

    _unload: Callable[[Any], Any] | None = None

    def __init__(self, data: bytes, kind: str, *, target: str, context: int, device: Device) -> None:
        api = driver()
        self.data, self.kind, self.target, self.context, self.device = data, kind, target, context, device
        self.shared_limits: dict[str, int] = {}
        self._owner = os.getpid()
        image = data if kind != "ptx" or data.endswith(b"\0") else data + b"\0"  # PTX is read as a C string
        code, self.handle = api.cuLibraryLoadData(image, [], [], 0, [], [], 0)
        if not int(code):
            self._unload = api.cuLibraryUnload
            with inside(context):  # the driver may read the image only now; what is wrong with it is this load's error
                code = api.cuLibraryGetModule(self.handle)[0]
        if int(code):
            raise Refusal(code)

    def __del__(self, _getpid: Callable[[], int] = os.getpid, _ending: Callable[[], bool] = sys.is_finalizing) -> None:
        # A forked child has no driver to ask, and a process that ends need not.
        if self._unload is not None and _getpid() == self._owner and not _ending():
            self._unload(self.handle)


class Refusal(Exception):  # noqa: N818 - the loader makes the error of it
    """The driver's code for bytes that it did not load."""


class Libraries:
    """Loaded libraries by (context, digest of the bytes). Holds none: the last owner's end is theirs."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: weakref.WeakValueDictionary[tuple[int, str], Library] = weakref.WeakValueDictionary()
        self._pid = os.getpid()

    def get(self, key: tuple[int, str], load: Callable[[], Library]) -> Library:
        """The library, loaded if it is not there. Two threads may load the same; one of the two is kept."""
        if self._pid != os.getpid():  # a child: the parent's handles are of no use, and its lock may be held
            self.__init__()  # type: ignore[misc]
        with self._lock:
            found = self._held.get(key)
        if found is None:
            made = load()
            with self._lock:
                found = self._held.setdefault(key, made)
        return found

    def __len__(self) -> int:
        return len(self._held)
