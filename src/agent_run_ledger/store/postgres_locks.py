"""Which runs are live: session advisory locks on a connection of their own, which end with its process."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from hashlib import sha256

import psycopg

from agent_run_ledger.errors import Misuse
from agent_run_ledger.ports import RunLock
from agent_run_ledger.store.forks import forked
from agent_run_ledger.store.postgres import QUERIES_FILE, Place, connect
from agent_run_ledger.store.postgres_driver import Connection
from agent_run_ledger.store.postgres_failures import is_lost, translated, unsendable
from agent_run_ledger.store.rows import Row
from agent_run_ledger.store.statements import statements

_KEY_BYTES = 8


class PostgresRunLocks:
    """See ports.RunLocks. The server gives a dead client's locks away when it notices: at once for a dead process.

    A connection that was lost has lost its locks, and others may take them until the next use takes back what is still
    free. That is waste and no harm: the generation on every write is what is safe.
    """

    def __init__(self, place: Place, log_id: bytes) -> None:
        self._place = place
        self._log_id = log_id
        self._q = statements(QUERIES_FILE)
        self._connection: Connection | None = None
        self._runs: dict[int, object] = {}
        self._given: deque[tuple[int, object]] = deque()
        self._mutex = threading.RLock()  # a run's lock that is collected comes in while the same thread is inside
        self._inside = False
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
        with self._entered():
            try:
                found = self._asked("select_runs_locked", (list(keys.values()),))
            except psycopg.Error as error:
                raise translated(error, self._place.location) from error
            locked = {*self._runs, *(int(row[0]) for row in found)}
        return frozenset(run_id for run_id, key in keys.items() if key in locked)

    def release_run(self, lock: _PostgresRunLock) -> None:
        """Give a run back. In a forked child, after close, and for a lock that has none: nothing happens.

        The collector may come with a lock while this very thread uses the connection: then it is given back after that.
        """
        if os.getpid() != self._pid:
            return
        self._given.append((lock.key, lock.token))
        with self._mutex:
            if not self._inside:
                with self._entered():
                    pass

    def close(self) -> None:
        """Give up every lock. A second call does nothing."""
        with self._entered():
            self._closed = True
            if os.getpid() == self._pid:
                self._runs.clear()
                self._drop()

    @contextmanager
    def _entered(self) -> Generator[None]:
        """Have the connection for this thread alone, and give back before and after what was released meanwhile."""
        with self._mutex:
            self._inside = True
            try:
                self._give_back()
                yield
            finally:
                try:
                    self._give_back()
                finally:
                    self._inside = False

    def _give_back(self) -> None:
        while self._given:
            key, token = self._given[0]
            if self._runs.get(key) is token:
                self._unlock(key)
                del self._runs[key]
            self._given.popleft()  # last: what comes between has it done again

    def _unlock(self, key: int) -> None:
        connection = self._connection
        if connection is None or connection.closed or os.getpid() != self._pid:
            return
        try:
            connection.ask(self._q["unlock_run"], (key,))
        except psycopg.Error:
            self._drop()  # whoever cannot unlock lets go of everything: a lock that stays would block for ever

    def _take(self, lock: _PostgresRunLock) -> bool:
        with self._entered():
            if lock.key in self._runs:
                self._alive()
            if lock.key in self._runs:
                return False
            self._connected()  # before: a new connection takes what is in _runs
            self._runs[lock.key] = lock.token  # first: whatever comes between, a release gives both back
            taken = bool(self._asked("try_lock_run", (lock.key,), of=lock.key)[0][0])
            if not taken:
                del self._runs[lock.key]
            return taken

    def _asked(self, name: str, values: Row, *, of: int | None = None) -> list[Row]:
        """Return the answer to a question; on a new connection where the question shows that the old one is lost.

        `of`: the lock that the question itself takes.
        """
        connection = self._connected()
        try:
            return connection.ask(self._q[name], values)
        except psycopg.Error as error:
            if not is_lost(error):
                raise
            self._drop()
            return self._connected(but=of).ask(self._q[name], values)

    def _alive(self) -> None:
        """Forget the locks of a connection that was lost, but those that a new one takes back.

        It is asked, for a dead peer shows itself only then.
        """
        connection = self._connected()
        try:
            connection.ask(self._q["select_clock"])
        except psycopg.Error:
            self._drop()
            self._connected()

    def _connected(self, *, but: int | None = None) -> Connection:
        """Return the connection, a new one where there is none: it has taken back what nobody else has taken.

        Of the locks `but` is not taken: whoever asks is about to.
        """
        if os.getpid() != self._pid:
            raise forked(self._place.location)
        if self._closed:
            raise Misuse(f"{self._place.location} was used after it was closed", code="store_closed")
        if self._connection is None:
            connection = connect(self._place)  # never a standby: its locks are its own
            try:
                self._take_back(connection, [key for key in self._runs if key != but])
            except BaseException:
                connection.close()
                raise
            self._connection = connection
        return self._connection

    def _take_back(self, connection: Connection, keys: list[int]) -> None:
        """Take the locks that a lost connection had; who has one of them by now keeps it."""
        for key in keys:
            if not connection.ask(self._q["try_lock_run"], (key,))[0][0]:
                self._runs.pop(key, None)

    def _drop(self) -> None:
        """Close the connection: its locks are lost, and taken back by the next one."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _key_of(self, run_id: str) -> int:
        """Return the signed 64 bits that stand for a run of this log among all advisory locks of the database."""
        try:
            name = run_id.encode()
        except UnicodeEncodeError as error:
            raise translated(unsendable(error), self._place.location) from error
        digest = sha256(b"agent-run-ledger/run-lock/v1\n" + self._log_id + name).digest()
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
