"""A child process that is one life of a run: it dies in a given step, or tells when its first body was entered."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Sequence

from agent_run_ledger import RunLedger
from agent_run_ledger.benchmark.work import chain


def die_in(step: int, path: str, steps: int) -> None:
    """Run `steps` steps and be killed on entry into the body of `step`, when all before it are recorded."""

    def entered(i: int) -> None:
        if i == step:
            os.kill(os.getpid(), signal.SIGKILL)

    RunLedger("bench", path, steps=chain(steps, entered)).execute()


def first_body(path: str, steps: int) -> None:
    """Execute the run, print when the first live body was entered as JSON, and end there."""
    executed_ns = 0

    def entered(i: int) -> None:
        now_ns = time.monotonic_ns()
        print(json.dumps({"step": i, "entered_ns": now_ns, "execute_s": (now_ns - executed_ns) / 1e9}), flush=True)
        os._exit(0)

    ledger = RunLedger("bench", path, steps=chain(steps, entered))
    executed_ns = time.monotonic_ns()
    ledger.execute()


def main(arguments: Sequence[str]) -> None:
    """PATH STEPS [DIE_IN]."""
    path, steps = arguments[0], int(arguments[1])
    if len(arguments) > 2:
        die_in(int(arguments[2]), path, steps)
    else:
        first_body(path, steps)


if __name__ == "__main__":
    main(sys.argv[1:])
