"""The command line on a store at a server: the same commands, what only a file has, and no password anywhere."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from agent_run_ledger import RunLedger
from agent_run_ledger.runs.steps import Step
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


def test_a_store_that_is_not_there_is_not_made_by_looking(arl: Arl, url: str, postgres: Cluster) -> None:
    ended = arl("runs", "list", "--db", url, "--json")
    assert ended.code == 1
    assert ended.error["code"] == "no_store"
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
        (("sql", "--readonly", "SELECT 1"), "psql"),
        (("upgrade",), "nothing to do"),
        (("init", "--local"), "arl keys new"),
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
