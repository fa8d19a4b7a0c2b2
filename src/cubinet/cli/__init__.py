"""The `cubinet` command.

Exit status: 0 done, 1 the compiler refused or something was found wrong, 2 wrong usage or settings,
3 nothing found under `--no-compile` or by `explain`, 4 no compiler, 130 interrupted.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence
from typing import NoReturn

import click

from cubinet import __version__
from cubinet.errors import CompileError, ConfigError, CubinetError, ToolchainNotFoundError

__all__ = ["COMMANDS", "cli", "main"]


COMMANDS = {
    "collect": "cubinet.cli.keep:collect",
    "compile": "cubinet.cli.compile:compile_file",
    "diff": "cubinet.cli.query:diff",
    "doctor": "cubinet.cli.check:doctor",
    "explain": "cubinet.cli.compile:explain",
    "index": "cubinet.cli.query:index_file",
    "inspect": "cubinet.cli.browse:inspect_file",
    "key": "cubinet.cli.key:key",
    "ls": "cubinet.cli.browse:list_records",
    "pin": "cubinet.cli.keep:pin",
    "pull": "cubinet.cli.transfer:pull",
    "push": "cubinet.cli.transfer:push",
    "query": "cubinet.cli.query:query",
    "report": "cubinet.cli.report:report",
    "serve": "cubinet.cli.serve:serve_pages",
    "show": "cubinet.cli.browse:show",
    "stats": "cubinet.cli.query:stats",
    "toolchain": "cubinet.cli.toolchain:toolchain",
    "top": "cubinet.cli.query:top",
    "verify": "cubinet.cli.check:verify",
}


class _Commands(click.Group):
    """Imports a command when it is asked for: a hit should not wait for `doctor`."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        module, _, name = COMMANDS.get(cmd_name, "").partition(":")
        if not module:
            return None
        command: click.Command = getattr(importlib.import_module(module), name)
        return command


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="cubinet")
def cli() -> None:
    """A content-addressed store for compiled GPU kernels."""


def main(argv: Sequence[str] | None = None) -> NoReturn:
    """Run the command and leave the process with its status."""
    try:
        with cli.make_context("cubinet", list(sys.argv[1:] if argv is None else argv)) as context:
            status = cli.invoke(context) or 0
        sys.stdout.flush()
    except (click.exceptions.Abort, KeyboardInterrupt):
        status = 130
    except click.exceptions.Exit as exc:
        status = exc.exit_code
    except click.ClickException as exc:
        exc.show()
        if isinstance(exc, click.NoSuchOption) and exc.ctx and exc.ctx.info_name in ("compile", "explain"):
            click.echo("Options for the compiler come after two dashes: cubinet compile FILE -- -O3", err=True)
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
