"""The runs of a queue as a worker sees them: which wait to be begun, which were left behind, which may go on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from agent_run_ledger.kernel.record import SALT_BYTES
from agent_run_ledger.kernel.states import RunState
from agent_run_ledger.ledger.opened import OpenedStore
from agent_run_ledger.ledger.waking import may_go_on
from agent_run_ledger.ports import Reader, RunRow, Tx
from agent_run_ledger.runs.attempt import was_taken_over
from agent_run_ledger.runs.deaths import Deaths, deaths_of
from agent_run_ledger.runs.operate import quarantine
from agent_run_ledger.runs.submit import SUBMITTED, Submission, submission_of

WORKER: Final = "worker"
"""Who decides what a worker decides about a run."""


class RunQueue:
    """Reads one queue of a store; it takes no run's place, and writes nothing but the decision to stop one."""

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

    def is_open(self, run_id: str) -> bool:
        """Return whether a run is not over, whatever it waits for."""
        row = self._reader().find_run(run_id)
        return row is not None and row.state in (RunState.RUNNING, RunState.SUSPENDED)

    def is_free_as(self, row: RunRow) -> bool:
        """Return whether a run still stands as in this row, and nobody works on it."""
        return self._reader().find_run(row.run_id) == row and not self.live([row.run_id])

    def was_taken_over(self, row: RunRow) -> bool:
        """Return whether a person took a run from the attempt that holds it: then whoever wants goes on with it."""
        return row.generation > row.attempt and was_taken_over(self._opened.context().store, row.run_id)

    def deaths(self, row: RunRow) -> Deaths:
        """Return how often in a row the process of this run ended before its attempt did."""
        return deaths_of(self._reader(), row)

    def since_ms(self, row: RunRow) -> int:
        """Return for how long a run stands as it does: where it is running, since its last START."""
        return self._opened.context().clock.now_ms() - row.updated_at_ms

    def stop(self, row: RunRow, *, reason: str) -> bool:
        """Put a run into QUARANTINE as it stands in this row; False where it was carried on since."""
        context = self._opened.context()
        salt = context.entropy.token(SALT_BYTES)

        def write(tx: Tx) -> bool:
            same = tx.find_run(row.run_id) == row
            return same and quarantine(tx, row.row_id, actor=WORKER, reason=reason, salt=salt)

        return context.store.transact(context.entropy.uuid7(), write)

    def refuse_moved(self) -> None:
        """Refuse a store that was moved away, is being moved or filled, or is another one than it was."""
        self._opened.refuse_moved()

    def submission(self, row: RunRow) -> Submission:
        """Return what a run is begun with. Errors of `runs.submit.submission_of`."""
        return submission_of(self._opened.context().store, row)

    def may_go_on(self, row: RunRow, *, pending_ms: int) -> bool:
        """Return whether anything may be new for a suspended run. See ledger.waking.may_go_on."""
        context = self._opened.context()
        return may_go_on(context.store, row, now_ms=context.clock.now_ms(), pending_ms=pending_ms)

    def _reader(self) -> Reader:
        return self._opened.context().store.reader()
