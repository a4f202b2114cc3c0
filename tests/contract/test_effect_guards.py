"""Every guard of the rules through the API of a real store: error, code, what to do next, and nothing changed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from agent_run_ledger import LedgerError, Pending, Refused, Unavailable
from agent_run_ledger.effects import Event, Seen
from tests.contract.effect_kit import (
    GUARDED,
    A,
    E,
    FakeWitness,
    Kit,
    effects,
)
from tests.contract.engine_kit import each_engine
from tests.contract.guard_kit import CASES, Asked

pytestmark = each_engine

# What only an admission brings about, which this version does not have; what the state says first; drawn ids.
NOT_YET = {
    *((event, code) for event in (E.CLAIM, E.PREPARE) for code in ("old_epoch", "audience_closed")),
    *((event, "origin_not_frozen") for event in (E.CLAIM, E.PREPARE)),
    (E.CLAIM, "few_approvals"),
    (E.CLAIM, "revoked"),
    (E.PREPARE, "not_yet_valid"),
    (E.HAND_OUT, "old_epoch"),
    (E.OBSERVE, "covers_too_little"),
    (E.EDIT, "id_taken"),
    (E.OUTCOME, "id_taken"),
    (E.SUCCESS, "id_taken"),
    (E.SUCCESSOR, "id_taken"),
}

# By hand: what may be asked again as it is, and what a clock has to say first.
WAITS = {
    (E.CLAIM, "not_yet_valid"), (E.HAND_OUT, "not_cosigned"), (E.DOUBT, "too_early"),
    (E.SUCCESSOR, "close_not_cosigned"), (E.EXPIRE, "window_open"), (E.OBSERVE, "permit_may_live"),
}  # fmt: skip
LATER = {(E.DOUBT, "clock_untrusted"), (E.OBSERVE, "clock_untrusted"), (E.EXPIRE, "clock_untrusted")}
ELSEWHERE = {
    (E.NOT_EXECUTED, "few_people"),
    (E.HAND_OUT, "not_cosigned"),
    (E.SUCCESSOR, "close_not_cosigned"),
    (E.EXPIRE, "clock_untrusted"),
    (E.HAND_OUT, "prepared_later"),
    *((E.NOT_EXECUTED, code) for code in ("clock_untrusted", "drain_before_correction")),
}
"""Needs a witness, other settings or another clock: tested below and in `test_effect_clock.py`."""


def answer_of(event: Event, code: str) -> type[LedgerError]:
    if (event, code) in WAITS:
        return Pending
    return Unavailable if (event, code) in LATER else Refused


def named() -> list[Any]:
    count: dict[str, int] = {}
    params = []
    for event, code, make in CASES:
        name = f"{event}-{code}"
        count[name] = count.get(name, 0) + 1
        params.append(pytest.param(event, code, make, id=name if count[name] == 1 else f"{name}-{count[name]}"))
    return params


@pytest.mark.parametrize(("event", "code", "make"), named())
def test_each_guard_refuses_through_the_api(event: Event, code: str, make: Callable[[Kit], Asked]) -> None:
    with effects() as kit:
        error = kit.refused(make(kit))
        assert (type(error), error.code) == (answer_of(event, code), code)
        assert error.message.startswith(f"{event} of ")
        if event is not E.PROPOSE:
            (newest, *_) = reversed(kit.ledger.inspect("refund:17"))
            assert newest.action_id.hex() in error.message
        if isinstance(error, Pending | Unavailable):
            assert error.hint


def test_no_guard_is_without_a_case() -> None:
    assert {(event, code) for event, code, _ in CASES} | NOT_YET | ELSEWHERE == set(GUARDED)
    assert not ({(event, code) for event, code, _ in CASES} & (NOT_YET | ELSEWHERE))


def test_by_policy_a_decision_that_nothing_was_executed_takes_more_people() -> None:
    with effects(people_for_not_executed=2) as kit:
        view = kit.ready(E.NOT_EXECUTED, kit.reach(A.UNRESOLVED))
        error = kit.refused(lambda: kit.do(E.NOT_EXECUTED, view))
        assert (type(error), error.code) == (Refused, "few_people")
        assert "people" in error.hint
        assert kit.do(E.NOT_EXECUTED, view, people=frozenset({"dan"})).state is A.NOT_EXECUTED


def test_a_clock_that_cannot_be_trusted_closes_no_window() -> None:
    with effects() as kit:
        view = kit.reach(A.AVAILABLE)
        kit.ticks.leap(2 * 3_600_000)
        error = kit.refused(lambda: kit.do(E.EXPIRE, view))
        assert (type(error), error.code) == (Unavailable, "clock_untrusted")


def test_a_permit_waits_for_a_witness_that_is_asked_again() -> None:
    witness = FakeWitness()
    with effects(witness=witness) as kit:
        view = kit.reach(A.PREPARED)
        size = kit.ledger._store.reader().head().size
        witness.says = [Seen.SILENT]  # then it answers
        assert kit.do(E.HAND_OUT, view).handed_now
        assert witness.size == size, "it was asked again, and has seen the preparation"


def test_a_successor_waits_until_the_witness_has_seen_the_close() -> None:
    witness = FakeWitness()
    with effects(witness=witness) as kit:
        view = kit.ready(E.NOT_EXECUTED, kit.reach(A.UNRESOLVED))
        witness.says = [Seen.SILENT, Seen.SILENT]
        with pytest.raises(Pending) as waits:
            kit.do(E.NOT_EXECUTED, view, op_id=b"the close op id.")
        assert waits.value.code == "not_witnessed"
        error = kit.refused(lambda: kit.do(E.SUCCESSOR, view))
        assert (type(error), error.code) == (Pending, "close_not_cosigned")
        assert kit.do(E.NOT_EXECUTED, view, op_id=b"the close op id.").state is A.NOT_EXECUTED
        assert kit.do(E.SUCCESSOR, view).state is A.PROPOSED


def test_an_approval_counts_once() -> None:
    with effects() as kit:
        first, second = kit.propose(key="k1"), kit.propose(key="k2")
        used = kit.approval(first)
        kit.do(E.APPROVE, first, approval=used)
        again = replace(kit.approval(second), approval_id=used.approval_id)
        error = kit.refused(lambda: kit.do(E.APPROVE, second, approval=again))
        assert (type(error), error.code) == (Refused, "approval_used")
        assert used.approval_id.hex() in error.message
