"""Random stories of effects, killed life after life: a slice of the campaign, and what its judges notice."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.campaign.effect_playing import EffectsFailed, against_the_target, against_the_told, play_effects
from tests.campaign.effect_roles import Sent
from tests.campaign.effect_stories import FARTHEST, effect_story_of
from tests.campaign.effects import Effects
from tests.fault.effect_kit import BEFORE_THE_CLAIM, Line, broken

pytestmark = pytest.mark.fault

SLICE = (3, 7, 12)
CAMPAIGN = int(os.environ.get("ARL_CAMPAIGN", "1"))
KEY, CLAIM = "key-0", "c1"


@pytest.mark.parametrize("seed", SLICE)
def test_a_story_of_the_slice_holds(seed: int, tmp_path: Path) -> None:
    told = play_effects(seed, below=tmp_path)
    assert told["lives"] == len(effect_story_of(seed).lives)
    assert sum(count for name, count in told.items() if name.startswith("kills ")) >= 1
    assert told["claims"] >= told["permits"] >= told["effects"] >= 1
    assert list(tmp_path.iterdir()) == [], "a story that holds leaves nothing behind"


@pytest.mark.campaign
def test_stories_that_nobody_has_seen_hold(tmp_path: Path) -> None:
    """Other seeds each time; a failure names its own."""
    seeds = random.SystemRandom().sample(range(10**6, 10**9), 20 * CAMPAIGN)
    assert sum(play_effects(seed, below=tmp_path)["effects"] for seed in seeds) > 0


def test_stories_are_played_at_once_and_counted(tmp_path: Path, root: Path) -> None:
    words = ("-m", "tests.campaign.effects", "--first-seed", "20", "--stories", "2", "--dir", str(tmp_path))
    done = subprocess.run([sys.executable, *words], cwd=root, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "2 of 2 stories of effects" in done.stderr
    figures = json.loads(done.stdout)
    assert (figures["stories"], figures["seeds"], figures["failures"]) == (2, [20, 21], 0)
    assert figures["kills_by_point"].keys() == FARTHEST.keys()
    assert sum(figures["kills_by_point"].values()) == figures["kills"]
    assert sum(figures["ends"].values()) == figures["actions"]
    assert figures.keys() == Effects(seeds=(1, 1)).figures.keys()


# -- a wrong ledger is noticed -----------------------------------------------------------------------------------------


def _tells_before_it_commits() -> None:
    """A store that rolls back now and then, and says that it committed."""
    from agent_run_ledger.store.sqlite_writer import SqliteWriter

    commit, commits = SqliteWriter._commit, iter(range(1_000_000))

    def wrong(self: SqliteWriter, cursor: Any, op_id: bytes) -> None:
        if next(commits) % 3 == 2:
            cursor.execute("ROLLBACK")
        else:
            commit(self, cursor, op_id)

    SqliteWriter._commit = wrong  # type: ignore[method-assign]


def _takes_no_evidence() -> None:
    """Rules by which an executed action can be closed as not executed, and a claim be no business of its worker."""
    from agent_run_ledger.kernel.effects import Event, reducer
    from tests.campaign import effect_roles

    reducer.GUARDS[Event.NOT_EXECUTED] = ()
    effect_roles.sent = lambda _: []  # type: ignore[assignment]


@pytest.mark.parametrize(
    ("breaks", "words"),
    [(_tells_before_it_commits, "which is not on record"), (_takes_no_evidence, "is not_executed on record, and it")],
)
def test_a_ledger_that_is_wrong_is_noticed_and_the_failure_says_how_to_play_it_again(
    tmp_path: Path, breaks: Any, words: str
) -> None:
    said = ""
    for seed in range(1, 12):
        try:
            play_effects(seed, below=tmp_path, breaks=breaks)
        except EffectsFailed as error:
            said = str(error)
        if words in said:
            break
    assert words in said
    assert f"again, alone: .venv/bin/python -m tests.campaign.effects --seed {seed} --times 10" in said


# -- each judge notices what it is there for ---------------------------------------------------------------------------


def _line(leaf: int, kind: str, old: str, action: str = "a1", **row: Any) -> Line:
    whole = {**BEFORE_THE_CLAIM, "action_id": action, "action_key": KEY, "state": old, **row}
    return Line(leaf=leaf, op_id=bytes(16), action_id=action, command={"class": kind}, old=old, row=whole)


CLAIMED: dict[str, Any] = {"state": "claimed", "generation": 1, "claim_id": CLAIM, "worker": "w"}
PREPARED = {**CLAIMED, "state": "prepared", "prepare_leaf": True}
HANDED = {**PREPARED, "handed_out": True}
WHOLE = [
    _line(0, "Propose", "", state="proposed"),
    _line(1, "Approve", "proposed", state="available"),
    _line(2, "Claim", "available", **CLAIMED),
    _line(3, "Prepare", "claimed", **PREPARED),
    _line(4, "HandOut", "prepared", **HANDED),
    _line(5, "Doubt", "prepared", **{**HANDED, "state": "unresolved"}),
]
DONE = _line(6, "Success", "unresolved", **{**HANDED, "state": "succeeded", "evidence": ["e"]})

BROKEN: dict[str, tuple[list[Line], str]] = {
    "claimed twice": ([*WHOLE[:3], _line(3, "Claim", "available", "a2", **{**CLAIMED, "claim_id": "c2"})], "(1)"),
    "claimed again": ([*WHOLE[:3], _line(3, "Claim", "claimed", **{**CLAIMED, "claim_id": "c2"})], "(6)"),
    "a permit of nothing prepared": ([*WHOLE[:3], _line(3, "HandOut", "claimed", **HANDED)], "(3)"),
    "a permit twice": ([*WHOLE[:5], _line(5, "HandOut", "prepared", **HANDED)], "(5)"),
    "two permits of one claim": (
        [*WHOLE[:5], _line(5, "Prepare", "prepared", **PREPARED), _line(6, "HandOut", "prepared", **HANDED)],
        "(5)",
    ),
    "a generation that falls": (
        [
            *WHOLE[:2],
            _line(2, "Claim", "available", **{**CLAIMED, "generation": 2}),
            _line(3, "Claim", "available", "a2", **CLAIMED),
        ],
        "(6)",
    ),
    "a generation out of nothing": ([*WHOLE[:2], _line(2, "Approve", "available", **CLAIMED)], "(6)"),
    "a doubt that ends by itself": (
        [*WHOLE, _line(6, "Expire", "unresolved", **{**HANDED, "state": "expired"})],
        "(8)",
    ),
    "a doubt that ends without evidence": (
        [*WHOLE, _line(6, "Success", "unresolved", **{**HANDED, "state": "succeeded"})],
        "(8)",
    ),
    "a way back": ([*WHOLE, _line(6, "Doubt", "unresolved", **{**HANDED, "state": "available"})], "back to available"),
}


def test_a_whole_log_breaks_nothing() -> None:
    effects = [Sent(key=KEY, generation=1, claim_id=CLAIM)]
    lines = [*WHOLE, DONE]
    told = [["granted", KEY, "1", "w"], ["permit", KEY, "1", "w"], ["refused", "claimed", "v", ""]]
    assert [*broken(lines), *against_the_target(lines, effects), *against_the_told(lines, told)] == []


@pytest.mark.parametrize("name", BROKEN)
def test_a_log_that_breaks_an_invariant_is_noticed(name: str) -> None:
    lines, words = BROKEN[name]
    assert any(words in said for said in broken(lines)), list(broken(lines))


def test_the_target_knows_what_happened() -> None:
    one = Sent(key=KEY, generation=1, claim_id=CLAIM)
    closed = [*WHOLE, _line(6, "NotExecuted", "unresolved", **{**HANDED, "state": "not_executed", "evidence": ["e"]})]
    said = Counter(
        words.rpartition(" ")[2]
        for lines, effects in (
            ([*WHOLE[:4]], [one]),
            (closed, [one]),
            ([*WHOLE, DONE], []),
            ([*WHOLE, DONE], [one, one]),
        )
        for words in against_the_target(lines, effects)
    )
    assert said == Counter(["(3)", "(9)", "(8)", "times"])


def test_what_was_told_must_be_on_record_once() -> None:
    granted = ["granted", KEY, "1", "w"]
    assert [words[-3:] for words in against_the_told(WHOLE[:2], [granted])] == ["(2)"]
    assert [words[-3:] for words in against_the_told(WHOLE, [granted, granted])] == ["(5)"]
    assert [words[-3:] for words in against_the_told(WHOLE, [granted, ["granted", KEY, "1", "v"]])] == ["(2)", "(1)"]
