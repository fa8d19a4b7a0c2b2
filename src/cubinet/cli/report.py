"""`cubinet report`: the questions that come up again and again."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click

from cubinet.cli._rows import FORMATS, print_rows
from cubinet.store import Store

__all__ = ["report"]


@click.command(name="report")
@click.argument("name", type=click.Choice(["toolchains", "duplicates", "misses", "cost"]))
@click.option("--limit", type=click.IntRange(1), help="Not more rows than this.")
@click.option("--json", "form", flag_value="json", help="Print a JSON array.")
@click.option("--csv", "form", flag_value="csv", help="Print comma-separated values.")
@click.option("--nl", "form", flag_value="nl", help="Print one JSON object a line.")
def report(name: str, limit: int | None, form: str | None) -> int:
    """Report on toolchains, duplicates, misses or cost.

    toolchains: the same variant under one compiler and the next. duplicates: variants with the same object.
    misses: the most frequent reasons. cost: compile seconds that hits saved.
    """
    rows = Store.from_env().index.report(name, limit)
    print_rows(rows if form in FORMATS else _shortened(rows), form)
    return 0


def _shortened(rows: Iterator[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for row in rows:
        for head in ("fingerprint", "fingerprint_to", "digest"):
            if row.get(head):
                row[head] = row[head][:16]
        if row.get("fingerprints"):
            row["fingerprints"] = " ".join(text[:16] for text in row["fingerprints"].split(","))
        yield row
