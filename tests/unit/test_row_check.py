"""Each rule about the rows of a run is broken once, in memory, and found."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from agent_run_ledger import Tampered, codecs
from agent_run_ledger.kernel.record import Record, RecordKind
from agent_run_ledger.kernel.states import RunState
from agent_run_ledger.ports import InFlight, RunRow, StoredRecord
from agent_run_ledger.testing.row_check import RunRows

UID, SALT = b"u" * 16, b"s" * 32


def _packed(value: object) -> dict[str, Any]:
    packed = codecs.pack(value, limit_bytes=1 << 20)
    return {"value_sha256": packed.value_sha256, "encoding": packed.encoding, "payload": packed.payload}


def _record(kind: RecordKind, leaf: int, *, position: int = 0, **fields: Any) -> StoredRecord:
    record = Record(kind=kind, salt=SALT, **{"run_uid": UID, "attempt": 1, **fields})
    return StoredRecord(record_id=leaf << 16 | position, run_row_id=1, record=record)


def _result(name: str, leaf: int, value: object, **fields: Any) -> StoredRecord:
    return _record(RecordKind.RESULT, leaf, name=name, fingerprint=name.encode(), **{**_packed(value), **fields})


def _mark(name: str, **fields: Any) -> InFlight:
    mark = InFlight(
        run_row_id=1,
        lane=0,
        name=name,
        scope=b"",
        fingerprint=name.encode(),
        occurrence=0,
        attempt=2,
        tries=1,
        generation=2,
        started_at_ms=0,
    )
    return replace(mark, **fields)


@dataclass
class Rows:
    """A run's rows, and a reader of them: attempt 1 recorded `a`, left `b` behind, and attempt 2 completed."""

    row: RunRow
    records_: list[StoredRecord]
    marks: list[InFlight] = field(default_factory=list)
    others: list[StoredRecord] = field(default_factory=list)

    def records(self, _: int, *, kinds: Sequence[RecordKind]) -> Iterator[StoredRecord]:
        return (stored for stored in self.records_ if stored.record.kind in kinds)

    def in_flight(self, _: int) -> list[InFlight]:
        return self.marks

    def record(self, record_id: int) -> StoredRecord:
        for stored in self.others:
            if stored.record_id == record_id:
                return stored
        raise Tampered(f"record {record_id} is missing")

    def change(self, at: int, **fields: Any) -> None:
        stored = self.records_[at]
        self.records_[at] = replace(stored, record=replace(stored.record, **fields))

    def problems(self) -> list[str]:
        return RunRows(self, self.row).problems  # type: ignore[arg-type]


def _completed() -> Rows:
    records = [
        _record(RecordKind.START, 1),
        _result("a", 2, [1, 2]),
        _record(RecordKind.START, 3, attempt=2),
        _record(RecordKind.ABANDONED, 3, position=1, name="b"),
        _result("b", 4, 1.5, attempt=2),
        _record(RecordKind.END, 5, attempt=2, **_packed({"results": {"b": 4 << 16}, "used": [2 << 16, 4 << 16]})),
    ]
    row = RunRow(
        row_id=1,
        run_uid=UID,
        run_id="r",
        state=RunState.COMPLETED,
        reason="",
        generation=2,
        attempt=2,
        created_at_ms=0,
        updated_at_ms=0,
        holder="",
        start_record_id=1 << 16,
        last_start_record_id=3 << 16,
        end_record_id=5 << 16,
    )
    return Rows(row=row, records_=records)


def _running() -> Rows:
    rows = _completed()
    rows.records_[4:] = []
    rows.marks = [_mark("b")]
    rows.row = replace(rows.row, state=RunState.RUNNING, end_record_id=None)
    return rows


def _with(rows: Rows, **fields: Any) -> Rows:
    rows.row = replace(rows.row, **fields)
    return rows


def test_rows_as_they_should_be_have_no_problem() -> None:
    assert _completed().problems() == []
    assert _running().problems() == []


def test_takeovers_count_as_generations() -> None:
    rows = _with(_running(), generation=3)
    rows.records_.append(_record(RecordKind.DECISION, 6, name="takeover", attempt=2))
    assert rows.problems() == []


@pytest.mark.parametrize("state", list(RunState))
def test_only_some_states_may_have_calls_in_flight(state: RunState) -> None:
    rows = _with(_running(), state=state)
    said = " ".join(rows.problems())
    may = state in (RunState.RUNNING, RunState.QUARANTINED, RunState.CANCELLED)
    assert ("calls in flight" in said) is not may


def _change(at: int, **fields: Any) -> Callable[[Rows], object]:
    return lambda rows: rows.change(at, **fields)


def _swap(rows: Rows) -> None:
    rows.records_[0], rows.records_[1] = rows.records_[1], rows.records_[0]


