"""Questions that one guard each refuses, through the API of a real store, and what they are made of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from agent_run_ledger.effects import DoubtBy, DrainKind, Event, Found, Role, TargetClass
from tests.contract.effect_kit import (
    ANN,
    BOUND_MS,
    DAN,
    EXE,
    PERMIT_MS,
    START_MS,
    WINDOW_MS,
    A,
    E,
    Kit,
    actor,
)

N, V, I, F_MINUS, F = TargetClass.N, TargetClass.V, TargetClass.I, TargetClass.F_MINUS, TargetClass.F  # noqa: E741
EVE = actor("eve", Role.APPROVER)
Asked = Callable[[], object]
Case = tuple[Event, str, Callable[[Kit], Asked]]


def about(event: Event, state: A, target: TargetClass = N, **changes: Any) -> Callable[[Kit], Asked]:
    """Ask for an event in a state, with changed arguments; callable ones get kit and view."""

    def make(kit: Kit) -> Asked:
        view = kit.reach(state, target)
        given = {name: value(kit, view) if callable(value) else value for name, value in changes.items()}
        return lambda: kit.do(event, view, **given)

    return make


def signed(**changes: Any) -> Callable[[Kit], Asked]:
    return about(E.APPROVE, A.PROPOSED, approval=lambda kit, view: kit.approval(view, **changes))


def approves(who: Any) -> Callable[[Kit], Asked]:
    asks = actor(who.principal, Role.APPROVER)
    return about(E.APPROVE, A.PROPOSED, actor=asks, approval=lambda kit, view: kit.approval(view, who.principal))


def forged(**changes: Any) -> Callable[[Kit], Asked]:
    return about(E.APPROVE, A.PROPOSED, approval=lambda kit, view: replace(kit.approval(view), **changes))


def again(who: Any, nonce: bytes) -> Callable[[Kit], Asked]:
    """A second approval where two are needed."""

    def make(kit: Kit) -> Asked:
        view = kit.move(E.APPROVE, kit.propose(approvals_needed=2))
        return lambda: kit.do(E.APPROVE, view, actor=who, approval=kit.approval(view, who.principal, nonce=nonce))

    return make


def late(event: Event, state: A, ms: int, target: TargetClass = N, **changes: Any) -> Callable[[Kit], Asked]:
    """Ask when `ms` have passed since it came into its state."""

    def make(kit: Kit) -> Asked:
        view = kit.reach(state, target)
        given = {name: value(kit, view) if callable(value) else value for name, value in changes.items()}
        kit.ticks.tick(ms)
        return lambda: kit.do(event, view, **given)

    return make


def early(kit: Kit) -> Asked:
    """Ask for a claim a millisecond before the window begins."""
    view = kit.move(E.APPROVE, kit.propose(not_before_ms=kit.now() + 1))
    return lambda: kit.do(E.CLAIM, view)


def revoked(event: Event, state: A) -> Callable[[Kit], Asked]:
    def make(kit: Kit) -> Asked:
        view = kit.move(E.REVOKE, kit.reach(state))
        return lambda: kit.do(event, view)

    return make


def lying(event: Event, state: A, **changes: Any) -> Callable[[Kit], Asked]:
    """A success by a receipt that has something changed."""
    return about(event, state, evidence=lambda kit, view: kit.receipt(view, **changes))


def fenced(event: Event, target: TargetClass = F, found: Found = Found.NOTHING, **changes: Any) -> Any:
    state = A.UNRESOLVED if event is E.NOT_EXECUTED else A.CLAIMED
    return about(event, state, target, fence=lambda kit, view: kit.fence(view, found, **changes))


def by_drain(*steps: str, **changes: Any) -> Callable[[Kit], Asked]:
    """A decision that it was not executed, with these things on record."""

    def make(kit: Kit) -> Asked:
        view = kit.reach(A.UNRESOLVED)
        for step in steps:
            if step == "drain":
                kit.do(E.OBSERVE, view, evidence=kit.drain(view))
            elif step == "executor looks":
                kit.do(E.OBSERVE, view, actor=EXE, evidence=kit.seen(view, observer="exe"))
            else:
                kit.do(E.OBSERVE, view, evidence=kit.seen(view, Found.UNKNOWN if step == "unknown" else Found.NOTHING))
        given = {name: value(kit, view) if callable(value) else value for name, value in changes.items()}
        return lambda: kit.do(E.NOT_EXECUTED, view, **given)

    return make


def drains(state: A, target: TargetClass, kind: DrainKind = DrainKind.PATH_DEAD, **changes: Any) -> Any:
    return about(E.OBSERVE, state, target, evidence=lambda kit, view: kit.drain(view, kind, **changes))


def looks(**changes: Any) -> Callable[[Kit], Asked]:
    return about(E.OBSERVE, A.PREPARED, evidence=lambda kit, view: kit.seen(view, **changes))


def contradicts(kit: Kit) -> Asked:
    view = kit.reach(A.UNRESOLVED)
    kit.do(E.OBSERVE, view, evidence=kit.seen(view, Found.EXECUTED))
    return lambda: kit.do(E.OBSERVE, view)


def executed(event: Event, state: A, target: TargetClass) -> Callable[[Kit], Asked]:
    """Ask although somebody saw the effect."""

    def make(kit: Kit) -> Asked:
        view = kit.reach(state, target)
        kit.do(E.OBSERVE, view, evidence=kit.seen(view, Found.EXECUTED))
        fence = {"fence": kit.fence(view)} if target is F else {}
        return lambda: kit.do(event, view, **fence)

    return make


SEEN_WHERE = [
    (E.PREPARE, A.CLAIMED, N), (E.HAND_OUT, A.PREPARED, N), (E.NOT_EXECUTED, A.UNRESOLVED, N),
    (E.NOT_EXECUTED, A.UNRESOLVED, F), (E.CLOSE_UNPREPARED, A.CLAIMED, F),
]  # fmt: skip


def sees(event: Event, **changes: Any) -> Callable[[Kit], Asked]:
    """A success by a look that has something changed."""
    own = {"observer": "exe" if event is E.OUTCOME else "cat", **changes}
    return about(event, A.UNRESOLVED, evidence=lambda kit, view: kit.seen(view, Found.EXECUTED, **own))


def looked_at(kit: Kit) -> Asked:
    """Give up finding out although somebody could look."""
    view = kit.reach(A.UNRESOLVED)
    kit.do(E.OBSERVE, view)
    return lambda: kit.do(E.WRITE_OFF, view)


def used(event: Event, target: TargetClass = N, state: A = A.UNRESOLVED) -> Callable[[Kit], Asked]:
    """Ask with evidence whose id is on record."""

    def make(kit: Kit) -> Asked:
        view = kit.reach(state, target)
        evidence_id = kit.id()
        kit.do(E.OBSERVE, view, evidence=kit.seen(view, evidence_id=evidence_id))
        if event in (E.NOT_EXECUTED, E.CLOSE_UNPREPARED):
            return lambda: kit.do(event, view, fence=kit.fence(view, evidence_id=evidence_id))
        made = kit.drain if event is E.OBSERVE else kit.receipt
        return lambda: kit.do(event, view, evidence=made(view, evidence_id=evidence_id))

    return make


def drained_before(kit: Kit) -> Asked:
    view = kit.reach(A.PREPARED)
    kit.do(E.OBSERVE, view, evidence=kit.drain(view))
    return lambda: kit.do(E.HAND_OUT, view)


def restarted(kit: Kit) -> Asked:
    view = kit.reach(A.PREPARED)
    kit.reopen()
    return lambda: kit.do(E.HAND_OUT, view)


def handed_out(target: TargetClass) -> Callable[[Kit], Asked]:
    def make(kit: Kit) -> Asked:
        view = kit.reach(A.PREPARED, target)
        kit.do(E.HAND_OUT, view)
        return lambda: kit.do(E.HAND_OUT, view)

    return make


def wild_clock(event: Event, state: A, **changes: Any) -> Callable[[Kit], Asked]:
    """Ask by the clock when it cannot be trusted."""

    def make(kit: Kit) -> Asked:
        view = kit.reach(state, V)
        kit.ticks.leap(2 * 3_600_000 + WINDOW_MS)
        given = {name: value(kit, view) if callable(value) else value for name, value in changes.items()}
        return lambda: kit.do(event, view, **given)

    return make


def other_window(event: Event, state: A) -> Callable[[Kit], Asked]:
    return about(event, state, intent=lambda kit, view: kit.intent(request=b"x", dispatch_before_ms=kit.now()))


def no_people(event: Event, state: A) -> Callable[[Kit], Asked]:
    return about(event, state, intent=lambda kit, view: kit.intent(request=b"x", approvals_needed=0))


def proposing(**changes: Any) -> Callable[[Kit], Asked]:
    return lambda kit: lambda: kit.ledger.propose(ANN, "new", kit.intent(**changes))


TIMER, DEAD = DrainKind.EXPIRY, DrainKind.PATH_DEAD
EARLY_TIMER = lambda kit, view: kit.drain(view, TIMER)  # noqa: E731
RECONCILING_EXE = actor("exe", Role.RECONCILER)

CASES: list[Case] = [
    (E.PROPOSE, "key_taken", about(E.PROPOSE, A.PROPOSED, intent=lambda kit, view: kit.intent(request=b"x"))),
    (E.PROPOSE, "empty_window", proposing(dispatch_before_ms=START_MS)),
    (E.PROPOSE, "no_approvals", proposing(approvals_needed=0)),
    (E.EDIT, "same_bytes", about(E.EDIT, A.PROPOSED, intent=lambda kit, view: kit.intent())),
    (E.EDIT, "empty_window", other_window(E.EDIT, A.PROPOSED)),
    (E.EDIT, "no_approvals", no_people(E.EDIT, A.PROPOSED)),
    (E.APPROVE, "other_bytes_signed", forged(signed_sha256=b"?" * 32)),
    (E.APPROVE, "other_approver", signed(approver="eve")),
    (E.APPROVE, "other_approver", forged(principal="eve")),
    (E.APPROVE, "other_approver", about(E.APPROVE, A.PROPOSED, actor=EVE, approval=lambda kit, v: kit.approval(v))),
    (E.APPROVE, "old_epoch", signed(epoch=1)),
    (E.APPROVE, "other_action", signed(action_key="refund:18")),
    (E.APPROVE, "other_action", signed(action_id=b"?" * 16)),
    (E.APPROVE, "other_action", signed(ledger_id=b"?" * 16)),
    (E.APPROVE, "other_request", signed(request_sha256=b"?" * 32)),
    (E.APPROVE, "other_policy", signed(policy_sha256=b"?" * 32)),
    (E.APPROVE, "other_window", signed(dispatch_before_ms=START_MS + 1)),
    (E.APPROVE, "other_terms", signed(executor="eve")),
    (E.APPROVE, "other_terms", signed(preconditions=())),
    (E.APPROVE, "approver_is_requester", approves(ANN)),
    (E.APPROVE, "approver_is_executor", approves(EXE)),
    (E.APPROVE, "same_principal", again(actor("bob", Role.APPROVER), b"the first nonce ")),
    (E.APPROVE, "other_instance", again(DAN, b"another nonce   ")),
    (E.APPROVE, "expired", late(E.APPROVE, A.PROPOSED, WINDOW_MS)),
    (E.SUCCESSOR, "empty_window", other_window(E.SUCCESSOR, A.REVOKED)),
    (E.SUCCESSOR, "no_approvals", no_people(E.SUCCESSOR, A.REVOKED)),
    (E.EXPIRE, "window_open", late(E.EXPIRE, A.PROPOSED, WINDOW_MS - 1)),
    (E.EXPIRE, "window_open", late(E.EXPIRE, A.AVAILABLE, WINDOW_MS - 1)),
    (E.CLAIM, "wrong_executor", about(E.CLAIM, A.AVAILABLE, actor=actor("eve", Role.EXECUTOR))),
    (E.CLAIM, "digest_mismatch", about(E.CLAIM, A.AVAILABLE, request_sha256=b"?" * 32)),
    (E.CLAIM, "not_yet_valid", early),
    (E.CLAIM, "expired", late(E.CLAIM, A.AVAILABLE, WINDOW_MS)),
    (E.PREPARE, "wrong_executor", about(E.PREPARE, A.CLAIMED, actor=actor("eve", Role.EXECUTOR))),
    (E.PREPARE, "other_claim", about(E.PREPARE, A.CLAIMED, claim_id=b"?" * 16)),
    (E.PREPARE, "other_worker", about(E.PREPARE, A.CLAIMED, worker="w2")),
    (E.PREPARE, "revoked", revoked(E.PREPARE, A.CLAIMED)),
    (E.PREPARE, "expired", late(E.PREPARE, A.CLAIMED, WINDOW_MS)),
    (E.PREPARE, "permit_too_long", about(E.PREPARE, A.CLAIMED, permit_ms=60_001)),
    (E.PREPARE, "permit_too_long", about(E.PREPARE, A.CLAIMED, permit_ms=0)),
    (E.HAND_OUT, "wrong_executor", about(E.HAND_OUT, A.PREPARED, actor=actor("eve", Role.EXECUTOR))),
    (E.HAND_OUT, "other_claim", about(E.HAND_OUT, A.PREPARED, claim_id=b"?" * 16)),
    (E.HAND_OUT, "other_worker", about(E.HAND_OUT, A.PREPARED, worker="w2")),
    (E.HAND_OUT, "restarted", restarted),
    (E.HAND_OUT, "revoked", revoked(E.HAND_OUT, A.PREPARED)),
    (E.HAND_OUT, "permit_expired", late(E.HAND_OUT, A.PREPARED, PERMIT_MS)),
    (E.HAND_OUT, "drained", drained_before),
    (E.HAND_OUT, "handed_out", handed_out(N)),
    (E.HAND_OUT, "handed_out", handed_out(V)),
    (E.OUTCOME, "wrong_executor", about(E.OUTCOME, A.PREPARED, actor=actor("eve", Role.EXECUTOR))),
    (E.OUTCOME, "other_key", lying(E.OUTCOME, A.PREPARED, action_key="refund:18")),
    (E.OUTCOME, "other_receiver", lying(E.OUTCOME, A.PREPARED, receiver="https://eve.example")),
    (E.OUTCOME, "says_no_success", about(E.OUTCOME, A.PREPARED, evidence=lambda kit, view: kit.seen(view))),
    (E.OUTCOME, "says_no_success", about(E.OUTCOME, A.PREPARED, evidence=lambda kit, view: kit.fence(view))),
    *(
        (event, code, sees(event, **changes))
        for event in (E.OUTCOME, E.SUCCESS)
        for code, changes in (("other_observer", {"observer": "nobody"}), ("other_epoch", {"epoch": 77}))
    ),
    (E.OUTCOME, "evidence_used", used(E.OUTCOME)),
    (E.SUCCESS, "evidence_used", used(E.SUCCESS)),
    (E.SUCCESS, "reconciler_is_executor", about(E.SUCCESS, A.UNRESOLVED, actor=RECONCILING_EXE)),
    (E.SUCCESS, "other_key", lying(E.SUCCESS, A.UNRESOLVED, action_key="refund:18")),
    (E.SUCCESS, "other_receiver", lying(E.SUCCESS, A.UNRESOLVED, receiver="https://eve.example")),
    (E.SUCCESS, "says_no_success", about(E.SUCCESS, A.UNRESOLVED, evidence=lambda kit, view: kit.seen(view))),
    (E.DOUBT, "neighbours_claim", about(E.DOUBT, A.CLAIMED, actor=EXE, by=DoubtBy.WORKER, worker="w2")),
    (E.DOUBT, "not_operator", about(E.DOUBT, A.CLAIMED, actor=EXE)),
    (E.DOUBT, "clock_untrusted", wild_clock(E.DOUBT, A.PREPARED, by=DoubtBy.EXPIRY)),
    (E.DOUBT, "too_early", late(E.DOUBT, A.PREPARED, PERMIT_MS + BOUND_MS - 1, by=DoubtBy.EXPIRY)),
    (E.DOUBT, "too_early", late(E.DOUBT, A.CLAIMED, WINDOW_MS + BOUND_MS - 1, by=DoubtBy.EXPIRY)),
    (E.OBSERVE, "other_key", looks(action_key="refund:18")),
    (E.OBSERVE, "other_observer", looks(observer="eve")),
    (E.OBSERVE, "other_epoch", looks(epoch=1)),
    (E.OBSERVE, "evidence_used", used(E.OBSERVE)),
    (E.OBSERVE, "other_drain", looks(after=b"a drain to come.")),
    (E.OBSERVE, "contradicted", contradicts),
    (E.OBSERVE, "nothing_to_drain", drains(A.CLAIMED, N)),
    (E.OBSERVE, "fence_instead", drains(A.PREPARED, F)),
    (
        E.OBSERVE,
        "drain_by_executor",
        about(E.OBSERVE, A.PREPARED, actor=EXE, evidence=lambda kit, view: kit.drain(view, observer="exe")),
    ),
    (E.OBSERVE, "no_timer", drains(A.PREPARED, N, TIMER)),
    (E.OBSERVE, "no_timer", drains(A.PREPARED, I, TIMER)),
    (E.OBSERVE, "clock_untrusted", wild_clock(E.OBSERVE, A.PREPARED, evidence=EARLY_TIMER)),
    (
        E.OBSERVE,
        "permit_may_live",
        late(E.OBSERVE, A.PREPARED, PERMIT_MS + BOUND_MS - 1, V, evidence=EARLY_TIMER),
    ),
    (E.NOT_EXECUTED, "reconciler_is_executor", by_drain("drain", "look", actor=RECONCILING_EXE)),
    (E.NOT_EXECUTED, "reconciler_is_executor", by_drain("drain", "look", people=frozenset({"exe"}))),
    (E.NOT_EXECUTED, "not_asked", about(E.NOT_EXECUTED, A.UNRESOLVED, F)),
    (E.NOT_EXECUTED, "not_asked", about(E.NOT_EXECUTED, A.UNRESOLVED, F_MINUS)),
    (E.NOT_EXECUTED, "no_fence", by_drain("drain", "look", fence=lambda kit, view: kit.fence(view))),
    (E.NOT_EXECUTED, "fence_of_other_key", fenced(E.NOT_EXECUTED, action_key="refund:18")),
    (E.NOT_EXECUTED, "fence_of_other_receiver", fenced(E.NOT_EXECUTED, receiver="https://eve.example")),
    (E.NOT_EXECUTED, "fence_of_other_epoch", fenced(E.NOT_EXECUTED, epoch=1)),
    (E.NOT_EXECUTED, "receiver_executed", fenced(E.NOT_EXECUTED, F, Found.EXECUTED)),
    (E.NOT_EXECUTED, "outcome_unknown", fenced(E.NOT_EXECUTED, F, Found.UNKNOWN)),
    (E.NOT_EXECUTED, "evidence_used", used(E.NOT_EXECUTED, F)),
    (E.NOT_EXECUTED, "mark_below", fenced(E.NOT_EXECUTED, mark=0)),
    (E.NOT_EXECUTED, "no_drain", by_drain()),
    (E.NOT_EXECUTED, "no_drain", fenced(E.NOT_EXECUTED, F_MINUS, Found.UNKNOWN)),
    (E.NOT_EXECUTED, "no_observation", by_drain("drain")),
    (E.NOT_EXECUTED, "no_observation", by_drain("drain", "unknown")),
    *((event, "seen_executed", executed(event, state, target)) for event, state, target in SEEN_WHERE),
    (E.NOT_EXECUTED, "observation_before_drain", by_drain("look", "drain")),
    (E.NOT_EXECUTED, "executors_word", by_drain("drain", "executor looks")),
    (E.WRITE_OFF, "reconciler_is_executor", about(E.WRITE_OFF, A.UNRESOLVED, people=frozenset({"exe", "dan"}))),
    (E.WRITE_OFF, "few_people", about(E.WRITE_OFF, A.UNRESOLVED, people=frozenset({"cat"}))),
    (E.WRITE_OFF, "observable", looked_at),
    (E.WRITE_OFF, "observable", about(E.WRITE_OFF, A.UNRESOLVED, nobody_can_observe=False)),
    (E.CLOSE_UNPREPARED, "reconciler_is_executor", about(E.CLOSE_UNPREPARED, A.CLAIMED, F, actor=RECONCILING_EXE)),
    (E.CLOSE_UNPREPARED, "prepared_before", about(E.CLOSE_UNPREPARED, A.UNRESOLVED, F)),
    (E.CLOSE_UNPREPARED, "needs_fence_or_drain", about(E.CLOSE_UNPREPARED, A.CLAIMED)),
    (E.CLOSE_UNPREPARED, "needs_fence_or_drain", about(E.CLOSE_UNPREPARED, A.CLAIMED, F)),
    (E.CLOSE_UNPREPARED, "no_fence", fenced(E.CLOSE_UNPREPARED, V)),
    (E.CLOSE_UNPREPARED, "fence_of_other_key", fenced(E.CLOSE_UNPREPARED, action_key="refund:18")),
    (E.CLOSE_UNPREPARED, "fence_of_other_receiver", fenced(E.CLOSE_UNPREPARED, receiver="https://eve.example")),
    (E.CLOSE_UNPREPARED, "fence_of_other_epoch", fenced(E.CLOSE_UNPREPARED, epoch=1)),
    (E.CLOSE_UNPREPARED, "receiver_executed", fenced(E.CLOSE_UNPREPARED, F, Found.EXECUTED)),
    (E.CLOSE_UNPREPARED, "outcome_unknown", fenced(E.CLOSE_UNPREPARED, F_MINUS, Found.UNKNOWN)),
    (E.CLOSE_UNPREPARED, "evidence_used", used(E.CLOSE_UNPREPARED, F, A.CLAIMED)),
    (E.CLOSE_UNPREPARED, "mark_below", fenced(E.CLOSE_UNPREPARED, mark=0)),
]  # fmt: skip
