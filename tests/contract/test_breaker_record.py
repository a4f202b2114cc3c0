"""The breaker of a live run says what its log leads to, and tells the agent the same after every restart."""

from __future__ import annotations

import math
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from agent_run_ledger import LoopDetected, Misuse, Run, RunLedger, Unavailable
from agent_run_ledger.kernel.states import RunEvent
from agent_run_ledger.runs import breaker
from agent_run_ledger.runs.batches import Batch, Written
from agent_run_ledger.runs.breaker import Bench
from agent_run_ledger.runs.journal import Journal
from agent_run_ledger.testing import check_ledger
from tests.contract.breaker_kit import NUDGE, TOO_LARGE, Agent, Died, die_after, judged, levels, times
from tests.contract.run_kit import operate

NOTHING = {"error": "nothing of any use was found"}


@pytest.fixture
def agent(tmp_path: Path) -> Agent:
    return Agent(tmp_path / "ledger.db")


def test_a_release_that_a_live_attempt_never_saw_begins_no_new_count_in_it(agent: Agent) -> None:
    def ask(_: Run) -> None:
        times(2, lambda: agent.read(path="/big"))(_)
        operate(agent.ledger, RunEvent.QUARANTINE)
        operate(agent.ledger, RunEvent.RELEASE)
        agent.read(path="/big")

    die_after(agent, ask)
    die_after(agent, times(4, lambda: agent.read(path="/big")))
    agent.ledger.close()
    assert levels(agent.path) == ["OK", "WARN", "NUDGE", "OK"]
    check_ledger(agent.path)


def test_a_turn_that_is_restored_begins_no_new_count_a_second_time(agent: Agent) -> None:
    def talk(run: Run) -> None:
        agent.read(path="/big")
        run.turn()
        times(2, lambda: agent.read(path="/big"))(run)

    die_after(agent, talk)
    other = Agent(agent.path)

    def talk_otherwise(run: Run) -> None:
        other.read(path="/big")
        other.find(query="what nobody asked before")
        run.turn()
        times(3, lambda: other.read(path="/big"))(run)

    die_after(other, talk_otherwise)
    other.ledger.close()
    assert len(other.bodies) == 2
    assert levels(agent.path)[-1] == "WARN", "the new question's answer was new, and took one repetition back"
    check_ledger(agent.path)


