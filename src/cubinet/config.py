"""Settings: where they come from and what they mean.

Each setting is looked up as `<PREFIX>_CUBINET_<NAME>`, then `CUBINET_<NAME>`, then in the configuration
file, then the default. The prefix lets a library that embeds Cubinet have its own settings. The file
is TOML, at `CUBINET_CONFIG` or `cubinet/config.toml` in the user's configuration folder; it is never
searched for in the working folder, since settings name programs.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Self

from cubinet.errors import ConfigError
from cubinet.layer_spec import LayerSpec, layer_specs

__all__ = ["SETTINGS", "LayerSpec", "Setting", "Settings", "duration", "number_of_bytes"]


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting: name (upper case in the environment, lower case in the file), kind, meaning."""

    name: str
    kind: type
    default: Any
    meaning: str


SETTINGS: tuple[Setting, ...] = (
    Setting("DIR", str, "", "folder of the local layer; the user's cache folder if empty"),
    Setting("TRUST", str, "owner", "who may write the local folder: `owner` (refuse it otherwise) or `open`"),
    Setting("LAYERS", tuple, (), "layers beyond the local one, nearest first: folders and URLs, separated by commas"),
    Setting("LEASES", bool, False, "let hosts that share a remote wait for each other's compiles"),
    Setting("DRAIN", float, 5.0, "seconds that a process may take at its end to upload what it compiled"),
    Setting("SIGN_KEY", str, "", "file of the private key that signs what is compiled here"),
    Setting("TRUSTED_KEYS", str, "", "file of public keys that layers with `trust=signed` go by"),
    Setting("REVOKED", str, "", "file of fingerprints, digests, keys and producers that no layer may give"),
    Setting("SIZE", int, 20 << 30, "bytes the local layer may take, as `20G`; 0 for no limit"),
    Setting("AGE", float, 0.0, "seconds after which a build that nobody used goes; 0 for never"),
    Setting("FREE", int, 1 << 30, "bytes to leave free on the disk of the local layer, as `1G`; 0 for none"),
    Setting("STRICT", bool, False, "raise on trouble with a layer instead of going on without it"),
    Setting("DURABLE", bool, True, "flush each blob and record to disk before it counts as published"),
    Setting("REFRESH", float, 1.0, "seconds for which files once checked in a process are not looked at again"),
    Setting("TIMEOUT", float, 1800.0, "seconds after which a compile is killed; 0 for no limit"),
    Setting("RECORDER", str, "auto", "`auto`, or `off` to observe compiles by the fallback alone"),
    Setting("NVCC", str, "", "the nvcc to use"),
    Setting("STATS", bool, False, "print one line at the end of the process: hits, misses, seconds saved"),
    Setting("TOOLCHAIN", str, "", "file that describes the compiler of a machine that has one"),
    Setting("ARCH", str, "", "architecture for `cubinet compile` when none is given"),
)

_NO_LIMIT = 1e6
"""Longer than any compile, and short of the 24 days beyond which Python's selectors cannot wait."""

_TRUE, _FALSE = ("1", "true", "yes", "on"), ("0", "false", "no", "off")


_TIME = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,6})?)([dhms])")
_TIME_UNITS = {"d": 86400.0, "h": 3600.0, "m": 60.0, "s": 1.0}


def duration(text: str) -> float:
    """Seconds in `30d`, `12h`, `90m`, `45s`. Raises `ConfigError` for anything else."""
    found = _TIME.fullmatch(text.strip())
    if found is None:
        raise ConfigError("read duration", repr(text), "not a number with a unit", "as in 30d, 12h, 90m, 45s")
    return float(found[1]) * _TIME_UNITS[found[2]]


def _seconds(value: Any) -> float:
    """Seconds in a number, or in a duration; -1 for anything else."""
    if isinstance(value, str) and _TIME.fullmatch(value.strip()):
        return duration(value)
    try:
        return float(value)
    except (TypeError, ValueError):
        return -1.0


_SIZE = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,6})?) ?([KMGT]?)(?:i?B)?", re.IGNORECASE)
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


def _bytes(value: Any) -> int | None:
    if isinstance(value, int) and not isinstance(value, bool):
        return value if value >= 0 else None
    found = _SIZE.fullmatch(value.strip()) if isinstance(value, str) else None
    return int(float(found[1]) * _UNITS[found[2].upper()]) if found else None


def number_of_bytes(value: Any, where: str) -> int:
    """Bytes in `500M`, `20G` or a number. Raises `ConfigError`."""
    size = _bytes(value)
    if size is None:
        raise ConfigError("use", where, f"{value!r} is not a number of bytes", "as in 500M or 20G")
    return size


