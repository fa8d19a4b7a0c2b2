"""The same on Ceph's RADOS Gateway, a real distributed store: `make test-ceph`.

Every test of the modules below runs again, with another server behind the same fixtures.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.servers.ceph import ceph
from tests.servers.fixtures import place, proxy, s3_proxy, shared_bucket
from tests.servers.process import Server

from .test_s3_contract import TestObstore, TestS3, one_client, plain
from .test_s3_kill import test_processes_killed_while_they_hammer_a_bucket_leave_it_whole
from .test_s3_storm import (
    test_hosts_with_leases_compile_each_variant_once_in_all,
    test_hosts_without_leases_compile_each_variant_at_most_once_each,
    test_one_host_compiles_and_sends_each_variant_once,
)
from .test_s3_two_hosts import server, test_a_host_without_a_compiler_gets_what_another_one_compiled

__all__ = [
    "TestObstore",
    "TestS3",
    "one_client",
    "place",
    "plain",
    "proxy",
    "s3_proxy",
    "server",
    "shared_bucket",
    "test_a_host_without_a_compiler_gets_what_another_one_compiled",
    "test_hosts_with_leases_compile_each_variant_once_in_all",
    "test_hosts_without_leases_compile_each_variant_at_most_once_each",
    "test_one_host_compiles_and_sends_each_variant_once",
    "test_processes_killed_while_they_hammer_a_bucket_leave_it_whole",
]

pytestmark = pytest.mark.ceph


@pytest.fixture(scope="session")
def s3_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A cluster for all of them."""
    with ceph(tmp_path_factory.mktemp("ceph")) as server:
        yield server
