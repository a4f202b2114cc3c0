"""The read side of a store in rows, whatever the engine: iterators that hold a connection for one chunk at a time."""

from __future__ import annotations

from abc import ABC, abstractmethod
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from agent_run_ledger.errors import Tampered
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
from agent_run_ledger.store.rows import (
    LANE_BITS,
    Row,
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

if TYPE_CHECKING:
    from agent_run_ledger.store.effect_reader import RowEffectReader

T = TypeVar("T")

CHUNK_ROWS = 1_000
CHUNK_BYTES = 2 << 20
PAYLOAD = 16
"""The place of the payload among the columns of `select_record`."""

_POSITION_BITS = 16
_LENGTH = 18
_MOST_UIDS = 10_000
_MAX_ROW_ID = 2**63 - 1


class RowReader(ABC):
    """See ports.Reader. Any thread may use it; no statement stays open between two calls or two chunks.

    An engine runs its statements, all of which take their values and give their columns in one order. `more` are its
    statements of effects, asked for when somebody reads effects.
    """

    def __init__(self, location: str, q: Mapping[str, str], more: Callable[[], Mapping[str, str]]) -> None:
        self._location = location
        self._q = q
        self._more = more
        self._uids: dict[int, bytes] = {}

    @abstractmethod
    def _fetch(self, name: str, bindings: Row) -> list[Row]:
        """Return the rows of a named statement."""

    @abstractmethod
    def _locked(self, fn: Callable[[Any], T], /) -> T:
        """Run a function with a connection of this reader that nobody else uses meanwhile."""

    @abstractmethod
    def _found(self, name: str, ids: Sequence[int]) -> list[Row]:
        """Return the rows that a named statement finds for each of these ids, in their order."""

    @abstractmethod
    def _some_of(self, ids: Sequence[int]) -> list[Row]:
        """Return the records of the first of these ids, in their order: as many as CHUNK_BYTES of payloads allow."""

    @abstractmethod
    def _some_between(self, first: int, stop: int) -> list[Row]:
        """Return the first records with first ≤ id < stop: as many as CHUNK_ROWS and CHUNK_BYTES allow."""

    @property
    def effects(self) -> RowEffectReader:
        """See ports.Reader.effects."""
        from agent_run_ledger.store.effect_reader import RowEffectReader  # see RowTx.effects

        return RowEffectReader(self._locked, self._location, self._more())

    def head(self) -> Head:
        """See ports.Reader.head."""
        return head_from(self._fetch("select_head", ()), self._location)

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
            raise Tampered(f"{self._location}: a result that is referred to is missing", code="row_missing")
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
            raise Tampered(f"{self._location}: a record that is to be erased is missing", code="row_missing")

    def erased_names(self, run_row_id: int) -> list[str]:
        """See ports.Reader.erased_names."""
        return [row[0] for row in self._fetch("select_erased_names", (run_row_id,))]

    def has_erasable(self, run_row_id: int) -> bool:
        """See ports.Reader.has_erasable."""
        return any(self._fetch(name, (run_row_id,)) for name in ("select_erasable_result", "select_erasable_other"))

    def usages(self, run_row_id: int) -> Iterator[UsageRow]:
        """See ports.Reader.usages."""
        after = -1
        while rows := self._fetch("select_usages", (run_row_id, after, CHUNK_ROWS)):
            try:
                yield from map(usage_from, rows)
            except KeyError as error:
                raise self._corrupt(f"a record is of no known kind: {error}") from error
            after = rows[-1][0]

    def get_run(self, row_id: int) -> RunRow:
        """See ports.Reader.get_run."""
        rows = self._runs(self._fetch("select_run", (row_id,)))
        if not rows:
            raise Tampered(f"{self._location}: there is no run in row {row_id}", code="row_missing")
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
            raise Tampered(f"{self._location}: record {record_id} is missing", code="row_missing")
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
        while rows := self._fetch("select_events", (first, stop, CHUNK_ROWS)):
            for index, op_id, envelope in rows:
                yield Event(index=index, op_id=op_id, envelope=envelope)
            first = rows[-1][0] + 1

    def leaf_records(self, *, first: int, stop: int) -> Iterator[StoredRecord]:
        """See ports.Reader.leaf_records."""
        after, before = first << _POSITION_BITS, stop << _POSITION_BITS
        while rows := self._some_between(after, before):
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
        """Yield the rows that a statement finds for each of these ids, some at a time."""
        for at in range(0, len(ids), CHUNK_ROWS):
            yield self._found(name, ids[at : at + CHUNK_ROWS])

    def _records_by_id(self, ids: array[int]) -> Iterator[StoredRecord]:
        at = 0
        while at < len(ids):
            rows = self._some_of(ids[at : at + CHUNK_ROWS])
            if not rows:
                raise Tampered(f"{self._location}: record {ids[at]} is missing", code="row_missing")
            for row in rows:
                yield self._record(row)
            at += len(rows)

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
        return Tampered(f"{self._location}: {what}", code="corrupt")


def _below(row_id: int | None) -> int:
    return _MAX_ROW_ID if row_id is None else row_id