def test_a_turn_that_waits_for_a_later_commit_counts_from_when_it_was_said(
    agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = Journal.commit
    refused: list[int] = []

    def commit(self: Journal, batch: Batch) -> Written:
        if batch.values and not refused:
            refused.append(1)
            raise Unavailable("the disk is full")
        return whole(self, batch)

    def talk(run: Run) -> None:
        times(2, lambda: agent.read(path="/big"))(run)
        monkeypatch.setattr(Journal, "commit", commit)
        with pytest.raises(Unavailable):
            run.turn()
        times(2, lambda: agent.read(path="/big"))(run)

    die_after(agent, talk)
    agent.ledger.close()
    assert levels(agent.path) == ["OK", "WARN"] * 2
    check_ledger(agent.path)


def test_a_call_is_judged_wholly_before_or_wholly_after_a_turn(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    """A turn that is said while a call is being judged lies behind that call on record."""
    judging, said = threading.Event(), threading.Event()
    whole = Bench.judge

    def judge(self: Bench, *args: Any, **more: Any) -> Any:
        answer = whole(self, *args, **more)
        judging.set()
        said.wait(0.2)
        return answer

    def speak(run: Run) -> None:
        judging.wait(20)
        run.turn()
        said.set()

    def talk(run: Run) -> None:
        times(2, lambda: agent.read(path="/big"))(run)
        monkeypatch.setattr(Bench, "judge", judge)
        run.gather(lambda: speak(run), lambda: agent.read(path="/big"))

    die_after(agent, talk)
    monkeypatch.undo()
    agent.ledger.close()
    assert levels(agent.path) == ["OK", "WARN", "NUDGE"]
    check_ledger(agent.path)


def test_a_call_that_could_not_be_recorded_is_not_judged_with(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = Journal.commit
    begun, failed = threading.Event(), threading.Event()

    def answer(_: int, __: object) -> str:
        begun.set()
        failed.wait(20)
        return TOO_LARGE

    def commit(self: Journal, batch: Batch) -> Written:
        if any(item.record.name == "find" for item in batch.concluded):
            raise Unavailable("the disk is full")
        return whole(self, batch)

    def fail() -> None:
        begun.wait(20)
        agent.answers["find"] = "something new, which takes a repetition back"
        with suppress(Unavailable):
            agent.find(query="what is new")
        failed.set()

    def ask(run: Run) -> None:
        times(2, lambda: agent.read(path="/big"))(run)
        agent.answers["read"] = answer
        monkeypatch.setattr(Journal, "commit", commit)
        run.gather(fail, lambda: agent.read(path="/big"))

    die_after(agent, ask)
    agent.ledger.close()
    assert levels(agent.path) == ["OK", "WARN", "NUDGE"]
    check_ledger(agent.path)


def test_a_safe_call_with_a_key_that_fails_again_and_again_is_stopped(tmp_path: Path) -> None:
    ledger, bodies = RunLedger("r1", tmp_path / "ledger.db"), list[int]()

    @ledger.tool(safe=True, key=lambda order: f"order {order}")
    def pay(order: int) -> None:
        bodies.append(order)
        raise ValueError("the card was declined by the bank")

    def insist() -> None:
        with ledger.run():
            for _ in range(9):
                with suppress(ValueError):
                    pay(7)

    with pytest.raises(LoopDetected):
        insist()
    assert len(bodies) == 4
    ledger.close()
    check_ledger(tmp_path / "ledger.db")


def test_what_is_told_within_a_body_is_told_nowhere_else(tmp_path: Path) -> None:
    """A restart restores the whole body, and so would not tell it."""
    told: list[tuple[str | None, str | None]] = []
    for _ in range(2):
        ledger = RunLedger("r1", tmp_path / "ledger.db")
        inside: list[str | None] = []

        @ledger.tool(safe=True)
        def look() -> dict[str, str]:
            return NOTHING

        @ledger.tool(safe=True)
        def delegate(task: str, run: Any = None) -> str:
            for _ in range(3):
                look()
            if task == "listen":
                inside.append(current[0].nudge())
            return f"did {task}"

        current: list[Run] = []
        with suppress(Died), ledger.run() as run:
            current.append(run)
            delegate("something")
            told.append((run.nudge(), None))
            run.turn()
            delegate("listen")
            told.append((run.nudge(), inside[0] if inside else NUDGE))
            raise Died
        ledger.close()
    assert [outside for outside, _ in told] == [None] * 4
    assert all((heard or NUDGE).startswith(NUDGE) for _, heard in told)
    check_ledger(tmp_path / "ledger.db")


def test_what_calls_that_were_made_at_once_are_told_comes_in_the_order_of_their_records(agent: Agent) -> None:
    agent.answers |= {"find": NOTHING, "read": NOTHING}
    told: list[list[str | None]] = []

    def ask_both(run: Run, first: Any, then: Any) -> None:
        done = threading.Event()

        def ask_first() -> None:
            first(query="a")
            done.set()

        def ask_then() -> None:
            done.wait(20)
            then(query="a")

        branches = {first: ask_first, then: ask_then}
        run.gather(branches[agent.find], branches[agent.read])

    for order in ((agent.read, agent.find), (agent.find, agent.read)):
        heard: list[str | None] = []

        def ask(run: Run, heard: list[str | None] = heard, order: Any = order) -> None:
            for _ in range(3):
                ask_both(run, *order)
            heard += [run.nudge(), run.nudge(), run.nudge()]

        die_after(agent, ask)
        told.append(heard)
    assert told[0] == told[1]
    assert [text is None for text in told[0]] == [False, False, True]
    assert "read was called" in (told[0][0] or "")


def test_what_a_tool_ignores_is_not_in_its_glimpse(tmp_path: Path) -> None:
    ledger = RunLedger("r1", tmp_path / "ledger.db")

    @ledger.tool(safe=True, ignore=["options", "rest"])
    def look(what: str, *rest: str, **options: str) -> str:
        return TOO_LARGE

    with suppress(Died), ledger.run():
        look("x", "first", session="the key of Ann")
        look("x", "second", session="what Bob uses to get in")
        raise Died
    ledger.close()
    assert [call.verdict.similarity for call in judged(tmp_path / "ledger.db")] == [0.0, 1.0]


def test_a_result_that_holds_no_number_is_read_like_any_other(agent: Agent) -> None:
    agent.answers["find"] = lambda count, _: {"mean": math.nan, "column": f"{'abcdefghij'[count]} of the table"}
    die_after(agent, times(8, lambda: agent.find(query="next")))
    agent.ledger.close()
    assert set(levels(agent.path)) == {"OK"}


def test_groups_of_exceptions_are_compared_by_what_is_in_them(agent: Agent) -> None:
    group = "unhandled errors in a TaskGroup"
    inner = ["no such column", "a comma is missing", "not for you", "too long", "no such table", "a loop", "what?"]

    def ask(_: Run) -> None:
        for said in inner:
            agent.answers["find"] = ExceptionGroup(group, [ValueError(said)])
            with suppress(ExceptionGroup):
                agent.find(query=f"select something else: {said * 2}")

    die_after(agent, ask)
    agent.ledger.close()
    assert set(levels(agent.path)) == {"OK"}


def test_calls_within_a_body_that_is_tried_again_are_one_call(tmp_path: Path) -> None:
    ledger, tries = RunLedger("r1", tmp_path / "ledger.db"), list[int]()

    @ledger.tool(safe=True)
    def look() -> str:
        raise ValueError("the archive is not there")

    @ledger.tool(safe=True, retries=6, retry_base_s=0, retry_cap_s=0)
    def delegate() -> str:
        tries.append(1)
        return look()

    with pytest.raises(ValueError, match="archive"), ledger.run():
        delegate()
    assert len(tries) == 7
    ledger.close()
    assert set(levels(tmp_path / "ledger.db")) == {"OK"}
    check_ledger(tmp_path / "ledger.db")


def test_what_a_body_was_told_is_forgotten_with_it(tmp_path: Path) -> None:
    ledger, told = RunLedger("r1", tmp_path / "ledger.db"), list[str | None]()

    @ledger.tool(safe=True)
    def look() -> dict[str, str]:
        return NOTHING

    @ledger.tool(safe=True, retries=1, retry_base_s=0, retry_cap_s=0)
    def delegate(current: str) -> str:
        look()
        if told:
            told.append(runs[0].nudge())
        look()
        look()
        if not told:
            told.append(None)
            raise ValueError("try again")
        return current

    runs: list[Run] = []
    with suppress(Died), ledger.run() as run:
        runs.append(run)
        delegate("x")
        raise Died
    ledger.close()
    assert told == [None, None], "the third call was not made yet in this try"


def test_a_turn_that_is_not_on_record_yet_is_known_to_who_reads_the_record(
    agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    die_after(agent, times(2, lambda: agent.read(path="/big")))
    whole = Journal.commit

    def commit(self: Journal, batch: Batch) -> Written:
        if batch.values and not (batch.starts or batch.concluded):
            raise Unavailable("the disk is full")
        return whole(self, batch)

    monkeypatch.setattr(Journal, "commit", commit)

    def talk(run: Run) -> None:
        with suppress(Unavailable):
            run.turn()
        times(4, lambda: agent.read(path="/big"))(run)

    die_after(agent, talk)
    agent.ledger.close()
    assert levels(agent.path) == ["OK", "WARN"] * 2
    check_ledger(agent.path)


def test_no_body_runs_where_what_was_judged_cannot_be_read(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    die_after(agent, times(1, lambda: agent.read(path="/big")))
    monkeypatch.setattr(breaker, "_unpacked", _of_another_version)
    with pytest.raises(Misuse, match="another version"):
        die_after(agent, times(2, lambda: agent.read(path="/big")))
    assert len(agent.bodies) == 1


def _of_another_version(*_: object) -> None:
    raise Misuse("a glimpse of another version", code="bad_glimpse")


@pytest.mark.parametrize("text", ['{"hits": []}', "[1, 2]", '"quoted"', "<list/>", '  {"a": 1}'])
def test_a_text_that_a_program_may_parse_stays_as_it_is(agent: Agent, text: str) -> None:
    agent.answers["read"] = text
    for _ in range(2):
        told: list[str | None] = []

        def listen(run: Run, told: list[str | None] = told) -> None:
            for _ in range(3):
                assert agent.read(path="/big") == text
                told.append(run.nudge())

        die_after(agent, listen)
        assert told[:2] == [None, None]
        assert (told[2] or "").startswith(NUDGE)
