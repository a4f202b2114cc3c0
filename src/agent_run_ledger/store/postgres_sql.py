"""People's own SQL at a server: one question, in a transaction that can only read, on a connection of its own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final, cast

import psycopg

from agent_run_ledger.errors import LedgerError, Refused
from agent_run_ledger.store.postgres import QUERIES_FILE, Place, connect
from agent_run_ledger.store.postgres_driver import Connection
from agent_run_ledger.store.postgres_failures import translated
from agent_run_ledger.store.rows import Row, Rows
from agent_run_ledger.store.statements import statements

_WAIT_S: Final = 300.0
"""A question may take some minutes at the server; it is broken off after a multiple of this, should nobody wait."""

_CHUNK_ROWS: Final = 1_000
_PLAIN: Final = (int, float, str, bytes)
_NOT_UNDERSTOOD: Final = ("42", "22", "0A", "08P01")
_NO_RIGHT: Final = "42501"
_READ_ONLY: Final = ("25001", "25006")


def query(place: Place, sql: str) -> Rows:
    """Run one question: the column names, and the rows in chunks of one consistent state.

    The server reads it as the question of a cursor: it is one statement, and a SELECT, VALUES or TABLE. The transaction
    is read-only, and from within a question nothing makes it another. Refused("not_a_read") for what would write,
    Refused("bad_sql") for what is no such question. What a function does beside the rows is for the server to forbid.
    """
    q = statements(QUERIES_FILE)
    connection = connect(replace(place, wait_s=max(place.wait_s, _WAIT_S)), readonly=True, primary=False)
    try:
        connection.execute(q["begin_read"], prepare=False)
        cursor = cast("psycopg.Connection[Row]", connection).cursor(name="asked")
        cursor.itersize = _CHUNK_ROWS
        cursor.execute(cast(Any, sql))
        columns = tuple(column.name for column in cursor.description or ())
    except psycopg.Error as error:
        connection.close()
        raise _meant(error, place.location) from error
    except BaseException:
        connection.close()
        raise
    return Rows(columns, _rows_of(connection, cursor, place.location))


def _rows_of(connection: Connection, cursor: psycopg.ServerCursor[Row], location: str) -> Iterator[Row]:
    try:
        for row in cursor:
            yield tuple(_plain(value) for value in row)
    except psycopg.Error as error:
        raise _meant(error, location) from error
    finally:
        with suppress(psycopg.Error):
            connection.close()


def _plain(value: Any) -> Any:
    """Return a value as a row of SQLite could have it; what is neither number, text nor bytes is text."""
    if isinstance(value, bool):
        return int(value)
    return value if value is None or isinstance(value, _PLAIN) else str(value)


def _meant(error: psycopg.Error, location: str) -> LedgerError:
    state = error.sqlstate or ""
    said = error.diag.message_primary or str(error).split("\n", 1)[0]
    if state in _READ_ONLY or "data-modifying" in said:
        return Refused(f"this is not a read: {said}", code="not_a_read")
    if not state and isinstance(error, psycopg.DataError):
        return Refused(f"a value cannot be shown: {said}", code="bad_sql", hint="cast it to text")
    if state != _NO_RIGHT and state.startswith(_NOT_UNDERSTOOD):
        return Refused(
            f"PostgreSQL does not understand this: {said}", code="bad_sql", hint="one SELECT, VALUES or TABLE at a time"
        )
    return translated(error, location)
