"""The program whose stores are kept in tests/golden/store/, each written once by `python golden_program.py FILE`."""

from __future__ import annotations

import datetime
import decimal
import pathlib
import sys
from typing import Any

from agent_run_ledger import LoopDetectorPolicy, RunLedger, Step

# Never change these steps: every later version must resume the store.


def collect(topic: str) -> dict[str, Any]:
    return {"topic": topic, "numbers": [1, 2.5, 10**20], "at": datetime.date(2026, 11, 29)}


def review(collect: dict[str, Any]) -> tuple[str, decimal.Decimal]:
    return (collect["topic"].upper(), decimal.Decimal("1.50"))


def report(review: tuple[str, decimal.Decimal], collect: dict[str, Any]) -> str:
    return f"{review[0]} {review[1]} {len(collect['numbers'])}"


def build(path: str | pathlib.Path, run_id: str, bodies: dict[str, Any]) -> RunLedger:
    """Return the ledger with these bodies in place of its own, by step name."""
    ledger = RunLedger(run_id=run_id, db_path=path, policy=LoopDetectorPolicy(max_repetitions=3, threshold=0.92))
    ledger.add(Step(bodies.get("collect", collect), name="collect", environment={"model": "m1"}))
    ledger.add(Step(bodies.get("review", review), name="review", depends_on=["collect"], version="2"))
    ledger.add(Step(bodies.get("report", report), name="report", depends_on=["review", "collect"]))
    return ledger


def write(path: str) -> None:
    """Write a completed run and a failed one."""

    def broken(review: Any, collect: Any) -> str:
        raise ValueError("model is down")

    with build(path, "completed", {}) as ledger:
        ledger.execute(topic="golden")
    with build(path, "failed", {"report": broken}) as ledger:
        try:
            ledger.execute(topic="golden")
        except ValueError:
            return


if __name__ == "__main__":
    write(sys.argv[1])
