"""A killed run, watched in both of its lives: what was paid is emitted once, and what was restored is not billable."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agent_run_ledger.testing import BodyCounter, Exit, KillPoint, check_ledger, run_scenario
from tests.scenario.programs import watched

pytestmark = pytest.mark.fault

PROGRAM = f"{Path(watched.__file__).resolve()}:paying"


def emitted(workdir: Path, life: int) -> Any:
    return json.loads((workdir / f"emitted-{life}.json").read_text())


@pytest.mark.parametrize("step", [1, 2, 3])
def test_the_tokens_emitted_over_two_lives_are_the_tokens_paid(tmp_path: Path, step: int) -> None:
    killed = run_scenario(PROGRAM, tmp_path, kill_at=KillPoint(point="body.before", nth=step))
    assert killed.exit is Exit.KILLED
    ended = run_scenario(PROGRAM, tmp_path, life=2)
    assert ended.result == 3, ended.describe()
    first, second = emitted(tmp_path, 1), emitted(tmp_path, 2)
    ran = BodyCounter(tmp_path / "bodies.log").count()
    paid = sum(watched.TOKENS[name] * times for name, times in ran.items())
    assert first["tokens"] + second["tokens"] == paid == sum(watched.TOKENS.values())
    names = list(watched.TOKENS)
    assert [span["name"] for span in first["spans"]] == [f"step {name}" for name in names[: step - 1]]
    replayed = [span for span in second["spans"] if span.get("agent_run_ledger.replayed") is True]
    assert [span["name"] for span in replayed] == [f"step {name}" for name in names[: step - 1]]
    assert not any(name.startswith("gen_ai.") for span in replayed for name in span)
    live = [span for span in second["spans"] if span.get("agent_run_ledger.replayed") is False]
    assert [span["gen_ai.usage.input_tokens"] for span in live] == [watched.TOKENS[name] for name in names[step - 1 :]]
    check_ledger(tmp_path / "ledger.db")
