"""What may be asked for next of an action, by whom, and what is missing: the rules themselves are asked."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from agent_run_ledger.kernel.effects.action import Action, Now, Standing, Terms
from agent_run_ledger.kernel.effects.approval import VerifiedApproval, statement_of, statement_sha256
from agent_run_ledger.kernel.effects.commands import (
    Actor,
    Approve,
    Claim,
    CloseUnprepared,
    Command,
    Doubt,
    DoubtBy,
    Edit,
    Expire,
    NotExecuted,
    Observe,
    Reject,
    Revoke,
    Success,
    Successor,
    WriteOff,
)
from agent_run_ledger.kernel.effects.decision import Accepted, Rejected
from agent_run_ledger.kernel.effects.evidence import Covers, Drain, DrainKind, Found, Observation
from agent_run_ledger.kernel.effects.reducer import decide
from agent_run_ledger.kernel.effects.states import ARROWS, ROLES, ActionState, Event, Role

NOT_SEEN: Final = "not_seen"
"""The code of a success that nobody on record has seen in this epoch."""


class Step(StrEnum):
    """What somebody can do about an action. Two kinds of drain, of look and of doubt are one event each."""

    APPROVE = "approve"
    EDIT = "edit"
    REJECT = "reject"
    CLAIM = "claim"
    REVOKE = "revoke"
    EXPIRE = "expire"
    DOUBT = "doubt"
    DOUBT_BY_EXPIRY = "doubt_by_expiry"
    LOOK = "look"
    DRAIN_BY_EXPIRY = "drain_by_expiry"
    DRAIN_PATH_DEAD = "drain_path_dead"
    HAPPENED = "happened"
    DID_NOT_HAPPEN = "did_not_happen"
    NEVER_PREPARED = "never_prepared"
    WRITE_OFF = "write_off"
    SUCCESSOR = "successor"


EVENT_OF: Final = {
    Step.APPROVE: Event.APPROVE,
    Step.EDIT: Event.EDIT,
    Step.REJECT: Event.REJECT,
    Step.CLAIM: Event.CLAIM,
    Step.REVOKE: Event.REVOKE,
    Step.EXPIRE: Event.EXPIRE,
    Step.DOUBT: Event.DOUBT,
    Step.DOUBT_BY_EXPIRY: Event.DOUBT,
    Step.LOOK: Event.OBSERVE,
    Step.DRAIN_BY_EXPIRY: Event.OBSERVE,
    Step.DRAIN_PATH_DEAD: Event.OBSERVE,
    Step.HAPPENED: Event.SUCCESS,
    Step.DID_NOT_HAPPEN: Event.NOT_EXECUTED,
    Step.NEVER_PREPARED: Event.CLOSE_UNPREPARED,
    Step.WRITE_OFF: Event.WRITE_OFF,
    Step.SUCCESSOR: Event.SUCCESSOR,
}
"""The event that a step asks for. What only the worker that holds the claim can do is no step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """One step from where an action stands: who may take it, and what the rules would say to it now.

    `roles`: one of them is needed. `not_by`: principals who may not, whatever their roles. `refused` is the code of
    what is missing, empty where nothing is; `words` say it.
    """

    step: Step
    roles: frozenset[Role]
    not_by: frozenset[str]
    refused: str = ""
    words: str = ""

    @property
    def open(self) -> bool:
        """Whether the rules would accept it now."""
        return not self.refused


def ways(ledger: Standing, members: tuple[Action, ...], action: Action, now: Now) -> tuple[Way, ...]:
    """Return every step from where a member stands, the one that leads on first. Empty where none is left.

    Each is asked of `decide` as somebody new with every role would ask it, with evidence that says nothing yet. That
    its answer is open promises nothing: the decision is made anew, in the transaction.
    """
    asked = [
        _way(ledger, members, action, step, _question(ledger, action, step, now))
        for step in Step
        if (action.state, EVENT_OF[step]) in ARROWS
    ]
    found = {way.step: way for way in asked if way is not None}
    first = [step for step in _order(action, found) if step in found]
    return tuple(found[step] for step in (*first, *(step for step in found if step not in first)))


def _way(
    ledger: Standing, members: tuple[Action, ...], action: Action, step: Step, question: Command | None
) -> Way | None:
    """Return the way of a step; None where what it asks for is on record already."""
    event = EVENT_OF[step]
    roles = frozenset({Role.OPERATOR}) if step is Step.DOUBT else ROLES[event]
    roles = roles - {Role.EXECUTOR} if event in _BY_OTHERS else roles
    way = Way(step=step, roles=roles, not_by=frozenset(_not_by(action, step)))
    if question is None:
        return replace(way, refused=NOT_SEEN, words="nobody on record saw in this epoch that it happened")
    decision = decide(ledger, members, question)
    if isinstance(decision, Rejected):
        return replace(way, refused=decision.code, words=decision.words)
    return way if isinstance(decision, Accepted) else None


def _not_by(action: Action, step: Step) -> Iterator[str]:
    """Yield who may not take a step: see invariant 12. An executor's look is no evidence that nothing happened."""
    if EVENT_OF[step] is Event.APPROVE:
        yield action.requester
        yield from (one.principal for one in action.approvals)
    if EVENT_OF[step] in _BY_OTHERS:
        yield action.terms.executor


_BY_OTHERS: Final = frozenset(
    {Event.APPROVE, Event.OBSERVE, Event.SUCCESS, Event.NOT_EXECUTED, Event.WRITE_OFF, Event.CLOSE_UNPREPARED}
)
_NOBODY: Final = ""
"""A name that no principal has."""
_NEEDS_DRAIN: Final = frozenset({"no_drain", "drain_before_correction", "clock_untrusted"})
_ASKS: Final = Actor(_NOBODY, frozenset(Role))


