"""The option engine, with a small table of its own."""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Sequence
from itertools import chain, groupby

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cubinet.compilers._options import (
    Form,
    Option,
    Parsed,
    Table,
    Treatment,
    Words,
    parse,
    split_list,
    split_names,
)
from cubinet.errors import ConfigError

WORDS = Words(
    uncacheable=re.compile(r"-I.*"),
    bound=re.compile(r"-g"),
    refused=re.compile(r"-march=native"),
    known=re.compile(r"-[DfI].*"),
    remedy="name it",
)
OPTIONS = (
    Option("--define", ("-D",), Form.LIST, group="macros", attached=".+"),
    Option("--undefine", ("-U",), Form.LIST, group="macros", attached=".+"),
    Option("--level", ("-O",), Form.NUMBER, attached=r"\d+", refused=("0",), why="depends on the machine"),
    Option("--std", ("-std",), Form.VALUE),
    Option("--fast", ("-fast",)),
    Option("--quick", ("-quick",), means="--fast"),
    Option("--name", ("-n",), Form.EACH),
    Option("--kinds", ("-kinds",), Form.NAMES, unordered=True),
    Option("--lines", ("-lines",), treatment=Treatment.BOUND),
    Option("--host-options", ("-Xhost",), Form.LIST, words=WORDS),
    Option("--output", ("-o",), Form.VALUE, Treatment.OUTPUT),
    Option("--include", ("-I",), Form.NAMES, Treatment.INCLUDE, attached=".+"),
    Option("--system", ("-isystem",), Form.NAMES, Treatment.SYSTEM),
    Option("--pre", ("-include",), Form.NAMES, Treatment.PREINCLUDE),
    Option("--file", ("-optf",), Form.NAMES, Treatment.OPTIONS_FILE),
    Option("--host", ("-ccbin",), Form.VALUE, Treatment.HOST_COMPILER),
    Option("--arch", ("-arch",), Form.VALUE, Treatment.ARCH),
    Option("--cubin", ("-cubin",), treatment=Treatment.KIND),
    Option("--ptx", ("-ptx",), treatment=Treatment.KIND),
    Option("--compile", ("-c",), treatment=Treatment.STAGE),
    Option("--profile", ("-profile",), Form.VALUE, Treatment.UNCACHEABLE, "a file of unknown content"),
    Option("--time", ("-time",), Form.VALUE, Treatment.OUTPUT, joined=True),
    Option("--tool-options", ("-Xtool",), Form.EACH, words=WORDS),
    Option("--late", ("-late",), treatment=Treatment.KIND, kind="ir"),
    Option("--run", ("-run",), treatment=Treatment.REFUSED, why="it runs", remedy="leave it out"),
)


def archs(pairs: Sequence[tuple[str, str]], kind: str, given: Container[object]) -> tuple[str, ...]:
    assert "--arch" not in given
    return tuple(f"{name}={value}:{kind}" for name, value in pairs)


TABLE = Table(OPTIONS, archs, str.split)


def no_files(path: str) -> str:
    raise FileNotFoundError(2, "No such file or directory", path)


def read(*argv: str, kind: str = "cubin", read_text: Callable[[str], str] = no_files) -> Parsed:
    return parse(TABLE, argv, kind=kind, folder="/work/here", read_text=read_text)


@pytest.mark.parametrize(
    "spellings",
    [
        [["-DA"], ["-D", "A"], ["-D=A"], ["--define", "A"], ["--define=A"], ["-D A"], ["-D  A"]],
        [["-DA,B=1"], ["-DA", "-DB=1"], ["--define", "A,B=1"], ["-D=A", "-D", "B=1"], ["-DA,,B=1,"], ["-D A , B=1 "]],
        [['-DA="x,y"'], [r"-DA=\"x\,y\""]],
        [["-O3"], ["-O", "3"], ["-O=3"], ["--level=3"], ["-O", "03"], ["-O", "0x3"], ["-O", "+3"], ["-O2", "-O3"]],
        [["-std=c++17"], ["--std", "c++17"], ["-std", "c++20", "-std=c++17"]],
        [["-fast"], ["--fast"], ["-quick"], ["--quick", "-fast"], ["-fast", "-fast"]],
        [["-kinds", "a,b"], ["-kinds=b", "--kinds", "a,b,a"]],
        [["-Xhost", "-fa,-fb"], ["-Xhost=-fa", "-Xhost", "-fb"], ["--host-options", "-fa -fb"]],
        [["-Ia,b"], ["-I", "a", "-I=b"], ["--include=./a/", "-I", "/work/here/b"], ["-Ia", "-I", "/work//here/./b/"]],
        [["-isystem", "s", "-Ia"], ["-Ia", "--system=s"]],
        [["-n", "a,b"], ["--name=a,b"]],
        [["-time=x"], ["--time=x"]],
    ],
)
def test_all_spellings_of_an_option_read_the_same(spellings: list[list[str]]) -> None:
    assert len({read(*argv) for argv in spellings}) == 1


