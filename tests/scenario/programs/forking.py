"""A run, its fork and a fork of that, for the crash harness: bodies are counted as `RUN:STEP`."""

from __future__ import annotations

import os
from pathlib import Path

from agent_run_ledger import Refused, RunLedger
from agent_run_ledger.testing import BodyCounter
from tests.scenario.programs.held import ENTERED, GO_ON, Gate

CHOSEN = "ARL_FORK_AS"


class Pipeline:
    """collect → measure → report; `run_id` says for the counter which run its bodies belong to."""

    def __init__(self, workdir: Path, in_the_middle: object = None) -> None:
        bodies = BodyCounter(workdir / "bodies.log")
        self.run_id = "first"
        self.ledger = ledger = RunLedger("first", workdir / "ledger.db")

        @ledger.step
        def collect(topic: str) -> list[str]:
            bodies.ran(f"{self.run_id}:collect")
            return [f"{topic} {n}" for n in range(3)]

        @ledger.step(depends_on=["collect"])
        def measure(collect: list[str]) -> int:
            bodies.ran(f"{self.run_id}:measure")
            if callable(in_the_middle):
                in_the_middle()
            return sum(map(len, collect))

        @ledger.step(depends_on=["measure"])
        def report(measure: int) -> str:
            bodies.ran(f"{self.run_id}:report")
            return f"{self.run_id} measured {measure}"

    def execute(self, run_id: str) -> object:
        """Run or resume one run."""
        self.run_id = run_id
        return self.ledger.bind(run_id).execute(topic="rivers")

    def fork(self, run_id: str, new_run_id: str, from_step: str) -> str:
        """Fork, where that has not happened yet, and say how that went."""
        try:
            self.ledger.fork(run_id, from_step=from_step, new_run_id=new_run_id)
        except Refused as error:
            return error.code
        return "forked"


def chain_of_forks(workdir: Path) -> object:
    """A run, a fork of it, a fork of the fork; each is executed. Killed anywhere, the next life goes on."""
    pipeline = Pipeline(workdir)
    results = [pipeline.execute("first")]
    pipeline.fork("first", "second", "measure")
    results.append(pipeline.execute("second"))
    pipeline.fork("second", "third", "report")
    results.append(pipeline.execute("third"))
    pipeline.ledger.close()
    return results


def only_fork(workdir: Path) -> object:
    """Fork a run that is there."""
    pipeline = Pipeline(workdir)
    said = pipeline.fork("first", os.environ.get(CHOSEN, "second"), "report")
    pipeline.ledger.close()
    return said


def waiting_in_the_parent(workdir: Path) -> object:
    """The first run tells that it is in the middle of `measure` and waits until it may go on."""
    return _waiting(workdir, "first")


def waiting_in_the_fork(workdir: Path) -> object:
    """The fork, forked from `measure`, does the same."""
    return _waiting(workdir, "second")


def _waiting(workdir: Path, run_id: str) -> object:
    entered, go_on = Gate(workdir / ENTERED), Gate(workdir / GO_ON)

    def wait() -> None:
        entered.open()
        go_on.wait()

    pipeline = Pipeline(workdir, wait)
    result = pipeline.execute(run_id)
    pipeline.ledger.close()
    return result
