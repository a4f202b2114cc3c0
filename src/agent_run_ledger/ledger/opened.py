"""A store that is opened at the first use, and what a run needs beside it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

from agent_run_ledger.clock import SystemClock
from agent_run_ledger.entropy import SystemEntropy
from agent_run_ledger.runs.attempt import Context
from agent_run_ledger.store import SqliteStore, StoreThread, open_sqlite

T = TypeVar("T")


class OpenedStore:
    """Opens its store once, at the first call of `context`, from whichever thread comes first."""

    def __init__(self, path: str, *, create: bool, durability: str, limit_bytes: int) -> None:
        self._path = path
        self._create = create
        self._durability = durability
        self._limit_bytes = limit_bytes
        self._lock = threading.Lock()
        self._store: SqliteStore | None = None
        self._thread: StoreThread | None = None

    def context(self) -> Context:
        """Return the opened store with clock, entropy and limits."""
        with self._lock:
            if self._store is None:
                self._store = open_sqlite(self._path, create=self._create, durability=self._durability)
            store = self._store
        return Context(store=store, clock=SystemClock(), entropy=SystemEntropy(), limit_bytes=self._limit_bytes)

    async def off_loop(self, fn: Callable[[], T]) -> T:
        """Run fn on the store's own thread. See store.async_store.StoreThread."""
        with self._lock:
            if self._thread is None:
                self._thread = StoreThread()
            thread = self._thread
        return await thread.call(fn)

    def close(self) -> None:
        """Close the store and its thread, if they were opened."""
        with self._lock:
            store, thread, self._store, self._thread = self._store, self._thread, None, None
        if thread is not None:
            thread.close()
        if store is not None:
            store.close()
