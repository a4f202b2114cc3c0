"""Rows of the schema, whatever the engine, as the values of ports, in both directions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from agent_run_ledger.errors import Tampered
from agent_run_ledger.kernel.merkle import HASH_BYTES
from agent_run_ledger.kernel.record import Record, RecordKind
from agent_run_ledger.kernel.states import RunState
from agent_run_ledger.ports import Head, InFlight, RecordKey, RunInFlight, RunRow, RunStanding, StoredRecord, UsageRow

Row = tuple[Any, ...]
"""The columns of one row, or what a statement is bound to, in the order of the statement."""


class Rows:
    """The answer to people's own SQL: `columns`, and the rows when iterated, once."""

    def __init__(self, columns: tuple[str, ...], rows: Iterator[Row]) -> None:
        self.columns = columns
        self._rows = rows

    def __iter__(self) -> Iterator[Row]:
        """Yield the rows that are left, as tuples of int, float, str, bytes and None."""
        return self._rows


LANE_BITS = 16
_STATES = {state.value: state for state in RunState}
_KINDS = {kind.value: kind for kind in RecordKind}
_INT, _TEXT, _BLOB, _PLACE, _NAME = (int,), (str,), (bytes,), (int, type(None)), (str, type(None))
_RUN = (_INT, _BLOB, _TEXT, _TEXT, _TEXT, _INT, _INT, _INT, _INT, _TEXT, *(_PLACE,) * 5, _NAME)
_STANDING = (_INT, _TEXT, _TEXT, _BLOB)
_RUN_IN_FLIGHT = (_TEXT, _TEXT, _INT)
_MARK = (_INT, _TEXT, _BLOB, _BLOB, _INT, _INT, _INT, _INT, _INT, _INT, _INT, _BLOB)


def head_from(rows: list[Row], location: str) -> Head:
    """Return the head of one (size, frontier, epoch, time_ms). Tampered("corrupt") without, or for another frontier."""
    if len(rows) != 1:
        raise Tampered(f"{location} has {len(rows)} heads", code="corrupt")
    size, frontier, epoch, time_ms = rows[0]
    if not isinstance(size, int) or not isinstance(frontier, bytes) or len(frontier) != HASH_BYTES * size.bit_count():
        raise Tampered(f"{location}: the head's frontier is not one of its size", code="corrupt")
    roots = tuple([frontier[at : at + HASH_BYTES] for at in range(0, len(frontier), HASH_BYTES)])
    return Head(size=size, frontier=roots, epoch=epoch, time_ms=time_ms)


def run_from(row: Row) -> RunRow:
    """Return a run of the columns of runs in their order. KeyError for an unknown state, Tampered for another type."""
    _check_types(row, _RUN)
    return RunRow(
        row_id=row[0],
        run_uid=row[1],
        run_id=row[2],
        state=_STATES[row[3]],
        reason=row[4],
        generation=row[5],
        attempt=row[6],
        created_at_ms=row[7],
        updated_at_ms=row[8],
        holder=row[9],
        parent_row_id=row[10],
        start_record_id=row[11],
        last_start_record_id=row[12],
        end_record_id=row[13],
        forked_from_row_id=row[14],
        queue=row[15],
    )


def standing_from(row: Row) -> RunStanding:
    """Return a run's standing of (generation, state, reason, run_uid). Errors as of run_from."""
    _check_types(row, _STANDING)
    return RunStanding(row[0], _STATES[row[1]], row[2], row[3])


def state_from(stored: object) -> RunState:
    """Return the state of that name. KeyError for an unknown one."""
    return _STATES[str(stored)]


def run_in_flight_from(row: Row) -> RunInFlight:
    """Return a run with start marks of (run_id, state, oldest start). Errors as of run_from."""
    _check_types(row, _RUN_IN_FLIGHT)
    return RunInFlight(row[0], _STATES[row[1]], row[2])


