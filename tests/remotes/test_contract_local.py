"""The contract on remotes that need no server."""

from __future__ import annotations

import secrets
from pathlib import Path

import pytest

from cubinet.protocols import Remote
from cubinet.remotes.file import FileRemote
from cubinet.remotes.fsspec import FsspecRemote
from cubinet.testing.remotes import FlakyRemote, RemoteContract


class TestFileRemote(RemoteContract):
    many = 1100

    @pytest.fixture
    def remote(self, tmp_path: Path) -> Remote:
        return FileRemote(tmp_path.as_uri(), {})


class TestFlakyRemoteWithoutFaults(RemoteContract):
    many = 40

    @pytest.fixture
    def remote(self, tmp_path: Path) -> Remote:
        return FlakyRemote(FileRemote(tmp_path.as_uri(), {}))


class TestMemoryRemote(RemoteContract):
    many = 1100
    has_times = True

    @pytest.fixture
    def remote(self) -> Remote:
        return FsspecRemote(f"memory://{secrets.token_hex(8)}/below", {})


class TestLocalFolderThroughFsspec(RemoteContract):
    """Stands for whatever else fsspec knows: nothing conditional."""

    conditional = False
    has_tags = False
    has_times = False

    @pytest.fixture
    def remote(self, tmp_path: Path) -> Remote:
        return FsspecRemote(f"local://{tmp_path}", {})
