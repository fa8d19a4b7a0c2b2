"""The command: where it listens, what it refuses, how it ends."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner

from cubinet.cli.serve import serve_pages
from cubinet.errors import ConfigError, CubinetError, StoreError
from cubinet.store import Store
from cubinet.store.index import Index
from cubinet.web.server import is_loopback, listen

from .conftest import Shelf

SERVE = """
import sys
from cubinet.store import Store
from cubinet.store.index import Index
if not hasattr(Store, "index"):
    Store.index = property(lambda s: Index(s.folder, s.records, find=s._local.find,
        observations=lambda r: s._local.read_named(r.observations)))
import cubinet.cli
cubinet.cli.COMMANDS["serve"] = "cubinet.cli.serve:serve_pages"
cubinet.cli.main(["serve", *sys.argv[1:]])
"""


def start(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    (folder.parent / "tmp").mkdir(exist_ok=True)
    environ = {**os.environ, "CUBINET_DIR": str(folder), "TMPDIR": str(folder.parent / "tmp"), "PYTHONUNBUFFERED": "1",
               "XDG_CONFIG_HOME": str(folder.parent / "config")}  # fmt: skip
    return subprocess.Popen(
        [sys.executable, "-c", SERVE, *arguments],
        env=environ,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@contextmanager
def serving(folder: Path, *arguments: str) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    process = start(folder, *arguments)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith("http://"), process.communicate()
        yield line.split()[0], process
    finally:
        process.kill()
        process.communicate()


def get(url: str, host: str | None = None) -> tuple[int, str]:
    request = urllib.request.Request(url, headers={"Host": host} if host else {})
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as exc:
        with exc:
            return exc.code, exc.read().decode()


def test_it_serves_this_machine_until_ctrl_c_and_leaves_nothing_behind(shelf: Shelf) -> None:
    with serving(shelf.folder, "--port", "0") as (url, process):
        assert "<b>5</b>records" in get(url)[1]
        assert get(url, host="evil.example")[0] == 403
        assert get(url + "index.json?sql=select+1")[0] == 200
        ended(process, signal.SIGINT, shelf.folder)


def test_with_expose_it_listens_everywhere_and_under_any_name_until_it_is_terminated(shelf: Shelf) -> None:
    with serving(shelf.folder, "--port", "0", "--host", "0.0.0.0", "--expose", "--no-sql") as (url, process):
        assert get(url, host="kernels.example")[0] == 200
        assert get(url + "index.json?sql=select+1")[0] == 403
        ended(process, signal.SIGTERM, shelf.folder)


def ended(process: subprocess.Popen[str], number: signal.Signals, folder: Path) -> None:
    assert len(list((folder.parent / "tmp").iterdir())) == 1
    process.send_signal(number)
    out, error = process.communicate(timeout=30)
    assert (process.returncode, out, error) == (0, "", "")
    assert list((folder.parent / "tmp").iterdir()) == []


@pytest.fixture
def refused(monkeypatch: pytest.MonkeyPatch) -> Callable[..., CubinetError]:
    """Runs the command of this process; the error it ends with."""
    if not hasattr(Store, "index"):
        index = property(lambda s: Index(s.folder, s.records, find=s._local.find, observations=lambda _r: None))
        monkeypatch.setattr(Store, "index", index, raising=False)

    def run(folder: Path, *arguments: str) -> CubinetError:
        environ = {"CUBINET_DIR": str(folder), "XDG_CONFIG_HOME": str(folder.parent / "config")}
        with pytest.raises(CubinetError) as caught:
            CliRunner().invoke(serve_pages, arguments, env=environ, standalone_mode=False, catch_exceptions=False)
        return caught.value

    return run


def test_a_port_that_is_taken_is_an_error_that_says_so(shelf: Shelf, refused: Callable[..., CubinetError]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        error = refused(shelf.folder, "--port", str(taken.getsockname()[1]))
    assert isinstance(error, ConfigError)
    assert str(error).startswith("cannot serve at 127.0.0.1:")
    assert "--port" in error.remedy


def test_without_a_store_it_says_so_and_makes_none(tmp_path: Path, refused: Callable[..., CubinetError]) -> None:
    error = refused(tmp_path / "nowhere", "--port", "0")
    assert isinstance(error, StoreError)
    assert error.finding == "there is no store"
    assert not (tmp_path / "nowhere").exists()


def test_the_command_refuses_an_address_that_others_reach(shelf: Shelf, refused: Callable[..., CubinetError]) -> None:
    assert "--expose" in refused(shelf.folder, "--host", "0.0.0.0", "--port", "0").remedy


@pytest.mark.parametrize(
    "host", ["0.0.0.0", "::", "", "192.0.2.1", "10.1.2.3", "example.invalid", "localhost.evil.example"]
)
def test_an_address_that_others_reach_needs_to_be_allowed(host: str) -> None:
    with pytest.raises(ConfigError, match=r"without a password.*--expose"):
        listen(host, 0, expose=False)


@pytest.mark.parametrize(
    ("host", "expected"),
    [("127.0.0.1", True), ("127.9.9.9", True), ("::1", True), ("[::1]", True), ("localhost", True), ("LOCALHOST", True),
     ("0.0.0.0", False), ("::", False), ("", False), ("2130706433", False), ("127.0.0.1.evil.example", False),
     ("::ffff:10.0.0.1", False)],
)  # fmt: skip
def test_only_this_machine_reaches_a_loopback_address(host: str, expected: bool) -> None:
    assert is_loopback(host) is expected


def test_a_host_that_is_none_is_an_error() -> None:
    with pytest.raises(ConfigError, match="check --host"):
        listen("no such host.invalid", 0, expose=True)


def test_without_the_extra_it_says_what_to_install(shelf: Shelf) -> None:
    script = "import sys; sys.modules['datasette'] = None\n" + SERVE
    environ = {**os.environ, "CUBINET_DIR": str(shelf.folder)}
    done = subprocess.run(
        [sys.executable, "-c", script, "--port", "0"], env=environ, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "pip install 'cubinet[web]'" in done.stderr


HEAVY = """
import sys, cubinet.web, cubinet.web.server, cubinet.cli.serve
print({"datasette", "uvicorn", "sqlite3"} & set(sys.modules))
"""


def test_the_package_loads_nothing_heavy_until_it_is_used() -> None:
    done = subprocess.run([sys.executable, "-c", HEAVY], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


PLUGIN = """
import sys
sys.path.insert(0, "")
from cubinet.store.index import Index
from cubinet.web import app
app(Index(sys.argv[1], lambda: iter(()), find=lambda _f: None, observations=lambda _r: None)).close()
"""


def test_a_plugin_in_the_working_folder_is_not_loaded(shelf: Shelf, tmp_path: Path) -> None:
    (tmp_path / "plugins").mkdir()
    for place in (tmp_path / "evil.py", tmp_path / "plugins" / "evil.py"):
        place.write_text("open('loaded', 'w')\n")
    info = tmp_path / "evil-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: evil\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[datasette]\nevil = evil\n")
    command = [sys.executable, "-c", PLUGIN, str(shelf.folder)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert not (tmp_path / "loaded").exists()
