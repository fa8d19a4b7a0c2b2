"""The tables in `docs/reference/options.md` are those in the code. Run this file to write them anew."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pytest

from cubinet.compilers._nvcc_options import NVCC
from cubinet.compilers._nvrtc_options import NVRTC
from cubinet.compilers._options import Form, Option, Table, Treatment

from .blocks import ROOT

PAGE = ROOT / "docs" / "reference" / "options.md"
BEGIN, END = "<!-- begin {}: made by python -m tests.docs.test_options_page -->", "<!-- end {} -->"
TABLES: Mapping[str, Table] = {"nvcc": NVCC, "NVRTC": NVRTC}

SECTIONS: dict[str, tuple[Treatment, ...]] = {
    "Kept": (Treatment.SEMANTIC, Treatment.ARCH),
    "Bound": (Treatment.BOUND,),
    "Places": (
        Treatment.INCLUDE,
        Treatment.SYSTEM,
        Treatment.PREINCLUDE,
        Treatment.OPTIONS_FILE,
        Treatment.HOST_COMPILER,
    ),
    "Output kinds and stages": (Treatment.KIND, Treatment.STAGE),
    "Dropped": (Treatment.OUTPUT,),
    "Not cached": (Treatment.UNCACHEABLE,),
    "Refused": (Treatment.REFUSED,),
}
LEADS = {
    "Output kinds and stages": "Dropped if it is the kind asked for (`--kind`, `Variant.kind`), refused otherwise.",
}
ARGUMENTS = {
    Form.FLAG: "",
    Form.VALUE: "text",
    Form.NUMBER: "number",
    Form.EACH: "text, all count",
    Form.LIST: "list",
    Form.NAMES: "list",
}


def _row(option: Option) -> str:
    spelled = ", ".join(f"`{spelling}`" for spelling in (option.name, *option.short))
    notes = [option.why, option.remedy]
    if option.refused:
        refused = ", ".join(f"`{value}`" if value else "an empty value" for value in option.refused)
        notes = [f"{refused} is refused: {option.why}", option.remedy]
    if option.means:
        notes.append(f"the same as `{option.means}`")
    if option.since:
        notes.append("not in `--help`" if option.since == "hidden" else f"since {option.since}")
    return f"| {spelled} | {ARGUMENTS[option.form]} | {'; '.join(filter(None, notes))} |".replace("  ", " ")


def table(compiler: str) -> Iterator[str]:
    """The lines of all tables of one compiler; it need not have options of every kind."""
    for head, treatments in SECTIONS.items():
        rows = sorted(_row(option) for option in TABLES[compiler].options if option.treatment in treatments)
        if not rows:
            continue
        yield from ("", f"### {compiler}: {head[0].lower()}{head[1:]}", "")
        if head in LEADS:
            yield from (LEADS[head], "")
        yield from ("| option | argument | note |", "|---|---|---|", *rows)
    yield ""


def written(text: str) -> str:
    """The page with the tables of this code."""
    for compiler in TABLES:
        before, begin, rest = text.partition(BEGIN.format(compiler))
        _, end, after = rest.partition(END.format(compiler))
        assert begin
        assert end
        text = before + begin + "\n" + "\n".join(table(compiler)) + end + after
    return text


def test_every_treatment_has_a_section() -> None:
    assert sorted(t for treatments in SECTIONS.values() for t in treatments) == sorted(Treatment)


def test_the_page_has_the_tables_of_the_code() -> None:
    text = PAGE.read_text("utf-8")
    if text != written(text):
        pytest.fail("docs/reference/options.md is out of date; run: python -m tests.docs.test_options_page")


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text("utf-8")), "utf-8")
