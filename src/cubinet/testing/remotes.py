"""What every remote must do, as a pytest class, and a remote that fails when it is told to. Needs pytest alone."""

from __future__ import annotations

import os
import pickle
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import ClassVar

import pytest

from cubinet.errors import (
    ConfigError,
    ReadOnlyError,
    RemoteDeniedError,
    RemoteError,
    RemoteMisconfiguredError,
    RemoteUnavailableError,
)
from cubinet.protocols import Entry, Object, Remote

__all__ = ["FAULTS", "FlakyRemote", "RemoteContract"]

T = 10.0
"""Seconds that a call may take in these tests: generous, since machines are shared."""

BAD_NAMES = ("", "/", "a//b", "/a", "a/", "../a", "a/../b", "a/./b", ".a", "a\0b", "a\nb", "a b", "a?b", "a#b", "a%2fb",
             "ä", "x" * 256, "/".join(["abc"] * 300))  # fmt: skip


class RemoteContract:
    """For `cubinet.protocols.Remote`. The remote that the fixture gives is empty at first.

    Attributes:
        writable: whether it takes writes; if not, `seed` is how objects get there.
        conditional: whether `create` and `match` are kept to.
        has_tags: whether what it reads has a tag.
        has_times: whether it tells when an object was written.
        lists: whether it can `scan`.
        many: how many objects the test of long listings writes; 0 where that takes too long.
        races: how often eight threads race to create.
        fork: `works` or `refused`, for a child of a process that has used the remote.
        secrets: texts that must not show.
    """

    writable: ClassVar[bool] = True
    conditional: ClassVar[bool] = True
    has_tags: ClassVar[bool] = True
    has_times: ClassVar[bool] = True
    lists: ClassVar[bool] = True
    many: ClassVar[int] = 0
    races: ClassVar[int] = 3
    fork: ClassVar[str] = "works"
    secrets: ClassVar[Sequence[str]] = ()

    @pytest.fixture
    def remote(self) -> Remote:
        """An empty remote."""
        raise NotImplementedError

    def seed(self, remote: Remote, name: str, data: bytes) -> None:
        """Put an object there: by the remote itself, or past it."""
        assert remote.put(name, data, timeout=T)

    # -- reading

    @pytest.mark.parametrize("size", [0, 1, 4096, 1 << 20], ids=["0 bytes", "1 byte", "4 KiB", "1 MiB"])
    def test_what_was_put_comes_back(self, remote: Remote, size: int) -> None:
        data = os.urandom(size)
        self.seed(remote, "v1/blobs/ab/ab12", data)
        found = remote.get("v1/blobs/ab/ab12", timeout=T)
        assert found is not None
        assert found.data == data
        assert bool(found.tag) is self.has_tags
        if self.has_times:
            assert abs(found.modified - time.time()) < 3600

    def test_what_is_not_there_is_none(self, remote: Remote) -> None:
        self.seed(remote, "v1/records/ab/ab12", b"x")
        for name in ("v1/records/ab/ab13", "v1/records/ab", "v1", "v1/records/ab/ab12/more", "nothing"):
            assert remote.get(name, timeout=T) is None
            assert remote.stat(name, timeout=T) is None

    def test_names_with_many_segments(self, remote: Remote) -> None:
        name = "/".join(f"s{n}" for n in range(20))
        self.seed(remote, name, b"deep")
        found = remote.get(name, timeout=T)
        assert found is not None
        assert found.data == b"deep"

    @pytest.mark.parametrize("name", BAD_NAMES, ids=lambda name: repr(name[:12]))
    def test_a_name_that_is_not_plain_is_refused(self, remote: Remote, name: str) -> None:
        with pytest.raises(ConfigError):
            remote.get(name, timeout=T)

    def test_an_object_over_the_limit_is_refused(self, remote: Remote) -> None:
        self.seed(remote, "big", b"x" * 1000)
        found = remote.get("big", timeout=T, limit=1000)
        assert found is not None
        assert len(found.data) == 1000
        with pytest.raises(RemoteMisconfiguredError):
            remote.get("big", timeout=T, limit=999)
        assert remote.get("none", timeout=T, limit=999) is None

    def test_stat_tells_the_size(self, remote: Remote) -> None:
        self.seed(remote, "v1/one", b"x" * 77)
        entry = remote.stat("v1/one", timeout=T)
        assert entry is not None
        assert (entry.name, entry.size) == ("v1/one", 77)
        if self.has_times:
            assert abs(entry.modified - time.time()) < 3600

    def test_get_many_gives_each_name_its_answer(self, remote: Remote) -> None:
        for n in range(0, 40, 2):
            self.seed(remote, f"v1/many/{n}", b"%d" % n)
        found = dict(remote.get_many((f"v1/many/{n}" for n in range(40)), timeout=T))
        assert len(found) == 40
        for n in range(40):
            one = found[f"v1/many/{n}"]
            assert (one.data if isinstance(one, Object) else one) == (None if n % 2 else b"%d" % n)

    def test_get_many_gives_an_error_to_its_name(self, remote: Remote) -> None:
        self.seed(remote, "small", b"x")
        self.seed(remote, "large", b"x" * 100)
        found = dict(remote.get_many(["small", "large", "none"], timeout=T, limit=10))
        assert isinstance(found["small"], Object)
        assert isinstance(found["large"], RemoteMisconfiguredError)
        assert found["none"] is None

    def test_get_many_reads_its_names_as_it_goes(self, remote: Remote) -> None:
        asked: list[int] = []

        def names() -> Iterator[str]:
            for n in range(1000):
                asked.append(n)
                yield f"none/{n}"

        answers = remote.get_many(names(), timeout=T)
        next(answers)
        assert len(asked) < 200
        answers.close()  # type: ignore[attr-defined]

    # -- writing

    def test_what_takes_no_writes_says_so(self, remote: Remote) -> None:
        assert remote.read_only is not self.writable
        if not self.writable:
            with pytest.raises(ReadOnlyError):
                remote.put("a", b"x", timeout=T)
            with pytest.raises(ReadOnlyError):
                list(remote.put_many([("a", b"x")], timeout=T))
            with pytest.raises(ReadOnlyError):
                remote.delete(["a"], timeout=T)

    def test_a_second_put_replaces_the_first(self, remote: Remote) -> None:
        self.seed(remote, "v1/one", b"first")
        self.seed(remote, "v1/one", b"second, longer")
        self.seed(remote, "v1/one", b"third")
        found = remote.get("v1/one", timeout=T)
        assert found is not None
        assert found.data == b"third"

    def test_create_keeps_the_first(self, remote: Remote) -> None:
        if not self.writable:
            return
        assert remote.put("v1/new", b"first", timeout=T, create=True)
        assert remote.put("v1/new", b"second", timeout=T, create=True) is not self.conditional
        found = remote.get("v1/new", timeout=T)
        assert found is not None
        assert found.data == (b"first" if self.conditional else b"second")
        assert remote.conditional is self.conditional

    def test_match_replaces_what_was_read_and_nothing_else(self, remote: Remote) -> None:
        if not self.writable or not self.has_tags:
            return
        self.seed(remote, "locks/a", b"one")
        first = remote.get("locks/a", timeout=T)
        assert first is not None
        assert remote.put("locks/a", b"two", timeout=T, match=first.tag)
        assert remote.put("locks/a", b"three", timeout=T, match=first.tag) is not self.conditional
        assert remote.put("locks/none", b"x", timeout=T, match=first.tag) is not self.conditional
        if self.conditional:
            second = remote.get("locks/a", timeout=T)
            assert second is not None
            assert second.data == b"two"
            assert remote.put("locks/a", b"four", timeout=T, match=second.tag)

    def test_of_eight_threads_that_create_one_wins(self, remote: Remote) -> None:
        if not self.writable:
            return
        for n in range(self.races):
            with ThreadPoolExecutor(8) as pool:
                name = f"v1/race/{n}"
                won = list(pool.map(lambda k, n=name: remote.put(n, b"%d" % k, timeout=T, create=True), range(8)))
            found = remote.get(name, timeout=T)
            assert found is not None
            if self.conditional:
                assert won.count(True) == 1
                assert found.data == b"%d" % won.index(True)
            else:
                assert all(won)

    def test_threads_share_a_remote(self, remote: Remote) -> None:
        for n in range(8):
            self.seed(remote, f"t/{n}", bytes([n]) * 3000)

        def read(k: int) -> bool:
            found = remote.get(f"t/{k % 8}", timeout=T)
            return found is not None and found.data == bytes([k % 8]) * 3000

        with ThreadPoolExecutor(16) as pool:
            assert all(pool.map(read, range(64)))

    def test_put_many_writes_each(self, remote: Remote) -> None:
        if not self.writable:
            return
        assert remote.put("v1/m/3", b"old", timeout=T)
        answers = dict(remote.put_many(((f"v1/m/{n}", b"%d" % n) for n in range(40)), timeout=T, create=True))
        assert answers == {f"v1/m/{n}": n != 3 or not self.conditional for n in range(40)}
        found = remote.get("v1/m/39", timeout=T)
        assert found is not None
        assert found.data == b"39"

    def test_delete_removes_and_does_not_mind_what_is_gone(self, remote: Remote) -> None:
        if not self.writable:
            return
        for n in range(3):
            self.seed(remote, f"v1/d/{n}", b"x")
        remote.delete([], timeout=T)
        remote.delete(["v1/d/0", "v1/d/9", "v1/d/1"], timeout=T)
        remote.delete(["v1/d/0"], timeout=T)
        assert remote.get("v1/d/0", timeout=T) is None
        assert remote.get("v1/d/1", timeout=T) is None
        assert remote.get("v1/d/2", timeout=T) is not None

    # -- listing

    def test_scan_lists_by_the_beginning_of_names(self, remote: Remote) -> None:
        for name in ("v1/records/ab/ab1", "v1/records/ab/ab2", "v1/records/ac/ac1", "v1/recordings", "v2/x"):
            self.seed(remote, name, b"12345")
        if not self.lists:
            with pytest.raises(RemoteMisconfiguredError):
                list(remote.scan("v1/", timeout=T))
            return
        wanted = {
            "": 5, "v1": 4, "v1/": 4, "v1/rec": 4, "v1/records/": 3, "v1/records/ab": 2, "v1/records/ab/ab1": 1,
            "v1/records/ab/": 2, "v3/": 0,
        }  # fmt: skip
        for prefix, count in wanted.items():
            found = list(remote.scan(prefix, timeout=T))
            assert len({entry.name for entry in found}) == len(found) == count
            assert all(entry.name.startswith(prefix) and entry.size == 5 for entry in found)

    def test_scan_goes_over_pages(self, remote: Remote) -> None:
        if not self.many:
            return
        wanted = {f"v1/p/{n:05}" for n in range(self.many)}
        for _, answer in remote.put_many(((name, b"") for name in wanted), timeout=T):
            assert answer is True, repr(answer)
        assert {entry.name for entry in remote.scan("v1/p/", timeout=T)} == wanted
        remote.delete(sorted(wanted), timeout=T)
        assert not list(remote.scan("v1/p/", timeout=T))

    # -- life

    def test_it_can_be_used_after_close(self, remote: Remote) -> None:
        remote.close()
        self.seed(remote, "a", b"x")
        remote.close()
        remote.close()
        assert remote.get("a", timeout=T) is not None

    def test_prepare_may_come_at_any_time(self, remote: Remote) -> None:
        remote.prepare()
        self.seed(remote, "a", b"x")
        remote.prepare()
        assert remote.get("a", timeout=T) is not None

    def test_it_pickles(self, remote: Remote) -> None:
        self.seed(remote, "a", b"x")
        copy = pickle.loads(pickle.dumps(remote))  # noqa: S301 - our own bytes
        assert type(copy) is type(remote)
        assert copy.url == remote.url
        found = copy.get("a", timeout=T)
        assert found is not None
        assert found.data == b"x"
        copy.close()

    def test_its_address_holds_no_secret(self, remote: Remote) -> None:
        for secret in self.secrets:
            assert secret not in remote.url
            assert secret not in repr(remote)

    def test_a_forked_child_works_or_is_refused(self, remote: Remote) -> None:
        self.seed(remote, "a", b"x")
        assert remote.get("a", timeout=T) is not None
        assert in_child(lambda: _look(remote)) == self.fork
        found = remote.get("a", timeout=T)
        assert found is not None
        assert found.data == b"x"


