"""What is decided over a run, by people or by a budget, each act a recorded decision."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from agent_run_ledger import codecs
from agent_run_ledger.errors import Misuse, Refused
from agent_run_ledger.kernel.envelope import Change
from agent_run_ledger.kernel.record import SALT_BYTES, Record, RecordKind, record_mac
from agent_run_ledger.kernel.states import RunEvent, RunState, next_run_state
from agent_run_ledger.ports import RunRow, Tx
from agent_run_ledger.runs.attempt import MAX_STORED_BYTES, Context
from agent_run_ledger.runs.differences import is_text

DONE = {
    RunEvent.QUARANTINE: "quarantined",
    RunEvent.RELEASE: "released",
    RunEvent.CANCEL: "cancelled",
    RunEvent.TAKEOVER: "taken over",
}
"""The operator's events, and what to say of a run that has had one."""


def decide(context: Context, run_id: str, event: RunEvent, *, reason: str, actor: str) -> RunRow:
    """Apply one operator event to a run and return its new row.

    Guarantees: the change of state, the DECISION record with reason and actor, and the leaf land together. A
    takeover raises the generation: the attempt that held the run can write nothing more. Refused("no_run") for an
    unknown run, Refused("bad_transition") where the table has no such arrow (a completed run stays completed),
    Refused("nobody_at_it") for the takeover of a suspended run.
    """
    if event not in DONE:
        raise Misuse(f"{event} is not an operator's decision", code="bad_event")
    if not reason.strip():
        raise Misuse(f"a {event} needs a reason", code="no_reason", hint="give --reason TEXT")
    if not is_text(reason):
        raise Misuse(f"the reason {reason!r} cannot be written as UTF-8", code="bad_reason")
    content = {"event": str(event), "reason": reason, "actor": actor}
    draft = _draft(event, content, context.entropy.token(SALT_BYTES))
    return context.store.transact(context.entropy.uuid7(), lambda tx: _write(tx, run_id, event, draft, reason))


def quarantine(
    tx: Tx, row_id: int, *, actor: str, reason: str, salt: bytes, content: Mapping[str, object] | None = None
) -> bool:
    """Put a run into QUARANTINE within a transaction; `actor` is what decided it. False where its state forbids it.

    `content`: what the DECISION keeps beside event, reason and actor.
    """
    row, event = tx.get_run(row_id), RunEvent.QUARANTINE
    new = next_run_state(row.state, event)
    if new is None:
        return False
    draft = _draft(event, {"event": str(event), "reason": reason, "actor": actor, **(content or {})}, salt)
    _apply(tx, row, new, event, draft, reason=reason)
    return True


def no_run(run_id: str) -> Refused:
    """Return the refusal of a run that is not there."""
    return Refused(f"there is no run {run_id!r} in this store", code="no_run", hint="`arl runs list` shows the runs")


def _write(tx: Tx, run_id: str, event: RunEvent, draft: Record, reason: str) -> RunRow:
    row = tx.find_run(run_id)
    if row is None:
        raise no_run(run_id)
    new = next_run_state(row.state, event)
    if new is None:
        raise Refused(f"run {run_id!r} is {row.state}: it cannot be {DONE[event]}", code="bad_transition")
    if event is RunEvent.TAKEOVER and row.state is RunState.SUSPENDED:
        raise _nobody_at_it(row)
    stops = new is RunState.QUARANTINED or new is RunState.CANCELLED
    kept = row.reason if new is row.state else ""  # a takeover changes nothing of what the run says of itself
    _apply(tx, row, new, event, draft, reason=f"operator: {reason}" if stops else kept)
    return tx.get_run(row.row_id)


def _nobody_at_it(row: RunRow) -> Refused:
    """Return the refusal of a takeover from nobody. It would only hide since when the run waits, and for what."""
    waits = f"waits in queue {row.queue!r}" if row.queue is not None else "waits"
    hint = "a worker of its queue goes on with it" if row.queue is not None else "the next execute() goes on with it"
    return Refused(
        f"run {row.run_id!r} is suspended: it {waits}, and nobody is at it",
        code="nobody_at_it",
        hint=f"there is nothing to take over; {hint} as soon as it may, and `arl runs cancel` ends it",
    )


def _draft(event: RunEvent, content: Mapping[str, object], salt: bytes) -> Record:
    packed = codecs.pack(content, limit_bytes=MAX_STORED_BYTES)
    return Record(
        kind=RecordKind.DECISION,
        run_uid=b"",
        salt=salt,
        name=str(event),
        value_sha256=packed.value_sha256,
        encoding=packed.encoding,
        payload=packed.payload,
    )


def _apply(tx: Tx, row: RunRow, new: RunState, event: RunEvent, draft: Record, *, reason: str) -> None:
    generation = row.generation + (1 if event is RunEvent.TAKEOVER else 0)
    record = replace(draft, run_uid=row.run_uid, attempt=row.attempt, started_at_ms=tx.now_ms, ended_at_ms=tx.now_ms)
    change = Change(type="run", id=row.run_uid, old=row.state, new=new, generation=generation, mac=record_mac(record))
    tx.add_record(row.row_id, record, change)
    tx.update_run(
        row,
        state=new,
        reason=reason,
        generation=generation,
        attempt=row.attempt,
        holder=row.holder,
        start_record_id=row.start_record_id,
        last_start_record_id=row.last_start_record_id,
        end_record_id=row.end_record_id,
    )
