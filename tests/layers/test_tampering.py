"""What was tampered with in a layer is refused, told of, healed by compiling, and replaced by the next upload.

The same for a shared folder, a folder as a remote, and S3. Hosts sign with keys that all of them trust.
"""

from __future__ import annotations

import json
import logging
import os
import re
import shutil
import time
import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
from blake3 import blake3
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cubinet.errors import CubinetError, FormatError, TrustError
from cubinet.events import Counters
from cubinet.fingerprint import fingerprint_of
from cubinet.model import Action, Artifact, Digest, Fingerprint, Status
from cubinet.protocols import Object
from cubinet.remotes.file import FileRemote
from cubinet.store import Store
from cubinet.store.envelope import OBJECT_LIMIT, squeeze
from cubinet.store.format import decode_record, encode_manifest, record_fields, seal_record
from cubinet.store.guard import Guard
from cubinet.store.keys import PrivateKey, new_private
from cubinet.store.remote import RemoteLayer
from cubinet.store.trust import sign
from cubinet.testing.bench import Bench

EVIL = b"evil bytes that no loader may see\n"
ROOM = 200 << 20
PLAIN = re.compile(r"[a-z]+(?:\.sqlite3(?:-[a-z]+)?)?|VERSION|CACHEDIR\.TAG")
HEX = re.compile(r"[0-9a-f]{2}|[0-9a-f]{64}(?:\.json)?")


