"""Texts and numbers in the form that the index keeps them in."""

from __future__ import annotations

__all__ = ["LONGEST", "count", "micros_of", "text"]

_LARGEST = 1 << 48  # more than any count or size, and sums of thousands of them are still integers
LONGEST = 1 << 16


def text(value: str) -> str:
    """Text that SQLite takes: what is no UTF-8 is replaced, what is longer than anything meant is cut."""
    value = value if len(value) <= LONGEST else value[:LONGEST]
    return value if value.isascii() else value.encode("utf-8", "replace").decode()


def count(value: int) -> int:
    """A number within the limits of the file."""
    return value if -_LARGEST < value < _LARGEST else max(-_LARGEST, min(value, _LARGEST))


def micros_of(seconds: float) -> int:
    """Whole microseconds."""
    return count(round(max(0.0, min(seconds, 1e8)) * 1e6)) if seconds == seconds else 0  # noqa: PLR0124 - nan
