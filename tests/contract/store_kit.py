"""Small transactions that any store must be able to carry out, and an independent check of the log they make."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import apsw
import psycopg
import pytest

from agent_run_ledger.clock import SystemClock
from agent_run_ledger.entropy import SystemEntropy
from agent_run_ledger.kernel.envelope import Change
from agent_run_ledger.kernel.merkle import append, leaf_hash
from agent_run_ledger.kernel.record import Record, RecordKind, record_mac
from agent_run_ledger.kernel.states import RunState
from agent_run_ledger.kernel.tiles import TILE_WIDTH, build_tile
from agent_run_ledger.ledger.verify import verify_log
from agent_run_ledger.ports import Clock, InFlight, Reader, RunRow, Store, Tx
from agent_run_ledger.store import SqliteStore, open_sqlite
from agent_run_ledger.store.postgres_store import PostgresStore, open_postgres
from agent_run_ledger.testing.integrity import integrity_problems
from tests.services.postgres import Cluster

ENTROPY = SystemEntropy()


class SetClock:
    """A clock that shows what the test sets."""

    def __init__(self, now_ms: int = 1_000_000) -> None:
        self.ms = now_ms

    def now_ms(self) -> int:
        return self.ms

    def monotonic_s(self) -> float:
        return SystemClock().monotonic_s()


@dataclass(frozen=True, kw_only=True)
class Backend:
    """One kind of store under test: how to open the store `name` again and again, each time a handle of its own."""

    kind: str
    open: Callable[..., SqliteStore]
    edit: Callable[[str, str], None]
    """Run people's own SQL on the store of a name, as the rules of the schema let it."""
    forge: Callable[[str, str], None]
    """The same where somebody took the rules away."""
    refusal: type[Exception]
    """What `edit` raises for what the schema does not let through."""


@contextmanager
def quick_folder() -> Iterator[Path]:
    """A folder in memory where there is one: for what is not about durability."""
    memory = "/dev/shm"
    with TemporaryDirectory(prefix="arl-", dir=memory if os.access(memory, os.W_OK) else None) as folder:
        yield Path(folder)


@contextmanager
def sqlite_backend(folder: Path, durability: str) -> Iterator[Backend]:
    """Stores in a folder; everything that was opened is closed at the end."""
    opened: list[SqliteStore] = []

    def open_one(
        name: str = "log", *, create: bool = True, clock: Clock | None = None, **settings: object
    ) -> SqliteStore:
        store = open_sqlite(
            folder / f"{name}.db",
            create=create,
            durability=durability,
            clock=clock or SystemClock(),
            entropy=ENTROPY,
            **settings,  # type: ignore[arg-type]
        )
        opened.append(store)
        return store

    def edit(name: str, sql: str) -> None:
        connection = open_one(name)._shared.writer()._connection
        assert connection is not None
        connection.execute(sql)

    def forge(name: str, sql: str) -> None:
        edit(name, f"PRAGMA ignore_check_constraints = 1; {sql}; PRAGMA ignore_check_constraints = 0")

    yield Backend(kind=f"sqlite-{durability}", open=open_one, edit=edit, forge=forge, refusal=apsw.ConstraintError)
    for store in opened:
        store.close()


@contextmanager
def postgres_backend(cluster: Cluster) -> Iterator[Backend]:
    """Stores in databases of their own; everything that was opened is closed, and what was made dropped, at the end."""
    databases: dict[str, str] = {}
    opened: list[PostgresStore] = []

    def open_one(
        name: str = "log", *, create: bool = True, clock: Clock | None = None, **settings: object
    ) -> PostgresStore:
        if name not in databases:
            databases[name] = cluster.new_database()
        store = open_postgres(
            cluster.url(databases[name]),
            create=create,
            clock=clock,
            entropy=ENTROPY,
            **settings,  # type: ignore[arg-type]
        )
        opened.append(store)
        return store

    def edit(name: str, sql: str) -> None:
        cluster.run(f"SET search_path = agent_run_ledger; {postgres_sql(sql)}", databases[name])

    def forge(name: str, sql: str) -> None:
        checks = "SELECT conrelid::regclass, conname FROM pg_constraint WHERE contype = 'c' AND connamespace = %s"
        for table, check in cluster.run(checks % "'agent_run_ledger'::regnamespace", databases[name]):
            cluster.run(f"ALTER TABLE {table} DROP CONSTRAINT {check}", databases[name])
        edit(name, f"SET session_replication_role = replica; {sql}")

    yield Backend(
        kind="postgres",
        open=open_one,  # type: ignore[arg-type]
        edit=edit,
        forge=forge,
        refusal=psycopg.errors.IntegrityError,
    )
    for store in opened:
        store.close()
    for database in databases.values():
        cluster.drop(database)


def postgres_sql(sql: str) -> str:
    """A statement of SQLite with its bytes written as PostgreSQL has them."""
    return re.sub(r"x'([0-9a-fA-F]*)'", r"'\\x\1'::bytea", sql)


