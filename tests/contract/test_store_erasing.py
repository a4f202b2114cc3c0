"""What a store keeps of an erased record, what it no longer has, and what its triggers refuse."""

from __future__ import annotations

from pathlib import Path

import apsw
import pytest

from agent_run_ledger.errors import Misuse
from agent_run_ledger.kernel.envelope import Change
from agent_run_ledger.kernel.record import RecordKind, record_mac
from agent_run_ledger.ports import RunRow, Tx
from agent_run_ledger.store import SqliteStore
from tests.contract.store_kit import Backend, begin, do_step, new_record, op, sqlite_backend, start_step

SECRET = b"the secret that somebody wants forgotten " * 60
USAGE = b'[{"input_tokens":7}]'


@pytest.fixture(params=["full", "extra"])
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> object:
    with sqlite_backend(tmp_path, request.param) as made:
        yield made


def _used_step(store: SqliteStore, row: RunRow) -> int:
    """Record a step that says what it used, and return its record id."""
    record = new_record(RecordKind.RESULT, row.run_uid, 77, payload=SECRET, usage=USAGE)
    change = Change(type="step", id=row.run_uid, old="started", new="recorded", generation=1, mac=record_mac(record))
    return store.transact(op(), lambda tx: tx.add_record(row.row_id, record, change))


def _erase(store: SqliteStore, row: RunRow, ids: list[int]) -> int:
    def erase(tx: Tx) -> int:
        tx.add_change(Change(type="step", id=row.run_uid, old="recorded", new="erased", generation=1))
        return tx.erase_records(row.row_id, ids)

    return store.transact(op(), erase)


def _on_disk(store: SqliteStore) -> bytes:
    return b"".join(each.read_bytes() for each in Path(store.location).parent.iterdir())


def test_an_erased_record_keeps_its_place_and_what_it_used(backend: Backend) -> None:
    store = backend.open()
    row = begin(store)
    record_id = _used_step(store, row)
    before = store.reader().record(record_id).record
    assert _erase(store, row, [record_id]) == 1
    stored = store.reader().record(record_id)
    assert stored.erased
    after = stored.record
    kept = ("kind", "run_uid", "scope", "name", "occurrence", "attempt", "tries", "started_at_ms", "ended_at_ms")
    assert [getattr(after, name) for name in kept] == [getattr(before, name) for name in kept]
    assert after.usage == USAGE
    assert (after.salt, after.payload, after.inputs, after.code, after.value_sha256) == (b"",) * 5
    assert after.fingerprint == record_id.to_bytes(8, "big")


def test_what_was_erased_is_overwritten_on_the_disk(backend: Backend) -> None:
    store = backend.open()
    row = begin(store)
    record_id = _used_step(store, row)
    fingerprint = store.reader().record(record_id).record.fingerprint
    assert store.scrub()
    assert SECRET[:40] in _on_disk(store)
    _erase(store, row, [record_id])
    assert store.scrub()
    left = _on_disk(store)
    assert SECRET[:40] not in left
    assert fingerprint not in left


def test_a_reader_elsewhere_holds_a_scrub_up_and_is_not_waited_for(tmp_path: Path) -> None:
    with sqlite_backend(tmp_path, "full") as backend:
        store = backend.open()
        row = begin(store)
        do_step(store, row, 1)
        reading = store._shared.reader
        reading.head()
        connection = reading._connection
        assert connection is not None
        cursor = connection.cursor()
        cursor.execute("SELECT leaf_index FROM events")
        cursor.execute("SELECT leaf_index FROM events")
        next(iter(cursor))
        do_step(store, row, 2)
        assert not store.scrub()
        cursor.close(True)
        assert store.scrub()


def test_only_records_of_the_run_are_erased_and_each_once(backend: Backend) -> None:
    store = backend.open()
    row, other = begin(store), begin(store, "other")
    mine, theirs = _used_step(store, row), _used_step(store, other)
    assert _erase(store, row, [mine, theirs]) == 1
    assert not store.reader().record(theirs).erased
    with pytest.raises(Misuse) as caught:
        _erase(store, row, [mine])
    assert caught.value.code == "rows_and_leaf_differ"


def test_what_an_operator_decided_is_never_erased(backend: Backend) -> None:
    store = backend.open()
    row = begin(store)

    def decide(tx: Tx) -> list[int]:
        ids: list[int] = []
        for kind in (RecordKind.DECISION, RecordKind.END):
            record = new_record(kind, row.run_uid)
            change = Change(type="run", id=row.run_uid, old="a", new="b", generation=1, mac=record_mac(record))
            ids.append(tx.add_record(row.row_id, record, change))
        return ids

    ids = store.transact(op(), decide)
    with pytest.raises(Misuse) as caught:  # a change that changed nothing
        _erase(store, row, ids)
    assert caught.value.code == "rows_and_leaf_differ"
    assert not any(store.reader().record(each).erased for each in ids)


def test_many_results_of_one_step_can_be_erased(backend: Backend) -> None:
    store = backend.open()
    row = begin(store)
    for key in range(5):
        do_step(store, row, key)
    keys = store.reader().result_keys(row.row_id)
    assert _erase(store, row, [key.record_id for key in keys]) == 5
    assert [key.erased for key in store.reader().result_keys(row.row_id)] == [True] * 5
    assert list(store.reader().record_names(row.row_id, kinds=[RecordKind.RESULT])) == []


def test_a_mark_loses_its_fingerprint(backend: Backend) -> None:
    store = backend.open()
    row = begin(store)
    store.transact(op(), lambda tx: start_step(tx, row, 9))

    def erase(tx: Tx) -> None:
        tx.add_change(Change(type="step", id=row.run_uid, old="recorded", new="erased", generation=1))
        tx.erase_marks(row.row_id, [mark.lane for mark in tx.in_flight(row.row_id)])

    store.transact(op(), erase)
    assert [mark.fingerprint for mark in store.reader().in_flight(row.row_id)] == [b""]


@pytest.mark.parametrize(
    "change",
    [
        "DELETE FROM records",
        "UPDATE records SET payload = x'31'",
        "UPDATE records SET salt = NULL",
        "UPDATE records SET salt = NULL, payload = NULL, inputs = x'', code = x'', value_sha256 = x''",
        "UPDATE records SET salt = NULL, payload = NULL, inputs = x'', code = x'', value_sha256 = x'', "
        "fingerprint = x'01', usage = NULL",
        "UPDATE records SET salt = NULL, payload = NULL, inputs = x'', code = x'', value_sha256 = x'', "
        "fingerprint = x'01', name = 'other'",
    ],
)
def test_the_triggers_let_a_record_only_be_erased(backend: Backend, change: str) -> None:
    store = backend.open()
    _used_step(store, begin(store))
    connection = store._shared.writer()._connection
    assert connection is not None
    with pytest.raises(apsw.ConstraintError):
        connection.execute(change)
