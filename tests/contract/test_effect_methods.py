"""Every method of the effect ledger in every state: the state table, asked through the API of a real store."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from agent_run_ledger import Grant, Misuse, Pending, Refused
from agent_run_ledger.cli.words import iso
from agent_run_ledger.effects import ActionState, Event, Intent, LedgerState, Role, TargetClass, WitnessPolicy
from agent_run_ledger.effects.views import UNWITNESSED, _utc
from agent_run_ledger.kernel.effects.states import ARROWS, CLOSED
from agent_run_ledger.ledger.local_trust import UNSIGNED
from tests.contract.effect_kit import (
    ANN,
    ASKED,
    BOUND_MS,
    DOES,
    EXE,
    PERMIT_MS,
    WAYS,
    WINDOW_MS,
    A,
    E,
    FakeWitness,
    Kit,
    actor,
    effects,
)
from tests.contract.engine_kit import each_engine

pytestmark = each_engine

N, F = TargetClass.N, TargetClass.F


@pytest.fixture
def kit() -> Iterator[Kit]:
    with effects() as made:
        yield made


def _ask(kit: Kit, state: ActionState, event: Event) -> tuple[bytes, object]:
    """Bring an action into `state` and make all ready for `event`; return its id, and the question."""
    fences = event is E.CLOSE_UNPREPARED
    view = kit.reach(state, F if fences else N)
    if event is E.EXPIRE and state is not A.EXPIRED:
        kit.ticks.tick(WINDOW_MS)
    view = kit.ready(event, view)
    more = {"fence": kit.fence(view)} if fences else {}
    return view.action_id, lambda: kit.do(event, view, **more)


@pytest.mark.parametrize("event", [event for event in ASKED if event is not E.PROPOSE])
@pytest.mark.parametrize("state", ActionState)
def test_every_cell_of_the_state_table(kit: Kit, state: ActionState, event: Event) -> None:
    action_id, asked = _ask(kit, state, event)
    arrow = ARROWS.get((state, event))
    if arrow is not None and (state, event) != (A.UNRESOLVED, E.CLOSE_UNPREPARED):
        before = kit.ledger._store.reader().head().size
        asked()  # type: ignore[operator]
        after = kit.ledger.get(action_id)
        assert after.state in arrow.new
        assert kit.ledger._store.reader().head().size == before + 1
        members = kit.ledger.inspect(after.action_key)
        assert sum(not view.closed for view in members) <= 1
        if arrow.beside is A.PROPOSED:
            assert (members[-1].state, members[-1].replaces) == (A.PROPOSED, action_id)
        return
    if (state, event) in KNOWN:
        before_shape = kit.shape()
        asked()  # type: ignore[operator]
        assert kit.shape() == before_shape
        return
    error = kit.refused(asked)  # type: ignore[arg-type]
    if (state, event) == (A.UNRESOLVED, E.CLOSE_UNPREPARED):  # this one was prepared
        assert (type(error), error.code) == (Refused, "prepared_before")
    else:
        waits = (state, event) == (A.PROPOSED, E.CLAIM)
        of_newest = state is A.SUPERSEDED and event in (E.OUTCOME, E.SUCCESS)  # evidence is about the key
        code = "proposed" if of_newest else str(state)
        assert (type(error), error.code) == (Pending if waits else Refused, code)
    assert action_id.hex() in error.message


KNOWN = {
    *((state, E.PREPARE) for state in (A.PREPARED, A.UNRESOLVED, A.SUCCEEDED, A.NOT_EXECUTED, A.WRITTEN_OFF)),
    (A.REVOKED, E.REVOKE),
}
"""What is on record already: the answer is the record. (A repeated claim is one only with the same claim key.)"""


@pytest.mark.parametrize("state", ActionState)
def test_the_same_bytes_under_a_key_are_the_same_action_in_every_state(kit: Kit, state: ActionState) -> None:
    view = kit.reach(state)
    newest = kit.ledger.inspect(view.action_key)[-1]
    same = kit.intent(request=kit.ledger.request(newest.action_id))
    before = kit.shape()
    assert kit.do(E.PROPOSE, view, intent=same) == newest
    assert kit.shape() == before
    error = kit.refused(lambda: kit.do(E.PROPOSE, view, intent=kit.intent(request=b"neither")))
    assert (type(error), error.code) == (Refused, "key_taken")
    assert "successor" in error.hint


def test_an_unprepared_doubt_is_closed_by_the_receivers_fence(kit: Kit) -> None:
    view = kit.move(E.DOUBT, kit.reach(A.CLAIMED, F))
    assert kit.do(E.CLOSE_UNPREPARED, view, fence=kit.fence(view)).state is A.NOT_EXECUTED


@pytest.mark.parametrize("target", TargetClass)
@pytest.mark.parametrize("state", ActionState)
def test_every_state_has_a_way_to_a_closed_one(kit: Kit, state: ActionState, target: TargetClass) -> None:
    view = kit.reach(state, target)
    if view.state in (A.PROPOSED, A.AVAILABLE):
        view = kit.move(E.REVOKE, view)
    if view.state is A.CLAIMED:
        kit.ticks.tick(WINDOW_MS + BOUND_MS)
        view = kit.move(E.DOUBT, view, by="expiry", actor=EXE)
    if view.state is A.PREPARED:
        kit.ticks.tick(PERMIT_MS + BOUND_MS)
        view = kit.move(E.DOUBT, view, by="expiry", actor=EXE)
    if view.state is A.UNRESOLVED:
        view = kit.ready(E.NOT_EXECUTED, view)
        fence = {"fence": kit.fence(view)} if target in (TargetClass.F, TargetClass.F_MINUS) else {}
        view = kit.move(E.NOT_EXECUTED, view, **fence)
    assert view.closed
    assert view.state in CLOSED
    if view.state in (A.NOT_EXECUTED, A.EXPIRED, A.REJECTED, A.REVOKED):
        assert kit.do(E.SUCCESSOR, view).state is A.PROPOSED


def test_a_whole_life_and_what_its_views_say(kit: Kit) -> None:
    view = kit.propose(approvals_needed=2)
    assert view.status == "proposed (authorization: not_established, 0 of 2)"
    assert not view.authorized
    view = kit.do(E.APPROVE, view)
    assert (view.state, view.approvals) == (A.PROPOSED, ("bob",))
    view = kit.do(E.APPROVE, view, actor=actor("dan", Role.APPROVER))
    assert (view.state, view.authorized, view.approvals) == (A.AVAILABLE, True, ("bob", "dan"))
    grant = kit.do(E.CLAIM, view)
    assert isinstance(grant, Grant)
    assert (grant.granted_now, grant.view.generation, grant.view.worker) == (True, 1, "w1")
    view = kit.do(E.PREPARE, grant.view)
    assert (view.status, view.permit_expires_ms) == ("prepared (not handed out)", kit.now() + PERMIT_MS)
    sent = kit.do(E.HAND_OUT, view)
    assert (sent.handed_now, sent.request, sent.view.status) == (True, b"{}", "prepared (handed out)")
    assert (sent.permit.act, sent.permit.gen, sent.permit.ep, sent.permit.req) == (
        *("refund:17", 1, 0),
        view.request_sha256.hex(),
    )
    assert kit.do(E.REVOKE, view).status == "prepared (handed out), revoked"
    view = kit.do(E.DOUBT, view)
    assert view.status == f"unresolved (in doubt since {iso(kit.now())}), revoked"
    assert E.CLAIM not in view.next
    view = kit.do(E.SUCCESS, view)
    assert (view.state, view.next, len(view.evidence)) == (A.SUCCEEDED, (), 1)


def test_a_receipt_of_a_lost_history_rebuilds_its_member(kit: Kit) -> None:
    view = kit.reach(A.UNRESOLVED)
    rebuilt = kit.do(E.SUCCESS, view, evidence=kit.receipt(view, generation=3))
    assert (rebuilt.state, rebuilt.generation, rebuilt.replaces) == (A.SUCCEEDED, 3, view.action_id)
    assert kit.look(view).state is A.SUPERSEDED
    error = kit.refused(lambda: kit.ledger.request(rebuilt.action_id))
    assert error.code == "no_request"


@pytest.mark.parametrize("generation", [1, 2])
def test_a_receipt_for_other_bytes_rebuilds_the_member_that_has_the_effect(kit: Kit, generation: int) -> None:
    view = kit.reach(A.PREPARED)
    evidence = kit.receipt(view, generation=generation, request_sha256=b"o" * 32)
    rebuilt = kit.do(E.OUTCOME, view, evidence=evidence)
    assert (rebuilt.state, rebuilt.generation, rebuilt.request_sha256) == (A.SUCCEEDED, generation, b"o" * 32)
    assert kit.look(view).generation == (None if generation == 1 else 1)


def test_the_inbox_has_what_is_open_oldest_first_a_page_at_a_time(kit: Kit) -> None:
    views = [kit.reach(state, key=f"k{number}") for number, state in enumerate(s for s in WAYS if s is not A.EXPIRED)]
    still_open = [view.action_key for view in views if not view.closed] + ["k6"]  # k6 was edited
    assert [view.action_key for view in kit.ledger.inbox()] == still_open
    first = kit.ledger.inbox(limit=2)
    assert [view.action_key for view in first] == still_open[:2]
    assert [view.action_key for view in kit.ledger.inbox(after=first[-1])] == still_open[2:]
    assert [view.state for view in kit.ledger.inbox(A.PREPARED, A.REVOKED)] == [A.PREPARED, A.REVOKED]
    counts = kit.ledger.status().counts
    assert (sum(counts.values()), counts[A.PROPOSED]) == (len(views) + 1, 2)


def test_the_status_says_what_is_not_protected(kit: Kit) -> None:
    status = kit.ledger.status()
    assert (status.state, status.epoch, status.witness) == (LedgerState.OPEN, 0, WitnessPolicy.NONE)
    assert status.not_protected == (UNWITNESSED, UNSIGNED)
    with effects() as other:
        assert other.ledger.status().ledger_id != status.ledger_id


def test_every_view_of_an_action_says_that_there_is_no_witness(kit: Kit) -> None:
    told = ("no witness: a restored older copy of this database is not noticed",)
    view = kit.reach(A.AVAILABLE)
    grant = kit.do(E.CLAIM, view)
    prepared = kit.do(E.PREPARE, grant.view)
    handed = kit.do(E.HAND_OUT, prepared)
    read = (kit.look(view), *kit.ledger.inspect(view.action_key), *kit.ledger.inbox())
    for one in (view, grant.view, prepared, handed.view, *read):
        assert one.not_protected == told
    with effects(witness=FakeWitness()) as other:
        assert other.propose().not_protected == ()


@pytest.mark.parametrize("event", ASKED)
def test_each_method_needs_one_of_its_roles(kit: Kit, event: Event) -> None:
    view = kit.reach(A.UNRESOLVED if event is E.WRITE_OFF else A.PROPOSED)
    others = frozenset(Role) - ARROWS[next(old for old, one in ARROWS if one is event), event].roles
    for role in sorted(others):
        error = kit.refused(lambda role=role: kit.do(event, view, actor=actor(DOES[event].principal, role)))
        assert (type(error), error.code) == (Misuse, "wrong_role")


@pytest.mark.parametrize("event", [event for event in ASKED if event is not E.PROPOSE])
def test_an_action_that_is_not_there_is_refused_by_its_id(kit: Kit, event: Event) -> None:
    view = kit.propose()
    more = {"approval": kit.approval(view)} if event is E.APPROVE else {}
    more |= {"evidence": kit.seen(view)} if event in (E.OBSERVE,) else {}
    error = kit.refused(lambda: kit.do(event, view, action_id=b"?" * 16, **more))
    assert (type(error), error.code) == (Refused, "unknown_action")
    assert (b"?" * 16).hex() in error.message
    assert error.hint


def test_reading_what_is_not_there_is_refused(kit: Kit) -> None:
    for read in (
        kit.ledger.get,
        kit.ledger.request,
        lambda which: kit.ledger.statement(which, approver="b", nonce=bytes(16)),
    ):
        error = kit.refused(lambda read=read: read(b"?" * 16))
        assert (type(error), error.code) == (Refused, "unknown_action")
    assert kit.ledger.inspect("nobody's") == []


BAD_INTENTS: list[dict[str, object]] = [
    {"request": "text"},
    {"request": bytes((16 << 20) + 1)},
    {"policy_sha256": b"short"},
    {"display_sha256": "d" * 32},
    {"executor": ""},
    {"audience": "a" * 1_025},
    {"executor": "half \ud800"},
    {"audience": "nul \0"},
    {"executor": 7},
    {"preconditions": (("uid",),)},
    {"preconditions": (("", "7"),)},
    {"preconditions": (("uid", 7),)},
    {"not_before_ms": 1.5},
    {"dispatch_before_ms": 1 << 53},
    {"approvals_needed": True},
]


@pytest.mark.parametrize("changes", BAD_INTENTS, ids=lambda changes: next(iter(changes)))
def test_what_no_ledger_could_keep_or_sign_is_no_intent(kit: Kit, changes: dict[str, object]) -> None:
    error = kit.refused(lambda: kit.intent(**changes))
    assert (type(error), error.code) == (Misuse, "bad_intent")


def test_what_a_ledger_can_just_keep_is_an_intent(kit: Kit) -> None:
    big = kit.intent(request=bytes(16 << 20), executor="e" * 1_024, preconditions=(("uid", ""),))
    assert isinstance(big, Intent)


@pytest.mark.parametrize("key", ["", "k" * 1_025, "nul \0", "half \ud800", 7])
def test_a_key_is_text_that_people_can_read(kit: Kit, key: object) -> None:
    error = kit.refused(lambda: kit.ledger.propose(ANN, key, kit.intent()))  # type: ignore[arg-type]
    assert (type(error), error.code) == (Misuse, "bad_intent")


@pytest.mark.parametrize("worker", ["", "nul \0", 7])
def test_a_worker_is_named_in_text(kit: Kit, worker: object) -> None:
    view = kit.reach(A.AVAILABLE)
    error = kit.refused(lambda: kit.do(E.CLAIM, view, worker=worker))
    assert (type(error), error.code) == (Misuse, "bad_intent")


def test_what_is_prepared_is_shown_in_doubt_from_the_end_of_its_permit_by_every_clock() -> None:
    with effects() as kit:
        view = kit.reach(A.PREPARED)
        over_ms = kit.now() + PERMIT_MS + BOUND_MS
        kit.ticks.tick(PERMIT_MS + BOUND_MS - 1)
        assert kit.look(view).status == "prepared (not handed out)"
        kit.ticks.tick(1)
        shown = [kit.look(view), *kit.ledger.inspect(view.action_key), *kit.ledger.inbox()]
        assert [one.status for one in shown] == [f"prepared (in doubt since {iso(over_ms)})"] * 3
        assert kit.look(kit.move(E.REVOKE, view)).status == f"prepared (in doubt since {iso(over_ms)}), revoked"


def test_a_doubt_since_a_time_out_of_range_has_words_too() -> None:
    assert _utc(1_796_082_549_456) == "2026-11-30T23:49:09.456Z"
    assert _utc(1 << 60) == f"{1 << 60} ms"
