"""What to raise when a commit finds that its run, or one that it is within, was stopped."""

from __future__ import annotations

from typing import Final

from agent_run_ledger.errors import BudgetExceeded, LedgerError, LoopDetected, RunCancelled, RunQuarantined
from agent_run_ledger.kernel.states import RunState
from agent_run_ledger.runs.batches import STOPPED, Above, Written
from agent_run_ledger.runs.budgets import is_for_budget, way_on
from agent_run_ledger.runs.reasons import is_for_loop

_KEPT: Final = "the results of bodies that ran are kept as evidence"


def stopped(run_id: str, written: Written) -> LedgerError | None:
    """Return the error for an attempt whose commit found a stop: BudgetExceeded, RunQuarantined or RunCancelled.

    None where the run goes on. The starts of the batch from `written.started` on were not recorded: their bodies must
    not run. Where only a run above was stopped (`written.above`), the attempt still has its own end to record.
    """
    if written.state in STOPPED:
        return stopped_error(f"run {run_id!r}", written.state, written.reason)
    if written.above is not None:
        return _said_of(run_id, written.above)
    return None


def _said_of(run_id: str, above: Above) -> LedgerError:
    return stopped_error(f"run {above.run_id!r}, which run {run_id!r} is part of,", above.state, above.reason)


def stopped_error(run: str, state: RunState, reason: str) -> LedgerError:
    """Return the error for a run that is in this state for this reason; `run` names it in a sentence."""
    if is_for_budget(reason):
        hint = f"{way_on(reason, 'arl runs release')}; {_KEPT}"
        return BudgetExceeded(f"{run} was stopped by its {reason}", hint=hint)
    if is_for_loop(reason):
        hint = f"`arl breaker explain` shows the calls; `arl runs release` lets it go on, with a new count; {_KEPT}"
        return LoopDetected(f"{run} is in QUARANTINE ({reason})", hint=hint)
    words = f"{run} was {state} while it ran ({reason})"
    if state is RunState.CANCELLED:
        return RunCancelled(words, hint="what is recorded stays; use a new run_id, or fork it")
    return RunQuarantined(words, hint=f"`arl runs release` lets it go on; {_KEPT}")
