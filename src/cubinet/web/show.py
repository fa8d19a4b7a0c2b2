"""Values as people read them."""

from __future__ import annotations

from datetime import UTC, datetime

__all__ = ["bytes_text", "moment_text", "number_text", "seconds_text"]


def bytes_text(value: float | None) -> str:
    """`12.3 KB`; `-` for what is not known."""
    if value is None:
        return "-"
    for unit in ("bytes", "KB", "MB", "GB"):
        if value < 1000 or unit == "GB":
            break
        value /= 1000
    return f"{value:,.0f} {unit}" if unit == "bytes" or value >= 100 else f"{value:.1f} {unit}"


def seconds_text(value: float | None) -> str:
    """`250 ms`, `1.5 s`, `3 min`, `2.5 h`."""
    if value is None:
        return "-"
    if value < 1:
        return f"{value * 1000:.0f} ms" if value >= 0.01 or value == 0 else f"{value * 1000:.2g} ms"
    if value < 120:
        return f"{value:.3g} s"
    return f"{value / 60:.0f} min" if value < 7200 else f"{value / 3600:,.1f} h"


def moment_text(value: float | None) -> str:
    """`2026-11-29 12:00` in UTC."""
    if value is None:
        return "-"
    try:
        return datetime.fromtimestamp(value, UTC).strftime("%Y-%m-%d %H:%M")
    except (OverflowError, OSError, ValueError):
        return str(value)


def number_text(value: object) -> str:
    """Numbers with separators, `-` for what is not known."""
    if value is None or value == "":
        return "-"
    if isinstance(value, float):
        return f"{value:,.2f}"
    return f"{value:,}" if isinstance(value, int) else str(value)
