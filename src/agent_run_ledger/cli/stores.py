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
    from agent_run_ledger.store import AnyStore

LIMIT_BYTES = 16 * 1024 * 1024


@contextmanager
def reading(db: str | None) -> Generator[AnyStore, None, None]:
    """Open the configured store for reading and close it at the end; a missing one is never created."""
    from agent_run_ledger.store import open_store

    setting = db_setting(db)
    with hints_for(setting):
        store = open_store(setting.value, create=False, readonly=True)
        try:
            yield store
        finally:
            store.close()


def is_somewhere(setting: Setting) -> bool:
    """Return whether something lies where the store is looked for: a file, or a store at the server that is named.

    Raises what opening a store at a server raises, but for one that is not there.
    """
    from agent_run_ledger.store import is_url, open_store

    if not is_url(setting.value):
        return os.path.lexists(setting.value)
    with hints_for(setting):
        try:
            open_store(setting.value, create=False, readonly=True).close()
        except LedgerError as error:
            if error.code != "no_store":
                raise
            return False
    return True


def open_writable(path: str, *, create: bool) -> AnyStore:
    """Open a store for writing with the durability it was made with, which a mere look must never change."""
    from agent_run_ledger.cli.copies import log_on_stderr
    from agent_run_ledger.store import durability_of, is_url, open_store

    has_content = is_url(path) or (os.path.exists(path) and os.path.getsize(path))
    durability = durability_of(path) if has_content else "full"
    with log_on_stderr():
        return open_store(path, create=create, durability=durability)


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
