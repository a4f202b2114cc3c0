"""The runs of a queue as a worker sees them: which wait to be begun, which were left behind, which may go on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from agent_run_ledger.errors import LedgerError
from agent_run_ledger.kernel.effects.states import ActionState
from agent_run_ledger.kernel.states import RunState
from agent_run_ledger.ledger.opened import OpenedStore
from agent_run_ledger.ledger.views import content_of
from agent_run_ledger.ports import Reader, RunRow
from agent_run_ledger.runs.abandoned import EFFECT, detail_of
from agent_run_ledger.runs.submit import SUBMITTED, Submission, submission_of

WAITS_FOR: Final = "waits_for"
"""Where an END says which calls its run waits for, by their records."""
_ASKED: Final = frozenset({ActionState.PROPOSED, ActionState.AVAILABLE})


class RunQueue:
    """Reads one queue of a store; it writes nothing, and takes no run's place."""

    def __init__(self, opened: OpenedStore, queue: str) -> None:
        self._opened = opened
        self.name = queue

    def queued(self, *, after_row_id: int = 0, limit: int) -> list[RunRow]:
        """Return runs that were submitted or are running, oldest first; of those running, some may be left behind."""
        return self._reader().queued(self.name, after_row_id=after_row_id, limit=limit)

    def waiting(self, *, after_row_id: int = 0, limit: int) -> list[RunRow]:
        """Return runs that were begun and are suspended, oldest first."""
        return self._reader().waiting(self.name, after_row_id=after_row_id, limit=limit)

    def on_submitted(self, tell: Callable[[], None]) -> Callable[[], None]:
        """See ports.Store.on_submitted; of any queue."""
        return self._opened.context().store.on_submitted(tell)

    def live(self, run_ids: Sequence[str]) -> frozenset[str]:
        """Return on which of these runs somebody works now, in any process."""
        return self._opened.context().store.live_runs(run_ids)

    def is_queued(self, run_id: str) -> bool:
        """Return whether a run was submitted and not begun, or was begun and is not over."""
        row = self._reader().find_run(run_id)
        return row is not None and (row.state is RunState.RUNNING or row.reason == SUBMITTED)

    def submission(self, row: RunRow) -> Submission:
        """Return what a run is begun with. Errors of `runs.submit.submission_of`."""
        return submission_of(self._opened.context().store, row)

    def may_go_on(self, row: RunRow, *, pending_ms: int) -> bool:
        """Return whether anything may be new for a suspended run.

        Where it waits for actions: one of them was changed since, or its window is over. Where nobody can say what it
        waits for: `pending_ms` are over since it was suspended.
        """
        context = self._opened.context()
        reader, now_ms = context.store.reader(), context.clock.now_ms()
        waits: Any = content_of(reader, row.end_record_id).get(WAITS_FOR, [])
        named = _actions(reader, waits)
        if not named:
            return now_ms - row.updated_at_ms >= pending_ms
        for action_id in named:
            found = reader.effects.action(action_id)
            if found is None or found.changed_at_ms > row.updated_at_ms:
                return True
            if found.action.state in _ASKED and now_ms >= found.action.terms.dispatch_before_ms:
                return True
        return False

    def _reader(self) -> Reader:
        return self._opened.context().store.reader()


def _actions(reader: Reader, waits: Sequence[int]) -> list[bytes]:
    """Return the actions that the records of these calls name; what cannot be read names none."""
    named: list[bytes] = []
    for record_id in waits:
        try:
            named.append(bytes.fromhex(str(detail_of(reader.record(record_id).record)[EFFECT])))
        except (LedgerError, KeyError, TypeError, ValueError):
            continue
    return named
