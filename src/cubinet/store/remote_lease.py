"""The object that says that a collector is at work on a remote, by the remote's clock."""

from __future__ import annotations

import os
from collections.abc import Callable

from cubinet.errors import LockTimeoutError, RemoteError, RemoteMisconfiguredError
from cubinet.protocols import Object, Remote
from cubinet.store.remote_read import TIMEOUT

__all__ = ["CLOCK", "LEASE_SECONDS", "CollectorLease"]

LEASE_SECONDS = 120.0
"""For how long a collector counts as at work after it last said so."""

CLOCK = "v1/collect/clock-"
"""How the names of objects begin that are written to learn what time it is there."""

_LEASE = "v1/collect/lease"


class CollectorLease:
    """The object that says a collector is at work. Raises `LockTimeoutError` if it is not ours, or no more."""

    def __init__(self, remote: Remote, clock: Callable[[], float]) -> None:
        self.remote, self.clock = remote, clock
        probe = f"{CLOCK}{os.urandom(8).hex()}"
        try:
            remote.put(probe, b"now", timeout=TIMEOUT)
            told = remote.stat(probe, timeout=TIMEOUT)
        finally:
            remote.delete([probe], timeout=TIMEOUT)
        if told is None or told.modified <= 0:
            raise RemoteMisconfiguredError("collect", remote.url, "it does not tell when an object was written")
        self.time = told.modified
        there = remote.get(_LEASE, timeout=TIMEOUT, limit=4096)
        if there is not None and there.modified + LEASE_SECONDS > self.time:
            raise self._taken("another collector is at work", "let it finish")
        self._write(there)

    def _write(self, there: Object | None) -> None:
        self.mark = f"{os.uname().nodename[:64]} {os.getpid()} {os.urandom(8).hex()}".encode()
        self._renewed = self.clock()
        tag = there.tag if there is not None else ""
        if not self.remote.put(_LEASE, self.mark, timeout=TIMEOUT, create=there is None, match=tag):
            raise self._taken("another collector came first", "let it finish")

    def _taken(self, finding: str, remedy: str) -> LockTimeoutError:
        return LockTimeoutError("collect", self.remote.url, finding, remedy)

    def check(self) -> None:
        """Say that we are still at work, if it is time to."""
        if self.clock() - self._renewed < LEASE_SECONDS / 4:
            return
        there = self.remote.get(_LEASE, timeout=TIMEOUT, limit=4096)
        if there is None or there.data != self.mark:
            raise self._taken("another collector took over", "run it again when that one has finished")
        self._write(there)

    def release(self) -> None:
        """Let go, if it is still ours."""
        try:
            there = self.remote.get(_LEASE, timeout=TIMEOUT, limit=4096)
            if there is not None and there.data == self.mark:
                self.remote.delete([_LEASE], timeout=TIMEOUT)
        except RemoteError:  # it runs out
            return
