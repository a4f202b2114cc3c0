"""The read side of a SQLite store: a connection of its own, and statements that hold it for one chunk at a time."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from typing import TypeVar

import apsw

from agent_run_ledger.errors import Misuse, Refused, Unavailable
from agent_run_ledger.store.fair_lock import FairLock
from agent_run_ledger.store.forks import forked
from agent_run_ledger.store.row_reader import CHUNK_BYTES, CHUNK_ROWS, PAYLOAD, RowReader
from agent_run_ledger.store.rows import Row, Rows
from agent_run_ledger.store.sqlite import Place, close_reader, connect_reader, roll_back
from agent_run_ledger.store.sqlite_driver import Connection, Cursor
from agent_run_ledger.store.sqlite_failures import is_half_done, translated
from agent_run_ledger.store.sqlite_migrations import EFFECTS_FILE, QUERIES_FILE
from agent_run_ledger.store.statements import statements

T = TypeVar("T")


class SqliteReader(RowReader):
    """See RowReader."""

    def __init__(self, place: Place, *, guarded: bool = False, alone: bool = False) -> None:
        super().__init__(place.location, statements(QUERIES_FILE), _with_effects)
        self._place = place
        self._guarded = guarded
        self._alone = alone
        self.lock = FairLock()
        self._connection: Connection | None = None
        self._closed = False
        self._pid = os.getpid()

    def meta(self) -> dict[str, bytes | str | int]:
        """Return all lines of meta."""
        return dict(self._fetch("select_meta", ()))

    def fetch(self, name: str) -> list[Row]:
        """Return all rows of a named statement without parameters, for what only this kind of store can tell."""
        return self._fetch(name, ())

    def pragma(self, name: str) -> int | str:
        """Return the value of a PRAGMA on the read connection."""
        value: int | str = self._locked(lambda connection: connection.pragma(name))
        return value

    def query(self, sql: str) -> Rows:
        """Run people's own SQL: the column names, and the rows in chunks of one consistent state.

        Refused("not_a_read") for everything but reading, Refused("bad_sql") for what SQLite does not understand.
        """

        def run(connection: Connection) -> tuple[tuple[str, ...], Cursor]:
            cursor = connection.cursor()
            try:
                cursor.execute(sql)
                return tuple(name for name, _ in cursor.get_description()), cursor
            except apsw.ExecutionCompleteError:
                return _columns_of(connection, sql), cursor
            except (apsw.SQLError, apsw.BindingsError) as error:
                raise Refused(f"SQLite does not understand this: {error}", code="bad_sql") from error

        columns, cursor = self._locked(run)
        return Rows(columns, self._rows_of(cursor))

    def let_go(self) -> None:
        """Before a fork, with `lock` held: close the connection."""
        self._drop()

    def close(self) -> None:
        """Close after the chunk that is being read. A second call does nothing."""
        try:
            self.lock.acquire(self._place.wait_s)
            self._closed = True
            self._drop()
        finally:
            try:  # noqa: SIM105 - see FairLock
                self.lock.release()
            except RuntimeError:
                pass

    def leak(self) -> object:
        """See SqliteWriter.leak."""
        leaked, self._connection = self._connection, None
        return leaked

    def _rows_of(self, cursor: Cursor) -> Iterator[Row]:
        def some(_: Connection) -> list[Row]:
            return list(islice(cursor, CHUNK_ROWS))

        while rows := self._locked(some):
            yield from rows

    def _fetch(self, name: str, bindings: Row) -> list[Row]:
        sql = self._q[name]
        return self._locked(lambda connection: connection.execute(sql, bindings).fetchall())

    def _found(self, name: str, ids: Sequence[int]) -> list[Row]:
        """See RowReader._found."""
        sql, some = self._q[name], [(each,) for each in ids]
        return self._locked(lambda connection: connection.cursor().executemany(sql, some).fetchall())

    def _some_of(self, ids: Sequence[int]) -> list[Row]:
        """See RowReader._some_of."""
        sql, some = self._q["select_record"], [(each,) for each in ids]
        return self._chunk(lambda cursor: cursor.executemany(sql, some))

    def _some_between(self, first: int, stop: int) -> list[Row]:
        """See RowReader._some_between."""
        sql = self._q["select_records_between"]
        return self._chunk(lambda cursor: cursor.execute(sql, (first, stop)))

    def _chunk(self, start: Callable[[Cursor], Cursor]) -> list[Row]:
        """Return the next rows up to a bound of number and of payload bytes; the statement does not stay open."""

        def some(connection: Connection) -> list[Row]:
            cursor, size = start(connection.cursor()), 0
            rows: list[Row] = []
            for row in cursor:
                rows.append(row)
                size += len(row[PAYLOAD] or b"")
                if size >= CHUNK_BYTES or len(rows) >= CHUNK_ROWS:
                    cursor.close(force=True)
                    break
            return rows

        return self._locked(some)

    def _locked(self, fn: Callable[[Connection], T]) -> T:
        location = self._place.location
        if os.getpid() != self._pid:
            raise forked(location)
        try:
            if not self.lock.acquire(self._place.wait_s):
                raise Unavailable(f"{location} was read by others for {self._place.wait_s:g} s", code="store_busy")
            if self._closed:
                raise Misuse(f"{location} was used after it was closed", code="store_closed")
            if self._connection is None:
                self._connection = connect_reader(self._place, guarded=self._guarded, alone=self._alone)
            try:
                return fn(self._connection)
            except apsw.ReadOnlyError as error:
                if not is_half_done(error):
                    raise
            roll_back(self._place)
            return fn(self._connection)
        except apsw.Error as error:
            raise translated(error, location) from error
        except UnicodeDecodeError as error:
            if self._guarded:
                raise Refused(f"a column is no text: {error}", code="bad_sql", hint="select hex(…) of it") from error
            raise self._corrupt(f"a name is no text: {error}") from error
        finally:
            try:  # noqa: SIM105 - see FairLock
                self.lock.release()
            except RuntimeError:
                pass

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            close_reader(connection)  # the writer's connection checkpoints


def _with_effects() -> Mapping[str, str]:
    return statements(QUERIES_FILE, EFFECTS_FILE)


def _columns_of(connection: Connection, sql: str) -> tuple[str, ...]:
    """Return the column names of a statement without a row, which SQLite forgets when it is through."""
    names: list[str] = []

    def note(cursor: Cursor, _statement: str, _bindings: object) -> bool:
        names.extend(name for name, _ in cursor.get_description())
        return False

    cursor = connection.cursor()
    cursor.set_exec_trace(note)
    with suppress(apsw.ExecTraceAbort):
        cursor.execute(sql)
    return tuple(names)
