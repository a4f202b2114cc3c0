"""Branches, bodies that end too late, and runs within runs: nothing is taken for something else."""

from __future__ import annotations

import asyncio
import pathlib
import threading
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from agent_run_ledger import Misuse, Pending, Refused, RunLedger, RunState, StepTimeout, report_usage
from agent_run_ledger.kernel.notices import CallBegun, CallConcluded, CallRestored, CallUnrecorded
from agent_run_ledger.runs.run import Run
from agent_run_ledger.testing import check_ledger
from tests.contract.agent_kit import Crash, Gate, New, alive, live
from tests.contract.observer_kit import Keeper
from tests.contract.run_kit import calls_of, row_of, store_exists


@pytest.fixture(autouse=True)
def _the_ledger_holds(db: pathlib.Path) -> Iterator[None]:
    yield
    if store_exists(db):
        check_ledger(db)


@pytest.fixture
def bodies() -> Counter[str]:
    return Counter()


def _counting(ledger: RunLedger, bodies: Counter[str]) -> Any:
    lock = threading.Lock()

    @ledger.step
    def draw(deck: str) -> int:
        with lock:
            bodies["draw"] += 1
            return bodies["draw"]

    return draw


def test_equal_calls_of_branches_never_swap(new_ledger: New, bodies: Counter[str]) -> None:
    def agent(ledger: RunLedger, run: Run) -> Any:
        draw = _counting(ledger, bodies)
        got = list[int]()
        wrapped = [run.wrap(lambda: got.append(draw("d"))) for _ in range(2)]
        for one in reversed(wrapped) if bodies else wrapped:  # the branch counts, not when its thread comes
            thread = threading.Thread(target=one)
            thread.start()
            thread.join()
        got.sort()
        return (
            run.gather(lambda: draw("d"), lambda: (draw("d"), draw("d")), lambda: run.map(draw, ["d", "d"])),
            run.map(draw, ["d"] * 5, limit=2),
            got,
            draw("d"),
        )

    first = live(new_ledger, agent, crash=True)
    assert live(new_ledger, agent) == first
    assert bodies == {"draw": 13}


def test_equal_calls_of_branches_never_swap_on_a_loop(new_ledger: New, bodies: Counter[str]) -> None:
    async def agent(ledger: RunLedger, run: Run) -> Any:
        draw = _counting(ledger, bodies)

        @ledger.step
        async def adraw(deck: str) -> int:
            await asyncio.sleep(0)
            return int(draw.plain(deck))

        async def twice() -> Any:
            return [await adraw("d"), await run.gather(adraw("d"), adraw("d"))]

        return await run.gather(twice(), twice, lambda: draw("d"), adraw("d")), await run.map(adraw, ["d", "d"])

    first = alive(new_ledger, agent, crash=True)
    assert alive(new_ledger, agent) == first
    assert bodies == {"draw": 10}


def test_all_branches_end_before_the_first_error_is_raised_and_pending_comes_last(
    new_ledger: New, bodies: Counter[str]
) -> None:
    def raises(error: Exception) -> Any:
        def branch() -> None:
            bodies["ran"] += 1
            raise error

        return branch

    with new_ledger().run() as run:
        with pytest.raises(ValueError, match="first") as raised:
            run.gather(raises(Pending("p")), raises(ValueError("first")), raises(KeyError("k")), limit=1)
        assert raised.value.__notes__ == ["another branch failed too: Pending", "another branch failed too: KeyError"]
        with pytest.raises(Pending):
            run.gather(raises(Pending("p")), lambda: 1)
    assert bodies == {"ran": 4}


@pytest.mark.parametrize("limit", [0, 1025, True, "2"])
def test_a_limit_is_a_number_of_branches(new_ledger: New, limit: Any) -> None:
    with new_ledger().run() as run, pytest.raises(Misuse) as refused:
        run.gather(lambda: 1, limit=limit)
    assert refused.value.code == "bad_setting"


def test_gather_takes_functions(new_ledger: New) -> None:
    with new_ledger().run() as run, pytest.raises(Misuse, match="functions without arguments") as refused:
        run.gather(7)
    assert refused.value.code == "bad_call"


def test_a_cancelled_gather_waits_for_its_tasks(new_ledger: New, bodies: Counter[str]) -> None:
    async def agent(ledger: RunLedger, run: Run) -> Any:
        there = asyncio.Event()

        @ledger.step
        async def slow(n: int) -> int:
            bodies["begun"] += 1
            if bodies["begun"] == 2:
                there.set()
            try:
                await asyncio.Event().wait()
            finally:
                bodies["left"] += 1
            return n

        task = asyncio.create_task(run.gather(slow(1), slow(2)))
        await there.wait()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return dict(bodies)

    assert alive(new_ledger, agent) == {"begun": 2, "left": 2}
    assert calls_of(new_ledger()) == [("ABANDONED", "slow")] * 2


