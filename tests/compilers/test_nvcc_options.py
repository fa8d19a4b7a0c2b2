"""The table of nvcc's options, held against the nvcc at hand.

The `-dryrun` tests are the proof that reading an argument list and writing it back changes nothing: nvcc is asked
what it would run for both, and has to answer the same.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sysconfig
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cubinet.compilers._nvcc_options import NVCC, parse_nvcc, split_environment, split_options_file
from cubinet.compilers._options import Form, Option, Parsed, Treatment
from cubinet.errors import ConfigError

FLAG_VARIABLES = ("NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS", "NVCC_CCBIN")


def compilers() -> list[str | None]:
    wheel = Path(sysconfig.get_path("purelib"), "nvidia/cu13/bin/nvcc")
    return [path for path in (shutil.which("nvcc"), str(wheel) if wheel.exists() else None) if path] or [None]


@dataclass(frozen=True)
class Nvcc:
    path: str
    folder: Path

    def run(self, *argv: str, environ: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
        env = {name: value for name, value in os.environ.items() if name not in FLAG_VARIABLES}
        return subprocess.run(
            [self.path, *argv],
            cwd=self.folder,
            env=env | dict(environ or {}),
            capture_output=True,
            text=True,
            check=False,
        )

    def commands(self, kind: str, argv: Sequence[str], environ: Mapping[str, str] | None = None) -> list[str]:
        """What nvcc would run, less the names of intermediate files and outputs."""
        done = self.run("-dryrun", f"-{kind}", *argv, "k.cu", environ=environ)
        assert done.returncode == 0, done.stderr
        lines = [
            line.replace(f"{self.folder}/", "").replace(f'"{self.folder}"', '""').partition(" > ")[0]
            for line in done.stderr.splitlines()
            if re.match(r'#\$ (\S*gcc|\S*g\+\+|"/usr/bin"/|"?\S*cicc"?|ptxas|fatbinary|cudafe) ?', line)
            and ".cpp4.ii" not in line  # for dependency files
        ]
        intermediate = re.compile(
            r'[^\s",=]*\.(?:ii|ptx|cubin|fatbin|module_id|ltoir|fatbin\.c|cudafe1\.\w+(?:\.c)?)(?=[",])'
        )
        return [" ".join(intermediate.sub("F", line).split()) for line in lines]

    def read(self, argv: Sequence[str], kind: str = "cubin", environ: Mapping[str, str] | None = None) -> Parsed:
        return parse_nvcc(argv, kind=kind, folder=str(self.folder), environ=environ or {})


@pytest.fixture(scope="module", params=compilers())
def nvcc(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Nvcc:
    if request.param is None:
        pytest.skip("no nvcc on PATH or in the nvidia-cuda-nvcc wheel")
    folder = tmp_path_factory.mktemp("nvcc")
    for name, text in FILES.items():
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    return Nvcc(request.param, folder)


FILES = {
    "k.cu": "__global__ void k() {}\n",
    "inc/x.h": "",
    "blank inc/y.h": "",
    "plain.txt": '-DA -O2\t-std=c++20\n\n"-DB=x y" -DC\\ d\r\n',
    "quotes.txt": '-DA="x,y" -DB=\\"p,q\\" -DC=a\\,b -DD=a\\\\,b "-DE=\\"z\\"" -DF=\\\\\\\\',
    "sub/outer.txt": "-DOUTER -optf inner.txt -DAFTER",
    "inner.txt": "-DINNER -Xptxas -O2,-v",
    "sub/inner.txt": "-DWRONG",
}


def written(parsed: Parsed) -> list[str]:
    """The argument list that the adapter will write, with roots where they are."""
    flags = {"include": "-I", "system": "-isystem"}
    return [
        *(("-ccbin", parsed.host_compiler) if parsed.host_compiler else ()),
        *parsed.architectures,
        *parsed.arguments,
        *chain.from_iterable((flags[kind], f'"{path}"') for kind, path in parsed.includes),
        *chain.from_iterable(("-include", name) for name in parsed.preincludes),
        *parsed.passthrough,
    ]


SAME_COMMANDS: list[tuple[str, list[str]]] = [
    ("cubin", ["-arch=sm_90a"]),
    ("cubin", ["-gencode", "arch=compute_90a,code=sm_90a"]),
    ("cubin", ["-gencode=code=sm_90a,arch=compute_90a"]),
    ("cubin", ["-gencode", "arch=compute_90a, code=[sm_90a]"]),
    ("cubin", ["-arch", "compute_80", "-code", "sm_86"]),
    ("cubin", ["-arch=compute_80", "-code=sm_86,sm_86"]),
    ("cubin", ["-arch=sm_90a", "-gencode", "arch=compute_90a,code=sm_90a"]),
    ("cubin", ["-arch=sm_80", "-arch=sm_90"]),
    ("cubin", ["-arch=sm_100f"]),
    ("ptx", ["-arch=sm_90a"]),
    ("ptx", ["-arch=compute_90a"]),
    ("ptx", ["-arch=compute_90a", "-code=sm_90a,compute_90a"]),
    ("ptx", ["-gencode", "arch=compute_90,code=[sm_90,compute_90]"]),
    ("ptx", ["-gencode", "arch=compute_90,code=sm_90", "-gencode", "arch=compute_90,code=sm_90a"]),
    ("ptx", ["-arch=lto_90"]),
    ("fatbin", ["-arch=sm_90"]),
    ("fatbin", ["-arch=sm_90a"]),
    ("fatbin", ["-arch=sm_100f"]),
    ("fatbin", ["-arch=compute_90"]),
    ("fatbin", ["-arch=compute_90", "-code=sm_90"]),
    ("fatbin", ["-arch=compute_80", "-code=sm_80,sm_86,compute_80"]),
    ("fatbin", ["-arch=compute_80", "-code", "sm_80", "-code", "sm_86"]),
    ("fatbin", ["-gencode", 'arch=compute_90,code="sm_90,compute_90"']),
    ("fatbin", ["-gencode", "arch=compute_90,code=[compute_90,sm_90]"]),
    ("fatbin", ["-gencode", "arch=compute_90,code=sm_90", "-gencode", "arch=compute_80,code=sm_80"]),
    ("fatbin", ["-gencode", "arch=compute_80,code=sm_80", "-gencode", "arch=compute_80,code=sm_80"]),
    ("fatbin", ["-gencode", "arch=compute_80,code=sm_80", "-arch=sm_90"]),
    ("fatbin", ["-gencode", "arch=compute_90,code=sm_90", "-arch=sm_90"]),
    ("fatbin", ["-gencode", "arch=compute_80,code=sm_86", "-arch=sm_90a"]),
    ("fatbin", ["-arch=lto_90"]),
    ("fatbin", ["-arch=all-major"]),
    ("fatbin", ["-arch=sm_80", "-dlto"]),
    ("fatbin", ["-arch=sm_80", "--compress-mode=size", "-no-compress"]),
    ("cubin", ["-DA", "-D", "B=2", "-D=C", "--define-macro", "E=1,F=2", "-UA", "-DA=3"]),
    ("cubin", ['-DA="x,y"', r"-DB=\"p\,q\"", "-DC='a", "-DD=a b", r"-DE=a\\b", "-DF= x , G ", "-D=", "-DH,,I,"]),
    ("cubin", ["-DF=f(a,b)", r"-DG=f(a\,b)", r'-DH="\"",I', r"-DJ=a\b"]),
    ("cubin", ["-Xptxas", "-O3,-v"]),
    ("cubin", ["--ptxas-options=-O3", "-Xptxas", "-v", "-Xptxas", "-O2 -w"]),
    ("cubin", ["-Xcompiler", "-fPIC,-Wall", "-Xcompiler=-O2", "--compiler-options", "-DX=1 -funroll-loops"]),
    ("cubin", ["-Xcompiler", '-DX="a,b"', "-Xcompiler", r"-DY=a\,b", "-Xcompiler", r"-DZ=\"c d\""]),
    ("cubin", ["-Xcompiler", "-I/a,-include,inc/x.h", "-Xcompiler", "'-DA=1 2'"]),
    ("cubin", ["-Xcicc", "-O2", "-Xcudafe", "--a,--b", "-Xcicc=-v"]),
    ("cubin", ["-O3", "-std=c++17", "-std", "c++20", "-O", "0x2", "--optimize=03"]),
    ("cubin", ["-maxrregcount=010", "-jtd", "+50", "-split-compile=0x3"]),
    ("cubin", ["-ftz=true", "-use_fast_math", "--prec-div=true", "-fmad", "false", "-restrict"]),
    ("cubin", ["-lineinfo", "-lineinfo", "-src-in-ptx", "-opt-info", "inline"]),
    ("cubin", ["-G", "-dopt", "on", "-g", "-pg"]),
    ("cubin", ["-rdc=true", "-keep-device-functions", "-e", "k,j", "--entries=m"]),
    ("cubin", ["-Werror", "reorder,all-warnings", "-Wreorder", "-w", "-Werror=reorder", "-res-usage"]),
    ("cubin", ["-diag-suppress", "3, 1", "-diag-error=2", "-diag-suppress=1", "-diag-warn", "7", "-no-err-no"]),
    ("cubin", ["-I", "inc", "-isystem", "blank inc", "-Iinc/", "--include-path", 'blank inc/.,"a,b"', "-I="]),
    ("cubin", ["-isystem", "inc", "-I.", "-include", "inc/x.h", "-include=inc/x.h,inc/x.h"]),
    ("cubin", ["-ccbin", "gcc"]),
    ("cubin", ["-ccbin=/usr/bin"]),
    (
        "cubin",
        ["-m64", "-x", "cu", "-default-stream=per-thread", "-noeh", "-expt-extended-lambda", "-frandom-seed=a,b"],
    ),
    (
        "cubin",
        ["-expt-relaxed-constexpr", "--extended-lambda", "-nohdinitlist", "-nohdmoveforward", "-brief-diag=true"],
    ),
    ("cubin", ["-optf", "plain.txt", "-std=c++17"]),
    ("cubin", ["-DFIRST", "-optf=quotes.txt", "-DLAST"]),
    ("cubin", ["--options-file", "sub/outer.txt,plain.txt"]),
    ("cubin", ["-forward-unknown-to-host-compiler", "-fPIC", "-O2", "-Wall"]),
    ("cubin", ["-noprof", "-DA"]),
    ("cubin", ["-c", "-cubin", "-ewp", "-Ofc", "max", "-device-stack-protector", "true"]),
]


def without_paths_of_roots(lines: list[str]) -> list[str]:
    """Roots come out absolute and without `/.` at the end; what they name is the same."""
    tidy = re.compile(r'(-I|-isystem )"((?:[^"/]|/(?!usr|tmp))*?)/?\.?"')
    return [tidy.sub(lambda m: f'{m[1]}"{m[2]}"', line) for line in lines]


@pytest.mark.parametrize(("kind", "argv"), SAME_COMMANDS, ids=lambda value: value if isinstance(value, str) else None)
def test_nvcc_runs_the_same_for_the_canonical_arguments(nvcc: Nvcc, kind: str, argv: list[str]) -> None:
    parsed = nvcc.read(argv, kind)
    one, other = nvcc.commands(kind, argv), nvcc.commands(kind, written(parsed))
    assert without_paths_of_roots(other) == without_paths_of_roots(one)


EQUAL: list[tuple[str, list[str], list[str]]] = [
    ("cubin", ["-arch=sm_90a"], ["-gencode", "arch=compute_90a,code=sm_90a"]),
    ("cubin", ["-arch=sm_90a"], ["-arch=compute_90a", "-code=sm_90a"]),
    ("cubin", ["-arch=sm_90a"], ["-gencode=code=[sm_90a],arch=compute_90a"]),
    ("ptx", ["-arch=sm_90a"], ["-arch=compute_90a"]),
    ("ptx", ["-arch=sm_90a"], ["-gencode", "arch=compute_90a,code=[sm_90a,compute_90a]"]),
    ("fatbin", ["-arch=sm_90"], ["-gencode", "arch=compute_90,code=[sm_90,compute_90]"]),
    ("fatbin", ["-arch=compute_90", "-code=sm_90"], ["-gencode", "arch=compute_90,code=sm_90"]),
    ("cubin", ["-Xptxas", "-O3,-v"], ["--ptxas-options=-O3", "-Xptxas", "-v"]),
    ("cubin", ["-dlto"], ["--lto"]),
    ("cubin", ["-m64"], ["-m", "64"]),
    ("cubin", ["-t4", "-odir", "x", "-keep", "-MD", "-lcuda", "-L/x", "-cubin"], []),
]


@pytest.mark.parametrize(("kind", "one", "other"), EQUAL)
def test_requests_that_nvcc_treats_alike_are_equal(nvcc: Nvcc, kind: str, one: list[str], other: list[str]) -> None:
    a, b = nvcc.read(one, kind), nvcc.read(other, kind)
    assert (a.architectures, a.arguments) == (b.architectures, b.arguments)


def test_a_specific_architecture_as_fatbin_is_more_than_one_generate_code(nvcc: Nvcc) -> None:
    shorthand, spelled = ["-arch=sm_90a"], ["-gencode", "arch=compute_90a,code=[sm_90a,compute_90a]"]
    assert nvcc.commands("fatbin", shorthand) != nvcc.commands("fatbin", spelled)
    assert nvcc.read(shorthand, "fatbin").architectures == ("--gpu-architecture=sm_90a",)


@pytest.mark.parametrize(
    "text", ["arch=compute_80", "code=sm_80", "arch=compute_80,code=sm_80,sm_86", "arch=a,arch=b", "x"]
)
def test_a_generate_code_that_is_not_understood_is_left_to_nvcc(nvcc: Nvcc, text: str) -> None:
    assert nvcc.read(["-gencode", text]).architectures == (f"--generate-code={text}",)
    assert nvcc.run("-dryrun", "-cubin", "-gencode", text, "k.cu").returncode


def test_every_real_architecture_has_the_virtual_one_of_its_name(nvcc: Nvcc) -> None:
    names = sorted(set(re.findall(r"'(sm_\w+)'", nvcc.run("--help").stdout)))
    assert "sm_90a" in names
    for name in names:
        parsed = nvcc.read([f"-arch={name}"])
        assert nvcc.commands("cubin", [f"-arch={name}"]) == nvcc.commands("cubin", parsed.architectures)


ENVIRONMENTS = [
    {"NVCC_PREPEND_FLAGS": "-DA  -DB\t-std=c++20", "NVCC_APPEND_FLAGS": "-DC -O2"},
    {"NVCC_PREPEND_FLAGS": '-DA="x y" -DB=a\\,b -DC="p,q"'},
    {"NVCC_APPEND_FLAGS": "-std=c++20 -DA='b"},
    {"NVCC_APPEND_FLAGS": "-optf plain.txt"},
    {"NVCC_PREPEND_FLAGS": '-frandom-seed="a\\"b"'},
    {"NVCC_PREPEND_FLAGS": "-frandom-seed=a\\\\b"},
    {"NVCC_CCBIN": "/usr/bin"},
    {"NVCC_CCBIN": "/nowhere", "NVCC_APPEND_FLAGS": "-ccbin gcc"},
    {"NVCC_CCBIN": "gcc", "NVCC_PREPEND_FLAGS": "", "NVCC_APPEND_FLAGS": ""},
]


@pytest.mark.parametrize("environ", ENVIRONMENTS, ids=str)
def test_nvcc_runs_the_same_for_what_its_variables_say(nvcc: Nvcc, environ: dict[str, str]) -> None:
    argv = ["-std=c++17", "-arch=sm_90a"]
    parsed = nvcc.read(argv, environ=environ)
    assert nvcc.commands("cubin", written(parsed)) == nvcc.commands("cubin", argv, environ)


def test_a_host_compiler_on_the_command_line_beats_the_variable(nvcc: Nvcc) -> None:
    assert nvcc.read(["-ccbin", "gcc"], environ={"NVCC_CCBIN": "g++"}).host_compiler == "gcc"
    assert nvcc.read([], environ={"NVCC_CCBIN": "g++"}).host_compiler == "g++"


OF_FORM = {Form.FLAG: "", Form.VALUE: "zz", Form.NUMBER: "3", Form.NAMES: "zz", Form.LIST: "zz", Form.EACH: "zz"}
VALUES = {
    "--output-file": "out.ptx",
    "--cudart": "none",
    "--cudadevrt": "none",
    "--output-directory": ".",
    "--keep-dir": ".",
    "--host-linker-script": "use-lcs",
    "--time": "-",
}
NEEDS = {"--dependency-output": ["-MD"], "--fdevice-time-trace-granularity": ["-fdevice-time-trace=-"]}


@pytest.mark.parametrize("option", [o for o in NVCC.options if o.treatment is Treatment.OUTPUT], ids=lambda o: o.name)
def test_nvcc_runs_the_same_without_an_option_that_is_dropped(nvcc: Nvcc, option: Option) -> None:
    if option.name not in nvcc.run("--help").stdout:
        pytest.skip(f"this nvcc has no {option.name}")
    value = VALUES.get(option.name, OF_FORM[option.form])
    argv = [*NEEDS.get(option.name, []), option.name, *([value] if value else [])]
    assert nvcc.read(argv).arguments == ()
    for kind in ("cubin", "ptx", "fatbin"):
        with_it, without = nvcc.commands(kind, ["-arch=sm_90", *argv]), nvcc.commands(kind, ["-arch=sm_90"])
        # Where outputs go is the adapter's. Sharing out processors and telling of progress is handed on.
        place = re.compile(r' -o "[^"]*"|--create="[^"]*"| -jobserver\b| -v2\b')
        assert sorted(place.sub("", line) for line in with_it) == sorted(place.sub("", line) for line in without)


HELP_LINE = re.compile(r"^--(\S+)(?: (\S.*?))?\s+\(?(--?\S+?)\)?\s*$")
# The help of these shows no argument, and nvcc wants one.
ARGUMENT_NOT_SHOWN = {"--dependency-output": Form.VALUE, "--qpp-config": Form.VALUE}


def test_the_table_knows_every_option_of_this_nvcc_and_its_argument(nvcc: Nvcc) -> None:
    listed = [found for line in nvcc.run("--help").stdout.splitlines() if (found := HELP_LINE.match(line))]
    assert len(listed) >= 143
    for found in listed:
        name, argument, short = f"--{found[1]}", found[2] or "", found[3]
        option = NVCC.spellings.get(name)
        assert option is not None, f"unknown option {name}"
        assert NVCC.spellings.get(short) is option, f"unknown spelling {short} of {name}"
        if name in ARGUMENT_NOT_SHOWN:
            assert option.form is ARGUMENT_NOT_SHOWN[name]
        elif argument.endswith(",..."):
            assert option.form in (Form.LIST, Form.NAMES, Form.EACH), name
        else:
            assert (option.form is Form.FLAG) == (not argument), name
            assert option.form not in (Form.LIST, Form.NAMES, Form.EACH), name
        assert option.form is not Form.NUMBER or re.search("number|level|limit|amount|granularity", argument), name


def test_every_spelling_of_the_table_that_nvcc_lists_is_one_it_takes(nvcc: Nvcc) -> None:
    listed = nvcc.run("--help").stdout
    for option in NVCC.options:
        if option.since == "hidden" or option.name not in listed:
            continue
        for spelling in (option.name, *option.short):
            assert "Unknown option" not in nvcc.run("-dryrun", spelling).stderr, spelling


def test_only_the_listed_two_letter_options_take_an_attached_value(nvcc: Nvcc) -> None:
    for option in NVCC.options:
        for short in option.short:
            if len(short) == 2 and not option.attached and short not in ("-m", "-v"):
                assert "Unknown option" in nvcc.run("-dryrun", f"{short}7q").stderr, short
    assert set(NVCC.attached) == {"-D", "-U", "-I", "-L", "-l", "-O", "-t"}


def test_no_row_is_without_its_fields() -> None:
    for option in NVCC.options:
        assert option.why or option.treatment is Treatment.SEMANTIC, option.name
        assert option.remedy or option.treatment is not Treatment.REFUSED, option.name
        if option.means:
            assert NVCC.find(option.means), option.name


READ_ALIKE = ['a"b c"d', '"a b"', "a\\\\b", '"a\\"b"', '"a\\\\b"', "a'b", "a#b", "a\\xb", '"a\\,b"', '""', "a\x0bb"]


@pytest.mark.parametrize("text", READ_ALIKE)
@pytest.mark.parametrize("way", ["file", "variable"])
def test_words_are_split_as_nvcc_splits_them(nvcc: Nvcc, text: str, way: str) -> None:
    line = f"-frandom-seed={text} -DEND"
    if way == "file":
        (nvcc.folder / "words.txt").write_text(line)
        words, argv, environ = split_options_file(line), ["-optf", "words.txt"], {}
    else:
        words, argv, environ = split_environment(line), [], {"NVCC_PREPEND_FLAGS": line}
    assert nvcc.commands("cubin", words) == nvcc.commands("cubin", argv, environ)


@pytest.mark.parametrize("text", ["a\\", '"a', 'b "'])
def test_an_unfinished_options_file_is_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        split_options_file(text)


@pytest.mark.parametrize("text", ['"a', r"-DA=\"x\""])
def test_an_unfinished_variable_is_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        split_environment(text)


def test_an_options_file_ends_at_a_nul() -> None:
    assert split_options_file('-DA "" b\0-DB') == ["-DA", "", "b"]


REFUSED = (
    "-arch=native", "-run", "-lib", "-link", "-dlink", "-dc", "-dryrun", "-E", "-M", "-MM", "-ptx", "-c", "-dw",
    "-optix-ir", "-cuda", "-clean", "--help", "-V", "-r", "other.cu", "a.o", "-split-compile 0",
    "-split-compile=0x0", "--split-compile-extended=00", "-x c++", "-tilecubin", "-Xptxas --split-compile=0",
    "-Xptxas -split-compile,0", "-Xcompiler -march=native", "-code=sm_90", "-arch=sm_90 -code=sm_90",
    "-optf missing.txt", "-std", "-lineinfo=yes",
)  # fmt: skip


@pytest.mark.parametrize("text", REFUSED)
def test_what_cannot_be_meant_is_refused(text: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError):
        parse_nvcc(shlex.split(text), kind="cubin", folder=str(tmp_path), environ={})


UNCACHEABLE = (
    "-foo", "-Wall", "-lineinf", "-tfoo", "-ldir x", "-noprof", "-apply-controls f", "'-DA=$HOME'", "'-DA=`id`'",
    "-Xcompiler -I/x", "-Xcompiler -I,x", "-Xcompiler -isystem,x", "-Xcompiler @f", "-Xcompiler -include,x.h",
    "-Xcompiler -imacros,x.h", "-Xcompiler --sysroot=/x", "-Xcompiler -B/x", "-Xcompiler -specs=x",
    "-Xcompiler -fplugin=x", "-Xcompiler -wrapper,x", "-Xcompiler -iquote,x", "-Xcompiler -idirafter,x",
    '-Xcompiler \'"-I"/x\'', '-Xcompiler \'-DA="1" -I/x\'', "-Xcompiler -Wp,-I/x", "-Xcompiler -fdebug-x=/y",
    "-Xcompiler x.h", "-Xptxas -optf,f", "-Xptxas --options-file=f", "-Xptxas /x/y", "-Xcicc -o,x",
    "-Xptxas '-v;id'", "'-frandom-seed=a;id'",
)  # fmt: skip


@pytest.mark.parametrize("text", UNCACHEABLE)
def test_what_the_key_cannot_see_is_handed_through_and_not_kept(text: str) -> None:
    parsed = parse_nvcc(shlex.split(text), kind="cubin", folder="/w", environ={})
    assert parsed.uncacheable
    assert parsed.arguments or parsed.passthrough


HARMLESS = (
    "-fPIC -O2 -Wall -Wno-unused -std=c++17 -DA=1 -fno-exceptions -march=x86-64-v3 -g -w -pthread -pedantic-errors"
)


def test_usual_host_options_are_kept_and_keyed() -> None:
    parsed = parse_nvcc(["-Xcompiler", HARMLESS], kind="cubin", folder="/w", environ={})
    assert not parsed.uncacheable
    assert parsed.arguments == tuple(f"--compiler-options={word}" for word in HARMLESS.split())


@pytest.mark.parametrize(
    "argv",
    [
        ["-lineinfo"], ["-G"], ["-src-in-ptx"], ["-Xptxas", "-g"], ["-Xptxas=-lineinfo"], ["-Xcicc", "-show-src"],
        ["-Xcompiler", "-fmacro-prefix-map=/a=b"], ["-Xcompiler", "-ffile-prefix-map=/a=b"],
    ],
    ids=" ".join,
)  # fmt: skip
def test_what_writes_folders_into_the_result_is_bound(argv: list[str]) -> None:
    parsed = parse_nvcc(argv, kind="cubin", folder="/w", environ={})
    assert len(parsed.bound) == len(parsed.arguments) == 1
    assert not parsed.uncacheable


INDEPENDENT = [shlex.split(text) for text in (
    "-O3", "-std=c++20", "-lineinfo", "-use_fast_math", "-ftz=false", "-Xptxas -v,-O2", "-w", "-restrict",
    "-Xcompiler -fPIC", "-DA=1 -UB", "-I inc", "-isystem inc", "-diag-suppress 3,1", "-Wreorder",
    "-maxrregcount=64", "-e k", "-expt-relaxed-constexpr", "-Wdefault-stream-launch", "-frandom-seed=1",
    "-Werror reorder", "-rdc=true", "-arch=sm_90a", "-include inc/x.h", "-ccbin gcc", "-Xcicc -v", "-diag-error 3",
    "-diag-warn 3", "-default-stream=legacy", "-res-usage", "-g", "-Xcudafe --a",
)]  # fmt: skip


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.sampled_from(INDEPENDENT), unique_by=tuple), st.randoms(use_true_random=False))
def test_nvcc_too_does_not_care_for_the_order_of_independent_options(
    nvcc: Nvcc, options: list[list[str]], random: Random
) -> None:
    shuffled = random.sample(options, len(options))
    one, other = list(chain(*options)), list(chain(*shuffled))
    assert nvcc.read(one) == nvcc.read(other)
    assert nvcc.commands("cubin", one) == nvcc.commands("cubin", other)


@given(st.lists(st.sampled_from([o for o in INDEPENDENT if o[0] not in ("-I", "-isystem", "-include", "-ccbin")]),
                unique_by=tuple, min_size=1), st.data())  # fmt: skip
def test_leaving_out_a_semantic_option_always_shows(options: list[list[str]], data: st.DataObject) -> None:
    less = list(options)
    less.pop(data.draw(st.integers(0, len(options) - 1)))
    one, other = (parse_nvcc(list(chain(*some)), kind="cubin", folder="/w", environ={}) for some in (options, less))
    assert (one.arguments, one.architectures) != (other.arguments, other.architectures)


def test_the_canonical_form_of_everything_reads_as_itself() -> None:
    argv = list(chain(*INDEPENDENT))
    parsed = parse_nvcc(argv, kind="cubin", folder="/w", environ={})
    again = parse_nvcc([*parsed.architectures, *parsed.arguments], kind="cubin", folder="/w", environ={})
    assert (again.arguments, again.architectures, again.bound) == (parsed.arguments, parsed.architectures, parsed.bound)


def test_reading_ten_options_takes_well_under_a_millisecond() -> None:
    argv = list(chain(*INDEPENDENT[:10]))
    best = min(_seconds(argv) for _ in range(50))
    assert best < 0.0005


def _seconds(argv: list[str]) -> float:
    start = time.perf_counter()
    parse_nvcc(argv, kind="cubin", folder="/w", environ={})
    return time.perf_counter() - start
