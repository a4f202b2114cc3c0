"""The floor as a contender: one committed row per step and nothing else."""

from __future__ import annotations

import json
import sys

from protocol import Life

from agent_run_ledger.benchmark.floor import Floor


def main(life: Life) -> None:
    """Commit the rows that are not there yet, in the journal mode that `--option` names (wal or delete)."""
    floor = Floor(life.path("bare.db"), journal=life.option or "wal")
    life.uses(**floor.settings())
    life.start()
    recorded = [json.loads(text) for text in floor.texts()] if life.resume else []
    at = len(recorded)
    floor.put_all(life.steps - at, lambda i: life.body(at + i), first_key=at)
    life.end(json.loads(floor.text(life.steps - 1)))


if __name__ == "__main__":
    main(Life(sys.argv[1:]))
