"""Single flight across hosts: who compiles, who waits, who takes over; a lost lease costs a compile and no more."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from cubinet.errors import CompileError, RemoteUnavailableError
from cubinet.model import Action, Status
from cubinet.protocols import Object
from cubinet.remotes.file import FileRemote
from cubinet.store import lease as module
from cubinet.store.lease import Lease, take
from cubinet.testing.bench import Bench
from cubinet.testing.remotes import FlakyRemote

ACTION = Action("ab" * 32)
NAME = f"v1/locks/ab/{ACTION.hex}"
LONG = 3600.0


class Time:
    """A clock that sleeping turns; what is due at a time happens then."""

    def __init__(self) -> None:
        self.now = 0.0
        self.due: list[tuple[float, Callable[[], object]]] = []

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        for entry in [entry for entry in self.due if entry[0] <= self.now]:
            self.due.remove(entry)
            entry[1]()


@pytest.fixture
def remote(tmp_path: Path) -> FileRemote:
    (tmp_path / "bucket").mkdir()
    return FileRemote(f"file://{tmp_path}/bucket")


def holder(remote: FileRemote, number: int, seconds: float = 15.0) -> None:
    """A mark as another host writes it."""
    remote.put(NAME, b'{"owner":"host %d","seconds":%g}' % (number, seconds), timeout=5)


def mark(remote: FileRemote) -> bytes:
    found = remote.get(NAME, timeout=5)
    return found.data if found else b""


def test_the_first_gets_it_and_lets_it_go(remote: FileRemote) -> None:
    lease, found = take(remote, ACTION, lambda: None, limit=LONG)
    assert lease is not None
    assert found is None
    assert b'"seconds":15' in mark(remote)
    lease.release()
    lease.release()
    assert mark(remote) == b""


def test_a_waiter_gets_what_the_holder_built(remote: FileRemote) -> None:
    clock, built = Time(), []
    holder(remote, 1)
    clock.due.append((5.0, lambda: built.append("the build")))
    lease, found = take(remote, ACTION, lambda: built[0] if built else None, limit=LONG, clock=clock, sleep=clock.sleep)
    assert (lease, found) == (None, "the build")
    assert clock.now < 8.0
    assert b"host 1" in mark(remote)


def test_a_dead_holder_is_followed_after_its_time(remote: FileRemote) -> None:
    clock = Time()
    holder(remote, 1)
    lease, found = take(remote, ACTION, lambda: None, limit=LONG, clock=clock, sleep=clock.sleep)
    assert lease is not None
    assert found is None
    assert 15.0 < clock.now < 20.0
    assert b"host 1" not in mark(remote)
    lease.release()


def test_a_holder_that_is_alive_keeps_it(remote: FileRemote) -> None:
    clock, built = Time(), []
    holder(remote, 0)
    for beat in range(1, 60):
        clock.due.append((5.0 * beat, lambda n=beat: holder(remote, n)))  # type: ignore[misc]
    clock.due.append((290.0, lambda: built.append("late")))
    lease, found = take(remote, ACTION, lambda: built[0] if built else None, limit=LONG, clock=clock, sleep=clock.sleep)
    assert (lease, found) == (None, "late")
    assert clock.now > 289


def test_a_holder_that_lets_go_without_a_build_is_followed_at_once(remote: FileRemote) -> None:
    clock = Time()
    holder(remote, 1)
    clock.due.append((3.0, lambda: remote.delete([NAME], timeout=5)))
    lease, _ = take(remote, ACTION, lambda: None, limit=LONG, clock=clock, sleep=clock.sleep)
    assert lease is not None
    assert clock.now < 6.0
    lease.release()


def test_nobody_waits_longer_than_the_limit(remote: FileRemote) -> None:
    clock = Time()
    for beat in range(100):
        clock.due.append((2.0 * beat, lambda n=beat: holder(remote, n)))  # type: ignore[misc]
    holder(remote, 1)
    assert take(remote, ACTION, lambda: None, limit=30.0, clock=clock, sleep=clock.sleep) == (None, None)
    assert clock.now < 33.0


@pytest.mark.parametrize(
    ("data", "least", "most"),
    [
        (b"garbage", 15.0, 20.0),
        (b"", 15.0, 20.0),
        (b'{"owner":"x","seconds":-5}', 0.1, 5.0),
        (b'{"owner":"x","seconds":1e300}', 600.0, 610.0),
        (b'{"owner":"x","seconds":"soon"}', 15.0, 20.0),
        (b'{"owner":' + b"[" * 4000, 15.0, 20.0),
    ],
)
def test_a_mark_that_lies_costs_a_bounded_wait(remote: FileRemote, data: bytes, least: float, most: float) -> None:
    clock = Time()
    remote.put(NAME, data, timeout=5)
    lease, _ = take(remote, ACTION, lambda: None, limit=LONG, clock=clock, sleep=clock.sleep)
    assert lease is not None
    assert least < clock.now < most
    lease.release()


def test_the_heartbeat_writes_new_marks(remote: FileRemote) -> None:
    lease, _ = take(remote, ACTION, lambda: None, limit=LONG, seconds=0.3)
    assert lease is not None
    seen = {mark(remote)}
    end = time.monotonic() + 10
    while len(seen) < 4 and time.monotonic() < end:
        time.sleep(0.02)
        seen.add(mark(remote))
    lease.release()
    assert len(seen - {b""}) >= 4
    time.sleep(0.3)
    assert mark(remote) == b""


def test_a_heartbeat_survives_trouble(remote: FileRemote) -> None:
    flaky = FlakyRemote(remote, {("put", 2): "503", ("put", 3): "timeout", ("delete", 1): "reset"})
    lease, _ = take(flaky, ACTION, lambda: None, limit=LONG, seconds=0.15)
    assert lease is not None
    first, end = mark(remote), time.monotonic() + 10
    while mark(remote) == first and time.monotonic() < end:
        time.sleep(0.02)
    assert mark(remote) != first
    lease.release()


def test_trouble_while_waiting_is_raised(remote: FileRemote) -> None:
    holder(remote, 1)
    clock = Time()
    flaky = FlakyRemote(remote, {("get", 3): "503"})
    with pytest.raises(RemoteUnavailableError):
        take(flaky, ACTION, lambda: None, limit=LONG, clock=clock, sleep=clock.sleep)


class _Unconditional:
    """A remote where the last writer wins, as over fsspec."""

    read_only, conditional = False, False

    def __init__(self, inner: FileRemote) -> None:
        self.inner, self.url = inner, inner.url

    def put(self, name: str, data: bytes, *, timeout: float, create: bool = False, match: str = "") -> bool:
        return self.inner.put(name, data, timeout=timeout)

    def get(self, name: str, *, timeout: float, limit: int | None = None) -> Object | None:
        return self.inner.get(name, timeout=timeout, limit=limit)

    def delete(self, names: list[str], *, timeout: float) -> None:
        self.inner.delete(names, timeout=timeout)


def test_without_conditions_everybody_gets_it_and_nobody_waits(remote: FileRemote) -> None:
    clock = Time()
    held = [
        take(_Unconditional(remote), ACTION, lambda: None, limit=LONG, clock=clock, sleep=clock.sleep)[0]  # type: ignore[arg-type]
        for _ in range(2)
    ]
    assert all(held)
    assert clock.now == 0.0
    for lease in held:
        assert isinstance(lease, Lease)
        lease.release()


def test_of_sixteen_takers_one_gets_it(remote: FileRemote) -> None:
    with ThreadPoolExecutor(16) as pool:
        found = list(pool.map(lambda _: take(remote, ACTION, lambda: None, limit=0.0), range(16)))
    held = [lease for lease, _ in found if lease]
    assert len(held) == 1
    held[0].release()


def test_of_sixteen_who_take_over_one_gets_it(remote: FileRemote) -> None:
    holder(remote, 1, 0.3)
    with ThreadPoolExecutor(16) as pool:
        found = list(pool.map(lambda _: take(remote, ACTION, lambda: None, limit=2.0), range(16)))
    held = [lease for lease, _ in found if lease]
    assert len(held) == 1
    held[0].release()


# --- in stores


def hosts(top: Path, count: int) -> list[Bench]:
    for number in range(count):
        (top / f"host{number}").mkdir()
    return [Bench.at(top / f"host{number}") for number in range(count)]


def runs(benches: list[Bench]) -> int:
    return sum(bench.runs for bench in benches)


def test_hosts_that_start_together_compile_once(tmp_path: Path, remote: FileRemote) -> None:
    benches = hosts(tmp_path, 6)
    text = f"file://{tmp_path}/bucket?trust=open&budget=20"
    stores = [bench.store(layers=text, leases=True, seconds=0.5, drain=20.0) for bench in benches]
    with ThreadPoolExecutor(6) as pool:
        found = list(pool.map(lambda n: stores[n].get_or_compile(benches[n].variant()), range(6)))
    assert [artifact.data for artifact in found] == [benches[0].expected()] * 6
    assert runs(benches) == 1
    for store in stores:
        store.close()
    assert not [p for p in (tmp_path / "bucket/v1/locks").rglob("*") if p.is_file()]


def test_a_lost_lease_costs_a_compile(tmp_path: Path, remote: FileRemote, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_TIMEOUT", 5.0)
    one, two = hosts(tmp_path, 2)
    text = f"file://{tmp_path}/bucket?trust=open&budget=20"
    lost = threading.Event()

    def lose() -> None:
        for path in (tmp_path / "bucket/v1/locks").rglob("*"):
            if path.is_file():
                path.unlink()
        if not lost.is_set():
            lost.set()
            time.sleep(0.5)

    first = one.store(layers=text, leases=True, during=lose, drain=20.0)
    second = two.store(layers=text, leases=True, drain=20.0)
    with ThreadPoolExecutor(2) as pool:
        early = pool.submit(first.get_or_compile, one.variant())
        assert lost.wait(20)
        late = pool.submit(second.get_or_compile, two.variant())
        assert early.result(60).data == late.result(60).data == one.expected()
    assert runs([one, two]) == 2
    for store in (first, second):
        store.close()
    (tmp_path / "third").mkdir()
    third = Bench.at(tmp_path / "third")
    found = third.store(layers=text).find(third.variant())
    assert found is not None
    assert found.status is Status.HIT


def test_a_compile_that_fails_lets_others_try(tmp_path: Path, remote: FileRemote) -> None:
    (bench,) = hosts(tmp_path, 1)
    store = bench.store(layers=f"file://{tmp_path}/bucket?trust=open", leases=True)
    with pytest.raises(CompileError):
        store.get_or_compile(bench.variant("#flaky no luck\n"))
    assert not [p for p in (tmp_path / "bucket/v1/locks").rglob("*") if p.is_file()]


def test_a_remote_in_trouble_costs_the_lease_and_not_the_build(tmp_path: Path) -> None:
    (bench,) = hosts(tmp_path, 1)
    store = bench.store(layers=f"file://{tmp_path}/not-there?trust=open", leases=True, drain=0.2)
    assert store.get_or_compile(bench.variant()).data == bench.expected()
    store.close()


@pytest.mark.parametrize("error", [ZeroDivisionError, KeyboardInterrupt])
def test_a_compile_that_is_interrupted_lets_others_try(
    tmp_path: Path, remote: FileRemote, error: type[BaseException]
) -> None:
    (bench,) = hosts(tmp_path, 1)

    def interrupt() -> None:
        raise error

    store = bench.store(layers=f"file://{tmp_path}/bucket?trust=open", leases=True, during=interrupt)
    with pytest.raises(error):
        store.get_or_compile(bench.variant())
    assert not [p for p in (tmp_path / "bucket/v1/locks").rglob("*") if p.is_file()]
