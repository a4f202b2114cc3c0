"""Honest logs, ways to forge them, and what a report says of them."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from agent_run_ledger.kernel.record import RecordKind
from agent_run_ledger.kernel.states import RunState
from agent_run_ledger.ledger.verify import Problem, Report
from tests.unit.memory_log import MemoryLog, Story


def honest(more: int = 0) -> MemoryLog:
    """A log with every kind of change; the numbers are leaf indices. `more` adds steps at the end."""
    log = MemoryLog()
    one, two, three = Story(log, "r1"), Story(log, "r2"), Story(log, "r3")
    one.start()  # 0
    one.begin(2)  # 1
    one.conclude(begin=1)  # 2
    two.start()  # 3
    two.begin()  # 4
    one.conclude(RecordKind.ERROR)  # 5
    one.conclude(RecordKind.RESCUED)  # 6
    one.end(RunState.FAILED)  # 7
    one.decide(RunState.QUARANTINED)  # 8
    one.decide(RunState.RUNNING)  # 9
    one.start()  # 10
    two.start()  # 11: abandons what was in flight
    one.begin()  # 12
    one.end(conclude=True)  # 13
    two.decide(RunState.RUNNING, takeover=True)  # 14
    two.begin(2)  # 15
    two.decide(RunState.CANCELLED)  # 16
    two.conclude()  # 17: evidence
    three.start()  # 18
    three.begin()  # 19
    for _ in range(more):
        three.conclude(begin=1)
    return log


def texts(report: Report) -> list[str]:
    return [problem.text for problem in report.problems]


def rewrite(log: MemoryLog, index: int, change: Callable[[dict[str, Any]], object], *, reseal: bool = True) -> None:
    """Change one envelope, and the tree with it."""
    envelope = json.loads(log.leaves[index].envelope)
    change(envelope)
    put(log, index, json.dumps(envelope, sort_keys=True, separators=(",", ":")).encode(), reseal=reseal)


def put(log: MemoryLog, index: int, envelope: bytes, *, reseal: bool = True) -> None:
    log.leaves[index] = replace(log.leaves[index], envelope=envelope)
    if reseal:
        log.reseal()


def change_record(log: MemoryLog, place: int, **fields: Any) -> None:
    stored = log.stored[place]
    log.stored[place] = replace(stored, record=replace(stored.record, **fields))


def change_row(log: MemoryLog, run_id: str, **fields: Any) -> None:
    log.rows[run_id] = replace(log.rows[run_id], **fields)


def only_problem(report: Report) -> Problem:
    assert report.problem_count == len(report.problems) == 1, report.problems
    assert not report.ok
    return report.problems[0]
