"""Measures what `import agent_run_ledger` costs a new process."""

from __future__ import annotations

import statistics
import sys

from agent_run_ledger.benchmark.children import live
from agent_run_ledger.benchmark.figures import Figure, Measured
from agent_run_ledger.benchmark.plan import Bench

_TIMED = "import time; t = time.perf_counter(); import {}; print(time.perf_counter() - t)"


def measure(bench: Bench) -> Measured:
    """Return the time of the import beside that of the SQLite driver alone, for information: without a target."""
    bench.say("import: in new processes")
    times: dict[str, list[float]] = {"agent_run_ledger": [], "apsw": []}
    for _ in range(bench.plan.imports):
        for module, taken in times.items():
            taken.append(_seconds(_TIMED.format(module)))
    with_ledger = "agent_run_ledger; agent_run_ledger.RunLedger"
    opened = statistics.median(_seconds(_TIMED.format(with_ledger)) for _ in range(bench.plan.imports))
    floor_ms = statistics.median(times["apsw"]) * 1e3
    note = "floor: import apsw"
    return Measured(
        figures=[
            Figure(
                name="import: agent_run_ledger",
                value=statistics.median(times["agent_run_ledger"]) * 1e3,
                unit="ms",
                floor=floor_ms,
                note=f"median of {bench.plan.imports} new processes; {note}",
            ),
            Figure(
                name="import: RunLedger", value=opened * 1e3, unit="ms", floor=floor_ms, note=f"with the store; {note}"
            ),
        ],
        raw={"seconds": times},
    )


def _seconds(program: str) -> float:
    return float(live([sys.executable, "-c", program]).answer)
