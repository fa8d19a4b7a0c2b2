"""`cubinet compile` and `explain`: the commands that say what to build."""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Callable
from typing import Any, TypeVar

import click

from cubinet.cli._out import KERNEL_HEADS, kernel_rows, print_json, print_table, working, write_file
from cubinet.errors import ConfigError
from cubinet.model import OUTPUT_KINDS, Artifact, Root, Target, Variant
from cubinet.store import Store

__all__ = ["compile_file", "explain", "roots_of"]

_LABELLED = re.compile(r"([A-Za-z0-9_][A-Za-z0-9_.-]{0,63})=(.+)", re.DOTALL)


F = TypeVar("F", bound=Callable[..., Any])


def _asking(command: F) -> F:
    """Add the arguments and options that say what to build."""
    for decorate in reversed(
        (
            click.argument("file", type=click.Path(exists=True, dir_okay=False)),
            click.argument("options", nargs=-1, type=click.UNPROCESSED, metavar="[-- COMPILER OPTIONS...]"),
            click.option("--arch", help="Architecture, as sm_90a. Default: CUBINET_ARCH, else the compiler's own."),
            click.option(
                "-I", "includes", multiple=True, metavar="[LABEL=]DIR", help="Include folder; may be repeated."
            ),
            click.option("--kind", type=click.Choice(OUTPUT_KINDS), default="cubin", show_default=True, help="Output."),
            click.option(
                "--entry", "entries", multiple=True, metavar="NAME", help="A kernel it must have; repeatable."
            ),
            click.option(
                "--compiler", default="nvcc", show_default=True, help="The compiler adapter: nvcc, nvrtc, bisheng."
            ),
            click.option("--hook", default="", metavar="LABEL:FILE.py", help="Post-hook under an include folder."),
            click.option("--family", default="", help="A label for queries; never part of the key."),
            click.option("--name", default="", help="A label for queries. Default: the file's name."),
        )
    ):
        command = decorate(command)
    return command


def _variant(store: Store, file: str, arch: str | None, includes: tuple[str, ...], **rest: Any) -> Variant:
    target = Target.parse(arch or store.settings.arch or _default_arch(store, rest["compiler"]))
    if not rest["name"]:
        del rest["name"]
    return Variant.from_file(file, target, roots=roots_of(includes), **rest)


@click.command(name="compile")
@_asking
@click.option("--check-no-spills", is_flag=True, help="Fail if a kernel spills registers.")
@click.option("--check-no-local-memory", is_flag=True, help="Fail if a kernel uses local memory.")
@click.option("-o", "output", type=click.Path(dir_okay=False), help="Also write the result to this file.")
@click.option("--no-compile", is_flag=True, help="Only look; exit with status 3 if nobody has it.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def compile_file(file: str, output: str | None, *, no_compile: bool, as_json: bool, **rest: Any) -> int:
    """Compile FILE, or find it in the store.

    Options for the compiler come after `--`. Without LABEL= an include folder is named by its position.
    """
    store = Store.from_env()
    variant = _variant(store, file, **rest)
    start = time.perf_counter()
    if no_compile:
        artifact = store.find(variant)
    else:
        with working(f"looking for {file}, compiling it if need be"):
            artifact = store.get_or_compile(variant)
    seconds = time.perf_counter() - start
    if artifact is None:
        if as_json:
            uncacheable = store.normalize(variant).uncacheable
            print_json(_miss(str(store.action(variant)), seconds, uncacheable))
        else:
            click.echo(f"miss: no layer has {file} for {variant.target.arch}; cubinet explain says why", err=True)
        return 3
    if artifact.messages:
        click.echo(artifact.messages.rstrip("\n"), err=True)
    if output:
        write_file(output, artifact.data)
    if as_json:
        print_json(_found(store, artifact, seconds))
    else:
        _print(store, file, artifact, seconds)
    return 0


@click.command(name="explain")
@_asking
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def explain(file: str, *, as_json: bool, **rest: Any) -> int:
    """Say why FILE hits, or what differs from the nearest known build.

    Takes what `compile` takes. Compiles nothing. Exit status 0 for a hit, 3 otherwise.
    """
    store = Store.from_env()
    found = store.explain(_variant(store, file, **rest))
    if as_json:
        fields = {"fingerprint": found.fingerprint, "nearest": found.nearest}
        changes = [{"what": c.what, "name": c.name, "detail": c.detail} for c in found.changes]
        print_json(
            {
                "outcome": found.outcome,
                "summary": found.summary,
                "action": None if found.action is None else str(found.action),
                "relation": found.relation,
            }
            | {name: None if value is None else str(value) for name, value in fields.items()}
            | {"changes": changes}
            | {"layers": [{"layer": a.layer, "outcome": a.outcome, "why": a.why} for a in found.layers]}
        )
    else:
        click.echo(f"{found.outcome}: {found.summary}")
        for change in found.changes:
            click.echo(f"  {change.what} {change.name}: {change.detail}")
        for answer in found.layers:
            click.echo(f"  layer {answer.layer}: {answer.outcome}, {answer.why}")
    return 0 if found.outcome == "hit" else 3


def _default_arch(store: Store, compiler: str) -> str:
    adapter = store.compiler(compiler)
    facts = getattr(adapter, "facts", None)
    if facts is None:
        raise ConfigError("compile", "", f"{compiler} has no default architecture", "give --arch")
    default: str = facts().default_arch
    click.echo(f"cubinet: no --arch: compiling for {default}, the compiler's own default", err=True)
    return default


def roots_of(includes: tuple[str, ...]) -> list[Root]:
    """Roots from `LABEL=DIR` or `DIR`; the latter are named by position."""
    roots = []
    for i, text in enumerate(includes):
        match = _LABELLED.fullmatch(text)
        label, path = (match[1], match[2]) if match else (f"i{i}", text)
        if not os.path.isdir(path):
            click.echo(f"cubinet: warning: -I {text}: no such folder", err=True)
        roots.append(Root(label, path))
    return roots


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
