"""Opening the store a command works on: read-only for looking, writable only for a person's decisions."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from agent_run_ledger.cli.settings import db_setting

if TYPE_CHECKING:
    from agent_run_ledger.runs.attempt import Context
    from agent_run_ledger.store import SqliteStore

LIMIT_BYTES = 16 * 1024 * 1024


@contextmanager
def reading(db: str | None) -> Generator[SqliteStore, None, None]:
    """Open the configured store for reading and close it at the end; a missing one is never created."""
    from agent_run_ledger.store import open_sqlite

    store = open_sqlite(db_setting(db).value, create=False, readonly=True)
    try:
        yield store
    finally:
        store.close()


@contextmanager
def deciding(db: str | None) -> Generator[Context, None, None]:
    """Open the configured store for a decision, with clock and randomness, and close it at the end."""
    from agent_run_ledger.clock import SystemClock
    from agent_run_ledger.entropy import SystemEntropy
    from agent_run_ledger.runs.attempt import Context
    from agent_run_ledger.store import open_sqlite

    store = open_sqlite(db_setting(db).value, create=False)
    try:
        yield Context(store=store, clock=SystemClock(), entropy=SystemEntropy(), limit_bytes=LIMIT_BYTES)
    finally:
        store.close()
