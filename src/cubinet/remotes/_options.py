"""Options of remotes, as settings give them: texts, numbers, and for some a table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn
from urllib.parse import urlsplit

from cubinet.errors import ConfigError

__all__ = ["convert", "refuse", "take"]

_WORDS = {"1": True, "true": True, "yes": True, "on": True, "0": False, "false": False, "no": False, "off": False}
_KINDS = {bool: "1 or 0", int: "a whole number", float: "a number", str: "a text", dict: "a table"}


def refuse(url: str, name: str, finding: str, remedy: str = "") -> NoReturn:
    """Raise the `ConfigError` about one option of a remote. The finding must not hold its value: it may be a secret."""
    raise ConfigError(f"use option {name!r} of", url, finding, remedy)


def convert(url: str, name: str, value: object, kind: type) -> Any:
    """The value as `kind`: `bool`, `int`, `float`, `str` or `dict`. Raises `ConfigError`."""
    if kind is bool:
        found = value if isinstance(value, bool) else _WORDS.get(str(value).lower())
        if found is not None:
            return found
    elif kind in (int, float) and not isinstance(value, bool):
        try:
            number = kind(str(value))
        except (TypeError, ValueError):
            number = -1
        if number >= 0:
            return number
    elif kind is dict and isinstance(value, Mapping):
        return dict(value)
    elif kind is str and isinstance(value, str | int | float) and not isinstance(value, bool):
        text = str(value)  # a key of digits alone arrives as a number
        if text and text.isprintable():
            return text
    refuse(url, name, f"it is not {_KINDS[kind]}")


def take(url: str, options: Mapping[str, object], kinds: Mapping[str, type]) -> dict[str, Any]:
    """All options, converted; `kinds` says which there are. Raises `ConfigError` for any other."""
    taken = {}
    for name, value in options.items():
        if name not in kinds:
            refuse(url, name, "there is no such option", f"known: {', '.join(sorted(kinds))}")
        taken[name] = convert(url, name, value, kinds[name])
    endpoint = taken.get("endpoint_url")
    if endpoint is not None:
        parts = urlsplit(endpoint)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or "@" in parts.netloc:
            refuse(url, "endpoint_url", "it is not the address of a server", "as https://s3.example.org:9000")
    if ("key" in taken) != ("secret" in taken):
        refuse(url, "key" if "key" in taken else "secret", "key and secret come together", "give both, or neither")
    return taken
