"""A child process that fills a store with completed runs, several of it side by side, and one run that fails late."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence

from agent_run_ledger import RunLedger
from agent_run_ledger.benchmark.work import chain


class Stop(Exception):
    """A body that fails."""


def fill(path: str, *, first: int, runs: int, steps: int) -> int:
    """Complete the runs numbered `first` and on, of `steps` steps each, and return how many records that made."""
    with RunLedger("none", path, steps=chain(steps)) as ledger:
        for number in range(first, first + runs):
            ledger.bind(f"run-{number}").execute()
    return runs * steps


def fail(path: str, *, name: str, steps: int) -> None:
    """Leave a run behind that failed in its last step."""

    def entered(i: int) -> None:
        if i == steps - 1:
            raise Stop("the last step does not work")

    with RunLedger(name, path, steps=chain(steps, entered)) as ledger:
        try:
            ledger.execute()
        except Stop:
            return


def main(arguments: Sequence[str]) -> None:
    """Print how many records were made: PATH FIRST RUNS STEPS FAILED."""
    path, first, runs, steps, failed = arguments[0], *(int(text) for text in arguments[1:5])
    made = fill(path, first=first, runs=runs, steps=steps)
    for number in range(failed):
        fail(path, name=f"failed-{first + number}", steps=steps)
    print(json.dumps({"records": made}))


if __name__ == "__main__":
    main(sys.argv[1:])
