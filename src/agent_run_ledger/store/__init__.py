"""Stores: where a log and its rows live."""

from __future__ import annotations

from agent_run_ledger.kernel.store_urls import is_url, without_secrets
from agent_run_ledger.store.mounts import filesystem, is_network_filesystem
from agent_run_ledger.store.moves import Move, Standing
from agent_run_ledger.store.opening import (
    AnyStore,
    databases_at,
    durability_of,
    named_store,
    only_in_file,
    open_store,
    refuse_server,
    upgraded_from,
)
from agent_run_ledger.store.sqlite_backup import BackupReport
from agent_run_ledger.store.sqlite_stats import Migration, StoreStats, TableSize, sqlite_version
from agent_run_ledger.store.sqlite_store import Copied, SqliteStore, open_sqlite, stored_durability
from agent_run_ledger.store.store_thread import StoreThread

__all__ = [
    "AnyStore",
    "BackupReport",
    "Copied",
    "Migration",
    "Move",
    "SqliteStore",
    "Standing",
    "StoreStats",
    "StoreThread",
    "TableSize",
    "databases_at",
    "durability_of",
    "filesystem",
    "is_network_filesystem",
    "is_url",
    "named_store",
    "only_in_file",
    "open_sqlite",
    "open_store",
    "refuse_server",
    "sqlite_version",
    "stored_durability",
    "upgraded_from",
    "without_secrets",
]
