"""What a person found out about a call with an unknown outcome: recorded once, and what the run goes on with."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, cast

import orjson

from agent_run_ledger import codecs
from agent_run_ledger.errors import Misuse, Pending, Refused, RunBusy, Tampered, Unavailable
from agent_run_ledger.kernel.envelope import Change
from agent_run_ledger.kernel.record import SALT_BYTES, Record, RecordKind, record_mac
from agent_run_ledger.kernel.states import CallState, RunEvent, RunState
from agent_run_ledger.ports import InFlight, Reader, RunRow, Store, StoredRecord, Tx
from agent_run_ledger.probes import reach
from agent_run_ledger.runs.abandoned import AFTER, MARK, RESOLVE, RESOLVES, abandoned, after_of, is_unknown
from agent_run_ledger.runs.attempt import MAX_STORED_BYTES, Context, try_lock, was_taken_over
from agent_run_ledger.runs.budgets import doubt_marks, settle_doubt
from agent_run_ledger.runs.differences import is_text
from agent_run_ledger.runs.leaf_check import check_against_leaf, erased_step
from agent_run_ledger.runs.operate import decide, no_run

_DIGITS = 18
_HINT = "`arl runs show RUN` shows the calls of a run and which of them have an unknown outcome"


class Outcome(StrEnum):
    """What a person says of a call. NOT_DONE: it did not happen, and may be made again."""

    RESULT = "result"
    ERROR = "error"
    NOT_DONE = "not_done"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What was found out, who says so and why. `value` is the result, or the exception that the agent is to see.

    `usage` is what the call used, as records keep it; empty where nobody knows.
    """

    outcome: Outcome
    reason: str
    actor: str
    value: object = None
    usage: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolved:
    """A call that was resolved: its run, its step and its record, the decision, and the outcome's record if any."""

    row: RunRow
    step: str
    record_id: int
    decision_id: int
    outcome_id: int | None


def resolve_call(context: Context, run_id: str, call: int | str, finding: Finding) -> Resolved:
    """Record what became of the call whose outcome is unknown; `call` is the id of the record that says so.

    "mark-N" names the call in lane N of an attempt that died, of which no record says so yet: it is written first, in
    the same leaf, and the run is taken over before, so that nobody works on it any more.

    Guarantees: the DECISION with reason and actor and, unless the call was not done, the RESULT or ERROR land together
    in one synced leaf; nothing runs by it; a call is resolved once. What the run has already gone on from stays as it
    was: see docs/guide/unknown_outcomes.md.

    Refused: no_run, no_call (the run has no such record), not_unknown (its outcome is known, or it may run again),
    already_resolved, erased, run_completed (what it returned rests on the outcome being unknown). RunBusy where an
    attempt is live. Misuse for a finding that says nothing. Unstorable for a value without a stored form.
    """
    target = _target(call)
    packed = _packed(context, finding)
    lock = try_lock(context.store, run_id)
    if lock is None:
        raise RunBusy(
            f"run {run_id!r} has a live attempt, which goes on with what it knows",
            hint="end its process, or wait for it; a takeover does not end it",
        )
    try:
        if target.lane is not None:
            _take_over(context, run_id, target.lane, finding)
        resolver = _Resolver(context, run_id, target, finding, packed)
        reach("record.before")
        resolved = context.store.transact(context.entropy.uuid7(), resolver.write)
        reach("record.after")
        return resolved
    finally:
        lock.release()


def find_unknown(store: Store, row: RunRow, record_id: int) -> StoredRecord:
    """Return the record of a call of this run whose outcome is unknown and not resolved; Refused for any other.

    It is checked against its leaf. What is refused is what `resolve_call` refuses.
    """
    reader = store.reader()
    found = _own_record(reader, row, record_id)
    check_against_leaf(store, found)
    if not is_unknown(found.record):
        raise Refused(
            f"record {record_id} of run {row.run_id!r} is no call with an unknown outcome: {_what(found.record)}",
            code="not_unknown",
            hint=_HINT,
        )
    for decision, resolved_id in resolutions(reader, row):
        if resolved_id == record_id:
            said = content_of(decision.record)
            raise Refused(
                f"call {record_id} of run {row.run_id!r} is resolved already: {said.get('outcome')}, "
                f"by {said.get('actor')} ({said.get('reason')})",
                code="already_resolved",
                hint="what was recorded stays; to go another way, fork the run",
            )
    return found


