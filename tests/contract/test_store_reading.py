"""Every "must" of ports.Reader about the log, on every kind of store."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator

import pytest

from agent_run_ledger.errors import LedgerError, Misuse
from agent_run_ledger.kernel.record import RecordKind
from agent_run_ledger.ports import Reader, Store, Tx
from tests.contract.store_kit import (
    Backend,
    begin,
    check_log,
    do_step,
    end_step,
    mark,
    op,
    quick_folder,
    sqlite_backend,
    start_step,
    step_change,
)


@pytest.fixture(params=["full", "extra"])
def backend(request: pytest.FixtureRequest) -> Iterator[Backend]:
    with quick_folder() as folder, sqlite_backend(folder, request.param) as made:
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
