"""Rows as they come: a table for people, JSON, CSV or a JSON object a line."""

from __future__ import annotations

import csv
import itertools
import json
import sys
from collections.abc import Iterator, Mapping
from typing import Any

import click

__all__ = ["FORMATS", "print_rows"]

FORMATS = ("json", "csv", "nl")
_MEASURED = 500


def print_rows(rows: Iterator[Mapping[str, Any]], form: str | None) -> None:
    """Print rows without holding them; a table takes its widths from the first rows."""
    {"json": _json, "csv": _csv, "nl": _lines}.get(form or "", _table)(rows)


def _dump(row: Mapping[str, Any]) -> str:
    values = {name: value.hex() if isinstance(value, bytes) else value for name, value in row.items()}
    return json.dumps(values, ensure_ascii=False)


def _json(rows: Iterator[Mapping[str, Any]]) -> None:
    opening = "["
    for row in rows:
        click.echo(opening + _dump(row), nl=False)
        opening = ",\n "
    click.echo("[]" if opening == "[" else "]")


def _lines(rows: Iterator[Mapping[str, Any]]) -> None:
    for row in rows:
        click.echo(_dump(row))


def _csv(rows: Iterator[Mapping[str, Any]]) -> None:
    writer = csv.writer(sys.stdout, lineterminator="\n")
    for number, row in enumerate(rows):
        if number == 0:
            writer.writerow(row)
        writer.writerow(row.values())


def _table(rows: Iterator[Mapping[str, Any]]) -> None:
    first = list(itertools.islice(rows, _MEASURED))
    if not first:
        click.echo("no rows", err=True)
        return
    heads = list(first[0])
    texts = [_texts(row) for row in first]
    widths = [max(map(len, column)) for column in zip(heads, *texts, strict=True)]
    right = [any(isinstance(row[head], (int, float)) for row in first) for head in heads]
    for line in itertools.chain([heads], texts, map(_texts, rows)):
        cells = [cell.rjust(w) if r else cell.ljust(w) for cell, w, r in zip(line, widths, right, strict=True)]
        click.echo("  ".join(cells).rstrip())


def _texts(row: Mapping[str, Any]) -> list[str]:
    return [_text(value) for value in row.values()]


def _text(value: object) -> str:
    if value is None or value == "":
        return "-"
    if isinstance(value, float):
        return f"{value:.2f}"
    text = value.hex() if isinstance(value, bytes) else str(value)
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)  # it may hold escape sequences
