"""The breaker in live runs: what it judges, what the agent is told, how a run is stopped, released and gone on with."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agent_run_ledger import (
    LoopDetected,
    LoopDetectorPolicy,
    Misuse,
    Pending,
    Run,
    RunLedger,
    RunQuarantined,
    Tool,
    Vetoed,
)
from agent_run_ledger.kernel.states import RunEvent
from agent_run_ledger.runs import breaker
from agent_run_ledger.runs.judged import JudgedCall, judged_calls
from agent_run_ledger.store import open_sqlite
from agent_run_ledger.testing import LedgerBroken, check_ledger
from tests.contract.run_kit import operate

TOO_LARGE = "error: the file is too large to be read at once"
NUDGE = "[agent-run-ledger]"


class Agent:
    """A ledger with tools that count their bodies."""

    def __init__(self, path: Path, **settings: Any) -> None:
        self.path = path
        self.ledger = RunLedger("r1", path, **settings)
        self.bodies: list[str] = []
        self.answers: dict[str, Any] = {}

        def tool(name: str, **rules: Any) -> Any:
            def body(**arguments: Any) -> Any:
                self.bodies.append(name)
                answer = self.answers.get(name, TOO_LARGE)
                answer = answer(len(self.bodies), arguments) if callable(answer) else answer
                if isinstance(answer, Exception):
                    raise answer
                return answer

            return (
                self.ledger.add(Tool(body, name=name, **rules))
                if rules.pop("add", None)
                else self.ledger.tool(name=name, **rules)(body)
            )

        self.read = tool("read", safe=True)
        self.write = tool("write")
        self.find = tool("find", safe=True)
        self.watch = tool("job_state", safe=True, poll=True)
        self.quote = tool("quote", safe=True, volatile=("eta",))

    def call_until_stopped(self, most: int = 20, run_id: str = "r1", **arguments: Any) -> int:
        """Call `read` until the breaker stops the run, and return which call was the last, 0 for none."""
        with self.ledger.run(run_id):
            for number in range(1, most + 1):
                try:
                    self.read(**{"path": "/big", **arguments})
                except LoopDetected:
                    return number
        return 0


class Died(Exception):
    """The process ended before its run did."""


def stopped(agent: Agent, act: Callable[[Run], object]) -> LoopDetected:
    """Do this in the agent's run, which the breaker stops, and return how it says so."""
    with pytest.raises(LoopDetected) as caught:
        _within(agent, act)
    return caught.value


def die_after(agent: Agent, act: Callable[[Run], object]) -> None:
    """Do this in the agent's run, which then fails: the next attempt goes on with it."""

    def work(run: Run) -> None:
        act(run)
        raise Died

    with pytest.raises(Died):
        _within(agent, work)


def _within(agent: Agent, act: Callable[[Run], object]) -> None:
    with agent.ledger.run() as run:
        act(run)


def times(count: int, call: Callable[[], object]) -> Callable[[Run], object]:
    """Make the same call so many times."""
    return lambda _: [call() for _ in range(count)]


@pytest.fixture
def agent(tmp_path: Path) -> Agent:
    return Agent(tmp_path / "ledger.db")


def judged(path: Path, run_id: str = "r1") -> list[JudgedCall]:
    store = open_sqlite(path, create=False)
    try:
        row = store.reader().find_run(run_id)
        assert row is not None
        return list(judged_calls(store.reader(), row))
    finally:
        store.close()


def levels(path: Path, run_id: str = "r1") -> list[str]:
    return [call.verdict.level.name for call in judged(path, run_id)]


def test_the_same_call_with_the_same_answer_is_warned_of_nudged_and_stopped(
    agent: Agent, caplog: pytest.LogCaptureFixture
) -> None:
    answers: list[str] = []
    with caplog.at_level(logging.WARNING):
        error = stopped(agent, times(10, lambda: answers.append(agent.read(path="/big"))))
    assert answers[:2] == [TOO_LARGE, TOO_LARGE]
    assert answers[2].startswith(f"{TOO_LARGE}\n\n{NUDGE}")
    assert len(agent.bodies) == 4
    assert error.code == "loop_detected"
    assert isinstance(error, RunQuarantined)
    assert "QUARANTINE" in str(error)
    assert "3 of 3" in str(error)
    assert "runs release" in error.hint
    assert agent.ledger.bind("r1").state == "quarantined"
    assert [record.message.split(": ")[0] for record in caplog.records] == ["run 'r1', tool 'read'"] * 3
    agent.ledger.close()
    assert levels(agent.path) == ["OK", "WARN", "NUDGE", "QUARANTINE"]
    check_ledger(agent.path)


