"""The fake compiler keeps the contract of a real one."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from cubinet.model import Root, Seen, Target, Variant
from cubinet.protocols import Compiler
from cubinet.testing.contracts import CompilerContract
from cubinet.testing.fake_compiler import FakeCompiler


class TestFakeCompiler(CompilerContract):
    @pytest.fixture
    def compiler(self) -> Compiler:
        return FakeCompiler()

    @pytest.fixture
    def target(self) -> Target:
        return Target("cuda", "sm_90a")

    @pytest.fixture
    def source(self) -> str:
        return '#include "contract.h"\nkernel scale\n'

    @pytest.fixture
    def header(self) -> tuple[str, str]:
        return "one\n", "two\n"


def test_quotes_look_beside_the_source_first_and_angles_do_not(tmp_path: Path) -> None:
    for name in ("here", "there"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "x.h").write_text(f"{name}\n")
    compiler = FakeCompiler()
    for include, expected in (('"x.h"', "here"), ("<x.h>", "there")):
        variant = Variant(
            f"#include {include}\nkernel k\n",
            Target("cuda", "sm_90"),
            source_folder=str(tmp_path / "here"),
            roots=(Root("there", str(tmp_path / "there")),),
        )
        made = compiler.compile(compiler.normalize(variant))
        assert made.data == f"cubin sm_90 1.0\n{expected}\nkernel k\n".encode()


def test_headers_include_headers_and_probes_see_names_only(tmp_path: Path) -> None:
    (tmp_path / "a.h").write_text('#include "sub/b.h"\n#probe "sub/b.h"\n#probe "c.h"\n')
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub/b.h").write_text("deep\n")
    compiler = FakeCompiler()
    variant = Variant('#include "a.h"\n', Target("cuda", "sm_90"), options=(f"-I{tmp_path}", "-DX"))
    made = compiler.compile(compiler.normalize(variant))
    assert made.data == b"cubin -DX sm_90 1.0\ndeep\n1\n0\n"
    assert {(o.name, o.seen) for o in made.observations} == {
        ("i0:a.h", Seen.READ),
        ("i0:sub/b.h", Seen.READ),
        ("i0:c.h", Seen.ABSENT),
    }


def test_headers_in_memory_come_first_and_are_not_observed(tmp_path: Path) -> None:
    (tmp_path / "a.h").write_text("from the folder\n")
    compiler, roots = FakeCompiler(), (Root("lib", str(tmp_path)),)
    variant = Variant('#include "a.h"\n', Target("cuda", "sm_90"), roots=roots, headers=(("a.h", "from memory\n"),))
    made = compiler.compile(compiler.normalize(variant))
    assert made.data == b"cubin sm_90 1.0\nfrom memory\n"
    assert made.observations == ()


def test_it_pickles_and_counts_its_runs(tmp_path: Path) -> None:
    compiler = pickle.loads(pickle.dumps(FakeCompiler(str(tmp_path / "runs"))))
    for name in ("one", "two\n"):
        compiler.compile(compiler.normalize(Variant("kernel k\n", Target("cuda", "sm_90"), name=name)))
    assert len((tmp_path / "runs").read_text().splitlines()) == 2