@dataclass
class Yard:
    """A place that several hosts write, and ways to change what is in it."""

    kind: str
    top: Path
    layers: str
    client: Any = None
    bucket: str = ""
    prefix: str = ""
    keys: dict[str, PrivateKey] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("one", "two", "rogue"):
            self.keys[name] = key = new_private(name)
            path = self.top / f"{name}.key"
            path.write_bytes(key.file_bytes())
            path.chmod(0o600)
        (self.top / "trusted").write_text(f"{self.keys['one'].public}\n{self.keys['two'].public}\n")
        (self.top / "trusted").chmod(0o644)

    def host(self, name: str, key: str = "one", revoked: str = "", **more: Any) -> tuple[Bench, Store]:
        """A host with folders of its own."""
        (self.top / name).mkdir()
        bench = Bench.at(self.top / name)
        if revoked:
            (self.top / "revoked").write_text(revoked + "\n")
            (self.top / "revoked").chmod(0o644)
            more["revoked"] = str(self.top / "revoked")
        more = {"layers": self.layers, "drain": 20.0, "trusted_keys": str(self.top / "trusted"), **more}
        return bench, bench.store(sign_key=str(self.top / f"{key}.key") if key else "", **more)

    # what is there, past all layers

    def _path(self, kind: str, name: str) -> Path:
        if self.kind == "shared":
            return self.top / "yard" / kind / name[:2] / (name if kind == "blobs" else f"{name}.json")
        return self.top / "yard" / "v1" / kind / name[:2] / name

    def names(self, kind: str) -> list[str]:
        """Hex names, sorted."""
        if self.client:
            found = self.client.list_objects_v2(Bucket=self.bucket, Prefix=f"{self.prefix}/v1/{kind}/")
            return sorted(item["Key"].rpartition("/")[2] for item in found.get("Contents", ()))
        return sorted(p.name.partition(".")[0] for p in self._path(kind, "xx").parents[1].glob("*/*"))

    def read(self, kind: str, name: str) -> bytes:
        if self.client:
            key = f"{self.prefix}/v1/{kind}/{name[:2]}/{name}"
            return bytes(self.client.get_object(Bucket=self.bucket, Key=key)["Body"].read())
        return self._path(kind, name).read_bytes()

    def write(self, kind: str, name: str, data: bytes) -> None:
        if self.client:
            self.client.put_object(Bucket=self.bucket, Key=f"{self.prefix}/v1/{kind}/{name[:2]}/{name}", Body=data)
            return
        path = self._path(kind, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        path.write_bytes(data)

    def line(self, kind: str, name: str) -> bytes:
        """The sealed line of a record or manifest."""
        data = self.read(kind, name)
        return data[: data.index(b"\n") + 1]

    def change_line(self, kind: str, name: str, change: Callable[[bytes], bytes]) -> None:
        """Put another line before what follows it."""
        data = self.read(kind, name)
        end = data.index(b"\n") + 1
        self.write(kind, name, change(data[:end]) + data[end:])

    def change_body(self, name: str, blobs: list[tuple[str, bytes]], kind: str = "records") -> None:
        """Put other blobs behind a line, under these digests."""
        frame = squeeze(b"".join(data for _, data in blobs))
        table = {"blobs": [(digest, len(data)) for digest, data in blobs], "format": 1, "stored": len(frame)}
        self.write(kind, name, self.line(kind, name) + msgspec.json.encode(table) + b"\n" + frame)


def yard_of(kind: str, request: pytest.FixtureRequest, top: Path) -> Yard:
    if kind == "s3":
        server, place = request.getfixturevalue("s3_server"), request.getfixturevalue("place")
        options = "&".join(f"{name}={value}" for name, value in server.options().items())
        bucket, _, prefix = place.partition("/")
        return Yard(kind, top, f"s3://{place}?budget=20&trust=signed&{options}", server.client(), bucket, prefix)
    (top / "yard").mkdir(exist_ok=True)
    text = f"{top}/yard?rw" if kind == "shared" else f"file://{top}/yard?rw"
    return Yard(kind, top, f"{text}&trust=signed&budget=20")


def filled(kind: str, request: pytest.FixtureRequest, top: Path) -> Yard:
    """A place with a build in it."""
    made = yard_of(kind, request, top)
    bench, store = made.host("maker")
    with store:
        store.get_or_compile(bench.variant())
    assert store.stats()[f"upload.{made.kind}"] == 1
    return made


@pytest.fixture(params=["shared", "file", "s3"])
def any_yard(request: pytest.FixtureRequest, tmp_path: Path) -> Yard:
    """Each kind of place."""
    return filled(request.param, request, tmp_path)


@pytest.fixture(params=["shared", "file"])
def yard(request: pytest.FixtureRequest, tmp_path: Path) -> Yard:
    """The kinds of place that are quick."""
    return filled(request.param, request, tmp_path)


@pytest.fixture
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Yard:
    """A folder as a remote."""
    return filled("file", request, tmp_path)


def facts(artifact: Artifact | None) -> tuple[object, ...]:
    return (artifact.data, artifact.status, artifact.layer) if artifact else ()


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.getMessage() for r in caplog.records if r.name == "cubinet.store" and r.levelno >= logging.WARNING]


def check(yard: Yard, caplog: pytest.LogCaptureFixture, cause: str = "", *, heals: bool = True, told: bool = True,
          revoked: str = "", key: str = "two") -> None:  # fmt: skip
    """A host that meets it compiles and says so; after its upload the next host has a hit."""
    caplog.clear()
    bench, store = yard.host("victim", key, revoked)
    with store:
        built = store.get_or_compile(bench.variant())
    assert facts(built) == (bench.expected(), Status.COMPILED, "local")
    assert EVIL not in b"".join(path.read_bytes() for path in bench.files("blobs", "records"))
    stats = store.stats()
    if told:
        assert stats.get("error.read", 0) + stats.get(f"refused.{yard.kind}", 0) >= 1, stats
        assert len(said(caplog)) == 1, said(caplog)
        assert cause in said(caplog)[0]
        assert yard.layers.partition("?")[0] in said(caplog)[0]
    assert bench.store().verify().clean
    assert not stray(yard.top / "victim")
    if heals:
        other, again = yard.host("after", key, revoked)
        assert facts(again.find(other.variant())) == (other.expected(), Status.HIT, yard.kind)
        assert other.runs == 0
    elif told:
        strict, angry = yard.host("strict", key, revoked, strict=True)
        with pytest.raises((TrustError, FormatError)):
            angry.find(strict.variant())


