"""`cubinet query`, `stats`, `top`, `diff` and `index`: asking the index, and keeping it in order."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import click

from cubinet.cli._out import bar, print_json, print_table
from cubinet.cli._rows import FORMATS, print_rows
from cubinet.errors import ConfigError
from cubinet.model import Record
from cubinet.store import Store
from cubinet.store.index import ORDERS, Row

__all__ = ["diff", "index_file", "query", "stats", "top"]

_FILTERS = ("family", "name", "kernel", "toolchain", "label", "min_spills", "used_since", "created_since")


@click.command(name="query")
@click.option("--family", help="Only this family, or a pattern as 'gemm*'.")
@click.option("--name", help="Only this name, or a pattern.")
@click.option("--arch", help="Only this architecture, as sm_90a, or a pattern.")
@click.option("--kernel", help="Only records with a kernel of this name or symbol, or a pattern.")
@click.option("--toolchain", help="Only this compiler: its name, its version, or both as a pattern, 'nvcc 13.*'.")
@click.option(
    "--label", help="Only what looked at files of this root, as cutlass; or with a label of its own, as team=a."
)
@click.option("--min-spills", type=click.IntRange(0), help="Only what spills this many bytes, or more.")
@click.option("--used-since", metavar="TIME", help="Only what was used since then, as 2026-11-29.")
@click.option("--created-since", metavar="TIME", help="Only what was compiled since then.")
@click.option("--order", type=click.Choice(ORDERS), help="Order of the rows; none if not given.")
@click.option("--descending", is_flag=True, help="The largest first.")
@click.option("--limit", type=click.IntRange(0), help="Not more rows than this.")
@click.option("--sql", metavar="TEXT", help="Ask this instead, over the documented views. It can only read.")
@click.option("--seconds", type=float, default=5.0, show_default=True, help="Time limit of --sql.")
@click.option("--json", "form", flag_value="json", help="Print a JSON array.")
@click.option("--csv", "form", flag_value="csv", help="Print comma-separated values.")
@click.option("--nl", "form", flag_value="nl", help="Print one JSON object a line.")
def query(  # noqa: PLR0917 - click gives them by name
    arch: str | None,
    order: str | None,
    descending: bool,  # noqa: FBT001
    limit: int | None,
    sql: str | None,
    seconds: float,
    form: str | None,
    **filters: Any,
) -> int:
    """Ask the index for records, or with --sql for anything it knows."""
    index = Store.from_env().index
    if sql is not None:
        given = [name for name in _FILTERS if filters[name] is not None] + [arch] * bool(arch) + [order] * bool(order)
        if given or descending or limit is not None:
            raise ConfigError("query", "--sql", "it stands alone", "put the filters into the SQL")
        print_rows(index.sql(sql, timeout=seconds), form)
        return 0
    found = index.query(target=arch, order_by=order, descending=descending, limit=limit, **filters)
    print_rows(_shown(found, form), form)
    return 0


def _shown(rows: Iterator[Row], form: str | None) -> Iterator[dict[str, Any]]:
    for row in rows:
        fields = dataclasses.asdict(row)
        if form not in FORMATS:
            last = row.last_use
            fields["fingerprint"] = row.fingerprint[:16]
            fields["last_use"] = None if last is None else datetime.fromtimestamp(last, UTC).strftime("%Y-%m-%d %H:%M")
        yield fields


@click.command(name="stats")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def stats(as_json: bool) -> int:  # noqa: FBT001
    """Say how much is in the local layer, and what it saved."""
    found = Store.from_env().index.stats()
    if as_json:
        print_json(found)
        return 0
    found["uses since"] = datetime.fromtimestamp(found.pop("since"), UTC).strftime("%Y-%m-%d %H:%M")
    del found["views_version"]
    for name, value in found.items():
        shown = value if isinstance(value, str) else f"{value:,.1f}" if isinstance(value, float) else f"{value:,}"
        click.echo(f"{name.replace('_', ' '):<12} {shown:>16}")
    return 0


@click.command(name="top")
@click.argument("kind", type=click.Choice(["largest", "slowest", "most-used", "least-used"]))
@click.option("--limit", type=click.IntRange(1), default=10, show_default=True, help="How many.")
@click.option("--json", "form", flag_value="json", help="Print a JSON array.")
@click.option("--csv", "form", flag_value="csv", help="Print comma-separated values.")
@click.option("--nl", "form", flag_value="nl", help="Print one JSON object a line.")
def top(kind: str, limit: int, form: str | None) -> int:
    """List the largest, slowest to compile, most used or least used records."""
    print_rows(_shown(Store.from_env().index.top(kind, limit), form), form)
    return 0


@click.command(name="diff")
@click.argument("a")
@click.argument("b")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON array of differences.")
def diff(a: str, b: str, as_json: bool) -> int:  # noqa: FBT001
    """Say what differs between two records. A and B may be their first digits, at least four."""
    store = Store.from_env()
    found = store.index.diff(_record(store, a), _record(store, b))
    if as_json:
        print_json([dataclasses.asdict(difference) for difference in found])
    elif found:
        print_table(("what", "name", "a", "b"), [(d.what, d.name, _cell(d.a), _cell(d.b)) for d in found])
    else:
        click.echo("no difference", err=True)
    return 0


def _record(store: Store, text: str) -> Record:
    artifact = store.find(store.resolve(text))
    if artifact is None:
        raise ConfigError("compare", text, "its record or blob is damaged", "compile it again")
    return artifact.record


def _cell(value: object) -> object:
    return value if not isinstance(value, str) or len(value) <= 40 else value[:39] + "…"


@click.command(name="index")
@click.argument("what", type=click.Choice(["rebuild", "check"]))
def index_file(what: str) -> int:
    """Make the index anew from the record files, or compare it with them.

    It is seldom needed: an index that is missing, damaged or behind is mended when it is asked.
    """
    index = Store.from_env().index
    if what == "rebuild":
        with bar("rebuilding") as progress:
            index.rebuild(progress)
        click.echo(f"index of {index.stats()['records']} records")
        return 0
    with bar("checking") as progress:
        problems = index.check(progress)
    for problem in problems:
        click.echo(problem)
    if problems:
        click.echo("run cubinet index rebuild", err=True)
        return 1
    click.echo(f"{index.stats()['records']} records, no problem")
    return 0
