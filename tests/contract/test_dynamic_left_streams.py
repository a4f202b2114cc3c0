"""A completed run is entered again: what was taken of a stream that was left is given once more, and no body runs."""

from __future__ import annotations

import asyncio
import pathlib
from collections.abc import AsyncIterator, Iterator

import pytest

from agent_run_ledger import Refused, RunLedger, Unavailable, report_usage
from agent_run_ledger.testing import check_ledger


class Boom(Exception):
    pass


@pytest.fixture
def path(tmp_path: pathlib.Path) -> pathlib.Path:
    return tmp_path / "runs.db"


def test_what_was_taken_of_a_left_stream_is_given_again_in_a_completed_run(path: pathlib.Path) -> None:
    ledger = RunLedger(run_id="r", db_path=path)
    bodies: list[str] = []

    @ledger.step
    def count(n: int) -> Iterator[dict[str, int]]:
        bodies.append("count")
        for at in range(n):
            yield {"at": at}

    @ledger.step
    async def acount(n: int) -> AsyncIterator[int]:
        bodies.append("acount")
        for at in range(n):
            yield at

    def agent(take: int) -> list[object]:
        with ledger.run():
            stream = count(9)
            taken: list[object] = [next(stream) for _ in range(take)]
            stream.close()  # type: ignore[attr-defined]
            return [*taken, *count(2)]

    async def aagent() -> list[object]:
        taken: list[object] = []
        async with ledger.run("async"):
            async for chunk in acount(9):
                taken.append(chunk)
                if chunk == 3:
                    break
        return taken

    first = agent(2)
    assert agent(2) == first == [{"at": 0}, {"at": 1}, {"at": 0}, {"at": 1}]
    assert bodies == ["count", "count"]
    with pytest.raises(Refused) as caught:
        agent(3)
    assert caught.value.code == "run_completed"
    assert asyncio.run(aagent()) == [0, 1, 2, 3]
    assert asyncio.run(aagent()) == [0, 1, 2, 3]
    assert bodies == ["count", "count", "acount"]
    ledger.close()
    check_ledger(path)


def test_a_child_that_left_a_stream_does_not_hold_its_parent_up(path: pathlib.Path) -> None:
    ledger = RunLedger(run_id="r", db_path=path)
    dies = [True]

    @ledger.step
    def count() -> Iterator[int]:
        yield from range(9)

    def agent() -> int:
        with ledger.run():
            with ledger.run(part=1):
                first = next(count())
            if dies.pop():
                raise Boom
            return first

    with pytest.raises(Boom):
        agent()
    dies.append(False)
    assert agent() == 0
    ledger.close()
    check_ledger(path)


def test_an_unsafe_tool_that_called_steps_is_not_repeated_for_their_errors(path: pathlib.Path) -> None:
    ledger = RunLedger(run_id="r", db_path=path)
    charged: list[int] = []

    @ledger.step
    def ask() -> int:
        raise Unavailable("later")

    @ledger.tool
    def pay() -> int:
        charged.append(1)
        return ask()

    @ledger.tool
    def wait() -> int:
        charged.append(2)
        raise Unavailable("nothing happened yet")

    for tool, times in ((pay, 1), (wait, 2)):
        charged.clear()
        for _ in range(2):
            with pytest.raises(Unavailable), ledger.run(f"run of {tool.name}"):
                tool()
        assert len(charged) == times
    ledger.close()
    check_ledger(path)


def test_what_the_body_of_a_restored_call_had_called_is_restored_in_the_account_too(path: pathlib.Path) -> None:
    ledger = RunLedger(run_id="r", db_path=path)
    dies = [True]

    @ledger.step
    def ask(n: int) -> int:
        report_usage(model="m", input_tokens=100, output_tokens=0)
        return n

    @ledger.step
    def both() -> int:
        return ask(1) + ask(2)

    def agent() -> int:
        with ledger.run():
            found = both()
            if dies.pop():
                raise Boom
            return found

    with pytest.raises(Boom):
        agent()
    dies.append(False)
    assert agent() == 3
    account = ledger.bind("r").usage()
    assert account is not None
    assert (account.total.spent.tokens, account.total.restored.tokens) == (200, 200)
    ledger.close()
    check_ledger(path)
