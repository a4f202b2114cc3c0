"""The PostgreSQL store as its users see it: opening, transactions, reading, locks, authority."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TypeVar

from agent_run_ledger.entropy import SystemEntropy
from agent_run_ledger.errors import Misuse, Refused
from agent_run_ledger.kernel.envelope import Change
from agent_run_ledger.ports import Clock, Entropy, Question, Reader, RunLock, Tx
from agent_run_ledger.store.moves import Move, check_open, move_of
from agent_run_ledger.store.postgres import place_of
from agent_run_ledger.store.postgres_listener import RunListener
from agent_run_ledger.store.postgres_shared import SharedPostgres, check_owner, postgres_registry
from agent_run_ledger.store.postgres_sql import query
from agent_run_ledger.store.postgres_tx import PostgresTx
from agent_run_ledger.store.postgres_writer import PostgresWriter
from agent_run_ledger.store.rows import Rows
from agent_run_ledger.store.sqlite_stats import Migration

T = TypeVar("T")

WAIT_S = 30.0


def open_postgres(
    url: str,
    *,
    create: bool,
    authority: bool = False,
    readonly: bool = False,
    wait_s: float = WAIT_S,
    clock: Clock | None = None,
    entropy: Entropy | None = None,
    moving: bool = False,
) -> PostgresStore:
    """Open the store in the database that `url` names, or make it there with `create`; the database must exist.

    All opens of one URL in this process share their connections: one for writing, up to four for reading, one that
    holds the locks of live runs. `authority` says that effects are to be held: a new store gets the right, an existing
    one must have it. `readonly` allows reading only. `wait_s` bounds every wait for a lock, and how long who writes
    waits for a server that is away; opening does not wait. Without a `clock` time is that of the server, which is one
    for all hosts. Clock, entropy and `wait_s` are those of the first open.
    `moving` is for `arl migrate`, which alone may open what moves or has moved.

    Refused: no_store, foreign_schema, schema_newer, moving, retired, arriving, no_authority, login_refused,
    no_database, no_permission, pooled_connection, bad_encoding. Tampered: corrupt, schema_changed. Unavailable:
    unreachable, store_busy, read_only, too_many_connections, server_starting. Misuse: bad_url, bad_settings,
    server_too_old. No error names a password.
    """
    if readonly and create:
        raise Misuse(f"readonly={readonly}, create={create}", code="bad_settings")
    place = place_of(url, wait_s=wait_s, entropy=entropy or SystemEntropy())
    shared = postgres_registry.open(place, create=create, readonly=readonly, clock=clock)
    store = PostgresStore(shared, readonly=readonly)
    try:
        if not moving:
            check_open(store.move, store.read_move, store.location, readonly=readonly)
        if authority and not store.authority:
            if not shared.created_here:
                said = f"{store.location} has no authority for effects"
                raise Refused(said, code="no_authority", hint="see `arl init`")
            store.grant_authority()
    except BaseException:
        store.close()
        raise
    return store


class PostgresStore:
    """See ports.Store. One handle of a shared store; close it as often as you like, others keep theirs."""

    def __init__(self, shared: SharedPostgres, *, readonly: bool) -> None:
        self._shared = shared
        self._readonly = readonly
        self._closed = False
        self._authority = bool(shared.meta["authority"])

    def __repr__(self) -> str:
        return f"<PostgresStore {self.location}>"

    @property
    def log_id(self) -> bytes:
        """See ports.Store.log_id."""
        return self._shared.log_id

    @property
    def authority(self) -> bool:
        """See ports.Store.authority. Once given it stays, so only a no is read again."""
        if not self._authority:
            self._authority = bool(self._open().reader.meta()["authority"])
        return self._authority

    @property
    def location(self) -> str:
        """See ports.Store.location: the URL without its password and its parameters."""
        return self._shared.place.location

    @property
    def created_at_ms(self) -> int:
        """When the store was created, Unix milliseconds."""
        return int(self._shared.meta["created_at_ms"])

    @property
    def is_copy(self) -> bool:
        """Never: nothing marks what was restored from a dump or a snapshot, which only a witness can tell."""
        return False

    @property
    def copied(self) -> None:
        """See is_copy."""
        return

    @property
    def move(self) -> Move:
        """What the store said of a move of its ledger when this process opened it first."""
        return move_of(self._shared.meta, self.location)

    def read_move(self) -> Move:
        """Return what the store says of a move now."""
        return move_of(self._open().reader.meta(), self.location)

    def transact_moving(self, op_id: bytes, fn: Callable[[PostgresTx], T]) -> T:
        """Run one transaction of the move itself, which alone may write while the store moves."""
        return self._to_write().transact_with(op_id, fn, moving=True)

    @property
    def created_here(self) -> bool:
        """Whether it was this process that created the store, since it opened it first."""
        return self._shared.created_here

    @property
    def repeats(self) -> int:
        """How often a transaction was begun once more by this process, because a connection or the server was gone."""
        return self._to_write().outage.repeats

    def transact(self, op_id: bytes, fn: Callable[[Tx], T], *, sync: bool = True, first: Sequence[Question] = ()) -> T:
        """See ports.Store.transact. Without `sync` the server does not wait for its disk, nor for its standbys."""
        return self._to_write().transact(op_id, fn, sync=sync, first=first)

    def reader(self) -> Reader:
        """See ports.Store.reader."""
        return self._open().reader

    def shared_now_ms(self) -> int:
        """Return Unix milliseconds by the server's clock, which all hosts share.

        Inside a transaction of the calling thread: as it was read after the locks, and what passed here since then.
        """
        return self._open().now_ms()

    def scrub(self) -> bool:
        """See ports.Store.scrub. False, always: the server keeps old pages in its log and in backups for a while.

        The rows that were erased are vacuumed, where this user may do that.
        """
        self._to_write().vacuum()
        return False

    def query(self, sql: str) -> Rows:
        """Run people's own SQL on a store opened with readonly=True. See postgres_sql.query."""
        if not self._readonly:
            raise Misuse("queries need a store opened with readonly=True", code="not_readonly")
        return query(self._open().place, sql)

    def migrations(self) -> list[Migration]:
        """Return the migrations that made this store what it is, in order."""
        return [
            Migration(version=version, sha256=sha256, applied_at_ms=applied_at_ms)
            for version, sha256, applied_at_ms in self._open().reader.fetch("select_migration_times")
        ]

    def journal(self) -> tuple[str, int | str]:
        """Return what makes commits durable: "server", and its synchronous_commit for the session that writes."""
        return "server", self._to_write().synchronous_commit()

    def lock_run(self, run_id: str) -> RunLock | None:
        """See ports.Store.lock_run. A read-only store may ask too: a lock is no row."""
        return self._open().locks().lock_run(run_id)

    def is_run_live(self, run_id: str) -> bool:
        """See ports.Store.is_run_live. A read-only store may ask too."""
        return self._open().locks().is_run_live(run_id)

    def live_runs(self, run_ids: Sequence[str]) -> frozenset[str]:
        """See ports.Store.live_runs."""
        return self._open().locks().live_runs(run_ids)

    def on_submitted(self, tell: Callable[[], None]) -> Callable[[], None]:
        """See ports.Store.on_submitted. On a connection and a thread of its own."""
        self._open()
        return RunListener(self._shared.place, tell).close

    def grant_authority(self) -> bool:
        """Let this store hold effects, with a leaf that says so; False when it already could."""

        def grant(tx: PostgresTx) -> bool:
            if tx.meta("authority"):
                return False
            tx.set_meta("authority", 1)
            tx.add_change(Change(type="store", id=self.log_id, old="runs_only", new="authority", generation=0))
            return True

        granted = self._to_write().transact_with(self._shared.place.entropy.uuid7(), grant)
        self._authority = True
        return granted

    def close(self) -> None:
        """See ports.Store.close. In a forked child it does nothing: the store is the parent's."""
        if not self._closed and self._shared.pid == os.getpid():
            failure = postgres_registry.release(self._shared)
            self._closed = True
            if failure is not None:
                raise failure
        self._closed = True

    def _open(self) -> SharedPostgres:
        check_owner(self._shared)
        if self._closed:
            raise Misuse(f"{self.location} was used after it was closed", code="store_closed")
        return self._shared

    def _to_write(self) -> PostgresWriter:
        if self._readonly:
            raise Misuse(f"{self.location} was opened with readonly=True", code="readonly_store")
        return self._open().writer()
