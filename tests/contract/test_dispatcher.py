"""The way of an action to its target: what is checked before, what is sent, and what each ending leaves on record."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from hashlib import sha256
from typing import Any, cast

import pytest

from agent_run_ledger import Misuse, Pending, Refused, Tampered, Unavailable, Uncertain
from agent_run_ledger.effects import ActionState, ActionView, Found, Receipt, Sample, TargetClass
from agent_run_ledger.effects.dispatching import Actions, Dispatched, Dispatcher, Unrecorded, lives
from agent_run_ledger.entropy import SystemEntropy
from agent_run_ledger.kernel.effects.display import display_sha256
from agent_run_ledger.kernel.effects.evidence import Observation
from agent_run_ledger.kernel.effects.idempotency import idempotency_key
from agent_run_ledger.kernel.effects.permit import Permit
from agent_run_ledger.kernel.effects.report import Answered, Lost, NotSent, Report, report_bytes
from agent_run_ledger.kernel.effects.request import Call, Request, request_bytes
from agent_run_ledger.ports.targets import Sending
from agent_run_ledger.targets import Opaque, http
from tests.contract.effect_kit import CAT, EXE, PAY, A, E, FakeWitness, Kit, effects
from tests.contract.engine_kit import each_engine
from tests.contract.target_servers import answer, serving

pytestmark = each_engine

REFUND = Request.json("POST", "/refunds", {"cents": 3000, "order": "17"})
DONE = Answered(found=Found.EXECUTED, status=201, body_sha256=sha256(b"done").digest(), body=b"done")
CONFLICT = Answered(found=Found.UNKNOWN, status=409, body_sha256=sha256(b"").digest())
LOST, NOT_SENT = Lost(reason="timeout"), NotSent(reason="refused")
ENDINGS: dict[str, Report] = {"refused": CONFLICT, "lost": LOST, "not sent": NOT_SENT}


class FakeTarget:
    """Counts what it is sent, and says what a test wants."""

    def __init__(self, says: Report | BaseException | Callable[[Sending], Report] = DONE, **settings: Any) -> None:
        self.says = says
        self.audience: str = settings.get("audience", PAY)
        self.target_class: TargetClass = settings.get("target_class", TargetClass.N)
        self.sent: list[Sending] = []

    def check(self, request: Request | Call) -> None:
        if not isinstance(request, Request):
            raise Misuse("no request", code="other_request")

    def send(self, sending: Sending) -> Report:
        self.sent.append(sending)
        if isinstance(self.says, BaseException):
            raise self.says
        return self.says(sending) if callable(self.says) else self.says


class Between:
    """A ledger whose methods a test can put something before or in the place of."""

    def __init__(self, kit: Kit, **instead: Callable[..., Any]) -> None:
        self._kit, self._instead, self.asked = kit, instead, list[str]()

    def __getattr__(self, name: str) -> Any:
        self.asked.append(name)
        return self._instead.get(name, getattr(self._kit.ledger, name))


def approved(
    kit: Kit, request: Request | Call = REFUND, target: TargetClass = TargetClass.N, **changes: Any
) -> ActionView:
    stored = request_bytes(request)
    view = kit.propose(target, request=stored, **{"display_sha256": display_sha256(stored), **changes})
    return kit.move(E.APPROVE, view)


def dispatcher(kit: Kit, target: Any, *, ledger: Any = None, worker: str = "w1") -> Dispatcher:
    if ledger is None:
        return kit.ledger.dispatcher(target, EXE, worker=worker)
    through = cast("Actions", ledger)
    return Dispatcher(through, target, actor=EXE, worker=worker, time=kit.ticks, entropy=SystemEntropy())


@contextmanager
def ready(says: Any = DONE, target: TargetClass = TargetClass.N) -> Iterator[tuple[Kit, ActionView, FakeTarget]]:
    with effects() as kit:
        yield kit, approved(kit, target=target), FakeTarget(says, target_class=target)


def recorded(kit: Kit, view: ActionView) -> Observation | None:
    stored = kit.ledger._store.reader().effects.action(view.action_id)
    assert stored is not None
    return stored.action.observation


# -- what is sent ---------------------------------------------------------------------------------------------------


def test_an_approved_action_is_sent_once_and_succeeds() -> None:
    with ready() as (kit, view, target):
        done = dispatcher(kit, target).dispatch(view.action_id)
        assert (done.view.state, done.report) == (A.SUCCEEDED, DONE)
        (sending,) = target.sent
        assert sending.request == REFUND
        assert sending.permit.req == view.request_sha256.hex()
        ledger_id = kit.ledger.status().ledger_id
        assert sending.idempotency_key == idempotency_key(ledger_id, "refund:17", 1)
        assert done.evidence_id is not None
        assert done.evidence_id[16:] == sha256(report_bytes(DONE)).digest()
        assert done.view.evidence == (done.evidence_id,)


def test_over_a_real_server_it_is_one_request_of_four_commits() -> None:
    with effects() as kit, serving(answer(201, b"done")) as server:
        target = http(server.url, "Idempotency-Key", headers={"Authorization": "Bearer s3cret"})
        view = approved(kit, target=TargetClass.I, audience=target.audience)
        before = kit.ledger._store.reader().head().size
        done = dispatcher(kit, target).dispatch(view.action_id)
        assert kit.ledger._store.reader().head().size == before + 4
        assert (done.view.state, done.report) == (A.SUCCEEDED, DONE)
        assert len(server.requests) == 1
        assert server.requests[0].endswith(b"\r\n\r\n" + REFUND.body)
        held = [one.payload for one in kit.ledger._store.reader().effects.transitions(view.action_id)]
        assert held
        assert not any(b"s3cret" in payload for payload in [*held, kit.ledger.request(view.action_id)])


@pytest.mark.parametrize("how", ENDINGS)
@pytest.mark.parametrize("target_class", [TargetClass.N, TargetClass.I, TargetClass.F])
def test_any_other_ending_is_a_doubt_and_never_not_executed(how: str, target_class: TargetClass) -> None:
    with ready(ENDINGS[how], target_class) as (kit, view, target):
        done = dispatcher(kit, target).dispatch(view.action_id)
        assert (done.view.state, done.report, len(target.sent)) == (A.UNRESOLVED, ENDINGS[how], 1)
        seen = recorded(kit, view)
        assert (seen is not None, done.evidence_id is not None) == (how == "refused", how == "refused")
        if seen is not None:
            assert (seen.found, seen.observer, seen.generation, seen.after) == (Found.UNKNOWN, "exe", 1, None)


@pytest.mark.parametrize("how", ENDINGS)
def test_nothing_of_it_lets_a_reconciler_say_that_it_was_not_executed(how: str) -> None:
    with ready(ENDINGS[how]) as (kit, view, target):
        dispatcher(kit, target).dispatch(view.action_id)
        assert kit.refused(lambda: kit.ledger.reconcile_not_executed(CAT, view.action_id)).code == "no_drain"
        kit.do(E.OBSERVE, view, evidence=kit.drain(view))
        refusal = kit.refused(lambda: kit.ledger.reconcile_not_executed(CAT, view.action_id))
        assert refusal.code in ("no_observation", "observation_before_drain")


def test_a_receipt_of_the_receiver_is_the_outcome() -> None:
    receipt: list[Receipt] = []
    with ready(lambda _: receipt[0], TargetClass.F) as (kit, view, target):
        receipt.append(kit.receipt(view))
        done = dispatcher(kit, target).dispatch(view.action_id)
        assert (done.view.state, done.evidence_id) == (A.SUCCEEDED, receipt[0].evidence_id)


@pytest.mark.parametrize("state", [state for state in A if state is not A.AVAILABLE])
def test_nothing_is_sent_for_an_action_in_another_state(state: ActionState) -> None:
    with effects() as kit:
        kit.intent = lambda *a, **k: Kit.intent(kit, *a, **{"request": request_bytes(REFUND), **k})  # type: ignore[method-assign]
        view, target = kit.reach(state), FakeTarget()
        refusal = kit.refused(lambda: dispatcher(kit, target, worker="w2").dispatch(view.action_id))
        assert isinstance(refusal, Refused | Pending)
        assert target.sent == []


# -- before the claim -----------------------------------------------------------------------------------------------


def test_a_target_that_was_not_approved_is_sent_nothing_and_claims_nothing() -> None:
    with ready() as (kit, view, _):
        others = {
            "other_target": FakeTarget(audience="https://pay.example.evil"),
            "other_class": FakeTarget(target_class=TargetClass.I),
        }
        for code, target in others.items():
            assert kit.refused(lambda target=target: dispatcher(kit, target).dispatch(view.action_id)).code == code
            assert target.sent == []
        assert kit.look(view).state is A.AVAILABLE


@pytest.mark.parametrize("target_class", [TargetClass.I, TargetClass.F_MINUS, TargetClass.F])
def test_a_plain_way_takes_no_action_whose_class_promises_more(target_class: TargetClass) -> None:
    with effects() as kit:
        view, target = approved(kit, target=target_class), FakeTarget()
        assert kit.refused(lambda: dispatcher(kit, target).dispatch(view.action_id)).code == "other_class"


def test_bytes_that_are_no_request_of_this_target_claim_nothing() -> None:
    with effects() as kit:
        view, target = kit.move(E.APPROVE, kit.propose()), FakeTarget()
        assert kit.refused(lambda: dispatcher(kit, target).dispatch(view.action_id)).code == "not_a_request"
    with effects() as kit:
        view = approved(kit, Call.of("f", {}))
        assert kit.refused(lambda: dispatcher(kit, target).dispatch(view.action_id)).code == "other_request"
    assert target.sent == []


# -- permits --------------------------------------------------------------------------------------------------------


def test_a_second_dispatch_by_any_worker_sends_nothing() -> None:
    with ready(Lost(reason="timeout")) as (kit, view, target):
        dispatcher(kit, target).dispatch(view.action_id)
        for worker in ("w1", "w2"):
            kit.refused(lambda worker=worker: dispatcher(kit, target, worker=worker).dispatch(view.action_id))
        assert len(target.sent) == 1


def test_while_one_call_sends_another_of_the_same_worker_sends_nothing() -> None:
    codes: list[str] = []

    def meanwhile(_: Sending) -> Report:
        with pytest.raises(Refused) as refusal:
            dispatcher(kit, target).dispatch(view.action_id)
        codes.append(refusal.value.code)
        return DONE

    with ready(meanwhile) as (kit, view, target):
        assert dispatcher(kit, target).dispatch(view.action_id).view.state is A.SUCCEEDED
        assert (codes, len(target.sent)) == (["handed_out"], 1)


def test_a_receiver_that_remembers_keys_may_be_sent_the_same_key_again() -> None:
    again: list[Dispatched] = []

    def meanwhile(_: Sending) -> Report:
        if len(target.sent) == 1:
            again.append(dispatcher(kit, target).dispatch(view.action_id))
        return DONE

    with ready(meanwhile, TargetClass.I) as (kit, view, target):
        with pytest.raises(Unrecorded) as error:
            dispatcher(kit, target).dispatch(view.action_id)
        assert error.value.report == DONE
        assert (again[0].view.state, kit.look(view).state) == (A.SUCCEEDED, A.SUCCEEDED)
        assert len({sending.idempotency_key for sending in target.sent}) == 1


def test_a_permit_that_was_handed_out_before_is_not_used_whatever_the_ledger_says() -> None:
    with ready() as (kit, view, target):
        ledger = Between(kit, hand_out=lambda *a, **k: replace(kit.ledger.hand_out(*a, **k), handed_now=False))
        with pytest.raises(Refused) as refusal:
            dispatcher(kit, target, ledger=ledger).dispatch(view.action_id)
        assert (refusal.value.code, target.sent, kit.look(view).state) == ("handed_out", [], A.PREPARED)


@pytest.mark.parametrize("late", ["after the hand-out", "in the target"])
def test_nothing_is_sent_after_the_permit_is_over(late: str) -> None:
    def hand_out(*args: Any, **named: Any) -> Any:
        handed = kit.ledger.hand_out(*args, **named)
        if late == "after the hand-out":
            kit.ticks.tick(60_000)
        return handed

    def send(sending: Sending) -> Report:
        assert sending.in_time()
        kit.ticks.tick(59_999)
        assert sending.in_time()
        kit.ticks.tick(1)
        return Lost(reason="timeout") if sending.in_time() else NotSent(reason="permit_expired")

    with ready(send) as (kit, view, target):
        done = dispatcher(kit, target, ledger=Between(kit, hand_out=hand_out)).dispatch(view.action_id)
        assert (done.view.state, done.report) == (A.UNRESOLVED, NotSent(reason="permit_expired"))
        assert len(target.sent) == (late == "in the target")


PERMIT = Permit(iss="", aud="", sub="", jti="", act="", gen=1, ep=0, req="", pre=(), nbf=0, exp=1_100)


@pytest.mark.parametrize(
    ("wall_ms", "uptime_ms", "alive"),
    [
        (1_000, 500, True),
        (1_099, 599, True),
        (1_100, 500, False),
        (1_000, 600, False),
        (900, 599, True),
        (900, 600, False),
    ],
)
def test_a_clock_that_is_set_back_gives_no_longer_life(wall_ms: int, uptime_ms: int, alive: bool) -> None:
    asked = Sample(wall_ms=1_000, uptime_ms=500, boot="b")
    assert lives(PERMIT, asked, Sample(wall_ms=wall_ms, uptime_ms=uptime_ms, boot="b")) is alive


@pytest.mark.parametrize("which", ["bytes", "permit", "both"])
def test_bytes_that_are_not_the_approved_ones_are_not_sent(which: str) -> None:
    other = request_bytes(Request.json("POST", "/refunds", {"cents": 9_000_000, "order": "17"}))

    def hand_out(*args: Any, **named: Any) -> Any:
        handed = kit.ledger.hand_out(*args, **named)
        permit = handed.permit if which == "bytes" else replace(handed.permit, req=sha256(other).hexdigest())
        return replace(handed, request=handed.request if which == "permit" else other, permit=permit)

    with ready() as (kit, view, target):
        with pytest.raises(Tampered):
            dispatcher(kit, target, ledger=Between(kit, hand_out=hand_out)).dispatch(view.action_id)
        assert (target.sent, kit.look(view).state) == ([], A.UNRESOLVED)


def test_what_is_sent_is_made_from_the_bytes_that_were_handed_out() -> None:
    other = request_bytes(Request.json("POST", "/refunds", {"cents": 9_000_000, "order": "17"}))
    with ready() as (kit, view, target):
        ledger = Between(kit, request=lambda _: other)
        dispatcher(kit, target, ledger=ledger).dispatch(view.action_id)
        assert [sending.request for sending in target.sent] == [REFUND]


def test_while_the_witness_is_silent_nothing_is_sent_and_the_same_call_goes_on_later() -> None:
    witness = FakeWitness()
    with effects(witness=witness) as kit:
        view, target = approved(kit), FakeTarget()

        def prepare(*args: Any, **named: Any) -> Any:
            prepared = kit.ledger.prepare(*args, **named)
            witness.silent()
            return prepared

        with pytest.raises((Pending, Unavailable)):
            dispatcher(kit, target, ledger=Between(kit, prepare=prepare)).dispatch(view.action_id)
        assert (target.sent, kit.look(view).state) == ([], A.PREPARED)
        witness.says.clear()
        assert dispatcher(kit, target).dispatch(view.action_id).view.state is A.SUCCEEDED
        assert len(target.sent) == 1


# -- what breaks ----------------------------------------------------------------------------------------------------


def test_an_error_of_the_target_is_a_doubt_without_its_text() -> None:
    with ready(RuntimeError("s3cret")) as (kit, view, target):
        done = dispatcher(kit, target).dispatch(view.action_id)
        assert (done.view.state, done.report) == (A.UNRESOLVED, Lost(reason="target_failed", raised="RuntimeError"))
        assert "s3cret" not in repr(done)


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(), GeneratorExit()])
def test_an_interrupt_passes_and_leaves_the_doubt(error: BaseException) -> None:
    with ready(error) as (kit, view, target):
        with pytest.raises(type(error)):
            dispatcher(kit, target).dispatch(view.action_id)
        assert kit.look(view).state is A.UNRESOLVED


@pytest.mark.parametrize("says", [DONE, CONFLICT, Lost(reason="timeout"), NotSent(reason="refused")])
def test_what_cannot_be_recorded_after_the_hand_out_is_uncertain_and_never_safe_to_do_again(says: Report) -> None:
    def busy(*_: Any, **__: Any) -> Any:
        raise Unavailable("busy", code="busy")

    with ready(says) as (kit, view, target):
        ledger = Between(kit, outcome=busy, doubt=busy)
        with pytest.raises(Unrecorded) as error:
            dispatcher(kit, target, ledger=ledger).dispatch(view.action_id)
        assert error.value.report == says
        assert (kit.look(view).state, len(target.sent)) == (A.PREPARED, 1)
        travelled = pickle.loads(pickle.dumps(error.value))
        assert (travelled.report, travelled.code, isinstance(travelled, Uncertain)) == (says, "not_recorded", True)


def test_a_success_that_the_ledger_refuses_leaves_the_doubt() -> None:
    receipt: list[Receipt] = []
    with ready(lambda _: receipt[0], TargetClass.F) as (kit, view, target):
        receipt.append(kit.receipt(view, receiver="https://evil.example"))
        with pytest.raises(Unrecorded):
            dispatcher(kit, target).dispatch(view.action_id)
        assert kit.look(view).state is A.UNRESOLVED


def test_an_answer_that_cannot_be_recorded_beside_the_doubt_is_told() -> None:
    def busy(*_: Any, **__: Any) -> Any:
        raise Unavailable("busy", code="busy")

    with ready(CONFLICT) as (kit, view, target):
        done = dispatcher(kit, target, ledger=Between(kit, observe=busy)).dispatch(view.action_id)
        assert (done.view.state, done.report, done.evidence_id) == (A.UNRESOLVED, CONFLICT, None)


@pytest.mark.parametrize("method", ["claim", "prepare", "hand_out"])
def test_an_error_of_the_ledger_before_the_hand_out_sends_nothing(method: str) -> None:
    def lost(*args: Any, **named: Any) -> Any:
        getattr(kit.ledger, method)(*args, **named)
        raise Unavailable("the reply was lost", code="busy")

    with ready() as (kit, view, target):
        with pytest.raises(Unavailable):
            dispatcher(kit, target, ledger=Between(kit, **{method: lost})).dispatch(view.action_id)
        assert target.sent == []
        if method == "hand_out":
            assert kit.refused(lambda: dispatcher(kit, target).dispatch(view.action_id)).code == "handed_out"
        else:
            assert dispatcher(kit, target).dispatch(view.action_id).view.state is A.SUCCEEDED
        assert len(target.sent) == (method != "hand_out")


def test_of_threads_with_workers_of_their_own_one_sends() -> None:
    with ready() as (kit, view, target):
        ended: list[object] = []

        def go(worker: str) -> None:
            try:
                ended.append(dispatcher(kit, target, worker=worker).dispatch(view.action_id))
            except Refused as refusal:
                ended.append(refusal.code)

        threads = [threading.Thread(target=go, args=(f"w{number}",)) for number in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert [one.view.state for one in ended if isinstance(one, Dispatched)] == [A.SUCCEEDED]
        assert (len(ended), len(target.sent)) == (6, 1)


# -- functions ------------------------------------------------------------------------------------------------------

CALL = Call.of("shop.refund", {"cents": 3000, "order": "17"})


def _called(function: Callable[..., Any]) -> tuple[Dispatched, list[dict[str, Any]]]:
    called: list[dict[str, Any]] = []

    def count(**arguments: Any) -> Any:
        called.append(arguments)
        return function(**arguments)

    with effects() as kit:
        target = Opaque().calling("shop.refund", count)
        view = approved(kit, CALL, audience="function:shop.refund")
        return dispatcher(kit, target).dispatch(view.action_id), called


def test_a_function_is_called_once_with_the_approved_arguments() -> None:
    done, called = _called(lambda **given: {"refunded": given["cents"]})
    assert called == [{"cents": 3000, "order": "17"}]
    body = b'{"refunded":3000}'
    assert done.report == Answered(found=Found.EXECUTED, status=None, body_sha256=sha256(body).digest(), body=body)
    assert done.view.state is A.SUCCEEDED


def test_what_a_function_returns_may_have_no_form() -> None:
    done, _ = _called(lambda **_: object())
    assert (done.view.state, cast("Answered", done.report).body) == (A.SUCCEEDED, b"")


def test_a_function_that_raises_may_have_done_it() -> None:
    def fail(**_: object) -> None:
        raise ValueError("s3cret")

    done, called = _called(fail)
    assert (done.view.state, done.report) == (A.UNRESOLVED, Lost(reason="raised", raised="ValueError"))
    assert (len(called), "s3cret" in repr(done)) == (1, False)


async def _later(**_: object) -> None:
    """Do nothing yet."""


def _generator(**_: object) -> Iterator[int]:
    yield 1


async def _stream(**_: object) -> Any:
    yield 1


@pytest.mark.parametrize("function", [_generator, _stream])
def test_a_function_that_has_not_begun_has_done_nothing_that_is_known(function: Callable[..., Any]) -> None:
    done, _ = _called(function)
    assert (done.view.state, done.report) == (A.UNRESOLVED, Lost(reason="unfinished"))


def test_what_returns_before_it_is_done_is_no_function_to_call() -> None:
    made = _later()
    done, _ = _called(lambda **_: made)
    made.close()
    assert done.report == Lost(reason="unfinished")
    for function in (_later, _stream):
        with pytest.raises(Misuse) as refusal:
            Opaque().calling("f", function)
        assert refusal.value.code == "async_function"


def test_a_function_is_not_called_for_another_name_or_too_late() -> None:
    called: list[object] = []
    target = Opaque().calling("shop.refund", lambda **_: called.append(1))
    permit = replace(PERMIT, exp=1)
    late = Sending(request=CALL, permit=permit, idempotency_key="", in_time=lambda: False)
    assert target.send(late) == NotSent(reason="permit_expired")
    for one in (Opaque(), target):
        for request in (Call.of("shop.other", {}), REFUND):
            with pytest.raises(Misuse):
                one.check(request)
            with pytest.raises(Misuse):
                one.send(replace(late, request=request, in_time=lambda: True))
    assert called == []
