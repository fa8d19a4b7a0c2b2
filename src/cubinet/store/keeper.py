"""When the local layer is brought within its limits: after publishing, behind everybody's back, and seldom.

A publish costs a look at a number; every so many bytes, or minutes, it puts a job into the queue of uploads, which
nobody waits for.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from cubinet.config import Settings
from cubinet.errors import StoreError
from cubinet.model import Record
from cubinet.store.local import LocalLayer
from cubinet.store.uploads import Job, Uploads

if TYPE_CHECKING:
    from cubinet.store.retention import Retention

__all__ = ["Keeper"]

STAMP = "COLLECTED"
"""The file whose time says when the layer was last collected."""

_SECONDS = 600.0
_PART = 64
"""A layer is looked at when a sixty-fourth of its limit was published by this process."""


class Keeper:
    """Sees to it that a local layer stays within its limits. Safe in threads; a forked child starts to count anew.

    Args:
        local: the layer.
        settings: with `size`, `age` and `free`.
        later: takes the work.
        retention: makes what does it.
        warn: called with a sentence.
    """

    def __init__(
        self,
        local: LocalLayer,
        settings: Settings,
        later: Uploads,
        retention: Callable[[], Retention],
        warn: Callable[[str], None],
    ) -> None:
        self.warn = warn
        self.local, self.settings, self.later, self.retention = local, settings, later, retention
        self._pid, self._bytes, self._next = os.getpid(), 0, 0.0

    @property
    def limited(self) -> bool:
        """Whether there is any limit."""
        return bool(self.settings.size or self.settings.age or self.settings.free)

    def published(self, record: Record) -> None:
        """Note that a build came; now and then, have the layer collected."""
        if not self.limited:
            return
        if os.getpid() != self._pid:
            self._pid, self._bytes, self._next = os.getpid(), 0, 0.0
        self._bytes += sum(ref.size for _, ref in record.blobs)
        now = time.monotonic()
        much = self.settings.size and self._bytes > self.settings.size // _PART
        if much or (now >= self._next and self._due()):
            self._bytes = 0
            self.later.add(Job(self._collect, 0, build=False))
        if now >= self._next:
            self._next = now + _SECONDS

    def _due(self) -> bool:
        for name in (STAMP, "VERSION"):  # a store that was never collected is as old as it is
            try:
                stamp = self.local.fs.stat(f"{self.local.folder}/{name}").st_mtime
            except OSError:
                continue
            return not 0 <= self.local.now() - stamp < _SECONDS  # one from the future tells nothing
        return False

    def _collect(self) -> None:
        from cubinet.store.retention import Limits

        settings = self.settings
        try:
            done = self.retention().collect(Limits(settings.size, settings.age, settings.free), thorough=False)
        except StoreError as exc:
            self.warn(f"the store cannot be kept within its limits: {exc}")
            return
        if done.over:
            self.warn(
                f"the store is {done.over} bytes over its limits, and the rest of it is pinned or was used within a day"
            )
