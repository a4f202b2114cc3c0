"""The operator's inbox: what waits longest comes first, silent claims are seen, and its advice is the ledger's own."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from agent_run_ledger import LedgerError, Refused
from agent_run_ledger.effects import ActionState, ActionView, DoubtBy, DrainKind, Found, TargetClass
from agent_run_ledger.kernel.effects.advice import EVENT_OF, Step, Way
from agent_run_ledger.kernel.effects.states import ARROWS, CLOSED, Event
from agent_run_ledger.ledger.effect_inbox import Waiting, find_action, read_doubts, read_inbox
from agent_run_ledger.ledger.effect_opening import settings_on_record
from agent_run_ledger.ledger.effect_standing import on_record
from agent_run_ledger.ledger.effect_story import read_story
from tests.contract.effect_kit import (
    BOUND_MS,
    CAT,
    DOES,
    OPS,
    PERMIT_MS,
    START_MS,
    WAYS,
    WINDOW_MS,
    A,
    E,
    Kit,
    actor,
    effects,
)
from tests.contract.engine_kit import each_engine

pytestmark = each_engine

REQUEST = b'arl/request/v1\n{"kind":"call","name":"refund"}\n{"order":"17"}'


@pytest.fixture
def kit() -> Iterator[Kit]:
    with effects() as kit:
        yield kit


def inbox(kit: Kit, *states: ActionState, **asked: Any) -> list[Waiting]:
    return read_inbox(kit.ledger._store, states, **{"limit": 100, "time": kit.ticks, **asked})


def doubts(kit: Kit, **asked: Any) -> list[Waiting]:
    return read_doubts(kit.ledger._store, **{"limit": 100, "time": kit.ticks, **asked})


def one(kit: Kit, view: ActionView) -> Waiting:
    (found,) = [one for one in inbox(kit, *ActionState) if one.action.action_id == view.action_id]
    return found


def way(kit: Kit, view: ActionView, step: Step) -> Way:
    (found,) = [found for found in one(kit, view).ways if found.step is step]
    return found


def test_what_waits_longest_comes_first_whatever_its_state(kit: Kit) -> None:
    kit.ticks.wall_ms = time.time_ns() // 1_000_000  # a proposal's age is by the log's clock, which is the machine's
    first = kit.propose(key="proposed first, doubted last", dispatch_before_ms=1 << 45)
    claimed = kit.propose(key="proposed second, claimed third", dispatch_before_ms=1 << 45)
    waits = kit.propose(key="proposed third", dispatch_before_ms=1 << 45)
    kit.ticks.tick(3_600_000)
    for event in WAYS[A.CLAIMED]:
        claimed = kit.move(event, claimed)
    for event in WAYS[A.UNRESOLVED]:
        kit.ticks.tick(1_000)
        first = kit.move(event, first)
    kit.ticks.tick(500)
    found = inbox(kit)
    assert [one.action.action_id for one in found] == [waits.action_id, claimed.action_id, first.action_id]
    assert [one.age_ms for one in found[1:]] == [4_500, 500]
    assert abs(found[0].age_ms - 3_604_500) < 3_600_000
    assert [one.action.action_id for one in inbox(kit, limit=2)] == [waits.action_id, claimed.action_id]


def test_of_one_state_the_oldest_doubt_comes_first_and_the_limit_keeps_it(kit: Kit) -> None:
    views = [kit.reach(A.PREPARED, key=f"k{number}") for number in range(4)]
    for view in (views[2], views[0], views[3], views[1]):
        kit.ticks.tick(10)
        kit.do(E.DOUBT, view)
    assert [found.action.action_key for found in inbox(kit, A.UNRESOLVED)] == ["k2", "k0", "k3", "k1"]
    assert [found.action.action_key for found in doubts(kit, limit=2)] == ["k2", "k0"]


@pytest.mark.parametrize("state", [A.CLAIMED, A.PREPARED])
def test_a_claim_is_stranded_from_the_moment_on_at_which_the_clock_may_doubt_it(kit: Kit, state: ActionState) -> None:
    view = kit.reach(state)
    over_ms = (START_MS + PERMIT_MS if state is A.PREPARED else START_MS + WINDOW_MS) + BOUND_MS
    kit.ticks.tick(over_ms - START_MS - 1)
    assert (doubts(kit), one(kit, view).stranded) == ([], False)
    assert kit.refused(lambda: kit.do(E.DOUBT, view, by=DoubtBy.EXPIRY)).code == "too_early"
    assert way(kit, view, Step.DOUBT_BY_EXPIRY).refused == "too_early"
    kit.ticks.tick(1)
    (found,) = doubts(kit)
    assert (found.action.action_id, found.silent_ms) == (view.action_id, over_ms)
    assert found.ways[0].step is Step.DOUBT_BY_EXPIRY
    assert kit.move(E.DOUBT, view, by=DoubtBy.EXPIRY).state is A.UNRESOLVED


def test_the_inbox_of_a_key_and_of_a_state_has_no_others(kit: Kit) -> None:
    kit.reach(A.UNRESOLVED, key="a")
    kit.reach(A.NOT_EXECUTED, key="b")
    kit.reach(A.UNRESOLVED, key="b c")
    kit.ticks.tick(2 * WINDOW_MS)
    assert [found.action.action_key for found in inbox(kit, key="a")] == ["a"]
    assert inbox(kit, key="b") == []
    assert [found.action.state for found in inbox(kit, A.NOT_EXECUTED, key="b")] == [A.NOT_EXECUTED]
    assert [found.action.action_key for found in doubts(kit, key="b c")] == ["b c"]
    assert doubts(kit, key="b") == []
    assert {found.action.state for found in inbox(kit)} == {A.UNRESOLVED}


def test_closed_actions_are_not_in_it_unless_asked_for(kit: Kit) -> None:
    for state in ActionState:
        kit.reach(state, key=str(state))
    shown = {found.action.state for found in inbox(kit)}
    assert shown == set(ActionState) - CLOSED
    assert {found.action.state for found in inbox(kit, *CLOSED)} == CLOSED


MEANS: dict[Step, dict[str, Any]] = {
    Step.DOUBT: {"by": DoubtBy.OPERATOR, "actor": OPS},
    Step.DOUBT_BY_EXPIRY: {"by": DoubtBy.EXPIRY, "actor": CAT},
}


def carry_out(kit: Kit, view: ActionView, step: Step) -> str:
    """Take a step for real, as the people of these tests do it, and return the code of its refusal, or nothing."""
    event, changes = EVENT_OF[step], dict(MEANS.get(step, {}))
    if step is Step.LOOK:
        changes["evidence"] = kit.seen(view, Found.EXECUTED)
    elif step in (Step.DRAIN_BY_EXPIRY, Step.DRAIN_PATH_DEAD):
        changes["evidence"] = kit.drain(view, DrainKind.EXPIRY if step is Step.DRAIN_BY_EXPIRY else DrainKind.PATH_DEAD)
    elif step is Step.HAPPENED:
        stored = kit.ledger._store.reader().effects.action(view.action_id)
        assert stored is not None
        changes["evidence"] = stored.action.observation or kit.seen(view, observer="somebody else")
    elif step is Step.APPROVE and view.approvals:
        changes["actor"] = actor("dan", *DOES[Event.APPROVE].roles)
    try:
        kit.do(event, view, **changes)
    except LedgerError as error:
        return error.code
    return ""


def situations(kit: Kit, target: TargetClass, event: Event) -> Iterator[ActionView]:
    """An action in every state from which an event leads on, and doubts with every kind of evidence."""
    for state in ActionState:
        if (state, event) in ARROWS:
            yield kit.reach(state, target, key=f"{state}")
    if (A.UNRESOLVED, event) not in ARROWS:
        return
    for name, pieces in {
        "looked": ("look",), "drained": ("drain",), "looked before": ("look", "drain"), "ready": ("drain", "look"),
        "seen": ("executed",),
    }.items():  # fmt: skip
        view = kit.reach(A.UNRESOLVED, target, key=name)
        for piece in pieces:
            if piece == "drain" and target is not TargetClass.F:
                kit.do(E.OBSERVE, view, evidence=kit.drain(view))
            elif piece != "drain":
                kit.do(
                    E.OBSERVE, view, evidence=kit.seen(view, Found.EXECUTED if piece == "executed" else Found.NOTHING)
                )
        yield kit.look(view)


@pytest.mark.parametrize("target", list(TargetClass))
@pytest.mark.parametrize("later_ms", [0, WINDOW_MS + BOUND_MS])
@pytest.mark.parametrize("step", list(Step))
def test_what_the_advice_says_of_a_step_the_ledger_says_too(target: TargetClass, later_ms: int, step: Step) -> None:
    with effects(kept=False) as kit:
        views = list(situations(kit, target, EVENT_OF[step]))
        kit.ticks.tick(later_ms)
        assert views
        for view in views:
            said = way(kit, view, step).refused
            done = carry_out(kit, view, step)
            assert done == ("says_no_success" if said == "not_seen" else said), (view.state, view.action_key)


def test_no_step_is_advised_that_the_table_does_not_know(kit: Kit) -> None:
    for state in ActionState:
        view = kit.reach(state, key=str(state))
        assert {EVENT_OF[found.step] for found in one(kit, view).ways} <= {e for old, e in ARROWS if old is state}


def test_after_a_look_that_saw_nothing_the_drain_comes_first_and_then_the_decision(kit: Kit) -> None:
    view = kit.reach(A.UNRESOLVED)
    assert one(kit, view).ways[0].step is Step.LOOK
    kit.do(E.OBSERVE, view)
    assert one(kit, view).ways[0].step is Step.DRAIN_PATH_DEAD
    assert way(kit, view, Step.HAPPENED).refused == "not_seen"
    kit.do(E.OBSERVE, view, evidence=kit.drain(view))
    assert one(kit, view).ways[0].step is Step.LOOK
    assert way(kit, view, Step.DID_NOT_HAPPEN).refused == "observation_before_drain"
    kit.do(E.OBSERVE, view)
    assert one(kit, view).ways[0].step is Step.DID_NOT_HAPPEN
    assert way(kit, view, Step.DID_NOT_HAPPEN).not_by == {"exe"}


def test_what_was_seen_to_have_happened_is_decided_first(kit: Kit) -> None:
    view = kit.reach(A.UNRESOLVED)
    assert way(kit, view, Step.HAPPENED).refused == "not_seen"
    kit.do(E.OBSERVE, view, evidence=kit.seen(view, Found.EXECUTED))
    assert one(kit, view).ways[0].step is Step.HAPPENED
    assert way(kit, view, Step.DID_NOT_HAPPEN).refused == "seen_executed"


def test_an_execution_that_was_seen_comes_before_the_worker_that_is_still_at_it(kit: Kit) -> None:
    view = kit.reach(A.PREPARED)
    assert one(kit, view).ways[0].step is Step.DOUBT
    kit.do(E.OBSERVE, view, evidence=kit.seen(view, Found.EXECUTED))
    assert one(kit, view).ways[0].step is Step.HAPPENED


def test_what_is_over_has_no_way_on(kit: Kit) -> None:
    for state in (A.SUCCEEDED, A.SUPERSEDED, A.WRITTEN_OFF):
        assert one(kit, kit.reach(state, key=str(state))).ways == ()


def test_who_asked_or_approved_is_named_as_one_who_may_not_approve(kit: Kit) -> None:
    view = kit.propose(approvals_needed=2)
    kit.do(E.APPROVE, view)
    assert way(kit, view, Step.APPROVE).not_by == {"ann", "exe", "bob"}


def test_a_revocation_on_record_is_not_advised_again(kit: Kit) -> None:
    view = kit.reach(A.UNRESOLVED)
    assert way(kit, view, Step.REVOKE).open
    kit.do(E.REVOKE, view)
    assert Step.REVOKE not in {found.step for found in one(kit, view).ways}


def test_an_action_is_found_by_its_id_its_first_digits_or_its_key(kit: Kit) -> None:
    store, first = kit.ledger._store, kit.reach(A.EXPIRED, key="refund:1")
    newer = kit.move(E.SUCCESSOR, first)
    second = kit.ledger.inspect("refund:1")[-1]
    assert newer.state is A.SUPERSEDED
    assert find_action(store, first.action_id.hex()).action.action_id == first.action_id
    assert find_action(store, first.action_id.hex().upper()).action.action_id == first.action_id
    assert find_action(store, second.action_id.hex()[:31]).action.action_id == second.action_id
    assert find_action(store, "refund:1").action.action_id == second.action_id, "the newest member"
    digits = first.action_id.hex()
    shared = 0
    while digits[shared] == second.action_id.hex()[shared]:
        shared += 1
    assert shared >= 6
    for named, code in ((digits[:shared], "ambiguous"), (digits[:5], "unknown_action"), ("", "unknown_action")):
        with pytest.raises(Refused) as refusal:
            find_action(store, named)
        assert refusal.value.code == code


def test_a_key_that_looks_like_an_id_hides_no_action(kit: Kit) -> None:
    store, view = kit.ledger._store, kit.propose(key="refund:1")
    named = view.action_id.hex()
    kit.propose(key=named)
    kit.propose(key=named[:20])
    assert find_action(store, named).action.action_key == "refund:1"
    with pytest.raises(Refused) as refusal:
        find_action(store, named[:20])
    assert refusal.value.code == "ambiguous"


def test_the_story_of_a_key_has_each_transition_of_each_member(kit: Kit) -> None:
    view = kit.reach(A.NOT_EXECUTED, key="refund:1")
    kit.do(E.SUCCESSOR, view)
    story = read_story(kit.ledger._store, "refund:1", time=kit.ticks)
    told = [[(str(one.command.event), one.command.actor.principal) for one in member.told] for member in story.members]
    assert told == [
        [
            ("propose", "ann"), ("approve", "bob"), ("claim", "exe"), ("prepare", "exe"), ("doubt", "ops"),
            ("observe", "cat"), ("observe", "cat"), ("not_executed", "cat"), ("successor", "ann"),
        ],
        [("successor", "ann")],
    ]  # fmt: skip
    assert [one.leaf_index for one in story.members[0].told][-1] == story.members[1].told[0].leaf_index


def test_a_display_is_shown_only_as_the_one_that_was_approved_if_it_is(kit: Kit) -> None:
    from agent_run_ledger.kernel.effects.display import display, display_sha256

    kit.propose(key="raw")
    kit.propose(key="other", request=REQUEST)
    kit.propose(key="same", request=REQUEST, display_sha256=display_sha256(REQUEST))
    asked = {
        key: read_story(kit.ledger._store, key, time=kit.ticks).members[0].asked for key in ("raw", "other", "same")
    }
    assert (asked["raw"].display, asked["raw"].size, asked["raw"].intact) == (None, 2, True)
    assert (asked["other"].display, asked["other"].shown_as_approved) == (display(REQUEST), False)
    assert asked["same"].shown_as_approved


def test_where_the_ledger_stands_is_read_from_its_latest_transition() -> None:
    with effects(people_for_not_executed=3, max_permit_ms=40_000) as kit:
        assert not on_record(kit.ledger._store, kit.ticks).used
        kit.propose()
        where = on_record(kit.ledger._store, kit.ticks)
        assert (where.used, where.standing.people_for_not_executed) == (True, 3)
        assert settings_on_record(kit.ledger._store) == kit.settings
        assert where.standing == replace(kit.ledger._standing(), opening=b"")
        kit.ticks.leap(-5_000)
        assert on_record(kit.ledger._store, kit.ticks).standing.state == "time_untrusted"


def test_by_a_clock_that_is_not_trusted_nothing_is_stranded_too_early(kit: Kit) -> None:
    view = kit.reach(A.PREPARED)
    kit.ticks.leap(WINDOW_MS + 4 * 3_600_000)
    found = one(kit, view)
    assert (found.stranded, doubts(kit)) == (False, [])
    assert way(kit, view, Step.DOUBT_BY_EXPIRY).refused == "clock_untrusted"
