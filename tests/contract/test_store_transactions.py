"""Every "must" of ports.Store and of the life of a transaction, on every kind of store."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import suppress

import pytest

from agent_run_ledger import probes
from agent_run_ledger.errors import LedgerError, Misuse, Refused
from agent_run_ledger.kernel.record import RecordKind
from agent_run_ledger.kernel.states import RunState
from agent_run_ledger.ports import RunRow, Store, Tx
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
    begin(store)
    assert store.reader().head().size == 2


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
    called: list[Tx] = []
    with pytest.raises(Misuse) as caught:
        store.transact(op_id, called.append)
    assert caught.value.code == "bad_op_id"
    assert called == []


def test_a_transaction_inside_another_is_refused_and_does_not_hang(store: Store) -> None:
    _failing(store, lambda tx: store.transact(op(), lambda inner: None), Misuse, "nested_transaction")
    _failing(store, lambda tx: store.scrub(), Misuse, "nested_transaction")


@pytest.mark.parametrize("fails", [False, True])
def test_a_transaction_cannot_be_used_after_it_is_over(store: Store, fails: bool) -> None:
    row = begin(store)
    kept: list[Tx] = []

    def keep(tx: Tx) -> None:
        kept.append(tx)
        if fails:
            raise ValueError

    with suppress(ValueError):
        store.transact(op(), keep)
    with pytest.raises(Misuse, match="over"):
        kept[0].put_in_flight(mark(row))
    assert store.reader().in_flight(row.row_id) == []


def test_nothing_is_written_between_the_body_and_the_commit(store: Store) -> None:
    """The leaf is made by then: what another thread wrote now would be in no leaf."""
    row = begin(store)
    kept: list[Tx] = []
    late: list[str] = []

    def body(tx: Tx) -> None:
        kept.append(tx)
        start_step(tx, row, 1)

    def write_late(point: str) -> None:
        if point == "commit.before":
            with pytest.raises(Misuse) as caught:
                kept[0].put_in_flight(mark(row, 2, lane=1))
            late.append(caught.value.code)

    probes.install(write_late)
    try:
        store.transact(op(), body)
    finally:
        probes.install(None)
    assert late == ["transaction_over"]
    assert store.reader().in_flight(row.row_id) == [mark(row, 1)]


def test_the_caller_cannot_swallow_a_refusal(store: Store) -> None:
    row = begin(store)
    do_step(store, row, 1)

    def stubborn(tx: Tx) -> None:
        start_step(tx, row, 2)
        with suppress(Refused):  # a server says it at the transaction's end
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
