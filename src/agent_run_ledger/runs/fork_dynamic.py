"""What a fork of a dynamic run refers to: everything that was recorded before one of its calls was begun."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import cast

from agent_run_ledger.errors import Misuse, Refused
from agent_run_ledger.kernel.record import DYNAMIC_KEY, Record, RecordKind
from agent_run_ledger.kernel.scopes import call_scope
from agent_run_ledger.ports import Reader, RunRow, Store, StoredRecord
from agent_run_ledger.runs.abandoned import RESOLVE, after_of
from agent_run_ledger.runs.attempt import start_detail
from agent_run_ledger.runs.leaf_check import check_against_leaf
from agent_run_ledger.runs.opened_run import PARENT_SCOPE
from agent_run_ledger.runs.prefix import Prefix

_CALLS = (RecordKind.RESULT, RecordKind.ERROR, RecordKind.RESCUED, RecordKind.ABANDONED)


@dataclass(frozen=True, slots=True, kw_only=True)
class ForkPoint:
    """The call at which a run is forked: the first of a step, or the one that a record is of. Exactly one is given."""

    step: str | None = None
    record_id: int | None = None


def dynamic_prefix(
    store: Store, row: RunRow, inherited: Prefix | None, point: ForkPoint, *, scope_key: bytes
) -> Prefix:
    """Return what a fork at this call refers to: all that its run has or refers to from before the call was begun.

    Refused: no_step, no_call, erased, and dynamic_fork where another run was started within it before, and not by the
    call itself: a fork has no part in that, and would start it anew.
    """
    reader = store.reader()
    at = _find(reader, row, inherited, point)
    check_against_leaf(store, at)
    record, after = at.record, after_of(at.record)
    inner = call_scope(scope_key, record.scope, record.name, record.fingerprint, record.occurrence)
    for child in reader.children_of(row.row_id):
        if child.start_record_id is None or child.start_record_id > at.record_id:
            continue
        if not _scope_of(store, child).startswith(inner):
            raise Refused(
                f"run {child.run_id!r} was started within {row.run_id!r} before this call: a fork would start it anew",
                code="dynamic_fork",
                hint="fork at a call before that",
            )
    calls: list[int] = []
    others: list[int] = []
    for stored in _each(reader, row, inherited):
        if stored.record_id <= after:
            (calls if stored.record.kind is RecordKind.RESULT else others).append(stored.record_id)
    return Prefix(
        run_id=row.run_id,
        run_uid_hex=row.run_uid.hex(),
        from_step=at.record.name,
        records={},
        calls=tuple(calls),
        others=tuple(others),
        scope=record.scope,
        after=after,
    )


def _scope_of(store: Store, child: RunRow) -> bytes:
    """Return where in its parent a run was started; the root where nobody can say."""
    dynamic: object = start_detail(store, child)[0].get(DYNAMIC_KEY)
    said = cast("dict[str, object]", dynamic) if isinstance(dynamic, dict) else {}
    return bytes.fromhex(str(said.get(PARENT_SCOPE, "")))


def _find(reader: Reader, row: RunRow, inherited: Prefix | None, point: ForkPoint) -> StoredRecord:
    if (point.step is None) == (point.record_id is None):
        raise Misuse(
            "a dynamic run is forked at the first call of a step or at one call", code="bad_fork",
            hint="give one of from_step= and from_call=",
        )  # fmt: skip
    for stored in _each(reader, row, inherited):
        record = stored.record
        if record.kind in _CALLS and (record.name == point.step or stored.record_id == point.record_id):
            return stored
    hint = "`arl runs show RUN` shows its calls, each with the number of its record"
    if point.step is not None:
        raise Refused(f"run {row.run_id!r} has no record of step {point.step!r}", code="no_step", hint=hint)
    raise Refused(f"run {row.run_id!r} has no call with the record {point.record_id}", code="no_call", hint=hint)


def _each(reader: Reader, row: RunRow, inherited: Prefix | None) -> Iterator[StoredRecord]:
    """Yield the records that a run has of calls and of what people found out about them, those it refers to first."""
    for record_id in () if inherited is None else sorted((*inherited.calls, *inherited.others)):
        yield reader.record(record_id)
    for stored in reader.records(row.row_id, kinds=(*_CALLS, RecordKind.DECISION)):
        if _matters(stored.record):
            yield stored


def _matters(record: Record) -> bool:
    return record.kind is not RecordKind.DECISION or record.name == RESOLVE
