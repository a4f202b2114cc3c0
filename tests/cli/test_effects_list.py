"""`arl effects list` and `show`: the inbox and the story, told safely and without changing anything."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from agent_run_ledger.effects import Call, TargetClass, request_bytes
from agent_run_ledger.testing import check_ledger
from tests.cli.conftest import Arl, is_safe
from tests.cli.effect_store import HOSTILE_KEY, HOSTILE_NAME, REV, Effects


@pytest.fixture
def effects(db: Path) -> Effects:
    return Effects(db)


def keys(arl: Arl, *options: object) -> list[str]:
    ended = arl("effects", "list", *options, "--json")
    assert ended.code == 0, ended.err
    return [one["key"] for one in ended.json["actions"]]


def test_the_inbox_has_open_actions_by_age_and_the_doubts_alone(arl: Arl, effects: Effects) -> None:
    effects.succeeded("done")
    effects.silent("silent")
    effects.propose("new")
    effects.doubted("doubted")
    assert keys(arl, "--db", effects.path) == ["silent", "new", "doubted"]
    assert keys(arl, "--db", effects.path, "--doubt") == ["silent", "doubted"]
    assert keys(arl, "--db", effects.path, "--state", "proposed", "--state", "succeeded") == ["done", "new"]
    assert keys(arl, "--db", effects.path, "--key", "doubted") == ["doubted"]
    assert keys(arl, "--db", effects.path, "--key", "none") == []
    assert keys(arl, "--db", effects.path, "--limit", "1") == ["silent"]


def test_each_line_says_age_state_target_class_evidence_and_what_next_by_whom(arl: Arl, effects: Effects) -> None:
    view = effects.silent("refund:1")
    ended = arl("effects", "list", "--db", effects.path)
    line = ended.out.splitlines()[2]
    assert re.search(r"claimed .*s +" + view.action_id.hex()[:13] + r" +refund:1 +prepared, its worker is silent", line)
    assert re.search(r"https://pay\.example +v +1 +none +record the doubt: its worker is silent \(.*operator", line)
    assert f"arl effects show {view.action_id.hex()} --db {effects.path}" in ended.err


def test_the_json_of_an_action_is_whole(arl: Arl, effects: Effects) -> None:
    view = effects.doubted("refund:1")
    ended = arl("effects", "list", "--doubt", "--db", effects.path, "--json")
    (one,) = ended.json["actions"]
    assert (one["action_id"], one["state"]) == (view.action_id.hex(), "unresolved")
    assert (one["class"], one["generation"]) == ("v", 1)
    assert (one["stranded"], one["drain"], one["observation"], one["evidence"]) == (False, None, None, [])
    assert one["age_ms"] >= 0
    assert one["not_protected"] == ["no witness: a restored older copy of this database is not noticed"]
    steps = {way["step"]: way for way in one["next"]}
    assert one["next"][0]["step"] == "look"
    assert steps["did_not_happen"]["refused"] == "no_drain"
    assert steps["look"]["not_by"] == ["payer"]
    assert steps["look"]["roles"] == ["reconciler"]
    assert steps["look"]["command"].startswith("arl effects observe")
    assert ended.json["more"] is False


def test_more_than_the_limit_is_said(arl: Arl, effects: Effects) -> None:
    for number in range(3):
        effects.propose(f"k{number}")
    ended = arl("effects", "list", "--limit", "2", "--db", effects.path)
    assert "there are more: --limit 20" in ended.err
    assert arl("effects", "list", "--limit", "2", "--db", effects.path, "--json").json["more"] is True
    assert "there are more" not in arl("effects", "list", "--limit", "3", "--db", effects.path).err


def test_an_empty_inbox_says_of_what(arl: Arl, effects: Effects) -> None:
    assert arl("effects", "list", "--db", effects.path).out == f"no open actions in {effects.path}\n"
    assert arl("effects", "list", "--doubt", "--db", effects.path).out.startswith("nothing in doubt in")
    assert arl("effects", "list", "--state", "expired", "--db", effects.path).out.startswith("no expired actions in")


def test_the_doubts_and_states_are_not_asked_for_at_once(arl: Arl, effects: Effects) -> None:
    ended = arl("effects", "list", "--doubt", "--state", "proposed", "--db", effects.path, "--json")
    assert (ended.code, ended.error["code"]) == (2, "usage")


def test_no_store_is_made_by_looking(arl: Arl, tmp_path: Path) -> None:
    for words in (("list",), ("show", "x"), ("doubt", "x"), ("observe", "x", "--found", "nothing")):
        ended = arl("effects", *words, "--db", tmp_path / "none.db", "--json")
        assert (ended.code, ended.error["code"]) == (1, "no_store")
    assert not (tmp_path / "none.db").exists()


def test_hostile_words_move_no_cursor_and_hide_nothing(arl: Arl, effects: Effects) -> None:
    bidi = request_bytes(Call.of("refund", {"to": "\u202egnp.exe"}))
    view = effects.propose(
        HOSTILE_KEY, audience=HOSTILE_NAME, preconditions=((HOSTILE_NAME, HOSTILE_NAME),), request=bidi
    )
    with effects.open() as ledger:
        ledger.revoke(REV, view.action_id)
    shown = [
        arl("effects", "list", "--state", "revoked", "--db", effects.path),
        arl("effects", "show", HOSTILE_KEY, "--db", effects.path),
        arl("effects", "show", view.action_id.hex(), "--db", effects.path),
        arl("effects", "doubt", HOSTILE_KEY, "--db", effects.path),
        arl("effects", "show", "no such \x1b[2J", "--db", effects.path),
    ]
    assert [ended.code for ended in shown] == [0, 0, 0, 1, 1]
    assert all(is_safe(ended.out) and is_safe(ended.err) for ended in shown)
    assert "\\x1b[2J" in shown[1].out
    assert "\\u{202e}gnp.exe" in shown[1].out


def test_on_a_narrow_terminal_nothing_of_it_is_cut(arl: Arl, effects: Effects, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    effects.doubted("refund:with a long key " + "x" * 70)
    out = arl("effects", "list", "--db", effects.path).out
    assert all(len(line) <= 60 for line in out.splitlines())
    assert "look at the target" in out.replace("\n", " ")
    assert out.count("x") >= 70


def test_the_story_tells_every_transition_the_request_and_what_is_missing(arl: Arl, effects: Effects) -> None:
    view = effects.doubted("refund:1", handed_out=True)
    out = arl("effects", "show", "refund:1", "--db", effects.path).out
    for words in (
        "refund:1: 1 member",
        f"1. {view.action_id.hex()}: in doubt since",
        "class    v: checks signature, expiry and epoch: a repeated delivery can happen twice",
        "approved finance (1 of 1 approval)",
        "beware   no witness: a restored older copy of this database is not noticed",
        "POST /refunds",
        '|   "key": "refund:1"',
        ": proposed, by agent",
        ": approved (1 of 1), by finance",
        ": claimed for host-1/4711 as generation 1, by payer",
        ": prepared, its permit lives until",
        ": permit handed out, by payer",
        ": doubt recorded for an operator, by ops",
        "look at the target, and record what is there (reconciler, not payer): arl effects observe",
        "not now: decide that it did not happen: nothing on record shows that nothing more can arrive (no_drain)",
    ):
        assert words in out, words


def test_a_probe_on_record_is_told_as_what_it_can_show(arl: Arl, effects: Effects) -> None:
    view = effects.doubted("refund:1")
    who = ("--as", "payer", "--role", "executor", "--db", effects.path)
    did = arl("effects", "observe", "refund:1", "--found", "nothing", *who)
    assert did.code == 0, did.err
    out = arl("effects", "show", view.action_id.hex(), "--db", effects.path).out
    assert "payer looked and saw nothing, with no drain on record before (its own executor's look or probe" in out
    assert "a success may rest on it, never that nothing happened)" in out


def test_an_action_whose_display_is_not_the_approved_one_says_so(arl: Arl, effects: Effects) -> None:
    effects.propose("refund:1", display_sha256=bytes(32))
    effects.propose("raw", request=b"\x00\xff", display_sha256=bytes(32))
    assert (
        "THE APPROVED STATEMENT NAMES ANOTHER DISPLAY" in arl("effects", "show", "refund:1", "--db", effects.path).out
    )
    assert "2 bytes, no request of version 1" in arl("effects", "show", "raw", "--db", effects.path).out


def test_a_name_that_fits_nothing_or_several_is_refused(arl: Arl, effects: Effects) -> None:
    effects.propose("refund:1")
    ended = arl("effects", "show", "refund:2", "--db", effects.path, "--json")
    assert (ended.code, ended.error["code"]) == (1, "unknown_action")
    assert f"--db {effects.path}" in ended.error["hint"]


def test_looking_writes_nothing(arl: Arl, effects: Effects) -> None:
    effects.silent("refund:1")
    before = effects.leaves()
    for words in (("list",), ("list", "--doubt"), ("show", "refund:1"), ("show", "refund:1", "--json")):
        assert arl("effects", *words, "--db", effects.path).code == 0
    assert effects.leaves() == before
    check_ledger(effects.path)


def test_a_copy_is_told_as_one_and_can_be_looked_at(arl: Arl, effects: Effects, tmp_path: Path) -> None:
    effects.doubted("refund:1", TargetClass.F)
    copy = tmp_path / "copy.db"
    assert arl("backup", copy, "--db", effects.path).code == 0
    listed = arl("effects", "list", "--db", copy)
    assert "is a copy" in listed.err
    assert arl("effects", "list", "--db", copy, "--json").json["copy"]["copied_size"] > 0
    assert "ledger recovery as seen from here" in arl("effects", "show", "refund:1", "--db", copy).out
    refused = arl("effects", "reconcile", "refund:1", "--did-not-happen", "--as", "cat", "--db", copy, "--json")
    assert (refused.code, refused.error["code"]) == (7, "ledger_recovery")
