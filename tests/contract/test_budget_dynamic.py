"""Budgets of dynamic runs: branches, sub-agents, tools, streams and recorded values against one set of counters."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from agent_run_ledger import Budget, BudgetExceeded, Misuse, Reserve, RunLedger, RunState, report_usage
from agent_run_ledger.kernel.states import RunEvent
from agent_run_ledger.ledger.budget_use import BudgetUse, budget_uses
from agent_run_ledger.testing import check_ledger
from agent_run_ledger.testing.budget_check import budget_problems
from tests.contract.run_kit import marks_of, operate, row_of, store_exists, store_of

New = Callable[..., RunLedger]


@pytest.fixture(autouse=True)
def check(db: Path) -> Iterator[None]:
    """Whatever a test did, the counters are what records and marks say."""
    yield
    if store_exists(db):
        check_ledger(db)


def use_of(ledger: RunLedger, run_id: str = "r1", tool: str = "") -> BudgetUse:
    return budget_uses(store_of(ledger).reader(), row_of(ledger, run_id))[tool]


def child_of(ledger: RunLedger, run_id: str = "r1") -> str:
    (child,) = store_of(ledger).reader().children_of(row_of(ledger, run_id).row_id)
    return child.run_id


def searching(ledger: RunLedger, **settings: object) -> tuple[list[int], Callable[[int], int]]:
    """Register a tool; return what its bodies were called with, and the tool."""
    ran: list[int] = []

    @ledger.tool(safe=True, **settings)  # type: ignore[arg-type]
    def search(n: int) -> int:
        ran.append(n)
        report_usage(model="m", input_tokens=8, output_tokens=2)
        return n

    return ran, search


def test_sixteen_branches_against_ten_calls_are_exactly_ten_bodies_and_the_rest_runs_after_a_release(
    new_ledger: New,
) -> None:
    ledger = new_ledger(budget=Budget(max_calls=10), max_parallel=16)
    ran, search = searching(ledger)
    with pytest.raises(BudgetExceeded, match="run 'r1' was stopped by its budget: 10 of 10 calls"), ledger.run() as run:
        run.map(search, range(16))
    assert (len(ran), len(set(ran))) == (10, 10)
    assert row_of(ledger).state is RunState.QUARANTINED
    with pytest.raises(BudgetExceeded, match="is in QUARANTINE"), ledger.run():
        pytest.fail("it was entered")
    operate(ledger, RunEvent.RELEASE)
    with ledger.bind("r1", budget=Budget(max_calls=16)).run() as run:
        assert run.map(search, range(16)) == list(range(16))
    assert sorted(ran) == list(range(16))
    assert (use_of(ledger).calls, use_of(ledger).tokens, use_of(ledger).calls_left) == (16, 160, 0)


def test_sixteen_tasks_against_ten_calls_are_exactly_ten_bodies(new_ledger: New) -> None:
    ledger = new_ledger(budget=Budget(max_calls=10), max_parallel=16)
    ran: list[int] = []

    @ledger.step
    async def ask(n: int) -> int:
        ran.append(n)
        await asyncio.sleep(0)
        return n

    async def program() -> None:
        async with ledger.run() as run:
            await run.gather(*[ask(n) for n in range(16)])

    with pytest.raises(BudgetExceeded, match="10 of 10 calls"):
        asyncio.run(program())
    assert len(ran) == 10
    assert marks_of(ledger) == []
    assert use_of(ledger).calls == 10


def test_what_a_sub_agent_calls_counts_and_where_it_exceeds_both_runs_say_so(new_ledger: New) -> None:
    ledger = new_ledger(budget=Budget(max_calls=3))
    ran, search = searching(ledger)

    def program(budget: Budget | None = None) -> list[int]:
        with ledger.bind("r1", budget=budget).run():
            search(1)
            with ledger.run(topic="a"):
                return [search(n) for n in range(2, 9)]

    with pytest.raises(BudgetExceeded, match="run 'r1', which run 'r1/"):
        program()
    assert ran == [1, 2, 3]
    child = child_of(ledger)
    assert (row_of(ledger).state, row_of(ledger, child).state) == (RunState.QUARANTINED, RunState.FAILED)
    assert store_of(ledger).reader().budgets(row_of(ledger, child).row_id) == {}, "the child counts in its parent"
    operate(ledger, RunEvent.RELEASE)
    assert program(Budget(max_calls=8)) == list(range(2, 9))
    assert ran == list(range(1, 9))
    assert use_of(ledger).calls == 8


def test_a_sub_agent_can_have_a_budget_of_its_own(new_ledger: New) -> None:
    ledger = new_ledger(budget=Budget(max_calls=9))
    ran, search = searching(ledger)

    def small() -> None:
        with ledger.bind("small", budget=Budget(max_calls=2)).run():
            for n in range(5):
                search(n)

    with ledger.run():
        with pytest.raises(BudgetExceeded, match="run 'small' was stopped by its budget: 2 of 2 calls"):
            small()
        search(7)
    assert ran == [0, 1, 7]
    assert (row_of(ledger).state, row_of(ledger, "small").state) == (RunState.COMPLETED, RunState.QUARANTINED)
    assert (use_of(ledger).calls, use_of(ledger, "small").calls) == (3, 2)


def test_a_pipeline_within_a_run_counts_there(new_ledger: New) -> None:
    ledger, inner = new_ledger(budget=Budget(max_calls=2)), new_ledger("inner", budget=Budget(max_calls=1))
    ran: list[str] = []
    for name in ("first", "second", "third"):
        inner.step(name=name)(lambda name=name: ran.append(name))
    with pytest.raises(BudgetExceeded, match="run 'r1', which run 'inner' is part of"), ledger.run():
        inner.execute()
    assert len(ran) == 2, "the inner ledger's own budget is for runs that are within no other"
    assert row_of(ledger, "inner").state is RunState.FAILED


def test_the_budget_of_a_tool_holds_over_the_run_and_its_sub_agents(new_ledger: New) -> None:
    ledger = new_ledger()
    ran, search = searching(ledger, budget=Budget(max_calls=3))

    def program() -> None:
        with ledger.run():
            search(1)
            with ledger.run():
                search(2)
            search(3)
            search(4)

    with pytest.raises(BudgetExceeded, match="of 'search': 3 of 3 calls"):
        program()
    assert ran == [1, 2, 3]
    assert (use_of(ledger, tool="search").calls, use_of(ledger, child_of(ledger), "search").calls) == (3, 1)


def test_a_tool_whose_budget_the_run_does_not_know_is_not_called(new_ledger: New) -> None:
    ledger, other = new_ledger(), new_ledger("other")
    ran, search = searching(other, budget=Budget(max_calls=3))
    with pytest.raises(Misuse) as raised, ledger.run():
        search(1)
    assert (raised.value.code, ran) == ("bad_budget", [])


def test_recorded_values_and_restored_calls_are_no_calls(new_ledger: New) -> None:
    ledger = new_ledger(budget=Budget(max_calls=2))
    ran, search = searching(ledger)

    def program(fail: bool) -> None:
        with ledger.run() as run:
            for _ in range(5):
                made = (run.now(), run.random(), run.uuid4(), run.value("search", lambda: 1))
                assert len(made) == 4
            search(1)
            search(1)
            if fail:
                raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        program(fail=True)
    program(fail=False)
    assert ran == [1, 1]
    assert use_of(ledger).calls == 2


def test_an_excess_that_the_agent_swallows_is_raised_by_every_later_call_and_on_leaving(new_ledger: New) -> None:
    ledger = new_ledger(budget=Budget(max_calls=1))
    ran, search = searching(ledger)
    swallowed: list[str] = []

    def program() -> None:
        with ledger.run():
            for n in range(5):
                try:
                    search(n)
                except BudgetExceeded as error:
                    swallowed.append(error.code)

    with pytest.raises(BudgetExceeded, match="1 of 1 calls"):
        program()
    assert (ran, swallowed) == ([0], ["budget_exceeded"] * 4)


def test_a_call_that_does_not_fit_with_what_it_declares_does_not_start(new_ledger: New) -> None:
    ledger = new_ledger(budget=Budget(max_tokens=100), max_parallel=8)
    ran, search = searching(ledger, reserves=Reserve(tokens=30))
    with pytest.raises(BudgetExceeded, match="and the next call may use 30"), ledger.run() as run:
        run.map(search, range(16))
    assert 3 <= len(ran) <= 8
    assert use_of(ledger).tokens == 10 * len(ran)
    assert use_of(ledger).tokens_reserved == 0


def test_a_stream_that_is_closed_early_stays_counted_as_uncertain(tmp_path: Path) -> None:
    with RunLedger("r1", tmp_path / "streams.db", budget=Budget(max_calls=3)) as ledger:

        @ledger.step(reserves=Reserve(tokens=40))
        def stream() -> Iterator[int]:
            yield from range(100)

        with ledger.run():
            for chunk in stream():
                if chunk == 3:
                    break
        held = use_of(ledger)
        assert (held.calls, held.calls_uncertain, held.calls_in_flight, held.tokens_uncertain) == (1, 1, 0, 40)
        assert list(budget_problems(store_of(ledger).reader(), row_of(ledger))) == []
