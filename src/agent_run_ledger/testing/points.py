"""The named points at which the harness can kill a process."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from agent_run_ledger.errors import Misuse


class Point(StrEnum):
    """Where a process can die. Every point lies *before* the act that its name ends with, unless it says after."""

    BODY_BEFORE = "body.before"
    """The start of a call is committed, its body has not begun."""
    BODY_AFTER = "body.after"
    """The body has returned, nothing is recorded."""
    RECORD_BEFORE = "record.before"
    """The records of one commit are built, the store was not asked yet."""
    COMMIT_BEGIN = "commit.begin"
    """The write lock is about to be asked for."""
    COMMIT_BEFORE = "commit.before"
    """All rows of the transaction are written, COMMIT was not said."""
    WAL_WRITE = "commit.wal.write"
    """SQLite is about to write some bytes of the write-ahead log: a frame's header or its page."""
    WAL_SYNC = "commit.wal.sync"
    """SQLite is about to sync the write-ahead log."""
    COMMIT_AFTER = "commit.after"
    """The commit is durable, the caller was not told."""
    RECORD_AFTER = "record.after"
    """The caller was told, nothing that depends on the record has begun."""
    FILE_WRITE = "file.write"
    """SQLite is about to write to the database file itself: at creation, and when it folds the log into the file."""
    FILE_SYNC = "file.sync"
    """SQLite is about to sync the database file itself."""


ALL: tuple[str, ...] = tuple(str(point) for point in Point)
"""Every point that the library and SQLite reach by themselves, in the order of a step's life."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KillPoint:
    """The nth time (from 1 on) that a process reaches `point`.

    A point of your own is any name that your code passes to `agent_run_ledger.probes.reach`.
    """

    point: str
    nth: int = 1

    def __post_init__(self) -> None:
        """Refuse a count below 1 with Misuse."""
        if self.nth < 1:
            raise Misuse(
                f"a process reaches {self.point!r} for the 1st time first, not for the {self.nth}th", code="bad_point"
            )

    def __str__(self) -> str:
        """Return point#nth."""
        return f"{self.point}#{self.nth}"


def spread(count: int, most: int | None) -> list[int]:
    """Return at most `most` numbers from 1 to `count`, the first and the last among them, evenly spread; None: all."""
    if most is None or count <= most:
        return list(range(1, count + 1))
    if most <= 1:
        return [1] * most
    return sorted({1 + round(at * (count - 1) / (most - 1)) for at in range(most)})
