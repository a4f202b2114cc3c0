"""Runs on an event loop: cancelled anywhere, many at once, and with the caller's context."""

from __future__ import annotations

import asyncio
import contextvars
import pathlib
import threading
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from agent_run_ledger import RunLedger, RunState, Step, StepTimeout
from tests.contract.run_kit import calls_of, keep_locks, report_of, store_of, until

New = Callable[..., RunLedger]


@pytest.mark.parametrize("error", [MemoryError, GeneratorExit, KeyboardInterrupt, SystemExit])
def test_what_ends_a_program_is_never_recorded_of_an_async_body(new_ledger: New, error: type[BaseException]) -> None:
    ledger = new_ledger()

    @ledger.step
    async def stops() -> int:
        raise error

    with pytest.raises(error):
        ledger.execute()
    assert calls_of(ledger) == []
    assert ledger.bind("r1").state is RunState.RUNNING


@pytest.mark.parametrize("how", ["execute", "aexecute"])
def test_what_ends_a_program_comes_out_of_a_thread_and_is_not_recorded(new_ledger: New, how: str) -> None:
    ledger = new_ledger()

    def stops() -> int:
        raise KeyboardInterrupt

    ledger.add(Step(stops))
    ledger.add(Step(lambda: threading.Event().wait(0) or 1, name="other"))
    with pytest.raises(KeyboardInterrupt):
        ledger.execute() if how == "execute" else asyncio.run(ledger.aexecute())
    assert "stops" not in [name for _, name in calls_of(ledger)]


def test_a_body_that_cancels_itself_is_not_recorded(new_ledger: New) -> None:
    ledger = new_ledger()

    @ledger.step
    async def stops() -> int:
        raise asyncio.CancelledError

    async def main() -> None:
        with pytest.raises(asyncio.CancelledError):
            await ledger.aexecute()
        assert calls_of(ledger) == []

    asyncio.run(main())


def test_a_cancelled_run_has_ended_its_bodies_before_it_ends(new_ledger: New) -> None:
    ledger, ended, started = new_ledger(), list[str](), list[str]()

    @ledger.step
    async def waits() -> int:
        started.append("x")
        try:
            await asyncio.Event().wait()
        finally:
            for _ in range(10):
                await asyncio.sleep(0)
            ended.append("x")
        return 1

    async def main() -> None:
        task = asyncio.create_task(ledger.aexecute())
        while not started:
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert ended == ["x"]

    asyncio.run(main())


def test_cancelled_twice_the_run_is_given_back(new_ledger: New, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger, lives, cleaning = new_ledger(), list[str](), list[str]()
    keep_locks(ledger, monkeypatch)

    @ledger.step
    async def waits() -> str:
        lives.append("x")
        if len(lives) > 1:
            return "ok"
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cleaning.append("x")
            await asyncio.Event().wait()  # ends with the second cancellation
        return "never"

    async def main() -> Any:
        task = asyncio.create_task(ledger.aexecute())
        for reached in (lives, cleaning):
            while not reached:
                await asyncio.sleep(0)
            task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return await ledger.aexecute()

    assert asyncio.run(main()) == "ok"


@pytest.mark.parametrize("turn", range(12))
def test_cancelled_at_any_turn_of_the_loop_it_goes_on_later(new_ledger: New, turn: int) -> None:
    ledger, ran = new_ledger(), list[str]()

    async def source() -> int:
        await asyncio.sleep(0)
        ran.append("source")
        return 1

    ledger.add(Step(source))
    ledger.add(Step(lambda source: ran.append("middle") or source + 1, name="middle", depends_on=["source"]))
    ledger.add(Step(lambda middle: middle + 1, name="end", depends_on=["middle"]))

    async def main() -> Any:
        task = asyncio.create_task(ledger.aexecute())
        for _ in range(turn):
            await asyncio.wait([task], timeout=0.0005)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return await ledger.aexecute()

    assert asyncio.run(main()) == 3
    assert [call for call in calls_of(ledger) if call[0] == "RESULT"] == [
        ("RESULT", "source"), ("RESULT", "middle"), ("RESULT", "end"),
    ]  # fmt: skip
    assert report_of(ledger).problems == ()


def test_sixteen_runs_in_one_loop_keep_apart(new_ledger: New) -> None:
    ledger = new_ledger("unused")

    @ledger.step
    async def square(n: int) -> int:
        await asyncio.sleep(0)
        return n * n

    @ledger.step(depends_on=["square"])
    def text(square: int, n: int) -> str:
        return f"{n}: {square}"

    @ledger.step(depends_on=["square"])
    async def ticks(square: int) -> AsyncIterator[int]:
        for tick in range(square % 3):
            yield tick

    @ledger.step(depends_on=["text", "ticks"])
    def end(text: str, ticks: list[int]) -> tuple[str, int]:
        return text, len(ticks)

    async def main() -> list[Any]:
        return await asyncio.gather(*(ledger.bind(f"run-{n}").aexecute(n=n) for n in range(16)))

    expected = [(f"{n}: {n * n}", n * n % 3) for n in range(16)]
    assert asyncio.run(main()) == expected
    assert asyncio.run(main()) == expected
    report = report_of(ledger)
    assert (report.problems, report.runs) == ((), 16)


def test_sixteen_attempts_on_one_run_run_it_once(new_ledger: New) -> None:
    ledger, ran = new_ledger(), list[str]()

    @ledger.step
    async def once() -> int:
        ran.append("once")
        await asyncio.sleep(0)
        return 7

    async def main() -> list[int]:
        return await asyncio.gather(*(ledger.bind("r1", wait_s=30).aexecute() for _ in range(16)))

    assert asyncio.run(main()) == [7] * 16
    assert ran == ["once"]


def test_environments_see_the_callers_context_on_a_loop_too(new_ledger: New) -> None:
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("tenant", default="unset")
    seen: list[str] = []

    def environment() -> dict[str, str]:
        seen.append(variable.get())
        return {"tenant": variable.get()}

    variable.set("acme")
    ledger = new_ledger()
    ledger.add(Step(lambda: 1, name="one", environment=environment))
    asyncio.run(ledger.aexecute())
    assert seen == ["acme"]


def test_a_step_that_raises_stop_iteration_ends_a_run_on_a_loop(new_ledger: New) -> None:
    ledger = new_ledger()

    @ledger.step
    async def before() -> int:
        return 1

    @ledger.step(depends_on=["before"])
    def stops(before: int) -> int:
        raise StopIteration

    with pytest.raises(RuntimeError, match="StopIteration"):
        ledger.execute()
    assert calls_of(ledger) == [("RESULT", "before"), ("ERROR", "stops")]
    assert ledger.bind("r1").state is RunState.FAILED


def test_the_late_result_of_a_thread_troubles_no_loop(new_ledger: New) -> None:
    ledger, release, troubles = new_ledger(), threading.Event(), list[Any]()
    threads: list[threading.Thread] = []

    def slow() -> str:
        threads.append(threading.current_thread())
        release.wait(30)
        return "late"

    ledger.add(Step(slow, timeout_s=0.05))

    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, trouble: troubles.append(trouble))
        with pytest.raises(StepTimeout):
            await ledger.aexecute()
        release.set()
        threads[0].join(30)
        for _ in range(5):
            await asyncio.sleep(0)

    asyncio.run(main())
    assert troubles == []
    assert calls_of(ledger) == [("ERROR", "slow")]


