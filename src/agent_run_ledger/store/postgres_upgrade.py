"""Brings a PostgreSQL store of an older schema version forward, on a connection of its own."""

from __future__ import annotations

from contextlib import closing

import psycopg

from agent_run_ledger.clock import SystemClock
from agent_run_ledger.entropy import SystemEntropy
from agent_run_ledger.store.postgres import connect, place_of
from agent_run_ledger.store.postgres_failures import translated
from agent_run_ledger.store.postgres_schema import upgrade

_WAIT_S = 600.0
"""A migration may take minutes, and waits for whoever has the tables in use."""


def upgrade_postgres(url: str) -> int | None:
    """Bring the store to this program's version and return which one it had, None where there was nothing to do.

    Whoever has it open must be stopped before: a program that knows the older version alone goes on with its own
    statements. Errors as for `open_postgres`; after each of them the store is what it was.
    """
    place = place_of(url, wait_s=_WAIT_S, entropy=SystemEntropy())
    with closing(connect(place)) as connection:
        try:
            return upgrade(connection, place.location, now_ms=SystemClock().now_ms())
        except psycopg.Error as error:
            raise translated(error, place.location) from error
