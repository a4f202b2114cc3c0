"""What the transitions of an action write: generations, permits, evidence, further members, demotions."""

from __future__ import annotations

import hashlib
from dataclasses import replace

import pytest

from agent_run_ledger.kernel.effects import (
    Event,
    LedgerState,
    Now,
    Recorded,
    Rejected,
    Role,
    TargetClass,
    WitnessPolicy,
)
from agent_run_ledger.kernel.effects.evidence import Found
from tests.unit.effects.examples import (
    BOUND_MS,
    DRAIN,
    END_MS,
    FENCE,
    LEDGER,
    MAX_MS,
    MS,
    NEW_ID,
    OTHER_SHA,
    OTHER_TERMS,
    PERMIT_END_MS,
    RECEIPT,
    SEEN,
    SEEN_EXECUTED,
    SHA,
    TERMS,
    WITNESSED,
    A,
    Asked,
    actor,
    drain,
    example,
    fencing,
    row,
)

HTTP = {"witness": WitnessPolicy.HTTP}


def test_a_claim_takes_the_generation_above_every_mark_of_the_key() -> None:
    (first,) = example(Event.CLAIM).accepted().rows
    assert (first.generation, first.worker, first.claim_id, first.claimed_ms) == (1, "w1", b"claim", MS)
    older = row(A.SUPERSEDED, action_id=b"older", generation=4, fenced_mark=7)
    asked = example(Event.CLAIM)
    (later,) = replace(asked, members=(older, *asked.members)).accepted().rows
    assert later.generation == 8


def test_the_same_claim_of_the_same_worker_is_the_record_and_never_a_second_grant() -> None:
    for state in (A.CLAIMED, A.PREPARED, A.UNRESOLVED, A.SUCCEEDED):
        asked = example(Event.CLAIM, state).with_(claim_key=b"claim key")
        assert asked.decided() == Recorded(asked.members[-1])
        eve = asked.with_(actor=actor("eve", Role.EXECUTOR))
        others = (asked.with_(worker="w2"), asked.with_(claim_key=b"other"), asked.with_(request_sha256=OTHER_SHA), eve)
        for other in others:
            refused = other.decided()
            assert isinstance(refused, Rejected)
            assert refused.code == state


def test_a_prepare_fixes_the_end_of_its_permit_within_the_window() -> None:
    (prepared,) = example(Event.PREPARE).accepted().rows
    assert (prepared.permit_expires_ms, prepared.prepared_ms, prepared.prepare_leaf) == (PERMIT_END_MS, MS, True)
    assert (prepared.handed_out, prepared.opening) == (False, LEDGER.opening)
    (short,) = example(Event.PREPARE).with_(now=Now(END_MS - 5, END_MS - 1)).accepted().rows
    assert short.permit_expires_ms == END_MS


def test_a_repeated_prepare_is_the_record() -> None:
    asked = example(Event.PREPARE, A.PREPARED).row_with(prepare_leaf=True)
    assert asked.decided() == Recorded(asked.members[-1])
    assert isinstance(asked.with_(worker="w2").decided(), Rejected)
    assert isinstance(asked.with_(claim_id=b"?").decided(), Rejected)
    assert isinstance(asked.with_(actor=actor("eve", Role.EXECUTOR)).decided(), Rejected)


def test_a_doubt_of_the_first_millisecond_there_is_counts_as_long_ago() -> None:
    doubted = drain(timer=True).row_with(state=A.UNRESOLVED, permit_expires_ms=None, in_doubt_since_ms=0)
    (row_after,) = doubted.with_(now=Now(MAX_MS + BOUND_MS, MAX_MS + BOUND_MS)).accepted().rows
    assert row_after.drain is not None
    too_early = doubted.with_(now=Now(MAX_MS + BOUND_MS - 1, END_MS)).decided()
    assert isinstance(too_early, Rejected)
    assert too_early.code == "permit_may_live"


@pytest.mark.parametrize("target", TargetClass)
def test_a_permit_is_told_again_only_where_the_receiver_takes_it_for_one_effect(target: TargetClass) -> None:
    (row_after,) = example(Event.HAND_OUT).accepted().rows
    assert row_after.handed_out
    again = example(Event.HAND_OUT).row_with(handed_out=True).terms_with(target_class=target)
    if target in (TargetClass.N, TargetClass.V):
        assert isinstance(again.decided(), Rejected)
    else:
        assert again.decided() == Recorded(again.members[-1], same_permit=True)
        for void in (again.with_(now=Now(MS, PERMIT_END_MS)), again.row_with(revoked=True), again.with_(worker="w2")):
            assert isinstance(void.decided(), Rejected)