def test_a_bodys_own_timeout_error_is_its_own(new_ledger: New) -> None:
    ledger = new_ledger()

    @ledger.step(timeout_s=300)
    async def body() -> int:
        raise TimeoutError("the server's")

    with pytest.raises(TimeoutError, match="the server's") as caught:
        ledger.execute()
    assert not isinstance(caught.value, StepTimeout)


@pytest.mark.parametrize("how", ["execute", "aexecute"])
def test_a_timeout_is_tried_again_and_the_late_first_result_is_not_taken(new_ledger: New, how: str) -> None:
    ledger, release, threads = new_ledger(), threading.Event(), list[threading.Thread]()

    @ledger.step(timeout_s=0.2, retries=50, retry_base_s=0)
    def slow() -> str:
        threads.append(threading.current_thread())
        if len(threads) == 1:
            release.wait(30)
            return "late"
        release.set()
        threads[0].join(30)  # now the late result is there, while this try is the one that counts
        return "second"

    assert (ledger.execute() if how == "execute" else asyncio.run(ledger.aexecute())) == "second"
    assert calls_of(ledger)[0] == ("ERROR", "slow")


def test_a_timeout_hits_only_the_step_whose_time_is_over(new_ledger: New) -> None:
    ledger, release = new_ledger(), threading.Event()
    ledger.add(Step(lambda: release.wait(30), name="slow", timeout_s=0.05))

    def sibling() -> int:
        until(lambda: ("ERROR", "slow") in calls_of(ledger))
        return 2

    ledger.add(Step(sibling))
    with pytest.raises(StepTimeout, match="slow"):
        ledger.execute()
    release.set()
    assert calls_of(ledger) == [("ERROR", "slow"), ("RESULT", "sibling")]


def test_bodies_run_in_threads_that_hold_no_process_back(new_ledger: New) -> None:
    ledger = new_ledger()
    for name in ("a", "b"):
        ledger.add(Step(lambda: threading.current_thread().daemon, name=name))
    assert ledger.execute() == {"a": True, "b": True}


def test_a_long_chain_is_run_restored_and_run_again(new_ledger: New, db: pathlib.Path) -> None:
    length = 400

    def build(first: int, last: Callable[[int], int]) -> RunLedger:
        ledger = new_ledger()
        ledger.add(Step(lambda: first, name="s0", environment={"first": first}))
        for n in range(1, length):
            ledger.add(Step(lambda x: x + 1, name=f"s{n}", depends_on=[f"s{n - 1}"]))
        ledger.add(Step(last, name="last", depends_on=[f"s{length - 1}"]))
        return ledger

    def stop(x: int) -> int:
        raise ValueError("stop")

    with pytest.raises(ValueError, match="stop"):
        build(0, stop).execute()
    again = build(0, lambda x: x)
    assert again.execute() == length - 1
    assert len([call for call in calls_of(again) if call[0] == "RESULT"]) == length + 1
    assert store_of(again).reader().head().size < 3 * length
