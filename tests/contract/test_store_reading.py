"""Every "must" of ports.Reader about the log, on every kind of store."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from dataclasses import replace

import pytest

from agent_run_ledger.errors import LedgerError, Misuse, Tampered
from agent_run_ledger.kernel.envelope import Change
from agent_run_ledger.kernel.record import RecordKind
from agent_run_ledger.kernel.states import RunState
from agent_run_ledger.ledger.verify import verify_log
from agent_run_ledger.ports import Reader, RunInFlight, RunRow, Store, Tx
from tests.contract.store_kit import (
    ENGINES,
    Backend,
    begin,
    check_log,
    do_step,
    end_step,
    engine,
    mark,
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


def test_the_row_ids_of_runs_are_those_that_list_runs_goes_through(store: Store) -> None:
    rows = [begin(store, f"r{number}") for number in range(5)]
    reader = store.reader()
    newest_first = [row.row_id for row in reversed(rows)]
    assert reader.run_row_ids(before_row_id=None, limit=9) == newest_first
    assert reader.run_row_ids(before_row_id=newest_first[1], limit=2) == newest_first[2:4]
    assert reader.run_row_ids(before_row_id=newest_first[-1], limit=9) == []


def test_runs_are_counted_by_state_and_those_in_flight_come_with_their_oldest_mark_first(backend: Backend) -> None:
    store = backend.open()
    rows = [begin(store, f"r{number}") for number in range(3)]
    assert store.reader().run_states() == {RunState.RUNNING: 3}
    assert store.reader().runs_in_flight() == []
    marks = [
        replace(mark(rows[at], key), lane=key, started_at_ms=ms) for at, key, ms in ((1, 1, 50), (2, 1, 30), (1, 2, 70))
    ]

    def start(tx: Tx) -> None:
        for each in marks:
            tx.put_in_flight(each)
            tx.add_change(step_change(rows[0], "none", "started"))

    store.transact(op(), start)
    assert store.reader().runs_in_flight() == [
        RunInFlight("r2", RunState.RUNNING, 30),
        RunInFlight("r1", RunState.RUNNING, 50),
    ]
    backend.forge("log", "UPDATE runs SET state = 'paused' WHERE run_id = 'r2'")
    for read in (store.reader().run_states, store.reader().runs_in_flight):
        with pytest.raises(Tampered, match="no known state"):
            read()


def test_marks_of_runs_that_do_not_exist_are_found(backend: Backend) -> None:
    store = backend.open()
    row = begin(store)
    store.transact(op(), lambda tx: start_step(tx, row, 1))
    reader = store.reader()
    assert reader.orphan_marks(limit=9) == []
    orphans = [replace(mark(row, key), run_row_id=number, lane=2) for key, number in ((7, 77), (8, 78))]

    def forge(tx: Tx) -> None:
        for orphan in orphans:
            tx.put_in_flight(orphan)
        tx.add_change(step_change(row, "none", "started"))

    store.transact(op(), forge)
    assert reader.orphan_marks(limit=9) == orphans
    assert reader.orphan_marks(limit=1) == orphans[:1]
    texts = [problem.text for problem in verify_log(reader).problems]
    for orphan in orphans:
        expected = f"step {orphan.name!r} is in flight in run row {orphan.run_row_id}, which does not exist"
        assert expected in texts


def test_a_run_in_no_known_state_hides_no_other_from_the_audit(backend: Backend) -> None:
    """One row that says "paused" must not make the rows beside it unreadable: a second forgery would go unseen."""
    store = backend.open()
    for number in range(5):
        begin(store, f"r{number}")
    backend.forge(
        "log",
        "UPDATE runs SET state = 'paused' WHERE run_id = 'r2';"
        "UPDATE runs SET attempt = 7 WHERE run_id = 'r1'; UPDATE runs SET attempt = 8 WHERE run_id = 'r4'",
    )
    texts = [problem.text for problem in verify_log(store.reader()).problems]
    assert sum("row 3, cannot be read" in text and "'paused'" in text for text in texts) == 1
    for run_id, attempt in (("r1", 7), ("r4", 8)):
        assert f"the row of run {run_id!r} says attempt {attempt}, the log 1" in texts
    assert len(texts) == 4
    assert any(text.endswith("no row that can be read") for text in texts)


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


def test_the_runs_of_a_queue_are_those_to_be_begun_or_gone_on_with(backend: Backend) -> None:
    store = backend.open()
    rows: dict[str, RunRow] = {}

    def put(run_id: str, queue: str | None, state: RunState, reason: str = "") -> None:
        def write(tx: Tx) -> RunRow:
            uid = op()
            row = tx.insert_run(run_uid=uid, run_id=run_id, holder="me", queue=queue)
            tx.add_change(Change(type="run", id=uid, old="none", new=str(state), generation=1))
            if state is not RunState.RUNNING:
                tx.update_run(
                    row, state=state, reason=reason, generation=1, attempt=1, holder="me",
                    start_record_id=None, last_start_record_id=None, end_record_id=None,
                )  # fmt: skip
            return tx.get_run(row.row_id)

        rows[run_id] = store.transact(op(), write)

    put("own", None, RunState.RUNNING)
    put("submitted", "q", RunState.SUSPENDED, "submitted")
    put("other", "p", RunState.RUNNING)
    put("waits", "q", RunState.SUSPENDED, "ApprovalPending")
    put("runs", "q", RunState.RUNNING)
    for state in (RunState.FAILED, RunState.COMPLETED, RunState.CANCELLED, RunState.QUARANTINED):
        put(str(state), "q", state)
    reader = store.reader()
    assert reader.queued("q", after_row_id=0, limit=9) == [rows["submitted"], rows["runs"]]
    assert reader.queued("q", after_row_id=0, limit=1) == [rows["submitted"]]
    assert reader.queued("q", after_row_id=rows["submitted"].row_id, limit=9) == [rows["runs"]]
    assert reader.waiting("q", after_row_id=0, limit=9) == [rows["waits"]]
    assert reader.waiting("q", after_row_id=rows["waits"].row_id, limit=9) == []
    assert reader.queued("p", after_row_id=0, limit=9) == [rows["other"]]
    assert (rows["own"].queue, rows["waits"].queue) == (None, "q")
