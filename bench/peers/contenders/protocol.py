"""What every contender does alike: its arguments, the body of a step, the clocks, and the line of JSON it prints."""

from __future__ import annotations

import argparse
import json
import os
import resource
import signal
import sys
import time
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NoReturn

# A contender runs in an environment that has its own package and nothing of ours: only the standard library here.

RUN_ID = "bench"
PAYLOAD = "x" * 985

Result = dict[str, Any]


def result(i: int) -> Result:
    """Return the result of step `i`: 1,015 bytes of compact JSON for a 4-digit `i`, as in `arl bench`."""
    return {"i": i, "ok": True, "data": PAYLOAD}


class Life:
    """One process of one contender: runs `steps` steps in `folder`, or goes on with a run that a kill has left there.

    `body(i)` is the body of every step of every contender. It appends `i` to the witness file, which is how the driver
    knows what ran; in step `kill_at` it then ends this process with SIGKILL, before anything can record the step.
    """

    def __init__(self, arguments: Sequence[str]) -> None:
        chosen = _parser().parse_args(arguments)
        self.steps: int = chosen.steps
        self.folder: str = chosen.db
        self.option: str | None = chosen.option
        self.resume: bool = chosen.resume
        self._kill_at: int | None = chosen.kill_at
        self._body_s: float = chosen.body_ms / 1e3
        self._stop_early: bool = chosen.until_first_body
        self._witness = None if chosen.witness is None else os.open(chosen.witness, _APPEND, 0o600)
        self._settings: dict[str, object] = {}
        self._entered: list[int] = []
        self._first_body: int | None = None
        self._first_body_ns = self._started_ns = self._ended_ns = 0
        self._cpu_s = 0.0

    def path(self, name: str) -> str:
        """Return the path of a file of this contender."""
        return os.path.join(self.folder, name)

    def uses(self, **settings: object) -> None:
        """Note settings to be told, asked of the contender's own connection."""
        self._settings.update(settings)

    def start(self) -> None:
        """Start the clocks: everything is imported and open, and the next call runs the steps or resumes the run."""
        self._cpu_s = _cpu_s()
        self._started_ns = time.monotonic_ns()

    def body(self, i: int) -> Result:
        """Do step `i`."""
        self.enter(i)
        return result(i)

    def enter(self, i: int) -> None:
        """Do all of step `i` but its result, for a contender that makes the same result itself."""
        self._entered.append(time.monotonic_ns())
        if len(self._entered) == 1:
            self._first_body, self._first_body_ns = i, self._entered[0]
            if self._stop_early:
                self._entered.clear()
                self._tell()
        if self._witness is not None:
            os.write(self._witness, b"%d\n" % i)
        if self._body_s:
            time.sleep(self._body_s)
        if i == self._kill_at:
            os.kill(os.getpid(), signal.SIGKILL)

    def end(self, last: Result) -> NoReturn:
        """Stop the clocks, check that `last` is the result of the last step, print the line and end the process.

        No destructor and no exit handler runs: what is not durable by now is not part of what was measured.
        """
        self._ended_ns = time.monotonic_ns()
        self._cpu_s = _cpu_s() - self._cpu_s
        if last != result(self.steps - 1):
            sys.exit(f"the run returned {str(last)[:80]!r}, which is not the result of step {self.steps - 1}")
        self._tell()

    def _tell(self) -> NoReturn:
        told = {
            "bodies": len(self._entered),
            "seconds": (self._ended_ns - self._started_ns) / 1e9 if self._ended_ns else None,
            "cpu_s": self._cpu_s if self._ended_ns else None,
            "step_p50_ms": _median_gap_ms(self._entered),
            "first_body": self._first_body,
            "first_body_ns": self._first_body_ns or None,
            "first_body_s": (self._first_body_ns - self._started_ns) / 1e9 if self._first_body_ns else None,
            "settings": self._settings,
        }
        print(json.dumps(told), flush=True)
        os._exit(0)


_APPEND = os.O_WRONLY | os.O_CREAT | os.O_APPEND


def _median_gap_ms(moments: Sequence[int]) -> float | None:
    """Return the median time from one body to the next; None for less than two."""
    gaps = sorted(later - earlier for earlier, later in pairwise(moments))
    return gaps[len(gaps) // 2] / 1e6 if gaps else None


def _cpu_s() -> float:
    """Return the user and system seconds of this process, all threads together."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="One life of one contender; prints one line of JSON.")
    parser.add_argument("--steps", type=int, required=True, metavar="N", help="steps of the whole run")
    parser.add_argument("--db", required=True, metavar="DIR", help="folder of this contender's files")
    parser.add_argument("--option", help="which setting of the contender is run, where it has several")
    parser.add_argument("--resume", action="store_true", help="go on with the run that a kill has left in DIR")
    parser.add_argument("--witness", metavar="FILE", help="append the number of each body that runs")
    parser.add_argument("--kill-at", type=int, metavar="K", help="SIGKILL this process inside step K, counted from 0")
    parser.add_argument("--body-ms", type=float, default=0.0, help="how long a body takes (default: no time)")
    parser.add_argument("--until-first-body", action="store_true", help="end on entry into the first body that runs")
    parser.add_argument("--json", action="store_true", help="print JSON; there is no other output")
    return parser
