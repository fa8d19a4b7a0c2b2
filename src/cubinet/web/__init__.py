"""Pages over the index of a store, for a browser: Datasette on a private copy of it. Needs the extra `web`.

Importing this package loads nothing; `app` imports Datasette.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from cubinet.errors import ConfigError

if TYPE_CHECKING:
    from cubinet.store.index import Index
    from cubinet.web.site import Site

__all__ = ["LOOPBACK", "app"]

LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
"""Names by which a browser on this machine may call the server."""


def app(index: Index, *, sql: bool = True, hosts: Collection[str] | None = LOOPBACK, every: float = 2.0) -> Site:
    """An ASGI application that shows an index. It neither locks nor writes the store; `close` it in the end.

    Args:
        index: `store.index`.
        sql: let visitors ask in SQL of their own.
        hosts: names it may be called by, `None` for any: a foreign page cannot reach it under another name.
        every: seconds that a page may lag behind the store, at least.

    Raises `ConfigError` if Datasette is not installed, `StoreError` if there is no store or no room for the copy.
    """
    try:
        from cubinet.web.site import Site
    except ImportError as exc:
        raise ConfigError("serve", "", f"{exc.name} is not installed", "pip install 'cubinet[web]'") from exc
    return Site(index.place.folder, sql=sql, hosts=hosts, every=every)
