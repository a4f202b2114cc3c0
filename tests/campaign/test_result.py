"""The result file of the last campaign is one that counts, and the page shows just that."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agent_run_ledger.testing import ALL
from tests.campaign.effect_stories import FARTHEST
from tests.campaign.effects import Effects
from tests.campaign.figures import TABLE_BEGINS, figures_of, table_of, with_table
from tests.campaign.playing import Told
from tests.simulation.__main__ import Simulated

LEAST_KILLS, LEAST_AGENTS, LEAST_EFFECT_KILLS = 300, 2_000, 500


@pytest.fixture(scope="module")
def figures(root: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((root / "bench" / "results" / "campaign.json").read_text(encoding="utf-8"))
    return found


def test_enough_were_killed_everywhere_and_nothing_failed(figures: dict[str, Any]) -> None:
    assert figures["kills"] >= LEAST_KILLS
    assert figures["failures"] == 0
    assert sum(figures["kills_by_point"].values()) == figures["kills"]
    assert figures["kills_by_point"].keys() == {*ALL, "instant"}
    assert min(figures["kills_by_point"].values()) > 0
    assert figures["killed_while_a_reader_looked"] > 0


def test_its_figures_agree_with_each_other(figures: dict[str, Any]) -> None:
    first, last = figures["seeds"]
    assert figures["stories"] == last - first + 1
    assert figures["lives"] >= 4 * figures["stories"]
    assert figures["processes"] >= figures["kills"] + figures["not_reached"]
    cancelled = figures["acts"].get("cancel", 0)  # of such a run up to 8 calls stay in flight
    assert figures["bodies"] >= figures["recorded"] > 0
    assert figures["bodies"] <= figures["recorded"] + figures["errors"] + figures["abandoned"] + 8 * cancelled
    assert figures["restored"] > 0
    assert figures["abandoned"] > 0


def test_enough_agents_were_killed_and_nothing_failed(figures: dict[str, Any]) -> None:
    agents = figures["agents"]
    first, last = agents["seeds"]
    assert agents["failures"] == 0
    assert agents["programs"] == last - first + 1 >= LEAST_AGENTS
    assert agents["kills"] == sum(agents["kills_by_point"].values()) >= agents["programs"]
    assert agents["kills_by_point"].keys() == {*ALL, "line"}
    assert sum(agents["ends"].values()) == agents["programs"]
    assert min(agents[what] for what in ("restored", "outcomes_unknown", "divergences")) > 0
    assert agents["lives"] >= agents["kills"] + agents["not_reached"]


def test_enough_processes_were_killed_within_effects_and_nothing_failed(figures: dict[str, Any]) -> None:
    effects = figures["effects"]
    first, last = effects["seeds"]
    assert effects["failures"] == 0
    assert effects["stories"] == last - first + 1
    assert effects["kills"] == sum(effects["kills_by_point"].values()) >= LEAST_EFFECT_KILLS
    assert effects["kills_by_point"].keys() == FARTHEST.keys()
    assert min(effects["kills_by_point"].values()) > 0
    assert effects["processes"] >= effects["kills"] + effects["not_reached"]
    assert effects["claims"] >= effects["permits"] >= effects["effects"] > 0
    assert effects["ends"]["succeeded"] == effects["effects"]
    assert sum(effects["ends"].values()) == effects["actions"]


def test_it_has_the_fields_that_a_campaign_writes_today(figures: dict[str, Any]) -> None:
    agents = Simulated(seeds=(1, 1)).figures
    effects = Effects(seeds=(1, 1)).figures
    today = figures_of(Told(), seeds=(1, 1), failures=0, duration_s=0.0, agents=agents, effects=effects)
    assert list(figures) == list(today)
    assert list(figures["agents"]) == list(agents)
    assert list(figures["effects"]) == list(effects)
    assert list(figures["versions"]) == list(today["versions"])


def test_the_page_shows_the_result(root: Path, figures: dict[str, Any]) -> None:
    page = (root / "docs" / "internals" / "campaign.md").read_text(encoding="utf-8")
    assert page.count(TABLE_BEGINS) == 1
    assert table_of(figures) in page
    assert with_table(page, figures) == page
    assert with_table(page, {**figures, "kills": 7}) != page
