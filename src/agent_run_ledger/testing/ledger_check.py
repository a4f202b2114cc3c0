"""`check_ledger`: re-reads a whole ledger and raises unless everything in it fits together."""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import dataclass

from agent_run_ledger.errors import LedgerError, Refused
from agent_run_ledger.kernel.record import RecordKind
from agent_run_ledger.ledger.verify import verify_log
from agent_run_ledger.store import AnyStore, Standing, durability_of, is_url, open_store, without_secrets
from agent_run_ledger.testing.budget_check import budget_problems
from agent_run_ledger.testing.integrity import integrity_problems
from agent_run_ledger.testing.recorded_calls import all_runs
from agent_run_ledger.testing.row_check import RunRows
from agent_run_ledger.testing.verdict_check import verdict_problems


class LedgerBroken(AssertionError):
    """A ledger contradicts itself. `problems` has one sentence per contradiction, the message all of them."""

    def __init__(self, path: str, problems: list[str]) -> None:
        listed = "\n".join(f"  - {problem}" for problem in problems)
        super().__init__(f"{path}: {len(problems)} problem(s)\n{listed}")
        self.path = path
        self.problems = problems


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerReport:
    """What was read, all of it consistent. Counts over all runs; `root_hex` is the root of the log's Merkle tree.

    `erased` records, each explained by a decision, are counted under their kinds too.

    `classes_gone` names results that this program cannot build because it lacks their classes: nothing is wrong with
    their records.
    """

    path: str
    leaves: int
    root_hex: str
    runs: int
    results: int
    errors: int
    abandoned: int
    rescued: int
    erased: int = 0
    in_flight: int
    classes_gone: tuple[str, ...]


def check_ledger(path: str | os.PathLike[str]) -> LedgerReport:
    """Re-read everything in the ledger at a path or URL and return what is there; LedgerBroken with what contradicts.

    Checked: of a file SQLite's own integrity check; the log (leaves, tiles, head, the MAC of every record, every change
    of state against the tables, rows against the log: see `verify_log`); and per run that a call has one result, that a
    mark in flight belongs to the newest attempt of a run that may still be running and to no recorded call, that
    attempts and generations count alike, that every result can be restored to its recorded digest, that a completed
    run's END names results that exist, that the counters of its budgets are what records and marks say, and that the
    breaker's verdicts are what the log leads to.

    Call it while no process has the ledger open, or from any process that uses this library; a run that goes on
    meanwhile may be reported as broken. Nothing is written but what SQLite needs to recover from a crash. Not
    checked: whether the log is an *older* valid copy.
    """
    where = os.fspath(path)
    named, where = where, without_secrets(where)
    if not is_url(named) and not os.path.exists(named):
        raise LedgerBroken(where, ["there is no such file"])
    try:
        found = _Found([] if is_url(named) else integrity_problems(named))
        store = _opened(named)
    except LedgerError as error:
        raise LedgerBroken(where, [f"it cannot be opened: {error}"]) from error
    try:
        reader = store.reader()
        retired = store.move.standing is Standing.RETIRED
        log = verify_log(reader, log_id=store.log_id, is_copy=store.is_copy, is_retired=retired)
        found.problems += [
            problem.text if problem.leaf_index is None else f"leaf {problem.leaf_index}: {problem.text}"
            for problem in log.problems
        ]
        for row in all_runs(reader):
            found.add(RunRows(reader, row))
            said_of = (*budget_problems(reader, row), *verdict_problems(reader, row))
            found.problems += [f"run {row.run_id!r}: {said}" for said in said_of]
    except LedgerError as error:
        raise LedgerBroken(where, [f"it cannot be read: {error}"]) from error
    finally:
        store.close()
    if found.problems:
        raise LedgerBroken(where, found.problems)
    return LedgerReport(
        path=where,
        leaves=log.leaves,
        root_hex=log.root_hex,
        runs=found.runs,
        results=found.kinds[RecordKind.RESULT],
        errors=found.kinds[RecordKind.ERROR],
        abandoned=found.kinds[RecordKind.ABANDONED],
        rescued=found.kinds[RecordKind.RESCUED],
        erased=log.erased,
        in_flight=found.in_flight,
        classes_gone=tuple(found.classes_gone),
    )


def _opened(named: str) -> AnyStore:
    """Open for writing, which recovers what a crash left; a store whose ledger moves or moved can only be read."""
    durability = durability_of(named)
    try:
        return open_store(named, create=False, durability=durability)
    except Refused as error:
        if error.code not in ("moving", "retired"):
            raise
        return open_store(named, create=False, durability=durability, readonly=True)


class _Found:
    """What was found so far, run by run."""

    def __init__(self, integrity: list[str]) -> None:
        self.problems = [f"SQLite: {said}" for said in integrity]
        self.kinds: Counter[RecordKind] = Counter()
        self.classes_gone: list[str] = []
        self.runs = 0
        self.in_flight = 0

    def add(self, rows: RunRows) -> None:
        self.problems += rows.problems
        self.kinds += rows.kinds
        self.classes_gone += rows.classes_gone
        self.runs += 1
        self.in_flight += len(rows.marks)
