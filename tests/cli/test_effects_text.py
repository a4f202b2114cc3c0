"""What the commands about effects print for people: in every state, and what is printed to be typed next."""

from __future__ import annotations

import re
import shlex
from itertools import pairwise
from pathlib import Path

import pytest

import agent_run_ledger
from agent_run_ledger import open_effects
from agent_run_ledger.cli.effects_done import FIRST
from agent_run_ledger.effects import ActionState, TargetClass
from agent_run_ledger.ledger.authority import actor_of
from agent_run_ledger.testing import check_ledger
from tests.cli.approval_desk import propose
from tests.cli.conftest import Arl, Ended
from tests.cli.effect_states import KEY, MADE
from tests.cli.effect_store import PAY, POLICY, Effects, described
from tests.cli.trusted_store import Trusted

INTERNAL = 70
OVER = {ActionState.SUCCEEDED, ActionState.SUPERSEDED, ActionState.WRITTEN_OFF}
TERMS = ("--key", KEY, "--target", PAY, "--executor", "payer", "--approval", POLICY, "--as", "agent")
LOOKS = (("effects", "show"), ("approvals", "show"))
DECISIONS = (
    ("effects", "observe", "--drain", "path-dead", "--covers", "every_executor", "--as", "cat"),
    ("effects", "observe", "--found", "unknown", "--as", "cat"),
    ("effects", "observe", "--found", "nothing", "--as", "cat"),
    ("effects", "observe", "--found", "executed", "--yes", "--as", "cat"),
    ("effects", "doubt", "--as", "ops"),
    ("effects", "doubt", "--expired", "--as", "ops"),
    ("effects", "expire", "--as", "ops"),
    ("effects", "reconcile", "--happened", "--as", "cat"),
    ("effects", "reconcile", "--did-not-happen", "--as", "cat"),
    ("effects", "reconcile", "--never-prepared", "--as", "cat"),
    ("effects", "reconcile", "--write-off", "--nobody-can-look", "--with", "dan", "--yes", "--as", "cat"),
    ("actions", "successor", "--as", "agent"),
)


@pytest.fixture
def effects(db: Path) -> Effects:
    return Effects(db)


def test_there_is_one_action_of_each_state() -> None:
    assert set(MADE) == set(ActionState)


@pytest.mark.parametrize("state", list(ActionState))
def test_every_state_can_be_told_and_asked_about_in_words(
    effects: Effects, arl: Arl, tmp_path: Path, state: ActionState
) -> None:
    view = MADE[state](effects, arl)
    db = ("--db", effects.path)
    listed = arl("effects", "list", "--state", state, *db)
    assert listed.code == 0, listed.err
    assert view.action_id.hex()[:13] in listed.out
    assert ("nothing: it is over" in listed.out.replace("\n", " ")) is (state in OVER)
    for words in LOOKS:
        shown = arl(*words, view.action_id.hex(), *db)
        assert shown.code == 0, shown.err
    request = described(tmp_path, method="POST", path="/refunds", json={"key": KEY})
    asked = arl("actions", "propose", request, *TERMS, *db)
    assert "next: " in asked.out if asked.code == 0 else "error" in asked.err
    assert asked.code != INTERNAL, asked.err


@pytest.mark.parametrize("words", DECISIONS, ids=" ".join)
@pytest.mark.parametrize("state", list(ActionState))
def test_every_decision_in_every_state_ends_in_words(
    effects: Effects, arl: Arl, state: ActionState, words: tuple[str, ...]
) -> None:
    view = MADE[state](effects, arl)
    done = arl(*words[:2], view.action_id.hex(), *words[2:], "--db", effects.path)
    said_in_words(done)
    check_ledger(effects.path)


def said_in_words(done: Ended) -> None:
    """It was done, with what leads on, or refused, with nothing done."""
    if done.code == 0:
        assert done.out.splitlines()[-1].startswith("next: ")
    else:
        assert done.code != INTERNAL, done.err
        assert (done.out, done.err.startswith("error: ")) == ("", True)
        hinted = re.findall(r"`(arl [^`]*)`", done.err)
        assert all(is_plain(line) and not told_for(line) for line in hinted), done.err


def test_a_doubt_that_is_decided_as_happened_says_that_it_is_over(effects: Effects, arl: Arl) -> None:
    effects.doubted(KEY)
    db = ("--as", "cat", "--db", effects.path)
    assert arl("effects", "observe", KEY, "--found", "executed", "--yes", *db).code == 0
    done = arl("effects", "reconcile", KEY, "--happened", *db)
    assert done.code == 0, done.err
    assert done.out.splitlines()[1:] == ["it is succeeded", "next: nothing: it is over"]


# -- what is printed to be typed next ---------------------------------------------------------------------------------

PLACES = {"WHAT", "WHOSE", "DRAIN", "NAME", "FILE"}
ATTESTS = re.compile(r"--(?:found|covers|after|with|with-key)[ =]([^\s`,;]+)")


def told_for(line: str) -> set[str]:
    """What a line to be typed would say for who types it: what they saw, whose way is dead, who decides with them."""
    return set(ATTESTS.findall(line)) - PLACES


