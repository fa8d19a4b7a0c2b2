"""What `cubinet collect --remote` and `cubinet verify --remote` do."""

from __future__ import annotations

from dataclasses import asdict

import click

from cubinet.cli._out import bar, print_json
from cubinet.errors import ReadOnlyError
from cubinet.store import Store

__all__ = ["collect_remote_command", "verify_remote_command"]


def _counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{count} {what}" for what, count in sorted(counts.items()) if count) or "nothing"


def collect_remote_command(layer: str | None, unused: float, wait: float, *, dry_run: bool, as_json: bool) -> int:
    """The body of `cubinet collect --remote [LAYER]`: `unused` and `wait` are seconds."""
    from cubinet.store.remote_collect import collect as run

    with Store.from_env() as store:
        far = store.far_layer(layer or None)
        if not (far.writable or dry_run):
            raise ReadOnlyError(
                "collect", far.place, "this layer is read-only", "run it where the layer may be written"
            )
        far.prepare()
        with bar("collecting") as progress:
            found = run(far.remote, unused_for=unused, grace=wait, dry_run=dry_run, progress=progress)
    if as_json:
        print_json(asdict(found))
        return 0
    would, frees = ("would delete", "would free") if dry_run else ("deleted", "freed")
    click.echo(f"{found.place}: {found.records} records")
    click.echo(f"kept: {_counts(found.kept)}")
    click.echo(f"{would}: {_counts(found.deleted)}")
    click.echo(f"{frees} {found.bytes} bytes")
    if found.waiting:
        click.echo(f"without a record: {found.waiting} blobs, {found.waiting_bytes} bytes; they go in a later run")
    for note in found.notes:
        click.echo(f"note: {note}")
    return 0


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
