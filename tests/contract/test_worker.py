"""A worker in this process: takes what is queued, wakes what may go on, leaves what cannot, and drains."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agent_run_ledger import ApprovalPending, LedgerError, Pending, RunLedger, Tampered, Unavailable
from agent_run_ledger.errors import Refused
from agent_run_ledger.kernel.states import RunState
from agent_run_ledger.ledger.run_queue import RunQueue
from agent_run_ledger.store.postgres_listener import WAIT_S
from agent_run_ledger.worker import Told, Worker, WorkerSettings
from agent_run_ledger.worker.carrying import Outcome
from agent_run_ledger.worker.picking import ELSEWHERE_S, FIRST_S, LOOK_S, MOST_S, Picker
from tests.contract.effect_run_kit import desk
from tests.contract.engine_kit import each_engine, only_a_file
from tests.contract.worker_kit import working

pytestmark = each_engine


@pytest.fixture
def ledger(place: Any) -> Iterator[RunLedger]:
    with RunLedger("r1", place) as made:
        yield made


class At:
    """A clock that the test moves."""

    def __init__(self) -> None:
        self.s = 1_000.0

    def __call__(self) -> float:
        return self.s


def settings(**changes: float) -> WorkerSettings:
    return WorkerSettings(**{"poll_s": 0.02, "drain_s": 20.0, **changes})  # type: ignore[arg-type]


def done(ledger: RunLedger, **changes: float) -> dict[str, int]:
    tally = Worker(ledger, settings=settings(**changes)).run(until_idle=True)
    return {str(outcome): count for outcome, count in tally.outcomes.items()}


def test_it_begins_what_is_queued(ledger: RunLedger) -> None:
    @ledger.step
    def double(n: int) -> int:
        return 2 * n

    @ledger.entry
    def job(n: int) -> int:
        return double(n)

    @ledger.entry
    async def ajob(n: int) -> int:
        return n

    names = [job.submit(n=n) for n in range(5)] + [ajob.submit(n=9)]
    assert done(ledger) == {"completed": 6}
    assert {ledger.bind(name).state for name in names} == {RunState.COMPLETED}
    assert job.start(names[3], n=3) == 6


def test_a_pipeline_too(ledger: RunLedger) -> None:
    @ledger.step
    def double(n: int) -> int:
        return 2 * n

    ledger.submit("p", n=1)
    assert done(ledger) == {"completed": 1}
    assert ledger.bind("p").execute(n=1) == 2


def test_a_run_that_raised_is_failed_and_not_tried_again(ledger: RunLedger) -> None:
    tries: list[int] = []

    @ledger.entry
    def job() -> None:
        tries.append(1)
        raise ValueError("no")

    job.submit("r1")
    assert (done(ledger), done(ledger), len(tries)) == ({"failed": 1}, {}, 1)
    assert ledger.bind("r1").state is RunState.FAILED


def test_at_most_so_many_at_once(ledger: RunLedger) -> None:
    lock, at_once, most = threading.Lock(), [0], [0]

    @ledger.entry
    def job(n: int) -> None:
        with lock:
            at_once[0] += 1
            most[0] = max(most[0], at_once[0])
        time.sleep(0.05)
        with lock:
            at_once[0] -= 1

    for n in range(7):
        job.submit(n=n)
    assert done(ledger, concurrency=3) == {"completed": 7}
    assert most == [3]


def test_a_run_of_another_program_is_left_and_told(ledger: RunLedger, place: Any) -> None:
    ledger.entry(name="job")(lambda: None)
    ledger.submit("r1")
    told: list[Told] = []
    with RunLedger(db_path=place) as other:
        other.entry(name="else")(lambda: None)
        tally = Worker(other, settings=settings(), tell=told.append).run(until_idle=True)
    assert tally.outcomes == {Outcome.REFUSED: 1}
    assert "wants the entry 'job'" in told[-1].words
    assert "tried again in 1 s" in told[-1].words
    assert done(ledger) == {"completed": 1}


def test_who_is_live_elsewhere_is_not_waited_for(ledger: RunLedger, place: Any) -> None:
    ledger.entry(name="job")(lambda: 1)
    ledger.submit("r1")
    ledger.submit("r2")
    with RunLedger(db_path=place) as other:
        other.entry(name="job")(lambda: 1)
        with other.run("r1"):  # somebody is at it
            told: list[Told] = []
            worker = Worker(ledger, settings=settings(), tell=told.append)
            working(worker, lambda: ledger.bind("r2").state is RunState.COMPLETED)
    assert [one.run_id for one in told if one.event == "taken"] == ["r2"]


def test_what_was_left_behind_is_gone_on_with(ledger: RunLedger) -> None:
    ran: list[int] = []

    @ledger.step
    def one(n: int) -> int:
        ran.append(n)
        return n

    stop = [True]

    @ledger.entry
    def job() -> int:
        first = one(1)
        if stop:
            raise SystemExit  # as a process that is ended: nothing says how the attempt ended
        return first + one(2)

    job.submit("r1")
    with pytest.raises(SystemExit):
        job.start("r1")
    assert ledger.bind("r1").state is RunState.RUNNING
    stop.clear()
    assert done(ledger) == {"completed": 1}
    assert ran == [1, 2]


def test_what_ends_its_thread_is_left_and_tried_again_later(ledger: RunLedger) -> None:
    ends = [True]

    @ledger.entry
    def job() -> int:
        if ends:
            ends.clear()
            raise SystemExit
        return 1

    job.submit("r1")
    assert done(ledger) == {"interrupted": 1, "completed": 1}


def test_a_run_that_waits_is_left_alone_until_it_may_go_on(ledger: RunLedger) -> None:
    waits = [True]

    @ledger.entry
    def job() -> int:
        if waits:
            raise Pending("a person has to look")
        return 1

    job.submit("r1")
    assert done(ledger) == {"waits": 1}
    assert done(ledger, pending_s=3_600) == {}
    waits.clear()
    worker = Worker(ledger, settings=settings(pending_s=0))
    working(worker, lambda: ledger.bind("r1").state is RunState.COMPLETED)
    assert worker.tally.outcomes == {Outcome.COMPLETED: 1}


def test_a_store_that_cannot_be_asked_is_asked_again(ledger: RunLedger, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger.entry(name="job")(lambda: 1)
    ledger.submit("r1")
    asked, real = [0], RunQueue.queued

    def fails(self: RunQueue, **named: int) -> object:
        asked[0] += 1
        if asked[0] <= 2:
            raise Unavailable("restarting", code="store_failed")
        return real(self, **named)

    monkeypatch.setattr(RunQueue, "queued", fails)
    told: list[Told] = []
    tally = Worker(ledger, settings=settings(), tell=told.append).run(until_idle=True)
    assert (tally.trouble, tally.outcomes) == (2, {Outcome.COMPLETED: 1})
    said = [one.words for one in told if one.event in ("trouble", "answers")]
    assert len(said) == 2, "once that it cannot be asked, and once that it can"
    assert "in vain 2 times" in said[1]


def test_it_drains_and_says_what_it_leaves(ledger: RunLedger) -> None:
    goes_on, begun = threading.Event(), threading.Event()

    @ledger.entry
    def job(n: int) -> int:
        begun.set()
        assert goes_on.wait(30)
        return n

    job.submit("r0", n=0)
    job.submit("r1", n=1)
    worker = Worker(ledger, settings=settings(concurrency=1, drain_s=0.05))
    thread = threading.Thread(target=worker.run)
    thread.start()
    assert begun.wait(30)
    worker.stop()
    thread.join(30)
    assert (worker.tally.left, ledger.bind("r0").state) == (1, RunState.RUNNING)
    assert ledger.bind("r1").state is RunState.SUSPENDED  # nothing new was taken
    assert not worker.asks
    goes_on.set()
    deadline = time.monotonic() + 30
    while ledger.bind("r0").state is not RunState.COMPLETED:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert done(ledger) == {"completed": 1}


@only_a_file
def test_what_fails_at_listening_keeps_no_run_from_being_carried_out(
    ledger: RunLedger, caplog: pytest.LogCaptureFixture
) -> None:
    ledger.entry(name="job")(lambda: 1)
    for _ in range(3):
        ledger.submit()

    def deaf(_: Told) -> None:
        raise BrokenPipeError("stderr is closed")

    worker = Worker(ledger, settings=settings(), tell=deaf)
    working(worker, lambda: worker.tally.outcomes[Outcome.COMPLETED] == 3)
    assert worker.tally.outcomes == {Outcome.COMPLETED: 3}
    assert [record.levelname for record in caplog.records] == ["WARNING"]


@pytest.mark.parametrize("code", ["store_replaced", "retired"])
def test_what_is_said_of_the_whole_store_ends_a_worker_with_it(
    ledger: RunLedger, monkeypatch: pytest.MonkeyPatch, code: str
) -> None:
    """No run of it would fare better; that of a run's own records refuses this run alone."""
    ledger.entry(name="job")(lambda: 1)
    ledger.submit("r1")
    ledger.submit("r2")
    error = Tampered if code == "store_replaced" else Refused
    store, said = ledger.runs_of_queue()._opened.context().store, [error("of a run", code="damaged_value")]

    def refuses(*_: Any, **__: Any) -> object:
        raise said[0]

    with monkeypatch.context() as patched:
        patched.setattr(type(store), "transact", refuses)
        assert done(ledger) == {"refused": 2}
        said[0] = error("of the store", code=code)
        with pytest.raises(error) as caught:
            Worker(ledger, settings=settings()).run(until_idle=True)
        assert caught.value is said[0]
    assert done(ledger) == {"completed": 2}


