"""One write transaction on PostgreSQL: how a statement is run, in as few round trips as its answers are needed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import psycopg

from agent_run_ledger.errors import LedgerError, Misuse, Refused
from agent_run_ledger.kernel.envelope import Change
from agent_run_ledger.kernel.record import Record
from agent_run_ledger.store.postgres import EFFECTS_FILE
from agent_run_ledger.store.postgres_failures import breaks_unique, translated
from agent_run_ledger.store.postgres_meta import meta_from, text_of_meta
from agent_run_ledger.store.postgres_wire import Answer, Batch
from agent_run_ledger.store.row_tx import RowTx
from agent_run_ledger.store.rows import Row
from agent_run_ledger.store.statements import statements

_RESULTS = "records_result"
"""The index by which a call is recorded once."""


class PostgresTx(RowTx):
    """See RowTx. Without a `batch` it is over. What is written and not asked for is sent with the next question.

    `ahead`: answers that came with the lock, by statement and values. Each is given once, and none after a write.
    """

    __slots__ = ("_ahead", "_changed", "_recorded", "_why", "batch", "to_send")

    def __init__(
        self,
        batch: Batch,
        q: Mapping[str, str],
        *,
        location: str,
        now_ms: int,
        leaf_index: int,
        epoch: int,
        ahead: dict[tuple[str, Row], Answer] | None = None,
        losses: int = 0,
    ) -> None:
        super().__init__(q, location=location, now_ms=now_ms, leaf_index=leaf_index, epoch=epoch)
        self.losses = losses
        self.batch: Batch | None = batch
        self.to_send = batch
        self._ahead = {} if ahead is None else ahead
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
        self.batch, self._why = None, why

    @property
    def changed_rows(self) -> int:
        """See RowTx.changed_rows."""
        return self._changed

    def fetch(self, sql: str, bindings: Row) -> list[Row]:
        """See RowTx.fetch."""
        batch = self._open()
        try:
            return batch.ask(sql, bindings).fetchall()
        except psycopg.Error as error:
            raise self.fail(self.meant(error)) from error

    def write(self, sql: str, bindings: Row) -> None:
        """See RowTx.write."""
        batch = self._open_to_write()
        try:
            answer = batch.ask(sql, bindings)
        except psycopg.Error as error:
            raise self.fail(self.meant(error)) from error
        self._changed = answer.rowcount

    def write_later(self, sql: str, bindings: Row) -> None:
        """See RowTx.write_later: it is sent, and its answer comes with the next one that is waited for."""
        batch = self._open_to_write()
        try:
            batch.add(sql, bindings)
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
        self._open_to_write()
        row: tuple[Any, ...] = self.fetch(sql, bindings)[0]
        return int(row[0])

    def breaks_unique(self, error: Misuse) -> bool:
        """See RowTx.breaks_unique."""
        return breaks_unique(error.__cause__)

    def _effect_statements(self) -> Mapping[str, str]:
        return statements(EFFECTS_FILE)

    def _fetch(self, name: str, bindings: Row) -> list[Row]:
        answer = self._ahead.pop((name, bindings), None) if self.batch is not None else None
        return super()._fetch(name, bindings) if answer is None else answer.fetchall()

    def _open_to_write(self) -> Batch:
        """What came with the lock is not what the transaction sees from now on."""
        batch, self.wrote = self._open(), True
        self._ahead.clear()
        return batch

    def _open(self) -> Batch:
        if self.batch is None:
            raise self._why or Misuse("this transaction is over", code="transaction_over")
        return self.batch
