"""Counts for people who watch many processes: one line at exit, a Prometheus text file, OpenTelemetry.

Libraries are imported by who asks for them: `prometheus-client` and `opentelemetry-api` (extra `metrics`).
"""

from __future__ import annotations

import os
import threading
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any

from cubinet.errors import ConfigError, StoreError
from cubinet.events import Event

if TYPE_CHECKING:
    from cubinet.store.facade import Store

__all__ = ["Tally", "observe", "write_prometheus"]


class Tally:
    """Adds up a store's events: give it to `Store.listen`. Safe in threads; a forked child starts from zero.

    Attributes:
        counts: (what, detail) → how often.
        seconds: what → seconds spent.
        sizes: what → bytes of main blobs.
        saved: seconds that the builds which were found had taken to compile.
    """

    def __init__(self) -> None:
        self._reset()

    def _reset(self) -> None:
        self._lock = threading.Lock()
        self.counts: Counter[tuple[str, str]] = Counter()
        self.seconds: dict[str, float] = defaultdict(float)
        self.sizes: dict[str, int] = defaultdict(int)
        self.saved = 0.0
        self._pid = os.getpid()

    def _mine(self) -> threading.Lock:
        if os.getpid() != self._pid:  # the lock may have been held by a thread that is not here
            self._reset()
        return self._lock

    def __call__(self, event: Event) -> None:
        """Take an event."""
        saved = 0.0
        if event.what == "hit" and event.artifact is not None:
            try:
                saved = event.artifact.record.seconds
            except StoreError:  # a whole record with fields missing: the artifact's owner will see
                saved = 0.0
        with self._mine():
            self.counts[event.what, event.detail] += 1
            self.seconds[event.what] += event.seconds
            self.sizes[event.what] += event.size
            self.saved += saved

    def line(self) -> str:
        """All of it in one line, as `CUBINET_STATS=1` prints it at exit."""
        with self._mine():
            counts, compiled, saved = dict(self.counts), self.seconds["compiled"], self.saved
        parts = [_part(counts, "hit", "hits"), _part(counts, "miss", "misses")]
        made = sum(count for (what, _), count in counts.items() if what == "compiled")
        parts.append(f"{made} compiled in {compiled:.1f} s, {saved:.1f} s saved")
        rest = sorted({what for what, _ in counts} - {"hit", "miss", "compiled"})
        return "cubinet: " + "; ".join(parts + [_part(counts, what, what) for what in rest])


def _part(counts: dict[tuple[str, str], int], what: str, word: str) -> str:
    named = sorted(((count, detail) for (w, detail), count in counts.items() if w == what), reverse=True)
    detail = ", ".join(f"{count} {detail}" for count, detail in named[:5] if detail)
    return f"{sum(count for count, _ in named)} {word}" + (f" ({detail})" if detail else "")


def write_prometheus(tally: Tally, path: str) -> None:
    """Write a file for the text-file collector of Prometheus' node exporter: whole, or not at all.

    Metrics: `cubinet_events_total{what,detail}`, `cubinet_seconds_total{what}`, `cubinet_bytes_total{what}`,
    `cubinet_saved_seconds_total`. Raises `ConfigError` without `prometheus-client`, or if the file cannot be written.
    """
    try:
        from prometheus_client import CollectorRegistry, write_to_textfile
        from prometheus_client.core import CounterMetricFamily
    except ImportError as exc:
        raise ConfigError("write metrics", path, str(exc), "pip install 'cubinet[metrics]'") from exc

    class Collector:
        def collect(self) -> list[Any]:
            events = CounterMetricFamily(
                "cubinet_events", "What happened, by kind and detail", labels=["what", "detail"]
            )
            seconds = CounterMetricFamily("cubinet_seconds", "Seconds spent, by kind", labels=["what"])
            size = CounterMetricFamily("cubinet_bytes", "Bytes of kernels, by kind", labels=["what"])
            saved = CounterMetricFamily("cubinet_saved_seconds", "Seconds of compiling that hits made unnecessary")
            for (what, detail), count in sorted(tally.counts.items()):
                events.add_metric([what, detail], count)
            for what in sorted(tally.seconds):
                seconds.add_metric([what], tally.seconds[what])
                size.add_metric([what], tally.sizes[what])
            saved.add_metric([], tally.saved)
            return [events, seconds, size, saved]

    registry = CollectorRegistry()
    registry.register(Collector())
    try:
        write_to_textfile(path, registry)
    except OSError as exc:
        raise ConfigError("write metrics", path, exc.strerror or str(exc)) from exc


def observe(store: Store, meter: Any) -> Tally:
    """Report a store to OpenTelemetry: counters `cubinet.events` and `cubinet.saved`, histogram `cubinet.lookup`.

    Args:
        store: whose events.
        meter: as `opentelemetry.metrics.get_meter(...)` gives it.
    """
    events = meter.create_counter("cubinet.events", description="What happened, by kind and reason")
    saved = meter.create_counter("cubinet.saved", unit="s", description="Compiling that hits made unnecessary")
    lookup = meter.create_histogram("cubinet.lookup", unit="s", description="Lookups that found a build")
    tally = Tally()

    def listen(event: Event) -> None:
        before = tally.saved
        tally(event)
        events.add(1, {"what": event.what, "detail": event.detail})
        if event.what == "hit":
            lookup.record(event.seconds, {"layer": event.detail})
            saved.add(max(0.0, tally.saved - before))

    store.listen(listen)
    return tally
