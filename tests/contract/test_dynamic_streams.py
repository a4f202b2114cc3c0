"""Streams in a dynamic run: recorded when they are exhausted, and never otherwise."""

from __future__ import annotations

import asyncio
import gc
import pathlib
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from decimal import Decimal
from typing import Any

import pytest

from agent_run_ledger import Misuse, RunLedger, StepTimeout
from agent_run_ledger.runs.run import Run
from agent_run_ledger.testing import check_ledger
from tests.contract.agent_kit import Crash, New, alive, live
from tests.contract.run_kit import calls_of, store_exists


@pytest.fixture(autouse=True)
def _the_ledger_holds(db: pathlib.Path) -> Iterator[None]:
    yield
    if store_exists(db):
        check_ledger(db)


@pytest.fixture
def bodies() -> Counter[str]:
    return Counter()


CHUNKS: list[Any] = ["a", {"b": (1, 2)}, Decimal("1.50"), [b"x"]]


def _words(ledger: RunLedger, bodies: Counter[str], chunks: list[Any] = CHUNKS, **settings: Any) -> Any:
    @ledger.step(**settings)
    def words(prompt: str) -> Iterator[Any]:
        bodies["words"] += 1
        yield from chunks

    return words


def test_chunks_are_restored_as_they_were(new_ledger: New, bodies: Counter[str]) -> None:
    def agent(ledger: RunLedger, run: Run) -> Any:
        return list(_words(ledger, bodies)("p"))

    assert live(new_ledger, agent, crash=True) == live(new_ledger, agent) == CHUNKS
    assert [type(chunk) for chunk in live(new_ledger, agent)] == [type(chunk) for chunk in CHUNKS]
    assert bodies == {"words": 1}


def test_chunks_of_an_async_stream_are_restored(new_ledger: New, bodies: Counter[str]) -> None:
    async def agent(ledger: RunLedger, run: Run) -> Any:
        @ledger.step
        async def words(prompt: str) -> AsyncIterator[Any]:
            bodies["words"] += 1
            for chunk in CHUNKS:
                await asyncio.sleep(0)
                yield chunk

        return [chunk async for chunk in words("p")]

    assert alive(new_ledger, agent, crash=True) == alive(new_ledger, agent) == CHUNKS
    assert bodies == {"words": 1}


def _close(stream: Any) -> None:
    next(stream)
    stream.close()


def _break(stream: Any) -> None:
    for _ in stream:
        break


def _raise(stream: Any) -> None:
    try:
        for _ in stream:
            raise LookupError("the consumer's own")
    except LookupError:
        pass


def _forget(stream: Any) -> None:
    next(stream)
    del stream
    gc.collect()


def _take_all_but_the_end(stream: Any) -> None:
    for _ in CHUNKS:
        next(stream)


@pytest.mark.parametrize("leave", [_close, _break, _raise, _forget, _take_all_but_the_end])
def test_a_stream_that_is_left_is_not_recorded_and_asked_for_again(
    new_ledger: New, bodies: Counter[str], leave: Callable[[Any], None]
) -> None:
    """In every later life both calls are answered from the one record."""

    def agent(ledger: RunLedger, run: Run) -> Any:
        words = _words(ledger, bodies)
        leave(words("p"))
        return list(words("p")), ledger.step(lambda: 1, name="next")()

    assert live(new_ledger, agent, crash=True) == live(new_ledger, agent, crash=True) == live(new_ledger, agent)
    assert bodies == {"words": 2}
    assert calls_of(new_ledger()) == [("ABANDONED", "words"), ("RESULT", "words"), ("RESULT", "next")]


def test_an_async_stream_that_is_left_is_not_recorded(new_ledger: New, bodies: Counter[str]) -> None:
    async def agent(ledger: RunLedger, run: Run) -> Any:
        @ledger.step
        async def words(prompt: str) -> AsyncIterator[str]:
            bodies["words"] += 1
            yield "a"
            yield "b"

        first = words("p")
        taken = await anext(first)
        await first.aclose()
        return taken, [chunk async for chunk in words("p")]

    assert alive(new_ledger, agent, crash=True) == alive(new_ledger, agent) == ("a", ["a", "b"])
    assert bodies == {"words": 2}


def test_a_stream_that_nobody_reads_does_not_run(new_ledger: New, bodies: Counter[str]) -> None:
    def agent(ledger: RunLedger, run: Run) -> Any:
        words = _words(ledger, bodies)
        words("p")
        return list(words("p"))

    assert live(new_ledger, agent) == CHUNKS
    assert bodies == {"words": 1}
    assert calls_of(new_ledger()) == [("RESULT", "words")]


