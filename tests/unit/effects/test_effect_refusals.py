"""Each guard of the effect ledger by name: a question that is accepted, one thing in it changed, and the refusal."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from agent_run_ledger.kernel.effects import Event, LedgerState, Now, Rejected, Role, TargetClass, WitnessPolicy
from agent_run_ledger.kernel.effects.commands import DoubtBy
from agent_run_ledger.kernel.effects.evidence import Covers, Found
from agent_run_ledger.kernel.effects.reducer import GUARDS
from agent_run_ledger.kernel.effects.settling import rebuilt_id
from tests.unit.effects.examples import (
    ANN,
    APPROVAL,
    BEGIN_MS,
    BOB,
    BOUND_MS,
    DRAIN,
    END_MS,
    EXE,
    FENCE,
    KEY,
    MAX_MS,
    MS,
    OTHER_SHA,
    OTHER_TERMS,
    PERMIT_END_MS,
    RECEIPT,
    SEEN,
    SEEN_EXECUTED,
    TERMS,
    TIMER,
    A,
    Asked,
    actor,
    approval_of,
    drain,
    example,
    fencing,
    row,
)

E = Event
Refusal = tuple[Event, str, Callable[[], Asked]]


def at(asked: Asked, earliest_ms: int, latest_ms: int | None = None) -> Asked:
    """The same at another time."""
    return asked.with_(now=Now(earliest_ms, earliest_ms if latest_ms is None else latest_ms))


def signed(**changes: object) -> Asked:
    """An approval over a statement that differs from what is asked about."""
    asked = example(E.APPROVE)
    return asked.with_(approval=approval_of(asked.ledger, asked.members[-1], **changes))


def approved_by(principal: str) -> Asked:
    """An approval by another principal."""
    asked = example(E.APPROVE)
    approval = approval_of(asked.ledger, asked.members[-1], principal)
    return asked.with_(approval=approval, actor=actor(principal, Role.APPROVER))


def seen(event: Event, **changes: object) -> Asked:
    """A success by an observation."""
    asked = example(event)
    return asked.with_(evidence=replace(SEEN_EXECUTED, **{"observer": asked.command.actor.principal, **changes}))


def terms_of_new(event: Event) -> list[Refusal]:
    """What new terms have to keep, of a proposal and of everything that makes a member."""
    new = {E.PROPOSE: TERMS}.get(event, OTHER_TERMS)
    empty, alone = replace(new, not_before_ms=END_MS), replace(new, approvals_needed=0)
    return [
        (event, "empty_window", lambda: example(event).with_(terms=empty)),
        (event, "no_approvals", lambda: example(event).with_(terms=alone)),
    ]


def fence_refusals(event: Event) -> list[Refusal]:
    """What an answer of a receiver has to be."""
    return [
        (event, "no_fence", lambda: fencing(event).terms_with(target_class=TargetClass.I)),
        (event, "fence_of_other_key", lambda: fencing(event).part("fence", action_key="refund:18")),
        (event, "fence_of_other_receiver", lambda: fencing(event).part("fence", receiver="https://pay.test")),
        (event, "fence_of_other_epoch", lambda: fencing(event).ledger_with(epoch=1)),
        (event, "receiver_executed", lambda: fencing(event).part("fence", found=Found.EXECUTED)),
        (event, "outcome_unknown", lambda: fencing(event).part("fence", found=Found.UNKNOWN)),
        (event, "mark_below", lambda: fencing(event).part("fence", mark=0)),
        (event, "evidence_used", lambda: fencing(event).row_with(evidence=(FENCE.evidence_id,))),
    ]


def success_refusals(event: Event) -> list[Refusal]:
    """What evidence of a success has to be."""
    return [
        (event, "other_key", lambda: example(event).part("evidence", action_key="refund:18")),
        (event, "other_receiver", lambda: example(event).part("evidence", receiver="https://pay.test")),
        (event, "says_no_success", lambda: seen(event, found=Found.NOTHING)),
        (event, "says_no_success", lambda: example(event).with_(evidence=FENCE)),
        (event, "other_observer", lambda: seen(event, observer="nobody")),
        (event, "other_observer", lambda: seen(event, observer="nobody").row_with(observation=SEEN_EXECUTED)),
        (event, "other_epoch", lambda: seen(event, epoch=77)),
        (event, "other_epoch", lambda: on_record(seen(event), epoch=1)),
        (event, "id_taken", lambda: lost(event, rebuilt_id(KEY, RECEIPT.evidence_id))),
        (event, "evidence_used", lambda: example(event).row_with(evidence=(RECEIPT.evidence_id,))),
        (event, "evidence_used", lambda: seen(event).row_with(evidence=(SEEN.evidence_id,), observation=SEEN)),
        (event, "evidence_used", lambda: after_older(example(event), RECEIPT.evidence_id)),
    ]


def dispatch_refusals(event: Event) -> list[Refusal]:
    """What a claim and its preparation have to keep."""
    frozen = {"origin_frozen": False}
    return [
        (event, "old_epoch", lambda: example(event).ledger_with(epoch=1)),
        (event, "audience_closed", lambda: example(event).ledger_with(closed_audiences=frozenset({TERMS.audience}))),
        (event, "origin_not_frozen", lambda: example(event).ledger_with(**frozen).terms_with(target_class=N)),
        (event, "origin_not_frozen", lambda: example(event).ledger_with(**frozen).terms_with(target_class=F_MINUS)),
        (event, "revoked", lambda: example(event).row_with(revoked=True)),
        (event, "not_yet_valid", lambda: at(example(event), BEGIN_MS - 1, MS)),
        (event, "expired", lambda: at(example(event), MS, END_MS)),
    ]


FILE, NONE = {"witness": WitnessPolicy.FILE}, {"witness": WitnessPolicy.NONE}
BY_EXECUTOR = replace(SEEN, observer=EXE)
N, I_CLASS, F_MINUS, F = TargetClass.N, TargetClass.I, TargetClass.F_MINUS, TargetClass.F

REFUSALS: list[Refusal] = [
    (E.PROPOSE, "key_taken", lambda: example(E.PROPOSE, A.NOT_EXECUTED).with_(terms=OTHER_TERMS)),
    (E.EDIT, "same_bytes", lambda: example(E.EDIT).with_(terms=TERMS)),
    *((event, "id_taken", lambda event=event: taken(event)) for event in (E.EDIT, E.SUCCESSOR)),
    *(one for event in (E.PROPOSE, E.EDIT, E.SUCCESSOR) for one in terms_of_new(event)),
    (E.APPROVE, "other_bytes_signed", lambda: example(E.APPROVE).part("approval", signed_sha256=b"?" * 32)),
    (E.APPROVE, "other_approver", lambda: signed(approver="eve")),
    (E.APPROVE, "other_approver", lambda: example(E.APPROVE).part("approval", principal="eve")),
    (E.APPROVE, "other_approver", lambda: example(E.APPROVE).with_(actor=actor("eve", Role.APPROVER))),
    (E.APPROVE, "old_epoch", lambda: signed(epoch=1)),
    (E.APPROVE, "old_epoch", lambda: example(E.APPROVE).ledger_with(epoch=1)),
    (E.APPROVE, "old_epoch", lambda: example(E.APPROVE).row_with(epoch=1)),
    (E.APPROVE, "other_action", lambda: signed(ledger_id=b"k" * 16)),
    (E.APPROVE, "other_action", lambda: signed(action_key="refund:18")),
    (E.APPROVE, "other_action", lambda: signed(action_id=b"another member")),
    (E.APPROVE, "other_request", lambda: signed(request_sha256=OTHER_SHA)),
    (E.APPROVE, "other_policy", lambda: signed(policy_sha256=b"q" * 32)),
    (E.APPROVE, "other_window", lambda: signed(not_before_ms=BEGIN_MS + 1)),
    (E.APPROVE, "other_window", lambda: signed(dispatch_before_ms=END_MS + 1)),
    (E.APPROVE, "other_terms", lambda: signed(executor="eve")),
    (E.APPROVE, "other_terms", lambda: signed(audience="https://pay.test")),
    (E.APPROVE, "other_terms", lambda: signed(target_class=TargetClass.I)),
    (E.APPROVE, "other_terms", lambda: signed(checks_expiry=True)),
    (E.APPROVE, "other_terms", lambda: signed(preconditions=())),
    (E.APPROVE, "other_terms", lambda: signed(display_sha256=b"?" * 32)),
    (E.APPROVE, "other_terms", lambda: signed(requester="eve")),
    (E.APPROVE, "approver_is_requester", lambda: approved_by(ANN)),
    (E.APPROVE, "approver_is_executor", lambda: approved_by(EXE)),
    (E.APPROVE, "same_principal", lambda: example(E.APPROVE).row_with(approvals=(APPROVAL,))),
    (
        E.APPROVE,
        "other_instance",
        lambda: example(E.APPROVE).row_with(approvals=(replace(APPROVAL, principal="dan", nonce=b"m"),)),
    ),
    (E.APPROVE, "expired", lambda: at(example(E.APPROVE), MS, END_MS)),
    (E.SUCCESSOR, "close_not_cosigned", lambda: example(E.SUCCESSOR).ledger_with(witness=WitnessPolicy.FILE)),
    (E.EXPIRE, "clock_untrusted", lambda: example(E.EXPIRE).ledger_with(state=LedgerState.TIME_UNTRUSTED)),
    (E.EXPIRE, "window_open", lambda: at(example(E.EXPIRE), END_MS - 1)),
    *(
        (event, "wrong_executor", lambda event=event: example(event).with_(actor=actor("eve", Role.EXECUTOR)))
        for event in (E.CLAIM, E.PREPARE, E.HAND_OUT, E.OUTCOME)
    ),
    (E.CLAIM, "digest_mismatch", lambda: example(E.CLAIM).with_(request_sha256=OTHER_SHA)),
    (E.CLAIM, "few_approvals", lambda: example(E.CLAIM).row_with(approvals=())),
    (E.CLAIM, "few_approvals", lambda: example(E.CLAIM).row_with(approvals=(replace(APPROVAL, epoch=1),))),
    (
        E.CLAIM,
        "few_approvals",
        lambda: example(E.CLAIM).terms_with(approvals_needed=2).row_with(approvals=(APPROVAL, APPROVAL)),
    ),
    *(one for event in (E.CLAIM, E.PREPARE) for one in dispatch_refusals(event)),
    (E.PREPARE, "other_claim", lambda: example(E.PREPARE).with_(claim_id=b"?")),
    (E.PREPARE, "other_worker", lambda: example(E.PREPARE).with_(worker="w2")),
    (E.HAND_OUT, "other_claim", lambda: example(E.HAND_OUT).with_(claim_id=b"?")),
    (E.HAND_OUT, "other_worker", lambda: example(E.HAND_OUT).with_(worker="w2")),
    (E.PREPARE, "permit_too_long", lambda: example(E.PREPARE).with_(permit_ms=MAX_MS + 1)),
    (E.PREPARE, "permit_too_long", lambda: example(E.PREPARE).with_(permit_ms=0)),
    (E.HAND_OUT, "restarted", lambda: example(E.HAND_OUT).ledger_with(opening=b"opening 2")),
    (E.HAND_OUT, "old_epoch", lambda: example(E.HAND_OUT).ledger_with(epoch=1)),
    (E.HAND_OUT, "revoked", lambda: example(E.HAND_OUT).row_with(revoked=True)),
    (E.HAND_OUT, "permit_expired", lambda: at(example(E.HAND_OUT), MS, PERMIT_END_MS)),
    (E.HAND_OUT, "permit_expired", lambda: example(E.HAND_OUT).row_with(permit_expires_ms=None)),
    (E.HAND_OUT, "drained", lambda: example(E.HAND_OUT).row_with(drain=DRAIN)),
    (E.HAND_OUT, "not_cosigned", lambda: example(E.HAND_OUT).ledger_with(**FILE).with_(cosigned=False)),
    (E.HAND_OUT, "handed_out", lambda: example(E.HAND_OUT).row_with(handed_out=True)),
    (E.HAND_OUT, "handed_out", lambda: example(E.HAND_OUT).row_with(handed_out=True).terms_with(target_class=N)),
    (E.DOUBT, "neighbours_claim", lambda: example(E.DOUBT).with_(by=DoubtBy.WORKER, worker="w2")),
    (E.DOUBT, "not_operator", lambda: example(E.DOUBT).with_(actor=actor(EXE, Role.EXECUTOR))),
    (
        E.DOUBT,
        "clock_untrusted",
        lambda: at(example(E.DOUBT), END_MS).with_(by=DoubtBy.EXPIRY).ledger_with(state=LedgerState.TIME_UNTRUSTED),
    ),
    (E.DOUBT, "too_early", lambda: at(example(E.DOUBT), PERMIT_END_MS + BOUND_MS - 1).with_(by=DoubtBy.EXPIRY)),
    (E.DOUBT, "too_early", lambda: at(example(E.DOUBT, A.CLAIMED), END_MS + BOUND_MS - 1).with_(by=DoubtBy.EXPIRY)),
    *(one for event in (E.OUTCOME, E.SUCCESS) for one in success_refusals(event)),
    (E.SUCCESS, "reconciler_is_executor", lambda: example(E.SUCCESS).with_(actor=actor(EXE, Role.RECONCILER))),
    (E.OBSERVE, "other_key", lambda: example(E.OBSERVE).part("evidence", action_key="refund:18")),
    (E.OBSERVE, "other_key", lambda: drain().part("evidence", action_key="refund:18")),
    (E.OBSERVE, "other_observer", lambda: example(E.OBSERVE).part("evidence", observer="eve")),
    (E.OBSERVE, "other_epoch", lambda: example(E.OBSERVE).part("evidence", epoch=1)),
    (E.OBSERVE, "evidence_used", lambda: example(E.OBSERVE).row_with(evidence=(SEEN.evidence_id,))),
    (E.OBSERVE, "evidence_used", lambda: drain().row_with(evidence=(DRAIN.evidence_id,), drain=DRAIN)),
    (E.OBSERVE, "evidence_used", lambda: after_older(drain(), DRAIN.evidence_id)),
    (E.OBSERVE, "other_drain", lambda: example(E.OBSERVE).with_(evidence=SEEN)),
    (
        E.OBSERVE,
        "other_drain",
        lambda: example(E.OBSERVE).with_(evidence=SEEN).row_with(drain=replace(DRAIN, evidence_id=b"another")),
    ),
    (E.OBSERVE, "contradicted", lambda: example(E.OBSERVE).row_with(observation=SEEN_EXECUTED)),
    (E.OBSERVE, "nothing_to_drain", lambda: example(E.OBSERVE, A.CLAIMED).with_(evidence=DRAIN)),
    (E.OBSERVE, "fence_instead", lambda: drain().terms_with(target_class=F)),
    (
        E.OBSERVE,
        "drain_by_executor",
        lambda: drain().part("evidence", observer=EXE).with_(actor=actor(EXE, Role.EXECUTOR)),
    ),
    (E.OBSERVE, "no_timer", lambda: drain(timer=True).terms_with(target_class=N)),
    (E.OBSERVE, "no_timer", lambda: drain(timer=True).terms_with(target_class=I_CLASS)),
    (E.OBSERVE, "no_timer", lambda: drain(timer=True).terms_with(target_class=F_MINUS, checks_expiry=True)),
    (E.OBSERVE, "clock_untrusted", lambda: drain(timer=True).ledger_with(state=LedgerState.TIME_UNTRUSTED)),
    (E.OBSERVE, "permit_may_live", lambda: at(drain(timer=True), PERMIT_END_MS + BOUND_MS - 1, END_MS)),
    (E.OBSERVE, "permit_may_live", lambda: at(lost_permit(), MS + MAX_MS + BOUND_MS - 1)),
    (
        E.OBSERVE,
        "covers_too_little",
        lambda: drain().part("evidence", covers=Covers.WORKER, epoch=1).ledger_with(epoch=1),
    ),
    (E.OBSERVE, "covers_too_little", lambda: drain().part("evidence", covers=Covers.WORKER).row_with(worker=None)),
    (E.NOT_EXECUTED, "reconciler_is_executor", lambda: example(E.NOT_EXECUTED).with_(people=frozenset({EXE}))),
    (
        E.NOT_EXECUTED,
        "reconciler_is_executor",
        lambda: example(E.NOT_EXECUTED).with_(actor=actor(EXE, Role.RECONCILER)),
    ),
    (E.NOT_EXECUTED, "few_people", lambda: example(E.NOT_EXECUTED).ledger_with(people_for_not_executed=2)),
    (E.NOT_EXECUTED, "not_asked", lambda: example(E.NOT_EXECUTED).terms_with(target_class=F)),
    (E.NOT_EXECUTED, "not_asked", lambda: example(E.NOT_EXECUTED).terms_with(target_class=F_MINUS)),
    *fence_refusals(E.NOT_EXECUTED),
    (E.NOT_EXECUTED, "no_drain", lambda: example(E.NOT_EXECUTED).row_with(drain=None)),
    (E.NOT_EXECUTED, "no_drain", lambda: unknown().row_with(drain=None)),
    (E.NOT_EXECUTED, "no_drain", lambda: example(E.NOT_EXECUTED).row_with(drain=replace(DRAIN, epoch=1))),
    (E.NOT_EXECUTED, "no_observation", lambda: example(E.NOT_EXECUTED).row_with(observation=None)),
    (
        E.NOT_EXECUTED,
        "no_observation",
        lambda: example(E.NOT_EXECUTED).row_with(observation=replace(SEEN, found=Found.UNKNOWN)),
    ),
    (E.NOT_EXECUTED, "no_observation", lambda: example(E.NOT_EXECUTED).row_with(observation=replace(SEEN, epoch=1))),
    (
        E.NOT_EXECUTED,
        "observation_before_drain",
        lambda: example(E.NOT_EXECUTED).row_with(observation=replace(SEEN, after=None)),
    ),
    (E.NOT_EXECUTED, "executors_word", lambda: example(E.NOT_EXECUTED).row_with(observation=BY_EXECUTOR)),
    (E.WRITE_OFF, "reconciler_is_executor", lambda: example(E.WRITE_OFF).with_(people=frozenset({EXE, BOB}))),
    (E.WRITE_OFF, "few_people", lambda: example(E.WRITE_OFF).with_(people=frozenset())),
    (E.WRITE_OFF, "observable", lambda: example(E.WRITE_OFF).with_(nobody_can_observe=False)),
    (E.WRITE_OFF, "observable", lambda: example(E.WRITE_OFF).row_with(observation=SEEN)),
    *(
        (event, "seen_executed", lambda event=event: example(event).row_with(observation=SEEN_EXECUTED))
        for event in (E.PREPARE, E.HAND_OUT, E.NOT_EXECUTED, E.CLOSE_UNPREPARED)
    ),
    (E.NOT_EXECUTED, "seen_executed", lambda: fencing(E.NOT_EXECUTED).row_with(observation=SEEN_EXECUTED)),
    (E.NOT_EXECUTED, "seen_executed", lambda: after_older(example(E.NOT_EXECUTED), b"x", observation=SEEN_EXECUTED)),
    (
        E.CLOSE_UNPREPARED,
        "reconciler_is_executor",
        lambda: example(E.CLOSE_UNPREPARED).with_(actor=actor(EXE, Role.RECONCILER)),
    ),
    (E.CLOSE_UNPREPARED, "prepared_before", lambda: example(E.CLOSE_UNPREPARED).row_with(prepare_leaf=True)),
    (E.CLOSE_UNPREPARED, "needs_fence_or_drain", lambda: example(E.CLOSE_UNPREPARED).ledger_with(lost_leaves=True)),
    (E.CLOSE_UNPREPARED, "needs_fence_or_drain", lambda: example(E.CLOSE_UNPREPARED).ledger_with(**NONE)),
    *fence_refusals(E.CLOSE_UNPREPARED),
    (E.ADMIT, "few_officers", lambda: example(E.ADMIT).ledger_with(officers_needed=2)),
    (E.ADMIT, "few_officers", lambda: example(E.ADMIT).with_(officers=frozenset({"eve"}))),
    (E.ADMIT, "wrong_epoch", lambda: example(E.ADMIT).with_(epoch=0)),
    (E.ADMIT, "wrong_epoch", lambda: example(E.ADMIT).with_(epoch=2)),
    (E.ADMIT, "wrong_epoch", lambda: example(E.ADMIT).with_(outside_epoch=1)),
    (E.ADMIT, "permit_may_live", lambda: at(example(E.ADMIT), MS + MAX_MS + BOUND_MS - 1, END_MS)),
    (E.HAND_OUT, "prepared_later", lambda: at(example(E.HAND_OUT), MS - 1)),
    (E.NOT_EXECUTED, "clock_untrusted", lambda: timed(state=LedgerState.TIME_UNTRUSTED)),
    (E.NOT_EXECUTED, "drain_before_correction", lambda: timed(corrections=1)),
    (E.NOT_EXECUTED, "drain_before_correction", lambda: timed(corrections=2).row_with(drain_corrections=1)),
    (E.OBSERVE, "permit_may_live", lambda: at(corrected_permit(), END_MS + MAX_MS + BOUND_MS - 1)),
    (E.ADMIT, "loss_unknown", lambda: example(E.ADMIT).with_(lost_leaves=False)),
]  # fmt: skip


def taken(event: Event) -> Asked:
    """A new member with the id of the old one."""
    asked = example(event)
    return asked.with_(new_action_id=asked.members[-1].action_id)


def timed(**changes: object) -> Asked:
    """A decision that rests on a timer's drain, in a ledger with changes."""
    return example(E.NOT_EXECUTED).row_with(drain=TIMER).ledger_with(**changes)