# -- bodies that end too late ---------------------------------------------------------------------------------


@pytest.mark.parametrize("safe", [True, False])
def test_a_call_that_was_given_up_and_made_again(new_ledger: New, bodies: Counter[str], safe: bool) -> None:
    """What may run again is the same call; an unsafe one is a second call, and the first one's outcome is unknown."""

    async def agent(ledger: RunLedger, run: Run) -> Any:
        @ledger.tool(safe=safe)
        async def act() -> int:
            bodies["act"] += 1
            if bodies["act"] == 1:
                await asyncio.Event().wait()
            return bodies["act"]

        got = list[Any]()
        for _ in range(2):
            try:
                got.append(await asyncio.wait_for(act(), 0.4))
            except TimeoutError:
                got.append("late")
        return got

    assert alive(new_ledger, agent, crash=True) == ["late", 2]
    again = alive(new_ledger, agent)
    assert again[0] == 2 if safe else again[0]["outcome"] == "unknown"
    assert bodies["act"] == (3 if safe else 2)


def test_a_keyed_unsafe_tool_that_was_given_up_is_not_repeated_in_the_same_attempt(
    new_ledger: New, bodies: Counter[str]
) -> None:
    async def agent(ledger: RunLedger, run: Run) -> Any:
        @ledger.tool(key="order-7")
        async def pay() -> int:
            bodies["pay"] += 1
            if bodies["pay"] == 1:
                await asyncio.Event().wait()
            return 1

        with pytest.raises(TimeoutError):
            await asyncio.wait_for(pay(), 0.05)
        return (await pay())["outcome"], (await pay())["outcome"]

    assert alive(new_ledger, agent, crash=True) == ("unknown", "unknown")
    assert bodies == {"pay": 1}


def test_a_body_out_of_time_takes_along_what_it_left_open(new_ledger: New, bodies: Counter[str]) -> None:
    """Its thread goes on: what it called is not recorded any more, and an unsafe tool in it is not repeated."""
    gate, late, done = Gate(), list[str](), threading.Event()

    def agent(ledger: RunLedger, run: Run) -> Any:
        @ledger.tool
        def pay() -> int:
            bodies["pay"] += 1
            gate.stop()
            return 1

        @ledger.step(timeout_s=0.2, retries=1, retry_base_s=0)
        def outer() -> Any:
            bodies["outer"] += 1
            try:
                return pay()
            except Misuse as error:
                late.append(error.code)
                try:
                    run.now()
                except Misuse as again:
                    late.append(again.code)
                done.set()
                raise

        said = outer()
        gate.open()
        assert done.wait(30)
        return said["outcome"], ledger.step(lambda: 1, name="next")()

    assert live(new_ledger, agent, crash=True) == live(new_ledger, agent) == ("unknown", 1)
    assert bodies == {"pay": 1, "outer": 2}
    assert late == ["run_over", "body_over"] or late == ["body_over", "body_over"]


def test_a_timeout_is_recorded_and_raised_again(new_ledger: New, bodies: Counter[str]) -> None:
    def agent(ledger: RunLedger, run: Run) -> Any:
        @ledger.step(timeout_s=0.05)
        def slow() -> None:
            bodies["slow"] += 1
            threading.Event().wait(0.2)

        try:
            slow()
        except StepTimeout as error:
            return type(error), ledger.step(lambda: 1, name="next")()

    assert live(new_ledger, agent, crash=True) == live(new_ledger, agent) == (StepTimeout, 1)
    assert bodies == {"slow": 1}


@pytest.mark.parametrize("interrupt", [KeyboardInterrupt, asyncio.CancelledError])
def test_an_interrupted_body_has_no_result(
    new_ledger: New, bodies: Counter[str], interrupt: type[BaseException]
) -> None:
    def agent(ledger: RunLedger, run: Run) -> Any:
        @ledger.step
        def work() -> int:
            bodies["work"] += 1
            if bodies["work"] == 1:
                raise interrupt
            return bodies["work"]

        try:
            work()
        except interrupt:
            return work()
        return "not interrupted"

    assert live(new_ledger, agent) == 2
    assert calls_of(new_ledger()) == [("ABANDONED", "work"), ("RESULT", "work")]


# -- runs within runs -----------------------------------------------------------------------------------------


def test_a_run_within_a_run_is_restored(new_ledger: New, bodies: Counter[str]) -> None:
    def agent(ledger: RunLedger, run: Run) -> Any:
        draw = _counting(ledger, bodies)
        got = list[Any]()
        for _ in range(2):
            with ledger.run(topic="t") as inner:
                got.append((inner.id, draw("d"), inner.random(), run.random()))
        return got, draw("d")

    first = live(new_ledger, agent, crash=True)
    assert live(new_ledger, agent) == live(new_ledger, agent) == first
    assert bodies == {"draw": 3}
    assert len({one[0] for one in first[0]}) == 2


