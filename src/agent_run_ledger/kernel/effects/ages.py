"""Since when an action waits for somebody, and whether the worker that holds it has fallen silent."""

from __future__ import annotations

from typing import Final

from agent_run_ledger.kernel.effects.action import Action, Now
from agent_run_ledger.kernel.effects.states import ActionState

HELD: Final = frozenset({ActionState.CLAIMED, ActionState.PREPARED})
"""A worker has the claim."""


def since_ms(action: Action, proposed_at_ms: int) -> int:
    """Return since when an action waits, Unix milliseconds: from its doubt, its claim, or else its proposal."""
    since = proposed_at_ms
    if action.state is ActionState.UNRESOLVED and action.in_doubt_since_ms is not None:
        since = action.in_doubt_since_ms
    elif action.state in HELD and action.claimed_ms is not None:
        since = action.claimed_ms
    return since


def deadline_ms(action: Action) -> int:
    """Return when the permit of a claim is over, and without one when none can be had any more: with the window."""
    return action.terms.dispatch_before_ms if action.permit_expires_ms is None else action.permit_expires_ms


def is_stranded(action: Action, now: Now, bound_ms: int) -> bool:
    """Whether a worker has the claim and its permit or window is over by every clock: then its doubt may be recorded.

    By the clock alone nobody knows whether that worker is dead, late, or about to record what happened.
    """
    return action.state in HELD and now.earliest_ms >= deadline_ms(action) + bound_ms
