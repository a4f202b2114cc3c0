"""`arl runs show`: a run's budgets, with what of them is used, in doubt and left."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent_run_ledger import Budget, BudgetExceeded, Reserve, RunLedger, Step, report_usage
from agent_run_ledger.cli.budgets import budgets_words
from tests.cli.conftest import Arl


def spend(db: Path) -> None:
    """Leave a run that is quarantined for its budget, with one call in doubt."""
    lives = ["first"]

    def call() -> int:
        report_usage(model="m", input_tokens=90, output_tokens=10, cost_usd="0.25")
        if lives:
            raise KeyboardInterrupt
        return 1

    budget = Budget(max_calls=3, max_tokens=5_000, max_cost_usd=2, max_wall_s=60, calls_per_minute=50)
    with RunLedger("spent", db, budget=budget) as ledger:
        before = None
        for name in ("ask", "again", "more"):
            reserve, own = Reserve(tokens=300, cost_usd="0.5"), Budget(max_calls=9) if name == "ask" else None
            needs = [] if before is None else [before]
            before = ledger.add(Step(call, name=name, depends_on=needs, reserves=reserve, budget=own))
        with pytest.raises(KeyboardInterrupt):
            ledger.execute()
        lives.clear()
        with pytest.raises(BudgetExceeded):
            ledger.execute()


def test_a_line_for_each_budget_says_what_is_taken_and_what_is_in_doubt(arl: Arl, db: Path) -> None:
    spend(db)
    out = " ".join(arl("runs", "show", "spent", "--db", db).out.split())
    assert "quarantined · budget: 3 of 3 calls, 1 of them uncertain" in out
    assert "budget · 3 of 3 calls (1 uncertain) · 500 of 5,000 tokens (300 uncertain)" in out
    assert "$1.00 of $2.00 ($0.50 uncertain)" in out
    assert "of 60 s" in out
    assert "at most 50 calls a minute" in out
    assert "budget of ask · 2 of 9 calls (1 uncertain)" in out
    assert "quarantine by budget: budget: 3 of 3 calls" in out
    assert "3 of 3 calls" in arl("runs", "list", "--db", db).out


def test_the_json_of_budgets(arl: Arl, db: Path) -> None:
    spend(db)
    run, step = arl("runs", "show", "spent", "--db", db, "--json").json["budgets"]
    assert {name: run[name] for name in run if name not in ("wall_s", "left")} == {
        "step": None,
        "limits": {
            "max_calls": 3, "max_tokens": 5000, "max_cost_usd": "2", "max_wall_s": 60, "calls_per_minute": 50,
        },
        "calls": 3,
        "calls_in_flight": 0,
        "calls_uncertain": 1,
        "tokens": 200,
        "tokens_reserved": 0,
        "tokens_uncertain": 300,
        "cost_usd": "0.50",
        "cost_usd_reserved": "0",
        "cost_usd_uncertain": "0.5",
        "cost_unknown": 0,
    }  # fmt: skip
    assert {name: run["left"][name] for name in ("calls", "tokens", "cost_usd")} == {
        "calls": 0, "tokens": 4500, "cost_usd": "1.00",
    }  # fmt: skip
    assert (step["step"], step["limits"], step["left"]) == (
        "ask",
        {"max_calls": 9},
        {"calls": 7, "tokens": None, "cost_usd": None, "wall_s": None},
    )


def test_a_run_without_a_budget_has_no_line_and_an_empty_list(arl: Arl, store: Path) -> None:
    assert "budget" not in arl("runs", "show", "crashed", "--db", store).out
    assert arl("runs", "show", "crashed", "--db", store, "--json").json["budgets"] == []


def test_a_budget_that_was_taken_away_still_says_what_was_counted(arl: Arl, db: Path) -> None:
    def ask() -> int:
        report_usage(model="m", input_tokens=1, output_tokens=0)
        raise ValueError("no")

    for budget in (Budget(max_calls=5, max_cost_usd=3), None):
        with RunLedger("r", db, budget=budget) as ledger:
            ledger.add(Step(ask, name="ask"))
            with pytest.raises(ValueError, match="no"):
                ledger.execute()
    with RunLedger("r", db) as ledger:
        use = ledger.bind("r").budget()
    assert use is not None
    assert budgets_words({"": use}) == [["budget", "no limits in the last attempt", "2 calls", "2 tokens", "$0.00"]]
    assert arl("runs", "show", "r", "--db", db, "--json").json["budgets"][0]["limits"] is None
