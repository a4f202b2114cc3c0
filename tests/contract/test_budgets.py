"""Budgets of pipelines: what would exceed one is not run, and the run is quarantined with the numbers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from agent_run_ledger import (
    Budget,
    BudgetExceeded,
    Misuse,
    Reserve,
    RunLedger,
    RunQuarantined,
    RunState,
    Step,
    codecs,
    report_usage,
)
from agent_run_ledger.kernel.record import RecordKind
from agent_run_ledger.kernel.states import RunEvent
from agent_run_ledger.runs.operate import decide
from agent_run_ledger.testing import check_ledger
from tests.contract.budget_kit import SetClock
from tests.contract.run_kit import calls_of, operate, records_of, report_of, row_of, store_exists, store_of

New = Callable[..., RunLedger]


@pytest.fixture(autouse=True)
def check(db: Path) -> Iterator[None]:
    """Whatever a test did, the counters are what records and marks say."""
    yield
    if store_exists(db):
        check_ledger(db)


def decision(ledger: RunLedger, run_id: str = "r1") -> Any:
    """Return what the run's last DECISION says."""
    record = records_of(ledger, RecordKind.DECISION, run_id=run_id)[-1]
    return codecs.unpack(record.encoding, record.payload)


def chain(ledger: RunLedger, count: int, body: Callable[[int], None], **settings: Any) -> list[int]:
    """Register steps one after the other; return the list of those whose bodies ran."""
    ran: list[int] = []

    def step(at: int) -> Step[..., Any]:
        def run() -> int:
            ran.append(at)
            body(at)
            return at

        return Step(run, name=f"call {at}", depends_on=[f"call {at - 1}"] if at > 1 else [], **settings)

    for at in range(1, count + 1):
        ledger.add(step(at))
    return ran


def tokens(count: int) -> Callable[[int], None]:
    return lambda _: report_usage(model="m", input_tokens=count, output_tokens=0, cost_usd=0)


# -- calls ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["execute", "aexecute"])
def test_sixteen_parallel_steps_against_ten_calls_are_exactly_ten_bodies(new_ledger: New, how: str) -> None:
    ledger = new_ledger(budget=Budget(max_calls=10), max_parallel=16)
    ran: list[int] = []
    for at in range(16):
        ledger.add(Step(lambda at=at: ran.append(at), name=f"s{at}"))
    with pytest.raises(BudgetExceeded, match=r"run 'r1' was stopped by its budget: 10 of 10 calls") as raised:
        _ = ledger.execute() if how == "execute" else asyncio.run(ledger.aexecute())
    assert raised.value.code == "budget_exceeded"
    assert "raise the budget in the program, then `arl runs release`" in raised.value.hint
    assert sorted(ran) == list(range(10))
    assert sorted(calls_of(ledger)) == [("RESULT", f"s{at}") for at in range(10)]
    assert (row_of(ledger).state, row_of(ledger).reason) == (RunState.QUARANTINED, "budget: 10 of 10 calls")
    assert report_of(ledger).ok
    assert decision(ledger) == {
        "event": "quarantine",
        "reason": "budget: 10 of 10 calls",
        "actor": "budget",
        "budget": {"limit": "max_calls", "tool": "", "call_of": "r1", "max": 10, "used": 10},
    }


@pytest.mark.parametrize(
    ("budget", "way"),
    [
        (Budget(max_calls=1), "raise the budget in the program, then `arl runs release"),
        (Budget(calls_per_minute=1), "raise the budget in the program, or wait for a minute, then `arl runs release"),
        (
            Budget(max_cost_usd=1),
            "raise the budget in the program, with allow_unknown_cost=True since a cost is unknown, "
            "then `arl runs release",
        ),
    ],
)
def test_the_hint_says_what_helps_when_it_is_stopped_and_at_the_next_start(
    new_ledger: New, budget: Budget, way: str
) -> None:
    ledger = new_ledger(budget=budget)
    chain(ledger, 2, lambda _: report_usage(model="m", input_tokens=1, output_tokens=0))
    for _ in range(2):
        with pytest.raises(BudgetExceeded) as raised:
            ledger.execute()
        assert raised.value.hint.startswith(way)


