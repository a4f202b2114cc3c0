"""Runs under which processes die, are taken over, are damaged or refused: they hold up no other, and end none."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from agent_run_ledger import Pending, RunLedger, Tampered, Unavailable
from agent_run_ledger.errors import Refused
from agent_run_ledger.kernel.states import RunEvent, RunState
from agent_run_ledger.ledger.opened import OpenedStore
from agent_run_ledger.ledger.run_queue import RunQueue
from agent_run_ledger.ports import RunRow
from agent_run_ledger.runs.deaths import Deaths
from agent_run_ledger.runs.operate import decide
from agent_run_ledger.store.moves import Move, Standing
from agent_run_ledger.worker import Told, Worker, WorkerSettings
from agent_run_ledger.worker.carrying import Outcome
from agent_run_ledger.worker.suspects import DEATHS
from tests.contract.engine_kit import each_engine, only_a_file
from tests.contract.worker_kit import working

pytestmark = each_engine


@pytest.fixture
def ledger(place: Any) -> Iterator[RunLedger]:
    with RunLedger(db_path=place) as made:
        yield made


class Job:
    """A run of two steps, whose process ends where `dies_in` says, in the middle of an attempt that nothing ends."""

    def __init__(self, ledger: RunLedger) -> None:
        self.ledger, self.dies_in, self.ran = ledger, "", list[str]()

        def step(name: str) -> Callable[[], None]:
            @ledger.step(name=name)
            def body() -> None:
                self.ran.append(name)
                self._die(name)

            return body

        first, second = step("first"), step("second")

        @ledger.entry
        def job() -> str:
            first()
            self._die("between")
            second()
            return "done"

        self.entry = job
        job.submit("r1")

    def _die(self, where: str) -> None:
        if self.dies_in == "waits" == where or (where == "between" and self.dies_in == "waits"):
            raise Pending("a person")
        if where == self.dies_in:
            raise SystemExit

    def die(self, where: str) -> None:
        self.dies_in = where
        with pytest.raises(Pending if where == "waits" else SystemExit):
            self.entry.start("r1")
        self.dies_in = ""

    def row(self) -> RunRow:
        row = self.ledger._opened.context().store.reader().find_run("r1")
        assert row is not None
        return row

    def deaths(self) -> Deaths:
        return self.ledger.runs_of_queue().deaths(self.row())

    def decide(self, event: RunEvent) -> None:
        decide(self.ledger._opened.context(), "r1", event, reason="because", actor="op")


@pytest.mark.parametrize(
    ("ends", "deaths"),
    [
        (["first"], Deaths(1, 1, "first")),
        (["first"] * 4, Deaths(4, 4, "first")),
        (["first", "second", "second"], Deaths(3, 2, "second")),
        (["between"] * 3, Deaths(3)),
        (["second", "second", "between"], Deaths(3)),
        (["first", "first", "waits", "second"], Deaths(1, 1, "second")),
        (["first", "first", RunEvent.TAKEOVER, "first"], Deaths(1, 1, "first")),
        (["first", "first", RunEvent.QUARANTINE, RunEvent.RELEASE], Deaths(0)),
    ],
)
def test_the_record_says_how_often_in_a_row_a_process_died(
    ledger: RunLedger, ends: list[str | RunEvent], deaths: Deaths
) -> None:
    job = Job(ledger)
    for end in ends:
        if isinstance(end, RunEvent):
            job.decide(end)
        else:
            job.die(end)
    assert job.deaths()[:2] == deaths[:2]
    if deaths.in_call:
        assert job.deaths().call == deaths.call


def test_what_dies_in_one_call_again_and_again_goes_into_quarantine(ledger: RunLedger) -> None:
    job, told = Job(ledger), list[Told]()
    for _ in range(3):
        job.die("second")
    worker = Worker(ledger, settings=WorkerSettings(poll_s=0.02, most_deaths=3), tell=told.append)
    assert worker.run(until_idle=True).outcomes == {}
    assert [(one.event, one.run_id) for one in told] == [("quarantined", "r1")]
    assert (job.row().state, job.row().reason) == (RunState.QUARANTINED, told[0].words)
    assert told[0].words.startswith(f"{DEATHS}3 processes in a row")
    job.decide(RunEvent.RELEASE)
    again = Worker(ledger, settings=WorkerSettings(poll_s=0.02, most_deaths=3))
    assert again.run(until_idle=True).outcomes == {Outcome.COMPLETED: 1}
    assert job.ran == ["first"] + ["second"] * 4


def test_a_run_that_was_carried_on_since_it_was_looked_at_is_not_stopped(ledger: RunLedger) -> None:
    job = Job(ledger)
    job.die("first")
    before = job.row()
    job.die("first")
    assert not ledger.runs_of_queue().stop(before, reason="x")
    assert job.row().state is RunState.RUNNING
    assert not ledger.runs_of_queue().is_free_as(before)
    assert ledger.runs_of_queue().is_free_as(job.row())


def test_a_run_that_was_taken_over_is_gone_on_with_though_its_holder_lives(ledger: RunLedger, place: Any) -> None:
    """As of a host that stands still: its session holds the lock, and its attempt may write nothing more."""
    job = Job(ledger)
    with RunLedger(db_path=place) as other:
        other.entry(name="job")(lambda: 1)
        held = other.run("r1")
        held.__enter__()
        assert ledger.runs_of_queue().live(["r1"]) == {"r1"}
        assert not ledger.runs_of_queue().was_taken_over(job.row())
        job.decide(RunEvent.TAKEOVER)
        worker = Worker(ledger, settings=WorkerSettings(poll_s=0.02))
        in_the_end = threading.Timer(30, worker.stop)
        in_the_end.start()
        assert worker.run(until_idle=True).outcomes == {Outcome.COMPLETED: 1}
        in_the_end.cancel()
        assert not ledger.runs_of_queue().was_taken_over(job.row())
        held.__exit__(SystemExit, SystemExit(), None)


def test_nobody_takes_over_what_nobody_is_at(ledger: RunLedger) -> None:
    """It would hide that the run was submitted, or since when it waits."""
    job = Job(ledger)
    before = job.row()
    with pytest.raises(Refused) as caught:
        job.decide(RunEvent.TAKEOVER)
    assert (caught.value.code, job.row()) == ("nobody_at_it", before)
    assert "a worker of its queue goes on with it" in str(caught.value.hint)
    assert Worker(ledger, settings=WorkerSettings(poll_s=0.02)).run(until_idle=True).outcomes == {Outcome.COMPLETED: 1}


def test_a_takeover_keeps_why_a_run_failed(ledger: RunLedger) -> None:
    @ledger.entry(name="other")
    def other() -> None:
        raise ValueError("the cause")

    with pytest.raises(ValueError, match="cause"):
        other.start("r1")
    reader = ledger._opened.context().store.reader()
    before = reader.find_run("r1")
    decide(ledger._opened.context(), "r1", RunEvent.TAKEOVER, reason="x", actor="op")
    after = reader.find_run("r1")
    assert before is not None
    assert after is not None
    assert (after.state, after.reason) == (RunState.FAILED, before.reason)
    assert "the cause" in after.reason or "ValueError" in after.reason


def test_a_damaged_run_that_waits_ends_no_worker_and_is_told_once(
    ledger: RunLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, looks, told = Job(ledger), list[str](), list[Told]()
    job.die("waits")

    def damaged(_: RunQueue, row: RunRow, **__: object) -> bool:
        looks.append(row.run_id)
        raise Tampered("its END is gone", code="row_missing")

    monkeypatch.setattr(RunQueue, "may_go_on", damaged)
    job.entry.submit("r2")
    worker = Worker(ledger, settings=WorkerSettings(poll_s=0.02), tell=told.append)
    working(worker, lambda: len(looks) > 1)
    assert worker.tally.outcomes == {Outcome.COMPLETED: 1, Outcome.REFUSED: 1}
    assert [one.words[:9] for one in told if one.event == "refused"] == ["Tampered:"]


def test_a_store_that_cannot_be_asked_about_one_run_is_asked_again(
    ledger: RunLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That says nothing of the run."""
    job, asked = Job(ledger), list[str]()
    job.die("waits")

    def away(_: RunQueue, row: RunRow, **__: object) -> bool:
        asked.append(row.run_id)
        if len(asked) < 2:
            raise Unavailable("restarting", code="store_failed")
        return True

    monkeypatch.setattr(RunQueue, "may_go_on", away)
    worker = Worker(ledger, settings=WorkerSettings(poll_s=0.02))
    working(worker, lambda: job.row().state is RunState.COMPLETED)
    assert (worker.tally.trouble, worker.tally.outcomes) == (1, {Outcome.COMPLETED: 1})