def test_a_stream_that_is_read_after_its_run_does_not_run(new_ledger: New, bodies: Counter[str]) -> None:
    ledger = new_ledger()
    with ledger.run():
        stream = _words(ledger, bodies)("p")
    with pytest.raises(Misuse) as refused:
        next(stream)
    assert refused.value.code == "run_over"
    assert not bodies
    assert calls_of(ledger) == []


def test_what_a_generator_changes_later_is_not_in_what_was_taken(new_ledger: New) -> None:
    def agent(ledger: RunLedger, run: Run) -> Any:
        @ledger.step
        def growing() -> Iterator[list[int]]:
            chunk: list[int] = []
            for n in range(3):
                chunk.append(n)
                yield chunk

        taken = list(growing())
        taken[0].append(99)
        return taken

    assert live(new_ledger, agent, crash=True) == live(new_ledger, agent) == [[0, 99], [0, 1], [0, 1, 2]]


def test_a_generator_that_raises_in_the_middle(new_ledger: New, bodies: Counter[str]) -> None:
    def agent(ledger: RunLedger, run: Run) -> Any:
        @ledger.step(retries=3, retry_base_s=0)
        def breaking() -> Iterator[str]:
            bodies["breaking"] += 1
            yield "a"
            raise ConnectionError("reset")

        taken, said = list[str](), ""
        try:
            taken += breaking()
        except ConnectionError as error:
            said = str(error)
        return said, ledger.step(lambda: 1, name="next")()

    assert live(new_ledger, agent, crash=True) == live(new_ledger, agent) == ("reset", 1)
    assert bodies == {"breaking": 1}


def test_a_chunk_without_a_stored_form_ends_the_stream(new_ledger: New) -> None:
    ledger = new_ledger()
    bad = ledger.step(lambda: iter(()), name="unused")
    assert bad.name == "unused"

    @ledger.step
    def breaking() -> Iterator[object]:
        yield object()

    with ledger.run(), pytest.raises(Misuse, match="object"):
        list(breaking())
    assert calls_of(ledger) == [("ERROR", "breaking")]


def test_a_stream_out_of_time(new_ledger: New, bodies: Counter[str]) -> None:
    async def agent(ledger: RunLedger, run: Run) -> Any:
        @ledger.step(timeout_s=0.05)
        async def slow() -> AsyncIterator[str]:
            bodies["slow"] += 1
            yield "a"
            await asyncio.Event().wait()

        taken = list[str]()
        try:
            async for chunk in slow():
                taken.append(chunk)
        except StepTimeout:
            taken.append("late")
        return taken

    assert alive(new_ledger, agent) == ["a", "late"]
    assert calls_of(new_ledger()) == [("ERROR", "slow")]


def test_a_sync_stream_out_of_time_ends_at_its_next_chunk(new_ledger: New) -> None:
    ledger, taken = new_ledger(), list[object]()

    @ledger.step(timeout_s=0.01)
    def slow() -> Iterator[str]:
        threading.Event().wait(0.05)
        yield "too late"

    with ledger.run(), pytest.raises(StepTimeout):
        taken += slow()
    assert taken == []
    assert calls_of(ledger) == [("ERROR", "slow")]


def test_what_a_stream_calls_is_restored_when_it_died(new_ledger: New, bodies: Counter[str]) -> None:
    def agent(ledger: RunLedger, run: Run) -> Any:
        ask = ledger.step(lambda n: bodies.update([f"ask {n}"]) or n, name="ask")

        @ledger.step
        def words() -> Iterator[int]:
            bodies["words"] += 1
            yield ask(1)
            yield ask(2)
            if bodies["words"] == 1:
                raise Crash

        return list(words())

    assert live(new_ledger, agent) is None
    assert live(new_ledger, agent) == [1, 2]
    assert bodies == {"words": 2, "ask 1": 1, "ask 2": 1}


def test_an_unsafe_stream_with_an_unknown_outcome_says_so_in_one_chunk(new_ledger: New, bodies: Counter[str]) -> None:
    def agent(ledger: RunLedger, run: Run) -> Any:
        @ledger.tool
        def pay() -> Iterator[str]:
            bodies["pay"] += 1
            yield "begun"
            raise Crash

        return list(pay())

    assert live(new_ledger, agent) is None
    (said,) = live(new_ledger, agent)
    assert (said["outcome"], said["tool"]) == ("unknown", "pay")
    assert bodies == {"pay": 1}
