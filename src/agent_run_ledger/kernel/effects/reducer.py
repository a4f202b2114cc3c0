"""The one decision about a key: ledger, members and a command in, a transition, a record or a refusal out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from agent_run_ledger.kernel.effects import admitting, before_claim, dispatching, settling
from agent_run_ledger.kernel.effects.action import Action, Standing
from agent_run_ledger.kernel.effects.commands import Admit, Claim, Command, Outcome, Prepare, Propose, Revoke, Success
from agent_run_ledger.kernel.effects.decision import Case, Decision, Guard, Recorded, Rejected, first_refusal
from agent_run_ledger.kernel.effects.states import ARROWS, EVENT_NEEDS, LEDGER_TABLE, ROLES, Event, LedgerState

GUARDS: Final[dict[Event, tuple[Guard[Any], ...]]] = {
    Event.PROPOSE: before_claim.PROPOSE,
    Event.EDIT: before_claim.EDIT,
    Event.REJECT: before_claim.REJECT,
    Event.APPROVE: before_claim.APPROVE,
    Event.SUCCESSOR: before_claim.SUCCESSOR,
    Event.REVOKE: before_claim.REVOKE,
    Event.EXPIRE: before_claim.EXPIRE,
    Event.CLAIM: dispatching.CLAIM,
    Event.PREPARE: dispatching.PREPARE,
    Event.HAND_OUT: dispatching.HAND_OUT,
    Event.DOUBT: dispatching.DOUBT,
    Event.OUTCOME: settling.OUTCOME,
    Event.OBSERVE: settling.OBSERVE,
    Event.SUCCESS: settling.SUCCESS,
    Event.NOT_EXECUTED: settling.NOT_EXECUTED,
    Event.WRITE_OFF: settling.WRITE_OFF,
    Event.CLOSE_UNPREPARED: settling.CLOSE_UNPREPARED,
    Event.ADMIT: admitting.ADMIT,
}
"""The conditions of each event, in the order of the state table's `guards`."""

MOVES: Final[dict[Event, Callable[[Case[Any]], Decision]]] = {
    Event.PROPOSE: before_claim.propose,
    Event.EDIT: before_claim.edit,
    Event.REJECT: before_claim.reject,
    Event.APPROVE: before_claim.approve,
    Event.SUCCESSOR: before_claim.successor,
    Event.REVOKE: before_claim.revoke,
    Event.EXPIRE: before_claim.expire,
    Event.CLAIM: dispatching.claim,
    Event.PREPARE: dispatching.prepare,
    Event.HAND_OUT: dispatching.hand_out,
    Event.DOUBT: dispatching.doubt,
    Event.OUTCOME: settling.outcome,
    Event.OBSERVE: settling.observe,
    Event.SUCCESS: settling.success,
    Event.NOT_EXECUTED: settling.not_executed,
    Event.WRITE_OFF: settling.write_off,
    Event.CLOSE_UNPREPARED: settling.close_unprepared,
    Event.ADMIT: admitting.admit,
}
"""What each event makes of the rows, once everything that must hold does."""


def decide(ledger: Standing, members: tuple[Action, ...], command: Command) -> Decision:
    """Return what becomes of a key: pure and total, the same answer to the same question.

    `members` are all members of the key in the order in which they were made; the last one is the newest. The order of
    the questions: roles, what is on record already, the ledger's state, the action's state, the event's guards. Codes
    of refusals: `wrong_role`, `unknown_action`, `ledger_…` with the ledger's state, the word of the action's state
    where the table has no such arrow, else the guard's code. The caller appends one leaf for an Accepted, in the same
    transaction.
    """
    member = _asked_about(members, command)
    old = None if member is None else member.state
    arrow = ARROWS.get((old, command.event))
    if not command.actor.roles & ROLES[command.event]:
        return Rejected("wrong_role", f"none of this principal's roles may {command.event}")
    case: Case[Any] = Case(ledger, members, member, command)
    known = _on_record(case)
    if known is not None:
        return known
    forbids = _forbidding(ledger, command.event)
    if forbids is not None:
        return Rejected(f"ledger_{forbids}", f"a ledger that is {forbids} takes no {command.event}")
    if member is None and not isinstance(command, Propose | Admit):
        return Rejected("unknown_action", "no member of this key has that action id")
    if arrow is None and not isinstance(command, Propose | Admit):
        return Rejected(str(old), f"an action that is {old} takes no {command.event}")
    return first_refusal(GUARDS[command.event], case) or MOVES[command.event](case)


def _asked_about(members: tuple[Action, ...], command: Command) -> Action | None:
    """The member that a command is about: by its id; the newest for an outcome, which may be a lost member's."""
    if isinstance(command, Propose):
        return None
    if isinstance(command, Admit | Outcome | Success):
        return members[-1] if members else None
    return next((member for member in members if member.action_id == command.action_id), None)


def _forbidding(ledger: Standing, event: Event) -> LedgerState | None:
    """Return the state in which the ledger lets no such event happen: its own, or that of a clock doubted beside it.

    An admission asks no clock whether it may be: its guard waits by the earlier time.
    """
    operation, leaves = EVENT_NEEDS[event]
    if LEDGER_TABLE[ledger.state][operation] not in leaves:
        return ledger.state
    if ledger.clock_doubted and event is not Event.ADMIT:
        doubted = LedgerState.TIME_UNTRUSTED
        return None if LEDGER_TABLE[doubted][operation] in leaves else doubted
    return None


def _on_record(case: Case[Any]) -> Recorded | None:
    command = case.command
    if isinstance(command, Propose):
        return before_claim.known_proposal(case)
    if case.member is not None and isinstance(command, Claim):
        return dispatching.known_claim(case)
    if case.member is not None and isinstance(command, Prepare):
        return dispatching.known_prepare(case)
    if case.member is not None and isinstance(command, Revoke):
        return before_claim.known_revocation(case)
    return None
