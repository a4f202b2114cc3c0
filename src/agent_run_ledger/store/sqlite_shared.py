"""What all opens of one SQLite file in this process have in common, and the list of those files."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import cast

from agent_run_ledger.errors import Misuse, Tampered, Unavailable
from agent_run_ledger.ports import Clock, Entropy
from agent_run_ledger.store.fair_lock import FairLock
from agent_run_ledger.store.forks import forked, keep_for_ever, register
from agent_run_ledger.store.leaves import LOG_ID_BYTES, first_leaf
from agent_run_ledger.store.naming import unopenable
from agent_run_ledger.store.sidecar import Sidecar
from agent_run_ledger.store.sqlite import (
    Identity,
    Place,
    check_nothing_left,
    connect_writer,
    create_file,
    identify,
    no_store,
    remove_if_unfilled,
)
from agent_run_ledger.store.sqlite_backup import SqliteBackup
from agent_run_ledger.store.sqlite_driver import Connection
from agent_run_ledger.store.sqlite_migrations import QUERIES_FILE
from agent_run_ledger.store.sqlite_reader import SqliteReader
from agent_run_ledger.store.sqlite_writer import SqliteWriter, append_event
from agent_run_ledger.store.statements import statements

FORK_WAIT_S = 5.0

Meta = dict[str, bytes | str | int]


class SharedStore:
    """One file: its write connection, its read connections and its lock file, each opened when first needed.

    A process must have one descriptor of the lock file, so also the read-only opens of a file share this.
    """

    def __init__(self, place: Place, clock: Clock, *, file_is_new: bool) -> None:
        self.place = place
        self.file_is_new = file_is_new
        self.pid = os.getpid()
        self.users = 0
        self.created_here = False
        self.meta: Meta = {}
        self.reader = SqliteReader(place)
        self.guarded = SqliteReader(place, guarded=True)
        self.backup = SqliteBackup(place, clock)
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
        self._writer = writer
        try:
            self.sidecar().note_log_id(cast(bytes, self.meta["log_id"]))
        except OSError as error:
            raise unopenable(self.sidecar().path, error) from error

    @property
    def has_sidecar(self) -> bool:
        """Whether the lock file could be opened."""
        return self._sidecar is not None

    @property
    def found_version(self) -> int | None:
        """The schema version at the first opening for writing, before an upgrade; None where nobody opened so."""
        return None if self._writer is None else self._writer.found_version

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
        return self._writer is not None and self._writer.lock.is_mine()

    def parts(self) -> list[SqliteReader | SqliteBackup | SqliteWriter]:
        """Return what holds connections: the readers, then the writer, which checkpoints as the last to close."""
        readers: list[SqliteReader | SqliteBackup | SqliteWriter] = [self.reader, self.guarded, self.backup]
        return readers if self._writer is None else [*readers, self._writer]

    def close(self) -> BaseException | None:
        """Close all that is open, the lock file with every lock on it as the last; return the first failure."""
        first: BaseException | None = None
        for part in (*self.parts(), self._sidecar):
            try:
                if part is not None:
                    part.close()
            except BaseException as error:
                first = first or error
        return first

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
        if noted is not None and not self.file_is_new:
            raise Tampered(
                f"{self.place.location} is empty and held log {noted.hex()} before: it was emptied",
                code="emptied",
                hint=f"restore it from a backup; to begin anew, delete it and {self.sidecar().path}",
            )
        self.created_here = True
        _write_first_rows(connection, self._clock, self.place.entropy)


class Registry:
    """Every store that this process has open, by what the file is and not by its name.

    Opening and closing wait: for the turnstile, for transactions. So each file has a lock of its own for that, and
    the one of all files is held for a look only.
    """

    def __init__(self) -> None:
        self._mutex = threading.RLock()
        self._doors: dict[Identity, FairLock] = {}
        self._made: set[Identity] = set()
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
            identity, made = _existing(location, create=create)
            if made:
                self._made.add(identity)
            door = self._doors.setdefault(identity, FairLock())
        if door.is_mine():
            raise Misuse(f"{location} was opened while this thread was opening it", code="nested_transaction")
        try:
            if not door.acquire(wanted.wait_s):
                raise _door_shut(location)
            return self._enter(replace(wanted, identity=identity), create=create, readonly=readonly, clock=clock)
        finally:
            try:  # noqa: SIM105 - see FairLock
                door.release()
            except RuntimeError:
                pass

    def release(self, shared: SharedStore) -> BaseException | None:
        """Take one user away; the last one closes, and what a part raised at that is returned.

        Misuse inside one of its own transactions, Unavailable while others open it: then the user stays.
        """
        if shared.is_mine():
            raise Misuse(f"{shared.place.location} was closed inside its own transaction", code="nested_transaction")
        door = self._doors[shared.place.identity]
        try:
            if not door.acquire(shared.place.wait_s):
                raise _door_shut(shared.place.location)
            shared.users -= 1
            if shared.users == 0:
                del self._open[shared.place.identity]
                return shared.close()
            return None
        finally:
            try:  # noqa: SIM105 - see FairLock
                door.release()
            except RuntimeError:
                pass

    def before_fork(self) -> None:
        """Close every connection: SQLite's own bookkeeping of locks would be wrong in a child that opens the file.

        An interrupt here does not stop the fork. So what is taken is noted before it is.
        """
        forking = self._forking[threading.get_ident()] = _Forking()
        forking.held.append(self._mutex.release)
        forking.all_known = self._mutex.acquire(timeout=FORK_WAIT_S)
        forking.at_rest = {identity for identity, door in list(self._doors.items()) if forking.take(door)}
        for shared in list(self._open.values()):
            for part in shared.parts():
                if forking.take(part.lock):
                    part.let_go()

    def after_fork_in_parent(self) -> None:
        """Let everyone in again; connections are opened at the next use."""
        forking = self._forking.pop(threading.get_ident(), None) or _Forking()
        try:
            forking.give_back()
        finally:
            forking.give_back()  # the rest, after an interrupt

    def after_fork_in_child(self) -> None:
        """Forget the parent's stores; a file whose connection could not be closed cannot be opened here."""
        forking = self._forking.get(threading.get_ident()) or _Forking()
        self._unknown |= not forking.all_known
        self._inherited |= self._doors.keys() - forking.at_rest
        self._mutex, self._doors, self._forking = threading.RLock(), {}, {}
        stores, self._open = self._open, {}
        self._inherited |= {identity for identity, shared in stores.items() if shared.abandon_in_child()}

    def _enter(self, wanted: Place, *, create: bool, readonly: bool, clock: Clock) -> SharedStore:
        identity, location = wanted.identity, wanted.location
        shared = self._open.get(identity)
        if identity in self._inherited or (shared is not None and shared.pid != os.getpid()):
            raise forked(location)
        if shared is None:
            shared = SharedStore(wanted, clock, file_is_new=identity in self._made)
        elif shared.place.durability is not wanted.durability and not readonly:
            raise Misuse(f"{location} is open with durability={shared.place.durability}", code="settings_differ")
        try:
            if readonly:
                shared.open_to_read()
            else:
                shared.open_to_write(create=create)
                self._made.discard(identity)
        except BaseException:
            if shared.users == 0:
                self._open.pop(identity, None)
                shared.close()
                if not shared.has_sidecar:
                    self._remove_what_was_made(location, identity)
            raise
        shared.users += 1
        self._open[identity] = shared
        return shared

    def _remove_what_was_made(self, location: str, identity: Identity) -> None:
        """Remove the empty file that this process made, when no lock file can be had for it: it can be no store.

        Should somebody else be about to fill it after all, the tripwire tells at the first commit that it is gone.
        """
        if identity in self._made:
            with suppress(OSError, Unavailable):
                remove_if_unfilled(location, identity)
            self._made.discard(identity)


