"""Reads records only after their MAC was found in their leaf: what is not what was recorded is never used."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import orjson

from agent_run_ledger import codecs
from agent_run_ledger.errors import LedgerError, Refused, Tampered
from agent_run_ledger.kernel.record import Record, RecordKind, record_mac
from agent_run_ledger.ports import RunRow, Store, StoredRecord


def load_value(
    store: Store,
    run_id: str,
    record_id: int,
    *,
    run_uid: bytes | None = None,
    referenced: Collection[int] = (),
) -> Any:
    """Return the value of a record, checked against its leaf. See `load_record`."""
    return load_record(store, run_id, record_id, run_uid=run_uid, referenced=referenced)[0]


def load_record(
    store: Store,
    run_id: str,
    record_id: int,
    *,
    run_uid: bytes | None = None,
    referenced: Collection[int] = (),
) -> tuple[Any, Record]:
    """Return a record's value and the record, checked against its leaf; a class that is gone names step and class.

    Tampered when it is not what was recorded or, where `run_uid` is given, neither of that run nor one of the records
    that the run refers to as a fork. Refused("erased") for an erased one.
    """
    stored = store.reader().record(record_id)
    check_against_leaf(store, stored)
    record = stored.record
    if run_uid is not None and record.run_uid != run_uid and record_id not in referenced:
        raise Tampered(f"record {record_id} of step {record.name!r} belongs to another run", hint="run `arl verify`")
    try:
        return codecs.unpack(record.encoding, record.payload), record
    except LedgerError as error:
        error.message = f"step {record.name!r} of run {run_id!r}: {error.message}"
        raise


def record_of_run(store: Store, row: RunRow, record_id: int, kind: RecordKind) -> Record:
    """Return a START or END record that a run's row names, checked against its leaf; Tampered for any other record.

    Refused("erased") where it is erased.
    """
    stored = store.reader().record(record_id)
    check_against_leaf(store, stored)
    record = stored.record
    if record.kind is not kind or record.run_uid != row.run_uid:
        raise Tampered(
            f"run {row.run_id!r} names record {record_id} as its {kind.name}, which it is not", hint="run `arl verify`"
        )
    return record


def generation_at(store: Store, record_id: int) -> int:
    """Return the generation under which a record was written, as its leaf says; Tampered without a readable leaf."""
    try:
        for event in store.reader().events(first=record_id >> 16, stop=(record_id >> 16) + 1):
            return int(orjson.loads(event.envelope)["changes"][record_id & 0xFFFF]["generation"])
    except (LookupError, TypeError, ValueError) as error:
        raise Tampered(f"leaf {record_id >> 16} is not readable", hint="run `arl verify`") from error
    raise Tampered(f"leaf {record_id >> 16} is missing", hint="run `arl verify`")


def erased(store: Store, stored: StoredRecord) -> Refused:
    """Return the refusal of what needs an erased record: it names the run and, where it has one, the step."""
    run_id = store.reader().get_run(stored.run_row_id).run_id
    if stored.record.name:
        return erased_step(run_id, stored.record.name)
    return _refusal(f"the start of run {run_id!r} was erased: nothing of it is restored or run again")


def erased_step(run_id: str, step_name: str) -> Refused:
    """Return the refusal of a call of a step whose record was erased."""
    return _refusal(f"step {step_name!r} of run {run_id!r} was erased: it is neither restored nor run again")


def _refusal(message: str) -> Refused:
    hint = "to run it anew, use a new run_id; who erased it and why: `arl runs show RUN`"
    return Refused(message, code="erased", hint=hint)


def check_against_leaf(store: Store, stored: StoredRecord) -> None:
    """Raise Tampered unless the record's MAC stands in its leaf; Refused("erased") for an erased one, which has none.

    An erased record is never used, so here nobody asks whether a decision explains it: `arl verify` does.
    """
    if stored.erased:
        raise erased(store, stored)
    try:
        mac = record_mac(stored.record).hex()
        for event in store.reader().events(first=stored.leaf_index, stop=stored.leaf_index + 1):
            changes = orjson.loads(event.envelope)["changes"]
            position = stored.record_id & 0xFFFF
            if position < len(changes) and changes[position].get("mac") == mac:
                return
    except (AttributeError, LookupError, OverflowError, TypeError, ValueError) as error:
        raise _mismatch(stored) from error
    raise _mismatch(stored)


def _mismatch(stored: StoredRecord) -> Tampered:
    return Tampered(
        f"record {stored.record_id} of step {stored.record.name!r} does not match its leaf {stored.leaf_index}",
        hint="run `arl verify`",
    )
