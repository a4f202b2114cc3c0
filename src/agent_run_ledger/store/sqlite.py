"""The one opener: nothing else in this library opens the file of a store."""

from __future__ import annotations

import os
import stat
import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import StrEnum
from urllib.parse import quote

import apsw

from agent_run_ledger.errors import Refused, Tampered, Unavailable
from agent_run_ledger.ports import Entropy
from agent_run_ledger.store.naming import make_lasting, unopenable
from agent_run_ledger.store.sidecar import FILE_MODE
from agent_run_ledger.store.sqlite_driver import Connection, connect
from agent_run_ledger.store.sqlite_failures import is_half_done, replaced, translated
from agent_run_ledger.store.sqlite_migrations import QUERIES_FILE, SCHEMA_VERSION, apply_migrations, check_schema
from agent_run_ledger.store.statements import statements

APPLICATION_ID = 0x61726C31

WRITER_CACHE_KIB = 16_000
READER_CACHE_KIB = 4_000
CHECKPOINT_PAGES = 1_000
JOURNAL_BYTES = 8 << 20

_NEVER_COMPLETED = "it is empty, no store was ever completed in it"

Identity = tuple[int, int]
"""Device and inode: what a file is, under whatever name."""


class Durability(StrEnum):
    """What an acknowledged commit survives: both a power cut; `extra` without a WAL, for the lab."""

    FULL = "full"
    EXTRA = "extra"


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """One store file and how this process uses it."""

    location: str
    identity: Identity
    durability: Durability
    wait_s: float
    entropy: Entropy


def identify(location: str) -> Identity | None:
    """Return what lies at `location`, without opening it; None when nothing does.

    Refused for anything but a file, and for a file with two names: each name would have a -wal file of its own.
    """
    found = _look_at(location)
    if found is None:
        return None
    if not stat.S_ISREG(found.st_mode):
        raise _foreign(location, "it is not a regular file")
    if found.st_nlink > 1:
        raise Refused(
            f"{location} has {found.st_nlink} names (hard links): commits made under one are missing under the others",
            code="hard_linked",
            hint="remove the other names; to keep a second file, copy this one while nobody has it open",
        )
    return found.st_dev, found.st_ino


def identity_of(path: str) -> Identity | None:
    """Return what lies at a path, whatever it is; None when nothing does. Unavailable where nobody can say."""
    found = _look_at(path)
    return None if found is None else (found.st_dev, found.st_ino)


def no_store(location: str) -> Refused:
    """Return what to raise where nothing lies at a place."""
    return Refused(f"there is no store at {location}", code="no_store", hint="`arl init` makes one; or check the path")


def check_nothing_left(location: str) -> None:
    """Refused where a store was taken away and its last commits were not: SQLite would delete them with a new file."""
    for path in (f"{location}-wal", f"{location}-journal"):
        found = _look_at(path)
        if found is not None and found.st_size:
            raise Refused(
                f"there is no store at {location}, but {path} holds commits of one that was there",
                code="commits_left",
                hint=f"bring the store back to this name; to begin anew without it, delete {path}",
            )


