"""`cubinet pin` and `collect`: which builds stay, and which go."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace

import click

from cubinet.cli._out import bar, print_json, print_table
from cubinet.config import duration, number_of_bytes
from cubinet.errors import ConfigError
from cubinet.store import Store

__all__ = ["collect", "pin"]


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


@click.command()
@click.option("--size", metavar="BYTES", help="What the local layer may take, as 20G. Default: the setting.")
@click.option("--age", metavar="TIME", help="Builds unused for so long go, as 30d. Default: the setting.")
@click.option("--free", metavar="BYTES", help="What to leave free on the disk, as 1G. Default: the setting.")
@click.option("--remote", is_flag=False, flag_value="", metavar="[LAYER]", help="Collect a remote instead.")
@click.option("--unused-for", metavar="TIME", help="With --remote: records unused for so long go. Default 30d.")
@click.option("--grace", metavar="TIME", help="With --remote: blobs without a record wait so long. Default 24h.")
@click.option("--dry-run", is_flag=True, help="Change nothing; say what would go and how much that frees.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def collect(remote: str | None, *, dry_run: bool, as_json: bool, **given: str | None) -> int:
    """Bring the local layer within its limits, or take from a remote what nobody has used for a while.

    What is pinned, or was used within a day, stays. Exit status 1 if another process collects.
    """
    here, there = ("size", "age", "free"), ("unused_for", "grace")
    wrong = [name for name in (here if remote is not None else there) if given[name] is not None]
    if wrong:
        where = "is for the local layer" if remote is not None else "is for --remote"
        raise ConfigError("collect", f"--{wrong[0].replace('_', '-')}", where, "leave it out")
    if remote is not None:
        from cubinet.cli.remote import collect_remote_command

        unused, wait = duration(given["unused_for"] or "30d"), duration(given["grace"] or "24h")
        return collect_remote_command(remote or None, unused, wait, dry_run=dry_run, as_json=as_json)
    return _collect_here(given, dry_run=dry_run, as_json=as_json)


def _collect_here(given: Mapping[str, str | None], *, dry_run: bool, as_json: bool) -> int:
    from cubinet.store.retention import Limits

    store = Store.from_env()
    limits = Limits(store.settings.size, store.settings.age, store.settings.free)
    if given["age"] is not None:
        limits = replace(limits, age=duration(given["age"]))
    for name in ("size", "free"):
        value = given[name]
        if value is not None:
            limits = replace(limits, **{name: number_of_bytes(value, f"--{name}")})
    with bar("collecting") as progress:
        done = store.collect(limits, dry_run=dry_run, progress=progress)
    if as_json:
        print_json({**asdict(done), "victims": [f.hex for f in done.victims], "folder": store.folder})
    elif done.busy:
        click.echo(f"{store.folder}: another process collects")
    else:
        would = "would go" if dry_run else "went"
        click.echo(f"{store.folder}: {done.size} bytes")
        click.echo(
            f"{would}: {done.records} records, {done.blobs} blobs, {done.freed} bytes, {done.leftovers} leftovers"
        )
        if done.pinned or done.recent:
            click.echo(f"stayed: {done.pinned} that are pinned, {done.recent} that were used within a day")
        if done.over:
            click.echo(f"still {done.over} bytes over its limits")
    return 1 if done.busy else 0