def test_a_run_that_stays_within_its_budget_is_not_touched_by_it(new_ledger: New) -> None:
    ledger = new_ledger(budget=Budget(max_calls=3))
    ran = chain(ledger, 3, lambda _: None)
    assert ledger.execute() == 3
    assert ran == [1, 2, 3]
    used = ledger.bind("r1").budget()
    assert used is not None
    assert (used.calls, used.calls_left, used.calls_in_flight, used.calls_uncertain) == (3, 0, 0, 0)
    assert used.limits == Budget(max_calls=3)


def test_every_try_counts(new_ledger: New) -> None:
    ledger = new_ledger(budget=Budget(max_calls=3))
    tries: list[int] = []

    @ledger.step(retries=5, retry_base_s=0)
    def flaky() -> None:
        tries.append(1)
        raise ValueError("no")

    with pytest.raises(BudgetExceeded, match="3 of 3 calls"):
        ledger.execute()
    assert len(tries) == 3
    assert calls_of(ledger) == [("ERROR", "flaky")] * 3


def test_restored_steps_cost_nothing(new_ledger: New) -> None:
    ran = chain(first := new_ledger(budget=Budget(max_calls=4)), 3, _fail_at(3))
    with pytest.raises(ValueError, match="at 3"):
        first.execute()
    again = chain(second := new_ledger(budget=Budget(max_calls=4)), 3, lambda _: None)
    assert second.execute() == 3
    assert (ran, again) == ([1, 2, 3], [3])
    used = second.bind("r1").budget()
    assert used is not None
    assert used.calls == 4


def _fail_at(place: int) -> Callable[[int], None]:
    def body(at: int) -> None:
        if at == place:
            raise ValueError(f"at {at}")

    return body


def test_a_quarantined_run_is_refused_until_it_is_released_and_then_goes_on_with_its_counters(new_ledger: New) -> None:
    ran = chain(ledger := new_ledger(budget=Budget(max_calls=2)), 4, lambda _: None)
    for _ in range(2):
        with pytest.raises(BudgetExceeded, match=r"2 of 2 calls.*raise the budget"):
            ledger.execute()
    operate(ledger, RunEvent.RELEASE)
    with pytest.raises(RunQuarantined, match="2 of 2 calls"):
        ledger.execute()
    assert ran == [1, 2]
    operate(ledger, RunEvent.RELEASE)
    assert ledger.bind("r1", budget=Budget(max_calls=4)).execute() == 4
    assert ran == [1, 2, 3, 4]
    used = ledger.bind("r1").budget()
    assert used is not None
    assert (used.calls, used.limits) == (4, Budget(max_calls=4))


def test_a_quarantine_of_a_person_is_not_taken_for_one_of_the_budget(new_ledger: New) -> None:
    ledger = new_ledger(budget=Budget(max_calls=5))
    chain(ledger, 2, lambda at: operate(ledger, RunEvent.QUARANTINE) if at == 1 else None)
    with pytest.raises(RunQuarantined) as raised:
        ledger.execute()
    assert not isinstance(raised.value, BudgetExceeded)
    with pytest.raises(RunQuarantined) as raised:
        ledger.execute()
    assert not isinstance(raised.value, BudgetExceeded)


def test_a_step_that_fails_beside_the_excess_does_not_hide_it(new_ledger: New) -> None:
    ledger = new_ledger(budget=Budget(max_calls=2), max_parallel=4)

    @ledger.step
    def one() -> None:
        raise ValueError("no")

    @ledger.step
    def two() -> int:
        return 2

    @ledger.step
    def three() -> int:
        return 3

    with pytest.raises(BudgetExceeded):
        ledger.execute()
    assert sorted(calls_of(ledger)) == [("ERROR", "one"), ("RESULT", "two")]


# -- tokens and dollars ---------------------------------------------------------------------------------------------


def test_loop_07_nineteen_calls_of_25000_tokens_stop_before_the_fifth(new_ledger: New) -> None:
    ledger = new_ledger(budget=Budget(max_tokens=100_000))
    ran = chain(ledger, 19, tokens(25_000))
    with pytest.raises(BudgetExceeded, match=r"100,000 of 100,000 tokens \(100,000 spent\)"):
        ledger.execute()
    assert ran == [1, 2, 3, 4]
    assert row_of(ledger).state is RunState.QUARANTINED
    assert decision(ledger)["budget"]["spent"] == 100_000


