"""Submitting a run: it is on record with its inputs, nothing of it has run, and a worker is to begin it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, cast

from agent_run_ledger import codecs
from agent_run_ledger.errors import Refused, Tampered
from agent_run_ledger.kernel.envelope import Change
from agent_run_ledger.kernel.record import SALT_BYTES, SUBMITTED_KEY, Record, RecordKind, record_mac
from agent_run_ledger.kernel.states import RunEvent, RunState, next_run_state
from agent_run_ledger.ports import Question, RunRow, Store, Tx
from agent_run_ledger.probes import reach
from agent_run_ledger.runs.attempt import (
    MAX_STORED_BYTES,
    Context,
    Definition,
    Submitted,
    detail_of_start,
    first_start,
    kept_inputs,
    refuse_changed,
    start_record,
    write_start,
)
from agent_run_ledger.runs.inputs import Inputs

SUBMITTED: Final = "submitted"
"""The reason of a suspended run that waits for its first worker. Other reasons begin with an error's class."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """What a worker needs to begin or go on with a run. `entry`: "" for the ledger's pipeline."""

    run_id: str
    queue: str
    entry: str
    inputs: Mapping[str, Any]


def submit_run(context: Context, run_id: str, *, inputs: Inputs, definition: Definition) -> RunRow:
    """Put a run on record that a worker is to begin, and return its row.

    Guarantees: once this returns, the run and its inputs are synced; the same submission again changes nothing.
    InputsChanged for the inputs of another one. Refused("run_exists") for a run that was not submitted, or to another
    queue or entry.
    """
    record = start_record(context, run_id, None, inputs=inputs, definition=definition)
    end = _end(context, record)

    def write(tx: Tx) -> RunRow:
        found = tx.find_run(run_id)
        if found is not None:
            return found
        return _suspend(tx, write_start(tx, context, run_id, None, record, definition), end)

    reach("record.before")
    row = context.store.transact(context.entropy.uuid7(), write, first=[Question("find_run", run_id)])
    reach("record.after")
    if row.run_uid != record.run_uid:
        refuse_changed(context, row, inputs)
        _refuse_other(context.store, row, definition)
    return row


def submission_of(store: Store, row: RunRow) -> Submission:
    """Return what a submitted run is to be begun with. Refused("erased"), Tampered, and what `decode` raises."""
    start = first_start(store, row)
    said = _submitted(start)
    inputs = kept_inputs(start)
    if said is None or said.queue != row.queue or inputs is None:
        raise Tampered(f"run {row.run_id!r} is in a queue that its START does not name", hint="run `arl verify`")
    return Submission(run_id=row.run_id, queue=said.queue, entry=said.entry, inputs=inputs)


def _submitted(start: Record) -> Submitted | None:
    said = detail_of_start(start).get(SUBMITTED_KEY)
    if said is None:
        return None
    named = cast("dict[str, str]", said)
    return Submitted(queue=named["queue"], entry=named["entry"])


def _refuse_other(store: Store, row: RunRow, definition: Definition) -> None:
    """Refuse a submission that is another one than the run of its id."""
    said = _submitted(first_start(store, row))
    if said is None:
        raise Refused(
            f"there is a run {row.run_id!r}, which was not submitted",
            code="run_exists",
            hint="it is its caller's own; give what is submitted another run id",
        )
    if said != definition.submitted:
        raise Refused(
            f"run {row.run_id!r} was submitted to queue {said.queue!r}, entry {said.entry or 'the pipeline'!r}",
            code="run_exists",
            hint="give what is submitted another run id",
        )


def _end(context: Context, start: Record) -> Record:
    content: dict[str, object] = {"results": {}, "used": [], "code_changed": [], "reason": SUBMITTED}
    packed = codecs.pack(content, limit_bytes=MAX_STORED_BYTES)
    return Record(
        kind=RecordKind.END,
        run_uid=start.run_uid,
        salt=context.entropy.token(SALT_BYTES),
        attempt=start.attempt,
        started_at_ms=start.started_at_ms,
        ended_at_ms=start.started_at_ms,
        value_sha256=packed.value_sha256,
        encoding=packed.encoding,
        payload=packed.payload,
    )


def _suspend(tx: Tx, row: RunRow, end: Record) -> RunRow:
    """Suspend the run in the transaction that begins it: two changes that the tables allow."""
    new = next_run_state(row.state, RunEvent.SUSPEND) or RunState.SUSPENDED
    change = Change(
        type="run", id=row.run_uid, old=str(row.state), new=str(new), generation=row.generation, mac=record_mac(end)
    )
    record_id = tx.add_record(row.row_id, end, change)
    tx.update_run(
        row,
        state=new,
        reason=SUBMITTED,
        generation=row.generation,
        attempt=row.attempt,
        holder=row.holder,
        start_record_id=row.start_record_id,
        last_start_record_id=row.last_start_record_id,
        end_record_id=record_id,
    )
    return replace(row, state=new, reason=SUBMITTED, end_record_id=record_id)
