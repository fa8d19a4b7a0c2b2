"""A store with an index, and its pages."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from cubinet.fingerprint import digest_of
from cubinet.model import Kernel, Toolchain
from cubinet.store.index import Index, IndexWriter
from cubinet.store.local import LocalLayer
from cubinet.testing.faults import NoSyncFs
from cubinet.testing.samples import Build, build
from cubinet.web import app
from cubinet.web.site import Site


class Shelf:
    """A store folder that somebody writes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.layer = LocalLayer(str(folder), fs=NoSyncFs(), durable=False)
        self.writer = IndexWriter(str(folder), lambda record: self.layer.read_named(record.observations), interval=3600)

    def index(self) -> Index:
        return Index(
            str(self.folder),
            lambda: (r for r in map(self.layer.find, self.layer.fingerprints()) if r),
            find=self.layer.find,
            observations=lambda record: self.layer.read_named(record.observations),
            flush=self.writer.flush,
        )

    def put(self, text: str, *, note: bool = True, **fields: Any) -> Build:
        made = build(text, **fields)
        self.layer.publish(made.record, made.blobs)
        if note:
            self.writer.note_publish(made.record)
        return made


class Pages:
    """What a browser gets, without a socket."""

    def __init__(self, site: Site) -> None:
        self.site = site

    def __call__(self, path: str, method: str = "GET", **more: Any) -> httpx.Response:
        answer: httpx.Response = asyncio.run(self.site.ds.client.request(method, path, **more))
        return answer

    def text(self, path: str, status: int = 200) -> str:
        answer = self(path)
        assert answer.status_code == status, answer.text
        return answer.text


def fill(shelf: Shelf) -> Shelf:
    """Five builds, two of them of one variant, one of them used."""
    parts, newer = (("source", "s" * 32),), Toolchain("nvcc", "13.4", digest_of(b"13.4"))
    kernels = (Kernel("gemm<float>", "_Z4gemm", 40, 1024, 8, 400, 64, 16),)
    shelf.put("gemm", family="blas", seconds=2.0, parts=parts, kernels=kernels)
    shelf.put("gemm", family="blas", seconds=2.5, parts=parts, toolchain=newer, action="other")
    shelf.put("softmax", family="nn", seconds=0.7)
    shelf.put("a <b>&name", family="<script>alert(1)</script>", data=b"object of softmax")
    shelf.writer.note_use(shelf.put("used", seconds=3.3).fingerprint)
    shelf.writer.note_event("local", "miss", "header changed", 0.5)
    assert shelf.writer.flush()
    return shelf


@pytest.fixture
def shelf(tmp_path: Path) -> Shelf:
    """A store with five builds."""
    return fill(Shelf(tmp_path / "store"))


@pytest.fixture
def pages(shelf: Shelf) -> Iterator[Pages]:
    """Its pages; each looks at the store first."""
    site = app(shelf.index(), every=0.0)
    yield Pages(site)
    site.close()


@pytest.fixture(scope="module")
def still(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pages]:
    """Pages of a store that nobody changes, shared by the tests of a module."""
    site = app(fill(Shelf(tmp_path_factory.mktemp("still") / "store")).index())
    yield Pages(site)
    site.close()
