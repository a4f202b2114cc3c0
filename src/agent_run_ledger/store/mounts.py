"""On which kind of file system a path lies, and whether its locks can be trusted."""

from __future__ import annotations

import os
import re

_MOUNTINFO = "/proc/self/mountinfo"
_OCTAL = re.compile(r"\\([0-7]{3})")

_NETWORK = frozenset(
    ("9p", "afs", "beegfs", "ceph", "cifs", "coda", "gfs2", "glusterfs", "lustre", "ncpfs", "nfs", "nfs4", "ocfs2",
     "smb2", "smb3", "smbfs", "virtiofs")
)  # fmt: skip


def filesystem(path: str | os.PathLike[str]) -> str:
    """Return the type of the file system that holds `path`, as the kernel names it ("ext4"), or "unknown".

    The path need not exist. Source: /proc/self/mountinfo, the longest mount point that is a prefix (proc(5)).
    """
    try:
        with open(_MOUNTINFO, encoding="utf-8", errors="surrogateescape") as lines:
            return _kind_of(os.path.realpath(path), lines.read())
    except OSError:
        return "unknown"


def is_network_filesystem(kind: str) -> bool:
    """Return whether byte-range locks and shared memory on this kind reach other machines or other kernels unsafely."""
    return kind in _NETWORK or kind == "fuse" or kind.startswith(("fuse.", "fuseblk"))


def _kind_of(path: str, mountinfo: str) -> str:
    """Return the type of the longest mount point above `path`; of equal ones the last, which covers the others."""
    best, kind = -1, "unknown"
    for line in mountinfo.splitlines():
        left, separator, right = line.partition(" - ")
        fields, source = left.split(" "), right.split(" ")
        if not separator or len(fields) < 5:
            continue
        point = _OCTAL.sub(lambda match: chr(int(match[1], 8)), fields[4])
        inside = point == "/" or path == point or path.startswith(point + "/")
        if inside and len(point) >= best:
            best, kind = len(point), source[0]
    return kind
