"""A child process whose run has effects: it counts what it syncs, or says when it goes on after each approval."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence

from agent_run_ledger.benchmark.sync_count import count_syncs

WAIT_S = 120


def main(arguments: Sequence[str]) -> None:
    """Carry out the effects of orders from 0 on: KIND (`syncs` or `waits`) PATH TRUST URL ORDERS.

    `syncs` prints how many commits of the steps were synced. `waits` prints for each order the time (ns,
    CLOCK_MONOTONIC) at which its call returned, a line each, and waits for the approval within the call.
    """
    kind, path, trust, url, orders = *arguments[:4], int(arguments[4])
    counted = count_syncs() if kind == "syncs" else None
    from agent_run_ledger.benchmark.effect_step_work import agent

    ledger, refund = agent(path, trust, url, wait_s=0 if kind == "syncs" else WAIT_S)
    with ledger, ledger.run():
        if counted is not None:
            refund(0)  # what is opened at the first call
            counted.clear()
        for order in range(0 if counted is None else 1, orders):
            refund(order)
            if counted is None:
                print(time.monotonic_ns(), flush=True)
        if counted is not None:
            print(json.dumps({"steps": orders - 1, "commits": counted.commits, "other": counted.other}))


if __name__ == "__main__":
    main(sys.argv[1:])
