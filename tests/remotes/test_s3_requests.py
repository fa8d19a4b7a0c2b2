"""Which requests each call makes, counted on the wire before a real server."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from cubinet.remotes._base import BaseRemote
from cubinet.remotes.obstore import ObstoreRemote
from cubinet.remotes.s3 import S3Remote

from ..servers.process import Server
from ..servers.proxy import Proxy

KINDS = {"s3": S3Remote, "s3-obstore": ObstoreRemote}


@pytest.fixture(params=list(KINDS))
def remote(request: pytest.FixtureRequest, s3_server: Server, place: str, proxy: Proxy) -> Iterator[BaseRemote]:
    """A remote behind the proxy."""
    made = KINDS[request.param](f"{request.param}://{place}", s3_server.options(endpoint_url=proxy.endpoint))
    yield made
    made.close()


def test_prepare_asks_nothing(remote: BaseRemote, proxy: Proxy) -> None:
    remote.prepare()
    assert proxy.requests() == []


def test_a_put_is_one_request(remote: BaseRemote, proxy: Proxy) -> None:
    remote.put("v1/a", b"x" * 5000, timeout=5)
    assert proxy.requests() == ["PUT 200"]
    assert proxy.log[0].sent >= 5000


def test_a_hit_is_one_request(remote: BaseRemote, proxy: Proxy) -> None:
    remote.put("v1/a", b"x", timeout=5)
    proxy.log.clear()
    assert remote.get("v1/a", timeout=5)
    assert proxy.requests() == ["GET 200"]
    assert "range" not in proxy.log[0].conditions


def test_a_miss_is_one_request(remote: BaseRemote, proxy: Proxy) -> None:
    assert remote.get("v1/a", timeout=5) is None
    assert proxy.requests() == ["GET 404"]


def test_create_is_one_request_whether_it_wins_or_not(remote: BaseRemote, proxy: Proxy) -> None:
    assert remote.conditional is None
    assert remote.put("v1/a", b"x", timeout=5, create=True)
    assert not remote.put("v1/a", b"y", timeout=5, create=True)
    assert proxy.requests() == ["PUT 200", "PUT 412"]
    assert all(seen.conditions["if-none-match"] == "*" for seen in proxy.log)
    assert remote.conditional is True


def test_match_is_one_request_once_the_server_took_one(remote: BaseRemote, proxy: Proxy) -> None:
    remote.put("v1/a", b"x", timeout=5)
    found = remote.get("v1/a", timeout=5)
    assert found is not None
    proxy.log.clear()
    assert remote.put("v1/a", b"y", timeout=5, match=found.tag)
    assert not remote.put("v1/a", b"z", timeout=5, match=found.tag)
    assert proxy.requests() == ["PUT 200", "PUT 412"]
    assert proxy.log[0].conditions["if-match"] == found.tag


def test_stat_of_what_is_there_is_one_request(remote: BaseRemote, proxy: Proxy) -> None:
    remote.put("v1/a", b"x", timeout=5)
    proxy.log.clear()
    assert remote.stat("v1/a", timeout=5)
    assert proxy.requests() == ["HEAD 200"]


def test_get_many_is_a_request_a_name(remote: BaseRemote, proxy: Proxy) -> None:
    assert len(list(remote.get_many([f"v1/{n}" for n in range(50)], timeout=5))) == 50
    assert proxy.requests() == ["GET 404"] * 50


def test_many_deletes_are_one_request_a_thousand(remote: BaseRemote, proxy: Proxy) -> None:
    remote.delete([f"v1/{n}" for n in range(1001)], timeout=10)
    assert [line.split()[0] for line in proxy.requests()] in (["POST", "DELETE"], ["POST", "POST"])


def test_a_server_without_conditions_is_written_to_plainly(remote: BaseRemote, proxy: Proxy) -> None:
    told = b"<Error><Code>NotImplemented</Code><Message>A header implies what is not implemented</Message></Error>"
    proxy.fault("status", status=501, body=told, times=1)
    assert remote.put("v1/a", b"x", timeout=5, create=True)
    assert proxy.requests() == ["PUT 501", "PUT 200"]
    assert remote.conditional is False
    assert remote.put("v1/a", b"y", timeout=5, create=True)
    assert "if-none-match" not in proxy.log[-1].conditions


def test_a_server_that_compares_tags_without_quotes_is_understood(remote: BaseRemote, proxy: Proxy) -> None:
    remote.put("v1/a", b"x", timeout=5)
    found = remote.get("v1/a", timeout=5)
    assert found is not None
    proxy.log.clear()
    told = b"<Error><Code>PreconditionFailed</Code></Error>"
    proxy.fault("status", status=412, body=told, times=1)
    assert remote.put("v1/a", b"y", timeout=5, match=found.tag)
    assert [seen.conditions["if-match"] for seen in proxy.log] == [found.tag, found.tag.strip('"')]


def test_a_write_that_conflicts_with_another_has_lost(remote: BaseRemote, proxy: Proxy) -> None:
    proxy.fault("status", status=409, body=b"<Error><Code>ConditionalRequestConflict</Code></Error>")
    assert remote.put("v1/a", b"x", timeout=5, create=True) is False
