"""`arl upgrade`: a store of the first version is brought forward once, and it says by what."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from agent_run_ledger.store.sqlite_migrations import SCHEMA_VERSION, migration_sha256
from agent_run_ledger.testing import check_ledger
from tests.cli.conftest import Arl

GOLDEN = Path(__file__).parents[1] / "golden" / "store"


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """A store that the first version wrote."""
    return Path(shutil.copy(GOLDEN / "v1.db", tmp_path / "old.db"))


def test_it_says_from_which_version_to_which_and_by_what(arl: Arl, old: Path) -> None:
    ended = arl("upgrade", "--db", old)
    assert ended.code == 0
    lines = ended.out.splitlines()
    assert lines[0] == f"{old}: schema version 1 -> {SCHEMA_VERSION}"
    assert lines[-1].endswith(f"sha256 {migration_sha256(SCHEMA_VERSION).hex()}")
    assert arl("upgrade", "--db", old).out.splitlines()[0] == f"{old}: schema version {SCHEMA_VERSION}, nothing to do"
    root_hex = json.loads((GOLDEN / "v1.json").read_text())["root_hex"]
    assert arl("verify", "--db", old, "--json").json["root_hex"] == root_hex
    check_ledger(old)


def test_json(arl: Arl, old: Path) -> None:
    first, second = (arl("upgrade", "--db", old, "--json").json for _ in range(2))
    assert (first["from_version"], first["to_version"], first["changed"]) == (1, SCHEMA_VERSION, True)
    assert (second["from_version"], second["to_version"], second["changed"]) == (SCHEMA_VERSION, SCHEMA_VERSION, False)
    assert first["migrations"] == second["migrations"]
    assert [one["version"] for one in first["migrations"]] == list(range(1, SCHEMA_VERSION + 1))


@pytest.mark.parametrize(
    "arguments", [("verify",), ("runs", "list"), ("backup", "copy.db"), ("sql", "--readonly", "x")]
)
def test_looking_at_an_older_store_names_the_command_that_helps(
    arl: Arl, old: Path, arguments: tuple[str, ...]
) -> None:
    before = old.read_bytes()
    ended = arl(*arguments, "--db", old, "--json")
    assert (ended.code, ended.error["code"]) == (1, "schema_older")
    assert f"`arl upgrade --db {old}`" in ended.error["hint"]
    assert old.read_bytes() == before


def test_a_decision_brings_it_forward_too(arl: Arl, old: Path) -> None:
    assert arl("init", "--db", old).code == 0
    assert arl("upgrade", "--db", old, "--json").json["changed"] is False
    check_ledger(old)


def test_a_missing_store_is_not_made(arl: Arl, db: Path) -> None:
    ended = arl("upgrade", "--db", db, "--json")
    assert (ended.code, ended.error["code"]) == (1, "no_store")
    assert list(db.parent.iterdir()) == []
