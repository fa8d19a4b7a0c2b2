"""Looking at folders."""

from __future__ import annotations

import stat
from pathlib import Path


def tree(folder: Path) -> list[Path]:
    """Everything under a folder, sorted."""
    return sorted(folder.rglob("*"))


def mode(path: Path) -> int:
    """Permission bits of a file."""
    return stat.S_IMODE(path.stat().st_mode)
