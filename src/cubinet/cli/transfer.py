"""`cubinet push` and `cubinet pull`."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, TypedDict, Unpack

import click

from cubinet.cli._out import bar, print_json
from cubinet.errors import ConfigError
from cubinet.model import Fingerprint, Record
from cubinet.store import Store

__all__ = ["pull", "push"]


class _Choice(TypedDict):
    fingerprints: Sequence[str]
    layer: str | None
    family: str | None
    name: str | None
    target: str | None
    as_json: bool


def _choosing(command: Callable[..., Any]) -> Callable[..., Any]:
    for option in reversed(
        (
            click.argument("fingerprints", nargs=-1, metavar="[FINGERPRINT]..."),
            click.option("--layer", metavar="NAME", help="The remote; the first one in CUBINET_LAYERS if not given."),
            click.option("--family", metavar="TEXT", help="Only builds with this family."),
            click.option("--name", metavar="TEXT", help="Only builds with this name."),
            click.option("--target", metavar="TEXT", help="Only builds for this target, as cuda:sm_90a."),
            click.option("--json", "as_json", is_flag=True, help="Print one JSON object."),
        )
    ):
        command = option(command)
    return command


def _wanted(choice: _Choice) -> Callable[[Record], bool]:
    asked = {"family": choice["family"], "name": choice["name"], "target": choice["target"]}

    def wanted(record: Record) -> bool:
        return all(value is None or str(getattr(record, field)) == value for field, value in asked.items())

    return wanted


def _report(what: str, place: str, moved: Any, *, as_json: bool) -> int:
    if as_json:
        print_json({**dataclasses.asdict(moved), "layer": place})
    else:
        megabytes = moved.size / 1e6
        click.echo(f"{what} {moved.moved} builds, {megabytes:.1f} MB; {moved.present} were there already")
        if moved.kept:
            click.echo(f"{moved.kept} are tied to this machine's folders and stay")
        for problem in moved.problems[:20]:
            click.echo(f"failed: {problem}", err=True)
        if len(moved.problems) > 20:
            click.echo(f"failed: {len(moved.problems) - 20} more", err=True)
    return 0 if moved.clean else 1


@click.command()
@_choosing
def push(**choice: Unpack[_Choice]) -> int:
    """Send builds to a remote, those that it does not have. All of them, or those that begin so."""
    store = Store()
    chosen = [store.resolve(text) for text in choice["fingerprints"]] or None
    with bar("pushing") as progress:
        moved = store.push(choice["layer"], chosen, wanted=_wanted(choice), progress=progress)
    return _report("sent", store.far_layer(choice["layer"]).name, moved, as_json=choice["as_json"])


@click.command()
@_choosing
def pull(**choice: Unpack[_Choice]) -> int:
    """Fetch builds from a remote, those that are not here. All of them, or those with these fingerprints."""
    store = Store()
    for text in choice["fingerprints"]:
        if len(text) != 64:
            raise ConfigError("pull", text, "a remote finds whole fingerprints only", "give all 64 hex digits")
    chosen = [Fingerprint(text) for text in choice["fingerprints"]] or None
    with bar("pulling") as progress:
        moved = store.pull(choice["layer"], chosen, wanted=_wanted(choice), progress=progress)
    return _report("fetched", store.far_layer(choice["layer"]).name, moved, as_json=choice["as_json"])
