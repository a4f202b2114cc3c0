"""The .sql files: names, completeness, and plans that use the indexes they name."""

from __future__ import annotations

import re
from pathlib import Path

import apsw
import pytest

import agent_run_ledger.store
from agent_run_ledger.store.sqlite_migrations import EFFECTS_FILE, QUERIES_FILE
from agent_run_ledger.store.sqlite_move import MOVE_FILE
from agent_run_ledger.store.statements import sql_text, statements

FOLDER = Path(agent_run_ledger.store.__file__).parent


@pytest.fixture
def empty() -> apsw.Connection:
    connection = apsw.Connection(":memory:")
    connection.execute(sql_text("sqlite_schema.sql"))
    return connection


def _plan(connection: apsw.Connection, name: str) -> str:
    sql = {**statements(QUERIES_FILE), **statements(EFFECTS_FILE)}[name]
    rows = connection.execute("EXPLAIN QUERY PLAN " + sql, [1] * sql.count("?")).fetchall()
    return " / ".join(str(row[3]) for row in rows)


def test_every_statement_is_used_and_every_name_exists() -> None:
    sources = [path.read_text() for path in FOLDER.glob("*.py") if not path.stem.startswith("postgres")]
    used = {name for text in sources for name in re.findall(r'["\']([a-z_]+)["\']', text)}
    named = set(statements(QUERIES_FILE)) | set(statements(EFFECTS_FILE))
    assert named <= used
    asked = {name for text in sources for name in re.findall(r'(?:\bq|_q)\["([a-z_]+)"', text)}
    assert asked <= named | set(statements(MOVE_FILE))  # most names of a move are made of those of tables


def test_every_statement_is_understood_by_the_schema(empty: apsw.Connection) -> None:
    for name, sql in (*statements(QUERIES_FILE).items(), *statements(EFFECTS_FILE).items()):
        if not sql.startswith(("BEGIN", "COMMIT", "ROLLBACK", "PRAGMA", "VACUUM")):
            assert _plan(empty, name) or sql.startswith("INSERT"), name


@pytest.mark.parametrize(
    ("name", "index"),
    [
        ("select_members", "actions_members"),
        ("select_row_ids_in_state", "actions_inbox"),
        ("select_action_records", "action_records_of"),
        ("select_action_records_between", "INTEGER PRIMARY KEY"),
        ("select_corrections_between", "INTEGER PRIMARY KEY"),
        ("select_correction_of", "INTEGER PRIMARY KEY"),
        ("select_trust", "INTEGER PRIMARY KEY"),
        ("select_before_trust", "action_records_of"),
        ("select_trust_change_of", "INTEGER PRIMARY KEY"),
        ("select_trust_changes_between", "INTEGER PRIMARY KEY"),
        ("select_keys_after", "USING COVERING INDEX actions_members"),
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
        ("select_queued", "runs_queued (queue=? AND row_id>?)"),
        ("select_waiting", "runs_waiting (queue=? AND row_id>?)"),
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


RECORD = {
    "record_id": "1", "run_row_id": "1", "kind": "2", "scope": "x''", "name": "'n'", "fingerprint": "zeroblob(32)",
    "occurrence": "0", "attempt": "1", "tries": "1", "started_at_ms": "5", "ended_at_ms": "5", "inputs": "x''",
    "code": "x''", "value_sha256": "x''", "encoding": "0",
}  # fmt: skip
RUN = {
    "row_id": "1", "run_uid": "zeroblob(16)", "run_id": "'r'", "state": "'running'", "reason": "''", "generation": "1",
    "attempt": "1", "created_at_ms": "5", "updated_at_ms": "5", "holder": "''",
}  # fmt: skip
HEAD = {"id": "1", "size": "0", "frontier": "x''", "epoch": "0", "time_ms": "5"}
EVENT = {"leaf_index": "0", "op_id": "zeroblob(16)", "envelope": "x'00'"}
TILE = {"tile_id": "0", "root": "zeroblob(32)", "nodes": "zeroblob(8160)"}
MIGRATION = {"version": "1", "sha256": "zeroblob(32)", "applied_at_ms": "5"}


def _insert(connection: apsw.Connection, table: str, row: dict[str, str]) -> None:
    connection.execute(f"INSERT INTO {table} ({', '.join(row)}) VALUES ({', '.join(row.values())})")


@pytest.mark.parametrize(
    ("table", "sound", "column", "value"),
    [
        ("head", HEAD, "id", "2"),
        ("head", HEAD, "size", "-1"),
        ("head", HEAD, "frontier", "x'00'"),
        ("head", HEAD, "epoch", "-1"),
        ("events", EVENT, "op_id", "zeroblob(15)"),
        ("tiles", TILE, "root", "zeroblob(31)"),
        ("tiles", TILE, "nodes", "zeroblob(8159)"),
        ("runs", RUN, "run_uid", "zeroblob(15)"),
        ("runs", RUN, "state", "'dreaming'"),
        ("runs", RUN, "generation", "0"),
        ("runs", RUN, "attempt", "0"),
        ("records", RECORD, "kind", "0"),
        ("records", RECORD, "kind", "8"),
        ("migrations", MIGRATION, "sha256", "zeroblob(31)"),
    ],
)
def test_a_row_that_cannot_be_is_not_taken(
    empty: apsw.Connection, table: str, sound: dict[str, str], column: str, value: str
) -> None:
    with pytest.raises(apsw.ConstraintError, match="CHECK"):
        _insert(empty, table, {**sound, column: value})
    _insert(empty, table, sound)


@pytest.mark.parametrize(
    ("table", "sound", "change"),
    [
        ("events", EVENT, "UPDATE events SET envelope = x'01'"),
        ("events", EVENT, "DELETE FROM events"),
        ("tiles", TILE, "UPDATE tiles SET nodes = zeroblob(8160)"),
        ("tiles", TILE, "DELETE FROM tiles"),
        ("records", RECORD, "DELETE FROM records"),
        ("records", {**RECORD, "kind": "6"}, "UPDATE records SET fingerprint = x'01'"),
    ],
)
def test_history_is_kept_by_triggers(empty: apsw.Connection, table: str, sound: dict[str, str], change: str) -> None:
    _insert(empty, table, sound)
    with pytest.raises(apsw.ConstraintError, match=r"history|erased"):
        empty.execute(change)


@pytest.mark.parametrize("column", sorted(RECORD.keys() - {"fingerprint", "inputs", "code", "value_sha256"}))
def test_erasing_a_record_changes_nothing_that_is_kept(empty: apsw.Connection, column: str) -> None:
    """The one change that the trigger lets through, and the same with one column more."""
    _insert(empty, "records", {**RECORD, "salt": "zeroblob(32)", "payload": "x'31'", "usage": "x'31'"})
    erase = "UPDATE records SET salt = NULL, payload = NULL, fingerprint = x'01'"
    other = {"scope": "x'01'", "name": "'other'", "kind": "1"}.get(column, "77")
    for more in (f"{column} = {other}", "usage = NULL"):
        with pytest.raises(apsw.ConstraintError, match="history"):
            empty.execute(f"{erase}, {more}")
    empty.execute(erase)
