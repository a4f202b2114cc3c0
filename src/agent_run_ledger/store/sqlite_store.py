"""The SQLite store as its users see it: opening, transactions, reading, locks, authority."""

from __future__ import annotations

import logging
import os
import sys
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TypeVar, cast

from agent_run_ledger.clock import SystemClock
from agent_run_ledger.entropy import SystemEntropy
from agent_run_ledger.errors import Misuse, NotAdmitted, Refused, Tampered
from agent_run_ledger.kernel.envelope import Change
from agent_run_ledger.kernel.store_urls import check_wait, is_url
from agent_run_ledger.ports import Clock, Entropy, Question, Reader, RunLock, Tx
from agent_run_ledger.store.forks import forked
from agent_run_ledger.store.mounts import filesystem, is_network_filesystem
from agent_run_ledger.store.moves import Move, check_open, move_of
from agent_run_ledger.store.rows import Rows
from agent_run_ledger.store.sqlite import Durability, Place, identify, identity_of, look_inside, no_store
from agent_run_ledger.store.sqlite_backup import BackupReport
from agent_run_ledger.store.sqlite_failures import replaced
from agent_run_ledger.store.sqlite_migrations import SCHEMA_VERSION
from agent_run_ledger.store.sqlite_shared import SharedStore, registry
from agent_run_ledger.store.sqlite_stats import (
    Migration,
    StoreStats,
    TableSize,
    migrations_of,
    sizes_of,
    sqlite_version,
    stats_of,
)
from agent_run_ledger.store.sqlite_tx import SqliteTx

T = TypeVar("T")

_log = logging.getLogger("agent_run_ledger")

WAIT_S = 30.0
OLDEST_SQLITE = (3, 51, 3)
"""The first version without the WAL-reset corruption."""


def open_sqlite(
    path: str | os.PathLike[str],
    *,
    create: bool,
    authority: bool = False,
    durability: str = Durability.FULL,
    readonly: bool = False,
    wait_s: float = WAIT_S,
    clock: Clock | None = None,
    entropy: Entropy | None = None,
    moving: bool = False,
) -> SqliteStore:
    """Open the store at `path`, or create it with `create`; all opens of one file in this process share it.

    `authority` says that effects are to be held: a new store gets the right, an existing one must have it.
    `durability` is "full" (WAL, one sync per transaction) or "extra" (rollback journal, for the lab). `readonly`
    allows reading and `query` only. `wait_s` bounds every wait for a lock. Clock, entropy and `wait_s` are those of
    the first open.

    A store that is a copy is opened with one warning in the log of this process, and never with authority. `moving` is
    for `arl migrate`, which alone may open what moves or has moved.

    Refused: no_store, foreign_file, hard_linked, commits_left, schema_newer, schema_older (with `readonly` only: a
    look never upgrades), moving, retired, arriving, no_authority, network_filesystem (with `authority` only).
    NotAdmitted: is_copy (the same).
    Tampered: corrupt, schema_changed, emptied. Unavailable: cannot_open, read_only, disk_full, store_busy.
    Misuse: unsupported_platform, sqlite_too_old, settings_differ, bad_settings, bad_setting, bad_path,
    bad_url. Forked: see `forks`.
    """
    _check_platform()
    if durability not in tuple(Durability) or (readonly and create):
        raise Misuse(f"durability={durability!r}, readonly={readonly}, create={create}", code="bad_settings")
    check_wait(wait_s)
    location = _locate(path)
    check_filesystem(location, authority=authority)
    wanted = Place(
        location=location,
        identity=(0, 0),
        durability=Durability(durability),
        wait_s=wait_s,
        entropy=entropy or SystemEntropy(),
    )
    store = SqliteStore(
        registry.open(wanted, create=create, readonly=readonly, clock=clock or SystemClock()), readonly=readonly
    )
    try:
        if not moving:
            check_open(store.move, store.read_move, location, readonly=readonly)
        if authority and not store.authority:
            _give_authority(store)
        if not readonly and store.copied is not None:
            _warn_of_copy(store, store.copied)
    except BaseException:
        store.close()
        raise
    return store


