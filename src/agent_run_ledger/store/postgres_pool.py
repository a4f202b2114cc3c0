"""The connections of one process for reading a PostgreSQL store: opened when they are needed, kept, and bounded."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import TypeVar

import psycopg

from agent_run_ledger.errors import Misuse, Unavailable
from agent_run_ledger.store.forks import forked
from agent_run_ledger.store.postgres import Place, connect
from agent_run_ledger.store.postgres_driver import Connection
from agent_run_ledger.store.postgres_failures import is_lost, translated

T = TypeVar("T")

MOST_CONNECTIONS = 4
"""More readers than this wait for each other: a server has about a hundred connections for all processes."""


class ReadingPool:
    """Lends each connection to one thread at a time. No thread of its own, so that an error is its caller's."""

    def __init__(self, place: Place, *, most: int = MOST_CONNECTIONS) -> None:
        self._place = place
        self._most = most
        self._free: list[Connection] = []
        self._lent = threading.BoundedSemaphore(most)
        self._mutex = threading.Lock()
        self._closed = False
        self._round = 0
        self._pid = os.getpid()
        self.primary = False
        """Whether only a server that may be written is read: who writes must not read what is older than that."""

    def use(self, fn: Callable[[Connection], T]) -> T:
        """Run `fn` with a connection. A read that finds a connection dead is done once more on a new one.

        Unavailable: "pool_exhausted" where all are in use for too long, and as `connect` says.
        """
        location, wait_s = self._place.location, self._place.wait_s
        if os.getpid() != self._pid:
            raise forked(location)
        if not self._lent.acquire(timeout=wait_s):
            raise Unavailable(
                f"all {self._most} connections for reading {location} were in use for {wait_s:g} s",
                code="pool_exhausted",
                hint="try again: nothing happened",
            )
        try:
            kept, taken_in = self._take()
            if kept is not None:
                try:
                    return self._run(kept, fn, taken_in)
                except psycopg.Error as error:
                    if not is_lost(error):
                        raise translated(error, location) from error
            _, taken_in = self._take(anew=True)
            return self._run(connect(self._place, readonly=True, primary=self.primary), fn, taken_in)
        except psycopg.Error as error:
            raise translated(error, location) from error
        finally:
            self._lent.release()

    def close(self) -> None:
        """Close those that nobody uses, and the others when they come back."""
        with self._mutex:
            self._closed, free, self._free = True, self._free, []
        for connection in free:
            connection.close()

    def only_primary(self) -> None:
        """From now on read only where one may write."""
        self.primary = True
        self.begin_anew()

    def begin_anew(self) -> None:
        """Keep no connection that was made before this moment: who writes may have gone to another server."""
        with self._mutex:
            self._round, free, self._free = self._round + 1, self._free, []
        for connection in free:
            connection.close()

    def _take(self, *, anew: bool = False) -> tuple[Connection | None, int]:
        """Return a connection that is kept, None for none or `anew`, and in which round that was."""
        with self._mutex:
            if self._closed:
                raise Misuse(f"{self._place.location} was used after it was closed", code="store_closed")
            return self._free.pop() if self._free and not anew else None, self._round

    def _run(self, connection: Connection, fn: Callable[[Connection], T], taken_in: int) -> T:
        try:
            return fn(connection)
        finally:
            if os.getpid() == self._pid:
                self._give_back(connection, taken_in)

    def _give_back(self, connection: Connection, taken_in: int) -> None:
        """Keep a connection for the next, unless an interrupt or an error left something open on it."""
        idle = not connection.closed and connection.is_idle
        with self._mutex:
            keep = idle and not self._closed and taken_in == self._round
            if keep:
                self._free.append(connection)
        if not keep:
            connection.close()
