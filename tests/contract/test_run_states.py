"""The state table of `execute`: one test per cell."""

from __future__ import annotations

import pathlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from agent_run_ledger import (
    InputsChanged,
    Pending,
    Refused,
    RunBusy,
    RunCancelled,
    RunLedger,
    RunQuarantined,
    RunState,
)
from agent_run_ledger.kernel.states import RunEvent
from agent_run_ledger.runs.operate import decide
from tests.contract.run_kit import store_exists

Make = Callable[[str], tuple[RunLedger, list[str]]]


@pytest.fixture
def make(db: pathlib.Path) -> Iterator[Make]:
    """Return a maker of ledgers with two steps; `mode` says how the second one ends. Bodies append to the list."""
    ledgers: list[RunLedger] = []

    def build(mode: str) -> tuple[RunLedger, list[str]]:
        ran: list[str] = []
        ledger = RunLedger(run_id="r1", db_path=db)
        ledgers.append(ledger)

        @ledger.step
        def fetch(company: str) -> dict[str, Any]:
            ran.append("fetch")
            return {"company": company, "revenue": [1, 2, 3]}

        @ledger.step(depends_on=["fetch"])
        def report(data: dict[str, Any]) -> str:
            ran.append("report")
            if mode == "fail":
                raise ValueError("model is down")
            if mode == "pend":
                raise Pending("waiting for a person")
            if mode == "die":
                raise KeyboardInterrupt
            return f"{data['company']}: {sum(data['revenue'])}"

        return ledger, ran

    yield build
    for ledger in ledgers:
        ledger.close()


def operate(ledger: RunLedger, event: RunEvent) -> None:
    decide(ledger._opened.context(), "r1", event, reason="because", actor="op")


def state(ledger: RunLedger) -> RunState | None:
    return ledger.bind("r1").state


def test_new_run_starts_and_completes(make: Make) -> None:
    ledger, ran = make("ok")
    assert state(ledger) is None
    assert ledger.execute(company="acme") == "acme: 6"
    assert ran == ["fetch", "report"]
    assert state(ledger) is RunState.COMPLETED


def test_completed_run_returns_the_recorded_result_and_runs_nothing(make: Make) -> None:
    make("ok")[0].execute(company="acme")
    ledger, ran = make("fail")
    assert ledger.execute(company="acme") == "acme: 6"
    assert ran == []


def test_completed_run_with_other_inputs_is_refused_and_names_the_path(make: Make) -> None:
    ledger, ran = make("ok")
    ledger.execute(company="acme")
    ran.clear()
    with pytest.raises(InputsChanged, match=r"inputs\.company"):
        ledger.execute(company="other")
    assert ran == []
    assert state(ledger) is RunState.COMPLETED


def test_failed_run_goes_on_where_it_was(make: Make) -> None:
    first, ran = make("fail")
    with pytest.raises(ValueError, match="model is down"):
        first.execute(company="acme")
    assert ran == ["fetch", "report"]
    assert state(first) is RunState.FAILED
    second, ran = make("ok")
    assert second.execute(company="acme") == "acme: 6"
    assert ran == ["report"]


def test_failed_run_with_other_inputs_is_refused(make: Make) -> None:
    first, _ = make("fail")
    with pytest.raises(ValueError, match="down"):
        first.execute(company="acme")
    second, ran = make("ok")
    with pytest.raises(InputsChanged, match=r"inputs\.company"):
        second.execute(company="b")
    assert ran == []


def test_dead_attempt_goes_on_as_the_next_attempt(make: Make) -> None:
    first, _ = make("die")
    with pytest.raises(KeyboardInterrupt):
        first.execute(company="acme")
    assert state(first) is RunState.RUNNING
    second, ran = make("ok")
    assert second.execute(company="acme") == "acme: 6"
    assert ran == ["report"]
    row = second._opened.context().store.reader().find_run("r1")
    assert row is not None
    assert (row.attempt, row.generation) == (2, 2)


def test_dead_attempt_with_other_inputs_is_refused(make: Make) -> None:
    first, _ = make("die")
    with pytest.raises(KeyboardInterrupt):
        first.execute(company="acme")
    with pytest.raises(InputsChanged):
        make("ok")[0].execute(company="b")


def test_suspended_run_raises_pending_again_until_decided(make: Make) -> None:
    first, ran = make("pend")
    with pytest.raises(Pending):
        first.execute(company="acme")
    assert state(first) is RunState.SUSPENDED
    with pytest.raises(Pending):
        first.execute(company="acme")
    assert ran == ["fetch", "report", "report"]
    second, ran = make("ok")
    assert second.execute(company="acme") == "acme: 6"
    assert ran == ["report"]


def test_suspended_run_with_other_inputs_is_refused(make: Make) -> None:
    first, _ = make("pend")
    with pytest.raises(Pending):
        first.execute(company="acme")
    with pytest.raises(InputsChanged):
        first.execute(company="b")


