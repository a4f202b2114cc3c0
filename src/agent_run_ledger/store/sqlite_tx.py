"""One write transaction on SQLite: how a statement is run, and what only this store's transactions can do."""

from __future__ import annotations

from collections.abc import Mapping

import apsw

from agent_run_ledger.errors import LedgerError, Misuse, Tampered
from agent_run_ledger.store.row_tx import RowTx
from agent_run_ledger.store.rows import Row
from agent_run_ledger.store.sqlite_driver import Cursor, extended_code
from agent_run_ledger.store.sqlite_failures import translated
from agent_run_ledger.store.sqlite_migrations import EFFECTS_FILE
from agent_run_ledger.store.statements import statements


class SqliteTx(RowTx):
    """See RowTx. Without a `cursor` it is over."""

    __slots__ = ("_connection", "_why", "cursor")

    def __init__(
        self, cursor: Cursor, q: Mapping[str, str], *, location: str, now_ms: int, leaf_index: int, epoch: int
    ) -> None:
        super().__init__(q, location=location, now_ms=now_ms, leaf_index=leaf_index, epoch=epoch)
        self.cursor: Cursor | None = cursor
        self._why: LedgerError | None = None
        self._connection = cursor.connection

    def meta(self, key: str) -> bytes | str | int:
        """Return one line of meta as the transaction sees it."""
        lines: dict[str, bytes | str | int] = dict(self._fetch("select_meta", ()))
        return lines[key]

    def metas(self) -> dict[str, bytes | str | int]:
        """Return all lines of meta as the transaction sees them."""
        return dict(self._fetch("select_meta", ()))

    def put_meta(self, key: str, value: bytes | int) -> None:
        """Write one line of meta, whether it exists or not; its change is the caller's to add."""
        self._write("put_meta", (key, value))

    def set_meta(self, key: str, value: bytes | str | int) -> None:
        """Overwrite one line of meta that exists; its change is the caller's to add."""
        self._write("update_meta", (value, key))

    def end(self, why: LedgerError | None = None) -> None:
        """Make every later use raise `why`, or Misuse: rows written after the commit would have no leaf."""
        self.cursor, self._why = None, why

    @property
    def changed_rows(self) -> int:
        """See RowTx.changed_rows."""
        return self._connection.changes()

    def fetch(self, sql: str, bindings: Row) -> list[Row]:
        """See RowTx.fetch."""
        try:
            return self._open_cursor().execute(sql, bindings).fetchall()
        except apsw.Error as error:
            raise self.fail(translated(error, self._location)) from error
        except UnicodeDecodeError as error:
            raise self.fail(Tampered(f"{self._location}: a name is no text: {error}", code="corrupt")) from error

    def write(self, sql: str, bindings: Row) -> None:
        """See RowTx.write."""
        self.wrote = True
        try:
            self._open_cursor().execute(sql, bindings)
        except apsw.Error as error:
            raise self.fail(translated(error, self._location)) from error

    def insert(self, sql: str, bindings: Row) -> int:
        """See RowTx.insert."""
        self.write(sql, bindings)
        return self._connection.last_insert_rowid()

    def breaks_unique(self, error: Misuse) -> bool:
        """See RowTx.breaks_unique."""
        cause = error.__cause__
        return isinstance(cause, apsw.ConstraintError) and extended_code(cause) == apsw.SQLITE_CONSTRAINT_UNIQUE

    def _effect_statements(self) -> Mapping[str, str]:
        return statements(EFFECTS_FILE)

    def _open_cursor(self) -> Cursor:
        if self.cursor is None:
            raise self._why or Misuse("this transaction is over", code="transaction_over")
        return self.cursor
