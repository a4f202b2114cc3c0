"""Becoming a run's live attempt: the lock, the state table, and the START transaction."""

from __future__ import annotations

import os
import shlex
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, NamedTuple, cast

import orjson

from agent_run_ledger import codecs
from agent_run_ledger.errors import (
    BudgetExceeded,
    LoopDetected,
    Misuse,
    RunBusy,
    RunCancelled,
    RunQuarantined,
    Tampered,
    Unavailable,
)
from agent_run_ledger.kernel.budget import Budget
from agent_run_ledger.kernel.envelope import Change
from agent_run_ledger.kernel.record import (
    DYNAMIC_KEY,
    KEPT_INPUTS,
    SALT_BYTES,
    SUBMITTED_KEY,
    Record,
    RecordKind,
    record_mac,
)
from agent_run_ledger.kernel.states import RunEvent, RunState, next_run_state
from agent_run_ledger.ports import Clock, Entropy, InFlight, Observer, Question, RunLock, RunRow, Store, Tx
from agent_run_ledger.ports.effect_steps import Effects
from agent_run_ledger.runs.abandoned import abandoned
from agent_run_ledger.runs.budgets import BUDGET, doubt_marks, is_for_budget, open_budgets, way_on
from agent_run_ledger.runs.inputs import Inputs
from agent_run_ledger.runs.leaf_check import generation_at, record_of_run
from agent_run_ledger.runs.picked import refuse_taken
from agent_run_ledger.runs.reasons import is_for_loop

MAX_STORED_BYTES = 1 << 30
START_TRIES = 20
PARENT_KEY = "parent"
"""Where a run's first START names the run within which it was started, by its uid in hex."""
LOCK_PAUSES_S = (0.001, 0.004)

Known = dict[int, Record]
"""First STARTs by their ids, each checked against its leaf: who opens one run reads its START once."""


def no_effects() -> Effects:
    """Be what a context without effects has in their place."""
    raise Misuse("no effects belong to this run", code="no_effects", hint="register them with `RunLedger.effect`")


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """What every part of a run needs from outside."""

    store: Store
    clock: Clock
    entropy: Entropy
    limit_bytes: int
    observers: tuple[Observer, ...] = ()
    effects: Callable[[], Effects] = no_effects


class Submitted(NamedTuple):
    """Where a run waits for a worker, and which entry the worker calls: "" for the ledger's pipeline."""

    queue: str
    entry: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition:
    """What the program says of a run when an attempt starts: plain values, kept in the START record.

    `order_only`: per step, the dependencies whose results it does not take. `keep_inputs`: whether the inputs' values
    are kept too, where the run's first START does not have them. `dynamic`: what the START of a dynamic run keeps
    beside all this, None for a pipeline. `parent_row_id`: the run within which this one is started, if any. `budgets`:
    by step, "" for the run's own. `submitted`: how workers find the run, for one that is only to be begun by them.
    """

    steps: list[list[object]]
    policy: Mapping[str, object] | None
    max_parallel: int
    order_only: Mapping[str, list[str]] = field(default_factory=dict[str, list[str]])
    keep_inputs: bool = False
    dynamic: Mapping[str, object] | None = None
    parent_row_id: int | None = None
    budgets: Mapping[str, Budget] = field(default_factory=dict[str, Budget])
    submitted: Submitted | None = None


@dataclass(slots=True, kw_only=True)
class Attempt:
    """The live attempt of a run: its row as of the start, and the right to write under its generation."""

    row: RunRow
    lock: RunLock | None
    closed: bool = False

    def hold(self, store: Store) -> None:
        """After a takeover, become the lock's holder as soon as the process that was taken over has let go of it.

        Misuse for an attempt that was given back: nothing more is written in it.
        """
        if self.closed:
            raise Misuse(f"attempt {self.row.attempt} of run {self.row.run_id!r} is over", code="run_over")
        if self.lock is None:
            lock = store.lock_run(self.row.run_id)
            self.lock = lock if self.lock is None else self.lock  # another thread of ours may have had it meanwhile

    def close(self) -> None:
        """Give the run's lock back. Nothing is written: what was in flight is found by the next attempt."""
        self.closed = True
        if self.lock is not None:
            self.lock.release()
            self.lock = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """The run was already completed: nothing runs."""

    row: RunRow


def holder() -> str:
    """Return who holds an attempt, for messages only: a pid decides nothing."""
    return orjson.dumps({"pid": os.getpid(), "host": socket.gethostname()}).decode()


