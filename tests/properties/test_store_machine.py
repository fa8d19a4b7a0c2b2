"""A store against a dictionary: whatever is published, damaged, verified and reopened in whatever order."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from cubinet.config import Settings
from cubinet.model import Digest, Fingerprint, Record
from cubinet.store import Store
from cubinet.testing.bench import overwrite
from cubinet.testing.faults import NoSyncFs
from cubinet.testing.samples import Build, build

# Four fingerprints with two objects each; two of the fingerprints have one action; some blobs are shared.
BUILDS = [
    build(text, action="shared" if text in "ab" else None, data=data)
    for text in "abcd"
    for data in (b"an object", f"object of {text}".encode())
]
FINGERPRINTS = sorted({made.fingerprint for made in BUILDS})
DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "bit": lambda data: bytes([data[0] ^ 1]) + data[1:],
    "cut": lambda data: data[:-1],
    "empty": lambda _data: b"",
    "more": lambda data: data + b"x",
}


class StoreMachine(RuleBasedStateMachine):
    """`records` and `blobs` are what is on disk: the build or bytes, or `None` if damaged."""

    @initialize()
    def begin(self) -> None:
        self.top = Path(tempfile.mkdtemp())
        self.records: dict[Fingerprint, Record | None] = {}
        self.blobs: dict[Digest, bytes | None] = {}
        self.reopen()

    def teardown(self) -> None:
        if hasattr(self, "top"):
            shutil.rmtree(self.top)

    def path(self, kind: str, name: str) -> Path:
        return Path(self.store._local.path(kind, name, ".json" if kind == "records" else ""))

    @rule()
    def reopen(self) -> None:
        self.store = Store(self.top / "store", settings=Settings(durable=False), environ={}, fs=NoSyncFs())

    @rule(made=st.sampled_from(BUILDS))
    def publish(self, made: Build) -> None:
        fresh = self.store.publish(made.artifact())
        assert fresh is (self.records.get(made.fingerprint) is None)
        if fresh:
            self.records[made.fingerprint] = made.record
        self.blobs.update(made.blobs)

    @rule(fingerprint=st.sampled_from(FINGERPRINTS))
    def find(self, fingerprint: Fingerprint) -> None:
        found = self.store.find(fingerprint)
        record = self.records.get(fingerprint)
        ref = record.blob("cubin") if record else None
        data = self.blobs.get(ref.digest) if ref else None
        if record is None or data is None:
            assert found is None
            self.records.pop(fingerprint, None)
            if ref is not None and self.blobs.get(ref.digest) is None:
                self.blobs.pop(ref.digest, None)
        else:
            assert found is not None
            assert (found.record, found.data) == (record, data)

    @rule(fingerprint=st.sampled_from(FINGERPRINTS), how=st.sampled_from(sorted(DAMAGE)))
    def damage_a_record(self, fingerprint: Fingerprint, how: str) -> None:
        if self.records.get(fingerprint) is not None:
            path = self.path("records", fingerprint.hex)
            overwrite(path, DAMAGE[how](path.read_bytes()))
            self.records[fingerprint] = None

    @rule(
        made=st.sampled_from(BUILDS),
        role=st.sampled_from(["cubin", "log", "source"]),
        how=st.sampled_from(sorted(DAMAGE)),
    )
    def damage_a_blob(self, made: Build, role: str, how: str) -> None:
        ref = made.record.blob(role)
        if ref is not None and self.blobs.get(ref.digest) is not None:
            path = self.path("blobs", ref.digest.hex)
            overwrite(path, DAMAGE[how](path.read_bytes()))
            self.blobs[ref.digest] = None

    @rule(made=st.sampled_from(BUILDS))
    def lose_a_blob(self, made: Build) -> None:
        self.path("blobs", made.main.digest.hex).unlink(missing_ok=True)
        self.blobs.pop(made.main.digest, None)

    @rule(fingerprint=st.sampled_from(FINGERPRINTS))
    def lose_a_record(self, fingerprint: Fingerprint) -> None:
        self.path("records", fingerprint.hex).unlink(missing_ok=True)
        self.records.pop(fingerprint, None)

    @rule()
    def lose_the_manifests(self) -> None:
        shutil.rmtree(self.top / "store/manifests", ignore_errors=True)

    @rule()
    def verify(self) -> None:
        whole = {
            fingerprint: record
            for fingerprint, record in self.records.items()
            if record and all(self.blobs.get(ref.digest) is not None for _, ref in record.blobs)
        }
        found = self.store.verify()
        assert found.records + sum(record is None for record in self.records.values()) == len(self.records)
        named = {ref.digest for record in self.records.values() if record for _, ref in record.blobs}
        spare = [digest for digest in self.blobs if digest not in named]
        damaged_spare = sum(self.blobs[digest] is None for digest in spare)
        assert len(found.problems) == len(self.records) - len(whole) + damaged_spare
        assert found.spare == len(spare)
        self.records = dict(whole)
        self.blobs = {digest: data for digest, data in self.blobs.items() if data is not None}
        assert self.store.verify().clean

    @rule()
    def list_records(self) -> None:
        listed = {record.fingerprint: record for record in self.store.records()}
        self.records = {fingerprint: record for fingerprint, record in self.records.items() if record is not None}
        assert listed == self.records

    @invariant()
    def nothing_is_left_over(self) -> None:
        if hasattr(self, "top"):
            assert not list(self.top.glob("store/tmp/*"))
            assert not list(self.top.glob("store/locks/*"))


TestStoreMachine = StoreMachine.TestCase
TestStoreMachine.settings = settings(
    max_examples=40, stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck)
)
