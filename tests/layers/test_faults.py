"""What trouble with an object store costs a build: a bounded wait, a count and one warning, and nothing else.

A real server, and a proxy that makes the trouble. Times are bounds that are promised, in seconds.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import multiprocessing
import os
import subprocess
import sys
import textwrap
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from tests.servers.process import Server, free_ports
from tests.servers.proxy import Proxy

from cubinet.errors import (
    CubinetError,
    FormatError,
    RemoteDeniedError,
    RemoteMisconfiguredError,
    RemoteUnavailableError,
)
from cubinet.model import Artifact, Status
from cubinet.remotes.s3 import S3Remote
from cubinet.store import Store
from cubinet.testing.bench import Bench
from cubinet.testing.faults import Fault, FaultyFs
from cubinet.testing.remotes import in_child

BUDGET, SLACK = 0.6, 5.0  # a busy machine is slow; without the budget these take from 10 s to minutes


@pytest.fixture(autouse=True)
def client(s3_server: Server) -> None:
    """What importing the client takes is in no budget, and not what is measured here."""
    S3Remote("s3://bucket/prefix", s3_server.options()).prepare()


@pytest.fixture
def there(tmp_path: Path) -> Bench:
    """Another host."""
    (tmp_path / "there").mkdir()
    return Bench.at(tmp_path / "there")


def layer(server: Server, place: str, endpoint: str = "", budget: float = BUDGET, **more: object) -> str:
    options = {**server.options(**more), "endpoint_url": endpoint or server.endpoint, "trust": "open"}
    return f"s3://{place}?budget={budget}&" + "&".join(f"{name}={value}" for name, value in options.items())


def source(number: int) -> str:
    return f'#include "a.h"\nnumber {number}\nkernel scale\n'


def made(number: int) -> bytes:
    return f"cubin sm_90a 1.0\ntext of a.h\nnumber {number}\nkernel scale\n".encode()


def share(host: Bench, layers: str, *numbers: int) -> None:
    with host.store(layers=layers, drain=30.0) as store:
        for number in numbers:
            store.get_or_compile(host.variant(source(number)))
    assert store.stats()["upload.s3"] == len(numbers)


def warnings_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.getMessage() for r in caplog.records if r.name == "cubinet.store" and r.levelno >= logging.WARNING]


def facts(artifact: Artifact | None) -> tuple[object, ...]:
    return (artifact.data, artifact.status, artifact.layer) if artifact else ()


@pytest.fixture(scope="module")
def seeded(s3_server: Server, shared_bucket: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A place where another host has put builds 1 and 2."""
    place = f"{shared_bucket}/seeded"
    share(Bench.at(tmp_path_factory.mktemp("seed")), layer(s3_server, place), 1, 2)
    return place


def comes_back(store: Store, host: Bench, number: int) -> None:
    """The trouble is over: it is a hit, though a busy machine may need more than one budget for it."""
    for _ in range(5):
        store.refresh()
        found = store.find(host.variant(source(number)))
        if found:
            break
    assert facts(found) == (made(number), Status.HIT, "s3")


def timed_build(store: Store, host: Bench, number: int) -> float:
    start = time.monotonic()
    built = store.get_or_compile(host.variant(source(number)))
    took = time.monotonic() - start
    assert (built.data, built.status, built.reason) == (made(number), Status.COMPILED, "")
    return took


def timed_misses(store: Store, host: Bench, count: int = 20) -> float:
    start = time.monotonic()
    for number in range(1000, 1000 + count):
        assert store.find(host.variant(source(number))) is None
    return time.monotonic() - start


def check(
    store: Store, host: Bench, caplog: pytest.LogCaptureFixture, cause: str, *, budget: float = BUDGET, most: int = 1
) -> None:
    """A build, more lookups, and what was said of them."""
    caplog.clear()
    assert timed_build(store, host, 1) < budget + SLACK
    assert timed_misses(store, host) < 2.0
    store.flush(5.0)
    said = warnings_of(caplog)
    assert 1 <= len(said) <= most, said
    assert cause in said[0]
    assert "s3://" in said[0]
    assert 1 <= store.stats()["error.read"] <= 6  # a write that is answered well starts the count of failures anew
    assert host.store().verify().clean


