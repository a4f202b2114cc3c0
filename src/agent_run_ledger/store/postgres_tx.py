"""One write transaction on PostgreSQL: how a statement is run, in as few round trips as its answers are needed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import psycopg

from agent_run_ledger.errors import LedgerError, Misuse, Refused
from agent_run_ledger.kernel.envelope import Change
from agent_run_ledger.kernel.record import Record
from agent_run_ledger.store.postgres import EFFECTS_FILE
from agent_run_ledger.store.postgres_driver import Connection, Pipeline
from agent_run_ledger.store.postgres_failures import breaks_unique, translated
from agent_run_ledger.store.postgres_meta import meta_from, text_of_meta
from agent_run_ledger.store.row_tx import RowTx
from agent_run_ledger.store.rows import Row
from agent_run_ledger.store.statements import statements

_RESULTS = "records_result"
"""The index by which a call is recorded once."""


class PostgresTx(RowTx):
    """See RowTx. Without a `pipeline` it is over."""

    __slots__ = ("_changed", "_connection", "_recorded", "_why", "pipeline")

    def __init__(
        self,
        connection: Connection,
        pipeline: Pipeline,
        q: Mapping[str, str],
        *,
        location: str,
        now_ms: int,
        leaf_index: int,
        epoch: int,
    ) -> None:
        super().__init__(q, location=location, now_ms=now_ms, leaf_index=leaf_index, epoch=epoch)
        self.pipeline: Pipeline | None = pipeline
        self._connection = connection
        self._changed = 0
        self._recorded: list[str] = []
        self._why: LedgerError | None = None

    def meta(self, key: str) -> bytes | int:
        """Return one line of meta as the transaction sees it."""
        return meta_from(self._fetch("select_meta", ()))[key]

    def metas(self) -> dict[str, bytes | int]:
        """Return all lines of meta as the transaction sees them."""
        return meta_from(self._fetch("select_meta", ()))

    def put_meta(self, key: str, value: bytes | int) -> None:
        """Write one line of meta, whether it exists or not; its change is the caller's to add."""
        self._write("put_meta", (key, text_of_meta(value)))

    def set_meta(self, key: str, value: bytes | int) -> None:
        """Overwrite one line of meta that exists; its change is the caller's to add."""
        self._write("update_meta", (text_of_meta(value), key))

    def end(self, why: LedgerError | None = None) -> None:
        """Make every later use raise `why`, or Misuse: rows written after the commit would have no leaf."""
        self.pipeline, self._why = None, why

    @property
    def changed_rows(self) -> int:
        """See RowTx.changed_rows."""
        return self._changed

    def fetch(self, sql: str, bindings: Row) -> list[Row]:
        """See RowTx.fetch."""
        self._open()
        try:
            return self._connection.execute(sql, bindings, binary=True).fetchall()
        except psycopg.Error as error:
            raise self.fail(self.meant(error)) from error

    def write(self, sql: str, bindings: Row) -> None:
        """See RowTx.write."""
        pipeline, self.wrote = self._open(), True
        try:
            cursor = self._connection.execute(sql, bindings, binary=True)
            pipeline.sync()
        except psycopg.Error as error:
            raise self.fail(self.meant(error)) from error
        self._changed = cursor.rowcount

    def write_later(self, sql: str, bindings: Row) -> None:
        """See RowTx.write_later: it is sent, and its answer comes with the next one that is waited for."""
        self._open()
        self.wrote = True
        try:
            self._connection.execute(sql, bindings, binary=True)
        except psycopg.Error as error:
            raise self.fail(self.meant(error)) from error

    def announce(self) -> None:
        """See RowTx.announce: the server tells it to who listens, after the commit."""
        self.fetch(self._q["announce_run"], ())

    def add_record(self, run_row_id: int, record: Record, change: Change) -> int:
        """See ports.Tx.add_record."""
        self._recorded.append(f"{record.name!r}, occurrence {record.occurrence}")
        return super().add_record(run_row_id, record, change)

    def meant(self, error: psycopg.Error) -> LedgerError:
        """Return what an error says of this transaction, whichever of its statements it comes from."""
        if breaks_unique(error) and error.diag.constraint_name == _RESULTS:
            which = self._recorded[0] if len(self._recorded) == 1 else f"one of {len(self._recorded)}"
            return Refused(f"step {which}, is already recorded in this run", code="already_recorded")
        return translated(error, self._location)

    def insert(self, sql: str, bindings: Row) -> int:
        """See RowTx.insert."""
        self.wrote = True
        row: tuple[Any, ...] = self.fetch(sql, bindings)[0]
        return int(row[0])

    def breaks_unique(self, error: Misuse) -> bool:
        """See RowTx.breaks_unique."""
        return breaks_unique(error.__cause__)

    def _effect_statements(self) -> Mapping[str, str]:
        return statements(EFFECTS_FILE)

    def _open(self) -> Pipeline:
        if self.pipeline is None:
            raise self._why or Misuse("this transaction is over", code="transaction_over")
        return self.pipeline
