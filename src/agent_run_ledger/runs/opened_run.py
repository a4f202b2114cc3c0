"""Opening a dynamic run: its live attempt, or the records of a completed one."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from agent_run_ledger import errors
from agent_run_ledger.errors import Misuse, Refused, Tampered
from agent_run_ledger.kernel.policy import LoopDetectorPolicy
from agent_run_ledger.kernel.record import DYNAMIC_KEY
from agent_run_ledger.kernel.scopes import ELEMENT_BYTES, KEY_BYTES, call_scope, enclosing_call
from agent_run_ledger.kernel.states import RunState
from agent_run_ledger.ports import RecordKey, RunRow
from agent_run_ledger.runs.attempt import (
    Attempt,
    Context,
    Definition,
    Finished,
    Known,
    finished_at,
    open_attempt,
    refuse_changed,
    start_detail,
)
from agent_run_ledger.runs.breaker import Breaker, nudge_of
from agent_run_ledger.runs.budgets import Limits
from agent_run_ledger.runs.handed_out import HandedOut
from agent_run_ledger.runs.inherited import keys_for, prefix_of
from agent_run_ledger.runs.inputs import Inputs
from agent_run_ledger.runs.journal import Journal
from agent_run_ledger.runs.leaf_check import load_record, load_value
from agent_run_ledger.runs.parents import Parent
from agent_run_ledger.runs.picked import refuse_taken
from agent_run_ledger.runs.watch import Watch, begin_watch

SCOPE_KEY = "scope_key"
PARENT_SCOPE = "parent_scope"
PARENT_AFTER = "parent_after"


@dataclass(frozen=True, slots=True, kw_only=True)
class DynamicRequest:
    """Which dynamic run to open, with which inputs, under which settings; `picked` as of `open_attempt`."""

    run_id: str
    inputs: Inputs
    max_parallel: int
    policy: LoopDetectorPolicy | None
    takeover: bool
    keep_inputs: bool
    limits: Limits = field(default_factory=Limits)
    parent: Parent | None = None
    picked: RunRow | None = None


class OpenedRun:
    """A dynamic run that was opened. `journal` is None for a completed one: nothing is written to it, or judged.

    `handed_out`: what its family handed out before the commit.
    """

    def __init__(
        self, context: Context, row: RunRow, attempt: Attempt | None, request: DynamicRequest, known: Known
    ) -> None:
        self._context = context
        self._attempt = attempt
        self.row = row
        self.prefix = prefix = prefix_of(context.store, row, known)
        self._referenced = frozenset[int]() if prefix is None else prefix.record_ids
        self.keys: Sequence[RecordKey] = () if row.attempt == 1 and attempt else keys_for(context.store, row, prefix)
        self.scope_key = _scope_key(context, row, known)
        self.watch: Watch | None = None
        self.journal: Journal | None = None
        policy, around = request.policy, None if request.parent is None else request.parent.session
        self.breaker = None if attempt is None or policy is None else Breaker(context.store, row, policy)
        self.handed_out: HandedOut = HandedOut() if around is None else around.opened.handed_out
        if attempt is not None:
            self.watch = begin_watch(context.observers, context.store, row, takeover=attempt.lock is None)
            self.journal = Journal(context, attempt, self.watch, referenced=self._referenced)

    def load(self, record_id: int) -> Any:
        """Return the value of a record. See `load_value`."""
        row = self.row
        return load_value(self._context.store, row.run_id, record_id, run_uid=row.run_uid, referenced=self._referenced)

    def recall(self, record_id: int) -> tuple[Any, str | None]:
        """Return the value of a record, and what the breaker told the agent with it, None for nothing."""
        row = self.row
        value, record = load_record(
            self._context.store, row.run_id, record_id, run_uid=row.run_uid, referenced=self._referenced
        )
        return value, nudge_of(record)

    def within_restored(self, used: Collection[int]) -> set[int]:
        """Return the results of what the bodies of these calls had called: where they were restored, so were those."""
        nested = [key for key in self.keys if enclosing_call(key.scope)]
        if not nested:
            return set()
        restored = {
            call_scope(self.scope_key, key.scope, key.name, key.fingerprint, key.occurrence)
            for key in self.keys
            if key.record_id in used
        }
        return {
            key.record_id
            for key in nested
            if any(key.scope[:end] in restored for end in range(ELEMENT_BYTES, len(key.scope) + 1, ELEMENT_BYTES))
        }

    def close(self, failure: BaseException | None) -> None:
        """Give the attempt back, then tell those who watch."""
        if self._attempt is not None:
            self._attempt.close()
        if self.watch is not None:
            self.watch.ended(failure)


def open_dynamic(context: Context, request: DynamicRequest) -> OpenedRun:
    """Become the live attempt of a dynamic run, or open the records of a completed one.

    Raises what `open_attempt` raises, and Misuse("run_kind") for a run that was started by `execute`.
    """
    row = context.store.reader().find_run(request.run_id)
    refuse_taken(request.picked, row)
    parent = named_here(context, request.parent)
    known: Known = {}
    if row is not None:
        _refuse_kind(context, row, known)
        if parent is not None and row.parent_row_id != parent.row_id and row.state is not RunState.COMPLETED:
            raise Refused(
                f"run {request.run_id!r} was not started within run {parent.run_id!r}, and cannot go on there",
                code="other_parent",
                hint="give the run within it another id",
            )
    finished = None if row is None else finished_at(context, row, request.inputs)
    finished = finished or _failed_for_good(context, row, request)
    if finished is None:
        definition = Definition(
            steps=[],
            policy=None if request.policy is None else request.policy.as_stored(),
            max_parallel=request.max_parallel,
            keep_inputs=request.keep_inputs,
            dynamic=dynamic_detail(context, parent),
            parent_row_id=None if parent is None else parent.row_id,
            budgets=request.limits.given(within=parent is not None),
        )
        opened = open_attempt(
            context,
            request.run_id,
            inputs=request.inputs,
            definition=definition,
            takeover=request.takeover,
            known=known,
            picked=request.picked,
        )
        if isinstance(opened, Attempt):
            return _opened(context, opened, request, known)
        finished = opened
    return OpenedRun(context, finished.row, None, request, known)


def _failed_for_good(context: Context, row: RunRow | None, request: DynamicRequest) -> Finished | None:
    """Return a child that failed and that the run around it went on from: it fails the same way again.

    Trying it again could give the program another past than the one that its later calls are on record for. What an
    error of ours ended is gone on with. Within a run where nothing new may run, no child goes on, however it ended:
    what is on its record is given again, and Refused("run_completed") for a new one.
    """
    around = None if request.parent is None else request.parent.session
    if around is None or request.parent is None:
        return None
    if row is None:
        if around.over:
            raise Refused(
                f"run {around.run_id!r} is completed, and no run {request.run_id!r} was started within it",
                code="run_completed",
                hint="nothing new runs in a completed run; use a new run_id",
            )
        return None
    if not around.over:
        ours = isinstance(getattr(errors, row.reason, None), type)
        if row.state is not RunState.FAILED or row.end_record_id is None or ours:
            return None
        if not around.went_on_from(request.parent.scope, row.run_uid, row.end_record_id):
            return None
    refuse_changed(context, row, request.inputs)
    return Finished(row=row)


def named_here(context: Context, parent: Parent | None) -> Parent | None:
    """Return the parent where it is a run of this store, whose rows can name it; else None."""
    return parent if parent is not None and parent.log_id == context.store.log_id else None


def _opened(context: Context, attempt: Attempt, request: DynamicRequest, known: Known) -> OpenedRun:
    try:
        return OpenedRun(context, attempt.row, attempt, request, known)
    except BaseException:
        attempt.close()
        raise


def refuse_dynamic(context: Context, row: RunRow) -> None:
    """Raise Misuse("run_kind") for a dynamic run: `execute` does not go on with one."""
    if start_detail(context.store, row)[0].get(DYNAMIC_KEY) is not None:
        raise Misuse(
            f"run {row.run_id!r} is a dynamic run",
            code="run_kind",
            hint="go on with it in `with ledger.run(...)`; `arl runs explain` tells what its calls would be answered",
        )


def _refuse_kind(context: Context, row: RunRow, known: Known) -> None:
    if start_detail(context.store, row, known)[0].get(DYNAMIC_KEY) is None:
        raise Misuse(
            f"run {row.run_id!r} is a pipeline's", code="run_kind", hint="go on with it by ledger.execute(...)"
        )


def dynamic_detail(context: Context, parent: Parent | None) -> dict[str, object]:
    """Return what the START of an attempt keeps; the scope key of a run's first START is the one that counts."""
    described: dict[str, object] = {SCOPE_KEY: context.entropy.token(KEY_BYTES).hex()}
    if parent is not None:
        described[PARENT_SCOPE] = parent.scope.hex()
        described[PARENT_AFTER] = parent.after
    return described


def _scope_key(context: Context, row: RunRow, known: Known) -> bytes:
    detail = start_detail(context.store, row, known)[0].get(DYNAMIC_KEY)
    try:
        return bytes.fromhex(str(cast("dict[str, Any]", detail)[SCOPE_KEY]))
    except (LookupError, TypeError, ValueError) as error:
        raise Tampered(f"run {row.run_id!r}: its START has no scope key", hint="run `arl verify`") from error
