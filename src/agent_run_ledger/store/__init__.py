"""Stores: where a log and its rows live."""

from __future__ import annotations

from agent_run_ledger.store.mounts import filesystem, is_network_filesystem
from agent_run_ledger.store.sqlite_backup import BackupReport
from agent_run_ledger.store.sqlite_stats import Migration, StoreStats, TableSize, sqlite_version
from agent_run_ledger.store.sqlite_store import Copied, SqliteStore, open_sqlite, stored_durability
from agent_run_ledger.store.store_thread import StoreThread

__all__ = [
    "BackupReport",
    "Copied",
    "Migration",
    "SqliteStore",
    "StoreStats",
    "StoreThread",
    "TableSize",
    "filesystem",
    "is_network_filesystem",
    "open_sqlite",
    "sqlite_version",
    "stored_durability",
]
