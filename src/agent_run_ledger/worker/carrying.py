"""Carrying out one run of a queue in the thread that asks: its entry or its pipeline, with the inputs on record."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Final

from agent_run_ledger.errors import LedgerError, Pending, Refused, RunBusy, StepTimeout, Tampered, Unavailable
from agent_run_ledger.ledger.run_ledger import RunLedger
from agent_run_ledger.ports import RunRow
from agent_run_ledger.runs.leaving import of_other_program, of_store
from agent_run_ledger.runs.picked import TAKEN, picked_as
from agent_run_ledger.runs.submit import Submission


class Outcome(StrEnum):
    """What became of a run that a worker took.

    WAITS: it is suspended. FAILED: the program raised, and the record says so. ELSEWHERE: somebody else has it, or
    carried it on since it was looked at. INTERRUPTED: the store, or what a step asked, could not be asked, and the run
    stands where it was. REFUSED: it cannot be begun or gone on with as it is, by this program; one that is another
    program's stands where it was.
    """

    COMPLETED = "completed"
    WAITS = "waits"
    FAILED = "failed"
    ELSEWHERE = "elsewhere"
    INTERRUPTED = "interrupted"
    REFUSED = "refused"


_OF_THE_STORE: Final = frozenset(
    {"store_replaced", "emptied", "schema_changed", "stray_sqlite", "retired", "moving", "arriving"}
)


def is_of_the_store(error: BaseException | None) -> bool:
    """Return whether this says of the whole store that it is not the one that it was, or takes no runs any more."""
    return isinstance(error, Tampered | Refused) and error.code in _OF_THE_STORE


def carry(ledger: RunLedger, row: RunRow, submission: Submission) -> tuple[Outcome, BaseException | None]:
    """Begin or go on with a run as it stands in this row, and return what became of it.

    Never raises but what ends a thread.
    """
    try:
        with picked_as(row):
            _call(ledger, submission)
    except RunBusy as error:
        return Outcome.ELSEWHERE, error
    except Pending as error:
        return Outcome.WAITS, error
    except Exception as error:
        return _fate(error), error
    return Outcome.COMPLETED, None


def _fate(error: Exception) -> Outcome:
    if isinstance(error, Unavailable) and error.code == TAKEN:
        return Outcome.ELSEWHERE
    if of_other_program(error):
        return Outcome.REFUSED
    if of_store(error):
        return Outcome.INTERRUPTED
    refused = isinstance(error, LedgerError) and not isinstance(error, StepTimeout)
    return Outcome.REFUSED if refused else Outcome.FAILED


def _call(ledger: RunLedger, submission: Submission) -> Any:
    run_id, inputs = submission.run_id, dict(submission.inputs)
    if not submission.entry and not ledger.entries:
        return ledger.bind(run_id).execute(**inputs)
    entry = next((one for one in ledger.entries if one.name == submission.entry), None)
    if entry is None:
        names = ", ".join(one.name for one in ledger.entries) or "none"
        wanted = f"the entry {submission.entry!r}" if submission.entry else "a pipeline, not an entry"
        raise Refused(
            f"run {run_id!r} wants {wanted}, and this program has {names}",
            code="no_entry",
            hint="start a worker of the program that has it; a queue of its own keeps versions apart",
        )
    entry.check(inputs)  # before it is begun: a version that takes other inputs must not fail it
    if not entry.is_async:
        return entry.start(run_id, **inputs)
    import asyncio

    return asyncio.run(entry.astart(run_id, **inputs))