ENGINES = ("full", "extra", "postgres")
"""Every kind of store: SQLite with the two durabilities, and PostgreSQL."""


@contextmanager
def engine(kind: str, request: pytest.FixtureRequest) -> Iterator[Backend]:
    """Stores of one of ENGINES."""
    if kind == "postgres":
        with postgres_backend(request.getfixturevalue("postgres")) as made:
            yield made
        return
    with quick_folder() as folder, sqlite_backend(folder, kind) as made:
        yield made


def op() -> bytes:
    return ENTROPY.uuid7()


def new_record(kind: RecordKind, run_uid: bytes, key: int = 0, **fields: object) -> Record:
    settings: dict[str, object] = {
        "scope": b"",
        "name": f"step{key}",
        "fingerprint": key.to_bytes(32, "big"),
        "attempt": 1,
        "started_at_ms": 5,
        "ended_at_ms": 6,
        "inputs": b"{}",
        "code": b"12345678",
        "value_sha256": bytes(32),
        "payload": b"value %d" % key,
    }
    return Record(kind=kind, run_uid=run_uid, salt=ENTROPY.token(32), **{**settings, **fields})  # type: ignore[arg-type]


def begin(store: Store, run_id: str = "r") -> RunRow:
    """Start a run and return its row as it stands after the commit."""
    return store.transact(op(), lambda tx: begin_in(tx, run_id))


def begin_in(tx: Tx, run_id: str) -> RunRow:
    row = tx.insert_run(run_uid=op(), run_id=run_id, holder="here")
    record = new_record(RecordKind.START, row.run_uid)
    born = Change(type="run", id=row.run_uid, old="none", new="running", generation=1, mac=record_mac(record))
    start = tx.add_record(row.row_id, record, born)
    tx.update_run(
        row,
        state=RunState.RUNNING,
        generation=1,
        attempt=1,
        holder="here",
        start_record_id=start,
        last_start_record_id=start,
        end_record_id=None,
    )
    return tx.get_run(row.row_id)


def mark(row: RunRow, key: int = 0, lane: int = 0) -> InFlight:
    return InFlight(
        run_row_id=row.row_id,
        lane=lane,
        name=f"step{key}",
        scope=b"",
        fingerprint=key.to_bytes(32, "big"),
        occurrence=0,
        attempt=row.attempt,
        tries=1,
        generation=row.generation,
        started_at_ms=5,
    )


def step_change(row: RunRow, old: str, new: str, record: Record | None = None) -> Change:
    mac = None if record is None else record_mac(record)
    return Change(type="step", id=row.run_uid, old=old, new=new, generation=row.generation, mac=mac)


def start_step(tx: Tx, row: RunRow, key: int, lane: int = 0) -> None:
    tx.put_in_flight(mark(row, key, lane))
    tx.add_change(step_change(row, "none", "started"))


def end_step(tx: Tx, row: RunRow, key: int, lane: int = 0, **fields: object) -> int:
    record = new_record(RecordKind.RESULT, row.run_uid, key, **fields)
    place = tx.add_record(row.row_id, record, step_change(row, "started", "recorded", record))
    tx.clear_in_flight(row.row_id, lane)
    return place


def do_step(store: Store, row: RunRow, key: int, *, op_id: bytes | None = None, **fields: object) -> int:
    """Start and end a step in one transaction and return its record's id."""

    def both(tx: Tx) -> int:
        start_step(tx, row, key)
        return end_step(tx, row, key, **fields)

    return store.transact(op_id or op(), both)


def check_log(store: Store) -> int:
    """Recompute everything from the envelopes' bytes, twice over, and return the number of leaves."""
    reader = store.reader()
    head, frontier, hashes = reader.head(), (), []
    for event in reader.events(first=0, stop=head.size):
        assert event.index == len(hashes)
        hashes.append(leaf_hash(event.envelope))
        frontier = append(event.index, frontier, hashes[-1])
    assert len(hashes) == head.size
    assert head.frontier == frontier
    _check_tiles(reader, hashes)
    report = verify_log(reader, log_id=store.log_id)
    assert report.problems == ()
    return head.size


def check_file(path: str | os.PathLike[str]) -> int:
    """check_ledger for a store whose records hold no values: SQLite's check, and check_log; the number of leaves."""
    assert integrity_problems(path) == []
    store = open_sqlite(path, create=False, readonly=True)
    try:
        assert verify_log(store.reader(), is_copy=store.is_copy).problems == ()
        return check_log(store)
    finally:
        store.close()


def _check_tiles(reader: Reader, hashes: list[bytes]) -> None:
    level = 0
    while hashes:
        full = len(hashes) // TILE_WIDTH
        roots = reader.tile_roots(level, first=0, stop=full + 1)
        assert len(roots) == full
        assert reader.tile(level, full) is None
        for index, root in enumerate(roots):
            nodes = build_tile(hashes[index * TILE_WIDTH : (index + 1) * TILE_WIDTH])
            assert reader.tile(level, index) == nodes
            assert root == nodes[:32]
        hashes, level = roots, level + 1
