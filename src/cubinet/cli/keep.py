"""`cubinet pin`: which builds stay."""

from __future__ import annotations

from collections.abc import Sequence

import click

from cubinet.cli._out import print_json, print_table
from cubinet.errors import ConfigError
from cubinet.store import Store

__all__ = ["pin"]


@click.command()
@click.argument("tag", required=False)
@click.argument("fingerprints", nargs=-1, metavar="[FINGERPRINT]...")
@click.option("--remove", is_flag=True, help="Let go of these builds, or of the whole tag if none are named.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def pin(tag: str | None, fingerprints: Sequence[str], *, remove: bool, as_json: bool) -> None:
    """Keep builds under a TAG whatever the limits of the store say; without arguments, list the tags."""
    store = Store.from_env()
    pins = store.pins
    if tag is None:
        if remove:
            raise ConfigError("unpin", "", "no tag is named", "cubinet pin TAG --remove")
        tags = {name: sorted(f.hex for f in kept) for name, kept in pins.tags().items()}
        if as_json:
            print_json(tags)
        else:
            print_table(("tag", "builds"), [(name, len(kept)) for name, kept in tags.items()])
        return
    chosen = [store.resolve(text) for text in fingerprints]
    if remove:
        changed = pins.unpin(tag, chosen or None)
    elif not chosen:
        raise ConfigError("pin", tag, "no build is named", "give fingerprints, as cubinet ls shows them")
    else:
        changed = pins.pin(tag, chosen)
    kept = len(pins.tags().get(tag, ()))
    if as_json:
        print_json({"tag": tag, "changed": changed, "builds": kept})
    else:
        click.echo(f"{tag}: {changed} builds {'let go' if remove else 'more'}, {kept} in all")
