"""What a compiler's words mean: whether the same input is certain to fail again.

Exit statuses do not tell a syntax error from a killed child or a full disk, so only a message that is
known to be about the source counts, and any sign of trouble around it wins.
"""

from __future__ import annotations

import re

__all__ = ["first_error", "is_deterministic"]

_ABOUT_THE_SOURCE = re.compile(
    r"""
    ^[^\n]*\(\d+\):\ (error|catastrophic\ error:\ cannot\ open)   # nvcc's front end
    | ^[^\n]*:\d+:\d+:\ (fatal\ )?error:                           # the host preprocessor
    | ^\d+\ errors?\ detected\ in\ the\ compilation
    | ^ptxas\ (error|fatal)\s*:
    | ^(nvcc\ )?Error:\ Formal\ parameter\ space\ overflowed
    | ^nvcc\ fatal\s+:\ (Unsupported\ gpu\ architecture|Unknown\ option|Value\ '[^']*'\ is\ not\ defined)
    """,
    re.MULTILINE | re.VERBOSE,
)
_TROUBLE = re.compile(
    r"No space left|[Oo]ut of memory|Cannot allocate memory|Killed|Segmentation fault|[Ss]ignal|[Tt]erminated"
    r"|could not be opened|Could not open|Failed to preprocess|catastrophic error: (error|out of)"
    r"|internal (compiler )?error|Input/output error|Too many open files|Resource temporarily"
)
_LONGEST = 300
_ERROR_LINE = re.compile(r"error|fatal", re.IGNORECASE)


def is_deterministic(log: str, status: int) -> bool:
    """Whether this failure may be remembered. `status` is negative for a death by signal."""
    return 0 < status != 137 and bool(_ABOUT_THE_SOURCE.search(log)) and not _TROUBLE.search(log)


def first_error(log: str) -> str:
    """The first line of a log that speaks of an error, or its last line."""
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    found = next((line for line in lines if _ERROR_LINE.search(line)), lines[-1] if lines else "it printed nothing")
    return found if len(found) <= _LONGEST else f"{found[:_LONGEST]}…"
