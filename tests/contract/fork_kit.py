"""A pipeline for suites about forks, whose bodies say which of them ran, and what the ledger kept of it."""

from __future__ import annotations

import pathlib
from collections.abc import Callable
from typing import Any

from agent_run_ledger import RunLedger
from agent_run_ledger.kernel.record import RecordKind
from tests.contract.run_kit import row_of, stored_of

STEPS = ("fetch", "aside", "review", "judge", "publish")


class Program:
    """Five steps: fetch → review → judge → publish, and `aside`, on which only publish depends.

    `say` is what judge answers with, `prompt` is review's environment, `ends` is called in the body of judge.
    """

    def __init__(
        self,
        db: pathlib.Path,
        *,
        say: str = "yes",
        prompt: str = "v1",
        ends: Callable[[], object] | None = None,
        **settings: Any,
    ) -> None:
        self.ran: list[str] = []
        self.ledger = ledger = RunLedger(run_id="a", db_path=db, **settings)

        @ledger.step
        def fetch(company: str) -> dict[str, Any]:
            self.ran.append("fetch")
            return {"company": company, "revenue": [1, 2, 3]}

        @ledger.step
        def aside(year: int) -> int:
            self.ran.append("aside")
            return year + 1

        @ledger.step(depends_on=["fetch"], environment={"prompt": prompt})
        def review(report: dict[str, Any]) -> str:
            self.ran.append("review")
            return f"{prompt} on {report['company']}"

        @ledger.step(depends_on=["review"])
        def judge(note: str) -> str:
            self.ran.append("judge")
            if ends is not None:
                ends()
            return f"{say} to {note}"

        @ledger.step(depends_on=["judge", "aside"])
        def publish(verdict: str, aside: int) -> str:
            self.ran.append("publish")
            return f"{verdict} in {aside}"

    def run(self, run_id: str = "a", **inputs: Any) -> Any:
        """Execute a run with the usual inputs, or others, and return its result or its exception."""
        try:
            return self.ledger.bind(run_id).execute(**{"company": "acme", "year": 2025} | inputs)
        except (Exception, KeyboardInterrupt) as error:
            return error

    def ran_since(self) -> list[str]:
        """Return the bodies that ran since this was asked before."""
        ran, self.ran[:] = list(self.ran), []
        return ran


def result_ids(ledger: RunLedger, run_id: str) -> dict[str, int]:
    """Return the record id of each step's latest own result."""
    return {stored.record.name: stored.record_id for stored in stored_of(ledger, RecordKind.RESULT, run_id=run_id)}


def exists(ledger: RunLedger, run_id: str) -> bool:
    """Whether there is such a run."""
    try:
        row_of(ledger, run_id)
    except AssertionError:
        return False
    return True
