"""`arl init --local`: a store, keys and a trust file in one step, and what these do not protect."""

from __future__ import annotations

import shutil
import stat
from pathlib import Path

import pytest

from agent_run_ledger import EffectLedger, Refused, open_effects
from agent_run_ledger.effects import Role
from agent_run_ledger.keys import read_key
from agent_run_ledger.ledger.authority import actor_with_key, find_authority
from agent_run_ledger.ledger.local_trust import LOCAL, UNSIGNED
from agent_run_ledger.testing import check_ledger
from tests.cli.conftest import Arl
from tests.unit.effects.trust_examples import key


def folder(db: Path) -> Path:
    return Path(f"{db}.local")


def test_one_step_makes_all_that_a_laptop_needs(arl: Arl, db: Path) -> None:
    done = arl("init", "--local", "--name", "ann", "--db", db)
    assert done.code == 0, done.err
    names = {path.name: stat.S_IMODE(path.stat().st_mode) for path in folder(db).iterdir()}
    assert names == {"approver.pem": 0o600, "operator.pem": 0o600, "trust.json": 0o600, ".gitignore": 0o600}
    assert (folder(db) / ".gitignore").read_text() == "*\n"
    assert stat.S_IMODE(folder(db).stat().st_mode) == 0o700
    assert not [path for path in db.parent.iterdir() if path.name.endswith(".tmp")]
    authority = find_authority(db)
    assert authority is not None
    assert authority.local
    roles = {one.name: set(one.roles) for one in authority.trust.principals}
    assert roles == {
        "ann": {Role.APPROVER, Role.OFFICER},
        "operator": {Role.RECONCILER, Role.REVOKER, Role.OPERATOR},
        "agent": {Role.REQUESTER},
        "worker": {Role.EXECUTOR},
    }
    for file, name in (("approver.pem", "ann"), ("operator.pem", "operator")):
        assert actor_with_key(authority.trust, read_key(folder(db) / file)).principal == name
    policy = authority.trust.policy_named("local")
    assert policy is not None
    assert (policy.approvals_needed, policy.people_needed, policy.max_window_ms) == (1, 1, 24 * 3_600_000)
    check_ledger(db)


def test_it_says_what_it_does_not_protect(arl: Arl, db: Path) -> None:
    done = arl("init", "--local", "--name", "ann", "--db", db)
    _, unprotected = done.out.split("What this does not protect:\n")
    assert LOCAL in unprotected
    assert "no witness" in unprotected
    assert "whatever runs as you" in unprotected
    assert f"arl approvals list --db {db}" in unprotected
    told = arl("init", "--local", "--db", db, "--json").json["local"]["not_protected"]
    assert LOCAL in told
    with open_effects(db) as ledger:
        assert LOCAL in ledger.status().not_protected


def test_a_second_time_changes_nothing(arl: Arl, db: Path) -> None:
    first = arl("init", "--local", "--name", "ann", "--db", db, "--json").json
    before = {path: path.read_bytes() for path in folder(db).iterdir()}
    again = arl("init", "--local", "--name", "bob", "--db", db, "--json").json
    assert (first["changed"], first["created"], again["changed"]) == (True, True, False)
    assert again["local"] == first["local"]
    assert {path: path.read_bytes() for path in folder(db).iterdir()} == before


def test_a_store_that_is_there_gets_a_trust_file_too(arl: Arl, db: Path) -> None:
    arl("init", "--db", db)
    with open_effects(db) as ledger:
        assert UNSIGNED in ledger.status().not_protected
    done = arl("init", "--local", "--name", "ann", "--db", db, "--json").json
    assert (done["created"], done["changed"]) == (False, True)
    with pytest.raises(Refused, match="was opened without"):
        EffectLedger(db)


def test_a_folder_that_was_lost_is_not_made_anew(arl: Arl, db: Path) -> None:
    arl("init", "--local", "--name", "ann", "--db", db)
    shutil.rmtree(folder(db))
    refused = arl("init", "--local", "--name", "ann", "--db", db, "--json")
    assert (refused.code, refused.error["code"]) == (1, "trust_exists")
    assert not folder(db).exists()
    for words in (f"{folder(db)} was lost", "from a backup", "takes the keys of this one's officers", "a new store"):
        assert words in refused.error["hint"], words


