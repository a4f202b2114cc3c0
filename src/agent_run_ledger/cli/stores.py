"""Opening the store a command works on: read-only for looking, writable only for a person's decisions."""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from agent_run_ledger.cli.next_steps import no_store_hint, with_store
from agent_run_ledger.cli.settings import Setting, db_setting
from agent_run_ledger.errors import LedgerError

if TYPE_CHECKING:
    from agent_run_ledger.runs.attempt import Context
    from agent_run_ledger.store import SqliteStore

LIMIT_BYTES = 16 * 1024 * 1024


@contextmanager
def reading(db: str | None) -> Generator[SqliteStore, None, None]:
    """Open the configured store for reading and close it at the end; a missing one is never created."""
    from agent_run_ledger.store import open_sqlite

    setting = db_setting(db)
    with hints_for(setting):
        store = open_sqlite(setting.value, create=False, readonly=True)
        try:
            yield store
        finally:
            store.close()


def open_writable(path: str, *, create: bool) -> SqliteStore:
    """Open a store for writing with the durability it was made with, which a mere look must never change."""
    from agent_run_ledger.cli.copies import log_on_stderr
    from agent_run_ledger.store import open_sqlite, stored_durability

    has_content = os.path.exists(path) and os.path.getsize(path)
    durability = stored_durability(path) if has_content else "full"
    with log_on_stderr():
        return open_sqlite(path, create=create, durability=durability)


@contextmanager
def deciding(db: str | None) -> Generator[Context, None, None]:
    """Open the configured store for a decision, with clock and randomness, and close it at the end."""
    from agent_run_ledger.clock import SystemClock
    from agent_run_ledger.entropy import SystemEntropy
    from agent_run_ledger.runs.attempt import Context

    setting = db_setting(db)
    with hints_for(setting):
        store = open_writable(setting.value, create=False)
        try:
            yield Context(store=store, clock=SystemClock(), entropy=SystemEntropy(), limit_bytes=LIMIT_BYTES)
        finally:
            store.close()


@contextmanager
def hints_for(setting: Setting) -> Generator[None, None, None]:
    """Complete the hints of errors from below, which do not know how this store was named to the command line."""
    try:
        yield
    except LedgerError as error:
        error.hint = no_store_hint(setting) if error.code == "no_store" else with_store(error.hint, setting)
        raise
