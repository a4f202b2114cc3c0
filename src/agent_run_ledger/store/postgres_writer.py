"""The write side of a PostgreSQL store: one connection, one transaction at a time, one leaf per transaction."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from typing import TypeVar, cast

import psycopg

from agent_run_ledger import probes
from agent_run_ledger.errors import LedgerError, Misuse, Unavailable, Uncertain
from agent_run_ledger.ports import Clock, Head, Question, Tx
from agent_run_ledger.store.fair_lock import FairLock
from agent_run_ledger.store.forks import forked, register
from agent_run_ledger.store.leaves import Leaf, already_committed, check_op_id, leaf_of, tiles_behind
from agent_run_ledger.store.moves import move_of, refusal
from agent_run_ledger.store.postgres import QUERIES_FILE, Place, connect
from agent_run_ledger.store.postgres_driver import Connection
from agent_run_ledger.store.postgres_failures import breaks_unique, is_lost, is_refusal, passes, translated, unconfirmed
from agent_run_ledger.store.postgres_known import Known
from agent_run_ledger.store.postgres_meta import meta_from
from agent_run_ledger.store.postgres_outage import Outage
from agent_run_ledger.store.postgres_tx import PostgresTx
from agent_run_ledger.store.postgres_wire import Answer, Batch
from agent_run_ledger.store.row_tx import statement_of
from agent_run_ledger.store.rows import Row, head_from
from agent_run_ledger.store.statements import statements

T = TypeVar("T")

_VACUUM_S = 3_600.0
_STANDS_STILL_MS = 5_000
"""A transaction takes milliseconds; whose holder says nothing for so long is ended by whoever waited in vain."""
_LOOK_AGAIN_S = 0.05
_LOOK_AT_LEAST_S = 0.5
"""A lookup is tried again after the one, then after twice as long each time, up to the other."""
_OP_ID = "events_op_id_key"
"""The constraint by which an operation is in the log once."""


class PostgresWriter:
    """See ports.Store.transact. Threads are served in the order they come, processes by the row lock on the head.

    The connection is the one that the store was opened with, and a new one after it was lost: `moved` is told of that.
    """

    def __init__(
        self,
        place: Place,
        log_id: bytes,
        clock: Clock | None,
        connection: Connection,
        *,
        moved: Callable[[], None] = lambda: None,
    ) -> None:
        self.log_id = log_id
        self.lock = _turns.of(log_id)
        self._place = place
        self._clock = clock
        self._moved = moved
        self._q = statements(QUERIES_FILE)
        self._connection: Connection | None = connection
        self._warnings: list[str] = []
        self._known = Known()
        self.outage = Outage(place.location, wait_s=place.wait_s, entropy=place.entropy)
        self._read = 0, 0.0
        self._closed = False
        self._moving = False
        self._pid = os.getpid()
        connection.add_notice_handler(self._note)

    def transact(self, op_id: bytes, fn: Callable[[Tx], T], *, sync: bool = True, first: Sequence[Question] = ()) -> T:
        """See ports.Store.transact."""
        return self.transact_with(op_id, fn, sync=sync, first=first)

    def transact_with(
        self,
        op_id: bytes,
        fn: Callable[[PostgresTx], T],
        *,
        sync: bool = True,
        moving: bool = False,
        first: Sequence[Question] = (),
    ) -> T:
        """Run one transaction whose `fn` may use what only this store's transactions can do.

        Only one of the move itself (`moving`) may write while the store moves, and after that.

        An interrupt may come after any call, so what is to be undone has a `finally` of its own that begins with it.
        """
        location, wait_s = self._place.location, self._place.wait_s
        if os.getpid() != self._pid:
            raise forked(location)
        check_op_id(op_id)
        if self.lock.is_mine():
            raise Misuse("a transaction was begun inside another one of this thread", code="nested_transaction")
        try:
            beginning = _Beginning(sync, first)
            if not self.lock.acquire(wait_s):
                self.outage.gave_up()
                raise self.outage.said() or Unavailable(
                    f"{location} stayed locked for {wait_s:g} s", code="store_busy", hint="another thread holds it"
                )
            if self._closed:
                raise Misuse(f"{location} was used after it was closed", code="store_closed")
            self._moving = moving
            return self._transact(op_id, fn, beginning)
        except psycopg.Error as error:
            raise translated(error, location) from error
        finally:
            try:  # noqa: SIM105 - see FairLock
                self.lock.release()
            except RuntimeError:
                pass

    def vacuum(self) -> None:
        """Have the server free the rows that were erased: on a connection of its own, as it may take an hour."""
        if self.lock.is_mine():  # it would wait for the transaction that it is in
            raise Misuse("the store was to be scrubbed inside a transaction", code="nested_transaction")
        with closing(connect(replace(self._place, wait_s=_VACUUM_S))) as connection:
            connection.execute(self._q["vacuum_erased"], prepare=False)

    def synchronous_commit(self) -> str:
        """Return what the server says of it on the connection that is written through."""
        asked = self._q["select_session"]
        return str(self.transact_with(self._place.entropy.uuid7(), lambda tx: tx.fetch(asked, ())[0][1]))

    def now_ms(self) -> int:
        """Return the server's time as this transaction read it after the lock, and what passed here since then."""
        read_ms, at_s = self._read
        return read_ms + int((time.monotonic() - at_s) * 1000)

    def close(self) -> None:
        """Close after the transaction that runs; one that waits for a server is given up. Once more does nothing."""
        self.outage.break_off()
        try:
            self.lock.acquire(self._place.wait_s)
            self._closed = True
            self._drop()
        finally:
            try:  # noqa: SIM105 - see FairLock
                self.lock.release()
            except RuntimeError:
                pass

    def _transact(self, op_id: bytes, fn: Callable[[PostgresTx], T], beginning: _Beginning) -> T:
        location, ended = self._place.location, False
        try:
            connection, head, now_ms = self._begin(beginning)
            committing = _Committing(op_id)
            try:
                tx = PostgresTx(
                    connection.batch(),
                    self._q,
                    location=location,
                    now_ms=now_ms,
                    leaf_index=head.size,
                    epoch=head.epoch,
                    ahead=beginning.answers,
                    losses=self._known.losses,
                )
                value = self._within(connection, fn, head, tx, committing)
            except psycopg.Error as error:
                if os.getpid() != self._pid:
                    raise forked(location) from error
                self._settle(committing, error)
                value = cast(T, committing.value)
            ended = True
            self._check_confirmed(op_id)
            if committing.leaf is not None:
                self._known.committed(committing.leaf, sync=beginning.sync or committing.found)
                probes.reach("commit.after")
            return value
        finally:
            if not ended and os.getpid() == self._pid:
                self._undo()

    def _within(
        self,
        connection: Connection,
        fn: Callable[[PostgresTx], T],
        head: Head,
        tx: PostgresTx,
        committing: _Committing,
    ) -> T:
        """Run `fn` and send what it did with its leaf and COMMIT, whose answers are looked at when this returns."""
        location, batch = self._place.location, tx.to_send
        committing.tx = tx
        try:
            probes.reach("commit.begin")
            value = fn(tx)
        finally:
            tx.end()  # who kept it would write outside of every transaction
        if os.getpid() != self._pid:
            raise forked(location)
        leaf = leaf_of(tx, head, log_id=self.log_id, op_id=committing.op_id)
        if leaf is not None:
            self._append(batch, leaf, tx.now_ms)
            probes.reach("commit.before")
            committing.leaf, committing.value = leaf, value
        self._warnings.clear()
        answer = batch.ask(self._q["commit"], prepare=False)
        if answer.statusmessage != self._q["commit"]:  # of a transaction that failed it says ROLLBACK, and no error
            raise Unavailable(f"{location} rolled the transaction back", code="store_failed")
        return value

    def _begin(self, beginning: _Beginning) -> tuple[Connection, Head, int]:
        """Begin, lock the head, read the clock, ask what is asked first: in this order, and in one round trip.

        A connection that died since its last use is replaced, and a server that is away is waited for: nothing has
        happened yet.
        """
        pauses = 0
        while True:
            try:
                begun = self._begin_anew(beginning)
            except psycopg.errors.LockNotAvailable:
                self._end_stalled()
                raise
            except (psycopg.Error, Unavailable) as error:
                failed = translated(error, self._place.location) if isinstance(error, psycopg.Error) else error
                if not passes(failed):
                    raise
                self._drop()
            else:
                self.outage.answered()
                return begun
            self.outage.wait(failed, pauses, since_s=beginning.since_s)
            pauses += 1

    def _begin_anew(self, beginning: _Beginning) -> tuple[Connection, Head, int]:
        kept = self._connection
        if kept is not None:
            try:
                return self._begin_on(kept, beginning)
            except psycopg.Error as error:
                if not is_lost(error):
                    raise
                self._drop()
                self.outage.repeats += 1
        return self._begin_on(self._open(), beginning)

    def _begin_on(self, connection: Connection, beginning: _Beginning) -> tuple[Connection, Head, int]:
        q, location = self._q, self._place.location
        batch = connection.batch()
        batch.add(q["begin"])
        locked = batch.add(q["lock_head"])
        # A statement of its own: what the locking one reads of the clock, it reads before it waits.
        clock = batch.add(q["select_clock"])
        if not beginning.sync:
            batch.add(q["sync_later"])
        beginning.answers = {asked: batch.add(q[asked[0]], asked[1]) for asked in beginning.asked}
        known = self._known.ask(batch, q)
        batch.send()
        head = head_from(locked.fetchall(), location)
        self._known.check(head, known, location)
        asked = clock.fetchall()
        if asked[0][1] not in (None, "0") and not self._moving:
            meta = meta_from(connection.ask(q["select_meta"]))
            raise refusal(move_of(meta, location), location)
        self._read = server_ms(asked), time.monotonic()
        now_ms = self._read[0] if self._clock is None else self._clock.now_ms()
        return connection, head, max(now_ms, head.time_ms)

    def _end_stalled(self) -> None:
        """Have the server end the session of a host that is paused with the head in its hands, if it is one.

        The server would end it too, by the limit that the holder has set for itself, which may be long. Its transaction
        is undone, and it learns that its connection is lost.
        """
        connection = self._connection
        if connection is not None and not connection.closed:
            with suppress(psycopg.Error):
                connection.execute(self._q["rollback"], prepare=False)
                connection.execute(self._q["end_stalled"], (_STANDS_STILL_MS,), prepare=False)

    def _append(self, batch: Batch, leaf: Leaf, now_ms: int) -> None:
        q = self._q
        batch.add(q["insert_event"], (leaf.index, leaf.op_id, leaf.envelope))
        batch.add(q["update_head"], (leaf.index + 1, leaf.frontier, now_ms))

        def fetch(name: str, bindings: Row) -> list[Row]:
            return batch.ask(q[name], bindings).fetchall()

        for tile in tiles_behind(leaf, fetch):
            batch.add(q["insert_tile"], tile)

    def _check_confirmed(self, op_id: bytes) -> None:
        """Uncertain for a commit that returned with a warning: it is durable here, and a standby did not confirm it."""
        if self._warnings:
            raise Uncertain(
                f"{self._place.location}: operation {op_id.hex()} is committed, and not confirmed: {self._warnings[0]}",
                code="commit_unconfirmed",
                hint="a standby that takes over may not have it; when the standbys answer, run the same thing",
            )

    def _settle(self, committing: _Committing, error: psycopg.Error) -> None:
        """Find out what became of a commit that raised: return when it landed, else raise what may be done next.

        Before that moment, and by a refusal of the server's, everything was undone. After anything else the log is
        asked, behind the lock that the lost transaction would still hold. The question ends with a commit, and the lock
        is a write: one that was cut short while it waited for a standby is found here, and is as good as done only when
        that standby confirms.
        """
        location, leaf = self._place.location, committing.leaf
        if leaf is None or is_refusal(error):
            if breaks_unique(error) and error.diag.constraint_name == _OP_ID:  # maybe before COMMIT
                raise already_committed(committing.op_id) from error
            raise (translated(error, location) if committing.tx is None else committing.tx.meant(error)) from error
        try:
            committing.found = self._look_for(leaf)
        except BaseException as second:
            self._drop()
            if not isinstance(second, Exception):
                raise
            raise Uncertain(
                f"{location}: nobody can say whether operation {leaf.op_id.hex()} was committed: "
                f"{translated(error, location).message}; then: {_said(second)}",
                code="commit_unknown",
                hint="when the database can be reached again, run the same thing: what landed is found",
            ) from error
        self._check_confirmed(leaf.op_id)
        if not committing.found:
            raise translated(error, location) from error

    def _look_for(self, leaf: Leaf) -> bool:
        """Return whether a leaf is in the log. A server that is away, starts or is no primary yet is waited for."""
        end_s, pause_s = time.monotonic() + self._place.wait_s, _LOOK_AGAIN_S
        while True:
            try:
                return self._look_once(leaf)
            except (psycopg.Error, Unavailable) as error:
                gone = is_lost(error) if isinstance(error, psycopg.Error) else True
                if not gone or time.monotonic() + pause_s > end_s:
                    raise
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, _LOOK_AT_LEAST_S)

    def _look_once(self, leaf: Leaf) -> bool:
        q, location = self._q, self._place.location
        self._drop()
        connection = self._open()
        batch = connection.batch()
        batch.add(q["begin"])
        locked, known = batch.add(q["lock_head"]), self._known.ask(batch, q)
        batch.send()
        self._known.check(head_from(locked.fetchall(), location), known, location)
        landed = bool(batch.ask(q["select_event_by_op"], (leaf.op_id,)).fetchall())
        self._warnings.clear()
        answer = batch.ask(q["commit"], prepare=False)
        if answer.statusmessage != q["commit"]:
            raise Unavailable(f"{location} rolled the question back", code="store_failed")
        return landed

    def _open(self) -> Connection:
        if self._connection is None or self._connection.closed:
            self._connection = connect(self._place)
            self._connection.add_notice_handler(self._note)
            self._known.connected()
            self._moved()
        return self._connection

    def _note(self, diagnostic: psycopg.errors.Diagnostic) -> None:
        if unconfirmed(diagnostic):
            self._warnings.append(f"{diagnostic.message_primary} ({diagnostic.sqlstate})")

    def _undo(self) -> None:
        """Leave no transaction open; a connection that cannot say so is given up, which undoes it too."""
        connection = self._connection
        if connection is None or connection.closed:
            self._drop()
            return
        if connection.is_idle:
            return
        try:
            connection.ask(self._q["rollback"])
        except psycopg.Error:
            self._drop()

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(psycopg.Error):
                connection.close()


