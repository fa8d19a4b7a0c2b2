"""What every layer must do, over a real S3 server and by both clients."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.servers.process import Server

from cubinet.protocols import Layer, Remote
from cubinet.remotes.obstore import ObstoreRemote
from cubinet.remotes.s3 import S3Remote
from cubinet.store.remote import RemoteLayer
from cubinet.testing.contracts import LayerContract


@pytest.fixture(scope="session")
def plain(s3_server: Server) -> Any:
    """A client that knows nothing of layers."""
    return s3_server.client()


@pytest.fixture(scope="session")
def one_client(s3_server: Server, shared_bucket: str) -> Iterator[S3Remote]:
    """By s3fs, whose clients take longer to make than most tests run."""
    remote = S3Remote(f"s3://{shared_bucket}", s3_server.options())
    remote.prepare()
    yield remote
    remote.close()


class _OnAServer(LayerContract):
    """Every blob an object of its own, so that the contract can change each; records with what follows their line."""

    moves_away = False

    @pytest.fixture
    def remote(self) -> Remote:
        """A client for `place`."""
        raise NotImplementedError

    @pytest.fixture
    def layer(self, remote: Remote, place: str, plain: Any) -> Layer:
        self.client = plain
        self.bucket, _, self.prefix = place.partition("/")
        return RemoteLayer(remote, inline=-1)

    def _key(self, kind: str, name: str) -> str:
        return f"{self.prefix}/{RemoteLayer.object_name(kind, name)}"

    def _whole(self, key: str) -> bytes | None:
        try:
            body: bytes = self.client.get_object(Bucket=self.bucket, Key=key)["Body"].read()
        except self.client.exceptions.NoSuchKey:
            return None
        return body

    def read_raw(self, layer: Layer, kind: str, name: str) -> bytes | None:
        data = self._whole(self._key(kind, name))
        return data[: data.index(b"\n") + 1] if data is not None and kind == "records" else data

    def write_raw(self, layer: Layer, kind: str, name: str, data: bytes) -> None:
        rest = b""
        if kind == "records":
            whole = self._whole(self._key(kind, name))
            if whole is None:  # another's will do
                listed = self.client.list_objects_v2(Bucket=self.bucket, Prefix=f"{self.prefix}/v1/records/")
                whole = self._whole(listed["Contents"][0]["Key"])
            assert whole is not None
            rest = whole[whole.index(b"\n") + 1 :]
        self.client.put_object(Bucket=self.bucket, Key=self._key(kind, name), Body=data + rest)


class TestS3(_OnAServer):
    @pytest.fixture
    def remote(self, one_client: S3Remote, place: str) -> Remote:
        one_client._prefix = place.partition("/")[2] + "/"
        return one_client


class TestObstore(_OnAServer):
    @pytest.fixture
    def remote(self, s3_server: Server, place: str) -> Iterator[Remote]:
        made = ObstoreRemote(f"s3-obstore://{place}", s3_server.options())
        yield made
        made.close()
