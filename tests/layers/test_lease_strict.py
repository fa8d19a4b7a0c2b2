"""A lease is let go whatever happens to the build."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from cubinet.errors import StoreError
from cubinet.testing.bench import Bench
from cubinet.testing.faults import Fault, FaultyFs


def test_a_lease_ends_though_a_strict_store_cannot_keep_the_build(bench: Bench, tmp_path: Path) -> None:
    remote = tmp_path / "remote"
    remote.mkdir()
    fs = FaultyFs()
    store = bench.store(fs=fs, strict=True, leases=True, layers=f"file://{remote}?trust=open")
    store.get_or_compile(bench.variant("kernel first\n"))
    store.flush()
    fs.faults.append(Fault(errno.ENOSPC, "create", "*/store/tmp/*"))
    with pytest.raises(StoreError):
        store.get_or_compile(bench.variant())
    assert not [path for path in remote.rglob("*") if path.is_file() and "locks" in path.parts]
