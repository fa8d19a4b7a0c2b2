"""What a store tells of itself."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from cubinet.errors import CompileError, ConfigError
from cubinet.events import Event
from cubinet.metrics import Tally, observe, write_prometheus
from cubinet.testing.bench import Bench


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench.at(tmp_path)


def lived(bench: Bench, tally: Tally) -> None:
    store = bench.store(later=True, seconds=0.01)
    store.listen(tally)
    store.get_or_compile(bench.variant(family="math"))
    with pytest.raises(CompileError):
        store.get_or_compile(bench.variant("#error no\n"))
    again = bench.store(later=True)
    again.listen(tally)
    again.find(bench.variant())


def test_events_say_what_happened_to_which_build(bench: Bench) -> None:
    seen: list[Event] = []
    store = bench.store(later=True)
    store.listen(seen.append)
    made = store.get_or_compile(bench.variant(family="math"))
    other = bench.store(later=True)
    other.listen(seen.append)
    found = other.find(bench.variant(family="other"))
    assert [(e.counter, e.fingerprint, e.family) for e in seen] == [
        ("miss.no build of this action", None, ""),
        ("compiled", made.fingerprint, "math"),
        ("hit.local", made.fingerprint, "other"),
    ]
    assert seen[2].size == len(made.data)
    assert found is not None
    assert seen[2].seconds == found.seconds > 0


def test_a_hit_by_fingerprint_is_a_use_too(bench: Bench) -> None:
    made = bench.store(later=True).get_or_compile(bench.variant())
    seen: list[Event] = []
    with bench.store(later=True) as store:
        store.listen(seen.append)
        assert store.find(made.fingerprint) is not None
    assert [e.fingerprint for e in seen if e.counter == "hit.local"] == [made.fingerprint]
    (row,) = bench.store(later=True).index.query()
    assert row.uses >= 1


def test_a_listener_that_raises_is_let_go_and_the_build_goes_on(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    calls: list[Event] = []

    def broken(event: Event) -> None:
        calls.append(event)
        raise RuntimeError("broken")

    store = bench.store()
    store.listen(broken)
    assert store.get_or_compile(bench.variant()).data == bench.expected()
    assert len(calls) == 1
    assert "a listener failed" in caplog.text


def test_one_line_says_it_all(bench: Bench) -> None:
    tally = Tally()
    lived(bench, tally)
    line = tally.line()
    assert line.startswith(
        "cubinet: 1 hits (1 local); 2 misses (2 no build of this action); 1 compiled in 0.0 s, 0.0 s"
    )
    assert "1 failed" in line
    assert tally.saved > 0.005


def test_a_prometheus_file_has_every_count(bench: Bench, tmp_path: Path) -> None:
    tally = Tally()
    lived(bench, tally)
    path = tmp_path / "cubinet.prom"
    write_prometheus(tally, str(path))
    text = path.read_text()
    assert 'cubinet_events_total{detail="local",what="hit"} 1.0' in text
    assert "cubinet_saved_seconds_total" in text
    with pytest.raises(ConfigError, match="No such file"):
        write_prometheus(tally, str(tmp_path / "none" / "cubinet.prom"))


def test_opentelemetry_gets_counts_and_lookups(bench: Bench) -> None:
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import InMemoryMetricReader

    bench.store(later=True).get_or_compile(bench.variant())
    reader = InMemoryMetricReader()
    store = bench.store(later=True)
    observe(store, MeterProvider([reader]).get_meter("test"))
    store.find(bench.variant())
    data = reader.get_metrics_data()
    assert data is not None
    metrics = {m.name: m for m in data.resource_metrics[0].scope_metrics[0].metrics}
    assert set(metrics) == {"cubinet.events", "cubinet.lookup", "cubinet.saved"}
    (point,) = metrics["cubinet.events"].data.data_points
    assert dict(point.attributes or {}) == {"what": "hit", "detail": "local"}


@pytest.mark.parametrize(("value", "said"), [("1", True), ("0", False)])
def test_a_process_says_one_line_at_its_end_if_it_is_asked_to(tmp_path: Path, value: str, said: bool) -> None:
    code = (
        "import sys; from pathlib import Path; from cubinet.testing.bench import Bench; "
        "b = Bench.at(Path(sys.argv[1])); from cubinet.store import Store; from cubinet.config import Settings; "
        "from cubinet.testing.fake_compiler import FakeCompiler; "
        "Store(b.folder, settings=Settings.from_env(), compilers={'fake': FakeCompiler()}).get_or_compile(b.variant())"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)],
        env={**os.environ, "CUBINET_STATS": value},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == ""
    assert done.stderr.count("cubinet: 0 hits; 1 misses (1 no build of this action); 1 compiled") == int(said)