def test_a_body_that_says_it_of_another_store_fails_its_run_and_no_more(ledger: RunLedger) -> None:
    @ledger.entry
    def job(n: int) -> int:
        if not n:
            raise Tampered("elsewhere", code="store_replaced")
        return n

    for n in range(3):
        job.submit(f"r{n}", n=n)
    assert done(ledger) == {"refused": 1, "completed": 2}
    assert ledger.bind("r0").state is RunState.FAILED


@only_a_file
def test_an_answer_that_comes_after_the_end_takes_nothing(ledger: RunLedger, monkeypatch: pytest.MonkeyPatch) -> None:
    """As of a server that was silent: `run` returned without it."""
    ledger.entry(name="job")(lambda: 1)
    ledger.submit("r1")
    asked, answers, real = threading.Event(), threading.Event(), Picker.pick

    def late(self: Picker, *given: Any) -> object:
        asked.set()
        assert answers.wait(30)
        return real(self, *given)

    monkeypatch.setattr(Picker, "pick", late)
    worker = Worker(ledger, settings=settings())
    working(worker, lambda: asked.is_set())
    assert worker.asks
    answers.set()
    worker._looking.join(30)
    assert (worker.asks, worker._failure, worker._in_hand) == (False, None, set())
    assert ledger.bind("r1").state is RunState.SUSPENDED


