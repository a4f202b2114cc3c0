"""The .sql files: names, completeness, and plans that use the indexes they name."""

from __future__ import annotations

import re
from pathlib import Path

import apsw
import pytest

import agent_run_ledger.store
from agent_run_ledger.store.sqlite_migrations import QUERIES_FILE
from agent_run_ledger.store.statements import sql_text, statements

FOLDER = Path(agent_run_ledger.store.__file__).parent


@pytest.fixture
def empty() -> apsw.Connection:
    connection = apsw.Connection(":memory:")
    connection.execute(sql_text("sqlite_schema.sql"))
    return connection


def _plan(connection: apsw.Connection, name: str) -> str:
    sql = statements(QUERIES_FILE)[name]
    rows = connection.execute("EXPLAIN QUERY PLAN " + sql, [1] * sql.count("?")).fetchall()
    return " / ".join(str(row[3]) for row in rows)


def test_every_statement_is_used_and_every_name_exists() -> None:
    sources = [path.read_text() for path in FOLDER.glob("*.py")]
    used = {name for text in sources for name in re.findall(r'["\']([a-z_]+)["\']', text)}
    named = set(statements(QUERIES_FILE))
    assert named <= used
    asked = {name for text in sources for name in re.findall(r'(?:\bq|_q)\["([a-z_]+)"', text)}
    assert asked <= named


def test_every_statement_is_understood_by_the_schema(empty: apsw.Connection) -> None:
    for name, sql in statements(QUERIES_FILE).items():
        if not sql.startswith(("BEGIN", "COMMIT", "ROLLBACK", "PRAGMA", "VACUUM")):
            assert _plan(empty, name) or sql.startswith("INSERT"), name


@pytest.mark.parametrize(
    ("name", "index"),
    [
        ("select_run", "INTEGER PRIMARY KEY"),
        ("select_standing", "INTEGER PRIMARY KEY"),
        ("select_run_row_ids", "INTEGER PRIMARY KEY"),
        ("select_run_by_id", "sqlite_autoindex_runs_2"),
        ("select_record", "INTEGER PRIMARY KEY"),
        ("select_records_between", "INTEGER PRIMARY KEY"),
        ("select_result_keys", "records_result"),
        ("select_result_ids", "records_result"),
        ("select_other_ids", "records_other"),
        ("select_result_names", "records_result"),
        ("count_results", "USING COVERING INDEX records_result"),
        ("select_keys", "INTEGER PRIMARY KEY"),
        ("select_kept", "INTEGER PRIMARY KEY"),
        ("select_erased_names", "records_result (run_row_id=? AND fingerprint<?)"),
        ("select_erasable_other", "records_other"),
        ("select_erasable_result", "records_result"),
        ("select_record_names", "INTEGER PRIMARY KEY"),
        ("erase_record", "INTEGER PRIMARY KEY"),
        ("select_usages", "records_usage"),
        ("select_forks", "runs_forked"),
        ("select_in_flight", "INTEGER PRIMARY KEY"),
        ("select_events", "INTEGER PRIMARY KEY"),
        ("select_tile_roots", "INTEGER PRIMARY KEY"),
        ("select_event_by_op", "sqlite_autoindex_events_1"),
        ("update_run", "INTEGER PRIMARY KEY"),
    ],
)
def test_no_statement_of_a_run_scans_a_table(empty: apsw.Connection, name: str, index: str) -> None:
    plan = _plan(empty, name)
    assert index in plan
    assert "SCAN" not in plan


def test_a_name_given_twice_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    import agent_run_ledger.store.statements as module

    monkeypatch.setattr(module, "sql_text", lambda name: "-- name: a\nSELECT 1;\n-- name: a\nSELECT 2;\n")
    with pytest.raises(ValueError, match="two statements"):
        statements.__wrapped__("x.sql")


def test_statements_are_cut_at_their_markers(monkeypatch: pytest.MonkeyPatch) -> None:
    import agent_run_ledger.store.statements as module

    text = "-- a comment\n\n-- name: a\nSELECT ';' -- why\nFROM t;\n\n-- name: b_2\nSELECT 2;\n"
    monkeypatch.setattr(module, "sql_text", lambda name: text)
    assert dict(statements.__wrapped__("x.sql")) == {"a": "SELECT ';' -- why\nFROM t", "b_2": "SELECT 2"}
