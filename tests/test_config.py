"""Where settings come from and what is refused."""

from __future__ import annotations

import os
import pickle
from dataclasses import fields
from pathlib import Path

import pytest

from cubinet.config import SETTINGS, Settings
from cubinet.errors import ConfigError


@pytest.fixture
def home(tmp_path: Path) -> dict[str, str]:
    """An environment whose configuration folder is empty."""
    return {"XDG_CONFIG_HOME": str(tmp_path)}


def write(home: dict[str, str], text: str, mode: int = 0o644) -> Path:
    path = Path(home["XDG_CONFIG_HOME"]) / "cubinet/config.toml"
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    path.chmod(mode)
    return path


def test_without_anything_the_defaults_hold(home: dict[str, str]) -> None:
    assert Settings.from_env(environ=home) == Settings()


def test_the_table_and_the_class_agree() -> None:
    assert [s.name.lower() for s in SETTINGS] == [f.name for f in fields(Settings)]
    assert {s.name.lower(): s.default for s in SETTINGS} == {f.name: f.default for f in fields(Settings)}
    assert all(isinstance(s.default, s.kind) and s.meaning for s in SETTINGS)


def test_the_prefix_comes_before_the_plain_name_and_that_before_the_file(home: dict[str, str]) -> None:
    write(home, 'refresh = 1\ntimeout = 1\nnvcc = "file"\n')
    environ = home | {"LIB_CUBINET_REFRESH": "3", "CUBINET_REFRESH": "2", "CUBINET_TIMEOUT": "2"}
    found = Settings.from_env("LIB", environ)
    assert (found.refresh, found.timeout, found.nvcc) == (3.0, 2.0, "file")
    assert Settings.from_env("", environ).refresh == 2.0
    assert Settings.from_env("OTHER", environ).refresh == 2.0


def test_a_variable_that_is_empty_counts_as_not_set(home: dict[str, str]) -> None:
    write(home, "refresh = 1\n")
    assert Settings.from_env("LIB", home | {"LIB_CUBINET_REFRESH": "", "CUBINET_REFRESH": ""}).refresh == 1.0


def test_the_process_environment_is_the_default(monkeypatch: pytest.MonkeyPatch, home: dict[str, str]) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", home["XDG_CONFIG_HOME"])
    monkeypatch.setenv("CUBINET_REFRESH", "7")
    assert Settings.from_env().refresh == 7.0


@pytest.mark.parametrize("text", ["1", "true", "YES", "On"])
def test_yes_has_many_spellings(home: dict[str, str], text: str) -> None:
    assert Settings.from_env(environ=home | {"CUBINET_STRICT": text}).strict is True


@pytest.mark.parametrize("text", ["0", "false", "NO", "Off"])
def test_no_has_many_spellings(home: dict[str, str], text: str) -> None:
    assert Settings.from_env(environ=home | {"CUBINET_DURABLE": text}).durable is False


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("STRICT", "maybe"),
        ("DURABLE", "2"),
        ("REFRESH", "soon"),
        ("REFRESH", "-1"),
        ("REFRESH", "nan"),
        ("TIMEOUT", "1y"),
        ("TRUST", "everybody"),
        ("RECORDER", "on"),
    ],
)
def test_a_value_that_cannot_be_meant_is_refused(home: dict[str, str], name: str, value: str) -> None:
    with pytest.raises(ConfigError, match=value):
        Settings.from_env(environ=home | {f"CUBINET_{name}": value})


@pytest.mark.parametrize(
    "text", ["dir = 5", "strict = 1", "refresh = true", 'refresh = "x"', "nvcc = []", 'trust = "x"']
)
def test_a_value_of_the_wrong_kind_in_the_file_is_refused(home: dict[str, str], text: str) -> None:
    write(home, text)
    with pytest.raises(ConfigError):
        Settings.from_env(environ=home)


def test_a_name_nobody_knows_is_refused(home: dict[str, str]) -> None:
    write(home, "refesh = 1\n")
    with pytest.raises(ConfigError, match="refesh"):
        Settings.from_env(environ=home)


@pytest.mark.parametrize("data", [b"refresh = ", b"\xff\xfe", b"[[["], ids=repr)
def test_a_file_that_is_no_toml_is_refused(home: dict[str, str], data: bytes) -> None:
    write(home, "").write_bytes(data)
    with pytest.raises(ConfigError, match="read configuration"):
        Settings.from_env(environ=home)


@pytest.mark.parametrize("mode", [0o666, 0o664, 0o646])
def test_a_file_that_others_can_write_is_refused(home: dict[str, str], mode: int) -> None:
    write(home, "refresh = 1\n", mode)
    with pytest.raises(ConfigError, match="others can write"):
        Settings.from_env(environ=home)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give files away")
def test_a_file_of_somebody_else_is_refused(home: dict[str, str]) -> None:
    os.chown(write(home, "refresh = 1\n"), 12345, -1)
    with pytest.raises(ConfigError, match="others can write"):
        Settings.from_env(environ=home)


def test_a_file_named_by_the_environment_must_be_there(home: dict[str, str], tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such file"):
        Settings.from_env(environ=home | {"CUBINET_CONFIG": str(tmp_path / "gone.toml")})
    other = tmp_path / "other.toml"
    other.write_text("refresh = 9\n")
    other.chmod(0o600)
    assert Settings.from_env(environ=home | {"CUBINET_CONFIG": str(other)}).refresh == 9.0


def test_a_file_that_cannot_be_read_is_refused(home: dict[str, str], tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="Is a directory"):
        Settings.from_env(environ=home | {"CUBINET_CONFIG": str(tmp_path)})


def test_the_working_folder_is_never_searched(
    home: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here").mkdir()
    for name in ("config.toml", "cubinet.toml", "pyproject.toml", ".cubinet.toml"):
        (tmp_path / "here" / name).write_text('nvcc = "evil"\n[tool.cubinet]\nnvcc = "evil"\n')
    monkeypatch.chdir(tmp_path / "here")
    assert Settings.from_env(environ=home) == Settings()


def test_the_folder_is_absolute(home: dict[str, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/home/me")
    assert Settings(dir="kernels").folder == str(tmp_path / "kernels")
    assert Settings(dir="~/kernels").folder == "/home/me/kernels"
    assert Settings(dir="/a/../b").folder == "/b"


def test_a_folder_that_cannot_be_is_refused() -> None:
    with pytest.raises(ConfigError, match="NUL"):
        Settings(dir="/a\0b")


def test_the_default_folder_is_the_users_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/caches")
    assert Settings().folder == "/caches/cubinet"


@pytest.mark.parametrize(
    ("timeout", "limit"), [("0", None), ("inf", None), ("1e9", None), ("0.5", 0.5), ("1800", 1800.0)]
)
def test_no_time_limit_has_many_spellings(home: dict[str, str], timeout: str, limit: float | None) -> None:
    assert Settings.from_env(environ=home | {"CUBINET_TIMEOUT": timeout}).limit == limit


def test_settings_pickle() -> None:
    found = Settings(dir="/x", strict=True, refresh=0.0)
    assert pickle.loads(pickle.dumps(found)) == found
