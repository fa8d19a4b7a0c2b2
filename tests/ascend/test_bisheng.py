"""The bisheng adapter against a fake toolkit that hands back real objects. Nothing here ran the real bisheng."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from cubinet import registry
from cubinet.compilers._bisheng_options import BISHENG, for_compiler, for_linker, parse_bisheng
from cubinet.compilers._pin import describe
from cubinet.compilers.bisheng import BishengCompiler
from cubinet.config import Settings
from cubinet.errors import CompileError, CompileTimeoutError, ConfigError, ToolchainNotFoundError
from cubinet.fingerprint import action_parts
from cubinet.loaders.ascend import AscendLoader
from cubinet.model import Root, Seen, Status, Target, Variant
from cubinet.objects.ascend import read
from cubinet.protocols import Compiled, Compiler
from cubinet.registry import Workshop
from cubinet.store import Store
from cubinet.testing.contracts import CompilerContract

from .stub import Stub
from .toolkit import banner, make, sample

TARGET = Target("ascend", "dav-2201")
SOURCE = '#include "kernel_operator.h"\nextern "C" __global__ __aicore__ void add(GM_ADDR x) {}\n'
Make = Callable[..., BishengCompiler]


@pytest.fixture(scope="session")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the recorder is kept once it is proved."""
    return tmp_path_factory.mktemp("tools")


@pytest.fixture
def toolkit(tmp_path: Path) -> Path:
    return make(tmp_path / "cann")


@pytest.fixture
def compiler(tmp_path: Path, toolkit: Path, tools: Path) -> BishengCompiler:
    return adapter(toolkit, tools)


def adapter(toolkit: Path | str, tools: Path | None, **settings: object) -> BishengCompiler:
    environ = {"PATH": os.environ["PATH"], "ASCEND_HOME_PATH": str(toolkit)}
    chosen = Settings(**{"refresh": 0.0, **settings})  # type: ignore[arg-type]
    return BishengCompiler(Workshop(chosen, environ, str(tools) if tools else None), roots=())


def variant(source: str = SOURCE, target: Target = TARGET, **rest: object) -> Variant:
    return Variant(source, target, **{"compiler": "bisheng", "source_name": "k.asc", "name": "add", **rest})  # type: ignore[arg-type]


def compile_(compiler: Compiler, asked: Variant) -> Compiled:
    return compiler.compile(compiler.normalize(asked))


# --- the contract, with and without the recorder


class Contracted(CompilerContract):
    @pytest.fixture
    def target(self) -> Target:
        return TARGET

    @pytest.fixture
    def source(self) -> str:
        return f'#include "contract.h"\n{SOURCE}'


class TestContract(Contracted):
    @pytest.fixture
    def compiler(self, toolkit: Path, tools: Path) -> Compiler:
        return adapter(toolkit, tools)


class TestContractWithDependencyFiles(Contracted):
    @pytest.fixture
    def compiler(self, toolkit: Path, tools: Path) -> Compiler:
        return adapter(toolkit, tools, recorder="off")

    def test_a_syntax_error_is_certain_and_has_a_log(self, compiler: Compiler, variant: Variant, broken: str) -> None:
        # clang writes no dependency file then, so what the error depends on is not known, and it is not remembered
        with pytest.raises(CompileError, match="expected unqualified-id") as caught:
            compile_(compiler, replace(variant, source=broken))
        assert not caught.value.deterministic
        assert caught.value.log


class TestContractForAnArchitectureThatNobodySaw(Contracted):
    @pytest.fixture
    def compiler(self, toolkit: Path, tools: Path) -> Compiler:
        return adapter(toolkit, tools)

    @pytest.fixture
    def target(self) -> Target:
        return Target("ascend", "dav-3002")


# --- what runs