def printed(arl: Arl, effects: Effects, action_id: str) -> list[str]:
    """Every command that looking at an action prints: in the text of both commands, and in its JSON."""
    db = ("--db", effects.path)
    shown, listed = arl("effects", "show", action_id, *db), arl("effects", "list", "--key", KEY, *db)
    found = re.findall(r": (arl .*)$", f"{shown.out}{listed.out}{listed.err}", re.MULTILINE)
    told = arl("effects", "show", action_id, *db, "--json").json["members"]
    ways = [way["command"] for one in told for way in one["next"]]
    assert {line for line in found if " show " not in line} <= set(ways)
    return [*found, *filter(None, ways)]


def is_plain(line: str) -> bool:
    """Whether a shell reads a line as one command, and gives its words back as they are."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    return list(lexer) == shlex.split(line) == line.split() and not set(line) & set("|&;<>()$`\\\"'*?[]#~!{}\n")


@pytest.mark.parametrize("state", list(ActionState))
def test_what_is_printed_to_be_typed_is_one_command_and_says_nothing_for_anybody(
    effects: Effects, arl: Arl, state: ActionState
) -> None:
    view = MADE[state](effects, arl)
    lines = printed(arl, effects, view.action_id.hex())
    assert all(is_plain(line) for line in lines), lines
    assert lines or state in OVER
    before = effects.leaves()
    for line in filter(PLACES.intersection, map(str.split, lines)):
        assert arl(*line[1:], "--as", "cat").code != 0, line
    assert effects.leaves() == before


def test_words_that_stand_for_something_decide_nothing(effects: Effects, arl: Arl) -> None:
    view = effects.doubted(KEY)
    lines = set(printed(arl, effects, view.action_id.hex()))
    assert len([line for line in lines if PLACES & set(line.split())]) == 3
    before = effects.leaves()
    for line in lines:
        if PLACES & set(line.split()):
            assert arl(*line.split()[1:], *(["--yes"] * ("--write-off" in line)), "--as", "cat").code == 2, line
    assert effects.leaves() == before


def test_no_command_that_the_package_prints_says_what_only_a_person_knows() -> None:
    for path in Path(agent_run_ledger.__file__).parent.rglob("*.py"):
        for line in re.findall(r"`(arl [^`]*)`", path.read_text(encoding="utf-8")):
            assert not told_for(line), f"{path}: {line}"
    hints = " ".join(FIRST.values())
    assert {"WHAT", "WHOSE", "DRAIN"} <= set(ATTESTS.findall(hints)), hints


def test_a_hint_that_is_typed_as_it_stands_signs_nothing(arl: Arl, db: Path) -> None:
    """On one machine the operator's key is meant, and nothing asks who pastes a line."""
    assert arl("init", "--local", "--name", "ann", "--db", db).code == 0
    view = propose(db, KEY, target_class=TargetClass.N)
    assert arl("approvals", "grant", KEY, "--yes", "--db", db).code == 0
    with open_effects(db) as ledger:
        assert ledger.trust is not None
        worker = actor_of(ledger.trust, "worker")
        claim = ledger.claim(worker, view.action_id, worker="w", request_sha256=view.request_sha256)
        ledger.prepare(worker, view.action_id, claim_id=claim.claim_id, worker="w")
    assert arl("effects", "doubt", KEY, "--db", db).code == 0
    typed: list[str] = []
    for words in (
        ("reconcile", KEY, "--did-not-happen"),
        ("reconcile", KEY, "--happened"),
        ("observe", KEY, "--drain", "expiry"),
    ):
        refused = arl("effects", *words, "--db", db)
        assert refused.code == 1, refused
        typed += re.findall(r"`(arl [^`]*)`", refused.err)
    assert {"--covers WHOSE", "--found WHAT"} <= {" ".join(pair) for line in typed for pair in pairwise(line.split())}
    for line in typed:
        assert arl(*line.split()[1:]).code != 0, line
    with open_effects(db) as ledger:
        assert ledger.get(view.action_id).state is ActionState.UNRESOLVED
    assert arl("effects", "show", KEY, "--db", db, "--json").json["members"][0]["drain"] is None


def test_the_drain_before_a_look_is_not_filled_in(effects: Effects, arl: Arl) -> None:
    view = effects.doubted(KEY)
    drain = ("effects", "observe", KEY, "--drain", "expiry", "--as", "cat", "--db", effects.path, "--json")
    evidence = arl(*drain).json["evidence_id"]
    lines = [line for line in printed(arl, effects, view.action_id.hex()) if " --found " in line]
    assert lines
    for line in lines:
        assert f" {view.action_id.hex()} --found WHAT --after DRAIN" in line
        assert evidence[:8] not in line
    before = effects.leaves()
    typed = lines[0].replace("WHAT", "nothing").split()[1:]
    assert arl(*typed, "--as", "cat").code == 2
    assert effects.leaves() == before


def test_under_a_trust_file_what_people_decide_by_keys_has_its_command(
    tmp_path: Path, arl: Arl, monkeypatch: pytest.MonkeyPatch
) -> None:
    effects = Trusted(tmp_path / "trusted.db")
    monkeypatch.setenv("AGENT_RUN_LEDGER_TRUST", str(effects.trust))
    view = effects.propose(KEY)
    lines = {" ".join(line.split()[1:3]) for line in printed(arl, effects, view.action_id.hex())}
    assert {"approvals grant", "approvals reject", "approvals revoke"} <= lines
    assert arl("approvals", "grant", KEY, "--db", effects.path, "--key", effects.key("ann"), "--yes").code == 0
    lines = {" ".join(line.split()[1:3]) for line in printed(arl, effects, view.action_id.hex())}
    assert "approvals revoke" in lines
    assert "approvals grant" not in lines
