"""Fixtures for tests that need an S3 server: import them into a conftest."""

from __future__ import annotations

import secrets
from collections.abc import Iterator

import pytest

from .process import Server
from .proxy import Proxy
from .seaweed import seaweed

__all__ = ["bucket", "place", "proxy", "s3_proxy", "s3_server", "shared_bucket"]


@pytest.fixture(scope="session")
def s3_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server for the whole session of this worker."""
    with seaweed(tmp_path_factory.mktemp("seaweed")) as server:
        yield server


@pytest.fixture
def bucket(s3_server: Server) -> str:
    """A fresh bucket."""
    return s3_server.make_bucket(f"test-{secrets.token_hex(6)}")


@pytest.fixture(scope="session")
def shared_bucket(s3_server: Server) -> str:
    """A bucket for the whole session: the first write to a bucket is slow."""
    return s3_server.make_bucket(f"shared-{secrets.token_hex(6)}")


@pytest.fixture
def place(shared_bucket: str) -> str:
    """A bucket and a prefix in it where nothing is yet, as `bucket/prefix`."""
    return f"{shared_bucket}/{secrets.token_hex(6)}/below"


@pytest.fixture(scope="session")
def s3_proxy(s3_server: Server) -> Iterator[Proxy]:
    """A proxy before the server, for the whole session."""
    with Proxy(s3_server.endpoint) as made:
        yield made


@pytest.fixture
def proxy(s3_proxy: Proxy) -> Iterator[Proxy]:
    """The proxy with an empty log and no fault, and so left behind."""
    s3_proxy.reset()
    yield s3_proxy
    s3_proxy.reset()
