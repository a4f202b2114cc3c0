"""Every "must" of ports about erased records: what is kept, what is gone, and what the triggers refuse."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from hashlib import sha256
from pathlib import Path

import pytest

from agent_run_ledger.errors import Misuse, Tampered
from agent_run_ledger.kernel.envelope import Change
from agent_run_ledger.kernel.erasure import ERASABLE, erased_form, kept_digest, kept_sha256
from agent_run_ledger.kernel.record import Record, RecordKind, record_mac
from agent_run_ledger.kernel.states import RunState
from agent_run_ledger.ports import RunRow, Store, Tx
from agent_run_ledger.store import SqliteStore
from tests.contract.run_kit import until
from tests.contract.store_kit import (
    ENGINES,
    Backend,
    begin,
    check_log,
    do_step,
    engine,
    mark,
    new_record,
    op,
    postgres_backend,
    sqlite_backend,
    start_step,
    step_change,
)
from tests.services.postgres import Cluster

SECRET = b"the secret that somebody wants forgotten " * 60
USAGE = b'[{"input_tokens":7}]'


@pytest.fixture(params=ENGINES)
def backend(request: pytest.FixtureRequest) -> Iterator[Backend]:
    with engine(request.param, request) as made:
        yield made


@pytest.fixture(params=["full", "extra"])
def file(request: pytest.FixtureRequest) -> Iterator[Backend]:
    """Only stores in a file."""
    with engine(request.param, request) as made:
        yield made


@pytest.fixture
def store(backend: Backend) -> Iterator[SqliteStore]:
    """A store whose log is checked at the end: what is erased must be said by a decision."""
    opened = backend.open()
    yield opened
    check_log(opened)


def _used_step(store: SqliteStore, row: RunRow) -> int:
    """Record a step that says what it used, and return its record id."""
    fingerprint = sha256(SECRET).digest()  # one that cannot lie on a disk by chance
    record = new_record(RecordKind.RESULT, row.run_uid, 77, fingerprint=fingerprint, payload=SECRET, usage=USAGE)
    change = Change(type="step", id=row.run_uid, old="started", new="recorded", generation=1, mac=record_mac(record))
    return store.transact(op(), lambda tx: tx.add_record(row.row_id, record, change))


def _erase_barely(store: SqliteStore, row: RunRow, ids: list[int]) -> int:
    """Erase records without the decision that says so: for what only the rows tell."""

    def erase(tx: Tx) -> int:
        tx.add_change(Change(type="step", id=row.run_uid, old="recorded", new="erased", generation=1))
        return tx.erase_records(row.row_id, ids)

    return store.transact(op(), erase)


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


def _on_disk(store: SqliteStore) -> bytes:
    return b"".join(each.read_bytes() for each in Path(store.location).parent.iterdir())


# By a decision


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


def _complete(store: Store, row: RunRow) -> int:
    """End a run; the id of the record that says so."""

    def complete(tx: Tx) -> int:
        record = new_record(RecordKind.END, row.run_uid)
        mac = record_mac(record)
        change = Change(type="run", id=row.run_uid, old="running", new="completed", generation=1, mac=mac)
        place = tx.add_record(row.row_id, record, change)
        tx.update_run(
            row,
            state=RunState.COMPLETED,
            generation=1,
            attempt=1,
            holder="here",
            start_record_id=row.start_record_id,
            last_start_record_id=row.last_start_record_id,
            end_record_id=place,
        )
        return place

    return store.transact(op(), complete)


def test_the_oldest_run_that_is_kept_is_completed_and_not_erased(file: Backend) -> None:
    store = file.open()
    rows = [begin(store, f"r{number}") for number in range(3)]
    for row in rows[1:]:
        _complete(store, row)
    oldest = store.stats().oldest_kept
    assert oldest is not None
    assert oldest.run_id == "r1", "r0 goes on"
    assert rows[1].start_record_id is not None
    _erase(store, rows[1], [rows[1].start_record_id])
    oldest = store.stats().oldest_kept
    assert oldest is not None
    assert oldest.run_id == "r2", "r1 is erased"


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


# What the rows, the disk and the triggers say


def test_an_erased_record_keeps_its_place_and_what_it_used(backend: Backend) -> None:
    store = backend.open()
    row = begin(store)
    record_id = _used_step(store, row)
    before = store.reader().record(record_id).record
    assert _erase_barely(store, row, [record_id]) == 1
    stored = store.reader().record(record_id)
    assert stored.erased
    after = stored.record
    kept = ("kind", "run_uid", "scope", "name", "occurrence", "attempt", "tries", "started_at_ms", "ended_at_ms")
    assert [getattr(after, name) for name in kept] == [getattr(before, name) for name in kept]
    assert after.usage == USAGE
    assert (after.salt, after.payload, after.inputs, after.code, after.value_sha256) == (b"",) * 5
    assert after.fingerprint == record_id.to_bytes(8, "big")


def test_a_server_is_asked_to_free_what_was_erased_and_nothing_is_promised(postgres: Cluster) -> None:
    with postgres_backend(postgres) as backend:
        store = backend.open()
        row = begin(store)
        _erase_barely(store, row, [_used_step(store, row)])
        database = store.location.rsplit("/", 1)[1]
        counted = "SELECT n_dead_tup, vacuum_count FROM pg_stat_user_tables WHERE relname = 'records'"
        assert not store.scrub()
        until(lambda: postgres.run(counted, database) == [(0, 1)])


def test_what_was_erased_is_overwritten_on_the_disk(file: Backend) -> None:
    store = file.open()
    row = begin(store)
    record_id = _used_step(store, row)
    fingerprint = store.reader().record(record_id).record.fingerprint
    assert store.scrub()
    assert SECRET[:40] in _on_disk(store)
    _erase_barely(store, row, [record_id])
    assert store.scrub()
    left = _on_disk(store)
    assert SECRET[:40] not in left
    assert fingerprint not in left


def test_a_reader_elsewhere_holds_a_scrub_up_and_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    naps: list[float] = []
    with sqlite_backend(tmp_path, "full") as backend:
        store = backend.open(wait_s=0.1)
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
        monkeypatch.setattr("agent_run_ledger.store.sqlite.time.sleep", naps.append)
        assert not store.scrub()
        assert naps == []
        cursor.close(True)
        assert store.scrub()


def test_only_records_of_the_run_are_erased_and_each_once(backend: Backend) -> None:
    store = backend.open()
    row, other = begin(store), begin(store, "other")
    mine, theirs = _used_step(store, row), _used_step(store, other)
    assert _erase_barely(store, row, [mine, theirs]) == 1
    assert not store.reader().record(theirs).erased
    with pytest.raises(Misuse) as caught:
        _erase_barely(store, row, [mine])
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
        _erase_barely(store, row, ids)
    assert caught.value.code == "rows_and_leaf_differ"
    assert not any(store.reader().record(each).erased for each in ids)


def test_many_results_of_one_step_can_be_erased(backend: Backend) -> None:
    store = backend.open()
    row = begin(store)
    for key in range(5):
        do_step(store, row, key)
    keys = store.reader().result_keys(row.row_id)
    assert _erase_barely(store, row, [key.record_id for key in keys]) == 5
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
    with pytest.raises(backend.refusal):
        backend.edit("log", change)
