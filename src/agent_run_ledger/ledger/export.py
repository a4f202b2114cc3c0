"""The log as a stream of CloudEvents 1.0 in JSON: one per leaf, then the head it adds up to."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import cast

import orjson

from agent_run_ledger.errors import Tampered
from agent_run_ledger.kernel.merkle import append, leaf_hash, root
from agent_run_ledger.kernel.record import RecordKind
from agent_run_ledger.ledger.views import is_erased, record_content, stored_json, view_record
from agent_run_ledger.ports import Event, Reader, RunRow, StoredRecord

PREFIX = "agent-run-ledger"
WINDOW = 256
"""Leaves read at once: a tile's worth, with their records one at a time."""

_STEP_WORDS = {"started", "recorded", "failed", "abandoned", "unknown", "resolved", "rescued", "erased"}
_DECISION_WORDS = {"quarantine": "quarantined", "release": "released", "takeover": "taken_over", "cancel": "cancelled"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportOptions:
    """What goes into an export beyond names, times and hashes.

    `fingerprints`: digests of calls, arguments, values and code, by which equal inputs of two runs can be recognised.
    `payloads`: the stored values. With both, also salts and exact bytes: then each record's MAC can be recomputed.
    """

    fingerprints: bool = False
    payloads: bool = False


def export_events(
    reader: Reader, log_id: bytes, *, run: RunRow | None = None, options: ExportOptions | None = None
) -> Iterator[dict[str, object]]:
    """Yield one CloudEvent per leaf (with `run`, of that run's leaves) and last the checkpoint, in bounded memory.

    The events' `data.envelope` are the exact bytes that are hashed, so the root of a whole export can be recomputed
    from it alone. The head is read first; what is appended meanwhile is not exported. Raises Tampered, before the
    checkpoint, when the leaves do not add up to the head's root.
    """
    head = reader.head()
    chosen = options or ExportOptions()
    frontier: tuple[bytes, ...] = ()
    size = 0
    for event, records in _leaves(reader, head.size):
        frontier = append(size, frontier, leaf_hash(event.envelope))
        size += 1
        exported = _cloud_event(event, records, log_id, run, chosen)
        if exported is not None:
            yield exported
    if size != head.size or frontier != head.frontier:
        raise Tampered(
            f"the {size} leaves read do not add up to the head of {head.size} leaves", hint="run `arl verify`"
        )
    yield _checkpoint(log_id, head.size, root(head.size, head.frontier), head.time_ms)


def _leaves(reader: Reader, stop: int) -> Iterator[tuple[Event, list[StoredRecord]]]:
    """Yield each leaf with its records, in order."""
    for first in range(0, stop, WINDOW):
        until = min(first + WINDOW, stop)
        stored_records = reader.leaf_records(first=first, stop=until)
        ahead = next(stored_records, None)
        for event in reader.events(first=first, stop=until):
            own: list[StoredRecord] = []
            while ahead is not None and ahead.leaf_index <= event.index:
                own.append(ahead)
                ahead = next(stored_records, None)
            yield event, own


def _cloud_event(
    event: Event, records: list[StoredRecord], log_id: bytes, run: RunRow | None, options: ExportOptions
) -> dict[str, object] | None:
    """Return the CloudEvent of one leaf; None when it is not of the run that is asked for."""
    envelope, changes = _opened(event)
    if run is not None and all(change.get("id") != run.run_uid.hex() for change in changes):
        return None
    by_position = {stored.record_id & 0xFFFF: stored for stored in records}
    listed: list[dict[str, object]] = []
    for position, change in enumerate(changes):
        stored = by_position.get(position)
        listed.append(change if stored is None else change | {"record": _record(stored, options)})
    exported: dict[str, object] = {
        "leaf_index": event.index,
        "leaf_hash_hex": leaf_hash(event.envelope).hex(),
        "envelope": event.envelope.decode("utf-8", "backslashreplace"),
        "changes": listed,
    }
    run_id = run.run_id if run is not None else _run_id(records)
    if run_id is not None:
        exported["run_id"] = run_id
    return {
        "specversion": "1.0",
        "id": event.op_id.hex(),
        "source": _source(log_id),
        "type": _type_of(changes, by_position),
        "time": _rfc3339(envelope.get("time_ms")),
        "subject": str(changes[0].get("id", "")) if changes else "",
        "datacontenttype": "application/json",
        "data": exported,
    }


def _opened(event: Event) -> tuple[Mapping[str, object], list[dict[str, object]]]:
    try:
        envelope = cast("dict[str, object]", orjson.loads(event.envelope))
        changes = cast("list[object]", envelope["changes"])
        if all(isinstance(change, dict) for change in changes):
            return envelope, cast("list[dict[str, object]]", changes)
    except (ValueError, LookupError, TypeError):
        pass
    raise Tampered(f"leaf {event.index} is no envelope", hint="run `arl verify`")


def _type_of(changes: list[dict[str, object]], records: Mapping[int, StoredRecord]) -> str:
    """Return the event type, from the leaf's first transition: what happened to a run, a step or the store."""
    if not changes:
        return f"{PREFIX}.log.appended"
    kind, new = str(changes[0].get("type", "")), str(changes[0].get("new", ""))
    if kind == "step":
        return f"{PREFIX}.step.{new if new in _STEP_WORDS else 'changed'}"
    stored = records.get(0)
    if stored is not None and stored.record.kind is RecordKind.START:
        return f"{PREFIX}.run.started"
    if stored is not None and stored.record.kind is RecordKind.DECISION:
        return f"{PREFIX}.run.{_DECISION_WORDS.get(stored.record.name, 'decided')}"
    return f"{PREFIX}.{kind}.{new}" if kind.isidentifier() and new.isidentifier() else f"{PREFIX}.log.appended"


def _record(stored: StoredRecord, options: ExportOptions) -> dict[str, object]:
    record = stored.record
    exported: dict[str, object] = {
        "record_id": stored.record_id,
        "kind": record.kind.name.lower(),
        "step": record.name,
        "scope_hex": record.scope.hex(),
        "occurrence": record.occurrence,
        "attempt": record.attempt,
        "tries": record.tries,
        "started_at": _rfc3339(record.started_at_ms),
        "ended_at": _rfc3339(record.ended_at_ms),
        "stored_bytes": len(record.payload or b""),
    }
    if record.usage:
        exported["usage"] = record.usage.decode("utf-8", "backslashreplace")
    if is_erased(record):
        exported["erased"] = True
        return exported
    view = view_record(stored)
    if view.because:
        exported["because"] = list(view.because)
    if view.after:
        exported["after"] = view.after
    if view.unknown:
        exported["unknown"] = True
    if view.resolves is not None:
        exported["resolves"] = view.resolves
    if options.fingerprints:
        exported["fingerprint_hex"] = record.fingerprint.hex()
        exported["value_sha256_hex"] = record.value_sha256.hex()
        exported["code_hex"] = record.code.hex()
        exported["inputs"] = record.inputs.decode("utf-8", "backslashreplace")
    if options.payloads:
        exported["value"] = stored_json(record)
    if options.fingerprints and options.payloads:
        exported["salt_hex"] = record.salt.hex()
        exported["started_at_ms"], exported["ended_at_ms"] = record.started_at_ms, record.ended_at_ms
        exported["encoding"] = record.encoding
        exported["payload_base64"] = base64.b64encode(record.payload).decode("ascii")
    return exported


def _run_id(records: list[StoredRecord]) -> str | None:
    """Return the run id that a START record tells, the only place besides the row where it stands."""
    for stored in records:
        if stored.record.kind is RecordKind.START:
            run_id = record_content(stored.record).get("run_id")
            return run_id if isinstance(run_id, str) else None
    return None


def _checkpoint(log_id: bytes, size: int, root_hash: bytes, time_ms: int) -> dict[str, object]:
    return {
        "specversion": "1.0",
        "id": f"{log_id.hex()}-{size}",
        "source": _source(log_id),
        "type": f"{PREFIX}.log.checkpoint",
        "time": _rfc3339(time_ms),
        "subject": log_id.hex(),
        "datacontenttype": "application/json",
        "data": {"size": size, "root_hex": root_hash.hex()},
    }


def _source(log_id: bytes) -> str:
    return f"urn:{PREFIX}:{log_id.hex()}"


def _rfc3339(time_ms: object) -> str:
    """Return Unix milliseconds as an RFC 3339 timestamp in UTC; the epoch where it is none."""
    try:
        moment = datetime.fromtimestamp(int(cast("int", time_ms)) / 1000, UTC)
    except (ValueError, OverflowError, OSError, TypeError):
        moment = datetime.fromtimestamp(0, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
