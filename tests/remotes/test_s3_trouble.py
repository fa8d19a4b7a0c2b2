"""What goes wrong with S3 and what it is called: real refusals, told answers, and a proxy that makes trouble."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest

from cubinet.errors import (
    CubinetError,
    RemoteDeniedError,
    RemoteError,
    RemoteMisconfiguredError,
    RemoteUnavailableError,
)
from cubinet.remotes._base import BaseRemote
from cubinet.remotes.obstore import ObstoreRemote
from cubinet.remotes.s3 import S3Remote

from ..servers.process import Server, free_ports
from ..servers.proxy import Proxy

KINDS = {"s3": S3Remote, "s3-obstore": ObstoreRemote}


@pytest.fixture(params=list(KINDS))
def scheme(request: pytest.FixtureRequest) -> str:
    """Each client."""
    return str(request.param)


@pytest.fixture
def remote(scheme: str, s3_server: Server, place: str, proxy: Proxy) -> Iterator[BaseRemote]:
    """A remote behind the proxy, prepared."""
    made = KINDS[scheme](f"{scheme}://{place}", s3_server.options(endpoint_url=proxy.endpoint))
    made.prepare()
    yield made
    made.close()


def calls(remote: BaseRemote) -> Iterator[tuple[str, object]]:
    """Every kind of call, as what it raised."""
    every: dict[str, Callable[[], object]] = {
        "get": lambda: remote.get("a", timeout=5),
        "put": lambda: remote.put("a", b"x", timeout=5),
        "create": lambda: remote.put("a", b"x", timeout=5, create=True),
        "match": lambda: remote.put("a", b"x", timeout=5, match='"d41d8cd98f00b204e9800998ecf8427e"'),
        "stat": lambda: remote.stat("a", timeout=5),
        "scan": lambda: list(remote.scan("", timeout=5)),
        "delete one": lambda: remote.delete(["a"], timeout=5),
        "delete two": lambda: remote.delete(["a", "b"], timeout=5),
        "get_many": lambda: dict(remote.get_many(["a"], timeout=5))["a"],
        "put_many": lambda: dict(remote.put_many([("a", b"x")], timeout=5))["a"],
    }
    for name, call in every.items():
        try:
            yield name, call()
        except CubinetError as exc:
            yield name, exc


def test_a_missing_bucket_is_not_a_miss(scheme: str, s3_server: Server) -> None:
    remote = KINDS[scheme](f"{scheme}://no-such-bucket-here/x", s3_server.options())
    for name, found in calls(remote):
        if name == "match" and found is False:
            continue  # true as well: this server looks at the condition first
        assert isinstance(found, RemoteMisconfiguredError), (name, found)
        assert "no such bucket" in str(found)
        assert "no-such-bucket-here" in str(found)
    remote.close()


def test_a_wrong_secret_is_denied(scheme: str, s3_server: Server, place: str) -> None:
    remote = KINDS[scheme](f"{scheme}://{place}", s3_server.options(secret="wrongsecret"))
    for name, found in calls(remote):
        assert isinstance(found, RemoteDeniedError), (name, found)
        assert "wrongsecret" not in str(found) + repr(found) + repr(found.__cause__)
    remote.close()


def test_an_unknown_key_is_denied(scheme: str, s3_server: Server, place: str) -> None:
    remote = KINDS[scheme](f"{scheme}://{place}", s3_server.options(key="nobodyknows"))
    with pytest.raises(RemoteDeniedError, match="does not know the key"):
        remote.get("a", timeout=5)
    remote.close()


def test_a_reader_may_read_and_not_write(scheme: str, s3_server: Server, place: str) -> None:
    writer = KINDS[scheme](f"{scheme}://{place}", s3_server.options())
    writer.put("a", b"x", timeout=5)
    keys = {"key": s3_server.reader_key, "secret": s3_server.reader_secret}
    reader = KINDS[scheme](f"{scheme}://{place}", s3_server.options(**keys))
    assert reader.get("a", timeout=5)
    assert reader.get("b", timeout=5) is None
    for call in (lambda: reader.put("b", b"x", timeout=5), lambda: reader.delete(["a"], timeout=5)):
        with pytest.raises(RemoteDeniedError, match="s3:PutObject"):
            call()
    assert reader.get("a", timeout=5)
    reader.close()
    writer.close()


def _xml(code: str, more: str = "") -> bytes:
    return f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>said</Message>{more}</Error>".encode()


ANSWERS = {
    "another region": (400, _xml("AuthorizationHeaderMalformed", "<Region>eu-west-3</Region>"),
                       RemoteMisconfiguredError, "eu-west-3"),
    "moved": (301, _xml("PermanentRedirect", "<Endpoint>x</Endpoint>"), RemoteMisconfiguredError, "region"),
    "skewed clock": (403, _xml("RequestTimeTooSkewed"), RemoteDeniedError, "the clock of this machine"),
    "expired": (400, _xml("ExpiredToken"), RemoteDeniedError, "expired"),
    "denied": (403, _xml("AccessDenied"), RemoteDeniedError, "s3:GetObject"),
    "a proxy's refusal": (403, b"<html>no</html>", RemoteDeniedError, "403"),
    "slow down": (503, _xml("SlowDown"), RemoteUnavailableError, "SlowDown"),
    "throttled": (429, b"", RemoteUnavailableError, "429"),
    "broken": (500, _xml("InternalError"), RemoteUnavailableError, "InternalError"),
    "bad gateway": (502, b"<html>bad gateway</html>", RemoteUnavailableError, "502"),
    "no object store": (405, b"", RemoteMisconfiguredError, "405"),
}  # fmt: skip


@pytest.mark.parametrize("case", list(ANSWERS))
def test_each_answer_has_its_error(remote: BaseRemote, proxy: Proxy, case: str) -> None:
    status, body, error, text = ANSWERS[case]
    proxy.fault("status", status=status, body=body)
    for call in (lambda: remote.get("a", timeout=5), lambda: remote.put("a", b"x", timeout=5)):
        with pytest.raises(error, match=text):
            call()
    assert len(proxy.log) <= 6  # nothing retries much


def test_a_404_that_is_not_from_an_object_store_is_no_miss(remote: BaseRemote, proxy: Proxy) -> None:
    proxy.fault("status", status=404, body=b"<html>not found</html>")
    with pytest.raises(RemoteMisconfiguredError):
        remote.get("a", timeout=5)


def test_credentials_that_expired_are_read_anew_once(s3_server: Server, place: str, proxy: Proxy) -> None:
    remote = S3Remote(f"s3://{place}", s3_server.options(endpoint_url=proxy.endpoint))
    remote.put("a", b"x", timeout=5)
    before = remote._made
    proxy.fault("status", status=400, body=_xml("ExpiredToken"), times=1)
    assert remote.get("a", timeout=5)
    assert remote._made is not before
    remote.close()


@pytest.mark.parametrize(
    "kind", ["refuse", "drop", "blackhole", "close", "reset", "short", "trickle", "slow_head", "delay"]
)
def test_trouble_ends_in_time(remote: BaseRemote, proxy: Proxy, kind: str) -> None:
    remote.put("a", b"x" * 1000, timeout=5)
    proxy.fault(kind, seconds=30)
    start = time.monotonic()
    with pytest.raises(RemoteUnavailableError):
        remote.get("a", timeout=0.5)
    assert time.monotonic() - start < 3  # 0.5 s and a busy machine
    start = time.monotonic()
    answers = list(remote.get_many((f"n{n}" for n in range(20)), timeout=0.5))
    assert time.monotonic() - start < 5
    assert all(isinstance(answer, RemoteUnavailableError) for _, answer in answers) or kind in ("short", "trickle")
    proxy.reset()
    time.sleep(0.2)
    found = remote.get("a", timeout=5)
    assert found is not None
    assert found.data == b"x" * 1000


@pytest.mark.parametrize(("kind", "what"), [("empty", b""), ("html", b"<!DOCTYPE"), ("wrong", b"\x87")])
def test_what_comes_as_an_object_is_handed_on(remote: BaseRemote, proxy: Proxy, kind: str, what: bytes) -> None:
    remote.put("a", b"x" * 1000, timeout=5)
    proxy.fault(kind)
    try:
        found = remote.get("a", timeout=5)
    except RemoteError:
        assert isinstance(remote, ObstoreRemote)  # it wants headers that a real answer has
        return
    assert found is not None
    assert found.data.startswith(what)


def test_a_host_that_does_not_resolve_is_unavailable(scheme: str, s3_server: Server, place: str) -> None:
    remote = KINDS[scheme](f"{scheme}://{place}", s3_server.options(endpoint_url="http://no-such-host.invalid:1"))
    remote.prepare()
    start = time.monotonic()
    with pytest.raises(RemoteUnavailableError):
        remote.get("a", timeout=1)
    assert time.monotonic() - start < 4
    remote.close()


def test_without_credentials_it_is_denied(monkeypatch: pytest.MonkeyPatch, place: str, tmp_path: object) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", f"{tmp_path}/none")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", f"{tmp_path}/none")
    port = free_ports(1)[0]
    monkeypatch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", f"http://127.0.0.1:{port}")
    remote = S3Remote(f"s3://{place}", {"endpoint_url": f"http://127.0.0.1:{port}"})
    with pytest.raises(RemoteDeniedError, match="no credentials"):
        remote.get("a", timeout=5)
    remote.close()


def test_a_metadata_service_that_never_answers_costs_no_more_than_the_time_limit(
    monkeypatch: pytest.MonkeyPatch, place: str, proxy: Proxy, tmp_path: object
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", f"{tmp_path}/none")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", f"{tmp_path}/none")
    monkeypatch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", proxy.endpoint)
    proxy.fault("blackhole")
    remote = S3Remote(f"s3://{place}", {"endpoint_url": proxy.endpoint})
    remote.prepare()
    start = time.monotonic()
    with pytest.raises(RemoteError):
        remote.get("a", timeout=2)
    assert time.monotonic() - start < 4
    remote.close()
