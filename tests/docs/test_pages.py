"""Every block of every page runs, and gives what the page shows."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from .blocks import ROOT, Block, Reader, blocks, commands, reader_environ, same_shape, shape

RUN = ("console", "python")
SHOWN = ("json", "mermaid", "output", "text", "toml", "c", "cuda", "sh")

PAGES = sorted(page for page in (ROOT / "docs").rglob("*.md") if "_build" not in page.parts)
LIVELY = [page for page in (ROOT / "README.md", *PAGES) if any(b.language in RUN and not b.skip for b in blocks(page))]


@pytest.mark.parametrize("page", LIVELY, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_reader_gets_what_the_page_shows(page: Path, tmp_path: Path) -> None:
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    (tmp_path / "home").mkdir()
    reader = Reader(tmp_path, reader_environ(tmp_path))
    try:
        reader.follow(page)
        assert reader.status == 0
    finally:
        reader.close()


def test_a_block_that_does_not_run_is_of_a_kind_that_cannot() -> None:
    for page in PAGES:
        for block in blocks(page):
            where = f"{page.relative_to(ROOT)}:{block.line}"
            assert block.language in RUN + SHOWN, f"{where}: {block.language!r}"
            if block.language == "sh":  # what a test cannot do: install, or run for minutes
                installs = "pip install" in block.text or block.text.startswith("make ")
                assert installs or block.skip, f"{where}: use console, which runs"


def test_the_shape_of_an_output_leaves_out_what_differs() -> None:
    page = "hit  a.cu in 1.5 ms: 4936 bytes at /home/you/kernels/x\nfingerprint  1c451fc8c0a87dc5\n"
    came = "hit  a.cu in 2 s: 17 bytes at /tmp/t1/x\nfingerprint  00000000cafe\n"
    assert shape(page, "/tmp/t1") == shape(came, "/tmp/t1")
    assert shape("miss  a.cu", "/tmp") != shape("hit  a.cu", "/tmp")
    assert same_shape(["a … c", "…", "z"], ["a b c", "1", "2", "z"])
    assert not same_shape(["a", "…", "z"], ["a", "1"])


def test_a_console_block_is_commands_with_their_output() -> None:
    assert list(commands("$ a \\\n> b\nout\n$ c\n")) == [("a b", "out\n"), ("c", "")]


def test_a_note_before_a_block_says_what_it_is_for(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "<!-- not run: needs a GPU -->\n```python\nx\n```\n\n```{note}\n```\n<!-- file: a -->\n```c\ny\n```\n"
    )
    assert blocks(page) == [Block("python", "x\n", 2, "needs a GPU"), Block("c", "y\n", 9, "", "a")]