def _xml(code: str, more: str = "") -> bytes:
    return f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>said</Message>{more}</Error>".encode()


FAULTS: dict[str, tuple[dict[str, Any], type[CubinetError], str]] = {
    "refused": ({"kind": "refuse"}, RemoteUnavailableError, ""),
    "dropped SYN": ({"kind": "drop"}, RemoteUnavailableError, ""),
    "black hole": ({"kind": "blackhole"}, RemoteUnavailableError, "no answer within"),
    "closes": ({"kind": "close"}, RemoteUnavailableError, ""),
    "reset": ({"kind": "reset"}, RemoteUnavailableError, ""),
    "slow": ({"kind": "delay", "seconds": 5}, RemoteUnavailableError, "no answer within"),
    "short body": ({"kind": "short"}, RemoteUnavailableError, ""),
    "a byte a second": ({"kind": "trickle"}, RemoteUnavailableError, "no answer within"),
    "a byte of the head a second": ({"kind": "slow_head"}, RemoteUnavailableError, "no answer within"),
    "500": ({"kind": "status", "status": 500, "body": _xml("InternalError")}, RemoteUnavailableError, "InternalError"),
    "503": ({"kind": "status", "status": 503, "body": _xml("SlowDown")}, RemoteUnavailableError, "SlowDown"),
    "403": ({"kind": "status", "status": 403, "body": _xml("AccessDenied")}, RemoteDeniedError, "AccessDenied"),
    "expired": ({"kind": "status", "status": 400, "body": _xml("ExpiredToken")}, RemoteDeniedError, "expired"),
    "clock skew": (
        {"kind": "status", "status": 403, "body": _xml("RequestTimeTooSkewed")}, RemoteDeniedError, "clock of this",
    ),
    "wrong region": (
        {"kind": "status", "status": 400, "body": _xml("AuthorizationHeaderMalformed", "<Region>eu-west-3</Region>")},
        RemoteMisconfiguredError, "eu-west-3",
    ),
    "wrong body": ({"kind": "wrong", "method": "GET"}, CubinetError, ""),
    "a page": ({"kind": "html"}, FormatError, "not in this format"),
    "empty": ({"kind": "empty"}, FormatError, "empty"),
}  # fmt: skip


