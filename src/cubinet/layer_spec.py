"""One layer as settings name it: `/shared/cubinet?ro`, `s3://bucket/prefix?endpoint_url=…&trust=open`.

What follows the question mark are Cubinet's own options (`ro`, `rw`, `name`, `trust`, `budget`, `client`) and, for a
URL, options of the remote, which are passed on as they are.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from cubinet.errors import ConfigError

__all__ = ["LayerSpec", "layer_specs"]

TRUST_KINDS = ("owner", "signed", "open")
MODES = ("ro", "rw")
_NAME = re.compile(r"[a-z][a-z0-9-]{0,31}")
_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*(?=://)")
_LIKE_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/")
_OWN = ("mode", "name", "trust", "budget", "client")


@dataclass(frozen=True, slots=True)
class LayerSpec:
    """One layer beyond the local one.

    Args:
        url: an absolute folder, or a URL without its options.
        mode: `ro` or `rw`; if empty, `rw` for URLs that take writes and `ro` for folders.
        name: how counters and messages call it; its kind (`shared`, `s3`) if empty.
        trust: `owner`, `signed` or `open`; `signed` if empty.
        budget: seconds a lookup may wait for it.
        client: `obstore` to reach S3 through it instead of s3fs.
        options: of the remote: `endpoint_url`, `region`, `profile`, `anon`, … Never printed: they may hold secrets.
    """

    url: str
    mode: str = ""
    name: str = ""
    trust: str = ""
    budget: float = 2.0
    client: str = ""
    options: tuple[tuple[str, Any], ...] = field(default=(), repr=False)

    def __post_init__(self) -> None:
        if not self.url or "\0" in self.url:
            raise ConfigError("use layer", repr(self.url), "it names no place", "a folder, or a URL as s3://bucket")
        for what, value, allowed in (
            ("mode", self.mode, MODES),
            ("trust", self.trust, TRUST_KINDS),
            ("client", self.client, ("obstore",)),
        ):
            if value and value not in allowed:
                raise ConfigError("use layer", self.url, f"{what} {value!r} is unknown", f"{' or '.join(allowed)}")
        if self.name and (not _NAME.fullmatch(self.name) or self.name in ("local", "process")):
            raise ConfigError(
                "use layer", self.url, f"the name {self.name!r} is taken or not plain", "as in site-cache"
            )
        if not 0 < self.budget < 3600:
            raise ConfigError(
                "use layer", self.url, f"a budget of {self.budget} seconds", "more than 0, as in budget=2"
            )
        if self.client and self.scheme != "s3":
            raise ConfigError("use layer", self.url, f"client {self.client} is for s3:// alone")
        if self.scheme and self.trust == "owner":
            raise ConfigError(
                "use layer", self.url, "trust=owner is for folders: a remote does not say who wrote", "signed or open"
            )
        if not self.scheme:
            if _LIKE_URL.match(self.url):
                raise ConfigError("use layer", self.url, "neither a URL nor a folder", "as in s3://bucket, or ./folder")
            if self.options:
                unknown = ", ".join(name for name, _ in self.options)
                raise ConfigError(
                    "use layer", self.url, f"unknown for a folder: {unknown}", f"known: {', '.join(_OWN)}"
                )
            object.__setattr__(self, "url", os.path.abspath(os.path.expanduser(self.url)))

    @property
    def scheme(self) -> str:
        """The URL's scheme; empty for a folder."""
        found = _SCHEME.match(self.url)
        return found[0] if found else ""

    @property
    def writable(self) -> bool:
        """Whether builds go there."""
        return self.mode == "rw" if self.mode else self.scheme not in ("", "http", "https")

    @property
    def kind(self) -> str:
        """What it is called if it has no name of its own."""
        return self.name or self.scheme or "shared"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read `place?option=value&option`. Raises `ConfigError`, which never shows a value."""
        place, _, query = text.strip().partition("?")
        pairs: dict[str, Any] = {}
        if query:
            from urllib.parse import unquote

            for word in query.split("&"):
                name, equals, value = word.partition("=")
                if not name or name in pairs:
                    raise ConfigError("use layer", place, f"option {name!r} is empty or given twice")
                pairs[name] = unquote(value) if equals else True
        return cls.of(place, pairs)

    @classmethod
    def of(cls, url: str, options: Mapping[str, Any]) -> Self:
        """From a place and options by name, as a table of the configuration file has them."""
        own: dict[str, Any] = {}
        rest: dict[str, Any] = {}
        for name, value in options.items():
            if name in MODES and value is True:
                if "mode" in own:
                    raise ConfigError("use layer", url, "both ro and rw")
                own["mode"] = name
            elif name in _OWN:
                own[name] = value
            else:
                rest[name] = value
        if "budget" in own:
            try:
                own["budget"] = float(own["budget"])
            except (TypeError, ValueError):
                raise ConfigError("use layer", url, "its budget is no number of seconds", "as in budget=2") from None
        wrong = [name for name in own if name != "budget" and not isinstance(own[name], str)]
        if wrong or not isinstance(url, str):
            raise ConfigError("use layer", url, f"{', '.join(wrong) or 'its url'} is not a text")
        return cls(url, options=tuple(sorted(rest.items())), **own)

    def __str__(self) -> str:
        return self.url


def layer_specs(value: object) -> tuple[LayerSpec, ...]:
    """From a setting: text with commas, a list of texts or tables, or what this function made."""
    if isinstance(value, str):
        value = [part for part in value.split(",") if part.strip()]
    if not isinstance(value, Sequence):
        raise ConfigError("use setting", "layers", f"found {type(value).__name__}", "a text, or a list")
    out: list[LayerSpec] = []
    for item in value:
        if isinstance(item, LayerSpec):
            out.append(item)
        elif isinstance(item, str):
            out.append(LayerSpec.parse(item))
        elif isinstance(item, Mapping) and "url" in item:
            out.append(LayerSpec.of(item["url"], {name: v for name, v in item.items() if name != "url"}))
        else:
            raise ConfigError("use setting", "layers", "an entry without url", 'as in url = "s3://bucket/prefix"')
    places = [spec.url for spec in out]
    twice = sorted({place for place in places if places.count(place) > 1})
    if twice:
        raise ConfigError("use setting", "layers", f"{twice[0]} is there twice")
    return tuple(out)
