"""The write side of a SQLite store: one connection, one transaction at a time, one leaf per transaction."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

import apsw

from agent_run_ledger import probes
from agent_run_ledger.errors import LedgerError, Misuse, Tampered, Unavailable, Uncertain
from agent_run_ledger.ports import Clock, Tx
from agent_run_ledger.store.fair_lock import FairLock
from agent_run_ledger.store.forks import forked
from agent_run_ledger.store.leaves import Leaf, already_committed, check_op_id, leaf_of, tiles_behind
from agent_run_ledger.store.moves import Standing, move_of, refusal
from agent_run_ledger.store.rows import Row, head_from
from agent_run_ledger.store.sidecar import Sidecar
from agent_run_ledger.store.sqlite import (
    Durability,
    Identity,
    Place,
    busy_handler,
    connect_writer,
    identity_of,
    make_ready,
)
from agent_run_ledger.store.sqlite_driver import Connection, Cursor, extended_code
from agent_run_ledger.store.sqlite_failures import replaced, translated
from agent_run_ledger.store.sqlite_migrations import QUERIES_FILE
from agent_run_ledger.store.sqlite_tx import SqliteTx
from agent_run_ledger.store.statements import statements

T = TypeVar("T")

_META = ("log_id", "created_at_ms", "authority", "is_copy")


class SqliteWriter:
    """See ports.Store.transact. Threads are served in the order they come, processes by the turnstile.

    The connection is opened at the first use and may be closed and opened again in between (before a fork, after a
    commit whose outcome is unknown).
    """

    def __init__(self, place: Place, sidecar: Sidecar, clock: Clock) -> None:
        self.log_id = b""
        self.found_version = 0
        """The schema version that the file had when it was first opened here."""
        self._place = place
        self._sidecar = sidecar
        self._clock = clock
        self.lock = FairLock()
        self._q = statements(QUERIES_FILE)
        self._connection: Connection | None = None
        self._cursor: Cursor | None = None
        self._tx: SqliteTx | None = None
        self._wal: Identity | None = None
        self._synced: bool | None = None
        self._closed = False
        self._pid = os.getpid()

    def start(self, connection: Connection, fill: Callable[[Connection], None]) -> dict[str, bytes | str | int]:
        """Take over a connection that was just opened, create the schema if the file is empty, and return meta."""
        try:
            if not self._sidecar.enter(self._place.wait_s):
                connection.close(force=True)
                raise self._busy()
            self.found_version = make_ready(connection, self._place, fill, self._clock.now_ms())
        finally:
            self._sidecar.leave()
        cursor = self._adopt(connection)
        try:
            meta: dict[str, Any] = dict(cursor.execute(self._q["select_meta"]).fetchall())
            self.log_id, *_ = (meta[key] for key in _META)
        except apsw.Error as error:
            self._drop()
            raise translated(error, self._place.location) from error
        except (KeyError, UnicodeDecodeError) as error:
            self._drop()
            raise Tampered(f"{self._place.location}: meta is not as it was written: {error}", code="corrupt") from error
        return meta

    def transact(self, op_id: bytes, fn: Callable[[Tx], T], *, sync: bool = True) -> T:
        """See ports.Store.transact."""
        return self.transact_with(op_id, fn, sync=sync)

    def transact_with(self, op_id: bytes, fn: Callable[[SqliteTx], T], *, sync: bool = True, moving: bool = False) -> T:
        """Run one transaction whose `fn` may use what only this store's transactions can do.

        Only one of the move itself (`moving`) may write while the store moves, and after that.

        An interrupt may come after any call, so what is to be undone has a `finally` of its own that begins with it.
        """
        if os.getpid() != self._pid:
            raise forked(self._place.location)
        check_op_id(op_id)
        if self.lock.is_mine():
            raise Misuse("a transaction was begun inside another one of this thread", code="nested_transaction")
        try:
            if not self.lock.acquire(self._place.wait_s):
                raise self._busy()
            if self._closed:
                raise Misuse(f"{self._place.location} was used after it was closed", code="store_closed")
            return self._pass_turnstile(self._open_cursor(), op_id, fn, sync, moving)
        except apsw.Error as error:
            raise translated(error, self._place.location) from error
        finally:
            try:  # noqa: SIM105 - see FairLock
                self.lock.release()
            except RuntimeError:
                pass

    def scrub(self) -> bool:
        """See ports.Store.scrub: bring the -wal file into the database and empty it; a reader is not waited for."""
        return self._alone(self._empty_wal)

    def compact(self) -> bool:
        """Write the file anew without its free pages, in one transaction of SQLite's own that changes no row.

        Whoever waits for this file's locks waits meanwhile. True where the -wal file was emptied too. Unavailable
        ("disk_full") without room for a second copy: then nothing changed.
        """
        return self._alone(self._vacuum)

    def journal(self) -> tuple[str, int]:
        """Return journal_mode and synchronous (3: EXTRA) as SQLite says that they are on this connection now."""
        return self._alone(_journal_of)

    def let_go(self) -> None:
        """Before a fork, with `lock` held: close the connection, without a checkpoint."""
        self._drop(checkpoint=False)

    def close(self) -> None:
        """Close after the transaction that runs. A second call does nothing."""
        try:
            self.lock.acquire(self._place.wait_s)
            self._closed = True
            self._drop()
        finally:
            try:  # noqa: SIM105 - see FairLock
                self.lock.release()
            except RuntimeError:
                pass

    def leak(self) -> object:
        """Return what a forked child must keep alive for ever: closing it would act on the parent's locks and WAL."""
        if self._tx is not None:
            self._tx.end(forked(self._place.location))
        leaked, self._connection = self._connection, None
        return None if leaked is None else (leaked, self._cursor)

    def _alone(self, act: Callable[[Cursor], T]) -> T:
        """Run what is no transaction of ours when no other thread of this process writes."""
        if os.getpid() != self._pid:
            raise forked(self._place.location)
        if self.lock.is_mine():  # it would leave the turnstile that the transaction stands behind
            raise Misuse("the store was to be scrubbed or compacted inside a transaction", code="nested_transaction")
        try:
            if not self.lock.acquire(self._place.wait_s):
                raise self._busy()
            if self._closed:
                raise Misuse(f"{self._place.location} was used after it was closed", code="store_closed")
            return act(self._open_cursor())
        except apsw.Error as error:
            raise translated(error, self._place.location) from error
        finally:
            try:  # noqa: SIM105 - see FairLock
                self.lock.release()
            except RuntimeError:
                pass

    def _pass_turnstile(self, cursor: Cursor, op_id: bytes, fn: Callable[[SqliteTx], T], sync: bool, moving: bool) -> T:
        try:
            if not self._sidecar.enter(self._place.wait_s):
                raise self._busy()
            return self._transact(cursor, op_id, fn, sync, moving)
        finally:
            self._sidecar.leave()  # also after an interrupt in `enter`: nobody else of this process can be inside

    def _empty_wal(self, cursor: Cursor) -> bool:
        connection = cursor.connection
        try:
            if not self._sidecar.enter(self._place.wait_s):
                raise self._busy()
            self._check_files()
            connection.set_busy_handler(None)
            held_up, *_ = cursor.execute(self._q["empty_wal"]).fetchall()[0]
            return not held_up
        except apsw.BusyError:
            return False
        finally:
            try:
                connection.set_busy_handler(busy_handler(self._place))
            finally:
                self._sidecar.leave()

    def _vacuum(self, cursor: Cursor) -> bool:
        try:
            if not self._sidecar.enter(self._place.wait_s):
                raise self._busy()
            self._check_files()
            self._set_sync(cursor, sync=True)
            cursor.execute(self._q["compact"], can_cache=False)
        finally:
            self._sidecar.leave()
        return self._empty_wal(cursor)

    def _transact(self, cursor: Cursor, op_id: bytes, fn: Callable[[SqliteTx], T], sync: bool, moving: bool) -> T:
        q, location = self._q, self._place.location
        self._set_sync(cursor, sync)
        try:
            cursor.execute(q["begin"])
            head = head_from(cursor.execute(q["select_head"]).fetchall(), location)
            if not moving:
                self._check_not_moved(cursor)
            now_ms = max(self._clock.now_ms(), head.time_ms)
            self._tx = tx = SqliteTx(
                cursor, q, location=location, now_ms=now_ms, leaf_index=head.size, epoch=head.epoch
            )
            probes.reach("commit.begin")
            value = fn(tx)
            tx.end()
            if os.getpid() != self._pid:
                raise forked(location)
            leaf = leaf_of(tx, head, log_id=self.log_id, op_id=op_id)
            if leaf is not None:
                append_event(cursor, leaf, tx.now_ms)
                probes.reach("commit.before")
                self._check_files()
                self._commit(cursor, op_id)
                probes.reach("commit.after")
            return value
        finally:
            connection, over = self._connection, self._tx
            if over is not None:
                over.cursor = None  # who kept it would write outside of every transaction
            if connection is not None and connection.in_transaction:
                try:
                    connection.execute(q["rollback"])
                except apsw.Error:
                    self._drop()  # closing rolls back, or leaves it to the next opener

    def _check_not_moved(self, cursor: Cursor) -> None:
        found = cursor.execute(self._q["select_move"]).fetchall()
        if found and found[0][0] != Standing.LIVE:
            meta: dict[str, Any] = dict(cursor.execute(self._q["select_meta"]).fetchall())
            raise refusal(move_of(meta, self._place.location), self._place.location)

    def _set_sync(self, cursor: Cursor, sync: bool) -> None:
        if sync is self._synced or self._place.durability is not Durability.FULL:
            return
        self._synced = None  # an interrupt may come when the PRAGMA has acted and nobody has noted it
        # Not cached: this PRAGMA acts while it is prepared. 0.5 µs.
        cursor.execute(self._q["sync_full" if sync else "sync_normal"], can_cache=False)
        self._synced = sync

    def _check_files(self) -> None:
        """Refuse to commit into files that are no longer the ones every process sees under their names.

        Only a last closer deletes the -wal file, and nobody is the last while our locks hold: somebody in this
        process dropped them by closing the file through another SQLite library.
        """
        location = self._place.location
        if identity_of(location) != self._place.identity:
            raise replaced(location)
        if self._wal != self._look_at_wal():
            raise Tampered(
                f"{location}: its -wal file was deleted or replaced while we had it open",
                code="stray_sqlite",
                hint="something else in this process opens the file; restart, and read it with `arl sql --readonly`",
            )

    def _commit(self, cursor: Cursor, op_id: bytes) -> None:
        try:
            cursor.execute(self._q["commit"])
        except Exception as error:
            self._settle(cursor, op_id, error)

    def _settle(self, cursor: Cursor, op_id: bytes, error: Exception) -> None:
        """Find out what became of a commit that raised: return when it landed, else raise what may be done next.

        A commit that failed at its sync may lie complete in the -wal file, unseen, until a crash brings it back. So
        the lookup ends with a commit of its own, which overwrites it when it is not to be, and syncs it when it is.
        """
        location = self._place.location
        if isinstance(error, apsw.BusyError) and cursor.connection.in_transaction:
            raise translated(error, location) from error
        q, is_full = self._q, isinstance(error, apsw.FullError)
        try:
            self._drop()
            lookup = self._open_cursor()
            lookup.execute(q["begin"])
            landed = bool(lookup.execute(q["select_event_by_op"], (op_id,)).fetchall())
            if is_full and not landed:  # the frame that commits was never written whole
                lookup.execute(q["rollback"])
            else:
                # An UPDATE that changes nothing writes no page, and then its COMMIT does nothing at all.
                lookup.execute(q["touch"], can_cache=False)
                lookup.execute(q["commit"])
        except BaseException as second:
            self._drop()
            if not isinstance(second, Exception):
                raise
            raise Uncertain(
                f"{location}: nobody can say whether operation {op_id.hex()} was committed: {error}; then: {second}",
                code="commit_unknown",
                hint="when the disk works again, run the same thing: what landed is found",
            ) from error
        if not landed:
            if isinstance(error, apsw.Error):
                raise translated(error, location) from error
            raise Unavailable(f"{location}: the commit failed: {error}", code="store_failed") from error

    def _open_cursor(self) -> Cursor:
        if self._cursor is None:
            connection = connect_writer(self._place, create=False)
            make_ready(connection, self._place, _refuse_to_fill, self._clock.now_ms())
            return self._adopt(connection)
        return self._cursor

    def _adopt(self, connection: Connection) -> Cursor:
        try:
            cursor = connection.cursor()
            cursor.execute(self._q["select_head"]).fetchall()  # makes SQLite open the -wal file
            wal = self._look_at_wal()
        except BaseException as error:
            connection.close(force=True)
            if isinstance(error, apsw.Error):
                raise translated(error, self._place.location) from error
            raise
        self._connection, self._cursor, self._synced, self._wal = connection, cursor, True, wal
        return cursor

    def _look_at_wal(self) -> Identity | None:
        """Return what the -wal file is now; None with a rollback journal, which has no such tripwire."""
        return identity_of(self._place.location + "-wal") if self._place.durability is Durability.FULL else None

    def _drop(self, *, checkpoint: bool = True) -> None:
        connection, self._connection, self._cursor = self._connection, None, None
        if connection is None:
            return
        with suppress(apsw.Error):  # a checkpoint that fails, on a full disk say, loses nothing: the log has it all
            if not checkpoint or not self._files_are_ours():
                # A checkpoint from a -wal file that others no longer see would write old pages over new ones.
                connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
            connection.close(force=True)

    def _files_are_ours(self) -> bool:
        try:
            self._check_files()
        except LedgerError:
            return False
        return True

    def _busy(self) -> LedgerError:
        return Unavailable(
            f"{self._place.location} stayed locked for {self._place.wait_s:g} s",
            code="store_busy",
            hint="another process holds it; is one of them stopped?",
        )


def _journal_of(cursor: Cursor) -> tuple[str, int]:
    return cursor.connection.pragma("journal_mode"), cursor.connection.pragma("synchronous")


def append_event(cursor: Cursor, leaf: Leaf, time_ms: int) -> None:
    """Write the event of a leaf, the head that counts it and the tiles it completes.

    Refused("already_committed") for an op_id that is in the log.
    """
    q = statements(QUERIES_FILE)
    try:
        cursor.execute(q["insert_event"], (leaf.index, leaf.op_id, leaf.envelope))
    except apsw.ConstraintError as error:
        if extended_code(error) != apsw.SQLITE_CONSTRAINT_UNIQUE:
            raise
        raise already_committed(leaf.op_id) from error
    cursor.execute(q["update_head"], (leaf.index + 1, leaf.frontier, time_ms))

    def fetch(name: str, bindings: Row) -> list[Row]:
        return cursor.execute(q[name], bindings).fetchall()

    for tile in tiles_behind(leaf, fetch):
        cursor.execute(q["insert_tile"], tile)


def _refuse_to_fill(_: Connection) -> None:
    raise Tampered("the store became empty while it was in use", code="store_replaced")