def test_it_compiles_and_links_as_deepjit_does(compiler: BishengCompiler) -> None:
    made = compile_(compiler, variant())
    assert made.argv == (
        "bisheng", "--npu-arch=dav-2201", "-O2", "-mllvm", "-cce-aicore-dcpreload-args=false", "-mllvm",
        "-enable-hiipu-vf-loop-unroll", "--cce-aicore-only", "-Wno-builtin-macro-redefined",
        '-D__DATE__="Jan  1 1970"', '-D__TIME__="00:00:00"', '-D__TIMESTAMP__="Thu Jan  1 00:00:00 1970"',
        "-Iinclude/toolkit/x86_64-linux/asc/include/adv_api", "src/k.asc", "-o", "out/kernel.rel.o",
        "&&", "ld.lld", "-m", "aicorelinux", "-Ttext", "0", "--no-mmap-output-file", "out/kernel.rel.o",
        "-o", "out/kernel.o",
    )  # fmt: skip
    found = read(made.data)
    assert found.linked
    assert found.arch == "dav-2201"
    assert [kernel.symbol for kernel in made.kernels] == [kernel.symbol for kernel in found.kernels]
    assert (made.kind or "ascend", made.uncacheable, made.local_only) == ("ascend", "", "")


@pytest.mark.parametrize("arch", ["dav-2201", "dav-3510", "dav-2002"])
def test_each_architecture_gives_its_own_object(arch: str, compiler: BishengCompiler) -> None:
    made = compile_(compiler, variant(target=Target("ascend", arch)))
    assert read(made.data).arch == arch
    # the banner of another release than the compiler's is noticed
    assert ("the object says it was made by" in made.uncacheable) == (banner(arch) != banner())


def test_the_toolkits_headers_are_observed_by_content(compiler: BishengCompiler, toolkit: Path) -> None:
    before = compile_(compiler, variant())
    names = {o.name: o.seen for o in before.observations}
    assert names["toolkit:x86_64-linux/asc/include/adv_api/kernel_operator.h"] is Seen.READ
    (toolkit / "x86_64-linux/asc/include/adv_api/kernel_operator.h").write_text("#define KERNEL_OPERATOR 2\n")
    after = compile_(compiler, variant())
    assert after.data != before.data
    assert set(after.observations) != set(before.observations)


def test_programs_of_the_toolkit_that_it_starts_are_observed_and_others_are_not_trusted(
    compiler: BishengCompiler,
) -> None:
    made = compile_(compiler, variant(f"{SOURCE}// fake: helper\n"))
    assert not made.uncacheable
    assert "toolkit:bin/helper" in {o.name for o in made.observations if o.seen is Seen.READ}
    made = compile_(compiler, variant(f"{SOURCE}// fake: stranger\n"))
    assert "a program ran that does not belong to the toolchain: /" in made.uncacheable


def test_what_it_reads_outside_of_everything_keeps_the_result_here(compiler: BishengCompiler) -> None:
    made = compile_(compiler, variant(f"{SOURCE}// fake: outside\n"))
    assert "it depends on /etc/hostname, which is under no root" in made.local_only


def test_a_folder_of_this_machine_in_the_object_keeps_it_out(compiler: BishengCompiler, toolkit: Path) -> None:
    made = compile_(compiler, variant(f"{SOURCE}// fake: path\n"))
    assert f"the path {os.path.realpath(toolkit)} is in it" in made.uncacheable


def test_a_header_of_the_toolkit_by_its_own_path_keeps_it_out(compiler: BishengCompiler, toolkit: Path) -> None:
    header = f"{os.path.realpath(toolkit)}/x86_64-linux/asc/include/adv_api/kernel_operator.h"
    made = compile_(compiler, variant(f'#include "{header}"\n'))
    assert "is included by the toolchain's own path" in made.uncacheable


def test_roots_of_each_kind_become_search_options(compiler: BishengCompiler, tmp_path: Path) -> None:
    roots = []
    for kind in ("include", "system", "quote"):
        (tmp_path / kind).mkdir()
        (tmp_path / kind / f"{kind}.h").write_text(f"// {kind}\n")
        roots.append(Root(kind, str(tmp_path / kind), kind))
    source = '#include "quote.h"\n#include <system.h>\n#include <include.h>\n' + SOURCE
    made = compile_(compiler, variant(source, roots=roots))
    assert made.argv[12:15] == ("-Iinclude/include", "-isysteminclude/system", "-iquoteinclude/quote")
    assert {f"{kind}:{kind}.h" for kind in ("include", "system", "quote")} <= {o.name for o in made.observations}


