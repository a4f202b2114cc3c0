"""Dynamic runs at their entry and exit: what a restart restores, which states refuse, and who may write."""

from __future__ import annotations

import asyncio
import pathlib
import threading
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from agent_run_ledger import (
    InputsChanged,
    Misuse,
    Pending,
    Refused,
    RunBusy,
    RunCancelled,
    RunLedger,
    RunQuarantined,
    RunState,
    Superseded,
)
from agent_run_ledger.kernel.record import RecordKind
from agent_run_ledger.kernel.states import RunEvent
from agent_run_ledger.runs.run import Run
from agent_run_ledger.testing import check_ledger
from tests.contract.agent_kit import Crash, Gate, New, alive, elsewhere, live
from tests.contract.run_kit import calls_of, operate, row_of, store_exists, stored_of


@pytest.fixture(autouse=True)
def _the_ledger_holds(db: pathlib.Path) -> Iterator[None]:
    yield
    if store_exists(db):
        check_ledger(db)


class Doubling:
    """An agent of two steps that counts its bodies."""

    def __init__(self) -> None:
        self.bodies: Counter[str] = Counter()

    def __call__(self, ledger: RunLedger, run: Run) -> Any:
        @ledger.step
        def double(n: int) -> int:
            self.bodies["double"] += 1
            return 2 * n

        @ledger.tool(safe=True)
        def look(at: int) -> tuple[int, ...]:
            self.bodies["look"] += 1
            return (at, at)

        return look(double(4))

    async def on_loop(self, ledger: RunLedger, run: Run) -> Any:
        @ledger.step
        async def double(n: int) -> int:
            self.bodies["double"] += 1
            return 2 * n

        @ledger.tool(safe=True)
        async def look(at: int) -> tuple[int, ...]:
            self.bodies["look"] += 1
            return (at, at)

        return await look(await double(4))


def test_a_restart_restores_everything(new_ledger: New) -> None:
    agent = Doubling()
    assert live(new_ledger, agent, crash=True) == live(new_ledger, agent) == live(new_ledger, agent) == (8, 8)
    assert agent.bodies == {"double": 1, "look": 1}
    assert row_of(new_ledger()).state is RunState.COMPLETED


def test_a_restart_on_an_event_loop_restores_everything(new_ledger: New) -> None:
    agent = Doubling()
    for crash in (True, False, False):
        assert alive(new_ledger, agent.on_loop, crash=crash) == (8, 8)
    assert agent.bodies == {"double": 1, "look": 1}


def test_a_run_that_began_on_an_event_loop_goes_on_without_one(new_ledger: New) -> None:
    agent = Doubling()
    assert alive(new_ledger, agent.on_loop, crash=True) == live(new_ledger, agent) == (8, 8)
    assert agent.bodies == {"double": 1, "look": 1}


def test_inputs_are_fresh_copies(new_ledger: New) -> None:
    def agent(ledger: RunLedger, run: Run) -> Any:
        run.inputs["words"].append("more")
        return run.inputs

    assert live(new_ledger, agent, words=["one"]) == {"words": ["one"]}


def test_other_inputs_are_refused(new_ledger: New) -> None:
    live(new_ledger, Doubling(), crash=True, ticket=17)
    with pytest.raises(InputsChanged, match="ticket"):
        live(new_ledger, Doubling(), ticket=18)


@pytest.mark.parametrize("error", [ValueError("no"), Pending("not yet")])
def test_an_exception_ends_the_run_and_it_goes_on_later(new_ledger: New, error: Exception) -> None:
    agent, ledger = Doubling(), new_ledger()
    with pytest.raises(type(error)), ledger.run() as run:  # noqa: PT012 - an agent that fails
        agent(ledger, run)
        raise error
    row = row_of(ledger)
    assert row.state is (RunState.SUSPENDED if isinstance(error, Pending) else RunState.FAILED)
    assert row.reason == type(error).__name__
    assert live(new_ledger, agent) == (8, 8)
    assert agent.bodies == {"double": 1, "look": 1}
    assert row_of(ledger).state is RunState.COMPLETED


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, asyncio.CancelledError])
def test_what_is_no_exception_records_no_end(new_ledger: New, error: type[BaseException]) -> None:
    ledger = new_ledger()
    with pytest.raises(error), ledger.run():
        raise error
    assert row_of(ledger).state is RunState.RUNNING
    assert stored_of(ledger, RecordKind.END) == []
    live(new_ledger, Doubling())
    assert row_of(ledger).attempt == 2