def open_attempt(
    context: Context,
    run_id: str,
    *,
    inputs: Inputs,
    definition: Definition,
    takeover: bool,
    known: Known | None = None,
    picked: RunRow | None = None,
) -> Attempt | Finished:
    """Apply the state table to `execute` on this run, once and without waiting.

    Raises RunBusy (another attempt is live), InputsChanged, RunQuarantined, RunCancelled. On success the START
    record is committed and synced, everything an earlier attempt left in flight is recorded as abandoned, and the
    generation is one higher than before. `known`: given by who has just seen that the run is not finished. `picked`:
    the run as it is to be begun; Unavailable("run_taken") where it was carried on since.
    """
    finished = finished_run(context, run_id, inputs) if known is None else None
    if finished is not None:
        return finished
    lock = try_lock(context.store, run_id)
    if lock is None and not takeover and not was_taken_over(context.store, run_id):
        raise _busy(context, run_id)
    try:
        opened = _open_locked(
            context, run_id, {} if known is None else known, inputs=inputs, definition=definition, picked=picked
        )
        if isinstance(opened, RunRow):
            return Attempt(row=opened, lock=lock)
    except BaseException:
        if lock is not None:
            lock.release()
        raise
    if lock is not None:
        lock.release()
    return opened


def finished_run(context: Context, run_id: str, inputs: Inputs) -> Finished | None:
    """Return a completed run, None for one that may be started; refuse other inputs, QUARANTINE and cancelled runs."""
    row = context.store.reader().find_run(run_id)
    return None if row is None else finished_at(context, row, inputs)


def finished_at(context: Context, row: RunRow, inputs: Inputs) -> Finished | None:
    """Return a run with this row if it is completed. See `finished_run`."""
    _refuse_stopped(context.store, row)
    if row.state is not RunState.COMPLETED:
        return None
    refuse_changed(context, row, inputs)
    return Finished(row=row)


def try_lock(store: Store, run_id: str) -> RunLock | None:
    """Try a few times within milliseconds: a tool that asks whether the run is live holds its lock for an instant."""
    for pause_s in LOCK_PAUSES_S:
        lock = store.lock_run(run_id)
        if lock is not None:
            return lock
        time.sleep(pause_s)
    return store.lock_run(run_id)


def was_taken_over(store: Store, run_id: str) -> bool:
    """Return whether a person took the run from its last attempt: its generation is above that attempt's START."""
    row = store.reader().find_run(run_id)
    if row is None or row.last_start_record_id is None:
        return False
    return row.generation > generation_at(store, row.last_start_record_id)


def _open_locked(
    context: Context, run_id: str, known: Known, *, inputs: Inputs, definition: Definition, picked: RunRow | None
) -> RunRow | Finished:
    """Commit a START, reading the run anew for as long as operators change it in between."""
    for _ in range(START_TRIES):
        row = context.store.reader().find_run(run_id)
        refuse_taken(picked, row)
        if row is not None:
            _refuse_stopped(context.store, row)
            refuse_changed(context, row, inputs, known)
            if row.state is RunState.COMPLETED:
                return Finished(row=row)
        started = _start(context, run_id, row, known, inputs=inputs, definition=definition)
        if started is not None:
            return started
    raise Unavailable(f"run {run_id!r} kept changing while it was being started", code="run_contended")


def _refuse_stopped(store: Store, row: RunRow) -> None:
    """Refuse what people or the breaker stopped."""
    if row.state is RunState.QUARANTINED and is_for_budget(row.reason):
        raise BudgetExceeded(
            f"run {row.run_id!r} is in QUARANTINE ({row.reason})",
            hint=way_on(row.reason, _arl(store, row.run_id, "release")),
        )
    if row.state is RunState.QUARANTINED and is_for_loop(row.reason):
        raise LoopDetected(
            f"run {row.run_id!r} is in QUARANTINE ({row.reason})",
            hint=f"look at its calls with `{_arl(store, row.run_id, 'explain', group='breaker')}`, then let it go on "
            f"with a new count: `{_arl(store, row.run_id, 'release')}`",
        )
    if row.state is RunState.QUARANTINED:
        raise RunQuarantined(
            f"run {row.run_id!r} is in QUARANTINE ({row.reason})",
            hint=f"look at it with `{_arl(store, row.run_id, 'show')}`, then `{_arl(store, row.run_id, 'release')}`",
        )
    if row.state is RunState.CANCELLED:
        raise RunCancelled(f"run {row.run_id!r} was cancelled, which is for ever", hint="use a new run_id, or fork it")


