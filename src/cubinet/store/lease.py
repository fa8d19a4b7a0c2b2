"""Single flight across hosts: whoever writes the lease object compiles, the others wait for the build.

Nothing is right or wrong by a lease. It is an object with its owner's mark; the owner writes a new mark now and then. A
waiter that sees the same mark for the whole lease time takes over, by its own clock: clocks of hosts are not compared.
Two that compile at once cost a compile.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from typing import TypeVar

import msgspec

from cubinet.errors import RemoteError
from cubinet.model import Action
from cubinet.protocols import Object, Remote

__all__ = ["Lease", "take"]

T = TypeVar("T")

SECONDS = 15.0
"""For how long a mark counts. The owner writes a new one in a third of it."""

_TIMEOUT = 2.0
_FIRST_WAIT, _LONGEST_WAIT = 0.1, 2.0
_LIMIT = 4096


class _Mark(msgspec.Struct):
    owner: str
    seconds: float


class Lease:
    """A lease that is held, and kept by a thread until it is released."""

    def __init__(self, remote: Remote, name: str, seconds: float) -> None:
        self.remote, self.name, self.seconds = remote, name, seconds
        self._over = threading.Event()
        threading.Thread(target=self._keep, name="cubinet-lease", daemon=True).start()

    def _keep(self) -> None:
        while not self._over.wait(self.seconds / 3):
            try:
                self.remote.put(self.name, _mark(self.seconds), timeout=_TIMEOUT)
            except RemoteError:
                continue

    def release(self) -> None:
        """Let go; somebody who waits and finds no build will compile."""
        if self._over.is_set():
            return
        self._over.set()
        try:
            self.remote.delete([self.name], timeout=_TIMEOUT)
        except RemoteError:  # it runs out
            return


def _mark(seconds: float) -> bytes:
    owner = f"{os.uname().nodename[:64]} {os.getpid()} {os.urandom(8).hex()}"
    return msgspec.json.encode(_Mark(owner, seconds), order="sorted")


def take(
    remote: Remote,
    action: Action,
    look: Callable[[], T | None],
    *,
    limit: float | None,
    timeout: float = 0.0,  # noqa: ARG001 - what a guard gives; the wait has its own limit
    seconds: float = SECONDS,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], object] = time.sleep,
) -> tuple[Lease | None, T | None]:
    """A lease, or what somebody else built meanwhile; neither after `limit` seconds, or if the remote is in trouble.

    `look` looks for the build. Raises `RemoteError`.
    """
    name = f"v1/locks/{action.hex[:2]}/{action.hex}"
    begun, wait = clock(), _FIRST_WAIT
    seen: bytes | None = None
    since = begun
    there: Object | None = None
    while True:
        # only a lease that is gone or has run out is worth a write: those are dear, and slow where many want one name
        mine, free = _mark(seconds), there is None
        ran_out = there is not None and clock() - since > _lasts(there, seconds)
        tag = there.tag if there is not None else ""
        if (free or ran_out) and remote.put(name, mine, timeout=_TIMEOUT, create=free, match=tag):
            lease = Lease(remote, name, seconds)
            try:
                found = look()  # whoever had it before may have let go since we looked
            except BaseException:
                lease.release()
                raise
            if found is None:
                return lease, None
            lease.release()
            return None, found
        if ran_out:  # somebody was quicker
            seen = None
        sleep(wait)
        wait = min(wait * 1.5, _LONGEST_WAIT)
        found = look()
        if found is not None:
            return None, found
        if limit is not None and clock() - begun > limit:
            return None, None
        there = remote.get(name, timeout=_TIMEOUT, limit=_LIMIT)
        if there is not None and there.data != seen:
            seen, since = there.data, clock()


def _lasts(there: Object, seconds: float) -> float:
    """For how long the mark counts, as its owner says, within reason."""
    try:
        told = msgspec.json.decode(there.data, type=_Mark).seconds
    except msgspec.DecodeError:
        return seconds
    return min(max(told, 0.1), 600.0)
