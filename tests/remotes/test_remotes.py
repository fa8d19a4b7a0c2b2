"""What all remotes share: deadlines, options, names of secrets, processes; and what is special to a folder."""

from __future__ import annotations

import os
import pickle
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from cubinet._deadline import STUCK_LIMIT
from cubinet.errors import (
    ConfigError,
    RemoteDeniedError,
    RemoteError,
    RemoteMisconfiguredError,
    RemoteUnavailableError,
)
from cubinet.protocols import Remote
from cubinet.remotes._base import BaseRemote
from cubinet.remotes.file import FileRemote
from cubinet.remotes.fsspec import FsspecRemote
from cubinet.remotes.http import HttpRemote
from cubinet.remotes.obstore import ObstoreRemote
from cubinet.remotes.redact import redact
from cubinet.remotes.s3 import S3Remote
from cubinet.testing.remotes import FAULTS, FlakyRemote, in_child

from ..servers.process import Server

KEY = "AKIAIOSFODNN7EXAMPLE"


# -- addresses and messages


@pytest.mark.parametrize(
    ("text", "hidden"),
    [
        ("https://name:pass@host/a", ["name", "pass"]),
        ("see https://tok@host:9000/a/b, please", ["tok"]),
        ("GET https://h/a?X-Amz-Signature=abc123&X-Amz-Credential=QQQ failed", ["abc123", "QQQ"]),
        (f"key {KEY} unknown", [KEY]),
        ("aws_secret_access_key = wJalr/XUtn", ["wJalr", "XUtn"]),
        ("{'secret': 'hush', 'key_id': 1}", ["hush"]),
        ("Authorization: AWS4-HMAC-SHA256 Credential=QQQ/2026/x, Signature=fe5f", ["QQQ", "fe5f"]),
        ("Authorization: Bearer abcdef", ["abcdef"]),
        ("token=abcdef&password=ghi", ["abcdef", "ghi"]),
        ("https://acc.blob/x?sv=1&sig=zzz", ["zzz"]),
    ],
)
def test_secrets_are_taken_out_of_text(text: str, hidden: list[str]) -> None:
    told = redact(text)
    assert not [word for word in hidden if word in told]
    assert redact(told) == told


@pytest.mark.parametrize("text", ["s3://bucket/prefix", "what? no", "file:///a/b", "answered 403 (AccessDenied)"])
def test_text_without_secrets_stays(text: str) -> None:
    assert redact(text) == text


def test_an_error_pickles_with_its_address_redacted(tmp_path: Path) -> None:
    remote = HttpRemote("http://name:hushhush@127.0.0.1:1/x")
    with pytest.raises(RemoteUnavailableError) as caught:
        remote.get("a", timeout=2)
    again = pickle.loads(pickle.dumps(caught.value))
    assert "hushhush" not in str(again) + repr(again) + repr(remote)
    assert again.remote == remote.url


# -- options


@pytest.mark.parametrize(
    ("remote", "name"),
    [
        (S3Remote("s3://bucket/x", {"regoin": "eu"}), "regoin"),
        (S3Remote("s3://bucket/x", {"endpoint_url": "ftp://x"}), "endpoint_url"),
        (S3Remote("s3://bucket/x", {"endpoint_url": "http://a:b@host"}), "endpoint_url"),
        (S3Remote("s3://bucket/x", {"anon": "perhaps"}), "anon"),
        (S3Remote("s3://bucket/x", {"key": "a"}), "key"),
        (S3Remote("s3://bucket/x", {"read_timeout": "long"}), "read_timeout"),
        (S3Remote("s3://bucket/x", {"profile": "no-such-profile-here"}), "profile"),
        (S3Remote("s3://bucket/x", {"client_kwargs": "text"}), "client_kwargs"),
        (ObstoreRemote("s3-obstore://bucket/x", {"profile": "x"}), "profile"),
        (ObstoreRemote("s3-obstore://bucket/x", {"regoin": "x"}), "regoin"),
        (FileRemote("file:///x", {"mode": "x"}), "mode"),
        (FsspecRemote("memory://x", {"nonsense": "x"}), "nonsense"),
    ],
    ids=[str(n) for n in range(12)],
)
def test_an_option_that_cannot_be_meant_is_named(remote: Remote, name: str) -> None:
    with pytest.raises(ConfigError, match=repr(name)):
        remote.prepare()


