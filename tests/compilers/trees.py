"""Small trees of files, and what of them a build had looked at."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from cubinet.model import Artifact, Seen
from cubinet.observations import read_observations

__all__ = ["observed", "plant"]


def plant(root: Path, tree: Mapping[str, str]) -> Path:
    """Write files under a folder; the folder."""
    root.mkdir(parents=True, exist_ok=True)
    for name, text in tree.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def observed(artifact: Artifact) -> dict[str, Seen]:
    """Name → how it was looked at, times left out."""
    data = artifact.read("observations")
    assert data is not None
    return {o.name: o.seen for o in read_observations(data) if o.seen is not Seen.TIME}
