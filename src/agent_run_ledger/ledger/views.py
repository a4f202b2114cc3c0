"""Read models that several commands share: a run at a glance, one record, and what a stored payload says."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

import orjson

from agent_run_ledger.errors import LedgerError, Refused, Tampered
from agent_run_ledger.kernel.record import DYNAMIC_KEY, Record, RecordKind
from agent_run_ledger.kernel.states import RunState
from agent_run_ledger.ledger.stored_words import error_text
from agent_run_ledger.ports import Reader, RunRow, Store, StoredRecord
from agent_run_ledger.runs.abandoned import BESIDE, EFFECT, RESOLVES, after_of, detail_of, is_unknown
from agent_run_ledger.runs.prefix import Origin, Prefix, prefix_in

MAX_OPENED_BYTES = 256 * 1024 * 1024
_ZLIB = 1  # how a payload is packed: docs/formats/record.md
PROBED = frozenset((RunState.RUNNING, RunState.QUARANTINED, RunState.CANCELLED))
"""States in which a body may still be running."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """Who said to hold an attempt. For messages only: a pid decides nothing."""

    pid: int | None
    host: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSummary:
    """One run at a glance. `live` is None where nobody can say; `steps_total` is None where the graph is erased.

    `forked_from` is the run id of the run it was forked from, None where it is no fork.
    `erased`: whether the run was erased as a whole, or is about to be: its last START is.
    `dynamic`: whether it is a dynamic run, None where that is erased; its `steps_recorded` are results of calls, and it
    has no `steps_total`. `parent` is the run it was started within, `children` how many were started within it.
    """

    row: RunRow
    live: bool | None
    holder: Holder
    steps_recorded: int
    steps_total: int | None
    forked_from: str | None = None
    erased: bool = False
    dynamic: bool | None = False
    parent: str | None = None
    children: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordView:
    """One record without its payload.

    `error` says what an ERROR or RESCUED record holds, "Type: message" of any length; `because` are paths of a rerun.
    `origin` says of a record that a fork refers to which other run recorded it; `attempt` is then that run's.
    `unknown`: it says that the outcome of its call is unknown. `resolves` is the record of such a call whose outcome
    this one is, as a person said, and `after` the latest record of the run when the call was started, 0 where nobody
    says. `beside`: its call is made beside others with keys, see `Step.beside`. `effect` is the action
    (32 hex digits) that the call of an effect was about.
    """

    record_id: int
    leaf_index: int
    kind: RecordKind
    step: str
    attempt: int
    tries: int
    started_at_ms: int
    ended_at_ms: int
    stored_bytes: int
    fingerprint: bytes
    value_sha256: bytes
    code_hex: str
    because: tuple[str, ...]
    error: str
    erased: bool
    salt: bytes
    arguments: Mapping[str, str]
    usage: bytes = b""
    origin: Origin | None = None
    unknown: bool = False
    resolves: int | None = None
    after: int = 0
    beside: bool = False
    effect: str = ""

    @property
    def since_attempt(self) -> int:
        """The attempt of the run that is looked at from which on the record was there; 0 for one of another run."""
        return self.attempt if self.origin is None else 0


def require_run(reader: Reader, run_id: str) -> RunRow:
    """Return the run; Refused("no_run") for an unknown one."""
    row = reader.find_run(run_id)
    if row is None:
        raise Refused(f"there is no run {run_id!r} in this store", code="no_run", hint="`arl runs list` shows the runs")
    return row


def list_runs(store: Store, *, state: RunState | None, before: str | None, limit: int) -> list[RunSummary]:
    """Return summaries, newest run first, at most `limit`, older than the run `before`; Refused for an unknown one."""
    reader = store.reader()
    before_row_id = None if before is None else require_run(reader, before).row_id
    rows = reader.list_runs(state=state, before_row_id=before_row_id, limit=limit)
    return [summarise(store, row) for row in rows]


def summarise(store: Store, row: RunRow) -> RunSummary:
    """Return the summary of one run. A start of it elsewhere is not disturbed."""
    reader = store.reader()
    start = None if row.last_start_record_id is None else reader.record(row.last_start_record_id)
    content: Mapping[str, Any] = {} if start is None else record_content(start.record)
    steps, dynamic = content.get("steps"), DYNAMIC_KEY in content
    defined = _names(cast("list[object]", steps)) if isinstance(steps, list) and not dynamic else None
    forked_from, prefix = None, None
    if row.forked_from_row_id is not None:
        forked_from = reader.get_run(row.forked_from_row_id).run_id
        prefix = told_prefix(content_of(reader, row.start_record_id))
    return RunSummary(
        row=row,
        live=is_live(store, row),
        holder=parse_holder(row.holder),
        steps_recorded=reader.count_results(row.row_id)
        if dynamic
        else _recorded(reader, row, defined, frozenset(prefix.records if prefix else ())),
        steps_total=None if defined is None else len(defined),
        forked_from=forked_from,
        erased=start is not None and start.erased,
        dynamic=None if start is None or start.erased else dynamic,
        parent=None if row.parent_row_id is None else reader.get_run(row.parent_row_id).run_id,
        children=len(reader.children_of(row.row_id)),
    )


def _recorded(reader: Reader, row: RunRow, defined: set[str] | None, referenced: frozenset[str]) -> int:
    """Return how many steps have a result; a completed run has all of them, so nothing is read for it."""
    if defined is not None and row.state is RunState.COMPLETED:
        return len(defined)
    recorded = reader.result_names(row.row_id) | referenced
    return len(recorded if defined is None else recorded & defined)


def told_prefix(content: Mapping[str, Any]) -> Prefix | None:
    """Return what a START that nobody has checked says of a fork; None where that cannot be read."""
    try:
        return prefix_in(content)
    except Tampered:
        return None


def _names(steps: list[object]) -> set[str]:
    """Return the names of the steps of a START record: a step that left the pipeline is not counted as recorded."""
    return {str(cast("list[object]", step)[0]) for step in steps if isinstance(step, list) and step}


def is_live(store: Store, row: RunRow) -> bool | None:
    """Return whether an attempt of this run lives in some process now; None where the lock cannot be asked."""
    if row.state not in PROBED:
        return False
    try:
        return store.is_run_live(row.run_id)
    except LedgerError:
        return None


def parse_holder(stored: str) -> Holder:
    """Return the holder of an attempt from its stored form; empty fields where it says something else."""
    try:
        loaded = orjson.loads(stored)
    except ValueError:
        return Holder(pid=None, host=stored)
    if not isinstance(loaded, dict):
        return Holder(pid=None, host=stored)
    fields = cast("dict[str, object]", loaded)
    pid = fields.get("pid")
    return Holder(pid=pid if isinstance(pid, int) else None, host=str(fields.get("host", "")))


def content_of(reader: Reader, record_id: int | None) -> Mapping[str, Any]:
    """Return what a START, END or DECISION record says; empty where there is none or it cannot be read."""
    return {} if record_id is None else record_content(reader.record(record_id).record)


def record_content(record: Record) -> Mapping[str, Any]:
    """Return what a START, END or DECISION record says; empty where it cannot be read."""
    stored = stored_json(record)
    return cast("dict[str, Any]", stored) if isinstance(stored, dict) else {}


def view_record(stored: StoredRecord, origin: Origin | None = None) -> RecordView:
    """Return one record without its payload; `origin` where it is another run's."""
    record = stored.record
    inputs = detail_of(record)
    because = inputs.get("because", [])
    arguments = inputs.get("a", {})
    resolves, effect = inputs.get(RESOLVES), inputs.get(EFFECT)
    return RecordView(
        record_id=stored.record_id,
        leaf_index=stored.leaf_index,
        kind=record.kind,
        step=record.name,
        attempt=record.attempt,
        tries=record.tries,
        started_at_ms=record.started_at_ms,
        ended_at_ms=record.ended_at_ms,
        stored_bytes=len(record.payload or b""),
        fingerprint=record.fingerprint,
        value_sha256=record.value_sha256,
        code_hex=record.code.hex(),
        because=tuple(map(str, cast("list[object]", because))) if isinstance(because, list) else (),
        error=_error_line(record) if record.kind in (RecordKind.ERROR, RecordKind.RESCUED) else "",
        erased=is_erased(record),
        salt=record.salt or b"",
        arguments=cast("Mapping[str, str]", arguments) if isinstance(arguments, dict) else {},
        origin=origin,
        usage=record.usage or b"",
        unknown=is_unknown(record),
        resolves=resolves if type(resolves) is int else None,
        after=after_of(record),
        beside=inputs.get(BESIDE) is True,
        effect=effect if isinstance(effect, str) else "",
    )


def is_erased(record: Record) -> bool:
    """Return whether the salt and the payload of the record were deleted; its leaf still proves that it was there."""
    return not record.salt


def stored_json(record: Record) -> object:
    """Return the payload as tagged JSON, building no value of it; None where there is none or it is damaged."""
    payload = record.payload
    if not payload:
        return None
    try:
        if record.encoding == _ZLIB:
            payload = zlib.decompressobj().decompress(payload, MAX_OPENED_BYTES)
        return cast("object", orjson.loads(payload))
    except (ValueError, zlib.error):
        return None


def _error_line(record: Record) -> str:
    """Return "Type: message" from the stored form, so that no code of the exception's class runs."""
    if record.kind is RecordKind.RESCUED:
        return "the result has no exact stored form; what is readable of it was kept"
    stored = stored_json(record)
    if not isinstance(stored, dict):
        return "the error was erased" if is_erased(record) else "an error that cannot be read"
    return error_text(cast("object", stored))
