"""Rows that cannot be: what is missing, forged or of another kind is said to be so wherever it is read."""

from __future__ import annotations

import subprocess
import sys
from array import array
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from agent_run_ledger.errors import LedgerError, Misuse, Tampered
from agent_run_ledger.kernel.envelope import Change
from agent_run_ledger.kernel.merkle import leaf_hash
from agent_run_ledger.kernel.record import RecordKind, record_mac
from agent_run_ledger.kernel.states import RunState
from agent_run_ledger.ports import RunRow, Tx
from agent_run_ledger.store import SqliteStore, row_reader
from tests.contract.store_kit import (
    Backend,
    begin,
    check_file,
    check_log,
    do_step,
    new_record,
    op,
    sqlite_backend,
    start_step,
    step_change,
)

pytestmark = pytest.mark.fault

EDITOR = Path(__file__).parents[1] / "scenario" / "programs" / "edit_rows.py"


@pytest.fixture
def backend(tmp_path: Path) -> Iterator[Backend]:
    with sqlite_backend(tmp_path, "full") as made:
        yield made


def _edit(path: str, sql: str) -> None:
    subprocess.run([sys.executable, EDITOR, path, f"PRAGMA ignore_check_constraints = 1; {sql}"], check=True)


def _raises(use: Callable[[], object], kind: type[LedgerError], code: str) -> None:
    with pytest.raises(kind) as caught:
        use()
    assert caught.value.code == code


def _complete(store: SqliteStore, row: RunRow) -> int:
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


def test_a_head_that_was_set_back_is_not_called_a_repeated_operation(backend: Backend) -> None:
    store = backend.open()
    row = begin(store)
    (first,) = store.reader().events(first=0, stop=1)
    second = store.reader().head()
    store.close()
    path = store.location
    _edit(path, f"UPDATE head SET size = 1, frontier = x'{leaf_hash(first.envelope).hex()}'")
    again = backend.open(create=False)
    _raises(lambda: again.transact(op(), lambda tx: start_step(tx, row, 1)), Misuse, "constraint")
    again.close()
    _edit(path, f"UPDATE head SET size = 2, frontier = x'{b''.join(second.frontier).hex()}'")
    assert check_file(path) == 2


def test_what_a_reader_does_not_find_is_tampering(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    store = backend.open()
    row = begin(store)
    result = do_step(store, row, 1)
    reader = store._shared.reader
    assert [key.record_id for key in reader.keys_of([result])] == [result]
    assert row.start_record_id is not None
    for ids in ([result, 99 << 16], [row.start_record_id]):
        _raises(lambda ids=ids: reader.keys_of(ids), Tampered, "row_missing")
    _raises(lambda: reader.get_run(77), Tampered, "row_missing")
    monkeypatch.setattr(reader, "_ids", lambda *_: array("q", [result, 99 << 16]))
    _raises(lambda: list(reader.records(row.row_id, kinds=[RecordKind.RESULT])), Tampered, "row_missing")
    monkeypatch.undo()
    assert check_log(store) == 3


def test_a_forged_kind_is_tampering_wherever_it_is_read(backend: Backend) -> None:
    store = backend.open()
    row = begin(store)
    record = new_record(RecordKind.ERROR, row.run_uid, 1, usage=b'[{"input_tokens":7}]')

    def fail(tx: Tx) -> int:
        start_step(tx, row, 1)
        tx.clear_in_flight(row.row_id, 0)
        return tx.add_record(row.row_id, record, step_change(row, "started", "failed", record))

    place = store.transact(op(), fail)
    store.close()
    _edit(store.location, f"UPDATE records SET kind = 9 WHERE record_id = {place}")
    again = backend.open(create=False)
    reader = again.reader()
    for read in (
        lambda: list(reader.usages(row.row_id)),
        lambda: reader.record(place),
        lambda: list(reader.kept([place])),
        lambda: list(reader.leaf_records(first=0, stop=9)),
    ):
        _raises(read, Tampered, "corrupt")
    again.close()
    _edit(store.location, f"UPDATE records SET kind = {RecordKind.ERROR.value} WHERE record_id = {place}")
    assert check_file(store.location) == 3


def test_a_reader_remembers_a_bounded_number_of_runs(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_reader, "_MOST_UIDS", 2)
    store = backend.open()
    rows = [begin(store, f"r{number}") for number in range(5)]
    found = [each.record.run_uid for each in store.reader().leaf_records(first=0, stop=9)]
    assert found == [row.run_uid for row in rows]
    assert len(store._shared.reader._uids) <= 2
    assert check_log(store) == 6


def test_records_of_other_kinds_are_not_among_those_asked_for(backend: Backend) -> None:
    store = backend.open()
    row = begin(store)
    ended = _complete(store, row)
    for kind, place in ((RecordKind.START, row.start_record_id), (RecordKind.END, ended)):
        assert [each.record_id for each in store.reader().records(row.row_id, kinds=[kind])] == [place]
    assert check_log(store) == 3
