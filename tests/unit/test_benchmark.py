"""The benchmark's arithmetic and outputs, on numbers that are given; nothing here looks at a clock."""

from __future__ import annotations

import itertools
import json
import re
from xml.etree import ElementTree

import pytest

from agent_run_ledger.benchmark.disk import Timed, quiet, quiet_pairs
from agent_run_ledger.benchmark.figures import Figure, Sense, Target, number
from agent_run_ledger.benchmark.plan import FULL, QUICK
from agent_run_ledger.benchmark.report import Report, verdict
from agent_run_ledger.benchmark.svg import BAR_WIDTH, SHOWN_REACH, bar_width, picture

AT_LEAST_HALF = Target(sense=Sense.AT_LEAST, limit=0.5, of_ratio=True, note="aim 0.60")
AT_MOST_TEN = Target(sense=Sense.AT_MOST, limit=10)
NONE_AT_ALL = Target(sense=Sense.AT_MOST, limit=0)


def speed(value: float, floor: float = 100.0, *, enough: bool = True) -> Figure:
    return Figure(
        name="speed & <haste>",
        value=value,
        unit="steps/s",
        floor=floor,
        target=AT_LEAST_HALF,
        enough=enough,
        note="why",
    )


def cost(value: float, target: Target | None = AT_MOST_TEN) -> Figure:
    return Figure(name="cost", value=value, unit="µs", target=target)


@pytest.mark.parametrize(
    ("figure", "met"),
    [
        (speed(50.0), True),
        (speed(49.9), False),
        (speed(5_000.0), True),
        (speed(80.0, enough=False), None),
        (Figure(name="x", value=90.0, unit="", floor=100.0, ratio=0.4, target=AT_LEAST_HALF), False),
        (Figure(name="x", value=90.0, unit="", target=AT_LEAST_HALF), None),
        (cost(10.0), True),
        (cost(10.1), False),
        (cost(1e9, target=None), None),
        (cost(0.0, target=NONE_AT_ALL), True),
        (cost(1.0, target=NONE_AT_ALL), False),
    ],
)
def test_a_target_is_met_on_its_own_side_of_the_limit(figure: Figure, met: bool | None) -> None:
    assert figure.met is met


def test_the_ratio_is_value_to_floor_unless_a_better_one_was_measured() -> None:
    assert speed(60.0, 120.0).ratio_to_floor == 0.5
    assert Figure(name="x", value=60.0, unit="", floor=120.0, ratio=0.7).ratio_to_floor == 0.7
    assert Figure(name="x", value=60.0, unit="").ratio_to_floor is None
    assert Figure(name="x", value=60.0, unit="", floor=0.0).ratio_to_floor is None


@pytest.mark.parametrize(
    ("figure", "reach"),
    [
        (speed(50.0), 1.0),
        (speed(100.0), 2.0),
        (cost(10.0), 1.0),
        (cost(20.0), 0.5),
        (cost(0.0), None),
        (cost(3.0, target=NONE_AT_ALL), 0.0),
        (cost(3.0, target=None), None),
    ],
)
def test_reach_is_one_exactly_where_a_target_is_just_met(figure: Figure, reach: float | None) -> None:
    assert figure.reach == reach


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0, "0"),
        (6499.4, "6,499"),
        (100.0, "100"),
        (99.94, "99.9"),
        (10.0, "10"),
        (2.253, "2.25"),
        (1.0, "1"),
        (0.5, "0.5"),
        (0.35, "0.35"),
        (0.0123, "0.012"),
        (0.00123, "0.0012"),
        (-5.5, "-5.5"),
        (40_000, "40,000"),
    ],
)
def test_numbers_are_written_for_people(value: float, shown: str) -> None:
    assert number(value) == shown


def timed(*pairs: tuple[float, float]) -> list[Timed[int]]:
    return [Timed(pair=at, before_us=before, after_us=after) for at, (before, after) in enumerate(pairs)]


def test_a_pair_is_dropped_when_the_disk_was_slow_before_or_after_it() -> None:
    measured = timed((60.0, 61.0), (90.0, 60.0), (90.1, 60.0), (60.0, 90.1), (70.0, 89.9))
    assert [one.pair for one in quiet(measured)] == [0, 1, 4]


def test_a_quicker_disk_later_in_the_run_makes_the_earlier_pairs_noisy() -> None:
    assert [one.pair for one in quiet(timed((100.0, 100.0), (60.0, 60.0)))] == [1]


