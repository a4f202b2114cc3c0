"""Which file system a path lies on, from mountinfo as proc(5) describes it."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent_run_ledger.store import filesystem, is_network_filesystem, mounts

MOUNTINFO = r"""22 1 253:1 / / rw,relatime shared:1 - ext4 /dev/root rw
23 22 0:21 / /proc rw,nosuid - proc proc rw
30 22 0:30 / /home rw shared:5 master:1 - xfs /dev/sdb rw
31 30 0:31 / /home/me/far rw shared:6 - nfs4 server:/export rw,vers=4.2
32 22 0:32 / /with\040space\134and\011more rw - cifs //server/share rw
33 22 0:33 /sub /dev/shm rw - tmpfs tmpfs rw
34 22 0:34 / /twice rw - ext4 /dev/sdc rw
35 22 0:35 / /twice rw - fuse.sshfs host: rw
36 22 0:36 / /weird rw - 9p
37 22 0:37 / /home/me rw
not a line of mountinfo
short - ext4
"""


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mountinfo").write_text(MOUNTINFO)
    monkeypatch.setattr(mounts, "_MOUNTINFO", str(tmp_path / "mountinfo"))


@pytest.mark.usefixtures("table")
@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/", "ext4"),
        ("/etc/x.db", "ext4"),
        ("/home", "xfs"),
        ("/homeless/x.db", "ext4"),
        ("/home/me/x.db", "xfs"),
        ("/home/me/far/x.db", "nfs4"),
        ("/home/me/farther/x.db", "xfs"),
        ("/home/me/far/../near.db", "xfs"),
        ("/with space\\and\tmore/x.db", "cifs"),
        ("/twice/x.db", "fuse.sshfs"),
        ("/weird/x.db", "9p"),
    ],
)
def test_the_longest_mount_point_above_the_path_decides(path: str, kind: str) -> None:
    assert filesystem(path) == kind


def test_a_machine_without_mountinfo_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mounts, "_MOUNTINFO", "/nowhere/mountinfo")
    assert filesystem("/") == "unknown"


def test_a_symbolic_link_is_followed(tmp_path: Path, table: None, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "link").symlink_to("/home/me/far")
    assert filesystem(tmp_path / "link" / "x.db") == "nfs4"


@pytest.mark.parametrize(
    "kind", ["nfs", "nfs4", "cifs", "smb3", "9p", "virtiofs", "fuse", "fuse.sshfs", "fuseblk", "ceph", "glusterfs"]
)
def test_kinds_that_other_machines_share(kind: str) -> None:
    assert is_network_filesystem(kind)


@pytest.mark.parametrize("kind", ["ext4", "xfs", "btrfs", "tmpfs", "overlay", "zfs", "apfs", "unknown"])
def test_kinds_that_one_machine_has_alone(kind: str) -> None:
    assert not is_network_filesystem(kind)
