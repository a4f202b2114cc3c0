"""What the breaker judges in live runs: branches, children, polling, policies, and its verdicts on record."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agent_run_ledger import (
    Budget,
    BudgetExceeded,
    LoopDetected,
    LoopDetectorPolicy,
    Misuse,
    Run,
    RunCancelled,
    RunLedger,
    Tool,
)
from agent_run_ledger.runs import breaker
from agent_run_ledger.runs.judged import judged_calls
from agent_run_ledger.store import open_sqlite
from agent_run_ledger.testing import LedgerBroken, check_ledger
from tests.contract.breaker_kit import TOO_LARGE, Agent, die_after, judged, levels, stopped, times, within


@pytest.fixture
def agent(tmp_path: Path) -> Agent:
    return Agent(tmp_path / "ledger.db")


def test_a_ledger_without_a_policy_stops_nothing_and_keeps_no_glimpse(tmp_path: Path) -> None:
    agent = Agent(tmp_path / "ledger.db", policy=None)
    assert agent.call_until_stopped(12) == 0
    assert len(agent.bodies) == 12
    agent.ledger.close()
    assert judged(agent.path) == []


def test_polling_has_its_own_limit(agent: Agent) -> None:
    agent.answers["job_state"] = {"state": "working"}
    error = stopped(agent, times(40, lambda: agent.watch(job=7)))
    assert len(agent.bodies) == 13, "four times the repetitions, and the first call"
    assert "answer never changed" in str(error)


def test_an_answer_that_changes_is_no_poll_without_end(agent: Agent) -> None:
    agent.answers["job_state"] = lambda count, _: {"state": "working", "done": count}
    with agent.ledger.run():
        for _ in range(60):
            agent.watch(job=7)
    assert len(agent.bodies) == 60


def test_volatile_keys_of_a_tool_say_nothing(agent: Agent) -> None:
    agent.answers["quote"] = lambda count, _: {"price": "none", "eta": f"in {count} weeks and {count} days"}
    stopped(agent, times(12, lambda: agent.quote(item=5)))
    assert len(agent.bodies) == 4


@pytest.mark.parametrize("volatile", ["eta", [7], [""], 5])
def test_volatile_is_a_list_of_keys(volatile: Any) -> None:
    with pytest.raises(Misuse, match="volatile"):
        Tool(lambda: 1, name="t", volatile=volatile)


def test_calls_that_were_made_at_once_count_once(agent: Agent) -> None:
    """Five answers that came together are no five answers that were not listened to."""
    agent.answers["find"] = "nothing found for this query in any of the archives"
    with agent.ledger.run() as run:
        for query in ("first", "second", "third"):
            run.map(lambda n, q=query: agent.find(query=f"{q} {n}"), range(5))
    assert len(agent.bodies) == 15


def test_what_is_asked_again_and_again_at_once_is_stopped(agent: Agent) -> None:
    agent.answers["find"] = "nothing found for this query in any of the archives"

    def ask(run: Run) -> None:
        for _ in range(20):
            run.map(lambda n: agent.find(query=f"query {n}"), range(3))

    stopped(agent, ask)
    assert len(agent.bodies) <= 3 * 6
    agent.ledger.close()
    check_ledger(agent.path)


def test_each_run_has_a_detector_of_its_own(agent: Agent) -> None:
    with agent.ledger.run():
        for number in range(6):
            with agent.ledger.run(f"child-{number}"):
                for _ in range(2):
                    agent.read(path="/big")
    assert len(agent.bodies) == 12


def test_a_child_that_goes_in_circles_is_stopped_alone(agent: Agent) -> None:
    with agent.ledger.run():
        with pytest.raises(LoopDetected):
            agent.call_until_stopped(run_id="child")
        assert agent.find(query="something else") == TOO_LARGE
    assert agent.ledger.bind("child").state == "quarantined"
    assert agent.ledger.bind("r1").state == "completed"


def test_a_loop_of_async_tools_is_stopped(tmp_path: Path) -> None:
    ledger = RunLedger("r1", tmp_path / "ledger.db")
    bodies: list[int] = []

    @ledger.tool(safe=True)
    async def read(path: str) -> str:
        bodies.append(1)
        return TOO_LARGE

    async def main() -> None:
        async with ledger.run():
            for _ in range(10):
                await read("/big")

    with pytest.raises(LoopDetected):
        asyncio.run(main())
    assert len(bodies) == 4
    ledger.close()
    check_ledger(tmp_path / "ledger.db")


def test_the_inputs_rule_halts_what_the_outcome_rule_lets_be(tmp_path: Path) -> None:
    halted: dict[str, int] = {}
    for rule in ("outcome", "inputs"):
        agent = Agent(tmp_path / f"{rule}.db", policy=LoopDetectorPolicy(rule=rule))
        agent.answers["read"] = lambda count, _: f"page {count} has words that no page before it had: {count * 'x'}"

        def read_all(_: Run, agent: Agent = agent) -> None:
            for page in range(12):
                agent.read(path="/an/archive/of/invoices/that/has/a/long/name/and/many/pages", page=page)

        try:
            within(agent, read_all)
        except LoopDetected:
            halted[rule] = len(agent.bodies)
    assert halted == {"inputs": 3}


def test_another_policy_judges_what_is_on_record_by_its_own_rules(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    agent = Agent(path, policy=LoopDetectorPolicy(max_repetitions=9))
    die_after(agent, times(4, lambda: agent.read(path="/big")))
    agent.ledger.close()
    other = Agent(path)
    with pytest.raises(LoopDetected):
        other.call_until_stopped()
    assert len(other.bodies) == 1
    other.ledger.close()
    assert levels(path)[-1] == "QUARANTINE"
    check_ledger(path)


def test_the_decision_says_which_tool_by_which_rule_and_on_which_records_it_rests(agent: Agent) -> None:
    with pytest.raises(LoopDetected):
        agent.call_until_stopped()
    agent.ledger.close()
    calls = judged(agent.path)
    last = calls[-1]
    assert len(last.record_ids) >= 2
    assert set(last.record_ids) <= {call.stored.record_id for call in calls[:-1]}
    assert last.agrees
    assert "New would have been" in last.verdict.explain()


def test_an_outage_during_calls_that_were_made_at_once_counts_once(agent: Agent) -> None:
    agent.answers["find"] = TimeoutError("connection timed out after 30 s")
    with agent.ledger.run() as run, suppress(TimeoutError):
        run.map(lambda n: agent.find(query=f"query {n}"), range(12))
    assert len(agent.bodies) == 12
    assert agent.ledger.bind("r1").state == "completed"


def test_the_same_poll_at_once_is_compared_with_what_was_known_before(agent: Agent) -> None:
    agent.answers["job_state"] = {"state": "working"}
    with agent.ledger.run() as run:
        for _ in range(2):
            run.map(lambda _: agent.watch(job=7), range(12))
    assert len(agent.bodies) == 24


def test_a_verdict_that_the_log_does_not_lead_to_is_found(agent: Agent) -> None:
    die_after(agent, times(3, lambda: agent.read(path="/big")))
    agent.ledger.close()
    store = open_sqlite(agent.path, create=False)
    try:
        row = store.reader().find_run("r1")
        assert row is not None
        calls = list(judged_calls(store.reader(), row))
    finally:
        store.close()
    assert all(call.agrees for call in calls)
    assert not replace(calls[-1], said={**(calls[-1].said or {}), "c": 9}).agrees
    assert not replace(calls[-1], said=None).agrees
    assert not replace(calls[0], said=calls[-1].said).agrees


@pytest.mark.parametrize("limit", [1, 5])
def test_branches_of_one_fan_out_count_once_however_they_ran(agent: Agent, limit: int) -> None:
    agent.answers["find"] = "nothing found for this query in any of the archives"
    with agent.ledger.run() as run:
        run.map(lambda n: agent.find(query=f"query {n}"), range(12), limit=limit)
    assert len(agent.bodies) == 12


def test_a_loop_within_one_branch_is_stopped_whatever_goes_on_beside_it(agent: Agent) -> None:
    agent.answers["find"] = lambda count, _: f"document {count * 'x'} has words that none before it had"

    def busy(which: int) -> None:
        for number in range(12):
            agent.read(path="/big") if which else agent.find(query=f"q{number}")

    stopped(agent, lambda run: run.map(busy, range(2)))
    assert agent.bodies.count("read") == 4


def test_check_ledger_finds_a_verdict_that_the_log_does_not_lead_to(
    agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(breaker, "kept_verdict", lambda verdict, record_ids: {"l": 1, "r": "again"})
    die_after(agent, times(2, lambda: agent.read(path="/big")))
    monkeypatch.undo()
    agent.ledger.close()
    with pytest.raises(LedgerBroken, match="its verdict is not what the log leads to"):
        check_ledger(agent.path)


def test_what_runs_while_the_run_is_stopped_ends_and_its_result_is_kept(agent: Agent) -> None:
    """Nothing that was begun is cut off: a tool that may not be repeated has its outcome on record."""
    over = threading.Event()

    def wait(count: int, arguments: dict[str, Any]) -> str:
        assert over.wait(30)
        return f"order {arguments['order']} was written"

    agent.answers["write"] = wait

    def work(which: int) -> None:
        if not which:
            agent.write(order=7)
            return
        try:
            for _ in range(12):
                agent.read(path="/big")
        finally:
            over.set()

    stopped(agent, lambda run: run.map(work, range(2)))
    assert agent.ledger.bind("r1").state == "quarantined"
    agent.ledger.close()
    results = {call.stored.record.name: call.stored.record.kind.name for call in judged(agent.path)}
    assert results == {"write": "RESULT", "read": "RESULT"}
    check_ledger(agent.path)


def test_a_child_that_is_stopped_has_its_calls_in_the_budget_of_its_parent(tmp_path: Path) -> None:
    agent = Agent(tmp_path / "ledger.db", budget=Budget(max_calls=6))
    with pytest.raises(LoopDetected):
        agent_within(agent)
    assert agent.bodies == ["read"] * 4
    with pytest.raises(BudgetExceeded):
        within(agent, lambda _: [agent.find(query=f"question {number}") for number in range(9)])
    assert agent.bodies.count("find") == 2, "four of the six calls were those of the child"


def agent_within(agent: Agent) -> None:
    with agent.ledger.run(), agent.ledger.run("child"):
        for _ in range(9):
            agent.read(path="/big")


def test_a_cancel_that_comes_before_a_verdict_wins_and_neither_loses_a_result(agent: Agent) -> None:
    def ask(_: Run) -> None:
        for number in range(9):
            if number == 3:
                agent.ledger.bind("r1").cancel("enough")
            agent.read(path="/big")

    with pytest.raises(RunCancelled):
        within(agent, ask)
    assert agent.ledger.bind("r1").state == "cancelled"
    agent.ledger.close()
    check_ledger(agent.path)
