"""Which file system a folder is on. SQLite's log and locks are for one host: the index is never on a network mount."""

from __future__ import annotations

import os

__all__ = ["network_mount"]

_NETWORK = (
    "9p", "acfs", "afs", "beegfs", "ceph", "cifs", "fuse", "glusterfs", "gpfs", "lustre", "ncpfs", "nfs", "nfs4",
    "ocfs2", "orangefs", "panfs", "pvfs2", "smb3", "smbfs", "virtiofs", "wekafs",
)  # fmt: skip


def network_mount(path: str, mountinfo: str = "/proc/self/mountinfo") -> str:
    """The kind of the network file system that a path is on; empty for a local one."""
    path = os.path.realpath(path) + "/"
    best, kind = "", ""
    try:
        with open(mountinfo, encoding="utf-8", errors="surrogateescape") as file:
            for line in file:
                before, _, after = line.partition(" - ")
                fields = before.split(" ")
                if len(fields) < 5 or not after:
                    continue
                point = fields[4].encode("utf-8", "surrogateescape").decode("unicode_escape", "replace")
                point = point.rstrip("/") + "/"
                if path.startswith(point) and len(point) >= len(best):  # the last of several is on top
                    best, kind = point, after.split(" ")[0]
    except OSError:
        return ""
    return kind if kind.partition(".")[0] in _NETWORK and kind != "fuse.ext4" else ""
