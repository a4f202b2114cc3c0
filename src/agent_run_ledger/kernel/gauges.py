"""What a store says of all its runs at one moment, as numbers for monitoring."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

from agent_run_ledger.kernel.states import RunState

if TYPE_CHECKING:  # a program that only runs things does not load the rules of effects
    from agent_run_ledger.kernel.effects.states import ActionState, LedgerState

UNDECIDED = frozenset((RunState.RUNNING, RunState.SUSPENDED, RunState.FAILED, RunState.QUARANTINED))
"""States out of which a run can go on: a call left in flight there waits for somebody."""


class Why(StrEnum):
    """Why a run is in QUARANTINE: it went in circles, it used up a budget, or a person decided it."""

    LOOP = "loop"
    BUDGET = "budget"
    OTHER = "other"


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectGauges:
    """Numbers of the actions of one store. `actions` counts members by state.

    `state` is where the ledger stands as the store and this machine's clock say: whether a witness answers, only a
    process knows that has one. `doubt_age_s`: seconds since the oldest doubt was recorded that nothing has ended.
    `stranded`: claims whose permit or window is over by every clock and whose worker recorded nothing.
    `waiting_age_s`: seconds since the oldest proposal that is not approved and whose window is not over.
    `unclaimed_age_s`: seconds since an action was approved that nobody has claimed, of those whose window is open the
    oldest. Ages are 0 where there is none.
    """

    actions: Mapping[ActionState, int]
    state: LedgerState
    doubt_age_s: float
    stranded: int
    waiting_age_s: float
    unclaimed_age_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreGauges:
    """Numbers of one store. `runs` counts by state; sizes are bytes of the files, 0 for a missing one.

    `unresolved_age_s`: seconds since the oldest thing began of which nobody knows the end. That is the oldest call
    that is not concluded, among the runs that nobody works on (no process holds their lock) and that can still go on
    (UNDECIDED), or the oldest doubt about an action, whichever is older; 0 where there is none. A run that was
    cancelled is left out: nothing will conclude its calls, and nobody has to. `quarantined` counts runs by why.
    `effects`: None for a store that holds no actions and has no authority for any.
    """

    runs: Mapping[RunState, int]
    unresolved_age_s: float
    leaves: int
    database_bytes: int
    wal_bytes: int
    quarantined: Mapping[Why, int] = field(default_factory=dict[Why, int])
    effects: EffectGauges | None = None