@only_a_file
def test_a_store_that_waiting_does_not_open_ends_it(tmp_path: Path) -> None:
    with RunLedger(db_path=tmp_path / "nowhere" / "runs.db") as ledger:
        worker = Worker(ledger, settings=settings())
        in_the_end = threading.Timer(20, worker.stop)  # one that waits would do so without an end
        in_the_end.start()
        with pytest.raises(Unavailable) as caught:
            worker.run()
        in_the_end.cancel()
    assert caught.value.code == "cannot_open"


@pytest.mark.parametrize(
    "bad", [{"concurrency": 0}, {"concurrency": 1_025}, {"concurrency": True}, {"poll_s": 0}, {"drain_s": -1},
            {"pending_s": float("nan")}, {"most_deaths": -1}, {"most_deaths": True}]
)  # fmt: skip
def test_settings_that_cannot_be(bad: dict[str, float]) -> None:
    with pytest.raises(LedgerError) as caught:
        settings(**bad)
    assert caught.value.code == "bad_setting"


class TestPicker:
    """What is picked, with a clock that the test moves."""

    @pytest.fixture
    def picker(self, ledger: RunLedger) -> tuple[Picker, At]:
        ledger.entry(name="job")(lambda n: n)
        for n in range(3):
            ledger.submit(f"r{n}", n=n)
        at = At()
        return Picker(ledger.runs_of_queue(), at, pending_ms=0, fraction=float), at

    def names(self, picker: Picker, room: int = 10, in_hand: tuple[str, ...] = ()) -> list[str]:
        return [row.run_id for row in picker.pick(room, in_hand)]

    def test_the_oldest_first_and_none_in_hand(self, picker: tuple[Picker, At]) -> None:
        assert self.names(picker[0], 2) == ["r0", "r1"]
        assert self.names(picker[0], 2, ("r0",)) == ["r1", "r2"]

    def test_what_failed_is_left_ever_longer(self, picker: tuple[Picker, At]) -> None:
        chosen, at = picker
        lengths = [chosen.failed("r0", refused=False) for _ in range(12)]
        assert lengths[:4] == [FIRST_S, 2 * FIRST_S, 4 * FIRST_S, 8 * FIRST_S]
        assert lengths[-1] == MOST_S
        assert self.names(chosen) == ["r1", "r2"]
        at.s += MOST_S
        assert self.names(chosen) == ["r0", "r1", "r2"]
        chosen.ended("r0")
        assert chosen.failed("r0", refused=False) == FIRST_S

    def test_what_is_live_elsewhere_is_passed_over_for_a_moment(
        self, picker: tuple[Picker, At], ledger: RunLedger
    ) -> None:
        chosen, at = picker
        with ledger.run("r1", n=1):
            assert self.names(chosen) == ["r0", "r2"]
        assert self.names(chosen) == ["r0", "r2"]
        at.s += ELSEWHERE_S
        assert self.names(chosen) == ["r0", "r2"]  # it is completed

    def test_idle_is_where_only_the_refused_are_left(self, picker: tuple[Picker, At]) -> None:
        chosen, _ = picker
        for name in ("r0", "r1"):
            chosen.failed(name, refused=True)
        chosen.failed("r2", refused=False)
        assert not chosen.is_idle()
        chosen.failed("r2", refused=True)
        assert chosen.is_idle()

    def test_suspended_runs_are_looked_at_once_a_second(self, ledger: RunLedger) -> None:
        at = At()

        @ledger.entry
        def job() -> None:
            raise Pending("later")

        job.submit("w")
        chosen = Picker(ledger.runs_of_queue(), at, pending_ms=0, fraction=float)
        with pytest.raises(Pending):
            job.start("w")
        assert self.names(chosen) == ["w"]
        assert self.names(chosen) == []
        at.s += LOOK_S
        assert self.names(chosen) == ["w"]
        assert self.names(Picker(ledger.runs_of_queue(), at, pending_ms=3_600_000, fraction=float)) == []


