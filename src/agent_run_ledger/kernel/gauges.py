"""What a store says of all its runs at one moment, as numbers for monitoring."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from agent_run_ledger.kernel.states import RunState

UNDECIDED = frozenset((RunState.RUNNING, RunState.SUSPENDED, RunState.FAILED, RunState.QUARANTINED))
"""States out of which a run can go on: a call left in flight there waits for somebody."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreGauges:
    """Numbers of one store. `runs` counts by state; sizes are bytes of the files, 0 for a missing one.

    `unresolved_age_s`: seconds since the oldest call was begun that is not concluded, among the runs that nobody
    works on (no process holds their lock) and that can still go on (UNDECIDED); 0 where there is none. A run that
    was cancelled is left out: nothing will conclude its calls, and nobody has to.
    """

    runs: Mapping[RunState, int]
    unresolved_age_s: float
    leaves: int
    database_bytes: int
    wal_bytes: int
