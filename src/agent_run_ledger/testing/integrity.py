"""What SQLite itself says of a ledger's file, asked through the one opener."""

from __future__ import annotations

import os
from typing import Any, cast

import apsw

from agent_run_ledger.entropy import SystemEntropy
from agent_run_ledger.errors import Refused, Tampered
from agent_run_ledger.store.sqlite import Durability, Place, connect_writer, identify
from agent_run_ledger.store.sqlite_failures import translated

_WAIT_S = 10.0


def integrity_problems(path: str | os.PathLike[str]) -> list[str]:
    """Return what PRAGMA integrity_check and foreign_key_check find: nothing for an intact file.

    Raises what opening raises.

    Like every opening it rolls back what a dead process left half done. Refused for a file that is no ledger.
    """
    location = os.path.realpath(path)
    identity = identify(location)
    if identity is None:
        raise Tampered(f"there is no file {location}", code="store_missing")
    place = Place(
        location=location, identity=identity, durability=Durability.FULL, wait_s=_WAIT_S, entropy=SystemEntropy()
    )
    connection = connect_writer(place, create=False)
    try:
        said: Any = connection.pragma("integrity_check")
        lost: Any = connection.pragma("foreign_key_check")
    except apsw.Error as error:
        raise translated(error, location) from error
    finally:
        connection.close(force=True)
    lines = cast("list[object]", said if isinstance(said, list) else [said])
    rows = cast("list[tuple[object, ...]]", lost if isinstance(lost, list) else [] if lost is None else [lost])
    found = [] if lines == ["ok"] else [str(line) for line in lines]
    return found + [
        f"row {row} of {table} refers to a row of {parent} that is not there" for table, row, parent, _ in rows
    ]


def is_store(path: str | os.PathLike[str]) -> bool:
    """Return whether a ledger was ever completely created at `path`. Raises what opening an intact file can raise."""
    if identify(os.fspath(path)) is None:
        return False
    try:
        integrity_problems(path)
    except Refused:
        return False
    return True