def on_record(asked: Asked, **changes: Any) -> Asked:
    """The same with the evidence on record, and then a changed ledger."""
    return asked.row_with(observation=asked.command.evidence).ledger_with(**changes)


def lost(event: Event, action_id: bytes) -> Asked:
    """A receipt of a lost member, where an older one has this id."""
    asked = after_older(example(event).part("evidence", generation=7), b"x")
    return replace(asked, members=(replace(asked.members[0], action_id=action_id, generation=None), asked.members[1]))


def after_older(asked: Asked, evidence_id: bytes, **changes: Any) -> Asked:
    """The same, where an older member of the key has evidence with this id."""
    older = replace(row(A.SUPERSEDED), action_id=b"older", evidence=(evidence_id,), **changes)
    return replace(asked, members=(older, *asked.members))


def lost_permit() -> Asked:
    """A timer for a member that this history never prepared."""
    return drain(timer=True).row_with(state=A.UNRESOLVED, permit_expires_ms=None, in_doubt_since_ms=MS)


def corrected_permit() -> Asked:
    """The same where a clock that was later than the doubt has been corrected."""
    return lost_permit().ledger_with(corrections=1, corrected_ms=END_MS)


def unknown() -> Asked:
    """F-minus accepted it and does not know how it ended; everything else is there."""
    asked = example(E.NOT_EXECUTED).terms_with(target_class=F_MINUS)
    return asked.with_(fence=replace(FENCE, found=Found.UNKNOWN))


