"""Questions that Datasette shows under a name, over the documented views."""

from __future__ import annotations

__all__ = ["QUERIES", "REPORT_TITLES"]

_FACTS = "SELECT fingerprint, family, name, target, toolchain"

QUERIES: dict[str, dict[str, str]] = {
    "largest": {
        "title": "Largest objects",
        "sql": f"{_FACTS}, size, seconds FROM records ORDER BY size DESC LIMIT 100",
    },
    "slowest": {
        "title": "Slowest to compile",
        "sql": f"{_FACTS}, seconds, size FROM records ORDER BY seconds DESC LIMIT 100",
    },
    "most-used": {
        "title": "Most used",
        "sql": f"{_FACTS}, uses, datetime(last_use, 'unixepoch') AS last_use, seconds FROM records "
        "ORDER BY uses DESC LIMIT 100",
    },
    "least-used": {
        "title": "Least used",
        "sql": f"{_FACTS}, uses, datetime(last_use, 'unixepoch') AS last_use, size FROM records "
        "ORDER BY uses, last_use LIMIT 100",
    },
    "spilling": {
        "title": "Most spills",
        "sql": f"{_FACTS}, spills, registers, local FROM records WHERE spills > 0 ORDER BY spills DESC LIMIT 100",
    },
    "failed-compiles": {
        "title": "Compiles that failed",
        "sql": "SELECT datetime(at, 'unixepoch') AS at, family, name, target, toolchain, seconds, host, outcome, "
        "reason FROM compiles WHERE outcome <> 'ok' ORDER BY compiles.at DESC LIMIT 100",
    },
    "layers": {
        "title": "Layers by day",
        "sql": "SELECT day, layer, what, sum(count) AS count, sum(seconds) AS seconds, sum(bytes) AS bytes FROM events "
        "GROUP BY day, layer, what ORDER BY day DESC, layer, what LIMIT 1000",
    },
    "changing": {
        "title": "Builds that came out different",
        "sql": "SELECT fingerprint, digest, count, datetime(first, 'unixepoch') AS first, "
        "datetime(last, 'unixepoch') AS last FROM nondeterminism ORDER BY nondeterminism.last DESC LIMIT 100",
    },
    "pinned": {"title": "Pinned records", "sql": "SELECT fingerprint, tag FROM pins ORDER BY tag LIMIT 1000"},
}
"""Name → title and SQL."""

REPORT_TITLES = {
    "toolchains": "The same variant under two compilers",
    "duplicates": "Objects that several variants share",
    "misses": "Why lookups missed",
    "cost": "Compile seconds that hits saved",
}