def test_a_run_that_waits_for_an_approval_goes_on_when_it_is_granted() -> None:
    with desk() as opened:
        program = opened.program()
        ledger, refund = program.ledger, program.refund

        @ledger.entry
        def job(order: int) -> int | None:
            return refund(order, 3_000).status

        job.submit("r1", order=17)
        with pytest.raises(ApprovalPending):
            job.start("r1", order=17)
        queue = ledger.runs_of_queue()
        (row,) = queue.waiting(limit=9)
        assert not queue.may_go_on(row, pending_ms=0)
        opened.grant()
        assert queue.may_go_on(row, pending_ms=0)
        worker = Worker(ledger, settings=settings())
        working(worker, lambda: ledger.bind("r1").state is RunState.COMPLETED)
        assert (opened.sent, job.start("r1", order=17)) == (1, 201)
        ledger.close()


def test_a_worker_at_a_server_hears_of_a_submission(ledger: RunLedger, request: pytest.FixtureRequest) -> None:
    """It looks but once a minute: what it begins sooner it was told of. Nobody tells of a file."""
    ledger.entry(name="job")(lambda: 1)
    ledger.submit("r0")
    heard = threading.Event()
    deaf = ledger.runs_of_queue().on_submitted(heard.set)
    try:
        at_server = request.node.callspec.params["engine"] == "postgres"
        assert heard.wait(30 if at_server else 0.05) is at_server  # once, when it begins to listen
        heard.clear()
        assert not heard.wait(3 * WAIT_S if at_server else 0)  # its connection stays, though nothing comes on it
        ledger.submit("r1")
        assert heard.wait(30 if at_server else 0.05) is at_server
    finally:
        deaf()
