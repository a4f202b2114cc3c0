"""Every "must" of ports.Tx and ports.Reader about erased records, on every kind of store."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

from agent_run_ledger.errors import Tampered
from agent_run_ledger.kernel.envelope import Change
from agent_run_ledger.kernel.erasure import ERASABLE, erased_form, kept_digest, kept_sha256
from agent_run_ledger.kernel.record import Record, RecordKind, record_mac
from agent_run_ledger.ports import RunRow, Store, Tx
from tests.contract.store_kit import (
    Backend,
    begin,
    check_log,
    do_step,
    mark,
    new_record,
    op,
    quick_folder,
    sqlite_backend,
    start_step,
    step_change,
)


@pytest.fixture(params=["full", "extra"])
def store(request: pytest.FixtureRequest) -> Iterator[Store]:
    with quick_folder() as folder, sqlite_backend(folder, request.param) as backend:
        opened: Store = _opened(backend)
        yield opened
        check_log(opened)


def _opened(backend: Backend) -> Store:
    return backend.open()


def _erase(store: Store, row: RunRow, record_ids: Sequence[int], *, lanes: Sequence[int] = ()) -> int:
    """Erase records as a decision says it, in one transaction; return how many the store erased."""
    digests = [
        kept_digest(erased_form(kept.record.record_id, kept.record.record)) for kept in store.reader().kept(record_ids)
    ]
    content = (
        f'{{"event":"erase","count":{len(record_ids)},"ranges":{[[one, one] for one in record_ids]},'
        f'"kept_sha256":"{kept_sha256(digests).hex()}"}}'
    )

    def write(tx: Tx) -> int:
        erased = tx.erase_records(row.row_id, record_ids)
        tx.erase_marks(row.row_id, lanes)
        record = Record(
            kind=RecordKind.DECISION, run_uid=row.run_uid, salt=b"s" * 32, name="erase", payload=content.encode()
        )
        change = Change(
            type="step", id=row.run_uid, old="recorded", new="erased", generation=row.generation, mac=record_mac(record)
        )
        tx.add_record(row.row_id, record, change)
        return erased

    return store.transact(op(), write)


def test_an_erased_record_is_what_the_format_says_and_no_key_of_any_call(store: Store) -> None:
    row = begin(store)
    places = [do_step(store, row, number) for number in (1, 2, 3)]
    reader = store.reader()
    before = [reader.record(place).record for place in places]
    assert _erase(store, row, places[:2]) == 2
    for place, record in zip(places[:2], before, strict=False):
        stored = reader.record(place)
        assert stored.erased
        assert stored.record == erased_form(place, record)
    assert reader.record(places[2]).record == before[2]
    assert [key.erased for key in reader.result_keys(row.row_id)] == [True, True, False]
    assert [key.erased for key in reader.keys_of(places)] == [True, True, False]
    assert len(reader.result_names(row.row_id)) == 3
    assert reader.erased_names(row.row_id) == ["step1", "step2"]
    assert [name for _, name in reader.record_names(row.row_id, kinds=ERASABLE)] == ["step0", "step3"]


def test_what_is_erased_already_or_of_another_run_is_not_erased(store: Store) -> None:
    row, other = begin(store), begin(store, "other")
    mine, theirs = do_step(store, row, 1), do_step(store, other, 1)
    assert _erase(store, row, [mine]) == 1
    erased: list[int] = []

    def again(tx: Tx) -> None:
        erased.append(tx.erase_records(row.row_id, [mine, theirs, 99 << 16]))
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        store.transact(op(), again)
    assert erased == [0]
    assert not store.reader().record(theirs).erased


def test_ends_and_decisions_are_never_erased(store: Store) -> None:
    row = begin(store)
    place = do_step(store, row, 1)
    _erase(store, row, [place])
    decision = store.reader().head().size - 1 << 16
    counted: list[int] = []

    def erase(tx: Tx) -> None:
        counted.append(tx.erase_records(row.row_id, [decision]))
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        store.transact(op(), erase)
    assert counted == [0]


def test_a_store_knows_whether_there_is_anything_left_to_erase(store: Store) -> None:
    row, other = begin(store), begin(store, "other")
    place = do_step(store, row, 1)
    reader = store.reader()
    start = next(iter(reader.records(row.row_id, kinds=[RecordKind.START]))).record_id
    assert reader.has_erasable(row.row_id)
    _erase(store, row, [start])
    assert reader.has_erasable(row.row_id)
    _erase(store, row, [place])
    assert not reader.has_erasable(row.row_id)
    assert reader.has_erasable(other.row_id)
    assert not reader.has_erasable(99)


def test_marks_lose_their_fingerprints_and_nothing_else(store: Store) -> None:
    row = begin(store)
    place = do_step(store, row, 1)

    def begin_two(tx: Tx) -> None:
        start_step(tx, row, 5)
        tx.put_in_flight(mark(row, 6, lane=1))
        tx.add_change(Change(type="step", id=row.run_uid, old="none", new="started", generation=row.generation))

    store.transact(op(), begin_two)
    _erase(store, row, [place], lanes=[1])
    one, two = store.reader().in_flight(row.row_id)
    assert (one.fingerprint != b"", two.fingerprint, two.name) == (True, b"", "step6")


def test_what_would_be_kept_comes_in_the_order_asked_for_without_content(store: Store) -> None:
    row = begin(store)
    record = new_record(RecordKind.RESULT, row.run_uid, 3, payload=b"x" * 5000)

    def write(tx: Tx) -> int:
        start_step(tx, row, 3)
        tx.clear_in_flight(row.row_id, 0)
        return tx.add_record(row.row_id, record, step_change(row, "started", "recorded", record))

    places = [store.transact(op(), write), do_step(store, row, 1)]
    for wanted in (places, places[::-1]):
        kept = list(store.reader().kept(wanted))
        assert [one.record.record_id for one in kept] == wanted
        assert all(one.record.record.payload == one.record.record.salt == b"" for one in kept)
    assert next(store.reader().kept(places)).payload_bytes == 5000


def test_what_would_be_kept_of_a_missing_record_is_tampered(store: Store) -> None:
    row = begin(store)
    place = do_step(store, row, 1)
    with pytest.raises(Tampered):
        list(store.reader().kept([place, 99 << 16]))


def test_a_result_whose_fingerprint_looks_like_a_filler_is_not_taken_for_erased(store: Store) -> None:
    row = begin(store)
    record = new_record(RecordKind.RESULT, row.run_uid, 3)
    record.fingerprint = bytes(32)

    def write(tx: Tx) -> int:
        start_step(tx, row, 3)
        tx.clear_in_flight(row.row_id, 0)
        return tx.add_record(row.row_id, record, step_change(row, "started", "recorded", record))

    place = store.transact(op(), write)
    assert store.reader().erased_names(row.row_id) == []
    _erase(store, row, [place])
    assert store.reader().erased_names(row.row_id) == ["step3"]
