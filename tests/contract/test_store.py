"""Every "must" of ports.Store, Tx and Reader, on every kind of store."""

from __future__ import annotations

import threading
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent_run_ledger.errors import LedgerError, Misuse, Refused, Superseded, Tampered
from agent_run_ledger.kernel.envelope import Change
from agent_run_ledger.kernel.record import RecordKind, record_mac
from agent_run_ledger.kernel.states import RunState
from agent_run_ledger.ports import Reader, RunRow, Store, Tx
from tests.contract.store_kit import (
    Backend,
    SetClock,
    begin,
    begin_in,
    check_log,
    do_step,
    end_step,
    mark,
    new_record,
    op,
    sqlite_backend,
    start_step,
    step_change,
)


@pytest.fixture(params=["full", "extra"])
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Backend]:
    with sqlite_backend(tmp_path, request.param) as made:
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


# Creation


def test_a_new_store_has_one_leaf_that_says_so(store: Store) -> None:
    (leaf,) = store.reader().events(first=0, stop=10)
    assert f'"id":"{store.log_id.hex()}","new":"created","old":"none","type":"store"'.encode() in leaf.envelope
    assert len(store.log_id) == 16
    assert store.reader().head().size == 1
    assert not store.authority


def test_the_log_id_stays_and_differs_between_stores(backend: Backend) -> None:
    first = backend.open("a")
    log_id, size = first.log_id, first.reader().head().size
    first.close()
    again = backend.open("a", create=False)
    assert (again.log_id, again.reader().head().size) == (log_id, size)
    assert backend.open("b").log_id != log_id


# Transactions


def test_rows_and_leaf_land_together(store: Store) -> None:
    row = begin(store)
    assert store.reader().find_run("r") == row
    assert store.reader().head().size == 2
    (event,) = store.reader().events(first=1, stop=2)
    assert row.run_uid.hex().encode() in event.envelope


def test_an_exception_rolls_everything_back_and_passes_through(store: Store) -> None:
    class Mine(Exception):
        pass

    def broken(tx: Tx) -> None:
        begin_in(tx, "lost")
        raise Mine

    with pytest.raises(Mine):
        store.transact(op(), broken)
    assert store.reader().find_run("lost") is None
    assert store.reader().head().size == 1


def test_fn_is_called_once_and_its_value_is_returned(store: Store) -> None:
    calls: list[Tx] = []
    assert store.transact(op(), lambda tx: calls.append(tx) or 42) == 42
    assert len(calls) == 1


def test_a_transaction_without_writes_appends_no_leaf(store: Store) -> None:
    begin(store)
    assert store.transact(op(), lambda tx: tx.find_run("r")) is not None
    assert store.reader().head().size == 2


def test_rows_without_a_change_are_refused(store: Store) -> None:
    row = begin(store)
    _failing(store, lambda tx: tx.put_in_flight(mark(row)), Misuse, "rows_and_leaf_differ")
    _failing(store, lambda tx: _update(tx, row, RunState.FAILED, 1), Misuse, "rows_and_leaf_differ")
    assert store.reader().in_flight(row.row_id) == []
    assert store.reader().find_run("r") == row


def test_a_change_without_rows_is_refused(store: Store) -> None:
    row = begin(store)
    _failing(store, lambda tx: tx.add_change(step_change(row, "none", "started")), Misuse, "rows_and_leaf_differ")


def test_an_operation_is_committed_once(store: Store) -> None:
    op_id = op()
    store.transact(op_id, lambda tx: begin_in(tx, "r"))
    with pytest.raises(Refused, match=op_id.hex()) as caught:
        store.transact(op_id, lambda tx: begin_in(tx, "again"))
    assert caught.value.code == "already_committed"
    assert store.reader().find_run("again") is None


@pytest.mark.parametrize("op_id", [b"", bytes(15), bytes(17)])
def test_an_op_id_has_16_bytes(store: Store, op_id: bytes) -> None:
    with pytest.raises(Misuse):
        store.transact(op_id, lambda tx: begin_in(tx, "r"))


def test_a_transaction_inside_another_is_refused_and_does_not_hang(store: Store) -> None:
    _failing(store, lambda tx: store.transact(op(), lambda inner: None), Misuse, "nested_transaction")


def test_a_transaction_cannot_be_used_after_it_is_over(store: Store) -> None:
    kept: list[Tx] = []
    store.transact(op(), kept.append)
    with pytest.raises(Misuse, match="over"):
        kept[0].put_in_flight(mark(begin(store)))


def test_the_caller_cannot_swallow_a_refusal(store: Store) -> None:
    row = begin(store)
    do_step(store, row, 1)

    def stubborn(tx: Tx) -> None:
        start_step(tx, row, 2)
        with pytest.raises(Refused):
            end_step(tx, row, 1)

    _failing(store, stubborn, Refused, "already_recorded")
    assert store.reader().in_flight(row.row_id) == []


def test_time_is_read_inside_and_never_goes_back(backend: Backend) -> None:
    clock = SetClock(5_000_000)
    store = backend.open(clock=clock)
    assert begin(store, "a").created_at_ms == 5_000_000
    clock.ms = 3_000_000
    assert begin(store, "b").created_at_ms == 5_000_000
    clock.ms = 6_000_000
    assert store.transact(op(), lambda tx: tx.now_ms) == 6_000_000
    assert begin(store, "c").created_at_ms == 6_000_000
    assert store.reader().head().time_ms == 6_000_000


