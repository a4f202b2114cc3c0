"""What the store says of a failure of SQLite or of the operating system, and of a row that it cannot believe."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable

import apsw
import pytest

from agent_run_ledger.errors import LedgerError, Misuse, Refused, Tampered, Unavailable
from agent_run_ledger.store.naming import unopenable
from agent_run_ledger.store.rows import in_flight_from, run_from, run_in_flight_from, standing_from
from agent_run_ledger.store.sqlite_driver import Row
from agent_run_ledger.store.sqlite_failures import translated

PLACE = "/srv/runs.db"


@pytest.mark.parametrize(
    ("number", "kind", "code"),
    [
        (apsw.SQLITE_BUSY, Unavailable, "store_busy"),
        (apsw.SQLITE_LOCKED, Unavailable, "store_busy"),
        (apsw.SQLITE_PROTOCOL, Unavailable, "store_busy"),
        (apsw.SQLITE_FULL, Unavailable, "disk_full"),
        (apsw.SQLITE_NOTADB, Tampered, "corrupt"),
        (apsw.SQLITE_CORRUPT, Tampered, "corrupt"),
        (apsw.SQLITE_IOERR_SHORT_READ, Tampered, "corrupt"),
        (apsw.SQLITE_IOERR_CORRUPTFS, Tampered, "corrupt"),
        (apsw.SQLITE_ERROR, Tampered, "schema_changed"),
        (apsw.SQLITE_SCHEMA, Tampered, "schema_changed"),
        (apsw.SQLITE_MISMATCH, Tampered, "schema_changed"),
        (apsw.SQLITE_READONLY, Unavailable, "read_only"),
        (apsw.SQLITE_READONLY_DBMOVED, Tampered, "store_replaced"),
        (apsw.SQLITE_PERM, Unavailable, "read_only"),
        (apsw.SQLITE_CANTOPEN, Unavailable, "cannot_open"),
        (apsw.SQLITE_INTERRUPT, Unavailable, "interrupted"),
        (apsw.SQLITE_TOOBIG, Refused, "too_big"),
        (apsw.SQLITE_AUTH, Refused, "not_a_read"),
        (apsw.SQLITE_CONSTRAINT, Misuse, "constraint"),
        (apsw.SQLITE_MISUSE, Misuse, "store_closed"),
        (apsw.SQLITE_IOERR, Unavailable, "store_failed"),
        (apsw.SQLITE_IOERR_FSYNC, Unavailable, "store_failed"),
        (apsw.SQLITE_NOMEM, Unavailable, "store_failed"),
    ],
)
def test_each_failure_of_the_driver_has_its_word(number: int, kind: type[LedgerError], code: str) -> None:
    said = translated(apsw.exception_for(number), PLACE)
    assert (type(said), said.code) == (kind, code)
    assert PLACE in str(said)


@pytest.mark.parametrize(
    ("number", "code"),
    [
        (errno.EACCES, "read_only"),
        (errno.EPERM, "read_only"),
        (errno.EROFS, "read_only"),
        (errno.ENOSPC, "disk_full"),
        (errno.EDQUOT, "disk_full"),
        (errno.ENOENT, "cannot_open"),
        (errno.EISDIR, "cannot_open"),
    ],
)
def test_each_failure_of_the_operating_system_has_its_word(number: int, code: str) -> None:
    said = unopenable(PLACE, OSError(number, os.strerror(number)))
    assert (type(said), said.code) == (Unavailable, code)
    assert ("directory" in said.hint) is (number == errno.ENOENT)


RUN: Row = (1, b"u" * 16, "r", "running", "", 1, 1, 5, 5, "here", None, 7, 7, None, None, None)
MARK: Row = (1 << 16, "step", b"", bytes(32), 0, 1, 1, 1, 5, 1, 0, b"")


@pytest.mark.parametrize(
    ("build", "row"),
    [
        (run_from, RUN),
        (standing_from, (1, "running", "", b"u" * 16)),
        (run_in_flight_from, ("r", "running", 5)),
        (in_flight_from, MARK),
    ],
    ids=["run", "standing", "run_in_flight", "mark"],
)
def test_a_column_of_another_type_is_tampering(build: Callable[[Row], object], row: Row) -> None:
    """SQLite keeps any type in any column: one flipped bit makes a number a text."""
    assert build(row)
    for at in range(len(row)):
        with pytest.raises(Tampered) as caught:
            build((*row[:at], 0.5, *row[at + 1 :]))
        assert caught.value.code == "corrupt"
