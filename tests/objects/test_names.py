"""From symbols to C++ names, and from what callers write to the kernels they mean."""

from __future__ import annotations

import string
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cubinet.model import Kernel
from cubinet.objects import demangle, inspect, names_entry
from cubinet.objects.spelling import canonical

from .conftest import DATA, Corpus

GOLDEN = dict(line.split("\t") for line in (DATA / "mangled.tsv").read_text().splitlines())
TILE = "_ZN2ns4tileILi4ELb1ELj7EfLNS_4ModeE1EEEvPT2_"


def kernel(symbol: str) -> Kernel:
    return Kernel(name=demangle(symbol), symbol=symbol)


def test_names_come_out_as_cxxfilt_writes_them() -> None:
    assert len(GOLDEN) > 250
    assert {symbol: demangle(symbol) for symbol in GOLDEN} == GOLDEN


def test_names_of_the_corpus_come_out_as_cxxfilt_writes_them(corpus: Corpus) -> None:
    cxxfilt = pytest.importorskip("cxxfilt")
    for found in inspect(corpus.read("sm_90a")).kernels:
        assert found.name == cxxfilt.demangle(found.symbol)


@pytest.mark.parametrize(
    "symbol",
    [
        "", "_Z", "scale", "_ZN", "_ZNE", "_Z3fo", "_Z999999999999f", "_Z1fS_", "_Z1fS9_", "_Z1fT_", "_Z1fIiEvT9_",
        "_Z1f", "_ZTV1A", "_Z1fIXsr1AIT_E1bEEvv", "_Z1fIDpT_Evv", "_Z1fDpi", "_Z1fLi", "_Z1fILi", "_Z1fILiE", "_Z1fiE",
        "_Z1fIiEvT1_", "_ZN1f", "_Z1fU3AS1i", "__nv_static_99999_x", "__nv_static_5_", "_Z1fA_", "_ZZ1fvEd_1x",
    ],
)  # fmt: skip
def test_what_is_no_name_or_cannot_be_written_stays_as_it_is(symbol: str) -> None:
    expected = {"_Z1f": "f"}.get(symbol, symbol)
    assert demangle(symbol) == expected


def test_names_local_to_a_file_lose_the_prefix_of_relocatable_code() -> None:
    symbol = "__nv_static_29__6042d5bf_10_kernels_cu_scale__ZN40_GLOBAL__N__6042d5bf_10_kernels_cu_scale6hiddenEPf"
    assert demangle(symbol) == "(anonymous namespace)::hidden(float*)"
    assert names_entry("hidden", kernel(symbol))


def doubling(levels: int) -> str:
    """`f(A, B<A, A>, B<B<A, A>, B<A, A> >, …)`: each type holds the one before twice."""
    digits = string.digits + string.ascii_uppercase
    parts, last = ["1A"], "S_"
    for level in range(levels):
        parts.append(f"1BI{last}{last}E")
        number = 2 * level + 1
        last = f"S{digits[number // 36] if number >= 36 else ''}{digits[number % 36]}_"
    return "_Z1f" + "".join(parts)


def test_a_name_that_would_fill_the_memory_stays_mangled() -> None:
    assert demangle(doubling(2)) == "f(A, B<A, A>, B<B<A, A>, B<A, A> >)"
    for symbol in (doubling(60), "_Z1f" + "P" * 60_000 + "i", "_Z1f" + "1AI" * 20_000, "_Z1f" + "1AIJ" * 15_000):
        start = time.perf_counter()
        assert demangle(symbol) == symbol
        assert time.perf_counter() - start < 1


def test_a_symbol_of_a_megabyte_is_left_alone() -> None:
    symbol = "_Z1000000" + "k" * 1_000_000 + "v"
    assert demangle(symbol) == symbol


@given(st.text(alphabet="_ZNISTEJLPRKOFADpbcifjlmvxyz0123456789", max_size=80))
def test_no_text_after_the_prefix_makes_demangling_fail(rest: str) -> None:
    assert isinstance(demangle("_Z" + rest), str)


@given(st.data())
def test_no_change_of_a_real_name_makes_demangling_fail(data: st.DataObject) -> None:
    symbol = data.draw(st.sampled_from(sorted(GOLDEN)))
    at = data.draw(st.integers(0, len(symbol)))
    length = data.draw(st.integers(0, 6))
    assert isinstance(demangle(symbol[:at] + data.draw(st.text(max_size=4)) + symbol[at + length :]), str)


