"""What a run does next about its effect: in every state, for every holder of the claim, and never twice."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import Any

import pytest

from agent_run_ledger.kernel.effects.states import CLOSED, ActionState, TargetClass
from agent_run_ledger.kernel.effects.step_moves import Move, WantedTerms, next_move

A = ActionState
BYTES, OTHER = b"b" * 32, b"o" * 32
MINE, BEFORE, NEIGHBOUR = "run:aa:3", "run:aa:2", "run:bb:9"


@dataclass(frozen=True)
class Member:
    state: ActionState
    request_sha256: bytes = BYTES
    worker: str | None = None
    handed_out: bool = False
    generation: int | None = None
    in_doubt_since_ms: int | None = None
    policy_sha256: bytes = b"p"
    audience: str = "https://pay"
    executor: str = "worker"
    target_class: TargetClass = TargetClass.N


TERMS = WantedTerms(
    policy_sha256=b"p",
    audience="https://pay",
    executor="worker",
    target_class=TargetClass.N,
    policies=frozenset((b"p", b"q")),
)


def move(*members: Member, looked: bool = False, successors: int = 0) -> Move:
    return next_move(
        members,
        request_sha256=BYTES,
        terms=lambda: TERMS,
        worker=MINE,
        was_ours=lambda worker: worker == BEFORE,
        looked=looked,
        successors=successors,
    )


def test_a_free_key_is_proposed() -> None:
    assert move() is Move.PROPOSE


def test_a_key_of_other_bytes_only_is_drift_in_every_state() -> None:
    for state in A:
        assert move(Member(state, OTHER, worker=MINE)) is Move.DRIFT


def test_what_people_made_of_our_bytes_is_gone_on_with() -> None:
    assert move(Member(A.SUPERSEDED), Member(A.AVAILABLE, OTHER)) is Move.DISPATCH
    assert move(Member(A.SUPERSEDED), Member(A.SUCCEEDED, OTHER)) is Move.GIVE


WITHOUT_CLAIM = {
    A.PROPOSED: Move.APPROVAL,
    A.AVAILABLE: Move.DISPATCH,
    A.UNRESOLVED: Move.LOOK,
    **dict.fromkeys(CLOSED, Move.GIVE),
}


def test_every_state_has_its_move() -> None:
    assert {*WITHOUT_CLAIM, A.CLAIMED, A.PREPARED} == set(A)
    for state, wanted in WITHOUT_CLAIM.items():
        assert move(Member(state)) is wanted, state


@pytest.mark.parametrize("state", [A.CLAIMED, A.PREPARED])
def test_who_has_the_claim_decides(state: ActionState) -> None:
    assert move(Member(state, worker=MINE)) is Move.DISPATCH
    assert move(Member(state, worker=BEFORE)) is Move.DOUBT
    assert move(Member(state, worker=NEIGHBOUR)) is Move.ELSEWHERE
    assert move(Member(state)) is Move.ELSEWHERE


def test_what_was_handed_out_is_doubted_by_its_own_worker_too() -> None:
    assert move(Member(A.PREPARED, worker=MINE, handed_out=True)) is Move.DOUBT


def test_after_a_look_a_doubt_waits_for_evidence() -> None:
    assert move(Member(A.UNRESOLVED), looked=True) is Move.EVIDENCE


def test_a_successor_is_proposed_only_as_often_as_is_allowed_and_only_after_what_did_not_happen() -> None:
    gone = Member(A.NOT_EXECUTED)
    assert move(gone) is Move.GIVE
    assert move(gone, successors=1) is Move.SUCCEED
    for begun in (Member(A.SUPERSEDED, generation=1), Member(A.SUPERSEDED, in_doubt_since_ms=1)):
        assert move(begun, gone, successors=1) is Move.GIVE
        assert move(begun, gone, successors=2) is Move.SUCCEED
    for state in CLOSED - {A.NOT_EXECUTED}:
        assert move(Member(state), successors=9) is Move.GIVE, state


def test_what_an_approver_edited_is_no_successor() -> None:
    edited, begun, gone = Member(A.SUPERSEDED), Member(A.SUPERSEDED, generation=1), Member(A.NOT_EXECUTED, generation=2)
    assert move(edited, edited, gone, successors=1) is Move.SUCCEED
    assert move(edited, begun, edited, gone, successors=1) is Move.GIVE
    assert move(edited, begun, edited, gone, successors=2) is Move.SUCCEED


OTHERS = [
    ({"policy_sha256": b"q"}, Move.OTHER_POLICY),
    ({"policy_sha256": b"r"}, Move.UNKNOWN_POLICY),
    ({"audience": "https://evil"}, Move.OTHER_TERMS),
    ({"executor": "another"}, Move.OTHER_TERMS),
    ({"target_class": TargetClass.F}, Move.OTHER_TERMS),
]


@pytest.mark.parametrize(("changed", "wanted"), OTHERS)
def test_nothing_is_begun_under_other_terms_and_what_was_begun_is_told_as_it_is(
    changed: dict[str, Any], wanted: Move
) -> None:
    for state in A:
        for worker in (None, MINE, BEFORE, NEIGHBOUR):
            mine, other = Member(state, worker=worker), Member(state, worker=worker, **changed)
            ready = state in (A.PROPOSED, A.AVAILABLE)
            assert move(other) is (wanted if ready else move(mine)), state
            again = ready or state is A.NOT_EXECUTED
            assert move(other, successors=1) is (wanted if again else move(mine, successors=1)), state
    assert move(Member(A.REJECTED), Member(A.AVAILABLE, **changed)) is wanted


def test_nothing_that_was_begun_is_dispatched_by_anybody_else_or_after_its_hand_out() -> None:
    workers = (None, MINE, BEFORE, NEIGHBOUR)
    for state, worker, out, looked in product(A, workers, (False, True), (False, True)):
        if move(Member(state, worker=worker, handed_out=out), looked=looked, successors=3) is Move.DISPATCH:
            assert state is A.AVAILABLE or (worker == MINE and not out), (state, worker, out)
