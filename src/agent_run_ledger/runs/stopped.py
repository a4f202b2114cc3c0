"""What an attempt must raise when a commit of its found that the run was stopped."""

from __future__ import annotations

from agent_run_ledger.errors import LedgerError, RunCancelled, RunQuarantined
from agent_run_ledger.kernel.states import RunState
from agent_run_ledger.runs.journal import Written


def stopped(run_id: str, written: Written) -> LedgerError | None:
    """Return the error for a run that people or a rule stopped meanwhile, None for one that goes on."""
    if written.state not in (RunState.CANCELLED, RunState.QUARANTINED):
        return None
    words = f"run {run_id!r} was {written.state} while it ran ({written.reason})"
    if written.state is RunState.CANCELLED:
        return RunCancelled(words, hint="what is recorded stays; use a new run_id, or fork it")
    return RunQuarantined(words, hint="the results of bodies that ran are kept as evidence")