def test_in_a_completed_run_nothing_new_runs(new_ledger: New) -> None:
    agent, ledger = Doubling(), new_ledger()
    live(new_ledger, agent)
    other = ledger.step(lambda: agent.bodies.update(["other"]), name="other")
    with pytest.raises(Refused, match="'other' is not on its record") as refused, ledger.run():
        other()
    assert refused.value.code == "run_completed"
    with pytest.raises(Refused, match=r"run\.now"), ledger.run() as run:
        run.now()
    with pytest.raises(Refused, match="no run") as refused, ledger.run(), ledger.run("another"):
        pass
    assert refused.value.code == "run_completed"
    assert "other" not in agent.bodies
    assert row_of(ledger).attempt == 1


def test_a_completed_run_says_what_changed_in_a_call_that_is_not_on_its_record(new_ledger: New) -> None:
    live(new_ledger, Doubling())
    double = new_ledger().step(lambda n: n, name="double")
    with pytest.raises(Refused, match=r"arguments\.n changed"), new_ledger().run():
        double(5)


@pytest.mark.parametrize(("event", "error"), [(RunEvent.CANCEL, RunCancelled), (RunEvent.QUARANTINE, RunQuarantined)])
def test_a_stopped_run_is_refused_at_entry(new_ledger: New, event: RunEvent, error: type[Refused]) -> None:
    live(new_ledger, Doubling(), crash=True)
    operate(new_ledger(), event)
    with pytest.raises(error):
        live(new_ledger, Doubling())


@pytest.mark.parametrize(("event", "error"), [(RunEvent.CANCEL, RunCancelled), (RunEvent.QUARANTINE, RunQuarantined)])
def test_a_run_that_is_stopped_in_a_body_keeps_the_result_as_evidence(
    new_ledger: New, event: RunEvent, error: type[Refused]
) -> None:
    ledger, bodies = new_ledger(), Counter[str]()

    @ledger.step
    def slow(n: int) -> int:
        bodies["slow"] += 1
        operate(new_ledger(), event)
        return n

    with pytest.raises(error) as left, ledger.run():  # noqa: PT012 - an agent that swallows everything
        for _ in range(2):
            with pytest.raises(error) as raised:
                slow(1)
    assert left.value is raised.value
    assert bodies == {"slow": 1}
    assert calls_of(ledger) == [("RESULT", "slow")]


def test_a_released_run_restores_the_evidence(new_ledger: New) -> None:
    ledger, bodies = new_ledger(), Counter[str]()

    def agent(ledger: RunLedger, run: Run) -> Any:
        @ledger.step
        def slow() -> int:
            bodies["slow"] += 1
            if bodies["slow"] == 1:
                operate(new_ledger(), RunEvent.QUARANTINE)
            return bodies["slow"]

        return slow()

    with pytest.raises(RunQuarantined):
        live(new_ledger, agent)
    operate(ledger, RunEvent.RELEASE)
    assert live(new_ledger, agent) == 1


def test_a_live_run_is_busy_for_others_until_it_is_left(new_ledger: New) -> None:
    agent = Doubling()
    with new_ledger().run():
        with pytest.raises(RunBusy):
            elsewhere(lambda: live(new_ledger, agent))
        waiting = threading.Thread(target=lambda: waited.append(_entered(new_ledger().bind("r1", wait_s=30))))
        waited: list[int] = []
        waiting.start()
    waiting.join()
    assert waited == [1]
    assert row_of(new_ledger()).state is RunState.COMPLETED


def _entered(bound: Any) -> int:
    with bound.run() as run:
        return int(run._session.opened.row.attempt)


def test_who_was_taken_over_writes_nothing_more(new_ledger: New) -> None:
    old, bodies = new_ledger(), Counter[str]()

    @old.step
    def slow(n: int) -> int:
        bodies["old"] += 1
        if n == 1:
            assert elsewhere(lambda: _entered(new_ledger().bind("r1", takeover=True))) == 2
        return n

    with pytest.raises(Superseded) as left, old.run():  # noqa: PT012 - an agent that swallows everything
        with pytest.raises(Superseded) as raised:
            slow(1)
        with pytest.raises(Superseded):
            slow(2)
    assert left.value is raised.value
    assert bodies == {"old": 1}
    assert calls_of(old) == [("ABANDONED", "slow")]
    assert row_of(old).state is RunState.COMPLETED


