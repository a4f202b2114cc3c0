"""What is recorded of a call of which nothing says how it ended: abandoned, or with an unknown outcome."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

import orjson

from agent_run_ledger.kernel.envelope import Change
from agent_run_ledger.kernel.record import Record, RecordKind, record_mac
from agent_run_ledger.kernel.states import CallState
from agent_run_ledger.ports import InFlight

if TYPE_CHECKING:
    from agent_run_ledger import codecs

AFTER: Final = "after"
UNKNOWN: Final = "unknown"
RESERVED: Final = "reserved"

CALLED: Final = "called"
"""Where the inputs of an unsafe tool's ERROR say that its body had called steps."""

BESIDE: Final = "beside"
"""Where the inputs of a RESULT or ERROR say that its call is made beside others with keys, see `Step.beside`."""

EFFECT: Final = "effect"
"""Where the inputs of a RESULT or ERROR of an effect say which action (32 hex digits) the call was about."""

SEEN: Final = "seen"
"""Where the inputs of an ERROR of an effect that waits say as what it saw its action: see kernel.effects.step_moves."""

ASKS: Final = "asks"
"""Where they say that it has a probe, which can be asked about a doubt."""

RESOLVE: Final = "resolve"
"""The name of the DECISION records that resolve a call with an unknown outcome."""

RESOLVES: Final = "resolves"
"""Where the inputs of a resolved call's RESULT or ERROR say which record it resolves."""

MARK: Final = "mark-"
"""Before the number of a lane, the name of a call that a dead attempt left in flight."""


def abandoned(
    mark: InFlight,
    *,
    run_uid: bytes,
    salt: bytes,
    generation: int,
    now_ms: int,
    taken: codecs.Packed | None = None,
) -> tuple[Record, Change]:
    """Return the record and the change for a start mark that nothing concluded.

    A call that may run again is abandoned: only its cost is uncertain. One that may not has an unknown outcome.
    `taken`: the chunks that were taken of a stream before it was left.
    """
    detail: dict[str, object] = {}
    if mark.after_record_id:
        detail[AFTER] = mark.after_record_id
    if not mark.repeatable:
        detail[UNKNOWN] = True
    if mark.reserved:
        detail[RESERVED] = orjson.loads(mark.reserved)
    record = Record(
        kind=RecordKind.ABANDONED,
        run_uid=run_uid,
        salt=salt,
        scope=mark.scope,
        name=mark.name,
        fingerprint=mark.fingerprint,
        occurrence=mark.occurrence,
        attempt=mark.attempt,
        tries=mark.tries,
        started_at_ms=mark.started_at_ms,
        ended_at_ms=now_ms,
        inputs=orjson.dumps(detail) if detail else b"",
    )
    if taken is not None and mark.repeatable:
        record.value_sha256, record.encoding, record.payload = taken.value_sha256, taken.encoding, taken.payload
    new = CallState.ABANDONED if mark.repeatable else CallState.UNKNOWN
    change = Change(
        type="step", id=run_uid, old=CallState.STARTED, new=new, generation=generation, mac=record_mac(record)
    )
    return record, change


def detail_of(record: Record) -> dict[str, object]:
    """Return the compact JSON that is kept beside a record; empty where there is none or it is unreadable."""
    try:
        loaded: object = orjson.loads(record.inputs or b"{}")
    except orjson.JSONDecodeError:
        return {}
    return cast("dict[str, object]", loaded) if isinstance(loaded, dict) else {}


def is_unknown(record: Record) -> bool:
    """Return whether this is the record of a call with an unknown outcome."""
    return record.kind is RecordKind.ABANDONED and detail_of(record).get(UNKNOWN) is True


def after_of(record: Record) -> int:
    """Return the latest record of the run when this call was started, 0 where nothing says so."""
    after = detail_of(record).get(AFTER, 0)
    return after if type(after) is int else 0
