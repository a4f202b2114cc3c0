"""`arl verify`: ok, contradicted, extended or not, and proofs that a stranger can check."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from agent_run_ledger.kernel.merkle import verify_inclusion
from tests.cli.conftest import Arl, Audit, edit
from tests.contract.effect_stories import Stories


def test_an_intact_store_is_ok_and_prints_the_line_to_note(arl: Arl, store: Path) -> None:
    ended = arl("verify", "--db", store)
    assert ended.code == 0
    assert "result   ok, no problems" in ended.out
    found = arl("verify", "--db", store, "--json").json
    assert f"arl verify --since {found['leaves']}:{found['root_hex']}" in ended.out
    assert set(found) == {
        "ok", "leaves", "records", "erased", "runs", "actions", "witness", "log_id", "root_hex", "noted",
        "extends_noted", "problem_count", "problems", "copy", "move",
    }  # fmt: skip
    assert (found["ok"], found["runs"], found["problems"]) == (True, 7, [])


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE records SET payload = x'22' WHERE name = 'fetch'",
        "UPDATE runs SET state = 'completed' WHERE run_id = 'failed'",
        "DELETE FROM records WHERE name = 'publish'",
    ],
)
def test_a_contradiction_is_listed_with_exit_code_6(arl: Arl, store: Path, statement: str) -> None:
    edit(store, statement)
    ended = arl("verify", "--db", store)
    assert ended.code == 6
    assert "problem  " in ended.out
    assert "contradicts its log in " in ended.err
    found = arl("verify", "--db", store, "--json")
    assert found.code == 6
    assert found.json["ok"] is False
    assert found.json["problem_count"] == len(found.json["problems"]) > 0
    assert found.error["code"] == "problems"


def test_since_sees_that_a_log_grew_and_nothing_before_changed(arl: Arl, store: Path) -> None:
    before = arl("verify", "--db", store, "--json").json
    noted = f"{before['leaves']}:{before['root_hex']}"
    Audit(store, "later").run()
    after = arl("verify", "--db", store, "--since", noted, "--json")
    assert after.code == 0
    assert after.json["extends_noted"] is True
    assert after.json["leaves"] > before["leaves"]
    assert "is extended by this log" in arl("verify", "--db", store, "--since", noted).out


@pytest.mark.parametrize(
    ("size", "said", "code", "hint"),
    [
        ("5", "is NOT extended by this log", "not_extended", "it was changed"),
        ("100000", "is longer than this log", "log_shorter", "it may be an older copy"),
    ],
)
def test_since_another_log_is_tampered(arl: Arl, store: Path, size: str, said: str, code: str, hint: str) -> None:
    ended = arl("verify", "--db", store, "--since", f"{size}:{'0' * 64}")
    assert ended.code == 6
    assert said in ended.out
    assert "arl verify --since" not in ended.out
    asked = arl("verify", "--db", store, "--since", f"{size}:{'0' * 64}", "--json")
    assert (asked.json["ok"], asked.json["extends_noted"], asked.error["code"]) == (False, False, code)
    assert hint in asked.error["hint"]


def test_an_older_copy_says_that_it_is_shorter(arl: Arl, store: Path, tmp_path: Path) -> None:
    old = tmp_path / "old.db"
    old.write_bytes(store.read_bytes())
    Audit(store, "later").run()
    now = arl("verify", "--db", store, "--json").json
    ended = arl("verify", "--db", old, "--since", f"{now['leaves']}:{now['root_hex']}")
    assert ended.code == 6
    assert f"fewer than the {now['leaves']} that were noted" in ended.err
    assert "was changed" not in ended.err


@pytest.mark.parametrize(
    "noted", ["", "5", "5:", "five:" + "0" * 64, "5:" + "0" * 63, "5:" + "g" * 64, "-1:" + "0" * 64, "²:" + "0" * 64]
)
def test_since_something_else_is_misuse(arl: Arl, store: Path, noted: str) -> None:
    ended = arl("verify", "--db", store, f"--since={noted}", "--json")
    assert (ended.code, ended.error["code"]) == (2, "usage")


def test_inclusion_prints_a_proof_that_checks_out_without_the_store(arl: Arl, store: Path) -> None:
    proof = arl("verify", "--db", store, "--inclusion", 7, "--json").json
    leaf = hashlib.sha256(b"\0" + proof["envelope"].encode()).digest()
    assert leaf.hex() == proof["leaf_hash_hex"]
    siblings = [bytes.fromhex(sibling) for sibling in proof["proof_hex"]]
    assert verify_inclusion(leaf, 7, proof["size"], siblings, bytes.fromhex(proof["root_hex"]))
    assert not verify_inclusion(leaf, 8, proof["size"], siblings, bytes.fromhex(proof["root_hex"]))
    assert proof["valid"] is True
    out = arl("verify", "--db", store, "--inclusion", 7).out
    assert all(sibling in out for sibling in proof["proof_hex"])


def test_inclusion_of_a_leaf_that_is_not_there_is_misuse(arl: Arl, store: Path) -> None:
    ended = arl("verify", "--db", store, "--inclusion", 4000, "--json")
    assert (ended.code, ended.error["code"]) == (2, "no_leaf")
    assert arl("verify", "--db", store, "--inclusion", 1, "--since", "0:" + "0" * 64, "--json").code == 2


def test_inclusion_in_a_log_whose_leaf_was_changed_is_tampered(arl: Arl, store: Path) -> None:
    edit(store, "DROP TRIGGER events_no_update")
    assert arl("verify", "--db", store, "--inclusion", 7, "--json").code == 6


def test_actions_are_counted_and_a_forged_one_is_listed(arl: Arl, db: Path) -> None:
    stories = Stories(db)
    stories.available("one")
    stories.ledger.close()
    told = "actions  1\nwitness  no witness: a restored older copy of this database is not noticed\n"
    assert told in arl("verify", "--db", db).out
    found = arl("verify", "--db", db, "--json").json
    assert (found["actions"], found["witness"]) == (1, "none")
    edit(db, "UPDATE actions SET state = 'revoked', revoked = 1")
    ended = arl("verify", "--db", db)
    assert ended.code == 6
    assert "says state 'revoked', the log 'available'" in ended.out