def _convert(setting: Setting, value: Any, where: str) -> Any:
    if setting.kind is bool and isinstance(value, str):
        if value.lower() in _TRUE or value.lower() in _FALSE:
            return value.lower() in _TRUE
    elif setting.kind is float and not isinstance(value, bool):
        number = _seconds(value)
        if number >= 0:  # and not nan
            return number
    elif setting.kind is int:
        size = _bytes(value)
        if size is not None:
            return size
    elif setting.kind is tuple:
        return layer_specs(value)
    elif isinstance(value, setting.kind):
        return value
    kind = {
        bool: "1 or 0",
        float: "a number of seconds, 0 or more, or as 30d, 12h, 90m",
        int: "a number of bytes, as 500M or 20G",
        str: "a text",
    }[setting.kind]
    raise ConfigError("use setting", where, f"{value!r} is not {kind}")


@dataclass(frozen=True, slots=True)
class Settings:
    """What a store is told. Picklable; a store pickles as its settings."""

    dir: str = ""
    trust: str = "owner"
    layers: tuple[LayerSpec, ...] = ()
    leases: bool = False
    drain: float = 5.0
    sign_key: str = ""
    trusted_keys: str = ""
    revoked: str = ""
    size: int = 20 << 30
    age: float = 0.0
    free: int = 1 << 30
    strict: bool = False
    durable: bool = True
    refresh: float = 1.0
    timeout: float = 1800.0
    recorder: str = "auto"
    nvcc: str = ""
    stats: bool = False
    toolchain: str = ""
    arch: str = ""

    def __post_init__(self) -> None:
        for setting in SETTINGS:
            name = setting.name.lower()
            object.__setattr__(self, name, _convert(setting, getattr(self, name), name))
        if "\0" in self.dir:
            raise ConfigError("use setting", "dir", "it holds a NUL character")
        for name, allowed in (("trust", ("owner", "open")), ("recorder", ("auto", "off"))):
            if getattr(self, name) not in allowed:
                raise ConfigError("use setting", name, f"{getattr(self, name)!r} is unknown", " or ".join(allowed))

    @property
    def folder(self) -> str:
        """The local layer's folder, absolute: `dir`, else the first folder in `layers` that may be written."""
        if self.dir:
            return os.path.abspath(os.path.expanduser(self.dir))
        mine = self._local_spec()
        if mine is not None:
            return mine.url
        from platformdirs import user_cache_dir

        return user_cache_dir("cubinet", appauthor=False)

    def _local_spec(self) -> LayerSpec | None:
        if self.dir:
            return None
        return next((spec for spec in self.layers if not spec.scheme and spec.mode != "ro"), None)

    @property
    def far(self) -> tuple[LayerSpec, ...]:
        """The layers beyond the local one, in the order in which they are asked."""
        folder = self.folder if self.layers else ""
        return tuple(spec for spec in self.layers if spec.scheme or spec.url != folder)

    @property
    def limit(self) -> float | None:
        """The time limit of a compile in seconds; `None` for none."""
        return self.timeout if 0 < self.timeout < _NO_LIMIT else None

    @classmethod
    def from_env(cls, prefix: str = "", environ: Mapping[str, str] | None = None) -> Self:
        """Read the environment and the configuration file.

        Raises `ConfigError` for a value of the wrong kind, an unreadable file or an unknown name in it.
        """
        env = os.environ if environ is None else environ
        names = ([f"{prefix}_CUBINET_"] if prefix else []) + ["CUBINET_"]
        values: dict[str, Any] = {}
        from_file: dict[str, Any] | None = None
        for setting in SETTINGS:
            for start in names:
                if env.get(start + setting.name):
                    values[setting.name.lower()] = _convert(setting, env[start + setting.name], start + setting.name)
                    break
            else:
                if from_file is None:
                    from_file = _read_file(env)
                if setting.name.lower() in from_file:
                    value = from_file[setting.name.lower()]
                    values[setting.name.lower()] = _convert(setting, value, setting.name.lower())
        return cls(**values)


def config_path(environ: Mapping[str, str]) -> str:
    """Where the configuration file is, or would be."""
    if environ.get("CUBINET_CONFIG"):
        return os.path.expanduser(environ["CUBINET_CONFIG"])
    home = environ.get("XDG_CONFIG_HOME") or os.path.join(os.path.expanduser("~"), ".config")
    return os.path.join(home, "cubinet", "config.toml")


def _read_file(environ: Mapping[str, str]) -> dict[str, Any]:
    path = config_path(environ)
    try:
        with open(path, "rb") as file:
            text = file.read()
            info = os.fstat(file.fileno())
    except FileNotFoundError as exc:
        if environ.get("CUBINET_CONFIG"):
            raise ConfigError("read configuration", path, "no such file", "unset CUBINET_CONFIG or make it") from exc
        return {}
    except OSError as exc:
        raise ConfigError("read configuration", path, exc.strerror or str(exc)) from exc
    if info.st_mode & 0o022 or info.st_uid not in (0, os.getuid()):
        raise ConfigError("use configuration", path, "others can write it, and settings name programs", "chmod go-w it")
    import tomllib

    try:
        found = tomllib.loads(text.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as exc:
        raise ConfigError("read configuration", path, str(exc)) from exc
    known = {f.name for f in fields(Settings)}
    unknown = sorted(set(found) - known)
    if unknown:
        raise ConfigError("use configuration", path, f"unknown: {', '.join(unknown)}", f"known: {', '.join(known)}")
    return found
