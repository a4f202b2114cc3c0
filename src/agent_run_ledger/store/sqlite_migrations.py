"""The migrations of the SQLite schema: their texts and digests, and the tables that each version consists of."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import cache
from types import MappingProxyType

import apsw

from agent_run_ledger.errors import Tampered
from agent_run_ledger.store.sqlite_driver import Connection, connect
from agent_run_ledger.store.statements import sql_text, statements

QUERIES_FILE = "sqlite_queries.sql"
EFFECTS_FILE = "sqlite_effects.sql"
SCHEMA_VERSION = 4
FIRST_WITH_HASHES = 2
"""The first version whose files say by which migrations they came to be."""


def migration_sha256(version: int) -> bytes:
    """Return the digest of the text that leads from the version before to `version`."""
    return hashlib.sha256(sql_text(_file(version)).encode()).digest()


def apply_migrations(connection: Connection, *, version: int, now_ms: int) -> None:
    """Bring tables of `version` (0: none) to the newest one, and note how. The transaction is the caller's."""
    q = statements(QUERIES_FILE)
    for following in range(version + 1, SCHEMA_VERSION + 1):
        connection.execute(sql_text(_file(following)))
    for applied in range(1, SCHEMA_VERSION + 1):
        if applied > version or version < FIRST_WITH_HASHES:
            connection.execute(q["insert_migration"], (applied, migration_sha256(applied), now_ms))
    connection.execute(q["create_as"])


def check_schema(connection: Connection, location: str, version: int) -> None:
    """Raise Tampered("schema_changed") unless tables, indexes, triggers and migrations are letter by letter ours."""
    q = statements(QUERIES_FILE)
    found = {name: text for _, name, text in connection.execute(q["select_schema"]).fetchall()}
    expected = expected_schema(version)
    for name in sorted(expected.keys() | found.keys(), key=repr):  # a damaged name may be no text
        if expected.get(name) != found.get(name):
            raise _changed(location, f"{name} is not as version {version} of the schema has it")
    if version >= FIRST_WITH_HASHES:
        noted: dict[int, bytes] = dict(connection.execute(q["select_migrations"]).fetchall())
        if noted != {applied: migration_sha256(applied) for applied in range(1, version + 1)}:
            raise _changed(location, f"it did not come to version {version} by the migrations of this program")


@cache
def expected_schema(version: int) -> Mapping[str, str]:
    """Return the text of every table, index and trigger of a version, by name."""
    connection = connect(":memory:", apsw.SQLITE_OPEN_READWRITE)
    for applied in range(1, version + 1):
        connection.execute(sql_text(_file(applied)))
    rows = connection.execute(statements(QUERIES_FILE)["select_schema"]).fetchall()
    connection.close()
    return MappingProxyType({str(name): str(text) for _, name, text in rows})


def _file(version: int) -> str:
    return f"sqlite_{version:04}.sql"


def _changed(location: str, what: str) -> Tampered:
    return Tampered(f"{location}: {what}", code="schema_changed", hint="restore it from a backup")