def _look(remote: Remote) -> str:
    try:
        found = remote.get("a", timeout=T)
    except RemoteUnavailableError:
        return "refused"
    return "works" if found is not None and found.data == b"x" else "wrong"


def in_child(call: Callable[[], str], seconds: float = 20.0) -> str:
    """What a call returns in a forked child; `hung` if it takes longer. The child ends at once, without clean-up."""
    import warnings

    reader, writer = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # forking with threads is what is tried here
        pid = os.fork()
    if pid == 0:
        try:
            answer = call()
        except BaseException as exc:  # noqa: BLE001 - told to the parent
            answer = f"{type(exc).__name__}: {exc}"
        os.write(writer, answer.encode()[:4096])
        os._exit(0)
    os.close(writer)
    try:
        import select

        ready, _, _ = select.select([reader], [], [], seconds)
        return os.read(reader, 4096).decode() if ready else "hung"
    finally:
        import signal

        os.close(reader)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def _raise(kind: type[RemoteError], finding: str) -> Callable[[str, str], RemoteError]:
    return lambda action, url: kind(action, url, finding)


FAULTS: Mapping[str, Callable[[str, str], RemoteError]] = {
    "timeout": _raise(RemoteUnavailableError, "no answer within 1 s"),
    "503": _raise(RemoteUnavailableError, "it answered status 503"),
    "reset": _raise(RemoteUnavailableError, "connection reset by peer"),
    "denied": _raise(RemoteDeniedError, "it refuses this to these credentials (AccessDenied)"),
    "misconfigured": _raise(RemoteMisconfiguredError, "no such bucket (NoSuchBucket)"),
}
"""Faults that raise. Two more change what is read: `truncated` and `wrong`; `lost` writes and then fails."""