def test_it_says_that_the_folder_is_worth_a_backup(arl: Arl, db: Path) -> None:
    said = arl("init", "--local", "--name", "ann", "--db", db).out
    assert "Back this folder up" in said
    assert "without the key of ann nobody" in said


@pytest.mark.parametrize("made_anew", [False, True])
def test_a_folder_without_its_store_is_not_taken_for_that_of_another(arl: Arl, db: Path, made_anew: bool) -> None:
    arl("init", "--local", "--name", "ann", "--db", db)
    for path in db.parent.glob("runs.db*"):
        if path.is_file():
            path.unlink()
    if made_anew:
        arl("init", "--db", db)
    before = {path: path.read_bytes() for path in folder(db).iterdir()}
    refused = arl("init", "--local", "--name", "ann", "--db", db, "--json")
    assert (refused.code, refused.error["code"]) == (1, "trust_exists")
    assert refused.error["hint"].startswith("move the folder away")
    assert db.exists() is made_anew
    assert {path: path.read_bytes() for path in folder(db).iterdir()} == before
    folder(db).rename(db.with_name("kept"))
    assert arl("init", "--local", "--name", "ann", "--db", db).code == 0


def test_an_interrupted_one_goes_on_where_it_was(arl: Arl, db: Path) -> None:
    """The folder is made before anything is on record of it."""
    arl("init", "--db", db)
    with open_effects(db) as ledger:
        log_id = ledger.status().ledger_id
    from agent_run_ledger.ledger.authority import now_here
    from agent_run_ledger.ledger.local_authority import make_local

    make_local(db, log_id, name="ann", now=now_here())
    assert arl("init", "--local", "--name", "bob", "--db", db, "--json").json["local"]["approver"] == "ann"
    with open_effects(db) as ledger:
        assert ledger.trust is not None


@pytest.mark.parametrize("name", ["agent", "Worker", "operator", "two words", "\x1b[2J", "a" * 129])
def test_a_name_that_is_none_or_taken_makes_nothing(arl: Arl, db: Path, name: str) -> None:
    refused = arl("init", "--local", f"--name={name}", "--db", db, "--json")
    assert (refused.code, refused.error["code"]) == (2, "bad_name")
    assert "give --name NAME" in refused.error["hint"]
    assert list(db.parent.iterdir()) == []
    assert arl("init", "--local", "--name", "ann", "--db", db).code == 0


@pytest.mark.parametrize("name", ["agent", "worker", "operator", "Zoë", "two words"])
def test_a_user_whose_name_cannot_approve_is_told_before_anything_is_made(
    arl: Arl, db: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AGENT_RUN_LEDGER_ACTOR", name)
    refused = arl("init", "--local", "--db", db, "--json")
    assert (refused.code, refused.error["code"]) == (2, "bad_name")
    assert list(db.parent.iterdir()) == []
    assert arl("init", "--local", "--name", "ann", "--db", db).code == 0
    assert arl("init", "--local", "--db", db).code == 0, "what is there needs no name"


def test_a_name_without_local_is_misuse(arl: Arl, db: Path) -> None:
    assert arl("init", "--name", "ann", "--db", db).code == 2
    assert not db.exists()


def test_a_folder_that_cannot_be_made_leaves_nothing(arl: Arl, db: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from agent_run_ledger.ledger import local_authority

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(local_authority.os, "rename", full)
    refused = arl("init", "--local", "--name", "ann", "--db", db, "--json")
    assert refused.error["code"] == "unwritable"
    assert [path.name for path in db.parent.iterdir() if "local" in path.name] == []


def test_the_keys_are_drawn_and_not_those_of_another_store(arl: Arl, tmp_path: Path) -> None:
    for name in ("one.db", "two.db"):
        arl("init", "--local", "--name", "ann", "--db", tmp_path / name)
    keys = {read_key(folder(tmp_path / name) / "approver.pem").key_id for name in ("one.db", "two.db")}
    assert len(keys) == 2
    assert key("ann").key_id not in keys


def test_a_store_behind_a_link_has_its_keys_beside_the_file(arl: Arl, db: Path, tmp_path: Path) -> None:
    link = tmp_path / "elsewhere" / "link.db"
    link.parent.mkdir()
    arl("init", "--db", db)
    link.symlink_to(db)
    assert arl("init", "--local", "--name", "ann", "--db", link).code == 0
    assert folder(db).is_dir()
    for path in (db, link):
        with open_effects(path) as ledger:
            assert LOCAL in ledger.status().not_protected