def find_mark(marks: Iterable[InFlight], row: RunRow, lane: int) -> InFlight:
    """Return the mark of a call that may not run again; Refused for any other, and where the run stands still.

    A run in QUARANTINE is released first: until then an attempt that was taken over may still add evidence.
    """
    mark = next((one for one in marks if one.lane == lane), None)
    if mark is None:
        raise Refused(
            f"run {row.run_id!r} has no call '{MARK}{lane}' in flight: it is resolved already, or on record since",
            code="no_call",
            hint=_HINT,
        )
    if mark.repeatable:
        raise Refused(
            f"step {mark.name!r} of run {row.run_id!r} may run again, so the next attempt makes it anew",
            code="not_unknown",
            hint=_HINT,
        )
    if not mark.fingerprint:
        raise erased_step(row.run_id, mark.name)
    if row.state is not RunState.RUNNING:
        raise Refused(
            f"run {row.run_id!r} is {row.state}, and no record says yet that the outcome of this call is unknown",
            code="not_recorded",
            hint="release the run first" if row.state is RunState.QUARANTINED else "",
        )
    return mark


def _take_over(context: Context, run_id: str, lane: int, finding: Finding) -> None:
    """Whoever took the run over while another process held its lock works without the lock until its next commit."""
    row = context.store.reader().find_run(run_id)
    if row is None:
        raise no_run(run_id)
    find_mark(context.store.reader().in_flight(row.row_id), row, lane)
    if not was_taken_over(context.store, run_id):
        decide(context, run_id, RunEvent.TAKEOVER, reason=finding.reason, actor=finding.actor)


def _own_record(reader: Reader, row: RunRow, record_id: int) -> StoredRecord:
    try:
        found = reader.record(record_id)
    except Tampered as error:
        if error.code != "row_missing":
            raise
        found = None
    if found is None or found.run_row_id != row.row_id:
        raise Refused(f"run {row.run_id!r} has no record {record_id}", code="no_call", hint=_HINT)
    return found


def resolutions(reader: Reader, row: RunRow) -> Iterator[tuple[StoredRecord, int]]:
    """Yield the decisions of a run that resolve a call, and which record each of them resolves."""
    for stored in reader.records(row.row_id, kinds=[RecordKind.DECISION]):
        if stored.record.name == RESOLVE:
            said = content_of(stored.record).get("record")
            if type(said) is int:
                yield stored, said


def content_of(decision: Record) -> dict[str, Any]:
    """Return what a DECISION record says. Raises what `codecs.unpack` raises."""
    content = codecs.unpack(decision.encoding, decision.payload)
    return content if isinstance(content, dict) else {}  # pyright: ignore[reportUnknownVariableType]


