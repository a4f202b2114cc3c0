"""Which runs are live: session advisory locks on a connection of their own, which end with its process."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from hashlib import sha256

import psycopg

from agent_run_ledger.errors import Misuse
from agent_run_ledger.ports import RunLock
from agent_run_ledger.store.forks import forked
from agent_run_ledger.store.postgres import QUERIES_FILE, Place, connect
from agent_run_ledger.store.postgres_driver import Connection
from agent_run_ledger.store.postgres_failures import is_lost, translated
from agent_run_ledger.store.rows import Row
from agent_run_ledger.store.statements import statements

_KEY_BYTES = 8


class PostgresRunLocks:
    """See ports.RunLocks. The server gives a dead client's locks away when it notices: at once for a dead process.

    A connection that was lost has lost its locks, and others may take them. That is waste and no harm: the generation
    on every write is what is safe.
    """

    def __init__(self, place: Place, log_id: bytes) -> None:
        self._place = place
        self._log_id = log_id
        self._q = statements(QUERIES_FILE)
        self._connection: Connection | None = None
        self._runs: dict[int, object] = {}
        self._mutex = threading.RLock()  # a run's lock that is collected comes in while the same thread is inside
        self._closed = False
        self._pid = os.getpid()

    def lock_run(self, run_id: str) -> RunLock | None:
        """See ports.RunLocks.lock_run."""
        lock = _PostgresRunLock(self, self._key_of(run_id))
        try:
            return lock if self._take(lock) else None
        except psycopg.Error as error:
            lock.release()
            raise translated(error, self._place.location) from error
        except BaseException:
            lock.release()
            raise

    def is_run_live(self, run_id: str) -> bool:
        """See ports.RunLocks.is_run_live."""
        return bool(self.live_runs([run_id]))

    def live_runs(self, run_ids: Sequence[str]) -> frozenset[str]:
        """See ports.RunLocks.live_runs."""
        keys = {run_id: self._key_of(run_id) for run_id in run_ids}
        with self._mutex:
            try:
                if not self._runs.keys().isdisjoint(keys.values()):
                    self._alive()  # a lost connection has lost its locks
                found = self._asked("select_runs_locked", (list(keys.values()),))
            except psycopg.Error as error:
                raise translated(error, self._place.location) from error
            locked = {*self._runs, *(int(row[0]) for row in found)}
        return frozenset(run_id for run_id, key in keys.items() if key in locked)

    def release_run(self, lock: _PostgresRunLock) -> None:
        """Give a run back. In a forked child, after close, and for a lock that has none: nothing happens."""
        if os.getpid() != self._pid:
            return
        with self._mutex:
            if self._runs.get(lock.key) is not lock.token:
                return
            del self._runs[lock.key]
            connection = self._connection
            if connection is None or connection.closed:
                return
            try:
                connection.ask(self._q["unlock_run"], (lock.key,))
            except psycopg.Error:
                self._drop()  # whoever cannot unlock lets go of everything: a lock that stays would block for ever

    def close(self) -> None:
        """Give up every lock. A second call does nothing."""
        with self._mutex:
            self._closed = True
            if os.getpid() == self._pid:
                self._drop()

    def _take(self, lock: _PostgresRunLock) -> bool:
        with self._mutex:
            if lock.key in self._runs:
                self._alive()
            if lock.key in self._runs:
                return False
            self._runs[lock.key] = lock.token  # first: whatever comes between, a release gives both back
            taken = bool(self._asked("try_lock_run", (lock.key,))[0][0])
            self._runs[lock.key] = lock.token  # a connection that was lost by the question has lost all of them
            if not taken:
                del self._runs[lock.key]
            return taken

    def _asked(self, name: str, values: Row) -> list[Row]:
        """Return the answer to a question; on a new connection where the question shows that the old one is lost."""
        connection = self._connected()
        try:
            return connection.ask(self._q[name], values)
        except psycopg.Error as error:
            if not is_lost(error):
                raise
            self._drop()
            return self._connected().ask(self._q[name], values)

    def _alive(self) -> None:
        """Forget the locks of a connection that was lost. Asked, for a dead peer shows itself only then."""
        connection = self._connected()
        try:
            connection.ask(self._q["select_clock"])
        except psycopg.Error:
            self._drop()

    def _connected(self) -> Connection:
        """Return the connection, a new one where there is none."""
        if os.getpid() != self._pid:
            raise forked(self._place.location)
        if self._closed:
            raise Misuse(f"{self._place.location} was used after it was closed", code="store_closed")
        if self._connection is None:
            self._connection = connect(self._place)  # never a standby: its locks are its own
        return self._connection

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        self._runs.clear()
        if connection is not None:
            connection.close()

    def _key_of(self, run_id: str) -> int:
        """Return the signed 64 bits that stand for a run of this log among all advisory locks of the database."""
        digest = sha256(b"agent-run-ledger/run-lock/v1\n" + self._log_id + run_id.encode()).digest()
        return int.from_bytes(digest[:_KEY_BYTES], "big", signed=True)


class _PostgresRunLock:
    """See ports.RunLock. One that nobody keeps is given back: an interrupt may come before its receiver has it."""

    _locks: PostgresRunLocks | None = None

    def __init__(self, locks: PostgresRunLocks, key: int) -> None:
        self.key = key
        self.token = object()
        self._locks = locks  # last: what was not completed has nothing to give back

    def release(self) -> None:
        """See ports.RunLock.release."""
        if self._locks is not None:
            self._locks.release_run(self)

    __del__ = release
