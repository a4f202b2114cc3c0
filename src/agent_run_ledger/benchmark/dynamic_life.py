"""A child process that is one life of a dynamic run: it dies in a given call, or tells when its first body began."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Sequence

from agent_run_ledger import RunLedger
from agent_run_ledger.benchmark.dynamic_work import Kind, make_calls


def main(arguments: Sequence[str]) -> None:
    """PATH CALLS [DIE_IN]. See life.main, of which this is the like for a dynamic run."""
    path, calls = arguments[0], int(arguments[1])
    dies_in = int(arguments[2]) if len(arguments) > 2 else None
    started_ns = time.monotonic_ns()

    def entered(i: int) -> None:
        if dies_in is None:
            now_ns = time.monotonic_ns()
            print(json.dumps({"step": i, "entered_ns": now_ns, "execute_s": (now_ns - started_ns) / 1e9}), flush=True)
            os._exit(0)
        if i == dies_in:
            os.kill(os.getpid(), signal.SIGKILL)

    make_calls(RunLedger("bench", path), Kind.STEP, calls, entered)


if __name__ == "__main__":
    main(sys.argv[1:])
