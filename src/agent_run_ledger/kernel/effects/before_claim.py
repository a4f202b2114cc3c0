"""The rules before a claim: propose, edit, reject, approve, successor, revoke, expire."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from agent_run_ledger.kernel.effects.action import Action, Approval, Terms, highest_mark
from agent_run_ledger.kernel.effects.approval import Statement, statement_of, statement_sha256
from agent_run_ledger.kernel.effects.commands import Approve, Edit, Expire, Propose, Reject, Revoke, Successor
from agent_run_ledger.kernel.effects.decision import Accepted, Case, Decision, Guard, Recorded
from agent_run_ledger.kernel.effects.states import FENCING, ActionState, Event


def _fits(terms: Terms) -> bool:
    return terms.not_before_ms < terms.dispatch_before_ms


def _is_new(new_id: bytes, members: tuple[Action, ...]) -> bool:
    return all(member.action_id != new_id for member in members)


PROPOSE: Final[tuple[Guard[Propose], ...]] = (
    Guard("key_taken", "the key belongs to other bytes; only a successor goes on", lambda c: not c.members),
    Guard("empty_window", "the window ends before it begins", lambda c: _fits(c.command.terms)),
    Guard("no_approvals", "an action needs at least one approval", lambda c: c.command.terms.approvals_needed >= 1),
)

EDIT: Final[tuple[Guard[Edit], ...]] = (
    Guard("same_bytes", "these are the bytes it has", lambda c: c.command.terms != c.row.terms),
    Guard("id_taken", "another member has this action id", lambda c: _is_new(c.command.new_action_id, c.members)),
    Guard("empty_window", "the window ends before it begins", lambda c: _fits(c.command.terms)),
    Guard("no_approvals", "an action needs at least one approval", lambda c: c.command.terms.approvals_needed >= 1),
)

REJECT: Final[tuple[Guard[Reject], ...]] = ()


def _signed(case: Case[Approve]) -> Statement:
    return case.command.approval.statement


def _expected(case: Case[Approve]) -> Statement:
    signed = _signed(case)
    return statement_of(case.ledger, case.row, approver=signed.approver, nonce=signed.nonce)


def _same_action(case: Case[Approve]) -> bool:
    signed, expected = _signed(case), _expected(case)
    return (signed.ledger_id, signed.action_key, signed.action_id) == (
        expected.ledger_id,
        expected.action_key,
        expected.action_id,
    )


def _same_window(case: Case[Approve]) -> bool:
    signed, terms = _signed(case), case.row.terms
    return (signed.not_before_ms, signed.dispatch_before_ms) == (terms.not_before_ms, terms.dispatch_before_ms)


_OTHER_TERMS: Final = (
    "executor",
    "audience",
    "target_class",
    "checks_expiry",
    "preconditions",
    "display_sha256",
    "requester",
)


def _same_terms(case: Case[Approve]) -> bool:
    return all(getattr(_signed(case), name) == getattr(_expected(case), name) for name in _OTHER_TERMS)


APPROVE: Final[tuple[Guard[Approve], ...]] = (
    Guard(
        "other_bytes_signed",
        "the signature is over other bytes than this statement's",
        lambda c: c.command.approval.signed_sha256 == statement_sha256(_signed(c)),
    ),
    Guard(
        "other_approver",
        "the statement names another approver than the one who signed and asks",
        lambda c: _signed(c).approver == c.command.approval.principal == c.command.actor.principal,
    ),
    Guard(
        "old_epoch",
        "an approval is valid in one epoch only, and this is another",
        lambda c: _signed(c).epoch == c.ledger.epoch == c.row.epoch,
    ),
    Guard("other_action", "the statement is about another action", _same_action),
    Guard(
        "other_request",
        "the statement is about other bytes",
        lambda c: _signed(c).request_sha256 == c.row.terms.request_sha256,
    ),
    Guard(
        "other_policy",
        "the statement names another policy",
        lambda c: _signed(c).policy_sha256 == c.row.terms.policy_sha256,
    ),
    Guard("other_window", "the statement names another window", _same_window),
    Guard(
        "other_terms",
        "the statement names another executor, audience, class, precondition, display or requester",
        _same_terms,
    ),
    Guard(
        "approver_is_requester",
        "who asked for it cannot approve it",
        lambda c: c.command.actor.principal != c.row.requester,
    ),
    Guard(
        "approver_is_executor",
        "who carries it out cannot approve it",
        lambda c: c.command.actor.principal != c.row.terms.executor,
    ),
    Guard(
        "same_principal",
        "this principal has approved it already",
        lambda c: all(one.principal != c.command.actor.principal for one in c.row.approvals),
    ),
    Guard(
        "other_instance",
        "all approvals of an action belong to one authorisation instance",
        lambda c: all(one.nonce == _signed(c).nonce for one in c.row.approvals),
    ),
    Guard("expired", "the window is over", lambda c: c.command.now.latest_ms < c.row.terms.dispatch_before_ms),
)

SUCCESSOR: Final[tuple[Guard[Successor], ...]] = (
    Guard("id_taken", "another member has this action id", lambda c: _is_new(c.command.new_action_id, c.members)),
    Guard("empty_window", "the window ends before it begins", lambda c: _fits(c.command.terms)),
    Guard("no_approvals", "an action needs at least one approval", lambda c: c.command.terms.approvals_needed >= 1),
    Guard(
        "close_not_cosigned",
        "the witness has not seen yet that the older one was not executed",
        lambda c: not c.ledger.witnessed or c.row.state is not ActionState.NOT_EXECUTED or c.command.cosigned,
    ),
)

REVOKE: Final[tuple[Guard[Revoke], ...]] = ()

EXPIRE: Final[tuple[Guard[Expire], ...]] = (
    Guard(
        "clock_untrusted",
        "the clock is not trusted, so it cannot say that the window is over",
        lambda c: c.ledger.clock_trusted,
    ),
    Guard("window_open", "its window is not over", lambda c: c.command.now.latest_ms >= c.row.terms.dispatch_before_ms),
)


def propose(case: Case[Propose]) -> Decision:
    """Make the first member of a key: proposed, or unresolved where nobody can know that the key is new.

    After an admission that lost leaves an unknown key may have been executed: only a fencing receiver would notice.
    """
    ledger, command = case.ledger, case.command
    lost = ledger.lost_leaves and command.terms.target_class not in FENCING
    state = ActionState.UNRESOLVED if lost else ActionState.PROPOSED
    action = Action(
        action_key=command.action_key,
        action_id=command.action_id,
        epoch=ledger.epoch,
        floor=0,
        state=state,
        requester=command.actor.principal,
        terms=command.terms,
        in_doubt_since_ms=command.now.latest_ms if lost else None,
    )
    return Accepted(event=Event.PROPOSE, old=None, new=state, rows=(action,))


def known_proposal(case: Case[Propose]) -> Recorded | None:
    """Return the record where the newest member has the proposed bytes."""
    newest = case.members[-1] if case.members else None
    if newest is None or newest.terms.request_sha256 != case.command.terms.request_sha256:
        return None
    return Recorded(newest)


def known_revocation(case: Case[Revoke]) -> Recorded | None:
    """Return the record where it was revoked before."""
    return Recorded(case.row) if case.row.revoked else None


def edit(case: Case[Edit]) -> Decision:
    """Supersede what was proposed by a member with other bytes, whose requester is who edited it."""
    return _replaced(case, Event.EDIT, case.command.new_action_id, case.command.terms)


def successor(case: Case[Successor]) -> Decision:
    """Supersede a closed member by a new one, which begins above every mark of the key."""
    return _replaced(case, Event.SUCCESSOR, case.command.new_action_id, case.command.terms)


def _replaced(case: Case[Edit] | Case[Successor], event: Event, new_id: bytes, terms: Terms) -> Accepted:
    row = case.row
    new = Action(
        action_key=row.action_key,
        action_id=new_id,
        epoch=case.ledger.epoch,
        floor=highest_mark(case.members),
        state=ActionState.PROPOSED,
        requester=case.command.actor.principal,
        terms=terms,
        replaces=row.action_id,
    )
    old = replace(row, state=ActionState.SUPERSEDED)
    return Accepted(event=event, old=row.state, new=old.state, rows=(old, new))


def reject(case: Case[Reject]) -> Decision:
    """Close what was proposed."""
    return _moved(case.row, Event.REJECT, ActionState.REJECTED)


def approve(case: Case[Approve]) -> Decision:
    """Count an approval; with the last one that is needed the action is available."""
    row, approval = case.row, case.command.approval
    approvals = (
        *row.approvals,
        Approval(
            approval_id=approval.approval_id,
            principal=approval.principal,
            epoch=approval.statement.epoch,
            nonce=approval.statement.nonce,
            statement_sha256=approval.signed_sha256,
        ),
    )
    state = ActionState.AVAILABLE if len(approvals) >= row.terms.approvals_needed else ActionState.PROPOSED
    changed = replace(row, approvals=approvals, state=state)
    return Accepted(event=Event.APPROVE, old=row.state, new=state, rows=(changed,))


def revoke(case: Case[Revoke]) -> Decision:
    """Close what nobody has claimed; mark what somebody has, which cancels nothing that was sent."""
    row = case.row
    unclaimed = row.state in (ActionState.PROPOSED, ActionState.AVAILABLE)
    state = ActionState.REVOKED if unclaimed else row.state
    changed = replace(row, revoked=True, state=state)
    return Accepted(event=Event.REVOKE, old=row.state, new=state, rows=(changed,), cosign_first=case.ledger.witnessed)


def expire(case: Case[Expire]) -> Decision:
    """Close what nobody claimed in its window."""
    return _moved(case.row, Event.EXPIRE, ActionState.EXPIRED)


def _moved(row: Action, event: Event, state: ActionState) -> Accepted:
    return Accepted(event=event, old=row.state, new=state, rows=(replace(row, state=state),))
