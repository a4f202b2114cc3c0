"""A layer below SQLite that counts, and fails on demand, before an act of the disk or after it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import apsw

Hook = Callable[[str, str], None]


class Disk:
    """What the files "db", "wal" and "journal" do: "write", "sync", "delete"; hooks may raise in their place."""

    def __init__(self) -> None:
        self.counts: Counter[tuple[str, str]] = Counter()
        self.before: Hook | None = None
        self.after: Hook | None = None

    def act(self, kind: str, name: str, act: Callable[[], None]) -> None:
        if self.before is not None:
            self.before(kind, name)
        act()
        self.counts[kind, name] += 1
        if self.after is not None:
            self.after(kind, name)

    def heal(self) -> None:
        self.before = self.after = None


def failing(kind: str, name: str, code: int = apsw.SQLITE_IOERR_FSYNC) -> Hook:
    """A hook that fails every such act."""

    def hook(seen_kind: str, seen_name: str) -> None:
        if (seen_kind, seen_name) == (kind, name):
            raise apsw.exception_for(code)

    return hook


def failing_once(kind: str, name: str, code: int = apsw.SQLITE_IOERR_FSYNC) -> Hook:
    """A hook that fails the first such act."""
    fail, failed = failing(kind, name, code), False

    def hook(seen_kind: str, seen_name: str) -> None:
        nonlocal failed
        if not failed:
            failed = (seen_kind, seen_name) == (kind, name)
            fail(seen_kind, seen_name)

    return hook


class _File(apsw.VFSFile):
    def __init__(self, disk: Disk, kind: str, base: str, name: object, flags: list[int]) -> None:
        super().__init__(base, name, flags)  # type: ignore[arg-type]
        self._disk, self._kind = disk, kind

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802 - SQLite's name
        self._disk.act(self._kind, "write", lambda: apsw.VFSFile.xWrite(self, data, offset))

    def xSync(self, flags: int) -> None:  # noqa: N802 - SQLite's name
        self._disk.act(self._kind, "sync", lambda: apsw.VFSFile.xSync(self, flags))


class _Vfs(apsw.VFS):
    def __init__(self, disk: Disk, base: str) -> None:
        super().__init__("store-tests", base, makedefault=True)
        self._disk, self._base = disk, base

    def xOpen(self, name: object, flags: list[int]) -> apsw.VFSFile:  # noqa: N802 - SQLite's name
        kinds = {
            apsw.SQLITE_OPEN_MAIN_DB: "db",
            apsw.SQLITE_OPEN_WAL: "wal",
            apsw.SQLITE_OPEN_MAIN_JOURNAL: "journal",
        }
        kind = next((kind for flag, kind in kinds.items() if flags[0] & flag), "other")
        return _File(self._disk, kind, self._base, name, flags)

    def xDelete(self, filename: str, syncdir: bool) -> None:  # noqa: N802 - SQLite's name
        kind = "journal" if filename.endswith("-journal") else "wal" if filename.endswith("-wal") else "other"
        self._disk.act(kind, "delete", lambda: apsw.VFS.xDelete(self, filename, syncdir))


@contextmanager
def layered() -> Iterator[Disk]:
    """Lie below every store that is opened inside; close them before the end."""
    disk = Disk()
    vfs = _Vfs(disk, apsw.vfs_names()[0])
    try:
        yield disk
    finally:
        disk.heal()
        vfs.unregister()
