"""A store written by an older version is read, verified and resumed by every later one."""

from __future__ import annotations

import json
import pathlib
import shutil
from typing import Any

import pytest

from agent_run_ledger import Budget, BudgetExceeded
from agent_run_ledger.errors import Refused
from agent_run_ledger.kernel.states import RunEvent
from agent_run_ledger.ledger.verify import verify_log
from agent_run_ledger.runs.erase import Act, Selection, erase_run
from agent_run_ledger.runs.operate import decide
from agent_run_ledger.store import open_sqlite
from agent_run_ledger.testing import check_ledger
from tests.contract.golden_program import build

GOLDEN = pathlib.Path(__file__).parents[1] / "golden" / "store"


@pytest.fixture(params=["v1", "v2", "v3"])
def version(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def copy(tmp_path: pathlib.Path, version: str) -> pathlib.Path:
    return pathlib.Path(shutil.copy(GOLDEN / f"{version}.db", tmp_path / "copy.db"))


def unexpected(**_: Any) -> Any:
    pytest.fail("a recorded step ran again")


def collect_again(topic: str) -> Any:
    return unexpected()


def review_again(collect: Any) -> Any:
    return unexpected()


def test_its_log_verifies_to_the_root_that_was_noted(copy: pathlib.Path, version: str) -> None:
    noted = json.loads((GOLDEN / f"{version}.json").read_text())
    store = open_sqlite(copy, create=False)
    report = verify_log(store.reader())
    store.close()
    assert report.problems == ()
    assert (report.leaves, report.records, report.root_hex) == (noted["leaves"], noted["records"], noted["root_hex"])


def test_its_completed_run_returns_what_it_returned(copy: pathlib.Path) -> None:
    with build(copy, "completed", {"collect": collect_again, "review": review_again}) as ledger:
        assert ledger.execute(topic="golden") == "GOLDEN 1.50 3"


def test_its_failed_run_goes_on_with_what_was_recorded(copy: pathlib.Path) -> None:
    with build(copy, "failed", {"collect": collect_again, "review": review_again}) as ledger:
        assert ledger.execute(topic="golden") == "GOLDEN 1.50 3"
        assert verify_log(ledger._opened.context().store.reader()).ok


def test_its_failed_run_can_be_given_a_budget_that_counts_what_was_before(copy: pathlib.Path) -> None:
    bodies = {"collect": collect_again, "review": review_again}
    with build(copy, "failed", bodies) as ledger:
        with pytest.raises(BudgetExceeded, match="3 of 3 calls"):
            ledger.bind("failed", budget=Budget(max_calls=3)).execute(topic="golden")
        decide(ledger._opened.context(), "failed", RunEvent.RELEASE, reason="go on", actor="ann")
        assert ledger.bind("failed", budget=Budget(max_calls=4)).execute(topic="golden") == "GOLDEN 1.50 3"
    check_ledger(copy)


def test_its_runs_can_be_erased(copy: pathlib.Path) -> None:
    """A START of the first version does not say which dependencies are for the order only: all of them count."""
    act = Act(event="erase", reason="asked to", actor="ann")
    with build(copy, "failed", {"collect": collect_again, "review": review_again}) as ledger:
        context = ledger._opened.context()
        erased = erase_run(context, "failed", Selection(steps=("review",)), act)
        assert (erased.plan.steps, erased.plan.records) == (("report", "review"), 2)
        assert erase_run(context, "completed", Selection(), act).plan.records == 4
        with pytest.raises(Refused, match="step 'review' of run 'failed' was erased"):
            ledger.execute(topic="golden")
    check_ledger(copy)
