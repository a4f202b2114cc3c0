"""Whether a run still goes on, asked by what may take long within it and must not act once it is over."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent_run_ledger.errors import LedgerError, Misuse, Superseded
from agent_run_ledger.kernel.states import RunState
from agent_run_ledger.runs.batches import STOPPED
from agent_run_ledger.runs.stopped import stopped_error

if TYPE_CHECKING:
    from agent_run_ledger.runs.frames import Frame


def check_going_on(place: Frame) -> None:
    """Raise what ends a call where its run does not go on: it was stopped, taken over or left, or answered for.

    RunCancelled, RunQuarantined (BudgetExceeded, LoopDetected), Superseded; Misuse("run_over", "body_over").
    """
    place.check_open()
    session = place.session
    mine = session.opened.row
    now = session.context.store.reader().get_run(mine.row_id)
    error: LedgerError | None = None
    if now.state in STOPPED:
        error = stopped_error(f"run {mine.run_id!r}", now.state, now.reason)
    elif now.generation != mine.generation:
        error = Superseded(f"attempt {mine.attempt} of run {mine.run_id!r} was taken over", hint="stop this process")
    elif now.state is not RunState.RUNNING:
        error = Misuse(f"run {mine.run_id!r} is over", code="run_over", hint="start it again: what is asked for stays")
    if error is not None:
        raise error