def test_an_option_of_s3fs_passes_through(s3_server: Server, place: str) -> None:
    remote = S3Remote(f"s3://{place}", s3_server.options(version_aware="0", default_block_size="6000000"))
    remote.prepare()
    assert remote.put("a", b"x", timeout=5)
    remote.close()


def test_an_option_with_a_bad_value_does_not_show_it() -> None:
    with pytest.raises(ConfigError) as caught:
        S3Remote("s3://bucket", {"key": "hush\nhush", "secret": "x"}).prepare()
    assert "hush" not in str(caught.value)


@pytest.mark.parametrize(
    "remote",
    [
        S3Remote("s3://"), S3Remote("s3://b/../c"), S3Remote("s3://key:word@bucket/x"), S3Remote("s3://bucket/x?region=a"),
        FileRemote("file://host/x"), FileRemote("file:relative"), ObstoreRemote("s3-obstore:///x"),
        FsspecRemote("nosuchscheme://x"),
    ],
    ids=repr,
)  # fmt: skip
def test_an_address_that_cannot_be_meant_is_refused(remote: Remote) -> None:
    with pytest.raises(ConfigError):
        remote.prepare()
    with pytest.raises(ConfigError):
        remote.get("a", timeout=5)


@pytest.mark.parametrize("module", ["file", "fsspec", "http", "obstore", "s3"])
def test_importing_and_making_a_remote_loads_no_client(module: str) -> None:
    names = {"file": "FileRemote", "fsspec": "FsspecRemote", "http": "HttpRemote", "obstore": "ObstoreRemote"}
    code = (
        f"import sys; from cubinet.remotes.{module} import {names.get(module, 'S3Remote')} as R;"
        f"R('{module}://bucket/x', {{}});"
        "print(sorted({'s3fs', 'fsspec', 'asyncio', 'obstore', 'botocore', 'aiohttp', 'pytest'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout.strip() == b"[]"


# -- deadlines


class Sleeper(BaseRemote):
    """A remote whose other end never answers, until it is let go."""

    def __init__(self, url: str = "sleep://x", options: object = None) -> None:
        super().__init__(url)
        self.go = threading.Event()

    def _get(self, name: str, timeout: float, limit: int | None) -> None:
        self.go.wait(60)


def test_a_call_that_never_comes_back_ends_in_time_and_too_many_are_refused_at_once() -> None:
    remote = Sleeper()
    for _ in range(STUCK_LIMIT):
        with pytest.raises(RemoteUnavailableError, match=r"no answer within 0\.01 s"):
            remote.get("a", timeout=0.01)
    start = time.monotonic()
    with pytest.raises(RemoteUnavailableError, match=f"{STUCK_LIMIT} earlier calls"):
        remote.get("a", timeout=30)
    assert time.monotonic() - start < 10
    assert [type(answer) for _, answer in remote.get_many(["a", "b"], timeout=30)] == [RemoteUnavailableError] * 2
    remote.go.set()
    time.sleep(0.2)
    assert remote.get("a", timeout=5) is None


def test_many_calls_that_never_come_back_end_together() -> None:
    remote = Sleeper()
    start = time.monotonic()
    answers = list(remote.get_many((f"n{n}" for n in range(100)), timeout=0.3))
    assert len(answers) == 100
    assert time.monotonic() - start < 10
    assert all(isinstance(answer, RemoteUnavailableError) for _, answer in answers)
    remote.go.set()


def test_a_forked_child_does_not_inherit_stuck_calls() -> None:
    remote = Sleeper()
    for _ in range(STUCK_LIMIT):
        with pytest.raises(RemoteUnavailableError):
            remote.get("a", timeout=0.01)

    def look() -> str:
        remote.go.set()
        return repr(remote.get("a", timeout=5))

    assert in_child(look) == "None"
    remote.go.set()


# -- processes


def _read(remote: Remote) -> bytes:
    found = remote.get("a", timeout=10)
    return found.data if found else b""


@pytest.mark.parametrize("kind", [S3Remote, ObstoreRemote])
def test_a_remote_goes_to_a_new_process(kind: type[BaseRemote], s3_server: Server, place: str) -> None:
    remote = kind(f"s3://{place}", s3_server.options())
    remote.put("a", b"x", timeout=5)
    code = "import pickle, sys; print(pickle.load(sys.stdin.buffer).get('a', timeout=10).data)"
    child = subprocess.run(
        [sys.executable, "-c", code], input=pickle.dumps(remote), capture_output=True, timeout=60, check=False
    )
    assert child.stdout.strip() == b"b'x'", child.stderr
    assert child.stderr == b""
    remote.close()


def test_a_fork_amid_calls_of_other_threads_works(s3_server: Server, place: str) -> None:
    remote = S3Remote(f"s3://{place}", s3_server.options())
    remote.put("a", b"x", timeout=5)
    stop, failed = threading.Event(), []

    def busy() -> None:
        while not stop.is_set():
            if _read(remote) != b"x":
                failed.append(1)

    threads = [threading.Thread(target=busy) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        assert [in_child(lambda: _read(remote).decode()) for _ in range(4)] == ["x"] * 4
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert not failed
    remote.close()


# -- a folder


def test_a_folder_that_is_not_there_is_not_a_miss(tmp_path: Path) -> None:
    remote = FileRemote((tmp_path / "none").as_uri())
    for call in (
        lambda: remote.get("a", timeout=5),
        lambda: remote.stat("a", timeout=5),
        lambda: remote.put("a", b"x", timeout=5),
        lambda: list(remote.scan("", timeout=5)),
        lambda: remote.delete(["a"], timeout=5),
    ):
        with pytest.raises(RemoteMisconfiguredError, match="no such folder; make or mount it"):
            call()
    assert not (tmp_path / "none").exists()


def test_a_pipe_or_a_folder_in_the_place_of_an_object_is_none(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    remote = FileRemote(tmp_path.as_uri())
    assert remote.get("pipe", timeout=5) is None
    assert remote.get("folder", timeout=5) is None
    assert list(remote.scan("", timeout=5)) == []
    remote.delete(["folder"], timeout=5)
    with pytest.raises(RemoteMisconfiguredError, match="share a name"):
        remote.put("folder", b"x", timeout=5)


def test_a_folder_leaves_nothing_but_objects_and_new_folders_take_its_mode(tmp_path: Path) -> None:
    tmp_path.chmod(0o2775)
    remote = FileRemote(tmp_path.as_uri())
    for data in (b"1", b"2"):
        remote.put("a/b/c", data, timeout=5)
        remote.put("a/b/d", data, timeout=5, create=True)
    assert sorted(p.name for p in tmp_path.rglob("*") if p.is_file()) == [".lock", "c", "d"]
    assert stat.S_IMODE((tmp_path / "a/b").stat().st_mode) == 0o2775


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_cannot_be_written_is_denied(tmp_path: Path) -> None:
    tmp_path.chmod(0o555)
    try:
        with pytest.raises(RemoteDeniedError):
            FileRemote(tmp_path.as_uri()).put("a", b"x", timeout=5)
    finally:
        tmp_path.chmod(0o755)


def test_readers_never_see_half_an_object(tmp_path: Path) -> None:
    remote = FileRemote(tmp_path.as_uri())
    bodies = [bytes([n]) * 300_000 for n in range(2)]
    remote.put("a", bodies[0], timeout=5)
    stop = threading.Event()

    def write() -> None:
        while not stop.is_set():
            for body in bodies:
                remote.put("a", body, timeout=5)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        for _ in range(200):
            found = remote.get("a", timeout=5)
            assert found is not None
            assert found.data in bodies
    finally:
        stop.set()
        thread.join()


# -- the remote that fails


def test_each_fault_comes_at_its_call(tmp_path: Path) -> None:
    remote = FlakyRemote(FileRemote(tmp_path.as_uri()))
    remote.put("a", b"1234", timeout=5)
    for fault in FAULTS:
        remote.faults = {("get", remote.calls["get"] + 2): fault}
        assert remote.get("a", timeout=5)
        with pytest.raises(RemoteError):
            remote.get("a", timeout=5)
    remote.faults = {("get", 0): "truncated"}
    found = remote.get("a", timeout=5)
    assert found is not None
    assert found.data == b"12"
    remote.faults = {("get", 0): "wrong"}
    found = remote.get("a", timeout=5)
    assert found is not None
    assert found.data not in (b"1234", b"")
    remote.faults = {("put", 0): "lost"}
    with pytest.raises(RemoteUnavailableError):
        remote.put("b", b"x", timeout=5)
    remote.faults = {}
    assert remote.get("b", timeout=5)
    assert remote.calls == {"put": 2, "get": 2 * len(FAULTS) + 3}