def test_a_source_beside_its_headers_finds_them(compiler: BishengCompiler, tmp_path: Path) -> None:
    (tmp_path / "beside.h").write_text("// beside\n")
    (tmp_path / "k.asc").write_text('#include "beside.h"\n' + SOURCE)
    made = compile_(compiler, replace(Variant.from_file(tmp_path / "k.asc", TARGET), compiler="bisheng"))
    assert "src:beside.h" in {o.name for o in made.observations}


def test_a_source_of_another_name_is_said_to_be_ascend_c(compiler: BishengCompiler) -> None:
    argv = compile_(compiler, variant(source_name="k.cpp")).argv
    assert argv[argv.index("-x") + 1] == "asc"
    assert "-x" not in compile_(compiler, variant(source_name="k.cce")).argv
    argv = compile_(compiler, variant(source_name="k.cpp", options=["-x", "cce"])).argv
    assert [argv[i + 1] for i, word in enumerate(argv) if word == "-x"] == ["cce"]


def test_options_reach_the_program_they_are_for(compiler: BishengCompiler) -> None:
    options = [
        "-O3",
        "-mllvm",
        "-cce-aicore-stack-size=0x8000",
        "-DA=1,2",
        "-fno-rtti",
        "-Xlinker",
        "-z",
        "-Xlinker",
        "x",
    ]
    made = compile_(compiler, variant(options=[*options, "-std=c++17", "-Wall"]))
    split = made.argv.index("&&")
    words, linker = made.argv[:split], made.argv[split:]
    assert {"-O3", "-DA=1,2", "-fno-rtti", "-std=c++17", "-Wall"} <= set(words)
    assert "-O2" not in words
    assert words[words.index("-cce-aicore-stack-size=0x8000") - 1] == "-mllvm"
    assert linker[7:9] == ("-z", "x")
    assert not made.uncacheable


def test_line_tables_name_no_folder_of_this_machine(compiler: BishengCompiler) -> None:
    made = compile_(compiler, variant(options=["-g", "-gline-tables-only"]))
    assert "-ffile-compilation-dir=." in made.argv
    assert not made.uncacheable


def test_the_environment_of_the_caller_does_not_reach_it(toolkit: Path, tools: Path, tmp_path: Path) -> None:
    (tmp_path / "from path").mkdir()
    (tmp_path / "from path" / "extra.h").write_text("// extra\n")
    compiler = adapter(toolkit, tools)
    environ = dict(compiler.workshop.environ) | {"CPATH": str(tmp_path / "from path"), "CCC_OVERRIDE_OPTIONS": "# O0"}
    compiler = BishengCompiler(Workshop(Settings(refresh=0.0), environ, str(tools)), roots=())
    request = compiler.normalize(variant('#include "extra.h"\n' + SOURCE))
    assert [(root.label, root.kind) for root in request.roots] == [("i0", "include")]
    assert "i0:extra.h" in {o.name for o in compiler.compile(request).observations}
    assert dict(request.environment) == {"LC_ALL": "C"}


# --- what goes wrong


@pytest.mark.parametrize(
    ("fault", "message", "certain"),
    [
        ("nothing", "ld.lld: error: cannot open out/kernel.rel.o", False),
        ("half", "cannot .* cut short", False),
        ("other-arch", "it is for dav-3510; check the target and the compiler's options", False),
        ("kill", "bisheng ended with status -6", False),
    ],
)
def test_a_compiler_that_misbehaves_is_an_error(
    fault: str, message: str, certain: bool, compiler: BishengCompiler
) -> None:
    with pytest.raises(CompileError, match=message) as caught:
        compile_(compiler, variant(f"{SOURCE}// fake: {fault}\n"))
    assert caught.value.deterministic is certain
    assert caught.value.toolchain == "bisheng 9.1.0"
    assert caught.value.command[0] == "bisheng"


