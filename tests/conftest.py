"""Shared set-up. Fixtures used by one folder live in that folder's conftest."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

# One S3 server for each worker of the run, whichever folder asks first.
from tests.servers.fixtures import bucket, place, proxy, s3_proxy, s3_server, shared_bucket

__all__ = ["bucket", "place", "proxy", "s3_proxy", "s3_server", "shared_bucket"]

# Shared machines are slow at times, so no deadline; a slow example is no failure.
settings.register_profile(
    "ci", deadline=None, derandomize=False, max_examples=60, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("quick", settings.get_profile("ci"), max_examples=10)
settings.register_profile("long", settings.get_profile("ci"), max_examples=2000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))