def test_the_canonical_form_reads_as_itself() -> None:
    parsed = read("-DA,B", "-UA", "-O3", "-quick", "-kinds", "b,a", "-Xhost", "-fx,-fy", "-n", "q", "-lines")
    assert parsed.arguments == (
        "--fast", "--host-options=-fx", "--host-options=-fy", "--kinds=a", "--kinds=b", "--level=3", "--lines",
        "--name=q", "--define=A", "--define=B", "--undefine=A",
    )  # fmt: skip
    assert read(*parsed.arguments) == parsed


def test_order_counts_within_a_group_only() -> None:
    assert read("-DA", "-UA") != read("-UA", "-DA")
    assert read("-Ia", "-Ib") != read("-Ib", "-Ia")
    assert read("-DA", "-fast", "-O3") == read("-O3", "-DA", "-fast")


def test_paths_become_absolute_and_keep_their_parents() -> None:
    parsed = read("-I../x", "-isystem", "/usr/./y//", "-I.", "-I", "l/../m")
    assert parsed.includes == (
        ("include", "/work/here/../x"), ("include", "/work/here"), ("include", "/work/here/l/../m"),
        ("system", "/usr/y"),
    )  # fmt: skip


def test_places_of_other_kinds_are_told_apart() -> None:
    parsed = read("-include", "a.h,b.h", "-ccbin", "bin/g++", "-arch", "x", "-o", "out", "-cubin", "-c")
    assert parsed == Parsed(
        architectures=("--arch=x:cubin",), preincludes=("a.h", "b.h"), host_compiler="/work/here/bin/g++",
        dropped=("--output=out", "--cubin", "--compile"),
    )  # fmt: skip
    assert read("-ccbin", "g++").host_compiler == "g++"
    assert read("-ccbin=").host_compiler is None


def test_an_unknown_option_is_handed_through_and_makes_the_build_uncacheable() -> None:
    parsed = read("-O3", "-new", "value", "--newer=1", "-fast")
    assert parsed.passthrough == ("-new", "value", "--newer=1")
    assert parsed.uncacheable == ("-new: unknown option", "--newer=1: unknown option")
    assert parsed.arguments == ("--fast", "--level=3")


def test_an_attached_value_must_look_like_one() -> None:
    assert read("-Ofoo").uncacheable == ("-Ofoo: unknown option",)


def test_a_value_that_must_be_joined_is_no_word_of_its_own() -> None:
    assert read("-time=x").dropped == ("--time=x",)
    assert read("-time", "x").passthrough == ("-time", "x")
    assert read("-time", "x").uncacheable == ("-time: unknown option",)


def test_a_kind_may_go_by_another_name_than_its_option() -> None:
    assert read("-late", kind="ir").dropped == ("--late",)
    with pytest.raises(ConfigError, match="another output than late"):
        read("-late", kind="late")


def test_an_option_that_reaches_elsewhere_is_handed_through_and_not_kept() -> None:
    parsed = read("-profile", "p")
    assert (parsed.passthrough, parsed.uncacheable) == (("--profile=p",), ("--profile: a file of unknown content",))