@pytest.mark.parametrize("name", list(FAULTS))
def test_a_fault_costs_a_bounded_wait_and_one_warning(  # noqa: PLR0917 - fixtures
    bench: Bench, s3_server: Server, proxy: Proxy, seeded: str, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    fault, error, cause = FAULTS[name]
    proxy.fault(**fault)
    budget = 3.0 if name == "expired" else BUDGET  # a client with new credentials takes a while to make
    through = layer(s3_server, seeded, proxy.endpoint, budget)
    (bench.top / "strict").mkdir()
    angry = Bench.at(bench.top / "strict")
    with pytest.raises(error, match=cause or None):
        angry.store(layers=through, strict=True).find(angry.variant(source(1)))
    store = bench.store(layers=through, drain=0.2)
    # a miss whose body is wrong is another piece of news: no object store answers so
    check(store, bench, caplog, cause, budget=budget, most=2 if name == "wrong body" else 1)
    proxy.reset()
    comes_back(store, bench, 2)
    (bench.top / "later").mkdir()
    later = Bench.at(bench.top / "later")
    comes_back(later.store(layers=through), later, 2)
    assert bench.store().verify().clean


def test_a_black_hole_costs_two_seconds_once(
    bench: Bench, s3_server: Server, proxy: Proxy, place: str, caplog: pytest.LogCaptureFixture
) -> None:
    proxy.fault("blackhole")
    text = layer(s3_server, place, proxy.endpoint).replace(f"budget={BUDGET}&", "")
    with bench.store(layers=text, drain=0.2) as store:
        check(store, bench, caplog, "no answer within", budget=2.0)


def test_trouble_in_the_middle_of_a_run(  # noqa: PLR0917 - fixtures
    bench: Bench, there: Bench, s3_server: Server, proxy: Proxy, place: str, caplog: pytest.LogCaptureFixture
) -> None:
    share(there, layer(s3_server, place), 2, 3)
    store = bench.store(layers=layer(s3_server, place, proxy.endpoint), drain=0.2)
    assert facts(store.find(bench.variant(source(2)))) == (made(2), Status.HIT, "s3")
    proxy.fault("blackhole")
    check(store, bench, caplog, "no answer within")
    proxy.reset()
    comes_back(store, bench, 3)


def test_nobody_listens_at_the_start(bench: Bench, s3_server: Server, caplog: pytest.LogCaptureFixture) -> None:
    endpoint = f"http://127.0.0.1:{free_ports(1)[0]}"
    with bench.store(layers=layer(s3_server, "bucket/x", endpoint), drain=0.2) as store:
        check(store, bench, caplog, "")


def test_a_missing_bucket(bench: Bench, s3_server: Server, caplog: pytest.LogCaptureFixture) -> None:
    with bench.store(layers=layer(s3_server, "no-such-bucket-here/x"), drain=0.2) as store:
        check(store, bench, caplog, "no such bucket")
    with pytest.raises(RemoteMisconfiguredError, match="no such bucket"):
        bench.store(layers=layer(s3_server, "no-such-bucket-here/x"), strict=True).find(bench.variant(source(5)))


def test_a_wrong_secret_is_told_and_not_shown(
    bench: Bench, s3_server: Server, place: str, caplog: pytest.LogCaptureFixture
) -> None:
    with bench.store(layers=layer(s3_server, place, secret="notthesecret"), drain=0.2) as store:
        check(store, bench, caplog, "the secret does not belong to the key")
    assert "notthesecret" not in caplog.text


def test_a_bucket_that_is_deleted_in_the_middle_of_a_run(
    bench: Bench, there: Bench, s3_server: Server, bucket: str, caplog: pytest.LogCaptureFixture
) -> None:
    text = layer(s3_server, f"{bucket}/x")
    share(there, text, 2)
    store = bench.store(layers=text, drain=0.2)
    assert facts(store.find(bench.variant(source(2))))[2] == "s3"
    client: Any = s3_server.client()
    for item in client.list_objects_v2(Bucket=bucket)["Contents"]:
        client.delete_object(Bucket=bucket, Key=item["Key"])
    client.delete_bucket(Bucket=bucket)
    check(store, bench, caplog, "no such bucket")
    s3_server.make_bucket(bucket)
    store.refresh()
    store.get_or_compile(bench.variant(source(7)))
    assert store.flush(30.0) == 0
    assert store.stats()["upload.s3"] == 1


def test_a_reader_may_not_write_and_still_reads(
    bench: Bench, there: Bench, s3_server: Server, place: str, caplog: pytest.LogCaptureFixture
) -> None:
    share(there, layer(s3_server, place), 2, 3)
    text = layer(s3_server, place, key=s3_server.reader_key, secret=s3_server.reader_secret)
    with bench.store(layers=text) as store:
        assert facts(store.find(bench.variant(source(2))))[2] == "s3"
        assert timed_build(store, bench, 1) < BUDGET + SLACK
        assert store.flush(10.0) == 0
        said = warnings_of(caplog)
        assert len(said) == 1
        assert "s3:PutObject" in said[0]
        assert store.stats()["upload.dropped"] == 1


NO_CREDENTIALS = """
import logging, sys, time
from pathlib import Path
from cubinet.testing.bench import Bench
import s3fs

logging.basicConfig(format="%(message)s", stream=sys.stdout)
bench = Bench.at(Path(sys.argv[1]))
store = bench.store(layers=sys.argv[2], drain=0.2)
start = time.monotonic()
found = store.get_or_compile(bench.variant())
took = time.monotonic() - start
for n in range(20):
    assert store.find(bench.variant(f"number {n}\\nkernel scale\\n")) is None
rest = time.monotonic() - start - took
store.close()
assert found.data == bench.expected()
print("took", took, rest)
"""


@pytest.mark.parametrize("metadata", ["refuse", "blackhole"])
def test_a_host_without_any_credentials(tmp_path: Path, s3_server: Server, proxy: Proxy, metadata: str) -> None:
    proxy.fault(metadata)
    (tmp_path / "home").mkdir()
    (tmp_path / "host").mkdir()
    environ = {
        "PATH": os.environ["PATH"], "HOME": str(tmp_path / "home"),
        "AWS_EC2_METADATA_SERVICE_ENDPOINT": proxy.endpoint,
    }  # fmt: skip
    text = f"s3://bucket/x?endpoint_url={s3_server.endpoint}&region=us-east-1&trust=open"
    program = [sys.executable, "-c", textwrap.dedent(NO_CREDENTIALS), str(tmp_path / "host"), text]
    done = subprocess.run(program, check=False, env=environ, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    said = [line for line in done.stdout.splitlines() if not line.startswith("took")]
    (times,) = (line for line in done.stdout.splitlines() if line.startswith("took"))
    assert len(said) == 1, said
    if metadata == "refuse":
        assert "no credentials" in said[0]
    took, rest = map(float, times.split()[1:])
    assert took < 2.0 + SLACK
    assert rest < 2.0


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EROFS, errno.EDQUOT])
def test_a_hit_that_cannot_be_kept_here_is_still_a_hit(  # noqa: PLR0917 - fixtures
    bench: Bench, there: Bench, s3_server: Server, place: str, code: int, caplog: pytest.LogCaptureFixture
) -> None:
    share(there, layer(s3_server, place), 1, 2)
    fs = FaultyFs(Fault(code, operation="create"), Fault(code, operation="mkdir"))
    with bench.store(layers=layer(s3_server, place), fs=fs) as store:
        for number in (1, 2):
            assert facts(store.get_or_compile(bench.variant(source(number)))) == (made(number), Status.HIT, "s3")
    assert fs.failed
    assert bench.runs == 0
    assert len(warnings_of(caplog)) == 1
    assert os.strerror(code) in caplog.text
    assert bench.store().verify().clean
    with bench.store(layers=layer(s3_server, place)) as store:
        assert facts(store.get_or_compile(bench.variant(source(1)))) == (made(1), Status.HIT, "s3")
    assert facts(bench.store().find(bench.variant(source(1))))[2] == "local"