def named(refusals: list[Refusal]) -> list[object]:
    """One id a case: the event, the code, and a number where a code has several."""
    count: dict[str, int] = {}
    params: list[object] = []
    for event, code, make in refusals:
        name = f"{event}-{code}"
        count[name] = count.get(name, 0) + 1
        params.append(pytest.param(event, code, make, id=name if count[name] == 1 else f"{name}-{count[name]}"))
    return params


@pytest.mark.parametrize(("event", "code", "make"), named(REFUSALS))
def test_each_guard_refuses_by_its_name(event: Event, code: str, make: Callable[[], Asked]) -> None:
    asked = make()
    decision = asked.decided()
    assert isinstance(decision, Rejected), decision
    assert decision.code == code
    assert decision.words


BY_THE_CLOCK = [
    (E.EXPIRE, "clock_untrusted", lambda: example(E.EXPIRE)),
    (E.DOUBT, "clock_untrusted", lambda: at(example(E.DOUBT), END_MS).with_(by=DoubtBy.EXPIRY)),
    (E.OBSERVE, "clock_untrusted", lambda: drain(timer=True)),
    (E.NOT_EXECUTED, "clock_untrusted", timed),
]


@pytest.mark.parametrize(("event", "code", "make"), named(BY_THE_CLOCK))
def test_a_clock_that_is_doubted_beside_the_ledgers_state_ends_nothing(
    event: Event, code: str, make: Callable[[], Asked]
) -> None:
    make().accepted()
    decision = make().ledger_with(clock_doubted=True).decided()
    assert isinstance(decision, Rejected), decision
    assert (make().command.event, decision.code) == (event, code)


