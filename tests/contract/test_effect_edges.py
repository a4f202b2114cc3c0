"""What cannot be asked at all through the API, words for enums, and the other side of each edge that a clock draws."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from agent_run_ledger.effects import Covers, DoubtBy, Found, Role
from tests.contract.effect_kit import BOUND_MS, CAT, EXE, PERMIT_MS, WINDOW_MS, A, E, Kit, actor, effects
from tests.contract.engine_kit import each_engine
from tests.contract.guard_kit import (
    DEAD,
    EARLY_TIMER,
    F_MINUS,
    Asked,
    F,
    N,
    V,
    about,
    drains,
    fenced,
    late,
    looks,
    lying,
    sees,
)

pytestmark = each_engine

BAD_ARGUMENTS: list[tuple[str, Callable[[Kit], Asked]]] = [
    ("text for bytes", about(E.CLAIM, A.AVAILABLE, claim_key="k" * 16)),
    ("hex for bytes", about(E.CLAIM, A.AVAILABLE, request_sha256="ab" * 32)),
    ("a list of people", about(E.WRITE_OFF, A.UNRESOLVED, people=["dan"])),
    ("a float", about(E.PREPARE, A.CLAIMED, permit_ms=1.5)),
    ("a truth for a number", about(E.PREPARE, A.CLAIMED, permit_ms=True)),
    ("half a character", looks(observer="\ud800")),
    ("a number beyond 2**53", about(E.PREPARE, A.CLAIMED, permit_ms=1 << 53)),
    ("a short evidence id", looks(evidence_id=b"15 bytes in all")),
    ("a long evidence id", looks(evidence_id=bytes(65))),
    ("a short id of a fence", fenced(E.NOT_EXECUTED, evidence_id=b"15 bytes in all")),
    ("generation 0", lying(E.SUCCESS, A.UNRESOLVED, generation=0)),
    ("a generation beyond 2**32", lying(E.SUCCESS, A.UNRESOLVED, generation=(1 << 32) + 1)),
    ("a mark beyond 2**31", fenced(E.NOT_EXECUTED, mark=(1 << 31) + 1)),
    ("a mark below 0", fenced(E.NOT_EXECUTED, mark=-1)),
    ("no approval at all", about(E.APPROVE, A.PROPOSED, approval=None)),
    ("no evidence at all", about(E.OUTCOME, A.PREPARED, evidence=None)),
    ("another doubt", about(E.DOUBT, A.CLAIMED, by="nobody")),
    ("nobody beside the actor", about(E.WRITE_OFF, A.UNRESOLVED, people=frozenset({""}))),
    ("the actor again, with a space", about(E.WRITE_OFF, A.UNRESOLVED, people=frozenset({"cat "}))),
    ("a name with a space before it", about(E.REVOKE, A.PROPOSED, actor=actor(" rev", Role.REVOKER))),
    ("a name with something invisible", about(E.REVOKE, A.PROPOSED, actor=actor("rev\u200b", Role.REVOKER))),
    ("a name that is not in NFC", about(E.REVOKE, A.PROPOSED, actor=actor("re\u0301v", Role.REVOKER))),
    ("nobody", about(E.REVOKE, A.PROPOSED, actor=actor("", Role.REVOKER))),
    ("an op_id of another size", about(E.REVOKE, A.PROPOSED, op_id=b"short")),
]


@pytest.mark.parametrize("make", [pytest.param(make, id=name) for name, make in BAD_ARGUMENTS])
def test_what_a_record_could_not_hold_is_misuse(make: Callable[[Kit], Asked]) -> None:
    with effects() as kit:
        error = kit.refused(make(kit))
        assert (error.exit_code, error.code) in {(2, "bad_argument"), (2, "bad_intent"), (2, "bad_op_id")}


WORDS: list[tuple[str, str, Callable[[Kit], Asked]]] = [
    ("a worker's doubt", "neighbours_claim", about(E.DOUBT, A.CLAIMED, actor=EXE, by="worker", worker="w2")),
    ("an operator's doubt", "not_operator", about(E.DOUBT, A.CLAIMED, actor=EXE, by="operator")),
    ("a clock's doubt", "too_early", about(E.DOUBT, A.CLAIMED, by="expiry")),
    ("a timer", "no_timer", about(E.OBSERVE, A.PREPARED, evidence=lambda k, v: k.drain(v, "expiry"))),
    ("an execution", "receiver_executed", fenced(E.NOT_EXECUTED, F, "executed")),  # type: ignore[arg-type]
]


@pytest.mark.parametrize(("code", "make"), [pytest.param(code, make, id=name) for name, code, make in WORDS])
def test_a_word_in_the_place_of_an_enum_is_that_one(code: str, make: Callable[[Kit], Asked]) -> None:
    with effects() as kit:
        assert kit.refused(make(kit)).code == code


def test_evidence_ids_of_the_smallest_and_the_largest_size_are_kept() -> None:
    with effects() as kit:
        view = kit.reach(A.UNRESOLVED)
        for size in (16, 64):
            view = kit.do(E.OBSERVE, view, evidence=kit.seen(view, evidence_id=bytes([size]) * size))
        assert [len(one) for one in view.evidence] == [16, 64]


# The other side of each edge that a clock draws: a millisecond further and it happens.
EDGES: list[tuple[str, Callable[[Kit], Asked]]] = [
    ("approve", late(E.APPROVE, A.PROPOSED, WINDOW_MS - 1)),
    ("claim", late(E.CLAIM, A.AVAILABLE, WINDOW_MS - 1)),
    ("prepare", late(E.PREPARE, A.CLAIMED, WINDOW_MS - 1)),
    ("permit", about(E.PREPARE, A.CLAIMED, permit_ms=60_000)),
    ("shortest permit", about(E.PREPARE, A.CLAIMED, permit_ms=1)),
    ("hand out", late(E.HAND_OUT, A.PREPARED, PERMIT_MS - 1)),
    ("expire", late(E.EXPIRE, A.PROPOSED, WINDOW_MS)),
    ("doubt prepared", late(E.DOUBT, A.PREPARED, PERMIT_MS + BOUND_MS, by=DoubtBy.EXPIRY)),
    ("doubt claimed", late(E.DOUBT, A.CLAIMED, WINDOW_MS + BOUND_MS, by=DoubtBy.EXPIRY)),
    ("own doubt", about(E.DOUBT, A.CLAIMED, actor=EXE, by=DoubtBy.WORKER, worker="w1")),
    ("drain", late(E.OBSERVE, A.PREPARED, PERMIT_MS + BOUND_MS, V, evidence=EARLY_TIMER)),
    ("dead worker", drains(A.PREPARED, N, DEAD, covers=Covers.WORKER)),
    ("fence", fenced(E.NOT_EXECUTED)),
    ("highest mark", fenced(E.NOT_EXECUTED, mark=1 << 31)),
    ("success by the executor's look", sees(E.OUTCOME)),
    ("fence of f minus", fenced(E.NOT_EXECUTED, F_MINUS)),
    ("close by fence", fenced(E.CLOSE_UNPREPARED)),
    ("success by fence", about(E.SUCCESS, A.UNRESOLVED, F, evidence=lambda k, v: k.fence(v, Found.EXECUTED))),
    ("success by look", about(E.SUCCESS, A.UNRESOLVED, evidence=lambda k, v: k.seen(v, Found.EXECUTED))),
]


@pytest.mark.parametrize("make", [pytest.param(make, id=name) for name, make in EDGES])
def test_on_the_other_side_of_each_edge_it_happens(make: Callable[[Kit], Asked]) -> None:
    with effects() as kit:
        asked = make(kit)
        size = kit.ledger._store.reader().head().size
        asked()
        assert kit.ledger._store.reader().head().size == size + 1


def test_an_answer_of_which_nothing_follows_does_not_stand_in_the_way_of_a_write_off() -> None:
    with effects() as kit:
        view = kit.reach(A.UNRESOLVED)
        kit.ledger.observe(CAT, view.action_id, kit.seen(view, Found.UNKNOWN))
        assert kit.do(E.WRITE_OFF, view).state is A.WRITTEN_OFF
