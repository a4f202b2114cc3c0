"""Both engines have the same statements, tables and columns, and PostgreSQL makes what its texts say."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

import agent_run_ledger.store
from agent_run_ledger.store import sqlite_migrations
from agent_run_ledger.store.postgres import EFFECTS_FILE, QUERIES_FILE, connect, place_of
from agent_run_ledger.store.postgres_driver import Connection
from agent_run_ledger.store.postgres_schema import SCHEMA_VERSION, catalog_of, expected_catalog
from agent_run_ledger.store.statements import sql_text, statements
from tests.contract.store_kit import ENTROPY, postgres_backend
from tests.services.postgres import Cluster

SQLITE_ONLY = {
    "compact", "count_in_flight", "count_indexed", "count_kinds", "create_as", "empty_wal",
    "select_move", "select_oldest_kept", "select_records_between", "select_sizes", "sync_full", "sync_normal",
    "touch",
}  # fmt: skip
"""What only a file needs, and what PostgreSQL asks otherwise."""

POSTGRES_ONLY = {
    "lock_head", "select_clock", "sync_later", "select_some_records", "select_some_between", "select_session",
    "select_known", "lock_making", "announce_run", "listen", "end_stalled", "try_lock_run", "unlock_run",
    "select_runs_locked", "vacuum_erased",
}  # fmt: skip
"""What only a server needs, and the chunks that SQLite counts row by row."""

OWN_SHAPE = {"select_schema"}
"""What both ask of their own catalog."""

FILES = {
    "runs": (sqlite_migrations.QUERIES_FILE, QUERIES_FILE),
    "effects": (sqlite_migrations.EFFECTS_FILE, EFFECTS_FILE),
}


@pytest.fixture
def connection(postgres: Cluster) -> Iterator[Connection]:
    """A connection to a new store."""
    with postgres_backend(postgres) as backend:
        opened = connect(backend.open()._shared.place)  # type: ignore[arg-type]
        yield opened
        opened.close()


def _lines(kind: str) -> set[str]:
    return {line.split(" ")[1] for line in expected_catalog() if line.startswith(f"{kind} ")}


def _sqlite(sql: str) -> set[str]:
    file = apsw.Connection(":memory:")
    file.execute(sql_text("sqlite_schema.sql"))
    return {str(row[0]) for row in file.execute(sql)}


@pytest.mark.parametrize("half", FILES)
def test_both_engines_have_the_same_statements(half: str) -> None:
    sqlite, postgres = (statements(name) for name in FILES[half])
    only_sqlite = SQLITE_ONLY if half == "runs" else set()
    only_postgres = POSTGRES_ONLY if half == "runs" else set()
    assert set(sqlite) - set(postgres) == only_sqlite
    assert set(postgres) - set(sqlite) == only_postgres


def test_every_statement_of_postgresql_is_used() -> None:
    folder = Path(agent_run_ledger.store.__file__).parent
    sources = [path.read_text() for path in folder.glob("*.py") if not path.stem.startswith("sqlite")]
    used = {name for text in sources for name in re.findall(r'["\']([a-z_]+)["\']', text)}
    assert set(statements(QUERIES_FILE, EFFECTS_FILE)) <= used


@pytest.mark.parametrize("half", FILES)
def test_a_statement_takes_as_many_values_on_both_engines(half: str) -> None:
    sqlite, postgres = (statements(name) for name in FILES[half])
    differing = {
        name
        for name in set(sqlite) & set(postgres) - OWN_SHAPE
        if sqlite[name].count("?") != postgres[name].count("%s")
    }
    assert differing == set()


@pytest.mark.parametrize("half", FILES)
def test_a_conditional_statement_asks_what_its_twin_asks(half: str) -> None:
    """What changes rows is the same text on both, but for what SQL has in two ways."""
    sqlite, postgres = (statements(name) for name in FILES[half])
    for name in set(sqlite) & set(postgres):
        if sqlite[name].startswith("UPDATE") and name != "update_meta":
            twin = sqlite[name].replace("generation IS ?", "generation IS NOT DISTINCT FROM ?").replace("?", "%s")
            assert re.sub("x'([0-9a-f]*)'", r"'\1'", twin) == postgres[name], name


def test_both_engines_have_the_same_tables_and_columns() -> None:
    tables = _sqlite("SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'")
    assert _lines("table") == tables
    columns = (
        "SELECT m.name || '.' || c.name FROM sqlite_schema m JOIN pragma_table_info(m.name) c WHERE m.type = 'table'"
    )
    assert _lines("column") == _sqlite(columns)


def test_a_column_that_must_have_a_value_must_on_both() -> None:
    """SQLite's primary keys are NOT NULL without saying so."""
    wanted = (
        "SELECT m.name || '.' || c.name FROM sqlite_schema m JOIN pragma_table_info(m.name) c "
        "WHERE m.type = 'table' AND (c.\"notnull\" OR c.pk)"
    )
    filled = {line.split(" ")[1] for line in expected_catalog() if re.match(r"column .* not null( |$)", line)}
    assert filled == _sqlite(wanted)


