"""The thread for async callers: order, errors, and cancellation that waits for the commit."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import pytest

from agent_run_ledger.errors import Misuse
from agent_run_ledger.store import StoreThread, open_sqlite
from tests.contract.store_kit import begin, check_log


@pytest.fixture
def thread() -> Iterator[StoreThread]:
    made = StoreThread()
    yield made
    made.close()


def _run(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(main())


def test_calls_run_on_one_thread_that_is_not_the_loops(thread: StoreThread) -> None:
    async def main() -> None:
        idents = await asyncio.gather(*(thread.call(threading.get_ident) for _ in range(20)))
        assert len(set(idents)) == 1
        assert idents[0] != threading.get_ident()

    _run(main)


def test_calls_run_in_the_order_they_were_made(thread: StoreThread) -> None:
    order: list[int] = []

    async def main() -> None:
        await asyncio.gather(*(thread.call(lambda i=i: order.append(i)) for i in range(50)))

    _run(main)
    assert order == list(range(50))


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit])
def test_what_fn_raises_comes_out_of_the_await(thread: StoreThread, error: type[BaseException]) -> None:
    def broken() -> None:
        raise error

    async def main() -> None:
        with pytest.raises(error):
            await thread.call(broken)
        assert await thread.call(lambda: 5) == 5

    _run(main)


def test_a_stop_iteration_comes_out_as_out_of_any_coroutine(thread: StoreThread) -> None:
    """An asyncio future refuses to carry it, and whoever awaited it would wait for ever."""

    async def main() -> None:
        with pytest.raises(RuntimeError) as caught:
            await thread.call(lambda: next(iter([])))
        assert isinstance(caught.value.__cause__, StopIteration)
        assert await thread.call(lambda: 5) == 5

    _run(main)


def test_fn_sees_the_context_of_its_caller(thread: StoreThread) -> None:
    place: ContextVar[str] = ContextVar("place")

    async def one(name: str) -> str:
        place.set(name)
        return await thread.call(place.get)

    async def main() -> None:
        assert await asyncio.gather(*map(one, "abc")) == ["a", "b", "c"]
        place.set("mine")
        await thread.call(lambda: place.set("not mine"))
        assert place.get() == "mine"

    _run(main)


@pytest.mark.parametrize("cancels", [1, 3])
@pytest.mark.parametrize("fails", [False, True])
def test_a_cancelled_await_waits_for_fn_and_then_raises(thread: StoreThread, cancels: int, fails: bool) -> None:
    inside, go_on, ended = threading.Event(), threading.Event(), threading.Event()

    def slow() -> None:
        inside.set()
        go_on.wait()
        ended.set()
        if fails:
            raise ValueError("the commit failed")

    async def main() -> None:
        task = asyncio.create_task(thread.call(slow))
        while not inside.is_set():
            await asyncio.sleep(0)
        try:
            for _ in range(cancels):
                task.cancel()
                await asyncio.sleep(0)
                await asyncio.sleep(0)
                assert not task.done()
        finally:
            go_on.set()
        with pytest.raises(asyncio.CancelledError) as caught:
            await task
        assert ended.is_set()
        assert isinstance(caught.value.__cause__, ValueError) is fails

    _run(main)


def test_a_call_that_has_not_begun_is_carried_out_although_cancelled(thread: StoreThread) -> None:
    """Whoever cancelled cannot know whether it had begun: one rule for both."""
    inside, go_on = threading.Event(), threading.Event()
    ran: list[int] = []

    def block() -> None:
        inside.set()
        go_on.wait()

    async def main() -> None:
        first = asyncio.create_task(thread.call(block))
        second = asyncio.create_task(thread.call(lambda: ran.append(1)))
        while not inside.is_set():
            await asyncio.sleep(0)
        second.cancel()
        await asyncio.sleep(0)
        go_on.set()
        await first
        with pytest.raises(asyncio.CancelledError):
            await second

    _run(main)
    assert ran == [1]


def test_a_timeout_around_a_call_is_a_timeout_after_the_commit(thread: StoreThread, tmp_path: Path) -> None:
    store = open_sqlite(tmp_path / "log.db", create=True)
    inside, go_on = threading.Event(), threading.Event()

    def commit() -> None:
        inside.set()
        go_on.wait()
        begin(store)

    async def main() -> None:
        async def expire() -> None:
            while not inside.is_set():
                await asyncio.sleep(0)
            scope.reschedule(0)
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            go_on.set()

        scope = asyncio.timeout(None)

        async def bounded() -> None:
            async with scope:
                await thread.call(commit)

        watcher = asyncio.create_task(expire())
        with pytest.raises(TimeoutError):
            await bounded()
        await watcher

    _run(main)
    assert check_log(store) == 2
    store.close()


def test_several_loops_may_share_a_thread(thread: StoreThread) -> None:
    for expected in range(3):

        async def main(expected: int = expected) -> None:
            assert await thread.call(lambda: expected) == expected

        _run(main)


def test_closing_ends_what_was_submitted_and_refuses_more() -> None:
    thread = StoreThread()

    async def main() -> None:
        waiting = asyncio.gather(*(thread.call(lambda i=i: i) for i in range(10)))
        await asyncio.sleep(0)
        thread.close()
        thread.close()
        assert await waiting == list(range(10))
        with pytest.raises(Misuse):
            await thread.call(lambda: 1)

    _run(main)


def test_fn_itself_may_close_the_thread() -> None:
    thread = StoreThread()

    async def main() -> None:
        await thread.call(thread.close)
        with pytest.raises(Misuse):
            await thread.call(lambda: 1)

    _run(main)


def test_a_thread_that_was_never_used_has_nothing_to_close() -> None:
    count = threading.active_count()
    StoreThread().close()
    assert threading.active_count() == count
