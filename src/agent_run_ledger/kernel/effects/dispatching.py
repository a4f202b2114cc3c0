"""The rules from the claim to the hand-out of its permit, and the doubt that ends them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from agent_run_ledger.kernel.effects.action import highest_mark
from agent_run_ledger.kernel.effects.ages import deadline_ms
from agent_run_ledger.kernel.effects.commands import Claim, Doubt, DoubtBy, HandOut, Prepare
from agent_run_ledger.kernel.effects.decision import Accepted, Case, Decision, Guard, Recorded
from agent_run_ledger.kernel.effects.evidence import Found
from agent_run_ledger.kernel.effects.states import (
    SAME_PERMIT_AGAIN,
    ActionState,
    Event,
    Role,
    TargetClass,
)

_SAFE_UNFROZEN: Final = frozenset({TargetClass.V, TargetClass.F})


def _in_epoch(case: Case[Any]) -> bool:
    return case.row.epoch == case.ledger.epoch


def _audience_open(case: Case[Any]) -> bool:
    return case.row.terms.audience not in case.ledger.closed_audiences


def _origin_ended(case: Case[Any]) -> bool:
    return case.ledger.origin_frozen or case.row.terms.target_class in _SAFE_UNFROZEN


def _not_revoked(case: Case[Any]) -> bool:
    return not case.row.revoked


def _begun(case: Case[Claim] | Case[Prepare]) -> bool:
    return case.row.terms.not_before_ms <= case.command.now.earliest_ms


def _not_over(case: Case[Claim] | Case[Prepare]) -> bool:
    return case.command.now.latest_ms < case.row.terms.dispatch_before_ms


def by_its_executor(case: Case[Any]) -> bool:
    """Whether who asks is the executor that the approvals name: a role, or knowing the claim, is not enough."""
    return bool(case.command.actor.principal == case.row.terms.executor)


def nobody_saw_it(case: Case[Any]) -> bool:
    """Whether no member of the key has on record that its effect was seen: after that only a success is left."""
    seen = [member.observation for member in case.members]
    return all(one is None or one.found is not Found.EXECUTED for one in seen)


def _own_claim(case: Case[Prepare] | Case[HandOut]) -> bool:
    return case.command.claim_id == case.row.claim_id


def _own_worker(case: Case[Prepare] | Case[HandOut]) -> bool:
    return case.command.worker == case.row.worker


def _enough_approvals(case: Case[Claim]) -> bool:
    counted = {one.principal for one in case.row.approvals if one.epoch == case.ledger.epoch}
    return len(counted) >= case.row.terms.approvals_needed


def _permit_lives(case: Case[HandOut]) -> bool:
    expires = case.row.permit_expires_ms
    return expires is not None and case.command.now.latest_ms < expires


CLAIM: Final[tuple[Guard[Claim], ...]] = (
    Guard("wrong_executor", "the approval is for another executor", by_its_executor),
    Guard(
        "digest_mismatch",
        "these are not the approved bytes",
        lambda c: c.command.request_sha256 == c.row.terms.request_sha256,
    ),
    Guard("old_epoch", "it was approved in another epoch", _in_epoch),
    Guard("few_approvals", "it has fewer approvals of this epoch than it needs", _enough_approvals),
    Guard("audience_closed", "the epoch was not raised at its receiver", _audience_open),
    Guard("origin_not_frozen", "the older origin may still dispatch to this target", _origin_ended),
    Guard("revoked", "it was revoked", _not_revoked),
    Guard("not_yet_valid", "its window has not begun", _begun),
    Guard("expired", "its window is over", _not_over),
)


def _prepared_before(case: Case[HandOut]) -> bool:
    """Whether the preparation is not in the future: where the clock was corrected, its permit would live too long."""
    prepared = case.row.prepared_ms
    return prepared is not None and prepared <= case.command.now.latest_ms


PREPARE: Final[tuple[Guard[Prepare], ...]] = (
    Guard("wrong_executor", "another executor was approved to prepare it", by_its_executor),
    Guard("other_claim", "this is not the claim that holds it", _own_claim),
    Guard("other_worker", "another process holds the claim", _own_worker),
    Guard("old_epoch", "it was claimed in another epoch", _in_epoch),
    Guard("audience_closed", "the epoch was not raised at its receiver", _audience_open),
    Guard("origin_not_frozen", "the older origin may still dispatch to this target", _origin_ended),
    Guard("revoked", "it was revoked", _not_revoked),
    Guard("not_yet_valid", "its window has not begun", _begun),
    Guard("expired", "its window is over", _not_over),
    Guard("seen_executed", "somebody saw that its effect is there: record the success", nobody_saw_it),
    Guard(
        "permit_too_long",
        "a permit lives for at least a millisecond and for no longer than the ledger allows",
        lambda c: 0 < c.command.permit_ms <= c.ledger.max_permit_ms,
    ),
)

HAND_OUT: Final[tuple[Guard[HandOut], ...]] = (
    Guard("wrong_executor", "the permit is for another executor", by_its_executor),
    Guard("other_claim", "this is not the claim that holds it", _own_claim),
    Guard("other_worker", "another process prepared it, and with that process its permit is gone", _own_worker),
    Guard(
        "restarted",
        "the ledger was opened anew since, and what was not handed out before is void",
        lambda c: c.row.opening == c.ledger.opening,
    ),
    Guard("old_epoch", "it was prepared in another epoch", _in_epoch),
    Guard("revoked", "it was revoked", _not_revoked),
    Guard("permit_expired", "the permit is over", _permit_lives),
    Guard("prepared_later", "the clock was corrected to before its preparation, and that voids it", _prepared_before),
    Guard("drained", "it is on record that nothing more of this claim can arrive", lambda c: c.row.drain is None),
    Guard("seen_executed", "somebody saw that its effect is there, so nothing is sent", nobody_saw_it),
    Guard(
        "not_cosigned",
        "the witness has not seen the prepare leaf",
        lambda c: not c.ledger.witnessed or c.command.cosigned,
    ),
    Guard(
        "handed_out",
        "the permit was handed out, and a second one could be a second effect",
        lambda c: not c.row.handed_out or c.row.terms.target_class in SAME_PERMIT_AGAIN,
    ),
)


DOUBT: Final[tuple[Guard[Doubt], ...]] = (
    Guard(
        "neighbours_claim",
        "a worker can doubt only its own claim",
        lambda c: c.command.by is not DoubtBy.WORKER or c.command.worker == c.row.worker,
    ),
    Guard(
        "not_operator",
        "an operator's doubt needs an operator",
        lambda c: c.command.by is not DoubtBy.OPERATOR or Role.OPERATOR in c.command.actor.roles,
    ),
    Guard(
        "clock_untrusted",
        "the clock is not trusted, so it cannot say that it is late",
        lambda c: c.command.by is not DoubtBy.EXPIRY or c.ledger.clock_trusted,
    ),
    Guard(
        "too_early",
        "its worker may still be at it",
        lambda c: (
            c.command.by is not DoubtBy.EXPIRY or c.command.now.earliest_ms >= deadline_ms(c.row) + c.ledger.bound_ms
        ),
    ),
)


def known_claim(case: Case[Claim]) -> Recorded | None:
    """Return the record where this worker of its executor made this claim of these bytes. Never a second grant."""
    row, command = case.row, case.command
    asked = (command.claim_key, command.worker, command.request_sha256)
    asked_again = asked == (row.claim_key, row.worker, row.terms.request_sha256)
    return Recorded(row) if asked_again and row.claim_id is not None and by_its_executor(case) else None


def claim(case: Case[Claim]) -> Decision:
    """Give the action to one worker, under a generation above every mark of the key."""
    row, command = case.row, case.command
    changed = replace(
        row,
        state=ActionState.CLAIMED,
        generation=highest_mark(case.members) + 1,
        claim_id=command.claim_id,
        claim_key=command.claim_key,
        worker=command.worker,
        claimed_ms=command.now.latest_ms,
    )
    return Accepted(event=Event.CLAIM, old=row.state, new=changed.state, rows=(changed,))


def prepare(case: Case[Prepare]) -> Decision:
    """Write down the intention to dispatch, with the end of its permit, which is never after the window's."""
    row, command = case.row, case.command
    changed = replace(
        row,
        state=ActionState.PREPARED,
        prepare_leaf=True,
        opening=case.ledger.opening,
        prepared_ms=command.now.latest_ms,
        permit_expires_ms=min(command.now.earliest_ms + command.permit_ms, row.terms.dispatch_before_ms),
    )
    return Accepted(event=Event.PREPARE, old=row.state, new=changed.state, rows=(changed,))


def known_prepare(case: Case[Prepare]) -> Recorded | None:
    """Return the record where this claim of this worker was prepared before."""
    row = case.row
    own = by_its_executor(case) and _own_claim(case) and _own_worker(case)
    return Recorded(row) if row.prepare_leaf and own else None


def hand_out(case: Case[HandOut]) -> Decision:
    """Record that the permit leaves the ledger: after that only evidence can say what became of it."""
    row = case.row
    if row.handed_out:
        return Recorded(row, same_permit=True)
    changed = replace(row, handed_out=True)
    return Accepted(event=Event.HAND_OUT, old=row.state, new=row.state, rows=(changed,))


def doubt(case: Case[Doubt]) -> Decision:
    """Record that nobody knows how it ended; from here on nothing is prepared or handed out."""
    row = case.row
    changed = replace(row, state=ActionState.UNRESOLVED, in_doubt_since_ms=case.command.now.latest_ms)
    return Accepted(event=Event.DOUBT, old=row.state, new=changed.state, rows=(changed,))
