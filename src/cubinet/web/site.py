"""The application: Datasette with our pages in front, and a guard before both. Importing it imports Datasette."""

from __future__ import annotations

import asyncio
import csv
import io
import json
import sqlite3
import sys
from collections.abc import Awaitable, Callable, Collection, MutableMapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from markupsafe import Markup

from cubinet.store.index.reports import REPORTS
from cubinet.store.index.views import VIEWS
from cubinet.web import pages, show
from cubinet.web.queries import QUERIES, REPORT_TITLES
from cubinet.web.snapshot import Snapshot

if "datasette" in sys.modules:
    from datasette.app import Datasette
else:
    # Plug-ins that happen to be installed, or that lie in the working folder, might write or load things from
    # elsewhere. This is Datasette's own switch against them.
    sys._called_from_test = True  # type: ignore[attr-defined]  # noqa: SLF001
    try:
        from datasette.app import Datasette
    finally:
        del sys._called_from_test  # type: ignore[attr-defined]  # noqa: SLF001

from datasette import handle_exception, hookimpl
from datasette.plugins import pm
from datasette.utils.asgi import NotFound, Response

from cubinet.web.database import Live

__all__ = ["NAME", "Site"]

NAME = "index"
"""What the database is called in addresses."""

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Receive, Send], Awaitable[None]]

_PAGE_ROWS, _EXPORT_ROWS, _MOST_ROWS = 500, 10_000, 1_000_000
_PAGE_SECONDS, _EXPORT_SECONDS = 5.0, 60.0
_PATIENCE = 1.0
"""Seconds that a page waits for a new copy of the index before it shows the last one."""
_POLICY = (
    b"default-src 'none'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; form-action 'self'; "
    b"base-uri 'none'; frame-ancestors 'none'"
)
_HEADERS = (
    (b"content-security-policy", _POLICY),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
)
_HIDDEN = ("/-/", "/_internal", "/_memory")
_TEMPLATES = Path(__file__).parent / "templates"

handle_exception.rich = None  # it would print every local variable of each refused query


