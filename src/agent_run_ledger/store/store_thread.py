"""The one thread on which async callers' transactions run."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextvars import copy_context
from typing import TYPE_CHECKING, TypeVar, cast

from agent_run_ledger.errors import Misuse
from agent_run_ledger.store.forks import forked

if TYPE_CHECKING:
    from concurrent.futures import Future, ThreadPoolExecutor

T = TypeVar("T")

Outcome = tuple[T | None, BaseException | None]


class StoreThread:
    """Runs blocking calls one after another, in the order they were made, off the event loop.

    One thread per store: more would only queue up at the store's lock, and could all be busy elsewhere.
    """

    def __init__(self, name: str = "agent-run-ledger-store") -> None:
        self._name = name
        self._mutex = threading.Lock()
        self._executor: ThreadPoolExecutor | None = None
        self._ident: int | None = None
        self._closed = False
        self._pid = os.getpid()

    async def call(self, fn: Callable[[], T]) -> T:
        """Run `fn` on the thread, in a copy of the caller's context; return what it returns or raise what it raises.

        Shielded: when the await is cancelled it still waits until `fn` has ended, then raises CancelledError, so
        nobody goes on while a commit is under way. As out of any coroutine, StopIteration comes as RuntimeError.
        """
        import asyncio

        waiting = asyncio.wrap_future(self._submit(fn))
        cancelled: asyncio.CancelledError | None = None
        while not waiting.done():
            try:
                await asyncio.wait((waiting,))
            except asyncio.CancelledError as error:
                cancelled = error
        value, failure = waiting.result()
        if cancelled is not None:
            raise cancelled from failure
        if failure is not None:
            raise failure
        return cast(T, value)

    def post(self, fn: Callable[[], object]) -> None:
        """Run `fn` on the thread after what was handed to it before, without waiting; what it raises is dropped."""
        self._submit(fn)

    def close(self) -> None:
        """End the thread when what was already submitted is done. A second call does nothing."""
        with self._mutex:
            self._closed, executor = True, self._executor
        if executor is not None and os.getpid() == self._pid:
            executor.shutdown(wait=threading.get_ident() != self._ident)

    def _submit(self, fn: Callable[[], T]) -> Future[Outcome[T]]:
        def run() -> Outcome[T]:
            self._ident = threading.get_ident()
            try:
                return fn(), None
            except BaseException as error:  # carried: an asyncio future does not take every exception
                return None, error

        if os.getpid() != self._pid:
            raise forked("this store's thread")
        with self._mutex:
            if self._closed:
                raise Misuse("the store's thread was used after it was closed", code="store_closed")
            if self._executor is None:
                from concurrent.futures import ThreadPoolExecutor

                self._executor = ThreadPoolExecutor(1, thread_name_prefix=self._name)
            return self._executor.submit(copy_context().run, run)
