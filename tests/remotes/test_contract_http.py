"""The contract on a web server that serves a folder, and what is special to HTTP."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from cubinet.errors import ConfigError, RemoteDeniedError, RemoteMisconfiguredError, RemoteUnavailableError
from cubinet.protocols import Remote
from cubinet.remotes.http import HttpRemote
from cubinet.testing.remotes import RemoteContract

from ..servers.proxy import Proxy


class _Handler(SimpleHTTPRequestHandler):
    """Serves files; folders are not listed, as mirrors do not."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *args: object) -> None: ...

    def list_directory(self, path: object) -> None:
        self.send_error(404)

    def send_head(self) -> object:  # type: ignore[override]
        if Path(self.translate_path(self.path)).is_dir():
            self.send_error(404)
            return None
        return super().send_head()


@pytest.fixture
def site(tmp_path: Path) -> Iterator[str]:
    """The address of a server of `tmp_path`."""
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(_Handler, directory=str(tmp_path))) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


@pytest.fixture
def before(site: str) -> Iterator[Proxy]:
    """A proxy before that server."""
    with Proxy(site) as made:
        yield made


class TestHttpRemote(RemoteContract):
    writable = False
    conditional = False
    has_tags = False
    lists = False
    secrets = ("openword",)

    @pytest.fixture
    def remote(self, site: str, tmp_path: Path) -> Iterator[Remote]:
        self.folder = tmp_path / "mirror"
        self.folder.mkdir()
        made = HttpRemote(site.replace("://", "://reader:openword@") + "/mirror", {})
        yield made
        made.close()

    def seed(self, remote: Remote, name: str, data: bytes) -> None:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


def test_a_hit_and_a_miss_are_one_request_each_on_a_kept_connection(before: Proxy, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"x")
    remote = HttpRemote(before.endpoint)
    assert remote.get("a", timeout=5)
    assert remote.get("b", timeout=5) is None
    assert remote.stat("a", timeout=5)
    assert before.requests() == ["GET 200", "GET 404", "HEAD 200"]
    remote.close()


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (401, RemoteDeniedError), (403, RemoteDeniedError), (429, RemoteUnavailableError),
        (500, RemoteUnavailableError),
        (503, RemoteUnavailableError), (400, RemoteMisconfiguredError), (206, RemoteMisconfiguredError),
        (302, RemoteMisconfiguredError),
    ],
)  # fmt: skip
def test_each_status_has_its_error(before: Proxy, status: int, error: type[Exception]) -> None:
    before.fault("status", status=status)
    with pytest.raises(error):
        HttpRemote(before.endpoint).get("a", timeout=5)


def test_a_redirect_to_another_scheme_is_refused(tmp_path: Path) -> None:
    class Elsewhere(_Handler):
        def do_GET(self) -> None:
            self.send_response(302)
            self.send_header("Location", "/b" if self.path == "/a" else "file:///etc/passwd")
            self.send_header("Content-Length", "0")
            self.end_headers()

    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Elsewhere, directory=str(tmp_path))) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        remote = HttpRemote(f"http://127.0.0.1:{server.server_address[1]}")
        with pytest.raises(RemoteMisconfiguredError, match="another scheme, 'file'"):
            remote.get("a", timeout=5)
        remote.close()
        server.shutdown()


@pytest.mark.parametrize("kind", ["refuse", "drop", "blackhole", "close", "reset", "short", "trickle", "slow_head"])
def test_trouble_ends_in_time(before: Proxy, tmp_path: Path, kind: str) -> None:
    (tmp_path / "a").write_bytes(b"x" * 1000)
    remote = HttpRemote(before.endpoint)
    before.fault(kind)
    start = time.monotonic()
    with pytest.raises(RemoteUnavailableError):
        remote.get("a", timeout=0.5)
    assert time.monotonic() - start < 3
    before.reset()
    assert remote.get("a", timeout=5)
    remote.close()


def test_a_kept_connection_that_the_server_closed_is_made_anew(before: Proxy, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"x")
    remote = HttpRemote(before.endpoint)
    assert remote.get("a", timeout=5)
    before.hang_up()
    assert remote.get("a", timeout=5)
    remote.close()


@pytest.mark.parametrize("url", ["http://", "http://h:x/", "http://h/?a=b", "http://h/#a", "ftp://h/", "http://h/a b"])
def test_an_address_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(ConfigError):
        HttpRemote(url).prepare()


def test_an_unknown_option_is_named() -> None:
    with pytest.raises(ConfigError, match="'regoin'"):
        HttpRemote("http://h/", {"regoin": "x"}).prepare()
