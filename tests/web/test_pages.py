"""Pages, exports and refusals, through Datasette's own client."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest

from cubinet.store.index.reports import REPORTS
from cubinet.store.index.views import VIEWS
from cubinet.testing.samples import build
from cubinet.web import app
from cubinet.web.queries import QUERIES, REPORT_TITLES

from .conftest import Pages, Shelf

pytestmark = pytest.mark.filterwarnings("ignore:unclosed database:ResourceWarning")


def test_the_home_page_has_the_totals_and_both_plots(still: Pages) -> None:
    text = still.text("/")
    assert "<b>5</b>records" in text
    assert text.count("<svg") == 2
    assert 'data-column="seconds"' in text
    assert 'data-column="size"' in text


def test_a_bar_of_a_plot_leads_to_its_records(still: Pages) -> None:
    still.text("/")
    bars = [bar for plot in still.site._plots[1] for bar in plot.bars if plot.column == "seconds"]
    found = 0
    for bar in bars:
        rows = still(f"/index/records.json?_shape=array&seconds__gte={bar['low']}&seconds__lt={bar['high']}").json()
        assert len(rows) == bar["count"]
        found += len(rows)
    assert found == 5


def test_a_record_page_has_facts_kernels_blobs_and_observations(still: Pages) -> None:
    made = build("gemm", family="blas")
    text = still.text(f"/record/{made.fingerprint.hex}")
    for expected in ("gemm&lt;float&gt;", "blas", "cuda:sm_90a", made.main.digest.hex[:16], "observations", "1,024"):
        assert expected in text
    assert f'href="/kernel/{made.fingerprint.hex}/0"' in text


def test_a_kernel_page_shows_resources_and_the_same_kernel_elsewhere(pages: Pages, shelf: Shelf) -> None:
    other = shelf.put("gemm", family="blas", action="third", kernels=build("gemm").record.kernels)
    shelf.writer.flush()
    (kernel,) = pages("/index/kernels.json?_shape=array&symbol=_Z4gemm").json()
    text = pages.text(f"/kernel/{kernel['fingerprint']}/0")
    assert "gemm&lt;float&gt;" in text
    assert "_Z4gemm" in text
    assert pages(f"/kernel/{other.fingerprint.hex}/99").status_code == 404


def test_search_finds_by_part_of_a_name_by_pattern_by_kernel_and_by_fingerprint(still: Pages) -> None:
    made = build("gemm", family="blas").fingerprint.hex
    for asked in ("EMM", "g*m", made[:10], made[:10].upper(), f"blake3:{made}", "_Z4ge", "*Z4*"):
        assert f'"/record/{made}"' in still.text(f"/search?q={asked}"), asked
    for asked in ("nothing-like-that", "[", "", "%"):
        assert "/record/" not in still.text(f"/search?q={asked}"), asked


@pytest.mark.parametrize("name", sorted(REPORTS))
def test_a_report_says_the_same_as_the_index(still: Pages, name: str) -> None:
    expected = list(Shelf(Path(still.site.folder)).index().report(name))
    assert expected
    assert still(f"/report/{name}.json").json() == {"report": name, "rows": expected, "truncated": False}
    rows = list(csv.reader(io.StringIO(still.text(f"/report/{name}.csv"))))
    assert len(rows) == len(expected) + 1
    assert REPORT_TITLES[name] in still.text(f"/report/{name}")


def test_a_report_that_was_cut_says_so(still: Pages) -> None:
    answer = still("/report/cost.json?limit=1").json()
    assert len(answer["rows"]) == 1
    assert answer["truncated"] is True
    assert still("/report/cost.csv?limit=1").headers["x-truncated"] == "true"
    assert "The first 1 rows" in still.text("/report/cost?limit=1")


@pytest.mark.parametrize("name", [*VIEWS, *QUERIES])
def test_every_view_and_list_is_a_page_and_json_and_csv(still: Pages, name: str) -> None:
    still.text(f"/index/{name}")
    assert isinstance(still(f"/index/{name}.json?_shape=array").json(), list)
    assert still(f"/index/{name}.csv").headers["content-type"].startswith("text/plain")


def test_every_list_agrees_with_its_views(still: Pages) -> None:
    assert still("/index/slowest.json?_shape=array").json()[0]["seconds"] == 3.3
    assert still("/index/most-used.json?_shape=array").json()[0]["uses"] == 1


def test_no_page_has_a_script_and_names_are_escaped(still: Pages) -> None:
    hostile = build("a <b>&name", family="<script>alert(1)</script>", data=b"object of softmax")
    for path in ("/", "/index", "/index/records", "/index/slowest", f"/record/{hostile.fingerprint.hex}",
                 "/report/cost", "/search?q=name", "/search?q=<script>alert(1)</script>",
                 "/index?sql=select+1"):  # fmt: skip
        text = still.text(path)
        assert "<script" not in text.lower(), path
        assert "<b>&name" not in text, path


def test_raw_tables_are_hidden(still: Pages) -> None:
    assert "raw_" not in still.text("/index")
    assert still("/index/raw_records").status_code == 404
    answer = still("/index.json?sql=select+*+from+raw_records")
    assert answer.status_code == 400
    assert "prohibited" in answer.text


@pytest.mark.parametrize(
    "sql",
    [
        "delete from records", "drop view records", "attach '/tmp/x' as x", "pragma journal_mode=delete",
        "select load_extension('x')", "with x as (select 1) delete from raw_records", "vacuum into '/tmp/x'",
        "select * from pragma_database_list",
    ],
)  # fmt: skip
def test_sql_of_visitors_only_reads(still: Pages, sql: str) -> None:
    answer = still("/index.json", params={"sql": sql})
    assert answer.status_code == 400, answer.text


def test_sql_of_visitors_ends(still: Pages) -> None:
    endless = "with recursive n(i) as (select 1 union all select i + 1 from n) select max(i) from n"
    answer = still("/index.json", params={"sql": endless})
    assert answer.status_code == 400
    assert "time limit" in answer.text


def test_sql_can_be_taken_away(shelf: Shelf) -> None:
    site = app(shelf.index(), sql=False)
    pages = Pages(site)
    assert pages("/index.json?sql=select+1").status_code == 403
    assert pages("/index/records?_where=1").status_code == 403
    assert "Ask in SQL" not in pages.text("/")
    pages.text("/index/slowest")
    site.close()


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_nothing_but_reading_is_answered(still: Pages, method: str) -> None:
    assert still("/index/records", method).status_code == 405


@pytest.mark.parametrize(
    "path",
    ["/-/metadata", "/-/versions.json", "/-/plugins", "/-/settings", "/-/threads", "/-/databases", "/-/logout",
     "/-/allow-debug", "/-/messages", "/-/patterns", "/-/auth-token", "/_internal", "/_memory", "/index.db",
     "//evil.example/", "/-/static/", "/-/static/../app.py", "/-/static/%2e%2e/app.py", "/record/abc",
     "/report/nothing", "/nothing"],
)  # fmt: skip
def test_there_is_no_other_door(still: Pages, path: str) -> None:
    answer = still(path)
    assert answer.status_code in (403, 404), answer.text
    assert "content-security-policy" in answer.headers


def test_another_host_name_is_refused(still: Pages) -> None:
    assert still("/", headers={"host": "evil.example"}).status_code == 403
    assert still("/", headers={"host": "127.0.0.1:8001"}).status_code == 200
    assert still("/", headers={"host": "[::1]:8001"}).status_code == 200


def test_headers_keep_a_page_to_itself(still: Pages) -> None:
    for path in ("/", "/index/records", "/nothing", "/-/static/app.css"):
        headers = still(path).headers
        assert headers["content-security-policy"].startswith("default-src 'none'")
        assert "script-src" not in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        assert "access-control-allow-origin" not in headers
