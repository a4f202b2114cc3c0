"""The command line on a store at a server: the same commands, what only a file has, and no password anywhere."""

from __future__ import annotations

import json
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent_run_ledger import RunLedger
from agent_run_ledger.runs.steps import Step
from agent_run_ledger.testing import check_ledger
from tests.cli.conftest import Arl
from tests.services.postgres import Cluster


@pytest.fixture
def url(postgres: Cluster) -> Iterator[str]:
    name = postgres.new_database()
    yield postgres.url(name)
    postgres.drop(name)


@pytest.fixture
def used(url: str) -> str:
    """A store with a run that completed."""
    with RunLedger(run_id="invoice", url=url) as ledger:
        ledger.add(Step(lambda: 1, name="one"))
        ledger.execute()
    return url


def test_init_makes_the_store_and_says_so_once(arl: Arl, url: str, postgres: Cluster) -> None:
    first = arl("init", "--db", url, "--json")
    assert (first.code, first.json["created"], first.json["authority"]) == (0, True, True)
    again = arl("init", "--db", url, "--json")
    assert (again.json["created"], again.json["changed"]) == (False, False)
    assert postgres.password not in first.out + again.out


def test_init_speaks_of_no_file_where_there_is_none(arl: Arl, url: str) -> None:
    said = " ".join(arl("init", "--db", url).out.split())
    assert "It says that this store, and no copy of it, is meant to decide" in said
    assert "this file" not in said


def test_a_store_that_is_not_there_is_not_made_by_looking(arl: Arl, url: str, postgres: Cluster) -> None:
    ended = arl("runs", "list", "--db", url, "--json")
    assert ended.code == 1
    assert ended.error["code"] == "no_store"
    assert f"`arl init --db postgresql://arl_test@127.0.0.1:{postgres.port}/" in ended.error["hint"]
    assert postgres.password not in ended.err + ended.out


@pytest.mark.parametrize(
    "words",
    [
        ("runs", "list"), ("runs", "show", "invoice"), ("runs", "explain", "invoice"), ("verify",), ("usage",),
        ("metrics",), ("doctor",), ("effects", "list"), ("export",),
    ],
)  # fmt: skip
@pytest.mark.parametrize("form", [(), ("--json",)])
def test_a_look_is_the_same_as_at_a_file(
    arl: Arl, used: str, postgres: Cluster, words: tuple[str, ...], form: tuple[str, ...]
) -> None:
    ended = arl(*words, *(form if words[0] != "export" else ()), "--db", used)
    assert (ended.code, ended.err) == (0, "")
    assert ended.out
    assert postgres.password not in ended.out


def test_people_decide_at_a_server_too(arl: Arl, used: str, postgres: Cluster) -> None:
    erased = arl("erase", "invoice", "--reason", "asked for", "--yes", "--db", used, "--json")
    assert erased.code == 0
    assert erased.json["scrubbed"] is False
    assert "write-ahead log" in erased.err
    assert arl("verify", "--db", used).code == 0
    pruned = arl("prune", "--completed-before", "2000-01-01", "--reason", "old", "--yes", "--db", used, "--json")
    assert (pruned.code, pruned.json["runs"]) == (0, 0)


@pytest.mark.parametrize(
    ("words", "instead"),
    [
        (("backup", "copy.db"), "pg_basebackup"),
        (("prune", "--completed-before", "1d", "--reason", "x", "--yes", "--compact"), "VACUUM FULL"),
    ],
)
def test_what_only_a_file_has_says_what_to_use(
    arl: Arl, used: str, postgres: Cluster, words: tuple[str, ...], instead: str
) -> None:
    ended = arl(*words, "--db", used, "--json")
    assert ended.code == 1
    assert ended.error["code"] == "only_in_file"
    assert instead in ended.error["hint"]
    assert postgres.password not in ended.err


