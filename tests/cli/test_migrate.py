"""`arl migrate`: what it says, asks and prints as JSON, and what every command says of a store whose ledger moved."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from agent_run_ledger import RunLedger
from agent_run_ledger.runs.steps import Step
from agent_run_ledger.testing import check_ledger
from tests.cli.conftest import Arl
from tests.contract.test_migrate import interrupted
from tests.services.postgres import Cluster


@pytest.fixture
def url(postgres: Cluster) -> Iterator[str]:
    name = postgres.new_database()
    yield postgres.url(name)
    postgres.drop(name)


@pytest.fixture
def source(tmp_path: Path, arl: Arl) -> Path:
    """A file with a run and a trust file of its own beside it."""
    assert arl("init", "--local", "--db", tmp_path / "runs.db").code == 0
    with RunLedger("invoice", tmp_path / "runs.db") as ledger:
        ledger.add(Step(lambda: 1, name="one"))
        ledger.execute()
    return tmp_path / "runs.db"


def test_it_moves_to_a_server_and_back(arl: Arl, source: Path, url: str, postgres: Cluster, tmp_path: Path) -> None:
    noted = arl("verify", "--db", source).out.strip().splitlines()[-1].split()[-1]
    there = arl("migrate", source, url, "--yes")
    assert (there.code, there.err) == (0, "")
    assert f"from     {source} (retired)" in there.out
    assert f"{source}.local" in there.out
    back = arl("migrate", url, tmp_path / "back.db", "--yes", "--json")
    assert back.code == 0
    assert (back.json["resumed"], back.json["already"], back.json["not_moved"]) == (False, False, [])
    assert postgres.password not in there.out + back.out
    verified = arl("verify", "--db", tmp_path / "back.db", "--json").json
    assert verified["ok"]
    assert verified["leaves"] == back.json["leaves"] + 1
    assert verified["log_id"] == back.json["log_id"]
    size_and_root = noted if ":" in noted else f"{verified['leaves']}:{verified['root_hex']}"
    assert arl("verify", "--db", tmp_path / "back.db", "--since", size_and_root).code == 0
    assert arl("runs", "show", "invoice", "--db", tmp_path / "back.db").code == 0
    check_ledger(tmp_path / "back.db")


def test_the_same_command_again_says_that_it_is_done(arl: Arl, source: Path, url: str) -> None:
    first = arl("migrate", source, url, "--yes", "--json").json
    again = arl("migrate", source, url, "--yes", "--json").json
    assert (again["already"], again["leaves"], again["root_hex"]) == (True, first["leaves"], first["root_hex"])
    assert "moved before" in arl("migrate", source, url, "--yes").out


@pytest.mark.parametrize(
    "words", [("runs", "list"), ("runs", "show", "invoice"), ("verify",), ("usage",), ("export",), ("doctor",)]
)
def test_a_look_at_a_retired_store_works_and_says_where_it_went(
    arl: Arl, source: Path, url: str, postgres: Cluster, words: tuple[str, ...]
) -> None:
    arl("migrate", source, url, "--yes")
    ended = arl(*words, "--db", source)
    assert ended.code == 0, ended.err
    if words[0] not in ("usage", "export"):
        assert "retired" in ended.out + ended.err
    assert postgres.password not in ended.out + ended.err


def test_json_says_where_it_went(arl: Arl, source: Path, url: str) -> None:
    assert arl("verify", "--db", source, "--json").json["move"] is None
    target = arl("migrate", source, url, "--yes", "--json").json["target"]
    assert arl("verify", "--db", source, "--json").json["move"] == {"standing": "retired", "target": target}
    assert arl("doctor", "--db", source, "--json").json["numbers"]["move"] == "retired"


@pytest.mark.parametrize(
    "words",
    [
        ("init",), ("erase", "invoice", "--reason", "r", "--yes"), ("upgrade",),
        ("runs", "cancel", "invoice", "--reason", "r", "--yes"), ("runs", "quarantine", "invoice", "--reason", "r"),
    ],
)  # fmt: skip
def test_a_decision_in_a_retired_store_is_refused(arl: Arl, source: Path, url: str, words: tuple[str, ...]) -> None:
    arl("migrate", source, url, "--yes")
    ended = arl(*words, "--db", source, "--json")
    assert (ended.code, ended.error["code"]) == (1, "retired")
    assert "name that store" in ended.error["hint"]


def test_a_move_is_given_up(arl: Arl, source: Path, url: str) -> None:
    interrupted(source, url, "migrate.chunk")
    listed = arl("runs", "list", "--db", source)
    assert (listed.code, "is being moved to" in listed.err) == (0, True)
    refused = arl("runs", "quarantine", "invoice", "--reason", "r", "--db", source, "--json")
    assert refused.error["code"] == "moving"
    assert arl("runs", "list", "--db", url, "--json").error["code"] == "arriving"
    given_up = arl("migrate", source, url, "--abandon", "--json").json
    assert (given_up["live_again"], given_up["discarded"]) == (True, True)
    said = arl("migrate", source, url, "--abandon").out
    assert "was live" in said
    assert "nothing of this move was found" in said
    check_ledger(source)


def test_nobody_is_there_to_be_asked(arl: Arl, source: Path, url: str) -> None:
    ended = arl("migrate", source, url, "--json")
    assert (ended.code, ended.error["code"]) == (2, "not_confirmed")


def test_a_source_that_is_not_there_is_not_made(arl: Arl, tmp_path: Path, url: str) -> None:
    ended = arl("migrate", tmp_path / "nothing.db", url, "--yes", "--json")
    assert (ended.code, ended.error["code"]) == (1, "no_store")
    assert not (tmp_path / "nothing.db").exists()
