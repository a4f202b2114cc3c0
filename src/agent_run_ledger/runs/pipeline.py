"""The pipeline as a state machine: how bodies ended goes in, commits go to the journal, what to run next comes out."""

from __future__ import annotations

import heapq
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from agent_run_ledger.errors import (
    Diverged,
    LedgerError,
    RunCancelled,
    RunQuarantined,
    Uncertain,
    pending_of,
)
from agent_run_ledger.kernel.backoff import backoff_s
from agent_run_ledger.kernel.record import RecordKind
from agent_run_ledger.kernel.states import RunState
from agent_run_ledger.runs.attempt import Context
from agent_run_ledger.runs.batches import STOPPED, Batch, Started, Written
from agent_run_ledger.runs.bodies import Call, Outcome, Todo
from agent_run_ledger.runs.calls import CallIdentity
from agent_run_ledger.runs.endings import ending_of, may_try_again
from agent_run_ledger.runs.journal import Journal
from agent_run_ledger.runs.leaving import is_left
from agent_run_ledger.runs.parents import Parent
from agent_run_ledger.runs.recorded import Begun, Recorded
from agent_run_ledger.runs.resolver import Resolver
from agent_run_ledger.runs.results import Results
from agent_run_ledger.runs.steps import OnChange
from agent_run_ledger.runs.stopped import stopped
from agent_run_ledger.runs.usage import Meter

log = logging.getLogger("agent_run_ledger")


@dataclass(slots=True, kw_only=True)
class _Runnable:
    """A call that no record answers: what identifies it, why it is not restored, how often it was tried."""

    identity: CallIdentity
    because: list[str]
    tries: int = 1