def _look_at(path: str) -> os.stat_result | None:
    try:
        return os.stat(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise Unavailable(f"{path} cannot be looked at: {error.strerror}", code="cannot_open") from error


def remove_if_unfilled(location: str, identity: Identity) -> None:
    """Delete the file that was made at `location` and not filled; whatever else lies there stays."""
    found = _look_at(location)
    if found is not None and (found.st_dev, found.st_ino) == identity and not found.st_size:
        os.unlink(location)


def create_file(location: str) -> bool:
    """Make an empty file, mode 0600 under every umask, and return True; False where there is one already.

    Its name is durable before a journal is made beside it: a journal alone would be taken for a lost store's commits.
    Unavailable where that is impossible.
    """
    try:
        fd = os.open(location, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE)
        os.fchmod(fd, FILE_MODE)
        os.close(fd)  # nothing in this process can hold a POSIX lock on a file that did not exist
        sync_name(location)
    except FileExistsError:
        return False
    except OSError as error:
        raise unopenable(location, error) from error
    return True


def sync_name(location: str) -> None:
    """Make the name of a file durable, where its file system can sync a directory at all."""
    with suppress(OSError):
        make_lasting(os.path.dirname(location))


def connect_writer(place: Place, *, create: bool) -> Connection:
    """Open for writing and check what the file is; an empty one is let through only with `create`."""
    connection = _open(place, apsw.SQLITE_OPEN_READWRITE)
    with _closed_on_failure(connection, place.location):
        if not _is_empty(connection):
            _recognise(connection, place.location)
        elif not create or os.stat(place.location).st_size:  # SQLite takes a file of one byte for empty
            raise _foreign(place.location, _NEVER_COMPLETED)
    return connection


def make_ready(connection: Connection, place: Place, fill: Callable[[Connection], None], now_ms: int) -> int:
    """Create the schema where the file is empty, set and check the pragmas, and bring an older schema up to date.

    Returns the schema version that was found, the newest for a file that was empty. Closes the connection on failure.
    `fill` writes the first rows in the same transaction. Call it behind the turnstile: two processes may be here.
    """
    with _closed_on_failure(connection, place.location):
        if _is_empty(connection):
            _create_schema(connection, fill, now_ms)
        version = _recognise(connection, place.location)
        _set_pragmas(connection, place)
        return _upgrade(connection, place, now_ms) if version < SCHEMA_VERSION else version


def connect_reader(place: Place, *, guarded: bool = False, alone: bool = False) -> Connection:
    """Open for reading only. `guarded` (for people's own SQL) makes every statement that is not a read fail.

    `alone`: nobody else knows the file, so it is read without locks and without a file beside it.
    """
    connection = _connect_immutable(place) if alone else _open(place, apsw.SQLITE_OPEN_READONLY)
    with _closed_on_failure(connection, place.location):
        if _is_empty(connection):
            raise _foreign(place.location, _NEVER_COMPLETED)
        version = _recognise(connection, place.location)
        if version < SCHEMA_VERSION:
            raise Refused(
                f"{place.location} has schema version {version}, and to read it needs version {SCHEMA_VERSION}",
                code="schema_older",
                hint="`arl upgrade` brings it there, as does the next run",
            )
        connection.pragma("query_only", True)
        connection.pragma("cache_size", -READER_CACHE_KIB)
        connection.pragma("trusted_schema", False)
        if guarded:
            connection.set_authorizer(_reads_only)
    return connection


def look_inside(place: Place) -> Durability:
    """Return the durability that a store was written with, which may be of an older schema."""
    connection = _open(place, apsw.SQLITE_OPEN_READONLY)
    with _closed_on_failure(connection, place.location):
        if _is_empty(connection):
            raise _foreign(place.location, _NEVER_COMPLETED)
        _recognise(connection, place.location)
        durability = Durability.FULL if connection.pragma("journal_mode") == "wal" else Durability.EXTRA
    close_reader(connection)
    return durability


def close_reader(connection: Connection) -> None:
    """Close a connection that read, without a checkpoint: the -wal file may no longer be the one that others see."""
    connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
    connection.close(force=True)


@contextmanager
def _closed_on_failure(connection: Connection, location: str) -> Generator[None, None, None]:
    try:
        yield
    except BaseException as error:
        connection.close(force=True)
        if isinstance(error, apsw.Error):
            raise translated(error, location) from error
        if isinstance(error, OSError):
            raise unopenable(location, error) from error
        if isinstance(error, UnicodeDecodeError):
            raise Tampered(f"{location}: a name is no text: {error}", code="corrupt") from error
        raise


def _open(place: Place, flags: int) -> Connection:
    location, readonly = place.location, flags == apsw.SQLITE_OPEN_READONLY
    try:
        connection = _connected(place, flags)
    except (apsw.CantOpenError, apsw.ReadOnlyError) as error:
        if identity_of(location) != place.identity:
            raise replaced(location) from error
        if not os.access(location, os.R_OK):
            raise Unavailable(f"{location} may not be read by this user", code="cannot_open") from error
        if os.access(os.path.dirname(location), os.W_OK):
            raise translated(error, location) from error
        if not readonly or os.path.exists(location + "-wal"):
            raise Unavailable(f"the directory of {location} cannot be written", code="read_only") from error
        # Even to be read a WAL store needs a -shm file. Where nobody can make one, nobody writes either.
        connection = _connect_immutable(place)
    except apsw.Error as error:
        raise translated(error, location) from error
    with _closed_on_failure(connection, location):
        if identity_of(location) != place.identity:
            raise replaced(location)
        if not readonly and connection.readonly("main"):
            raise Unavailable(f"{location} is write-protected", code="read_only", hint="open it with readonly=True")
    return connection


def roll_back(place: Place) -> None:
    """Undo what a dead process left half done in a rollback journal, as the next writer would; a reader may not.

    Unavailable("read_only") for who may not write there. Tampered("store_replaced") for another file.
    """
    if identity_of(place.location) != place.identity:
        raise replaced(place.location)
    try:
        connection = _touched(connect(place.location, apsw.SQLITE_OPEN_READWRITE), place)
    except apsw.Error as error:
        raise translated(error, place.location) from error
    with _closed_on_failure(connection, place.location):
        connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        connection.close(force=True)


def _connected(place: Place, flags: int) -> Connection:
    try:
        return _touched(connect(place.location, flags), place)
    except apsw.ReadOnlyError as error:
        if not is_half_done(error):
            raise
    roll_back(place)
    return _touched(connect(place.location, flags), place)


def _touched(connection: Connection, place: Place) -> Connection:
    """Return the connection after its first read: only then SQLite opens, recovers and believes the file."""
    try:
        connection.set_busy_handler(busy_handler(place))
        connection.pragma("page_count")
    except BaseException:
        connection.close(force=True)
        raise
    return connection


def _connect_immutable(place: Place) -> Connection:
    uri = f"file:{quote(place.location)}?immutable=1"
    try:
        return _touched(connect(uri, apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI), place)
    except apsw.Error as error:
        raise translated(error, place.location) from error


def busy_handler(place: Place) -> Callable[[int], bool]:
    """Wait 0.2-2 ms at a time: SQLite's own back-off lets one of eight processes wait for seconds."""
    started_s = 0.0

    def wait(calls_before: int) -> bool:
        nonlocal started_s
        now_s = time.monotonic()
        if calls_before == 0:
            started_s = now_s
        elif now_s - started_s >= place.wait_s:
            return False
        time.sleep(0.0002 + 0.0018 * place.entropy.fraction())
        return True

    return wait


def _is_empty(connection: Connection) -> bool:
    return bool(connection.pragma("page_count") == 0)


def _create_schema(connection: Connection, fill: Callable[[Connection], None], now_ms: int) -> None:
    """Create everything in one transaction, still with a rollback journal: a file is empty or complete."""
    q = statements(QUERIES_FILE)
    connection.pragma("synchronous", "EXTRA")
    connection.execute(q["begin"])
    try:
        if not connection.execute(q["select_schema"]).fetchall():  # else another process was first
            apply_migrations(connection, version=0, now_ms=now_ms)
            fill(connection)
            connection.execute(q["commit"])
    finally:
        if connection.in_transaction:
            connection.execute(q["rollback"])


def _recognise(connection: Connection, location: str) -> int:
    """Return the schema version; refuse a file that is not a store of ours, or whose tables are not its version's.

    All of it is of one moment, as another process may bring the file forward meanwhile.
    """
    if connection.in_transaction:
        return _known_version(connection, location)
    q = statements(QUERIES_FILE)
    connection.execute(q["begin_read"])
    try:
        return _known_version(connection, location)
    finally:
        if connection.in_transaction:
            connection.execute(q["rollback"])


def _known_version(connection: Connection, location: str) -> int:
    if connection.pragma("application_id") != APPLICATION_ID:
        raise _foreign(location, "it is a database of another program")
    version: int = connection.pragma("user_version")
    if version > SCHEMA_VERSION:
        raise Refused(
            f"{location} has schema version {version}, this program knows up to {SCHEMA_VERSION}",
            code="schema_newer",
            hint="use the newer agent-run-ledger that wrote it",
        )
    if version < 1:
        raise Tampered(f"{location} has schema version {version}, which never existed", code="corrupt")
    check_schema(connection, location, version)
    return version


def _upgrade(connection: Connection, place: Place, now_ms: int) -> int:
    """Bring an older store to the newest version in one synced transaction, or leave it so; return what it was."""
    q = statements(QUERIES_FILE)
    connection.execute(q["begin"])
    try:
        version = _recognise(connection, place.location)  # again: another process may have been first
        apply_migrations(connection, version=version, now_ms=now_ms)
        connection.execute(q["commit"])
    finally:
        if connection.in_transaction:
            connection.execute(q["rollback"])
    return version


def _set_pragmas(connection: Connection, place: Place) -> None:
    journal, level = ("wal", 2) if place.durability is Durability.FULL else ("delete", 3)
    wanted: dict[str, int | str] = {
        "journal_mode": journal,
        "synchronous": level,
        "cache_size": -WRITER_CACHE_KIB,
        "journal_size_limit": JOURNAL_BYTES,
        "foreign_keys": 1,
        "trusted_schema": 0,
        "secure_delete": 1,  # what is erased is overwritten, not only freed
    }
    if sys.platform == "darwin":
        wanted |= {"fullfsync": 1, "checkpoint_fullfsync": 1}
    for name, value in wanted.items():
        connection.pragma(name, value)
        if connection.pragma(name) != value:
            raise Unavailable(
                f"{place.location}: PRAGMA {name} stayed {connection.pragma(name)} instead of {value}",
                code="cannot_open",
                hint="this file system may not be able to hold a store",
            )
    connection.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 1)
    # Else SQLite prepares many a statement anew, 20-40 µs, each time that another value is bound.
    connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
    connection.wal_autocheckpoint(CHECKPOINT_PAGES)


def _foreign(location: str, why: str) -> Refused:
    return Refused(
        f"{location} is not an agent-run-ledger store: {why}", code="foreign_file", hint="choose another path"
    )


_READS = frozenset((apsw.SQLITE_SELECT, apsw.SQLITE_READ, apsw.SQLITE_FUNCTION, apsw.SQLITE_RECURSIVE))


def _reads_only(operation: int, *_: str | None) -> int:
    return apsw.SQLITE_OK if operation in _READS else apsw.SQLITE_DENY
