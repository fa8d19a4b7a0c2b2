"""Reading a remote as a whole, for those that collect or verify it. Nothing here is on the way of a lookup."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from cubinet.errors import FormatError, RemoteError
from cubinet.fingerprint import fingerprint_of
from cubinet.model import Record
from cubinet.protocols import Entry, Object, Remote
from cubinet.store.envelope import OBJECT_LIMIT, unpack
from cubinet.store.format import decode_record

__all__ = ["TIMEOUT", "decode_named", "listed", "read_all"]

TIMEOUT = 30.0
"""Seconds that each request may take."""


def listed(remote: Remote, kind: str) -> Iterator[Entry]:
    """The objects of one kind whose names Cubinet gives: 64 hex digits, below the first two of them."""
    ours = re.compile(rf"v1/{kind}/([0-9a-f]{{2}})/\1[0-9a-f]{{62}}")
    return (entry for entry in remote.scan(f"v1/{kind}/", timeout=TIMEOUT) if ours.fullmatch(entry.name))


def read_all(remote: Remote, names: Iterable[str], limit: int = OBJECT_LIMIT) -> Iterator[tuple[str, Object | None]]:
    """Many objects, in no order; those that failed are tried once more. Raises `RemoteError`."""
    again = []
    for name, found in remote.get_many(names, timeout=TIMEOUT, limit=limit):
        if isinstance(found, RemoteError):
            again.append(name)
        else:
            yield name, found
    for name in again:
        yield name, remote.get(name, timeout=TIMEOUT, limit=limit)


def decode_named(name: str, data: bytes) -> Record:
    """The record in an object of this name. Raises `FormatError`, `NewerFormatError`."""
    record = decode_record(unpack(data, blobs=False).head)
    if record.fingerprint.hex != name or fingerprint_of(record.action, record.observations) != record.fingerprint:
        raise FormatError("read record", name, "it is that of another build")
    return record
