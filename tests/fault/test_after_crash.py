"""What each cell of the table "after a crash" promises, with processes that are killed with SIGKILL."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from agent_run_ledger import RunState
from agent_run_ledger.store import open_sqlite
from agent_run_ledger.testing import (
    BodyCounter,
    Exit,
    KillPoint,
    Life,
    check_ledger,
    recorded_calls,
    run_scenario,
)
from tests.fault import dying_agents

pytestmark = pytest.mark.fault

PROGRAM = Path(dying_agents.__file__).resolve()
SHAPES = ["sync", "async", "stream", "async stream"]


class Lives:
    """Lives of one agent in a directory of its own; the ledger is checked behind each."""

    def __init__(self, workdir: Path, program: str, **env: str) -> None:
        self.workdir = workdir
        self.program = f"{PROGRAM}:{program}"
        self.env = env
        self.life = 0

    def next(self, kill_at: KillPoint | None = None) -> Life:
        self.life += 1
        life = run_scenario(self.program, self.workdir, life=self.life, kill_at=kill_at, env=self.env)
        check_ledger(self.workdir / "ledger.db")
        return life

    def dies(self, kill_at: KillPoint | None = None) -> None:
        life = self.next(kill_at)
        assert life.exit is Exit.KILLED, life.describe()

    def ends(self) -> Any:
        life = self.next()
        assert life.exit is Exit.OK, life.describe()
        return life.result

    def raises(self, error: str) -> None:
        life = self.next()
        assert life.exit is Exit.ERROR, life.describe()
        assert life.error.startswith(error), life.describe()

    @property
    def bodies(self) -> Counter[str]:
        return BodyCounter(self.workdir / "bodies.log").count()

    @property
    def records(self) -> list[tuple[str, str]]:
        return [(call.kind.name, call.name) for call in recorded_calls(self.workdir / "ledger.db")]


def _chunks(shape: str, said: Any) -> Any:
    return said if shape in ("sync", "async") else ["first", said]


# -- started, not recorded ------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("kind", ["step", "safe"])
def test_what_may_run_again_runs_again_and_its_first_cost_is_uncertain(tmp_path: Path, kind: str, shape: str) -> None:
    lives = Lives(tmp_path, "one_call", KIND=kind, SHAPE=shape, NAME="x-dies")
    lives.dies()
    assert lives.ends() == lives.ends() == [_chunks(shape, "x-dies in life 2"), "after in life 2"]
    assert lives.bodies == {"before": 1, "x-dies": 2, "after": 1}
    assert lives.records == [
        ("RESULT", "before"),
        ("ABANDONED", "x-dies"),
        ("RESULT", "x-dies"),
        ("RESULT", "after"),
    ]
    (result,) = (c for c in recorded_calls(tmp_path / "ledger.db") if (c.kind.name, c.name) == ("RESULT", "x-dies"))
    assert result.attempt == 2


@pytest.mark.parametrize("shape", SHAPES)
def test_an_unsafe_tool_is_not_repeated_and_the_agent_goes_on(tmp_path: Path, shape: str) -> None:
    """Three lives, one body; the agent gets the same dict each time."""
    lives = Lives(tmp_path, "one_call", KIND="unsafe", SHAPE=shape, NAME="pay-dies", THEN="last-dies-twice")
    lives.dies()
    lives.dies()
    third = lives.ends()
    said = third[0] if shape in ("sync", "async") else third[0][0]
    assert {name: said[name] for name in ("outcome", "tool")} == {"outcome": "unknown", "tool": "pay-dies"}
    assert third == lives.ends()
    assert lives.bodies == {"before": 1, "pay-dies": 1, "after": 1, "last-dies-twice": 2}
    store = open_sqlite(str(tmp_path / "ledger.db"), create=False)
    assert store.reader().record(int(said["call"])).record.name == "pay-dies"
    store.close()
    for word in ("cancelled", "success"):
        assert word not in said["message"].lower()


@pytest.mark.parametrize("point", ["body.before", "body.after", "record.before", "commit.before"])
@pytest.mark.parametrize("kind", ["step", "unsafe"])
def test_wherever_it_dies_between_start_and_record(tmp_path: Path, kind: str, point: str) -> None:
    lives = Lives(tmp_path, "one_call", KIND=kind, SHAPE="sync", NAME="x")
    nth = {"body.before": 2, "body.after": 2, "record.before": 4, "commit.before": 5}[point]  # commits: START, marks
    lives.dies(KillPoint(point=point, nth=nth))
    before = lives.bodies["x"]
    said = lives.ends()[0]
    if kind == "step":
        assert said == "x in life 2"
        assert lives.bodies["x"] == before + 1
    else:
        assert said["outcome"] == "unknown"
        assert lives.bodies["x"] == before <= 1
    assert lives.ends()[0] == said


@pytest.mark.parametrize("shape", ["sync", "stream"])
def test_what_was_committed_is_restored_though_nobody_was_told(tmp_path: Path, shape: str) -> None:
    lives = Lives(tmp_path, "one_call", KIND="unsafe", SHAPE=shape, NAME="pay")
    lives.dies(KillPoint(point="commit.after", nth=5))  # START, two of "before", the start of "pay", its result
    assert lives.ends()[0] == _chunks(shape, "pay in life 1")
    assert lives.bodies["pay"] == 1


# -- recorded errors ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("kind", ["step", "safe", "unsafe"])
def test_an_error_from_which_the_agent_had_gone_on_is_raised_again(tmp_path: Path, kind: str, shape: str) -> None:
    lives = Lives(tmp_path, "one_call", KIND=kind, SHAPE=shape, NAME="x-ValueError", HANDLED="yes", THEN="last-dies")
    lives.dies()
    assert lives.ends() == ["ValueError('x-ValueError')", "after in life 1", "last-dies in life 2"]
    assert lives.bodies == {"before": 1, "x-ValueError": 1, "after": 1, "last-dies": 2}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("kind", ["step", "safe"])
def test_an_error_that_nobody_had_handled_is_tried_again(tmp_path: Path, kind: str, shape: str) -> None:
    lives = Lives(tmp_path, "one_call", KIND=kind, SHAPE=shape, NAME="x-ValueError")
    lives.raises("ValueError")
    assert lives.ends() == [_chunks(shape, "x-ValueError in life 2"), "after in life 2"]
    assert lives.bodies == {"before": 1, "x-ValueError": 2, "after": 1}


@pytest.mark.parametrize("shape", SHAPES)
def test_an_unsafe_tools_error_is_raised_again_though_nobody_had_handled_it(tmp_path: Path, shape: str) -> None:
    lives = Lives(tmp_path, "one_call", KIND="unsafe", SHAPE=shape, NAME="x-ValueError")
    for _ in range(3):
        lives.raises("ValueError")
    assert lives.bodies == {"before": 1, "x-ValueError": 1}


@pytest.mark.parametrize("error", ["Pending", "Unavailable"])
@pytest.mark.parametrize("shape", ["sync", "async", "stream"])
def test_an_unsafe_tool_that_says_that_nothing_happened_is_tried_again(tmp_path: Path, shape: str, error: str) -> None:
    lives = Lives(tmp_path, "one_call", KIND="unsafe", SHAPE=shape, NAME=f"x-{error}")
    lives.raises(error)
    assert lives.ends()[0] == _chunks(shape, f"x-{error} in life 2")
    assert lives.bodies[f"x-{error}"] == 2


@pytest.mark.parametrize("kind", ["step", "safe", "unsafe"])
def test_killed_right_behind_the_record_of_an_error(tmp_path: Path, kind: str) -> None:
    """Nothing says that the agent had handled it: it never learned of it."""
    lives = Lives(tmp_path, "one_call", KIND=kind, SHAPE="sync", NAME="x-ValueError", HANDLED="yes")
    lives.dies(KillPoint(point="commit.after", nth=5))
    assert lives.records == [("RESULT", "before"), ("ERROR", "x-ValueError")]
    said = lives.ends()[0]
    if kind == "unsafe":
        assert said == "ValueError('x-ValueError')"
        assert lives.bodies["x-ValueError"] == 1
    else:
        assert said == "x-ValueError in life 2"
        assert lives.bodies["x-ValueError"] == 2


@pytest.mark.parametrize("point", ["record.after", "body.before"])
def test_killed_between_an_error_and_the_next_try(tmp_path: Path, point: str) -> None:
    lives = Lives(tmp_path, "retried")
    lives.dies(KillPoint(point=point, nth=2))
    assert lives.ends() == lives.ends() == "flaky-ValueError in life 2"
    assert lives.records[0] == ("ERROR", "flaky-ValueError".partition("-")[0])
    assert lives.bodies == {"flaky-ValueError": 2}


# -- branches, bodies and runs within -------------------------------------------------------------------------


def test_eight_branches_in_all_states(tmp_path: Path) -> None:
    lives = Lives(tmp_path, "in_branches")
    lives.dies()
    first, second = lives.ends(), lives.ends()
    assert first == second
    said = dict(zip(dying_agents.BRANCHES, first, strict=True))
    assert said["waits-unsafe"]["outcome"] == "unknown"
    assert {name: text for name, text in said.items() if name != "waits-unsafe"} == {
        "ok": "ok in life 1",
        "ok-safe": "ok-safe in life 1",
        "done-unsafe": "done-unsafe in life 1",
        "failed-step-ValueError": "ValueError('failed-step-ValueError')",
        "failed-unsafe-ValueError": "ValueError('failed-unsafe-ValueError')",
        "waits-safe": "waits-safe in life 2",
        "dies": "dies in life 2",
    }
    once = dict.fromkeys(dying_agents.BRANCHES, 1)
    assert lives.bodies == {**once, "waits-safe": 2, "dies": 2, **{f"{name} behind": 1 for name in once}}


def test_branches_on_an_event_loop(tmp_path: Path) -> None:
    lives = Lives(tmp_path, "on_loop_in_branches")
    lives.dies()
    ended = lives.ends()
    assert ended == lives.ends()
    assert ended[0] == ["good in life 1", "good in life 1"]
    assert ended[2] == "third-dies in life 2"
    assert lives.bodies["paying"] <= 2
    assert lives.bodies["good"] == 2


@pytest.mark.parametrize("kind", ["step", "unsafe"])
def test_within_a_body_that_died(tmp_path: Path, kind: str) -> None:
    """The body runs again; what it had called is restored, the error that it had handled is raised again."""
    lives = Lives(tmp_path, "nested", KIND=kind)
    lives.dies()
    good, bad, last = lives.ends()
    assert (good, bad) == ("good in life 1", "ValueError('bad-ValueError')")
    assert last == "last-dies in life 2" if kind == "step" else last["outcome"] == "unknown"
    assert lives.ends() == [good, bad, last]
    assert lives.bodies == {"outer": 2, "good": 1, "bad-ValueError": 1, "last-dies": 2 if kind == "step" else 1}


@pytest.mark.parametrize("where", ["inner", "behind"])
@pytest.mark.parametrize("kind", ["step", "unsafe"])
def test_a_run_within_this_one_that_was_started_after_an_error_has_handled_it(
    tmp_path: Path, kind: str, where: str
) -> None:
    """Killed inside of the inner run, and in the outer one behind it."""
    lives = Lives(tmp_path, "child_after_an_error", KIND=kind, WHERE=where)
    lives.dies()
    inner, behind = ("inner-dies", "behind") if where == "inner" else ("inner", "behind-dies")
    dead = 2 if where == "inner" else 1
    assert (
        lives.ends()
        == lives.ends()
        == [
            "ValueError('bad-ValueError')",
            f"{inner} in life {dead}",
            f"{behind} in life 2",
        ]
    )
    assert lives.bodies == {"bad-ValueError": 1, inner: dead, behind: 1 if where == "inner" else 2}


def test_a_run_within_this_one_that_failed_and_was_gone_on_from_fails_again(tmp_path: Path) -> None:
    lives = Lives(tmp_path, "failed_child")
    lives.dies()
    assert lives.ends() == lives.ends() == ["", "behind in life 1", "last-dies in life 2"]
    assert lives.bodies == {"bad-ValueError": 1, "behind": 1, "last-dies": 2}
    store = open_sqlite(str(tmp_path / "ledger.db"), create=False)
    states = [row.state for row in store.reader().list_runs(state=None, before_row_id=None, limit=9)]
    store.close()
    assert states == [RunState.FAILED, RunState.COMPLETED]
