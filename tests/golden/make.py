"""Write what must never change: key vectors (`keys.json`) and a small store (`store-v1`).

Run it from the repository's root after adding vectors: `python tests/golden/make.py`. It only ever adds. A vector
that would change is an error: give its context string or format a new version instead, and keep the old vectors.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from cubinet.config import Settings
from cubinet.fingerprint import (
    ACTION_CONTEXT,
    FINGERPRINT_CONTEXT,
    PART_CONTEXT,
    action_of,
    action_parts,
    digest_of,
    encode,
    fingerprint_of,
    observations_bytes,
    part_digests,
)
from cubinet.model import Action, Artifact, Digest, Observation, Root, Seen, Target, Toolchain, Variant
from cubinet.observations import Contents, tree_digest
from cubinet.protocols import Request
from cubinet.store import Store
from cubinet.store.format import FORMAT, decode_record, encode_manifest, encode_record
from cubinet.testing.fake_compiler import FakeCompiler
from cubinet.testing.samples import build

HERE = Path(__file__).parent
KEYS = HERE / "keys.json"
STORE = HERE / "store-v1"
HEADERS = HERE / "headers"

STORED = Variant(
    '#include "golden.h"\n#probe "not_there.h"\nkernel golden\n',
    Target("cuda", "sm_90a"),
    options=("-O3",),
    entries=("golden",),
    roots=(Root("empty", str(HEADERS / "empty")), Root("golden", str(HEADERS))),
    signature=(("dtype", "half"),),
    compiler="fake",
    family="golden",
    name="golden",
    labels=(("made", "once"),),
)
"""The variant that `store-v1` has."""


@dataclass(frozen=True, slots=True)
class Vector:
    """An input in JSON, the version it was computed under, and what came out."""

    what: str
    version: str
    given: Any
    gives: str


REQUESTS: list[dict[str, Any]] = [
    {"source": "extern void k();\n", "target": "cuda:sm_90a"},
    {"source": "extern void k();\n", "target": "cuda:sm_90"},
    {"source": "x\udcff\u00e9\U0001f600", "target": "cuda:compute_80", "kind": "ptx"},
    {
        "source": "k",
        "target": "ascend:dav-2201",
        "kind": "fatbin",
        "compiler": "other",
        "source_name": "own.cpp",
        "entries": ["b<int>", "a", "a"],
        "headers": {"b.h": "text", "a.h": ""},
        "hook": "cutlass:hooks/edit.py",
        "revision": "7",
        "signature": {"z": "1", "a": "", "\u00e9": "\n\0"},
        "arguments": ["-arch=sm_90a", "-DX=a b", "", "-O3"],
        "environment": [["LC_ALL", "C"], ["A", "="]],
        "roots": [["src", "beside"], ["cutlass", "include"], ["cub", "system"], ["q", "quote"]],
        "bound": "cutlass=/home/me",
    },
]
LOOKS: list[list[tuple[str, str, str | None]]] = [
    [],
    [("lib:a.h", "read", digest_of(b"a").hex), ("lib:b.h", "absent", None), ("src:c/", "present", None)],
    [("lib:%\n\0 \udcff", "absent", None), ("root:", "tree", digest_of(b"t").hex), ("lib:%0A", "present", None)],
]
FOLDERS: list[dict[str, str]] = [{}, {"a.h": "a", "sub/b.h": "b", "sub/empty.h": ""}]


def request_of(given: dict[str, Any]) -> Request:
    """A request from its JSON."""
    names = ("kind", "compiler", "source_name", "entries", "headers", "hook", "signature")
    rest: dict[str, Any] = {name: given[name] for name in names if name in given}
    variant = Variant(given["source"], Target.parse(given["target"]), **rest)
    return Request(
        variant,
        Toolchain("golden", "1", digest_of(b"golden toolchain")),
        tuple(given.get("arguments", ())),
        tuple((key, value) for key, value in given.get("environment", ())),
        tuple(Root(label, f"/anywhere/{label}", kind) for label, kind in given.get("roots", ())),
        {},
        bound=given.get("bound", ""),
        revision=given.get("revision", "1"),
    )


def folder_digest(files: dict[str, str]) -> str:
    """The tree digest of a folder with these files."""
    with tempfile.TemporaryDirectory() as top:
        for name, text in files.items():
            Path(top, name).parent.mkdir(exist_ok=True)
            Path(top, name).write_text(text)
        return tree_digest(Contents(), top)


COMPUTE: dict[str, Callable[[Any], str]] = {
    "encoded parts": lambda given: encode((name, bytes.fromhex(value)) for name, value in given).hex(),
    "action of parts": lambda given: action_of([(name, bytes.fromhex(value)) for name, value in given]).hex,
    "action of a request": lambda given: action_of(action_parts(request_of(given))).hex,
    "digests of parts": lambda given: " ".join(digest for _, digest in part_digests(action_parts(request_of(given)))),
    "fingerprint": lambda given: fingerprint_of(Action(given[0]), Digest(given[1])).hex,
    "observations": lambda given: observations_bytes(
        Observation(name, Seen(seen), Digest(digest) if digest else None) for name, seen, digest in given
    ).hex(),
    "folder": folder_digest,
    "record": lambda given: encode_record(decode_record(given.encode())).decode(),  # its file, read and written again
    "manifest": lambda given: encode_manifest(Action(given[0]), tuple(map(Digest, given[1]))).decode(),
}
"""What this release makes of a vector's input, by what the vector is of."""


