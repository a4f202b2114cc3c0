"""Retention: the oldest runs that ended are erased as a whole, one after another."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field

from agent_run_ledger.errors import Misuse, RunBusy
from agent_run_ledger.kernel.erasure import ERASABLE
from agent_run_ledger.kernel.states import RunState
from agent_run_ledger.ports import Reader, RunRow, Store
from agent_run_ledger.runs.attempt import Context
from agent_run_ledger.runs.erase import ENDED, Act, Progress, Selection, around, check_act, erase_run

PRUNABLE = (RunState.COMPLETED, RunState.CANCELLED, RunState.FAILED)
"""States in which a run waits neither for a process nor for a person."""

MAX_NAMED = 100
_PAGE = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Skipped:
    """A run that was old enough and was left as it is."""

    run_id: str
    why: str


@dataclass(slots=True, kw_only=True)
class Pruned:
    """What a prune erased, or would erase: runs, records, and bytes of payload (0 where it would only).

    `skipped` has the first MAX_NAMED of `skipped_count`, `run_ids` the first MAX_NAMED of `runs`.
    """

    runs: int = 0
    records: int = 0
    payload_bytes: int = 0
    run_ids: list[str] = field(default_factory=list[str])
    skipped: list[Skipped] = field(default_factory=list[Skipped])
    skipped_count: int = 0

    def leave(self, run_id: str, why: str) -> None:
        """Count a run that is left as it is."""
        self.skipped_count += 1
        if len(self.skipped) < MAX_NAMED:
            self.skipped.append(Skipped(run_id=run_id, why=why))

    def count(self, run_id: str, records: int, payload_bytes: int) -> None:
        """Count a run that is erased."""
        self.runs += 1
        self.records += records
        self.payload_bytes += payload_bytes
        if len(self.run_ids) < MAX_NAMED:
            self.run_ids.append(run_id)


def old_runs(store: Store, *, before_ms: int, state: RunState = RunState.COMPLETED, keep_last: int = 0) -> array[int]:
    """Return the row ids of the runs to prune, oldest first: in this state, last changed before `before_ms`.

    The newest `keep_last` runs of the state stay, however old they are. Runs of which nothing is left to erase are
    not among them. Misuse for a state in which a run waits for a process or a person. Memory: 8 bytes for each run.
    """
    if state not in PRUNABLE:
        raise Misuse(
            f"a run that is {state} is not over: it is not pruned",
            code="bad_state",
            hint=f"prune runs that are {', '.join(PRUNABLE)}, or erase this one",
        )
    reader, found = store.reader(), array("q")
    before: int | None = None
    seen = 0
    while page := reader.list_runs(state=state, before_row_id=before, limit=_PAGE):
        for row in page:
            seen += 1
            if seen > keep_last and row.updated_at_ms < before_ms and reader.has_erasable(row.row_id):
                found.append(row.row_id)
        before = page[-1].row_id
    found.reverse()
    return found


def look_at(store: Store, row_ids: Sequence[int]) -> Pruned:
    """Return what pruning these runs would do. Nothing is written."""
    reader, report = store.reader(), Pruned()
    for row_id in row_ids:
        row = reader.get_run(row_id)
        why = why_not(reader, row)
        if why:
            report.leave(row.run_id, why)
        else:
            report.count(row.run_id, sum(1 for _ in reader.record_names(row_id, kinds=ERASABLE)), 0)
    return report


def prune(context: Context, row_ids: Sequence[int], act: Act, *, progress: Progress | None = None) -> Pruned:
    """Erase these runs as a whole, one after another, and return what was done. See `erase_run` for each.

    A run that goes on elsewhere, that changed since it was chosen, or on which an unfinished fork rests is skipped.
    Killed in the middle, the same prune goes on where it was.
    """
    check_act(act)
    reader, report = context.store.reader(), Pruned()
    for done, row_id in enumerate(row_ids, 1):
        row = reader.get_run(row_id)
        why = why_not(reader, row)
        if not why:
            try:
                erased = erase_run(context, row.run_id, Selection(), act, unchanged=row)
                report.count(row.run_id, erased.plan.records, erased.payload_bytes)
            except RunBusy:
                why = "somebody works on it"
        if why:
            report.leave(row.run_id, why)
        if progress is not None:
            progress(done, len(row_ids))
    return report


def why_not(reader: Reader, row: RunRow) -> str:
    """Return why a run is not pruned now, empty where it is.

    It went on, or somebody unfinished rests on it: a fork, or the run within which it was started.
    """
    if row.state not in PRUNABLE:
        return f"it is {row.state} again"
    for parent in around(reader, row):
        if parent.state not in ENDED:
            return f"run {parent.run_id}, within which it was started, is {parent.state}"
    to_visit, seen = [row.row_id], {row.row_id}
    while to_visit:
        for fork in reader.forks_of(to_visit.pop()):
            if fork.state not in ENDED:
                return f"its fork {fork.run_id} is {fork.state}"
            if fork.row_id not in seen:
                seen.add(fork.row_id)
                to_visit.append(fork.row_id)
    return ""