def test_loop_08_what_is_restored_is_not_spent_again(new_ledger: New) -> None:
    def crash_in_3(at: int) -> None:
        tokens(100)(at)
        if at == 3 and len(lives) == 1:
            raise KeyboardInterrupt

    lives = [1]
    budget = Budget(max_tokens=300)
    with pytest.raises(KeyboardInterrupt):
        _ = chain(ledger := new_ledger(budget=budget), 3, crash_in_3), ledger.execute()
    lives.append(2)
    ran = chain(ledger := new_ledger(budget=budget), 3, crash_in_3)
    assert ledger.execute() == 3
    assert ran == [3]
    used = ledger.bind("r1").budget()
    assert used is not None
    assert (used.tokens, used.tokens_left, used.calls, used.calls_uncertain) == (300, 0, 4, 1)


def test_with_a_declared_reserve_parallel_calls_stay_below_the_limit(new_ledger: New) -> None:
    ledger = new_ledger(budget=Budget(max_tokens=1000), max_parallel=8)
    for at in range(8):
        ledger.add(Step(lambda: tokens(250)(0), name=f"s{at}", reserves=Reserve(tokens=300)))
    with pytest.raises(BudgetExceeded, match=r"900 of 1,000 tokens \(0 spent, 900 reserved, .* may use 300"):
        ledger.execute()
    used = ledger.bind("r1").budget()
    assert used is not None
    assert (used.calls, used.tokens, used.tokens_reserved, used.tokens_left) == (3, 750, 0, 250)


def test_without_a_reserve_what_is_in_flight_can_overshoot(new_ledger: New) -> None:
    """The documented limit: `reserves=` is what prevents it."""
    ledger = new_ledger(budget=Budget(max_tokens=1000), max_parallel=8)
    for at in range(8):
        ledger.add(Step(lambda: tokens(250)(0), name=f"s{at}"))
    ledger.add(Step(lambda: None, name="last", depends_on=[f"s{at}" for at in range(8)]))
    with pytest.raises(BudgetExceeded, match=r"2,000 of 1,000 tokens"):
        ledger.execute()


def test_what_the_record_says_counts_and_not_what_was_reserved(new_ledger: New) -> None:
    ledger = new_ledger(budget=Budget(max_tokens=100, max_cost_usd=1))
    ran = chain(
        ledger,
        5,
        lambda _: report_usage(model="m", input_tokens=40, output_tokens=10, cost_usd="0.5"),
        reserves=Reserve(tokens=50, cost_usd="0.5"),
    )
    with pytest.raises(BudgetExceeded, match="100 of 100 tokens"):
        ledger.execute()
    assert ran == [1, 2]
    used = ledger.bind("r1").budget()
    assert used is not None
    assert (used.tokens, used.cost_usd, used.cost_usd_left, used.tokens_reserved) == (100, Decimal(1), Decimal(0), 0)


def test_errors_that_used_something_are_spent(new_ledger: New) -> None:
    ledger = new_ledger(budget=Budget(max_tokens=100))

    @ledger.step(retries=9, retry_base_s=0)
    def flaky() -> None:
        tokens(60)(0)
        raise ValueError("no")

    with pytest.raises(BudgetExceeded, match="120 of 100 tokens"):
        ledger.execute()
    assert len(calls_of(ledger)) == 2


def test_an_unknown_price_stops_the_run_unless_that_is_allowed(new_ledger: New) -> None:
    def unpriced(_: int) -> None:
        report_usage(model="nobody knows this one", input_tokens=5, output_tokens=5)

    ran = chain(ledger := new_ledger(budget=Budget(max_cost_usd=5)), 3, unpriced)
    with pytest.raises(BudgetExceeded, match=r"\$0\.00 of \$5\.00 \(.*, and the cost of 1 call is unknown\)"):
        ledger.execute()
    assert ran == [1]
    operate(ledger, RunEvent.RELEASE)
    allowed = ledger.bind("r1", budget=Budget(max_cost_usd=5, allow_unknown_cost=True))
    assert allowed.execute() == 3
    used = allowed.budget()
    assert used is not None
    assert used.cost_unknown == 3


