"""The store: layers, formats and the lookup over them."""

from cubinet.store.facade import Store

__all__ = ["Store"]