def test_no_pair_is_quiet_when_the_disk_changed_within_each() -> None:
    assert quiet(timed((60.0, 200.0))) == []
    assert quiet([]) == []


def test_pairs_are_measured_until_enough_were_quiet() -> None:
    samples = iter([60.0, 61.0, 60.0, 300.0, 60.0, 62.0])
    kept, all_of_them = quiet_pairs(lambda at: at, lambda: next(samples), wanted=2, at_most=9)
    assert [one.pair for one in kept] == [0, 2]
    assert len(all_of_them) == 3


def test_measuring_ends_when_the_disk_never_gets_quiet() -> None:
    samples = itertools.cycle([60.0, 300.0])
    kept, all_of_them = quiet_pairs(lambda at: at, lambda: next(samples), wanted=2, at_most=4)
    assert kept == []
    assert [one.pair for one in all_of_them] == [0, 1, 2, 3]


@pytest.fixture
def report() -> Report:
    figures = [speed(60.0), cost(11.0), cost(5.0, target=None), speed(90.0, enough=False)]
    return Report(plan="quick", machine={"python": "3.x", "filesystem": "ext4"}, figures=figures, raw={"pairs": [1, 2]})


def test_json_holds_each_figure_with_floor_ratio_target_and_verdict(report: Report) -> None:
    content = json.loads(report.as_json())
    assert content["figures"][0] == {
        "name": "speed & <haste>",
        "value": 60.0,
        "unit": "steps/s",
        "floor": 100.0,
        "ratio": 0.6,
        "target": "≥ 0.5 × floor (aim 0.60)",
        "met": True,
        "note": "why",
    }
    assert [figure["met"] for figure in content["figures"]] == [True, False, None, None]
    assert content["missed"] == ["cost"]
    assert content["machine"]["filesystem"] == "ext4"
    assert content["raw"] == {"pairs": [1, 2]}


def test_the_table_shows_the_floor_beside_the_value_and_the_misses_plainly(report: Report) -> None:
    lines = report.as_table().splitlines()
    assert re.split(r" {2,}", lines[2]) == ["speed & <haste>", "60 steps/s", "100", "0.60", str(AT_LEAST_HALF), "yes"]
    assert lines[3].split() == ["cost", "11", "µs", "–", "–", "≤", "10", "NO"]
    assert lines[4].split() == ["cost", "5", "µs", "–", "–", "–", "–"]
    assert "  speed & <haste>: why" in lines
    assert lines[-1] == "1 of 2 targets met. MISSED: cost. Too noisy to judge: speed & <haste>."


def test_the_table_fits_the_terminal_and_loses_nothing(report: Report, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert max(map(len, report.as_table().splitlines())) <= 80
    narrow, wide = report.as_table(60), report.as_table(10_000)
    assert max(map(len, narrow.splitlines())) <= 62
    assert sorted(re.sub("─+", "", narrow).split()) == sorted(re.sub("─+", "", wide).split())


def test_the_verdict_counts_only_what_has_a_target_and_enough_pairs(report: Report) -> None:
    assert verdict(report.figures).startswith("1 of 2 targets met.")
    assert verdict([speed(60.0)]) == "1 of 1 targets met."


def test_the_picture_is_well_formed_and_has_a_bar_for_each_target(report: Report) -> None:
    root = ElementTree.fromstring(picture(report.figures, caption="a < b"))
    bars = [element for element in root if element.tag.endswith("rect")][1:]
    assert len(bars) == 3
    words = [element.text for element in root if element.tag.endswith("text")]
    assert "speed & <haste>" in words
    assert "a < b" in words
    assert "floor 100, 0.60 × it" in words


def test_a_bar_ends_at_the_line_when_the_target_is_just_met_and_never_leaves_the_picture() -> None:
    assert bar_width(speed(50.0)) == BAR_WIDTH / SHOWN_REACH
    assert bar_width(speed(5e9)) == BAR_WIDTH
    assert bar_width(cost(0.0, target=NONE_AT_ALL)) == BAR_WIDTH
    assert bar_width(cost(3.0, target=NONE_AT_ALL)) == 0.0


def test_the_full_plan_has_the_sizes_that_the_targets_are_about() -> None:
    assert (FULL.steps, FULL.processes, FULL.recorded, FULL.recorded_many, FULL.leaves) == (
        1_000,
        8,
        900,
        10_000,
        100_000,
    )
    assert FULL.step_pairs >= 9
    assert QUICK.steps == FULL.steps
