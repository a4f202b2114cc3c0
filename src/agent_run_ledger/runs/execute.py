"""`execute` and `aexecute`: open an attempt, drive the pipeline with bodies, give the lock back."""

from __future__ import annotations

import contextvars
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

from agent_run_ledger import codecs
from agent_run_ledger.errors import LedgerError, Misuse, RunBusy, Tampered
from agent_run_ledger.kernel.record import RecordKind
from agent_run_ledger.ports import RunRow
from agent_run_ledger.runs.attempt import Attempt, Context, Definition, Finished, finished_run, open_attempt
from agent_run_ledger.runs.bodies import OffLoop, SyncBodies, Todo
from agent_run_ledger.runs.budgets import Limits
from agent_run_ledger.runs.explain import Verdict, explain_steps
from agent_run_ledger.runs.inherited import keys_for, prefix_of
from agent_run_ledger.runs.inputs import Inputs
from agent_run_ledger.runs.journal import Journal
from agent_run_ledger.runs.leaf_check import erased_step, load_value, record_of_run
from agent_run_ledger.runs.opened_run import named_here, refuse_dynamic
from agent_run_ledger.runs.parents import parent_here
from agent_run_ledger.runs.picked import refuse_taken
from agent_run_ledger.runs.pipeline import Pipeline, diverged
from agent_run_ledger.runs.recorded import Begun, Recorded
from agent_run_ledger.runs.resolver import Resolver
from agent_run_ledger.runs.steps import OnChange, Step
from agent_run_ledger.runs.usage import METER
from agent_run_ledger.runs.watch import Watch, begin_watch