@pytest.mark.parametrize(
    ("argv", "finding"),
    [
        (["-run"], "it runs; leave it out"),
        (["-ptx"], "another output than cubin"),
        (["-c"], "another output than cubin"),
        (["-O0"], "depends on the machine"),
        (["-O", "000"], "depends on the machine"),
        (["-O", "0x0"], "depends on the machine"),
        (["-O="], "expected a number"),
        (["-O", "08"], "expected a number"),
        (["-O", "-3"], "expected a number"),
        (["-std"], "its argument is missing"),
        (["-fast=1"], "it takes no argument"),
        (["more.cu"], "an input file among the options"),
        (["-new", "-O3", "more.cu"], "an input file among the options"),
        (["-"], "an input file among the options"),
        (["-Xhost", "-march=native"], "name it"),
        (['-DA="x'], "a quotation mark without its partner"),
        (["-DA\\"], "a lone backslash"),
        (['-Ia"b'], "a quotation mark without its partner"),
        (["-optf", "gone"], "cannot read options file /work/here/gone: No such file or directory"),
    ],
)
def test_a_refusal_says_what_was_found(argv: list[str], finding: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read(*argv)
    assert finding in str(caught.value)


def test_words_for_another_program_are_judged() -> None:
    parsed = read("-Xhost", "-DA,-g,-I/x,-q", "-Xhost", '-DB="1"', "-Xhost", '-DC="1 2"', "-Xhost", '"-I"/y')
    assert parsed.bound == ("--host-options=-g",)
    assert [reason.split(":")[0] for reason in parsed.uncacheable] == [
        "--host-options -I/x",
        "--host-options -q",
        '--host-options -DC="1 2"',
        '--host-options "-I"/y',
    ]


def test_a_word_for_another_program_that_is_taken_as_it_is_stays_whole() -> None:
    parsed = read("-Xtool", "-DA,B", "-Xtool=-g", "-Xtool", "-DC -DD")
    assert parsed.arguments == ("--tool-options=-DA,B", "--tool-options=-g", "--tool-options=-DC -DD")
    assert parsed.bound == ("--tool-options=-g",)
    assert parsed.uncacheable == ("--tool-options -DC -DD: quotes that Cubinet does not take apart",)


def test_a_bound_option_is_also_an_argument() -> None:
    parsed = read("-lines")
    assert parsed.bound == parsed.arguments == ("--lines",)


@pytest.mark.parametrize("argv", [["-DA=$HOME"], ["-DA=`id`"], ["-Xhost", "-fa;id"], ["-std", "c;id"], ["-n", "a*"]])
def test_what_the_shell_would_expand_is_not_kept(argv: list[str]) -> None:
    assert "the shell" in read(*argv).uncacheable[0]
    assert not read("-DA=f(x)").uncacheable


@pytest.mark.parametrize("argv", [["-DA=$HOME"], ["-std", "c;id"], ["-n", "a*"]])
def test_without_a_shell_nothing_is_expanded(argv: list[str]) -> None:
    assert not parse(Table(OPTIONS, archs, shell=False), argv, kind="cubin", folder="/", read_text=no_files).uncacheable


def test_options_files_are_expanded_where_they_stand() -> None:
    files = {"/work/here/a": "-DB -optf sub/b -DD", "/work/here/sub/b": "-DC"}
    parsed = read("-DA", "-optf", "a", "-DE", read_text=files.__getitem__)
    assert parsed.arguments == tuple(f"--define={c}" for c in "ABCDE")
    assert parsed.options_files == ("/work/here/a", "/work/here/sub/b")


def test_an_options_file_cannot_borrow_a_word_from_after_it() -> None:
    with pytest.raises(ConfigError, match="its argument is missing"):
        read("-optf", "a", "B", read_text=lambda _: "-D")


def test_options_files_that_read_each_other_end() -> None:
    with pytest.raises(ConfigError, match="more than 15 files read each other"):
        read("-optf", "a", read_text=lambda _: "-optf a")


def test_an_options_file_that_is_no_text_is_refused() -> None:
    def broken(_: str) -> str:
        return b"\xff".decode("utf-8")

    with pytest.raises(ConfigError, match="read options file"):
        read("-optf", "a", read_text=broken)


def test_a_table_with_one_spelling_for_two_options_is_refused() -> None:
    with pytest.raises(ConfigError, match="two options have this spelling"):
        Table((Option("--a", ("-x",)), Option("--b", ("-x",))), archs, str.split)


values = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1).filter(
    lambda text: text == text.strip()
)


@given(st.lists(values))
def test_any_list_of_values_survives_being_written_and_read(items: list[str]) -> None:
    arguments = read(*(argument for item in items for argument in ("-D", _escape(item)))).arguments
    once = [item for item, _ in groupby(items)]  # a macro that is defined again at once, the same, is one
    assert [split_list(argument.partition("=")[2]) for argument in arguments] == [[item] for item in once]
    assert read(*arguments).arguments == arguments


def _escape(item: str) -> str:
    return "".join(f"\\{c}" if c in ',"\\' else c for c in item)


@given(st.lists(values.filter(lambda text: '"' not in text)))
def test_any_list_of_names_survives_being_quoted(items: list[str]) -> None:
    assert split_names(",".join(f'"{item}"' for item in items)) == items


INDEPENDENT = [
    ["-O3"],
    ["-fast"],
    ["-std=c++17"],
    ["-n", "x"],
    ["-kinds", "a"],
    ["-lines"],
    ["-isystem", "s"],
    ["-Ia"],
    ["-DA"],
    ["-ccbin", "g++"],
    ["-Xhost", "-fa"],
]


@given(st.permutations(INDEPENDENT))
def test_the_order_of_independent_options_never_matters(options: list[list[str]]) -> None:
    assert read(*chain(*options)) == read(*chain(*INDEPENDENT))


@given(st.permutations(["-DA", "-UA", "-DB", "-UB"]), st.permutations(["-DA", "-UA", "-DB", "-UB"]))
def test_the_order_of_macros_always_matters(one: list[str], other: list[str]) -> None:
    assert (read(*one) == read(*other)) == (one == other)


@given(st.lists(st.sampled_from(INDEPENDENT[:6]), unique_by=tuple), st.data())
def test_leaving_out_a_semantic_option_changes_the_arguments(options: list[list[str]], data: st.DataObject) -> None:
    if options:
        less = list(options)
        less.pop(data.draw(st.integers(0, len(options) - 1)))
        assert read(*chain(*less)).arguments != read(*chain(*options)).arguments