def test_a_missing_header_is_an_error_with_the_callers_names(compiler: BishengCompiler, tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "one.h").write_text('#include "no/such.h"\n')
    with pytest.raises(CompileError, match=r"fatal error: 'no/such\.h' file not found") as caught:
        compile_(compiler, variant('#include "one.h"\n', roots={"a": str(tmp_path / "a")}))
    assert f"{tmp_path}/a/one.h:1:10" in caught.value.log
    assert caught.value.deterministic
    assert "a:no/such.h" in {getattr(o, "name", "") for o in caught.value.observations}


def test_a_link_that_fails_says_so(compiler: BishengCompiler) -> None:
    with pytest.raises(CompileError, match=r"ld\.lld ended with status 1: ld.lld: error: told not to"):
        compile_(compiler, variant(options=["-Xlinker", "--no-link"]))


def test_an_object_that_is_not_linked_is_an_error(compiler: BishengCompiler) -> None:
    with pytest.raises(CompileError, match="exited 0 but cannot use compiled object for dav-2201: it is not linked"):
        compile_(compiler, variant(options=["-Xlinker", "-r"]))


def test_a_compile_that_takes_too_long_is_killed(compiler: BishengCompiler) -> None:
    with pytest.raises(CompileTimeoutError, match=r"bisheng was killed after 0\.3 s"):
        compiler.compile(compiler.normalize(variant(f"{SOURCE}// fake: sleep\n")), timeout=0.3)


def test_an_entry_that_is_not_in_the_object_is_an_error(compiler: BishengCompiler) -> None:
    name = read(sample("dav-2201").data).kernels[0].symbol
    assert compile_(compiler, variant(entries=[name])).kernels[0].symbol == name
    for arch in ("dav-2201", "dav-3002"):
        with pytest.raises(CompileError, match=r"cannot find entry .*nothing"):
            compile_(compiler, variant(target=Target("ascend", arch), entries=["nothing"]))


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"target": Target("cuda", "sm_90a")}, "bisheng makes Ascend code only; as in ascend:dav-2201"),
        ({"target": Target("ascend", "ascend910b1")}, "for these devices it is ascend:dav-2201"),
        ({"target": Target("ascend", "dav-c220-vec")}, "not an architecture of bisheng; an example: ascend:dav-2201"),
        ({"kind": "ptx"}, "bisheng makes device objects only"),
        ({"headers": {"a.h": ""}}, "it takes no headers in memory; give a root"),
        ({"options": ["--npu-arch=dav-3510"]}, "the options say --npu-arch=dav-3510; name it once"),
        ({"options": ["--cce-aicore-arch=dav-c220-vec"]}, "name a target, as ascend:dav-2201"),
        ({"options": ["-E"]}, "another output than a device object"),
        ({"options": ["-shared"]}, "the adapter compiles and links by itself"),
        ({"options": ["other.asc"]}, "an input file among the options"),
        ({"hook": "nowhere:a.py"}, "not a Python file under a root"),
    ],
    ids=str,
)
def test_what_cannot_be_meant_is_refused(asked: dict[str, object], message: str, compiler: BishengCompiler) -> None:
    with pytest.raises(ConfigError, match=message):
        compiler.normalize(variant(**asked))  # type: ignore[arg-type]


# --- without the recorder


def test_without_a_recorder_the_dependency_file_and_whole_roots_count(
    toolkit: Path, tools: Path, tmp_path: Path
) -> None:
    (tmp_path / "my lib").mkdir()
    (tmp_path / "my lib" / "a b.h").write_text("// a\n")
    compiler = adapter(toolkit, tools, recorder="off")
    made = compile_(compiler, variant('#include "a b.h"\n' + SOURCE, roots={"lib": str(tmp_path / "my lib")}))
    looks = {o.name: o.seen for o in made.observations}
    assert looks == {
        "lib:": Seen.TREE,
        "toolkit:x86_64-linux/asc/include/adv_api/kernel_operator.h": Seen.READ,
    }
    assert (made.uncacheable, made.local_only) == ("", "")


def test_without_a_dependency_file_nothing_is_kept(toolkit: Path, tools: Path) -> None:
    made = compile_(adapter(toolkit, tools, recorder="off"), variant(f"{SOURCE}// fake: no-depends\n"))
    assert made.uncacheable == "the compiler wrote no dependency file"


