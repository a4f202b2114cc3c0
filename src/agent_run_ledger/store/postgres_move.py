"""A PostgreSQL store as one of the two of a move: made without a leaf, filled in transactions, read, discarded."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from typing import Any, Final

import psycopg

from agent_run_ledger.clock import SystemClock
from agent_run_ledger.errors import Refused, Unavailable, Uncertain
from agent_run_ledger.ports import Entropy, Head
from agent_run_ledger.store.move_sides import FillingSide, Side, Spot, row_of_head
from agent_run_ledger.store.moves import MOVER, Move, Mover, is_filled_by, lines_of
from agent_run_ledger.store.postgres import QUERIES_FILE, Place, connect, place_of
from agent_run_ledger.store.postgres_driver import Connection
from agent_run_ledger.store.postgres_failures import translated, unconfirmed
from agent_run_ledger.store.postgres_meta import meta_from, text_of_meta
from agent_run_ledger.store.postgres_schema import look, make_tables, recognise
from agent_run_ledger.store.postgres_store import PostgresStore, open_postgres
from agent_run_ledger.store.postgres_wire import Batch
from agent_run_ledger.store.rows import Row
from agent_run_ledger.store.statements import statements

MOVE_FILE: Final = "postgres_move.sql"

_LONG_S = 600.0
"""What may be waited for: a count of all rows has no index that makes it short."""

_COUNTED = ("runs", "budgets", "actions", "approvals", "answers")
"""The tables whose keys the server makes."""


class PostgresSide(Side):
    """See Side."""

    def __init__(self, place: Place, connection: Connection | None = None) -> None:
        super().__init__(place.location, statements(QUERIES_FILE, MOVE_FILE))
        self._connection = connect(_patient(place), readonly=True) if connection is None else connection

    def fetch(self, name: str, bindings: Row = ()) -> list[Row]:
        """See Side.fetch."""
        try:
            return self._connection.ask(self._q[name], bindings)
        except psycopg.Error as error:
            raise translated(error, self.location) from error

    def close(self) -> None:
        """See Side.close."""
        self._connection.close()


class PostgresFilling(PostgresSide, FillingSide):
    """See Filling. The one trigger that knows how an action begins is off inside the transactions that bring some."""

    def __init__(self, place: Place, mover: Mover) -> None:
        super().__init__(place, connect(_patient(place)))
        self.mover = mover
        self._warnings: list[str] = []
        self._connection.add_notice_handler(self._note)

    def take_over(self) -> None:
        """See FillingSide.take_over."""
        line = MOVER, text_of_meta(self.mover.token)
        self._whole(lambda batch: batch.add(self._q["put_meta"], line), taken=False)

    def put(self, table: str, rows: Sequence[Row]) -> None:
        """See Filling.put."""

        def fill(batch: Batch) -> None:
            q = self._q
            if table == "actions":
                batch.add(q["let_any_begin"], prepare=False)
            for row in rows:
                batch.add(q[f"fill_{table}"], row)
            if table == "actions":
                batch.add(q["let_none_begin"], prepare=False)

        self._whole(fill)

    def put_head(self, head: Head) -> None:
        """See Filling.put_head."""

        def end(batch: Batch) -> None:
            for table in _COUNTED:
                batch.add(self._q[f"advance_{table}"])
            batch.add(self._q["put_head"], row_of_head(head))

        self._whole(end)
        if self._warnings:
            raise Uncertain(
                f"{self.location}: what was copied is committed, and not confirmed: {self._warnings[0]}",
                code="commit_unconfirmed",
                hint="when the standbys answer, run the same thing",
            )

    def _whole(self, add: Callable[[Batch], object], *, taken: bool = True) -> None:
        batch, q = self._connection.batch(), self._q
        self._warnings.clear()
        try:
            batch.add(q["begin"])
            batch.add(q["lock_head"])
            self.check(meta_from(batch.ask(q["select_meta"]).fetchall()), taken=taken)
            add(batch)
            answer = batch.ask(q["commit"], prepare=False)
            if answer.statusmessage != q["commit"]:
                raise Unavailable(f"{self.location} rolled the transaction back", code="store_failed")
        except psycopg.Error as error:
            raise translated(error, self.location) from error

    def _note(self, diagnostic: psycopg.errors.Diagnostic) -> None:
        if unconfirmed(diagnostic):
            self._warnings.append(f"{diagnostic.message_primary} ({diagnostic.sqlstate})")


class PostgresSpot(Spot):
    """See Spot. The database must exist."""

    def __init__(self, url: str, *, wait_s: float, entropy: Entropy) -> None:
        self._url = url
        self._place = place_of(url, wait_s=wait_s, entropy=entropy)
        self.location = self._place.location

    def meta(self) -> dict[str, Any] | None:
        """See Spot.meta."""
        with self._connected() as connection:
            return dict(recognise(connection, self.location)) if look(connection, self.location).store else None

    def make(self, meta: Mapping[str, Any], move: Move) -> None:
        """See Spot.make. Refused: foreign_schema, no_permission, target_not_empty."""
        q, now_ms = statements(QUERIES_FILE), SystemClock().now_ms()
        kept = [(key, meta[key]) for key in ("log_id", "created_at_ms", "authority", "is_copy")]
        with self._connected() as connection, connection.transaction():
            connection.execute(q["lock_making"], prepare=False)
            if look(connection, self.location).store:
                raise Refused(f"{self.location} got a store meanwhile", code="target_not_empty")
            make_tables(connection, now_ms=now_ms)
            for key, value in (*kept, *lines_of(move)):
                connection.execute(q["insert_meta"], (key, text_of_meta(value)))
            connection.execute(q["insert_head"], (now_ms,))

    def discard(self, mover: Mover) -> bool:
        """See Spot.discard."""
        q = statements(QUERIES_FILE, MOVE_FILE)
        with self._connected() as connection, connection.transaction():
            connection.execute(q["lock_making"], prepare=False)
            if not look(connection, self.location).store:
                return False
            connection.execute(q["lock_head"], prepare=False)
            if not is_filled_by(recognise(connection, self.location), mover, self.location):
                return False
            connection.execute(q["discard"], prepare=False)
            return True

    def reading(self) -> PostgresSide:
        """See Spot.reading."""
        return PostgresSide(self._place)

    def filling(self, mover: Mover) -> PostgresFilling:
        """See Spot.filling."""
        return PostgresFilling(self._place, mover)

    def open(self) -> PostgresStore:
        """See Spot.open."""
        return open_postgres(
            self._url, create=False, wait_s=self._place.wait_s, entropy=self._place.entropy, moving=True
        )

    @contextmanager
    def _connected(self) -> Generator[Connection, None, None]:
        with closing(connect(self._place)) as connection:
            try:
                yield connection
            except psycopg.Error as error:
                raise translated(error, self.location) from error


def _patient(place: Place) -> Place:
    return replace(place, wait_s=max(place.wait_s, _LONG_S))
