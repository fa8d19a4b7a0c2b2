"""A cold start: many processes at once want what nobody has compiled. Who compiles, and how often."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from tests.servers.process import Server
from tests.servers.proxy import Proxy

from cubinet.remotes.s3 import S3Remote
from cubinet.store.lease import take
from cubinet.testing.samples import build

CHILDREN = str(Path(__file__).with_name("s3_children.py"))
STRESS = bool(os.environ.get("STRESS"))
PROCESSES, HOSTS, VARIANTS = (64, 8, 8) if STRESS else (16, 4, 3)


def layers(server: Server, place: str, proxy: Proxy) -> str:
    options = {**server.options(), "endpoint_url": proxy.endpoint, "trust": "open", "budget": 20}
    return f"s3://{place}?" + "&".join(f"{name}={value}" for name, value in options.items())


def storm(
    top: Path, layers: str, *, hosts: int = 1, processes: int = 1, seconds: float = 0.2, leases: bool = False
) -> Any:
    given = (str(top), layers, str(hosts), str(processes), str(VARIANTS), str(seconds), str(int(leases)))
    done = subprocess.run([sys.executable, CHILDREN, "storm", *given], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    if STRESS:
        print(f"\n{hosts} hosts, {processes} processes each, leases {leases}: {told}")  # noqa: T201
    assert (told["wrong"], told["failed"]) == (0, 0), done.stderr
    return told


def show(proxy: Proxy) -> None:
    if STRESS:
        kinds = Counter(f"{one.method} {one.status} {one.path.split('/v1/')[-1].split('/')[0]}" for one in proxy.log)
        print(dict(sorted(kinds.items())))  # noqa: T201


def test_one_host_compiles_each_variant_once(tmp_path: Path) -> None:
    told = storm(tmp_path, "", processes=PROCESSES)
    assert told["compiles"] == [1] * VARIANTS


def test_one_host_compiles_and_sends_each_variant_once(
    tmp_path: Path, s3_server: Server, proxy: Proxy, place: str
) -> None:
    told = storm(tmp_path, layers(s3_server, place, proxy), processes=PROCESSES)
    assert told["compiles"] == [1] * VARIANTS
    assert told["counts"]["upload.s3"] == VARIANTS


def test_hosts_without_leases_compile_each_variant_at_most_once_each(
    tmp_path: Path, s3_server: Server, proxy: Proxy, place: str
) -> None:
    told = storm(tmp_path, layers(s3_server, place, proxy), hosts=HOSTS, processes=2, seconds=0.5)
    show(proxy)
    assert told["most on a host"] == 1
    assert all(1 <= runs <= HOSTS for runs in told["compiles"])


def test_hosts_with_leases_compile_each_variant_once_in_all(
    tmp_path: Path, s3_server: Server, proxy: Proxy, place: str
) -> None:
    told = storm(tmp_path, layers(s3_server, place, proxy), hosts=HOSTS, processes=2, seconds=0.5, leases=True)
    show(proxy)
    assert told["compiles"] == [1] * VARIANTS
    assert told["counts"]["upload.s3"] == VARIANTS


def test_leases_on_a_remote_that_ignores_conditions_do_no_harm(tmp_path: Path) -> None:
    (tmp_path / "remote").mkdir()
    told = storm(tmp_path, f"local://{tmp_path}/remote?trust=open", hosts=HOSTS, processes=2, leases=True)
    assert told["most on a host"] == 1
    assert all(1 <= runs <= HOSTS for runs in told["compiles"])


def test_a_lease_is_given_back_if_the_build_came_before_it(s3_server: Server, place: str) -> None:
    remote = S3Remote(f"s3://{place}", s3_server.options())
    action = build().record.action
    assert take(remote, action, lambda: "build", limit=5.0) == (None, "build")
    lease, found = take(remote, action, lambda: None, limit=5.0)  # at once: nobody has it
    assert found is None
    assert lease is not None
    lease.release()
    assert list(remote.scan("v1/locks/", timeout=5)) == []
    remote.close()
