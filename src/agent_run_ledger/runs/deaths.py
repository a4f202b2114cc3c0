"""How often in a row the process of a run ended before its attempt did, as the run's records say."""

from __future__ import annotations

from typing import Final, NamedTuple

from agent_run_ledger.kernel.record import RecordKind
from agent_run_ledger.kernel.states import RunState
from agent_run_ledger.ports import Reader, RunRow
from agent_run_ledger.runs.later import CallKey, key_of_call

_KINDS: Final = (RecordKind.START, RecordKind.END, RecordKind.DECISION, RecordKind.ABANDONED)
_UNREAD: Final = 2
"""Of a run with so many attempts, one of them its submission, at most one has died: no record is read for it."""


class Deaths(NamedTuple):
    """`in_a_row`: how many of the latest attempts of a run nothing ended, neither an END nor a decision about it.

    `in_call`: in how many of the last of them one and the same call was under way; `call`: which step it was of.
    """

    in_a_row: int
    in_call: int = 0
    call: str = ""


def may_have_died_again(row: RunRow) -> bool:
    """Return whether more than one attempt of a run may have died; nobody is asked for it."""
    return row.state is RunState.RUNNING and row.attempt > _UNREAD


def deaths_of(reader: Reader, row: RunRow) -> Deaths:
    """Return how the latest attempts of a run ended that is running, and has no live attempt."""
    attempts: list[int] = []
    calls: dict[int, set[CallKey]] = {}
    for stored in reader.records(row.row_id, kinds=_KINDS, after_record_id=row.start_record_id or 0):
        record = stored.record
        if record.kind is RecordKind.START:
            attempts.append(record.attempt)
        elif record.kind is RecordKind.ABANDONED:
            calls.setdefault(record.attempt, set()).add(key_of_call(record))
        else:
            attempts.clear()
    for mark in reader.in_flight(row.row_id):
        calls.setdefault(mark.attempt, set()).add((mark.scope, mark.name, mark.fingerprint, mark.occurrence))
    common: set[CallKey] = set()
    in_call = 0
    for attempt in reversed(attempts):
        under_way = calls.get(attempt, set())
        under_way = under_way & common if in_call else under_way
        if not under_way:
            break
        common, in_call = under_way, in_call + 1
    return Deaths(len(attempts), in_call, ", ".join(sorted({name for _, name, _, _ in common})))