def test_without_a_host_compiler_there_is_no_recorder(toolkit: Path, tmp_path: Path) -> None:
    environ = {"PATH": str(tmp_path), "ASCEND_HOME_PATH": str(toolkit)}
    compiler = BishengCompiler(Workshop(Settings(refresh=0.0), environ, None), roots=())
    assert compiler.recorder().distrust == "there is no gcc on PATH to build it"
    assert not compile_(compiler, variant()).uncacheable


def test_a_compiler_that_cannot_be_recorded_is_observed_by_dependency_file(tmp_path: Path, tools: Path) -> None:
    compiler = adapter(make(tmp_path / "cann", options=["-static"]), tools)
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "a.h").write_text("// a\n")
    assert not compiler.recorder().distrust
    made = compile_(compiler, variant('#include "a.h"\n' + SOURCE, roots={"lib": str(tmp_path / "lib")}))
    assert {o.name for o in made.observations if o.seen is Seen.TREE} == {"lib:"}
    assert not made.uncacheable
    assert compiler.recorder().distrust == "bisheng ran unrecorded (a static program?)"


def test_a_script_in_front_of_the_compiler_is_fine(toolkit: Path, tools: Path) -> None:
    (toolkit / "bin" / "bisheng").rename(toolkit / "bin" / "clang-15")
    (toolkit / "bin" / "bisheng").write_text(f'#!/bin/sh\nexec "{toolkit}/bin/clang-15" "$@"\n')
    (toolkit / "bin" / "bisheng").chmod(0o755)
    compiler = adapter(toolkit, tools)
    made = compile_(compiler, variant())
    assert not made.uncacheable
    assert "toolkit:bin/clang-15" in {o.name for o in made.observations}
    assert not compiler.recorder().distrust


def test_a_toolkit_without_a_version_and_a_recorder_stays_here(tmp_path: Path, tools: Path) -> None:
    toolkit = make(tmp_path / "cann", version="")
    assert compile_(adapter(toolkit, tools, recorder="off"), variant()).local_only == (
        "the toolkit does not tell its version"
    )
    assert not compile_(adapter(toolkit, tools), variant()).local_only


# --- which toolkit


def test_the_toolkit_is_looked_for_in_deepjits_order(tmp_path: Path) -> None:
    home, second, default = (make(tmp_path / name) for name in ("home", "second", "default"))
    roots = (str(tmp_path / "not there"), str(default))

    def found(**environ: str) -> list[tuple[str, bool]]:
        compiler = BishengCompiler(Workshop(Settings(), environ, None), roots=roots)
        return [(step.found, step.chosen) for step in compiler.steps()]

    assert found(ASCEND_HOME_PATH=str(home), ASCEND_TOOLKIT_HOME=str(second))[-1] == (str(home), True)
    assert found(ASCEND_TOOLKIT_HOME=str(second))[-1] == (str(second), True)
    assert found() == [
        ("not set", False), ("not set", False), (f"{roots[0]}: no such folder", False), (str(default), True),
    ]  # fmt: skip


def test_a_variable_that_is_wrong_is_an_error_though_another_place_would_do(tmp_path: Path) -> None:
    good = make(tmp_path / "good")
    (tmp_path / "empty").mkdir()
    half = make(tmp_path / "half")
    (half / "bin" / "ld.lld").unlink()
    for place, message in (
        ("none", "no such folder"),
        ("empty", "no bisheng and no ld.lld in it"),
        ("half", "no ld.lld"),
    ):
        environ = {"ASCEND_HOME_PATH": str(tmp_path / place), "ASCEND_TOOLKIT_HOME": str(good)}
        compiler = BishengCompiler(Workshop(Settings(), environ, None), roots=(str(good),))
        with pytest.raises(ToolchainNotFoundError, match=f"{message}.*; correct ASCEND_HOME_PATH"):
            compiler.toolchain()


