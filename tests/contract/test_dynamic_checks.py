"""Before a body runs, the records that no call asked for are checked: not on the event loop, nor in its way."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent_run_ledger import RunLedger, Tampered
from agent_run_ledger.runs import recorded
from agent_run_ledger.testing import check_ledger


class Boom(Exception):
    pass


def _live_once(ledger: RunLedger) -> None:
    with ledger.run():
        ledger.step(name="old")(lambda: 1)()
        raise Boom


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[RunLedger]:
    """A run with a record that the program does not ask for any more."""
    path = tmp_path / "runs.db"
    with RunLedger("r", path) as first, pytest.raises(Boom):
        _live_once(first)
    with RunLedger("r", path) as second:
        yield second
    check_ledger(path)


def test_the_loop_goes_on_while_records_are_checked(ledger: RunLedger, monkeypatch: pytest.MonkeyPatch) -> None:
    checking, go_on = threading.Event(), threading.Event()
    in_time: list[bool] = []
    whole = recorded.check_against_leaf

    def slow(*args: object) -> None:
        checking.set()
        in_time.append(go_on.wait(30))
        whole(*args)  # type: ignore[arg-type]

    @ledger.step
    async def ask(question: str) -> str:
        return question

    async def agent() -> None:
        async with ledger.run() as run:
            monkeypatch.setattr(recorded, "check_against_leaf", slow)
            first = asyncio.create_task(ask("a"))
            await asyncio.to_thread(checking.wait, 30)
            second = asyncio.create_task(ask("b"))
            run.now()
            await asyncio.sleep(0)  # the second call begins, and is left again
            second.cancel()
            go_on.set()
            assert await first == "a"
            with pytest.raises(asyncio.CancelledError):
                await second

    asyncio.run(agent())
    assert in_time == [True]


@pytest.mark.parametrize("first", ["a call", "a value"])
def test_nothing_runs_beside_a_record_that_was_changed(
    ledger: RunLedger, monkeypatch: pytest.MonkeyPatch, first: str
) -> None:
    bodies: list[str] = []

    def changed(*_: object) -> None:
        raise Tampered("changed")

    @ledger.step
    async def ask(question: str) -> str:
        bodies.append(question)
        return question

    async def agent() -> None:
        async with ledger.run() as run:
            monkeypatch.setattr(recorded, "check_against_leaf", changed)
            if first == "a value":
                run.now()  # checked before it is written, and raised on leaving at the latest
            else:
                await ask("a")

    with pytest.raises(Tampered):
        asyncio.run(agent())
    assert bodies == []
    monkeypatch.undo()
