"""The table of NVRTC's options, held against the NVRTC at hand.

Compiling an argument list and its canonical form to the same bytes is the proof that reading changes nothing.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cubinet.compilers._nvrtc_options import NVRTC, parse_nvrtc
from cubinet.compilers._options import Form, Option, Parsed, Treatment
from cubinet.errors import ConfigError

SUCCESS, INVALID_OPTION, COMPILATION = 0, 5, 6

SOURCE = """\
#ifdef HEADER
#include "x.h"
#endif
#ifndef A
#define A 1
#endif
extern "C" __global__ void k(float *a, const float *b, int n) {
  int unused;
  float own[8];
  for (int i = 0; i < 8; i++) own[(i * n) & 7] = b[i] * a[i] + sizeof(A);
  a[n] = own[n & 7] / a[1];
}
"""
TINY = 'extern "C" __global__ void k() {}'
WITH_HEADER = '#include "x.h"\nextern "C" __global__ void k(int *a) { *a = INNER; }'
UNSEEDED = "namespace { template <class T> __global__ void k(T *a) { *a = 1; } }"


@dataclass(frozen=True)
class Nvrtc:
    """A result of `compile` is the status and the bytes; these are empty unless the status is 0."""

    library: Any
    folder: Path
    release: tuple[int, int]

    def compile(
        self, argv: Sequence[str], kind: str = "cubin", source: str = SOURCE, names: Sequence[str] = ()
    ) -> tuple[int, bytes]:
        nvrtc = self.library
        status, program = nvrtc.nvrtcCreateProgram(source.encode(), b"k.cu", 0, None, None)
        assert not status
        try:
            for name in names:
                nvrtc.nvrtcAddNameExpression(program, name.encode())
            (status,) = nvrtc.nvrtcCompileProgram(program, len(argv), [word.encode() for word in argv])
            if status:
                return int(status), b""
            get = {"cubin": "CUBIN", "ptx": "PTX", "ltoir": "LTOIR"}[kind]
            status, size = getattr(nvrtc, f"nvrtcGet{get}Size")(program)
            assert not status
            data = bytearray(size)
            (status,) = getattr(nvrtc, f"nvrtcGet{get}")(program, data)
            assert not status
            return SUCCESS, bytes(data)
        finally:
            nvrtc.nvrtcDestroyProgram(program)

    def read(self, argv: Sequence[str], kind: str = "cubin") -> Parsed:
        return parse_nvrtc(argv, kind=kind, folder=str(self.folder), environ={})

    def has(self, option: Option) -> bool:
        return not option.since or self.release >= tuple(int(part) for part in option.since.split("."))


@pytest.fixture(scope="module")
def nvrtc(tmp_path_factory: pytest.TempPathFactory) -> Nvrtc:
    library = pytest.importorskip("cuda.bindings.nvrtc", reason="cuda-bindings is not installed")
    try:
        status, *release = library.nvrtcVersion()
    except RuntimeError as exc:
        pytest.skip(f"no NVRTC library: {exc}")
    assert not status
    folder = tmp_path_factory.mktemp("nvrtc")
    for name, text in FILES.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    return Nvrtc(library, folder, (release[0], release[1]))


FILES = {
    "inc/x.h": "#define INNER 1\nnamespace { __device__ int hidden; }\n",
    "blank inc/x.h": "#define INNER 2\n",
    "a,b/x.h": "#define INNER 3\n",
    "pre.h": "#define A short\n",
    "inc/late.h": "#define A double\n",
}


def written(parsed: Parsed, kind: str = "cubin") -> list[str]:
    """The entries that the adapter will write."""
    return [
        *(["--dlink-time-opt"] if kind == "ltoir" else []),
        *parsed.architectures,
        *parsed.arguments,
        *(f"--include-path={path}" for _, path in parsed.includes),
        *(f"--pre-include={name}" for name in parsed.preincludes),
        *parsed.passthrough,
    ]


# --- the table ---------------------------------------------------------------------------------------------------

VALUES = {
    "--gpu-architecture": "compute_80",
    "--Ofast-compile": "min",
    "--define-macro": "A=1",
    "--undefine-macro": "A",
    "--dopt": "on",
    "--fdevice-time-trace": "{folder}/trace",
    "--frandom-seed": "7",
    "--include-path": "{folder}",
    "--jump-table-density": "50",
    "--maxrregcount": "32",
    "--optimization-info": "inline",
    "--pch-dir": "{folder}",
    "--create-pch": "{folder}/made.pch",
    "--use-pch": "{folder}/made.pch",
    "--pre-include": "{folder}/pre.h",
    "--ptxas-options": "-v",
    "--split-compile": "2",
    "--std": "c++20",
    "--tile-preview": "simt",
    "--time": "{folder}/time.csv",
    "--use-bundled-headers": "{folder}/bundled",
    "--warning-as-error": "all-warnings",
    "--fmax-errors": "3",
    "--diag-error": "20,21",
    "--diag-suppress": "20,21",
    "--diag-warn": "20,21",
}


def by_name(option: Option) -> str:
    return option.name


def value(option: Option, folder: Path) -> str:
    return VALUES.get(option.name, "true").format(folder=folder)


def spellings(option: Option, folder: Path) -> list[list[str]]:
    """Every way the table takes an option."""
    names = (option.name, *option.short)
    if option.form is Form.FLAG:
        return [[name] for name in names]
    text = value(option, folder)
    return [
        *([f"{name}={text}"] for name in names),
        *([name, text] for name in names if not option.joined),
        *([f"{name}{blanks}{text}"] for name in names if name in NVRTC.attached for blanks in ("", " ", "  ")),
    ]


def arch_for(option: Option) -> list[str]:
    return ["-arch=compute_100" if option.name == "--device-float128" else "-arch=compute_90"]


@pytest.mark.parametrize("option", NVRTC.options, ids=by_name)
def test_nvrtc_takes_every_spelling_of_the_table(nvrtc: Nvrtc, option: Option) -> None:
    if option.name == "--use-pch":
        nvrtc.compile([*arch_for(option), f"--create-pch={value(option, nvrtc.folder)}"], "ptx", TINY)
    expected = COMPILATION if option.name == "--utf-8" else SUCCESS
    for argv in spellings(option, nvrtc.folder):
        status, _ = nvrtc.compile([*arch_for(option), *argv], "ptx", TINY)
        assert status == (expected if nvrtc.has(option) else INVALID_OPTION), argv


@pytest.mark.parametrize("option", [o for o in NVRTC.options if o.treatment is not Treatment.REFUSED], ids=by_name)
def test_all_spellings_of_an_option_read_the_same(nvrtc: Nvrtc, option: Option) -> None:
    kind = {"--dlink-time-opt": "ltoir", "--optix-ir": "optix-ir"}.get(option.name, "ptx")
    assert len({nvrtc.read(argv, kind) for argv in spellings(option, nvrtc.folder)}) == 1


@pytest.mark.parametrize("option", [o for o in NVRTC.options if o.form is not Form.FLAG], ids=by_name)
def test_nvrtc_takes_no_spelling_that_the_table_does_not(nvrtc: Nvrtc, option: Option) -> None:
    text = value(option, nvrtc.folder)
    for name in (option.name, *option.short):
        wrong = [[name, text]] if option.joined else []
        if name not in NVRTC.attached:
            wrong += [[f"{name} {text}"], [f"{name}{text}"], [f"{name} ={text}"], [f"-{option.name}={text}"]]
        for argv in wrong:
            assert nvrtc.compile(["-arch=compute_90", *argv], "ptx", TINY)[0] == INVALID_OPTION, argv
            parsed = nvrtc.read(argv)
            assert parsed.uncacheable, argv
            assert parsed.passthrough == tuple(argv)


@pytest.mark.parametrize("option", [o for o in NVRTC.options if o.form is Form.FLAG], ids=by_name)
def test_a_flag_takes_no_value(nvrtc: Nvrtc, option: Option) -> None:
    with pytest.raises(ConfigError, match="it takes no argument"):
        nvrtc.read([f"{option.name}=true"])
    # NVRTC 13 looks at the beginning of this one only.
    if option.name != "--no-cache":
        assert nvrtc.compile([f"{option.name}=true"], "ptx", TINY)[0] == INVALID_OPTION


DOCUMENTED = re.compile(r"\\c +(--[\w-]+)(=?)[^\n]*?(?:\(\\c (--?[\w-]+)[^\n]*\))?[ ]*$", re.MULTILINE)
# The header says so, and the library does not know them.
NOT_TAKEN = {"--default-tile"}


def test_the_table_knows_every_option_of_this_header(nvrtc: Nvrtc) -> None:
    header = Path(sysconfig.get_path("purelib"), "nvidia/cu13/include/nvrtc.h")
    if not header.exists():
        pytest.skip("no nvrtc.h in the nvidia-cuda-nvrtc wheel")
    text = header.read_text().partition(r"\defgroup options")[2].partition("*/")[0]
    listed = [
        found for line in re.findall(r"^ \* +- (\\c --.*)$", text, re.MULTILINE) if (found := DOCUMENTED.match(line))
    ]
    assert len(listed) >= 60
    for found in listed:
        name, equals, short = found[1], found[2], found[3]
        if name in NOT_TAKEN:
            assert nvrtc.compile([name], "ptx", TINY)[0] == INVALID_OPTION
            continue
        option = NVRTC.spellings.get(name)
        assert option is not None, f"unknown option {name}"
        assert not short or NVRTC.spellings.get(short) is option, f"unknown spelling {short} of {name}"
        assert not equals or option.form is not Form.FLAG, name


def test_no_row_is_without_its_fields() -> None:
    for option in NVRTC.options:
        assert option.why or option.means or option.treatment is Treatment.SEMANTIC, option.name
        assert option.remedy or (option.treatment is not Treatment.REFUSED and not option.refused), option.name
        if option.means:
            assert NVRTC.find(option.means), option.name
    assert set(NVRTC.attached) == {"-D", "-U", "-I"}


# --- what reading and writing leaves the same --------------------------------------------------------------------

SAME_BYTES: list[tuple[str, list[str]]] = [
    ("cubin", ["-arch=sm_90a"]),
    ("cubin", ["--gpu-architecture", "sm_80", "-arch=sm_90"]),
    ("ptx", ["-arch", "sm_90a"]),
    ("ptx", ["-arch=compute_100f"]),
    ("ltoir", ["-arch=sm_90", "-dlto"]),
    ("ltoir", ["-arch=compute_90", "-dlto", "-gen-opt-lto", "-dc"]),
    ("cubin", ["-DA=long", "-D", "A=char", "-UA", "-D A=int", "-D=B"]),
    ("cubin", ["-UA", "-DA=long long", "-DB=1,2", '-DC="x y"', "-DD=`$(id)`;*", "-D\tE", " -DF=1 "]),
    ("cubin", ["--define-macro=A=short", "--undefine-macro", "B", "-D", "B"]),
    ("cubin", ["-std=c++17", "--std=c++20", "-default-device", "-no-source-include", "-minimal", "-device-int128"]),
    ("cubin", ["-builtin-move-forward=false", "-builtin-initializer-list", "false"]),
    ("cubin", ["-use_fast_math", "-ftz=false", "--prec-div", "true", "-fmad=true", "--fmad=false"]),
    ("cubin", ["-ftz=true", "-prec-sqrt=false", "-use_fast_math", "-extra-device-vectorization", "-restrict"]),
    ("cubin", ["-maxrregcount=010"]),
    ("cubin", ["-maxrregcount", "8", "-maxrregcount=32 "]),
    ("cubin", ["-Xptxas", "-O2", "--ptxas-options=-v", "-Xptxas=-O1"]),
    ("cubin", ["-Xptxas", "--opt-level", "-Xptxas", "2", "-w", "-maxrregcount=64"]),
    ("cubin", ["-split-compile=02"]),
    ("cubin", ["-split-compile", "1", " -split-compile=3"]),
    ("cubin", ["-Ofc=max", "-Ofc", "min", "-jtd=050"]),
    ("cubin", ["-rdc=false", "-dw", "-w"]),
    ("cubin", ["-dc", "-rdc", "true", "-w"]),
    ("cubin", ["-dw", "-ewp"]),
    ("cubin", ["-lineinfo", "-dopt", "on"]),
    ("cubin", ["-G", "-w"]),
    ("cubin", ["-dopt=on", "--device-debug", "-lineinfo"]),
    ("cubin", ["-device-stack-protector=true", "-frandom-seed=abc,d"]),
    ("cubin", ["-w", "-Werror", "all-warnings,all-warnings", "-Werror=all-warnings", "-Werror="]),
    ("cubin", ["-diag-error=177", "-diag-suppress", "177,20", "-diag-warn=20"]),
    ("cubin", ["-opt-info=inline", "-brief-diag=true", "-no-err-no"]),
    ("cubin", ["-DHEADER", "-I{folder}/inc", "-I", "{folder}/blank inc", "-DA=INNER"]),
    ("cubin", ["-DHEADER", "-I {folder}/blank inc ", "-I={folder}/inc/.", "-DA=INNER"]),
    ("cubin", ["-DHEADER", "--include-path={folder}/a,b", "-DA=INNER"]),
    ("cubin", ["-include", "{folder}/pre.h", "-include={folder}/inc/late.h"]),
    ("cubin", ["-include={folder}/inc/late.h", "--pre-include", "{folder}/pre.h"]),
    ("cubin", ["-include", "late.h", "-I{folder}/inc"]),
    ("cubin", ["-time=-", "-no-cache", "-pch", "-modify-stack-limit=false", "-pch-messages=false"]),
    ("ptx", ["-lineinfo", "-Xptxas=-O1"]),
]  # fmt: skip


SAME_FAILURE: list[list[str]] = [
    ["-diag-suppress=177", "-diag-error=177"],
    ["-Werror=all-warnings"],
    ["-err-no", "-no-err-no"],
    ["-ewp", "-dc"],
    ["-new", "-DA=1"],
    ["-arch=sm_1"],
    ["-arch=native"],
    ["-maxrregcount=0x20"],
    ["-jtd=102"],
    ["-std=gnu++17"],
    ["-ftz=1"],
    ["-ftz= true"],
    ["-D", ""],
    ["-DA,B=1"],
    ["-include", "missing.h"],
    ["-Werror=x"],
    ["-dopt=off"],
    ["-Xptxas=-O2 -v"],
]


@pytest.mark.parametrize("argv", SAME_FAILURE, ids=str)
def test_what_nvrtc_refuses_it_refuses_in_canonical_form(nvrtc: Nvrtc, argv: list[str]) -> None:
    status, _ = nvrtc.compile(["-arch=sm_90a", *argv])
    assert status in (INVALID_OPTION, COMPILATION)
    assert nvrtc.compile(written(nvrtc.read(["-arch=sm_90a", *argv])))[0] == status


@pytest.mark.parametrize(("kind", "argv"), SAME_BYTES, ids=lambda value: value if isinstance(value, str) else None)
def test_nvrtc_makes_the_same_of_the_canonical_arguments(nvrtc: Nvrtc, kind: str, argv: list[str]) -> None:
    argv = [word.format(folder=nvrtc.folder) if "{folder}" in word else word for word in argv]
    if not any("arch" in word for word in argv):
        argv = ["-arch=sm_90a", *argv]
    for word in argv:
        found = NVRTC.find(word)
        if found and not nvrtc.has(found[0]):
            pytest.skip(f"this NVRTC has no {found[0].name}")
    parsed = nvrtc.read(argv, kind)
    one, other = nvrtc.compile(argv, kind), nvrtc.compile(written(parsed, kind), kind)
    assert one[0] == SUCCESS
    assert one[1]
    assert other == one
    assert all(word[:2] == "--" for word in written(parsed) if word not in parsed.passthrough)
    again = nvrtc.read(written(parsed, kind), kind)
    assert written(again, kind) == written(parsed, kind)


@pytest.mark.parametrize("kind", ["ptx", "ltoir"])
def test_what_is_no_cubin_is_of_the_virtual_architecture(nvrtc: Nvrtc, kind: str) -> None:
    status, numbers = nvrtc.library.nvrtcGetSupportedArchs()
    assert not status
    names = [f"{number}{suffix}" for number in numbers for suffix in (("", "a") if number >= 90 else ("",))]
    more = ["--dlink-time-opt"] if kind == "ltoir" else []
    for name in names:
        real, virtual = ([f"-arch={prefix}_{name}", *more] for prefix in ("sm", "compute"))
        assert nvrtc.compile(real, kind, TINY) == nvrtc.compile(virtual, kind, TINY)
        assert nvrtc.read(real, kind) == nvrtc.read(virtual, kind)


@pytest.mark.parametrize("option", [o for o in NVRTC.options if o.treatment is Treatment.OUTPUT], ids=by_name)
def test_nvrtc_makes_the_same_without_an_option_that_is_dropped(nvrtc: Nvrtc, tmp_path: Path, option: Option) -> None:
    base = ["-arch=sm_90a", f"-I{nvrtc.folder}/inc", "-lineinfo", "-frandom-seed=1"]
    argv = spellings(option, tmp_path)[0]
    if option.name == "--use-pch":
        assert nvrtc.compile([*base, f"--create-pch={argv[0].partition('=')[2]}"], source=WITH_HEADER)[0] == SUCCESS
    assert nvrtc.read(argv).arguments == ()
    assert nvrtc.compile([*base, *argv], source=WITH_HEADER) == nvrtc.compile(base, source=WITH_HEADER)


@pytest.mark.parametrize(
    "argv", [["-pch"], ["-pch", "-pch-dir={folder}"], ["-pch", "-instantiate-templates-in-pch=false"]]
)
def test_precompiled_headers_change_no_bytes_on_first_and_second_use(nvrtc: Nvrtc, argv: list[str]) -> None:
    base = ["-arch=sm_90a", f"-I{nvrtc.folder}/inc", "-rdc=true", "-frandom-seed=1"]
    argv = [word.format(folder=nvrtc.folder) for word in argv]
    plain = nvrtc.compile(base, source=WITH_HEADER)
    assert plain[0] == SUCCESS
    assert [nvrtc.compile([*base, *argv], source=WITH_HEADER) for _ in range(2)] == [plain, plain]


def test_a_program_without_external_names_is_the_same_for_the_same_seed_only(nvrtc: Nvrtc) -> None:
    def ptx(*argv: str) -> bytes:
        return nvrtc.compile(["-arch=compute_90", *argv], "ptx", UNSEEDED, ["k<int>"])[1]

    assert ptx("-frandom-seed=1") == ptx("-frandom-seed=1") != ptx("-frandom-seed=2")
    parsed = nvrtc.read(["-frandom-seed=1", "-frandom-seed=2"])
    assert ptx("-frandom-seed=1", "-frandom-seed=2") == ptx(*parsed.arguments)


# --- order -------------------------------------------------------------------------------------------------------

INDEPENDENT = [
    ["-arch=sm_90a"], ["-std=c++20"], ["-DA=long"], ["-use_fast_math"], ["-ftz", "false"], ["-fmad=false"], ["-w"],
    ["-Xptxas", "-O2"], ["-maxrregcount", "32"], ["-split-compile=2"], ["-dc"], ["-restrict"], ["-lineinfo"],
    ["-device-stack-protector=true"], ["-diag-suppress=177,20"], ["-dopt=on"], ["-brief-diag", "true"], ["-jtd=50"],
    ["-frandom-seed=x"], ["-include", "{folder}/inc/x.h"], ["-I{folder}/inc"], ["-no-cache"], ["-opt-info=inline"],
]  # fmt: skip


def test_nvrtc_makes_the_same_of_independent_options_in_any_order(nvrtc: Nvrtc) -> None:
    options = [[word.format(folder=nvrtc.folder) for word in argv] for argv in INDEPENDENT]
    parsed = nvrtc.read([*chain(*options)])
    expected = nvrtc.compile(written(parsed))
    assert expected[0] == SUCCESS
    random = Random(5)
    for _ in range(8):
        random.shuffle(options)
        argv = [*chain(*options)]
        assert nvrtc.compile(argv) == expected
        assert nvrtc.read(argv) == parsed


def parse(*argv: str, kind: str = "cubin", environ: dict[str, str] | None = None) -> Parsed:
    return parse_nvrtc(argv, kind=kind, folder="/w", environ=environ or {})


@given(st.permutations(INDEPENDENT))
def test_the_order_of_independent_options_never_matters(options: list[list[str]]) -> None:
    assert parse(*chain(*options)) == parse(*chain(*INDEPENDENT))


MEETING = [
    ["-DA", "-UA"], ["-Ia", "-Ib"], ["-include=a", "-include=b"], ["-Xptxas=-O1", "-Xptxas=-O2"],
    ["-diag-error=1", "-diag-warn=1"], ["-std=c++17", "-std=c++20"],
]  # fmt: skip


@pytest.mark.parametrize("group", MEETING, ids=str)
def test_the_order_of_options_that_meet_always_matters(group: list[str]) -> None:
    assert parse(*group) != parse(*reversed(group))


SEMANTIC = [o for o in NVRTC.options if o.treatment is Treatment.SEMANTIC and not o.means]


@given(st.lists(st.sampled_from(SEMANTIC), unique=True, min_size=1), st.data())
def test_leaving_out_a_semantic_option_changes_the_arguments(options: list[Option], data: st.DataObject) -> None:
    words = [spellings(option, Path("/w"))[0] for option in options]
    less = list(words)
    less.pop(data.draw(st.integers(0, len(words) - 1)))
    assert parse(*chain(*less)).arguments != parse(*chain(*words)).arguments


@given(st.lists(st.sampled_from(SEMANTIC)), st.randoms(use_true_random=False))
def test_the_canonical_form_reads_as_itself(options: list[Option], random: Random) -> None:
    parsed = parse(*chain(*(random.choice(spellings(option, Path("/w"))) for option in options)))
    assert parse(*parsed.arguments) == parsed


text = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1).map(lambda value: value.strip())


@given(text.filter(bool))
def test_a_macro_is_taken_as_it_is(definition: str) -> None:
    spelled = [parse("-D", f"A={definition}"), parse(f"-DA={definition}"), parse(f"--define-macro=A={definition}")]
    assert spelled == [Parsed(arguments=(f"--define-macro=A={definition}",))] * 3


# --- places, kinds, refusals -------------------------------------------------------------------------------------


def test_options_of_other_kinds_are_told_apart() -> None:
    parsed = parse(
        "-Ia", "-I", "../b", "-I=", "-include", "p,q.h", "-arch=sm_90a", "-G", "-time=x", "-Xptxas=-lineinfo"
    )
    assert parsed == Parsed(
        arguments=("--device-debug", "--ptxas-options=-lineinfo"),
        architectures=("--gpu-architecture=sm_90a",),
        includes=(("include", "/w/a"), ("include", "/w/../b"), ("include", "/w")),
        preincludes=("p,q.h",),
        bound=("--device-debug", "--ptxas-options=-lineinfo"),
        dropped=("--time=x",),
    )


def test_what_asks_for_the_kind_at_hand_is_dropped() -> None:
    assert parse("-dlto", "-arch=sm_90", kind="ltoir") == Parsed(
        architectures=("--gpu-architecture=compute_90",), dropped=("--dlink-time-opt",)
    )


def test_of_relocatable_code_and_its_opposite_the_last_counts(nvrtc: Nvrtc) -> None:
    assert parse("-rdc=false", "-dc") == parse("-dw", "-rdc=true") == parse("-dc")
    assert nvrtc.compile(["-rdc=false", "-dc"])[0] == INVALID_OPTION


def test_an_unknown_option_is_handed_through_and_not_kept(nvrtc: Nvrtc) -> None:
    parsed = parse("-w", "--new", "value", "--std", "c++20", "-O3", "-fmad=true")
    assert parsed.passthrough == ("--new", "value", "--std", "c++20", "-O3")
    assert parsed.uncacheable == ("--new: unknown option", "--std: unknown option", "-O3: unknown option")
    assert parsed.arguments == ("--disable-warnings", "--fmad=true")
    assert nvrtc.compile(written(parsed))[0] == INVALID_OPTION


REFUSED = [
    (["-dlto"], "another output than cubin"),
    (["-optix-ir"], "another output than cubin"),
    (["-fdevice-syntax-only"], "leave it out"),
    (["-arch=compute_90"], "give sm_90"),
    (["-split-compile=0"], "give a fixed number"),
    (["-split-compile", "00"], "give a fixed number"),
    (["-Xptxas=--split-compile=0"], "give a fixed number"),
    (["-Xptxas", "-split-compile", "-Xptxas", "0"], "give a fixed number"),
    (["-dopt="], "ends the process"),
    (["-Ofc", ""], "ends the process"),
    (["-Xptxas="], "ends the process"),
    (["-ftz"], "its argument is missing"),
    (["-w=1"], "it takes no argument"),
    (["k.cu"], "an input file among the options"),
    ([""], "an input file among the options"),
    (['-Werror="reorder'], "a quotation mark without its partner"),
]


@pytest.mark.parametrize(("argv", "finding"), REFUSED, ids=str)
def test_what_cannot_be_meant_is_refused(argv: list[str], finding: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(*argv)
    assert finding in str(caught.value)


UNCACHEABLE = [
    ["-use-bundled-headers=x"], ["--use-bundled-headers=x"], ["-Xptxas=-optf=f"], ["-Xptxas", "--options-file=f"],
    ["-Xptxas=/x/y"], ["-Xptxas=x.ptx"], ["-Xptxas=-v -O2"], ["-Xptxas=-o", "-Xptxas=x"], ["-arch sm_90"], ["-G7"],
    ["--time", "-"], ["-std", "c++17"], ["-m64"], ["-gencode", "arch=compute_90,code=sm_90"], ["--arch=sm_90"],
]  # fmt: skip


@pytest.mark.parametrize("argv", UNCACHEABLE, ids=str)
def test_what_the_key_cannot_see_is_handed_through_and_not_kept(argv: list[str]) -> None:
    parsed = parse(*argv)
    assert parsed.uncacheable
    assert parsed.arguments or parsed.passthrough


@pytest.mark.parametrize("argv", [["-Xptxas=-O3"], ["-Xptxas", "--opt-level", "-Xptxas", "3"], ["-DA=$HOME;`id`*"]])
def test_nothing_goes_through_a_shell(argv: list[str]) -> None:
    assert not parse(*argv).uncacheable


@pytest.mark.parametrize("name", ["NVRTC_APPEND_FLAGS", "NVRTC_PREPEND_FLAGS"])
def test_a_variable_of_unknown_meaning_is_not_kept(name: str) -> None:
    assert parse(environ={name: "-w"}).uncacheable == (f"{name}: unknown to Cubinet",)
    assert parse(environ={name: ""}) == Parsed()


@pytest.mark.parametrize("name", ["NVRTC_APPEND_FLAGS", "NVRTC_PREPEND_FLAGS"])
def test_this_nvrtc_does_not_act_on_the_variable(nvrtc: Nvrtc, name: str) -> None:
    script = (
        "from cuda.bindings import nvrtc; p = nvrtc.nvrtcCreateProgram(b'', b'k', 0, None, None)[1];"
        "print(int(nvrtc.nvrtcCompileProgram(p, 0, [])[0]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        env=os.environ | {name: "--no-such-option"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "0"
