"""A person's resolution among crashes and other processes: whole or not there, and the tool never runs twice."""

from __future__ import annotations

import os
from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest

from agent_run_ledger.kernel.record import RecordKind
from agent_run_ledger.testing import BodyCounter, Exit, Lives, Point, check_ledger, crash_everywhere, run_scenario
from tests.contract.dynamic_kit import open_context, unknowns
from tests.scenario.programs import resolving

pytestmark = pytest.mark.fault

PROGRAMS = Path(resolving.__file__)
CAMPAIGN = int(os.environ.get("ARL_CAMPAIGN", "1"))
DISK_KILLS = {
    Point.WAL_WRITE: 3 * CAMPAIGN,
    Point.WAL_SYNC: 3 * CAMPAIGN,
    Point.FILE_WRITE: CAMPAIGN,
    Point.FILE_SYNC: 1,
}


def _directories(root: Path) -> Callable[[], Path]:
    numbers = count()

    def make() -> Path:
        folder = root / str(next(numbers))
        folder.mkdir()
        return folder

    return make


def _check(lives: Lives) -> None:
    """The mail is sent at most once, whatever was recorded is not made again, and the run ends as it would have."""
    assert lives.second.result == "reported: sent"
    assert lives.bodies.count()["send_mail"] <= 1
    recorded = {call.name for call in lives.recorded if call.kind is RecordKind.RESULT}
    assert recorded.isdisjoint(lives.bodies.count(life=2))
    if "send_mail" in lives.in_flight:
        assert "send_mail" not in lives.bodies.count(life=2)


def test_killed_at_every_point_a_resolution_is_whole_or_not_there_and_the_tool_runs_once(tmp_path: Path) -> None:
    summary = crash_everywhere(
        f"{PROGRAMS}:settled_by_a_person", _directories(tmp_path), most_per_point=DISK_KILLS, check=_check, at_once=2
    )
    assert summary.kills[Point.RECORD_BEFORE] > 0
    assert summary.kills[Point.RECORD_AFTER] > 0


def test_nobody_dies_and_the_tool_ran_once(tmp_path: Path) -> None:
    life = run_scenario(f"{PROGRAMS}:settled_by_a_person", tmp_path)
    assert (life.exit, life.result) == (Exit.OK, "reported: sent")
    assert BodyCounter(tmp_path / "bodies.log").count() == {"look_up": 1, "send_mail": 1, "report": 1}
    report = check_ledger(tmp_path / "ledger.db")
    assert (report.results, report.abandoned) == (3, 1)
    context = open_context(tmp_path / "ledger.db")
    assert len(unknowns(context)) == 1
    context.store.close()
