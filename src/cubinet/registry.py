"""Adapters by name: our own at once, others through entry points when they are asked for."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from cubinet._fs import Fs
from cubinet.config import Settings
from cubinet.errors import PluginError
from cubinet.observations import Contents
from cubinet.protocols import Compiler, Loader, Remote

__all__ = ["BUILT_IN", "Workshop", "compiler", "loader", "plugins", "remote"]

BUILT_IN: Mapping[str, Mapping[str, str]] = {
    "cubinet.compilers": {
        "bisheng": "cubinet.compilers.bisheng:BishengCompiler",
        "nvcc": "cubinet.compilers.nvcc:NvccCompiler",
        "nvrtc": "cubinet.compilers.nvrtc:NvrtcCompiler",
    },
    "cubinet.loaders": {
        "ascend": "cubinet.loaders.ascend:AscendLoader",
        "cuda": "cubinet.loaders.cuda:CudaLoader",
    },
    "cubinet.remotes": {
        "file": "cubinet.remotes.file:FileRemote",
        "fsspec": "cubinet.remotes.fsspec:FsspecRemote",
        "http": "cubinet.remotes.http:HttpRemote",
        "https": "cubinet.remotes.http:HttpRemote",
        "memory": "cubinet.remotes.fsspec:FsspecRemote",
        "s3": "cubinet.remotes.s3:S3Remote",
        "s3-obstore": "cubinet.remotes.obstore:ObstoreRemote",
    },
}
"""What this distribution declares as entry points; a test holds the two together."""


@dataclass(frozen=True, slots=True)
class Workshop:
    """What a compiler adapter is given.

    Attributes:
        settings: the store's.
        environ: the caller's environment, to look for compilers and their variables in.
        folder: where it may keep what it built or learned (the recorder, what identifies a
            toolchain), or `None` if there is no safe place; only the owner can write it.
        fs: the seam for file changes.
        contents: digests of files, shared with the store's checks.
    """

    settings: Settings
    environ: Mapping[str, str]
    folder: str | None
    fs: Fs = field(default_factory=Fs)
    contents: Contents = field(default_factory=Contents)


def plugins(group: str) -> dict[str, tuple[str, str]]:
    """Installed entry points of a group: name → (target, distribution). Imports none of them."""
    from importlib.metadata import entry_points

    found = {name: (target, "cubinet") for name, target in BUILT_IN.get(group, {}).items()}
    for point in entry_points(group=group):
        found.setdefault(point.name, (point.value, point.dist.name if point.dist else "?"))
    return found


def _load(group: str, name: str) -> Any:
    target, owner = BUILT_IN[group].get(name, ""), "cubinet"
    if not target:
        known = plugins(group)
        if name not in known:
            raise PluginError("use", f"{name!r}", f"no entry point of that name in {group}", f"known: {sorted(known)}")
        target, owner = known[name]
    module, _, attribute = target.partition(":")
    try:
        return getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as exc:
        raise PluginError("load", f"{name!r} of {group}", f"{target} from {owner}: {exc}") from exc


def compiler(name: str, workshop: Workshop) -> Compiler:
    """Make the compiler adapter with this name. Raises `PluginError`."""
    made: Compiler = _load("cubinet.compilers", name)(workshop)
    return made


_loaders: dict[str, Loader] = {}


def loader(vendor: str) -> Loader:
    """The loader for a vendor's artifacts: one for the process, which knows what is loaded. Raises `PluginError`."""
    found = _loaders.get(vendor)
    if found is None:
        found = _loaders.setdefault(vendor, _load("cubinet.loaders", vendor)())
    return found


def remote(scheme: str, url: str, options: Mapping[str, Any]) -> Remote:
    """Make the remote adapter for a URL scheme; one that nobody declares goes through fsspec.

    Raises `PluginError`, `ConfigError`.
    """
    known = scheme in BUILT_IN["cubinet.remotes"] or scheme in plugins("cubinet.remotes")
    made: Remote = _load("cubinet.remotes", scheme if known else "fsspec")(url, options)
    return made
