"""What all opens of one SQLite file in this process have in common, and the list of those files."""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass, replace
from typing import cast

from agent_run_ledger.errors import Misuse, Refused, Tampered, Unavailable
from agent_run_ledger.kernel.envelope import Change, envelope_bytes
from agent_run_ledger.kernel.merkle import append, leaf_hash
from agent_run_ledger.ports import Clock, Entropy
from agent_run_ledger.store.forks import forked, keep_for_ever, register
from agent_run_ledger.store.sidecar import Sidecar
from agent_run_ledger.store.sqlite import (
    QUERIES_FILE,
    Identity,
    Place,
    connect_writer,
    create_file,
    identify,
    unopenable,
)
from agent_run_ledger.store.sqlite_driver import Connection
from agent_run_ledger.store.sqlite_reader import SqliteReader
from agent_run_ledger.store.sqlite_writer import SqliteWriter, append_event
from agent_run_ledger.store.statements import statements

LOG_ID_BYTES = 16
FORK_WAIT_S = 5.0

Meta = dict[str, bytes | str | int]


class SharedStore:
    """One file: its write connection, its read connections and its lock file, each opened when first needed.

    A process must have one descriptor of the lock file, so also the read-only opens of a file share this.
    """

    def __init__(self, place: Place, clock: Clock, *, file_is_new: bool) -> None:
        self.place = place
        self._file_is_new = file_is_new
        self.pid = os.getpid()
        self.users = 0
        self.created_here = False
        self.meta: Meta = {}
        self.reader = SqliteReader(place)
        self.guarded = SqliteReader(place, guarded=True)
        self._clock = clock
        self._sidecar: Sidecar | None = None
        self._writer: SqliteWriter | None = None
        self._mutex = threading.Lock()

    def open_to_read(self) -> None:
        """Check what the file is and read what it says of itself."""
        if not self.meta:
            self.meta = self.reader.meta()

    def open_to_write(self, *, create: bool) -> None:
        """Check what the file is, fill it where it is empty, and make it ready for transactions."""
        if self._writer is not None:
            return
        connection = connect_writer(self.place, create=create)
        try:
            writer = SqliteWriter(self.place, self.sidecar(), self._clock)
        except BaseException:
            connection.close(force=True)
            raise
        self.meta = writer.start(connection, self._fill)
        self.sidecar().note_log_id(cast(bytes, self.meta["log_id"]))
        self._writer = writer

    def writer(self) -> SqliteWriter:
        """Return the write side. Misuse where nobody opened the file for writing."""
        if self._writer is None:
            raise Misuse(f"{self.place.location} was opened with readonly=True", code="readonly_store")
        return self._writer

    def sidecar(self) -> Sidecar:
        """Return the lock file, opened or made now."""
        path = f"{self.place.location}-lock"
        with self._mutex:
            if self._sidecar is None:
                try:
                    self._sidecar = Sidecar(path, self.place.entropy)
                except OSError as error:
                    raise unopenable(path, error) from error
            return self._sidecar

    def is_mine(self) -> bool:
        """Return whether the calling thread is inside a transaction of this store."""
        return self._writer is not None and self._writer.is_mine()

    def parts(self) -> list[SqliteReader | SqliteWriter]:
        """Return what holds connections: the readers, then the writer, which checkpoints as the last to close."""
        readers: list[SqliteReader | SqliteWriter] = [self.reader, self.guarded]
        return readers if self._writer is None else [*readers, self._writer]

    def close(self) -> None:
        """Close everything that is open; this gives up every lock on the lock file."""
        for part in self.parts():
            part.close()
        if self._sidecar is not None:
            self._sidecar.close()

    def abandon_in_child(self) -> bool:
        """Give everything up in a forked child; True when a connection had to be inherited open."""
        inherited = False
        for part in self.parts():
            if (connection := part.leak()) is not None:
                keep_for_ever(connection)
                inherited = True
        if self._sidecar is not None:
            self._sidecar.abandon_in_child()
        return inherited

    def _fill(self, connection: Connection) -> None:
        noted = self.sidecar().log_id
        if noted is not None and not self._file_is_new:
            raise Tampered(
                f"{self.place.location} is empty and held log {noted.hex()} before: it was emptied",
                code="emptied",
                hint=f"restore it from a backup; to begin anew, delete it and {self.sidecar().path}",
            )
        self.created_here = True
        _write_first_rows(connection, self._clock, self.place.entropy)


