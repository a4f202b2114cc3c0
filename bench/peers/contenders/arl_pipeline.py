"""Agent-run-ledger as a contender: `execute()` of a chain of steps, each taking the result of the one before."""

from __future__ import annotations

import sys

from protocol import RUN_ID, Life

from agent_run_ledger import RunLedger
from agent_run_ledger.benchmark.work import chain, create_store


def main(life: Life) -> None:
    """Run or resume the pipeline with the durability that `--option` names (full or extra)."""
    path, durability = life.path("runs.db"), life.option or "full"
    if not life.resume:
        create_store(path, durability=durability)
    ledger = RunLedger(RUN_ID, path, steps=chain(life.steps, life.enter), durability=durability)
    if (ledger.bind(RUN_ID).state is not None) is not life.resume:  # asking opens the store, before the clock starts
        sys.exit("the run that is to begin is there, or the one to resume is not")
    life.start()
    life.end(ledger.execute())


if __name__ == "__main__":
    main(Life(sys.argv[1:]))
