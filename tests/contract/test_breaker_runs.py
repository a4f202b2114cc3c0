"""The breaker in live runs: what the agent is told, how a run is stopped, released and gone on with."""

from __future__ import annotations

import logging
from contextlib import suppress
from pathlib import Path

import pytest

from agent_run_ledger import (
    LoopDetected,
    Pending,
    Run,
    RunLedger,
    RunQuarantined,
    Vetoed,
)
from agent_run_ledger.kernel.states import RunEvent
from agent_run_ledger.testing import check_ledger
from tests.contract.breaker_kit import NUDGE, TOO_LARGE, Agent, die_after, judged, levels, stopped, times, within
from tests.contract.run_kit import operate


@pytest.fixture
def agent(tmp_path: Path) -> Agent:
    return Agent(tmp_path / "ledger.db")


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


def test_a_result_that_shows_a_loop_is_kept_and_restored_after_the_release(agent: Agent) -> None:
    agent.answers["read"] = lambda count, _: TOO_LARGE
    with pytest.raises(LoopDetected):
        agent.call_until_stopped()
    operate(agent.ledger, RunEvent.RELEASE)
    with agent.ledger.run():
        assert [agent.read(path="/big")[: len(TOO_LARGE)] for _ in range(4)] == [TOO_LARGE] * 4
    assert len(agent.bodies) == 4


def test_a_call_that_was_tried_again_after_a_restart_is_one_call(agent: Agent) -> None:
    agent.answers["read"] = FileNotFoundError("no such file: /big")

    def ask(_: Run) -> None:
        agent.read(path="/big")

    for _ in range(6):
        with pytest.raises(FileNotFoundError):
            within(agent, ask)
    assert len(agent.bodies) == 6, "the last thing that failed is tried again at each start"
    agent.ledger.close()
    assert set(levels(agent.path)) == {"OK"}
    check_ledger(agent.path)


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