def test_both_engines_have_the_same_indexes_and_triggers() -> None:
    indexes = _sqlite("SELECT name FROM sqlite_schema WHERE type = 'index' AND sql IS NOT NULL")
    assert {name for name in _lines("index") if not name.endswith(("_pkey", "_key"))} == indexes
    triggers = _sqlite("SELECT tbl_name || '.' || name FROM sqlite_schema WHERE type = 'trigger'")
    assert {name for name in _lines("trigger") if not name.endswith("_no_truncate")} == triggers


def test_what_may_not_be_deleted_may_not_be_truncated() -> None:
    kept = {name.removesuffix("_no_delete") for name in _lines("trigger") if name.endswith("_no_delete")}
    assert kept == {name.removesuffix("_no_truncate") for name in _lines("trigger") if name.endswith("_no_truncate")}


def test_the_versions_are_one() -> None:
    assert SCHEMA_VERSION == sqlite_migrations.SCHEMA_VERSION


def test_a_new_store_is_what_the_list_of_its_parts_says(connection: Connection) -> None:
    assert sorted(catalog_of(connection)) == sorted(expected_catalog())


def test_the_server_understands_every_statement(connection: Connection) -> None:
    for name, sql in statements(QUERIES_FILE, EFFECTS_FILE).items():
        if not re.sub(r"(?m)^--.*\n", "", sql).startswith(("BEGIN", "COMMIT", "ROLLBACK", "SET", "VACUUM", "LISTEN")):
            places = iter(range(1, 100))
            numbered = re.sub("%s", lambda _, places=places: f"${next(places)}", sql)
            connection.execute(f"PREPARE p_{name} AS {numbered}", prepare=False)


@pytest.mark.parametrize(
    ("name", "index"),
    [
        ("select_members", "actions_members"),
        ("select_row_ids_in_state", "actions_inbox"),
        ("select_action_records", "action_records_of"),
        ("select_result_keys", "records_result"),
        ("select_queued", "runs_queued"),
        ("select_waiting", "runs_waiting"),
        ("select_other_ids", "records_other"),
        ("select_usages", "records_usage"),
        ("select_forks", "runs_forked"),
        ("select_children", "runs_parent"),
        ("select_some_records", "records_pkey"),
        ("select_some_between", "records_pkey"),
        ("select_event_by_op", "events_op_id_key"),
    ],
)
def test_what_is_asked_often_is_found_by_an_index(connection: Connection, name: str, index: str) -> None:
    places = iter(range(1, 100))
    sql = re.sub("%s", lambda _: f"${next(places)}", statements(QUERIES_FILE, EFFECTS_FILE)[name])
    connection.execute("SET enable_seqscan = off; SET enable_bitmapscan = off", prepare=False)
    connection.execute("SET plan_cache_mode = force_generic_plan", prepare=False)
    connection.execute(f"PREPARE asked AS {sql}", prepare=False)
    nulls = ", ".join(["NULL"] * sql.count("$"))
    plan = connection.execute(f"EXPLAIN EXECUTE asked({nulls})", prepare=False).fetchall()
    assert index in "\n".join(str(row[0]) for row in plan)


def test_a_store_whose_schema_was_changed_is_refused_and_says_what_differs(postgres: Cluster) -> None:
    from agent_run_ledger.errors import Tampered

    with postgres_backend(postgres) as backend:
        for name, change, said in (
            ("a", "DROP INDEX records_other", "index records_other "),
            ("b", "ALTER TABLE events DISABLE TRIGGER events_no_update", "trigger events.events_no_update"),
            (
                "c",
                "ALTER TABLE runs ADD COLUMN extra TEXT",
                "column runs.extra text collate default is not as this program makes it",
            ),
            ("d", "ALTER TABLE head DROP CONSTRAINT head_id_check", "constraint head.head_id_check c "),
        ):
            backend.open(name).close()
            backend.edit(name, change)
            with pytest.raises(Tampered) as caught:
                backend.open(name, create=False)
            assert caught.value.code == "schema_changed"
            assert said in caught.value.message


def test_the_place_of_a_url_keeps_its_password_to_itself() -> None:
    place = place_of("postgresql://ann:s3cret@db.example:5433/runs?sslmode=require", wait_s=1, entropy=ENTROPY)
    assert place.location == "postgresql://ann@db.example:5433/runs"
    assert "s3cret" not in repr(place)
