"""`cubinet collect --remote`, and what `cubinet verify --remote` does."""

from __future__ import annotations

import re
from dataclasses import asdict

import click

from cubinet.cli._out import bar, print_json
from cubinet.errors import ConfigError, ReadOnlyError
from cubinet.store import Store

__all__ = ["collect", "duration", "verify_remote_command"]

_UNITS = {"d": 86400.0, "h": 3600.0, "m": 60.0, "s": 1.0}


def duration(text: str) -> float:
    """Seconds in `30d`, `12h`, `90m`, `45s`. Raises `ConfigError` for anything else."""
    found = re.fullmatch(r"([0-9]{1,9}(?:\.[0-9]{1,6})?)([dhms])", text.strip())
    if found is None:
        raise ConfigError("read duration", repr(text), "not a number with a unit", "as in 30d, 12h, 90m, 45s")
    return float(found[1]) * _UNITS[found[2]]


@click.command(name="collect")
@click.option(
    "--remote", is_flag=False, flag_value="", metavar="[LAYER]", help="Collect a remote; the first one, or by name."
)
@click.option("--unused-for", default="30d", show_default=True, metavar="TIME", help="Records unused for so long go.")
@click.option("--grace", default="24h", show_default=True, metavar="TIME", help="Blobs without a record wait so long.")
@click.option("--dry-run", is_flag=True, help="Change nothing; say what would go and how much that frees.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def collect(remote: str | None, unused_for: str, grace: str, *, dry_run: bool, as_json: bool) -> int:
    """Delete what nobody has used for a while.

    Records go at once, blobs in a run that comes after the grace period: run it every day. Exit status 1 if another
    collector is at work.
    """
    unused, wait = duration(unused_for), duration(grace)
    if remote is None:
        raise ConfigError("collect", "the local store", "not in this release", "say --remote, or delete the folder")
    from cubinet.store.remote_collect import collect as run

    with Store.from_env() as store:
        layer = store.far_layer(remote or None)
        if not (layer.writable or dry_run):
            raise ReadOnlyError(
                "collect", layer.place, "this layer is read-only", "run it where the layer may be written"
            )
        layer.prepare()
        with bar("collecting") as progress:
            found = run(layer.remote, unused_for=unused, grace=wait, dry_run=dry_run, progress=progress)
    if as_json:
        print_json(asdict(found))
        return 0
    would, frees = ("would delete", "would free") if dry_run else ("deleted", "freed")
    click.echo(f"{found.place}: {found.records} records")
    click.echo(f"kept: {_counts(found.kept)}")
    click.echo(f"{would}: {_counts(found.deleted)}")
    click.echo(f"{frees} {found.bytes} bytes")
    if found.waiting:
        click.echo(f"without a record: {found.waiting} blobs, {found.waiting_bytes} bytes; they go after {grace}")
    for note in found.notes:
        click.echo(f"note: {note}")
    return 0


def _counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{count} {what}" for what, count in sorted(counts.items()) if count) or "nothing"


def verify_remote_command(layer: str | None, *, repair: bool, as_json: bool) -> int:
    """The body of `cubinet verify --remote [LAYER] [--repair]`. Exit status 1 if something was wrong."""
    from cubinet.store.remote_verify import verify_remote

    with Store.from_env() as store:
        far = store.far_layer(layer or None)
        far.prepare()
        with bar("verifying") as progress:
            found = verify_remote(far, progress, repair=repair)
    if as_json:
        print_json({**asdict(found), "clean": found.clean, "remote": far.place})
        return 0 if found.clean else 1
    click.echo(
        f"{far.place}: {found.records} records, {found.blobs} blobs, {found.bytes} bytes, {found.manifests} manifests"
    )
    for problem in found.problems:
        click.echo(f"problem: {problem}")
    if found.clean:
        click.echo("clean")
    elif repair:
        click.echo(f"{len(found.problems)} problems; {found.repaired} damaged objects were deleted")
    else:
        click.echo(f"{len(found.problems)} problems; --repair deletes what is damaged")
    return 0 if found.clean else 1