class _Resolver:
    """One resolution, checked and written under the store's write lock."""

    def __init__(
        self, context: Context, run_id: str, target: _Target, finding: Finding, packed: codecs.Packed | None
    ) -> None:
        self._context = context
        self._run_id = run_id
        self._target = target
        self._record_id = target.record_id
        self._finding = finding
        self._packed = packed

    def write(self, tx: Tx) -> Resolved:
        """Write the decision and the outcome."""
        row = tx.find_run(self._run_id)
        if row is None:
            raise no_run(self._run_id)
        lane = self._target.lane
        found = find_unknown(self._context.store, row, self._record_id).record if lane is None else None
        if row.state is RunState.COMPLETED:
            raise Refused(
                f"run {self._run_id!r} is completed, and what it returned rests on this outcome being unknown",
                code="run_completed",
                hint="what it recorded stays; a fork of it can go another way",
            )
        unknown = self._leave(tx, row, lane) if lane is not None else cast("Record", found)
        decision_id = self._add(tx, row, self._decision(tx, row, unknown), CallState.UNKNOWN, CallState.RESOLVED)
        outcome_id = None
        if self._packed is not None:
            new = CallState.RECORDED if self._finding.outcome is Outcome.RESULT else CallState.FAILED
            outcome = self._outcome(tx, row, unknown, self._packed)
            outcome_id = self._add(tx, row, outcome, CallState.RESOLVED, new)
            if outcome.usage:
                settle_doubt(tx, row, unknown, outcome)
        else:
            settle_doubt(tx, row, unknown, None)
        return Resolved(
            row=row, step=unknown.name, record_id=self._record_id, decision_id=decision_id, outcome_id=outcome_id
        )

    def _leave(self, tx: Tx, row: RunRow, lane: int) -> Record:
        """Record of a call that a dead attempt left in flight that its outcome is unknown, as the next start would."""
        mark = find_mark(tx.in_flight(row.row_id), row, lane)
        salt = self._context.entropy.token(SALT_BYTES)
        record, change = abandoned(mark, run_uid=row.run_uid, salt=salt, generation=row.generation, now_ms=tx.now_ms)
        doubt_marks(tx, row, [mark])
        tx.clear_in_flight(row.row_id, lane)
        self._record_id = tx.add_record(row.row_id, record, change)
        return record

    def _add(self, tx: Tx, row: RunRow, record: Record, old: CallState, new: CallState) -> int:
        mac = record_mac(record)
        change = Change(type="step", id=row.run_uid, old=old, new=new, generation=row.generation, mac=mac)
        return tx.add_record(row.row_id, record, change)

    def _decision(self, tx: Tx, row: RunRow, unknown: Record) -> Record:
        finding = self._finding
        content = {
            "event": RESOLVE,
            "reason": finding.reason,
            "actor": finding.actor,
            "record": self._record_id,
            "step": unknown.name,
            "outcome": str(finding.outcome),
        }
        packed = codecs.pack(content, limit_bytes=MAX_STORED_BYTES)
        return Record(
            kind=RecordKind.DECISION,
            run_uid=row.run_uid,
            salt=self._context.entropy.token(SALT_BYTES),
            name=RESOLVE,
            attempt=row.attempt,
            started_at_ms=tx.now_ms,
            ended_at_ms=tx.now_ms,
            value_sha256=packed.value_sha256,
            encoding=packed.encoding,
            payload=packed.payload,
        )

    def _outcome(self, tx: Tx, row: RunRow, unknown: Record, packed: codecs.Packed) -> Record:
        """The record that stands for the call from now on: of its key, and known to come from a person."""
        inputs: dict[str, object] = {RESOLVES: self._record_id}
        if after := after_of(unknown):
            inputs[AFTER] = after
        return Record(
            kind=RecordKind.RESULT if self._finding.outcome is Outcome.RESULT else RecordKind.ERROR,
            run_uid=row.run_uid,
            salt=self._context.entropy.token(SALT_BYTES),
            scope=unknown.scope,
            name=unknown.name,
            fingerprint=unknown.fingerprint,
            occurrence=unknown.occurrence,
            attempt=row.attempt,
            tries=unknown.tries,
            started_at_ms=unknown.started_at_ms,
            ended_at_ms=tx.now_ms,
            inputs=orjson.dumps(inputs),
            value_sha256=packed.value_sha256,
            encoding=packed.encoding,
            payload=packed.payload,
            usage=self._finding.usage,
        )


def _packed(context: Context, finding: Finding) -> codecs.Packed | None:
    """Check a finding and return its value packed, None where the call was not done."""
    if not finding.reason.strip():
        raise Misuse("a resolution needs a reason", code="no_reason", hint="say what shows it")
    if not is_text(finding.reason) or not is_text(finding.actor):
        raise Misuse("reason and actor must be text that can be written as UTF-8", code="bad_reason")
    if finding.outcome is Outcome.NOT_DONE:
        if finding.usage:
            raise Misuse("a call that was not done used nothing", code="bad_usage")
        return None
    if finding.outcome is Outcome.ERROR and not isinstance(finding.value, Exception):
        raise Misuse(f"an error must be an Exception, not {type(finding.value).__name__}", code="bad_error")
    if isinstance(finding.value, Pending | Unavailable):
        raise Misuse(
            f"a {type(finding.value).__name__} says that nothing happened",
            code="bad_error",
            hint="say that the call was not done (not_done=True): then it is made again",
        )
    return codecs.pack(finding.value, limit_bytes=context.limit_bytes)


@dataclass(frozen=True, slots=True)
class _Target:
    """What is to be resolved: a record, or the mark in a lane."""

    record_id: int = -1
    lane: int | None = None


def _target(call: int | str) -> _Target:
    if isinstance(call, str) and call.startswith(MARK):
        return _Target(lane=check_record_id(call.removeprefix(MARK)))
    return _Target(record_id=check_record_id(call))


def check_record_id(call: int | str) -> int:
    """Return the number of a record; Misuse for what cannot be one."""
    text = str(call)
    if isinstance(call, bool) or not (text.isascii() and text.isdecimal() and len(text) <= _DIGITS):
        raise Misuse(
            f"a call is named by the number of its record, or mark-N while it is in flight, not {call!r}",
            code="bad_call",
            hint=_HINT,
        )
    return int(text)


def _what(record: Record) -> str:
    words = {
        RecordKind.RESULT: "it has a result",
        RecordKind.ERROR: "it failed, and its error is recorded",
        RecordKind.RESCUED: "it returned what has no stored form",
        RecordKind.ABANDONED: "it may run again, so the next attempt makes it anew",
    }
    return words.get(record.kind, f"it is no call, but a {record.kind.name} record")
