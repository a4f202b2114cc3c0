"""Makes the tables of a PostgreSQL store, and recognises what it finds in a database."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Final, NamedTuple

from agent_run_ledger.errors import Refused, Tampered
from agent_run_ledger.store.leaves import LOG_ID_BYTES, first_leaf
from agent_run_ledger.store.postgres import QUERIES_FILE
from agent_run_ledger.store.postgres_driver import Connection
from agent_run_ledger.store.postgres_meta import META_KEYS, meta_from, text_of_meta
from agent_run_ledger.store.statements import sql_text, statements

SCHEMA_FILE: Final = "postgres_schema.sql"
"""The tables of FIRST_VERSION. `postgres_NNNN.sql` leads from the version before to NNNN."""

CATALOG_FILE: Final = "postgres_catalog.txt"
"""What the newest version consists of. `postgres_catalog_NNNN.txt` says it of an older one."""

SCHEMA_VERSION = 4
"""That of the SQLite schema whose tables these are."""

FIRST_VERSION: Final = 4
"""The first version that a PostgreSQL store can have."""


class Known(NamedTuple):
    """What lies in a database: whether a schema of our name, and in it the tables by which a store is known."""

    schema: bool
    meta: bool
    migrations: bool

    @property
    def store(self) -> bool:
        """Whether it may be a store."""
        return self.meta and self.migrations


def look(connection: Connection, location: str) -> Known:
    """Return what lies in the database. Refused("foreign_schema") for a schema of our name that is no store."""
    known = Known(*connection.execute(statements(QUERIES_FILE)["select_known"], prepare=False).fetchall()[0])
    if known.schema and not known.store:
        raise Refused(
            f"{location} has a schema agent_run_ledger that is no store",
            code="foreign_schema",
            hint="rename that schema, or use another database",
        )
    return known


def no_store(location: str) -> Refused:
    """Return what to raise where a database holds no store."""
    return Refused(
        f"there is no store at {location}", code="no_store", hint="`arl init` makes one; or check the database's name"
    )


def make(connection: Connection, location: str, *, now_ms: int, entropy: Callable[[], tuple[bytes, bytes]]) -> bool:
    """Make tables, first rows and leaf 0 in one transaction; False where another process was first.

    `entropy` gives the id of the log and the id of the operation. Refused: foreign_schema, no_permission.
    """
    q = statements(QUERIES_FILE)
    with connection.transaction():
        connection.execute(q["lock_making"], prepare=False)
        if look(connection, location).store:
            return False
        make_tables(connection, now_ms=now_ms)
        log_id, op_id = entropy()
        first: tuple[bytes | int, ...] = (log_id, now_ms, 0, 0)
        for key, value in zip(META_KEYS, first, strict=True):
            connection.execute(q["insert_meta"], (key, text_of_meta(value)))
        leaf = first_leaf(log_id=log_id, op_id=op_id, now_ms=now_ms)
        connection.execute(q["insert_head"], (now_ms,))
        connection.execute(q["insert_event"], (leaf.index, leaf.op_id, leaf.envelope))
        connection.execute(q["update_head"], (leaf.index + 1, leaf.frontier, now_ms))
    return True


def make_tables(connection: Connection, *, now_ms: int) -> None:
    """Make the tables of the newest version, and note how. The transaction is the caller's."""
    _migrate(connection, 0, now_ms=now_ms)


def upgrade(connection: Connection, location: str, *, now_ms: int) -> int | None:
    """Bring the tables to the newest version, in one transaction; return which one they had, None for this one.

    While it runs nobody writes. What the migrations lead to must be what this program makes anew. Errors as for
    `recognise`; after each of them the store is what it was.
    """
    q = statements(QUERIES_FILE)
    with connection.transaction():
        connection.execute(q["lock_making"], prepare=False)
        version = _version_of(connection, location)
        if version == SCHEMA_VERSION:
            return None
        connection.execute(q["lock_head"], prepare=False)
        _migrate(connection, version, now_ms=now_ms)
        _version_of(connection, location)
    return version


def _migrate(connection: Connection, version: int, *, now_ms: int) -> None:
    q = statements(QUERIES_FILE)
    for following in range(max(version + 1, FIRST_VERSION), SCHEMA_VERSION + 1):
        connection.execute(sql_text(_file(following)), prepare=False)
        connection.execute(q["insert_migration"], (following, migration_sha256(following), now_ms))


def recognise(connection: Connection, location: str) -> dict[str, bytes | int]:
    """Return what a store says of itself, after a look at its tables.

    Refused: no_store, foreign_schema, schema_newer, schema_older. Tampered: schema_changed, corrupt.
    """
    version, q = _version_of(connection, location), statements(QUERIES_FILE)
    if version < SCHEMA_VERSION:
        raise Refused(
            f"{location} has schema version {version}, this program needs {SCHEMA_VERSION}",
            code="schema_older",
            hint="stop the programs that use it, then `arl upgrade` brings it forward",
        )
    try:
        meta = meta_from(connection.execute(q["select_meta"]).fetchall())
        log_id, *numbers = (meta[key] for key in META_KEYS)
    except (ValueError, KeyError) as error:
        raise Tampered(f"{location}: meta is not as it was written: {error}", code="corrupt") from error
    if not isinstance(log_id, bytes) or len(log_id) != LOG_ID_BYTES or not all(isinstance(n, int) for n in numbers):
        raise Tampered(f"{location}: meta is not as it was written", code="corrupt")
    return meta


def _version_of(connection: Connection, location: str) -> int:
    """Return the version of the tables, of which each is as that version has it."""
    if not look(connection, location).store:
        raise no_store(location)
    q = statements(QUERIES_FILE)
    noted: dict[int, bytes] = dict(connection.execute(q["select_migrations"], binary=True).fetchall())
    version = max(noted, default=0)
    if version > SCHEMA_VERSION:
        raise Refused(
            f"{location} has schema version {version}, this program knows up to {SCHEMA_VERSION}",
            code="schema_newer",
            hint="use the newer agent-run-ledger that wrote it",
        )
    if not noted or noted != {known: migration_sha256(known) for known in range(FIRST_VERSION, version + 1)}:
        raise _changed(location, f"it did not come to version {version} by the migrations of this program")
    found = catalog_of(connection)
    for line in sorted(found ^ expected_catalog(version)):
        what = "is not as this program makes it" if line in found else "is missing"
        raise _changed(location, f"{line} {what}")
    return version


def catalog_of(connection: Connection) -> frozenset[str]:
    """Return a line for each table, column, index, constraint, trigger and function of a store."""
    rows = connection.execute(statements(QUERIES_FILE)["select_schema"], prepare=False).fetchall()
    return frozenset(" ".join(" ".join(map(str, row)).split()) for row in rows)


def expected_catalog(version: int | None = None) -> frozenset[str]:
    """Return the lines that `catalog_of` gives for a store, of the newest version where none is named.

    A test makes one and compares.
    """
    newest = version is None or version == SCHEMA_VERSION
    return frozenset(sql_text(CATALOG_FILE if newest else f"postgres_catalog_{version:04}.txt").splitlines())


def migration_sha256(version: int) -> bytes:
    """Return the digest of the text that makes, or leads to, a version."""
    return hashlib.sha256(sql_text(_file(version)).encode()).digest()


def _file(version: int) -> str:
    return SCHEMA_FILE if version == FIRST_VERSION else f"postgres_{version:04}.sql"


def _changed(location: str, what: str) -> Tampered:
    return Tampered(f"{location}: {what}", code="schema_changed", hint="restore it from a backup")