def test_steps_that_say_nothing_of_a_model_cost_nothing(new_ledger: New) -> None:
    ran = chain(ledger := new_ledger(budget=Budget(max_cost_usd="0.01", max_tokens=1)), 3, lambda _: None)
    assert ledger.execute() == 3
    assert ran == [1, 2, 3]


# -- time -----------------------------------------------------------------------------------------------------------


def test_time_counts_within_attempts_and_not_between_them(new_ledger: New, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = SetClock.install(monkeypatch)
    budget = Budget(max_wall_s=10)

    def body(at: int) -> None:
        clock.pass_s(4)
        if at == 2 and not ended:
            ended.append(at)
            raise ValueError("no")

    ended: list[int] = []
    with pytest.raises(ValueError, match="no"):
        _ = chain(ledger := new_ledger(budget=budget), 4, body), ledger.execute()
    clock.pass_s(3600)
    ran = chain(ledger := new_ledger(budget=budget), 4, body)
    with pytest.raises(BudgetExceeded, match=r"12\.0 of 10 seconds"):
        ledger.execute()
    assert ran == [2]
    used = ledger.bind("r1").budget()
    assert used is not None
    assert (used.wall_s, used.wall_s_left) == (12.0, 0.0)


def test_time_is_looked_at_only_when_a_call_starts(new_ledger: New, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = SetClock.install(monkeypatch)
    chain(ledger := new_ledger(budget=Budget(max_wall_s=10)), 2, lambda at: clock.pass_s(9 if at == 1 else 90))
    assert ledger.execute() == 2
    used = ledger.bind("r1").budget()
    assert used is not None
    assert used.wall_s == 99.0


def test_calls_per_minute_stop_the_run_and_a_release_after_a_minute_lets_it_go_on(
    new_ledger: New, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = SetClock.install(monkeypatch)
    ran = chain(ledger := new_ledger(budget=Budget(calls_per_minute=3)), 8, lambda _: clock.pass_s(15))
    with pytest.raises(BudgetExceeded, match="3 of 3 calls within a minute"):
        ledger.execute()
    assert ran == [1, 2, 3]
    clock.pass_s(45)
    operate(ledger, RunEvent.RELEASE)
    with pytest.raises(BudgetExceeded):
        ledger.execute()
    assert ran == [1, 2, 3, 4, 5, 6]


# -- budgets of steps -----------------------------------------------------------------------------------------------


def test_the_budget_of_a_step_stops_the_run_and_names_the_step(new_ledger: New) -> None:
    ledger = new_ledger(budget=Budget(max_calls=50))
    tries: list[int] = []

    @ledger.step
    def free() -> int:
        return 1

    @ledger.step(depends_on=["free"], retries=9, retry_base_s=0, budget=Budget(max_calls=2))
    def dear(n: int) -> None:
        tries.append(n)
        raise ValueError("no")

    with pytest.raises(BudgetExceeded, match="run 'r1' was stopped by its budget of 'dear': 2 of 2 calls"):
        ledger.execute()
    assert len(tries) == 2
    assert decision(ledger)["budget"]["tool"] == "dear"
    with pytest.raises(BudgetExceeded, match="of 'dear': 2 of 2 calls"):
        ledger.execute()
    run, step = ledger.bind("r1").budget(), ledger.bind("r1").budget("dear")
    assert run is not None
    assert step is not None
    assert (run.calls, step.calls) == (3, 2)
    assert ledger.bind("r1").budget("free") is None


def test_the_time_of_a_steps_budget_is_that_of_its_calls(new_ledger: New, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = SetClock.install(monkeypatch)
    ledger = new_ledger()

    @ledger.step
    def slow() -> int:
        clock.pass_s(600)
        return 1

    @ledger.step(depends_on=["slow"], retries=9, retry_base_s=0, budget=Budget(max_wall_s=6))
    def dear(n: int) -> None:
        clock.pass_s(4)
        raise ValueError("no")

    with pytest.raises(BudgetExceeded, match=r"of 'dear': 8\.0 of 6 seconds"):
        ledger.execute()


def test_a_run_without_a_budget_has_none(new_ledger: New) -> None:
    chain(ledger := new_ledger(), 2, lambda _: None)
    assert ledger.bind("r1").budget() is None
    ledger.execute()
    assert ledger.bind("r1").budget() is None
    assert store_of(ledger).reader().budgets(row_of(ledger).row_id) == {}


# -- budgets that come and go ---------------------------------------------------------------------------------------


def test_a_first_budget_in_the_second_attempt_begins_with_what_the_records_say(new_ledger: New) -> None:
    def body(at: int) -> None:
        report_usage(model="m", input_tokens=10, output_tokens=1, cost_usd="0.25")
        if at == 3 and first:
            raise KeyboardInterrupt
        if at == 2 and len(tries) < 2:
            tries.append(at)
            raise ValueError("no")

    first, tries = [True], list[int]()
    with pytest.raises(KeyboardInterrupt):
        _ = chain(ledger := new_ledger(), 5, body, retries=3, retry_base_s=0), ledger.execute()
    first.clear()
    ran = chain(ledger := new_ledger(budget=Budget(max_calls=6)), 5, body, budget=Budget(max_calls=5))
    with pytest.raises(BudgetExceeded, match="6 of 6 calls, 1 of them uncertain"):
        ledger.execute()
    assert ran == [3]
    used, step = ledger.bind("r1").budget(), ledger.bind("r1").budget("call 2")
    assert used is not None
    assert step is not None
    assert (used.calls, used.calls_uncertain, used.tokens, used.cost_usd) == (6, 1, 55, Decimal("1.25"))
    assert (step.calls, step.tokens) == (3, 33)


def test_a_budget_that_is_not_given_any_more_limits_nothing_and_counts_on(new_ledger: New) -> None:
    ran = chain(ledger := new_ledger(budget=Budget(max_calls=2)), 5, _fail_at(2))
    with pytest.raises(ValueError, match="at 2"):
        ledger.execute()
    more = chain(ledger := new_ledger(), 5, _fail_at(5))
    with pytest.raises(ValueError, match="at 5"):
        ledger.execute()
    used = ledger.bind("r1").budget()
    assert used is not None
    assert (used.limits, used.calls, used.calls_left) == (None, 6, None)
    chain(ledger := new_ledger(budget=Budget(max_calls=6)), 5, lambda _: None)
    with pytest.raises(BudgetExceeded, match="6 of 6 calls"):
        ledger.execute()
    assert (ran, more) == ([1, 2], [2, 3, 4, 5])


def test_the_start_keeps_the_limits(new_ledger: New) -> None:
    ledger = new_ledger(budget=Budget(max_calls=9, max_cost_usd="1.50"))
    chain(ledger, 1, lambda _: None, budget=Budget(max_tokens=7))
    ledger.execute()
    start = records_of(ledger, RecordKind.START)[0]
    content: Any = codecs.unpack(start.encoding, start.payload)
    assert content["budget"] == {"": {"max_calls": 9, "max_cost_usd": "1.50"}, "call 1": {"max_tokens": 7}}
    chain(other := new_ledger("r2"), 1, lambda _: None)
    other.execute()
    start = records_of(other, RecordKind.START, run_id="r2")[0]
    content = codecs.unpack(start.encoding, start.payload)
    assert "budget" not in content


def test_what_is_no_budget_is_misuse(new_ledger: New) -> None:
    with pytest.raises(Misuse) as raised:
        new_ledger(budget=10)
    assert raised.value.code == "bad_budget"
    with pytest.raises(Misuse) as raised:
        new_ledger().bind("r1", budget={"max_calls": 1})  # type: ignore[arg-type]
    assert raised.value.code == "bad_budget"


def test_a_cancelled_run_is_not_quarantined_by_its_budget(new_ledger: New) -> None:
    ledger = new_ledger(budget=Budget(max_calls=1))
    context = ledger._opened.context()
    chain(ledger, 2, lambda _: decide(context, "r1", RunEvent.CANCEL, reason="no", actor="op") and None)
    with pytest.raises(Exception, match="cancelled"):
        ledger.execute()
    assert row_of(ledger).state is RunState.CANCELLED
