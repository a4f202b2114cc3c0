"""The rules, the conditional statements and the triggers say the same of an action, each asked without the others."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import product
from typing import Any

import apsw
import pytest

from agent_run_ledger import Tampered
from agent_run_ledger.effects import ActionState, Event, Found, Role, TargetClass
from agent_run_ledger.kernel.effects import Accepted, Now
from agent_run_ledger.kernel.effects.action import Action
from agent_run_ledger.kernel.effects.states import ARROWS
from tests.contract.effect_kit import ASKED, DAN, WINDOW_MS, A, E, Kit, effects
from tests.contract.effect_scratch import Scratch, moved, sized
from tests.contract.guard_kit import CASES, F
from tests.unit.effects.examples import (
    APPROVAL,
    BEGIN_MS,
    END_MS,
    MS,
    OTHER_SHA,
    PERMIT_END_MS,
    Asked,
    actor,
    example,
    fencing,
    row,
)

MOMENTS = (Now(BEGIN_MS - 1, BEGIN_MS), Now(BEGIN_MS, BEGIN_MS), Now(MS, PERMIT_END_MS - 1), Now(MS, PERMIT_END_MS))
MOMENTS += (Now(END_MS - 1, END_MS - 1), Now(END_MS - 1, END_MS), Now(END_MS, END_MS))

# What each statement is conditional on, as changes to a question that is accepted; each is asked with every other.
Change = Callable[[Asked], Asked]
SAME: Change = lambda asked: asked  # noqa: E731
REVOKED: Change = lambda asked: asked.row_with(revoked=True)  # noqa: E731
EPOCH: Change = lambda asked: asked.ledger_with(epoch=1)  # noqa: E731
CLAIM: Change = lambda asked: asked.with_(claim_id=b"?")  # noqa: E731
WORKER: Change = lambda asked: asked.with_(worker="w2")  # noqa: E731
EVE: Change = lambda asked: asked.with_(actor=actor("eve", Role.EXECUTOR))  # noqa: E731
CONDITIONS: dict[Event, tuple[Change, ...]] = {
    E.CLAIM: (
        *(REVOKED, EPOCH),
        lambda asked: asked.with_(request_sha256=OTHER_SHA),
        EVE,
    ),
    E.PREPARE: (REVOKED, EPOCH, CLAIM, WORKER, EVE),
    E.HAND_OUT: (
        *(REVOKED, EPOCH, CLAIM, WORKER, EVE),
        lambda asked: asked.ledger_with(opening=b"opening 2"),
        lambda asked: asked.row_with(handed_out=True) if asked.members[-1].prepare_leaf else asked,
    ),
    E.EXPIRE: (),
    E.CLOSE_UNPREPARED: (lambda asked: asked.row_with(**PREPARED),),
}
PREPARED = {"prepare_leaf": True, "opening": b"o", "prepared_ms": MS, "permit_expires_ms": PERMIT_END_MS}


def _questions(event: Event) -> Iterator[Asked]:
    for state in ActionState:
        base = fencing(event, state) if event is E.CLOSE_UNPREPARED else example(event, state)
        if event is E.CLOSE_UNPREPARED and state is A.PREPARED:
            base = base.row_with(**PREPARED)
        if event is E.PREPARE:
            base = base.row_with(prepare_leaf=state in (A.PREPARED, A.UNRESOLVED, A.SUCCEEDED, A.WRITTEN_OFF))
        if event is E.CLAIM:
            base = base.row_with(approvals=(APPROVAL,))
        revoked = state is A.REVOKED
        base = base.row_with(action_id=sized(base.members[-1]).action_id, revoked=revoked)
        base = base.with_(action_id=base.members[-1].action_id)
        changes = CONDITIONS[event]
        for now in MOMENTS:
            for chosen in product((False, True), repeat=len(changes)):
                asked = base.with_(now=now)
                for change, wanted in zip(changes, chosen, strict=True):
                    asked = change(asked) if wanted else asked
                yield asked


@pytest.mark.parametrize("event", list(CONDITIONS))
def test_the_statement_alone_lets_pass_what_the_rules_accept_and_nothing_else(event: Event) -> None:
    scratch, number, accepted, codes = Scratch().bare(), 0, 0, set[str]()
    for asked in _questions(event):
        decision, member = asked.decided(), asked.members[-1]
        scratch.clear()
        scratch.put(member)
        changed = scratch.run(member, asked.ledger, asked.command, asked.command.now)
        assert changed == isinstance(decision, Accepted), (decision, asked)
        number += 1
        accepted += changed
        codes |= set() if isinstance(decision, Accepted) else {getattr(decision, "code", "on record")}
    assert accepted, "nothing was accepted: the statement may refuse everything"
    assert number >= 7 * 12
    assert {"superseded", "rejected", "succeeded"} <= codes


def test_an_approval_is_conditional_on_state_epoch_revocation_and_window() -> None:
    scratch = Scratch().bare()
    for state, revoked, epoch, now in product(ActionState, (False, True), (0, 1), MOMENTS):
        asked = example(E.APPROVE, state).with_(now=now)
        member = replace(sized(asked.members[-1]), revoked=revoked or state is A.REVOKED, approvals=())
        ledger = replace(asked.ledger, epoch=epoch)
        scratch.clear()
        scratch.put(member)
        command = replace(asked.command, action_id=member.action_id)
        lets = state is A.PROPOSED and not revoked and epoch == 0 and now.latest_ms < END_MS
        assert scratch.run(member, ledger, command, now) == lets


STALE: list[dict[str, Any]] = [
    {"state": A.CLAIMED, "prepare_leaf": False},
    {"generation": 2},
    {"revoked": True},
    {"handed_out": True},
]


@pytest.mark.parametrize("stored", STALE, ids=lambda stored: next(iter(stored)))
@pytest.mark.parametrize("event", [E.OUTCOME, E.SUCCESS, E.DOUBT, E.OBSERVE, E.REVOKE])
def test_a_statement_writes_nothing_over_a_row_that_changed_since_it_was_read(
    event: Event, stored: dict[str, Any]
) -> None:
    asked = example(event, A.PREPARED)
    read = sized(asked.members[-1])
    scratch = Scratch().bare()
    scratch.put(read)
    command = replace(asked.command, action_id=read.action_id)
    assert scratch.run(read, asked.ledger, command, command.now) == 1
    scratch.clear()
    scratch.put(replace(read, **stored))
    assert scratch.run(read, asked.ledger, command, command.now) == 0


def test_an_action_of_another_id_is_left_alone() -> None:
    for event in (E.CLAIM, E.PREPARE, E.HAND_OUT, E.DOUBT, E.EXPIRE, E.APPROVE, E.CLOSE_UNPREPARED):
        asked = fencing(event) if event is E.CLOSE_UNPREPARED else example(event)
        member = replace(sized(asked.members[-1]), approvals=())
        other = replace(member, action_id=b"another id 16 by", action_key="another key")
        command = replace(asked.command, action_id=member.action_id)
        scratch = Scratch().bare()
        scratch.put(other)
        assert scratch.run(member, asked.ledger, command, command.now) == 0, event
        scratch.put(member)
        assert scratch.run(member, asked.ledger, command, command.now) == 1, event


# The triggers, by raw updates


def _anywhere(state: ActionState) -> Action:
    """A member that breaks no CHECK in any state."""
    return sized(row(state, **PREPARED, generation=1, claim_id=b"c", claim_key=b"k", worker="w", claimed_ms=1,
                     in_doubt_since_ms=1, revoked=True, approvals=(APPROVAL,)))  # fmt: skip


ALLOWED = {
    (old, new)
    for (old, event), arrow in ARROWS.items()
    if event is not E.ADMIT and old is not None
    for new in arrow.new
}


@pytest.mark.parametrize("old", ActionState)
def test_the_triggers_let_every_arrow_of_the_state_table_pass_and_no_other(old: ActionState) -> None:
    for new in ActionState:
        scratch = Scratch().bare()
        scratch.put(_anywhere(old))
        scratch.guard()
        if new is old or (old, new) in ALLOWED:
            assert scratch.update(f"state = '{new}'") == 1
        else:
            with pytest.raises(apsw.ConstraintError, match="no arrow leads there"):
                scratch.update(f"state = '{new}'")


# The store, when the rules let everything pass

BYPASSED = {
    (E.CLAIM, "wrong_executor"), (E.CLAIM, "digest_mismatch"), (E.CLAIM, "not_yet_valid"), (E.CLAIM, "expired"),
    (E.PREPARE, "wrong_executor"), (E.HAND_OUT, "wrong_executor"),
    (E.PREPARE, "other_claim"), (E.PREPARE, "other_worker"), (E.PREPARE, "revoked"), (E.PREPARE, "expired"),
    (E.HAND_OUT, "other_claim"), (E.HAND_OUT, "other_worker"), (E.HAND_OUT, "restarted"), (E.HAND_OUT, "revoked"),
    (E.HAND_OUT, "permit_expired"), (E.HAND_OUT, "handed_out"), (E.APPROVE, "expired"), (E.EXPIRE, "window_open"),
    (E.CLOSE_UNPREPARED, "prepared_before"), (E.PROPOSE, "empty_window"), (E.PROPOSE, "no_approvals"),
    (E.EDIT, "empty_window"), (E.EDIT, "no_approvals"), (E.SUCCESSOR, "empty_window"), (E.SUCCESSOR, "no_approvals"),
}  # fmt: skip
"""What the statements and the schema refuse too; the rest (signatures, people, evidence) only the rules know."""

_numbered = enumerate(one for one in CASES if one[:2] in BYPASSED)


@pytest.mark.parametrize(
    ("event", "code", "make"), [pytest.param(*one, id=f"{one[0]}-{one[1]}-{number}") for number, one in _numbered]
)
def test_rules_that_let_everything_pass_are_noticed_and_nothing_lands(
    event: Event, code: str, make: Callable[[Kit], Callable[[], object]], monkeypatch: pytest.MonkeyPatch
) -> None:
    with effects() as kit:
        asked = make(kit)
        monkeypatch.setattr("agent_run_ledger.effects.engine.decide", moved)
        error = kit.refused(asked)
        assert (type(error), error.code) == (Tampered, "rules_disagree")
        assert "arl verify" in error.hint
        monkeypatch.undo()
        assert kit.refused(asked).code == code, "the store goes on"


def test_every_condition_that_can_be_bypassed_is() -> None:
    assert {(event, code) for event, code, _ in CASES if (event, code) in BYPASSED} == BYPASSED


LEADS_TO = {event: next(arrow.new[-1] for (_, one), arrow in ARROWS.items() if one is event) for event in ASKED}
LEADS_TO |= {E.OUTCOME: A.SUCCEEDED, E.SUCCESS: A.SUCCEEDED}
STAYS = (E.REVOKE, E.OBSERVE, E.HAND_OUT)
MISSING = [
    (state, event)
    for state, event in product(ActionState, ASKED)
    if event not in (E.PROPOSE, *STAYS)
    and (state, event) not in ARROWS
    and (state, LEADS_TO[event]) not in ALLOWED
    and (state is not LEADS_TO[event] or event in (E.CLAIM, E.PREPARE, E.APPROVE, E.EXPIRE, E.CLOSE_UNPREPARED))
]
"""Missing arrows between states that no other event joins: without the rules the schema and the statements see them."""


@pytest.mark.parametrize(("state", "event"), MISSING)
def test_a_missing_arrow_is_refused_without_the_rules_too(
    state: ActionState, event: Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    with effects() as kit:
        view = kit.reach(state, F if event is E.CLOSE_UNPREPARED else TargetClass.N)
        if event is E.EXPIRE and state is not A.EXPIRED:
            kit.ticks.tick(WINDOW_MS)
        more: dict[str, Any] = {"fence": kit.fence(view)} if event is E.CLOSE_UNPREPARED else {}
        more |= {"actor": DAN} if event is E.APPROVE else {}
        more |= {"evidence": kit.seen(view, Found.EXECUTED)} if event in (E.OUTCOME, E.SUCCESS) else {}
        monkeypatch.setattr("agent_run_ledger.effects.engine.decide", moved)
        error = kit.refused(lambda: kit.do(event, view, **more))
        assert (type(error), error.code) == (Tampered, "rules_disagree")


def test_most_missing_arrows_are_seen_without_the_rules() -> None:
    assert len(MISSING) > 100


def test_too_few_approvals_are_counted_by_the_schema_too(monkeypatch: pytest.MonkeyPatch) -> None:
    with effects() as kit:
        view = kit.propose(approvals_needed=2)

        def hasty(*question: Any) -> Accepted:
            done = moved(*question)
            return replace(done, rows=(replace(done.rows[0], state=A.AVAILABLE),))

        monkeypatch.setattr("agent_run_ledger.effects.engine.decide", hasty)
        error = kit.refused(lambda: kit.do(E.APPROVE, view))
        assert (type(error), error.code) == (Tampered, "rules_disagree")


def test_a_second_open_member_of_a_key_is_refused_by_the_schema(monkeypatch: pytest.MonkeyPatch) -> None:
    with effects() as kit:
        view = kit.reach(A.AVAILABLE)
        monkeypatch.setattr("agent_run_ledger.effects.engine.decide", moved)
        error = kit.refused(lambda: kit.do(E.PROPOSE, view, intent=kit.intent(request=b"another")))
        assert (type(error), error.code) == (Tampered, "rules_disagree")