def test_ids_of_runs_far_within_are_ids(new_ledger: New) -> None:
    ledger = new_ledger()

    def deeper(left: int) -> str:
        with ledger.run() as run:
            return deeper(left - 1) if left else run.id

    innermost = deeper(20)
    assert len(innermost) <= 200
    assert new_ledger().bind(innermost).state is RunState.COMPLETED


def test_a_failed_run_within_a_run_fails_again_when_the_outer_one_has_gone_on(
    new_ledger: New, bodies: Counter[str]
) -> None:
    def agent(ledger: RunLedger, run: Run) -> Any:
        @ledger.step
        def flaky() -> int:
            bodies["flaky"] += 1
            if bodies["flaky"] == 1:
                raise ConnectionError("no route")
            return 1

        said: Any = "failed"
        try:
            with ledger.run():
                said = flaky()
        except ConnectionError:
            pass
        return said, ledger.step(lambda said: said, name="report")(said)

    assert live(new_ledger, agent, crash=True) == live(new_ledger, agent, crash=True) == ("failed", "failed")
    assert live(new_ledger, agent) == live(new_ledger, agent) == ("failed", "failed")
    assert bodies == {"flaky": 1}


def test_a_failed_run_within_a_run_goes_on_when_the_outer_one_failed_with_it(
    new_ledger: New, bodies: Counter[str]
) -> None:
    def agent(ledger: RunLedger, run: Run) -> Any:
        @ledger.step
        def flaky() -> int:
            bodies["flaky"] += 1
            if bodies["flaky"] == 1:
                raise ConnectionError("no route")
            return 1

        with ledger.run():
            return flaky()

    with pytest.raises(ConnectionError):
        live(new_ledger, agent)
    assert live(new_ledger, agent) == 1


def test_a_run_of_another_parent_is_refused(new_ledger: New) -> None:
    ledger = new_ledger()
    with pytest.raises(Crash), ledger.run(), ledger.run("shared"):
        raise Crash
    with new_ledger("r2").run(), pytest.raises(Refused) as refused, ledger.run("shared"):
        pass
    assert refused.value.code == "other_parent"
    assert row_of(ledger, "shared").state is RunState.RUNNING


# -- who watches, and what was used ---------------------------------------------------------------------------


def test_observers_are_told_of_each_call(new_ledger: New, bodies: Counter[str]) -> None:
    def agent(ledger: RunLedger, run: Run) -> Any:
        draw = _counting(ledger, bodies)

        @ledger.step
        def words() -> Iterator[str]:
            yield "a"

        @ledger.step
        def fails() -> None:
            raise ValueError("no")

        with pytest.raises(ValueError, match="no"):
            fails()
        return draw("d"), list(words())

    seen: list[Keeper] = []
    for crash in (True, False):
        keeper = Keeper()
        seen.append(keeper)
        ledger = new_ledger("r1", observers=[keeper])
        try:
            with ledger.run() as run:
                agent(ledger, run)
                if crash:
                    raise Crash
        except Crash:
            pass
    first, second = seen
    assert [(n.call.step, n.kind.name) for n in first.of(CallConcluded)] == [
        ("fails", "ERROR"),
        ("draw", "RESULT"),
        ("words", "RESULT"),
    ]
    assert [n.step for n in second.of(CallRestored)] == ["draw", "words"]
    assert second.of(CallConcluded) == second.of(CallUnrecorded) == first.of(CallUnrecorded) == []
    assert first.of(CallBegun) == []  # what a body runs in is no notice
    assert {step for _, step, _ in first.around_bodies} >= {"fails", "draw"}


def test_what_an_inner_call_used_is_counted_once(new_ledger: New) -> None:
    """What the outer call returns holds the usage of the inner one, which has said it itself."""

    def agent(ledger: RunLedger, run: Run) -> Any:
        @ledger.step
        def ask(n: int) -> dict[str, Any]:
            report_usage(model="m", input_tokens=60, output_tokens=40)
            return {"usage": {"input_tokens": 60, "output_tokens": 40}}

        outer = ledger.step(lambda n: ask(n), name="outer")
        said = [outer(1), ask(2)]
        if row_of(new_ledger()).attempt == 1:
            raise Crash
        return said, ask(3)

    live(new_ledger, agent)
    live(new_ledger, agent)
    account = new_ledger().bind("r1").usage(by=None)
    assert account is not None
    spent = account.total.spent
    assert (spent.input_tokens, spent.output_tokens) == (180, 120)
    assert account.total.uncertain.calls == 0
