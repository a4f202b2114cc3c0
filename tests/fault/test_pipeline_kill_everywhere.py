"""Real pipelines are killed at every named point and go on: nothing recorded is lost or run twice."""

from __future__ import annotations

import os
from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest

from agent_run_ledger.kernel.record import RecordKind
from agent_run_ledger.testing import (
    Lives,
    Point,
    check_ledger,
    crash_everywhere,
    no_body_without_a_start,
    recorded_calls,
    what_was_in_flight_is_abandoned,
)

pytestmark = pytest.mark.fault

PROGRAMS = Path(__file__).resolve().parent.parent / "scenario" / "programs" / "pipelines.py"
CAMPAIGN = int(os.environ.get("ARL_CAMPAIGN", "1"))

# Every kill between the engine's own acts is made; of the many writes of SQLite a campaign looks at more and more.
DISK_KILLS = {
    Point.WAL_WRITE: 6 * CAMPAIGN,
    Point.WAL_SYNC: 4 * CAMPAIGN,
    Point.FILE_WRITE: 2 * CAMPAIGN,
    Point.FILE_SYNC: 2,
}

RESULTS = {
    "chain": "3 texts cost 3",
    "fan": "(15, 5, {1, 3, 5})",
    "asynchronous": [21, 40, -20],
    "retrying": "<50>",
    "streaming": "WORD AFTER WORD",
}
BODIES_IN_ONE_LIFE = {"flaky": 3}


def _directories(root: Path) -> Callable[[], Path]:
    numbers = count()

    def make() -> Path:
        folder = root / str(next(numbers))
        folder.mkdir()
        return folder

    return make


def _check(lives: Lives) -> None:
    no_body_without_a_start(lives)
    what_was_in_flight_is_abandoned(lives)
    bodies = lives.bodies.count(life=2)
    for name, ran in bodies.items():
        assert ran <= BODIES_IN_ONE_LIFE.get(name, 1), f"{name} ran {ran} times in the second life"
    before = {call for call in lives.recorded if call.kind is RecordKind.RESULT}
    after = recorded_calls(lives.ledger, kinds=(RecordKind.RESULT,))
    assert before <= set(after), "a recorded result was lost or changed"
    assert len(after) == len({call.name for call in after}), "a step has two results"
    assert all(call.attempt > 1 for call in set(after) - before) or not before | set(lives.in_flight)


@pytest.mark.parametrize("pipeline", list(RESULTS))
def test_killed_at_every_point_it_goes_on_and_repeats_nothing_recorded(pipeline: str, tmp_path: Path) -> None:
    summary = crash_everywhere(
        f"{PROGRAMS}:{pipeline}",
        _directories(tmp_path),
        most_per_point=DISK_KILLS,
        check=_check,
        at_once=2,
    )
    missing = {str(point) for point in Point} - {point for point, kills in summary.kills.items() if kills}
    assert not missing, f"never killed at {missing}"
    assert summary.not_reached <= summary.total // 4  # commits of parallel steps fuse as they happen to end


@pytest.mark.parametrize("pipeline", list(RESULTS))
def test_the_unkilled_life_returns_what_it_should(pipeline: str, tmp_path: Path) -> None:
    from agent_run_ledger.testing import run_scenario

    life = run_scenario(f"{PROGRAMS}:{pipeline}", tmp_path)
    assert life.result == RESULTS[pipeline], life.describe()
    report = check_ledger(tmp_path / "ledger.db")
    assert (report.runs, report.in_flight, report.abandoned) == (1, 0, 0)
