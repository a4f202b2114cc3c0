"""A child process that is one of many writers of one file, and tells how long it took and waited."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Sequence

from agent_run_ledger.benchmark.children import READY
from agent_run_ledger.benchmark.work import Result, chain, opened, result

KEYS_EACH = 1_000_000


class Lap:
    """The moments at which one writer entered its bodies."""

    def __init__(self) -> None:
        self._last = self.started = self.ended = 0.0
        self.longest_wait_s = 0.0

    def start(self) -> None:
        """Note the start."""
        self._last = self.started = time.monotonic()

    def entered(self, _: int) -> None:
        """Note that a body was entered: all since the last one is what its transaction cost, waits included."""
        now = time.monotonic()
        self.longest_wait_s = max(self.longest_wait_s, now - self._last)
        self._last = now

    def end(self) -> None:
        """Note the end, which is also the end of the last transaction."""
        self.entered(-1)
        self.ended = self._last


def run_as(kind: str, path: str, number: int, steps: int, lap: Lap) -> Callable[[], object]:
    """Open the file and return the work of writer `number`: `steps` steps on `floor` or `product`."""
    if kind == "floor":
        from agent_run_ledger.benchmark.floor import Floor

        floor = Floor(path)

        def step(i: int) -> Result:
            lap.entered(i)
            return result(i)

        return lambda: floor.put_all(steps, step, first_key=number * KEYS_EACH)
    return opened(f"run-{number}", path, chain(steps, lap.entered)).execute


def main(arguments: Sequence[str]) -> None:
    """Set up, say READY, wait for the end of standard input, work, and print times as JSON: KIND PATH NUMBER STEPS."""
    kind, path, number, steps = arguments[0], arguments[1], int(arguments[2]), int(arguments[3])
    lap = Lap()
    work = run_as(kind, path, number, steps, lap)
    print(READY, flush=True)
    sys.stdin.read()
    lap.start()
    work()
    lap.end()
    print(json.dumps({"started_s": lap.started, "ended_s": lap.ended, "longest_wait_s": lap.longest_wait_s}))


if __name__ == "__main__":
    main(sys.argv[1:])