# --- processes, threads and loops


def test_a_forked_child_looks_up_and_compiles(bench: Bench, there: Bench, s3_server: Server, place: str) -> None:
    share(there, layer(s3_server, place), 1, 2)
    store = bench.store(layers=layer(s3_server, place, budget=5), drain=10.0)
    assert facts(store.find(bench.variant(source(1))))[2] == "s3"

    def child() -> str:
        found, built = store.find(bench.variant(source(2))), store.get_or_compile(bench.variant(source(3)))
        store.close()
        return f"{found and found.layer} {found and found.data == made(2)} {built.data == made(3)} {store.stats()}"

    said = in_child(child)
    assert said.startswith("s3 True True"), said
    assert "'upload.s3': 1" in said
    assert facts(store.find(bench.variant(source(2)))) == (made(2), Status.HIT, "local")
    third = Bench.at(_folder(bench.top / "third")).store(layers=layer(s3_server, place))
    assert facts(third.find(bench.variant(source(3))))[2] == "s3"


def _folder(path: Path) -> Path:
    path.mkdir()
    return path


def test_a_fork_in_the_middle_of_lookups(bench: Bench, there: Bench, s3_server: Server, place: str) -> None:
    share(there, layer(s3_server, place), *range(4))
    store = bench.store(layers=layer(s3_server, place, budget=5))
    over = threading.Event()

    def look() -> None:
        while not over.is_set():
            for number in range(4):
                store.find(bench.variant(source(number)))
            store.refresh()

    threads = [threading.Thread(target=look) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        for number in range(8, 10):
            said = in_child(lambda n=number: str(store.get_or_compile(bench.variant(source(n))).data == made(n)))  # type: ignore[misc]
            assert said == "True"
    finally:
        over.set()
        for thread in threads:
            thread.join(20)


def test_sixteen_threads_at_once(bench: Bench, there: Bench, s3_server: Server, place: str) -> None:
    share(there, layer(s3_server, place), *range(16))
    store = bench.store(layers=layer(s3_server, place, budget=10))
    with ThreadPoolExecutor(16) as pool:
        found = list(pool.map(lambda n: store.get_or_compile(bench.variant(source(n))), range(16)))
    assert [artifact.data for artifact in found] == [made(n) for n in range(16)]
    assert bench.runs == 0


def test_sixteen_threads_in_trouble_wait_once(
    bench: Bench, s3_server: Server, proxy: Proxy, place: str, caplog: pytest.LogCaptureFixture
) -> None:
    proxy.fault("blackhole")
    store = bench.store(layers=layer(s3_server, place, proxy.endpoint), drain=0.2)
    start = time.monotonic()
    with ThreadPoolExecutor(16) as pool:
        found = list(pool.map(lambda n: store.get_or_compile(bench.variant(source(n))), range(16)))
    assert time.monotonic() - start < BUDGET + SLACK
    assert [artifact.data for artifact in found] == [made(n) for n in range(16)]
    store.flush(0.2)
    assert len([text for text in warnings_of(caplog) if "no answer" in text]) == 1


def test_inside_a_running_loop(bench: Bench, there: Bench, s3_server: Server, place: str) -> None:
    share(there, layer(s3_server, place), *range(4))
    store = bench.store(layers=layer(s3_server, place, budget=10))

    async def host() -> list[bytes]:
        here = store.get_or_compile(bench.variant(source(0)))
        others = [asyncio.to_thread(store.get_or_compile, bench.variant(source(n))) for n in range(1, 5)]
        return [here.data, *(artifact.data for artifact in await asyncio.gather(*others))]

    assert asyncio.run(host()) == [made(n) for n in range(5)]
    assert asyncio.run(host()) == [made(n) for n in range(5)]  # another loop
    store.close()
    assert bench.runs == 1


def test_a_spawned_process(bench: Bench, there: Bench, s3_server: Server, place: str) -> None:
    share(there, layer(s3_server, place), 1)
    store = bench.store(layers=layer(s3_server, place, budget=10), drain=10.0)
    pool = multiprocessing.get_context("spawn").Pool(1)
    found = [pool.apply(store.get_or_compile, (bench.variant(source(n)),)) for n in (1, 2)]
    pool.close()  # so that it ends as a program does
    pool.join()
    assert [facts(one) for one in found] == [(made(1), Status.HIT, "s3"), (made(2), Status.COMPILED, "local")]
    third = Bench.at(_folder(bench.top / "third")).store(layers=layer(s3_server, place))
    assert facts(third.find(bench.variant(source(2))))[2] == "s3"


def test_a_server_that_is_killed_and_started_again(
    bench: Bench, there: Bench, s3_server: Server, bucket: str, caplog: pytest.LogCaptureFixture
) -> None:
    text = layer(s3_server, f"{bucket}/x", budget=2)
    share(there, text, 2, 3)
    store = bench.store(layers=text, drain=0.2)
    assert facts(store.find(bench.variant(source(2))))[2] == "s3"
    s3_server.kill()
    try:
        check(store, bench, caplog, "", budget=2.0)
    finally:
        s3_server.start()
    comes_back(store, bench, 3)
