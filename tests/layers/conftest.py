"""Stores over one folder with the fake compiler, and a few headers for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from cubinet.testing.bench import Bench


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    """A folder for a store, two include folders, and a way to make stores."""
    return Bench.at(tmp_path)
