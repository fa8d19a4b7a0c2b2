"""What every layer and every compiler must do, as pytest classes: subclass one and give its fixtures.

A difference between implementations is a class attribute, never a skipped test.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pytest

from cubinet.errors import CompileError, ConfigError
from cubinet.fingerprint import action_of, action_parts, digest_of
from cubinet.model import BlobRef, Digest, Fingerprint, Root, Seen, Target, Variant
from cubinet.protocols import Compiled, Compiler, Layer, Request
from cubinet.testing.samples import Build, build, sealed

__all__ = ["CompilerContract", "LayerContract"]

Damage = Callable[[bytes], bytes]

DAMAGES: dict[str, Damage] = {
    "a flipped bit": lambda data: data[:-2] + bytes([data[-2] ^ 1]) + data[-1:],
    "a flipped first bit": lambda data: bytes([data[0] ^ 128]) + data[1:],
    "cut in half": lambda data: data[: len(data) // 2],
    "the last byte missing": lambda data: data[:-1],
    "empty": lambda _data: b"",
    "a byte too many": lambda data: data + b"x",
    "zeros": lambda data: bytes(len(data)),
    "another format": lambda _data: b"\x7fELF is not what was expected here",
    "twice": lambda data: data + data,
}
"""What disks, networks and people do to files."""


class LayerContract:
    """For `cubinet.protocols.Layer`.

    Attributes:
        heals: whether publishing replaces what is damaged.
        moves_away: whether looking at what is damaged moves it out of the way.
    """

    heals: ClassVar[bool] = True
    moves_away: ClassVar[bool] = True

    @pytest.fixture
    def layer(self) -> Layer:
        """An empty layer that can be written."""
        raise NotImplementedError

    def read_raw(self, layer: Layer, kind: str, name: str) -> bytes | None:
        """The bytes under a name, past the layer's own code; `kind` is `records` or `blobs`, `name` 64 hex digits."""
        raise NotImplementedError

    def write_raw(self, layer: Layer, kind: str, name: str, data: bytes) -> None:
        """Put bytes under a name, past the layer's own code."""
        raise NotImplementedError

    # --- what is there

    def test_what_was_published_is_found(self, layer: Layer) -> None:
        made = build()
        assert layer.publish(made.record, made.blobs)
        assert layer.find(made.fingerprint) == made.record
        for _, ref in made.record.blobs:
            assert layer.read(ref) == made.blobs[ref.digest]

    def test_what_nobody_published_is_a_miss(self, layer: Layer) -> None:
        other = build("other")
        for _ in range(2):
            assert layer.find(other.fingerprint) is None
            assert layer.read(other.main) is None
            layer.publish(build().record, build().blobs)

    def test_publishing_again_changes_nothing(self, layer: Layer) -> None:
        made = build()
        layer.publish(made.record, made.blobs)
        before = self.read_raw(layer, "records", made.fingerprint.hex)
        assert not layer.publish(made.record, made.blobs)
        assert self.read_raw(layer, "records", made.fingerprint.hex) == before
        assert layer.find(made.fingerprint) == made.record

    def test_the_first_record_wins(self, layer: Layer) -> None:
        first, second = build(data=b"first"), build(data=b"second")
        assert first.fingerprint == second.fingerprint
        assert layer.publish(first.record, first.blobs)
        assert not layer.publish(second.record, second.blobs)
        assert layer.find(first.fingerprint) == first.record
        assert layer.read(first.main) == b"first"

    def test_builds_may_share_blobs(self, layer: Layer) -> None:
        one, two = build("one", data=b"same"), build("two", data=b"same")
        layer.publish(one.record, one.blobs)
        layer.publish(two.record, two.blobs)
        assert layer.find(one.fingerprint) == one.record
        assert layer.find(two.fingerprint) == two.record
        assert layer.read(one.main) == layer.read(two.main) == b"same"

    def test_blobs_may_be_empty_or_big(self, layer: Layer) -> None:
        for data in (b"", bytes(range(256)) * 40_000):
            made = build(f"{len(data)} bytes", data=data)
            layer.publish(made.record, made.blobs)
            assert layer.read(made.main) == data

    def test_texts_come_back_as_they_were(self, layer: Layer) -> None:
        name = 'ядро <"\\\n\0\U0001f600>'
        made = build(name, family=name, labels=((name, name),), argv=(name,), local_only=name)
        layer.publish(made.record, made.blobs)
        assert layer.find(made.fingerprint) == made.record

    def test_a_closed_layer_keeps_what_it_has(self, layer: Layer) -> None:
        made = build()
        layer.publish(made.record, made.blobs)
        layer.close()
        layer.close()
        assert self.read_raw(layer, "records", made.fingerprint.hex) is not None

    # --- what is wrong

    @pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
    def test_a_damaged_record_is_a_miss_and_publishing_heals_it(self, layer: Layer, damage: Damage) -> None:
        made = self._damaged(layer, "records", damage)
        assert layer.find(made.fingerprint) is None
        assert layer.find(made.fingerprint) is None
        self._heals(layer, made, "records", made.fingerprint.hex)

    @pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
    def test_a_damaged_record_that_nobody_looked_at_is_healed_by_publishing(self, layer: Layer, damage: Damage) -> None:
        made = self._damaged(layer, "records", damage)
        if self.heals:
            assert layer.publish(made.record, made.blobs)
            assert layer.find(made.fingerprint) == made.record

    @pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
    def test_a_damaged_blob_is_a_miss_and_publishing_heals_it(self, layer: Layer, damage: Damage) -> None:
        made = self._damaged(layer, "blobs", damage)
        assert layer.read(made.main) is None
        assert layer.read(made.main) is None
        self._heals(layer, made, "blobs", made.main.digest.hex)

    @pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
    def test_a_damaged_blob_that_nobody_looked_at_is_healed_by_publishing(self, layer: Layer, damage: Damage) -> None:
        made = self._damaged(layer, "blobs", damage)
        if self.heals:
            layer.publish(made.record, made.blobs)
            assert layer.read(made.main) == made.data

    def test_the_record_of_another_build_is_a_miss(self, layer: Layer) -> None:
        made, other = build(), build("other")
        layer.publish(other.record, other.blobs)
        raw = self.read_raw(layer, "records", other.fingerprint.hex)
        assert raw is not None
        self.write_raw(layer, "records", made.fingerprint.hex, raw)
        assert layer.find(made.fingerprint) is None
        self._heals(layer, made, "records", made.fingerprint.hex)

    def test_a_record_whose_parts_do_not_give_its_fingerprint_is_a_miss(self, layer: Layer) -> None:
        made = build()
        layer.publish(made.record, made.blobs)
        fields = self._fields(layer, made)
        for name, value in (("action", build("other").record.action.hex), ("observations_digest", str(digest_of(b"")))):
            self.write_raw(layer, "records", made.fingerprint.hex, sealed(fields | {name: value}))
            assert layer.find(made.fingerprint) is None

    @pytest.mark.parametrize(
        "change",
        [
            {"fingerprint": "../../../../etc/passwd"},
            {"fingerprint": "0" * 64},
            {"blobs": {"cubin": {"digest": "blake3:../../../../etc/passwd", "size": 1}}},
            {"blobs": {"cubin": {"digest": "/etc/passwd", "size": 1}}},
            {"blobs": {"cubin": {"digest": "blake3:" + "g" * 64, "size": 1}}},
            {"blobs": {"cubin": {"digest": "blake3:" + "0" * 64}}},
            {"blobs": []},
            {"variant": None},
            {"kernels": [{}]},
            {"format": 0},
            {"format": "1"},
            {"format": None},
        ],
        ids=str,
    )
    def test_a_record_with_impossible_fields_is_a_miss(self, layer: Layer, change: dict[str, Any]) -> None:
        made = build()
        layer.publish(made.record, made.blobs)
        self.write_raw(layer, "records", made.fingerprint.hex, sealed(self._fields(layer, made) | change))
        assert layer.find(made.fingerprint) is None

    def test_a_record_may_have_fields_of_a_later_release(self, layer: Layer) -> None:
        made = build()
        layer.publish(made.record, made.blobs)
        self.write_raw(layer, "records", made.fingerprint.hex, sealed(self._fields(layer, made) | {"later": [1, {}]}))
        assert layer.find(made.fingerprint) == made.record

    @pytest.mark.parametrize("rest", [{}, {"blobs": "elsewhere"}], ids=["same fields", "other fields"])
    def test_a_record_of_a_newer_format_is_a_miss_and_left_alone(self, layer: Layer, rest: dict[str, Any]) -> None:
        made = build()
        layer.publish(made.record, made.blobs)
        newer = sealed(self._fields(layer, made) | {"format": 2} | rest)
        self.write_raw(layer, "records", made.fingerprint.hex, newer)
        assert layer.find(made.fingerprint) is None
        assert not layer.publish(made.record, made.blobs)
        assert layer.find(made.fingerprint) is None
        assert self.read_raw(layer, "records", made.fingerprint.hex) == newer

    def test_a_blob_of_another_size_than_the_record_says_is_a_miss(self, layer: Layer) -> None:
        made = build()
        layer.publish(made.record, made.blobs)
        for size in (0, made.main.size - 1, made.main.size + 1, 1 << 40):
            assert layer.read(BlobRef(made.main.digest, size)) is None

    @pytest.mark.parametrize("name", ["../../etc/passwd", "/etc/passwd", "..", "", "a\0b", "A" * 64, "ab\n" + "0" * 61])
    def test_no_name_leads_out_of_the_layer(self, layer: Layer, name: str) -> None:
        # The names a layer takes are digests, and a digest is 64 hex digits or no digest.
        assert layer.find(build().fingerprint) is None
        with pytest.raises(ConfigError):
            Fingerprint(name)
        with pytest.raises(ConfigError):
            Digest.parse(name)

    # --- many at once

    def test_eight_threads_may_publish_the_same(self, layer: Layer) -> None:
        made = build(data=bytes(100_000))

        def publish(_: int) -> tuple[bool, bool]:
            fresh = layer.publish(made.record, made.blobs)
            return fresh, layer.find(made.fingerprint) == made.record and layer.read(made.main) == made.data

        with ThreadPoolExecutor(8) as pool:
            done = list(pool.map(publish, range(16)))
        assert [fresh for fresh, _ in done].count(True) == 1
        assert all(whole for _, whole in done)

    def test_readers_never_see_half_of_what_is_being_published(self, layer: Layer) -> None:
        builds = [build(str(i), data=bytes([i]) * 50_000) for i in range(20)]

        def publish() -> None:
            for made in builds:
                layer.publish(made.record, made.blobs)

        with ThreadPoolExecutor(4) as pool:
            writers = [pool.submit(publish) for _ in range(2)]
            while True:
                last = all(writer.done() for writer in writers)
                for made in builds:
                    if layer.find(made.fingerprint) is not None:
                        assert layer.read(made.main) == made.data
                if last:
                    break
            for writer in writers:
                writer.result()
        assert all(layer.find(made.fingerprint) == made.record for made in builds)

    # --- helpers

    def _fields(self, layer: Layer, made: Build) -> dict[str, Any]:
        raw = self.read_raw(layer, "records", made.fingerprint.hex)
        assert raw is not None
        fields: dict[str, Any] = json.loads(raw)
        del fields["_check"]
        return fields

    def _damaged(self, layer: Layer, kind: str, damage: Damage) -> Build:
        made = build(data=bytes(range(200)))
        layer.publish(made.record, made.blobs)
        name = made.fingerprint.hex if kind == "records" else made.main.digest.hex
        whole = self.read_raw(layer, kind, name)
        assert whole is not None
        self.write_raw(layer, kind, name, damage(whole))
        return made

    def _heals(self, layer: Layer, made: Build, kind: str, name: str) -> None:
        if not self.heals:
            return
        assert not self.moves_away or self.read_raw(layer, kind, name) is None
        layer.publish(made.record, made.blobs)
        assert layer.find(made.fingerprint) == made.record
        assert layer.read(made.main) == made.data


