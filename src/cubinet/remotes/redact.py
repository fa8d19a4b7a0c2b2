"""Take secrets out of addresses and messages."""

from __future__ import annotations

import re

__all__ = ["redact"]

_HIDDEN = "***"
_RULES = (
    # The password and name before the host: `https://name:word@host`.
    (re.compile(r"(?<=://)[^/\s?#'\"<>]*@"), f"{_HIDDEN}@"),
    # A query names signatures, keys and tokens; which ones, each vendor decides anew.
    (re.compile(r"(?<=[^\s?])\?[^\s'\"<>?]*=[^\s'\"<>]*"), f"?{_HIDDEN}"),
    # Names of AWS access keys, and of the parts of a signature.
    (re.compile(r"\b(?:AKIA|ASIA|AROA|AIDA|ABIA|ACCA)[A-Z0-9]{12,}\b"), _HIDDEN),
    (re.compile(r"(?i)\b(Credential|Signature|SignedHeaders)=[^\s,'\"&<>]+"), rf"\1={_HIDDEN}"),
    (
        re.compile(r"(?i)\b(Authorization['\"]?\s*[:=]\s*['\"]?(?:(?:AWS|Basic|Bearer)\s+)?)[^\s,'\"<>]+"),
        rf"\1{_HIDDEN}",
    ),
    (
        re.compile(
            r"(?i)\b((?:aws_|x-amz-)?(?:secret(?:_?access)?_?key|secret|access_?key(?:_?id)?|password|passwd|token|"
            r"session_?token|security-token|api_?key|sas)['\"]?\s*[:=]\s*['\"]?)[^\s,'\"&<>)}]+"
        ),
        rf"\1{_HIDDEN}",
    ),
)


def redact(text: str) -> str:
    """The text without user names and passwords in addresses, queries, signatures, keys and tokens."""
    for pattern, instead in _RULES:
        text = pattern.sub(instead, text)
    return text
