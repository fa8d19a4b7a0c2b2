"""`cubinet ls`, `show` and `inspect`: looking at what there is."""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path

import click

from cubinet.cli._out import KERNEL_HEADS, kernel_rows, print_json, print_table, record_json
from cubinet.errors import ConfigError
from cubinet.model import Record
from cubinet.store import Store

__all__ = ["inspect_file", "list_records", "show"]


@click.command(name="ls")
@click.option("--family", help="Only this family.")
@click.option("--arch", help="Only this architecture, as sm_90a.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON array of records.")
def list_records(family: str | None, arch: str | None, as_json: bool) -> int:  # noqa: FBT001
    """List the records in the local layer."""
    rows = (
        record
        for record in Store.from_env().records()
        if (family is None or record.family == family) and (arch is None or record.target.arch == arch)
    )
    if as_json:
        # one record at a time: a store may hold more of them than fit in memory
        opening = "["
        for record in rows:
            click.echo(opening + json.dumps(record_json(record), ensure_ascii=False), nl=False)
            opening = ",\n "
        click.echo("[]" if opening == "[" else "]")
        return 0
    table = [_row(record) for record in rows]
    if not table:
        click.echo("no records", err=True)
        return 0
    print_table(("fingerprint", "target", "kind", "family", "name", "kernels", "bytes", "seconds", "created"), table)
    return 0


def _row(record: Record) -> tuple[object, ...]:
    ref = record.blob(record.kind)
    size = ref.size if ref else 0
    name = record.name or "-"
    return (
        record.fingerprint.hex[:16],
        record.target,
        record.kind,
        record.family or "-",
        name,
        len(record.kernels),
        size,
        round(record.seconds, 2),
        record.created,
    )


@click.command(name="show")
@click.argument("fingerprint")
@click.option("--log", "what", flag_value="log", help="Print what the compiler said.")
@click.option("--source", "what", flag_value="source", help="Print the source.")
@click.option("--observations", "what", flag_value="observations", help="Print everything the compiler looked at.")
@click.option("--json", "as_json", is_flag=True, help="Print the record as JSON.")
def show(fingerprint: str, what: str | None, as_json: bool) -> int:  # noqa: FBT001
    """Show one record. FINGERPRINT may be its first digits, at least four."""
    store = Store.from_env()
    artifact = store.find(store.resolve(fingerprint))
    if artifact is None:
        raise ConfigError("show", fingerprint, "its record or blob is damaged", "compile it again")
    record = artifact.record
    if what:
        sys.stdout.buffer.write(artifact.read(what) or b"")
        return 0
    if as_json:
        print_json(record_json(record))
        return 0
    counts = ", ".join(f"{count} {seen}" for seen, count in record.observation_counts)
    for head, value in (
        ("fingerprint", record.fingerprint),
        ("action", record.action),
        ("name", " ".join(filter(None, (record.family, record.name)))),
        ("target", f"{record.target} ({record.kind})"),
        ("toolchain", f"{record.toolchain.name} {record.toolchain.version} ({record.toolchain.identity})"),
        ("compiled", f"{record.created} in {record.seconds:.2f} s on {record.host} by {record.producer}"),
        ("command", " ".join(record.argv)),
        ("looked at", counts),
        ("local only", record.local_only),
    ):
        if value:
            click.echo(f"{head:<12} {value}")
    click.echo()
    print_table(("blob", "bytes", "digest"), [(role, ref.size, ref.digest) for role, ref in record.blobs])
    if record.kernels:
        click.echo()
        print_table(KERNEL_HEADS, kernel_rows(record.kernels))
    return 0


@click.command(name="inspect")
@click.argument("file", type=click.Path(exists=True, dir_okay=False))
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def inspect_file(file: str, as_json: bool) -> int:  # noqa: FBT001
    """Say what is in a cubin, PTX file, fatbin or Ascend object."""
    from cubinet.objects import inspect

    try:
        info = inspect(Path(file).read_bytes())
    except OSError as exc:
        raise ConfigError("read", file, exc.strerror or str(exc)) from exc
    if as_json:
        print_json({"file": file, **dataclasses.asdict(info)})
        return 0
    click.echo(f"{file}: {info.kind}" + (f" for {info.arch}" if info.arch else ""))
    for head, value in (("made by", info.producer), ("options", " ".join(info.options))):
        if value:
            click.echo(f"{head:<8} {value}")
    for image in info.images:
        packed = ", compressed" if image.compressed else ""
        click.echo(f"image    {image.kind} for {image.arch}, {image.size} bytes{packed}")
    kernels = info.kernels or tuple(kernel for image in info.images for kernel in image.kernels)
    if kernels:
        click.echo()
        print_table(KERNEL_HEADS, kernel_rows(kernels))
    return 0
