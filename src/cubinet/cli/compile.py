"""`cubinet compile`."""

from __future__ import annotations

import os
import re
import sys
import time
from typing import Any

import click

from cubinet._fs import Fs
from cubinet.cli._out import KERNEL_HEADS, kernel_rows, print_json, print_table, working
from cubinet.config import Settings
from cubinet.errors import ConfigError
from cubinet.model import OUTPUT_KINDS, Artifact, Root, Target, Variant
from cubinet.store import Store

__all__ = ["compile_file"]

_LABELLED = re.compile(r"([A-Za-z0-9_][A-Za-z0-9_.-]{0,63})=(.+)", re.DOTALL)


@click.command(name="compile", context_settings={"ignore_unknown_options": False})
@click.argument("file", type=click.Path(exists=True, dir_okay=False))
@click.argument("options", nargs=-1, type=click.UNPROCESSED, metavar="[-- COMPILER OPTIONS...]")
@click.option("--arch", help="Architecture, as sm_90a. Default: CUBINET_ARCH, else the compiler's own default.")
@click.option("-I", "includes", multiple=True, metavar="[LABEL=]DIR", help="Include folder; may be repeated, in order.")
@click.option("--kind", type=click.Choice(OUTPUT_KINDS), default="cubin", show_default=True, help="What to make.")
@click.option("--entry", "entries", multiple=True, metavar="NAME", help="A kernel that must be in it; may be repeated.")
@click.option("--compiler", default="nvcc", show_default=True, help="The compiler adapter.")
@click.option("--family", default="", help="A label for queries; never part of the key.")
@click.option("--name", default=None, help="A label for queries. Default: the file's name.")
@click.option("-o", "output", type=click.Path(dir_okay=False), help="Also write the result to this file.")
@click.option("--no-compile", is_flag=True, help="Only look; exit with status 3 if nobody has it.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def compile_file(  # noqa: PLR0917 - click passes options by name
    file: str,
    options: tuple[str, ...],
    arch: str | None,
    includes: tuple[str, ...],
    kind: str,
    entries: tuple[str, ...],
    compiler: str,
    family: str,
    name: str | None,
    output: str | None,
    no_compile: bool,  # noqa: FBT001 - click passes flags so
    as_json: bool,  # noqa: FBT001
) -> int:
    """Compile FILE, or find it in the store.

    Options for the compiler come after `--`. Without LABEL= an include folder is named by its position.
    """
    settings = Settings.from_env()
    store = Store(settings=settings)
    variant = Variant.from_file(
        file,
        Target.parse(arch or settings.arch or _default_arch(store, compiler)),
        kind=kind,
        options=options,
        roots=_roots(includes),
        entries=entries,
        compiler=compiler,
        family=family,
        **({"name": name} if name else {}),
    )
    start = time.perf_counter()
    if no_compile:
        artifact = store.find(variant)
    else:
        with working(f"looking for {file}, compiling it if need be"):
            artifact = store.get_or_compile(variant)
    seconds = time.perf_counter() - start
    request = store.normalize(variant)
    if artifact is None:
        if as_json:
            print_json(_miss(str(store.action(variant)), seconds, request.uncacheable))
        else:
            click.echo(f"miss: no layer has {file} for {variant.target.arch}", err=True)
        return 3
    if artifact.messages:
        click.echo(artifact.messages.rstrip("\n"), err=True)
    if output:
        _write(output, artifact.data)
    if as_json:
        print_json(_found(store, artifact, seconds))
    else:
        _print(store, file, artifact, seconds)
    return 0


def _default_arch(store: Store, compiler: str) -> str:
    adapter = store.compiler(compiler)
    facts = getattr(adapter, "facts", None)
    if facts is None:
        raise ConfigError("compile", "", f"{compiler} has no default architecture", "give --arch")
    default: str = facts().default_arch
    click.echo(f"cubinet: no --arch: compiling for {default}, the compiler's own default", err=True)
    return default


def _roots(includes: tuple[str, ...]) -> list[Root]:
    roots = []
    for i, text in enumerate(includes):
        match = _LABELLED.fullmatch(text)
        label, path = (match[1], match[2]) if match else (f"i{i}", text)
        if not os.path.isdir(path):
            click.echo(f"cubinet: warning: -I {text}: no such folder", err=True)
        roots.append(Root(label, path))
    return roots


def _write(path: str, data: bytes) -> None:
    """Write a file the caller named: whole, or not at all."""
    fs, temporary = Fs(), f"{path}.{os.getpid()}.tmp"
    try:
        fs.create(temporary, data, mode=0o644, sync=False)
        fs.rename(temporary, path)
    except OSError as exc:
        fs.discard(temporary)
        raise ConfigError("write", path, exc.strerror or str(exc)) from exc


def _miss(action: str, seconds: float, uncacheable: str) -> dict[str, Any]:
    return {
        "status": "miss",
        "fingerprint": None,
        "action": action,
        "layer": None,
        "seconds": round(seconds, 6),
        "cacheable": not uncacheable,
        "reason": uncacheable or None,
        "local_only": None,
        "blobs": {},
        "kernels": [],
        "observations": {},
    }


def _found(store: Store, artifact: Artifact, seconds: float) -> dict[str, Any]:
    record = artifact.record
    kept = artifact.layer != ""
    return {
        "status": str(artifact.status),
        "fingerprint": str(record.fingerprint),
        "action": str(record.action),
        "layer": artifact.layer or None,
        "seconds": round(seconds, 6),
        "cacheable": artifact.cacheable,
        "reason": artifact.reason or None,
        "local_only": record.local_only or None,
        "blobs": {
            role: {
                "digest": str(ref.digest),
                "size": ref.size,
                "path": f"{store.folder}/blobs/{ref.digest.hex[:2]}/{ref.digest.hex}" if kept else None,
            }
            for role, ref in record.blobs
        },
        "kernels": [
            {"name": k.name, "symbol": k.symbol, "regs": k.regs, "shared": k.shared, "local": k.local}
            | {"const": k.const, "params": k.params, "spills": k.spills}
            for k in artifact.kernels
        ],
        "observations": dict(record.observation_counts),
    }


def _print(store: Store, file: str, artifact: Artifact, seconds: float) -> None:
    record = artifact.record
    ref = record.blob(record.kind)
    size = ref.size if ref else 0
    took = f"{seconds * 1000:.1f} ms" if seconds < 1 else f"{seconds:.1f} s"
    click.echo(f"{artifact.status}  {file} for {record.target.arch} in {took}: {record.kind} of {size} bytes")
    click.echo(f"fingerprint  {record.fingerprint}")
    if artifact.reason:
        click.echo(f"not stored   {artifact.reason}")
    else:
        click.echo(f"store        {store.folder} ({artifact.layer})")
    if record.local_only:
        click.echo(f"local only   {record.local_only}")
    if artifact.kernels:
        click.echo()
        print_table(KERNEL_HEADS, kernel_rows(artifact.kernels))
    sys.stdout.flush()
