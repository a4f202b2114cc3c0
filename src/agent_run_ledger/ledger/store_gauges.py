"""Reading the numbers of a store that monitoring wants, cheaply enough for every scrape."""

from __future__ import annotations

import os

from agent_run_ledger.kernel.gauges import UNDECIDED, StoreGauges
from agent_run_ledger.kernel.states import RunState
from agent_run_ledger.ports import Store


def read_gauges(store: Store, now_ms: int) -> StoreGauges:
    """Return the gauges of a store; `now_ms` is Unix time in milliseconds. See `StoreGauges`.

    Reads the rows of runs, the start marks and the head; no records, no leaves. It disturbs no attempt.
    """
    reader = store.reader()
    counted = reader.run_states()
    return StoreGauges(
        runs={state: counted.get(state, 0) for state in RunState},
        unresolved_age_s=_unresolved_age_s(store, now_ms),
        leaves=reader.head().size,
        database_bytes=_size_of(store.location),
        wal_bytes=_size_of(store.location + "-wal"),
    )


def _unresolved_age_s(store: Store, now_ms: int) -> float:
    for run in store.reader().runs_in_flight():
        if run.state in UNDECIDED and not store.is_run_live(run.run_id):
            return max(0, now_ms - run.oldest_start_ms) / 1000
    return 0.0


def _size_of(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0
