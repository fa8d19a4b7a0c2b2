"""`cubinet toolchain`: write down which compiler is here, for machines that have none."""

from __future__ import annotations

from collections.abc import Sequence

import click

from cubinet.cli._out import write_file
from cubinet.compilers._pin import Pin, describe
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
    write_file(output, data)