def vectors() -> Iterator[Vector]:
    """All vectors of this release, computed anew."""

    def made(what: str, version: str, given: Any) -> Vector:
        return Vector(what, version, given, COMPUTE[what](given))

    for short in ([], [["a", b"xyz".hex()]], [["", ""], ["\u00e9", "00"]]):
        yield made("encoded parts", "length-prefixed", short)
    for request in REQUESTS:
        parts = [[name, value.hex()] for name, value in action_parts(request_of(request))]
        yield made("action of parts", ACTION_CONTEXT, parts)
        yield made("action of a request", ACTION_CONTEXT, request)
        yield made("digests of parts", PART_CONTEXT, request)
    yield made("fingerprint", FINGERPRINT_CONTEXT, ["0" * 64, "f" * 64])
    yield made("fingerprint", FINGERPRINT_CONTEXT, [digest_of(b"action").hex, digest_of(b"observations").hex])
    for looks in LOOKS:
        yield made("observations", observations_bytes([]).decode().strip(), [list(look) for look in looks])
    for files in FOLDERS:
        yield made("folder", "cubinet tree v1", files)
    sample = build("golden").record
    yield made("record", f"format {FORMAT}", encode_record(sample).decode())
    yield made("record", f"format {FORMAT}", encode_record(replace(sample, local_only="it is bound")).decode())
    yield made("manifest", f"format {FORMAT}", [sample.action.hex, [digest_of(b"1").hex, digest_of(b"0").hex]])


def load() -> list[Vector]:
    """The vectors in the file."""
    return [Vector(**entry) for entry in json.loads(KEYS.read_text())]


def add_vectors() -> int:
    """Write new vectors; refuse changed ones."""
    known = load() if KEYS.exists() else []
    results = {(v.what, v.version, json.dumps(v.given)): v.gives for v in known}
    for vector in vectors():
        key = (vector.what, vector.version, json.dumps(vector.given))
        if results.setdefault(key, vector.gives) != vector.gives:
            sys.exit(f"{vector.what} changed under {vector.version!r}: give that a new version\n{vector.given}")
    rows = [{"what": w, "version": v, "given": json.loads(g), "gives": out} for (w, v, g), out in results.items()]
    KEYS.write_text("[\n" + ",\n".join(map(json.dumps, rows)) + "\n]\n")
    return len(rows) - len(known)


def make_store() -> None:
    """Compile the stored variant once and keep the folder, without anything of this machine."""
    with tempfile.TemporaryDirectory() as scratch:
        settings = Settings(durable=False)
        made = Store(scratch, settings=settings, environ={}, compilers={"fake": FakeCompiler()}).get_or_compile(STORED)
        facts: dict[str, Any] = {
            "host": "golden",
            "created": "2026-11-29T00:00:00+00:00",
            "seconds": 0.5,
            "producer": "cubinet 0.1.0",
        }
        record = replace(made.record, **facts)
        more = {role: made.read(role) or b"" for role, _ in record.blobs}
        Store(STORE, settings=settings, environ={}).publish(Artifact(record, made.data, _more=more))
    for name in ("tmp", "locks"):
        shutil.rmtree(STORE / name)


if __name__ == "__main__":
    print(f"{add_vectors()} vectors added")  # noqa: T201 - for the person who runs it
    if not STORE.exists():
        make_store()
        print(f"{STORE} made")  # noqa: T201 - the same
