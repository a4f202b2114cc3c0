"""Following a run from outside: one small read while nothing moves, the whole view when something of the run did."""

from __future__ import annotations

from enum import StrEnum

from agent_run_ledger.kernel.states import RunState
from agent_run_ledger.ledger.call_view import CallView
from agent_run_ledger.ledger.run_view import RunView, StepView, view_run
from agent_run_ledger.ledger.views import PROBED, is_live, require_run
from agent_run_ledger.ports import Reader, RunRow, Store

MOST_LEAVES = 1_000
"""With more new leaves than this nobody looks whether one of them is about the run: the run is read anew."""
_SETTLE_TRIES = 5


class WatchEnd(StrEnum):
    """How a run that was watched ended. DIED: it is recorded as running, and no attempt of it lives."""

    COMPLETED = "completed"
    FAILED = "failed"
    SUSPENDED = "suspended"
    QUARANTINED = "quarantined"
    CANCELLED = "cancelled"
    DIED = "died"


class RunWatch:
    """Reads one run again and again; writes nothing, and keeps no more than the latest view of it.

    Refused("no_run") for a run that is not there.
    """

    def __init__(self, store: Store, run_id: str) -> None:
        self._store = store
        self._run_id = run_id
        self._uid_hex = require_run(store.reader(), run_id).run_uid.hex().encode()
        self._size = -1
        self._view: RunView | None = None

    def poll(self) -> RunView | None:
        """Return the run anew if anything of it changed since the last poll, None otherwise.

        While the log stands still this is one read of the head and one question to the run's lock, which disturbs no
        start of it where the system can ask without taking (see ports.Store.is_run_live).
        """
        reader = self._store.reader()
        size = reader.head().size
        view = self._view
        if view is not None and not self._moved(reader, size) and not self._life_changed(view.row, view.live):
            self._size = size
            return None
        self._size = size
        self._view = self._settled()
        return self._view

    def _moved(self, reader: Reader, size: int) -> bool:
        """Return whether the log grew by a leaf about this run."""
        if size == self._size:
            return False
        if not 0 < size - self._size <= MOST_LEAVES:
            return True
        return any(self._uid_hex in event.envelope for event in reader.events(first=self._size, stop=size))

    def _life_changed(self, row: RunRow, live: bool | None) -> bool:
        return row.state in PROBED and is_live(self._store, row) != live

    def _settled(self) -> RunView:
        """Return a view that does not call a run dead whose attempt ended while it was looked at."""
        view = view_run(self._store, require_run(self._store.reader(), self._run_id))
        for _ in range(_SETTLE_TRIES):
            if ended(view) is not WatchEnd.DIED:
                break
            row = require_run(self._store.reader(), self._run_id)
            if row == view.row:  # its end would have been recorded before its lock was let go
                break
            view = view_run(self._store, row)
        return view


def ended(view: RunView) -> WatchEnd | None:
    """Return how a run ended, None while it goes on: a stopped one goes on until its last body has returned."""
    state = view.row.state
    if state is RunState.RUNNING:
        return WatchEnd.DIED if view.live is False else None
    if view.live and state in (RunState.CANCELLED, RunState.QUARANTINED):
        return None
    return WatchEnd(state.value)


def changed_steps(before: RunView | None, now: RunView) -> list[StepView]:
    """Return the steps that look different from how they looked before, in the order of the pipeline; at first all."""
    seen = {} if before is None else {step.definition.name: _look(step) for step in before.steps}
    return [step for step in now.steps if seen.get(step.definition.name) != _look(step)]


def changed_calls(before: RunView | None, now: RunView) -> list[CallView]:
    """Return the calls of a dynamic run that look different from how they looked before; at first all."""
    if now.calls is None:
        return []
    seen = {} if before is None or before.calls is None else {call.key: _call_look(call) for call in before.calls.calls}
    return [call for call in now.calls.calls if seen.get(call.key) != _call_look(call)]


def run_changed(before: RunView | None, now: RunView) -> bool:
    """Return whether state, reason, attempt, generation or life of the run are different; at first they are."""
    return before is None or _run_look(before) != _run_look(now)


def _look(step: StepView) -> tuple[object, ...]:
    marks = tuple((mark.attempt, mark.tries, mark.started_at_ms) for mark in step.in_flight)
    return step.state, None if step.current is None else step.current.record_id, marks


def _call_look(call: CallView) -> tuple[object, ...]:
    mark = call.mark
    started = None if mark is None else (mark.attempt, mark.tries, mark.started_at_ms)
    return call.standing, None if call.current is None else call.current.record_id, started, len(call.resolutions)


def _run_look(view: RunView) -> tuple[object, ...]:
    row = view.row
    return row.state, row.reason, row.attempt, row.generation, view.live