class Site:
    """An ASGI application over the index of a store folder. `ds` is its Datasette, `close` removes the private copy."""

    def __init__(self, folder: str, *, sql: bool, hosts: Collection[str] | None, every: float) -> None:
        self.folder, self.sql, self.hosts = folder, sql, hosts
        self.snapshot = Snapshot(folder, every=every)
        self.ds = Datasette(
            template_dir=str(_TEMPLATES),
            metadata={
                "title": "cubinet",
                "databases": {NAME: {"queries": QUERIES, **({} if sql else {"allow_sql": False})}},
            },
            settings={
                "allow_download": False,
                "default_cache_ttl": 0,
                "max_csv_mb": 0,
                "sql_time_limit_ms": 2000,
                "suggest_facets": False,
            },
        )
        self.db = Live(self.ds, self.snapshot)
        self.ds.add_database(self.db, name=NAME)
        self.ds.remove_database("_memory")
        _SITES[id(self.ds)] = self
        self._refreshing = ThreadPoolExecutor(1, "cubinet-web")
        self._plots: tuple[int, list[Any]] = (0, [])
        self._app: App = self.ds.app()
        self.ds.client.app = self._app  # it made one before there were our pages

    def close(self) -> None:
        """Remove the private copy of the index."""
        _SITES.pop(id(self.ds), None)
        self._refreshing.shutdown(cancel_futures=True)
        self.ds.executor.shutdown(cancel_futures=True)  # waits for what runs
        self.db.close()
        self.snapshot.close()

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Answer a request, as ASGI has it."""
        await self._app(scope, receive, send)

    # --- the guard

    def guard(self, inner: App) -> App:
        """Let in what only reads and was meant for this server, and add the headers that keep a page to itself."""

        async def asgi(scope: Message, receive: Receive, send: Send) -> None:
            if scope["type"] == "lifespan":
                await inner(scope, receive, send)
                return
            if scope["type"] != "http":
                return

            async def guarded(message: Message) -> None:
                if message["type"] == "http.response.start":
                    message = {**message, "headers": [*message.get("headers", []), *_HEADERS]}
                await send(message)

            status, why = self._refusal(scope)
            if status:
                await Response.text(f"{why}\n", status=status).asgi_send(guarded)
                return
            await self._follow()
            await inner(scope, receive, guarded)

        return asgi

    def _refusal(self, scope: Message) -> tuple[int, str]:
        if scope["method"] not in ("GET", "HEAD"):
            return 405, "these pages can only be read"
        if self.hosts is not None:
            host = dict(scope["headers"]).get(b"host", b"").decode("latin-1").lower()
            if (host.rpartition(":")[0] if host.rpartition(":")[2].isdigit() else host) not in self.hosts:
                return 403, "this server is not known by that name"
        path = scope["path"]
        if path.startswith("//") or (path.startswith(_HIDDEN) and not path.startswith("/-/static/")):
            return 404, "there is no such page"
        return 0, ""

    async def _follow(self) -> None:
        if self.snapshot.due():
            copying = asyncio.get_running_loop().run_in_executor(self._refreshing, self.snapshot.refresh)
            await asyncio.wait({copying}, timeout=_PATIENCE)

    # --- pages

    async def _page(self, request: Any, template: str, **context: Any) -> Response:
        context |= {"sql": self.sql, "query": urlencode}
        return Response.html(await self.ds.render_template(f"cubinet_{template}.html", context, request))

    async def home(self, request: Any) -> Response:
        """Totals, plots, and where to go from here."""
        found = await self.db.ask(pages.home, _PAGE_SECONDS)
        more = {"folder": self.folder, "queries": QUERIES, "reports": REPORT_TITLES, "views": sorted(VIEWS)}
        return await self._page(request, "home", **found, **more, plots=await self._histograms())

    async def _histograms(self) -> list[Any]:
        """Counted once for each copy of the index; none if there are too many records for that."""
        generation = self.snapshot.generation
        if self._plots[0] != generation:
            try:
                self._plots = generation, await self.db.ask(pages.plots, _PAGE_SECONDS)
            except sqlite3.OperationalError:
                self._plots = generation, []
        return self._plots[1]

    async def record(self, request: Any) -> Response:
        """A record."""
        found = await self.db.ask(lambda c: pages.record(c, request.url_vars["fingerprint"]), _PAGE_SECONDS)
        if found is None:
            raise NotFound("There is no such record")
        return await self._page(request, "record", **found)

    async def kernel(self, request: Any) -> Response:
        """A kernel of a record."""
        fingerprint, position = request.url_vars["fingerprint"], int(request.url_vars["position"])
        found = await self.db.ask(lambda c: pages.kernel(c, fingerprint, position), _PAGE_SECONDS)
        if found is None:
            raise NotFound("There is no such kernel")
        return await self._page(request, "kernel", **found)

    async def search(self, request: Any) -> Response:
        """What has a text in its name."""
        text = (request.args.get("q") or "").strip()[:200]
        try:
            found = await self.db.ask(lambda c: pages.search(c, text), _PAGE_SECONDS)
        except sqlite3.OperationalError:
            found = {"text": text, "too_long": True}
        return await self._page(request, "search", **found)

    async def report(self, request: Any) -> Response:
        """A report as a page, CSV or JSON."""
        name, form = request.url_vars["name"], request.url_vars["format"]
        if name not in REPORTS:
            raise NotFound("There is no such report")
        given = request.args.get("limit") or ""
        usual = _EXPORT_ROWS if form else _PAGE_ROWS
        limit = min(int(given), _MOST_ROWS) if given.isdecimal() and len(given) < 9 else usual
        seconds = _EXPORT_SECONDS if form else _PAGE_SECONDS
        try:
            rows, more = await self.db.ask(lambda c: pages.report(c, name, limit), seconds)
        except sqlite3.OperationalError:
            return Response.text("This takes too long: give it a limit, or use cubinet report\n", status=503)
        if form == "json":
            text = json.dumps({"report": name, "rows": rows, "truncated": more}, ensure_ascii=False)
            return Response(text, content_type="application/json; charset=utf-8")
        if form == "csv":
            more_header = {"x-truncated": str(more).lower()}
            return Response(_csv(rows), headers=more_header, content_type="text/csv; charset=utf-8")
        title, shown = REPORT_TITLES[name], [_said_first(row) for row in rows]
        return await self._page(request, "report", name=name, title=title, rows=shown, more=more, limit=limit)


def _said_first(row: dict[str, Any]) -> dict[str, Any]:
    """A row with what changed before the many numbers."""
    return {name: row[name] for name in ("fingerprint", "family", "name", "target", "changed") if name in row} | row


def _csv(rows: list[dict[str, Any]]) -> str:
    text = io.StringIO()
    writer = csv.writer(text)
    if rows:
        writer.writerow(rows[0])
        writer.writerows(row.values() for row in rows)
    return text.getvalue()


# --- Datasette's hooks: one for all its instances in this process, so each asks whose instance it is

_SITES: dict[int, Site] = {}


def _link(column: str, value: Any) -> Markup | None:
    if not isinstance(value, str) or not value:
        return None
    if column.startswith("fingerprint") and len(value) == 64:
        return Markup('<a class="mono" href="/record/{0}">{1}…</a>').format(quote(value), value[:16])
    if column == "family":
        return Markup('<a href="/{}/records?{}">{}</a>').format(NAME, urlencode({"family__exact": value}), value)
    if column in ("action", "digest", "variant", "observations", "toolchain_identity"):
        return Markup('<span class="mono" title="{0}">{1}…</span>').format(value, value[:16])
    return None


class _Hooks:
    __name__ = "cubinet.web"

    @hookimpl  # type: ignore[untyped-decorator]
    def asgi_wrapper(self, datasette: Any) -> Callable[[App], App]:
        site = _SITES.get(id(datasette))
        return site.guard if site else lambda app: app

    @hookimpl  # type: ignore[untyped-decorator]
    def register_routes(self, datasette: Any) -> list[tuple[str, Any]]:
        site = _SITES.get(id(datasette))
        if site is None:
            return []
        return [
            (pattern, _view(page))
            for pattern, page in (
                (r"/$", site.home),
                (r"/record/(?P<fingerprint>[0-9a-f]{64})$", site.record),
                (r"/kernel/(?P<fingerprint>[0-9a-f]{64})/(?P<position>\d{1,6})$", site.kernel),
                (r"/search$", site.search),
                (r"/report/(?P<name>[a-z]+)(\.(?P<format>csv|json))?$", site.report),
            )
        ]

    @hookimpl  # type: ignore[untyped-decorator]
    def prepare_jinja2_environment(self, env: Any, datasette: Any) -> None:
        if id(datasette) in _SITES:
            env.filters |= {
                "bytes": show.bytes_text,
                "seconds": show.seconds_text,
                "moment": show.moment_text,
                "number": show.number_text,
                "linked": lambda value, column: _link(column, value) or show.number_text(value),
            }

    @hookimpl  # type: ignore[untyped-decorator]
    def render_cell(self, value: Any, column: str, datasette: Any) -> Markup | None:
        return _link(column, value) if id(datasette) in _SITES else None


def _view(page: Callable[[Any], Awaitable[Response]]) -> Callable[[Any], Awaitable[Response]]:
    async def view(request: Any) -> Response:  # Datasette looks at the name of the argument
        return await page(request)

    return view


if not pm.has_plugin("cubinet.web"):
    pm.register(_Hooks(), "cubinet.web")