def test_who_swallows_the_stop_gets_it_at_every_call_and_runs_nothing(agent: Agent) -> None:
    def stubborn(_: Run) -> None:
        for _ in range(30):
            with suppress(LoopDetected):
                agent.read(path="/big")

    stopped(agent, stubborn)
    assert len(agent.bodies) == 4


def test_a_stopped_run_is_refused_until_it_is_released_and_then_counted_anew(agent: Agent) -> None:
    with pytest.raises(LoopDetected):
        agent.call_until_stopped()
    with pytest.raises(LoopDetected) as again:
        agent.call_until_stopped()
    assert "arl breaker explain" in again.value.hint
    assert "arl runs release" in again.value.hint
    assert len(agent.bodies) == 4
    operate(agent.ledger, RunEvent.RELEASE)
    with pytest.raises(LoopDetected):
        agent.call_until_stopped()
    assert len(agent.bodies) == 4 + 4, "the first four are restored; the count begins anew after the release"
    agent.ledger.close()
    assert levels(agent.path) == ["OK", "WARN", "NUDGE", "QUARANTINE"] * 2
    check_ledger(agent.path)


def test_what_was_told_with_a_restored_result_is_told_again(agent: Agent) -> None:
    for _ in range(3):
        answers: list[str] = []
        die_after(agent, times(3, lambda: answers.append(agent.read(path="/big"))))
        assert answers[:2] == [TOO_LARGE] * 2
        assert answers[2].count(NUDGE) == 1
    assert len(agent.bodies) == 3, "a nudged result is restored as it was read"
    agent.ledger.close()
    assert levels(agent.path) == ["OK", "WARN", "NUDGE"]


def test_restored_calls_do_not_count(agent: Agent) -> None:
    for _ in range(4):
        answers: list[str] = []
        die_after(agent, times(2, lambda: answers.append(agent.read(path="/big"))))
        assert answers == [TOO_LARGE] * 2
    assert len(agent.bodies) == 2


def test_the_count_goes_on_in_the_next_attempt(agent: Agent) -> None:
    die_after(agent, times(3, lambda: agent.read(path="/big")))
    other = Agent(agent.path)
    with pytest.raises(LoopDetected):
        other.call_until_stopped()
    assert len(other.bodies) == 1, "three were restored, the fourth is the one too many"


@pytest.mark.parametrize("value", [{"error": "too large"}, None, 7, ["too", "large"]])
def test_what_no_text_can_carry_waits_in_the_run(agent: Agent, value: object) -> None:
    agent.answers["read"] = value
    for life in range(2):
        told: list[str | None] = []

        def listen(run: Run, told: list[str | None] = told) -> None:
            for _ in range(3):
                assert agent.read(path="/big") == value
                told.append(run.nudge())

        die_after(agent, listen)
        assert told[:2] == [None, None], life
        assert told[2] is not None
        assert told[2].startswith(NUDGE)
    assert len(agent.bodies) == 3


def test_the_nudge_of_an_error_waits_in_the_run_and_is_the_same_after_a_restart(agent: Agent) -> None:
    agent.answers["read"] = FileNotFoundError("no such file: /big")
    told: list[list[str | None]] = []
    for _ in range(2):
        texts: list[str | None] = []

        def listen(run: Run, texts: list[str | None] = texts) -> None:
            for _ in range(3):
                with pytest.raises(FileNotFoundError):
                    agent.read(path="/big")
                texts.append(run.nudge())
                run.value("step", lambda: 1)  # the agent went on

        die_after(agent, listen)
        told.append(texts)
    assert told[0] == told[1]
    assert told[0][:2] == [None, None]
    assert (told[0][2] or "").startswith(NUDGE)
    assert len(agent.bodies) == 3


def test_the_user_speaking_begins_new_counts_also_after_a_restart(agent: Agent) -> None:
    def talk(run: Run) -> None:
        for _ in range(3):
            run.turn()
            for _ in range(3):
                agent.read(path="/big")

    for _ in range(2):
        die_after(agent, talk)
    assert len(agent.bodies) == 9
    agent.ledger.close()
    assert levels(agent.path) == ["OK", "WARN", "NUDGE"] * 3
    check_ledger(agent.path)


