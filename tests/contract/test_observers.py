"""What observers are told of a run, where, and that nothing they do reaches it."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import pytest

from agent_run_ledger import Misuse, RunLedger, RunState, StepTimeout, Superseded, Unavailable
from agent_run_ledger.kernel.notices import (
    AttemptEnded,
    AttemptOpened,
    CallBegun,
    CallConcluded,
    CallRestored,
    CallUnrecorded,
    CommitMade,
    Notice,
)
from agent_run_ledger.kernel.record import RecordKind
from agent_run_ledger.kernel.states import RunEvent
from agent_run_ledger.kernel.usage import Usage, usage_bytes
from agent_run_ledger.runs.watch import begin_watch
from tests.contract.observer_kit import Keeper, let_pay, two_steps
from tests.contract.run_kit import operate, row_of, store_of, stored_of, until

New = Callable[..., RunLedger]
ONE = [Usage(model="m", provider="p", input_tokens=10, output_tokens=3)]


def test_a_run_is_told_from_its_start_to_its_end_in_order(new_ledger: New) -> None:
    keeper = Keeper()
    ledger = new_ledger(observers=[keeper])
    two_steps(ledger)
    assert ledger.execute() == 2
    assert [kind for kind in keeper.kinds() if kind != "CommitMade"] == [
        "AttemptOpened",
        "CallConcluded",
        "CallConcluded",
        "AttemptEnded",
    ]
    (opened,) = keeper.of(AttemptOpened)
    assert (opened.run_id, opened.attempt, opened.generation) == ("r1", 1, 1)
    assert (opened.resumed, opened.takeover, opened.abandoned) == (False, False, ())
    first, second = keeper.of(CallConcluded)
    assert (first.call.step, first.kind, first.error, first.again) == ("first", RecordKind.RESULT, None, False)
    assert first.call.attempt is second.call.attempt is opened
    stored = stored_of(ledger, RecordKind.RESULT)
    assert [c.record_id for c in (first, second)] == [s.record_id for s in stored]
    assert [(c.call.started_at_ms, c.ended_at_ms) for c in (first, second)] == [
        (s.record.started_at_ms, s.record.ended_at_ms) for s in stored
    ]
    (ended,) = keeper.of(AttemptEnded)
    assert (ended.attempt, ended.state, ended.error) == (opened, RunState.COMPLETED, None)
    assert [step for what, step, _ in keeper.around_bodies if what == "enter"] == ["first", "second"]


def test_nothing_is_told_of_a_run_that_is_completed_or_busy(new_ledger: New) -> None:
    keeper = Keeper()
    ledger = new_ledger(observers=[keeper])
    two_steps(ledger)
    ledger.execute()
    told = len(keeper.notices)
    assert ledger.execute() == 2
    lock = store_of(ledger).lock_run("r2")
    assert lock is not None
    with pytest.raises(Unavailable):
        ledger.bind("r2").execute()
    lock.release()
    assert len(keeper.notices) == told


def test_a_restored_call_is_told_with_its_record_and_its_usage_is_read_when_asked(
    new_ledger: New, monkeypatch: pytest.MonkeyPatch
) -> None:
    let_pay(monkeypatch, {"first": ONE})
    failing = new_ledger()
    two_steps(failing, lambda first: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        failing.execute()
    keeper = Keeper()
    ledger = new_ledger(observers=[keeper])
    two_steps(ledger, lambda first: first + 1)
    assert ledger.execute() == 2
    assert keeper.of(AttemptOpened)[0].resumed
    (restored,) = keeper.of(CallRestored)
    result = stored_of(ledger, RecordKind.RESULT)[0]
    assert (restored.step, restored.record_id) == ("first", result.record_id)
    assert restored.read_usage() == usage_bytes(ONE)
    assert [call.call.step for call in keeper.of(CallConcluded)] == ["second"]
    assert [step for _, step, _ in keeper.around_bodies] == ["second", "second"]


def test_the_usage_of_a_record_that_a_fork_refers_to_is_read_from_that_record(
    new_ledger: New, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dataclasses import replace

    let_pay(monkeypatch, {"first": ONE})
    ledger = new_ledger()
    two_steps(ledger)
    ledger.execute()
    row, record_id = row_of(ledger), stored_of(ledger, RecordKind.RESULT)[0].record_id
    for forked_from, expected in ((row.row_id, usage_bytes(ONE)), (None, b"")):
        elsewhere = replace(row, row_id=row.row_id + 1, forked_from_row_id=forked_from)
        keeper = Keeper()
        watch = begin_watch([keeper], store_of(ledger), elsewhere, takeover=False)
        assert watch is not None
        (key,) = store_of(ledger).reader().keys_of([record_id])
        watch.restored(key)
        assert keeper.of(CallRestored)[0].read_usage() == expected


def test_a_failure_that_is_tried_again_and_one_that_is_not_are_told_apart(
    new_ledger: New, monkeypatch: pytest.MonkeyPatch
) -> None:
    let_pay(monkeypatch, {"flaky": ONE})
    keeper = Keeper()
    ledger = new_ledger(observers=[keeper])

    @ledger.step(name="flaky", retries=1, retry_base_s=0)
    def flaky() -> int:
        raise ValueError("secret")

    with pytest.raises(ValueError, match="secret"):
        ledger.execute()
    once, twice = keeper.of(CallConcluded)
    assert [(c.call.tries, c.again, c.kind) for c in (once, twice)] == [
        (1, True, RecordKind.ERROR),
        (2, False, RecordKind.ERROR),
    ]
    assert isinstance(twice.error, ValueError)
    assert twice.usage == usage_bytes(ONE)
    (ended,) = keeper.of(AttemptEnded)
    assert ended.state is RunState.FAILED
    assert ended.error is twice.error
    assert not keeper.of(CallUnrecorded)


def test_what_cannot_be_stored_is_told_as_rescued(new_ledger: New) -> None:
    keeper = Keeper()
    ledger = new_ledger(observers=[keeper])
    ledger.step(name="odd")(lambda: object())
    with pytest.raises(Misuse):
        ledger.execute()
    (concluded,) = keeper.of(CallConcluded)
    assert concluded.kind is RecordKind.RESCUED
    assert isinstance(concluded.error, Misuse)


def test_a_conclusion_is_told_after_its_commit_and_outside_of_the_stores_locks(new_ledger: New) -> None:
    ledger: RunLedger
    seen: list[int] = []

    class Looker(Keeper):
        def tell(self, notice: Notice) -> None:
            super().tell(notice)
            if isinstance(notice, CallConcluded):
                seen.append(store_of(ledger).reader().record(notice.record_id).record_id)
                store_of(ledger).transact(os.urandom(16), lambda tx: tx.find_run("r1"))  # refused inside another one

    looker = Looker()
    ledger = new_ledger(observers=[looker])
    two_steps(ledger)
    ledger.execute()
    assert seen == [stored.record_id for stored in stored_of(ledger, RecordKind.RESULT)]


def test_commits_are_told_with_the_time_they_waited_for_the_lock(new_ledger: New) -> None:
    keeper = Keeper()
    ledger = new_ledger(observers=[keeper])
    two_steps(ledger)
    ledger.execute()
    commits = keeper.of(CommitMade)
    assert len(commits) == 3  # the START is no commit of an attempt: it makes it one
    assert all(commit.failed == "" and 0 <= commit.waited_s <= commit.took_s for commit in commits)


def test_a_body_whose_commit_failed_is_told_as_unrecorded_with_what_it_used(
    new_ledger: New, monkeypatch: pytest.MonkeyPatch
) -> None:
    let_pay(monkeypatch, {"first": ONE})
    keeper = Keeper()
    ledger = new_ledger(observers=[keeper])
    two_steps(ledger)
    kind = type(store_of(ledger))
    whole, calls = kind.transact, iter(range(100))

    def transact(self: Any, op_id: bytes, fn: Any, *, sync: bool = True, first: Any = ()) -> Any:
        if next(calls) == 2:
            raise Unavailable("the disk is full", code="disk_full")
        return whole(self, op_id, fn, sync=sync, first=first)

    monkeypatch.setattr(kind, "transact", transact)
    with pytest.raises(Unavailable):
        ledger.execute()
    (unrecorded,) = keeper.of(CallUnrecorded)
    assert (unrecorded.call.step, unrecorded.usage) == ("first", usage_bytes(ONE))
    assert not keeper.of(CallConcluded)
    assert [(commit.failed, commit.waited_s >= 0) for commit in keeper.of(CommitMade)] == [
        ("", True),
        ("disk_full", False),
    ]
    (ended,) = keeper.of(AttemptEnded)
    assert ended.state is RunState.RUNNING
    assert isinstance(ended.error, Unavailable)


def test_an_interrupted_body_is_told_as_unrecorded_and_the_next_attempt_finds_it_abandoned(new_ledger: New) -> None:
    keeper = Keeper()
    ledger = new_ledger(observers=[keeper])

    def interrupt(first: int) -> int:
        raise KeyboardInterrupt

    two_steps(ledger, interrupt)
    with pytest.raises(KeyboardInterrupt):
        ledger.execute()
    (unrecorded,) = keeper.of(CallUnrecorded)
    assert (unrecorded.call.step, unrecorded.usage) == ("second", b"")
    assert keeper.of(AttemptEnded)[0].state is RunState.RUNNING
    again = Keeper()
    other = new_ledger(observers=[again])
    two_steps(other)
    other.execute()
    (opened,) = again.of(AttemptOpened)
    (abandoned,) = opened.abandoned
    assert (abandoned.step, abandoned.attempt, abandoned.tries) == ("second", 1, 1)
    third = Keeper()
    failing = new_ledger(run_id="r2", observers=[third])
    two_steps(failing, interrupt)
    for _ in range(3):
        with pytest.raises(KeyboardInterrupt):
            failing.execute()
    assert [len(o.abandoned) for o in third.of(AttemptOpened)] == [0, 1, 1], "told once, by the start that found it"


def test_a_body_that_outlives_its_timeout_is_told_once(new_ledger: New) -> None:
    keeper, go_on = Keeper(), threading.Event()
    ledger = new_ledger(observers=[keeper])

    @ledger.step(name="slow", timeout_s=0.01)
    def slow() -> None:
        go_on.wait(30)

    with pytest.raises(StepTimeout):
        ledger.execute()
    go_on.set()
    until(lambda: ("leave", "slow", "arl-step-slow") in keeper.around_bodies)
    assert [kind for kind in keeper.kinds() if kind.startswith("Call")] == ["CallConcluded"]
    assert keeper.kinds()[-1] == "AttemptEnded"


def test_a_cancelled_run_is_told_to_end_with_its_body_unrecorded(new_ledger: New) -> None:
    keeper = Keeper()
    ledger = new_ledger(observers=[keeper])
    ledger.step(name="first")(lambda: 1)
    inside: list[asyncio.Event] = []

    @ledger.step(depends_on=["first"])
    async def waiting(first: int) -> None:
        inside[0].set()
        await asyncio.Event().wait()

    async def main() -> None:
        inside.append(asyncio.Event())
        task = asyncio.create_task(ledger.aexecute())
        await inside[0].wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert [u.call.step for u in keeper.of(CallUnrecorded)] == ["waiting"]
    (ended,) = keeper.of(AttemptEnded)
    assert isinstance(ended.error, asyncio.CancelledError)
    assert keeper.around_bodies[-1] == ("leave", "waiting", "MainThread")


def test_a_body_that_begins_after_the_end_is_told_to_nobody(new_ledger: New) -> None:
    ledger = new_ledger()
    two_steps(ledger)
    ledger.execute()
    keeper = Keeper()
    watch = begin_watch([keeper], store_of(ledger), row_of(ledger), takeover=False)
    assert watch is not None
    late, early = watch.body("late", 1, 0), watch.body("early", 1, 0)
    with early:
        watch.ended(None)
    with late:
        pass
    watch.ended(None)
    assert keeper.kinds() == ["AttemptOpened", "CallUnrecorded", "AttemptEnded"]
    assert keeper.around_bodies == [(what, "early", "MainThread") for what in ("enter", "leave")]


def test_a_takeover_is_told_and_the_superseded_attempt_ends_as_running(new_ledger: New) -> None:
    old, new = Keeper(), Keeper()
    ledger = new_ledger(observers=[old])
    other = new_ledger(observers=[new])

    def overtaken(first: int) -> int:
        two_steps(other)
        assert other.bind("r1", takeover=True).execute() == 2
        return first

    two_steps(ledger, overtaken)
    with pytest.raises(Superseded):
        ledger.execute()
    assert new.of(AttemptOpened)[0].takeover
    assert [a.step for a in new.of(AttemptOpened)[0].abandoned] == ["second"]
    (ended,) = old.of(AttemptEnded)
    assert ended.state is RunState.RUNNING
    assert isinstance(ended.error, Superseded)
    assert [u.call.step for u in old.of(CallUnrecorded)] == ["second"]


def test_a_run_that_was_cancelled_meanwhile_ends_as_cancelled(new_ledger: New) -> None:
    keeper = Keeper()
    ledger = new_ledger(observers=[keeper])

    def cancelled(first: int) -> int:
        operate(ledger, RunEvent.CANCEL)
        return first

    two_steps(ledger, cancelled)
    with pytest.raises(Exception, match="cancelled"):
        ledger.execute()
    assert keeper.of(AttemptEnded)[0].state is RunState.CANCELLED
    assert [c.call.step for c in keeper.of(CallConcluded)] == ["first", "second"]


# -- around bodies --------------------------------------------------------------------------------------------------


def items(first: int) -> Any:
    yield first


async def awaited(first: int) -> int:
    await asyncio.sleep(0)
    return first


async def streamed(first: int) -> Any:
    yield first


@pytest.mark.parametrize("second", [lambda first: first, items, awaited, streamed])
@pytest.mark.parametrize("way", ["execute", "aexecute"])
def test_every_shape_of_body_runs_inside_what_is_put_around_it(new_ledger: New, second: Any, way: str) -> None:
    where: list[tuple[str, str]] = []

    class Placer(Keeper):
        def around(self, call: CallBegun) -> AbstractContextManager[object]:
            return self._placed(call)

        @contextmanager
        def _placed(self, call: CallBegun) -> Any:
            where.append(("enter", threading.current_thread().name))
            yield
            where.append(("leave", threading.current_thread().name))

    ledger = new_ledger(observers=[Placer()])
    ledger.step(name="first")(lambda: 1)

    def noting(first: int) -> Any:
        where.append(("body", threading.current_thread().name))
        return second(first)

    if second is awaited:

        async def step(first: int) -> Any:
            return await noting(first)
    elif second is streamed:

        async def step(first: int) -> Any:
            async for item in noting(first):
                yield item
    elif second is items:

        def step(first: int) -> Any:
            yield from noting(first)
    else:
        step = noting
    ledger.step(name="second", depends_on=["first"])(step)
    if way == "execute":
        ledger.execute()
    else:
        asyncio.run(ledger.aexecute())
    entered, body, left = where[2:]
    assert [entered[0], body[0], left[0]] == ["enter", "body", "leave"]
    assert entered[1] == body[1] == left[1]


def test_parallel_bodies_have_their_surroundings_in_their_own_threads(new_ledger: New) -> None:
    keeper = Keeper()
    ledger = new_ledger(observers=[keeper])
    together = threading.Barrier(2)
    ledger.step(name="a")(lambda: together.wait(30) and 0)
    ledger.step(name="b")(lambda: together.wait(30) and 0)
    ledger.execute()
    assert {(step, thread) for _, step, thread in keeper.around_bodies} == {("a", "arl-step-a"), ("b", "arl-step-b")}
