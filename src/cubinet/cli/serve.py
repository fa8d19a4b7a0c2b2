"""`cubinet serve`: the index in a browser."""

from __future__ import annotations

import contextlib

import click

from cubinet.store import Store

__all__ = ["serve_pages"]


@click.command(name="serve")
@click.option("--port", type=click.IntRange(0, 65535), default=8001, show_default=True, help="0 for any that is free.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen at.")
@click.option(
    "--expose", is_flag=True, help="Allow an address that others reach. They read the index, without a password."
)
@click.option("--open", "show", is_flag=True, help="Open a browser.")
@click.option("--no-sql", is_flag=True, help="Let nobody ask in SQL of their own.")
def serve_pages(port: int, host: str, expose: bool, show: bool, no_sql: bool) -> int:  # noqa: FBT001
    """Show the index in a browser: records, kernels, reports, plots; CSV and JSON to take away.

    It only reads a private copy, which follows the store: nothing is locked, nothing is written. Ctrl-C ends it.
    """
    from cubinet.web import LOOPBACK, app
    from cubinet.web.server import is_loopback, listen, serve

    with contextlib.closing(listen(host, port, expose=expose)) as server:
        bracketed = f"[{host.strip('[]')}]" if ":" in host else host
        hosts = {*LOOPBACK, bracketed.lower()} if is_loopback(host) else None
        site = app(Store.from_env().index, sql=not no_sql, hosts=hosts)
        url = f"http://{bracketed}:{server.getsockname()[1]}/"

        def ready() -> None:
            click.echo(f"{url}  (Ctrl-C ends it)")
            if show:
                click.launch(url)

        with contextlib.closing(site):
            serve(site, server, ready)
    return 0