def stray(top: Path) -> list[Path]:
    """Files of a host's folder that no part of Cubinet would have named so."""
    found = [path for path in top.iterdir() if path.name not in ("first", "second", "store", "runs")]
    found += [path for path in (top / "store").iterdir() if not PLAIN.fullmatch(path.name)]
    for kind in ("records", "blobs", "manifests"):
        found += [path for path in (top / "store" / kind).rglob("*") if not HEX.fullmatch(path.name)]
    return found


# --- records


def reseal(**changes: Any) -> Callable[[bytes], bytes]:
    return lambda line: seal_record({**record_fields(line), **changes})


def _instead(new: bytes, _line: bytes) -> bytes:
    return new


def flipped(line: bytes) -> bytes:
    at = line.index(b'"created":"') + 12
    return line[:at] + bytes([line[at] ^ 1]) + line[at + 1 :]


def unsigned(line: bytes) -> bytes:
    return seal_record({name: value for name, value in record_fields(line).items() if name != "signatures"})


def test_a_flipped_bit(any_yard: Yard, caplog: pytest.LogCaptureFixture) -> None:
    yard = any_yard
    yard.change_line("records", yard.names("records")[0], flipped)
    check(yard, caplog, "check sum")


@pytest.mark.parametrize(
    "changes",
    [
        {"created": "1970-01-01T00:00:00Z"},
        {"producer": "somebody else"},
        {"local_only": "no"},
        {"names": {"a": "b"}},
        {"from_the_future": [1, 2, 3]},
        {"compile": {"argv": ["../../x"], "host": "x", "seconds": 0}},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_a_record_that_was_changed_and_sealed_again(
    folder: Yard, caplog: pytest.LogCaptureFixture, changes: dict[str, Any]
) -> None:
    folder.change_line("records", folder.names("records")[0], reseal(**changes))
    check(folder, caplog, "changed after it was signed")


def test_a_record_that_names_other_bytes(any_yard: Yard, caplog: pytest.LogCaptureFixture) -> None:
    yard = any_yard
    name, evil = yard.names("records")[0], blake3(EVIL).hexdigest()
    blobs = json.loads(yard.line("records", name))["blobs"]
    blobs["cubin"] = {"digest": f"blake3:{evil}", "size": len(EVIL)}
    yard.change_line("records", name, reseal(blobs=blobs))
    if yard.kind == "shared":
        yard.write("blobs", evil, EVIL)
    else:
        yard.change_body(name, [(evil, EVIL)])
    check(yard, caplog, "changed after it was signed")


def test_a_record_under_another_fingerprint(yard: Yard, caplog: pytest.LogCaptureFixture) -> None:
    (right,) = yard.names("records")
    bench, store = yard.host("second-maker")
    with store:
        store.get_or_compile(bench.variant("kernel other\n"))
    (other,) = set(yard.names("records")) - {right}
    yard.write("records", right, yard.read("records", other))
    check(yard, caplog, "it is the record of")


def test_an_unsigned_record(any_yard: Yard, caplog: pytest.LogCaptureFixture) -> None:
    any_yard.change_line("records", any_yard.names("records")[0], unsigned)
    check(any_yard, caplog, "nobody signed it")


@pytest.mark.parametrize("how", ["wrong key", "signature of another record", "no base64"])
def test_a_record_that_nobody_trusted_signed(yard: Yard, how: str, caplog: pytest.LogCaptureFixture) -> None:
    name = yard.names("records")[0]
    if how == "signature of another record":
        bench, store = yard.host("second-maker")
        with store:
            store.get_or_compile(bench.variant("kernel other\n"))
        (other,) = set(yard.names("records")) - {name}
        theirs = json.loads(yard.line("records", other))["signatures"]
        yard.change_line("records", name, reseal(signatures=theirs))
    elif how == "no base64":
        yard.change_line("records", name, reseal(signatures=[{"key": yard.keys["one"].id, "sig": "%%%"}]))
    else:
        yard.change_line("records", name, unsigned)
        yard.change_line("records", name, lambda line: sign(line, yard.keys["rogue"]))
    check(yard, caplog, "not trusted" if how == "wrong key" else "changed after it was signed")


def test_a_key_that_has_the_name_of_another(folder: Yard, caplog: pytest.LogCaptureFixture) -> None:
    name, rogue = folder.names("records")[0], folder.keys["rogue"]
    folder.change_line("records", name, lambda line: sign(unsigned(line), rogue))
    forged = json.loads(folder.line("records", name))["signatures"]
    forged[0]["key"] = folder.keys["one"].id
    folder.change_line("records", name, reseal(signatures=forged))
    check(folder, caplog, "changed after it was signed")


def test_a_signature_that_is_good_among_many_that_are_not(folder: Yard) -> None:
    name = folder.names("records")[0]
    good = json.loads(folder.line("records", name))["signatures"]
    noise = [{"key": f"ed25519:{n:016x}", "sig": "x" * 88} for n in range(60)]
    folder.change_line("records", name, reseal(signatures=[*noise, *good]))
    bench, store = folder.host("reader")
    assert facts(store.find(bench.variant())) == (bench.expected(), Status.HIT, "file")


@pytest.mark.parametrize(
    "signatures", [[{"key": "k", "sig": "s"}] * 65, "x", {"a": 1}, [[]], [{"key": 1, "sig": 2}], None]
)
def test_signatures_of_no_kind(folder: Yard, signatures: object, caplog: pytest.LogCaptureFixture) -> None:
    folder.change_line("records", folder.names("records")[0], reseal(signatures=signatures))
    check(folder, caplog)


@pytest.mark.parametrize("what", ["key", "producer", "fingerprint", "blob"])
def test_what_is_revoked_stays_out(yard: Yard, what: str, caplog: pytest.LogCaptureFixture) -> None:
    found = json.loads(yard.line("records", yard.names("records")[0]))
    entry = {
        "key": yard.keys["one"].id, "producer": f"producer {found['producer']}", "fingerprint": found["fingerprint"],
        "blob": found["blobs"]["cubin"]["digest"],
    }[what]  # fmt: skip
    check(yard, caplog, "revoked", heals=what == "key", revoked=entry)


# --- blobs


def test_a_changed_blob(any_yard: Yard, caplog: pytest.LogCaptureFixture) -> None:
    yard = any_yard
    name = yard.names("records")[0]
    blobs = json.loads(yard.line("records", name))["blobs"]
    main = blobs["cubin"]["digest"].removeprefix("blake3:")
    if yard.kind == "shared":
        yard.write("blobs", main, EVIL)
    else:
        yard.change_body(name, [(main, EVIL)])
    check(yard, caplog, "digest")


def test_all_blobs_changed_one_by_one(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    """In a shared folder, where each is a file."""
    yard = filled("shared", request, tmp_path)
    for number, name in enumerate(yard.names("blobs")):
        whole = yard.read("blobs", name)
        yard.write("blobs", name, EVIL)
        host, victim = yard.host(f"victim{number}")
        with victim:
            assert victim.get_or_compile(host.variant()).data == host.expected()
        assert EVIL not in b"".join(path.read_bytes() for path in host.files("blobs"))
        if name in yard.names("blobs"):  # moved away, if it is not needed for a hit
            assert yard.read("blobs", name) == whole
        yard.write("blobs", name, whole)


def test_large_blobs_are_objects_of_their_own(folder: Yard, caplog: pytest.LogCaptureFixture) -> None:
    source = "x" * 400_000 + "\nkernel large\n"
    bench, store = folder.host("large")
    with store:
        made = store.get_or_compile(bench.variant(source))
    names = folder.names("blobs")
    assert len(names) >= 1
    for number, data in enumerate((EVIL, b"", squeeze(EVIL), squeeze(bytes(OBJECT_LIMIT)), bytes(3 << 20))):
        caplog.clear()
        for name in names:
            folder.write("blobs", name, data)
        host, victim = folder.host(f"victim{number}")
        with victim:
            assert facts(victim.get_or_compile(host.variant(source))) == (made.data, Status.COMPILED, "local")
        assert victim.stats()["error.read"] == 1
        assert len(said(caplog)) == 1
        host, after = folder.host(f"after{number}")
        assert facts(after.find(host.variant(source))) == (made.data, Status.HIT, "file")


def _rle_frame(says: int, window: int, blocks: int) -> bytes:
    head = b"\x28\xb5\x2f\xfd\xc0" + bytes([(window - 10) << 3]) + says.to_bytes(8, "little")
    return (
        head
        + ((128 << 10) << 3 | 2).to_bytes(3, "little")
        + b"\0"
        + ((((128 << 10) << 3 | 2).to_bytes(3, "little") + b"\0") * blocks + (1 << 3 | 3).to_bytes(3, "little") + b"\0")
    )


@pytest.mark.parametrize("bomb", ["says 64 GiB", "holds more", "huge window", "many entries", "too large"])
def test_a_bomb_behind_a_good_record(folder: Yard, bomb: str, caplog: pytest.LogCaptureFixture) -> None:
    name = folder.names("records")[0]
    line = folder.line("records", name)
    main = json.loads(line)["blobs"]["cubin"]["digest"].removeprefix("blake3:")
    entries: list[tuple[str, int]] = [(main, 1000)]
    frame = _rle_frame(1000, 27, 50_000)
    if bomb == "says 64 GiB":
        entries, frame = [(main, 64 << 30)], _rle_frame(64 << 30, 20, 10)
    elif bomb == "huge window":
        frame = _rle_frame(1000, 40, 0)
    elif bomb == "many entries":
        entries, frame = [(blake3(b"").hexdigest(), 0)] * 500_000, squeeze(b"")
    data = line + msgspec.json.encode({"blobs": entries, "format": 1, "stored": len(frame)}) + b"\n" + frame
    if bomb == "too large":
        folder._path("records", name).unlink()
        folder.write("records", name, b"")
        os.truncate(folder._path("records", name), OBJECT_LIMIT + 1)
    else:
        folder.write("records", name, data)
    tracemalloc.start()
    try:
        check(folder, caplog)
        assert tracemalloc.get_traced_memory()[1] < ROOM
    finally:
        tracemalloc.stop()


# --- manifests and observation sets


def _foreign() -> tuple[Digest, ...]:
    return tuple(Digest(f"{n:064x}") for n in range(16))


def _sealed(of: Action, **fields: Any) -> bytes:
    return seal_record({"action": of.hex, "candidates": [], "format": 1, **fields})


MANIFESTS: dict[str, Callable[[Action], bytes]] = {
    "empty": lambda _: b"",
    "garbage": lambda _: os.urandom(1000) + b"\n",
    "another action's": lambda _: encode_manifest(Action("ab" * 32), _foreign()),
    "foreign sets": lambda action: encode_manifest(action, _foreign()),
    "path-like names": lambda action: _sealed(action, candidates=["../../../../etc/passwd"] * 3),
    "path-like action": lambda action: _sealed(action, action="../../../../etc/passwd"),
    "many candidates": lambda action: _sealed(action, candidates=[f"{n:064x}" for n in range(100_000)]),
    "a million candidates": lambda action: _sealed(action, candidates=[f"{n:064x}" for n in range(1_000_000)]),
    "nested": lambda action: _sealed(action, candidates=json.loads("[" * 500 + "]" * 500)),
    "numbers": lambda action: _sealed(action, candidates=list(range(100))),
}


@pytest.mark.parametrize("how", list(MANIFESTS))
@pytest.mark.parametrize("kind", ["shared", "file"])
def test_a_manifest_that_lies(
    kind: str, how: str, request: pytest.FixtureRequest, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    yard = filled(kind, request, tmp_path)
    (name,) = yard.names("manifests")
    data = MANIFESTS[how](Action(name))
    if kind == "file" and data:
        frame = squeeze(b"")
        data += msgspec.json.encode({"blobs": [], "format": 1, "stored": len(frame)}) + b"\n" + frame
    yard.write("manifests", name, data)
    whole = how in ("foreign sets", "many candidates") or (kind == "shared" and how == "a million candidates")
    quiet = whole or (kind == "shared" and how == "another action's")
    start = time.monotonic()
    check(yard, caplog, told=not quiet)
    assert time.monotonic() - start < 20


ABSURD = [
    b"",
    b"cubinet-observations 1\n",
    b"cubinet-observations 1",
    b"cubinet-observations 2\nread " + b"0" * 64 + b" second:a.h\n",
    b"read",
    b"\xff\xfe\x00",
    *(
        b"cubinet-observations 1\n" + line + b"\n"
        for line in (
            b"read " + b"0" * 64 + b" second:../../../../../../../../etc/passwd",
            b"read " + b"0" * 64 + b" file:/etc/passwd",
            b"read " + b"0" * 64 + b" file:/dev/zero",
            b"read " + b"0" * 64 + b" file:/dev/stdin",
            b"read " + b"0" * 64 + b" file:/dev/tty",
            b"read " + b"0" * 64 + b" file:PIPE",
            b"read " + b"0" * 64 + b" file:/proc/self/mem",
            b"read - second:a.h",
            b"tree " + b"0" * 64 + b" file:/dev",
            b"tree " + b"0" * 64 + b" file:PIPES",
            b"time " + b"0" * 64 + b" file:/dev/zero",
            b"time - file:PIPE",
            b"present - file:%00",
            b"absent - second:%00",
            b"absent - " + b"x/" * 5000,
            b"absent - second:" + b"x/" * 5000,
            b"absent - second:" + b"x" * 5000,
            b"present - nolabel:a.h",
            b"present - :",
            b"present -  ",
            b"absent - \xff\xfe:\xff",
            b"eaten - second:a.h",
            b"read xyz second:a.h",
        )
    ),
    b"cubinet-observations 1\n"
    + b"".join(b"absent - second:%d\n" % n for n in range(100_000))
    + b"present - second:z\n",
]


@pytest.mark.parametrize("number", range(len(ABSURD)))
def test_an_observation_set_that_lies(folder: Yard, number: int, caplog: pytest.LogCaptureFixture) -> None:
    """It may cost a look at some files. It opens no pipe or device, and raises nothing."""
    pipes = folder.top / "pipes"
    pipes.mkdir()
    os.mkfifo(pipes / "pipe")
    data = ABSURD[number].replace(b"PIPES", str(pipes).encode()).replace(b"PIPE", str(pipes / "pipe").encode())
    (name,) = folder.names("manifests")
    digest = Digest(blake3(data).hexdigest())
    folder.change_line("manifests", name, lambda _: encode_manifest(Action(name), (digest,)))
    folder.change_body(name, [(digest.hex, data)], "manifests")
    start = time.monotonic()
    check(folder, caplog, told=False)
    assert time.monotonic() - start < 20


# --- names that are paths, in records that a trusted key has signed


NAMES = ("../../../../x", "/etc/cron.d/x", "..", "a/../../b", "x\0y", "C:\\x", "~/x", "%2e%2e/x", "")


@pytest.mark.parametrize("name", NAMES, ids=ascii)
def test_a_name_is_never_a_path(folder: Yard, name: str, tmp_path: Path) -> None:
    fingerprint = folder.names("records")[0]
    whole = folder.read("records", fingerprint)
    line = folder.line("records", fingerprint)
    fields = json.loads(line)
    main = fields["blobs"]["cubin"]
    changed: list[dict[str, Any]] = [
        {"fingerprint": name}, {"action": name}, {"observations_digest": name}, {"producer": name}, {"created": name},
        {"blobs": {**fields["blobs"], name: main}},
        {"blobs": {**fields["blobs"], "cubin": {"digest": name, "size": 1}}},
        {"blobs": {name: main}, "variant": {**fields["variant"], "kind": name}},
        {"variant": {**fields["variant"], "name": name, "family": name, "entries": [name], "labels": {name: name}}},
        {"variant": {**fields["variant"], "target": name}},
        {"toolchain": {**fields["toolchain"], "name": name, "version": name}},
        {"toolchain": {**fields["toolchain"], "identity": name}},
        {"toolchain": {**fields["toolchain"], "programs": {name: fields["toolchain"]["identity"]}}},
        {"kernels": [{"name": name, "symbol": name}]},
        {"names": {name: name}}, {"parts": {name: name}}, {"observations": {name: 1}},
        {"compile": {"argv": [name], "host": name, "seconds": 1}},
    ]  # fmt: skip
    before = sorted(path for path in tmp_path.iterdir())
    for changes in changed:
        folder.write("records", fingerprint, whole)
        signed = sign(reseal(**changes)(unsigned(line)), folder.keys["one"])
        folder.change_line("records", fingerprint, partial(_instead, signed))
        bench, store = folder.host("reader")
        with store:
            found = store.get_or_compile(bench.variant())
            assert found.data == bench.expected(), changes
            assert found.read(name or "nothing") in (None, b"", found.data), changes
            list(store.records())
        assert store.verify().clean, changes
        assert not stray(bench.top), changes
        shutil.rmtree(bench.top)
    assert sorted(path for path in tmp_path.iterdir()) == before


def test_a_record_without_a_blob_of_its_kind_is_no_hit(yard: Yard, caplog: pytest.LogCaptureFixture) -> None:
    name = yard.names("records")[0]
    blobs = json.loads(yard.line("records", name))["blobs"]
    del blobs["cubin"]
    yard.change_line("records", name, lambda line: sign(reseal(blobs=blobs)(unsigned(line)), yard.keys["one"]))
    check(yard, caplog, "no blob of its kind", heals=False)


@pytest.mark.parametrize("size", [-1, 0, 1, 1 << 40, 64 << 30, 1 << 62])
def test_a_size_that_lies_is_no_hit(yard: Yard, size: int, caplog: pytest.LogCaptureFixture) -> None:
    name = yard.names("records")[0]
    blobs = json.loads(yard.line("records", name))["blobs"]
    blobs["cubin"]["size"] = size
    yard.change_line("records", name, lambda line: sign(reseal(blobs=blobs)(unsigned(line)), yard.keys["one"]))
    healed = yard.kind == "file" and size == -1
    check(yard, caplog, heals=healed, told=yard.kind == "shared" or not 0 <= size <= 2 << 30)


# --- anything


@dataclass
class Memory:
    """A remote of objects in memory, for thousands of changed ones."""

    objects: dict[str, bytes]
    url: str = "memory://x"
    read_only: bool = True
    conditional: bool | None = True

    def prepare(self) -> None: ...

    def get(self, name: str, *, timeout: float, limit: int | None = None) -> Object | None:
        data = self.objects.get(name)
        return Object(data) if data is not None else None

    def close(self) -> None: ...


def mutated(draw: st.DataObject, whole: bytes) -> bytes:
    data = bytearray(whole)
    for _ in range(draw.draw(st.integers(1, 3))):
        at = draw.draw(st.integers(0, len(data)))
        size = draw.draw(st.integers(1, 60))
        match draw.draw(st.sampled_from(("flip", "cut", "double", "insert", "end", "twice"))):
            case "flip" if at < len(data):
                data[at] ^= 1 << draw.draw(st.integers(0, 7))
            case "cut":
                del data[at : at + size]
            case "double":
                data[at:at] = bytes(data[at : at + size])
            case "insert":
                data[at:at] = draw.draw(st.binary(min_size=1, max_size=12))
            case "end":
                del data[at:]
            case _:
                data += bytes(data)
    return bytes(data)


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> tuple[Bench, dict[str, bytes], Fingerprint, Action]:
    """The objects of one build."""
    top = tmp_path_factory.mktemp("sample")
    (top / "bucket").mkdir()
    bench = Bench.at(top)
    with bench.store(layers=f"file://{top}/bucket?trust=open") as store:
        made = store.get_or_compile(bench.variant())
    remote = FileRemote(f"file://{top}/bucket")
    objects = {}
    for entry in remote.scan("v1/", timeout=10):
        found = remote.get(entry.name, timeout=10)
        assert found is not None
        objects[entry.name] = found.data
    return bench, objects, made.fingerprint, made.record.action


@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(st.data())
def test_a_mutated_object_is_a_miss_or_the_same(
    sample: tuple[Bench, dict[str, bytes], Fingerprint, Action], data: st.DataObject
) -> None:
    bench, objects, fingerprint, action = sample
    name = data.draw(st.sampled_from(sorted(objects)))
    layer = RemoteLayer(Memory({**objects, name: mutated(data, objects[name])}))  # type: ignore[arg-type]
    guard = Guard("x", "memory://x", Counters(), lambda _text, _about: None, strict=False, budget=20.0)
    guard.begin(layer.prepare)
    nothing: list[tuple[Digest, bytes | None]] = []
    candidates, _ = guard.attempt("read", partial(layer.candidates, action), nothing)
    for digest, observed in candidates:
        if observed is not None:
            assert blake3(observed).hexdigest() == digest.hex
    found, _ = guard.attempt("read", lambda timeout: layer.fetch(fingerprint, timeout=timeout), None)
    if found is not None:
        assert found.record.fingerprint == fingerprint
        assert fingerprint_of(found.record.action, found.record.observations) == fingerprint
        ref = found.record.blob(found.record.kind)
        assert ref is not None
        assert found.blobs[ref.digest] == bench.expected()
        assert all(blake3(blob).hexdigest() == digest.hex for digest, blob in found.blobs.items())
    assert layer.find(fingerprint) is None or found is not None


@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(st.data())
def test_a_record_with_other_values_raises_nothing_else(
    sample: tuple[Bench, dict[str, bytes], Fingerprint, Action], data: st.DataObject
) -> None:
    _, objects, fingerprint, _ = sample
    name = next(name for name in objects if "/records/" in name)
    whole = objects[name]
    end = whole.index(b"\n") + 1
    fields = json.loads(whole[:end])
    del fields["_check"]
    values = st.recursive(
        st.none() | st.booleans() | st.integers(-(1 << 66), 1 << 66) | st.text(max_size=8) | st.floats(allow_nan=False),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
        max_leaves=6,
    )
    where: Any = fields
    while True:
        key = data.draw(st.sampled_from(sorted(where) if isinstance(where, dict) else list(range(len(where)))))
        if isinstance(where[key], dict | list) and where[key] and data.draw(st.booleans()):
            where = where[key]
            continue
        where[key] = data.draw(values)
        break
    try:
        line = seal_record(fields)
    except (FormatError, msgspec.MsgspecError, OverflowError, ValueError):
        return
    layer = RemoteLayer(Memory({**objects, name: line + whole[end:]}))  # type: ignore[arg-type]
    try:
        found = layer.fetch(fingerprint, timeout=5.0)
    except CubinetError:
        return
    if found is not None:
        assert decode_record(line).fingerprint == fingerprint
        assert all(blake3(blob).hexdigest() == digest.hex for digest, blob in found.blobs.items())
