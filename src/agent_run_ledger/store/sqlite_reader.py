"""The read side of a SQLite store: a connection of its own, and iterators that hold it for one chunk at a time."""

from __future__ import annotations

import os
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, TypeVar

import apsw

from agent_run_ledger.errors import Misuse, Refused, Tampered, Unavailable
from agent_run_ledger.kernel.record import RecordKind
from agent_run_ledger.kernel.states import RunState
from agent_run_ledger.kernel.tiles import tile_id
from agent_run_ledger.ports import (
    Event,
    Head,
    InFlight,
    KeptRecord,
    RecordKey,
    RunInFlight,
    RunRow,
    StoredRecord,
    UsageRow,
)
from agent_run_ledger.store.fair_lock import FairLock
from agent_run_ledger.store.forks import forked
from agent_run_ledger.store.sqlite import Place, Rows, close_reader, connect_reader, roll_back
from agent_run_ledger.store.sqlite_driver import Connection, Cursor, Row
from agent_run_ledger.store.sqlite_failures import is_half_done, translated
from agent_run_ledger.store.sqlite_migrations import QUERIES_FILE
from agent_run_ledger.store.sqlite_rows import (
    LANE_BITS,
    budgets_from,
    head_from,
    in_flight_from,
    record_from,
    record_key_from,
    run_from,
    run_in_flight_from,
    state_from,
    usage_from,
)
from agent_run_ledger.store.statements import statements

if TYPE_CHECKING:
    from agent_run_ledger.store.sqlite_effect_reader import SqliteEffectReader

T = TypeVar("T")

_POSITION_BITS = 16
_CHUNK_ROWS = 1_000
_CHUNK_BYTES = 2 << 20
_PAYLOAD = 16
_LENGTH = 18
_MOST_UIDS = 10_000
_MAX_ROW_ID = 2**63 - 1


