"""Collection and verification on a real S3 server."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from cubinet.errors import LockTimeoutError
from cubinet.protocols import Entry, Remote
from cubinet.remotes.s3 import S3Remote
from cubinet.store.remote import RemoteLayer
from cubinet.store.remote_collect import collect
from cubinet.store.remote_verify import verify_remote
from cubinet.store.usage import write_note
from cubinet.testing.samples import Build, build

from ..servers.process import Server

DAY = 86400.0


def hexes(*builds: Build) -> set[str]:
    return {digest.hex for one in builds for digest in one.blobs}


class Later:
    """A remote as its collector will see it in two days: what it writes itself is of then, the rest is of now."""

    def __init__(self, remote: Remote, later: float) -> None:
        self._remote, self._later = remote, later

    def __getattr__(self, name: str) -> Any:
        return getattr(self._remote, name)

    def stat(self, name: str, *, timeout: float) -> Entry | None:
        found = self._remote.stat(name, timeout=timeout)
        own = self._later if found and name.startswith("v1/collect/") else 0.0
        return found and Entry(found.name, found.size, found.modified + own)


def test_on_a_real_server_what_is_used_stays_and_the_rest_goes(s3_server: Server, place: str) -> None:
    remote = S3Remote(f"s3://{place}", s3_server.options())
    layer = RemoteLayer(remote, inline=-1)
    builds = [build(f"k{i}") for i in range(8)]
    for one in builds:
        layer.publish(one.record, one.blobs)
    used = {one.fingerprint.hex for one in builds[:3]}
    assert write_note(remote, "0123456789abcdef", used, timeout=10)
    before = sorted((e.name, e.modified) for e in remote.scan("v1/", timeout=10))
    would = collect(Later(remote, 1.5 * DAY), unused_for=DAY, dry_run=True, now=lambda: before[0][1] + 1.5 * DAY)
    assert sorted((e.name, e.modified) for e in remote.scan("v1/", timeout=10)) == before
    first = collect(Later(remote, 1.5 * DAY), unused_for=DAY)
    assert first.deleted == would.deleted
    assert (first.deleted["records"], first.kept["used lately"]) == (5, 3)
    assert first.waiting == len(hexes(*builds) - hexes(*builds[:3]))
    second = collect(Later(remote, 3 * DAY), unused_for=30 * DAY)
    assert second.deleted["blobs"] == first.waiting
    layer.refresh()
    assert [layer.fetch(one.fingerprint, timeout=10) is not None for one in builds] == [True] * 3 + [False] * 5
    found = verify_remote(layer, lambda _done, _all: None)
    assert (found.clean, found.records, found.spare) == (True, 3, 0)
    assert [e.name for e in remote.scan("v1/collect/", timeout=10)] == []
    remote.close()


def test_on_a_real_server_two_collectors_at_once_are_one(s3_server: Server, place: str) -> None:
    remote = S3Remote(f"s3://{place}", s3_server.options())
    made = build()
    RemoteLayer(remote, inline=-1).publish(made.record, made.blobs)
    refused: list[Exception] = []

    class Meanwhile(Later):
        def scan(self, prefix: str, *, timeout: float) -> Iterator[Entry]:
            if prefix == "v1/records/":
                with pytest.raises(LockTimeoutError) as caught:
                    collect(remote, unused_for=DAY)
                refused.append(caught.value)
            return self._remote.scan(prefix, timeout=timeout)

    assert collect(Meanwhile(remote, 0.0), unused_for=DAY).kept["written lately"] == 1
    assert len(refused) == 1
    remote.close()
