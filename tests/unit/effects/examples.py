"""For each event of an action a question that is accepted, from which tests make the ones that are refused."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from agent_run_ledger.kernel.effects import (
    Accepted,
    Action,
    ActionState,
    Approval,
    Decision,
    Event,
    LedgerState,
    Now,
    Role,
    Standing,
    TargetClass,
    Terms,
    WitnessPolicy,
)
from agent_run_ledger.kernel.effects import commands as ask
from agent_run_ledger.kernel.effects.approval import VerifiedApproval, statement_of, statement_sha256
from agent_run_ledger.kernel.effects.commands import Actor, Command, DoubtBy
from agent_run_ledger.kernel.effects.evidence import Covers, Drain, DrainKind, FenceAnswer, Found, Observation, Receipt
from agent_run_ledger.kernel.effects.reducer import decide

A = ActionState
KEY, ID, NEW_ID = "refund:17", b"first member", b"second member"
SHA, OTHER_SHA = b"r" * 32, b"s" * 32
BEGIN_MS, MS, PERMIT_END_MS, END_MS, BOUND_MS, MAX_MS = 1_000, 10_000, 40_000, 200_000, 500, 60_000
NOW, LATE, AFTER_ALL = Now(MS, MS), Now(END_MS, END_MS), Now(END_MS + BOUND_MS, END_MS + BOUND_MS)
ANN, BOB, CAT, EXE = "ann", "bob", "cat", "exe"

TERMS = Terms(
    request_sha256=SHA,
    executor=EXE,
    audience="https://pay.example",
    target_class=TargetClass.V,
    not_before_ms=BEGIN_MS,
    dispatch_before_ms=END_MS,
    policy_sha256=b"p" * 32,
    display_sha256=b"d" * 32,
    preconditions=(("uid", "7"),),
)
OTHER_TERMS = replace(TERMS, request_sha256=OTHER_SHA)
LEDGER = Standing(ledger_id=b"l" * 16, opening=b"opening 1", bound_ms=BOUND_MS, max_permit_ms=MAX_MS)
WITNESSED = replace(LEDGER, witness=WitnessPolicy.HTTP)
APPROVAL = Approval(approval_id=b"a", principal=BOB, epoch=0, nonce=b"n", statement_sha256=b"x" * 32)
DRAIN = Drain(
    evidence_id=b"drain", action_key=KEY, epoch=0, observer=CAT, kind=DrainKind.PATH_DEAD, covers=Covers.EVERY_EXECUTOR
)
TIMER = replace(DRAIN, kind=DrainKind.EXPIRY, covers=Covers.WORKER)
SEEN = Observation(
    evidence_id=b"seen", action_key=KEY, epoch=0, observer=CAT, found=Found.NOTHING, after=DRAIN.evidence_id
)
SEEN_EXECUTED = replace(SEEN, found=Found.EXECUTED)
RECEIPT = Receipt(
    evidence_id=b"receipt of sixteen bytes", action_key=KEY, receiver=TERMS.audience, generation=1, request_sha256=SHA
)
FENCE = FenceAnswer(evidence_id=b"fence", action_key=KEY, receiver=TERMS.audience, epoch=0, mark=1, found=Found.NOTHING)


def actor(principal: str, *roles: Role) -> Actor:
    """A principal with these roles."""
    return Actor(principal, frozenset(roles))


def row(state: ActionState, **changes: Any) -> Action:
    """The first member of the key as it is in `state`."""
    parts: dict[str, Any] = {"state": state}
    if state not in (A.PROPOSED, A.REJECTED, A.EXPIRED, A.REVOKED):
        parts["approvals"] = (APPROVAL,)
    if state in (A.CLAIMED, A.PREPARED, A.UNRESOLVED, A.SUCCEEDED, A.NOT_EXECUTED, A.WRITTEN_OFF):
        parts |= {"generation": 1, "claim_id": b"claim", "claim_key": b"claim key", "worker": "w1", "claimed_ms": MS}
    if state in (A.PREPARED, A.UNRESOLVED, A.SUCCEEDED, A.WRITTEN_OFF):
        parts |= {"prepare_leaf": True, "opening": b"opening 1", "prepared_ms": MS, "permit_expires_ms": PERMIT_END_MS}
    if state is A.UNRESOLVED:
        parts["in_doubt_since_ms"] = MS
    base: dict[str, Any] = {
        "action_key": KEY, "action_id": ID, "epoch": 0, "floor": 0, "requester": ANN, "terms": TERMS,
    }  # fmt: skip
    return Action(**(base | parts | changes))


@dataclass(frozen=True)
class Asked:
    """One question: a ledger, the members of the key, a command."""

    ledger: Standing
    members: tuple[Action, ...]
    command: Any

    def decided(self) -> Decision:
        """What the rules say."""
        return decide(self.ledger, self.members, self.command)

    def accepted(self) -> Accepted:
        """The transition; it must be one."""
        decision = self.decided()
        assert isinstance(decision, Accepted), decision
        return decision

    def ledger_with(self, **changes: Any) -> Asked:
        """The same in a changed ledger."""
        return replace(self, ledger=replace(self.ledger, **changes))

    def row_with(self, **changes: Any) -> Asked:
        """The same about a changed member, the newest."""
        return replace(self, members=(*self.members[:-1], replace(self.members[-1], **changes)))

    def terms_with(self, **changes: Any) -> Asked:
        """The same about a member with changed terms."""
        return self.row_with(terms=replace(self.members[-1].terms, **changes))

    def with_(self, **changes: Any) -> Asked:
        """The same with a changed command."""
        return replace(self, command=replace(self.command, **changes))

    def part(self, name: str, **changes: Any) -> Asked:
        """The same with a command of which one part (terms, evidence, fence) is changed."""
        return self.with_(**{name: replace(getattr(self.command, name), **changes)})


def approval_of(ledger: Standing, action: Action, approver: str = BOB, **changes: Any) -> VerifiedApproval:
    """A verified approval, over a statement with `changes`."""
    statement = replace(statement_of(ledger, action, approver=approver, nonce=b"n"), **changes)
    return VerifiedApproval(
        approval_id=b"a", statement=statement, signed_sha256=statement_sha256(statement), principal=approver
    )


def _command(event: Event, ledger: Standing, action: Action) -> Command:
    about = {"now": NOW, "action_id": ID}
    requester, approver = actor(ANN, Role.REQUESTER), actor(BOB, Role.APPROVER)
    executor, reconciler = actor(EXE, Role.EXECUTOR), actor(CAT, Role.RECONCILER)
    operator = actor("ops", Role.OPERATOR)
    claim: dict[str, Any] = {"claim_id": b"claim", "worker": "w1"}
    made: dict[Event, Any] = {
        Event.PROPOSE: lambda: ask.Propose(actor=requester, now=NOW, action_key=KEY, action_id=ID, terms=TERMS),
        Event.EDIT: lambda: ask.Edit(actor=approver, **about, new_action_id=NEW_ID, terms=OTHER_TERMS),
        Event.REJECT: lambda: ask.Reject(actor=approver, **about),
        Event.APPROVE: lambda: ask.Approve(actor=approver, **about, approval=approval_of(ledger, action)),
        Event.CLAIM: lambda: ask.Claim(actor=executor, **about, **claim, claim_key=b"another key", request_sha256=SHA),
        Event.PREPARE: lambda: ask.Prepare(actor=executor, **about, **claim, permit_ms=PERMIT_END_MS - MS),
        Event.HAND_OUT: lambda: ask.HandOut(actor=executor, **about, **claim, cosigned=True),
        Event.OUTCOME: lambda: ask.Outcome(actor=executor, **about, evidence=RECEIPT),
        Event.SUCCESS: lambda: ask.Success(actor=reconciler, **about, evidence=RECEIPT),
        Event.DOUBT: lambda: ask.Doubt(actor=operator, **about, by=DoubtBy.OPERATOR),
        Event.OBSERVE: lambda: ask.Observe(actor=reconciler, **about, evidence=replace(SEEN, after=None)),
        Event.NOT_EXECUTED: lambda: ask.NotExecuted(actor=reconciler, **about),
        Event.WRITE_OFF: lambda: ask.WriteOff(
            actor=reconciler, **about, nobody_can_observe=True, people=frozenset({"dan"})
        ),
        Event.CLOSE_UNPREPARED: lambda: ask.CloseUnprepared(actor=reconciler, **about),
        Event.SUCCESSOR: lambda: ask.Successor(actor=requester, **about, new_action_id=NEW_ID, terms=OTHER_TERMS),
        Event.REVOKE: lambda: ask.Revoke(actor=actor("rev", Role.REVOKER), **about),
        Event.EXPIRE: lambda: ask.Expire(actor=operator, now=LATE, action_id=ID),
        Event.ADMIT: lambda: ask.Admit(
            actor=actor("off", Role.OFFICER),
            now=AFTER_ALL,
            epoch=1,
            outside_epoch=0,
            officers=frozenset({"off"}),
            stopped_ms=MS,
            lost_leaves=True,
            origin_frozen=True,
        ),
    }
    return made[event]()


def example(event: Event, state: ActionState | None = None) -> Asked:
    """A question that the rules accept where the table has an arrow from `state`: all that the guards want holds."""
    old = FIRST[event] if state is None else state
    action = row(old or A.PROPOSED)
    ledger = LEDGER
    if event is Event.CLOSE_UNPREPARED:
        ledger, action = WITNESSED, replace(action, prepare_leaf=False)
    elif event is Event.NOT_EXECUTED:
        action = replace(action, drain=DRAIN, observation=SEEN)
    elif event is Event.ADMIT:
        ledger = replace(LEDGER, state=LedgerState.RECOVERY)
    elif event is Event.PREPARE and old is not A.CLAIMED:
        action = replace(action, prepare_leaf=False)
    members = () if event is Event.PROPOSE and state is None else (action,)
    return Asked(ledger, members, _command(event, ledger, action))


def fencing(event: Event, state: ActionState | None = None, target: TargetClass = TargetClass.F) -> Asked:
    """The same about a receiver that fences, with its answer."""
    asked = example(event, state).terms_with(target_class=target).row_with(drain=None, observation=None)
    return asked.with_(fence=FENCE)


def drain(timer: bool = False) -> Asked:
    """A question that puts a drain on record: dead paths, or a timer when every permit is over."""
    asked = example(Event.OBSERVE, A.PREPARED).with_(evidence=TIMER if timer else DRAIN)
    return asked.with_(now=Now(PERMIT_END_MS + BOUND_MS, PERMIT_END_MS + BOUND_MS)) if timer else asked


FIRST: dict[Event, ActionState | None] = {
    Event.PROPOSE: None,
    Event.EDIT: A.PROPOSED,
    Event.REJECT: A.PROPOSED,
    Event.APPROVE: A.PROPOSED,
    Event.CLAIM: A.AVAILABLE,
    Event.PREPARE: A.CLAIMED,
    Event.HAND_OUT: A.PREPARED,
    Event.OUTCOME: A.PREPARED,
    Event.SUCCESS: A.UNRESOLVED,
    Event.DOUBT: A.PREPARED,
    Event.OBSERVE: A.PREPARED,
    Event.NOT_EXECUTED: A.UNRESOLVED,
    Event.WRITE_OFF: A.UNRESOLVED,
    Event.CLOSE_UNPREPARED: A.CLAIMED,
    Event.SUCCESSOR: A.NOT_EXECUTED,
    Event.REVOKE: A.AVAILABLE,
    Event.EXPIRE: A.AVAILABLE,
    Event.ADMIT: A.PREPARED,
}
"""A state in which each event is possible."""
