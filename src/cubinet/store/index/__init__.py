"""The index: an SQLite projection of a local store's records and their use, always rebuildable.

Importing this package imports none of its modules: a lookup needs the writer alone, and never SQLite.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cubinet.store.index.compare import Difference
    from cubinet.store.index.index import Index
    from cubinet.store.index.query import ORDERS, Row
    from cubinet.store.index.writer import IndexWriter

__all__ = ["ORDERS", "Difference", "Index", "IndexWriter", "Row"]

_WHERE = {"ORDERS": "query", "Difference": "compare", "Index": "index", "IndexWriter": "writer", "Row": "query"}


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_WHERE[name]}"), name)
