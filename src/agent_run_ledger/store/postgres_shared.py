"""What all opens of one PostgreSQL store in this process have in common, and the list of those stores."""

from __future__ import annotations

import os
from collections.abc import Callable

import psycopg

from agent_run_ledger.clock import SystemClock
from agent_run_ledger.errors import Misuse, Unavailable
from agent_run_ledger.ports import Clock, RunLocks
from agent_run_ledger.store.fair_lock import FairLock
from agent_run_ledger.store.forks import forked, register
from agent_run_ledger.store.leaves import LOG_ID_BYTES
from agent_run_ledger.store.postgres import Place, connect
from agent_run_ledger.store.postgres_driver import Connection
from agent_run_ledger.store.postgres_failures import translated
from agent_run_ledger.store.postgres_locks import PostgresRunLocks
from agent_run_ledger.store.postgres_pool import ReadingPool
from agent_run_ledger.store.postgres_reader import PostgresReader
from agent_run_ledger.store.postgres_schema import make, recognise
from agent_run_ledger.store.postgres_writer import PostgresWriter, server_ms

Meta = dict[str, bytes | int]
Address = tuple[tuple[str, str], ...]
"""All that a URL says, by which two opens are of one store."""


class SharedPostgres:
    """One store: its connection for writing, those for reading and the one that holds the locks of live runs.

    A server has few connections for all processes, so that a process must not have them for each handle.
    """

    def __init__(self, place: Place, clock: Clock | None) -> None:
        self.place = place
        self.pid = os.getpid()
        self.users = 0
        self.created_here = False
        self.meta: Meta = {}
        self.pool = ReadingPool(place)
        self.reader = PostgresReader(place, self.pool)
        self._clock = clock
        self._writer: PostgresWriter | None = None
        self._locks: RunLocks | None = None

    def open_to_read(self) -> None:
        """Look at what is there."""
        if not self.meta:
            self.meta = self.pool.use(lambda connection: recognise(connection, self.place.location))

    def open_to_write(self, *, create: bool) -> None:
        """Look at what is there, on a connection that may write, and make it where nothing is with `create`."""
        if self._writer is not None:
            return
        try:
            connection = connect(self.place)
            try:
                self.created_here = create and self._make(connection)
                self.meta = recognise(connection, self.place.location)
            except BaseException:
                connection.close()
                raise
        except psycopg.Error as error:
            raise translated(error, self.place.location) from error
        self.pool.only_primary()
        self._writer = PostgresWriter(self.place, self.log_id, self._clock, connection, moved=self.pool.begin_anew)

    @property
    def log_id(self) -> bytes:
        """The id of the log."""
        return bytes(self.meta["log_id"])

    def writer(self) -> PostgresWriter:
        """Return the write side. Misuse where nobody opened the store for writing."""
        if self._writer is None:
            raise Misuse(f"{self.place.location} was opened with readonly=True", code="readonly_store")
        return self._writer

    def locks(self) -> RunLocks:
        """Return the locks of live runs."""
        if self._locks is None:
            self._locks = PostgresRunLocks(self.place, self.log_id)
        return self._locks

    def is_mine(self) -> bool:
        """Return whether the calling thread is inside a transaction of this store."""
        return self._writer is not None and self._writer.lock.is_mine()

    def now_ms(self) -> int:
        """Return the server's time. See PostgresStore.shared_now_ms."""
        if self._writer is not None and self._writer.lock.is_mine():
            return self._writer.now_ms()
        return server_ms(self.reader.fetch("select_clock"))

    def close(self) -> BaseException | None:
        """Close all that is open; return the first failure."""
        first: BaseException | None = None
        for part in (self.pool, self._writer, self._locks):
            try:
                if part is not None:
                    part.close()
            except BaseException as error:
                first = first or error
        return first

    def _make(self, connection: Connection) -> bool:
        entropy, now_ms = self.place.entropy, (self._clock or SystemClock()).now_ms()
        ids: Callable[[], tuple[bytes, bytes]] = lambda: (entropy.token(LOG_ID_BYTES), entropy.uuid7())  # noqa: E731
        return make(connection, self.place.location, now_ms=now_ms, entropy=ids)


class PostgresRegistry:
    """Every PostgreSQL store that this process has open, by its URL.

    Two URLs that lead to one database are two stores here: their writers then take turns at the server.
    """

    def __init__(self) -> None:
        self._begin_anew()

    def _begin_anew(self) -> None:
        self._door = FairLock()
        self._open: dict[Address, SharedPostgres] = {}

    def open(self, place: Place, *, create: bool, readonly: bool, clock: Clock | None) -> SharedPostgres:
        """Return the store at a place, opened now or before, with one user more."""
        address = address_of(place)
        if self._door.is_mine():
            raise Misuse(f"{place.location} was opened while this thread opened a store", code="nested_transaction")
        try:
            if not self._door.acquire(place.wait_s):
                raise _door_shut(place)
            shared = self._open.get(address) or SharedPostgres(place, clock)
            try:
                if readonly:
                    shared.open_to_read()
                else:
                    shared.open_to_write(create=create)
            except BaseException:
                if shared.users == 0:
                    shared.close()
                raise
            shared.users += 1
            self._open[address] = shared
            return shared
        finally:
            try:  # noqa: SIM105 - see FairLock
                self._door.release()
            except RuntimeError:
                pass

    def release(self, shared: SharedPostgres) -> BaseException | None:
        """Take one user away; the last one closes, and what a part raised at that is returned."""
        if shared.is_mine():
            raise Misuse(f"{shared.place.location} was closed inside its own transaction", code="nested_transaction")
        try:
            if not self._door.acquire(shared.place.wait_s):
                raise _door_shut(shared.place)
            shared.users -= 1
            if shared.users:
                return None
            self._open.pop(address_of(shared.place), None)
            return shared.close()
        finally:
            try:  # noqa: SIM105 - see FairLock
                self._door.release()
            except RuntimeError:
                pass

    def before_fork(self) -> None:
        """See Forkable."""

    def after_fork_in_parent(self) -> None:
        """See Forkable."""

    def after_fork_in_child(self) -> None:
        """See Forkable: the stores are the parent's. Their objects stay, so that nothing of them is closed here."""
        _parents.append(self._open)
        self._begin_anew()


_parents: list[dict[Address, SharedPostgres]] = []

postgres_registry = PostgresRegistry()
register(postgres_registry)


def address_of(place: Place) -> Address:
    """Return by what the opens of one store know each other."""
    return tuple(sorted((name, str(value)) for name, value in place.parameters.items()))


def check_owner(shared: SharedPostgres) -> None:
    """Forked where the store was opened by the parent of this process."""
    if shared.pid != os.getpid():
        raise forked(shared.place.location)


def _door_shut(place: Place) -> Unavailable:
    return Unavailable(
        f"{place.location} is being opened or closed, for too long", code="store_busy", hint="does the server answer?"
    )