def test_the_environment_and_the_settings_file_may_name_a_url(
    arl: Arl, used: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("agent_run_ledger.toml").write_text(f'db = "{used}"\n', encoding="utf-8")
    assert arl("runs", "list", "--json").lines
    monkeypatch.setenv("AGENT_RUN_LEDGER_DB", used)
    assert arl("runs", "show", "invoice").code == 0


def test_a_next_step_names_the_store_without_its_password(arl: Arl, used: str, postgres: Cluster) -> None:
    ended = arl("verify", "--db", used)
    assert f"--db postgresql://arl_test@127.0.0.1:{postgres.port}/" in ended.out


def test_a_server_that_is_away_is_unavailable(arl: Arl) -> None:
    ended = arl("runs", "list", "--db", "postgresql://ann:s3cret@127.0.0.1:1/x", "--json")
    assert ended.code == 5
    assert ended.error["code"] == "unreachable"
    assert "s3cret" not in ended.err
    told = arl("doctor", "--db", "postgresql://ann:s3cret@127.0.0.1:1/x")
    assert told.code == 5
    assert "s3cret" not in told.out


# -- SQL ---------------------------------------------------------------------------------------------------------------


def test_sql_is_asked_at_a_server(arl: Arl, used: str) -> None:
    query = "SELECT run_id, '\\x00ff'::bytea AS a, 1 AS a, NULL AS b, TRUE AS c, 1.5::numeric AS d, '%s' AS e FROM runs"
    ended = arl("sql", "--readonly", query, "--db", used, "--json")
    assert ended.code == 0, ended.err
    assert ended.lines == [{"run_id": "invoice", "a": "00ff", "a_2": 1, "b": None, "c": 1, "d": "1.5", "e": "%s"}]
    table = arl("sql", "--readonly", "SELECT run_id FROM runs", "--db", used)
    assert (table.out.split()[0], table.out.split()[-1], table.err) == ("run_id", "invoice", "1 row\n")
    none = arl("sql", "--readonly", "SELECT run_id FROM runs WHERE FALSE", "--db", used)
    assert (none.out.split()[0], none.err) == ("run_id", "0 rows\n")


@pytest.mark.parametrize(
    ("statement", "code"),
    [
        ("UPDATE runs SET state = 'completed'", "bad_sql"),
        ("SELECT 1; DELETE FROM runs", "bad_sql"),
        ("COMMIT", "bad_sql"),
        ("SET TRANSACTION READ WRITE", "bad_sql"),
        ("COPY runs TO PROGRAM 'true'", "bad_sql"),
        ("SELECT $1", "bad_sql"),
        ("SELECT nothing FROM runs", "bad_sql"),
        ("SELECT 1 / (2 - n) FROM generate_series(1, 3) n", "bad_sql"),
        ("SELECT 'infinity'::timestamptz", "bad_sql"),
        ("WITH gone AS (DELETE FROM runs RETURNING 1) SELECT * FROM gone", "not_a_read"),
        ("SELECT * FROM runs FOR UPDATE", "not_a_read"),
        ("SELECT set_config('transaction_read_only', 'off', TRUE)", "not_a_read"),
        ("SELECT nextval('runs_row_id_seq')", "not_a_read"),
    ],
)
def test_what_is_no_question_changes_nothing_at_a_server(arl: Arl, used: str, statement: str, code: str) -> None:
    before = check_ledger(used)
    ended = arl("sql", "--readonly", statement, "--db", used, "--json")
    assert (ended.code, ended.error["code"]) == (1, code)
    assert check_ledger(used) == before


def test_a_user_who_may_only_read_looks_and_decides_nothing(arl: Arl, used: str, postgres: Cluster) -> None:
    postgres.run("CREATE ROLE only_reads LOGIN PASSWORD 'x'")
    name = used.rpartition("/")[2]
    url = postgres.url(name, user="only_reads", password="x")
    try:
        barred = arl("runs", "list", "--db", url, "--json")
        assert (barred.code, barred.error["code"]) == (1, "no_permission")
        postgres.run("GRANT USAGE ON SCHEMA agent_run_ledger TO only_reads", name)
        postgres.run("GRANT SELECT ON ALL TABLES IN SCHEMA agent_run_ledger TO only_reads", name)
        for words in (("runs", "list"), ("runs", "show", "invoice"), ("verify",), ("sql", "--readonly", "SELECT 1")):
            assert arl(*words, "--db", url).code == 0, words
        for words in (("runs", "quarantine", "invoice", "--reason", "x"), ("init",)):
            refused = arl(*words, "--db", url, "--json")
            assert (refused.code, refused.error["code"]) == (1, "no_permission"), words
    finally:
        postgres.run("DROP OWNED BY only_reads", name)
        postgres.run("DROP ROLE only_reads")


# -- a trust file in a folder that is named ----------------------------------------------------------------------------


def test_one_machine_has_its_keys_in_a_folder_that_is_named(
    arl: Arl, url: str, postgres: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    unnamed = arl("init", "--local", "--db", url, "--json")
    assert (unnamed.code, unnamed.error["code"]) == (2, "usage")
    assert "--folder DIR" in unnamed.error["hint"]
    keys = tmp_path / "keys"
    made = arl("init", "--local", "--folder", keys, "--name", "ann", "--db", url)
    assert made.code == 0, made.err
    assert f"export AGENT_RUN_LEDGER_TRUST={keys}/trust.json" in made.out
    assert sorted(path.name for path in keys.iterdir()) == [".gitignore", "approver.pem", "operator.pem", "trust.json"]
    assert stat.S_IMODE(keys.stat().st_mode) == 0o700
    again = arl("init", "--local", "--folder", keys, "--db", url, "--json")
    assert (again.json["changed"], again.json["local"]["approver"]) == (False, "ann")
    other = arl("init", "--local", "--folder", tmp_path / "other", "--db", url, "--json")
    assert (other.code, other.error["code"]) == (1, "trust_exists")
    assert arl("principals", "list", "--db", url, "--json").error["code"] == "no_trust"
    hint = arl("principals", "list", "--db", url, "--json").error["hint"]
    assert hint.startswith("name that file: --trust or AGENT_RUN_LEDGER_TRUST"), "one is on record"

    monkeypatch.setenv("AGENT_RUN_LEDGER_TRUST", str(keys / "trust.json"))
    monkeypatch.setenv("AGENT_RUN_LEDGER_DB", url)
    shown = arl("trust", "show", "--json").json
    assert (shown["in_use"], shown["on_record"]["serial"]) == (True, 1)
    asked = ("actions", "propose", "request.json", "--key", "refund:1", "--target", "https://pay.example")
    Path("request.json").write_text(json.dumps({"method": "POST", "path": "/refunds", "json": {}}), encoding="utf-8")
    proposed = arl(*asked, "--executor", "worker", "--approval", "local", "--as", "agent", "--json")
    assert proposed.code == 0, proposed.err
    granted = arl("approvals", "grant", "refund:1", "--key", keys / "approver.pem", "--yes", "--json")
    assert granted.code == 0, granted.err
    assert [one["state"] for one in arl("effects", "list", "--json").json["actions"]] == ["available"]
    assert check_ledger(url).leaves == 5
    assert postgres.password not in made.out + shown["file"]


def test_a_folder_is_named_for_a_store_at_a_server_alone(arl: Arl, url: str, postgres: Cluster, tmp_path: Path) -> None:
    assert arl("init", "--local", "--folder", "keys", "--db", "file.db", "--json").error["code"] == "usage"
    assert arl("init", "--folder", "keys", "--db", url, "--json").error["code"] == "usage"
    assert arl("init", "--local", "--folder", "keys", "--db", url).code == 0
    second = postgres.new_database()
    of_another = arl("init", "--local", "--folder", "keys", "--db", postgres.url(second), "--json")
    assert (of_another.code, of_another.error["code"]) == (1, "trust_exists")
    postgres.drop(second)


def test_a_trust_file_names_the_ledger_of_a_store_at_a_server(arl: Arl, used: str, url: str) -> None:
    assert arl("init", "--local", "--folder", "keys", "--db", used).code == 0
    log_id = arl("verify", "--db", used, "--json").json["log_id"]
    shown = arl("trust", "show", "keys/trust.json", "--db", used, "--json").json
    assert (shown["ledger_id"], shown["in_use"]) == (log_id, True)
    assert "no witness" in shown["not_protected"][0]


@pytest.mark.parametrize(
    "words",
    [("runs", "show", "a\udc80"), ("runs", "cancel", "a\udc80", "--reason", "x", "--yes"),
     ("sql", "--readonly", "SELECT 'a\udc80'")],
)  # fmt: skip
def test_bytes_that_are_no_utf8_are_told_and_are_no_fault(
    arl: Arl, used: str, tmp_path: Path, words: tuple[str, ...]
) -> None:
    assert arl("init", "--db", str(tmp_path / "a.db")).code == 0
    for db in (used, str(tmp_path / "a.db")):
        ended = arl(*words, "--db", db, "--json")
        assert ended.code in (1, 2), ended.err
        assert ended.error["code"] in ("unstorable", "usage")
