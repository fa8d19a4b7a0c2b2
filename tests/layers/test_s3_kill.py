"""Processes that hammer one bucket and are killed at random: nothing in it is ever half, wrong, or lost."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from tests.servers.process import Server

from cubinet.config import Settings
from cubinet.model import Fingerprint
from cubinet.remotes.s3 import S3Remote
from cubinet.store import Store
from cubinet.store.remote import RemoteLayer
from cubinet.store.remote_verify import verify_remote
from cubinet.testing.fake_compiler import FakeCompiler

from .s3_children import expected, variant
from .s3_children import place as folders

pytestmark = pytest.mark.crash
CHILDREN = str(Path(__file__).with_name("s3_children.py"))
PROCESSES, VARIANTS, KILLS = (8, 500, 120) if os.environ.get("STRESS") else (4, 60, 10)


def layers(server: Server, place: str) -> str:
    options = {**server.options(), "trust": "open", "budget": 20}
    return f"s3://{place}?" + "&".join(f"{name}={value}" for name, value in options.items())


@pytest.mark.parametrize("which", ["separate", "one"])
def test_processes_killed_while_they_hammer_a_bucket_leave_it_whole(
    tmp_path: Path, s3_server: Server, place: str, which: str
) -> None:
    there = layers(s3_server, place)
    numbers = map(str, (PROCESSES, VARIANTS, KILLS))
    command = [sys.executable, CHILDREN, "hammer", str(tmp_path), there, *numbers, which]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert int(done.stdout) > KILLS // 3  # the work may be done before
    assert not (tmp_path / "wrong").exists(), (tmp_path / "wrong").read_text()

    layer = RemoteLayer(S3Remote(f"s3://{place}", s3_server.options()))
    found = verify_remote(layer, lambda _done, _all: None)
    assert found.problems == []
    if os.environ.get("STRESS"):
        counts = Counter(line.split()[0] for line in (tmp_path / "acknowledged").read_text().splitlines())
        print(f"\n{which}: {done.stdout.strip()} killed, {len(counts)} acknowledged, {found}")  # noqa: T201
    known = set((tmp_path / "acknowledged").read_text().split())
    assert len(known) > VARIANTS // 2
    assert known <= set(layer.names("records"))
    for name in known:
        assert layer.fetch(Fingerprint(name), timeout=10) is not None

    hosts = [tmp_path / "one"] if which == "one" else sorted(tmp_path.glob("host*"))
    for host in hosts:
        with Store(host / "store", settings=Settings(durable=False, layers=there), environ={}) as store:  # type: ignore[arg-type]
            local = store.verify()
            assert (local.problems, local.records) == ([], VARIANTS)
            moved = store.push()  # what was compiled by a process that died before it could send it
            assert (moved.problems, moved.moved + moved.present) == ([], VARIANTS)
    other = folders(tmp_path / "other")
    with other.store(layers=there) as store:
        for number in range(VARIANTS):
            got = store.find(variant(other, number))
            assert got is not None
            assert (got.data, got.layer) == (expected(number), "s3")
    layer.close()


def test_the_fake_compiler_is_the_one_that_is_expected(tmp_path: Path) -> None:
    bench = folders(tmp_path)
    for number in (0, 1):
        with bench.store() as store:
            assert isinstance(store.compiler("fake"), FakeCompiler)
            assert store.get_or_compile(variant(bench, number)).data == expected(number)
