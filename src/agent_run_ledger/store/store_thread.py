"""The one thread on which async callers' transactions run."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import TYPE_CHECKING, TypeVar

from agent_run_ledger.errors import Misuse
from agent_run_ledger.store.forks import forked

if TYPE_CHECKING:
    from concurrent.futures import Future

T = TypeVar("T")


class StoreThread:
    """Runs blocking calls one after another, in the order they were made, off the event loop.

    One thread per store: a pool would only queue up at the store's lock, and its threads could all be busy elsewhere.
    """

    def __init__(self, name: str = "agent-run-ledger-store") -> None:
        self._name = name
        self._calls: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._mutex = threading.Lock()
        self._thread: threading.Thread | None = None
        self._closed = False
        self._pid = os.getpid()

    async def call(self, fn: Callable[[], T]) -> T:
        """Run `fn` on the thread and return what it returns or raise what it raises.

        Shielded: when the await is cancelled it still waits until `fn` has ended, then raises CancelledError, so
        nobody goes on while a commit is under way.
        """
        import asyncio

        waiting = asyncio.wrap_future(self._submit(fn))
        cancelled: asyncio.CancelledError | None = None
        while not waiting.done():
            try:
                await asyncio.wait((waiting,))
            except asyncio.CancelledError as error:
                cancelled = error
        if cancelled is None:
            return waiting.result()
        raise cancelled from waiting.exception()

    def close(self) -> None:
        """End the thread when what was already submitted is done. A second call does nothing."""
        with self._mutex:
            closed, self._closed = self._closed, True
            thread = self._thread
        if thread is None or closed or os.getpid() != self._pid:
            return
        self._calls.put(None)
        if thread is not threading.current_thread():
            thread.join()

    def _submit(self, fn: Callable[[], T]) -> Future[T]:
        from concurrent.futures import Future

        future: Future[T] = Future()

        def run() -> None:
            try:
                future.set_result(fn())
            except BaseException as error:
                future.set_exception(error)

        if os.getpid() != self._pid:
            raise forked("this store's thread")
        with self._mutex:
            if self._closed:
                raise Misuse("the store's thread was used after it was closed", code="store_closed")
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name=self._name, daemon=True)
                self._thread.start()
            self._calls.put(run)
        return future

    def _work(self) -> None:
        while (call := self._calls.get()) is not None:
            call()
