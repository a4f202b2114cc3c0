"""A record's value as far as it can still be given back: the value, else its stored form, else why there is none."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import orjson

from agent_run_ledger import codecs
from agent_run_ledger.errors import LedgerError, Tampered
from agent_run_ledger.kernel.record import KEPT_INPUTS, RecordKind
from agent_run_ledger.ledger.stored_words import TAG
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


def read_kept_inputs(store: Store, record_id: int) -> dict[str, ReadValue]:
    """Return the inputs' values that a START record keeps, by name, as far as each can be given back. Never raises."""
    stored = store.reader().record(record_id)
    content = stored_json(stored.record)
    nodes = cast("dict[str, object]", content).get(KEPT_INPUTS) if isinstance(content, dict) else None
    why = ""
    try:
        check_against_leaf(store, stored)
    except LedgerError as error:
        why = error.message
    named = cast("dict[str, object]", nodes) if isinstance(nodes, dict) else {}
    if TAG in named:  # an input has the name of the tag, so the dict is written as pairs
        named = {"(all inputs)": named}
    return {name: _read_node(node, why) for name, node in named.items()}


def _read_node(node: object, why: str) -> ReadValue:
    if why:
        return ReadValue(stored=node, value=None, decoded=False, why=why, intact=False)
    try:
        value = codecs.decode(orjson.dumps(node))
    except LedgerError as error:
        return ReadValue(stored=node, value=None, decoded=False, why=error.message, intact=True)
    return ReadValue(stored=node, value=value, decoded=True, why="", intact=True)


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