log = logging.getLogger("agent_run_ledger")
T = TypeVar("T")
BUSY_POLL_S = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One call of `execute`: which run, with which steps and inputs, and settings; `picked` as of `open_attempt`."""

    run_id: str
    steps: Sequence[Step[..., Any]]
    inputs: Mapping[str, object]
    on_change: OnChange
    max_parallel: int
    policy: Mapping[str, object] | None
    wait_s: float
    takeover: bool
    keep_inputs: bool = False
    limits: Limits = field(default_factory=Limits)
    picked: RunRow | None = None


class Session:
    """One `execute` between opening the attempt and giving it back. Every method may block on the store."""

    def __init__(self, context: Context, request: Request) -> None:
        self._context = context
        self._request = request
        self._inputs = Inputs(request.inputs, limit_bytes=context.limit_bytes)
        self._attempt: Attempt | None = None
        self._watch: Watch | None = None
        self._failure: BaseException | None = None
        self._pipeline: Pipeline | None = None
        self._resolver: Resolver | None = None
        self._parent = parent_here()
        outer = METER.get()
        if outer is not None:
            outer.note_run()
        try:
            self._resolver = Resolver(request.steps, self._inputs)
        except LedgerError as error:
            if finished_run(context, request.run_id, self._inputs) is None:
                raise
            log.warning("run %r is completed; its steps can no longer be bound: %s", request.run_id, error)
            return
        for name in self._resolver.plan.unused_inputs:
            log.warning("run %r: no step takes the input %r", request.run_id, name)

    def try_open(self) -> Finished | None:
        """Become the live attempt, or return what is finished; RunBusy when another attempt is live."""
        context, request, resolver = self._context, self._request, self._resolver
        if request.picked is not None:
            refuse_taken(request.picked, context.store.reader().find_run(request.run_id))
        finished = finished_run(context, request.run_id, self._inputs)
        row = context.store.reader().find_run(request.run_id) if finished is None else finished.row
        if row is not None:
            refuse_dynamic(context, row)
        if finished is not None:
            return finished
        if resolver is None:
            raise Misuse(f"run {request.run_id!r} changed while it was looked at", code="run_contended")
        self._refuse_erased(resolver)
        self._refuse_divergence(resolver)
        parent = named_here(context, self._parent)
        definition = Definition(
            steps=resolver.described(),
            policy=request.policy,
            max_parallel=request.max_parallel,
            order_only=resolver.order_only(),
            keep_inputs=request.keep_inputs,
            parent_row_id=None if parent is None else parent.row_id,
            budgets=request.limits.given(within=parent is not None),
        )
        if self._parent is not None and self._parent.session is not None:
            self._parent.session.write_values()  # what this run is started with may rest on them
        opened = open_attempt(
            context,
            request.run_id,
            inputs=self._inputs,
            definition=definition,
            takeover=request.takeover,
            picked=request.picked,
        )
        if isinstance(opened, Finished):
            return opened
        self._attempt = opened
        self._watch = begin_watch(context.observers, context.store, opened.row, takeover=opened.lock is None)
        # a fork's first attempt is the act of forking: what starts a run here is none
        prefix = prefix_of(context.store, opened.row) if opened.row.attempt > 1 else None
        self._pipeline = Pipeline(
            context,
            Journal(context, opened, self._watch, referenced=() if prefix is None else prefix.record_ids),
            resolver,
            Recorded(context.store, keys_for(context.store, opened.row, prefix)),
            Begun(context.store, opened.row.row_id),
            on_change=request.on_change,
            max_parallel=request.max_parallel,
        )
        return None

    def _refuse_erased(self, resolver: Resolver) -> None:
        """Raise Refused before anything is written where a step of this pipeline has an erased result."""
        reader = self._context.store.reader()
        row = reader.find_run(self._request.run_id)
        if row is None:
            return
        gone = set(reader.erased_names(row.row_id))
        if row.forked_from_row_id is not None and (prefix := prefix_of(self._context.store, row)) is not None:
            gone.update(key.name for key in reader.keys_of(list(prefix.record_ids)) if key.erased)
        for step in resolver.steps if gone else ():
            if step.name in gone:
                raise erased_step(row.run_id, step.name)

    def _refuse_divergence(self, resolver: Resolver) -> None:
        """Raise Diverged before anything is written, as far as the recorded results tell."""
        run_id, default = self._request.run_id, self._request.on_change
        if all((step.on_change or default) is not OnChange.REFUSE for step in resolver.steps):
            return
        row = self._context.store.reader().find_run(run_id)
        policies = {step.name: step.on_change or default for step in resolver.steps}
        for step in () if row is None else explain_steps(self._context.store, row, resolver):
            if step.verdict is Verdict.RUNS and step.because and policies[step.name] is OnChange.REFUSE:
                raise diverged(run_id, step.name, step.because)

    @property
    def pipeline(self) -> Pipeline:
        """The pipeline of the open attempt."""
        if self._pipeline is None:
            raise Misuse(f"run {self._request.run_id!r} has no open attempt", code="no_attempt")
        return self._pipeline

    def recorded_result(self, finished: Finished) -> Any:
        """Return the result of a completed run, and say in the log what has changed since."""
        try:
            explained = (
                [] if self._resolver is None else explain_steps(self._context.store, finished.row, self._resolver)
            )
        except LedgerError as error:  # a record that does not matter to the result
            log.warning("run %r is completed; what changed since cannot be said: %s", finished.row.run_id, error)
            explained = []
        for step in explained:
            if step.because:
                log.warning(
                    "run %r is completed and its recorded result is returned; since then step %r changed: %s",
                    finished.row.run_id,
                    step.name,
                    ", ".join(step.because),
                )
        return completed_result(self._context, finished.row)

    def failed(self, error: BaseException) -> None:
        """Note what `execute` is about to raise, for those who watch."""
        self._failure = error

    def close(self) -> None:
        """Give the attempt back, then tell those who watch."""
        if self._attempt is not None:
            self._attempt.close()
        if self._watch is not None:
            self._watch.ended(self._failure)


def completed_result(context: Context, row: RunRow) -> Any:
    """Return what a completed run returned: one value, or a dict by step name. Refused("erased") where one is gone."""
    if row.end_record_id is None:
        raise Tampered(f"run {row.run_id!r} is completed and has no END record", hint="run `arl verify`")
    end = record_of_run(context.store, row, row.end_record_id, RecordKind.END)
    content: Any = codecs.unpack(end.encoding, end.payload)
    results: dict[str, int] = content["results"]
    prefix = prefix_of(context.store, row)
    referenced = frozenset[int]() if prefix is None else prefix.record_ids
    values = {
        name: load_value(context.store, row.run_id, record_id, run_uid=row.run_uid, referenced=referenced)
        for name, record_id in results.items()
    }
    return next(iter(values.values())) if len(values) == 1 else values


def execute(context: Context, request: Request) -> Any:
    """Run or resume a pipeline from this thread and return its result."""
    session = Session(context, request)
    deadline = time.monotonic() + request.wait_s
    bodies = SyncBodies()
    try:
        while True:
            try:
                finished = session.try_open()
                break
            except RunBusy:
                if time.monotonic() >= deadline:
                    raise
                time.sleep(min(BUSY_POLL_S, max(0.0, deadline - time.monotonic())))
        if finished is not None:
            return session.recorded_result(finished)
        todo = session.pipeline.start()
        while not todo.done:
            todo = session.pipeline.advance(bodies.run(todo))
        return session.pipeline.result()
    except BaseException as error:
        session.failed(error)
        raise
    finally:
        session.close()


async def aexecute(context: Context, request: Request, off_loop: OffLoop) -> Any:
    """Run or resume a pipeline on this event loop; everything that touches the store runs through `off_loop`."""
    import asyncio

    from agent_run_ledger.runs.async_bodies import AsyncBodies

    session = await off_loop(_carried(lambda: Session(context, request)))
    deadline = time.monotonic() + request.wait_s
    bodies = AsyncBodies()
    try:
        while True:
            try:
                finished = await off_loop(_carried(session.try_open))
                break
            except RunBusy:
                if time.monotonic() >= deadline:
                    raise
            await asyncio.sleep(min(BUSY_POLL_S, max(0.0, deadline - time.monotonic())))
        if finished is not None:
            return await off_loop(_carried(lambda: session.recorded_result(finished)))
        todo: Todo = await off_loop(_carried(session.pipeline.start))
        while not todo.done:
            outcomes = await bodies.run(todo)
            todo = await off_loop(_carried(partial(session.pipeline.advance, outcomes)))
        return await off_loop(_carried(session.pipeline.result))
    except BaseException as error:
        session.failed(error)
        raise
    finally:
        try:
            await bodies.close()
        finally:  # cancelled once more while bodies end: the lock is given back all the same
            session.close()


def _carried(fn: Callable[[], T]) -> Callable[[], T]:
    """Return fn for another thread: with this context, and with RuntimeError for a StopIteration.

    No future can carry a StopIteration, and every coroutine turns it into just that error.
    """
    context = contextvars.copy_context()

    def call() -> T:
        try:
            return context.run(fn)
        except StopIteration as error:
            raise RuntimeError("a step raised StopIteration") from error

    return call