def test_a_turn_of_an_earlier_attempt_still_counts(agent: Agent) -> None:
    def talk(run: Run) -> None:
        for _ in range(3):
            agent.read(path="/big")
        run.turn()

    die_after(agent, talk)
    other = Agent(agent.path)
    with other.ledger.run() as run:
        for _ in range(3):
            other.read(path="/big")
        run.turn()
        for _ in range(3):
            other.read(path="/big")
    assert len(other.bodies) == 3


def test_what_waits_for_a_decision_is_no_loop(agent: Agent) -> None:
    agent.answers["write"] = Pending("the approval is not there yet")

    def ask(_: Run) -> None:
        for _ in range(12):
            with pytest.raises(Pending):
                agent.write(order=7)

    die_after(agent, ask)
    agent.ledger.close()
    assert levels(agent.path) == []


def test_a_vetoed_call_is_recorded_and_counts(agent: Agent) -> None:
    agent.answers["write"] = Vetoed("nobody may delete orders")

    def ask(_: Run) -> None:
        for _ in range(12):
            with suppress(Vetoed):
                agent.write(order=7)

    stopped(agent, ask)
    assert len(agent.bodies) == 4
    agent.ledger.close()
    assert {call.stored.record.kind.name for call in judged(agent.path)} == {"ERROR"}


def test_tries_of_one_call_are_no_repetitions(tmp_path: Path) -> None:
    ledger = RunLedger("r1", tmp_path / "ledger.db")
    tries: list[int] = []

    @ledger.tool(safe=True, retries=6, retry_base_s=0, retry_cap_s=0)
    def flaky() -> str:
        tries.append(1)
        raise ValueError("the same error each time")

    with pytest.raises(ValueError, match="the same"), ledger.run():
        flaky()
    assert len(tries) == 7
    ledger.close()
    assert levels(tmp_path / "ledger.db") == ["OK"]


def test_steps_are_not_judged(tmp_path: Path) -> None:
    ledger = RunLedger("r1", tmp_path / "ledger.db")

    @ledger.step
    def ask(question: str) -> str:
        return "I do not know"

    with ledger.run():
        for _ in range(30):
            ask("why?")
    ledger.close()
    assert judged(tmp_path / "ledger.db") == []


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
            _within(agent, read_all)
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


def test_a_result_that_shows_a_loop_is_kept_and_restored_after_the_release(agent: Agent) -> None:
    agent.answers["read"] = lambda count, _: TOO_LARGE
    with pytest.raises(LoopDetected):
        agent.call_until_stopped()
    operate(agent.ledger, RunEvent.RELEASE)
    with agent.ledger.run():
        assert [agent.read(path="/big")[: len(TOO_LARGE)] for _ in range(4)] == [TOO_LARGE] * 4
    assert len(agent.bodies) == 4


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


def test_a_call_that_was_tried_again_after_a_restart_is_one_call(agent: Agent) -> None:
    agent.answers["read"] = FileNotFoundError("no such file: /big")

    def ask(_: Run) -> None:
        agent.read(path="/big")

    for _ in range(6):
        with pytest.raises(FileNotFoundError):
            _within(agent, ask)
    assert len(agent.bodies) == 6, "the last thing that failed is tried again at each start"
    agent.ledger.close()
    assert set(levels(agent.path)) == {"OK"}
    check_ledger(agent.path)


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


def test_vetoes_of_different_calls_are_no_answers(agent: Agent) -> None:
    agent.answers["write"] = Vetoed("this tool may not be used")

    def ask(_: Run) -> None:
        for order in ("delete all orders of the year", "send the invoice again", "what is this", "rename a thing"):
            with suppress(Vetoed):
                agent.write(order=order)

    with agent.ledger.run() as run:
        ask(run)
    agent.ledger.close()
    assert levels(agent.path) == ["OK"] * 4


def test_check_ledger_finds_a_verdict_that_the_log_does_not_lead_to(
    agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(breaker, "kept_verdict", lambda verdict, record_ids: {"l": 1, "r": "again"})
    die_after(agent, times(2, lambda: agent.read(path="/big")))
    monkeypatch.undo()
    agent.ledger.close()
    with pytest.raises(LedgerBroken, match="its verdict is not what the log leads to"):
        check_ledger(agent.path)