def test_quarantined_run_is_refused_until_released(make: Make) -> None:
    first, _ = make("fail")
    with pytest.raises(ValueError, match="down"):
        first.execute(company="acme")
    operate(first, RunEvent.QUARANTINE)
    second, ran = make("ok")
    for inputs in ("acme", "other"):
        with pytest.raises(RunQuarantined, match="because"):
            second.execute(company=inputs)
    assert ran == []
    operate(second, RunEvent.RELEASE)
    assert second.execute(company="acme") == "acme: 6"
    assert ran == ["report"]


def test_cancelled_run_is_refused_for_ever(make: Make) -> None:
    first, _ = make("fail")
    with pytest.raises(ValueError, match="down"):
        first.execute(company="acme")
    operate(first, RunEvent.CANCEL)
    second, ran = make("ok")
    for inputs in ("acme", "other"):
        with pytest.raises(RunCancelled):
            second.execute(company=inputs)
    with pytest.raises(Refused, match="cannot be released"):
        operate(second, RunEvent.RELEASE)
    with pytest.raises(RunCancelled):
        second.execute(company="acme")
    assert ran == []


@pytest.mark.parametrize("event", [RunEvent.QUARANTINE, RunEvent.CANCEL, RunEvent.RELEASE, RunEvent.TAKEOVER])
def test_completed_run_has_no_way_out(make: Make, event: RunEvent) -> None:
    ledger, _ = make("ok")
    ledger.execute(company="acme")
    with pytest.raises(Refused):
        operate(ledger, event)
    assert state(ledger) is RunState.COMPLETED


class Blocked:
    """A run whose only step waits until it is told to go on."""

    def __init__(self, db: pathlib.Path, value: str = "done") -> None:
        self.entered, self.go, self.result = threading.Event(), threading.Event(), []
        self.ledger = RunLedger(run_id="r1", db_path=db)

        @self.ledger.step
        def wait(n: int) -> str:
            self.entered.set()
            self.go.wait(10)
            return value

        self.thread = threading.Thread(target=self._run)
        self.thread.start()
        assert self.entered.wait(30)

    def _run(self) -> None:
        try:
            self.result.append(self.ledger.execute(n=1))
        except Exception as error:
            self.result.append(error)

    def finish(self) -> Any:
        self.go.set()
        self.thread.join(30)
        return self.result[0]


def test_live_elsewhere_is_busy_and_says_who(db: pathlib.Path) -> None:
    blocked = Blocked(db)
    try:
        with pytest.raises(RunBusy, match=r"pid.* since 20\d\d-"):
            blocked.ledger.bind("r1").execute(n=1)
    finally:
        assert blocked.finish() == "done"
    assert blocked.ledger.execute(n=1) == "done"


def test_live_elsewhere_with_other_inputs_is_busy_too(db: pathlib.Path) -> None:
    blocked = Blocked(db)
    try:
        with pytest.raises(RunBusy):
            blocked.ledger.bind("r1").execute(n=2)
    finally:
        assert blocked.finish() == "done"


def test_wait_s_waits_for_the_live_attempt(db: pathlib.Path) -> None:
    blocked = Blocked(db)
    threading.Timer(0.2, blocked.go.set).start()
    assert blocked.ledger.bind("r1", wait_s=30).execute(n=1) == "done"
    assert blocked.finish() == "done"


def test_takeover_lets_the_old_attempt_write_nothing_more(db: pathlib.Path) -> None:
    blocked = Blocked(db, "old")
    other = RunLedger(run_id="r1", db_path=db)

    @other.step
    def wait(n: int) -> str:
        return "new"

    try:
        assert other.bind("r1", takeover=True).execute(n=1) == "new"
    finally:
        late = blocked.finish()
    assert isinstance(late, Refused)
    assert late.code == "attempt_superseded"
    assert other.execute(n=1) == "new"


@pytest.mark.parametrize(("event", "error"), [(RunEvent.CANCEL, RunCancelled), (RunEvent.QUARANTINE, RunQuarantined)])
def test_a_run_stopped_by_a_person_keeps_the_late_result_as_evidence(
    db: pathlib.Path, event: RunEvent, error: type[Exception]
) -> None:
    blocked = Blocked(db)
    operate(blocked.ledger, event)
    assert isinstance(blocked.finish(), error)
    context = blocked.ledger._opened.context()
    row = context.store.reader().find_run("r1")
    assert row is not None
    assert row.state is (RunState.CANCELLED if event is RunEvent.CANCEL else RunState.QUARANTINED)
    assert [key.name for key in context.store.reader().result_keys(row.row_id)] == ["wait"]


def test_looking_at_a_run_makes_no_store(db: pathlib.Path, make: Make) -> None:
    ledger, ran = make("ok")
    assert ledger.bind("r1").state is None
    assert [step.verdict for step in ledger.bind("r1").explain(company="acme")] == ["runs", "depends"]
    assert not store_exists(db)
    assert ran == []