def refuse_changed(context: Context, row: RunRow, inputs: Inputs, known: Known | None = None) -> None:
    """Refuse inputs other than those the run was started with."""
    start = first_start(context.store, row, known)
    stored = detail_of_start(start)["inputs"]
    inputs.refuse_changed(row.run_id, stored, start.salt, kept=lambda: kept_inputs(start) or {})


def start_detail(store: Store, row: RunRow, known: Known | None = None) -> tuple[Mapping[str, Any], bytes]:
    """Return the first START record's content without the kept inputs, and its salt. Refused("erased")."""
    start = first_start(store, row, known)
    return detail_of_start(start), start.salt


def detail_of_start(start: Record) -> Mapping[str, Any]:
    """Return the content of a START record without the kept inputs."""
    detail, _ = codecs.unpack_without(start.encoding, start.payload, KEPT_INPUTS)
    return cast("Mapping[str, Any]", detail)


def kept_inputs(start: Record) -> dict[str, Any] | None:
    """Return the inputs' values where a first START keeps them, else None. Raises what `decode` raises."""
    _, kept = codecs.unpack_without(start.encoding, start.payload, KEPT_INPUTS)
    return None if kept is None else cast("dict[str, Any]", codecs.decode(kept))


def first_start(store: Store, row: RunRow, known: Known | None = None) -> Record:
    """Return a run's first START, checked against its leaf: read, or `known`. Refused("erased"), Tampered."""
    if row.start_record_id is None:
        raise Tampered(f"run {row.run_id!r} has no START record", hint="run `arl verify`")
    start = None if known is None else known.get(row.start_record_id)
    if start is None or start.run_uid != row.run_uid:
        start = record_of_run(store, row, row.start_record_id, RecordKind.START)
        if known is not None:
            known[row.start_record_id] = start
    return start