@dataclass(slots=True)
class _Forking:
    """What a thread holds while it forks, as releases; whether all files are known; which nobody opens or closes."""

    held: list[Callable[[], None]] = field(default_factory=list[Callable[[], None]])
    all_known: bool = False
    at_rest: set[Identity] = field(default_factory=set[Identity])

    def take(self, lock: FairLock) -> bool:
        """Take a lock for the time of the fork; False where it is in use, by this thread or for too long."""
        if lock.is_mine():
            return False
        self.held.append(lock.release)
        return lock.acquire(FORK_WAIT_S)

    def give_back(self) -> None:
        """Release what is held."""
        while self.held:
            try:  # noqa: SIM105 - see FairLock
                self.held[-1]()
            except RuntimeError:
                pass
            self.held.pop()


registry = Registry()
register(registry)


def _door_shut(location: str) -> Unavailable:
    return Unavailable(
        f"{location} is being opened or closed, for too long", code="store_busy", hint="is another process stopped?"
    )


def _existing(location: str, *, create: bool) -> tuple[Identity, bool]:
    """Return what lies at the location, and whether it was made just now."""
    identity, made = identify(location), False
    if identity is None:
        check_nothing_left(location)
        if not create:
            raise no_store(location)
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
    append_event(cursor, first_leaf(log_id=log_id, op_id=op_id, now_ms=now_ms), now_ms)
