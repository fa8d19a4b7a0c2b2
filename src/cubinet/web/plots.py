"""Histograms as inline SVG: no script, nothing from elsewhere."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable

from cubinet.web.show import bytes_text, seconds_text

__all__ = ["Histogram", "histograms"]

_PER_OCTAVE = 2
_WIDTH, _HEIGHT, _FOOT = 560, 130, 18


class Histogram:
    """How many values lie in each half octave, as bars that lead to these records."""

    def __init__(self, column: str, counts: Counter[int]) -> None:
        self.column, self.width, self.height = column, _WIDTH, _HEIGHT + _FOOT
        self.text = bytes_text if column == "size" else seconds_text
        first, last = min(counts, default=0), max(counts, default=0)
        step, most = _WIDTH / (last - first + 1), max(counts.values(), default=1)
        self.bars = [
            {
                "x": round((number - first) * step, 1),
                "y": round(_HEIGHT - _HEIGHT * counts[number] / most, 1),
                "width": round(max(step - 1, 1), 1),
                "height": round(_HEIGHT * counts[number] / most, 1),
                "count": counts[number],
                "low": self._edge(number),
                "high": self._edge(number + 1),
            }
            for number in range(first, last + 1)
            if counts[number]
        ]
        every = max(1, (last - first + 1) // 6)
        self.ticks = [
            {"x": round((number - first) * step, 1), "y": _HEIGHT + 13, "text": self.text(2 ** (number / _PER_OCTAVE))}
            for number in range(first, last + 1, every)
        ]

    def _edge(self, number: int) -> float:
        return float(f"{2 ** (number / _PER_OCTAVE):.6g}")


def histograms(rows: Iterable[tuple[float, int]]) -> list[Histogram]:
    """Of compile seconds and of sizes. What took no time, and what is empty, is left out."""
    seconds, sizes = Counter[int](), Counter[int]()
    for second, size in rows:
        if second > 0:
            seconds[math.floor(math.log2(second) * _PER_OCTAVE)] += 1
        if size > 0:
            sizes[math.floor(math.log2(size) * _PER_OCTAVE)] += 1
    return [Histogram("seconds", seconds), Histogram("size", sizes)]