class Pipeline:
    """Drives one attempt of one run.

    Guarantees: a step whose fingerprint is recorded is restored and its body not run; a body runs only after its
    start is committed and every result it takes is committed; when a step fails, running siblings finish and are
    recorded, and nothing new starts.
    """

    def __init__(
        self,
        context: Context,
        journal: Journal,
        resolver: Resolver,
        recorded: Recorded,
        begun: Begun,
        *,
        on_change: OnChange,
        max_parallel: int,
    ) -> None:
        self._context = context
        self._journal = journal
        self._watch = journal.watch
        self._within = Parent(run_id=journal.run_id, row_id=journal.row_id, log_id=context.store.log_id)
        self._resolver = resolver
        self._recorded = recorded
        self._begun = begun
        self._on_change = on_change
        self._results = Results(journal, resolver)
        bindings = resolver.plan.bindings
        self._waiting = [len(binding.dependencies) for binding in bindings]
        self._dependants: list[list[int]] = [[] for _ in bindings]
        for binding in bindings:
            for needed in binding.dependencies:
                self._dependants[needed].append(binding.step_index)
        self._ready = [index for index, count in enumerate(self._waiting) if count == 0]
        self._runnable: list[int] = []
        self._calls: dict[int, _Runnable] = {}
        self._delayed: list[tuple[float, int]] = []
        self._free_lanes = list(range(max_parallel - 1, -1, -1))
        self._running: dict[tuple[int, int], Started] = {}
        self._failure: Exception | None = None
        self._failed_at = ""
        self._stopped = False
        self._left = len(bindings)

    def start(self) -> Todo:
        """Return the first thing to do."""
        return self._proceed(Batch())

    def advance(self, outcomes: Sequence[Outcome]) -> Todo:
        """Record how these bodies ended and return what to do next.

        Raises the step's own exception (or RunCancelled, RunQuarantined, Pending, ...) once nothing runs any more.
        What must never be recorded (KeyboardInterrupt, SystemExit, MemoryError, a cancellation) is raised at once,
        when the results that came with it are committed; its call stays started, with nothing to say how it ended.
        """
        batch = Batch()
        for outcome in outcomes:
            if outcome.abort is None:
                self._conclude(outcome, batch)
        for outcome in outcomes:
            if outcome.abort is not None:
                if not batch.empty:
                    self._commit(batch)
                raise outcome.abort
        return self._proceed(batch)

    def result(self) -> Any:
        """Return the terminal step's result, or a dict by step name where there are several."""
        terminals = self._resolver.plan.terminals
        values = {self._resolver.steps[index].name: self._results.take(index) for index in terminals}
        return next(iter(values.values())) if len(values) == 1 else values

    # -- what ended -------------------------------------------------------------------------------------------

    def _conclude(self, outcome: Outcome, batch: Batch) -> None:
        started = self._running.pop(outcome.call.ticket)
        self._free_lanes.append(started.lane)
        because = self._calls[outcome.call.index].because
        ended = ending_of(
            outcome, run_id=self._journal.run_id, at_ms=started.at_ms, limit_bytes=self._context.limit_bytes
        )
        failure, packed = ended.failure, ended.packed
        batch.concluded.append(self._journal.conclude(started, ended, because=because, code=outcome.call.step.code))
        again = failure is not None and self._errored(outcome.call, failure)
        if self._watch is not None and outcome.call.around is not None:
            self._watch.ending(outcome.call.around, batch.concluded[-1], failure, again=again)
        if failure is None and packed is not None:
            del self._calls[outcome.call.index]
            self._results.live(outcome.call.index, packed)
            self._settle(outcome.call.index)

    def _errored(self, call: Call, error: Exception) -> bool:
        """Try again after a wait (True), or fail. Our own errors are tried again only where they say it is safe."""
        step, runnable = call.step, self._calls[call.index]
        if self._failure is not None or not may_try_again(error, runnable.tries, step.retries):
            self._fail(error, step.name)
            return False
        wait_s = backoff_s(
            runnable.tries,
            base_s=step.retry_base_s,
            cap_s=step.retry_cap_s,
            fraction=self._context.entropy.fraction(),
        )
        log.warning("step %r raised %s; trying again in %.2f s", step.name, type(error).__name__, wait_s)
        runnable.tries += 1
        heapq.heappush(self._delayed, (self._context.clock.monotonic_s() + wait_s, call.index))
        return True

    def _fail(self, error: Exception, step_name: str) -> None:
        if self._failure is None:
            self._failure, self._failed_at = error, step_name
            self._stopped = self._stopped or is_left(self._journal.queue, error)
            if step_name and not isinstance(error, LedgerError):
                error.add_note(
                    f"raised by step {step_name!r} of run {self._journal.run_id!r}; the next execute goes on from here"
                )
        elif error is not self._failure and step_name:  # without a name: the decision that was told already
            self._failure.add_note(f"step {step_name!r} failed too: {_said(error)}")
        self._ready.clear()
        self._runnable.clear()
        self._delayed.clear()

    def _settle(self, index: int) -> None:
        """A step has its result: what waited for it alone may be looked at."""
        self._left -= 1
        if self._failure is not None:
            return
        for dependant in self._dependants[index]:
            self._waiting[dependant] -= 1
            if self._waiting[dependant] == 0:
                heapq.heappush(self._ready, dependant)

    # -- what comes next --------------------------------------------------------------------------------------

    def _proceed(self, batch: Batch) -> Todo:
        launch = self._choose(batch)
        if self._stopped:
            pass  # what was decided stands, or the run is left: it is no end of ours
        elif self._failure is not None and not self._running:
            waits = pending_of(self._failure)
            batch.end_state = RunState.FAILED if waits is None else RunState.SUSPENDED
            batch.end_reason = f"step {self._failed_at!r}: {type(waits or self._failure).__name__}"
        elif self._left == 0:
            batch.end_state = RunState.COMPLETED
        if batch.end_state is not None:
            batch.end = partial(self._end_content, batch)
        if not batch.empty:
            self._committed(batch, self._commit(batch))
        if self._failure is not None:
            if not self._running:
                if batch.end_state is None and not self._stopped:  # a run above was stopped: this one ends as failed
                    return self._proceed(Batch())
                raise self._failure
            launch = [call for call in launch if call.ticket in self._running]
        wait_s = max(0.0, self._delayed[0][0] - self._context.clock.monotonic_s()) if self._delayed else None
        return Todo(launch=launch, wait_s=wait_s, done=self._left == 0)

    def _commit(self, batch: Batch) -> Written:
        """Commit; where that fails, hand the caller what was paid for and is, or may be, not on disk."""
        try:
            written = self._journal.commit(batch)
        except LedgerError as error:
            for item in batch.concluded:
                if item.record.kind is RecordKind.RESULT:
                    error.unrecorded[item.record.name] = self._results.peek(item.started.index)
            if error.unrecorded:
                known = "perhaps not recorded" if isinstance(error, Uncertain) else "not recorded"
                error.add_note(f"returned and {known}: {', '.join(error.unrecorded)}; see the error's `unrecorded`")
            raise
        if self._watch is not None:
            self._watch.landed(written.state, batch.concluded, written.record_ids)
        return written

    def _choose(self, batch: Batch) -> list[Call]:
        """Restore all that can be restored, then start what fits into the free lanes."""
        if self._delayed:
            now_s = self._context.clock.monotonic_s()
            while self._delayed and self._delayed[0][0] <= now_s:
                heapq.heappush(self._runnable, heapq.heappop(self._delayed)[1])
        launch: list[Call] = []
        index = 0
        try:
            while self._ready:
                index = heapq.heappop(self._ready)
                self._look_up(index)
            while self._runnable and self._free_lanes:
                index = heapq.heappop(self._runnable)
                launch.append(self._launch(index, batch))
        except LedgerError as error:
            self._withdraw(batch.starts)
            batch.starts.clear()
            self._fail(error, self._resolver.steps[index].name)
            return []
        return launch

    def _withdraw(self, starts: Sequence[Started]) -> None:
        """Take back starts that are not committed: their bodies never run."""
        withdrawn = {id(start) for start in starts}
        for ticket, started in list(self._running.items()):
            if id(started) in withdrawn:
                del self._running[ticket]
                self._free_lanes.append(started.lane)

    def _look_up(self, index: int) -> None:
        step = self._resolver.steps[index]
        identity = self._resolver.identity(index, self._results.digest)
        hit = self._recorded.take(identity, step.code)
        if hit is not None:
            self._results.restored(index, hit.record_id, hit.value_sha256)
            self._results.consumed(index)
            self._settle(index)
            if self._watch is not None:
                self._watch.restored(hit)
            return
        sources = {
            parameter: (self._resolver.steps[at].name, partial(self._results.peek, at))
            for parameter, at in self._resolver.result_arguments(index)
        }
        because = self._recorded.why_not(identity, sources)
        if because is not None:
            if (step.on_change or self._on_change) is OnChange.REFUSE:
                raise diverged(self._journal.run_id, step.name, because)
            words = ", ".join(because) or "its fingerprint"
            log.warning("step %r of run %r runs again: %s changed", step.name, self._journal.run_id, words)
        elif self._begun.differs(identity):
            log.warning("step %r of run %r changed since it was begun and left", step.name, self._journal.run_id)
        self._calls[index] = _Runnable(identity=identity, because=because or [])
        heapq.heappush(self._runnable, index)

    def _launch(self, index: int, batch: Batch) -> Call:
        step, runnable = self._resolver.steps[index], self._calls[index]
        args, kwargs = self._resolver.arguments(index, lambda i: self._results.take_as_argument(i, step.name))
        if runnable.tries == 1:
            self._results.consumed(index)
        lane = self._free_lanes.pop()
        started = self._journal.started(lane, index, runnable.identity, runnable.tries, step.reserves)
        batch.starts.append(started)
        call = Call(index=index, lane=lane, step=step, args=args, kwargs=kwargs, meter=Meter(step.name, self._within))
        if self._watch is not None:
            call.around = self._watch.body(step.name, started.tries, started.at_ms)
        self._running[call.ticket] = started
        return call

    # -- what was committed -----------------------------------------------------------------------------------

    def _end_content(self, batch: Batch, record_ids: Sequence[int]) -> dict[str, object]:
        """Return what the END record keeps: the results of a completed run, every record that was used, and why."""
        ids = self._results.record_ids()
        for item, record_id in zip(batch.concluded, record_ids, strict=True):
            if item.record.kind is RecordKind.RESULT:
                ids[item.started.index] = record_id
        steps, completed = self._resolver.steps, batch.end_state is RunState.COMPLETED
        return {
            "results": {steps[at].name: ids[at] for at in self._resolver.plan.terminals} if completed else {},
            "used": sorted(ids.values()),
            "code_changed": self._recorded.code_changed,
            "reason": batch.end_reason,
        }

    def _committed(self, batch: Batch, written: Written) -> None:
        for item, record_id in zip(batch.concluded, written.record_ids, strict=True):
            if item.record.kind is RecordKind.RESULT:
                self._results.landed(item.started.index, record_id)
        why = stopped(self._journal.run_id, written)
        if why is None:
            return
        refused = batch.starts[written.started :]
        self._withdraw(refused)
        self._stopped = written.state in STOPPED
        self._left = max(self._left, 1)  # whatever was recorded, a stopped run is not done
        if not isinstance(self._failure, RunCancelled | RunQuarantined):
            self._failure = None
        self._fail(why, "" if self._stopped else refused[0].identity.name)


def _said(error: Exception) -> str:
    try:
        return repr(error)
    except Exception:  # a class of the user's
        return type(error).__name__


def diverged(run_id: str, step_name: str, because: Sequence[str]) -> Diverged:
    """Return the refusal of a step that differs from its record in these paths."""
    words = ", ".join(because) or "its fingerprint"
    return Diverged(
        f"step {step_name!r} of run {run_id!r} differs from its record: {words} changed",
        hint="use on_change='rerun', a new run_id, or what was recorded",
    )
