"""Stores: where a log and its rows live."""

from __future__ import annotations

from agent_run_ledger.store.mounts import filesystem, is_network_filesystem
from agent_run_ledger.store.sqlite_stats import StoreStats, sqlite_version
from agent_run_ledger.store.sqlite_store import SqliteStore, open_sqlite
from agent_run_ledger.store.store_thread import StoreThread

__all__ = [
    "SqliteStore",
    "StoreStats",
    "StoreThread",
    "filesystem",
    "is_network_filesystem",
    "open_sqlite",
    "sqlite_version",
]
