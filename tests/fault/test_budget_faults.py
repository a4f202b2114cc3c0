"""Budgets of processes that are killed: what was started stays counted, and over all lives no call is one too many."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from agent_run_ledger import Budget, RunLedger
from agent_run_ledger.ledger.budget_use import BudgetUse, budget_uses
from agent_run_ledger.store import open_sqlite
from agent_run_ledger.testing import BodyCounter, Exit, KillPoint, check_ledger, run_scenario, start_scenario
from tests.contract.budget_kit import Hand
from tests.scenario.programs import budgeted

pytestmark = pytest.mark.fault

PROGRAM = str(Path(budgeted.__file__).resolve())
POINTS = ["body.before", "body.after", "record.before", "commit.begin", "commit.before", "commit.after", "record.after"]


@pytest.fixture
def workdir(tmp_path: Path) -> Iterator[Path]:
    """A directory whose ledger must hold after the test."""
    yield tmp_path
    check_ledger(tmp_path / "ledger.db")


def used(workdir: Path, run_id: str = budgeted.RUN_ID) -> BudgetUse:
    """Return what the run's budget says; all counters must be what records and marks say."""
    check_ledger(workdir / "ledger.db")
    store = open_sqlite(workdir / "ledger.db", create=False)
    try:
        reader = store.reader()
        row = reader.find_run(run_id)
        assert row is not None
        return budget_uses(reader, row)[""]
    finally:
        store.close()


def bodies(workdir: Path) -> int:
    return BodyCounter(workdir / "bodies.log").count()["call"]


@pytest.mark.parametrize("program", ["sixteen", "branches"])
def test_sixteen_calls_against_ten_are_exactly_ten_bodies_over_a_kill(program: str, workdir: Path) -> None:
    life = run_scenario(f"{PROGRAM}:{program}", workdir)
    assert life.exit is Exit.KILLED, life.describe()
    assert (used(workdir).calls, used(workdir).calls_in_flight) == (4, 4)
    life = run_scenario(f"{PROGRAM}:{program}", workdir, life=2)
    assert life.result == "run 'budgeted' was stopped by its budget: 10 of 10 calls, 4 of them uncertain", (
        life.describe()
    )
    assert bodies(workdir) == 10
    assert (used(workdir).calls, used(workdir).calls_uncertain, used(workdir).calls_in_flight) == (10, 4, 0)
    life = run_scenario(f"{PROGRAM}:{program}", workdir, life=3)
    assert "is in QUARANTINE" in life.result, life.describe()
    assert bodies(workdir) == 10


@pytest.mark.parametrize(("point", "nth"), [*((point, 2) for point in POINTS), ("commit.before", 4)])
def test_wherever_it_dies_what_may_have_been_spent_stays_counted(point: str, nth: int, workdir: Path) -> None:
    """400 tokens, 150 declared and 100 used by each call: three calls fit alone, two beside one in doubt."""
    life = run_scenario(f"{PROGRAM}:chain", workdir, kill_at=KillPoint(point=point, nth=nth))
    assert life.exit is Exit.KILLED, life.describe()
    begun = bodies(workdir)
    life = run_scenario(f"{PROGRAM}:chain", workdir, life=2)
    assert "was stopped by its budget" in life.result, life.describe()
    now = used(workdir)
    assert now.calls_uncertain in (0, 1)
    assert now.tokens_uncertain == budgeted.RESERVED * now.calls_uncertain
    taken = now.tokens + now.tokens_uncertain
    assert taken <= budgeted.MAX_TOKENS < taken + budgeted.RESERVED
    assert (now.tokens_reserved, now.calls_in_flight) == (0, 0)
    assert begun <= bodies(workdir) <= now.calls
    assert bodies(workdir) * budgeted.USED <= taken


def test_a_death_between_reserving_and_settling_leaves_the_reserve_uncertain(workdir: Path) -> None:
    run_scenario(f"{PROGRAM}:chain", workdir, kill_at=KillPoint(point="body.after", nth=2))
    before = used(workdir)
    assert (before.tokens, before.tokens_reserved, before.tokens_uncertain) == (100, 150, 0)
    assert (before.calls, before.calls_in_flight, before.calls_uncertain) == (2, 1, 0)
    run_scenario(f"{PROGRAM}:chain", workdir, life=2)
    after = used(workdir)
    assert (after.tokens, after.tokens_reserved, after.tokens_uncertain) == (200, 0, 150)
    assert (after.calls, after.calls_in_flight, after.calls_uncertain) == (3, 0, 1)


def test_processes_within_one_run_share_its_budget_and_one_of_them_is_killed(workdir: Path) -> None:
    with RunLedger("unused", workdir / "ledger.db") as ledger:
        parent = Hand(ledger, "parent", budgets={"": Budget(max_calls=10)})
        killed = run_scenario(f"{PROGRAM}:worker", workdir, env={budgeted.WORKER: "0"})
        lives = [start_scenario(f"{PROGRAM}:worker", workdir, env={budgeted.WORKER: at}) for at in ("1", "2", "3")]
        ended = [life.wait() for life in lives]
        parent.die()
    assert killed.exit is Exit.KILLED, killed.describe()
    assert all(life.exit is Exit.OK for life in ended), [life.describe() for life in ended]
    assert bodies(workdir) == 10
    assert (used(workdir, "parent").calls, used(workdir, "parent").calls_in_flight) == (10, 1)
