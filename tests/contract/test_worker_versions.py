"""Two versions of a program at one queue: what one cannot go on with is left for the other one, as it stood."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from threading import Timer
from types import ModuleType
from typing import Any

import pytest

from agent_run_ledger import ClassGone, Diverged, RunLedger, Unavailable
from agent_run_ledger.kernel.states import RunState
from agent_run_ledger.runs.leaving import of_other_program
from agent_run_ledger.worker import Told, Worker, WorkerSettings
from tests.contract.engine_kit import each_engine

pytestmark = each_engine

Job = Callable[[Callable[[str], str]], object]


class Version:
    """A version of a program: one entry, whose step notes what it was asked."""

    def __init__(self, place: Any, job: Job) -> None:
        self.ledger = RunLedger(db_path=place)
        self.asked: list[str] = []

        @self.ledger.step
        def ask(question: str) -> str:
            self.asked.append(question)
            return f"answer to {question}"

        self.ledger.entry(name="job")(lambda: job(ask))

    def works(self) -> tuple[dict[str, int], list[Told]]:
        """What a worker of it did until nothing was left, and told."""
        told: list[Told] = []
        worker = Worker(self.ledger, settings=WorkerSettings(poll_s=0.02), tell=told.append)
        in_the_end = Timer(60, worker.stop)  # for one that would never be through
        in_the_end.start()
        tally = worker.run(until_idle=True)
        in_the_end.cancel()
        return {str(outcome): count for outcome, count in tally.outcomes.items()}, told


def _first(ask: Callable[[str], str]) -> object:
    return [ask("one"), ask("two")]


def _plain(ask: Callable[[str], str]) -> object:
    return ask("another")


def _wrapped(ask: Callable[[str], str]) -> object:
    try:
        return ask("another")
    except Exception as error:
        raise RuntimeError("what a framework makes of it") from error


def _unlinked(ask: Callable[[str], str]) -> object:
    try:
        return ask("another")
    except Exception:
        raise RuntimeError("nothing says why") from None


def _grouped(ask: Callable[[str], str]) -> object:
    try:
        return ask("another")
    except Exception as error:
        raise ExceptionGroup("tasks", [ValueError("beside"), error]) from None


def _swallowed(ask: Callable[[str], str]) -> object:
    try:
        return ask("another")
    except Exception:
        return "a text for the model"


@pytest.mark.parametrize("wrong", [_plain, _wrapped, _grouped, _swallowed])
def test_a_run_that_another_version_began_is_left_as_it_stood(place: Any, wrong: Job) -> None:
    stop = [True]

    def first(ask: Callable[[str], str]) -> object:
        answer = ask("one")
        if stop:
            raise SystemExit  # as a process that is ended
        return [answer, ask("two")]

    one, two = Version(place, first), Version(place, wrong)
    with one.ledger, two.ledger:
        one.ledger.submit("r")
        with pytest.raises(SystemExit):
            one.ledger.entries[0].start("r")
        stop.clear()
        for _ in range(2):
            outcomes, told = two.works()
            assert outcomes == {"refused": 1}
            assert "tried again in 1 s" in told[-1].words
            assert two.ledger.bind("r").state is RunState.RUNNING
        assert one.works()[0] == {"completed": 1}
        assert (one.asked, two.asked) == (["one", "two"], [])
        assert one.ledger.entries[0].start("r") == ["answer to one", "answer to two"]


def test_what_hides_a_divergence_leaves_the_run_all_the_same(place: Any) -> None:
    """The worker hears of an error of the program; the run knows why it could not go on."""
    one, two = Version(place, lambda ask: [ask("one"), sys.exit()]), Version(place, _unlinked)
    with one.ledger, two.ledger:
        one.ledger.submit("r")
        with pytest.raises(SystemExit):
            one.ledger.entries[0].start("r")
        with pytest.raises(RuntimeError):
            two.ledger.entries[0].start("r")
        assert two.ledger.bind("r").state is RunState.RUNNING


def test_a_run_of_its_callers_own_that_diverges_is_failed(place: Any) -> None:
    """Nobody else comes for it."""
    one, two = Version(place, lambda ask: [ask("one"), sys.exit()]), Version(place, _plain)
    with one.ledger, two.ledger:
        with pytest.raises(SystemExit):
            one.ledger.entries[0].start("r")
        with pytest.raises(Diverged):
            two.ledger.entries[0].start("r")
        assert two.ledger.bind("r").state is RunState.FAILED


@dataclass
class Answer:
    """A value of a class that a version has, or not."""

    text: str


def test_a_run_with_a_value_of_a_class_that_a_version_lacks_is_left_too(
    place: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = ModuleType("of_one_version")
    Answer.__module__ = module.__name__
    module.Answer = Answer  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.__name__, module)
    stop = [True]
    with RunLedger(db_path=place) as ledger:

        @ledger.step
        def ask() -> Answer:
            return Answer("yes")

        @ledger.entry
        def job() -> str:
            answer = ask()
            if stop:
                raise SystemExit
            return answer.text

        job.submit("r")
        with pytest.raises(SystemExit):
            job.start("r")
        stop.clear()
        worker = Worker(ledger, settings=WorkerSettings(poll_s=0.02))
        del module.Answer  # type: ignore[attr-defined]
        assert worker.run(until_idle=True).outcomes == {"refused": 1}
        assert ledger.bind("r").state is RunState.RUNNING
        module.Answer = Answer  # type: ignore[attr-defined]
        again = Worker(ledger, settings=WorkerSettings(poll_s=0.02))
        assert again.run(until_idle=True).outcomes == {"completed": 1}
        assert job.start("r") == "yes"


def test_inputs_that_a_version_does_not_take_are_not_tried_with_it(place: Any) -> None:
    with RunLedger(db_path=place) as one, RunLedger(db_path=place) as two:
        one.entry(name="job")(lambda n: n)
        two.entry(name="job")(lambda n, more: (n, more))
        one.submit("r", n=1)
        told: list[Told] = []
        settings = WorkerSettings(poll_s=0.02)
        worker = Worker(two, settings=settings, tell=told.append)
        assert worker.run(until_idle=True).outcomes == {"refused": 1}
        assert "more" in told[-1].words
        assert Worker(one, settings=settings).run(until_idle=True).outcomes == {"completed": 1}


def test_a_pipeline_is_not_taken_for_what_a_version_with_entries_has(place: Any) -> None:
    with RunLedger(db_path=place) as one, RunLedger(db_path=place) as two:
        one.step(name="work")(lambda n: n)
        two.step(name="other")(lambda n: -n)
        two.entry(name="job")(lambda n: n)
        one.submit("r", n=1)
        settings = WorkerSettings(poll_s=0.02)
        assert Worker(two, settings=settings).run(until_idle=True).outcomes == {"refused": 1}
        assert Worker(one, settings=settings).run(until_idle=True).outcomes == {"completed": 1}


def test_a_pipeline_that_diverges_in_the_middle_is_left_as_it_stood(place: Any) -> None:
    """The first step is changed and runs again; the second one refuses what it then gets."""
    ends = [True]

    def version(first: Callable[[int], int], *, refuses: bool) -> RunLedger:
        ledger = RunLedger(db_path=place)
        ledger.step(name="first", version="2" if refuses else "1")(lambda n: first(n))

        @ledger.step(depends_on=("first",), on_change="refuse" if refuses else None)
        def second(first: int) -> int:
            return first + 1

        @ledger.step(depends_on=("second",))
        def third(second: int) -> int:
            if ends:
                raise SystemExit
            return second + 1

        return ledger

    with version(lambda n: n, refuses=False) as one, version(lambda n: -n, refuses=True) as two:
        one.submit("r", n=1)
        with pytest.raises(SystemExit):
            one.bind("r").execute(n=1)
        ends.clear()
        settings = WorkerSettings(poll_s=0.02)
        assert Worker(two, settings=settings).run(until_idle=True).outcomes == {"refused": 1}
        assert two.bind("r").state is RunState.RUNNING
        assert Worker(one, settings=settings).run(until_idle=True).outcomes == {"completed": 1}
        assert one.bind("r").execute(n=1) == 3


def test_a_step_that_took_too_long_has_failed(place: Any) -> None:
    """It is Uncertain what became of it, as of a store that says nothing; but nobody else comes for it later."""
    with RunLedger(db_path=place) as ledger:

        @ledger.step(timeout_s=0.01)
        def slow() -> None:
            goes_on.wait(30)

        goes_on = threading.Event()
        ledger.entry(name="job")(lambda: slow())
        ledger.submit("r")
        tally = Worker(ledger, settings=WorkerSettings(poll_s=0.02)).run(until_idle=True)
        goes_on.set()
        assert tally.outcomes == {"failed": 1}
        assert ledger.bind("r").state is RunState.FAILED


@pytest.mark.parametrize("made", ["raised from", "grouped"])
def test_what_a_program_makes_of_a_store_that_cannot_be_asked_leaves_the_run(place: Any, made: str) -> None:
    away = [True]
    with RunLedger(db_path=place) as ledger:

        @ledger.entry
        def job() -> int:
            if away and made == "grouped":
                raise ExceptionGroup("tasks", [Unavailable("away" if away.pop() else "")])
            if away:
                raise RuntimeError("what a framework makes of it") from Unavailable("away" if away.pop() else "")
            return 1

        job.submit("r")
        tally = Worker(ledger, settings=WorkerSettings(poll_s=0.02)).run(until_idle=True)
        assert tally.outcomes == {"interrupted": 1, "completed": 1}


def test_what_a_failure_holds_is_found_in_groups_and_causes() -> None:
    diverged, gone = Diverged("no"), ClassGone("no")
    deep = RuntimeError()
    deep.__cause__ = ValueError()
    deep.__cause__.__context__ = ExceptionGroup("two", [ValueError(), ExceptionGroup("one", [gone])])
    circle = ValueError()
    circle.__context__ = circle
    assert of_other_program(diverged)
    assert of_other_program(deep)
    assert not of_other_program(circle)
    assert not of_other_program(None)
