"""What a dynamic run records of its own: moments, random numbers, UUIDs and values, the same at every restart."""

from __future__ import annotations

import asyncio
import contextlib
import pathlib
from collections import Counter
from collections.abc import Iterator
from datetime import UTC
from typing import Any

import pytest

from agent_run_ledger import Misuse, RunLedger, Unavailable
from agent_run_ledger.kernel.record import RecordKind
from agent_run_ledger.kernel.states import RunState
from agent_run_ledger.runs.journal import Journal
from agent_run_ledger.runs.run import Run
from agent_run_ledger.testing import check_ledger
from tests.contract.agent_kit import Gate, New, alive, live
from tests.contract.run_kit import calls_of, marks_of, records_of, row_of, store_exists, watch_sync


@pytest.fixture(autouse=True)
def _the_ledger_holds(db: pathlib.Path) -> Iterator[None]:
    yield
    if store_exists(db):
        check_ledger(db)


def _all_of_them(run: Run) -> list[object]:
    return [run.now(), run.random(), run.uuid4(), run.now(), run.value("pick", lambda: {1, 2}), run.random()]


def test_values_are_restored(new_ledger: New) -> None:
    def agent(ledger: RunLedger, run: Run) -> Any:
        body = ledger.step(lambda: _all_of_them(run), name="body")
        return _all_of_them(run), run.gather(*[lambda: _all_of_them(run)] * 3), body()

    first = live(new_ledger, agent, crash=True)
    assert first == live(new_ledger, agent) == live(new_ledger, agent)
    now, number, unique, *_ = first[0]
    assert now.tzinfo is UTC
    assert 0 <= number < 1
    assert unique.version == 4
    assert first[0][1] != first[0][5]
    assert len({tuple(map(str, branch)) for branch in first[1]}) == 3


def test_values_are_restored_on_an_event_loop(new_ledger: New) -> None:
    async def agent(ledger: RunLedger, run: Run) -> Any:
        async def branch() -> Any:
            await asyncio.sleep(0)
            return _all_of_them(run)

        return _all_of_them(run), await run.gather(branch(), branch())

    assert alive(new_ledger, agent, crash=True) == alive(new_ledger, agent) == alive(new_ledger, agent)


def test_a_value_has_no_mark_and_is_not_synced(new_ledger: New, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = new_ledger()
    with ledger.run() as run:
        synced = watch_sync(ledger, monkeypatch)
        run.random()
        assert synced == [False]
        assert marks_of(ledger) == []


@pytest.mark.parametrize("name", ["", "x" * 191, "a\n", 7])
def test_a_value_needs_a_name(new_ledger: New, name: Any) -> None:
    with new_ledger().run() as run, pytest.raises(Misuse) as refused:
        run.value(name, lambda: 1)
    assert refused.value.code == "bad_value"


def test_what_the_function_of_a_value_raises_is_not_recorded(new_ledger: New) -> None:
    def fails() -> int:
        raise ValueError("no")

    with new_ledger().run() as run:
        with pytest.raises(ValueError, match="no"):
            run.value("pick", fails)
        assert run.value("pick", lambda: 3) == 3
    with new_ledger().run() as run:
        assert run.value("pick", fails) == 3


def test_a_body_that_is_tried_again_gets_the_value_as_it_was_made(new_ledger: New) -> None:
    def agent(ledger: RunLedger, run: Run) -> Any:
        tries = Counter[str]()

        @ledger.step(retries=1, retry_base_s=0)
        def body() -> list[int]:
            value = run.value("list", list[int])
            value.append(1)
            tries["body"] += 1
            if tries["body"] == 1:
                raise ConnectionError
            return value

        return body()

    assert live(new_ledger, agent) == [1]


def test_a_value_whose_commit_fails_goes_with_a_later_one(new_ledger: New, monkeypatch: pytest.MonkeyPatch) -> None:
    """In sync code it is said, on an event loop nobody waits for it; what is recorded later never stands without it."""
    whole, failing = Journal.commit, [1]

    def commit(self: Journal, batch: Any) -> Any:
        if batch.values and failing and not batch.starts and batch.end_state is None:
            failing.pop()
            raise Unavailable("the disk is full")
        return whole(self, batch)

    monkeypatch.setattr(Journal, "commit", commit)

    def agent(ledger: RunLedger, run: Run) -> Any:
        echo = ledger.step(lambda n: n, name="echo")
        try:
            number = run.random()
        except Unavailable:
            number = run.random()
        return number, echo(number)

    async def on_loop(ledger: RunLedger, run: Run) -> Any:
        return agent(ledger, run)

    assert live(new_ledger, agent, crash=True) == live(new_ledger, agent)
    failing.append(1)
    assert alive(new_ledger, on_loop, crash=True, run_id="r2") == alive(new_ledger, on_loop, run_id="r2")
    assert [name for _, name in calls_of(new_ledger(), "r2")] == ["run.random", "echo"]


def test_nothing_is_committed_before_a_value_that_is_under_way(
    new_ledger: New, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, gate = Journal.commit, Gate()

    def commit(self: Journal, batch: Any) -> Any:
        if batch.values:
            gate.stop()
        return whole(self, batch)

    monkeypatch.setattr(Journal, "commit", commit)

    async def agent(ledger: RunLedger, run: Run) -> Any:
        echo = ledger.step(lambda n: n, name="echo")
        number = run.random()
        await asyncio.to_thread(gate.wait)
        asyncio.get_running_loop().call_later(0.05, gate.open)
        return await run.gather(lambda: echo(number))

    alive(new_ledger, agent)
    assert [record.name for record in records_of(new_ledger(), RecordKind.RESULT)] == ["run.random", "echo"]


def test_a_run_within_this_one_starts_after_the_values_it_may_be_made_of(
    new_ledger: New, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agent_run_ledger.store.StoreThread.post", lambda self, fn: None)

    async def agent(ledger: RunLedger, run: Run) -> Any:
        number = run.random()
        async with ledger.run(number=number):
            assert [record.name for record in records_of(new_ledger(), RecordKind.RESULT)] == ["run.random"]
        return number

    assert alive(new_ledger, agent, crash=True) == alive(new_ledger, agent)


def test_nothing_goes_on_from_a_value_of_a_run_that_was_left_before_its_commit(
    new_ledger: New, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run around it is told at its next call, records nothing, and a restart goes on from what is on record."""
    whole, failing, bodies = Journal.commit, [True], list[float]()

    def commit(self: Journal, batch: Any) -> Any:
        if batch.values and failing[0]:
            raise Unavailable("the disk is full")
        return whole(self, batch)

    monkeypatch.setattr(Journal, "commit", commit)

    async def agent(ledger: RunLedger, run: Run) -> Any:
        echo = ledger.step(lambda n: (bodies.append(n), n)[1], name="echo")
        numbers, handed_out = list[float](), asyncio.Event()

        async def within() -> None:
            async with ledger.run(x=1) as inner:
                numbers.append(inner.random())
                handed_out.set()
                await asyncio.Event().wait()

        task = asyncio.create_task(within())
        await handed_out.wait()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        with contextlib.suppress(Unavailable):
            echo(numbers[0])
        return echo(numbers[0])

    with pytest.raises(Unavailable) as refused:
        alive(new_ledger, agent)
    assert refused.value.code == "value_lost"
    assert bodies == []
    assert row_of(new_ledger()).state is RunState.RUNNING
    failing[0] = False
    assert alive(new_ledger, agent) == bodies[0]
