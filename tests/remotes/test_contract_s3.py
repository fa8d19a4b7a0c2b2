"""The contract on a real S3 server, by both clients."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from cubinet.protocols import Remote
from cubinet.remotes.obstore import ObstoreRemote
from cubinet.remotes.s3 import S3Remote
from cubinet.testing.remotes import RemoteContract

from ..servers.process import Server


class TestS3Remote(RemoteContract):
    many = 1100
    races = 1
    secrets = ("writerkey", "writersecret")

    @pytest.fixture
    def remote(self, s3_server: Server, place: str) -> Iterator[Remote]:
        made = S3Remote(f"s3://{place}", s3_server.options())
        yield made
        made.close()


class TestObstoreRemote(RemoteContract):
    many = 1100
    races = 1
    secrets = ("writerkey", "writersecret")
    fork = "refused"

    @pytest.fixture
    def remote(self, s3_server: Server, place: str) -> Iterator[Remote]:
        made = ObstoreRemote(f"s3-obstore://{place}", s3_server.options())
        yield made
        made.close()
