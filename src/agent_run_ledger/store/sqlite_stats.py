"""What `arl doctor` wants to know about a SQLite store."""

from __future__ import annotations

import os
from dataclasses import dataclass

import apsw

from agent_run_ledger.store.mounts import filesystem
from agent_run_ledger.store.sqlite_reader import SqliteReader


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreStats:
    """Sizes in bytes, pages and rows, as they were at one moment."""

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
    runs: int
    records: int
    leaves: int
    tiles: int
    in_flight: int


def sqlite_version() -> str:
    """Return the version of the SQLite library that the store uses, "3.54.1"."""
    return apsw.sqlite_lib_version()


def stats_of(reader: SqliteReader, location: str) -> StoreStats:
    """Return the figures of the store at `location`. Errors as of any read."""
    runs, records, leaves, tiles, marks = reader.counts()
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
        runs=runs,
        records=records,
        leaves=leaves,
        tiles=tiles,
        in_flight=marks,
    )


def _size_of(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0
