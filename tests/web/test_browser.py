"""The pages of 100,000 records in a real browser."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from cubinet.store.index.build import Sources, build

from .browser import CHROMIUM, Browser

pytestmark = [pytest.mark.long, pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")]

RECORDS = 100_000
SERVE = """
import sys
from cubinet.store.index import Index
from cubinet.web import app
from cubinet.web.server import listen, serve
index = Index(sys.argv[1], lambda: iter(()), find=lambda _f: None, observations=lambda _r: None)
site, server = app(index), listen("127.0.0.1", 0, expose=False)
serve(site, server, lambda: print(f"http://127.0.0.1:{server.getsockname()[1]}", flush=True))
site.close()
"""


def bench() -> ModuleType:
    path = Path(__file__).parents[2] / "benchmarks" / "bench_index.py"
    spec = importlib.util.spec_from_file_location("bench_index", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server over an index of made-up records."""
    folder, made = tmp_path_factory.mktemp("large"), bench()
    made.history(f"{folder}/history", RECORDS)
    sources = Sources(str(folder), lambda: made.records(RECORDS), lambda _f: None, lambda _r: made.OBSERVED)
    build(sources, f"{folder}/index.sqlite3", lambda _done, _all: None, history=f"{folder}/history")
    command = [sys.executable, "-c", SERVE, str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
        process.terminate()


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with Browser(tmp_path_factory.mktemp("chromium")) as found:
        yield found


def look(browser: Browser, url: str, path: str, name: str = "") -> None:
    """Open a page: it asks nobody else for anything, and the console is silent."""
    browser.open(url + path)
    assert browser.complaints == []
    assert browser.requests
    assert [asked for asked in browser.requests if not asked.startswith((url + "/", "data:"))] == []
    assert browser.value("document.scripts.length") == 0
    if name and os.environ.get("CUBINET_SHOTS"):
        browser.shot(Path(os.environ["CUBINET_SHOTS"], f"browse-{name}.png"))


def first(url: str) -> str:
    with urllib.request.urlopen(f"{url}/index/slowest.json?_shape=array") as answer:
        fingerprint: str = json.load(answer)[0]["fingerprint"]
        return fingerprint


def test_the_home_page_shows_totals_and_plots(browser: Browser, url: str) -> None:
    look(browser, url, "/", "home")
    assert browser.value("document.querySelector('.tile b').textContent") == "100,000"
    assert browser.value("document.querySelectorAll('svg.plot').length") == 2
    assert browser.value("document.querySelectorAll('svg.plot rect').length") > 15
    # drawn, not only there
    assert browser.value("document.querySelector('svg.plot rect:last-of-type').getBoundingClientRect().width") > 1
    assert browser.value("getComputedStyle(document.querySelector('header')).backgroundColor") == "rgb(34, 49, 63)"


def test_a_bar_leads_to_its_records(browser: Browser, url: str) -> None:
    look(browser, url, "/")
    told = browser.value("document.querySelectorAll('svg.plot a')[9].querySelector('title').textContent")
    link = browser.value("document.querySelectorAll('svg.plot a')[9].getAttribute('href')")
    look(browser, url, link)
    assert told.split(": ")[1].split()[0] == browser.value(
        "document.querySelector('h3').textContent.trim().split(' ')[0]"
    )


def test_a_record_page_shows_kernels_and_leads_to_them(browser: Browser, url: str) -> None:
    look(browser, url, f"/record/{first(url)}", "record")
    assert browser.value("document.getElementById('fingerprint').textContent") == first(url)
    assert browser.value("document.querySelectorAll('#kernels tbody tr').length") == 2
    assert browser.value("document.querySelectorAll('#blobs tbody tr').length") == 4
    assert browser.value("document.querySelectorAll('#observed tbody tr').length") == 3
    look(browser, url, browser.value("document.querySelector('#kernels a').getAttribute('href')"), "kernel")
    assert browser.value("document.querySelectorAll('#others tbody tr').length") == 100


def test_a_report_fills_its_table(browser: Browser, url: str) -> None:
    look(browser, url, "/report/toolchains", "toolchains")
    assert browser.value("document.querySelectorAll('#rows tbody tr').length") == 500
    look(browser, url, browser.value("document.querySelector('#rows td a[href^=\"/record/\"]').getAttribute('href')"))
    assert browser.value("document.body.className") == "record"


@pytest.mark.parametrize("path", ["/index", "/index/records", "/index/kernels", "/index/slowest", "/search?q=gemm_17",
                                  "/report/duplicates", "/report/misses", "/report/cost",
                                  "/index?sql=select+count(*)+from+records"])  # fmt: skip
def test_other_pages_are_quiet_too(browser: Browser, url: str, path: str) -> None:
    look(browser, url, path)
    assert browser.value("document.querySelectorAll('table, ul.bullets').length") > 0


def test_search_is_a_form_that_works_without_scripts(browser: Browser, url: str) -> None:
    look(browser, url, "/")
    browser.value("document.querySelector('input[name=q]').value = 'gemm_17'")
    browser._loaded = False
    browser.value("document.querySelector('header form').submit()")
    while not browser._loaded:
        browser._note(browser._read())
    assert browser.value("location.pathname + location.search") == "/search?q=gemm_17"
    assert browser.value("document.querySelectorAll('#records tbody tr').length") == 50
