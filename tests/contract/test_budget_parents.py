"""Budgets of runs with runs within them: what a child uses counts above, and what stops a run stops its children."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path

import pytest

from agent_run_ledger import (
    BoundRun,
    Budget,
    BudgetExceeded,
    Reserve,
    RunCancelled,
    RunLedger,
    RunQuarantined,
    RunState,
    Step,
    Unavailable,
)
from agent_run_ledger.kernel.counters import Counters
from agent_run_ledger.kernel.record import RecordKind
from agent_run_ledger.kernel.states import RunEvent
from agent_run_ledger.kernel.usage import Usage
from agent_run_ledger.runs.batches import Batch
from agent_run_ledger.runs.budgets import read_counters
from agent_run_ledger.runs.operate import decide
from agent_run_ledger.testing import check_ledger
from agent_run_ledger.testing.budget_check import budget_problems
from tests.contract.budget_kit import Hand, SetClock
from tests.contract.run_kit import marks_of, row_of, store_of

ASKED = Usage(model="m", input_tokens=60, output_tokens=10, cost_usd=Decimal("0.1"), prices="reported")


@pytest.fixture
def ledger(new_ledger: Callable[..., RunLedger], db: Path) -> Iterator[RunLedger]:
    """A ledger without steps; after each test its counters are what its records say."""
    yield new_ledger()
    check_ledger(db)


def counters(ledger: RunLedger, run_id: str, tool: str = "") -> Counters:
    return read_counters(store_of(ledger).reader().budgets(row_of(ledger, run_id).row_id)[tool], tool)


def test_what_a_child_uses_counts_in_every_run_above_it_and_in_their_steps(ledger: RunLedger) -> None:
    top = Hand(ledger, "top", budgets={"": Budget(max_calls=9), "ask": Budget(max_tokens=900)})
    middle = Hand(ledger, "top/1", within=top)
    child = Hand(ledger, "top/1/1", within=middle, budgets={"": Budget(max_tokens=100)})
    top.end(top.begin("plan"), ASKED)
    middle.end(middle.begin("ask"), ASKED, kind=RecordKind.ERROR)
    first, second = child.begin("ask", Reserve(tokens=80)), child.begin("other")
    assert counters(ledger, "top").calls_in_flight == 2
    assert counters(ledger, "top", "ask").reserved_tokens == 80
    child.end(first, ASKED)
    child.end(second)
    assert (counters(ledger, "top").calls, counters(ledger, "top").tokens) == (4, 210)
    assert (counters(ledger, "top", "ask").calls, counters(ledger, "top", "ask").tokens) == (2, 140)
    assert (counters(ledger, "top/1/1").calls, counters(ledger, "top/1/1").tokens) == (2, 70)
    assert store_of(ledger).reader().budgets(row_of(ledger, "top/1").row_id) == {}


def test_a_call_of_a_child_that_exceeds_the_budget_above_quarantines_the_run_above(ledger: RunLedger) -> None:
    parent = Hand(ledger, "parent", budgets={"": Budget(max_calls=2)})
    child = Hand(ledger, "child", within=parent, budgets={"": Budget(max_calls=50)})
    kept = child.begin()
    child.end(child.begin())
    with pytest.raises(BudgetExceeded, match="'parent', which run 'child' is part of, was stopped by its budget: 2 of"):
        child.begin()
    assert (row_of(ledger, "parent").state, row_of(ledger, "child").state) == (RunState.QUARANTINED, RunState.RUNNING)
    assert len(marks_of(ledger, "child")) == 1
    child.end(kept)
    child.fail()
    assert row_of(ledger, "child").state is RunState.FAILED
    with pytest.raises(BudgetExceeded, match="run 'parent' was stopped by its budget"):
        parent.begin()
    assert counters(ledger, "child").calls == 2


def test_a_childs_own_budget_stops_the_child_alone(ledger: RunLedger) -> None:
    parent = Hand(ledger, "parent", budgets={"": Budget(max_calls=9)})
    child = Hand(ledger, "child", within=parent, budgets={"": Budget(max_calls=1)})
    child.end(child.begin())
    with pytest.raises(BudgetExceeded, match="run 'child' was stopped by its budget: 1 of 1 calls"):
        child.begin()
    parent.end(parent.begin())
    assert (row_of(ledger, "parent").state, row_of(ledger, "child").state) == (RunState.RUNNING, RunState.QUARANTINED)


@pytest.mark.parametrize(("event", "kind"), [(RunEvent.QUARANTINE, RunQuarantined), (RunEvent.CANCEL, RunCancelled)])
def test_nothing_starts_in_a_run_within_a_stopped_one(
    ledger: RunLedger, event: RunEvent, kind: type[Exception]
) -> None:
    top = Hand(ledger, "top")
    child = Hand(ledger, "child", within=Hand(ledger, "middle", within=top))
    kept = child.begin()
    decide(ledger._opened.context(), "top", event, reason="enough", actor="op")
    with pytest.raises(kind, match=r"'top', which run 'child' is part of, was \w+ while it ran"):
        child.begin()
    assert child.end(kept).state is RunState.RUNNING
    assert len(marks_of(ledger, "child")) == 0


def test_a_completed_run_above_is_not_quarantined_and_refuses_all_the_same(ledger: RunLedger) -> None:
    parent = Hand(ledger, "parent", budgets={"": Budget(max_calls=1)})
    child = Hand(ledger, "child", within=parent)
    item = parent.end(parent.begin("ask")).record_ids[0]
    parent.journal.commit(
        Batch(end_state=RunState.COMPLETED, end=lambda _: {"results": {"ask": item}, "used": [item], "reason": ""})
    )
    with pytest.raises(BudgetExceeded, match="1 of 1 calls"):
        child.begin()
    assert row_of(ledger, "parent").state is RunState.COMPLETED


def test_a_budget_that_a_run_gets_while_a_child_lives_counts_the_child_from_then_on(ledger: RunLedger) -> None:
    parent = Hand(ledger, "parent")
    child = Hand(ledger, "child", within=parent)
    child.end(child.begin(), ASKED)
    in_flight = child.begin("ask", Reserve(tokens=5))
    parent.die()
    again = Hand(ledger, "parent", budgets={"": Budget(max_calls=3)})
    assert (counters(ledger, "parent").calls, counters(ledger, "parent").reserved_tokens) == (2, 5)
    child.end(in_flight, ASKED)
    child.end(child.begin(), ASKED)
    assert counters(ledger, "parent").tokens == 210
    with pytest.raises(BudgetExceeded, match="3 of 3 calls"):
        again.begin()


def test_what_a_dead_attempt_left_is_uncertain_from_the_next_start_on_and_stays_counted(ledger: RunLedger) -> None:
    budgets = {"": Budget(max_tokens=100)}
    parent = Hand(ledger, "parent", budgets=budgets)
    child = Hand(ledger, "child", within=parent, budgets=budgets)
    child.begin("ask", Reserve(tokens=60, cost_usd="0.5"))
    child.die()
    with pytest.raises(BudgetExceeded, match=r"60 of 100 tokens \(0 spent, 60 reserved, .* may use 50\)"):
        parent.begin("ask", Reserve(tokens=50))
    again = Hand(ledger, "child", within=parent, budgets=budgets)
    for run_id in ("parent", "child"):
        held = counters(ledger, run_id)
        assert (held.calls, held.calls_in_flight, held.calls_uncertain) == (1, 0, 1)
        assert (held.reserved_tokens, held.uncertain_tokens, held.uncertain_cost_usd) == (0, 60, Decimal("0.5"))
    decide(ledger._opened.context(), "parent", RunEvent.RELEASE, reason="go on", actor="op")
    again.end(again.begin("ask", Reserve(tokens=40)))
    with pytest.raises(BudgetExceeded, match=r"60 of 100 tokens \(0 spent, 60 uncertain, .* may use 41\)"):
        again.begin("ask", Reserve(tokens=41))


def test_a_call_that_is_given_up_stays_counted(new_ledger: Callable[..., RunLedger]) -> None:
    ledger = new_ledger()
    hand = Hand(ledger, "r1", budgets={"": Budget(max_calls=2), "ask": Budget(max_tokens=10)})
    hand.leave(hand.begin("ask", Reserve(tokens=7)))
    assert (counters(ledger, "r1").calls_uncertain, counters(ledger, "r1", "ask").uncertain_tokens) == (1, 7)
    assert list(budget_problems(store_of(ledger).reader(), row_of(ledger, "r1"))) == []
    with pytest.raises(BudgetExceeded, match="of 'ask': 7 of 10 tokens"):
        hand.begin("ask", Reserve(tokens=4))


def test_the_starts_of_a_batch_up_to_the_first_that_does_not_fit_are_recorded(ledger: RunLedger) -> None:
    hand = Hand(ledger, "r1", budgets={"": Budget(max_tokens=100)})
    small, large = Reserve(tokens=40), Reserve(tokens=90)
    started, written = hand.begin_all([("a", small), ("b", small), ("c", large), ("d", small)])
    assert [start.identity.name for start in started] == ["a", "b"]
    assert (written.started, written.state) == (2, RunState.QUARANTINED)
    assert [mark.name for mark in marks_of(ledger)] == ["a", "b"]
    for start in started:
        hand.end(start, ASKED)
    assert counters(ledger, "r1").tokens == 140


def test_a_result_that_comes_after_the_quarantine_is_settled(ledger: RunLedger) -> None:
    hand = Hand(ledger, "r1", budgets={"": Budget(max_calls=1)})
    kept = hand.begin("ask", Reserve(tokens=80))
    with pytest.raises(BudgetExceeded):
        hand.begin()
    hand.end(kept, ASKED)
    held = counters(ledger, "r1")
    assert (held.tokens, held.reserved_tokens, held.calls_in_flight) == (70, 0, 0)


def test_counters_of_a_commit_that_failed_are_read_anew(ledger: RunLedger, monkeypatch: pytest.MonkeyPatch) -> None:
    hand = Hand(ledger, "r1", budgets={"": Budget(max_calls=3)})
    hand.end(hand.begin())

    def fail(*_: object) -> None:
        raise Unavailable("no room")

    with monkeypatch.context() as patch:
        patch.setattr(hand.journal, "_mark", fail)
        for _ in range(5):
            with pytest.raises(Unavailable):
                hand.begin()
    hand.end(hand.begin())
    assert (counters(ledger, "r1").calls, counters(ledger, "r1").calls_in_flight) == (2, 0)


def test_a_superseded_attempt_changes_no_counters(ledger: RunLedger) -> None:
    budgets = {"": Budget(max_calls=5)}
    old = Hand(ledger, "r1", budgets=budgets)
    kept = old.begin()
    decide(ledger._opened.context(), "r1", RunEvent.TAKEOVER, reason="stuck", actor="op")
    new = Hand(ledger, "r1", budgets=budgets, takeover=True)
    for act in (lambda: old.end(kept), old.begin):
        with pytest.raises(Exception, match="taken over"):
            act()
    held = counters(ledger, "r1")
    assert (held.calls, held.calls_uncertain, held.calls_in_flight) == (1, 1, 0)
    new.begin()
    old.attempt.close()


def test_sixteen_children_in_threads_of_their_own_start_exactly_ten_calls(ledger: RunLedger) -> None:
    parent = Hand(ledger, "parent", budgets={"": Budget(max_calls=10)})
    children = [Hand(ledger, f"child {at}", within=parent) for at in range(16)]
    ready, bodies, refused = threading.Barrier(16), list[str](), list[str]()

    def work(child: Hand) -> None:
        ready.wait(30)
        try:
            started = child.begin()
        except BudgetExceeded:
            refused.append(child.run_id)
        else:
            bodies.append(child.run_id)
            child.end(started)

    threads = [threading.Thread(target=work, args=(child,)) for child in children]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(bodies), len(refused)) == (10, 6)
    assert row_of(ledger, "parent").state is RunState.QUARANTINED


def pipeline_within(parent: Hand, ran: list[int], *, chained: bool) -> BoundRun:
    """Return a pipeline of sixteen steps whose run is within `parent`."""
    Hand(parent.ledger, "child", within=parent).die()
    ledger = RunLedger("child", parent.ledger.db_path, max_parallel=16)
    for at in range(16):
        needs = [f"s{at - 1}"] if chained and at else []
        ledger.add(Step(lambda at=at: ran.append(at), name=f"s{at}", depends_on=needs))  # type: ignore[misc]
    return ledger.bind("child")


@pytest.mark.parametrize("chained", [False, True])
def test_a_pipeline_within_a_run_runs_what_fits_and_ends_as_failed(ledger: RunLedger, chained: bool) -> None:
    parent = Hand(ledger, "parent", budgets={"": Budget(max_calls=10)})
    ran: list[int] = []
    child = pipeline_within(parent, ran, chained=chained)
    with pytest.raises(BudgetExceeded, match=r"run 'parent', which run 'child' is part of, .* 10 of 10 calls"):
        child.execute()
    assert sorted(ran) == list(range(10))
    assert (row_of(ledger, "parent").state, row_of(ledger, "child").state) == (RunState.QUARANTINED, RunState.FAILED)
    assert row_of(ledger, "child").reason == "step 's10': BudgetExceeded"
    with pytest.raises(BudgetExceeded):
        child.execute()
    assert len(ran) == 10
    decide(ledger._opened.context(), "parent", RunEvent.RELEASE, reason="go on", actor="op")
    parent.die()
    Hand(ledger, "parent", budgets={"": Budget(max_calls=16)})
    child.execute()
    assert sorted(ran) == list(range(16))


def test_the_time_of_a_run_goes_on_while_its_child_works(ledger: RunLedger, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = SetClock.install(monkeypatch)
    clock.now_ms = 4_000_000_000_000
    parent = Hand(ledger, "parent", budgets={"": Budget(max_wall_s=10)})
    child = Hand(ledger, "child", within=parent)
    started = child.begin()
    clock.pass_s(11)
    child.end(started)
    with pytest.raises(BudgetExceeded, match=r"run 'parent', .* 11\.0 of 10 seconds"):
        child.begin()


def test_a_run_that_ends_counts_its_time_to_the_end(ledger: RunLedger, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = SetClock.install(monkeypatch)
    clock.now_ms = 4_000_000_000_000
    hand = Hand(ledger, "r1", budgets={"": Budget(max_wall_s=10)})
    clock.pass_s(7)
    hand.fail()
    clock.pass_s(100)
    again = Hand(ledger, "r1", budgets={"": Budget(max_wall_s=10)})
    clock.pass_s(3)
    with pytest.raises(BudgetExceeded, match=r"10\.0 of 10 seconds"):
        again.begin()