@pytest.mark.parametrize("event", Event)
def test_the_question_that_the_refusals_are_made_from_is_accepted(event: Event) -> None:
    example(event).accepted()


def test_no_guard_is_without_a_case() -> None:
    cases = {(event, code) for event, code, _ in REFUSALS}
    assert cases == {(event, guard.code) for event, guards in GUARDS.items() for guard in guards}


# The other side of each edge: one step further and it is accepted.
EDGES = [
    ("claim-begins", lambda: at(example(E.CLAIM), BEGIN_MS)),
    ("claim-ends", lambda: at(example(E.CLAIM), MS, END_MS - 1)),
    ("prepare-begins", lambda: at(example(E.PREPARE), BEGIN_MS)),
    ("prepare-ends", lambda: at(example(E.PREPARE), MS, END_MS - 1)),
    ("approve-ends", lambda: at(example(E.APPROVE), MS, END_MS - 1)),
    ("permit-longest", lambda: example(E.PREPARE).with_(permit_ms=MAX_MS)),
    ("permit-ends", lambda: at(example(E.HAND_OUT), MS, PERMIT_END_MS - 1)),
    ("expire-begins", lambda: at(example(E.EXPIRE), MS, END_MS)),
    ("doubt-prepared", lambda: at(example(E.DOUBT), PERMIT_END_MS + BOUND_MS).with_(by=DoubtBy.EXPIRY)),
    ("doubt-claimed", lambda: at(example(E.DOUBT, A.CLAIMED), END_MS + BOUND_MS).with_(by=DoubtBy.EXPIRY)),
    ("doubt-own", lambda: example(E.DOUBT).with_(by=DoubtBy.WORKER, worker="w1", actor=actor(EXE, Role.EXECUTOR))),
    ("drain-by-time", lambda: drain(timer=True)),
    ("drain-by-time-i", lambda: drain(timer=True).terms_with(target_class=I_CLASS, checks_expiry=True)),
    ("drain-by-time-lost", lambda: at(lost_permit(), MS + MAX_MS + BOUND_MS)),
    ("drain-by-time-corrected", lambda: at(corrected_permit(), END_MS + MAX_MS + BOUND_MS)),
    ("permit-of-this-moment", lambda: at(example(E.HAND_OUT), MS - 1, MS)),
    ("by-the-corrected-clock", lambda: timed(corrections=2).row_with(drain_corrections=2)),
    ("by-a-dead-path", lambda: example(E.NOT_EXECUTED).ledger_with(corrections=1, state=LedgerState.TIME_UNTRUSTED)),
    ("by-a-fence", lambda: fencing(E.NOT_EXECUTED).row_with(drain=TIMER).ledger_with(corrections=1)),
    ("drain-dead-worker", lambda: drain().part("evidence", covers=Covers.WORKER)),
    ("drain-dead-f-minus", lambda: drain().terms_with(target_class=F_MINUS)),
    ("drain-everyone", lambda: drain().ledger_with(epoch=1).part("evidence", epoch=1)),
    ("admit-waited", lambda: at(example(E.ADMIT), MS + MAX_MS + BOUND_MS)),
    ("admit-after-lost-epochs", lambda: example(E.ADMIT).with_(epoch=4, outside_epoch=3)),
    ("admit-complete", lambda: example(E.ADMIT).ledger_with(witness=WitnessPolicy.HTTP).with_(lost_leaves=False)),
    ("unfrozen-v", lambda: example(E.CLAIM).ledger_with(origin_frozen=False)),
    ("unfrozen-f", lambda: example(E.CLAIM).ledger_with(origin_frozen=False).terms_with(target_class=F)),
    ("fence", lambda: fencing(E.NOT_EXECUTED)),
    ("fence-close", lambda: fencing(E.CLOSE_UNPREPARED).ledger_with(witness=WitnessPolicy.NONE)),
    ("fence-higher", lambda: fencing(E.NOT_EXECUTED).part("fence", mark=7)),
    ("unknown-drained-seen", unknown),
    ("look-after-drain", lambda: example(E.OBSERVE).with_(evidence=SEEN).row_with(drain=DRAIN)),
    ("success-by-what-was-seen", lambda: seen(E.SUCCESS).row_with(observation=SEEN_EXECUTED, evidence=(b"seen",))),
    ("outcome-by-own-look", lambda: seen(E.OUTCOME)),
    ("success-by-the-executors-look", lambda: on_record(seen(E.SUCCESS, observer=EXE))),
    ("lost-with-another-id", lambda: lost(E.SUCCESS, RECEIPT.evidence_id[:16])),
    ("two-people", lambda: example(E.NOT_EXECUTED).ledger_with(people_for_not_executed=2).with_(people=frozenset("d"))),
    ("cosigned", lambda: example(E.SUCCESSOR).ledger_with(witness=WitnessPolicy.FILE).with_(cosigned=True)),
    ("never-claimed", lambda: example(E.SUCCESSOR, A.EXPIRED).ledger_with(witness=WitnessPolicy.FILE)),
]  # fmt: skip


@pytest.mark.parametrize("make", [pytest.param(make, id=name) for name, make in EDGES])
def test_on_the_other_side_of_each_edge_it_is_accepted(make: Callable[[], Asked]) -> None:
    make().accepted()