class FlakyRemote:
    """A remote that does what `inner` does, but for its faults. `get_many` and `put_many` are made of single calls.

    Args:
        inner: the remote behind it.
        faults: (method, n) → fault, for the n-th call of a method, from 1; n of 0 means every call. The methods
            are `get`, `put`, `stat`, `scan`, `delete` and `prepare`.

    Attributes:
        calls: how often each method was called.
        faults: as given; may be changed at any time.
    """

    def __init__(self, inner: Remote, faults: Mapping[tuple[str, int], str] | None = None) -> None:
        self.inner = inner
        self.url, self.read_only, self.conditional = inner.url, inner.read_only, inner.conditional
        self.faults = dict(faults or {})
        self.calls: Counter[str] = Counter()

    def _fault(self, method: str) -> str:
        self.calls[method] += 1
        fault = self.faults.get((method, self.calls[method]), self.faults.get((method, 0), ""))
        if fault in FAULTS:
            raise FAULTS[fault](method, self.url)
        return fault

    def prepare(self) -> None:
        """As `Remote.prepare`."""
        self._fault("prepare")
        self.inner.prepare()

    def get(self, name: str, *, timeout: float, limit: int | None = None) -> Object | None:
        """As `Remote.get`."""
        fault = self._fault("get")
        found = self.inner.get(name, timeout=timeout, limit=limit)
        if found is not None and fault == "truncated":
            return Object(found.data[: len(found.data) // 2], found.tag, found.modified)
        if found is not None and fault == "wrong":
            return Object(bytes(byte ^ 0xFF for byte in found.data), found.tag, found.modified)
        return found

    def put(self, name: str, data: bytes, *, timeout: float, create: bool = False, match: str = "") -> bool:
        """As `Remote.put`."""
        fault = self._fault("put")
        if fault == "truncated":
            data = data[: len(data) // 2]
        done = self.inner.put(name, data, timeout=timeout, create=create, match=match)
        self.conditional = self.inner.conditional
        if fault == "lost":
            raise FAULTS["timeout"]("put", self.url)
        return done

    def stat(self, name: str, *, timeout: float) -> Entry | None:
        """As `Remote.stat`."""
        self._fault("stat")
        return self.inner.stat(name, timeout=timeout)

    def scan(self, prefix: str, *, timeout: float) -> Iterator[Entry]:
        """As `Remote.scan`; fails at its first answer."""
        self._fault("scan")
        return self.inner.scan(prefix, timeout=timeout)

    def delete(self, names: Sequence[str], *, timeout: float) -> None:
        """As `Remote.delete`."""
        self._fault("delete")
        self.inner.delete(names, timeout=timeout)

    def get_many(
        self, names: Iterable[str], *, timeout: float, limit: int | None = None
    ) -> Iterator[tuple[str, Object | RemoteError | None]]:
        """As `Remote.get_many`, one by one."""
        self.calls["get_many"] += 1
        for name in names:
            try:
                answer: Object | RemoteError | None = self.get(name, timeout=timeout, limit=limit)
            except RemoteError as exc:
                answer = exc
            yield name, answer

    def put_many(
        self, items: Iterable[tuple[str, bytes]], *, timeout: float, create: bool = False
    ) -> Iterator[tuple[str, bool | RemoteError]]:
        """As `Remote.put_many`, one by one."""
        self.calls["put_many"] += 1
        for name, data in items:
            try:
                answer: bool | RemoteError = self.put(name, data, timeout=timeout, create=create)
            except RemoteError as exc:
                answer = exc
            yield name, answer

    def close(self) -> None:
        """As `Remote.close`."""
        self.inner.close()