def test_changes_and_records_are_numbered_by_their_place_in_the_leaf(store: Store) -> None:
    row = begin(store)
    size = store.reader().head().size

    def several(tx: Tx) -> list[int]:
        for lane in range(3):
            start_step(tx, row, lane, lane)
        return [end_step(tx, row, lane, lane) for lane in range(3)]

    assert store.transact(op(), several) == [size << 16 | position for position in (3, 4, 5)]
    assert [each.leaf_index for each in store.reader().leaf_records(first=size, stop=size + 1)] == [size] * 3


def test_a_record_needs_the_mac_in_its_change(store: Store) -> None:
    row = begin(store)
    record = new_record(RecordKind.RESULT, row.run_uid)
    bare = step_change(row, "started", "recorded")
    _failing(store, lambda tx: tx.add_record(row.row_id, record, bare), Misuse, "mac_missing")


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
    assert store.transact(op(), lambda tx: tx.find_run("nobody")) is None
    assert store.reader().find_run("nobody") is None


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


# Reading the log


def test_leaves_are_read_by_range(store: Store) -> None:
    row = begin(store)
    for key in range(5):
        do_step(store, row, key)
    reader = store.reader()
    assert [event.index for event in reader.events(first=2, stop=5)] == [2, 3, 4]
    assert [event.index for event in reader.events(first=5, stop=1 << 40)] == [5, 6]
    assert list(reader.events(first=9, stop=12)) == []
    assert [each.leaf_index for each in reader.leaf_records(first=3, stop=5)] == [3, 4]
    assert len(list(reader.leaf_records(first=0, stop=1 << 46))) == 6


def test_a_tile_is_written_with_the_leaf_that_completes_it(store: Store) -> None:
    row = begin(store)
    for key in range(253):
        do_step(store, row, key)
    reader = store.reader()
    assert reader.head().size == 255
    assert reader.tile(0, 0) is None
    do_step(store, row, 253)
    assert reader.head().size == 256
    tile = reader.tile(0, 0)
    assert tile is not None
    assert len(tile) == 8_160
    assert reader.tile_roots(0, first=0, stop=5) == [tile[:32]]
    assert reader.head().frontier == (tile[:32],)


def test_iterators_go_on_while_others_write(store: Store) -> None:
    row = begin(store)
    do_step(store, row, 0)
    events = store.reader().events(first=0, stop=1_000)
    next(events)
    do_step(store, row, 1)
    assert len(list(events)) >= 2


@pytest.mark.parametrize("read", ["records", "leaf_records"])
def test_big_records_are_read_in_bounded_memory(store: Store, read: str) -> None:
    row = begin(store)
    for key in range(24):
        do_step(store, row, key, payload=bytes(1 << 20))
    reader: Reader = store.reader()
    tracemalloc.start()
    try:
        found = (
            reader.records(row.row_id, kinds=[RecordKind.RESULT])
            if read == "records"
            else reader.leaf_records(first=0, stop=100)
        )
        size = sum(len(each.record.payload) for each in found)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert size >= 24 << 20
    assert peak < 8 << 20


def test_reading_goes_on_over_more_rows_than_a_chunk_has(store: Store) -> None:
    row = begin(store)

    def many(tx: Tx) -> None:
        for key in range(2_500):
            start_step(tx, row, key)
            end_step(tx, row, key)

    store.transact(op(), many)
    reader = store.reader()
    expected = [f"step{key}" for key in range(2_500)]
    assert [key.name for key in reader.result_keys(row.row_id)] == expected
    assert [each.record.name for each in reader.records(row.row_id, kinds=[RecordKind.RESULT])] == expected
    assert [each.record.name for each in reader.leaf_records(first=2, stop=3)] == expected


def test_a_leaf_holds_at_most_65536_changes(store: Store) -> None:
    row = begin(store)

    def too_many(tx: Tx) -> None:
        tx.put_in_flight(mark(row))
        for _ in range(65_537):
            tx.add_change(step_change(row, "none", "started"))

    _failing(store, too_many, Misuse, "leaf_full")


# Handles, threads, locks


def test_handles_share_one_store_and_close_alone(backend: Backend) -> None:
    first, second = backend.open(), backend.open()
    begin(first)
    assert second.reader().find_run("r") is not None
    first.close()
    first.close()
    begin(second, "later")
    check_log(second)
    with pytest.raises(Misuse):
        first.reader()
    with pytest.raises(Misuse):
        first.transact(op(), lambda tx: None)
    with pytest.raises(Misuse):
        first.lock_run("r")


def test_a_reader_of_a_closed_store_is_refused(backend: Backend) -> None:
    store = backend.open()
    reader = store.reader()
    store.close()
    with pytest.raises(Misuse):
        reader.head()


def test_threads_take_turns(store: Store) -> None:
    row = begin(store)
    failed: list[BaseException] = []

    def work(first: int) -> None:
        try:
            for key in range(first, first + 25):
                do_step(store, row, key)
                store.reader().result_keys(row.row_id)
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(1_000 * i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    assert store.reader().head().size == 2 + 200
    assert len(store.reader().result_keys(row.row_id)) == 200


def test_one_attempt_of_a_run_is_live(backend: Backend) -> None:
    first, second = backend.open(), backend.open()
    lock = first.lock_run("r")
    assert lock is not None
    assert first.lock_run("r") is None
    assert second.lock_run("r") is None
    other = second.lock_run("another run")
    assert other is not None
    lock.release()
    again = second.lock_run("r")
    assert again is not None
    lock.release()
    assert first.lock_run("r") is None, "a second release must not give away somebody else's right"
    again.release()
    other.release()


def test_closing_one_handle_keeps_the_locks_of_the_store(backend: Backend) -> None:
    first, second = backend.open(), backend.open()
    lock = first.lock_run("r")
    first.close()
    assert second.lock_run("r") is None
    assert lock is not None
    lock.release()
    assert second.lock_run("r") is not None
