"""Every "must" of ports.Tx about runs, records and marks, on every kind of store."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from agent_run_ledger.errors import LedgerError, Misuse, Refused, Superseded, Tampered
from agent_run_ledger.kernel.envelope import Change
from agent_run_ledger.kernel.record import RecordKind, record_mac
from agent_run_ledger.kernel.states import RunState
from agent_run_ledger.ports import RunRow, RunStanding, Store, Tx
from tests.contract.store_kit import (
    ENGINES,
    Backend,
    SetClock,
    begin,
    begin_in,
    check_log,
    do_step,
    end_step,
    engine,
    mark,
    new_record,
    op,
    start_step,
    step_change,
)


@pytest.fixture(params=ENGINES)
def backend(request: pytest.FixtureRequest) -> Iterator[Backend]:
    with engine(request.param, request) as made:
        yield made


@pytest.fixture
def store(backend: Backend) -> Iterator[Store]:
    opened = backend.open()
    yield opened
    check_log(opened)


def _failing(store: Store, fn: object, error: type[LedgerError], code: str) -> None:
    """Run a transaction that must fail with this error and leave no leaf."""
    size = store.reader().head().size
    with pytest.raises(error) as caught:
        store.transact(op(), fn)  # type: ignore[arg-type]
    assert caught.value.code == code
    assert store.reader().head().size == size


def _update(tx: Tx, row: RunRow, state: RunState, generation: int) -> None:
    tx.update_run(
        row,
        state=state,
        reason="why",
        generation=generation,
        attempt=row.attempt,
        holder="there",
        start_record_id=row.start_record_id,
        last_start_record_id=row.last_start_record_id,
        end_record_id=None,
    )


class _Enough(Exception):
    """Rolls a transaction back."""


# Runs


def test_a_new_run_runs_under_generation_and_attempt_1(store: Store) -> None:
    row = begin(store)
    assert (row.state, row.generation, row.attempt, row.reason) == (RunState.RUNNING, 1, 1, "")
    assert row.start_record_id == row.last_start_record_id == 1 << 16
    assert row.end_record_id is None
    assert row.parent_row_id is None


def test_a_run_id_is_taken_once(store: Store) -> None:
    begin(store)
    _failing(store, lambda tx: begin_in(tx, "r"), Refused, "run_exists")


def test_a_run_can_name_its_parent_which_must_exist(store: Store) -> None:
    parent = begin(store)

    def child(tx: Tx, parent_row_id: int) -> None:
        row = tx.insert_run(run_uid=op(), run_id="child", holder="", parent_row_id=parent_row_id)
        record = new_record(RecordKind.START, row.run_uid)
        born = Change(type="run", id=row.run_uid, old="none", new="running", generation=1, mac=record_mac(record))
        place = tx.add_record(row.row_id, record, born)
        tx.update_run(
            row,
            state=RunState.RUNNING,
            generation=1,
            attempt=1,
            holder="",
            start_record_id=place,
            last_start_record_id=place,
            end_record_id=None,
        )

    _failing(store, lambda tx: child(tx, 99), Misuse, "constraint")
    store.transact(op(), lambda tx: child(tx, parent.row_id))
    found = store.reader().find_run("child")
    assert found is not None
    assert found.parent_row_id == parent.row_id


def test_a_missing_run_row_is_tampering(store: Store) -> None:
    _failing(store, lambda tx: tx.get_run(77), Tampered, "row_missing")
    _failing(store, lambda tx: tx.standing(77), Tampered, "row_missing")
    assert store.transact(op(), lambda tx: tx.find_run("nobody")) is None
    assert store.reader().find_run("nobody") is None


def test_the_standing_of_a_run_is_what_its_row_says_inside_the_transaction_too(store: Store) -> None:
    row = begin(store)

    def quarantine(tx: Tx) -> None:
        assert tx.standing(row.row_id) == (1, RunState.RUNNING, "", row.run_uid)
        _update(tx, row, RunState.QUARANTINED, 2)
        tx.add_change(Change(type="run", id=row.run_uid, old="running", new="quarantined", generation=2))
        assert tx.standing(row.row_id) == RunStanding(
            generation=2, state=RunState.QUARANTINED, reason="why", run_uid=row.run_uid
        )
        raise _Enough

    with pytest.raises(_Enough):
        store.transact(op(), quarantine)
    standing = store.transact(op(), lambda tx: tx.standing(row.row_id))
    assert standing == (row.generation, row.state, row.reason, row.run_uid)
    assert isinstance(standing.state, RunState)


def test_update_writes_the_whole_projection(backend: Backend) -> None:
    clock = SetClock()
    store = backend.open(clock=clock)
    row = begin(store)
    clock.ms += 7

    def fail(tx: Tx) -> None:
        record = new_record(RecordKind.END, row.run_uid)
        done = Change(type="run", id=row.run_uid, old="running", new="failed", generation=1, mac=record_mac(record))
        place = tx.add_record(row.row_id, record, done)
        tx.update_run(
            row,
            state=RunState.FAILED,
            reason="why",
            generation=1,
            attempt=1,
            holder="there",
            start_record_id=row.start_record_id,
            last_start_record_id=row.last_start_record_id,
            end_record_id=place,
        )

    store.transact(op(), fail)
    found = store.reader().find_run("r")
    assert found is not None
    assert (found.state, found.reason, found.holder, found.end_record_id) == (RunState.FAILED, "why", "there", 2 << 16)
    assert (found.created_at_ms, found.updated_at_ms) == (row.created_at_ms, row.created_at_ms + 7)
    check_log(store)


@pytest.mark.parametrize(
    ("state", "generation"), [(RunState.RUNNING, 2), (RunState.FAILED, 1), (RunState.QUARANTINED, 3)]
)
def test_an_attempt_that_was_taken_over_writes_nothing(store: Store, state: RunState, generation: int) -> None:
    """The row was changed since it was read: in its state, in its generation, or in both."""
    row = begin(store)
    kind, by = {
        RunState.RUNNING: (RecordKind.DECISION, "running"),
        RunState.FAILED: (RecordKind.END, "failed"),
        RunState.QUARANTINED: (RecordKind.DECISION, "quarantined"),
    }[state]

    def other(tx: Tx) -> None:
        record = new_record(kind, row.run_uid)
        mac = record_mac(record)
        new = Change(type="run", id=row.run_uid, old="running", new=by, generation=generation, mac=mac)
        place = tx.add_record(row.row_id, record, new)
        tx.update_run(
            row,
            state=state,
            generation=generation,
            attempt=1,
            holder="there",
            start_record_id=row.start_record_id,
            last_start_record_id=row.last_start_record_id,
            end_record_id=place if kind is RecordKind.END else None,
        )

    store.transact(op(), other)

    def late(tx: Tx) -> None:
        start_step(tx, row, 1)
        _update(tx, row, RunState.COMPLETED, 1)

    _failing(store, late, Superseded, "attempt_superseded")
    assert store.reader().in_flight(row.row_id) == []


def test_runs_are_listed_newest_first_in_pages(store: Store) -> None:
    rows = [begin(store, f"r{i}") for i in range(5)]
    reader = store.reader()
    newest_first = [row.run_id for row in reversed(rows)]
    assert [row.run_id for row in reader.list_runs(state=None, before_row_id=None, limit=10)] == newest_first
    assert [row.run_id for row in reader.list_runs(state=None, before_row_id=None, limit=2)] == newest_first[:2]
    third = rows[2].row_id
    assert [row.run_id for row in reader.list_runs(state=None, before_row_id=third, limit=10)] == ["r1", "r0"]
    assert [row.run_id for row in reader.list_runs(state=RunState.RUNNING, before_row_id=third, limit=1)] == ["r1"]
    assert reader.list_runs(state=RunState.FAILED, before_row_id=None, limit=10) == []


# Records


def test_a_record_comes_back_as_it_went_in(store: Store) -> None:
    row = begin(store)
    record = new_record(
        RecordKind.RESULT,
        row.run_uid,
        3,
        scope=b"\x00\xff",
        name="größe 🙂",
        occurrence=2,
        attempt=4,
        tries=5,
        encoding=3,
        payload=bytes(range(256)) * 100,
    )

    def write(tx: Tx) -> int:
        start_step(tx, row, 3)
        tx.clear_in_flight(row.row_id, 0)
        return tx.add_record(row.row_id, record, step_change(row, "started", "recorded", record))

    place = store.transact(op(), write)
    found = store.reader().record(place)
    assert (found.record, found.record_id, found.run_row_id) == (record, place, row.row_id)
    assert record_mac(found.record) == record_mac(record)


def test_a_result_is_recorded_once_per_run_scope_fingerprint_and_occurrence(store: Store) -> None:
    row, other = begin(store), begin(store, "other")
    do_step(store, row, 1)
    size = store.reader().head().size
    with pytest.raises(Refused) as caught:
        do_step(store, row, 1, name="another name")
    assert caught.value.code == "already_recorded"
    assert store.reader().head().size == size
    do_step(store, row, 1, occurrence=1)
    do_step(store, row, 1, scope=b"s")
    do_step(store, row, 2)
    do_step(store, other, 1)
    assert len(store.reader().result_keys(row.row_id)) == 4


def test_a_record_without_a_name_is_misuse(store: Store) -> None:
    """It breaks another rule than the one that tells a repeated result."""
    row = begin(store)
    record = new_record(RecordKind.RESULT, row.run_uid)
    change = step_change(row, "started", "recorded", record)
    record.name = None  # type: ignore[assignment]
    _failing(store, lambda tx: tx.add_record(row.row_id, record, change), Misuse, "constraint")


def test_other_kinds_of_the_same_call_may_repeat(store: Store) -> None:
    row = begin(store)

    def fail(tx: Tx) -> None:
        start_step(tx, row, 1)
        record = new_record(RecordKind.ERROR, row.run_uid, 1)
        tx.add_record(row.row_id, record, step_change(row, "started", "failed", record))
        tx.clear_in_flight(row.row_id, 0)

    store.transact(op(), fail)
    store.transact(op(), fail)
    do_step(store, row, 1)
    assert len(list(store.reader().records(row.row_id, kinds=[RecordKind.ERROR]))) == 2


def test_keys_and_records_come_in_the_order_recorded(store: Store) -> None:
    row, other = begin(store), begin(store, "other")
    keys = [9, 3, 7, 1, 8]
    for key in keys:
        do_step(store, row, key)
        do_step(store, other, key)
    reader = store.reader()
    assert [key.name for key in reader.result_keys(row.row_id)] == [f"step{key}" for key in keys]
    found = list(reader.records(row.row_id, kinds=list(RecordKind)))
    assert [each.record.kind for each in found] == [RecordKind.START] + [RecordKind.RESULT] * 5
    assert [each.record_id for each in found] == sorted(each.record_id for each in found)
    after = found[2].record_id
    assert list(reader.records(row.row_id, kinds=[RecordKind.RESULT], after_record_id=after)) == found[3:]
    assert list(reader.records(row.row_id, kinds=[RecordKind.START, RecordKind.END])) == found[:1]
    assert list(reader.records(row.row_id, kinds=[])) == []
    key = reader.result_keys(row.row_id)[0]
    assert (key.record_id, key.code, key.value_sha256) == (found[1].record_id, b"12345678", bytes(32))


def test_a_missing_record_is_tampering(store: Store) -> None:
    with pytest.raises(Tampered):
        store.reader().record(99 << 16)


# Marks


def test_a_mark_replaces_what_its_lane_held(store: Store) -> None:
    row, other = begin(store), begin(store, "other")
    store.transact(op(), lambda tx: start_step(tx, row, 1, lane=3))
    store.transact(op(), lambda tx: start_step(tx, other, 5))

    def next_step(tx: Tx) -> None:
        end_step(tx, row, 1, lane=2)
        start_step(tx, row, 2, lane=3)

    store.transact(op(), next_step)
    assert store.reader().in_flight(row.row_id) == [mark(row, 2, 3)]
    assert store.transact(op(), lambda tx: tx.in_flight(row.row_id)) == [mark(row, 2, 3)]
    assert store.reader().in_flight(other.row_id) == [mark(other, 5)]


def test_marks_are_listed_by_lane_and_cleared_one_by_one(store: Store) -> None:
    row = begin(store)

    def start(tx: Tx) -> None:
        for lane in (65_535, 0, 7):
            start_step(tx, row, lane, lane)

    store.transact(op(), start)
    assert [each.lane for each in store.reader().in_flight(row.row_id)] == [0, 7, 65_535]
    store.transact(op(), lambda tx: end_step(tx, row, 7, 7))
    assert [each.lane for each in store.reader().in_flight(row.row_id)] == [0, 65_535]


def test_clearing_an_empty_lane_is_no_error_and_no_write(store: Store) -> None:
    row = begin(store)
    store.transact(op(), lambda tx: tx.clear_in_flight(row.row_id, 5))
    assert store.reader().head().size == 2


def test_a_lane_outside_its_range_is_refused(store: Store) -> None:
    row = begin(store)
    with pytest.raises(ValueError, match="lane"):
        store.transact(op(), lambda tx: tx.put_in_flight(mark(row, lane=65_536)))
