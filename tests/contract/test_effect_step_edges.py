"""Effects where runs are limited, forked, nested, cancelled or late: each is sent once, and waiting costs nothing."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from typing import Any

import pytest

from agent_run_ledger import (
    ApprovalPending,
    Budget,
    BudgetExceeded,
    EffectInDoubt,
    EffectLedger,
    Found,
    LedgerError,
    LoopDetected,
    Pending,
    Request,
    RunLedger,
    StepTimeout,
    Unavailable,
)
from agent_run_ledger.effects import ActionState
from agent_run_ledger.targets import http
from tests.contract.effect_run_kit import Desk, desk, eventually, holding
from tests.contract.engine_kit import each_engine, only_a_file
from tests.contract.target_servers import says

pytestmark = each_engine

A = ActionState
ORDERS = range(1, 9)


def asked(at: Desk, *orders: int) -> None:
    """Let a run ask for these, each by a call of its own."""
    for order in orders:
        assert at.program(f"asks {order}").outcome(order, 3_000) == "approval_pending"
        at.grant(f"refund:{order}")


# -- side by side ---------------------------------------------------------------------------------------------------


def test_distinct_effects_in_parallel_are_each_sent_once() -> None:
    with desk() as at:
        asked(at, *ORDERS)
        program = at.program("all")
        with program.ledger, program.ledger.run() as run:
            results = run.map(lambda order: program.refund(order, 3_000), ORDERS)
        assert [one.action_key for one in results] == [f"refund:{order}" for order in ORDERS]
        assert [one.status for one in results] == [201] * len(ORDERS)
        assert at.sent == len(ORDERS)


def test_of_effects_in_parallel_those_that_wait_hold_up_no_other() -> None:
    with desk() as at:
        asked(at, 1, 3)

        def run_all() -> None:
            program = at.program("all")
            with program.ledger, program.ledger.run() as run:
                run.map(lambda order: program.refund(order, 3_000), [1, 2, 3])

        for _ in range(2):
            with pytest.raises(ApprovalPending):
                run_all()
            assert (at.sent, at.program("all").state()) == (2, "suspended")
        at.grant("refund:2")
        run_all()
        assert (at.sent, at.program("all").state()) == (3, "completed")


# -- forks and children ---------------------------------------------------------------------------------------------


def test_a_child_that_waits_suspends_its_parent_and_both_go_on() -> None:
    with desk() as at:

        def run() -> Any:
            program = at.program("parent")
            with program.ledger, program.ledger.run():
                program.think("in the parent")
                with program.ledger.run():
                    program.think("in the child")
                    return program.refund(17, 3_000)

        for _ in range(2):
            with pytest.raises(ApprovalPending):
                run()
        at.grant()
        result = run()
        assert run() == result
        assert (at.sent, at.said) == (1, ["in the parent", "in the child"])


def test_a_fork_from_before_a_doubt_is_in_the_same_doubt() -> None:
    with desk(says(b"")) as at:
        at.program().outcome()
        at.grant()
        assert at.program().outcome() == "effect_in_doubt"
        program = at.program()
        with program.ledger:
            program.ledger.fork("ticket-17", from_step="refund", new_run_id="forked")
        assert at.program("forked").outcome() == "effect_in_doubt"
        seen = at.program("forked", observe=lambda _: Found.EXECUTED)
        assert seen.run() == at.program(observe=lambda _: Found.EXECUTED).run()
        assert (at.sent, at.said) == (1, ["before", "after", "after"])


# -- late and cancelled ---------------------------------------------------------------------------------------------


def test_a_call_whose_time_is_over_leaves_an_effect_that_the_next_call_finds() -> None:
    gate = threading.Event()
    with desk(holding(gate)) as at:
        at.program().outcome()
        at.grant()
        program = at.program(timeout_s=0.5)
        with program.ledger, program.ledger.run():
            program.think("before")
            with pytest.raises(StepTimeout):
                program.refund(17, 3_000)
            assert at.sent == 1
            gate.set()
            eventually(lambda: at.last().state is A.SUCCEEDED)
            result = program.refund(17, 3_000)
        assert (at.sent, result.status, program.state()) == (1, 201, "completed")


def test_a_call_whose_time_is_over_is_found_after_a_restart() -> None:
    gate = threading.Event()
    with desk(holding(gate)) as at:
        at.program().outcome()
        at.grant()
        ended: list[str] = []
        late = threading.Thread(target=lambda: ended.append(at.program(timeout_s=0.5).outcome()))
        late.start()
        eventually(lambda: at.sent == 1)
        eventually(lambda: at.program().state() == "failed")
        gate.set()
        late.join(60)
        result = at.program(observe=lambda _: Found.EXECUTED).run()
        assert (ended, at.sent, result.generation) == (["step_timeout"], 1, 1)
        assert result.status == 201, "what the target said was put on record before the ledger was closed"


@pytest.mark.parametrize("cancelled", ["task", "timeout"])
def test_an_awaited_effect_that_is_cancelled_goes_on_to_its_record(cancelled: str) -> None:
    gate = threading.Event()
    with desk(holding(gate)) as at:

        def made() -> tuple[RunLedger, Any]:
            ledger = RunLedger("async", at.path, effects=at.settings)

            @ledger.effect(key="refund:{order}", target=http(at.server.url), approval="finance")
            async def refund(order: int) -> Request:
                return Request.json("POST", "/refunds", {"order": order})

            return ledger, refund

        async def cut_short() -> None:
            ledger, refund = made()
            async with ledger.run():
                task = asyncio.ensure_future(refund(17))
                while not at.sent:
                    assert not task.done(), task.exception()
                    await asyncio.sleep(0.01)
                threading.Timer(0.3, gate.set).start()
                if cancelled == "timeout":
                    async with asyncio.timeout(0.05):
                        await task
                else:
                    task.cancel()
                    await task

        async def again() -> Any:
            ledger, refund = made()
            async with ledger.run():
                result = await refund(17)
            ledger.close()
            return result

        with pytest.raises(ApprovalPending):
            asyncio.run(again())
        at.grant()
        with pytest.raises(TimeoutError if cancelled == "timeout" else asyncio.CancelledError):
            asyncio.run(cut_short())
        assert at.last().state is A.SUCCEEDED
        result = asyncio.run(again())
        assert (at.sent, result.status, result.generation) == (1, 201, 1)


# -- budgets and the breaker ----------------------------------------------------------------------------------------


def test_waiting_for_an_approval_uses_up_no_budget_of_calls() -> None:
    with desk() as at:

        def run(**settings: Any) -> Any:
            program = at.program(**settings)
            with program.ledger, program.ledger.bind("ticket-17", budget=Budget(max_calls=4)).run():
                program.think("before")
                result = program.refund(17, 3_000)
                program.think("after")
                return result

        for _ in range(8):
            with pytest.raises(ApprovalPending):
                run()
        at.grant()
        assert run().status == 201
        assert (at.sent, at.program().state()) == (1, "completed")


def test_a_budget_that_is_used_up_stops_an_effect_before_it_is_asked_for() -> None:
    with desk() as at:

        def run() -> None:
            program = at.program()
            with program.ledger, program.ledger.bind("ticket-17", budget=Budget(max_calls=1)).run():
                program.think("before")
                program.refund(17, 3_000)

        with pytest.raises(BudgetExceeded):
            run()
        with at.people() as effects:
            assert effects.inspect("refund:17") == []


def test_waiting_for_an_approval_is_no_loop() -> None:
    with desk() as at:
        for _ in range(12):
            assert at.program().outcome() == "approval_pending"

        def run() -> None:
            program = at.program()
            with program.ledger, program.ledger.run():
                program.think("before")
                for _ in range(12):
                    with suppress(ApprovalPending):
                        program.refund(17, 3_000)
                program.refund(17, 3_000)

        with pytest.raises(ApprovalPending):
            run()
        assert at.program().state() == "suspended"
        at.grant()
        assert at.program().outcome() == "done"
        assert (at.sent, at.program().state()) == (1, "completed")


def test_asking_for_the_same_effect_again_and_again_is_a_loop() -> None:
    with desk() as at:
        at.program().outcome()
        at.grant()
        got: list[Any] = []

        def run() -> None:
            program = at.program("loops")
            with program.ledger, program.ledger.run():
                for _ in range(30):
                    got.append(program.refund(17, 3_000))

        with pytest.raises(LoopDetected):
            run()
        assert len({one.action_id for one in got}) == 1
        assert (at.sent, at.program("loops").state()) == (1, "quarantined")


@only_a_file
def test_the_quarantine_of_a_run_that_loops_with_an_effect_is_synced(monkeypatch: pytest.MonkeyPatch) -> None:
    from agent_run_ledger.store.sqlite_writer import SqliteWriter

    synced: list[bool] = []
    real = SqliteWriter._set_sync

    def noted(writer: Any, cursor: Any, sync: bool) -> None:
        synced.append(sync)
        real(writer, cursor, sync)

    with desk() as at:
        asked(at, 17)
        at.program("first").run()

        def run() -> None:
            program = at.program("loops")
            with program.ledger, program.ledger.run():
                monkeypatch.setattr(SqliteWriter, "_set_sync", noted)
                try:
                    for _ in range(30):
                        program.refund(17, 3_000)
                finally:
                    monkeypatch.setattr(SqliteWriter, "_set_sync", real)

        with pytest.raises(LoopDetected):
            run()
        assert synced == [False] * (len(synced) - 1) + [True]


# -- what is begun on the way out -----------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["except", "finally"])
def test_a_run_that_says_on_its_way_out_that_it_waits_goes_on_once_it_is_granted(how: str) -> None:
    with desk() as at:

        def run() -> Any:
            program = at.program()
            with program.ledger, program.ledger.run():
                program.think("before")
                try:
                    return program.refund(17, 3_000)
                except ApprovalPending:
                    if how == "except":
                        program.think("how to say that it waits")
                    raise
                finally:
                    if how == "finally":
                        program.think("cleaning up")

        for _ in range(3):
            with pytest.raises(ApprovalPending):
                run()
        assert (at.sent, len(at.said)) == (0, 2)
        at.grant()
        result = run()
        assert (result.status, at.sent, at.program().state()) == (201, 1, "completed")
        assert run() == result
        assert len(at.said) == 2


def test_of_two_that_are_waited_for_in_turn_each_is_asked_anew_once_it_is_granted() -> None:
    with desk() as at:

        def run() -> str:
            program = at.program()
            try:
                with program.ledger, program.ledger.run() as run:
                    try:
                        run.map(lambda order: program.refund(order, 3_000), [1, 2])
                    except ApprovalPending:
                        program.think("how to say that it waits")
                        raise
            except ApprovalPending as error:
                return error.action_key
            return "done"

        assert run() == "refund:1"
        at.grant("refund:1")
        assert [run(), run()] == ["refund:2"] * 2
        at.grant("refund:2")
        assert run() == "done"
        assert at.sent == 2


def test_a_function_that_closes_its_own_ledger_is_not_waited_for_by_itself() -> None:
    with desk() as at:
        from agent_run_ledger import Opaque

        def run() -> None:
            ledger = RunLedger("closes", at.path, effects=at.settings)

            @ledger.effect(key="closes", target=Opaque(), approval="finance")
            def close() -> None:
                ledger.close()

            with ledger, ledger.run():
                close()

        with pytest.raises(ApprovalPending):
            run()
        at.grant("closes")
        with pytest.raises(Exception, match="closed"):
            run()
        assert at.last("closes").state in (A.PREPARED, A.UNRESOLVED)


def test_a_tool_that_says_that_it_waits_has_run_and_counts() -> None:
    with desk() as at:

        def run() -> None:
            ledger = RunLedger("tool", at.path)

            @ledger.tool
            def ask() -> str:
                raise Pending("somebody has to say yes")

            with ledger, ledger.bind("tool", budget=Budget(max_calls=2)).run():
                ask()

        for _ in range(2):
            with pytest.raises(Pending):
                run()
        with pytest.raises(BudgetExceeded):
            run()


def test_a_permit_that_is_out_is_not_used_again_though_the_receiver_would_know_its_key(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Neither by a second call of the worker that has it, nor by a thread that had decided to dispatch before."""
    with desk() as at:
        keyed: dict[str, Any] = {"target": http(at.server.url, "idempotency-key")}
        at.program(**keyed).outcome()
        at.grant()
        program = at.program(**keyed)

        def unavailable(*_: Any, **__: Any) -> Any:
            raise Unavailable("the disk is full")

        with program.ledger, program.ledger.run():
            program.think("before")
            with monkeypatch.context() as broken:
                for name in ("outcome", "doubt"):
                    broken.setattr(EffectLedger, name, unavailable)
                with pytest.raises(LedgerError):
                    program.refund(17, 3_000)
            view = at.last()
            assert (view.state, view.handed_out, at.sent) == (A.PREPARED, True, 1)
            assert view.worker is not None
            request = Request.json("POST", "/refunds", {"order": 17, "cents": 3_000})
            wanted = program.refund.wanted((17, 3_000), {}, request)
            effects = program.ledger._opened.effects()
            assert effects.dispatch(view.action_id, wanted, worker=view.worker).state is A.PREPARED
            with pytest.raises(EffectInDoubt):
                program.refund(17, 3_000)
        assert (at.sent, at.last().state) == (1, A.UNRESOLVED)
