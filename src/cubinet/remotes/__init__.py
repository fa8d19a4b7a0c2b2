"""Remotes: flat namespaces of objects behind a layer, one module for each kind, found by the scheme of a URL."""
