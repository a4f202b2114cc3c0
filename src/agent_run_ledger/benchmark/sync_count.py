"""A child process that counts the syncs of a run through a shim around SQLite's file layer."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field

import apsw

WAL_HEADER_BYTES = 32


@dataclass(slots=True, kw_only=True)
class Syncs:
    """Syncs by what they are for.

    `commits` made new frames of the WAL durable. `other` belongs to checkpoints: the WAL once more before it is copied
    (nothing new in it), the database file after the copy (a `checkpoint` each), and the header of a WAL begun anew.
    """

    commits: int = 0
    other: int = 0
    checkpoints: int = 0
    _unsynced: dict[str, int] = field(default_factory=dict[str, int])

    def wrote(self, kind: str, size: int) -> None:
        """Note a write of `size` bytes to the "wal" or the "db" file."""
        self._unsynced[kind] = self._unsynced.get(kind, 0) + size

    def synced(self, kind: str) -> None:
        """Note a sync, and what it was for."""
        written, self._unsynced[kind] = self._unsynced.get(kind, 0), 0
        if kind == "wal" and written > WAL_HEADER_BYTES:
            self.commits += 1
        else:
            self.other += 1
            self.checkpoints += kind == "db"

    def clear(self) -> None:
        """Begin to count at zero."""
        self.commits = self.other = self.checkpoints = 0


def count_syncs() -> Syncs:
    """Put the shim under every connection that this process opens from now on, and return its count."""
    counted = Syncs()
    base = apsw.vfs_names()[0]

    class File(apsw.VFSFile):
        def __init__(self, name: str | apsw.URIFilename | None, flags: list[int]) -> None:
            super().__init__(base, name, flags)
            self.kind = "wal" if flags[0] & apsw.SQLITE_OPEN_WAL else "db"

        def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802 - SQLite's name
            counted.wrote(self.kind, len(data))
            super().xWrite(data, offset)  # pyright: ignore[reportUnknownMemberType]

        def xSync(self, flags: int) -> None:  # noqa: N802 - SQLite's name
            counted.synced(self.kind)
            super().xSync(flags)

    class Counting(apsw.VFS):
        def __init__(self) -> None:
            super().__init__("counting", base, makedefault=True)

        def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> File:  # noqa: N802 - SQLite's name
            return File(name, flags)

    _kept.append(Counting())
    return counted


_kept: list[apsw.VFS] = []
"""SQLite goes on calling a registered layer: it must live as long as the process."""


def main(arguments: Sequence[str]) -> None:
    """Run `floor` or `product` on a new file and print the count as JSON: KIND PATH STEPS."""
    kind, path, steps = arguments[0], arguments[1], int(arguments[2])
    counted = count_syncs()
    from agent_run_ledger.benchmark.floor import Floor
    from agent_run_ledger.benchmark.work import chain, create_store, opened, result

    if kind == "floor":
        floor = Floor(path)
        counted.clear()
        floor.put_all(steps, result)
    else:
        create_store(path)
        ledger = opened("bench", path, chain(steps))
        counted.clear()
        ledger.execute()
    print(
        json.dumps(
            {
                "steps": steps,
                "commits": counted.commits,
                "other": counted.other,
                "checkpoints": counted.checkpoints,
            }
        )
    )


if __name__ == "__main__":
    main(sys.argv[1:])
