"""What both S3 clients share: the address, its options, and what an answer of the server means."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from cubinet.errors import (
    ConfigError,
    RemoteDeniedError,
    RemoteError,
    RemoteMisconfiguredError,
    RemoteUnavailableError,
)
from cubinet.remotes.redact import redact

__all__ = ["OPTIONS", "explain", "split"]

OPTIONS: Mapping[str, type] = {
    "endpoint_url": str,
    "region": str,
    "anon": bool,
    "key": str,
    "secret": str,
    "token": str,
    "connect_timeout": float,
    "read_timeout": float,
    "connections": int,
}
"""What every S3 remote takes."""

_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,254}")
_KEY = re.compile(r"(?:[A-Za-z0-9][A-Za-z0-9._=+@~-]*(?:/[A-Za-z0-9][A-Za-z0-9._=+@~-]*)*)?")


def split(address: str, url: str) -> tuple[str, str]:
    """Bucket, and prefix with a `/` at its end or empty. Raises `ConfigError`."""
    parts = urlsplit(address)
    prefix = parts.path.strip("/")
    if "@" in parts.netloc or parts.query or parts.fragment:
        finding = "it holds more than a bucket and a prefix"
        raise ConfigError("use remote", url, finding, "give keys, region and endpoint as options")
    if not _BUCKET.fullmatch(parts.netloc) or not _KEY.fullmatch(prefix):
        raise ConfigError("use remote", url, "it is not s3://bucket/prefix", "letters, digits and ._- only")
    return parts.netloc, prefix + "/" if prefix else ""


_CREDENTIALS = "check the key, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or the profile"
_DENIED = {
    "AccessDenied": ("it refuses this to these credentials", "check that they may s3:GetObject and s3:PutObject there"),
    "AllAccessDisabled": ("the bucket is disabled", "ask its owner"),
    "AccountProblem": ("there is a problem with the account", "ask its owner"),
    "SignatureDoesNotMatch": ("the secret does not belong to the key", _CREDENTIALS),
    "InvalidAccessKeyId": ("it does not know the key", _CREDENTIALS),
    "InvalidToken": ("the session token is malformed", "renew the credentials"),
    "ExpiredToken": ("the credentials have expired", "renew them"),
    "TokenRefreshRequired": ("the credentials have expired", "renew them"),
    "RequestTimeTooSkewed": ("the clock of this machine differs from the server's", "set the clock"),
}
_WRONG = {
    "NoSuchBucket": ("no such bucket", "check the name; Cubinet makes no buckets"),
    "InvalidBucketName": ("the bucket's name is not valid there", "check the name"),
    "PermanentRedirect": ("the bucket is in another region", "set option region, or endpoint_url"),
    "AuthorizationHeaderMalformed": ("the bucket is in another region", "set option region"),
    "IllegalLocationConstraintException": ("the bucket is in another region", "set option region"),
}
_BUSY = {"SlowDown", "RequestTimeout", "Throttling", "ThrottlingException", "RequestLimitExceeded", "TooManyRequests"}


def explain(action: str, url: str, status: int, code: str, message: str = "", region: str = "") -> RemoteError:  # noqa: PLR0917
    """The error for an answer: HTTP status, S3's code, its message, and the region it named."""
    said = code if code and not code.isdigit() else f"status {status}"
    if code in _DENIED:
        return RemoteDeniedError(action, url, *_with(said, *_DENIED[code]))
    if code in _WRONG or status in (301, 307, 308):
        finding, remedy = _WRONG.get(code, _WRONG["PermanentRedirect"])
        if region and "region" in finding:
            finding, remedy = f"{finding}, {region}", f"set option region to {region}"
        return RemoteMisconfiguredError(action, url, *_with(said, finding, remedy))
    if code in _BUSY or status in (408, 425, 429) or status >= 500:
        return RemoteUnavailableError(action, url, f"it answered {said}")
    if status in (401, 403, 407):
        return RemoteDeniedError(action, url, *_with(said, *_DENIED["AccessDenied"]))
    finding = f"it answered {said}" + (f", {' '.join(redact(message).split())[:200]}" if message else "")
    return RemoteMisconfiguredError(action, url, finding, "check that the endpoint is an S3 server")


def _with(said: str, finding: str, remedy: str) -> tuple[str, str]:
    return f"{finding} ({said})", remedy


def answer_of(exc: BaseException) -> tuple[int, str, str, str] | None:
    """Status, code, message and region of the answer in botocore's error, or in what s3fs made of it; else `None`."""
    seen: BaseException | None = exc
    while seen is not None:
        response: Any = getattr(seen, "response", None)
        if isinstance(response, dict) and "Error" in response:
            error, meta = response["Error"], response.get("ResponseMetadata", {})
            region = error.get("Region") or meta.get("HTTPHeaders", {}).get("x-amz-bucket-region", "")
            code = str(error.get("Code", ""))
            status = meta.get("HTTPStatusCode") or (int(code) if code.isdigit() else 0)
            return status, code, str(error.get("Message") or ""), region
        seen = seen.__cause__
    return None
