"""The index of a large store: every documented query and report, rebuild rate, file size.

The million records are made up: `Record` objects go straight into the index by the code that rebuilds it
from files, without files. The rebuild rate is that of real record files in a real store folder.

    python benchmarks/bench_index.py [--records 1000000] [--files 20000] [--folder DIR]
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import random
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from blake3 import blake3

from cubinet.fingerprint import fingerprint_of, observations_bytes
from cubinet.model import Action, BlobRef, Digest, Kernel, Observation, Record, Seen, Target, Toolchain
from cubinet.store.index import Index, IndexWriter
from cubinet.store.index.build import Sources, build
from cubinet.store.index.files import finish, new_file
from cubinet.store.index.schema import migrate
from cubinet.store.local import LocalLayer
from cubinet.testing.faults import NoSyncFs
from cubinet.testing.samples import build as sample

TARGETS = [Target.parse(text) for text in ("sm_80", "sm_90a", "sm_100a", "ascend:dav-2201")]
START = datetime(2026, 1, 1, tzinfo=UTC)
OBSERVED = observations_bytes(
    [
        Observation(f"{label}:{i}.h", Seen.READ, Digest("ab" * 32))
        for label in ("cutlass", "toolkit", "src")
        for i in range(20)
    ]
)


def digest(*what: object) -> str:
    return blake3(repr(what).encode()).hexdigest()


def toolchain(number: int) -> Toolchain:
    return Toolchain("nvcc", f"13.{number}", Digest(digest("toolchain", number)))


def records(count: int) -> Iterator[Record]:
    """40 families by names by options by targets by 5 toolchains; every 20th object is the one of another toolchain."""
    chance, tools = random.Random(1), [toolchain(i) for i in range(5)]
    names = -(-count // (40 * 5 * len(TARGETS) * 5))
    axes = itertools.product(range(40), range(names), range(5), TARGETS, range(5))
    for number, (family, name, option, target, tool) in enumerate(itertools.islice(axes, count)):
        action, observed = Action(digest("action", number)), Digest(digest("observed", name % 2000))
        main = digest("main", number if number % 20 else max(number - 1, 0))
        size = 5_000 + int(main[:4], 16)
        made = (START + timedelta(seconds=number * 25)).isoformat()
        symbol = f"_ZN6family{family}4gemm{name}IfLi{option}EEEvPT_S1_S1_iiiffN7cutlass4arch{tool}E"
        spills = chance.choice([0, 0, 0, 0, 0, 0, 0, 64, 128])
        yield Record(
            fingerprint=fingerprint_of(action, observed),
            action=action,
            family=f"family{family}",
            name=f"gemm_{name}",
            entries=(f"gemm_{name}",),
            target=target,
            kind="cubin",
            labels=(("team", f"team{family % 7}"),),
            toolchain=tools[tool],
            parts=(("source", digest("s", family, name)[:32]), ("arguments", digest("a", option)[:32])),
            blobs=(
                ("cubin", BlobRef(Digest(main), size)),
                ("log", BlobRef(Digest(digest("log", number % 100)), 100 + number % 100)),
                ("observations", BlobRef(observed, len(OBSERVED))),
                ("source", BlobRef(Digest(digest("source", family, name)), 3000 + name)),
            ),
            kernels=tuple(
                Kernel(f"gemm_{name}_{k}", f"{symbol}{k}", 32 + int(main[4:6], 16) % 200, 4096, 0, 400, 64, spills)
                for k in range(2)
            ),
            seconds=round(chance.lognormvariate(1, 1), 6),
            argv=("nvcc",),
            host="here",
            observations=observed,
            observation_counts=(("read", 60),),
            created=made,
            producer="bench",
        )


def history(path: str, count: int) -> None:
    """Uses of a third of the records, a year of events, 50,000 compiles."""
    chance, now = random.Random(2), int(START.timestamp()) + 365 * 86400
    with contextlib.closing(new_file(path)) as connection:
        migrate(connection)
        connection.execute("BEGIN")
        connection.executemany(
            "INSERT INTO raw_uses VALUES (?, ?, ?)",
            (
                (
                    record.fingerprint.hex,
                    now - chance.randrange(10**7) // 300 * 300,
                    1 + int(chance.paretovariate(0.8)) % 10**5,
                )
                for record in itertools.islice(records(count), 0, None, 3)
            ),
        )
        days = [(START + timedelta(days=day)).strftime("%Y-%m-%d") for day in range(365)]
        kinds = [("miss", f"reason {i}") for i in range(50)] + [("hit", ""), ("error", "timeout")]
        connection.executemany(
            "INSERT INTO raw_events VALUES (?, ?, ?, ?, ?, ?, 0)",
            (
                (d, x, what, why, chance.randrange(9999), 10**6)
                for d in days
                for x in ("local", "s3")
                for what, why in kinds
            ),
        )
        connection.executemany(
            "INSERT INTO raw_compiles (at, action, family, name, target, toolchain, micros, host, outcome, reason) "
            "VALUES (?, ?, ?, 'n', 'cuda:sm_90a', 'nvcc 13.0', ?, 'here', ?, '')",
            (
                (now - i * 60, digest(i), f"family{i % 40}", chance.randrange(10**8), "ok" if i % 9 else "failed")
                for i in range(50_000)
            ),
        )
        connection.execute("COMMIT")
        finish(connection)


def questions(index: Index, count: int) -> dict[str, Callable[[], Iterator[Any]]]:
    """What `docs/how-to/query-the-index.md` promises to answer at once."""
    query, sql, since = index.query, index.sql, (START + timedelta(seconds=count * 25 - 86400)).timestamp()
    some = next(records(1)).fingerprint.hex
    by: dict[str, Callable[[], Iterator[Any]]] = {
        "query --family": lambda: query(family="family7"),
        "query --family --name": lambda: query(family="family7", name="gemm_3*"),
        "query --name": lambda: query(name="gemm_17"),
        "query --arch": lambda: query(target="sm_90a"),
        "query --arch pattern": lambda: query(target="ascend:*"),
        "query --family --arch": lambda: query(family="family39", target="ascend:dav-2201"),
        "query --kernel gemm_1*": lambda: query(kernel="gemm_1*"),
        "query --kernel _ZN6family3*": lambda: query(kernel="_ZN6family3*"),
        "query --kernel, one name": lambda: query(kernel="gemm_42_1"),
        "query --kernel, no match": lambda: query(kernel="nothing*"),
        "query --toolchain": lambda: query(toolchain="nvcc 13.4"),
        "query --label cutlass": lambda: query(label="cutlass"),
        "query --label none": lambda: query(label="nothing"),
        "query --label team=team3": lambda: query(label="team=team3"),
        "query --min-spills": lambda: query(min_spills=200),
        "query --used-since": lambda: query(used_since=START.timestamp() + 364 * 86400),
        "query --created-since": lambda: query(created_since=since),
        "query (all)": query,
        "sql: one fingerprint": lambda: sql("select * from records where fingerprint = ?", [some]),
        "sql: kernels of one record": lambda: sql("select * from kernels where fingerprint = ?", [some]),
        "sql: blobs of one record": lambda: sql("select * from record_blobs where fingerprint = ?", [some]),
        "sql: observed of one record": lambda: sql("select * from observed where fingerprint = ?", [some]),
        "sql: totals by target": lambda: sql("select target, sum(records), sum(size) from totals group by target"),
        "sql: totals by family": lambda: sql("select family, sum(records), sum(seconds) from totals group by family"),
        "sql: toolchains": lambda: sql("select * from toolchains"),
        "sql: largest blobs": lambda: sql("select * from blobs order by size desc limit 20"),
        "sql: failed compiles": lambda: sql("select * from compiles where outcome <> 'ok' order by at desc limit 20"),
        "sql: events by day": lambda: sql("select day, what, sum(count) from events where what = 'miss' group by day"),
        "sql: records limit 100": lambda: sql("select * from records limit 100"),
        "stats": lambda: iter([index.stats()]),
        "report toolchains": lambda: index.report("toolchains"),
        "report duplicates": lambda: index.report("duplicates"),
        "report misses": lambda: index.report("misses"),
        "report cost": lambda: index.report("cost"),
    }
    for kind in ("largest", "slowest", "most-used", "least-used"):
        by[f"top {kind}"] = lambda kind=kind: index.top(kind, 20)  # type: ignore[misc]
    for order in ("created", "size", "seconds", "registers", "spills", "uses", "last_use"):
        by[f"query --order {order} --descending --limit 50"] = lambda order=order: query(  # type: ignore[misc]
            order_by=order, descending=True, limit=50
        )
    for order in ("created", "size", "seconds", "uses"):
        by[f"query --family --order {order} --limit 50"] = lambda order=order: query(  # type: ignore[misc]
            family="family7", order_by=order, limit=50
        )
    for order in ("created", "size", "seconds"):
        by[f"query --arch --order {order} --limit 50"] = lambda order=order: query(  # type: ignore[misc]
            target="sm_90a", order_by=order, limit=50
        )
    return by


def measure(ask: Callable[[], Iterator[Any]], rows: int = 1000) -> tuple[float, float, int]:
    """Milliseconds to the first row and to the last of 1,000, medians of 5; the number of rows."""
    firsts, totals, number = [], [], 0
    for _ in range(5):
        start, first, number = time.perf_counter(), 0.0, 0
        answer = ask()
        for _row in itertools.islice(answer, rows):
            number += 1
            first = first or time.perf_counter() - start
        totals.append(time.perf_counter() - start)
        firsts.append(first or totals[-1])
    return statistics.median(firsts) * 1e3, statistics.median(totals) * 1e3, number


def big(folder: str, count: int) -> None:
    Path(folder).mkdir(parents=True, exist_ok=True)
    path = Path(folder, "index.sqlite3")
    sources = Sources(folder, lambda: records(count), lambda _f: None, lambda _r: OBSERVED)
    if not path.exists():
        history(f"{folder}/history", count)
        start = time.perf_counter()
        build(sources, f"{path}.new", lambda _done, _all: None, history=f"{folder}/history")
        Path(f"{path}.new").rename(path)
        took = time.perf_counter() - start
        print(f"{count:,} made-up records into a new index: {took:.0f} s, {count / took:,.0f} a second")
    size = path.stat().st_size
    print(f"file: {size / 1e6:,.0f} MB, {size / count:,.0f} bytes a record")
    index = Index(folder, sources.records, find=sources.find, observations=sources.observations)
    index.stats()
    print(f"\n| {'question':<48} | first row ms | up to 1,000 rows ms | rows |\n|{'-' * 50}|--:|--:|--:|")
    slow = []
    for name, ask in questions(index, count).items():
        first, total, rows = measure(ask)
        print(f"| {name:<48} | {first:12.2f} | {total:19.2f} | {rows:4} |", flush=True)
        if first > 50:
            slow.append(name)
    print("\nslower than 50 ms to the first row:", ", ".join(slow) or "none")
    writing(folder, count)


def writing(folder: str, count: int) -> None:
    writer = IndexWriter(folder, lambda _record: OBSERVED, count=lambda name: print("count", name), interval=1e9)
    fresh = list(itertools.islice(records(count + 2000), count, count + 2000))
    for record in fresh[:1000]:
        writer.note_publish(record)
    start = time.perf_counter()
    writer.flush()
    print(f"\n1,000 publishes in one batch: {time.perf_counter() - start:.2f} s")
    start = time.perf_counter()
    for record in fresh:
        writer.note_use(record.fingerprint, 1e9)
    noted = time.perf_counter() - start
    start = time.perf_counter()
    writer.flush()
    print(f"a use: {noted / len(fresh) * 1e6:.2f} us to note; 2,000 in one batch: {time.perf_counter() - start:.2f} s")
    for record in fresh:
        writer.note_gone(record.fingerprint)
    writer.close()


def files(folder: str, count: int) -> None:
    layer = LocalLayer(folder, fs=NoSyncFs(), durable=False)
    for number in range(count):
        made = sample(f"kernel{number}", family=f"family{number % 40}")
        layer.publish(made.record, made.blobs)
    found = (layer.find(fingerprint) for fingerprint in layer.fingerprints())
    index = Index(
        folder, lambda: (r for r in map(layer.find, layer.fingerprints()) if r), find=layer.find,
        observations=lambda record: layer.read_named(record.observations),
    )  # fmt: skip
    start = time.perf_counter()
    for _record in found:
        pass
    reading = time.perf_counter() - start
    start = time.perf_counter()
    index.rebuild()
    took = time.perf_counter() - start
    print(f"\nrebuild from {count:,} record files: {took:.1f} s, {count / took:,.0f} a second; reading {reading:.1f} s")
    size = Path(folder, "index.sqlite3").stat().st_size
    print(f"file: {size / 1e6:.1f} MB")
    start = time.perf_counter()
    problems = index.check()
    print(f"check: {time.perf_counter() - start:.1f} s, {len(problems)} problems")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--files", type=int, default=20_000)
    parser.add_argument("--folder", help="keep the files here, and use an index that is there")
    given = parser.parse_args()
    folder = given.folder or tempfile.mkdtemp(prefix="bench-index-")
    try:
        big(f"{folder}/big", given.records)
        if given.files:
            files(f"{folder}/files", given.files)
    finally:
        if not given.folder:
            shutil.rmtree(folder)


if __name__ == "__main__":
    main()
