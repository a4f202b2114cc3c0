"""What the records of a run and of all runs within it say of its budgets: calls, tokens and cost, counted anew."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, cast

from agent_run_ledger import codecs
from agent_run_ledger.errors import Tampered
from agent_run_ledger.kernel.account import read_lines
from agent_run_ledger.kernel.budget import Reserve, parse_reserve
from agent_run_ledger.kernel.counters import NOTHING_USED, Counters, Used, used_of
from agent_run_ledger.kernel.record import Record, RecordKind
from agent_run_ledger.ports import InFlight, Reader, RunRow, StoredRecord
from agent_run_ledger.runs.abandoned import RESERVED, RESOLVE, detail_of

OWN_VALUES: Final = "run."
"""How the names of a run's own values begin (the time, a random number): nobody was called for them."""

_ENDED: Final = (RecordKind.RESULT, RecordKind.ERROR, RecordKind.RESCUED)


def recounted(reader: Reader, row: RunRow, tools: Sequence[str]) -> dict[str, Counters]:
    """Return the counters of a run's budgets by tool, "" for its own, as its records and start marks say them.

    With those of all runs within it. Of time only a tool's is known: what its calls that ended took. Reads every
    record. Tampered for a usage or a reserve that is none.
    """
    counted = {tool: Counters() for tool in tools}
    for within in runs_within(reader, row):
        resolved = _resolved(reader, within)
        doubts: dict[int, Reserve | None] = {}
        open_ends: dict[int, str] = {}
        for stored in reader.records(within.row_id, kinds=(*_ENDED, RecordKind.ABANDONED, RecordKind.END)):
            if stored.record.kind is RecordKind.END:
                _take_back(counted, stored, open_ends, doubts)
                continue
            if stored.record.kind in (RecordKind.ERROR, RecordKind.ABANDONED):
                open_ends[stored.record_id] = stored.record.name
            if stored.record.name.startswith(OWN_VALUES):
                continue
            if stored.record.kind is RecordKind.ABANDONED:
                doubts[stored.record_id] = read_reserve(
                    detail_of(stored.record).get(RESERVED), f"record {stored.record_id}"
                )
            elif stored.leaf_index in resolved:
                record_id = resolved[stored.leaf_index][0]
                if stored.record.usage and record_id in doubts:
                    _settle(counted, stored.record, doubts[record_id])
                continue
            _add(counted, stored)
        for record_id, said in resolved.values():
            if said.get("outcome") == "not_done" and record_id in doubts:
                _settle(counted, None, doubts[record_id], str(said.get("step")))
        for mark in reader.in_flight(within.row_id):
            for tool, counters in counted.items():
                if tool in ("", mark.name):
                    counters.begin(mark_reserve(mark), mark.started_at_ms)
    return counted


def _take_back(
    counted: dict[str, Counters], end: StoredRecord, open_ends: dict[int, str], doubts: dict[int, Reserve | None]
) -> None:
    """Count each call that an attempt was left waiting for as none. `open_ends`: step by record, of what came before.

    `doubts`: of those that nobody concluded, what they had reserved. Tampered where the attempt waited for anything
    else than those, or for one of them twice.
    """
    content = codecs.unpack(end.record.encoding, end.record.payload)
    waits: object = cast("dict[str, Any]", content).get("waits_for", []) if isinstance(content, dict) else []
    for record_id in cast("list[object]", waits) if isinstance(waits, list) else [waits]:
        if type(record_id) is not int or record_id not in open_ends:
            raise Tampered(f"record {end.record_id} says that its run waits for what is no call that waited")
        waited = open_ends.pop(record_id)
        if record_id in doubts:
            _settle(counted, None, doubts[record_id], waited)
        for tool, counters in counted.items():
            if tool in ("", waited):
                counters.take_back()


def _resolved(reader: Reader, row: RunRow) -> dict[int, tuple[int, dict[str, Any]]]:
    """Return, by the leaf that holds a person's finding, the record of the call it is about and what it says."""
    found: dict[int, tuple[int, dict[str, Any]]] = {}
    for stored in reader.records(row.row_id, kinds=(RecordKind.DECISION,)):
        if stored.record.name == RESOLVE:
            content = codecs.unpack(stored.record.encoding, stored.record.payload)
            said = cast("dict[str, Any]", content) if isinstance(content, dict) else {}
            found[stored.leaf_index] = (int(said.get("record", -1)), said)
    return found


def _settle(counted: dict[str, Counters], outcome: Record | None, reserve: Reserve | None, name: str = "") -> None:
    name = name if outcome is None else outcome.name
    for tool, counters in counted.items():
        if tool in ("", name):
            counters.settle_doubt(reserve, NOTHING_USED if outcome is None else used_by(outcome))


def used_by(record: Record) -> Used:
    """Return what a record says that its call used. Tampered for a usage that is none."""
    if not record.usage:
        return NOTHING_USED
    try:
        return used_of(read_lines(record.usage))
    except (ValueError, TypeError) as error:
        raise Tampered(f"a record of {record.name!r} says no usage that it can have: {error}") from error


def took_ms(record: Record) -> int:
    """Return how long a call took, in milliseconds; 0 where a clock was set meanwhile."""
    return max(0, record.ended_at_ms - record.started_at_ms)


def mark_reserve(mark: InFlight) -> Reserve | None:
    """Return what a call in flight reserved. Tampered for what is none."""
    return read_reserve(mark.reserved, f"the start mark of {mark.name!r}")


def runs_within(reader: Reader, row: RunRow) -> Iterator[RunRow]:
    """Yield the run and all runs within it."""
    seen = {row.row_id}
    left = [row]
    while left:
        one = left.pop()
        yield one
        children = [child for child in reader.children_of(one.row_id) if child.row_id not in seen]
        seen.update(child.row_id for child in children)
        left += children


def _add(counted: dict[str, Counters], stored: StoredRecord) -> None:
    record = stored.record
    for tool, counters in counted.items():
        if tool not in ("", record.name):
            continue
        if record.kind is RecordKind.ABANDONED:
            reserve = read_reserve(detail_of(record).get(RESERVED), f"record {stored.record_id}")
            counters.begin(reserve, record.started_at_ms)
            counters.doubt(reserve)
            continue
        counters.begin(None, record.started_at_ms)
        counters.settle(None, used_by(record))
        if tool:
            counters.wall_ms += took_ms(record)


def read_reserve(said: object, where: str) -> Reserve | None:
    """Return what a call reserved from its stored form. Tampered for what is none."""
    try:
        return parse_reserve(said)
    except ValueError as error:
        raise Tampered(f"{where} says no reserve that it can have: {error}") from error