def _give_authority(store: SqliteStore) -> None:
    """Grant it to a store that was just made, and refuse any other."""
    if store.is_copy:
        raise _not_admitted(store.location)
    if not store.created_here:
        raise Refused(f"{store.location} has no authority for effects", code="no_authority", hint="see `arl init`")
    store.grant_authority()


def _not_admitted(location: str) -> NotAdmitted:
    return NotAdmitted(
        f"{location} is a copy: it has no authority, whatever the store it was made from had",
        code="is_copy",
        hint="only people can admit a copy, which this version cannot record yet; runs need no authority",
    )


def _warn_of_copy(store: SqliteStore, copied: Copied) -> None:
    if store.location not in _warned_of_copies:
        _warned_of_copies.add(store.location)
        _log.warning(
            "%s is a copy, made at %s of a log of %d leaves: runs may go on here, but the original must not run on "
            "beside it, or both pay for the same steps",
            store.location,
            datetime.fromtimestamp(copied.at_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            copied.size,
        )


def stored_durability(path: str | os.PathLike[str], *, wait_s: float = WAIT_S) -> str:
    """Return the durability that the store at `path` was written with, "full" or "extra"; also of an older schema.

    Nothing is changed. Errors as of `open_sqlite`; no_store where nothing is there.
    """
    _check_platform()
    check_wait(wait_s)
    location = _locate(path)
    identity = identify(location)
    if identity is None:
        raise no_store(location)
    place = Place(
        location=location, identity=identity, durability=Durability.FULL, wait_s=wait_s, entropy=SystemEntropy()
    )
    return look_inside(place)


def _check_platform() -> None:
    if sys.platform == "win32":
        raise Misuse("stores are not tested on Windows yet", code="unsupported_platform", hint="use WSL")
    if tuple(map(int, sqlite_version().split("."))) < OLDEST_SQLITE:
        raise Misuse(
            f"SQLite {sqlite_version()} can damage a WAL when two processes begin it anew",
            code="sqlite_too_old",
            hint="install a newer apsw",
        )


def _locate(path: str | os.PathLike[str]) -> str:
    """Return the absolute path without symbolic links, which every name of the file leads to."""
    named = os.fspath(path)
    is_url(named)  # raises for what a file would show the password of in its name
    try:
        location = os.path.realpath(named)
        location.encode()
    except (ValueError, TypeError) as error:
        raise Misuse(f"{named!r} is no path for a store: {error}", code="bad_path") from error
    if named in ("", ":memory:"):
        raise Misuse(f"{named!r} is no path for a store", code="bad_path", hint="a ledger is kept in a file")
    return location


def locate_new(path: str | os.PathLike[str]) -> str:
    """Return the absolute path of a file that is to be made: of its directory without symbolic links, not of itself."""
    _locate(path)
    named: str = os.fspath(path)
    folder, name = os.path.split(named)
    if name in ("", ".", ".."):
        raise Misuse(f"{path!r} names no file", code="bad_path", hint="name a file, not a directory")
    return os.path.join(_locate(folder or "."), name)


def check_filesystem(location: str, *, authority: bool) -> None:
    """Refused("network_filesystem") for effects where other machines share the file; one warning for runs."""
    kind = filesystem(location)
    if not is_network_filesystem(kind):
        return
    if authority:
        raise Refused(
            f"{location} is on {kind}: its locks do not keep two machines apart",
            code="network_filesystem",
            hint="keep effects on a local disk",
        )
    if location not in _warned:
        _warned.add(location)
        warnings.warn(f"{location} is on {kind}: locks may fail there, keep the store on a local disk", stacklevel=3)


_warned: set[str] = set()
_warned_of_copies: set[str] = set()

_END_OF_CALENDAR_MS = 253_402_300_799_000  # the last second of the year 9999


@dataclass(frozen=True, slots=True, kw_only=True)
class Copied:
    """What a copy says of itself: of how many leaves it was made, and when (Unix milliseconds)."""

    size: int
    at_ms: int


class SqliteStore:
    """See ports.Store. One handle of a shared store; close it as often as you like, others keep theirs."""

    def __init__(self, shared: SharedStore, *, readonly: bool) -> None:
        self._shared = shared
        self._readonly = readonly
        self._closed = False
        self._authority = not self.is_copy and bool(shared.meta["authority"])

    @property
    def log_id(self) -> bytes:
        """See ports.Store.log_id."""
        return cast(bytes, self._shared.meta["log_id"])

    @property
    def authority(self) -> bool:
        """See ports.Store.authority. Once given it stays, so only a no is read again; a copy never has it."""
        if not self._authority and not self.is_copy:
            self._authority = bool(self._open().reader.meta()["authority"])
        return self._authority

    @property
    def location(self) -> str:
        """See ports.Store.location: the absolute path."""
        return self._shared.place.location

    @property
    def created_at_ms(self) -> int:
        """When the store was created, Unix milliseconds."""
        return int(self._shared.meta["created_at_ms"])

    @property
    def is_copy(self) -> bool:
        """Whether this file is a copy that `backup` made, or goes back to one. It holds no authority."""
        return bool(self._shared.meta["is_copy"])

    @property
    def copied(self) -> Copied | None:
        """Of what a copy was made; None for a store that is none. Tampered("corrupt") where it does not say."""
        if not self.is_copy:
            return None
        size, at_ms = self._shared.meta.get("copied_size"), self._shared.meta.get("copied_at_ms")
        if isinstance(size, int) and isinstance(at_ms, int) and 0 <= at_ms <= _END_OF_CALENDAR_MS:
            return Copied(size=size, at_ms=at_ms)
        raise Tampered(f"{self.location}: meta does not say when this copy was made, and of what", code="corrupt")

    @property
    def move(self) -> Move:
        """What the store said of a move of its ledger when this process opened it first."""
        return move_of(self._shared.meta, self.location)

    def read_move(self) -> Move:
        """Return what the store says of a move now. Tampered("store_replaced") where another file is in its place."""
        shared = self._open()
        if identity_of(shared.place.location) != shared.place.identity:
            raise replaced(shared.place.location)
        return move_of(shared.reader.meta(), self.location)

    def transact_moving(self, op_id: bytes, fn: Callable[[SqliteTx], T]) -> T:
        """Run one transaction of the move itself, which alone may write while the store moves."""
        return self._to_write().writer().transact_with(op_id, fn, moving=True)

    @property
    def created_here(self) -> bool:
        """Whether it was this process that created the store, since it opened it first."""
        return self._shared.created_here

    def transact(self, op_id: bytes, fn: Callable[[Tx], T], *, sync: bool = True, first: Sequence[Question] = ()) -> T:
        """See ports.Store.transact."""
        return self._to_write().writer().transact(op_id, fn, sync=sync)

    def reader(self) -> Reader:
        """See ports.Store.reader."""
        return self._open().reader

    def scrub(self) -> bool:
        """See ports.Store.scrub."""
        return self._to_write().writer().scrub()

    def compact(self) -> bool:
        """Give free pages back to the file system. See SqliteWriter.compact."""
        return self._to_write().writer().compact()

    def journal(self) -> tuple[str, int]:
        """Return what makes commits durable, as SQLite says it now. See SqliteWriter.journal."""
        return self._to_write().writer().journal()

    def lock_run(self, run_id: str) -> RunLock | None:
        """See ports.Store.lock_run. A read-only store may ask too: it writes nothing but the lock file."""
        return self._open().sidecar().lock_run(run_id)

    def is_run_live(self, run_id: str) -> bool:
        """See ports.Store.is_run_live. A read-only store may ask too."""
        return self._open().sidecar().is_run_live(run_id)

    def live_runs(self, run_ids: Sequence[str]) -> frozenset[str]:
        """See ports.Store.live_runs."""
        return self._open().sidecar().live_runs(run_ids)

    def on_submitted(self, tell: Callable[[], None]) -> Callable[[], None]:
        """See ports.Store.on_submitted. Nobody tells of a file: it calls nothing."""
        self._open()
        return lambda: None

    def grant_authority(self) -> bool:
        """Let this store hold effects, with a leaf that says so; False when it already could.

        Refused("network_filesystem") where locks do not keep machines apart. NotAdmitted("is_copy") for a copy: that
        it is not an older one beside a newer original, only people can know.
        """
        if self.is_copy:
            raise _not_admitted(self.location)
        check_filesystem(self.location, authority=True)

        def grant(tx: SqliteTx) -> bool:
            if tx.meta("authority"):
                return False
            tx.set_meta("authority", 1)
            tx.add_change(Change(type="store", id=self.log_id, old="runs_only", new="authority", generation=0))
            return True

        granted = self._to_write().writer().transact_with(self._shared.place.entropy.uuid7(), grant)
        self._authority = True
        return granted

    def query(self, sql: str) -> Rows:
        """Run people's own SQL on a store opened with readonly=True. See SqliteReader.query."""
        if not self._readonly:
            raise Misuse("queries need a store opened with readonly=True", code="not_readonly")
        return self._open().guarded.query(sql)

    def stats(self) -> StoreStats:
        """Return sizes and counts for `arl doctor`, without reading the records or the log."""
        return stats_of(self._open().reader, self.location)

    def sizes(self) -> list[TableSize]:
        """Return the bytes of every table and index, the largest first. It reads the whole file."""
        return sizes_of(self._open().reader)

    def migrations(self) -> list[Migration]:
        """Return the migrations that made this file what it is, in order."""
        return migrations_of(self._open().reader)

    @property
    def upgraded_from(self) -> int | None:
        """The schema version before this process upgraded the file; None where there was nothing to do."""
        found = self._shared.found_version
        return None if found in (None, SCHEMA_VERSION) else found

    def backup(
        self,
        destination: str | os.PathLike[str],
        *,
        progress: Callable[[int, int], None] | None = None,
        check: Callable[[Reader], None] | None = None,
    ) -> BackupReport:
        """Write a copy of this store, as it is at one moment, into the new file `destination`, and say what it holds.

        Other threads and processes write on meanwhile (with durability "extra" they wait) and never make it begin
        anew; a fork of this process does. The file comes to be with mode 0600, synced and whole, or not at all: until
        then it is `destination.partial-…`, which only a killed process leaves behind. It is marked: it is a copy, has
        no authority, and its log goes its own way from where the source's was. A read-only store can be copied too.

        `progress` is told (pages done, pages), between two steps of 1 MiB. `check` may read the copy before it gets
        its name; what it raises, it is refused for. Memory: 8 MiB, whatever the size of the store.

        Refused: destination_exists, also where only a -wal or -lock of that name is, and side_file.
        Unavailable: cannot_open, read_only, disk_full, store_busy, interrupted. Uncertain: name_not_synced, when the
        copy is whole. Tampered: corrupt. Misuse: bad_path, store_closed, nested_backup.
        """
        return self._open().backup.run(locate_new(destination), progress=progress, check=check)

    def close(self) -> None:
        """See ports.Store.close. In a forked child it does nothing: the store is the parent's."""
        if not self._closed and self._shared.pid == os.getpid():
            failure = registry.release(self._shared)
            self._closed = True
            if failure is not None:
                raise failure
        self._closed = True

    def _open(self) -> SharedStore:
        if self._shared.pid != os.getpid():
            raise forked(self.location)
        if self._closed:
            raise Misuse(f"{self.location} was used after it was closed", code="store_closed")
        return self._shared

    def _to_write(self) -> SharedStore:
        if self._readonly:
            raise Misuse(f"{self.location} was opened with readonly=True", code="readonly_store")
        return self._open()
