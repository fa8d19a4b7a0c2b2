"""The `cubinet` command.

Exit status: 0 done, 1 the compiler refused or something was found wrong, 2 wrong usage or settings,
3 nothing found under `--no-compile`, 4 no compiler, 130 interrupted.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Sequence
from typing import NoReturn

import click

from cubinet import __version__
from cubinet.cli.browse import inspect_file, list_records, show
from cubinet.cli.check import doctor, verify
from cubinet.cli.compile import compile_file
from cubinet.errors import CompileError, ConfigError, CubinetError, ToolchainNotFoundError

__all__ = ["main"]


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="cubinet")
def cli() -> None:
    """A content-addressed store for compiled GPU kernels."""


for command in (compile_file, list_records, show, inspect_file, verify, doctor):
    cli.add_command(command)


def main(argv: Sequence[str] | None = None) -> NoReturn:
    """Run the command and leave the process with its status."""
    logging.basicConfig(format="cubinet: warning: %(message)s", level=logging.WARNING)
    try:
        status = cli.main(args=argv, prog_name="cubinet", standalone_mode=False) or 0
    except click.exceptions.Abort:
        status = 130
    except click.ClickException as exc:
        exc.show()
        status = exc.exit_code
    except CubinetError as exc:
        status = _report(exc)
    except BrokenPipeError:  # `cubinet ls | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        status = 0
    sys.exit(status)


def _report(error: CubinetError) -> int:
    if isinstance(error, CompileError) and error.log:
        click.echo(error.log.rstrip("\n"), err=True)
    click.echo(f"cubinet: {error}", err=True)
    if isinstance(error, ToolchainNotFoundError):
        return 4
    return 2 if isinstance(error, ConfigError) else 1
