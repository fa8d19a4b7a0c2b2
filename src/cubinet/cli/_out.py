"""How the commands print: one JSON document, or text for people."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import click

from cubinet._fs import Fs
from cubinet.errors import ConfigError
from cubinet.model import Kernel, Record
from cubinet.store.format import encode_record

__all__ = ["bar", "kernel_rows", "print_json", "print_table", "record_json", "working", "write_file"]


def print_json(value: object) -> None:
    """One JSON document on standard output."""
    click.echo(json.dumps(value, indent=2, ensure_ascii=False))


def record_json(record: Record) -> dict[str, Any]:
    """A record as its file has it, without the check sum."""
    fields: dict[str, Any] = json.loads(encode_record(record))
    del fields["_check"]
    return fields


def print_table(heads: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Columns for people; numbers to the right, `-` for what is not known."""
    texts = [["-" if cell is None else str(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(heads, *texts, strict=True)]
    right = [any(isinstance(row[i], (int, float)) for row in rows) for i in range(len(heads))]
    for line in [list(heads), *texts]:
        cells = [cell.rjust(w) if r else cell.ljust(w) for cell, w, r in zip(line, widths, right, strict=True)]
        click.echo("  ".join(cells).rstrip())


def write_file(path: str, data: bytes) -> None:
    """Write a file the caller named: whole, or not at all."""
    fs, temporary = Fs(), f"{path}.{os.getpid()}.tmp"
    try:
        fs.create(temporary, data, mode=0o644)
        fs.rename(temporary, path)
    except OSError as exc:
        fs.discard(temporary)
        raise ConfigError("write", path, exc.strerror or str(exc)) from exc


KERNEL_HEADS = ("kernel", "registers", "shared", "local", "constant", "parameters", "spills")


def kernel_rows(kernels: Sequence[Kernel], width: int = 60) -> list[tuple[object, ...]]:
    """Rows for a table of kernels; long names are cut in the middle."""
    return [(_short(k.name, width), k.regs, k.shared, k.local, k.const, k.params, k.spills) for k in kernels]


def _short(text: str, width: int) -> str:
    half = (width - 1) // 2
    return text if len(text) <= width else f"{text[:half]}…{text[-half:]}"


@contextlib.contextmanager
def bar(text: str) -> Iterator[Callable[[int, int], None]]:
    """A progress bar on a terminal, nothing in a pipe; call it with what is done and what there is."""
    if not sys.stderr.isatty():
        yield lambda _done, _all: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as shown:
        task = shown.add_task(text, total=None)
        yield lambda done, total: shown.update(task, completed=done, total=total)


@contextlib.contextmanager
def working(text: str) -> Iterator[None]:
    """Show on a terminal that something takes a while; nothing in a pipe."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console

    with Console(stderr=True).status(text):
        yield
