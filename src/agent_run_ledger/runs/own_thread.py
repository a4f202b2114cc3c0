"""Runs what blocks beside an event loop, in a thread of its own."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from contextvars import copy_context
from typing import TYPE_CHECKING, TypeVar, cast

from agent_run_ledger.errors import Unavailable

if TYPE_CHECKING:
    import asyncio

T = TypeVar("T")


async def in_own_thread(fn: Callable[[], T], *, name: str = "arl-beside") -> T:
    """Return what `fn` returns, or raise what it raises, in a copy of this context.

    Not in one of the loop's few shared threads: what waits there for people, or for a slow target, would keep
    everything else of the program out. Cancelled, the await ends and the thread goes on; neither `asyncio.run` nor the
    process ends before it. Unavailable("no_thread") where there is none to be had; nothing was called then.
    """
    import asyncio

    loop = asyncio.get_running_loop()
    ended: asyncio.Future[tuple[T | None, BaseException | None]] = loop.create_future()

    def tell(value: T | None, error: BaseException | None) -> None:
        if not ended.done():
            ended.set_result((value, error))

    def live() -> None:
        value: T | None = None
        failure: BaseException | None = None
        try:
            value = fn()
        except BaseException as error:  # raised where it is waited for
            failure = error
        try:
            loop.call_soon_threadsafe(tell, value, failure)
        except RuntimeError:  # the loop is closed: nobody waits any more
            return

    thread = threading.Thread(target=copy_context().run, args=(live,), name=name, daemon=False)
    try:
        thread.start()
    except RuntimeError as error:
        raise Unavailable(f"no thread could be started: {error}", code="no_thread") from error
    value, failure = await asyncio.shield(loop.create_task(_until(ended)))
    if failure is not None:
        raise failure
    return cast("T", value)


def loop_runs_here() -> bool:
    """Return whether an event loop runs in this thread: what blocks here keeps it from going on."""
    if "asyncio" not in sys.modules:
        return False
    import asyncio

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


async def _until(ended: asyncio.Future[T]) -> T:
    """Wait for a thread, also where the loop is being ended: what it has under way is to be recorded."""
    import asyncio

    while not ended.done():
        with suppress(asyncio.CancelledError):
            await asyncio.wait((ended,))
    return ended.result()
