"""A graph beside a checkpointer, killed and started again: what is on record is not paid twice, whoever kept it."""

from __future__ import annotations

import sqlite3
from collections import Counter
from pathlib import Path

import pytest

from agent_run_ledger.store.ledger_place import LedgerPlace, ledger_place
from agent_run_ledger.testing import BodyCounter, Exit, KillPoint, Point, check_ledger, recorded_calls, run_scenario
from tests.services.postgres import Cluster

PROGRAM = Path(__file__).parent / "programs.py"

pytestmark = pytest.mark.fault


def _life(
    folder: Path,
    kind: str,
    life: int,
    *,
    dies_in: str = "",
    kill_at: KillPoint | None = None,
    place: LedgerPlace | None = None,
) -> Exit:
    place = place or LedgerPlace(folder=folder)
    env = {"KIND": kind, "DIES_IN": dies_in, **place.env()}
    ended = run_scenario(f"{PROGRAM}:agent", folder, life=life, env=env, kill_at=kill_at)
    check_ledger(place.named)
    if ended.exit is Exit.OK:
        assert ended.result["answer"] == "stocked up"
        assert ended.result["messages"] == 6
        assert ended.result["told"]["c1"] == "shelf 7 is empty"
    assert ended.exit is not Exit.ERROR, ended.describe()
    return ended.exit


def _ran(folder: Path, life: int) -> Counter[str]:
    return BodyCounter(folder / "bodies.log").count(life=life)


@pytest.mark.parametrize("kind", ["agent", "graph"])
@pytest.mark.parametrize(
    ("dies_in", "first", "second"),
    [
        ("read", Counter(model=1, read=1), Counter(read=1, model=2, order=1)),
        ("order", Counter(model=2, read=1, order=1), Counter(model=1)),
    ],
)
def test_killed_in_a_tool_it_goes_on_from_its_checkpoint(
    tmp_path: Path, kind: str, dies_in: str, first: Counter[str], second: Counter[str]
) -> None:
    assert _life(tmp_path, kind, 1, dies_in=dies_in) is Exit.KILLED
    assert _ran(tmp_path, 1) == first
    assert _life(tmp_path, kind, 2) is Exit.OK
    assert _ran(tmp_path, 2) == second
    assert _life(tmp_path, kind, 3) is Exit.OK
    assert _ran(tmp_path, 3) == Counter()


def test_killed_in_a_tool_it_goes_on_from_its_checkpoint_with_its_ledger_at_a_server(
    tmp_path: Path, postgres: Cluster
) -> None:
    with ledger_place(tmp_path, postgres.url()) as place:
        assert _life(tmp_path, "graph", 1, dies_in="order", place=place) is Exit.KILLED
        assert _life(tmp_path, "graph", 2, place=place) is Exit.OK
        assert _ran(tmp_path, 2) == Counter(model=1)
        assert _life(tmp_path, "graph", 3, place=place) is Exit.OK
        assert _ran(tmp_path, 3) == Counter()
    assert not (tmp_path / "ledger.db").exists()


@pytest.mark.parametrize("nth", [2, 4, 6, 8, 10])
def test_killed_at_a_commit_nothing_that_is_recorded_runs_again(tmp_path: Path, nth: int) -> None:
    ended = _life(tmp_path, "graph", 1, kill_at=KillPoint(point=str(Point.COMMIT_AFTER), nth=nth))
    assert ended is Exit.KILLED
    recorded = Counter(call.name for call in recorded_calls(tmp_path / "ledger.db") if call.kind.name == "RESULT")
    assert _life(tmp_path, "graph", 2) is Exit.OK
    whole = Counter(model=3, read=1, order=1)
    unknown = whole - recorded - _ran(tmp_path, 2)
    assert _ran(tmp_path, 2) + recorded + unknown == whole
    assert unknown <= Counter(order=1), "more than the unsafe tool of unknown outcome was left out"


def test_the_checkpoints_are_in_a_file_of_their_own(tmp_path: Path) -> None:
    assert _life(tmp_path, "agent", 1) is Exit.OK
    connection = sqlite3.connect(f"file:{tmp_path / 'checkpoints.db'}?mode=ro", uri=True)
    tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    connection.close()
    assert tables == {"checkpoints", "writes"}
