"""A record's value as far as it can still be given back: the value, else its stored form, else why there is none."""

from __future__ import annotations

from dataclasses import dataclass

from agent_run_ledger import codecs
from agent_run_ledger.errors import LedgerError, Tampered
from agent_run_ledger.kernel.record import RecordKind
from agent_run_ledger.ledger.views import is_erased, stored_json
from agent_run_ledger.ports import Store
from agent_run_ledger.runs.leaf_check import check_against_leaf


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadValue:
    """`stored` is the tagged JSON of the stored form (docs/formats/encode.md), None where there is none.

    `value` is the value itself where `decoded` is true; otherwise `why` says why it is not given back. `intact` is
    False where the record is not the one whose MAC stands in the log.
    """

    stored: object
    value: object
    decoded: bool
    why: str
    intact: bool


def read_value(store: Store, record_id: int) -> ReadValue:
    """Return what can be given back of a record's value; a class that is gone or a damaged byte never raises."""
    stored = store.reader().record(record_id)
    record = stored.record
    if is_erased(record):
        return ReadValue(stored=None, value=None, decoded=False, why="erased", intact=True)
    readable = stored_json(record)
    try:
        check_against_leaf(store, stored)
    except Tampered as error:
        return ReadValue(stored=readable, value=None, decoded=False, why=error.message, intact=False)
    if record.kind is RecordKind.RESCUED:
        why = "a rescue: readable, never restored"
        return ReadValue(stored=readable, value=None, decoded=False, why=why, intact=True)
    try:
        value = codecs.unpack(record.encoding, record.payload)
    except LedgerError as error:
        return ReadValue(stored=readable, value=None, decoded=False, why=error.message, intact=True)
    return ReadValue(stored=readable, value=value, decoded=True, why="", intact=True)
