"""What an exception of the SQLite driver means for the caller, in the words of the error tree."""

from __future__ import annotations

import apsw

from agent_run_ledger.errors import LedgerError, Misuse, Refused, Tampered, Unavailable
from agent_run_ledger.store.sqlite_driver import extended_code

# Extended codes of SQLITE_IOERR that speak of wrong bytes, not of a failing device.
_WRONG_BYTES = frozenset((apsw.SQLITE_IOERR_SHORT_READ, apsw.SQLITE_IOERR_DATA, apsw.SQLITE_IOERR_CORRUPTFS))

_RULES: tuple[tuple[tuple[type[apsw.Error], ...], type[LedgerError], str, str, str], ...] = (
    (
        (apsw.BusyError, apsw.LockedError, apsw.ProtocolError),
        Unavailable,
        "store_busy",
        "{location} stayed locked by another program",
        "try again; `arl doctor` shows who has it open",
    ),
    (
        (apsw.FullError,),
        Unavailable,
        "disk_full",
        "there is no room left for {location}",
        "free some disk space and try again: nothing was lost",
    ),
    (
        (apsw.NotADBError, apsw.CorruptError, apsw.FormatError),
        Tampered,
        "corrupt",
        "{location} is not an intact store",
        "restore it from a backup",
    ),
    (
        (apsw.SQLError, apsw.SchemaChangeError, apsw.MismatchError),
        Tampered,
        "schema_changed",
        "{location} does not have the tables it was created with",
        "restore it from a backup",
    ),
    ((apsw.ReadOnlyError, apsw.PermissionsError), Unavailable, "read_only", "{location} cannot be written", ""),
    ((apsw.CantOpenError,), Unavailable, "cannot_open", "{location} cannot be opened", "does its directory exist?"),
    (
        (apsw.InterruptError, apsw.AbortError),
        Unavailable,
        "interrupted",
        "the statement on {location} was broken off",
        "",
    ),
    ((apsw.TooBigError, apsw.RangeError), Refused, "too_big", "a value is too big for {location}", ""),
    ((apsw.AuthError,), Refused, "not_a_read", "only reading is allowed on {location}", ""),
    ((apsw.ConstraintError,), Misuse, "constraint", "a row breaks a rule of the schema of {location}", ""),
    (
        (apsw.ConnectionClosedError, apsw.CursorClosedError, apsw.ThreadingViolationError, apsw.MisuseError),
        Misuse,
        "store_closed",
        "{location} was used after it was closed",
        "",
    ),
)


def replaced(location: str) -> Tampered:
    """Return what to raise when the file at `location` is no longer the one that was opened."""
    return Tampered(
        f"{location} was renamed, deleted or replaced while it was in use; nothing more is written",
        code="store_replaced",
        hint=f"bring the file back to this name before anything else: {location}-wal may hold its last commits",
    )


def is_half_done(error: apsw.Error) -> bool:
    """Whether a read found a commit that a dead process left half done, and may not roll it back itself."""
    return extended_code(error) == apsw.SQLITE_READONLY_ROLLBACK


def translated(error: apsw.Error, location: str) -> LedgerError:
    """Return the error to raise from `error`; `location` is the store's path. Nothing has been committed."""
    if isinstance(error, apsw.IOError) and extended_code(error) in _WRONG_BYTES:
        return Tampered(f"{location} is not an intact store: {error}", code="corrupt", hint="restore it from a backup")
    if extended_code(error) == apsw.SQLITE_READONLY_DBMOVED:  # without a WAL SQLite looks itself
        return replaced(location)
    if is_half_done(error):
        return Unavailable(
            f"a process died in the middle of a commit to {location}, and this one may not write there to undo it",
            code="read_only",
            hint="let a user who may write it open it once",
        )
    for kinds, answer, code, message, hint in _RULES:
        if isinstance(error, kinds):
            return answer(f"{message.format(location=location)}: {error}", code=code, hint=hint)
    return Unavailable(f"{location} could not be used: {error}", code="store_failed")
