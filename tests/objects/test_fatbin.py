"""Fatbins: real ones against cuobjdump, and hand-made ones that lie."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest
import zstandard

from cubinet.errors import ObjectError
from cubinet.objects import Image, inspect
from cubinet.objects.fatbin import MOST_EXPANDED

from .conftest import Corpus
from .handmade import Piece, elf, fatbin, member, symbol

CUBIN = elf([Piece(".text.k", bytes(16))], symbols=symbol(1), names=b"\0k\0")
PTX = b"\n\n.version 9.0\n.target sm_90a\n.address_size 64\n.visible .entry k(\n.param .u64 a\n)\n{\nret;\n}\n\0"
ZSTD = 0x8011
LZ4 = 0x2011


def images(corpus: Corpus, name: str) -> list[tuple[str, str | None, bool, int, str]]:
    return [
        (image.kind, image.arch, image.compressed, len(image.kernels), image.note)
        for image in inspect(corpus.read(name)).images
    ]


def test_members_are_what_cuobjdump_lists(corpus: Corpus, cuobjdump: str) -> None:
    for name in ("two.fatbin", "small.fatbin", "fast.fatbin", "plain.fatbin"):
        listed = subprocess.run([cuobjdump, corpus.path(name)], capture_output=True, text=True, check=True).stdout
        archs = [line.partition("= ")[2] for line in listed.splitlines() if line.startswith("arch = ")]
        found = inspect(corpus.read(name))
        assert [image.arch for image in found.images] == archs == ["sm_80", "sm_90a", "sm_90a"]
        assert [image.kind for image in found.images] == ["cubin", "cubin", "ptx"]
        assert sum(image.compressed for image in found.images) == listed.splitlines().count("compressed")


def test_members_have_the_kernels_of_the_same_files_compiled_alone(corpus: Corpus) -> None:
    # Names of an anonymous namespace hold a hash of the target list too, so compare the C++ names.
    def numbers(kernels: tuple[object, ...]) -> set[tuple[object, ...]]:
        return {tuple(getattr(k, f) for f in ("name", "regs", "shared", "local", "const", "params")) for k in kernels}

    for name in ("two.fatbin", "small.fatbin", "plain.fatbin"):
        members = inspect(corpus.read(name)).images
        assert numbers(members[0].kernels) == numbers(inspect(corpus.read("sm_80")).kernels)
        assert numbers(members[1].kernels) == numbers(inspect(corpus.read("sm_90a")).kernels)
        assert numbers(members[2].kernels) == numbers(inspect(corpus.read("sm_90a.ptx")).kernels)


def test_a_fatbin_for_several_architectures_has_none_of_its_own(corpus: Corpus) -> None:
    info = inspect(corpus.read("two.fatbin"))
    assert (info.arch, info.archs) == (None, ("sm_80", "sm_90a"))
    assert len(info.kernels) == 21
    assert all(kernel.regs for kernel in info.kernels)


def test_lz4_is_named_and_not_guessed_at(corpus: Corpus) -> None:
    note = "compressed with LZ4, which is not read"
    assert images(corpus, "fast.fatbin")[-1] == ("ptx", "sm_90a", True, 0, note)


def test_ltoir_is_named(corpus: Corpus) -> None:
    assert images(corpus, "lto.fatbin") == [
        ("ltoir", "sm_90a", True, 0, "ltoir holds no kernels that can be listed"),
    ]


def test_wrappers_may_follow_each_other_with_padding() -> None:
    one = fatbin(member(CUBIN))
    two = fatbin(member(PTX, kind=1, flags=0x100011))
    info = inspect(one + two + bytes(5) + one + bytes(40))
    assert [image.kind for image in info.images] == ["cubin", "ptx", "cubin"]
    assert info.images[1] == Image(
        kind="ptx", arch="sm_90a", archs=("sm_90a",), size=len(PTX), compressed=False, kernels=info.images[1].kernels
    )


def test_a_member_of_unknown_kind_is_listed() -> None:
    (image,) = inspect(fatbin(member(b"12345678", kind=77, flags=0x200011, sm=100))).images
    assert (image.kind, image.arch, image.size) == ("unknown", "sm_100f", 8)


def test_what_the_member_tells_goes_before_what_fatbinary_noted() -> None:
    (image,) = inspect(fatbin(member(CUBIN, sm=80))).images
    assert (image.arch, image.archs) == (None, ("sm_90", "sm_90a"))
    (image,) = inspect(fatbin(member(CUBIN, sm=90, flags=0x100011))).images
    assert image.arch == "sm_90a"


@pytest.mark.parametrize(
    ("data", "finding"),
    [
        (fatbin(member(CUBIN), size=2**63), "cut short: the wrapper at byte 0"),
        (fatbin(member(CUBIN), size=2**64 - 1), "cut short: the wrapper at byte 0"),
        (fatbin(member(CUBIN))[:-1], "cut short: the wrapper at byte 0"),
        (fatbin()[:15], "cut short: a wrapper begins at byte 0"),
        (fatbin() + fatbin()[:7], "cut short: a wrapper begins at byte 16"),
        (fatbin() + b"tail", "no wrapper at byte 16"),
        (fatbin(version=2), "wrapper of version 2"),
        (fatbin(header=0), "header of 0 bytes"),
        (fatbin(member(CUBIN, size=2**63)), "the member at byte 16 ends at"),
        (fatbin(member(CUBIN, size=2**64 - 1)), "the member at byte 16 ends at"),
        (fatbin(member(CUBIN, header=0)), "the member at byte 16 ends at"),
        (fatbin(member(CUBIN, header=2**32 - 1)), "the member at byte 16 ends at"),
        (fatbin(b"x" * 63), "a member begins at byte 16"),
        (fatbin(member(CUBIN[:-1])), "member 1 .cubin.: cut short"),
        (fatbin(member(b"", kind=1)), "it has no .version"),
        (fatbin(member(b"not zstd", flags=ZSTD, expanded=8)), "zstd frame cannot be read"),
        (fatbin(member(b"", flags=ZSTD, expanded=8)), "decompresses to 0 bytes"),
        (fatbin(member(b"1234", flags=ZSTD, packed=5, expanded=8)), "5 compressed bytes in 4"),
    ],
)
def test_a_fatbin_that_contradicts_itself_is_refused(data: bytes, finding: str) -> None:
    with pytest.raises(ObjectError, match=finding):
        inspect(data)


def test_a_compressed_member_is_read() -> None:
    packed = zstandard.compress(CUBIN)
    (image,) = inspect(fatbin(member(packed, flags=ZSTD, expanded=len(CUBIN)))).images
    assert (image.compressed, [kernel.symbol for kernel in image.kernels], image.note) == (True, ["k"], "")


def test_a_member_that_expands_to_more_than_it_declares_is_refused() -> None:
    bomb = zstandard.compress(bytes(200 << 20))
    start = time.perf_counter()
    with pytest.raises(ObjectError, match="decompresses to 4097 bytes or more, 4096 declared"):
        inspect(fatbin(member(bomb, flags=ZSTD, expanded=4096)))
    assert time.perf_counter() - start < 1


def test_a_member_that_declares_more_than_the_limit_is_not_expanded() -> None:
    bomb = zstandard.compress(bytes(MOST_EXPANDED + 1))
    (image,) = inspect(fatbin(member(bomb, flags=ZSTD, expanded=MOST_EXPANDED + 1))).images
    assert image.kernels == ()
    assert image.note.startswith(f"expands to {MOST_EXPANDED + 1} bytes, more than")


def test_a_frame_that_declares_terabytes_allocates_none_of_them() -> None:
    # Magic, single segment with an 8-byte content size, and one raw block of one byte.
    frame = b"\x28\xb5\x2f\xfd\xe0" + (1 << 42).to_bytes(8, "little") + b"\x09\x00\x00x"
    with pytest.raises(ObjectError, match="zstd frame cannot be read"):
        inspect(fatbin(member(frame, flags=ZSTD, expanded=1)))


def test_all_members_together_stay_below_the_limit() -> None:
    text = PTX[:-1] + b"//" + b" " * (30 << 20) + b"\n"
    packed = zstandard.compress(text)
    info = inspect(fatbin(*[member(packed, kind=1, flags=ZSTD, expanded=len(text))] * 3))
    assert [len(image.kernels) for image in info.images] == [1, 1, 0]
    assert info.images[2].note.startswith(f"expands to {len(text)} bytes")


def test_zstandard_is_imported_only_for_members_that_need_it() -> None:
    code = (
        "import sys; from cubinet.objects import inspect; import handmade_data as d\n"
        "inspect(d.plain); assert 'zstandard' not in sys.modules\n"
        "inspect(d.packed); assert 'zstandard' in sys.modules\n"
    )
    plain, packed = fatbin(member(CUBIN)), zstandard.compress(CUBIN)
    data = f"import sys, types; d = sys.modules['handmade_data'] = types.ModuleType('d'); d.plain = {plain!r}\n"
    data += f"d.packed = {fatbin(member(packed, flags=ZSTD, expanded=len(CUBIN)))!r}\n"
    done = subprocess.run([sys.executable, "-c", data + code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_without_zstandard_a_compressed_member_is_named() -> None:
    packed = fatbin(member(zstandard.compress(CUBIN), flags=ZSTD, expanded=len(CUBIN)))
    code = (
        "import sys; sys.modules['zstandard'] = None; from cubinet.objects import inspect\n"
        f"print(inspect({packed!r}).images[0].note)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "compressed with zstd; install zstandard to have it read"
