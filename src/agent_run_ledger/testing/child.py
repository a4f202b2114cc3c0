"""The child process of the harness: `python -m agent_run_ledger.testing.child ORDER`."""

from __future__ import annotations

import atexit
import sys
import traceback
from dataclasses import replace
from pathlib import Path

from agent_run_ledger import probes
from agent_run_ledger.testing.disk import WatchedDisk
from agent_run_ledger.testing.orders import Left, Order
from agent_run_ledger.testing.scenarios import load_scenario
from agent_run_ledger.testing.tally import Tally


def main(order_path: Path) -> int:
    """Run one scenario with every point counted, and return the exit code: 0, or 1 when it raised.

    The counts are written down right before a kill, after the scenario, and once more at the exit of the interpreter.
    """
    order, folder = Order.read(order_path), order_path.parent
    left = Left()
    tally = Tally(order.kill_at, lambda counts: Left(points_reached=counts).write(folder))

    def write_left() -> None:
        replace(left, points_reached=tally.counts()).write(folder)

    probes.install(tally)
    WatchedDisk(tally).install()
    atexit.register(write_left)
    try:
        left = Left(finished=True, result=load_scenario(order.scenario)(Path(order.workdir)))
        write_left()
    except Exception as error:
        traceback.print_exc()
        left = Left(error=f"{type(error).__name__}: {error}")
        write_left()
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
