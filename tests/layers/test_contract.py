"""What every layer must do, for folders and for remotes."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from cubinet.protocols import Layer
from cubinet.remotes.file import FileRemote
from cubinet.store.remote import RemoteLayer
from cubinet.store.shared import SharedLayer
from cubinet.testing.contracts import LayerContract


class _Raw:
    """Reaches files past the layer; a remote over a folder keeps an object in a file."""

    root: Path
    ending: dict[str, str]

    def _path(self, kind: str, name: str) -> Path:
        raise NotImplementedError

    def read_raw(self, layer: Layer, kind: str, name: str) -> bytes | None:
        path = self._path(kind, name)
        return path.read_bytes() if path.exists() else None

    def write_raw(self, layer: Layer, kind: str, name: str, data: bytes) -> None:
        path = self._path(kind, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        path.write_bytes(data)


class TestWritableSharedFolder(_Raw, LayerContract):
    @pytest.fixture
    def layer(self, tmp_path: Path) -> Layer:
        self.root = tmp_path / "shared"
        return SharedLayer(str(self.root), writable=True, durable=False)

    def _path(self, kind: str, name: str) -> Path:
        return self.root / kind / name[:2] / (f"{name}.json" if kind == "records" else name)


class _Wrapped(_Raw):
    """Records are objects with a list of blobs and a frame after the line that the contract changes."""

    def _path(self, kind: str, name: str) -> Path:
        return self.root / "v1" / kind / name[:2] / name

    def read_raw(self, layer: Layer, kind: str, name: str) -> bytes | None:
        data = super().read_raw(layer, kind, name)
        return data[: data.index(b"\n") + 1] if data is not None and kind == "records" else data

    def write_raw(self, layer: Layer, kind: str, name: str, data: bytes) -> None:
        path = self._path(kind, name)
        rest = b""
        if kind == "records":
            source = path if path.exists() else next((self.root / "v1" / "records").glob("*/*"))
            whole = source.read_bytes()
            rest = whole[whole.index(b"\n") + 1 :]
        super().write_raw(layer, kind, name, data + rest)


class TestRemoteOverAFolder(_Wrapped, LayerContract):
    """Every blob an object of its own, so that the contract can change each."""

    moves_away = False

    @pytest.fixture
    def layer(self, tmp_path: Path) -> Layer:
        self.root = tmp_path / "remote"
        self.root.mkdir()
        return RemoteLayer(FileRemote(f"file://{self.root}"), inline=-1)


def test_a_shared_folder_has_what_a_local_store_made(tmp_path: Path) -> None:
    from cubinet.store.local import LocalLayer
    from cubinet.testing.samples import build

    made = build()
    LocalLayer(str(tmp_path / "store")).publish(made.record, made.blobs)
    shutil.copytree(tmp_path / "store", tmp_path / "image")
    found = SharedLayer(str(tmp_path / "image")).fetch(made.fingerprint, timeout=5)
    assert found is not None
    assert (found.record, found.blobs) == (made.record, made.blobs)