def _busy(context: Context, run_id: str) -> RunBusy:
    row = context.store.reader().find_run(run_id)
    who = ""
    if row is not None:
        since = datetime.fromtimestamp(row.updated_at_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        who = f" held by {row.holder} since {since}"
    return RunBusy(
        f"run {run_id!r} has a live attempt{who}",
        hint="wait for it (wait_s=...), or, if you know that it is stuck, "
        f"`{_arl(context.store, run_id, 'takeover')}`: then the next execute goes on",
    )


def _arl(store: Store, run_id: str, command: str, *, group: str = "runs") -> str:
    """Return a command line for people, quoted for a shell."""
    reason = "" if command in ("show", "explain") else " --reason ..."
    run = f"-- {shlex.quote(run_id)}" if run_id.startswith("-") else shlex.quote(run_id)
    return f"arl {group} {command} --db {shlex.quote(store.location)}{reason} {run}"


def _start(
    context: Context, run_id: str, before: RunRow | None, known: Known, *, inputs: Inputs, definition: Definition
) -> RunRow | None:
    """Commit one START. None when the run changed since `before` was read."""
    record = start_record(context, run_id, before, inputs=inputs, definition=definition, known=known)

    def write(tx: Tx) -> RunRow | None:
        if tx.find_run(run_id) != before:
            return None
        if before is not None:  # an erasure that ended since we looked left the row as it was
            _refuse_erased(tx, context.store, before)
        return write_start(tx, context, run_id, before, record, definition)

    return context.store.transact(context.entropy.uuid7(), write, first=_asked_first(run_id, before))


def _asked_first(run_id: str, before: RunRow | None) -> list[Question]:
    """Return what a START asks before it writes."""
    asked = [Question("find_run", run_id)]
    if before is not None:
        asked += [Question("in_flight", before.row_id), Question("budgets", before.row_id)]
        if before.start_record_id is not None:
            asked.append(Question("is_erased", before.start_record_id))
    return asked


def _refuse_erased(tx: Tx, store: Store, row: RunRow) -> None:
    """Refuse a run whose first START, which was checked against its leaf, is erased or gone by now."""
    if row.start_record_id is None or tx.is_erased(row.start_record_id) is not False:
        first_start(store, row)


def start_record(
    context: Context,
    run_id: str,
    before: RunRow | None,
    *,
    inputs: Inputs,
    definition: Definition,
    known: Known | None = None,
) -> Record:
    """Return the START record of a run's next attempt."""
    salt = context.entropy.token(SALT_BYTES)
    content: dict[str, object] = {
        "run_id": run_id,
        "inputs": inputs.stored(salt),
        "steps": definition.steps,
        "policy": definition.policy,
        "max_parallel": definition.max_parallel,
        "holder": holder(),
    }
    if definition.order_only:
        content["order_only"] = definition.order_only
    if before is None and definition.parent_row_id is not None:
        content[PARENT_KEY] = context.store.reader().get_run(definition.parent_row_id).run_uid.hex()
    if definition.dynamic is not None:
        content[DYNAMIC_KEY] = definition.dynamic
    if definition.submitted is not None:
        content[SUBMITTED_KEY] = definition.submitted._asdict()
    if definition.budgets:
        content[BUDGET] = {tool: budget.as_stored() for tool, budget in definition.budgets.items()}
    if definition.keep_inputs and not _keeps_inputs(context.store, before, known):
        content[KEPT_INPUTS] = inputs.kept(limit_bytes=context.limit_bytes)
    packed = codecs.pack(content, limit_bytes=MAX_STORED_BYTES)
    run_uid = context.entropy.uuid7() if before is None else before.run_uid
    now_ms = context.clock.now_ms()
    return Record(
        kind=RecordKind.START,
        run_uid=run_uid,
        salt=salt,
        attempt=1 if before is None else before.attempt + 1,
        started_at_ms=now_ms,
        ended_at_ms=now_ms,
        value_sha256=packed.value_sha256,
        encoding=packed.encoding,
        payload=packed.payload,
    )


def _keeps_inputs(store: Store, row: RunRow | None, known: Known | None) -> bool:
    """Return whether the first START of a run, checked before, keeps the inputs, which all its attempts share."""
    if row is None:
        return False
    record = first_start(store, row, known)
    return codecs.unpack_without(record.encoding, record.payload, KEPT_INPUTS)[1] is not None


def write_start(
    tx: Tx, context: Context, run_id: str, before: RunRow | None, record: Record, definition: Definition
) -> RunRow:
    """Write a START, with what it does to the run's row, its budgets and what an earlier attempt left in flight."""
    mac = record_mac(record)
    if before is None:
        row = tx.insert_run(
            run_uid=record.run_uid,
            run_id=run_id,
            holder=holder(),
            parent_row_id=definition.parent_row_id,
            queue=None if definition.submitted is None else definition.submitted.queue,
        )
        old, generation = "none", 1
    else:
        row, old, generation = before, str(before.state), before.generation + 1
    new = next_run_state(None if before is None else before.state, RunEvent.START)
    if new is None:
        raise Misuse(f"run {run_id!r} cannot start from state {old}", code="bad_state")
    change = Change(type="run", id=record.run_uid, old=old, new=str(new), generation=generation, mac=mac)
    marks = [] if before is None else tx.in_flight(row.row_id)
    budgets = {} if before is None else tx.budgets(row.row_id)
    record_id = tx.add_record(row.row_id, record, change)
    open_budgets(tx, context.store.reader(), row, definition.budgets, None if before is None else budgets)
    _abandon_all(tx, context, row, marks, generation)
    started: dict[str, Any] = {
        "state": new,
        "reason": "",
        "generation": generation,
        "attempt": record.attempt,
        "holder": holder(),
        "start_record_id": row.start_record_id if row.start_record_id is not None else record_id,
        "last_start_record_id": record_id,
        "end_record_id": None,
    }
    tx.update_run(row, **started)
    return replace(row, **started, updated_at_ms=tx.now_ms)


def _abandon_all(tx: Tx, context: Context, row: RunRow, marks: Sequence[InFlight], generation: int) -> None:
    """Record what an earlier attempt left; what it had reserved of budgets is uncertain from now on."""
    for mark in marks:
        _abandon(tx, context, row.run_uid, mark, generation)
    doubt_marks(tx, row, marks)


def _abandon(tx: Tx, context: Context, run_uid: bytes, mark: InFlight, generation: int) -> None:
    """Record that a call was started and nothing says how it ended."""
    salt = context.entropy.token(SALT_BYTES)
    record, change = abandoned(mark, run_uid=run_uid, salt=salt, generation=generation, now_ms=tx.now_ms)
    tx.add_record(mark.run_row_id, record, change)
    tx.clear_in_flight(mark.run_row_id, mark.lane)
