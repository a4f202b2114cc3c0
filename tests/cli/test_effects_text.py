"""What the commands about effects print for people: in every state, and what is printed to be typed next."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent_run_ledger.effects import ActionState
from agent_run_ledger.testing import check_ledger
from tests.cli.conftest import Arl, Ended
from tests.cli.effect_states import KEY, MADE
from tests.cli.effect_store import PAY, POLICY, Effects, described

INTERNAL = 70
OVER = {ActionState.SUCCEEDED, ActionState.SUPERSEDED, ActionState.WRITTEN_OFF}
TERMS = ("--key", KEY, "--target", PAY, "--executor", "payer", "--approval", POLICY, "--as", "agent")
LOOKS = (("effects", "show"), ("approvals", "show"))
DECISIONS = (
    ("effects", "observe", "--drain", "path-dead", "--covers", "every_executor", "--as", "cat"),
    ("effects", "observe", "--found", "unknown", "--as", "cat"),
    ("effects", "observe", "--found", "nothing", "--as", "cat"),
    ("effects", "observe", "--found", "executed", "--as", "cat"),
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


def test_a_doubt_that_is_decided_as_happened_says_that_it_is_over(effects: Effects, arl: Arl) -> None:
    effects.doubted(KEY)
    db = ("--as", "cat", "--db", effects.path)
    assert arl("effects", "observe", KEY, "--found", "executed", *db).code == 0
    done = arl("effects", "reconcile", KEY, "--happened", *db)
    assert done.code == 0, done.err
    assert done.out.splitlines()[1:] == ["it is succeeded", "next: nothing: it is over"]
