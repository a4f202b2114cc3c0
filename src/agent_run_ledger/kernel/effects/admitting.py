"""The rules of an admission: what it needs, and what it takes from every key."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from agent_run_ledger.kernel.effects.action import Action, Standing
from agent_run_ledger.kernel.effects.commands import Admit
from agent_run_ledger.kernel.effects.decision import Accepted, Case, Decision, Guard
from agent_run_ledger.kernel.effects.states import ARROWS, ActionState, Event, LedgerState

ADMIT: Final[tuple[Guard[Admit], ...]] = (
    Guard(
        "few_officers",
        "an admission needs more officers, and the actor among them",
        lambda c: (
            c.command.actor.principal in c.command.officers and len(c.command.officers) >= c.ledger.officers_needed
        ),
    ),
    Guard(
        "wrong_epoch",
        "an admission takes the epoch after every one that this ledger had, in lost histories too",
        lambda c: c.command.epoch == max(c.ledger.epoch, c.command.outside_epoch) + 1,
    ),
    Guard(
        "permit_may_live",
        "a permit of the older history may not be over yet",
        lambda c: c.command.now.earliest_ms >= c.command.stopped_ms + c.ledger.max_permit_ms + c.ledger.bound_ms,
    ),
    Guard(
        "loss_unknown",
        "without a witness nobody can say that no leaves were lost",
        lambda c: c.command.lost_leaves or c.ledger.witnessed,
    ),
)


def admitted(ledger: Standing, command: Admit) -> Standing:
    """Return the ledger after the admission: open, in the next epoch, with what it lost and could not reach."""
    return replace(
        ledger,
        state=LedgerState.OPEN,
        epoch=command.epoch,
        lost_leaves=ledger.lost_leaves or command.lost_leaves,
        closed_audiences=command.unreached,
        origin_frozen=command.origin_frozen,
    )


def demoted(member: Action, command: Admit) -> Action:
    """Return the newest member of a key after the admission: unresolved, unless its end can have no other.

    Not demoted are `succeeded`, and `written_off`, which nothing may ever follow. Evidence stays on the row and
    counts no more: it is of an older epoch.
    """
    if (member.state, Event.ADMIT) not in ARROWS:
        return member
    return replace(
        member,
        state=ActionState.UNRESOLVED,
        demoted_epoch=command.epoch,
        in_doubt_since_ms=command.now.latest_ms,
    )


def admit(case: Case[Admit]) -> Decision:
    """Admit the ledger, and demote the newest member of this key. Each key is asked with the same command."""
    ledger = admitted(case.ledger, case.command)
    newest = case.members[-1] if case.members else None
    changed = None if newest is None else demoted(newest, case.command)
    rows = () if changed is None or changed is newest else (changed,)
    return Accepted(
        event=Event.ADMIT,
        old=None if newest is None else newest.state,
        new=None if changed is None else changed.state,
        rows=rows,
        ledger=ledger,
        cosign_first=case.ledger.witnessed,
    )
