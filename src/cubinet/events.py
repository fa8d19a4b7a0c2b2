"""What happens in a store: counted by name for `Store.stats()`, and told to whoever listens."""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from cubinet.model import Artifact, Fingerprint

__all__ = ["Counters", "Event"]


_NAMES = 256
"""Reasons hold names of files and options: beyond this many, new ones count as `other`."""


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened.

    Attributes:
        what: `hit`, `miss`, `compiled`, `failed`, `uncacheable`, `error`, `skipped`, `refused`, `upload`, `damaged` or
            `nondeterministic`; the part of a counter's name before the dot.
        detail: the rest of that name: the layer of a hit, the reason of a miss.
        fingerprint: of the build, if there is one.
        family, name: of the variant, as its caller labelled it.
        seconds: that it took, wall clock; 0.0 if nobody looked.
        size: bytes of the main blob; 0 if there is none.
        artifact: what a lookup found; its `record` is read when it is first asked for.
    """

    what: str
    detail: str = ""
    fingerprint: Fingerprint | None = None
    family: str = ""
    name: str = ""
    seconds: float = 0.0
    size: int = 0
    artifact: Artifact | None = field(default=None, repr=False, compare=False)

    @property
    def counter(self) -> str:
        """The name it is counted under."""
        return f"{self.what}.{self.detail}" if self.detail else self.what


class Counters:
    """Counts by name: `hit.process`, `hit.local`, `miss.<reason>`, `compiled`, `error.<what>` and others.

    Safe in threads; a forked child starts from zero. Listeners are called in the thread in which something happened,
    while a lookup waits; one that raises is not called again.
    """

    def __init__(self) -> None:
        self._listeners: list[Callable[[Event], object]] = []
        self._reset()

    def _reset(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()
        self._said: set[str] = set()
        self._pid = os.getpid()  # last: another thread of a child must not believe the old ones

    def _mine(self) -> threading.Lock:
        if os.getpid() != self._pid:  # the lock may have been held by a thread that is not here
            self._reset()
        return self._lock

    def listen(self, listener: Callable[[Event], object]) -> None:
        """Call this with every event from now on."""
        self._listeners = [*self._listeners, listener]

    def add(self, name: str) -> None:
        """Count something of which nothing more is known than its name."""
        what, _, detail = name.partition(".")
        self.tell(Event(what, detail))

    def tell(self, event: Event) -> None:
        """Count an event and pass it on."""
        name = event.counter
        with self._mine():
            if len(self._counts) >= _NAMES and name not in self._counts:
                name = f"{event.what}.other"
            self._counts[name] += 1
        for listener in self._listeners:
            try:
                listener(event)
            except Exception:
                self._listeners = [one for one in self._listeners if one is not listener]
                import logging

                logging.getLogger("cubinet.events").exception("a listener failed and is not called again")

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
