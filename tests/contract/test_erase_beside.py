"""Erasing a run beside an attempt that took it over and works on without the run's lock: nothing comes back."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from agent_run_ledger import LedgerError, Refused, RunBusy, RunLedger, Step
from agent_run_ledger.kernel.record import RecordKind as K
from agent_run_ledger.kernel.states import RunEvent
from agent_run_ledger.runs import attempt, execute
from agent_run_ledger.runs import erase as erasing
from agent_run_ledger.runs.erase import Act, Selection, erase_run
from agent_run_ledger.testing import check_ledger
from tests.contract.run_kit import operate, records_of, report_of, store_of, stored_of
from tests.contract.test_erase import Program
from tests.contract.test_pipeline_review import Held

New = Callable[..., RunLedger]
ACT = Act(event="erase", reason="asked to", actor="ann")


class Beside:
    """`first` is recorded and `second` runs in an attempt without the lock, whose old holder has let go of it."""

    def __init__(self, new_ledger: New) -> None:
        hung = Held(new_ledger())
        self.ledger = new_ledger()
        self._inside, self._go = threading.Event(), threading.Event()
        self._outcome: list[Any] = []
        self.ledger.add(Step(lambda: "secret", name="first"))
        self.ledger.add(Step(self._second, name="second", depends_on=["first"]))
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        assert self._inside.wait(30)
        assert hung.finish().code == "attempt_superseded"

    def _second(self, first: str) -> str:
        self._inside.set()
        self._go.wait(30)
        return first

    def _run(self) -> None:
        try:
            self._outcome.append(self.ledger.bind("r1", takeover=True).execute())
        except LedgerError as error:
            self._outcome.append(error)

    def finish(self) -> Any:
        self._go.set()
        self._thread.join(30)
        return self._outcome[0]


def _erase(ledger: RunLedger, *steps: str, **settings: Any) -> None:
    erase_run(ledger._opened.context(), "r1", Selection(steps=steps or None), ACT, **settings)


def _is_whole(ledger: RunLedger) -> None:
    assert report_of(ledger).ok
    ledger.close()
    check_ledger(ledger.db_path)


@pytest.mark.parametrize("steps", [(), ("first",)])
def test_an_attempt_without_the_lock_records_nothing_after_an_erasure(new_ledger: New, steps: tuple[str, ...]) -> None:
    beside = Beside(new_ledger)
    _erase(beside.ledger, *steps)
    assert beside.finish().code == "attempt_superseded"
    assert [stored.record.name for stored in stored_of(beside.ledger, K.RESULT) if not stored.erased] == []
    assert [decision.name for decision in records_of(beside.ledger, K.DECISION)] == ["takeover", "erase"]
    _is_whole(beside.ledger)


@pytest.mark.parametrize("event", [RunEvent.CANCEL, RunEvent.QUARANTINE])
def test_what_was_erased_of_a_stopped_run_is_not_kept_as_evidence(new_ledger: New, event: RunEvent) -> None:
    beside = Beside(new_ledger)
    operate(beside.ledger, event)
    _erase(beside.ledger)
    assert beside.finish().code == "attempt_superseded"
    assert [stored.record.name for stored in stored_of(beside.ledger, K.RESULT) if not stored.erased] == []
    _is_whole(beside.ledger)


def test_a_takeover_between_two_batches_ends_the_erasure_which_then_goes_on(
    new_ledger: New, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(erasing, "BATCH_RECORDS", 1)
    program = Program(new_ledger, stops_at="review").stopped()

    def take_over(done: int, _: int) -> None:
        if done == 2:
            operate(program.ledger, RunEvent.TAKEOVER)

    with pytest.raises(RunBusy, match="while it was erased"):
        _erase(program.ledger, progress=take_over)
    assert [stored.erased for stored in stored_of(program.ledger, K.RESULT)] == [True, False]
    program.erase()
    program.is_whole()


def test_a_run_that_was_erased_since_it_was_looked_at_is_not_begun(
    new_ledger: New, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = Program(new_ledger, stops_at="fetch", crash=True).stopped()
    program.erase()
    for module, look in ((attempt, "refuse_changed"), (execute, "refuse_dynamic")):
        monkeypatch.setattr(module, look, lambda *_: None)  # it looked before the erasure
    before = store_of(program.ledger).reader().head().size
    with pytest.raises(Refused) as caught:
        program.execute()
    assert caught.value.code == "erased"
    assert store_of(program.ledger).reader().head().size == before
    program.is_whole()


def test_a_dead_run_is_taken_over_once_and_a_run_that_failed_not_at_all(new_ledger: New) -> None:
    for run_id, crash, names in (("r1", True, ["takeover", "erase", "erase"]), ("r2", False, ["erase", "erase"])):
        program = Program(new_ledger, run_id, stops_at="review", crash=crash).stopped()
        for steps in (("publish", "review"), (), ()):
            program.erase(*steps)
        assert [stored.record.name for stored in stored_of(program.ledger, K.DECISION, run_id=run_id)] == names
        program.is_whole()
