"""What must hold between the counters of a run's budgets and its records, those of the runs within it included."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from agent_run_ledger.errors import LedgerError
from agent_run_ledger.kernel.counters import Counters
from agent_run_ledger.kernel.record import RecordKind
from agent_run_ledger.ports import Reader, RunRow
from agent_run_ledger.runs.budgets import THE_RUN, read_counters
from agent_run_ledger.runs.recount import recounted, runs_within

_COUNTED: Final = (
    *("calls", "calls_in_flight", "calls_uncertain", "tokens", "cost_usd", "cost_unknown"),
    *("reserved_tokens", "reserved_cost_usd"),
)
_UNCERTAIN: Final = ("uncertain_tokens", "uncertain_cost_usd")


def budget_problems(reader: Reader, row: RunRow) -> Iterator[str]:
    """Yield in what the counters of a run's budgets contradict its records; nothing for a run without a budget."""
    stored = reader.budgets(row.row_id)
    try:
        counted = recounted(reader, row, list(stored)) if stored else {}
        erased = bool(stored) and _erased_doubts(reader, row)
        for tool, counters in counted.items():
            kept = read_counters(stored[tool], tool)
            whose = f"its budget of {tool!r}" if tool else "its budget"
            names = (*_COUNTED, *(() if erased else _UNCERTAIN), *(("wall_ms",) if tool != THE_RUN else ()))
            yield from (f"{whose} {said}" for said in _differences(kept, counters, names))
    except LedgerError as error:
        yield f"its budgets cannot be read: {error}"


def _erased_doubts(reader: Reader, row: RunRow) -> bool:
    """Return whether a call in doubt was erased: with it went what its record said of its reserve, not the counters."""
    return any(
        stored.erased
        for within in runs_within(reader, row)
        for stored in reader.records(within.row_id, kinds=(RecordKind.ABANDONED,))
    )


def _differences(kept: Counters, counted: Counters, names: Sequence[str]) -> Iterator[str]:
    for name in names:
        if getattr(kept, name) != getattr(counted, name):
            yield f"says {name} {getattr(kept, name)}, its records and marks {getattr(counted, name)}"