def test_a_worker_with_nothing_to_do_notices_that_its_store_was_moved(
    ledger: RunLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    Job(ledger)
    worker = Worker(ledger, settings=WorkerSettings(poll_s=0.02))
    failed: list[BaseException] = []

    def work() -> None:
        try:
            worker.run()
        except Refused as error:
            failed.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    deadline = time.monotonic() + 30
    while not worker.tally.outcomes[Outcome.COMPLETED]:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    moved = Move(standing=Standing.RETIRED, move_id=b"m" * 16, peer="elsewhere.db")
    store = ledger._opened.context().store
    monkeypatch.setattr(type(store), "read_move", lambda _: moved)
    thread.join(30)
    worker.stop()
    thread.join(30)
    assert [one.code for one in failed if isinstance(one, Refused)] == ["retired"]


@only_a_file
def test_a_worker_with_nothing_to_do_notices_that_its_file_was_replaced(tmp_path: Path) -> None:
    place = tmp_path / "runs.db"
    with RunLedger(db_path=place) as ledger:
        Job(ledger)
        ledger.runs_of_queue().refuse_moved()
        for path in tmp_path.glob("runs.db*"):
            path.rename(tmp_path / f"old-{path.name}")
        with pytest.raises(Tampered) as caught:
            ledger.runs_of_queue().refuse_moved()
    assert caught.value.code == "store_replaced"


@only_a_file
def test_nobody_opens_a_store_to_see_whether_it_was_moved(tmp_path: Path) -> None:
    opened = OpenedStore(str(tmp_path / "runs.db"), create=True, durability="commit", limit_bytes=1_000)
    opened.refuse_moved()
    assert not (tmp_path / "runs.db").exists()


def test_what_ends_its_thread_is_named(ledger: RunLedger) -> None:
    told: list[Told] = []
    left = [KeyboardInterrupt("by hand"), SystemExit()]

    @ledger.entry(name="ends")
    def ends() -> int:
        if left:
            raise left.pop()
        return 1

    ends.submit("r9")
    worker = Worker(ledger, settings=WorkerSettings(poll_s=0.02), tell=told.append)
    worker.run(until_idle=True)
    words = [one.words for one in told if one.event == "interrupted"]
    assert words[0].startswith("its thread was ended by SystemExit; tried again in")
    assert words[1].startswith("its thread was ended by KeyboardInterrupt: by hand; tried again in")


def test_a_run_that_waits_and_is_refused_here_is_tried_ever_more_seldom(ledger: RunLedger, place: Any) -> None:
    """As by a host without the trust file: the run stays suspended, and may go on at each look."""
    Job(ledger).die("waits")
    told: list[Told] = []
    with RunLedger(db_path=place) as other:
        other.entry(name="else")(lambda: 1)
        worker = Worker(other, settings=WorkerSettings(poll_s=0.02, pending_s=0), tell=told.append)
        working(worker, lambda: worker.tally.outcomes[Outcome.REFUSED] == 2)
    said = [one.words.rpartition("; ")[2] for one in told if one.event == "refused"]
    assert said == ["tried again in 1 s", "tried again in 2 s"]
