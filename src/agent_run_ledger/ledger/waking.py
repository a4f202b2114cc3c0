"""Whether a suspended run may go on: what it waits for is not as it saw it, or it is time to ask again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from agent_run_ledger.errors import LedgerError
from agent_run_ledger.kernel.effects.action import Action
from agent_run_ledger.kernel.effects.ages import deadline_ms
from agent_run_ledger.kernel.effects.states import ActionState
from agent_run_ledger.kernel.effects.step_moves import standing
from agent_run_ledger.ledger.effect_standing import OnRecord, on_record
from agent_run_ledger.ledger.views import content_of
from agent_run_ledger.ports import Reader, RunRow, Store
from agent_run_ledger.runs.abandoned import ASKS, EFFECT, SEEN, detail_of

WAITS_FOR: Final = "waits_for"
"""Where an END says which calls its run waits for, by their records."""
PENDING: Final = "pending"
"""Where an END says that its run waits for something beside effects."""
LONGEST_MS: Final = 3_600_000
"""The longest pause before a run asks again what nobody changed, where `pending_ms` is not longer."""
NEAR_MS: Final = 3_600_000
"""So long before a window or a permit is over nobody asks what time it is for the ledger: that reads a good deal."""

_ASKED: Final = frozenset({ActionState.PROPOSED, ActionState.AVAILABLE})
_TIMED: Final = _ASKED | {ActionState.CLAIMED, ActionState.PREPARED, ActionState.UNRESOLVED}


@dataclass(frozen=True, slots=True)
class _Wait:
    """An action that a call waits for, and as what the call saw it, "" where nothing says so.

    `asks`: whether the call has somebody to ask about a doubt.
    """

    action_id: bytes
    seen: str
    asks: bool


def may_go_on(store: Store, row: RunRow, *, now_ms: int, pending_ms: int) -> bool:
    """Return whether anything may be new for a suspended run.

    For each action that it waits for: it stands otherwise than the run saw it, whenever that came; its window, or the
    permit of who holds it, is over; or the run has something to ask, or cannot say what it saw, and did so for a while:
    for `pending_ms`, and then ever more seldom. Where the run waits for anything else: `pending_ms` are over.
    """
    reader = store.reader()
    content = content_of(reader, row.end_record_id)
    named: Any = content.get(WAITS_FOR, [])
    waits = list(_waits(reader, named))
    rested_ms = now_ms - row.updated_at_ms
    if (not waits or content.get(PENDING)) and rested_ms >= pending_ms:
        return True
    if len(waits) < len(named) and rested_ms >= _pause_ms(pending_ms, pending_ms << min(row.attempt, 10)):
        return True  # of a call that was left in the middle nothing says which action it is about
    looked = _Look(store, row, now_ms, pending_ms)
    return any(looked.is_news(one) for one in waits)


def _waits(reader: Reader, named: Sequence[int]) -> Iterator[_Wait]:
    """Yield what the records of these calls name; what cannot be read names nothing."""
    for record_id in named:
        try:
            said = detail_of(reader.record(record_id).record)
            yield _Wait(bytes.fromhex(str(said[EFFECT])), str(said.get(SEEN, "")), asks=bool(said.get(ASKS)))
        except (LedgerError, KeyError, TypeError, ValueError):
            continue


class _Look:
    """One look at a suspended run."""

    def __init__(self, store: Store, row: RunRow, now_ms: int, pending_ms: int) -> None:
        self._store = store
        self._suspended_ms = row.updated_at_ms
        self._now_ms = now_ms
        self._rested_ms = now_ms - row.updated_at_ms
        self._pending_ms = pending_ms
        self._where: OnRecord | None = None

    def is_news(self, wait: _Wait) -> bool:
        found = self._store.reader().effects.action(wait.action_id)
        if found is None or (not wait.seen and found.changed_at_ms >= self._suspended_ms):
            return True
        action = found.action
        if wait.seen and standing(action) != wait.seen:
            return True
        if action.state in _TIMED and self._came_over(action):
            return True
        for_people = action.state is ActionState.PROPOSED or (action.state is ActionState.UNRESOLVED and not wait.asks)
        if wait.seen and for_people:
            return False
        return self._rested_ms >= _pause_ms(self._pending_ms, self._suspended_ms - found.changed_at_ms)

    def _came_over(self, action: Action) -> bool:
        """Return whether the window of an action, or the permit of who holds it, was over only after the run saw it."""
        asked = action.state in _ASKED
        over_ms = action.terms.dispatch_before_ms if asked else deadline_ms(action)
        if self._now_ms < over_ms - NEAR_MS:
            return False
        self._where = self._where or on_record(self._store)
        now = self._where.now
        over_ms += 0 if asked else self._where.standing.bound_ms
        return now.earliest_ms >= over_ms >= self._suspended_ms - (now.latest_ms - now.earliest_ms)


def _pause_ms(least_ms: int, wanted_ms: int) -> int:
    return min(max(least_ms, wanted_ms), max(least_ms, LONGEST_MS))