def server_ms(rows: list[Row]) -> int:
    """Return the server's time, in Unix milliseconds, of the one row that tells it."""
    return int(rows[0][0])


class _Beginning:
    """How a transaction begins: since when, whether its commit is synced, what it asks first, and what was answered."""

    def __init__(self, sync: bool, first: Sequence[Question]) -> None:
        self.since_s = time.monotonic()
        self.sync = sync
        self.asked = [statement_of(question) for question in first]
        self.answers: dict[tuple[str, Row], Answer] = {}


class _Committing:
    """A transaction, and what was sent with its COMMIT from the moment on at which it may land.

    `found`: it was looked for and found, by a transaction that was synced behind it.
    """

    leaf: Leaf | None = None
    found = False
    value: object = None
    tx: PostgresTx | None = None

    def __init__(self, op_id: bytes) -> None:
        self.op_id = op_id


class _Turns:
    """The lock of each log that all its writers in this process share: a row lock is not fair, and knows no threads."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._locks: dict[bytes, FairLock] = {}

    def of(self, log_id: bytes) -> FairLock:
        """Return the lock of a log."""
        with self._mutex:
            return self._locks.setdefault(log_id, FairLock())

    def before_fork(self) -> None:
        """See Forkable."""

    def after_fork_in_parent(self) -> None:
        """See Forkable."""

    def after_fork_in_child(self) -> None:
        """See Forkable: who holds a lock is another process now."""
        self._mutex = threading.Lock()
        self._locks = {}


_turns = _Turns()
register(_turns)


def _said(error: Exception) -> str:
    return error.message if isinstance(error, LedgerError) else type(error).__name__