def test_a_variable_may_be_relative(tmp_path: Path, tools: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make(tmp_path / "cann")
    monkeypatch.chdir(tmp_path)
    assert not compile_(adapter("cann", tools), variant()).uncacheable


def test_no_toolkit_at_all_says_where_it_was_looked_for() -> None:
    compiler = BishengCompiler(Workshop(Settings(), {}, None), roots=("/no/such/place",))
    with pytest.raises(ToolchainNotFoundError, match=r"/no/such/place: no such folder\); install the CANN toolkit"):
        compiler.normalize(variant())


@pytest.mark.parametrize("host", ["x86_64-linux", "aarch64-linux"])
@pytest.mark.parametrize("layout", ["9", "8.5", "host", "bisheng"])
def test_programs_and_headers_are_found_in_every_layout(host: str, layout: str, tmp_path: Path, tools: Path) -> None:
    compiler = adapter(make(tmp_path / "cann", host=host, layout=layout), tools)
    made = compile_(compiler, variant())
    assert not made.uncacheable
    assert any(o.name.endswith("/kernel_operator.h") and o.seen is Seen.READ for o in made.observations)


def test_a_toolkit_behind_links_is_read_by_its_own_path(tmp_path: Path, tools: Path) -> None:
    make(tmp_path / "8.5.0")
    (tmp_path / "latest").symlink_to("8.5.0")
    (tmp_path / "spread").mkdir()
    for name in ("bin", "x86_64-linux"):
        (tmp_path / "spread" / name).symlink_to(tmp_path / "8.5.0" / name)
    plain = compile_(adapter(tmp_path / "8.5.0", tools), variant())
    linked = compile_(adapter(tmp_path / "latest", tools), variant())
    assert replace(linked, seconds=plain.seconds) == plain
    spread = compile_(adapter(tmp_path / "spread", tools), variant())
    assert (spread.data, spread.uncacheable, spread.local_only) == (plain.data, "", "")


def test_a_toolchain_is_its_content_not_its_place(tmp_path: Path, tools: Path) -> None:
    first = make(tmp_path / "first")
    shutil.copytree(first, tmp_path / "elsewhere")
    one, two = adapter(first, tools), adapter(tmp_path / "elsewhere", tools)
    assert one.toolchain() == two.toolchain()
    assert action_parts(one.normalize(variant())) == action_parts(two.normalize(variant()))
    assert str(tmp_path) not in repr(one.normalize(variant()).arguments)
    assert one.toolchain().version == "9.1.0"


def test_each_part_of_its_identity_changes_the_key(tmp_path: Path, tools: Path) -> None:
    later = banner().replace("2026-", "2027-", 1)
    assert later != banner()
    made = [
        make(tmp_path / "a"),
        make(tmp_path / "b", said=later),
        make(tmp_path / "c", version="9.1.1"),
        make(tmp_path / "d", inner="V2"),
        make(tmp_path / "e"),
    ]
    with (made[4] / "bin" / "ld.lld").open("ab") as program:
        program.write(b"\0")
    assert len({adapter(toolkit, tools).toolchain().identity for toolkit in made}) == 5


@pytest.mark.parametrize(
    ("said", "kept"),
    [
        ("2099-01-01T00:00:00+08:00 clang version 15.0.5", False),
        ("BiSheng Compiler 202505 clang version 15.0.5 (clang-0123456789ab)", False),
        ("BiSheng Compiler 202505 clang version 15.0.5", True),  # nothing that contradicts
    ],
)
def test_an_object_by_another_compiler_than_the_one_at_hand_is_not_kept(
    said: str, kept: bool, tmp_path: Path, tools: Path
) -> None:
    made = compile_(adapter(make(tmp_path / "cann", said=said), tools), variant())
    assert made.uncacheable == ("" if kept else f"the object says it was made by {banner()}")


def test_a_compiler_that_changes_is_noticed(compiler: BishengCompiler, toolkit: Path) -> None:
    request = compiler.normalize(variant())
    with (toolkit / "bin" / "bisheng").open("ab") as program:
        program.write(b"\0")
    assert compiler.compile(request).uncacheable == "the compiler changed while compiling"
    assert not compile_(compiler, variant()).uncacheable


def test_a_compiler_that_does_not_run_is_an_error(toolkit: Path, tools: Path) -> None:
    program = toolkit / "bin" / "bisheng"
    program.write_text("#!/no/such/interpreter\n")
    with pytest.raises(ToolchainNotFoundError, match="bin/bisheng: No such file"):
        adapter(toolkit, tools).toolchain()
    program.write_text("#!/bin/sh\necho no licence\nexit 3\n")
    with pytest.raises(ToolchainNotFoundError, match="bin/bisheng --version: no licence"):
        adapter(toolkit, tools).toolchain()


def test_a_warm_start_runs_no_program(toolkit: Path, tmp_path: Path) -> None:
    first = adapter(toolkit, tmp_path / "memory").normalize(variant())
    assert (toolkit / "lib" / "asked").read_text() == "."
    again = adapter(toolkit, tmp_path / "memory")
    assert action_parts(again.normalize(variant())) == action_parts(first)
    assert (toolkit / "lib" / "asked").read_text() == "."


# --- options


@pytest.mark.parametrize(
    ("options", "equal"),
    [
        (["-O2"], []),
        (["-O3"], ["-O", "3"]),
        (["-O0", "-O3"], ["-O3"]),
        (["-mllvm", "-enable-hiipu-vf-loop-unroll"], []),
        (["-DA", "-c", "-o", "x.o", "-v", "-save-temps", "-MD", "-MF", "d"], ["-D", "A"]),
        (["--npu-arch=dav-2201", "--cce-aicore-only"], []),
        (["-w", "-DA"], ["-DA", "-w"]),
    ],
    ids=str,
)
def test_two_ways_to_say_the_same_are_one(options: list[str], equal: list[str]) -> None:
    one, two = (parse_bisheng(words, arch="dav-2201", folder="/") for words in (options, equal))
    assert (one.arguments, one.architectures, one.uncacheable) == (two.arguments, two.architectures, two.uncacheable)


@pytest.mark.parametrize(
    "options",
    [
        ["-O3"],
        ["-mllvm", "-enable-hiipu-vf-loop-unroll=false"],
        ["-mllvm", "-a", "-mllvm", "-b"],
        ["-mllvm", "-b", "-mllvm", "-a"],
        ["-DA", "-UA"],
        ["-UA", "-DA"],
        ["-Werror"],
        ["-fno-rtti"],
        ["-g"],
        ["--enable-simt"],
        ["-Xlinker", "--gc-sections"],
        ["-std=c++20"],
    ],
    ids=str,
)
def test_what_changes_the_result_changes_the_key(options: list[str]) -> None:
    plain = parse_bisheng([], arch="dav-2201", folder="/")
    asked = parse_bisheng(options, arch="dav-2201", folder="/")
    assert asked.arguments != plain.arguments
    assert not asked.uncacheable
    again = parse_bisheng([*asked.architectures, *asked.arguments], arch="dav-2201", folder="/")
    assert again.arguments == asked.arguments


def test_the_order_of_macros_and_of_words_for_the_code_generator_is_kept() -> None:
    for one, two in (
        (["-DA", "-UA"], ["-UA", "-DA"]),
        (["-mllvm", "-a", "-mllvm", "-b"], ["-mllvm", "-b", "-mllvm", "-a"]),
    ):
        first, second = (parse_bisheng(words, arch="dav-2201", folder="/") for words in (one, two))
        assert first.arguments != second.arguments


@pytest.mark.parametrize(
    "option",
    ["-fplugin=/a.so", "-fprofile-use=x", "-Xclang", "-unknown", "--cce-aicore-stack=1", "-fmodules", "-Wl,-z", "-B/x"],
)
def test_what_is_not_known_is_handed_on_and_not_kept(option: str) -> None:
    words = [option, "-load"] if option == "-Xclang" else [option]
    parsed = parse_bisheng(words, arch="dav-2201", folder="/")
    assert parsed.uncacheable
    assert for_compiler(parsed.passthrough) == words


def test_a_path_for_the_code_generator_is_not_kept() -> None:
    assert parse_bisheng(["-mllvm", "-load=/x.so"], arch="dav-2201", folder="/").uncacheable
    assert parse_bisheng(["-Xlinker", "-T/x.ld"], arch="dav-2201", folder="/").uncacheable


def test_words_are_rendered_as_each_program_takes_them() -> None:
    arguments = ["-D=A=1", "-O=2", "-mllvm=-x=1", "-std=c++17", "-w", "-Xlinker=-z", "-f=no-rtti", "-include=a.h"]
    assert for_compiler(arguments) == [
        "-DA=1",
        "-O2",
        "-mllvm",
        "-x=1",
        "-std=c++17",
        "-w",
        "-fno-rtti",
        "-include",
        "a.h",
    ]
    assert for_linker(arguments) == ["-z"]
    assert len({option.name for option in BISHENG.options}) == len(BISHENG.options)


def test_a_machine_without_the_toolkit_names_builds_by_its_description(
    compiler: BishengCompiler, tmp_path: Path, tools: Path
) -> None:
    (tmp_path / "pins.json").write_bytes(describe([compiler.pin()]))
    settings = Settings(refresh=0.0, toolchain=str(tmp_path / "pins.json"))
    elsewhere = BishengCompiler(Workshop(settings, {"PATH": os.environ["PATH"]}, str(tools)), roots=())
    asked, wanted = compiler.normalize(variant()), elsewhere.normalize(variant())
    assert action_parts(asked) == action_parts(wanted)
    with pytest.raises(ToolchainNotFoundError):
        elsewhere.compile(wanted)


def test_a_header_in_front_of_the_source_is_observed(compiler: BishengCompiler, tmp_path: Path) -> None:
    (tmp_path / "front.h").write_text("// front\n")
    made = compile_(compiler, variant(options=["-include", "front.h"], folder=str(tmp_path)))
    assert "pre0:front.h" in {o.name for o in made.observations}
    made = compile_(
        compiler, variant(options=["-include", "front.h", "-I", str(tmp_path)], folder=str(tmp_path / "cann"))
    )
    assert "i0:front.h" in {o.name for o in made.observations}


# --- with a store


def test_a_hook_may_edit_the_object(toolkit: Path, tools: Path, tmp_path: Path) -> None:
    (tmp_path / "hooks").mkdir()
    (tmp_path / "hooks" / "same.py").write_text("def edit(data: bytes) -> bytes:\n    return data\n")
    compiler = adapter(toolkit, tools)
    made = compile_(compiler, variant(roots={"hooks": str(tmp_path / "hooks")}, hook="hooks:same.py"))
    assert read(made.data).arch == "dav-2201"
    assert "hooks:same.py" in {o.name for o in made.observations}


def test_from_source_to_launch_with_a_store_between(
    toolkit: Path, tmp_path: Path, stub: Stub, monkeypatch: pytest.MonkeyPatch
) -> None:
    built_in = {"bisheng": "cubinet.compilers.bisheng:BishengCompiler", **registry.BUILT_IN["cubinet.compilers"]}
    monkeypatch.setattr(registry, "BUILT_IN", {**registry.BUILT_IN, "cubinet.compilers": built_in})
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "size.h").write_text("// 1\n")
    environ = {"PATH": os.environ["PATH"], "ASCEND_HOME_PATH": str(toolkit)}
    asked = variant('#include "size.h"\n' + SOURCE, roots={"lib": str(tmp_path / "lib")})

    def store() -> Store:
        return Store(tmp_path / "store", settings=Settings(durable=False, refresh=0.0), environ=environ)

    made = store().get_or_compile(asked)
    found = store().get_or_compile(asked)
    assert (made.status, found.status) == (Status.COMPILED, Status.HIT)
    assert found.data == made.data
    assert found.record.kind == "ascend"
    (tmp_path / "lib" / "size.h").write_text("// 2\n")
    assert store().get_or_compile(asked).status is Status.COMPILED
    (tmp_path / "lib" / "size.h").write_text("// 1\n")
    again = store().get_or_compile(asked)
    assert (again.status, again.fingerprint) == (Status.HIT, made.fingerprint)
    kernel = AscendLoader(library=stub.path, environ={}).load(again).kernel
    size = made.kernels[0].params or 0
    kernel[20](*[None] * (size // 8))
    assert [(launch.kernel, launch.blocks, launch.arguments) for launch in stub.launches()] == [
        (made.kernels[0].symbol, 20, bytes(size))
    ]


del CompilerContract, Contracted  # or pytest would take them for tests themselves