def test_the_same_bytes_are_the_same_action_in_every_state() -> None:
    for state in A:
        asked = example(Event.PROPOSE, state)
        assert asked.decided() == Recorded(asked.members[-1])


@pytest.mark.parametrize("target", TargetClass)
def test_after_an_admission_that_lost_leaves_an_unknown_key_is_new_only_for_a_fencing_receiver(
    target: TargetClass,
) -> None:
    asked = example(Event.PROPOSE).with_(terms=replace(TERMS, target_class=target)).ledger_with(lost_leaves=True)
    (made,) = asked.accepted().rows
    fences = target in (TargetClass.F, TargetClass.F_MINUS)
    assert made.state is (A.PROPOSED if fences else A.UNRESOLVED)
    assert made.in_doubt_since_ms == (None if fences else MS)
    (known,) = asked.ledger_with(lost_leaves=False).accepted().rows
    assert known.state is A.PROPOSED


def test_a_successor_begins_above_the_mark_that_was_fenced_and_without_approvals() -> None:
    asked = example(Event.SUCCESSOR).row_with(generation=2, fenced_mark=5)
    old, new = asked.accepted().rows
    assert (old.state, new.state) == (A.SUPERSEDED, A.PROPOSED)
    assert (new.action_id, new.replaces, new.floor, new.generation) == (NEW_ID, old.action_id, 5, None)
    assert (new.approvals, new.terms, new.requester, new.epoch) == ((), OTHER_TERMS, "ann", 0)


def test_only_the_newest_member_has_a_successor() -> None:
    asked = example(Event.SUCCESSOR)
    older, newer = asked.accepted().rows
    refused = replace(asked, members=(older, newer)).decided()
    assert isinstance(refused, Rejected)
    assert refused.code == "superseded"


def test_evidence_of_this_member_closes_this_member() -> None:
    for evidence in (RECEIPT, SEEN_EXECUTED, replace(FENCE, found=Found.EXECUTED, generation=1, request_sha256=SHA)):
        (closed,) = example(Event.SUCCESS).with_(evidence=evidence).accepted().rows
        assert (closed.state, closed.evidence) == (A.SUCCEEDED, (evidence.evidence_id,))


@pytest.mark.parametrize(("generation", "sha"), [(3, SHA), (3, OTHER_SHA), (1, OTHER_SHA)])
def test_evidence_of_a_lost_member_rebuilds_that_one_and_supersedes_this_one(generation: int, sha: bytes) -> None:
    evidence = replace(RECEIPT, generation=generation, request_sha256=sha)
    asked = example(Event.SUCCESS).with_(evidence=evidence)
    decision = asked.accepted()
    old, rebuilt = decision.rows
    assert (decision.old, decision.new, old.state) == (A.UNRESOLVED, A.SUPERSEDED, A.SUPERSEDED)
    assert (rebuilt.state, rebuilt.generation, rebuilt.terms.request_sha256) == (A.SUCCEEDED, generation, sha)
    assert (rebuilt.rebuilt, rebuilt.replaces) == (True, old.action_id)
    said = b"agent-run-ledger/rebuilt-member/v1\nrefund:17\0receipt of sixteen bytes"
    assert rebuilt.action_id == hashlib.sha256(said).digest()[:16]
    assert old.generation != rebuilt.generation


def test_evidence_that_names_a_closed_member_closes_the_open_one_and_changes_nothing_closed() -> None:
    older = row(A.SUPERSEDED, action_id=b"older", generation=1)
    asked = example(Event.SUCCESS).row_with(generation=2)
    decision = replace(asked, members=(older, *asked.members)).accepted()
    (closed,) = decision.rows
    assert (closed.state, closed.generation, closed.action_id) == (A.SUCCEEDED, 2, asked.members[-1].action_id)


def test_an_outcome_is_about_the_newest_member_whichever_it_names() -> None:
    older = row(A.SUPERSEDED, action_id=b"older", generation=1)
    asked = example(Event.OUTCOME).row_with(generation=2).with_(action_id=b"older")
    assert replace(asked, members=(older, *asked.members)).accepted().new is A.SUCCEEDED


