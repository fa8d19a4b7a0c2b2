"""What is done when a layer beyond the local one is in trouble: this policy is nowhere else.

Trouble costs a bounded wait, a count and one warning, never the build; `strict` raises instead. A layer that was too
slow once, or failed three times in a row, is left alone for a while, and then tried with one request.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from typing import TypeVar

from cubinet.errors import (
    ConfigError,
    CubinetError,
    FormatError,
    RemoteError,
    RemoteUnavailableError,
    StoreError,
    TrustError,
)
from cubinet.events import Counters

__all__ = ["Guard"]

T = TypeVar("T")

_FAILURES = 3
_FIRST_PAUSE, _LONGEST_PAUSE = 30.0, 600.0
_LEAST = 0.05
"""Seconds below which a request is not worth starting."""

_SLOW = 0.5
"""Seconds after which trouble on the way of a lookup was slow: a host that takes no connection tells it after one."""


class Guard:
    """Budget and breaker of one layer. Safe in threads; a forked child starts afresh.

    Args:
        name: of the layer, for counters.
        place: of the layer, for messages.
        warn: called with a sentence, and what it is about; says the same thing once.
        budget: seconds that one lookup may wait for the layer.
    """

    def __init__(
        self,
        name: str,
        place: str,
        counters: Counters,
        warn: Callable[[str, str], None],
        *,
        strict: bool,
        budget: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.name, self.place, self.counters, self.warn = name, place, counters, warn
        self.strict, self.budget, self.clock = strict, budget, clock
        self._reset()

    def _reset(self) -> None:
        self._lock = threading.Lock()
        self._failures, self._pause, self._until = 0, _FIRST_PAUSE, 0.0
        self._trying = self._prepared = False
        self._lookup = threading.local()
        self._pid = os.getpid()  # last: another thread of a child must not believe the old ones

    # --- the budget of a lookup

    def begin(self, prepare: Callable[[], object], seconds: float | None = None) -> None:
        """A lookup of this thread begins; it may take the budget, or `seconds` if they are fewer.

        `prepare` is called first, the first time: what it takes, to import a client, is in no budget.
        """
        if os.getpid() != self._pid:
            self._reset()
        if not self._prepared and not self.open:
            try:
                prepare()
                self._prepared = True
            except (ConfigError, RemoteError, StoreError) as exc:
                self._failed("read", exc, slow=True)
                if self.strict:
                    raise
        self._lookup.deadline = self.clock() + min(self.budget, seconds or self.budget)

    def left(self) -> float:
        """Seconds that the lookup of this thread may still take."""
        deadline: float = getattr(self._lookup, "deadline", 0.0)
        return deadline - self.clock()

    # --- the breaker

    @property
    def open(self) -> bool:
        """Whether the layer is being left alone."""
        if os.getpid() != self._pid:
            self._reset()
        with self._lock:
            return self.clock() < self._until

    def _enter(self) -> bool:
        with self._lock:
            if self.clock() < self._until or (self._until and self._trying):
                return False
            self._trying = bool(self._until)
            return True

    def attempt(self, what: str, call: Callable[..., T], otherwise: T, *, limit: float = 0.0) -> tuple[T, str]:
        """Ask the layer something; on trouble go on with `otherwise` and say why.

        `call` gets the seconds it may take as `timeout`: what is left of the lookup's budget, or `limit`.
        """
        if os.getpid() != self._pid:
            self._reset()
        seconds = limit or self.left()
        if seconds < _LEAST:
            self.counters.add(f"skipped.{self.name}")
            return otherwise, f"{self.place}: no time is left for it"
        if not self._enter():
            self.counters.add(f"skipped.{self.name}")
            return otherwise, f"{self.place} is left alone for now, because it failed"
        start = self.clock()
        try:
            result = call(timeout=seconds)
        except TrustError as exc:
            self._over(ok=True)
            return self._refused(exc, otherwise)
        except (ConfigError, RemoteError, StoreError) as exc:
            took = self.clock() - start
            slow = took > 0.9 * seconds or (not limit and took > _SLOW)
            # what is damaged was not slow to come by: it is to be replaced, not to be left alone
            self._failed(what, exc, slow=slow and not isinstance(exc, FormatError))
            if self.strict:
                raise
            return otherwise, str(exc)
        except BaseException:
            self._over(ok=None)
            raise
        self._over(ok=True)
        return result, ""

    def _refused(self, exc: TrustError, otherwise: T) -> tuple[T, str]:
        self.counters.add(f"refused.{self.name}")
        self.warn(f"{self.place}: {exc}", f"{self.name}: {exc.finding}")
        if self.strict:
            raise exc
        return otherwise, str(exc)

    def _over(self, *, ok: bool | None) -> None:
        with self._lock:
            self._trying = False
            if ok:
                self._failures, self._pause, self._until = 0, _FIRST_PAUSE, 0.0

    def _failed(self, what: str, exc: CubinetError, *, slow: bool) -> None:
        self.counters.add(f"error.{what}")
        transient = isinstance(exc, RemoteUnavailableError)
        told = str(exc) if self.place in str(exc) else f"{self.place}: {exc}"
        with self._lock:
            was_open = bool(self._until)
            self._failures += 1
            self._trying = False
            hopeless = isinstance(exc, ConfigError) or not (transient or isinstance(exc, StoreError))
            if slow or was_open or self._failures >= _FAILURES or hopeless:
                self._until = self.clock() + self._pause
                pause, self._pause = self._pause, min(2 * self._pause, _LONGEST_PAUSE)
                text = f"{told}; going on without it for {pause:.0f} s"
            else:
                text = told
        self.warn(text, f"{self.name}: {type(exc).__name__}")  # an outage is one piece of news, not one an object

    def forget(self) -> None:
        """Try again at once."""
        self._reset()