@pytest.mark.parametrize(
    ("entry", "symbol"),
    [
        ("scale", "scale"),
        ("::scale", "scale"),
        ("scale", "_Z5scalePff"),
        ("scale(float*, float)", "_Z5scalePff"),
        (" scale ( float * ,float)", "_Z5scalePff"),
        ("void scale(float*, float)", "_Z5scalePff"),
        ("_Z5scalePff", "_Z5scalePff"),
        ("&ns::plain", "_ZN2ns5plainENS_5ShapeEPfc"),
        ("ns::plain(ns::Shape, float*, char)", "_ZN2ns5plainENS_5ShapeEPfc"),
        ("fill<float>", "_Z4fillIfEvPT_S0_"),
        ("fill < float >", "_Z4fillIfEvPT_S0_"),
        ("void fill<float>(float*, float)", "_Z4fillIfEvPT_S0_"),
        ("fill<const float*>", "_Z4fillIPKfEvPT_S2_"),
        ("fill<float const *>", "_Z4fillIPKfEvPT_S2_"),
        ("fill<unsigned long long>", "_Z4fillIyEvPT_S0_"),
        ("fill<long long unsigned int>", "_Z4fillIyEvPT_S0_"),
        ("fill<unsigned>", "_Z4fillIjEvPT_S0_"),
        ("fill<std::uint32_t>", "_Z4fillIjEvPT_S0_"),
        ("fill<size_t>", "_Z4fillImEvPT_S0_"),
        ("fill<half>", "_Z4fillI6__halfEvPT_S1_"),
        ("fill<struct __half>", "_Z4fillI6__halfEvPT_S1_"),
        ("fill<nv_bfloat16>", "_Z4fillI13__nv_bfloat16EvPT_S1_"),
        ("fill<unsigned short int>", "_Z4fillItEvPT_S0_"),
        ("fill<const ::ns::Shape>", "_Z4fillIKN2ns5ShapeEEvPT_S1_"),
        ("f<4, float>", "_Z1fILi4EfEvDTcl1gEE"),  # whatever the parameters are: these need an expression
        ("hidden", "_ZN40_GLOBAL__N__6042d5bf_10_kernels_cu_scale6hiddenEPf"),
        ("(anonymous namespace)::hidden", "_ZN40_GLOBAL__N__6042d5bf_10_kernels_cu_scale6hiddenEPf"),
        ("ns::tile<4, true, 7, float, (ns::Mode)1>", TILE),
        ("ns::tile<(int)4,(bool)1,7u,float,(ns::Mode)1>", TILE),
        ("ns::tile<0x4, 1, unsigned(7), float, (ns::Mode) 1>", TILE),
        ("values<'a', -3, 18446744073709551615ull>", "_Z6valuesILc97ELln3ELy18446744073709551615EEvPl"),
        ("values<97, -3l, 0xFFFF'FFFF'FFFF'FFFF>", "_Z6valuesILc97ELln3ELy18446744073709551615EEvPl"),
        ("values<(char)97, (-3), 18446744073709551615>", "_Z6valuesILc97ELln3ELy18446744073709551615EEvPl"),
        ("f<std::pair<int, std::pair<int, float>>>", "_Z1fISt4pairIiS0_IifEEEvv"),
    ],
)
def test_an_entry_is_found_however_it_is_spelled(entry: str, symbol: str) -> None:
    assert names_entry(entry, kernel(symbol))


@pytest.mark.parametrize(
    ("entry", "symbol"),
    [
        ("scal", "scale"),
        ("scale2", "scale"),
        ("ns::scale", "scale"),
        ("scale(float*)", "_Z5scalePff"),
        ("plain", "_ZN2ns5plainENS_5ShapeEPfc"),
        ("other::plain", "_ZN2ns5plainENS_5ShapeEPfc"),
        ("fill", "_Z4fillIfEvPT_S0_"),
        ("fill<double>", "_Z4fillIfEvPT_S0_"),
        ("fill<float*>", "_Z4fillIfEvPT_S0_"),
        ("fill<float const>", "_Z4fillIfEvPT_S0_"),
        ("fill<float, 1>", "_Z4fillIfEvPT_S0_"),
        ("fill<long>", "_Z4fillIyEvPT_S0_"),
        ("fill<signed char>", "_Z4fillIcEvPT_S0_"),
        ("ns::tile<5, true, 7, float, (ns::Mode)1>", TILE),
        ("ns::tile<-4, true, 7, float, (ns::Mode)1>", TILE),
        ("ns::tile<4, false, 7, float, (ns::Mode)1>", TILE),
        ("ns::tile<4, true, 7, float, (ns::Mode)0>", TILE),
        ("ns::tile<4, true, 7, float, (other::Mode)1>", TILE),
        ("ns::tile<4, true, 7, float, (ns::Mode)1", TILE),
        ("ns::tile<99999999999999999999999999999999999999999, true, 7, float, (ns::Mode)1>", TILE),
        ("f", "_Z1fIXsr1AIT_E1bEEvv"),
        ("", "scale"),
        ("", "_Z5scalePff"),
    ],
)
def test_another_kernel_is_not_taken_for_the_entry(entry: str, symbol: str) -> None:
    assert not names_entry(entry, kernel(symbol))


def test_every_kernel_is_named_by_its_own_name_and_no_other(corpus: Corpus) -> None:
    kernels = inspect(corpus.read("sm_90a")).kernels
    for one in kernels:
        for text in (one.symbol, one.name, one.name.removeprefix("void ")):
            assert [other.symbol for other in kernels if names_entry(text, other)] == [one.symbol]


@given(st.text(alphabet=string.printable, max_size=60))
def test_any_text_has_a_spelling_that_is_its_own(text: str) -> None:
    once = canonical(text)
    assert isinstance(once, str)


@given(st.text(max_size=60))
def test_any_entry_can_be_asked_for(text: str) -> None:
    names_entry(text, kernel(TILE))


def test_entries_full_of_brackets_take_no_longer_than_others() -> None:
    nested = "f" + "<a" * 2_000 + ">" * 2_000
    for text in ("<" * 100_000, nested, "(" * 50_000 + ")" * 50_000, "f<" + "4," * 50_000 + ">"):
        start = time.perf_counter()
        canonical(text)
        assert time.perf_counter() - start < 3


def test_the_first_template_arguments_are_enough_since_defaults_may_follow() -> None:
    kernel = Kernel("", "_ZN6vector6reduceIfLi256EEEvPT_PKS1_i")
    assert names_entry("vector::reduce<float>", kernel)
    assert names_entry("vector::reduce<float, 256>", kernel)
    assert not names_entry("vector::reduce<float, 512>", kernel)
    assert not names_entry("vector::reduce<double>", kernel)
    assert not names_entry("vector::reduce", kernel)