def test_a_pipelines_run_is_not_entered_and_a_dynamic_one_not_executed(new_ledger: New) -> None:
    ledger = new_ledger()
    ledger.step(lambda: 1, name="one")
    ledger.execute()
    with pytest.raises(Misuse, match="is a pipeline's") as refused, ledger.run():
        pass
    assert refused.value.code == "run_kind"
    other = new_ledger("r2")
    other.step(lambda: 1, name="one")
    with pytest.raises(Crash), other.run():
        raise Crash
    with pytest.raises(Misuse, match="is a dynamic run") as refused:
        other.execute()
    assert refused.value.code == "run_kind"


def test_a_dynamic_run_has_no_explanation_by_steps_and_says_who_has_one(new_ledger: New) -> None:
    ledger = new_ledger()
    double = ledger.step(lambda n: 2 * n, name="double")
    with ledger.run():
        double(1)
    with pytest.raises(Misuse, match="is a dynamic run") as refused:
        ledger.bind("r1").explain()
    assert refused.value.code == "run_kind"
    assert "arl runs explain" in refused.value.hint


def test_a_step_outside_a_run_is_misuse_and_plain_is_not(new_ledger: New) -> None:
    double = new_ledger().step(lambda n: 2 * n, name="double")
    with pytest.raises(Misuse) as refused:
        double(1)
    assert refused.value.code == "outside_run"
    with new_ledger().run():
        pass
    with pytest.raises(Misuse):
        double(1)
    assert double.plain(4) == 8


def test_a_run_is_entered_once(new_ledger: New) -> None:
    entering = new_ledger().run()
    with entering:
        pass
    with pytest.raises(Misuse, match="entered already"), entering:
        pass


def test_steps_do_not_reach_threads_of_ones_own(new_ledger: New) -> None:
    ledger, seen = new_ledger(), list[object]()
    double = ledger.step(lambda n: 2 * n, name="double")

    def work(run: Run) -> None:
        for call in (lambda: double(1), run.now, lambda: run.gather(lambda: 1), lambda: run.wrap(lambda: 1)):
            try:
                seen.append(call())
            except Misuse as error:
                seen.append(error.code)

    with ledger.run() as run:
        thread = threading.Thread(target=work, args=(run,))
        thread.start()
        thread.join()
    assert seen == ["outside_run"] * 4


def test_a_body_that_ends_after_its_run_was_interrupted_is_not_recorded(new_ledger: New) -> None:
    gate, seen, ledger = Gate(), list[BaseException](), new_ledger()
    slow = ledger.step(gate.stop, name="slow")

    def work() -> None:
        try:
            slow()
        except Misuse as error:
            seen.append(error)

    with pytest.raises(Crash), ledger.run() as run:  # noqa: PT012 - an agent that dies
        thread = threading.Thread(target=run.wrap(work))
        thread.start()
        gate.wait()
        raise Crash
    gate.open()
    thread.join()
    assert [error.code for error in seen if isinstance(error, Misuse)] == ["run_over"]
    assert calls_of(ledger) == []
    with new_ledger().run():  # and the run is not held any more
        pass
    assert calls_of(ledger) == [("ABANDONED", "slow")]


def test_a_body_that_runs_when_its_run_ends_is_abandoned(new_ledger: New) -> None:
    gate, seen, ledger = Gate(), list[str](), new_ledger()
    slow = ledger.step(gate.stop, name="slow")

    def work() -> None:
        try:
            slow()
        except Misuse as error:
            seen.append(error.code)

    with ledger.run() as run:
        thread = threading.Thread(target=run.wrap(work))
        thread.start()
        gate.wait()
    gate.open()
    thread.join()
    assert seen == ["run_over"]
    assert calls_of(ledger) == [("ABANDONED", "slow")]
    assert row_of(ledger).state is RunState.COMPLETED


def test_the_end_of_a_run_waits_for_a_result_that_is_being_recorded(
    new_ledger: New, monkeypatch: pytest.MonkeyPatch
) -> None:
    from agent_run_ledger.runs.journal import Journal

    gate, ledger = Gate(), new_ledger()
    quick = ledger.step(lambda: 1, name="quick")
    whole = Journal.commit

    def commit(self: Journal, batch: Any) -> Any:
        if batch.concluded:
            gate.stop()
        return whole(self, batch)

    monkeypatch.setattr(Journal, "commit", commit)
    with ledger.run() as run:
        thread = threading.Thread(target=run.wrap(quick))
        thread.start()
        gate.wait()
        threading.Timer(0.05, gate.open).start()
    thread.join()
    assert calls_of(ledger) == [("RESULT", "quick")]
    ended = stored_of(ledger, RecordKind.RESULT, RecordKind.END)
    assert [stored.record.kind for stored in ended] == [RecordKind.RESULT, RecordKind.END]