class CompilerContract:
    """For `cubinet.protocols.Compiler`. Give `compiler`, `target`, `source` and, if need be, `broken` and `header`.

    `source` must define at least one kernel and begin with `#include "contract.h"`, for which `header` gives two
    texts that make different objects.
    """

    kind: ClassVar[str] = "cubin"

    @pytest.fixture
    def compiler(self) -> Compiler:
        """The adapter."""
        raise NotImplementedError

    @pytest.fixture
    def target(self) -> Target:
        """Something it can compile for."""
        raise NotImplementedError

    @pytest.fixture
    def source(self) -> str:
        """A small program."""
        raise NotImplementedError

    @pytest.fixture
    def header(self) -> tuple[str, str]:
        """Two texts for `contract.h`."""
        return "#define CONTRACT 1\n", "#define CONTRACT 2\n"

    @pytest.fixture
    def broken(self, source: str) -> str:
        """A program with a syntax error."""
        return f"{source}\n!!! no program !!!\n"

    @pytest.fixture
    def folders(self, tmp_path: Path, header: tuple[str, str]) -> tuple[Path, Path]:
        """Two include folders; only the second one has the header."""
        first, second = tmp_path / "first one", tmp_path / "second"
        first.mkdir()
        second.mkdir()
        (second / "contract.h").write_text(header[0])
        return first, second

    @pytest.fixture
    def variant(self, compiler: Compiler, source: str, target: Target, folders: tuple[Path, Path]) -> Variant:
        """The request that most tests make."""
        roots = (Root("first", str(folders[0])), Root("second", str(folders[1])))
        return Variant(source, target, kind=self.kind, roots=roots, compiler=compiler.name, name="contract")

    @pytest.fixture
    def made(self, compiler: Compiler, variant: Variant) -> Compiled:
        """What comes of it."""
        return compiler.compile(compiler.normalize(variant))

    def test_the_toolchain_is_the_same_each_time(self, compiler: Compiler) -> None:
        assert compiler.toolchain() == compiler.toolchain()
        assert compiler.toolchain().name
        assert compiler.toolchain().version

    def test_the_steps_end_at_the_compiler(self, compiler: Compiler) -> None:
        assert [step.chosen for step in compiler.steps()].count(True) == 1

    def test_normalizing_is_pure(self, compiler: Compiler, variant: Variant) -> None:
        first, second = compiler.normalize(variant), compiler.normalize(variant)
        assert first == second
        assert action_parts(first) == action_parts(second)
        assert first.variant is variant
        assert not first.uncacheable

    def test_canonical_arguments_are_their_own_canonical_form(self, compiler: Compiler, variant: Variant) -> None:
        # So a build can be asked for again from what its record keeps.
        request = compiler.normalize(variant)
        again = compiler.normalize(replace(variant, options=request.arguments))
        assert again.arguments == request.arguments
        assert action_parts(again) == action_parts(request)

    def test_requests_pickle(self, compiler: Compiler, variant: Variant) -> None:
        request = compiler.normalize(variant)
        again: Request = pickle.loads(pickle.dumps(request))  # noqa: S301 - our own bytes
        assert action_of(action_parts(again)) == action_of(action_parts(request))

    def test_the_place_of_a_root_is_in_no_key(self, compiler: Compiler, variant: Variant, tmp_path: Path) -> None:
        request = compiler.normalize(variant)
        moved = replace(variant, roots=tuple(replace(r, path=str(tmp_path / "moved")) for r in variant.roots))
        assert action_parts(compiler.normalize(moved)) == action_parts(request)
        assert str(tmp_path) not in repr(request.arguments)

    def test_the_order_of_roots_is_in_the_key(self, compiler: Compiler, variant: Variant) -> None:
        turned = replace(variant, roots=variant.roots[::-1])
        assert action_parts(compiler.normalize(turned)) != action_parts(compiler.normalize(variant))

    def test_the_same_compile_gives_the_same_bytes(self, compiler: Compiler, variant: Variant, made: Compiled) -> None:
        again = compiler.compile(compiler.normalize(variant))
        assert again.data == made.data
        assert set(again.observations) == set(made.observations)
        assert again.kernels == made.kernels
        assert again.argv == made.argv

    def test_the_place_of_a_root_is_in_no_byte(
        self, compiler: Compiler, variant: Variant, made: Compiled, tmp_path: Path
    ) -> None:
        (tmp_path / "moved here").symlink_to(tmp_path, target_is_directory=True)
        moved = replace(
            variant,
            roots=tuple(
                replace(r, path=r.path.replace(str(tmp_path), f"{tmp_path}/moved here")) for r in variant.roots
            ),
        )
        again = compiler.compile(compiler.normalize(moved))
        assert again.data == made.data
        assert set(again.observations) == set(made.observations)
        assert str(tmp_path).encode() not in made.data + made.log
        assert str(tmp_path) not in repr(made.argv)

    def test_the_result_says_which_kernels_it_has(self, made: Compiled) -> None:
        assert made.data
        assert made.kernels
        assert all(kernel.name and kernel.symbol for kernel in made.kernels)
        assert made.seconds > 0

    def test_a_clean_result_may_be_kept(self, made: Compiled) -> None:
        assert not made.uncacheable
        assert not made.local_only

    def test_what_was_read_and_what_was_missing_is_observed(self, made: Compiled, header: tuple[str, str]) -> None:
        if any(o.seen is Seen.TREE for o in made.observations):
            assert {o.name for o in made.observations if o.seen is Seen.TREE} >= {"first:", "second:"}
            return
        looks = {o.name: (o.seen, o.digest) for o in made.observations}
        assert looks["second:contract.h"] == (Seen.READ, digest_of(header[0].encode()))
        assert looks["first:contract.h"] == (Seen.ABSENT, None)

    def test_another_header_gives_another_object(
        self, compiler: Compiler, variant: Variant, made: Compiled, folders: tuple[Path, Path], header: tuple[str, str]
    ) -> None:
        (folders[1] / "contract.h").write_text(header[1])
        request = compiler.normalize(variant)
        assert action_parts(request) == action_parts(compiler.normalize(variant))
        again = compiler.compile(request)
        assert again.data != made.data
        assert set(again.observations) != set(made.observations)

    def test_a_syntax_error_is_certain_and_has_a_log(self, compiler: Compiler, variant: Variant, broken: str) -> None:
        with pytest.raises(CompileError) as caught:
            compiler.compile(compiler.normalize(replace(variant, source=broken)))
        error = caught.value
        assert error.deterministic
        assert error.log
        assert error.toolchain
        assert "contract" in str(error)
        again = pickle.loads(pickle.dumps(error))  # noqa: S301 - our own bytes
        assert (str(again), again.log, again.deterministic) == (str(error), error.log, True)

    def test_a_missing_entry_is_an_error(self, compiler: Compiler, variant: Variant) -> None:
        with pytest.raises(CompileError):
            compiler.compile(compiler.normalize(replace(variant, entries=("no_such_kernel",))))
