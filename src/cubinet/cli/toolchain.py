"""`cubinet toolchain`: write down which compiler is here, for machines that have none."""

from __future__ import annotations

import os
from collections.abc import Sequence

import click

from cubinet._fs import Fs
from cubinet.compilers._pin import Pin, describe
from cubinet.errors import ConfigError
from cubinet.store import Store

__all__ = ["toolchain"]


@click.command()
@click.option("--compiler", "names", multiple=True, metavar="TEXT", help="The adapter; may be repeated. Default: nvcc.")
@click.option("-o", "output", metavar="FILE", help="Write to this file instead of standard output.")
def toolchain(names: Sequence[str], output: str | None) -> None:
    """Describe the compiler at hand, as JSON, for CUBINET_TOOLCHAIN on machines without one.

    Such a machine finds what this compiler made, and compiles nothing.
    """
    store = Store()
    pins = [store.compiler(name).pin() for name in names or ("nvcc",)]
    data = describe([pin for pin in pins if isinstance(pin, Pin)])
    if output is None:
        click.echo(data, nl=False)
        return
    fs, temporary = Fs(), f"{output}.{os.getpid()}"
    try:
        fs.create(temporary, data, mode=0o644)
        fs.rename(temporary, output)
    except OSError as exc:
        raise ConfigError("write", output, exc.strerror or str(exc)) from exc
