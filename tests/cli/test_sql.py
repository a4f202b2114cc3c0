"""`arl sql --readonly`: reads in tables and JSON Lines, and refuses everything that is not a read."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from pathlib import Path

import pytest

from tests.cli.conftest import COMMAND, HOSTILE_RUN, Arl, is_safe


def test_without_readonly_nothing_is_done(arl: Arl, store: Path) -> None:
    ended = arl("sql", "SELECT 1", "--db", store, "--json")
    assert (ended.code, ended.error["code"], ended.out) == (2, "usage", "")


def test_a_table_shows_bytes_as_hex_and_null_as_null(arl: Arl, store: Path) -> None:
    ended = arl("sql", "--readonly", "SELECT run_id, x'00ff' AS bytes, NULL AS nil FROM runs", "--db", store)
    assert ended.code == 0
    assert ended.out.splitlines()[0].split() == ["run_id", "bytes", "nil"]
    assert "00ff" in ended.out
    assert "NULL" in ended.out
    assert HOSTILE_RUN in ended.out
    assert ended.err == "7 rows\n"


def test_json_lines_keep_every_column(arl: Arl, store: Path) -> None:
    query = "SELECT 1 AS a, 2.5 AS a, x'00ff' AS b, NULL AS c, 9e999 AS d"
    assert arl("sql", "--readonly", query, "--db", store, "--json").lines == [
        {"a": 1, "a_2": 2.5, "b": "00ff", "c": None, "d": "inf"}
    ]


def test_what_the_store_holds_is_safe_to_look_at(arl: Arl, store: Path) -> None:
    query = "SELECT char(27) || '[2J' || char(10) || char(8238) AS x, CAST(payload AS TEXT) AS y FROM records"
    assert is_safe(arl("sql", "--readonly", query, "--db", store).out)
    assert arl("sql", "--readonly", query, "--db", store, "--json").out.isascii()


@pytest.mark.parametrize(
    "statement",
    [
        "INSERT INTO meta (key, value) VALUES ('x', 'y')",
        "UPDATE runs SET state = 'completed'",
        "DELETE FROM runs",
        "DROP TABLE runs",
        "CREATE TABLE x (y)",
        "CREATE TEMP TABLE x (y)",
        "PRAGMA query_only = 0",
        "PRAGMA journal_mode = DELETE",
        "PRAGMA user_version = 9",
        "ATTACH 'other.db' AS other",
        "VACUUM INTO 'copy.db'",
        "BEGIN IMMEDIATE",
        "SELECT load_extension('x')",
        "SELECT 1; DELETE FROM runs",
    ],
)
def test_everything_but_reading_is_refused(arl: Arl, store: Path, tmp_path: Path, statement: str) -> None:
    before = arl("verify", "--db", store, "--json").out
    ended = arl("sql", "--readonly", statement, "--db", store, "--json")
    assert ended.code == 1
    assert ended.error["code"] in ("not_a_read", "bad_sql")
    assert arl("verify", "--db", store, "--json").out == before
    assert not (tmp_path / "other.db").exists()
    assert not (tmp_path / "copy.db").exists()


@pytest.mark.parametrize("statement", ["SELEC 1", "SELECT nothing FROM runs", "SELECT ?"])
def test_what_is_no_sql_is_refused(arl: Arl, store: Path, statement: str) -> None:
    ended = arl("sql", "--readonly", statement, "--db", store, "--json")
    assert (ended.code, ended.error["code"]) == (1, "bad_sql")


def test_two_statements_of_different_width_are_misuse(arl: Arl, store: Path) -> None:
    ended = arl("sql", "--readonly", "SELECT 1; SELECT 2, 3", "--db", store, "--json")
    assert (ended.code, ended.error["code"]) == (2, "usage")


def test_no_rows_still_show_the_columns(arl: Arl, store: Path) -> None:
    ended = arl("sql", "--readonly", "SELECT run_id FROM runs WHERE 0", "--db", store)
    assert ended.out.startswith("run_id")
    assert ended.err == "0 rows\n"


def test_a_table_that_does_not_fit_is_shown_as_records(arl: Arl, store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    wide = arl("sql", "--readonly", "SELECT * FROM runs WHERE run_id IN ('done', 'dead')", "--db", store)
    assert max(map(len, wide.out.splitlines())) <= 80
    assert [line for line in wide.out.splitlines() if line.startswith("row ")] == ["row 1", "row 2"]
    assert re.search(r"^run_id: +done$", wide.out, re.MULTILINE)
    assert re.search(r"^parent_row_id: +NULL$", wide.out, re.MULTILINE)
    assert wide.err == "2 rows\n"
    narrow = arl("sql", "--readonly", "SELECT run_id, state FROM runs WHERE run_id = 'done'", "--db", store)
    assert narrow.out.splitlines()[0].split() == ["run_id", "state"]
    monkeypatch.delenv("COLUMNS")
    piped = arl("sql", "--readonly", "SELECT * FROM runs", "--db", store)
    assert piped.out.splitlines()[0].split()[:2] == ["row_id", "run_uid"]


def test_ctrl_c_ends_a_computation_inside_sqlite(store: Path) -> None:
    endless = (
        "WITH RECURSIVE few(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM few LIMIT 20000),"
        " all_of_them(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM all_of_them)"
        " SELECT x FROM few UNION ALL SELECT max(x) FROM all_of_them"
    )
    # Bounded, so that it dies by itself should this test be killed before it has ended it.
    bounded = ["sh", "-c", 'ulimit -t 120 && exec "$@"', "sh"]
    command = [*bounded, *COMMAND, "sql", "--readonly", endless, "--json", "--db", str(store)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as child:
        if child.stdout is None:
            raise AssertionError("no pipe")
        seen = 0
        while seen < 19_000:
            seen += child.stdout.readline().count(b"\n")
        os.kill(child.pid, signal.SIGINT)
        child.stdout.read()
        assert child.wait(60) == -signal.SIGINT
