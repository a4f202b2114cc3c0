"""Targets on this machine, by ordinary functions: a file that grows, and a SQLite table with and without a key."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from agent_run_ledger.targets import Opaque
from agent_run_ledger.testing.effect_kit import Call, EffectCase, Found, Place


def note(number: int) -> Call:
    """What is asked."""
    return Call.of("note", {"n": number})


def file_way(place: Place) -> Opaque:
    """Append a line."""

    def append(n: int) -> None:
        with (place.folder / "notes.txt").open("a", encoding="utf-8") as notes:
            notes.write(f"{n}\n")
            notes.flush()
            os.fsync(notes.fileno())

    return Opaque().calling("note", append)


def lines(place: Place, number: int) -> int:
    """Count the lines."""
    notes = place.folder / "notes.txt"
    return notes.read_text(encoding="utf-8").split().count(str(number)) if notes.exists() else 0


def rows(place: Place, number: int) -> int:
    """Count the rows."""
    with closing(_table(place.folder)) as table:
        found: tuple[int] = table.execute("SELECT count(*) FROM notes WHERE n = ?", (number,)).fetchone()
    return found[0]


def table_way(sql: str) -> Callable[[Place], Opaque]:
    """Insert a row by a statement."""

    def way(place: Place) -> Opaque:
        def insert(n: int) -> None:
            with closing(_table(place.folder)) as table, table:
                table.execute(sql, (n,))

        return Opaque().calling("note", insert)

    return way


def _table(folder: Path) -> sqlite3.Connection:
    table = sqlite3.connect(folder / "notes.db", timeout=30)
    table.execute("CREATE TABLE IF NOT EXISTS notes (n INTEGER)")
    return table


def unique_way(place: Place) -> Opaque:
    """Insert a row where a key of the table lets one of a number be, and say so where it is there already."""

    def insert(n: int) -> str:
        with closing(_table(place.folder)) as table, table:
            table.execute("CREATE UNIQUE INDEX IF NOT EXISTS once ON notes (n)")
            done = table.execute("INSERT OR IGNORE INTO notes VALUES (?)", (n,)).rowcount
        return "done" if done else "was there"

    return Opaque().calling("note", insert)


def probe_by(count: Callable[[Place, int], int]) -> Callable[[Place, int], Found]:
    """Look where the effect is."""
    return lambda place, number: Found.EXECUTED if count(place, number) else Found.NOTHING


FILE = EffectCase(target=file_way, request=note, count=lines, probe=probe_by(lines))
TABLE = EffectCase(target=table_way("INSERT INTO notes VALUES (?)"), request=note, count=rows, probe=probe_by(rows))
UNIQUE_TABLE = EffectCase(target=unique_way, request=note, count=rows, probe=probe_by(rows))