def test_a_fence_is_kept_with_its_mark_and_its_evidence() -> None:
    for event in (Event.NOT_EXECUTED, Event.CLOSE_UNPREPARED):
        (closed,) = fencing(event).part("fence", mark=6).accepted().rows
        assert (closed.state, closed.fenced_mark, closed.evidence) == (A.NOT_EXECUTED, 6, (FENCE.evidence_id,))
        assert closed.mark == 6


def test_evidence_is_kept_in_the_row_and_decides_nothing() -> None:
    for evidence in (replace(SEEN, after=None), DRAIN):
        (changed,) = example(Event.OBSERVE).with_(evidence=evidence).accepted().rows
        assert changed.state is A.PREPARED
        assert changed.evidence == (evidence.evidence_id,)
        assert evidence in (changed.observation, changed.drain)


def test_a_success_by_the_observation_on_record_keeps_its_id_once() -> None:
    asked = example(Event.SUCCESS).row_with(observation=SEEN_EXECUTED, evidence=(SEEN_EXECUTED.evidence_id,))
    (closed,) = asked.with_(evidence=SEEN_EXECUTED).accepted().rows
    assert (closed.state, closed.evidence) == (A.SUCCEEDED, (SEEN_EXECUTED.evidence_id,))


def test_a_revocation_marks_what_was_claimed_and_closes_what_was_not() -> None:
    for state in (A.CLAIMED, A.PREPARED, A.UNRESOLVED, A.PROPOSED, A.AVAILABLE):
        asked = example(Event.REVOKE, state)
        (changed,) = asked.accepted().rows
        assert changed.revoked
        assert replace(asked, members=(changed,)).decided() == Recorded(changed)


@pytest.mark.parametrize("event", Event)
def test_what_is_told_only_after_the_witness(event: Event) -> None:
    said_later = {Event.REVOKE, Event.NOT_EXECUTED, Event.CLOSE_UNPREPARED, Event.ADMIT}
    asked = example(event)
    asked = asked.with_(cosigned=True) if event is Event.SUCCESSOR else asked
    assert asked.ledger_with(**HTTP).accepted().cosign_first is (event in said_later)
    if event is not Event.CLOSE_UNPREPARED:
        assert not asked.ledger_with(witness=WitnessPolicy.NONE).accepted().cosign_first


def test_an_admission_opens_the_ledger_in_the_next_epoch() -> None:
    asked = example(Event.ADMIT).with_(unreached=frozenset({"far"}), origin_frozen=False)
    ledger = asked.accepted().ledger
    assert ledger is not None
    assert (ledger.state, ledger.epoch, ledger.lost_leaves) == (LedgerState.OPEN, 1, True)
    assert (ledger.closed_audiences, ledger.origin_frozen) == (frozenset({"far"}), False)
    whole = asked.ledger_with(**HTTP).with_(lost_leaves=False)
    assert not (whole.accepted().ledger or ledger).lost_leaves
    assert (whole.ledger_with(lost_leaves=True).accepted().ledger or LEDGER).lost_leaves


def test_a_demoted_member_keeps_its_marks_and_its_evidence_counts_no_more() -> None:
    asked = example(Event.ADMIT, A.PREPARED).row_with(drain=DRAIN, observation=SEEN, handed_out=True)
    decision = asked.accepted()
    (demoted,) = decision.rows
    assert (demoted.state, demoted.demoted_epoch, demoted.generation) == (A.UNRESOLVED, 1, 1)
    assert (demoted.handed_out, demoted.prepare_leaf) == (True, True)
    later = replace(example(Event.NOT_EXECUTED), ledger=decision.ledger or LEDGER, members=(demoted,)).decided()
    assert isinstance(later, Rejected)
    assert later.code == "no_drain"


def test_only_the_newest_member_is_demoted() -> None:
    older = row(A.SUPERSEDED, action_id=b"older", generation=1)
    asked = example(Event.ADMIT)
    (changed,) = replace(asked, members=(older, *asked.members)).accepted().rows
    assert changed.action_id == asked.members[-1].action_id


def test_a_demoted_member_that_was_never_claimed_can_be_closed_when_nothing_was_lost() -> None:
    demoted = example(Event.ADMIT, A.AVAILABLE).accepted().rows[0]
    ledger = replace(WITNESSED, epoch=1)
    closed = Asked(ledger, (demoted,), example(Event.CLOSE_UNPREPARED).command).accepted()
    assert (closed.new, closed.cosign_first) == (A.NOT_EXECUTED, True)


def test_the_same_question_has_the_same_answer() -> None:
    for event in Event:
        assert example(event).decided() == example(event).decided()
