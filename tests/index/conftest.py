"""A store folder for the index."""

from __future__ import annotations

from pathlib import Path

import pytest

from .shelf import Shelf


@pytest.fixture
def shelf(tmp_path: Path) -> Shelf:
    """An empty folder."""
    return Shelf(tmp_path / "store")
