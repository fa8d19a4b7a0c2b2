"""Ceph: one monitor, one OSD in memory and the RADOS gateway, from Debian packages unpacked into a folder. No root.

Only for the tests marked `ceph`: fetching takes 60 MB and some seconds once, a start 3 to 10 s.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import urllib.request
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .process import Server, free_ports, spawn, stop, wait_for

__all__ = ["ceph", "fetch"]

_PACKAGES = ("ceph-mon", "ceph-osd", "radosgw")
_USERS = ("writer", "reader")

_CONF = """\
[global]
fsid = {fsid}
mon_host = [v2:127.0.0.1:{mon},v1:127.0.0.1:{mon_old}]
mon_initial_members = a
public_addr = 127.0.0.1
cluster_addr = 127.0.0.1
auth_cluster_required = none
auth_service_required = none
auth_client_required = none
ms_mon_client_mode = crc
run_dir = {folder}/run
admin_socket = {folder}/run/$name.$pid.asok
log_file = {folder}/log/$name.log
crash_dir = {folder}/log
osd_class_dir = {lib}/rados-classes
erasure_code_dir = {lib}/ceph/erasure-code
plugin_dir = {lib}/ceph
osd_pool_default_size = 1
osd_pool_default_min_size = 1
osd_pool_default_pg_num = 1
osd_pool_default_pgp_num = 1
osd_pool_default_pg_autoscale_mode = off
osd_crush_chooseleaf_type = 0
mon_allow_pool_size_one = true
mon_max_pg_per_osd = 4000
mon_osd_nearfull_ratio = 0.96
mon_osd_backfillfull_ratio = 0.97
mon_osd_full_ratio = 0.98
osd_failsafe_full_ratio = 0.99
mon_data_avail_crit = 1
mon_data_avail_warn = 2
rgw_rados_pool_pg_num_min = 1
paxos_propose_interval = 0.02
paxos_min_wait = 0.01
osd_heartbeat_interval = 1
mon_osd_min_up_ratio = 0
osd_objectstore = memstore
memstore_device_bytes = 4294967296
osd_op_num_shards = 1
osd_op_num_threads_per_shard = 4
[mon.a]
mon_data = {folder}/mon
[osd.0]
osd_data = {folder}/osd
[client.rgw.a]
rgw_data = {folder}/rgw
rgw_frontends = beast endpoint=127.0.0.1:{rgw} tcp_nodelay=1
rgw_thread_pool_size = 64
rgw_enable_usage_log = false
rgw_enable_ops_log = false
rgw_dns_name = localhost
"""
# `ms_mon_client_mode`: the gateway's own default cannot be had without authentication, and it then waits for ever.
# `tcp_nodelay`: without it every small answer takes 40 ms more.


def fetch(prefix: Path) -> None:
    """Download and unpack the packages that this machine lacks for Ceph; nothing if `prefix` has them."""
    if (prefix / "usr/bin/radosgw").exists() or shutil.which("radosgw"):
        return
    debs = prefix / "debs"
    (debs / "partial").mkdir(parents=True, exist_ok=True)
    subprocess.run(
        ["apt-get", "install", "-y", "-qq", "--download-only", "--no-install-recommends", "-o",
         f"Dir::Cache::archives={debs}", "-o", "Debug::NoLocking=1", *_PACKAGES],
        check=True, stdout=subprocess.DEVNULL,
    )  # fmt: skip
    for deb in sorted(debs.glob("*.deb")):
        subprocess.run(["dpkg", "-x", str(deb), str(prefix)], check=True)
    shutil.rmtree(debs)


@contextmanager
def ceph(folder: Path, prefix: Path) -> Iterator[Server]:
    """A server that starts empty each time, with programs from `prefix` as `fetch` leaves them."""
    fetch(prefix)
    machine = f"{platform.machine()}-linux-gnu"
    lib = prefix / "usr/lib" / machine
    environ = {
        **os.environ,
        "PATH": f"{prefix / 'usr/bin'}:{os.environ['PATH']}",
        "LD_LIBRARY_PATH": f"{lib}:{prefix / 'lib' / machine}:{lib / 'ceph'}",
        "PYTHONPATH": str(prefix / "usr/lib/python3/dist-packages"),
        "CEPH_CONF": str(folder / "ceph.conf"),
    }
    mon, mon_old, rgw = free_ports(3)
    running: list[subprocess.Popen[bytes]] = []

    def run(*arguments: str) -> None:
        with (folder / "log/setup.txt").open("ab") as log:
            found = shutil.which(arguments[0], path=environ["PATH"]) or arguments[0]
            subprocess.run([found, *arguments[1:]], env=environ, stdout=log, stderr=log, check=True, timeout=90)

    def daemon(*arguments: str) -> None:
        found = shutil.which(arguments[0], path=environ["PATH"]) or arguments[0]
        running.append(spawn([found, *arguments[1:], "-f"], folder / f"log/{arguments[0]}.out", environ))

    def ready() -> bool:
        with urllib.request.urlopen(f"http://127.0.0.1:{rgw}/", timeout=2) as answer:
            return bool(answer.status == 200)

    def start() -> None:
        for name in ("mon", "osd", "rgw", "run", "log"):
            shutil.rmtree(folder / name, ignore_errors=True)
            (folder / name).mkdir(parents=True)
        fsid = str(uuid.uuid4())
        (folder / "ceph.conf").write_text(
            _CONF.format(folder=folder, lib=lib, fsid=fsid, mon=mon, mon_old=mon_old, rgw=rgw)
        )
        where = f"[v2:127.0.0.1:{mon},v1:127.0.0.1:{mon_old}]"
        run("monmaptool", "--create", "--clobber", "--fsid", fsid, "--addv", "a", where, str(folder / "monmap"))
        run("ceph-mon", "-i", "a", "--mkfs", "--monmap", str(folder / "monmap"))
        daemon("ceph-mon", "-i", "a")
        osd = str(uuid.uuid4())
        run("ceph", "osd", "new", osd)
        run("ceph-osd", "-i", "0", "--mkfs", "--osd-uuid", osd)
        daemon("ceph-osd", "-i", "0")
        daemon("radosgw", "-n", "client.rgw.a")
        wait_for(ready, 90, "Ceph", running[-1], folder / "log/radosgw.out")
        for name in _USERS:
            run("radosgw-admin", "user", "create", f"--uid={name}", f"--display-name={name}",
                f"--access-key={name}key", f"--secret-key={name}secret")  # fmt: skip

    def end(grace: float = 5.0) -> None:
        while running:
            stop(running.pop(), grace)  # the gateway first, the monitor last

    try:
        start()
        users = ("writerkey", "writersecret", "readerkey", "readersecret")
        yield Server(f"http://127.0.0.1:{rgw}", *users, start=start, stop=end, kill=lambda: end(0.0))
    finally:
        end()
