"""The runs of a queue as a worker sees them: which wait to be begun, which were left behind, which may go on."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from agent_run_ledger.kernel.states import RunState
from agent_run_ledger.ledger.opened import OpenedStore
from agent_run_ledger.ledger.waking import may_go_on
from agent_run_ledger.ports import Reader, RunRow
from agent_run_ledger.runs.submit import SUBMITTED, Submission, submission_of


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
        """Return whether anything may be new for a suspended run. See ledger.waking.may_go_on."""
        context = self._opened.context()
        return may_go_on(context.store, row, now_ms=context.clock.now_ms(), pending_ms=pending_ms)

    def _reader(self) -> Reader:
        return self._opened.context().store.reader()
