"""A value that was handed out on an event loop before its commit is on record before anything begins that has it."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent_run_ledger.testing import BodyCounter, Exit, KillPoint, check_ledger, run_scenario
from tests.fault import handing_agents

pytestmark = pytest.mark.fault
PROGRAM = f"{Path(handing_agents.__file__).resolve()}:hand_on"
AGENTS = ["call", "call_within", "call_around", "run_within", "pipeline_within", "left_behind"]


@pytest.mark.parametrize("agent", AGENTS)
def test_what_a_dead_process_had_begun_with_a_value_finds_the_same_one(tmp_path: Path, agent: str) -> None:
    for life, kill_at in ((1, KillPoint(point="body.after")), (2, None)):
        lived = run_scenario(PROGRAM, tmp_path, life=life, kill_at=kill_at, env={handing_agents.WHICH: agent})
        assert lived.exit is (Exit.OK if kill_at is None else Exit.KILLED), lived.describe()
        check_ledger(tmp_path / "ledger.db")
    bodies = BodyCounter(tmp_path / "bodies.log").lines()
    assert len(bodies) == 2
    assert len({body.arguments for body in bodies}) == 1, "the body ran again with another value"
