"""Effects that wait: asked anew at every start, and never sent for a run that was stopped, left or changed."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import pytest

from agent_run_ledger import (
    ApprovalPending,
    EffectInDoubt,
    Found,
    Lookup,
    Opaque,
    Refused,
    Request,
    RunCancelled,
    RunLedger,
    Unavailable,
)
from agent_run_ledger.effects import ActionState
from agent_run_ledger.targets import http
from tests.contract.effect_run_kit import Desk, Program, desk, eventually, holding
from tests.contract.engine_kit import each_engine
from tests.contract.target_servers import says

pytestmark = each_engine

A = ActionState


def test_what_a_run_swallowed_and_went_on_from_is_asked_anew_once_it_is_granted() -> None:
    with desk() as at:
        at.program("first").outcome(1, 3_000)

        def run() -> None:
            program = at.program()
            with program.ledger, program.ledger.run():
                with suppress(ApprovalPending):
                    program.refund(1, 3_000)
                program.think("without it")
                program.refund(2, 3_000)

        with pytest.raises(ApprovalPending):
            run()
        at.grant("refund:1")
        at.grant("refund:2")
        run()
        assert (at.sent, at.last("refund:2").state, at.last("refund:1").state) == (2, A.SUCCEEDED, A.SUCCEEDED)


def test_a_run_that_was_left_by_another_error_goes_on_with_all_that_was_granted() -> None:
    with desk() as at:

        def run() -> None:
            program = at.program()
            with program.ledger, program.ledger.run():
                waits: list[Exception] = []
                for order in (1, 2, 3):
                    try:
                        program.refund(order, 3_000)
                    except ApprovalPending as error:
                        waits.append(error)
                        program.think(f"about {order}")
                if waits:
                    raise ExceptionGroup("they wait", waits)

        with pytest.raises(ExceptionGroup):
            run()
        for order in (1, 2, 3):
            at.grant(f"refund:{order}")
        run()
        assert (at.sent, at.program().state()) == (3, "completed")


def test_a_run_that_was_cancelled_while_a_call_waits_sends_nothing() -> None:
    with desk() as at:
        at.program().outcome()
        program = at.program(wait_s=60)
        said: list[Exception] = []

        def live() -> None:
            try:
                program.run()
            except RunCancelled as error:
                said.append(error)

        thread = threading.Thread(target=live)
        thread.start()
        eventually(lambda: program.state() == "running")
        at.program().ledger.bind("ticket-17").cancel("no more of this")
        at.grant()
        thread.join(60)
        assert [type(one) for one in said] == [RunCancelled]
        assert (at.sent, at.last().state) == (0, A.AVAILABLE)


def test_an_async_call_that_is_cancelled_while_it_waits_sends_nothing() -> None:
    with desk() as at:

        async def main() -> None:
            ledger = RunLedger("async", at.path, effects=at.settings)

            @ledger.effect(key="refund:{order}", target=http(at.server.url), approval="finance", wait_s=3_600)
            async def refund(order: int) -> Request:
                return Request.json("POST", "/refunds", {"order": order})

            with suppress(asyncio.CancelledError):
                async with ledger.run():
                    task = asyncio.create_task(cast("Any", refund(17)))
                    while not (await asyncio.to_thread(_asked, at, "refund:17")):
                        await asyncio.sleep(0.01)
                    task.cancel()
                    await task
            ledger.close()

        asyncio.run(main())
        at.grant()
        assert (at.sent, at.last().state) == (0, A.AVAILABLE)


def _asked(at: Desk, action_key: str) -> bool:
    with at.people() as effects:
        return bool(effects.inspect(action_key))


def test_a_call_waits_as_long_as_it_was_told_to(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agent_run_ledger.runs.effect_calls.POLL_S", 0.001)
    with desk() as at, pytest.raises(ApprovalPending):
        at.program(wait_s=0.3).run()  # some hundred looks, none of which is a move


def test_a_doubt_is_not_run_by_a_tool_that_is_no_effect_any_more() -> None:
    done: list[str] = []
    with desk() as at:

        def agent(kind: str) -> None:
            ledger = RunLedger("ticket-17", at.path, effects=at.settings)

            def mail(to: str) -> str:
                done.append(to)
                raise RuntimeError("the line went dead")

            declare: Any = ledger.tool if kind == "tool" else ledger.effect
            settings = {} if kind == "tool" else {"key": "mail:{to}", "target": Opaque(), "approval": "finance"}
            step = declare(**settings)(mail)
            with ledger, ledger.run():
                step("ann")

        with pytest.raises(ApprovalPending):
            agent("effect")
        at.grant("mail:ann")
        with pytest.raises(EffectInDoubt):
            agent("effect")
        with pytest.raises(EffectInDoubt):
            agent("tool")
        assert done == ["ann"]


def test_a_call_that_was_left_as_repeatable_is_not_made_as_one_that_is_not(tmp_path: Path) -> None:
    done: list[str] = []

    def agent(*, safe: bool) -> None:
        ledger = RunLedger("x", tmp_path / "runs.db")

        @ledger.tool(name="mail", safe=safe)
        def mail(to: str) -> None:
            done.append(to)
            if len(done) == 1:
                raise KeyboardInterrupt

        with ledger, ledger.run():
            mail("ann")

    with pytest.raises(KeyboardInterrupt):
        agent(safe=True)
    with pytest.raises(Refused) as caught:
        agent(safe=False)
    assert (caught.value.code, done) == ("was_repeatable", ["ann"])


def test_a_call_of_a_key_that_is_under_way_in_its_process_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agent_run_ledger.ledger.run_effects.ALONE_S", 0.05)
    gate, got = threading.Event(), list[str]()
    with desk(holding(gate)) as at:
        at.program().outcome()
        at.grant()

        def refund(program: Program) -> None:
            try:
                program.refund(17, 3_000)
                got.append("done")
            except Unavailable as error:
                got.append(error.code)
                gate.set()

        program = at.program()
        with program.ledger, program.ledger.run() as run:
            run.gather(lambda: refund(program), lambda: refund(program))
        assert (got, at.sent) == (["effect_busy", "done"], 1)


# -- looks ------------------------------------------------------------------------------------------------------------


def test_a_target_is_asked_about_a_doubt_ever_more_seldom() -> None:
    asked: list[str] = []

    def look(lookup: Lookup) -> Found:
        asked.append(lookup.action_key)
        return Found.UNKNOWN

    with desk(says(b"")) as at:
        at.program().outcome()
        at.grant()
        assert at.program(observe=look, wait_s=1.75).outcome() == "effect_in_doubt"
        assert 1 <= len(asked) <= 2, "it is asked at once, and again after a second"


def test_however_often_a_target_is_asked_a_doubt_stays_a_doubt(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def look(lookup: Lookup) -> Found:
        asked.append(lookup.action_key)
        return Found.EXECUTED if len(asked) > 60 else Found.UNKNOWN

    with desk(says(b"")) as at:
        at.program().outcome()
        at.grant()
        assert at.program().outcome() == "effect_in_doubt"
        for name in ("effect_calls.POLL_S", "effect_looks.FIRST_PAUSE_S", "effect_looks.LAST_PAUSE_S"):
            monkeypatch.setattr(f"agent_run_ledger.runs.{name}", 0.001)
        assert at.program(observe=look, wait_s=60).outcome() == "done"
        assert len(asked) == 61


# -- on an event loop -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["async", "sync"])
def test_calls_that_wait_hold_none_of_the_threads_that_the_loop_shares(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with desk() as at:

        async def main() -> list[Any]:
            asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
            ledger = RunLedger("async", at.path, effects=at.settings)
            settings: Any = {"key": "refund:{order}", "target": http(at.server.url), "approval": "finance"}

            @ledger.effect(name="awaited", wait_s=60, **settings)
            async def awaited(order: int) -> Request:
                return Request.json("POST", "/refunds", {"order": order})

            @ledger.effect(name="called", wait_s=60, **settings)
            def called(order: int) -> Request:
                return Request.json("POST", "/refunds", {"order": order})

            chosen: Any = awaited if kind == "async" else called
            async with ledger.run() as run:
                calls = asyncio.ensure_future(cast("Any", run.map(chosen, [1, 2, 3, 4])))
                for order in (1, 2, 3, 4):
                    while not (await asyncio.to_thread(_asked, at, f"refund:{order}")):
                        await asyncio.sleep(0.01)
                    await asyncio.to_thread(at.grant, f"refund:{order}")
                results: list[Any] = await calls
            await ledger.aclose()
            return results

        assert [one.status for one in asyncio.run(asyncio.wait_for(main(), 50))] == [201] * 4


def test_an_async_call_that_waits_holds_no_thread_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agent_run_ledger.runs.effect_calls.POLL_S", 3_600.0)

    def acting() -> list[str]:
        return [one.name for one in threading.enumerate() if one.name.startswith("arl-effect")]

    with desk() as at:

        async def main() -> None:
            ledger = RunLedger("async", at.path, effects=at.settings)

            @ledger.effect(key="refund:{order}", target=http(at.server.url), approval="finance", wait_s=3_600)
            async def refund(order: int) -> Request:
                return Request.json("POST", "/refunds", {"order": order})

            with suppress(asyncio.CancelledError):
                async with ledger.run():
                    tasks = [asyncio.create_task(cast("Any", refund(order))) for order in (1, 2, 3)]
                    for order in (1, 2, 3):
                        await asyncio.to_thread(eventually, lambda key=f"refund:{order}": _asked(at, key))
                    await asyncio.to_thread(eventually, lambda: not acting())
                    assert not any(task.done() for task in tasks)
                    for task in tasks:
                        task.cancel()
                    await asyncio.gather(*tasks)
            await ledger.aclose()

        asyncio.run(main())
        assert at.sent == 0
