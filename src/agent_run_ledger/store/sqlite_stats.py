"""What `arl doctor` wants to know about a SQLite store."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

import apsw

from agent_run_ledger.kernel.record import RecordKind
from agent_run_ledger.kernel.tiles import TILE_WIDTH
from agent_run_ledger.store.mounts import filesystem
from agent_run_ledger.store.sqlite_reader import SqliteReader

MOST_LOOKED_UP = 50_000
"""The kind of a record that is no result stands in its row only: up to here each row is looked up."""

_KINDS = {kind.value: kind.name.lower() for kind in RecordKind}


@dataclass(frozen=True, slots=True, kw_only=True)
class OldestKept:
    """The completed run that was begun first of those whose records are still there, and when it completed."""

    run_id: str
    completed_at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreStats:
    """Sizes in bytes, pages and rows, as they were at one moment or two.

    `records_by_kind` has only "result" and "other" where there are more than MOST_LOOKED_UP others. `leaves` and
    `tiles` are what the head says that there are.
    """

    location: str
    filesystem: str
    sqlite_version: str
    application_id: int
    schema_version: int
    journal_mode: str
    page_bytes: int
    pages: int
    free_pages: int
    database_bytes: int
    wal_bytes: int
    runs_by_state: Mapping[str, int]
    records_by_kind: Mapping[str, int]
    leaves: int
    tiles: int
    in_flight: int
    oldest_kept: OldestKept | None

    @property
    def runs(self) -> int:
        """The number of runs."""
        return sum(self.runs_by_state.values())

    @property
    def records(self) -> int:
        """The number of records, erased ones too."""
        return sum(self.records_by_kind.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSize:
    """What a table or an index takes of the file: whole pages in bytes, and how much in them is not used."""

    name: str
    page_bytes: int
    unused_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Migration:
    """One migration that a store went through: to which version, by which text, when."""

    version: int
    sha256: bytes
    applied_at_ms: int


def sqlite_version() -> str:
    """Return the version of the SQLite library that the store uses, "3.54.1"."""
    return apsw.sqlite_lib_version()


def stats_of(reader: SqliteReader, location: str) -> StoreStats:
    """Return the figures of the store at `location`. Errors as of any read.

    Read are the rows of runs and of start marks, the two indexes of records, and one page for each record that is no
    result; never the records' table or the log.
    """
    leaves, oldest = reader.head().size, reader.fetch("select_oldest_kept")
    entries: dict[str, int] = dict(reader.fetch("count_indexed"))  # each record is in one of the two
    return StoreStats(
        location=location,
        filesystem=filesystem(location),
        sqlite_version=sqlite_version(),
        application_id=int(reader.pragma("application_id")),
        schema_version=int(reader.pragma("user_version")),
        journal_mode=str(reader.pragma("journal_mode")),
        page_bytes=int(reader.pragma("page_size")),
        pages=int(reader.pragma("page_count")),
        free_pages=int(reader.pragma("freelist_count")),
        database_bytes=_size_of(location),
        wal_bytes=_size_of(location + "-wal"),
        runs_by_state=dict(reader.fetch("count_states")),
        records_by_kind={"result": entries["records_result"]} | _others_by_kind(reader, entries["records_other"]),
        leaves=leaves,
        tiles=_complete_tiles(leaves),
        in_flight=int(reader.fetch("count_in_flight")[0][0]),
        oldest_kept=OldestKept(run_id=oldest[0][0], completed_at_ms=oldest[0][1]) if oldest else None,
    )


def sizes_of(reader: SqliteReader) -> list[TableSize]:
    """Return what each table and index takes, the largest first. It reads every page (SQLite's dbstat)."""
    return [
        TableSize(name=name, page_bytes=page_bytes, unused_bytes=unused)
        for name, page_bytes, unused in reader.fetch("select_sizes")
    ]


def migrations_of(reader: SqliteReader) -> list[Migration]:
    """Return the migrations of a file, in order."""
    return [
        Migration(version=version, sha256=sha256, applied_at_ms=applied_at_ms)
        for version, sha256, applied_at_ms in reader.fetch("select_migration_times")
    ]


def _others_by_kind(reader: SqliteReader, count: int) -> dict[str, int]:
    if count > MOST_LOOKED_UP:
        return {"other": count}
    return {_KINDS.get(kind, str(kind)): number for kind, number in reader.fetch("count_kinds")}


def _complete_tiles(leaves: int) -> int:
    count = 0
    while leaves := leaves // TILE_WIDTH:
        count += leaves
    return count


def _size_of(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0
