"""Ceph on one machine: a monitor, an OSD in a file, and the RADOS Gateway; no root, nothing installed.

`python -m tests.servers.ceph FOLDER` fetches Debian's packages into a folder (66 MB, 260 MB unpacked), once.
`CEPH_PREFIX` names that folder for the tests; without it the programs must be installed.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
import urllib.error
import urllib.request
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .process import Server, free_ports, spawn, stop, wait_for

__all__ = ["ceph", "fetch"]

_PACKAGES = ("ceph-mon", "ceph-osd", "radosgw")
_USERS = ("writer", "reader")

# One OSD, so no copies. `crc`: without authentication the gateway's default, `secure`, is never agreed upon, and it
# hangs. `tcp_nodelay`: else each small answer takes 40 ms more. The paxos settings halve the first start.
_CONF = """[global]
fsid = {fsid}
mon_host = [v2:127.0.0.1:{mon},v1:127.0.0.1:{mon1}]
mon_initial_members = a
public_addr = 127.0.0.1
cluster_addr = 127.0.0.1
auth_cluster_required = none
auth_service_required = none
auth_client_required = none
ms_mon_client_mode = crc
run_dir = {folder}
admin_socket = {folder}/$name.asok
log_file = {folder}/$name.log
crash_dir = {folder}
{plugins}
osd_pool_default_size = 1
osd_pool_default_min_size = 1
osd_pool_default_pg_num = 1
osd_pool_default_pgp_num = 1
osd_pool_default_pg_autoscale_mode = off
osd_crush_chooseleaf_type = 0
mon_allow_pool_size_one = true
mon_max_pg_per_osd = 4000
mon_osd_nearfull_ratio = 0.97
mon_osd_backfillfull_ratio = 0.98
mon_osd_full_ratio = 0.985
osd_failsafe_full_ratio = 0.99
mon_data_avail_crit = 1
mon_data_avail_warn = 2
rgw_rados_pool_pg_num_min = 1
paxos_propose_interval = 0.02
paxos_min_wait = 0.01
osd_objectstore = bluestore
osd_memory_target = 1073741824
osd_op_num_shards = 1
osd_op_num_threads_per_shard = 4
bluestore_block_size = 10737418240
bluestore_cache_size = 67108864
[mon.a]
mon_data = {folder}/mon
[osd.0]
osd_data = {folder}/osd
[client.rgw.a]
rgw_data = {folder}/rgw
rgw_frontends = beast endpoint=127.0.0.1:{port} tcp_nodelay=1
rgw_dns_name = localhost
"""


def fetch(prefix: Path) -> None:
    """Put the programs into a folder, those of their libraries that this machine lacks with them."""
    if (prefix / "usr/bin/radosgw").exists():
        return
    for name in ("lists/partial", "packages/partial"):
        (prefix / name).mkdir(parents=True, exist_ok=True)
    apt = [
        "apt-get", "-qq", "-o", f"Dir::State::Lists={prefix}/lists", "-o", f"Dir::Cache::archives={prefix}/packages",
        "-o", "Dir::Cache::pkgcache=", "-o", "Dir::Cache::srcpkgcache=", "-o", "Debug::NoLocking=1",
    ]  # fmt: skip
    subprocess.run([*apt, "update"], check=True)
    subprocess.run([*apt, "install", "-y", "--download-only", "--no-install-recommends", *_PACKAGES], check=True)
    for package in (prefix / "packages").glob("*.deb"):
        subprocess.run(["dpkg", "-x", str(package), str(prefix)], check=True)
    for name in ("lists", "packages"):
        shutil.rmtree(prefix / name)


def _surroundings(folder: Path) -> tuple[dict[str, str], str]:
    """Environment of the programs, and what the configuration says of their plug-ins."""
    environ = {**os.environ, "CEPH_CONF": str(folder / "ceph.conf")}
    if not environ.get("CEPH_PREFIX"):
        assert shutil.which("radosgw"), "no radosgw: install it, or fetch it and name its folder in CEPH_PREFIX"
        return environ, ""
    prefix = Path(environ["CEPH_PREFIX"]).resolve()
    kind = f"{platform.machine()}-linux-gnu"
    libraries = prefix / "usr/lib" / kind
    environ["PATH"] = f"{prefix}/usr/bin:{environ.get('PATH', '')}"
    environ["LD_LIBRARY_PATH"] = f"{libraries}:{prefix}/lib/{kind}:{libraries}/ceph"
    environ["PYTHONPATH"] = f"{prefix}/usr/lib/python3/dist-packages"
    places = {"osd_class_dir": "rados-classes", "erasure_code_dir": "ceph/erasure-code", "plugin_dir": "ceph"}
    return environ, "\n".join(f"{name} = {libraries / where}" for name, where in places.items())


@contextmanager
def ceph(folder: Path) -> Iterator[Server]:
    """A cluster with its data in `folder`, on free ports. About 10 s to come up."""
    folder = folder.resolve()
    for name in ("mon", "osd", "rgw"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    environ, plugins = _surroundings(folder)
    port, mon, mon1 = free_ports(3)
    fsid, log = str(uuid.uuid4()), folder / "out"
    text = _CONF.format(folder=folder, fsid=fsid, port=port, mon=mon, mon1=mon1, plugins=plugins)
    (folder / "ceph.conf").write_text(text)
    running: list[subprocess.Popen[bytes]] = []

    def run(*command: str) -> None:
        done = subprocess.run(command, env=environ, capture_output=True, timeout=120, check=False)
        assert done.returncode == 0, f"{' '.join(command)}: {done.stderr.decode(errors='replace')[-2000:]}"

    def ready() -> bool:
        try:
            with urllib.request.urlopen(endpoint, timeout=2) as answer:
                return bool(answer.status == 200)
        except urllib.error.HTTPError:
            return False

    def daemon(*command: str) -> None:
        running.append(spawn([*command, "-f"], log, environ))

    def start() -> None:
        daemon("ceph-mon", "-i", "a")
        if not (folder / "osd/ready").exists():
            osd = str(uuid.uuid4())
            run("ceph", "--connect-timeout", "60", "osd", "new", osd)
            run("ceph-osd", "-i", "0", "--mkfs", "--osd-uuid", osd)
        daemon("ceph-osd", "-i", "0")
        daemon("radosgw", "-n", "client.rgw.a")
        wait_for(ready, 120, "Ceph", running[-1], log)

    def end(grace: float = 5.0) -> None:
        while running:
            stop(running.pop(), grace)

    endpoint = f"http://127.0.0.1:{port}"
    try:
        run("monmaptool", "--create", "--clobber", "--fsid", fsid, "--addv", "a",
            f"[v2:127.0.0.1:{mon},v1:127.0.0.1:{mon1}]", str(folder / "monmap"))  # fmt: skip
        run("ceph-mon", "-i", "a", "--mkfs", "--monmap", str(folder / "monmap"))
        start()
        for name in _USERS:
            run("radosgw-admin", "user", "create", f"--uid={name}", f"--display-name={name}",
                f"--access-key={name}key", f"--secret-key={name}secret")  # fmt: skip
        users = ("writerkey", "writersecret", "readerkey", "readersecret")
        yield Server(endpoint, *users, start=start, stop=end, kill=lambda: end(0.0))
    finally:
        end()


if __name__ == "__main__":
    fetch(Path(sys.argv[1]).resolve())
