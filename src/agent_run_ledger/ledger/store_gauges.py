"""Reading the numbers of a store that monitoring wants, cheaply enough for every scrape."""

from __future__ import annotations

import os
from collections import Counter
from typing import TYPE_CHECKING, Final

from agent_run_ledger.errors import Unavailable
from agent_run_ledger.kernel.gauges import UNDECIDED, EffectGauges, StoreGauges, Why
from agent_run_ledger.kernel.states import RunState
from agent_run_ledger.ports import Store
from agent_run_ledger.runs.budgets import is_for_budget
from agent_run_ledger.runs.reasons import is_for_loop

if TYPE_CHECKING:
    from agent_run_ledger.kernel.effects import Action, Now
    from agent_run_ledger.ports.effects import EffectReader, TimeSource

MOST_QUARANTINED = 10_000
"""How many quarantined runs are asked why, the newest ones; more of them are a fault of another kind."""

MOST_APPROVED: Final = 1_000
"""How many approved actions are looked at, the oldest ones."""


def read_gauges(store: Store, now_ms: int, *, time: TimeSource | None = None) -> StoreGauges:
    """Return the gauges of a store; `now_ms` is Unix time in milliseconds. See `StoreGauges`.

    `time`: by which clock the actions are judged, this machine's by default. Reads the rows of runs, the start marks
    and the head; of actions the index of their states, and the rows of open claims and doubts; no records but the
    latest transition's, no leaves. It disturbs no attempt.
    """
    reader = store.reader()
    counted, effects = reader.run_states(), _effects(store, time)
    doubt_age_s = 0.0 if effects is None else effects.doubt_age_s
    return StoreGauges(
        runs={state: counted.get(state, 0) for state in RunState},
        unresolved_age_s=max(_unresolved_age_s(store, now_ms), doubt_age_s),
        leaves=reader.head().size,
        database_bytes=_size_of(store.location),
        wal_bytes=_size_of(store.location + "-wal"),
        quarantined=_quarantined(store),
        effects=effects,
    )


def _effects(store: Store, time: TimeSource | None) -> EffectGauges | None:
    reader = store.reader().effects
    counted = reader.counts()
    if not counted and not store.authority:
        return None
    from agent_run_ledger.kernel.effects.states import ActionState
    from agent_run_ledger.ledger.effect_standing import on_record

    where = on_record(store, time)
    now, bound_ms = where.now, where.standing.bound_ms
    doubts = reader.oldest((ActionState.UNRESOLVED,), limit=1)
    since = [one.action.in_doubt_since_ms for one in doubts if one.action.in_doubt_since_ms is not None]
    proposed_ms = reader.waiting_since(now_ms=now.latest_ms)
    return EffectGauges(
        actions={state: counted.get(state, 0) for state in ActionState},
        state=where.standing.state,
        doubt_age_s=max((_seconds(now.latest_ms, since_ms) for since_ms in since), default=0.0),
        stranded=reader.count_stranded(over_ms=now.earliest_ms - bound_ms),
        waiting_age_s=0.0 if proposed_ms is None else _seconds(now.latest_ms, proposed_ms),
        unclaimed_age_s=_unclaimed_age_s(reader, now),
    )


def _unclaimed_age_s(reader: EffectReader, now: Now) -> float:
    from agent_run_ledger.kernel.effects.states import ActionState

    approved = reader.in_states((ActionState.AVAILABLE,), after_row_id=0, limit=MOST_APPROVED)
    return max(
        (_seconds(now.latest_ms, one.changed_at_ms) for one in approved if _is_open(one.action, now)), default=0.0
    )


def _is_open(action: Action, now: Now) -> bool:
    return action.terms.not_before_ms <= now.earliest_ms < action.terms.dispatch_before_ms


def _quarantined(store: Store) -> dict[Why, int]:
    runs = store.reader().list_runs(state=RunState.QUARANTINED, before_row_id=None, limit=MOST_QUARANTINED)
    counted = Counter(_why(run.reason) for run in runs)
    return {why: counted[why] for why in Why}


def _why(reason: str) -> Why:
    if is_for_loop(reason):
        return Why.LOOP
    return Why.BUDGET if is_for_budget(reason) else Why.OTHER


def _seconds(now_ms: int, since_ms: int) -> float:
    return max(0, now_ms - since_ms) / 1000


def _unresolved_age_s(store: Store, now_ms: int) -> float:
    for run in store.reader().runs_in_flight():
        if run.state in UNDECIDED and not _may_live(store, run.run_id):
            return _seconds(now_ms, run.oldest_start_ms)
    return 0.0


def _may_live(store: Store, run_id: str) -> bool:
    """Return whether a run is live. At a standby, where no lock can be asked, each one may be."""
    try:
        return store.is_run_live(run_id)
    except Unavailable as error:
        if error.code != "read_only":
            raise
        return True


def _size_of(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0
