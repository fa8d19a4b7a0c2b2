"""Counting what happened, for `Store.stats()` and for people who watch."""

from __future__ import annotations

import os
import threading
from collections import Counter

__all__ = ["Counters"]


_NAMES = 256
"""Reasons hold names of files and options: beyond this many, new ones count as `other`."""


class Counters:
    """Counts by name: `hit.process`, `hit.local`, `miss.<reason>`, `compiled`, `error.<what>` and others.

    Safe in threads; a forked child starts from zero.
    """

    def __init__(self) -> None:
        self._reset()

    def _reset(self) -> None:
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()
        self._said: set[str] = set()

    def _mine(self) -> threading.Lock:
        if os.getpid() != self._pid:  # the lock may have been held by a thread that is not here
            self._reset()
        return self._lock

    def add(self, name: str) -> None:
        """Count something."""
        with self._mine():
            if len(self._counts) >= _NAMES and name not in self._counts:
                name = f"{name.partition('.')[0]}.other"
            self._counts[name] += 1

    def first(self, text: str) -> bool:
        """Whether this is the first time this is said: warnings come once a process."""
        with self._mine():
            fresh = text not in self._said
            self._said.add(text)
            return fresh

    def snapshot(self) -> dict[str, int]:
        """All counts by name."""
        with self._mine():
            return dict(sorted(self._counts.items()))
