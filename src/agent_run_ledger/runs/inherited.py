"""Reads what a run can restore: its own results, and those of other runs that it refers to as a fork."""

from __future__ import annotations

from agent_run_ledger.ports import RecordKey, RunRow, Store
from agent_run_ledger.runs.attempt import Known, start_detail
from agent_run_ledger.runs.prefix import Prefix, prefix_in


def prefix_of(store: Store, row: RunRow, known: Known | None = None) -> Prefix | None:
    """Return what a run refers to, None where it is no fork.

    The first START says so, checked against its leaf: the run's row could be made to forget it, and then bodies would
    run again.
    """
    return prefix_in(start_detail(store, row, known)[0])


def keys_for(store: Store, row: RunRow, prefix: Prefix | None) -> list[RecordKey]:
    """Return the keys of all results a run can restore: the referenced ones first, then its own, which come before."""
    reader = store.reader()
    own = reader.result_keys(row.row_id)
    return own if prefix is None else [*reader.keys_of(sorted(prefix.record_ids)), *own]