def _question(ledger: Standing, action: Action, step: Step, now: Now) -> Command | None:
    """Return a step as a command of nobody's; None for a success that no observation on record can be evidence of."""
    row = action
    match step:
        case Step.APPROVE:
            return _approval(ledger, row, now)
        case Step.EDIT:
            return Edit(actor=_ASKS, now=now, action_id=row.action_id, new_action_id=b"", terms=_other(row.terms))
        case Step.REJECT:
            return Reject(actor=_ASKS, now=now, action_id=row.action_id)
        case Step.CLAIM:
            return _claim(row, now)
        case Step.REVOKE:
            return Revoke(actor=_ASKS, now=now, action_id=row.action_id)
        case Step.EXPIRE:
            return Expire(actor=_ASKS, now=now, action_id=row.action_id)
        case Step.DOUBT:
            return Doubt(actor=_ASKS, now=now, action_id=row.action_id, by=DoubtBy.OPERATOR)
        case Step.DOUBT_BY_EXPIRY:
            return Doubt(actor=_ASKS, now=now, action_id=row.action_id, by=DoubtBy.EXPIRY)
        case Step.LOOK:
            return Observe(actor=_ASKS, now=now, action_id=row.action_id, evidence=_look(ledger, row))
        case Step.DRAIN_BY_EXPIRY:
            return Observe(actor=_ASKS, now=now, action_id=row.action_id, evidence=_drain(ledger, row, step))
        case Step.DRAIN_PATH_DEAD:
            return Observe(actor=_ASKS, now=now, action_id=row.action_id, evidence=_drain(ledger, row, step))
        case Step.SUCCESSOR:
            return Successor(
                actor=_ASKS, now=now, action_id=row.action_id, new_action_id=b"", terms=row.terms, cosigned=True
            )
        case _:
            return _settling(ledger, row, step, now)


def _settling(ledger: Standing, row: Action, step: Step, now: Now) -> Command | None:
    seen, action_id = row.observation, row.action_id
    if step is Step.HAPPENED:
        if seen is None or seen.found is not Found.EXECUTED or seen.epoch != ledger.epoch:
            return None
        return Success(actor=_ASKS, now=now, action_id=action_id, evidence=seen)
    if step is Step.NEVER_PREPARED:
        return CloseUnprepared(actor=_ASKS, now=now, action_id=action_id)
    people = frozenset(f"\0{number}" for number in range(max(2, ledger.people_for_not_executed)))
    if step is Step.WRITE_OFF:
        return WriteOff(actor=_ASKS, now=now, action_id=action_id, nobody_can_observe=True, people=people)
    return NotExecuted(actor=_ASKS, now=now, action_id=action_id, people=people)


def _other(terms: Terms) -> Terms:
    return replace(terms, request_sha256=bytes(len(terms.request_sha256)))


def _approval(ledger: Standing, row: Action, now: Now) -> Approve:
    nonce = row.approvals[0].nonce if row.approvals else b""
    statement = statement_of(ledger, row, approver=_NOBODY, nonce=nonce)
    approval = VerifiedApproval(
        approval_id=b"", statement=statement, signed_sha256=statement_sha256(statement), principal=_NOBODY
    )
    return Approve(actor=_ASKS, now=now, action_id=row.action_id, approval=approval)


def _claim(row: Action, now: Now) -> Claim:
    executor = Actor(row.terms.executor, frozenset({Role.EXECUTOR}))
    return Claim(
        actor=executor,
        now=now,
        action_id=row.action_id,
        claim_id=b"",
        claim_key=b"",
        worker="",
        request_sha256=row.terms.request_sha256,
    )


def _look(ledger: Standing, row: Action) -> Observation:
    return Observation(
        evidence_id=b"",
        action_key=row.action_key,
        epoch=ledger.epoch,
        observer=_NOBODY,
        found=Found.EXECUTED,
        after=None if row.drain is None else row.drain.evidence_id,
    )


def _drain(ledger: Standing, row: Action, step: Step) -> Drain:
    return Drain(
        evidence_id=b"",
        action_key=row.action_key,
        epoch=ledger.epoch,
        observer=_NOBODY,
        kind=DrainKind.EXPIRY if step is Step.DRAIN_BY_EXPIRY else DrainKind.PATH_DEAD,
        covers=Covers.EVERY_EXECUTOR,
    )


def _order(row: Action, found: dict[Step, Way]) -> tuple[Step, ...]:
    """Return the steps that lead on from where an action stands, the next one first.

    In a doubt: what decides it; else to look, and after a look that saw nothing the drain, and then to look again.
    """
    if row.state in (ActionState.CLAIMED, ActionState.PREPARED):
        return tuple(step for step in (*_DECIDING, Step.DOUBT_BY_EXPIRY, Step.DOUBT) if _is_open(found, step))
    if row.state is ActionState.UNRESOLVED:
        deciding = [step for step in _DECIDING if _is_open(found, step)]
        drains = [step for step in (Step.DRAIN_BY_EXPIRY, Step.DRAIN_PATH_DEAD) if _is_open(found, step)]
        refused = found[Step.DID_NOT_HAPPEN].refused if Step.DID_NOT_HAPPEN in found else ""
        drain_first = refused in _NEEDS_DRAIN and row.observation is not None
        return (*deciding, *((*drains, Step.LOOK) if drain_first else (Step.LOOK, *drains)))
    return tuple(step for step in (Step.EXPIRE, Step.CLAIM, Step.APPROVE, Step.SUCCESSOR) if _is_open(found, step))


_DECIDING: Final = (Step.HAPPENED, Step.DID_NOT_HAPPEN, Step.NEVER_PREPARED)


def _is_open(found: dict[Step, Way], step: Step) -> bool:
    return step in found and found[step].open