COMPLETED_BROKEN: list[tuple[Callable[[Rows], object], str]] = [
    (_change(1, run_uid=b"x" * 16), "belongs to run_uid"),
    (_swap, "comes after record"),
    (_change(2, attempt=3), "its row says attempt 2"),
    (lambda rows: _with(rows, generation=3), "generation 3 after 2 attempts and 0 takeovers"),
    (_change(4, attempt=1), "was not written during it"),
    (_change(3, attempt=2), "abandoned outside a later start"),
    (lambda rows: rows.records_.append(_record(RecordKind.ABANDONED, 9)), "abandoned outside a later start"),
    (lambda rows: rows.records_.append(_result("b", 9, 1.5, attempt=2)), "two results of one call"),
    (_change(1, payload=b"{"), "cannot be restored"),
    (_change(1, payload=b"[1,3]"), "does not have the digest"),
    (lambda rows: rows.marks.append(_mark("c")), "completed and has 1 calls in flight"),
    (lambda rows: _with(rows, end_record_id=None), "no END record"),
    (lambda rows: _with(rows, end_record_id=4 << 16), "no END record"),
    (_change(5, payload=b"7"), "END record cannot be read"),
    (_change(5, **_packed({"results": {}, "used": []})), "names no result"),
    (_change(5, **_packed({"results": {"b": 2 << 16}, "used": []})), "for the result of step 'b', which it is not"),
    (_change(5, **_packed({"results": {"b": 4 << 16}, "used": [77]})), "used record 77"),
]

RUNNING_BROKEN: list[tuple[InFlight, str]] = [
    (_mark("a"), "is in flight and has a result"),
    (_mark("b", lane=1), "is in flight twice"),
    (_mark("c", attempt=1), "is in flight for attempt 1"),
    (_mark("c", attempt=3), "is in flight for attempt 3"),
    (_mark("c", generation=3), "(generation 3), the run is at attempt 2 (generation 2)"),
    (_mark("c", generation=0), "(generation 0)"),
]


@pytest.mark.parametrize(("broken", "said"), COMPLETED_BROKEN)
def test_a_broken_row_of_a_completed_run_is_found(broken: Callable[[Rows], object], said: str) -> None:
    rows = _completed()
    broken(rows)
    assert any(said in problem for problem in rows.problems()), rows.problems()
    assert all(problem.startswith("run 'r': ") for problem in rows.problems())


@pytest.mark.parametrize(("mark", "said"), RUNNING_BROKEN)
def test_a_broken_mark_of_a_running_run_is_found(mark: InFlight, said: str) -> None:
    rows = _running()
    rows.marks.append(mark)
    problems = rows.problems()
    assert len(problems) == 1
    assert said in problems[0]


def test_erased_marks_of_one_step_are_no_contradiction() -> None:
    rows = _running()
    rows.marks = [_mark("b", fingerprint=b""), _mark("b", fingerprint=b"", lane=1)]
    assert rows.problems() == []
    rows.marks = [_mark("b"), _mark("b", lane=1)]
    assert rows.problems() == ["run 'r': step 'b' is in flight twice"]


def test_an_erased_result_is_no_problem_and_a_class_that_is_gone_is_only_named() -> None:
    erased = _completed()
    erased.change(1, salt=b"", payload=b"")
    assert erased.problems() == []
    gone = _completed()
    payload = codecs.pack(_completed().row.state, limit_bytes=1 << 20).payload
    gone.change(1, payload=payload.replace(b"RunState", b"GoneState"))
    checked = RunRows(gone, gone.row)  # type: ignore[arg-type]
    assert checked.problems == []
    assert len(checked.classes_gone) == 1
    assert "GoneState" in checked.classes_gone[0]


OTHER = b"o" * 16


def _fork() -> Rows:
    """A completed fork, which refers to the result of `p` of another run and rests on it."""
    rows = _completed()
    other = _result("p", 0, "p", run_uid=OTHER)
    rows.others = [replace(other, run_row_id=9)]
    prefix = {"run_id": "o", "run_uid": OTHER.hex(), "from_step": "a", "records": {"p": other.record_id}}
    rows.change(0, **_packed({"fork": prefix}))
    rows.change(5, **_packed({"results": {"b": 4 << 16, "p": 0}, "used": [0, 2 << 16, 4 << 16]}))
    return _with(rows, forked_from_row_id=9)


def test_a_fork_may_rest_on_what_it_refers_to() -> None:
    assert _fork().problems() == []


FORK_FAULTS: list[tuple[Callable[[Rows], object], str]] = [
    (lambda rows: rows.others.clear(), "refers to record 0 for step 'p'"),
    (lambda rows: rows.others.__setitem__(0, _record(RecordKind.ERROR, 0, name="p", run_uid=OTHER)), "no result of"),
    (lambda rows: rows.others.__setitem__(0, _result("q", 0, 1, run_uid=OTHER)), "no result of step 'p'"),
    (lambda rows: rows.others.__setitem__(0, _result("p", 0, 1)), "no result of step 'p' of another run"),
    (lambda rows: rows.change(0, **_packed({"fork": {"run_id": "o"}})), "its START cannot be read"),
    (lambda rows: rows.change(1, name="p", fingerprint=b"p"), "step 'p' has two results of one call"),
]


@pytest.mark.parametrize(("break_", "said"), FORK_FAULTS)
def test_a_broken_prefix_is_found(break_: Callable[[Rows], object], said: str) -> None:
    rows = _fork()
    break_(rows)
    assert any(said in problem for problem in rows.problems())


def test_of_a_fork_whose_start_is_erased_nobody_knows_what_it_referred_to() -> None:
    rows = _fork()
    rows.change(0, salt=b"", payload=b"")
    assert rows.problems() == []
    rows = _with(rows, forked_from_row_id=None)
    assert any("takes record 0 for the result of step 'p'" in problem for problem in rows.problems())
