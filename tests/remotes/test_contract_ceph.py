"""The contract on Ceph, whose gateway has habits of its own: `make test-ceph`."""

from __future__ import annotations

import secrets
from collections.abc import Iterator

import pytest

from cubinet.protocols import Remote
from cubinet.remotes.obstore import ObstoreRemote
from cubinet.remotes.s3 import S3Remote
from cubinet.testing.remotes import RemoteContract

from ..servers.ceph import ceph
from ..servers.process import Server

pytestmark = pytest.mark.ceph


@pytest.fixture(scope="module")
def ceph_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with one bucket, `kernels`."""
    with ceph(tmp_path_factory.mktemp("ceph")) as server:
        server.make_bucket("kernels")
        yield server


class TestS3RemoteOnCeph(RemoteContract):
    many = 1100

    @pytest.fixture
    def remote(self, ceph_server: Server) -> Iterator[Remote]:
        made = S3Remote(f"s3://kernels/{secrets.token_hex(6)}", ceph_server.options())
        yield made
        made.close()


class TestObstoreRemoteOnCeph(RemoteContract):
    many = 1100
    fork = "refused"

    @pytest.fixture
    def remote(self, ceph_server: Server) -> Iterator[Remote]:
        made = ObstoreRemote(f"s3-obstore://kernels/{secrets.token_hex(6)}", ceph_server.options())
        yield made
        made.close()