class SqliteReader:
    """See ports.Reader. Any thread may use it; no statement stays open between two calls or two chunks."""

    def __init__(self, place: Place, *, guarded: bool = False, alone: bool = False) -> None:
        self._place = place
        self._guarded = guarded
        self._alone = alone
        self.lock = FairLock()
        self._q = statements(QUERIES_FILE)
        self._connection: Connection | None = None
        self._uids: dict[int, bytes] = {}
        self._closed = False
        self._pid = os.getpid()

    @property
    def effects(self) -> SqliteEffectReader:
        """See ports.Reader.effects."""
        from agent_run_ledger.store.sqlite_effect_reader import SqliteEffectReader  # see SqliteTx.effects

        return SqliteEffectReader(self._locked, self._place.location)

    def head(self) -> Head:
        """See ports.Reader.head."""
        return head_from(self._fetch("select_head", ()), self._place.location)

    def find_run(self, run_id: str) -> RunRow | None:
        """See ports.Reader.find_run."""
        rows = self._runs(self._fetch("select_run_by_id", (run_id,)))
        return rows[0] if rows else None

    def list_runs(self, *, state: RunState | None, before_row_id: int | None, limit: int) -> list[RunRow]:
        """See ports.Reader.list_runs."""
        before = _below(before_row_id)
        if state is None:
            return self._runs(self._fetch("select_runs", (before, limit)))
        return self._runs(self._fetch("select_runs_in_state", (before, state.value, limit)))

    def queued(self, queue: str, *, after_row_id: int, limit: int) -> list[RunRow]:
        """See ports.Reader.queued."""
        return self._runs(self._fetch("select_queued", (queue, after_row_id, limit)))

    def waiting(self, queue: str, *, after_row_id: int, limit: int) -> list[RunRow]:
        """See ports.Reader.waiting."""
        return self._runs(self._fetch("select_waiting", (queue, after_row_id, limit)))

    def run_row_ids(self, *, before_row_id: int | None, limit: int) -> list[int]:
        """See ports.Reader.run_row_ids."""
        return [row[0] for row in self._fetch("select_run_row_ids", (_below(before_row_id), limit))]

    def result_keys(self, run_row_id: int) -> list[RecordKey]:
        """See ports.Reader.result_keys."""
        return [record_key_from(row) for row in self._fetch("select_result_keys", (run_row_id,))]

    def keys_of(self, record_ids: Sequence[int]) -> list[RecordKey]:
        """See ports.Reader.keys_of."""
        rows = [row for chunk in self._by_id("select_keys", array("q", record_ids)) for row in chunk]
        if len(rows) != len(record_ids):
            raise Tampered(f"{self._place.location}: a result that is referred to is missing", code="row_missing")
        return [record_key_from(row) for row in rows]

    def count_results(self, run_row_id: int) -> int:
        """See ports.Reader.count_results."""
        return int(self._fetch("count_results", (run_row_id,))[0][0])

    def result_names(self, run_row_id: int) -> set[str]:
        """See ports.Reader.result_names."""
        return {row[0] for row in self._fetch("select_result_names", (run_row_id,))}

    def record_names(self, run_row_id: int, *, kinds: Sequence[RecordKind]) -> Iterator[tuple[int, str]]:
        """See ports.Reader.record_names."""
        for rows in self._by_id("select_record_names", self._ids(run_row_id, kinds, -1)):
            yield from ((row[0], row[1]) for row in rows)

    def kept(self, record_ids: Sequence[int]) -> Iterator[KeptRecord]:
        """See ports.Reader.kept."""
        ids, found = array("q", record_ids), 0
        for rows in self._by_id("select_kept", ids):
            found += len(rows)
            yield from (KeptRecord(self._record(row), row[_LENGTH] or 0) for row in rows)
        if found != len(ids):
            raise Tampered(f"{self._place.location}: a record that is to be erased is missing", code="row_missing")

    def erased_names(self, run_row_id: int) -> list[str]:
        """See ports.Reader.erased_names."""
        return [row[0] for row in self._fetch("select_erased_names", (run_row_id,))]

    def has_erasable(self, run_row_id: int) -> bool:
        """See ports.Reader.has_erasable."""
        return any(self._fetch(name, (run_row_id,)) for name in ("select_erasable_result", "select_erasable_other"))

    def usages(self, run_row_id: int) -> Iterator[UsageRow]:
        """See ports.Reader.usages."""
        after = -1
        while rows := self._fetch("select_usages", (run_row_id, after, _CHUNK_ROWS)):
            try:
                yield from map(usage_from, rows)
            except KeyError as error:
                raise self._corrupt(f"a record is of no known kind: {error}") from error
            after = rows[-1][0]

    def get_run(self, row_id: int) -> RunRow:
        """See ports.Reader.get_run."""
        rows = self._runs(self._fetch("select_run", (row_id,)))
        if not rows:
            raise Tampered(f"{self._place.location}: there is no run in row {row_id}", code="row_missing")
        return rows[0]

    def forks_of(self, row_id: int) -> list[RunRow]:
        """See ports.Reader.forks_of."""
        return self._runs(self._fetch("select_forks", (row_id,)))

    def children_of(self, row_id: int) -> list[RunRow]:
        """See ports.Reader.children_of."""
        return self._runs(self._fetch("select_children", (row_id,)))

    def budgets(self, run_row_id: int) -> dict[str, bytes]:
        """See ports.Reader.budgets."""
        return budgets_from(self._fetch("select_budgets", (run_row_id,)))

    def record(self, record_id: int) -> StoredRecord:
        """See ports.Reader.record."""
        rows = self._fetch("select_record", (record_id,))
        if not rows:
            raise Tampered(f"{self._place.location}: record {record_id} is missing", code="row_missing")
        return self._record(rows[0])

    def records(
        self, run_row_id: int, *, kinds: Sequence[RecordKind], after_record_id: int = -1
    ) -> Iterator[StoredRecord]:
        """See ports.Reader.records. The ids are read at once (8 bytes each), the records in chunks."""
        return self._records_by_id(self._ids(run_row_id, kinds, after_record_id))

    def in_flight(self, run_row_id: int) -> list[InFlight]:
        """See ports.Reader.in_flight."""
        first = run_row_id << LANE_BITS
        return [in_flight_from(row) for row in self._fetch("select_in_flight", (first, first + (1 << LANE_BITS)))]

    def run_states(self) -> Mapping[RunState, int]:
        """See ports.Reader.run_states."""
        rows = self._fetch("count_states", ())
        return dict(self._each(lambda row: (state_from(row[0]), int(row[1])), rows))

    def runs_in_flight(self) -> list[RunInFlight]:
        """See ports.Reader.runs_in_flight."""
        return self._each(run_in_flight_from, self._fetch("select_runs_in_flight", ()))

    def orphan_marks(self, *, limit: int) -> list[InFlight]:
        """See ports.Reader.orphan_marks."""
        return [in_flight_from(row) for row in self._fetch("select_orphan_marks", (limit,))]

    def events(self, *, first: int, stop: int) -> Iterator[Event]:
        """See ports.Reader.events."""
        while rows := self._fetch("select_events", (first, stop, _CHUNK_ROWS)):
            for index, op_id, envelope in rows:
                yield Event(index=index, op_id=op_id, envelope=envelope)
            first = rows[-1][0] + 1

    def leaf_records(self, *, first: int, stop: int) -> Iterator[StoredRecord]:
        """See ports.Reader.leaf_records."""
        after, before = first << _POSITION_BITS, stop << _POSITION_BITS
        sql = self._q["select_records_between"]

        def start(cursor: Cursor) -> Cursor:
            return cursor.execute(sql, (after, before))

        while rows := self._chunk(start):
            for row in rows:
                yield self._record(row)
            after = rows[-1][0] + 1

    def tile(self, level: int, index: int) -> bytes | None:
        """See ports.Reader.tile."""
        rows = self._fetch("select_tile", (tile_id(level, index),))
        return rows[0][0] if rows else None

    def tile_roots(self, level: int, *, first: int, stop: int) -> list[bytes]:
        """See ports.Reader.tile_roots."""
        base = tile_id(level, 0)
        return [row[0] for row in self._fetch("select_tile_roots", (base + first, base + stop))]

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

    def _ids(self, run_row_id: int, kinds: Sequence[RecordKind], after_record_id: int) -> array[int]:
        ids: list[int] = []
        if RecordKind.RESULT in kinds:
            ids += [row[0] for row in self._fetch("select_result_ids", (run_row_id, after_record_id))]
        mask = sum(1 << kind for kind in set(kinds) if kind is not RecordKind.RESULT)
        if mask:
            ids += [row[0] for row in self._fetch("select_other_ids", (run_row_id, after_record_id, mask))]
            ids.sort()
        return array("q", ids)

    def _by_id(self, name: str, ids: array[int]) -> Iterator[list[Row]]:
        """Yield the rows that a statement with one place finds for each of these ids, some at a time."""
        sql = self._q[name]
        for at in range(0, len(ids), _CHUNK_ROWS):
            some = [(each,) for each in ids[at : at + _CHUNK_ROWS]]
            yield self._locked(partial(_fetch_many, sql, some))

    def _records_by_id(self, ids: array[int]) -> Iterator[StoredRecord]:
        at, sql = 0, self._q["select_record"]

        def start(cursor: Cursor) -> Cursor:
            return cursor.executemany(sql, [(each,) for each in ids[at : at + _CHUNK_ROWS]])

        while at < len(ids):
            rows = self._chunk(start)
            if not rows:
                raise Tampered(f"{self._place.location}: record {ids[at]} is missing", code="row_missing")
            for row in rows:
                yield self._record(row)
            at += len(rows)

    def _rows_of(self, cursor: Cursor) -> Iterator[Row]:
        def some(_: Connection) -> list[Row]:
            return list(islice(cursor, _CHUNK_ROWS))

        while rows := self._locked(some):
            yield from rows

    def _fetch(self, name: str, bindings: Row) -> list[Row]:
        sql = self._q[name]
        return self._locked(lambda connection: connection.execute(sql, bindings).fetchall())

    def _chunk(self, start: Callable[[Cursor], Cursor]) -> list[Row]:
        """Return the next rows up to a bound of number and of payload bytes; the statement does not stay open."""

        def some(connection: Connection) -> list[Row]:
            cursor, size = start(connection.cursor()), 0
            rows: list[Row] = []
            for row in cursor:
                rows.append(row)
                size += len(row[_PAYLOAD] or b"")
                if size >= _CHUNK_BYTES or len(rows) >= _CHUNK_ROWS:
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

    def _record(self, row: Row) -> StoredRecord:
        run_row_id = row[1]
        uid = self._uids.get(run_row_id)
        if uid is None:
            found = self._fetch("select_run_uid", (run_row_id,))
            if not found:
                raise self._corrupt(f"record {row[0]} belongs to no run")
            if len(self._uids) >= _MOST_UIDS:
                self._uids.clear()
            uid = self._uids[run_row_id] = found[0][0]
        try:
            return record_from(row, uid)
        except KeyError as error:
            raise self._corrupt(f"record {row[0]} is of no known kind: {row[2]!r}") from error

    def _runs(self, rows: list[Row]) -> list[RunRow]:
        return self._each(run_from, rows)

    def _each(self, build: Callable[[Row], T], rows: list[Row]) -> list[T]:
        try:
            return [build(row) for row in rows]
        except KeyError as error:
            raise self._corrupt(f"a run is in no known state: {error}") from error

    def _corrupt(self, what: str) -> Tampered:
        return Tampered(f"{self._place.location}: {what}", code="corrupt")

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            close_reader(connection)  # the writer's connection checkpoints


def _fetch_many(sql: str, bindings: list[tuple[int]], connection: Connection) -> list[Row]:
    return connection.cursor().executemany(sql, bindings).fetchall()


def _below(row_id: int | None) -> int:
    return _MAX_ROW_ID if row_id is None else row_id


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
