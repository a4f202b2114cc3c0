"""Counters that are not what records and marks say are found, number by number, those of runs within included."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any

import pytest

from agent_run_ledger import Tampered
from agent_run_ledger.kernel.counters import Counters
from agent_run_ledger.kernel.record import Record, RecordKind
from agent_run_ledger.kernel.states import RunState
from agent_run_ledger.ports import InFlight, RunRow, StoredRecord
from agent_run_ledger.runs.recount import recounted
from agent_run_ledger.testing.budget_check import budget_problems

USAGE = b'[{"cost_usd":"0.5","input_tokens":7,"output_tokens":3}]'
RESERVED = b'{"cost_usd":"0.25","tokens":100}'


def run(row_id: int, parent: int | None = None) -> RunRow:
    return RunRow(
        row_id=row_id,
        run_uid=bytes([row_id]) * 16,
        run_id=f"r{row_id}",
        state=RunState.FAILED,
        reason="",
        generation=1,
        attempt=1,
        created_at_ms=0,
        updated_at_ms=0,
        holder="{}",
        parent_row_id=parent,
    )


def record(row_id: int, leaf: int, kind: RecordKind, name: str, **fields: Any) -> StoredRecord:
    made = Record(kind=kind, run_uid=bytes([row_id]) * 16, salt=b"s" * 32, name=name, **{"ended_at_ms": 40, **fields})
    return StoredRecord(record_id=leaf << 16, run_row_id=row_id, record=made)


def finding(record_id: int) -> bytes:
    return b'{"record":%d,"outcome":"result","step":"send"}' % record_id


@dataclass
class Rows:
    """Two runs, one within the other, with one record or mark of every kind that is counted, and some that are not."""

    runs: list[RunRow] = field(default_factory=lambda: [run(1), run(2, parent=1)])
    stored: dict[str, bytes] = field(default_factory=dict)
    records_: list[StoredRecord] = field(
        default_factory=lambda: [
            record(1, 1, RecordKind.RESULT, "ask", usage=USAGE),
            record(1, 2, RecordKind.RESULT, "run.now"),
            record(1, 3, RecordKind.ERROR, "ask", usage=b'[{"model":"m"}]'),
            record(2, 4, RecordKind.RESCUED, "ask"),
            record(2, 5, RecordKind.ABANDONED, "ask", inputs=b'{"reserved":' + RESERVED + b"}"),
            record(1, 6, RecordKind.ABANDONED, "send", inputs=b'{"unknown":true}'),
            record(1, 7, RecordKind.DECISION, "resolve", payload=finding(6 << 16)),
            replace(record(1, 7, RecordKind.RESULT, "send", usage=USAGE), record_id=7 << 16 | 1),
            record(1, 8, RecordKind.DECISION, "resolve", payload=finding(8 << 16 | 1)),
            replace(record(1, 8, RecordKind.ABANDONED, "send"), record_id=8 << 16 | 1),
            replace(record(1, 8, RecordKind.ERROR, "send", usage=USAGE), record_id=8 << 16 | 2),
            record(1, 9, RecordKind.DECISION, "release"),
            record(1, 10, RecordKind.END, "", payload=b'{"reason":"ValueError"}'),
        ]
    )

    def budgets(self, row_id: int) -> dict[str, bytes]:
        return self.stored if row_id == 1 else {}

    def children_of(self, row_id: int) -> list[RunRow]:
        return [row for row in self.runs if row.parent_row_id == row_id]

    def records(self, row_id: int, *, kinds: Sequence[RecordKind]) -> Iterator[StoredRecord]:
        return (one for one in self.records_ if one.run_row_id == row_id and one.record.kind in kinds)

    def in_flight(self, row_id: int) -> list[InFlight]:
        mark = InFlight(
            run_row_id=row_id, lane=0, name="ask", scope=b"", fingerprint=b"f", occurrence=0, attempt=1, tries=1,
            generation=1, started_at_ms=0, reserved=RESERVED,
        )  # fmt: skip
        return [mark] if row_id == 2 else []


RIGHT = Counters(
    calls=7,
    calls_in_flight=1,
    calls_uncertain=1,
    tokens=30,
    cost_usd=Decimal("1.5"),
    cost_unknown=1,
    reserved_tokens=100,
    reserved_cost_usd=Decimal("0.25"),
    uncertain_tokens=100,
    uncertain_cost_usd=Decimal("0.25"),
)
OF_SEND = Counters(calls=2, tokens=20, cost_usd=Decimal("1.0"))


def test_everything_that_was_started_is_counted_once() -> None:
    rows: Any = Rows()
    assert recounted(rows, rows.runs[0], ["", "send", "none"]) == {"": RIGHT, "send": OF_SEND, "none": Counters()}
    assert recounted(rows, rows.runs[1], [""])[""].calls == 3


def test_counters_as_they_should_be_have_no_problem() -> None:
    rows: Any = Rows(stored={"": replace(RIGHT, wall_ms=9, seen_ms=8).stored(), "send": OF_SEND.stored()})
    assert list(budget_problems(rows, rows.runs[0])) == []
    assert list(budget_problems(rows, rows.runs[1])) == []


@pytest.mark.parametrize("name", [
    "calls", "calls_in_flight", "calls_uncertain", "tokens", "cost_usd", "cost_unknown", "reserved_tokens",
    "reserved_cost_usd", "uncertain_tokens", "uncertain_cost_usd",
])  # fmt: skip
@pytest.mark.parametrize("by", [-1, 1])
def test_each_number_that_is_not_what_the_records_say_is_found(name: str, by: int) -> None:
    number = getattr(RIGHT, name)
    wrong = number + (by if type(number) is int else Decimal(by) / 10)
    rows: Any = Rows(stored={"": replace(RIGHT, **{name: wrong}).stored()})
    (problem,) = budget_problems(rows, rows.runs[0])
    assert problem == f"its budget says {name} {wrong}, its records and marks {number}"


def test_the_time_of_a_steps_budget_is_compared_too() -> None:
    rows: Any = Rows(stored={"send": replace(OF_SEND, wall_ms=1).stored()})
    assert list(budget_problems(rows, rows.runs[0])) == [
        "its budget of 'send' says wall_ms 1, its records and marks 0",
    ]


def test_an_erased_doubt_may_have_reserved_more_than_its_record_still_says() -> None:
    rows: Any = Rows(stored={"": RIGHT.stored()})
    rows.records_[4] = replace(rows.records_[4], record=replace(rows.records_[4].record, salt=b"", inputs=b""))
    assert list(budget_problems(rows, rows.runs[0])) == []
    rows.stored = {"": replace(RIGHT, calls_uncertain=2).stored()}
    assert len(list(budget_problems(rows, rows.runs[0]))) == 1


def test_counters_and_records_that_cannot_be_read_are_named() -> None:
    rows: Any = Rows(stored={"": b"[]"})
    (problem,) = budget_problems(rows, rows.runs[0])
    assert "the budget of a run cannot be read" in problem
    rows = Rows(stored={"": RIGHT.stored()})
    rows.records_[0] = replace(rows.records_[0], record=replace(rows.records_[0].record, usage=b"[1]"))
    (problem,) = budget_problems(rows, rows.runs[0])
    assert "says no usage that it can have" in problem
    rows = Rows(stored={"": RIGHT.stored()})
    rows.records_[4] = replace(rows.records_[4], record=replace(rows.records_[4].record, inputs=b'{"reserved":5}'))
    with pytest.raises(Tampered, match="says no reserve that it can have"):
        recounted(rows, rows.runs[0], [""])
