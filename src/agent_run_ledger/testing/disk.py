"""A disk between SQLite and the operating system that can be watched, and that can be full."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

import apsw

from agent_run_ledger.testing.points import Point

VFS_NAME = "arl-watched-disk"

_WAL = (Point.WAL_WRITE, Point.WAL_SYNC)
_FILE = (Point.FILE_WRITE, Point.FILE_SYNC)


class WatchedDisk:
    """What SQLite writes and syncs in this process.

    `full`: while True every write fails with SQLITE_FULL, as on a device without room. `full_after_writes`: when a
    number, it goes down by one with each write, and at 0 the disk becomes full: so it fills up inside a commit.
    `hook` is told the point before each write and sync; what it raises, SQLite reports.
    """

    def __init__(self, hook: Callable[[str], None] | None = None) -> None:
        self.hook = hook
        self.full = False
        self.full_after_writes: int | None = None
        self.writes = 0

    def install(self) -> None:
        """Lie below every store that is opened from now on, until `remove` or the end of the process."""
        if self not in _installed:
            _installed[self] = _WatchedVfs(self, apsw.vfs_names()[0])

    def remove(self) -> None:
        """Leave later stores alone. Close the watched ones before."""
        vfs = _installed.pop(self, None)
        if vfs is not None:
            vfs.unregister()

    def reached(self, point: Point) -> None:
        """Tell the hook that a write or a sync is next."""
        if self.hook is not None:
            self.hook(point.value)

    def written(self) -> None:
        """Count a write; raise SQLITE_FULL where there is no room for it."""
        if self.full_after_writes is not None:
            self.full_after_writes -= 1
            if self.full_after_writes < 0:
                self.full, self.full_after_writes = True, None
        if self.full:
            raise apsw.exception_for(apsw.SQLITE_FULL)
        self.writes += 1


class _WatchedFile(apsw.VFSFile):
    def __init__(
        self,
        disk: WatchedDisk,
        points: tuple[Point, Point],
        name: str | apsw.URIFilename | None,
        flags: list[int],
        base: str,
    ) -> None:
        super().__init__(base, name, flags)
        self._disk = disk
        self._write, self._sync = points

    def xWrite(self, data: Any, offset: int) -> None:  # noqa: N802 - the name of the interface
        self._disk.reached(self._write)
        self._disk.written()
        super().xWrite(data, offset)  # pyright: ignore[reportUnknownMemberType]

    def xSync(self, flags: int) -> None:  # noqa: N802
        self._disk.reached(self._sync)
        super().xSync(flags)


class _WatchedVfs(apsw.VFS):
    def __init__(self, disk: WatchedDisk, base: str) -> None:
        super().__init__(VFS_NAME, base, makedefault=True)
        self._disk = disk
        self._base = base

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> apsw.VFSFile:  # noqa: N802
        if flags[0] & apsw.SQLITE_OPEN_WAL:
            return _WatchedFile(self._disk, _WAL, name, flags, self._base)
        if flags[0] & apsw.SQLITE_OPEN_MAIN_DB:
            return _WatchedFile(self._disk, _FILE, name, flags, self._base)
        return super().xOpen(name, flags)


_installed: dict[WatchedDisk, _WatchedVfs] = {}
"""The driver takes a layer away when nobody holds it any more."""


@contextmanager
def watched_disk(hook: Callable[[str], None] | None = None) -> Generator[WatchedDisk]:
    """Put a watched disk below every store that this process opens inside the block.

    A store that was open before is not affected; close what you opened inside before the block ends.
    """
    disk = WatchedDisk(hook)
    disk.install()
    try:
        yield disk
    finally:
        disk.remove()
