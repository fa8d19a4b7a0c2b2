"""Compile errors that are certain to come again, remembered so that N processes do not each find out.

For the life of a process and for a minute on the local disk, and only while everything the compiler had
looked at is still the same: correcting a header lifts the error at once.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from cubinet.errors import CompileError, FormatError
from cubinet.fingerprint import observations_bytes
from cubinet.model import Action, Observation
from cubinet.observations import Contents, Sheet, read_observations
from cubinet.protocols import Request
from cubinet.store.format import FORMAT, Failure
from cubinet.store.layered import Layered

__all__ = ["DISK_SECONDS", "Failures"]

DISK_SECONDS = 60.0
_LIMIT = 1024


class Failures:
    """The memory of compile errors."""

    def __init__(self, layers: Layered, contents: Contents) -> None:
        self.layers, self.contents = layers, contents
        self._known: dict[Action, Failure] = {}

    def remember(self, action: Action, request: Request, error: CompileError) -> None:
        """Note an error that the same input is certain to give again."""
        observed = [o for o in error.observations if isinstance(o, Observation)]
        failure = Failure(
            FORMAT,
            action.hex,
            str(error.subject),
            error.finding,
            error.remedy,
            error.log,
            error.command,
            error.toolchain,
            os.fsdecode(observations_bytes(observed)).encode("utf-8", "replace").decode(),
            self.layers.local.now() + DISK_SECONDS,
        )
        if self._holds(failure, request.places):  # an input may have changed since
            if len(self._known) >= _LIMIT:
                self._known.clear()
            self._known[action] = failure
            self.layers.remember_failure(failure)

    def check(self, action: Action, request: Request) -> None:
        """Raise the remembered error of an action, if it still stands."""
        failure = self._known.get(action)
        if failure is None:
            failure, _ = self.layers.attempt("read", lambda: self.layers.local.failure(action), None)
        if failure is None:
            return
        if not self._holds(failure, request.places):
            self._known.pop(action, None)
            self.layers.local.forget_failure(action)
            return
        self.layers.counters.add("failed.remembered")
        raise CompileError(
            failure.subject,
            failure.finding,
            failure.remedy,
            failure.log,
            failure.command,
            failure.toolchain,
            True,  # noqa: FBT003
        )

    def _holds(self, failure: Failure, places: Mapping[str, str]) -> bool:
        try:
            sheet = Sheet.of(read_observations(failure.observations.encode()), places)
        except FormatError:
            return False
        return next(sheet.differences(self.contents), None) is None
