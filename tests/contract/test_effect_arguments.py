"""What a caller names: nothing longer than a record keeps, nothing of another kind, and reads that wait for nobody."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from agent_run_ledger import Misuse
from agent_run_ledger.effects import ActionState, DoubtBy
from tests.contract.effect_kit import A, E, Kit, effects


@pytest.fixture
def kit() -> Iterator[Kit]:
    with effects() as one:
        yield one


LONG = "w" * 1_025
TOO_MUCH: dict[str, tuple[E, ActionState, dict[str, Any]]] = {
    "a claim's worker": (E.CLAIM, A.AVAILABLE, {"worker": LONG}),
    "a preparation's worker": (E.PREPARE, A.CLAIMED, {"worker": LONG}),
    "a doubt's worker": (E.DOUBT, A.CLAIMED, {"by": DoubtBy.OPERATOR, "worker": LONG}),
    "a doubt's worker with a NUL": (E.DOUBT, A.CLAIMED, {"by": DoubtBy.OPERATOR, "worker": "w\0"}),
    "an empty claim key": (E.CLAIM, A.AVAILABLE, {"claim_key": b""}),
    "a short claim key": (E.CLAIM, A.AVAILABLE, {"claim_key": bytes(15)}),
    "a long claim key": (E.CLAIM, A.AVAILABLE, {"claim_key": bytes(17)}),
    "many people": (E.WRITE_OFF, A.UNRESOLVED, {"people": frozenset(f"p{i}" for i in range(101))}),
}


@pytest.mark.parametrize(("event", "state", "changes"), TOO_MUCH.values(), ids=TOO_MUCH)
def test_what_is_longer_than_a_record_keeps_is_misuse(
    kit: Kit, event: E, state: ActionState, changes: dict[str, Any]
) -> None:
    view = kit.reach(state)
    error = kit.refused(lambda: kit.do(event, view, **changes))
    assert isinstance(error, Misuse)


def test_a_hundred_people_and_a_long_name_of_a_worker_are_kept(kit: Kit) -> None:
    view = kit.reach(A.UNRESOLVED)
    assert kit.do(E.WRITE_OFF, view, people=frozenset(f"p{i}" for i in range(100))).state is A.WRITTEN_OFF
    other = kit.reach(A.AVAILABLE, key="other")
    assert kit.do(E.CLAIM, other, worker="w" * 1_024, claim_key=bytes(16)).granted_now


def test_evidence_of_a_long_observer_is_misuse(kit: Kit) -> None:
    view = kit.reach(A.PREPARED)
    assert isinstance(kit.refused(lambda: kit.do(E.OBSERVE, view, evidence=kit.seen(view, observer=LONG))), Misuse)


@pytest.mark.parametrize(("size", "held"), [(0, False), (15, False), (16, True), (64, True), (65, False)])
def test_a_nonce_has_16_to_64_bytes(kit: Kit, size: int, held: bool) -> None:
    view = kit.propose()
    approval = kit.approval(view, nonce=bytes(size))
    if held:
        assert kit.ledger.statement(view.action_id, approver="bob", nonce=bytes(size)).nonce == bytes(size)
        assert kit.do(E.APPROVE, view, approval=approval).state is A.AVAILABLE
        return
    for asked in (
        lambda: kit.ledger.statement(view.action_id, approver="bob", nonce=bytes(size)),
        lambda: kit.do(E.APPROVE, view, approval=approval),
    ):
        error = kit.refused(asked)
        assert (type(error), error.code) == (Misuse, "bad_argument")


@pytest.mark.parametrize(("size", "held"), [(0, False), (1, True), (64, True), (65, False)])
def test_an_approval_id_has_1_to_64_bytes(kit: Kit, size: int, held: bool) -> None:
    view = kit.propose()
    approval = replace(kit.approval(view), approval_id=bytes(size))
    if held:
        assert kit.do(E.APPROVE, view, approval=approval).state is A.AVAILABLE
    else:
        error = kit.refused(lambda: kit.do(E.APPROVE, view, approval=approval))
        assert (type(error), error.code) == (Misuse, "bad_argument")


def test_an_action_has_at_most_a_hundred_preconditions(kit: Kit) -> None:
    assert len(kit.intent(preconditions=(("a", "b"),) * 100).preconditions) == 100
    with pytest.raises(Misuse, match="100 preconditions") as refusal:
        kit.intent(preconditions=(("a", "b"),) * 101)
    assert refusal.value.code == "bad_intent"


NO_READS: dict[str, Callable[[Kit], object]] = {
    "get of text": lambda kit: kit.ledger.get("x"),  # type: ignore[arg-type]
    "get of nothing": lambda kit: kit.ledger.get(None),  # type: ignore[arg-type]
    "request of text": lambda kit: kit.ledger.request("x"),  # type: ignore[arg-type]
    "statement of text": lambda kit: kit.ledger.statement("x", approver="bob", nonce=bytes(16)),  # type: ignore[arg-type]
    "statement for nobody": lambda kit: kit.ledger.statement(bytes(16), approver="", nonce=bytes(16)),
    "inspect of half a character": lambda kit: kit.ledger.inspect("\ud800"),
    "inspect of bytes": lambda kit: kit.ledger.inspect(b"k"),  # type: ignore[arg-type]
    "inbox of no state": lambda kit: kit.ledger.inbox("done"),  # type: ignore[arg-type]
    "inbox of a number": lambda kit: kit.ledger.inbox(7),  # type: ignore[arg-type]
    "inbox after an id": lambda kit: kit.ledger.inbox(after=b"x"),  # type: ignore[arg-type]
    "inbox of no limit": lambda kit: kit.ledger.inbox(limit=0),
    "inbox of all": lambda kit: kit.ledger.inbox(limit=-1),
    "inbox of a truth": lambda kit: kit.ledger.inbox(limit=True),
}


@pytest.mark.parametrize("read", NO_READS.values(), ids=NO_READS)
def test_a_read_with_another_kind_of_argument_is_misuse(kit: Kit, read: Callable[[Kit], object]) -> None:
    assert isinstance(kit.refused(lambda: read(kit)), Misuse)


def test_a_word_stands_for_a_state(kit: Kit) -> None:
    view = kit.reach(A.CLAIMED)
    assert kit.ledger.inbox("claimed") == [kit.look(view)]  # type: ignore[arg-type]


def test_the_status_and_a_statement_wait_for_nobody_who_writes(kit: Kit) -> None:
    view = kit.propose()
    told: list[Any] = []

    def ask(_: object) -> None:
        told.append(kit.ledger.status())
        told.append(kit.ledger.statement(view.action_id, approver="bob", nonce=bytes(16)))

    kit.ledger._store.transact(b"holds the lock..", ask)  # who writes inside of that is refused
    status, statement = told
    assert status.counts == {A.PROPOSED: 1}
    assert statement.ledger_id == status.ledger_id
