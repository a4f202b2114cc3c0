"""Random pipelines, killed life after life: a slice of the campaign, and stories that nobody has seen."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from tests.campaign import playing
from tests.campaign.__main__ import main
from tests.campaign.playing import play
from tests.campaign.seen import Seen, look
from tests.campaign.stories import story_of

SLICE = {222: 4, 134: 3, 72: 1}
"""Seeds, and how many kills at least: of two processes on one run either may be the one that dies, or only waits."""

CAMPAIGN = int(os.environ.get("ARL_CAMPAIGN", "1"))


@pytest.mark.fault
@pytest.mark.parametrize("seed", SLICE)
def test_a_story_of_the_slice_holds(seed: int, tmp_path: Path) -> None:
    told = play(seed, below=tmp_path)
    assert sum(told.kills.values()) >= SLICE[seed]
    assert told.counts["lives"] == len(story_of(seed).lives)
    assert told.counts["bodies"] >= told.counts["recorded"] > 0
    assert list(tmp_path.iterdir()) == [], "a story that holds leaves nothing behind"


@pytest.mark.campaign
def test_stories_that_nobody_has_seen_hold(tmp_path: Path) -> None:
    """Other seeds each time; a failure names its own."""
    seeds = random.SystemRandom().sample(range(10**6, 10**9), 4 * CAMPAIGN)
    assert sum(sum(play(seed, below=tmp_path).kills.values()) for seed in seeds) > 0


@pytest.mark.fault
def test_a_failure_names_its_seed_its_files_and_the_command_that_plays_it_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A ledger that forgets its completed runs."""

    def forgetful(folder: Path) -> dict[str, Seen]:
        return {run: seen for run, seen in look(folder).items() if seen.state != "completed"}

    monkeypatch.setattr(playing, "look", forgetful)
    results = tmp_path / "results.json"
    assert main(["--seed", "222", "--dir", str(tmp_path), "--json", str(results)]) == 1
    (kept,) = tmp_path.iterdir()
    said = capsys.readouterr().err
    for told in ("seed 222, life ", str(kept), "make campaign CAMPAIGN_ARGS='--seed 222 --times 10'", "1 failures"):
        assert told in said
    assert not results.exists(), "a campaign that failed is no result"
