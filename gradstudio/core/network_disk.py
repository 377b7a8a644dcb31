"""Whether a file is on a network disk, where SQLite cannot keep a write-ahead log."""

from __future__ import annotations

import os
from pathlib import Path

_MOUNTS = Path("/proc/self/mountinfo")  # on Linux; elsewhere the kind is unknown
_KINDS = {
    "nfs", "nfs4", "cifs", "smb3", "smbfs", "lustre", "beegfs", "gpfs", "ceph", "glusterfs", "9p", "afs", "orangefs",
    "fuse.sshfs", "fuse.glusterfs", "fuse.ceph", "fuse.s3fs", "fuse.gcsfuse", "fuse.juicefs", "fuse.rclone",
}  # fmt: skip


def kind_of(path: Path) -> str:
    """Return the kind of network disk that a path is on, such as nfs4; "" for a local disk, or if unknown."""
    try:
        lines = _MOUNTS.read_text(errors="replace").splitlines()
    except OSError:
        return ""
    place, best, kind = os.path.realpath(path), "", ""
    for line in lines:
        before, _, after = line.partition(" - ")
        fields = before.split()
        if len(fields) < 5 or not after:
            continue
        root = fields[4].replace("\\040", " ")
        if len(root) >= len(best) and (place == root or place.startswith(root.rstrip("/") + "/")):
            best, kind = root, after.split()[0]
    return kind if kind in _KINDS else ""


def sentence(path: Path) -> str:
    """Return the message about a library on a network disk; "" for another one."""
    kind = kind_of(path)
    return (
        f"The run library {path} is on a network disk ({kind}): several programs that use it wait for each other. "
        "GRADSTUDIO_LIBRARY names another place"
        if kind
        else ""
    )