def in_flight_from(row: Row) -> InFlight:
    """Return a start mark of the columns of in_flight in their order. Tampered for a column of another type."""
    _check_types(row, _MARK)
    place, name, scope, fingerprint, occurrence, attempt, tries, generation, started_at_ms, *more = row
    return InFlight(
        run_row_id=place >> LANE_BITS,
        lane=place & (1 << LANE_BITS) - 1,
        name=name,
        scope=scope,
        fingerprint=fingerprint,
        occurrence=occurrence,
        attempt=attempt,
        tries=tries,
        generation=generation,
        started_at_ms=started_at_ms,
        repeatable=bool(more[0]),
        after_record_id=more[1],
        reserved=more[2],
    )


def _check_types(row: Row, types: tuple[tuple[type, ...], ...]) -> None:
    """SQLite stores any type in any column, so a flipped bit can turn a number into text."""
    if not all(map(isinstance, row, types)):
        raise Tampered(f"a row holds a value of another type: {row!r:.200}", code="corrupt")


def record_key_from(row: Row) -> RecordKey:
    """Return the key of a result of the columns that `select_result_keys` names."""
    record_id, scope, name, fingerprint, occurrence, attempt, code, value_sha256, erased = row[:9]
    return RecordKey(
        record_id=record_id,
        scope=scope,
        name=name,
        fingerprint=fingerprint,
        occurrence=occurrence,
        attempt=attempt,
        code=code,
        value_sha256=value_sha256,
        erased=bool(erased),
    )


def usage_from(row: Row) -> UsageRow:
    """Return what a call used of the columns that `select_usages` names. KeyError for an unknown kind."""
    return UsageRow(row[0], row[1], _KINDS[row[2]], *row[3:])


def record_from(row: Row, run_uid: bytes) -> StoredRecord:
    """Return a record of the columns that `select_record` names. An erased salt or payload comes back empty."""
    record = Record(
        kind=_KINDS[row[2]],
        run_uid=run_uid,
        salt=row[3] or b"",
        scope=row[4],
        name=row[5],
        fingerprint=row[6],
        occurrence=row[7],
        attempt=row[8],
        tries=row[9],
        started_at_ms=row[10],
        ended_at_ms=row[11],
        inputs=row[12],
        code=row[13],
        value_sha256=row[14],
        encoding=row[15],
        payload=row[16] or b"",
        usage=row[17] or b"",
    )
    return StoredRecord(record_id=row[0], run_row_id=row[1], record=record)


def row_of_record(record_id: int, run_row_id: int, record: Record) -> Row:
    """Return the bindings of `insert_record`."""
    return (
        record_id,
        run_row_id,
        record.kind.value,
        record.scope,
        record.name,
        record.fingerprint,
        record.occurrence,
        record.attempt,
        record.tries,
        record.started_at_ms,
        record.ended_at_ms,
        record.inputs,
        record.code,
        record.value_sha256,
        record.encoding,
        record.salt,
        record.payload,
        record.usage or None,
    )


def row_of_in_flight(mark: InFlight) -> Row:
    """Return the bindings of `put_in_flight`."""
    return (
        place_of(mark.run_row_id, mark.lane),
        mark.name,
        mark.scope,
        mark.fingerprint,
        mark.occurrence,
        mark.attempt,
        mark.tries,
        mark.generation,
        mark.started_at_ms,
        int(mark.repeatable),
        mark.after_record_id,
        mark.reserved,
    )


def place_of(run_row_id: int, lane: int) -> int:
    """Return run_row_id << 16 | lane, the key of a start mark. ValueError for a lane outside 0..65535."""
    if lane >> LANE_BITS:
        raise ValueError(f"there is no lane {lane}")
    return run_row_id << LANE_BITS | lane


def budgets_from(rows: list[Row]) -> dict[str, bytes]:
    """Return the counters by tool of the rows that `select_budgets` names. Tampered for a column of another type."""
    for row in rows:
        _check_types(row, (_TEXT, _BLOB))
    return dict(rows)