class Registry:
    """Every store that this process has open, by what the file is and not by its name."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._open: dict[Identity, SharedStore] = {}
        self._inherited: set[Identity] = set()
        self._unknown = False
        self._forking: dict[int, _Forking] = {}

    def open(self, wanted: Place, *, create: bool, readonly: bool, clock: Clock) -> SharedStore:
        """Return the store at a place, opened now or before, with one user more."""
        location = wanted.location
        with self._mutex:
            if self._unknown:
                raise forked("a store that was just being opened")
            identity, file_is_new = _existing(location, create=create)
            shared = self._open.get(identity)
            if identity in self._inherited or (shared is not None and shared.pid != os.getpid()):
                raise forked(location)
            if shared is None:
                shared = SharedStore(replace(wanted, identity=identity), clock, file_is_new=file_is_new)
            elif shared.place.durability is not wanted.durability and not readonly:
                raise Misuse(f"{location} is open with durability={shared.place.durability}", code="settings_differ")
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
            self._open[identity] = shared
            return shared

    def release(self, shared: SharedStore) -> None:
        """Take one user away; the last one closes. Misuse inside one of its own transactions."""
        if shared.is_mine():
            raise Misuse(f"{shared.place.location} was closed inside its own transaction", code="nested_transaction")
        with self._mutex:
            shared.users -= 1
            if shared.users == 0:
                del self._open[shared.place.identity]
                shared.close()

    def before_fork(self) -> None:
        """Close every connection: SQLite's own bookkeeping of locks would be wrong in a child that opens the file."""
        locked = self._mutex.acquire(timeout=FORK_WAIT_S)
        parts = [part for shared in list(self._open.values()) for part in shared.parts()]
        self._forking[threading.get_ident()] = _Forking(locked, [part for part in parts if part.suspend(FORK_WAIT_S)])

    def after_fork_in_parent(self) -> None:
        """Let everyone in again; connections are opened at the next use."""
        forking = self._forking.pop(threading.get_ident())
        for part in forking.suspended:
            part.resume()
        if forking.locked:
            self._mutex.release()

    def after_fork_in_child(self) -> None:
        """Forget the parent's stores; a file whose connection could not be closed cannot be opened here."""
        self._unknown |= not self._forking[threading.get_ident()].locked
        self._forking = {}
        self._mutex = threading.Lock()
        stores, self._open = self._open, {}
        self._inherited |= {identity for identity, shared in stores.items() if shared.abandon_in_child()}


@dataclass(frozen=True, slots=True)
class _Forking:
    """What a thread holds while it forks."""

    locked: bool
    suspended: list[SqliteReader | SqliteWriter]


registry = Registry()
register(registry)


def _existing(location: str, *, create: bool) -> tuple[Identity, bool]:
    """Return what lies at the location, and whether it was made just now."""
    identity, made = identify(location), False
    if identity is None:
        if not create:
            raise Refused(
                f"there is no store at {location}", code="no_store", hint="`arl init` makes one; or check the path"
            )
        made = create_file(location)
        identity = identify(location)
    if identity is None:
        raise Unavailable(f"{location} was deleted while it was opened", code="cannot_open")
    return identity, made


def _write_first_rows(connection: Connection, clock: Clock, entropy: Entropy) -> None:
    """Write the id of the log, what the store may do, and leaf 0."""
    q, now_ms, log_id, op_id = statements(QUERIES_FILE), clock.now_ms(), entropy.token(LOG_ID_BYTES), entropy.uuid7()
    cursor = connection.cursor()
    for line in (("log_id", log_id), ("created_at_ms", now_ms), ("authority", 0), ("is_copy", 0)):
        cursor.execute(q["insert_meta"], line)
    cursor.execute(q["insert_head"], (now_ms,))
    born = Change(type="store", id=log_id, old="none", new="created", generation=0)
    envelope = envelope_bytes(log_id=log_id, op_id=op_id, epoch=0, time_ms=now_ms, changes=(born,))
    append_event(cursor, 0, op_id, envelope, append(0, (), leaf_hash(envelope)), now_ms)
