"""A machine without a compiler that knows which one made what it wants."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from cubinet.config import Settings
from cubinet.errors import ConfigError, ToolchainNotFoundError
from cubinet.model import Status, Variant
from cubinet.store import Store

SOURCE = '#include "lib.h"\n__global__ void k(int* p) { *p = VALUE; }\n'
NOWHERE = {"PATH": "/nonexistent"}


def _variant(root: Path, **fields: object) -> Variant:
    return Variant(SOURCE, "sm_90", roots={"lib": str(root)}, **fields)  # type: ignore[arg-type]


def _root(path: Path, value: int) -> Path:
    path.mkdir()
    (path / "lib.h").write_text(f"#define VALUE {value}\n")
    return path


def _bare(store: Path, pin: Path | None, monkeypatch: pytest.MonkeyPatch) -> Store:
    monkeypatch.setattr(sys, "path", [])  # no wheel either
    return Store(store, settings=Settings(toolchain=str(pin or ""), durable=False, refresh=0.0), environ=NOWHERE)


def test_a_pinned_toolchain_finds_what_it_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = Store(tmp_path / "store", settings=Settings(durable=False)).get_or_compile(
        _variant(_root(tmp_path / "a", 1))
    )
    pin = tmp_path / "toolchain.json"
    command = [sys.executable, "-m", "cubinet", "toolchain", "-o", str(pin)]
    subprocess.run(command, env={**os.environ, "CUBINET_DIR": str(tmp_path / "store")}, check=True)
    assert str(tmp_path) not in pin.read_text()
    bare = _bare(tmp_path / "store", pin, monkeypatch)
    found = bare.get_or_compile(_variant(_root(tmp_path / "b", 1)))
    assert (found.status, found.data) == (Status.HIT, made.data)
    other = _variant(_root(tmp_path / "c", 2))
    assert bare.find(other) is None
    with pytest.raises(ToolchainNotFoundError):
        bare.get_or_compile(other)
    with pytest.raises(ToolchainNotFoundError):
        _bare(tmp_path / "store", None, monkeypatch).find(_variant(tmp_path / "b"))


def test_a_description_that_cannot_be_written_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "toolchain.json").mkdir()
    command = [sys.executable, "-m", "cubinet", "toolchain", "-o", str(tmp_path / "toolchain.json")]
    environ = {**os.environ, "CUBINET_DIR": str(tmp_path / "store")}
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    assert (done.returncode, "Traceback" in done.stderr) == (2, False)
    assert "toolchain.json" in done.stderr
    assert [path.name for path in tmp_path.glob("toolchain.json*")] == ["toolchain.json"]


@pytest.mark.parametrize(
    "text", ["", "{}", "[]", '{"format": 2, "toolchains": []}', '{"format": 1, "toolchains": [{}]}']
)
def test_a_file_that_is_no_description_is_refused(tmp_path: Path, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pin = tmp_path / "toolchain.json"
    pin.write_text(text)
    with pytest.raises(ConfigError, match="cubinet"):
        _bare(tmp_path / "store", pin, monkeypatch).find(_variant(_root(tmp_path / "a", 1)))
