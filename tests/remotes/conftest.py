"""An S3 server, a fresh place on it for each test, and a proxy before it."""

from __future__ import annotations

from ..servers.fixtures import bucket, place, proxy, s3_proxy, s3_server, shared_bucket

__all__ = ["bucket", "place", "proxy", "s3_proxy", "s3_server", "shared_bucket"]
