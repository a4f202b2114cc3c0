"""A worker that comes too late: what somebody else carried on since it looked, it begins on no other state."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest

from agent_run_ledger import Pending, RunLedger, Unavailable
from agent_run_ledger.kernel.states import RunState
from agent_run_ledger.ports import RunRow
from agent_run_ledger.runs import attempt
from agent_run_ledger.runs.picked import TAKEN, picked_as
from agent_run_ledger.worker import Worker, WorkerSettings
from agent_run_ledger.worker.carrying import Outcome
from agent_run_ledger.worker.picking import Picker
from tests.contract.engine_kit import each_engine

pytestmark = each_engine

Run = Callable[[], object]


class Case:
    """A run that was submitted, and two workers' programs of it. `ends`: what an attempt comes to."""

    def __init__(self, place: Any, kind: str, ends: BaseException | None) -> None:
        self.ledger = RunLedger(db_path=place)
        self.bodies = 0

        def body() -> str:
            self.bodies += 1
            if ends is not None:
                raise ends
            return "done"

        async def abody() -> str:
            return body()

        self.start: Run
        if kind == "pipeline":
            self.ledger.step(body)
            self.ledger.submit("r")
            self.start = self.ledger.bind("r").execute
        else:
            entry = self.ledger.entry(name="job")(abody if kind == "async entry" else body)
            entry.submit("r")
            self.start = lambda: _started(entry)
        (self.row,) = self.ledger.runs_of_queue().queued(limit=2)

    def other_worker(self) -> None:
        with suppress(ValueError, Pending, SystemExit):
            self.start()

    def carried_late(self, monkeypatch: pytest.MonkeyPatch) -> dict[Outcome, int]:
        """What a worker does with the row that it read before the other one came."""
        looks: list[list[RunRow]] = [[self.row]]
        monkeypatch.setattr(Picker, "pick", lambda *_: looks.pop() if looks else [])
        monkeypatch.setattr(Picker, "is_idle", lambda _: True)
        worker = Worker(self.ledger, settings=WorkerSettings(poll_s=0.02))
        return dict(worker.run(until_idle=True).outcomes)


def _started(entry: Any) -> object:
    if not entry.is_async:
        return entry.start("r")
    import asyncio

    return asyncio.run(entry.astart("r"))


@pytest.mark.parametrize(
    ("kind", "ends", "state"),
    [
        ("entry", ValueError("no"), RunState.FAILED),
        ("entry", Pending("a person"), RunState.SUSPENDED),
        ("entry", SystemExit(), RunState.RUNNING),
        ("entry", None, RunState.COMPLETED),
        ("async entry", ValueError("no"), RunState.FAILED),
        ("pipeline", ValueError("no"), RunState.FAILED),
        ("pipeline", None, RunState.COMPLETED),
    ],
)
def test_a_run_that_was_carried_on_since_the_look_is_left(
    place: Any, monkeypatch: pytest.MonkeyPatch, kind: str, ends: BaseException | None, state: RunState
) -> None:
    case = Case(place, kind, ends)
    with case.ledger:
        case.other_worker()
        before = case.ledger._opened.context().store.reader().find_run("r")
        assert before is not None
        assert before.state is state
        assert case.carried_late(monkeypatch) == {Outcome.ELSEWHERE: 1}
        assert case.bodies == 1
        assert case.ledger._opened.context().store.reader().find_run("r") == before


@pytest.mark.parametrize("kind", ["entry", "pipeline"])
def test_nor_is_one_that_was_carried_on_between_its_check_and_its_lock(
    place: Any, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    case, real = Case(place, kind, ValueError("no")), attempt.try_lock

    def late(*given: Any) -> Any:
        monkeypatch.setattr(attempt, "try_lock", real)
        case.other_worker()
        return real(*given)

    monkeypatch.setattr(attempt, "try_lock", late)
    with case.ledger:
        assert case.carried_late(monkeypatch) == {Outcome.ELSEWHERE: 1}
        assert (case.bodies, case.ledger.bind("r").state) == (1, RunState.FAILED)


def test_a_run_that_was_removed_since_the_look_is_not_begun_anew(place: Any) -> None:
    """It would be a run in no queue, which nobody asked for."""
    case = Case(place, "entry", None)
    with case.ledger:
        with picked_as(replace(case.row, run_id="gone")), pytest.raises(Unavailable) as caught:
            case.ledger.run("gone").__enter__()
        assert (caught.value.code, case.ledger.bind("gone").state) == (TAKEN, None)


def test_a_run_that_ended_since_it_was_seen_running_is_left(place: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of one generation: its attempt was live at the look, and is over and failed now."""
    case = Case(place, "entry", ValueError("no"))
    with case.ledger:
        with case.ledger.bind("r").run() as run, suppress(ValueError):
            (case.row,) = case.ledger.runs_of_queue().queued(limit=2)
            assert case.row.state is RunState.RUNNING
            run.value("seen", lambda: 1)
        assert case.carried_late(monkeypatch) == {Outcome.ELSEWHERE: 1}
